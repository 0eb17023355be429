"""On-demand nodes carry the soft taint while that is wanted, and no longer."""

from rescheduler.errors import Retryable
from rescheduler.observe.events import Trouble
from rescheduler.soft_taint import NODES_A_ROUND, SOFT_TAINT
from tests.loop.world import World, world
from tests.planning.builders import ON_DEMAND, SPOT, node

SOFT = {"key": SOFT_TAINT.key, "effect": SOFT_TAINT.effect}
OTHER = {"key": "dedicated", "effect": "NoSchedule"}


def soft(here: World) -> list[str]:
    return [one.name for one in here.cluster.nodes if SOFT_TAINT.key in {taint.key for taint in one.spec.taints}]


def test_it_is_put_on_on_demand_nodes_and_taken_off_others() -> None:
    both = node("both", ON_DEMAND, labels={SPOT: ""}, taints=[SOFT])
    with world(node("od-1", ON_DEMAND, taints=[OTHER]), both, node("other", "x", taints=[SOFT])) as here:
        here.loop(soft_taint=True).round()
        assert soft(here) == ["od-1"]
        assert [one.key for one in here.node("od-1").spec.taints] == ["dedicated", SOFT_TAINT.key]


def test_it_is_written_once() -> None:
    with world(node("od-1", ON_DEMAND)) as here:
        loop = here.loop(soft_taint=True)
        loop.round()
        loop.round()
        assert here.writes == [("taint", "od-1")]


def test_it_is_taken_off_when_told_to() -> None:
    with world(node("od-1", ON_DEMAND, taints=[SOFT, OTHER])) as here:
        here.loop().round()
        assert [one.key for one in here.node("od-1").spec.taints] == ["dedicated"]


def test_a_dry_run_leaves_it() -> None:
    with world(node("od-1", ON_DEMAND, taints=[SOFT])) as here:
        here.loop(dry_run=True).round()
        assert here.writes == []


def test_many_nodes_have_their_turn_in_several_rounds() -> None:
    with world(*(node(f"od-{n}", ON_DEMAND) for n in range(NODES_A_ROUND + 1))) as here:
        loop = here.loop(soft_taint=True)
        loop.round()
        assert len(soft(here)) == NODES_A_ROUND
        loop.round()
        assert len(soft(here)) == NODES_A_ROUND + 1


def test_what_fails_is_told_and_tried_again() -> None:
    with world(node("od-1", ON_DEMAND)) as here:
        here.edit_errors = [Retryable("patch node od-1: no answer")]
        loop = here.loop(soft_taint=True)
        loop.round()
        assert [one.detail for one in here.of(Trouble)] == ["patch node od-1: no answer"]
        loop.round()
        assert soft(here) == ["od-1"]
