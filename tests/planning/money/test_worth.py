"""Tests of what drained nodes are worth, and of commitments."""

from datetime import date
from decimal import Decimal

import pytest

from rescheduler.errors import InputError
from rescheduler.planning.money import commitments
from rescheduler.planning.money.commitments import Commitment
from rescheduler.planning.money.prices import NodeFacts, PriceList
from rescheduler.planning.money.worth import NO_WORTH, Worth, covered, net_per_hour, saves, summed
from rescheduler.planning.planner import Planner
from rescheduler.planning.policy import Circumstances, Policy
from rescheduler.planning.what_if.overview import overview
from tests.planning.builders import NOW, ON_DEMAND, node, pod, snapshot

TODAY = date(2026, 6, 1)
HALF = Decimal("0.5")


def amount(text: str | None) -> Decimal | None:
    return None if text is None else Decimal(text)


@pytest.mark.parametrize(
    ("price", "committed", "spot", "net"),
    [
        ("0.5", "0", "0.1", "0.4"),
        ("0.5", "0.5", "0.1", "0"),
        ("0.5", "0.2", "0.1", "0.2"),
        ("0.1", "0", "0.4", "0"),
        (None, "0", "0.1", None),
        ("0.5", "0", None, None),
    ],
)
def test_a_node_saves_its_price_without_what_is_paid_anyway(
    price: str | None, committed: str, spot: str | None, net: str | None
) -> None:
    assert net_per_hour(amount(price), Decimal(committed), amount(spot)) == amount(net)


def worth(price: str | None, spot: str | None, committed: str = "0") -> Worth:
    return Worth.of(amount(price), Decimal(committed), amount(spot))


def test_sums_have_the_whole_share_of_spot_also_if_pods_cost_more_than_their_node() -> None:
    total = summed([worth("1", "0.2"), worth("0.5", "0.9"), worth("1", "0.25", "1"), worth(None, "5")])
    assert total == Worth(Decimal("2.5"), Decimal(1), Decimal("1.35"), Decimal("0.8"))
    assert total.excess == Decimal("0.65")
    assert (summed([]), summed([worth(None, "1")])) == (NO_WORTH, NO_WORTH)


def test_an_unknown_share_of_spot_makes_the_net_sum_unknown() -> None:
    assert summed([worth("1", "0.2"), worth("1", None)]) == Worth(Decimal(2))


@pytest.mark.parametrize(
    ("total", "text"),
    [
        (worth("0.71", "0.3356"), "saves 273 $/month: nodes 518, their share of spot 245"),
        (
            worth("1", "0.1", "0.4"),
            "saves 365 $/month: nodes 730, 292 of it paid by commitments anyway, their share of spot 73.00",
        ),
        (worth("1", None), "frees nodes of 730 $/month; their share of spot is not known"),
        (worth("1", "0"), "saves 730 $/month"),
        (
            worth("0.2", "0.25"),
            "saves 0.00 $/month: nodes 146, their share of spot 182; spot costs more than the nodes, by 36.50",
        ),
        (NO_WORTH, ""),
    ],
)
def test_a_headline_has_net_and_gross(total: Worth, text: str) -> None:
    assert saves(total, "$") == text


def facts(name: str, kind: str = "m5.large", zone: str = "eu-west-1a") -> NodeFacts:
    return NodeFacts(name, False, kind, zone, 1000, 1 << 30, 0, 0, None)


NODES = [facts("a"), facts("b"), facts("c", "m5.xlarge"), facts("d", "c5.large", "eu-west-2b"), facts("e", zone="")]
LIST = {(kind, "", False): Decimal(1) for kind in ("m5.large", "m5.xlarge", "c5.large")}

COVERED: dict[str, tuple[list[Commitment], dict[str, str]]] = {
    "a type": ([Commitment("m5.large", nodes=2)], {"a": "1", "b": "1"}),
    "more than there are": ([Commitment("m5.xlarge", nodes=9)], {"c": "1"}),
    "a family": ([Commitment("m5", nodes=3)], {"a": "1", "b": "1", "c": "1"}),
    "not a prefix of a family": ([Commitment("m", nodes=9)], {}),
    "a type before its family": (
        [Commitment("m5", nodes=1), Commitment("m5.large", nodes=1)],
        {"a": "1", "b": "1"},
    ),
    "a region": ([Commitment("", "eu-west-2", nodes=9)], {"d": "1", "e": "1"}),
    "a region that is the start of another one": ([Commitment("c5", "eu-west", nodes=9)], {}),
    "of each type": ([Commitment(nodes=1, of_each_type=True)], {"a": "1", "c": "1", "d": "1"}),
    "money": ([Commitment("", per_hour=Decimal("1.5"))], {"a": "1", "b": "0.5"}),
    "money after nodes": (
        [Commitment("m5", per_hour=HALF), Commitment("m5.large", nodes=1)],
        {"a": "1", "b": "0.5"},
    ),
    "ended": ([Commitment(nodes=9, until=date(2026, 5, 31))], {}),
    "ends today": ([Commitment("c5.large", nodes=9, until=TODAY)], {"d": "1"}),
}


