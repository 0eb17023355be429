"""Each right in the shipped manifests is necessary: without it there is a clear error, and a full run uses it."""

import contextlib
import logging
import re
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from io import StringIO
from pathlib import Path
from typing import Final

import httpx2
import pytest

from devcluster.api import Json
from devcluster.audit import AuditLog
from devcluster.manifests import deployment, job, namespace, on_demand, pod, statefulset
from devcluster.plane import ControlPlane
from devcluster.stages import COMPLETE_AFTER, NEVER
from rescheduler.clock import Clock, SystemClock
from rescheduler.execution.context import recording
from rescheduler.kube.client import Client
from rescheduler.kube.cluster import KubeCluster
from rescheduler.kube.connection import Kubeconfig
from rescheduler.kube.consistent_reads import MANY
from rescheduler.observe.events import InvolvedNode
from rescheduler.settings import LEASE, MEMORY_NAME, SAVINGS_NAME
from tests.cluster.bad_days import FLAGS
from tests.cluster.daemon import Daemon
from tests.cluster.machines import machines
from tests.cluster.observer import Observer
from tests.cluster.rendering import composed, kustomization
from tests.cluster.replicas import FENCED, ReplicatedInstallation, installed
from tests.cluster.rights import Granted, Right, rights, shipped
from tests.cluster.test_bad_days_replacements import quota, webhook
from tests.proxy.world import ProxyWorld, world

NAMESPACE: Final = "spot-rescheduler"
DAEMON: Final = "spot-rescheduler"
PROXY: Final = "cloudpool-proxy"
GET_POD: Final = Right("get", "", "pods")
#: Reads that reflectors start in parallel, so that one process reports all missing permissions.
READS: Final = ("list", "watch")
OF_THE_DAEMON: Final = shipped("base/rbac.yaml", "components/machines/rbac.yaml")
OF_THE_PROXY: Final = shipped("proxy/rbac.yaml")
LIST_EVENTS: Final = Right("list", "", "events")
LIST_LEASES: Final = Right("list", "coordination.k8s.io", "leases")
PATCH_EVENTS: Final = Right("patch", "", "events")
#: Rights that are only used at times: Events are listed when replacement pods are rejected, the Leases of Nodes when
#: pods are owed to an owner with pods on many nodes.
IN_TROUBLE: Final = frozenset({LIST_EVENTS, LIST_LEASES})
#: Rights that are only used if pods name a group of pods, or nodes a NodePool, or if there are CapacityBuffers.
OF_GROUPS: Final = (
    "podgroups",
    "compositepodgroups",
    "workloads",
    "leaderworkersets",
    "nodepools",
    "capacitybuffers",
    "podtemplates",
)


def read(rights: Sequence[Right], verb: str) -> list[Right]:
    """Return the rights with *verb* that reflectors need."""
    unused = {right for right in rights if right in IN_TROUBLE or right.resource in OF_GROUPS}
    return [right for right in rights if right.verb == verb and right not in unused]


def acts(rights: Sequence[Right]) -> list[Right]:
    """Return the rights that are removed one at a time."""
    removed = [right for right in rights if right.verb not in READS or right in IN_TROUBLE]
    return [right for right in removed if right.resource not in OF_GROUPS]


def forget(cluster: ControlPlane) -> None:
    """Delete the objects that the daemon keeps in its namespace."""
    cluster.api.delete(f"/apis/coordination.k8s.io/v1/namespaces/{NAMESPACE}/leases/{LEASE}")
    for name in (MEMORY_NAME, SAVINGS_NAME):
        cluster.api.delete(f"/api/v1/namespaces/{NAMESPACE}/configmaps/{name}")


@pytest.fixture
def nothing_kept(cluster: ControlPlane) -> Iterator[None]:
    forget(cluster)
    yield
    forget(cluster)


@pytest.fixture
def daemon_rights(cluster: ControlPlane, nothing_kept: None, tmp_path: Path) -> Iterator[Granted]:
    layer = {"resources": ["../base"], "components": ["../components/machines"]}
    with Granted(cluster, composed(tmp_path, ours=layer)) as granted:
        yield granted


