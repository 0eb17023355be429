"""The sentences about NodePools of Karpenter in a plan: which of them would add on-demand nodes again."""

from typing import Any

import pytest

from rescheduler.planning.node_pools import buying_again
from rescheduler.planning.planner import Planner
from tests.planning.builders import CIRCUMSTANCES, ON_DEMAND, Manifest, node, pod, snapshot
from tests.planning.builders import policy as made_policy

CAPACITY = "karpenter.sh/capacity-type"


def capacity(*values: str, operator: str = "In") -> Manifest:
    return {"key": CAPACITY, "operator": operator, "values": list(values)}


def pool(name: str, *requirements: Manifest, weight: int | None = None, **spec: Any) -> Manifest:
    template = {
        "metadata": {"labels": spec.pop("labels", {})},
        "spec": {"requirements": list(requirements), "taints": spec.pop("taints", [])},
    }
    weighted = {} if weight is None else {"weight": weight}
    return {"kind": "NodePool", "metadata": {"name": name}, "spec": {"template": template, **weighted, **spec}}


def cluster(*pools: Manifest, **of_pod: Any) -> list[Manifest]:
    """Return a cluster in which a pod moves from a node of NodePool od to a spot node of NodePool spot."""
    return [
        node("old", ON_DEMAND, labels={"karpenter.sh/nodepool": "od"}),
        node("new", labels={"karpenter.sh/nodepool": "spot", CAPACITY: "spot", "team": "a"}),
        pod("web-1", "old", **of_pod),
        *pools,
    ]


def said(manifests: list[Manifest]) -> list[str]:
    here = snapshot(manifests)
    planning = Planner(here, made_policy()).plan_all(CIRCUMSTANCES)
    assert [plan.node for plan in planning.plans] == ["old"]
    return list(buying_again(here, planning.plans))


OD = pool("od", capacity("on-demand"), weight=10)
NOTHING: dict[str, list[Manifest]] = {
    "the NodePool of spot nodes comes first": cluster(OD, pool("spot", capacity("spot"), weight=11)),
    "of equal weights, the last name comes first": cluster(OD, pool("spot", capacity("spot"), weight=10)),
    "both without a weight": cluster(pool("od", capacity("on-demand")), pool("spot", capacity("spot"))),
    "no weight is 0": cluster(pool("od", capacity("on-demand")), pool("spot", capacity("spot"), weight=1)),
    "one NodePool for both": cluster(pool("od", capacity("spot", "on-demand"))),
    "a NodePool that says nothing about it": cluster(pool("od")),
    "a NodePool that excludes something else": cluster(pool("od", capacity("reserved", operator="NotIn"))),
    "a label of the template": cluster(OD, pool("spot", weight=50, labels={CAPACITY: "spot"})),
    "static capacity": cluster(pool("od", capacity("on-demand"), replicas=0)),
    "a NodePool that is not known": cluster(pool("spot", capacity("spot"))),
    "a node selector that the NodePool fulfills": cluster(
        OD,
        pool("spot", capacity("spot"), weight=50, labels={"team": "a"}),
        nodeSelector={"team": "a", CAPACITY: "spot"},
    ),
    "limits with room": cluster(OD, pool("spot", capacity("spot"), weight=50, limits={"nodes": "2", "cpu": "5"})),
    "a taint that is only preferred": cluster(
        OD, pool("spot", capacity("spot"), weight=50, taints=[{"key": "spot", "effect": "PreferNoSchedule"}])
    ),
    "a taint that is tolerated": cluster(
        OD,
        pool("spot", capacity("spot"), weight=50, taints=[{"key": "spot", "effect": "NoSchedule"}]),
        tolerations=[{"key": "spot", "operator": "Exists"}],
    ),
}
BUYS: dict[str, tuple[list[Manifest], str]] = {
    "the NodePool of spot nodes comes later": (cluster(OD, pool("spot", capacity("spot"), weight=9)), ""),
    "the same weight, and an earlier name": (cluster(OD, pool("a-spot", capacity("spot"), weight=10)), ""),
    "no NodePool of spot nodes": (cluster(OD), ""),
    "both without a weight": (cluster(pool("od", capacity("on-demand")), pool("cheap", capacity("spot"))), ""),
    "spot excluded": (cluster(pool("od", capacity("spot", operator="NotIn"))), ""),
    "a static NodePool of spot nodes": (cluster(OD, pool("spot", capacity("spot"), weight=50, replicas=3)), ""),
    "a taint that is not tolerated": (
        cluster(OD, pool("spot", capacity("spot"), weight=50, taints=[{"key": "spot", "effect": "NoSchedule"}])),
        "",
    ),
    "a node selector that the NodePool does not fulfill": (
        cluster(OD, pool("spot", capacity("spot"), weight=50, labels={"team": "b"}), nodeSelector={"team": "a"}),
        "",
    ),
    "a limit of nodes that is reached": (
        cluster(OD, pool("spot", capacity("spot"), weight=50, limits={"nodes": "1"})),
        " ('spot' is full)",
    ),
    "a limit of CPUs that is reached": (
        cluster(OD, pool("spot", capacity("spot"), weight=50, limits={"cpu": "4"})),
        " ('spot' is full)",
    ),
    "a limit that cannot be read": (
        cluster(OD, pool("spot", capacity("spot"), weight=50, limits={"cpu": "four"})),
        " ('spot' is full)",
    ),
}


@pytest.mark.parametrize("manifests", NOTHING.values(), ids=NOTHING)
def test_nothing_is_said_if_karpenter_would_add_spot_nodes(manifests: list[Manifest]) -> None:
    assert said(manifests) == []


@pytest.mark.parametrize(("manifests", "full"), BUYS.values(), ids=BUYS)
def test_a_plan_says_that_karpenter_would_add_on_demand_nodes_again(manifests: list[Manifest], full: str) -> None:
    [sentence] = said(manifests)
    weight = next(each["spec"].get("weight", 0) for each in manifests if each["metadata"]["name"] == "od")
    assert sentence == (
        f"for 1 moved pod, NodePool 'od' (weight {weight}) would add on-demand nodes again when they are pending: no "
        f"NodePool with spot capacity that comes before it takes them{full}"
    )
