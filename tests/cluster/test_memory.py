"""The memory on a real API server: its ConfigMap, its use by the daemon, and `rescheduler resume`."""

import base64
from typing import Any

import httpx2
import pytest

from devcluster.api import Json
from devcluster.manifests import deployment
from devcluster.plane import ControlPlane
from rescheduler.clock import SystemClock
from rescheduler.errors import Conflict, Forbidden, NotFound
from rescheduler.kube.client import Client
from rescheduler.kube.connection import Kubeconfig
from rescheduler.kube.memory import ANNOTATION, Absent, MemoryStore, Stored, UnreadableMemory
from rescheduler.planning.controllers import Controller
from rescheduler.planning.debts import Debt, OpenDebt
from rescheduler.planning.memory import Memory, dump, load
from rescheduler.settings import MEMORY_NAME
from tests import forking
from tests.cluster.daemon import ClusterQueries, Daemon
from tests.cluster.rendering import kustomization
from tests.cluster.rights import ACCESS
from tests.planning.builders import NOW
from tests.planning.memories import large

NAMESPACE = "default"  # where tests/cluster/daemon.py runs daemons
SHIPPED = "spot-rescheduler"  # where the manifests run it
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
    """Return a client with the credentials of the shipped ServiceAccount."""
    return Client(Kubeconfig(str(cluster.service_account_kubeconfig(SHIPPED, "spot-rescheduler"))), SystemClock())


def shipped_store(cluster: ControlPlane) -> MemoryStore:
    return MemoryStore(shipped_client(cluster), SHIPPED, MEMORY_NAME)


def stored(cluster: ControlPlane, config_maps: str = CONFIG_MAPS) -> Json | None:
    return next((item for item in cluster.api.items(config_maps) if item["metadata"]["name"] == MEMORY_NAME), None)


def memory(cluster: ControlPlane) -> Memory:
    actual = stored(cluster)
    assert actual is not None
    return load(base64.b64decode(actual["binaryData"]["memory"]))


