"""`--min-on-demand-nodes` through whole drains: the last look does not refuse what the plan allows."""

from dataclasses import dataclass
from datetime import timedelta
from typing import Any, Final

import pytest

from rescheduler.draining import actions
from rescheduler.draining.actions import Intent, Step
from rescheduler.draining.state import Why
from rescheduler.housekeeping.loop import RoundOutcome
from rescheduler.providers.base import Deleted, NodeRef
from rescheduler.settings import Timing
from tests.housekeeping.world import IDENTITY, START, LoopWorld, ScriptedProvider, world
from tests.planning.builders import ON_DEMAND, Manifest, node, pod

#: Rounds after which a cluster of a few nodes must be at rest.
ROUNDS: Final = 8
SPOT_NODE: Final = node("spot-1", cpu="32")
SOON: Final = Timing(node_drain_delay=timedelta(seconds=10))


def od(name: str, **fields: Any) -> Manifest:
    return node(name, ON_DEMAND, **fields)


def theirs(step: Step) -> dict[str, Any]:
    intent = Intent("them", step, START, group="workers", until=START + timedelta(days=1), identity="other/lease")
    return {actions.ANNOTATION: intent.dump()}


ENDING: Final = [{"key": "ToBeDeletedByClusterAutoscaler", "effect": "NoSchedule"}]
USED: Final = (od("od-2"), pod("db-2", "od-2"))

#: The nodes and pods, the minimum, and the machines that are ordered away.
CLUSTERS: dict[str, tuple[tuple[Manifest, ...], int, list[str]]] = {
    "an empty node, and no other": ((od("od-1"),), 1, []),
    "an empty node, and fewer others than required": ((od("od-1"), *USED), 2, []),
    "only a pod of a DaemonSet": ((od("od-1"), *USED, pod("agent", "od-1", owner="DaemonSet")), 1, ["od-1"]),
    "only a mirror pod": (
        (od("od-1"), *USED, pod("proxy", "od-1", annotations={"kubernetes.io/config.mirror": "x"})),
        1,
        ["od-1"],
    ),
    "only a finished pod": ((od("od-1"), *USED, pod("done", "od-1", status={"phase": "Succeeded"})), 1, ["od-1"]),
    "a cordoned empty node": ((od("od-1", unschedulable=True), *USED), 1, ["od-1"]),
    "an empty node that is not Ready": ((od("od-1", ready="False"), *USED), 2, []),
    "two empty nodes, of which one is required": ((od("od-1"), od("od-2")), 1, ["od-1"]),
    "a node in use, and an empty one": ((od("od-1"), *USED), 1, ["od-1"]),
    "two nodes in use": ((od("od-1"), pod("web-1", "od-1"), *USED), 1, ["od-1"]),
    "two nodes in use, of which both are required": ((od("od-1"), pod("web-1", "od-1"), *USED), 2, []),
    "the other node is marked by another installation": (
        (od("od-1"), od("od-2", annotations=theirs(Step.DRAINING)), pod("db-2", "od-2")),
        1,
        [],
    ),
    "the other node was ordered away by another installation": (
        (od("od-1"), pod("web-1", "od-1"), od("od-2", annotations=theirs(Step.REMOVING)), pod("db-2", "od-2")),
        1,
        [],
    ),
    "the other node is removed by Cluster Autoscaler": (
        (od("od-1"), pod("web-1", "od-1"), od("od-2", taints=ENDING), pod("db-2", "od-2")),
        1,
        [],
    ),
}


@dataclass
class Ending(ScriptedProvider):
    """A provider whose machines of the nodes *ended* are being terminated."""

    ended: tuple[str, ...] = ()

    def has_instance(self, node: NodeRef, *, deadline: float) -> bool | None:  # noqa: ARG002
        return node.name not in self.ended


def run(here: LoopWorld, minimum: int) -> list[str]:
    """Run rounds until nothing changes. Return the machines that were ordered away."""
    pool = ScriptedProvider([Deleted()])
    loop = here.loop(SOON, provider=pool, minimum=minimum)
    for _ in range(ROUNDS):
        if loop.round() is RoundOutcome.IDLE:
            return [ordered.name for ordered in pool.orders]
        here.pass_time(60)
    raise AssertionError(f"not at rest after {ROUNDS} rounds: {here.drained}, {here.failures}")


@pytest.mark.parametrize(("objects", "minimum", "ordered"), CLUSTERS.values(), ids=CLUSTERS)
def test_the_last_look_agrees_with_the_plan(objects: tuple[Manifest, ...], minimum: int, ordered: list[str]) -> None:
    with world(SPOT_NODE, *objects) as here:
        assert run(here, minimum) == ordered
        assert here.failures == [None] * len(ordered)


@pytest.mark.parametrize(("ended", "drained"), [((), ["od-1"]), (("od-2",), [])])
def test_a_node_whose_machine_ends_does_not_count(ended: tuple[str, ...], drained: list[str]) -> None:
    """The Node of the other machine still looks as if it were in use; only the provider knows better."""
    with world(SPOT_NODE, od("od-1"), pod("web-1", "od-1", cpu="100m"), *USED) as here:
        loop = here.loop(SOON, provider=Ending([Deleted()], ended=ended), minimum=1)
        loop.round()
        assert here.drained == drained


def test_a_node_whose_pods_have_moved_counts_as_in_use_until_the_order() -> None:
    """The other node fails in mid-drain: the machine stays, also when its empty node is looked at again."""
    with world(SPOT_NODE, od("od-1"), pod("web-1", "od-1"), *USED) as here:
        pool = ScriptedProvider([Deleted()])
        loop = here.loop(SOON, provider=pool, minimum=1)
        here.on_evicted = lambda: here.add(od("od-2", ready="False"))
        assert loop.round() is RoundOutcome.FAILED
        assert (here.failures, pool.orders, here.node("od-1").spec.taints) == ([Why.PLAN_CHANGED], [], ())
        here.pass_time(3600)
        loop.round()
        assert (len(here.failures), pool.orders) == (1, [])


def test_a_restart_in_the_removal_of_an_empty_node_keeps_the_minimum() -> None:
    removal = Intent("before", Step.REMOVING, START, group="workers", identity=IDENTITY)
    with world(SPOT_NODE, od("od-1"), *USED) as here:
        here.mark("od-1", removal.dump(), actions.taint(removal.holder))
        assert run(here, 2) == []
        here.pass_time(3600)
        assert run(here, 2) == []
        assert len(here.failures) == 1
