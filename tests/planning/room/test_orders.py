"""Tests of orders of spot room: for which nodes, how many new nodes, and whether the order pays off."""

from dataclasses import replace
from datetime import timedelta
from decimal import Decimal
from typing import Any, Final

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from predicates.snapshot import Snapshot
from rescheduler.planning.money.commitments import Commitment
from rescheduler.planning.money.prices import PriceList
from rescheduler.planning.money.worth import Worth
from rescheduler.planning.outcome import Rejected
from rescheduler.planning.planner import Planner
from rescheduler.planning.policy import Policy
from rescheduler.planning.room.orders import Exchange, NotOrdered, RoomOrder, RoomSearch, candidates
from rescheduler.planning.what_if.added_spot import NewSpot
from tests.planning.builders import (
    CIRCUMSTANCES,
    HOST,
    NOW,
    ON_DEMAND,
    ZONE,
    Manifest,
    node,
    pod,
    repels,
    snapshot,
)
from tests.planning.test_node_pools import capacity, pool

SPOT_PRICES = PriceList(per_vcpu=Decimal("0.04"), spot_per_vcpu=Decimal("0.01"))

FULL = [node("s", cpu="4"), pod("filler-1", on="s", cpu="4")]
OD = node("od", ON_DEMAND)
GROUP: Final[Manifest] = {
    "kind": "AutoscalerGroups",
    "groups": [{"name": "spot", "target": 1, "minimum": 0, "maximum": 1}],
}


def pods(*cpus: str, on: str = "od", **fields: Any) -> list[Manifest]:
    return [pod(f"web-{number}", on=on, cpu=cpu, **fields) for number, cpu in enumerate(cpus)]


def ordered(*objects: Manifest, name: str = "od", prices: PriceList | None = None, most: int = 50) -> Any:
    """Return template, number of new nodes, freed nodes and worth of the order, or why there is none."""
    cluster = snapshot(objects)
    before = dict(cluster.pods), list(cluster.nodes.row)
    order = RoomSearch(cluster, Policy(), CIRCUMSTANCES, prices or PriceList(), most).order(name)
    assert (dict(cluster.pods), list(cluster.nodes.row)) == before
    if isinstance(order, NotOrdered):
        return order.why
    return order.template, order.count, order.freed, str(order.exchange)