class TestStore:
    def test_the_memory_is_created_read_and_changed(self, cluster: ControlPlane) -> None:
        config_map = store(cluster)
        assert config_map.read() == Absent()
        first = config_map.write(b"\x00one", "a summary\n", "")
        assert config_map.read() == Stored(b"\x00one", first)
        second = config_map.write(b"\xfftwo", "another\n", first)
        assert config_map.read() == Stored(b"\xfftwo", second)
        actual = stored(cluster)
        assert actual is not None
        assert actual["data"] == {"summary": "another\n"}

    def test_an_empty_config_map_is_written_if_nobody_else_has_written_it(self, cluster: ControlPlane) -> None:
        """The manifests ship it without content."""
        empty: Json = {
            "apiVersion": "v1",
            "kind": "ConfigMap",
            "metadata": {"namespace": NAMESPACE, "name": MEMORY_NAME},
        }
        cluster.apply([empty])
        ours, other = store(cluster), store(cluster)
        actual = ours.read()
        assert isinstance(actual, Absent)
        assert actual.version
        version = ours.write(b"one", "a summary\n", actual.version)
        with pytest.raises(Conflict):
            other.write(b"two", "", actual.version)
        assert other.read() == Stored(b"one", version)
        cluster.apply([empty])  # the manifests are applied again
        reread = ours.read()
        assert isinstance(reread, Stored)
        assert reread.content == b"one"

    def test_only_one_of_two_writers_wins(self, cluster: ControlPlane) -> None:
        ours, other = store(cluster), store(cluster)
        first = ours.write(b"one", "", "")
        with pytest.raises(Conflict):
            other.write(b"created too", "", "")
        second = other.write(b"two", "", first)
        with pytest.raises(Conflict):
            ours.write(b"three", "", first)
        assert ours.read() == Stored(b"two", second)

    def test_a_deleted_memory_is_not_written(self, cluster: ControlPlane) -> None:
        config_map = store(cluster)
        version = config_map.write(b"one", "", "")
        cluster.api.delete(PATH)
        with pytest.raises(Conflict):
            config_map.write(b"two", "", version)
        config_map.write(b"three", "", "")
        with pytest.raises(Conflict):  # another ConfigMap of the same name
            config_map.write(b"four", "", version)

    def test_waivers_are_removed_by_the_next_write(self, cluster: ControlPlane) -> None:
        config_map = store(cluster)
        version = config_map.write(b"one", "", "")
        config_map.waive({str(WEB), str(DB)}, version)
        actual = config_map.read()
        assert isinstance(actual, Stored)
        assert (actual.content, actual.waived) == (b"one", (str(WEB), str(DB)))
        with pytest.raises(Conflict):
            config_map.write(b"two", "", version)
        second = config_map.write(b"two", "", actual.version)
        assert config_map.read() == Stored(b"two", second)

    def test_a_memory_without_content_is_unreadable(self, cluster: ControlPlane) -> None:
        metadata = {"namespace": NAMESPACE, "name": MEMORY_NAME}
        cluster.apply([{"apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata, "data": {"summary": "x"}}])
        message = "ConfigMap default/spot-rescheduler-memory has no binaryData.memory"
        assert store(cluster).read() == UnreadableMemory(message)

    def test_the_memory_of_5000_nodes_is_smaller_than_256_kib(self, cluster: ControlPlane) -> None:
        full = large(5_000, 20_000)
        content = dump(full)
        config_map = store(cluster)
        config_map.write(content, full.summary(NOW), "")
        size = len(httpx2.Response(200, json=stored(cluster)).content)
        assert 128 * 1024 < size < 256 * 1024
        actual = config_map.read()
        assert isinstance(actual, Stored)
        assert actual.content == content
        assert load(actual.content).debts == full.debts

    def test_the_lease_records_that_the_memory_was_created(self, cluster: ControlPlane) -> None:
        elected = store(cluster, lease=LEASE)
        assert not elected.was_created()
        with pytest.raises(NotFound):
            elected.note_created()
        spec = {"holderIdentity": "other-user", "leaseDurationSeconds": 15}
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
    """The shipped ServiceAccount and RBAC; the value is a function that removes a right to ConfigMaps."""
    applied = [item for item in kustomization("base") if item["kind"] in ACCESS]
    cluster.apply(applied)
    [role] = [item for item in applied if item["kind"] == "Role"]

    def without(verb: str) -> None:
        leases, config_maps = role["rules"]
        kept = {**config_maps, "verbs": [each for each in config_maps["verbs"] if each != verb]}
        cluster.api.patch(cluster.api.path(role), {"rules": [leases, kept]})

    yield without
    for item in applied:
        cluster.api.delete(cluster.api.path(item))


class TestRights:
    @pytest.mark.usefixtures("rights")
    def test_the_shipped_rights_are_for_this_name_only(self, cluster: ControlPlane) -> None:
        ours = shipped_store(cluster)
        actual = ours.read()
        assert isinstance(actual, Absent)
        version = ours.write(b"one", "", actual.version)
        assert ours.read() == Stored(b"one", version)
        ours.write(b"two", "", version)
        cluster.api.delete(f"{SHIPPED_CONFIG_MAPS}/{MEMORY_NAME}")
        command = r"create it with: kubectl -n spot-rescheduler create configmap spot-rescheduler-memory$"
        with pytest.raises(Forbidden, match=command):
            ours.write(b"three", "", "")
        other = f"{SHIPPED_CONFIG_MAPS}/extension-apiserver-authentication"
        client = shipped_client(cluster)
        for method in ("GET", "PATCH", "DELETE"):
            with pytest.raises(Forbidden):
                client.request("touch another", method, other, body={} if method == "PATCH" else None)
        with pytest.raises(Forbidden):
            client.request("delete ours", "DELETE", f"{SHIPPED_CONFIG_MAPS}/{MEMORY_NAME}")

    def test_a_missing_right_is_named_with_verb_and_resource(self, cluster: ControlPlane, rights: Any) -> None:
        rights("get")
        actual = shipped_store(cluster).read()
        assert isinstance(actual, UnreadableMemory)
        assert "get configmap spot-rescheduler/spot-rescheduler-memory" in actual.why
        assert 'cannot get resource "configmaps"' in actual.why

    def test_the_daemon_drains_nothing_without_the_rights(self, cluster: ControlPlane, rights: Any) -> None:
        rights("get")
        queries = ClusterQueries(cluster)
        movable(cluster, queries)
        own = cluster.service_account_kubeconfig(SHIPPED, "spot-rescheduler")
        here = f"--namespace={SHIPPED}"
        with Daemon(cluster, here, "--dry-run", "--once", kubeconfig=own) as dry:
            assert dry.end() == 0
            assert dry.logged("can be drained: 2 pods", node="on-demand-1")
            assert dry.logged("this dry run could not read the memory")
        with Daemon(cluster, here, kubeconfig=own) as daemon:
            waits_for(queries, daemon, "memory-unreadable")
            assert 'cannot get resource "configmaps"' in status(daemon)["waiting"]["detail"]
        assert queries.kinds() == {"on-demand": 2}
        kept = stored(cluster, SHIPPED_CONFIG_MAPS)
        assert kept is not None
        assert (queries.marks(), kept.get("binaryData")) == ({}, None)


def status(daemon: Daemon) -> Json:
    if not daemon.address:
        return {"waiting": None}
    response: Json = httpx2.get(
        f"{daemon.address}/statusz", headers={"Accept": "application/json"}, trust_env=False
    ).json()
    return response


def movable(cluster: ControlPlane, queries: ClusterQueries) -> None:
    """Create an on-demand node whose two pods fit on spot nodes."""
    queries.nodes(1, 2)
    cluster.apply([deployment("web", 2)])
    queries.running(2)
    queries.open_spot()


def waits_for(queries: ClusterQueries, daemon: Daemon, reason: str) -> None:
    queries.eventually(lambda: (status(daemon)["waiting"] or {}).get("reason") == reason, reason)


def resume(cluster: ControlPlane, *arguments: str) -> tuple[int, str, str]:
    done = forking.run("resume", f"--kubeconfig={cluster.kubeconfig}", f"--namespace={NAMESPACE}", *arguments)
    return done.returncode, done.stdout, done.stderr


class TestResume:
    def test_a_waiver_reaches_the_daemon(self, cluster: ControlPlane) -> None:
        """There are no nodes, so no pods pay the debts."""
        queries = ClusterQueries(cluster)
        applied = cluster.apply([deployment("web", 1), deployment("db", 1)])
        web, db = (
            Controller("default", "Deployment", item["metadata"]["name"], item["metadata"]["uid"]) for item in applied
        )
        debts = tuple(OpenDebt("od-1", NOW, Debt(controller, 1, 1)) for controller in (web, db))
        store(cluster).write(dump(Memory(debts=debts)), "", "")
        assert resume(cluster, f"--waive={web}") == (
            0,
            "released: default/Deployment/web: 1 pod owed since the drain of od-1 at 2026-01-01T12:00:00Z\n",
            "",
        )
        actual = stored(cluster)
        assert actual is not None
        assert actual["data"]["waived"] == "default/Deployment/web\n"
        with Daemon(cluster) as daemon:
            queries.eventually(lambda: memory(cluster).debts == debts[1:], "the waiver applied")
            actual = stored(cluster)
            assert actual is not None
            assert set(actual["data"]) == {"summary"}
            code, released, _ = resume(cluster, f"--waive={db}")
            assert (code, [line.partition(": its")[0].partition(": 1")[0] for line in released.splitlines()]) == (
                0,
                ["released: default/Deployment/db"] * 2,  # the late debt, and the wait of its owner
            )
            queries.eventually(lambda: memory(cluster).debts == (), "the second waiver, applied by a running daemon")
            daemon.terminate()
            assert daemon.end() == 0
