"""The choice among nodes with leftovers is by what is saved: prices, less commitments and the pods' share of spot."""

from collections.abc import Iterable
from dataclasses import replace
from decimal import Decimal
from random import Random
from typing import Any, Final

import pytest

from predicates.snapshot import Snapshot
from rescheduler.planning.money.commitments import Commitment
from rescheduler.planning.money.prices import PriceList
from rescheduler.planning.money.worth import summed
from rescheduler.planning.outcome import Plan, Planning, Reason
from rescheduler.planning.planner import Planner
from rescheduler.planning.policy import Leftovers, Policy
from rescheduler.planning.what_if.overview import worths_of
from tests.bench.freed import in_pools
from tests.bench.leftovers import small
from tests.planning.builders import CIRCUMSTANCES, NOW, ON_DEMAND, Manifest, node, pod, snapshot

TYPE: Final = "node.kubernetes.io/instance-type"
PIN: Final[dict[str, Any]] = {"nodeSelector": {ON_DEMAND: ""}}
STAYS: Final[dict[str, Any]] = {"annotations": {"cluster-autoscaler.kubernetes.io/safe-to-evict": "false"}}


def planned(cluster: Snapshot, prices: PriceList, leftovers: Leftovers = Leftovers.MOVE, **settings: Any) -> Planning:
    policy = Policy(leftovers=leftovers, budgets_in_steps=True, **settings)
    return Planner(cluster, policy).plan_all(replace(CIRCUMSTANCES, prices=prices))


def freed(objects: Iterable[Manifest], prices: PriceList, **settings: Any) -> set[str]:
    return {plan.node for plan in planned(snapshot(objects), prices, **settings).plans}


def full(number: int) -> list[Manifest]:
    """Return on-demand nodes that stay, and have no room."""
    names = [f"z-{each}" for each in range(number)]
    return [*(node(name, ON_DEMAND) for name in names), *(pod(f"{name}-1", name, cpu="4", **STAYS) for name in names)]


def dear_on_spot(alone: bool, others: int) -> tuple[list[Manifest], PriceList]:
    """Return a dear node whose pods cost nearly as much on spot nodes, and a cheaper one with few pods.

    Only one of them can be emptied, the cheaper one perhaps *alone*.
    """
    big, mid = ("big", "mid") if others % 2 else ("mid", "big")  # by name, either may come first
    objects = [node(name, ON_DEMAND, cpu="10") for name in (big, mid)] + [node("s", cpu="10"), *full(others)]
    objects += [*(pod(f"w{number}-1", big) for number in range(9)), pod("b-1", big, cpu="500m", **PIN)]
    objects += [pod("m-1", mid, cpu="500m", **({} if alone else PIN)), pod("k-1", mid, cpu="200m")]
    by_node = {big: Decimal("1.0"), mid: Decimal("0.9"), "s": Decimal("1.0")}
    return objects, PriceList(by_node=by_node)


@pytest.mark.parametrize("alone", [True, False])
@pytest.mark.parametrize("others", [0, 1, 10, 11])
def test_the_node_whose_pods_cost_less_on_spot_nodes_is_emptied(*, alone: bool, others: int) -> None:
    objects, prices = dear_on_spot(alone, others)
    assert freed(objects, prices) == {"mid" if others % 2 else "big"}


def committed(candidate: str, other: str, *, room: str = "4") -> list[Manifest]:
    """Return two nodes of a type, of which one can be emptied with its leftover, and the other one stays."""
    labels = {TYPE: "m5.xlarge"}
    return [
        *(node(candidate, ON_DEMAND, labels=labels), node(other, ON_DEMAND, cpu=room, labels=labels), node("s")),
        *(pod("a-1", candidate, cpu="500m"), pod("b-1", candidate, cpu="500m", **PIN)),
        pod("c-1", other, cpu="3", owner=None),
    ]


PRICES: Final = PriceList(
    per_vcpu=Decimal("0.04"), per_gib=Decimal(0), spot_per_vcpu=Decimal("0.01"), spot_per_gib=Decimal(0)
)
OF_ONE: Final = [Commitment("m5.xlarge", nodes=1), Commitment(per_hour=Decimal("0.16"))]


@pytest.mark.parametrize("names", [("od-0", "od-1"), ("od-1", "od-0")])
@pytest.mark.parametrize("commitment", OF_ONE, ids=["a node", "money"])
@pytest.mark.parametrize("others", [0, 10])
def test_commitments_pay_first_for_what_cannot_be_emptied(
    names: tuple[str, str], commitment: Commitment, others: int
) -> None:
    objects = [*committed(*names), *full(others)]
    assert freed(objects, replace(PRICES, commitments=(commitment,))) == {names[0]}