CASES: dict[str, tuple[list[Manifest], Any]] = {
    "one node for one node": (
        [OD, *FULL, *pods("2", "1")], ("s", 1, ("od",), "frees 4 vCPU and adds 4"),
    ),
    "smaller nodes, as few as possible": (
        [OD, node("s", cpu="2"), pod("filler-1", on="s", cpu="2"), *pods("1", "1", "1")],
        ("s", 2, ("od",), "frees 4 vCPU and adds 4"),
    ),
    "a larger node is worth it for two nodes": (
        [
            OD, node("od-2", ON_DEMAND, cpu="4"), node("s", cpu="8"), pod("filler-1", on="s", cpu="8"),
            *pods("2"), pod("api-1", on="od-2", cpu="3"),
        ],
        ("s", 1, ("od", "od-2"), "frees 8 vCPU and adds 8"),
    ),
    "a larger node does not pay for one": (
        [OD, node("s", cpu="8"), pod("filler-1", on="s", cpu="8"), *pods("2")],
        "1 new spot node like s would not pay off: an order frees 4 vCPU and adds 8",
    ),
    "the smaller of two groups": (
        [OD, node("big", cpu="4"), node("small", cpu="2"), *pods("2", "2"),
         pod("filler-1", on="big", cpu="4"), pod("filler-2", on="small", cpu="2")],
        ("big", 1, ("od",), "frees 4 vCPU and adds 4"),
    ),
    "pods that repel each other": (
        [node("od", ON_DEMAND, cpu="8"), *FULL, *pods("1", "1", affinity=repels("web"))],
        ("s", 2, ("od",), "frees 8 vCPU and adds 8"),
    ),
    "no spot node at all: like the node itself": (
        [OD, *pods("2", "1")], ("od", 1, ("od",), "frees 4 vCPU and adds 4"),
    ),
    "a pod that no spot node could take": (
        [node("od", ON_DEMAND, cpu="8"), *FULL, *pods("6")],
        "new spot nodes like s would not help: pod default/web-0: 0/21 spot nodes are available: 21 Insufficient cpu",
    ),
    "a group that is at its largest size": (
        [node("od", ON_DEMAND), *pods("2", "1"), node("s", labels={"hcloud/node-group": "spot"}),
         pod("filler-1", on="s", cpu="4"), GROUP],
        "what has created s may add no more nodes: its limit is reached",
    ),
    "a group that may add too few nodes": (
        [node("od", ON_DEMAND, cpu="8"), *pods("3", "3"), node("s", labels={"hcloud/node-group": "spot"}),
         pod("filler-1", on="s", cpu="4"), {**GROUP, "groups": [GROUP["groups"][0] | {"maximum": 2}]}],
        "new spot nodes like s would not help: pod default/web-1: 0/2 spot nodes are available: 2 Insufficient cpu",
    ),
    "a low priority": (
        [OD, *FULL, *pods("1", priority=-10)],
        "pod default/web-0: its priority -10 is below that of placeholders (-5)",
    ),
    "a node that would be filled again": (
        [OD, node("od-2", ON_DEMAND, cpu="64"), *FULL, *pods("1", "1", "1"), *[pod("x", on="od-2", cpu="1m")]],
        ("1 new spot node like s would not help: 2 of 3 pods would return to nodes that are not spot, on average of 5 "
        "simulations; a PreferNoSchedule taint on on-demand nodes (--manage-soft-taint) keeps them away"),
    ),
}  # fmt: skip


@pytest.mark.parametrize(("objects", "expected"), CASES.values(), ids=CASES)
def test_the_cheapest_order_is_returned(objects: list[Manifest], expected: Any) -> None:
    assert ordered(*objects) == expected


def test_an_order_for_too_many_pods_is_rejected() -> None:
    why = ordered(OD, *FULL, *pods("1", "1", "1"), most=2)
    assert why == "3 pods would need placeholders; --max-placeholders=2"


def test_prices_decide_if_all_are_known() -> None:
    big = [OD, node("s", cpu="8"), pod("filler-1", on="s", cpu="8"), *pods("2")]
    assert ordered(*big, prices=SPOT_PRICES) == ("s", 1, ("od",), "frees 0.1600 and adds 0.0800 per hour")
    dear = PriceList(per_vcpu=Decimal("0.04"), spot_per_vcpu=Decimal("0.04"))
    equal = "1 new spot node like s would not pay off: an order frees 0.1600 and adds 0.1600 per hour"
    assert ordered(OD, *FULL, *pods("2"), prices=dear) == equal


def money(gross: int, committed: int, spot: int) -> Worth:
    return Worth.of(Decimal(gross), Decimal(committed), Decimal(spot))


EXCHANGES: dict[str, tuple[Exchange, bool, str]] = {
    "as many vCPU": (Exchange(4000, 4000), True, "frees 4 vCPU and adds 4"),
    "more vCPU": (Exchange(4000, 4001), False, "frees 4 vCPU and adds 4.001"),
    "nothing added": (Exchange(4000, 0), False, "frees 4 vCPU and adds 0"),
    "a part of the vCPU is paid anyway": (
        Exchange(4000, 3000, 2000), False, "frees 4 vCPU (2 of it paid by commitments anyway) and adds 3",
    ),
    "less money, more vCPU": (Exchange(4000, 8000, 0, money(2, 0, 1)), True, "frees 2.0000 and adds 1.0000 per hour"),
    "as much money": (Exchange(4000, 1000, 0, money(1, 0, 1)), False, "frees 1.0000 and adds 1.0000 per hour"),
    "the rest is more": (
        Exchange(4000, 1000, 1000, money(4, 2, 1)), True,
        "frees 4.0000 (2.0000 of it paid by commitments anyway) and adds 1.0000 per hour",
    ),
    "the rest is as much": (
        Exchange(4000, 1000, 1000, money(4, 3, 1)), False,
        "frees 4.0000 (3.0000 of it paid by commitments anyway) and adds 1.0000 per hour",
    ),
}  # fmt: skip


