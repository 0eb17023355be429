"""The memory on a real API server: its ConfigMap, the daemon that keeps it, and `rescheduler resume`."""

import base64
import subprocess
from collections.abc import Callable
from typing import Any

import httpx
import pytest

from deploy.local.api import Json
from deploy.local.errors import ApiError
from deploy.local.manifests import deployment
from deploy.local.plane import ControlPlane
from rescheduler.clock import SystemClock
from rescheduler.errors import Conflict, Forbidden, NotFound
from rescheduler.kube.client import Client
from rescheduler.kube.connection import Kubeconfig
from rescheduler.kube.memory import ANNOTATION, Absent, MemoryStore, Stored, Unreadable
from rescheduler.planning.controllers import Controller
from rescheduler.planning.debts import Debt
from rescheduler.planning.memory import Memory, OpenDebt, dump, load
from rescheduler.settings import MEMORY_NAME
from tests.cluster.daemon import Daemon, Look, command, environment, prefers
from tests.cluster.rendering import kustomization
from tests.planning.builders import NOW
from tests.planning.memories import large

NAMESPACE = "default"  # where tests/cluster/daemon.py runs daemons
SHIPPED = "kube-system"  # where the manifests run it
LEASE = "k8s-spot-rescheduler"
LEASES = f"/apis/coordination.k8s.io/v1/namespaces/{NAMESPACE}/leases"
CONFIG_MAPS = f"/api/v1/namespaces/{NAMESPACE}/configmaps"
PATH = f"{CONFIG_MAPS}/{MEMORY_NAME}"
SHIPPED_CONFIG_MAPS = f"/api/v1/namespaces/{SHIPPED}/configmaps"
WEB = Controller("default", "Deployment", "web", "uid-web")
DB = Controller("default", "StatefulSet", "db", "uid-db")


def store(cluster: ControlPlane, *, lease: str = "") -> MemoryStore:
    return MemoryStore(Client(Kubeconfig(str(cluster.kubeconfig)), SystemClock()), NAMESPACE, MEMORY_NAME, lease)


def shipped_client(cluster: ControlPlane) -> Client:
    """With the shipped ServiceAccount's credentials."""
    return Client(Kubeconfig(str(cluster.service_account_kubeconfig(SHIPPED, "spot-rescheduler"))), SystemClock())


def shipped_store(cluster: ControlPlane) -> MemoryStore:
    return MemoryStore(shipped_client(cluster), SHIPPED, MEMORY_NAME)


def stored(cluster: ControlPlane, config_maps: str = CONFIG_MAPS) -> Json | None:
    return next((one for one in cluster.api.items(config_maps) if one["metadata"]["name"] == MEMORY_NAME), None)


def memory(cluster: ControlPlane) -> Memory:
    found = stored(cluster)
    assert found is not None
    return load(base64.b64decode(found["binaryData"]["memory"]))