@pytest.mark.parametrize(("known", "parts"), COVERED.values(), ids=COVERED)
def test_commitments_pay_for_the_nodes_that_stay_longest(known: list[Commitment], parts: dict[str, str]) -> None:
    prices = PriceList(LIST, commitments=tuple(known))
    assert covered(NODES, prices, TODAY) == {name: Decimal(part) for name, part in parts.items()}


def test_a_file_of_commitments_is_parsed() -> None:
    text = "Instance_type,region,count,$/hour,until\nm5.large,eu-west-1,4,,2027-03-31\n*,,,1.25,\n\n"
    assert commitments.parse("\ufeff" + text) == (
        Commitment("m5.large", "eu-west-1", 4, until=date(2027, 3, 31)),
        Commitment(per_hour=Decimal("1.25")),
    )


WRONG = {
    "": "it has no commitments",
    "family,count\n": "it has no commitments",
    "family,region\nm5,x\n": "line 1: no column count and no column per_hour",
    "family,size,count\n": "line 1: unknown column 'size'",
    "family,type,count\n": "line 1: column instance occurs twice",
    "family,count\nm5\n": "line 2: 1 columns: expected 2",
    "family,count\nm5,-1\n": "line 2: count: '-1': expected a number of nodes such as 4",
    "family,count,hourly\nm5,1,2\n": "line 2: expected either count or per_hour",
    "family,count,hourly\nm5,,\n": "line 2: expected either count or per_hour",
    "family,hourly\nm5,1e3\n": "line 2: per_hour: '1e3': expected an amount such as 1.25",
    "count,until\n1,soon\n": "line 2: until: 'soon': expected a day such as 2027-01-31",
    'count\n"1\n': "expected CSV",
}


@pytest.mark.parametrize(("text", "message"), WRONG.items())
def test_wrong_files_are_errors_with_their_place(text: str, message: str) -> None:
    with pytest.raises(InputError) as raised:
        commitments.parse(text)
    assert message in str(raised.value)


@pytest.mark.parametrize("text", ["", "x", "m5=", "=3", "m5=x", "-1", "m5=1.5", "m5=2=3"])
def test_wrong_numbers_of_nodes_are_rejected(text: str) -> None:
    with pytest.raises(ValueError, match="expected a number of nodes"):
        commitments.from_nodes(text)


IDLE = {
    "a type of a node": (Commitment("m5.large", nodes=2), ""),
    "a family of a node": (Commitment("m5", per_hour=Decimal(1)), ""),
    "all types": (Commitment(nodes=2), ""),
    "an unknown type": (Commitment("q9.mega", nodes=2), "of q9.mega pays for no node: no on-demand node has this type"),
    "a family that only begins alike": (Commitment("m", nodes=2), "of m pays for no node"),
    "another region": (Commitment(region="mars", nodes=2), "for all instance types in mars pays for no node"),
    "ended": (Commitment("m5", nodes=2, until=date(2020, 1, 1)), "of m5 pays for no node: it ended on 2020-01-01"),
}


@pytest.mark.parametrize(("commitment", "said"), IDLE.values(), ids=IDLE)
def test_a_commitment_that_pays_for_no_node_is_named(commitment: Commitment, said: str) -> None:
    found = list(commitments.idle([commitment], {("m5.large", "eu-1a"), ("c5.large", "eu-1b")}, TODAY))
    assert [said in sentence for sentence in found] == ([True] if said else [])


TYPE = "node.kubernetes.io/instance-type"
CLUSTER = [
    *(node(f"od-{i}", ON_DEMAND, labels={TYPE: kind}) for i, kind in enumerate(("m5", "m5", "c5"))),
    node("spot", labels={TYPE: "m5"}, cpu="16"),
    *(pod(f"p{i}-0", f"od-{i}", cpu="1") for i in range(3)),
]
PRICES = {("m5", "", False): Decimal(1), ("c5", "", False): Decimal(1), ("m5", "", True): Decimal("0.8")}


@pytest.mark.parametrize(
    ("known", "order", "saved"),
    [
        ((), ["od-0", "od-1", "od-2"], "2.85"),
        ((Commitment("m5", nodes=1),), ["od-0", "od-2", "od-1"], "1.9"),
        ((Commitment("m5", nodes=2),), ["od-2", "od-0", "od-1"], "0.95"),
        ((Commitment(nodes=9),), ["od-0", "od-1", "od-2"], "0"),
    ],
    ids=["none", "one", "all of a type", "all"],
)
def test_committed_nodes_are_worth_nothing_and_are_drained_last(
    known: tuple[Commitment, ...], order: list[str], saved: str
) -> None:
    cluster, prices = snapshot(CLUSTER), PriceList(PRICES, commitments=known)
    planning = Planner(cluster, Policy()).plan_all(Circumstances(NOW, prices=prices))
    result = overview(planning, cluster, prices, now=NOW)
    assert [verdict.node for verdict in planning.verdicts] == order
    assert result.freed.worth.net == Decimal(saved)