@pytest.fixture
def proxy_rights(cluster: ControlPlane) -> Iterator[Granted]:
    with Granted(cluster, kustomization("proxy")) as granted:
        yield granted


def daemon(cluster: ControlPlane, *flags: str) -> Daemon:
    own = cluster.service_account_kubeconfig(NAMESPACE, DAEMON)
    return Daemon(cluster, *FLAGS, f"--namespace={NAMESPACE}", *flags, kubeconfig=own)


def replication_controller(name: str) -> Json:
    proxy_world = deployment(name, 1)
    spec = {key: value for key, value in proxy_world["spec"].items() if key != "selector"}
    return {**proxy_world, "apiVersion": "v1", "kind": "ReplicationController", "spec": spec}


def controllers() -> list[Json]:
    """Return a workload of each kind of controller that the daemon reads."""
    tolerant = job("batch", annotations={COMPLETE_AFTER: NEVER})
    return [deployment("web", 1), statefulset("db", 1), replication_controller("old"), tolerant]


def edit_stateful_set(cluster: ControlPlane) -> None:
    """Edit the pod template of the StatefulSet of `controllers`, which keeps its pod: it has an old revision then.

    If it is edited before the controller has stored the first revision, the new one is the first.
    """
    strategy = {"type": "OnDelete", "rollingUpdate": None}
    template = {"metadata": {"annotations": {"edited": "true"}}}
    path = "/apis/apps/v1/namespaces/default/statefulsets/db"
    cluster.wait_for(lambda: cluster.api.get(path)["status"].get("currentRevision"), "the first revision")
    cluster.api.patch(path, {"spec": {"updateStrategy": strategy, "template": template}})
    cluster.wait_for(
        lambda: len({cluster.api.get(path)["status"].get(f"{each}Revision") for each in ("current", "update")}) == 2,
        "an old revision",
    )


class TestWithout:
    """Tests with each right removed."""

    @pytest.mark.parametrize("verb", READS)
    def test_a_missing_right_to_read_is_named_by_the_daemon(
        self, verb: str, cluster: ControlPlane, daemon_rights: Granted
    ) -> None:
        observer = Observer(cluster)
        observer.nodes(1, 1)
        removed = read(OF_THE_DAEMON, verb)
        daemon_rights.take(*removed)
        with daemon(cluster) as running:

            def messages() -> str:
                return "\n".join([*(line["message"] for line in running.lines), waits_for(running)])

            each_is_named(cluster, daemon_rights, removed, messages)
            assert clear(running.lines, removed)
        assert observer.evictions() == []

    @pytest.mark.parametrize("right", acts(OF_THE_DAEMON), ids=str)
    def test_a_missing_right_to_write_is_named_by_the_daemon(
        self, right: Right, cluster: ControlPlane, daemon_rights: Granted, tmp_path: Path
    ) -> None:
        daemon_rights.take(right)
        if right in RARE:
            assert right.words in RARE[right](cluster, DAEMON)
            return
        with scene(cluster, right, tmp_path) as (observer, flags), daemon(cluster, *flags) as running:
            observer.eventually(
                lambda: any(right.named_in(line["message"]) for line in list(running.lines)), str(right)
            )
            assert clear(running.lines, [right])

    @pytest.mark.parametrize("verb", READS)
    def test_a_missing_right_to_read_is_named_by_the_proxy(
        self, verb: str, cluster: ControlPlane, proxy_rights: Granted, tmp_path: Path
    ) -> None:
        removed = read(OF_THE_PROXY, verb)
        proxy_rights.take(*removed)
        own = cluster.service_account_kubeconfig(NAMESPACE, PROXY)
        with world(cluster, tmp_path, 1, kubeconfig=own) as proxy_world:
            readyz = f"{next(line for line in proxy_world.lines if 'serving on ' in line).split()[-1]}/readyz"

            def messages() -> str:
                return "\n".join([*proxy_world.lines, httpx2.get(readyz, timeout=60, trust_env=False).text])

            each_is_named(cluster, proxy_rights, removed, messages)
            assert proxy_world.orders() == []

    @pytest.mark.parametrize("right", acts(OF_THE_PROXY), ids=str)
    def test_a_missing_right_to_write_is_named_by_the_proxy(
        self, right: Right, cluster: ControlPlane, proxy_rights: Granted, tmp_path: Path
    ) -> None:
        proxy_rights.take(right)
        if right in RARE:
            assert right.words in RARE[right](cluster, PROXY)
            return
        own = cluster.service_account_kubeconfig(NAMESPACE, PROXY)
        before = partial(furnished, right=right)
        with world(cluster, tmp_path, 2, kubeconfig=own, before=before, nodes_stay=True) as proxy_world:
            cluster.wait_for(partial(terminated_without, proxy_world, right), str(right), seconds=100)


