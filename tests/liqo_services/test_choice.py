"""Choice of clusters for new virtual nodes, and the requested amounts."""

from decimal import Decimal

import pytest

from rescheduler.errors import UsageError
from rescheduler.liqo.node_manager.catalog import DiscoveredCluster, RemoteCluster, remote_cluster
from rescheduler.liqo.node_manager.groups import (
    amounts,
    count_fitting,
    describe_shortages,
    limit_to,
    quantities,
    subtract,
)
from rescheduler.liqo.node_manager.service import Offer, Shortage, choose
from tests.liqo_services.builders import NODE, cluster, group


def offer(name: str, nodes: int = 4, **fields: object) -> Offer:
    own = {key: fields.pop(key) for key in ("failures", "obstacle") if key in fields}
    offered = cluster(name, nodes, **fields)  # type: ignore[arg-type]
    return Offer(offered, offered.shared, **own)  # type: ignore[arg-type]


CASES = {
    "the cheaper one": ([offer("a", price="2"), offer("b", price="1.5")], 1, ["b"]),
    "a cluster with a price before one without": ([offer("a"), offer("b", price="9")], 1, ["b"]),
    "at equal prices, the one with more room": ([offer("a", 2), offer("b", 3)], 1, ["b"]),
    "at equal prices and room, the one with fewer failures": (
        [offer("a", failures=2), offer("b", failures=1)],
        1,
        ["b"],
    ),
    "otherwise by name": ([offer("b"), offer("a")], 1, ["a"]),
    "not one with an obstacle": ([offer("a", price="0", obstacle="it sleeps"), offer("b")], 1, ["b"]),
    "not one with other labels": ([offer("a", price="0", gpu=True), offer("b")], 1, ["b"]),
    "not one that is too small": ([offer("a", 0, price="0"), offer("b")], 1, ["b"]),
    "several slices of one cluster": ([offer("a", price="1"), offer("b", price="2")], 3, ["a", "a", "a"]),
    "the next one when the first is full": ([offer("a", 2, price="1"), offer("b", price="2")], 3, ["a", "a", "b"]),
    "alternating at equal prices": ([offer("a", 2), offer("b", 2)], 3, ["a", "b", "a"]),
}


@pytest.mark.parametrize(("offers", "count", "expected"), CASES.values(), ids=CASES)
def test_the_cheapest_clusters_with_room_are_chosen(offers: list[Offer], count: int, expected: list[str]) -> None:
    choice = choose(group(), count, offers)
    assert not isinstance(choice, Shortage)
    assert [pick.cluster.name for pick in choice] == expected


def test_without_enough_clusters_each_cluster_has_a_reason() -> None:
    offers = [offer("a", 1), offer("b", gpu=True), offer("c", obstacle="it sleeps")]
    choice = choose(group(), 2, offers)
    assert choice == Shortage(
        1,
        (
            "a: insufficient resources: cpu 0 of 2, memory 0 of 2Gi, pods 0 of 110",
            "b: its label hasGPU is 'true', expected 'false'",
            "c: it sleeps",
        ),
    )
    assert str(choose(group(), 1, [])) == "discovery lists no cluster"


def test_more_than_the_minimum_is_requested_if_it_displaces_no_node() -> None:
    generous = group(most={"memory": "3Gi", "cpu": "4"})
    [pick] = choose(generous, 1, [offer("a", 4)])  # type: ignore[misc]
    assert pick.resources == {"cpu": "4", "memory": "3Gi", "pods": "110"}
    [pick] = choose(generous, 1, [Offer(cluster("a"), amounts({"cpu": "3", "memory": "2560Mi", "pods": "500"}))])  # type: ignore[misc]
    assert pick.resources == {"cpu": "3", "memory": "2560Mi", "pods": "110"}
    picks = choose(generous, 4, [offer("a", 4)])
    assert [each.resources for each in picks] == [NODE] * 4  # type: ignore[union-attr]


def test_amounts_are_added_compared_and_divided() -> None:
    total = amounts({"cpu": "1500m", "memory": "1Gi"})
    assert total == {"cpu": Decimal("1.5"), "memory": Decimal(2**30)}
    assert quantities(total) == {"cpu": "1500m", "memory": "1Gi"}
    assert subtract(total, {"cpu": Decimal(2)}) == {"cpu": Decimal(0), "memory": Decimal(2**30)}
    assert limit_to(total, {"cpu": Decimal(1)}) == {"cpu": Decimal(1), "memory": Decimal(2**30)}
    assert count_fitting(total, amounts({"cpu": "500m", "memory": "512Mi", "nvidia.com/gpu": "0"})) == 2
    assert describe_shortages(total, amounts({"nvidia.com/gpu": "1"})) == ["nvidia.com/gpu 0 of 1"]
    with pytest.raises(ValueError, match="cpu: expected 0 or more"):
        amounts({"cpu": "-1"})


def test_a_list_entry_becomes_a_cluster() -> None:
    entry = DiscoveredCluster(
        name="rome", resources={"cpu": 4, "memory": "8Gi"}, labels={"city": "Rome"}, price=0.1, free={"cpu": "1"}
    )
    assert remote_cluster(entry) == RemoteCluster(
        "rome",
        {"cpu": Decimal(4), "memory": Decimal(8 << 30)},
        {"cpu": Decimal(1)},
        {"city": "Rome"},
        Decimal("0.1"),
    )
    assert "secret" not in repr(DiscoveredCluster(name="rome", kubeconfig="secret")) + repr(
        remote_cluster(DiscoveredCluster(name="rome", kubeconfig="secret"))
    )


@pytest.mark.parametrize(
    ("entry", "message"),
    [
        (DiscoveredCluster(name="../etc"), "expected a cluster ID"),
        (DiscoveredCluster(name="rome", resources={"cpu": "much"}), "cluster rome: resources"),
        (DiscoveredCluster(name="rome", free={"cpu": "-1"}), "cluster rome: free"),
        (DiscoveredCluster(name="rome", price=float("nan")), "price: expected 0 to"),
    ],
)
def test_invalid_list_entries_are_errors(entry: DiscoveredCluster, message: str) -> None:
    with pytest.raises(UsageError, match=message):
        remote_cluster(entry)