@pytest.mark.parametrize("number", [0, 1, 2, 3])
@pytest.mark.parametrize("others", [0, 10])
def test_as_many_nodes_go_as_commitments_do_not_pay(number: int, others: int) -> None:
    """Three nodes of a type can be emptied, and the fourth, of another type, takes their leftovers."""
    objects = [node("od-3", ON_DEMAND, cpu="16"), pod("c-1", "od-3", **STAYS), node("s", cpu="8"), *full(others)]
    for each in range(3):
        objects += [node(f"od-{each}", ON_DEMAND, labels={TYPE: "m5.xlarge"})]
        objects += [pod(f"a{each}-1", f"od-{each}", cpu="500m"), pod(f"b{each}-1", f"od-{each}", cpu="500m", **PIN)]
    prices = replace(PRICES, commitments=(Commitment("m5.xlarge", nodes=number),))
    assert len(freed(objects, prices)) == 3 - number


def saved(planning: Planning, cluster: Snapshot, prices: PriceList) -> Decimal:
    return summed(worths_of(planning, cluster, prices, NOW.date()).values()).saved or Decimal(0)


@pytest.mark.parametrize("seed", range(24))
def test_leftovers_never_save_less(seed: int) -> None:
    rng = Random(seed)
    cluster = snapshot(in_pools(rng, small(rng)))
    names = list(cluster.nodes.row)
    spot = rng.choice([(1, 9), (20, 60)])
    by_node = {name: Decimal(rng.randint(*((20, 60) if name.startswith("od") else spot))) / 100 for name in names}
    owed = Commitment(nodes=rng.randrange(3)), Commitment(per_hour=Decimal(rng.randrange(0, 50)) / 100)
    prices = PriceList(by_node=by_node, commitments=owed if seed % 3 else ())
    without, found = (
        saved(planned(cluster, prices, each), cluster, prices) for each in (Leftovers.OFF, Leftovers.MOVE)
    )
    assert without <= found + Decimal("1e-6")


# --min-worth


def makes_room(given: int) -> list[Manifest]:
    """Return a node whose only pod is a leftover, and one that stays, and gives so many of its pods to make room."""
    return [
        *(node("od-1", ON_DEMAND), node("od-2", ON_DEMAND), node("s", cpu="8")),
        *(pod("b-1", "od-1", cpu="3", **PIN), pod("k-1", "od-2", cpu="1", **STAYS)),
        *(pod(f"w-{number}", "od-2", cpu=f"{3000 // given}m") for number in range(given)),
    ]


#: A move of 30 pods, of which one costs 2, and of one that has no other replica.
COST: Final = 30 + 2.0
SAVED: Final = 730 * (Decimal("0.20") - 3 * Decimal("0.01"))  #: per month


@pytest.mark.parametrize("price", ["0.1", "0.2", "5"])
@pytest.mark.parametrize("share", [0.0, 0.95, 1.05, 10.0])
def test_what_other_nodes_give_counts_for_the_worth_and_their_own_worth_does_not(price: str, share: float) -> None:
    per_move = float(SAVED) / COST
    by_node = {"od-1": Decimal("0.20"), "od-2": Decimal(price)}
    prices, cluster = replace(PRICES, by_node=by_node), snapshot(makes_room(30))
    circumstances = replace(CIRCUMSTANCES, prices=prices)
    policy = Policy(leftovers=Leftovers.MOVE, budgets_in_steps=True, min_worth=share * per_move)
    planner = Planner(cluster, policy)
    for planning in (planner.plan_all(circumstances), planner.first_plan(circumstances)):
        assert [plan.node for plan in planning.plans] == (["od-1"] if share < 1 else [])
        reasons = {each.node: each.blockers for each in planning.rejected}
        if share < 1:
            [plan] = planning.plans
            assert planner.moves(planning, circumstances).worths["od-1"].per_move == pytest.approx(per_move)
            again = planner.look_again(plan.next.node, circumstances, purpose=plan.next.purpose)
            assert isinstance(again, Plan)
        else:
            [blocker] = [each for each in reasons["od-1"] if each.reason is Reason.NOT_WORTH_IT]
            assert f"{per_move:.2f} for a move" in blocker.detail


def test_a_node_without_what_others_give_is_judged_as_any_other() -> None:
    objects = [each for each in makes_room(1) if each["metadata"]["name"] != "w-0"]
    cost = 2.0
    for least, found in ((0.9 * 146 / cost, {"od-1"}), (1.1 * 146 / cost, set[str]())):
        prices = replace(PRICES, by_node={"od-1": Decimal("0.20")})
        assert freed(objects, prices, min_worth=least) == found
