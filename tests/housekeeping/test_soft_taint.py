"""The soft taint of on-demand nodes: added if it is enabled, otherwise removed."""

from rescheduler.errors import Retryable
from rescheduler.housekeeping.node_writes import NODES_A_ROUND, SOFT_TAINT
from rescheduler.observe.events import Trouble
from tests.housekeeping.world import LoopWorld, world
from tests.planning.builders import ON_DEMAND, SPOT, node

SOFT = {"key": SOFT_TAINT.key, "effect": SOFT_TAINT.effect}
OTHER = {"key": "dedicated", "effect": "NoSchedule"}


def soft(here: LoopWorld) -> list[str]:
    return [
        cluster_node.name
        for cluster_node in here.cluster.nodes
        if SOFT_TAINT.key in {taint.key for taint in cluster_node.spec.taints}
    ]


def test_the_soft_taint_is_added_to_on_demand_nodes_and_removed_from_others() -> None:
    both = node("both", ON_DEMAND, labels={SPOT: ""}, taints=[SOFT])
    with world(node("od-1", ON_DEMAND, taints=[OTHER]), both, node("other", "x", taints=[SOFT])) as here:
        here.loop(soft_taint=True).round()
        assert soft(here) == ["od-1"]
        assert [taint.key for taint in here.node("od-1").spec.taints] == ["dedicated", SOFT_TAINT.key]


def test_the_soft_taint_is_written_once() -> None:
    with world(node("od-1", ON_DEMAND)) as here:
        loop = here.loop(soft_taint=True)
        loop.round()
        loop.round()
        assert here.writes == [("taint", "od-1")]


def test_the_soft_taint_is_removed_when_disabled() -> None:
    with world(node("od-1", ON_DEMAND, taints=[SOFT, OTHER])) as here:
        here.loop().round()
        assert [taint.key for taint in here.node("od-1").spec.taints] == ["dedicated"]


def test_a_dry_run_does_not_change_the_soft_taint() -> None:
    with world(node("od-1", ON_DEMAND, taints=[SOFT])) as here:
        here.loop(dry_run=True).round()
        assert here.writes == []


def test_many_nodes_are_tainted_in_several_rounds() -> None:
    with world(*(node(f"od-{n}", ON_DEMAND) for n in range(NODES_A_ROUND + 1))) as here:
        loop = here.loop(soft_taint=True)
        loop.round()
        assert len(soft(here)) == NODES_A_ROUND
        loop.round()
        assert len(soft(here)) == NODES_A_ROUND + 1


def test_failures_are_reported_and_retried() -> None:
    with world(node("od-1", ON_DEMAND)) as here:
        here.edit_errors = [Retryable("patch node od-1: no answer")]
        loop = here.loop(soft_taint=True)
        loop.round()
        assert [event.detail for event in here.of(Trouble)] == ["patch node od-1: no answer"]
        loop.round()
        assert soft(here) == ["od-1"]