class TestStore:
    def test_it_is_created_read_and_changed(self, cluster: ControlPlane) -> None:
        config_map = store(cluster)
        assert config_map.read() == Absent()
        first = config_map.write(b"\x00one", "a summary\n", "")
        assert config_map.read() == Stored(b"\x00one", first)
        second = config_map.write(b"\xfftwo", "another\n", first)
        assert config_map.read() == Stored(b"\xfftwo", second)
        found = stored(cluster)
        assert found is not None
        assert found["data"] == {"summary": "another\n"}

    def test_only_one_of_two_writers_wins(self, cluster: ControlPlane) -> None:
        ours, theirs = store(cluster), store(cluster)
        first = ours.write(b"one", "", "")
        with pytest.raises(Conflict):
            theirs.write(b"created too", "", "")
        second = theirs.write(b"two", "", first)
        with pytest.raises(Conflict):
            ours.write(b"three", "", first)
        assert ours.read() == Stored(b"two", second)

    def test_one_that_was_deleted_is_not_written(self, cluster: ControlPlane) -> None:
        config_map = store(cluster)
        version = config_map.write(b"one", "", "")
        cluster.api.delete(PATH)
        with pytest.raises(NotFound):
            config_map.write(b"two", "", version)
        config_map.write(b"three", "", "")
        with pytest.raises(Conflict):  # another one of that name
            config_map.write(b"four", "", version)

    def test_waivers_are_taken_off_by_the_next_write(self, cluster: ControlPlane) -> None:
        config_map = store(cluster)
        version = config_map.write(b"one", "", "")
        config_map.waive({str(WEB), str(DB)}, version)
        found = config_map.read()
        assert isinstance(found, Stored)
        assert (found.content, found.waived) == (b"one", (str(WEB), str(DB)))
        with pytest.raises(Conflict):
            config_map.write(b"two", "", version)
        second = config_map.write(b"two", "", found.version)
        assert config_map.read() == Stored(b"two", second)

    def test_one_without_content_is_unreadable(self, cluster: ControlPlane) -> None:
        metadata = {"namespace": NAMESPACE, "name": MEMORY_NAME}
        cluster.apply([{"apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata, "data": {"summary": "x"}}])
        told = "ConfigMap default/spot-rescheduler-memory has no binaryData.memory"
        assert store(cluster).read() == Unreadable(told)

    def test_at_5000_nodes_it_is_below_256_kib(self, cluster: ControlPlane) -> None:
        full = large(5_000, 20_000)
        content = dump(full)
        config_map = store(cluster)
        config_map.write(content, full.summary(NOW), "")
        size = len(httpx.Response(200, json=stored(cluster)).content)
        assert 128 * 1024 < size < 256 * 1024
        found = config_map.read()
        assert isinstance(found, Stored)
        assert found.content == content
        assert load(found.content).debts == full.debts

    def test_the_lease_tells_that_it_was_created(self, cluster: ControlPlane) -> None:
        elected = store(cluster, lease=LEASE)
        assert not elected.was_created()
        with pytest.raises(NotFound):
            elected.note_created()
        spec = {"holderIdentity": "somebody", "leaseDurationSeconds": 15}
        metadata = {"name": LEASE, "namespace": NAMESPACE}
        cluster.api.post(
            LEASES, {"apiVersion": "coordination.k8s.io/v1", "kind": "Lease", "metadata": metadata, "spec": spec}
        )
        assert not elected.was_created()
        elected.note_created()
        assert elected.was_created()
        lease = cluster.api.get(f"{LEASES}/{LEASE}")
        assert (lease["metadata"]["annotations"], lease["spec"]) == ({ANNOTATION: MEMORY_NAME}, spec)
        assert not store(cluster).was_created()


@pytest.fixture
def rights(cluster: ControlPlane) -> Any:
    """The shipped ServiceAccount and RBAC; gives a function that takes rules away from the Role."""
    made = [one for one in kustomization("base") if "Role" in one["kind"] or one["kind"] == "ServiceAccount"]
    cluster.apply(made)
    [role] = [one for one in made if one["kind"] == "Role"]

    def without(taken: Callable[[Json], bool]) -> None:
        kept = [rule for rule in role["rules"] if not taken(rule)]
        cluster.api.patch(cluster.api.path(role), {"rules": kept})

    yield without
    for one in made:
        cluster.api.delete(cluster.api.path(one))


def of_memory(verb: str) -> Callable[[Json], bool]:
    return lambda rule: rule["resources"] == ["configmaps"] and verb in rule["verbs"]


class TestRights:
    @pytest.mark.usefixtures("rights")
    def test_the_shipped_ones_are_for_this_name_alone(self, cluster: ControlPlane) -> None:
        ours = shipped_store(cluster)
        version = ours.write(b"one", "", "")
        assert ours.read() == Stored(b"one", version)
        ours.write(b"two", "", version)
        other = f"{SHIPPED_CONFIG_MAPS}/extension-apiserver-authentication"
        client = shipped_client(cluster)
        for method in ("GET", "PATCH", "DELETE"):
            with pytest.raises(Forbidden):
                client.request("touch another", method, other, body={} if method == "PATCH" else None)
        with pytest.raises(Forbidden):
            client.request("delete ours", "DELETE", f"{SHIPPED_CONFIG_MAPS}/{MEMORY_NAME}")

    def test_a_missing_one_is_named_with_verb_and_resource(self, cluster: ControlPlane, rights: Any) -> None:
        rights(of_memory("get"))
        found = shipped_store(cluster).read()
        assert isinstance(found, Unreadable)
        assert "get configmap kube-system/spot-rescheduler-memory" in found.why
        assert 'cannot get resource "configmaps"' in found.why

    @pytest.mark.parametrize("verb", ["create", "get"])
    def test_the_daemon_drains_nothing_without_it(self, verb: str, cluster: ControlPlane, rights: Any) -> None:
        rights(of_memory(verb))
        look = Look(cluster)
        movable(cluster, look)
        own = cluster.service_account_kubeconfig(SHIPPED, "spot-rescheduler")
        here = f"--namespace={SHIPPED}"
        with Daemon(cluster, here, "--dry-run", "--once", kubeconfig=own) as dry:
            assert dry.end() == 0
            assert dry.told("can be drained: 2 pods", node="on-demand-1")
            assert bool(dry.told("this dry run does not know the memory")) is (verb == "get")
        with Daemon(cluster, here, kubeconfig=own) as daemon:
            waits_for(look, daemon, "memory-unreadable")
            assert f'cannot {verb} resource "configmaps"' in status(daemon)["waiting"]["detail"]
        assert look.kinds() == {"on-demand": 2}
        assert (look.marks(), stored(cluster, SHIPPED_CONFIG_MAPS)) == ({}, None)


def status(daemon: Daemon) -> Json:
    if not daemon.address:
        return {"waiting": None}
    answer: Json = httpx.get(
        f"{daemon.address}/statusz", headers={"Accept": "application/json"}, trust_env=False
    ).json()
    return answer


def movable(cluster: ControlPlane, look: Look) -> None:
    """One on-demand node, whose two pods fit spot."""
    look.nodes(1, 2)
    cluster.apply([deployment("web", 2)])
    look.running(2)
    look.open_spot()


def two_nodes(cluster: ControlPlane, look: Look) -> None:
    """Two on-demand nodes that can be emptied, on-demand-2 first."""
    look.nodes(2, 2)
    few, many = (
        deployment("few", 1, affinity=prefers("on-demand-2")),
        deployment("many", 3, affinity=prefers("on-demand-1")),
    )
    cluster.apply([few, many])
    look.running(4)
    look.open_spot()


def waits_for(look: Look, daemon: Daemon, reason: str) -> None:
    look.eventually(lambda: (status(daemon)["waiting"] or {}).get("reason") == reason, reason)


class TestDaemon:
    def test_restarted_after_a_drain_the_delay_holds(self, cluster: ControlPlane) -> None:
        look = Look(cluster)
        two_nodes(cluster, look)
        with Daemon(cluster, "--once") as daemon:
            assert daemon.end() == 0
        look.running(4)
        assert (look.kinds("few"), look.kinds("many")) == ({"spot": 1}, {"on-demand": 3})
        before = {one["metadata"]["uid"] for one in look.pods()}
        for _ in range(2):
            with Daemon(cluster) as daemon:
                waits_for(look, daemon, "drain-delay")
                daemon.kill()
        assert {one["metadata"]["uid"] for one in look.pods()} == before
        assert look.marks() == {}

    def test_deleted_between_two_leaders_it_costs_a_drain_delay(self, cluster: ControlPlane) -> None:
        look = Look(cluster)
        look.nodes(1, 1)
        with Daemon(cluster, "--leader-elect") as daemon:
            look.eventually(lambda: ANNOTATION in annotations(cluster), "the Lease that tells of the memory")
            daemon.terminate()
            assert daemon.end() == 0
        cluster.api.delete(PATH)
        cluster.apply([deployment("web", 2)])
        look.running(2)
        look.open_spot()
        with Daemon(cluster, "--leader-elect") as daemon:
            waits_for(look, daemon, "drain-delay")
        assert look.kinds() == {"on-demand": 2}
        assert memory(cluster).drained_at is not None

    def test_broken_content_holds_drains_until_it_is_deleted(self, cluster: ControlPlane) -> None:
        look = Look(cluster)
        movable(cluster, look)
        broken = {"memory": base64.b64encode(b"not ours").decode()}
        metadata = {"namespace": NAMESPACE, "name": MEMORY_NAME}
        [made] = cluster.apply([{"apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata, "binaryData": broken}])
        with Daemon(cluster, "--node-drain-delay=1s") as daemon:
            waits_for(look, daemon, "memory-unreadable")
            found = stored(cluster)
            assert found is not None
            assert found["metadata"]["resourceVersion"] == made["metadata"]["resourceVersion"]
            assert (look.kinds(), look.marks()) == ({"on-demand": 2}, {})
            cluster.api.delete(PATH)
            look.eventually(lambda: look.kinds() == {"spot": 2}, "the pods on spot")


def annotations(cluster: ControlPlane) -> Json:
    try:
        found: Json = cluster.api.get(f"{LEASES}/{LEASE}")["metadata"].get("annotations", {})
    except ApiError:
        return {}
    return found


def resume(cluster: ControlPlane, *arguments: str) -> tuple[int, str, str]:
    done = subprocess.run(
        command("resume", f"--kubeconfig={cluster.kubeconfig}", f"--namespace={NAMESPACE}", *arguments),
        capture_output=True,
        text=True,
        check=False,
        env=environment(),
    )
    return done.returncode, done.stdout, done.stderr


class TestResume:
    def test_a_waiver_reaches_the_daemon(self, cluster: ControlPlane) -> None:
        """No node is there, so nothing is ever paid."""
        look = Look(cluster)
        made = cluster.apply([deployment("web", 1), deployment("db", 1)])
        web, db = (Controller("default", "Deployment", one["metadata"]["name"], one["metadata"]["uid"]) for one in made)
        debts = tuple(OpenDebt("od-1", NOW, Debt(controller, 1, 1)) for controller in (web, db))
        store(cluster).write(dump(Memory(debts=debts)), "", "")
        assert resume(cluster, f"--waive={web}") == (0, "waived: default/Deployment/web\n", "")
        found = stored(cluster)
        assert found is not None
        assert found["data"]["waived"] == "default/Deployment/web\n"
        with Daemon(cluster) as daemon:
            look.eventually(lambda: memory(cluster).debts == debts[1:], "the waiver applied")
            found = stored(cluster)
            assert found is not None
            assert set(found["data"]) == {"summary"}
            assert resume(cluster, f"--waive={db}") == (0, "waived: default/Deployment/db\n", "")
            look.eventually(lambda: memory(cluster).debts == (), "the second one, by a daemon that runs")
            daemon.terminate()
            assert daemon.end() == 0

    def test_what_is_owed_nothing_is_an_error_and_nothing_is_waived(self, cluster: ControlPlane) -> None:
        store(cluster).write(dump(Memory(debts=(OpenDebt("od-1", NOW, Debt(DB, 1, 1)),))), "", "")
        assert resume(cluster, f"--waive={DB}", f"--waive={WEB}") == (
            1,
            "",
            "rescheduler: default/Deployment/web: nothing is owed; owed is: default/StatefulSet/db\n",
        )
        found = stored(cluster)
        assert found is not None
        assert "waived" not in found["data"]

    @pytest.mark.parametrize(
        ("content", "told"),
        [
            (None, "ConfigMap default/spot-rescheduler-memory: not found, so nothing is owed"),
            (b"not ours", "ConfigMap default/spot-rescheduler-memory: expected gzip"),
            (dump(Memory()), "nothing is owed; owed is: nothing at all"),
        ],
        ids=["missing", "broken", "empty"],
    )
    def test_where_nothing_can_be_owed(self, content: bytes | None, told: str, cluster: ControlPlane) -> None:
        if content is not None:
            store(cluster).write(content, "", "")
        code, out, error = resume(cluster, f"--waive={WEB}")
        assert (code, out, error.count("\n")) == (1, "", 1)
        assert told in error
