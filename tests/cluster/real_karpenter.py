"""Tests beside the real Karpenter, whose kwok provider adds and removes Nodes: `make karpenter`.

pytest does not collect this file by default, because the first build takes about ten minutes. Set KARPENTER to use an
existing binary, with the folder `crds` beside it. kwok simulates the Nodes; the real scheduler binds pods.
"""

import contextlib
import functools
import json
import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from threading import Event
from typing import Final

import pytest
import yaml

from devcluster import build
from devcluster.api import Json
from devcluster.manifests import deployment, pod
from devcluster.plane import ControlPlane
from devcluster.processes import Processes
from tests.cluster import webhooks
from tests.cluster.autoscaling import SETUP
from tests.cluster.daemon import NO_DELAY, Daemon
from tests.cluster.observer import AGENT, Observer
from tests.cluster.rendering import composed
from tests.cluster.waiting import repeating

CAPACITY: Final = "karpenter.sh/capacity-type"
ZONE: Final = "topology.kubernetes.io/zone"
LABELS: Final = (f"--on-demand-node-label={CAPACITY}=on-demand", f"--spot-node-label={CAPACITY}=spot")
#: The first scene took five minutes by hand.
SECONDS: Final = 400.0
#: How long two tools may not undo each other's work, in seconds.
WATCHED: Final = float(os.environ.get("KARPENTER_WATCHED", "120"))
PODS: Final = 12
NODEPOOLS: Final = "/apis/karpenter.sh/v1/nodepools"
NODECLAIMS: Final = "/apis/karpenter.sh/v1/nodeclaims"
CLASSES: Final = "/apis/karpenter.kwok.sh/v1alpha1/kwoknodeclasses"

#: Prices per hour of a CPU.
SPOT_PRICE, ON_DEMAND_PRICE = 0.015, 0.05


def instance_type(cpu: int) -> Json:
    """Return a type of so many CPUs, as spot and on-demand instance."""
    return {
        "name": f"c-{cpu}x-amd64-linux",
        "offerings": [
            {
                "Price": cpu * price,
                "Available": True,
                "Requirements": [
                    {"key": CAPACITY, "operator": "In", "values": [kind]},
                    {"key": ZONE, "operator": "In", "values": ["zone-a"]},
                ],
            }
            for kind, price in (("spot", SPOT_PRICE), ("on-demand", ON_DEMAND_PRICE))
        ],
        "architecture": "amd64",
        "operatingSystems": ["linux"],
        "resources": {"cpu": str(cpu), "ephemeral-storage": "20Gi", "memory": f"{4 * cpu}Gi", "pods": "110"},
    }


TYPES: Final[list[Json]] = [instance_type(4)]


def node_pool(kind: str, policy: str) -> Json:
    """Return a NodePool of nodes of the capacity type *kind*; empty ones are removed after some seconds."""
    requirement = {"key": CAPACITY, "operator": "In", "values": [kind]}
    reference = {"group": "karpenter.kwok.sh", "kind": "KWOKNodeClass", "name": "default"}
    return {
        "apiVersion": "karpenter.sh/v1",
        "kind": "NodePool",
        "metadata": {"name": kind},
        "spec": {
            "template": {"spec": {"requirements": [requirement], "nodeClassRef": reference, "expireAfter": "Never"}},
            "disruption": {
                "consolidationPolicy": policy,
                "consolidateAfter": "10s" if kind == "on-demand" else "60s",
                "budgets": [{"nodes": "100%"}],
            },
            "weight": 50 if kind == "spot" else 1,
        },
    }


def command(program: Path, plane: ControlPlane, folder: Path, offered: Sequence[Json]) -> list[str]:
    """Return the command that runs Karpenter with the types *offered*, which it reads in *folder*."""
    types = folder / "types.json"
    types.write_text(json.dumps(offered))
    return [
        "env",
        f"KUBECONFIG={plane.kubeconfig}",
        "SYSTEM_NAMESPACE=kube-system",
        "KUBERNETES_MIN_VERSION=1.19.0-0",
        "no_proxy=127.0.0.1",
        str(program),
        f"--instance-types-file-path={types}",
        "--metrics-port=0",
        "--health-probe-port=0",
        "--disable-leader-election",
        "--batch-idle-duration=500ms",
        "--batch-max-duration=2s",
        "--feature-gates=StaticCapacity=true",
    ]