def clear(lines: Sequence[Json], removed: Sequence[Right]) -> bool:
    """Return whether each message about missing permissions is a single line that names a right in *removed*."""
    about = [line["message"] for line in list(lines) if re.search("forbidden|missing permission", line["message"])]
    return bool(about) and all("\n" not in line and _names(line, removed) for line in about)


def _names(line: str, removed: Sequence[Right]) -> bool:
    """Return whether *line* names a right in *removed*, or lists only rights in *removed*."""
    _, is_list, rights = line.partition("missing permissions: ")
    if is_list:
        return all(any(f"{listed} ".startswith(f"{right} ") for right in removed) for listed in rights.split("; "))
    return any(right.named_in(line) for right in removed)


def each_is_named(
    cluster: ControlPlane, granted: Granted, removed: Sequence[Right], messages: Callable[[], str]
) -> None:
    """Wait until each right in *removed* is named; grant named rights again, so that the others are reported."""
    unnamed = set(removed)

    def named() -> set[Right]:
        text = messages()
        return {right for right in unnamed if right.named_in(text)}

    while unnamed:
        unnamed -= cluster.wait_for(named, f"one of {sorted(map(str, unnamed))} to be named", seconds=100)
        granted.take(*unnamed)


def waits_for(running: Daemon) -> str:
    """Return the reason why the daemon waits, according to its status page."""
    if not running.address:
        return ""
    page = httpx2.get(f"{running.address}/statusz", params={"format": "json"}, timeout=60, trust_env=False)
    return str((page.json()["waiting"] or {}).get("detail", ""))


@contextlib.contextmanager
def scene(cluster: ControlPlane, right: Right, folder: Path) -> Iterator[tuple[Observer, Sequence[str]]]:
    """Set up a cluster on which the daemon needs *right*, and yield an observer and the daemon's flags."""
    observer = Observer(cluster)
    if right == Right("delete", "", "nodes"):
        with machines(observer, folder, 1, 1) as pool:
            pool.fill(web=1)
            observer.running(1)
            observer.open_all()
            yield observer, pool.flags
        return
    observer.nodes(1, 2)
    trouble(cluster) if right in IN_TROUBLE else cluster.apply(controllers())
    observer.running(1 if right in IN_TROUBLE else 4)
    if right in IN_TROUBLE:
        cluster.apply([webhook("red")])
    observer.open_spot()
    yield observer, ()


def trouble(cluster: ControlPlane) -> None:
    cluster.apply([namespace("red"), statefulset("web", 1, namespace="red")])


def client(cluster: ControlPlane, account: str, clock: Clock) -> Client:
    own = cluster.service_account_kubeconfig(NAMESPACE, account)
    return Client(Kubeconfig(str(own)), clock, "spot-rescheduler/test")


