"""Tests of the price of a node: the precedence of sources, and prices by resources."""

from decimal import Decimal

import pytest

from rescheduler.planning.money.prices import NodeFacts, PriceList, node_facts
from tests.planning.builders import ON_DEMAND, SPOT, node, pod, snapshot

LISTED = {
    ("m5.large", "a", False): Decimal("0.11"),
    ("m5.large", "", False): Decimal("0.10"),
    ("m5.large", "", True): Decimal("0.03"),
}
FULL = PriceList(LISTED, {"od-1": Decimal(5)}, Decimal(1), Decimal("0.5"), Decimal("0.25"), None, "USD")


def facts(name: str = "n", kind: str = "m5.large", zone: str = "a", *, spot: bool = False) -> NodeFacts:
    return NodeFacts(name, spot, kind, zone, 2500, 4 << 30, 0, 0, None)


#: Prices and node → its price.
CASES = {
    "its zone": (FULL, facts(), "0.11"),
    "all zones": (FULL, facts(zone="b"), "0.10"),
    "spot": (FULL, facts(spot=True), "0.03"),
    "the list comes before the provider": (FULL, facts("od-1"), "0.11"),
    "the provider": (FULL, facts("od-1", "other"), "5"),
    "the provider comes before the resources": (FULL, facts("od-1", ""), "5"),
    "by vCPU and GiB": (FULL, facts("od-2", "other"), "4.5"),
    "by vCPU alone": (FULL, facts("od-2", "other", spot=True), "0.625"),
    "none": (PriceList(LISTED), facts(kind="other"), None),
    "no prices": (PriceList(), facts(), None),
}


@pytest.mark.parametrize(("prices", "node", "expected"), CASES.values(), ids=CASES)
def test_the_most_specific_price_of_a_node_applies(prices: PriceList, node: NodeFacts, expected: str | None) -> None:
    assert prices.per_hour(node) == (None if expected is None else Decimal(expected))


def test_a_list_without_prices_is_empty() -> None:
    assert PriceList().empty
    assert PriceList(currency="USD").empty
    assert [PriceList(by_type=LISTED).empty, PriceList(spot_per_gib=Decimal(0)).empty] == [False, False]


#: Labels → instance type and zone.
LABELS = {
    "current": ({"node.kubernetes.io/instance-type": "m5", "topology.kubernetes.io/zone": "b"}, ("m5", "b")),
    "old": ({"beta.kubernetes.io/instance-type": "m4"}, ("m4", "a")),
    "both": ({"node.kubernetes.io/instance-type": "m5", "beta.kubernetes.io/instance-type": "m4"}, ("m5", "a")),
    "none": ({}, ("", "a")),
}


@pytest.mark.parametrize(("labels", "expected"), LABELS.values(), ids=LABELS)
def test_type_and_zone_of_a_node_are_read_from_its_labels(labels: dict[str, str], expected: tuple[str, str]) -> None:
    known = node_facts(snapshot([node("n", ON_DEMAND, labels=labels)]), "n", spot=False)
    assert (known.instance_type, known.zone) == expected


def test_facts_of_a_node_contain_its_amounts() -> None:
    cluster = snapshot([node("n", SPOT, cpu="2500m"), pod("web-1", "n", cpu="750m")])
    assert node_facts(cluster, "n", spot=True) == NodeFacts("n", True, "", "a", 2500, 16 << 30, 750, 0, None)