@pytest.mark.parametrize(("value", "pays", "text"), EXCHANGES.values(), ids=EXCHANGES)
def test_an_order_pays_off_if_it_frees_more_than_it_adds(value: Exchange, pays: bool, text: str) -> None:
    assert (value.pays, str(value)) == (pays, text)


BY_VCPU: Final = PriceList()
TWO: Final = [OD, node("od-2", ON_DEMAND), *FULL, *pods("2"), pod("api-0", on="od-2", cpu="4")]
ENDED: Final = Commitment(nodes=9, until=NOW.date() - timedelta(days=1))

#: Orders for the node od: the commitments, the nodes and prices, and whether there is an order.
COMMITTED: dict[str, tuple[list[Commitment], list[Manifest], PriceList, bool]] = {
    "none": ([], [OD, *FULL, *pods("2")], SPOT_PRICES, True),
    "the node is paid anyway": ([Commitment(nodes=1, of_each_type=True)], [OD, *FULL, *pods("2")], SPOT_PRICES, False),
    "an amount pays for a part": ([Commitment(per_hour=Decimal("0.05"))], [OD, *FULL, *pods("2")], SPOT_PRICES, True),
    "an amount pays for most": ([Commitment(per_hour=Decimal("0.13"))], [OD, *FULL, *pods("2")], SPOT_PRICES, False),
    "another type": ([Commitment("m5", nodes=1)], [OD, *FULL, *pods("2")], SPOT_PRICES, True),
    "it has ended": ([ENDED], [OD, *FULL, *pods("2")], SPOT_PRICES, True),
    "it pays for the node that stays": ([Commitment(nodes=1)], TWO, SPOT_PRICES, True),
    "it pays for both": ([Commitment(nodes=2)], TWO, SPOT_PRICES, False),
    "no prices, no commitment": ([], [OD, *FULL, *pods("2")], BY_VCPU, True),
    "no prices, the node is paid anyway": ([Commitment(nodes=1)], [OD, *FULL, *pods("2")], BY_VCPU, False),
    "no prices, it pays for the node that stays": ([Commitment(nodes=1)], TWO, BY_VCPU, True),
}


@pytest.mark.parametrize(("known", "objects", "prices", "is_ordered"), COMMITTED.values(), ids=COMMITTED)
def test_no_room_is_ordered_for_a_node_that_a_commitment_pays_anyway(
    known: list[Commitment], objects: list[Manifest], prices: PriceList, is_ordered: bool
) -> None:
    found = ordered(*objects, prices=replace(prices, commitments=tuple(known)))
    assert found[:3] == ("s", 1, ("od",)) if is_ordered else "would not pay off" in found and "paid by" in found


def templates(cluster: Snapshot) -> list[str]:
    return [change.like for change in NewSpot(cluster, Policy()).like_present(of_pools=True)]


def test_templates_are_one_node_of_each_group() -> None:
    nodes = [
        node("b"),
        node("a"),
        node("c", zone="b"),
        node("d", cpu="8"),
        node("e", taints=[{"key": "spot", "effect": "NoSchedule"}]),
        node("f", unschedulable=True, cpu="16"),
        OD,
    ]
    assert templates(snapshot(nodes)) == ["a", "c", "d", "e"]


