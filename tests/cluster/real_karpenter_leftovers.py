"""Leftovers beside the real Karpenter, which consolidates on-demand nodes as well: `make karpenter`.

On-demand nodes of two sizes have pods that must not run on spot nodes. LEFTOVERS_WATCHED=600 watches for ten minutes.
"""

import logging
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Final

import pytest

from devcluster.manifests import deployment
from devcluster.plane import ControlPlane
from rescheduler.clock import pause
from tests.cluster import real_karpenter
from tests.cluster.beside import PATIENT, WATCHED, side_by_side, watched
from tests.cluster.daemon import NO_DELAY, Daemon
from tests.cluster.observer import AGENT, Observer
from tests.cluster.real_karpenter import (
    CAPACITY,
    LABELS,
    NODEPOOLS,
    ON_DEMAND_PRICE,
    SECONDS,
    SPOT_PRICE,
    instance_type,
    node_pool,
)

program = real_karpenter.program

log = logging.getLogger(__name__)

TYPE: Final = "node.kubernetes.io/instance-type"
HOST: Final = "kubernetes.io/hostname"
ON_DEMAND: Final = f"{CAPACITY}=on-demand"
RULES: Final = replace(PATIENT, on_demand=ON_DEMAND, spot=f"{CAPACITY}=spot")
PRICES: Final = (
    f"--price-per-vcpu={ON_DEMAND_PRICE}",
    "--price-per-gib=0",
    f"--spot-price-per-vcpu={SPOT_PRICE}",
    "--spot-price-per-gib=0",
)
SPOT_NODES: Final = 3

#: By on-demand node: its CPU, that of the pod that must not run on spot nodes, and number and CPU of its other pods.
NODES: Final = ((4, "500m", 3, "1"), (4, "300m", 3, "1"), (8, "1", 4, "1200m"))


@pytest.fixture
def karpenter(program: Path, cluster: ControlPlane, tmp_path: Path) -> Iterator[None]:
    with real_karpenter.running(program, cluster, tmp_path, [instance_type(cpu) for cpu in (2, 4, 8)]):
        yield


def start(observer: Observer, policy: str, after: str) -> None:
    """Let Karpenter add the nodes, start the pods on on-demand nodes, and then let Karpenter consolidate."""
    plane, pools = observer.plane, {kind: node_pool(kind, policy) for kind in ("on-demand", "spot")}
    for pool in pools.values():
        pool["spec"]["disruption"]["consolidateAfter"] = "Never"
    apart = {"labelSelector": {"matchLabels": {"app": "base"}}, "topologyKey": HOST}
    affinity = {"podAntiAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [apart]}}
    base = deployment("base", SPOT_NODES, cpu="2", nodeSelector=of_type("spot", 8), affinity=affinity)
    plane.apply([*pools.values(), base])
    filled = [filling(observer, number, cpu) for number, (cpu, *_) in enumerate(NODES)]
    observer.running(SPOT_NODES + len(NODES))
    for number in range(len(NODES)):
        plane.api.delete(f"/apis/apps/v1/namespaces/default/deployments/filler{number}")
    observer.running(SPOT_NODES)
    for number, (node, (_, pinned, count, cpu)) in enumerate(zip(filled, NODES, strict=True)):
        left = deployment(f"left{number}", 1, cpu=pinned, nodeSelector={CAPACITY: "on-demand"})
        observer.start_on(node, left, deployment(f"web{number}", count, cpu=cpu), pods=count + 1)
    observer.running(SPOT_NODES + sum(count + 1 for _, _, count, _ in NODES))
    observer.open_all()
    for kind in pools:
        plane.api.patch(f"{NODEPOOLS}/{kind}", {"spec": {"disruption": {"consolidateAfter": after}}})


def filling(observer: Observer, number: int, cpu: int) -> str:
    """Let Karpenter add an on-demand node of *cpu* for a pod that fills it, and return its name."""
    app = f"filler{number}"
    observer.plane.apply([deployment(app, 1, cpu=str(cpu - 1), nodeSelector=of_type("on-demand", cpu))])
    observer.eventually(lambda: "" not in (places := observer.places(app)) and places, "a node", seconds=SECONDS)
    return next(iter(observer.places(app)))


def of_type(kind: str, cpu: int) -> dict[str, str]:
    """Return a nodeSelector for nodes of a capacity type with *cpu* CPUs."""
    return {CAPACITY: kind, TYPE: str(instance_type(cpu)["name"])}


def of_kind(plane: ControlPlane, kind: str) -> set[str]:
    """Return the names of the nodes of a capacity type."""
    return {node["metadata"]["name"] for node in plane.api.items("/api/v1/nodes", labelSelector=f"{CAPACITY}={kind}")}


def settled(observer: Observer) -> bool:
    """Return whether one on-demand node is left, with all pods that must run on one, and nothing is drained."""
    [*names] = of_kind(observer.plane, "on-demand")
    lefts = [observer.places(f"left{number}") for number in range(len(NODES))]
    return lefts == [dict.fromkeys(names, 1)] * len(NODES) and len(names) == 1 and not observer.marks()


#: By name: the policy of both NodePools, their `consolidateAfter`, and who deletes the NodeClaims of emptied nodes.
WHO: Final[dict[str, tuple[str, str, tuple[str, ...]]]] = {
    "consolidated at once": ("WhenEmptyOrUnderutilized", "10s", ()),
    "consolidated later": ("WhenEmptyOrUnderutilized", "60s", ()),
    "deleted by the daemon": ("WhenEmptyOrUnderutilized", "60s", ("--cloud-provider=karpenter",)),
    "only empty ones": ("WhenEmpty", "10s", ()),
}


@pytest.mark.cluster
@pytest.mark.parametrize(("policy", "after", "own"), WHO.values(), ids=WHO)
def test_leftovers_and_karpenter_do_not_undo_each_others_work(
    cluster: ControlPlane, observer: Observer, karpenter: None, policy: str, after: str, own: tuple[str, ...]
) -> None:
    """One on-demand node stays with all leftovers, which Karpenter may replace with a smaller one."""
    start(observer, policy, after)
    flags = (*LABELS, NO_DELAY, "--namespace=default", "--leftovers=move", "--manage-soft-taint", *PRICES, *own)
    with watched(observer, RULES) as watchdog:
        with Daemon(cluster, *flags):
            observer.eventually(lambda: settled(observer), "one on-demand node", seconds=SECONDS)
            pause(WATCHED)  # Karpenter may replace the node, with several in between
            observer.eventually(lambda: settled(observer), "one on-demand node at the end")
        seen = side_by_side(watchdog, observer)
    log.info("emptied %s; leftovers moved: %s, by us %s", seen.names, seen.moves(), seen.moves(AGENT))
    log.info("added %s", seen.added(ON_DEMAND))
    assert seen.undone() == []