@pytest.fixture(scope="session")
def program() -> Path:
    return Path(os.environ["KARPENTER"]) if "KARPENTER" in os.environ else build.karpenter()


@pytest.fixture
def karpenter(program: Path, cluster: ControlPlane, tmp_path: Path) -> Iterator[None]:
    with running(program, cluster, tmp_path, TYPES):
        yield


@contextlib.contextmanager
def running(program: Path, cluster: ControlPlane, folder: Path, offered: Sequence[Json]) -> Iterator[None]:
    """Run Karpenter with the types *offered*, without NodePools; remove all of its objects at the end."""
    crds = [yaml.safe_load(path.read_text()) for path in sorted((program.parent / "crds").glob("*.yaml"))]
    cluster.apply(crds)
    for path in (NODEPOOLS, NODECLAIMS, CLASSES):
        cluster.wait_for(functools.partial(served, cluster, path), f"{path} to be served")
    cluster.apply(
        [{"apiVersion": "karpenter.kwok.sh/v1alpha1", "kind": "KWOKNodeClass", "metadata": {"name": "default"}}]
    )
    processes = Processes()
    processes.start("karpenter", command(program, cluster, folder, offered), folder / "karpenter.log")
    try:
        yield
    finally:
        remove_all(cluster)
        processes.stop_all()
    for crd in crds:
        cluster.api.delete(cluster.api.path(crd))


def served(cluster: ControlPlane, path: str) -> bool:
    with contextlib.suppress(Exception):
        cluster.api.items(path)
        return True
    return False


def remove_all(cluster: ControlPlane) -> None:
    """Delete the objects of Karpenter, which ends its nodes as long as it runs."""
    for path in (NODEPOOLS, NODECLAIMS):
        for item in cluster.api.items(path):
            cluster.api.delete(f"{path}/{item['metadata']['name']}")
    for item in cluster.api.items("/apis/apps/v1/deployments"):
        meta = item["metadata"]
        cluster.api.delete(f"/apis/apps/v1/namespaces/{meta['namespace']}/deployments/{meta['name']}")
    cluster.wait_for(lambda: not cluster.api.items(NODECLAIMS), "the end of the NodeClaims")
    cluster.api.delete(f"{CLASSES}/default")