def evict_replaced_pod(cluster: ControlPlane, account: str) -> str:
    """Return the outcome of evicting a pod that was replaced by another pod of the same name."""
    cluster.apply([on_demand("other"), pod("other", nodeName="other")])
    ours = KubeCluster(client(cluster, account, SystemClock()))
    try:
        return repr(ours.evict("default", "other", "the-uid-of-another"))
    finally:
        cluster.api.delete("/api/v1/namespaces/default/pods/other", gracePeriodSeconds=0)
        cluster.api.delete("/api/v1/nodes/other")


@contextlib.contextmanager
def logged() -> Iterator[StringIO]:
    """Collect the log of the daemon's code."""
    lines, log = StringIO(), logging.getLogger("rescheduler")
    own = logging.StreamHandler(lines)
    log.addHandler(own)
    try:
        yield lines
    finally:
        log.removeHandler(own)


class Later(SystemClock):
    """A clock that tests can advance."""

    ahead = 0.0

    def monotonic(self) -> float:
        return super().monotonic() + self.ahead


def record_event_twice(cluster: ControlPlane, account: str) -> str:
    """Record the same Event about a node twice, ten minutes apart, and return the log."""
    clock, about = Later(), InvolvedNode("tested-node", "the-uid")
    with logged() as lines, recording(client(cluster, account, clock), clock) as record:
        record(about, "Tested", "the same")
        cluster.wait_for(lambda: "Tested" in Observer(cluster).events("tested-node"), "the first event")
        clock.ahead = 600.0
        record(about, "Tested", "the same")
    return lines.getvalue()


def list_leases_of_nodes(cluster: ControlPlane, account: str) -> str:
    """Read the Leases of many Nodes, and return the log."""
    with logged() as lines:
        KubeCluster(client(cluster, account, SystemClock())).node_leases([f"node-{n}" for n in range(MANY + 1)])
    return lines.getvalue()


#: Functions that exercise rights that a normal run rarely uses.
RARE: Final[dict[Right, Callable[[ControlPlane, str], str]]] = {
    GET_POD: evict_replaced_pod,
    PATCH_EVENTS: record_event_twice,
    LIST_LEASES: list_leases_of_nodes,
}


def exercise_rare_rights(cluster: ControlPlane, account: str) -> None:
    for use in RARE.values():
        assert "forbidden" not in use(cluster, account)


def furnished(proxy_world: ProxyWorld, right: Right) -> None:
    """Create pods on the machine od-1 for which *right* is needed."""
    if right in IN_TROUBLE:
        in_trouble(proxy_world, "od-1")
        return
    others = [name for name in proxy_world.nodes() if name != "od-1"]
    proxy_world.cordon(*others)
    proxy_world.plane.apply(controllers())
    proxy_world.plane.wait_for(lambda: len(proxy_world.pods()) == len(controllers()), "the pods")
    proxy_world.cordon(*others, off=False)


def in_trouble(proxy_world: ProxyWorld, node: str) -> None:
    """Create a pod on *node* whose replacement pod will be rejected."""
    observer = Observer(proxy_world.plane)
    proxy_world.plane.apply([namespace("red")])
    observer.start_on(node, statefulset("api", 1, namespace="red"), pods=1)
    observer.running(1, "api")
    proxy_world.plane.apply([quota("red")])
    for name in observer.node_names():
        observer.cordon(name, off=True)


def logs_missing_right(proxy_world: ProxyWorld, right: Right) -> bool:
    return any(right.words in line and "Traceback" not in line for line in list(proxy_world.lines))


def terminated_without(proxy_world: ProxyWorld, right: Right) -> bool:
    """Request a termination; return whether the response or the log names the missing permission."""
    terminate = {"machineId": proxy_world.id("od-1"), "decrementDesiredSize": True}
    try:
        response = httpx2.post(f"{proxy_world.url}/pool/terminate", json=terminate, timeout=15, trust_env=False).text
    except httpx2.TimeoutException:  # the proxy retries until the update times out
        response = ""
    return right.words in response.replace('\\"', '"') or logs_missing_right(proxy_world, right)


