"""Which cluster the next virtual nodes come from, and how much of it is asked for."""

from decimal import Decimal

import pytest

from rescheduler.errors import UsageError
from rescheduler.liqo.nodemanager.amounts import amounts, less, missing, quantities, smaller, times
from rescheduler.liqo.nodemanager.choice import Offer, Shortage, choose
from rescheduler.liqo.nodemanager.clusters import Entry, RemoteCluster, remote_cluster
from tests.liqo.builders import NODE, cluster, group


def offer(name: str, nodes: int = 4, **more: object) -> Offer:
    own = {key: more.pop(key) for key in ("failures", "obstacle") if key in more}
    found = cluster(name, nodes, **more)  # type: ignore[arg-type]
    return Offer(found, found.shared, **own)  # type: ignore[arg-type]


CASES = {
    "the cheaper one": ([offer("a", price="2"), offer("b", price="1.5")], 1, ["b"]),
    "one with a price before one without": ([offer("a"), offer("b", price="9")], 1, ["b"]),
    "at one price, where there is more room": ([offer("a", 2), offer("b", 3)], 1, ["b"]),
    "at one price and size, the one that failed less": ([offer("a", failures=2), offer("b", failures=1)], 1, ["b"]),
    "among equals, by name": ([offer("b"), offer("a")], 1, ["a"]),
    "not one with an obstacle": ([offer("a", price="0", obstacle="it sleeps"), offer("b")], 1, ["b"]),
    "not one with other labels": ([offer("a", price="0", gpu=True), offer("b")], 1, ["b"]),
    "not one that is too small": ([offer("a", 0, price="0"), offer("b")], 1, ["b"]),
    "several slices of one": ([offer("a", price="1"), offer("b", price="2")], 3, ["a", "a", "a"]),
    "the next when the first is full": ([offer("a", 2, price="1"), offer("b", price="2")], 3, ["a", "a", "b"]),
    "in turn where both cost the same": ([offer("a", 2), offer("b", 2)], 3, ["a", "b", "a"]),
}


@pytest.mark.parametrize(("offers", "count", "expected"), CASES.values(), ids=CASES)
def test_the_choice(offers: list[Offer], count: int, expected: list[str]) -> None:
    choice = choose(group(), count, offers)
    assert not isinstance(choice, Shortage)
    assert [one.cluster.name for one in choice] == expected


def test_all_or_none_with_a_reason_for_each_cluster() -> None:
    offers = [offer("a", 1), offer("b", gpu=True), offer("c", obstacle="it sleeps")]
    choice = choose(group(), 2, offers)
    assert choice == Shortage(
        1,
        (
            "a: too little is free: cpu 0 of 2, memory 0 of 2Gi, pods 0 of 110",
            "b: its label hasGPU is 'true', 'false' is expected",
            "c: it sleeps",
        ),
    )
    assert str(choose(group(), 1, [])) == "discovery knows no cluster"


def test_more_than_the_least_is_asked_for_where_it_costs_nobody_a_place() -> None:
    generous = group(most={"memory": "3Gi", "cpu": "4"})
    [pick] = choose(generous, 1, [offer("a", 4)])  # type: ignore[misc]
    assert pick.resources == {"cpu": "4", "memory": "3Gi", "pods": "110"}
    [pick] = choose(generous, 1, [Offer(cluster("a"), amounts({"cpu": "3", "memory": "2560Mi", "pods": "500"}))])  # type: ignore[misc]
    assert pick.resources == {"cpu": "3", "memory": "2560Mi", "pods": "110"}
    picks = choose(generous, 4, [offer("a", 4)])
    assert [one.resources for one in picks] == [NODE] * 4  # type: ignore[union-attr]


def test_amounts() -> None:
    found = amounts({"cpu": "1500m", "memory": "1Gi"})
    assert found == {"cpu": Decimal("1.5"), "memory": Decimal(2**30)}
    assert quantities(found) == {"cpu": "1500m", "memory": "1Gi"}
    assert less(found, {"cpu": Decimal(2)}) == {"cpu": Decimal(0), "memory": Decimal(2**30)}
    assert smaller(found, {"cpu": Decimal(1)}) == {"cpu": Decimal(1), "memory": Decimal(2**30)}
    assert times(found, amounts({"cpu": "500m", "memory": "512Mi", "nvidia.com/gpu": "0"})) == 2
    assert missing(found, amounts({"nvidia.com/gpu": "1"})) == ["nvidia.com/gpu 0 of 1"]
    with pytest.raises(ValueError, match="cpu: expected 0 or more"):
        amounts({"cpu": "-1"})


def test_an_entry_of_the_list() -> None:
    entry = Entry(
        name="rome", resources={"cpu": 4, "memory": "8Gi"}, labels={"city": "Rome"}, price=0.1, free={"cpu": "1"}
    )
    assert remote_cluster(entry) == RemoteCluster(
        "rome",
        {"cpu": Decimal(4), "memory": Decimal(8 << 30)},
        {"cpu": Decimal(1)},
        {"city": "Rome"},
        Decimal("0.1"),
    )
    assert "secret" not in repr(Entry(name="rome", kubeconfig="secret")) + repr(
        remote_cluster(Entry(name="rome", kubeconfig="secret"))
    )


@pytest.mark.parametrize(
    ("entry", "words"),
    [
        (Entry(name="../etc"), "expected a cluster ID"),
        (Entry(name="rome", resources={"cpu": "much"}), "cluster rome: resources"),
        (Entry(name="rome", free={"cpu": "-1"}), "cluster rome: free"),
        (Entry(name="rome", price=float("nan")), "price: expected 0 to"),
    ],
)
def test_entries_that_make_no_sense(entry: Entry, words: str) -> None:
    with pytest.raises(UsageError, match=words):
        remote_cluster(entry)