class FallenBack:
    """A scene: pods run on on-demand nodes of Karpenter, and spot nodes can be had again."""

    def __init__(
        self, plane: ControlPlane, observer: Observer, policy: str, *, pods: int = PODS, disruption: Json | None = None
    ) -> None:
        """Start *pods*, three of each owner. *disruption* are fields of the on-demand NodePool."""
        self._plane, self._observer = plane, observer
        on_demand = node_pool("on-demand", policy)
        on_demand["spec"]["disruption"] |= disruption or {}
        plane.apply([on_demand, *(deployment(f"web{n}", 3, cpu="900m") for n in range(pods // 3))])
        observer.eventually(lambda: self.kinds() == {"on-demand": pods}, "the pods on on-demand nodes", seconds=SECONDS)
        observer.running(pods)
        plane.apply([node_pool("spot", policy)])

    def nodes(self) -> dict[str, str]:
        """Return the capacity types of the nodes, by name."""
        nodes = self._plane.api.items("/api/v1/nodes")
        return {node["metadata"]["name"]: node["metadata"]["labels"].get(CAPACITY, "") for node in nodes}

    def kinds(self) -> Mapping[str, int]:
        """Return how many pods of the workloads run on nodes of each capacity type."""
        nodes, counts = self.nodes(), dict[str, int]()
        for each in self._observer.pods():
            if each["metadata"]["namespace"] == "default" and "nodeName" in each["spec"]:
                kind = nodes.get(each["spec"]["nodeName"], "")
                counts[kind] = counts.get(kind, 0) + 1
        return counts


@pytest.mark.cluster
@pytest.mark.parametrize("policy", ["WhenEmpty", "WhenEmptyOrUnderutilized"])
def test_pods_move_to_spot_nodes_that_karpenter_adds_and_it_removes_the_empty_ones(
    cluster: ControlPlane, observer: Observer, karpenter: None, policy: str
) -> None:
    """Placeholders bring spot nodes; emptied on-demand nodes go by Karpenter; then nothing moves any more."""
    cluster.apply(SETUP)
    scene = FallenBack(cluster, observer, policy)
    flags = (*LABELS, NO_DELAY, "--namespace=default", "--make-room=placeholders", "--manage-soft-taint")
    with Daemon(cluster, *flags):
        observer.eventually(lambda: scene.kinds() == {"spot": PODS}, "the pods on spot nodes", seconds=SECONDS)
        observer.eventually(
            lambda: set(scene.nodes().values()) == {"spot"}, "the end of the on-demand nodes", seconds=SECONDS
        )
        observer.running(PODS)
        moved = observer.evicted()
        if policy == "WhenEmpty":
            assert sum(moved.values()) == PODS, f"pods moved more than once: {moved}"
        before = observer.uids()
        observer.stays(lambda: (observer.uids(), set(scene.nodes().values())), (before, {"spot"}), seconds=WATCHED)


#: Karpenter by itself removes no node of this NodePool.
NEVER: Final[Json] = {"consolidateAfter": "Never", "budgets": [{"nodes": "0"}]}
BY_ORDER: Final = (*LABELS, NO_DELAY, "--namespace=default", "--make-room=provider", "--cloud-provider=karpenter")


def ordered(observer: Observer) -> list[str]:
    """Return the NodeClaims that daemons deleted."""
    deleted = observer.audit.writes("nodeclaims", agent=AGENT)
    return [event.name for event in deleted if event.verb == "delete"]


ACCOUNT: Final = "spot-rescheduler"
_COMPONENTS: Final = ("../components/karpenter", "../components/make-room")


@contextlib.contextmanager
def permitted(cluster: ControlPlane, folder: Path) -> Iterator[Path]:
    """Apply the manifests of docs/karpenter.md, without the daemon. Yield the kubeconfig of its ServiceAccount."""
    folder.mkdir()
    objects = composed(folder, ours={"resources": ["../base"], "components": [*_COMPONENTS]})
    space = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": ACCOUNT}}
    applied = cluster.apply([space, *(each for each in objects if each["kind"] != "Deployment")])
    yield cluster.service_account_kubeconfig(ACCOUNT, ACCOUNT)
    for item in reversed([each for each in applied if each["kind"] != "Namespace"]):
        cluster.api.delete(cluster.api.path(item))


#: Steps after which the daemon is killed.
STEPS: Final[dict[str, Callable[[Observer], object]]] = {
    "the first mark": Observer.marks,
    "the first eviction": Observer.evictions,
    "the first order": ordered,
}


@pytest.mark.cluster
def test_six_nodes_go_by_our_order_and_nothing_is_bought_again(
    cluster: ControlPlane, observer: Observer, karpenter: None, tmp_path: Path
) -> None:
    """The daemon has the shipped permissions, and is killed in three steps of its first drains.

    KARPENTER_WATCHED=600 watches for ten minutes.
    """
    pods = 24
    scene = FallenBack(cluster, observer, "WhenEmpty", pods=pods, disruption=NEVER)
    claims = {each["metadata"]["name"] for each in cluster.api.items(NODECLAIMS)}
    assert len(claims) >= 6
    flags = (*BY_ORDER, "--manage-soft-taint", f"--namespace={ACCOUNT}")
    with permitted(cluster, tmp_path / "deploy") as kubeconfig:
        for step, reached in STEPS.items():
            with Daemon(cluster, *flags, kubeconfig=kubeconfig) as daemon:
                observer.eventually(lambda reached=reached: reached(observer), step, seconds=SECONDS)
                daemon.kill()
        with Daemon(cluster, *flags, kubeconfig=kubeconfig):
            _all_go(observer, scene, pods)
    assert sorted(ordered(observer)) == sorted(claims), "each NodeClaim is deleted once, and by us"
    assert sum(observer.evicted().values()) == pods, f"pods moved more than once: {observer.evicted()}"
    assert len(observer.audit.evictions()) == pods, "Karpenter evicted pods"


def _all_go(observer: Observer, scene: FallenBack, pods: int) -> None:
    """Wait until only spot nodes are left, and watch that nothing changes any more."""
    observer.eventually(
        lambda: set(scene.nodes().values()) == {"spot"}, "the end of the on-demand nodes", seconds=2 * SECONDS
    )
    observer.running(pods)
    before = observer.uids()
    observer.stays(lambda: (observer.uids(), set(scene.nodes().values())), (before, {"spot"}), seconds=WATCHED)


@pytest.mark.cluster
def test_drift_and_consolidation_in_the_same_minute_end_no_node_that_we_have_not_emptied(
    cluster: ControlPlane, observer: Observer, karpenter: None
) -> None:
    """Karpenter replaces drifted on-demand nodes, and consolidates, while the daemon drains them."""
    cluster.apply(SETUP)
    scene, node_of = FallenBack(cluster, observer, "WhenEmptyOrUnderutilized"), dict[str, str]()

    def look() -> None:
        for each in cluster.api.items(NODECLAIMS):
            node_of[each["metadata"]["name"]] = each["status"].get("nodeName", "")

    look()
    with repeating(look), Daemon(cluster, *BY_ORDER, "--manage-soft-taint"):
        observer.eventually(lambda: observer.marks() or ordered(observer), "the first drain", seconds=SECONDS)
        cluster.api.patch(
            f"{NODEPOOLS}/on-demand", {"spec": {"template": {"metadata": {"labels": {"example.com/drifted": "yes"}}}}}
        )
        observer.eventually(lambda: scene.kinds() == {"spot": PODS}, "the pods on spot nodes", seconds=SECONDS)
        _all_go(observer, scene, PODS)
    marked = {marking.node for marking in observer.markings()}
    assert {node_of[claim] for claim in ordered(observer)} <= marked, "a NodeClaim of a node without our mark"
    assert len(ordered(observer)) == len(set(ordered(observer)))


@pytest.mark.cluster
def test_a_machine_stays_if_a_pod_comes_between_the_last_eviction_and_the_order(
    cluster: ControlPlane, observer: Observer, karpenter: None, tmp_path: Path
) -> None:
    """A webhook refuses deletions of NodeClaims until a pod runs on the empty node: then no order follows."""
    cluster.apply(SETUP)
    scene, asked, seen = FallenBack(cluster, observer, "WhenEmpty", pods=3, disruption=NEVER), Event(), Event()

    def verdict(_: Json) -> Json | None:
        asked.set()
        return None if seen.is_set() else {"code": 429, "reason": "TooManyRequests", "message": "busy"}

    rules = webhooks.rule("karpenter.sh", "nodeclaims", "DELETE")
    with webhooks.serving("busy", rules, verdict, tmp_path) as hook:
        cluster.apply([hook])
        with Daemon(cluster, *BY_ORDER, "--manage-soft-taint"):
            observer.eventually(asked.is_set, "an order", seconds=SECONDS)
            [node] = observer.marks()
            cluster.apply([pod("late", nodeName=node, tolerations=[{"operator": "Exists"}])])
            observer.eventually(lambda: not observer.marks(), "the node reopened", seconds=SECONDS)
            seen.set()
            observer.stays(lambda: node in scene.nodes(), True, seconds=8)
        cluster.api.delete(cluster.api.path(hook))
    cluster.api.delete("/api/v1/namespaces/default/pods/late", gracePeriodSeconds=0)