class TestAllIsUsed:
    """The audit log of full runs contains every granted right."""

    @pytest.mark.usefixtures("nothing_kept")
    def test_the_daemon_uses_every_right(self, cluster: ControlPlane, tmp_path: Path) -> None:
        """With a provider and fencing: a successful drain, then drains whose replacement pods are rejected."""
        (tmp_path / "kustomize").mkdir()
        objects = composed(tmp_path / "kustomize", ours=FENCED)
        observer, installation = Observer(cluster), ReplicatedInstallation(cluster)
        audit = AuditLog(cluster.layout.audit_log)
        with Granted(cluster, [each for each in objects if "Admission" not in each["kind"]]):
            exercise_rare_rights(cluster, DAEMON)
        with machines(observer, tmp_path, 2, 2) as pool, installed(installation, objects, ("a",)):
            observer.start_on("od-1", *controllers(), pods=4)
            edit_stateful_set(cluster)
            cluster.apply([namespace("red")])
            observer.start_on("od-2", statefulset("web", 5, namespace="red"), pods=5)
            observer.running(9 + 1)  # including the pod of the replica
            observer.open_all()
            with installation.daemon("a", *FLAGS, *pool.flags) as running:
                observer.eventually(lambda: pool.ordered() == ["od-1"], "the termination of the machine")
                cluster.apply([webhook("red")])
                observer.eventually(partial(uses, audit, installation.user, LIST_EVENTS), "events listed", seconds=200)
                running.terminate()
                assert running.end() == 0
            assert unused(cluster, audit, installation.user, objects) == set()

    @pytest.mark.usefixtures("proxy_rights")
    def test_the_proxy_uses_every_right(self, cluster: ControlPlane, tmp_path: Path) -> None:
        user, audit = f"system:serviceaccount:{NAMESPACE}:{PROXY}", AuditLog(cluster.layout.audit_log)
        own = cluster.service_account_kubeconfig(NAMESPACE, PROXY)

        def before(proxy_world: ProxyWorld) -> None:
            furnished(proxy_world, GET_POD)
            in_trouble(proxy_world, "od-2")

        with world(cluster, tmp_path, 3, kubeconfig=own, before=before, nodes_stay=True) as proxy_world:
            response = proxy_world.post(
                "/pool/terminate", {"machineId": proxy_world.id("od-1"), "decrementDesiredSize": True}
            )
            assert (response.status_code, response.text) == (200, "")
            cluster.wait_for(lambda: "od-1" not in proxy_world.nodes(), "the Node deleted")
            proxy_world.post("/pool/terminate", {"machineId": proxy_world.id("od-2"), "decrementDesiredSize": True})
            assert proxy_world.stop() == 0
        exercise_rare_rights(cluster, PROXY)
        assert unused(cluster, audit, user, kustomization("proxy")) == set()


def uses(audit: AuditLog, user: str, right: Right) -> bool:
    return (right.verb, right.group, right.resource) in audit.rights_used(user)


def serves(cluster: ControlPlane, right: Right) -> bool:
    """Return whether the API server serves the resource of *right*, which is not in the core group."""
    groups = [group for group in cluster.api.get("/apis")["groups"] if group["name"] == right.group]
    versions = [version["groupVersion"] for group in groups for version in group["versions"]]
    return any(
        right.resource == each["name"]
        for version in versions
        for each in cluster.api.get(f"/apis/{version}")["resources"]
    )


def unused(cluster: ControlPlane, audit: AuditLog, user: str, objects: Sequence[Json]) -> set[str]:
    """Return the granted rights of *objects* that *user* did not use. A watch is logged only after it ends.

    Kinds of groups of pods that this API server does not serve are left out: they are read only where they exist.
    """
    granted = {right for right in rights(objects) if right.resource not in OF_GROUPS or serves(cluster, right)}

    def left() -> set[Right]:
        return {right for right in granted if not uses(audit, user, right)}

    with contextlib.suppress(Exception):
        cluster.wait_for(lambda: not left(), "every right used", seconds=15)
    return {str(right) for right in left()}
