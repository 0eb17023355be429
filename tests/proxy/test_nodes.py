"""The proxy's view of the cluster."""

from datetime import timedelta

from rescheduler.cloudpool.proxy.service import ProxyView
from rescheduler.draining.actions import ANNOTATION, Intent, Step
from rescheduler.planning.outcome import Reason
from tests.housekeeping.world import START, LoopWorld, world
from tests.planning.builders import node


def view(here: LoopWorld) -> ProxyView:
    return ProxyView(here, here.clock, "cloudpool-proxy.1", lambda _: True)


def test_a_silent_watch_holds_removals() -> None:
    with world(node("od-1")) as here:
        assert view(here).why_unusable() == ""
        here.watch_ages = {"Pod": 151.0}
        assert view(here).why_unusable() == "Pod: no event or bookmark for 151 s"


def test_a_node_drained_by_a_daemon_is_not_a_victim() -> None:
    mark = Intent("daemon", Step.DRAINING, START, until=START + timedelta(minutes=3), identity="team/lease")
    with world(node("od-1", annotations={ANNOTATION: mark.dump()}), node("od-2")) as here:
        choice = view(here).victims().choose(["od-1"], 1)
        [rejected] = choice.rejected
        assert (choice.plans, [blocker.reason for blocker in rejected.blockers]) == ((), [Reason.OTHER_INSTALLATION])
