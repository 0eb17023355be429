"""Checks of machines whose termination was requested, but is not confirmed."""

from datetime import timedelta

import msgspec

from rescheduler.draining import actions
from rescheduler.draining.actions import Intent, Step
from rescheduler.observe.events import DrainEnded, RemovalPostponed
from rescheduler.providers.base import Accepted
from rescheduler.settings import Timing
from tests.housekeeping.world import START, Replacement, ScriptedProvider, world
from tests.planning.builders import ON_DEMAND, node, pod


def test_many_machines_that_do_not_terminate_do_not_delay_other_drains() -> None:
    """All fifty checks together take longer than the longest interval between two checks of a machine."""
    stuck = [f"od-{number:02}" for number in range(50)]
    nodes = [*(node(name, ON_DEMAND) for name in (*stuck, "od-a", "od-b")), node("spot-1")]
    with world(*nodes, pod("web-1", "od-a"), pod("db-1", "od-b")) as here:
        for name in stuck:
            here.mark(name, Intent("before", Step.REMOVING, START, group="workers").dump(), actions.taint("before"))
        provider = ScriptedProvider([Accepted("booked")], gone=("od-a", "od-b"))
        here.stop_at(600)
        here.loop(Timing(node_drain_delay=timedelta()), provider=provider).run()
        assert [event.node.name for event in here.of(DrainEnded) if event.removed] == ["od-a", "od-b"]
        assert here.times(DrainEnded, "od-b")[0] < 120


def test_a_node_is_not_reopened_while_its_machine_may_end() -> None:
    """Also if a pod that tolerates the taint came late, and its replacement has no place."""
    with world(node("od-1", ON_DEMAND), node("spot-1", cpu="16"), pod("web-1", "od-1")) as here:
        provider = ScriptedProvider([Accepted("the machine ends in some minutes")])
        loop = here.loop(provider=provider)
        loop.round()
        provider.pending = ["od-1"]
        here.add(pod("late-1", "od-1"))
        here.replacements["late"] = Replacement.UNSCHEDULABLE
        here.pass_time(60)
        loop.round()
        assert here.node("od-1").spec.taints
        assert [owed.debt.controller.name for owed in here.memory.debts] == ["late"]


def test_a_check_that_evicts_nothing_starts_no_delay_and_no_debt_again() -> None:
    with world(node("od-1", ON_DEMAND), node("spot-1", cpu="16"), pod("web-1", "od-1")) as here:
        provider = ScriptedProvider([Accepted("the machine ends some time")])
        loop = here.loop(provider=provider)
        loop.round()
        drained_at, provider.pending = here.memory.drained_at, ["od-1"]
        moved = here.cluster.pods["default/web-1-again"]
        here.cluster.upsert("Pod", msgspec.structs.replace(moved, ready=False))
        since = []
        for _ in range(3):
            here.pass_time(60)
            loop.round()
            since += [owed.since for owed in here.memory.debts]
        assert len(here.of(RemovalPostponed)) > 1
        assert (here.memory.drained_at, len(set(since))) == (drained_at, 1)