def test_a_full_node_pool_does_not_hide_another_one_that_creates_the_same_nodes() -> None:
    pools = [pool("first", capacity("spot"), weight=10, limits={"cpu": "4"}), pool("second", capacity("spot"))]
    nodes = [
        node(name, labels={"karpenter.sh/nodepool": of}, zone="a") for name, of in (("a", "first"), ("b", "second"))
    ]
    full = [pod(f"filler-{name}-1", on=name, cpu="4") for name in "ab"]
    cluster = snapshot([OD, *nodes, *pools])
    assert templates(cluster) == ["b"]
    template, count, freed, _ = ordered(OD, *nodes, *full, *pods("2"), *pools)
    assert (template, count, freed) == ("b", 1, ("od",))


def test_spot_nodes_that_accept_nothing_are_templates_if_there_are_no_others() -> None:
    assert templates(snapshot([node("a", unschedulable=True), OD])) == ["a"]


def test_candidates_are_nodes_that_lack_only_room() -> None:
    objects = [
        *FULL,
        *(node(name, ON_DEMAND) for name in ("full", "bare", "empty", "pinned")),
        pod("web-1", on="full", cpu="2"),
        pod("db-1", on="bare", cpu="1", owner=None),
        pod("api-1", on="pinned", cpu="1", nodeSelector={HOST: "pinned"}),
    ]
    verdicts = Planner(snapshot(objects), Policy()).first_plan(CIRCUMSTANCES).verdicts
    assert candidates(verdicts) == ["full"]


sizes = st.lists(st.sampled_from(["500m", "1", "2", "3"]), min_size=1, max_size=6)


@settings(max_examples=40, deadline=None)
@given(sizes, st.sampled_from(["2", "4", "8"]), st.sampled_from(["4", "8", "16"]))
def test_an_order_adds_exactly_the_needed_nodes(cpus: list[str], spot: str, on_demand: str) -> None:
    objects = [
        node("od", ON_DEMAND, cpu=on_demand),
        node("s", cpu=spot),
        pod("filler-1", on="s", cpu=spot),
        *pods(*cpus),
    ]
    order = RoomSearch(snapshot(objects), Policy(), CIRCUMSTANCES, PriceList(), 50).order("od")
    if isinstance(order, NotOrdered):
        return

    def verdict(count: int) -> Any:
        added = [node(f"new-{number}", cpu=spot) for number in range(count)]
        return Planner(snapshot([*objects, *added]), Policy()).look_again("od", CIRCUMSTANCES)

    assert isinstance(order, RoomOrder)
    assert order.exchange.pays
    assert {placement.pod.uid for placement in order.plan.placements} == {f"uid-web-{n}" for n in range(len(cpus))}
    assert not isinstance(verdict(order.count), Rejected)
    assert isinstance(verdict(0), Rejected)


def test_volumes_stay_in_their_zone() -> None:
    """Only a new node in the zone of the volume helps."""
    claim = {
        "kind": "PersistentVolumeClaim",
        "metadata": {
            "name": "data",
            "namespace": "default",
            "annotations": {"pv.kubernetes.io/bind-completed": "yes"},
        },
        "spec": {"volumeName": "pv"},
        "status": {"phase": "Bound"},
    }
    terms = [{"matchExpressions": [{"key": ZONE, "operator": "In", "values": ["b"]}]}]
    volume = {
        "kind": "PersistentVolume",
        "metadata": {"name": "pv"},
        "spec": {"nodeAffinity": {"required": {"nodeSelectorTerms": terms}}},
    }
    spot = [node("s-a", zone="a"), node("s-b", zone="b"), pod("filler-1", on="s-a", cpu="4")]
    stateful = pod("db-0", on="od", volumes=[{"name": "v", "persistentVolumeClaim": {"claimName": "data"}}])
    order = ordered(OD, *spot, pod("filler-2", on="s-b", cpu="4"), claim, volume, stateful)
    assert order == ("s-b", 1, ("od",), "frees 4 vCPU and adds 4")
