"""Checks of machines whose termination was requested, but is not confirmed."""

from datetime import timedelta

from rescheduler.draining import actions
from rescheduler.draining.actions import Intent, Step
from rescheduler.observe.events import DrainEnded
from rescheduler.providers.base import Accepted
from rescheduler.settings import Timing
from tests.housekeeping.world import START, ScriptedProvider, world
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
