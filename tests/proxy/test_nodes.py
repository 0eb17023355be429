"""The proxy's view of the cluster."""

from datetime import timedelta

from rescheduler.cloudpool.proxy.service import ProxyView
from rescheduler.draining.actions import ANNOTATION, Intent, Step
from rescheduler.planning.movements import OwnerWait
from rescheduler.planning.outcome import Reason
from tests.housekeeping.world import START, LoopWorld, world
from tests.planning.builders import node, pod


def view(here: LoopWorld) -> ProxyView:
    return ProxyView(here, here.clock, "cloudpool-proxy.1", lambda _: True)


def test_a_silent_watch_holds_removals() -> None:
    with world(node("od-1")) as here:
        assert view(here).why_unusable() == ""
        here.watch_ages = {"Pod": 151.0}
        assert view(here).why_unusable() == "Pod: no event or bookmark for 151 s"


def test_nodes_with_pods_of_an_owner_that_is_set_aside_are_no_victims() -> None:
    with world(node("od-1"), node("od-2"), node("od-3"), pod("web-1", "od-1")) as here:
        proxy = view(here)
        assert [plan.node for plan in proxy.choose(["od-1"], 1).plans] == ["od-1"]
        wait = OwnerWait(until=START + timedelta(minutes=10), failures=1)
        proxy.not_recovered = lambda: {"default/ReplicaSet/web": wait}
        planning = proxy.choose(["od-1", "od-2"], 2)
        assert [plan.node for plan in planning.plans] == ["od-2"]
        assert [blocker.reason for verdict in planning.rejected for blocker in verdict.blockers] == [
            Reason.NOT_RECOVERED
        ]


def test_a_pending_pod_that_the_scheduler_leaves_alone_does_not_hold_removals() -> None:
    waiting = pod("p-1", cpu="3", created="2026-01-01T11:59:30Z")
    with world(node("od-1"), node("od-2"), pod("web-1", "od-1", cpu="2"), waiting) as here:
        proxy = view(here)
        assert proxy.choose(["od-1"], 1).plans == ()
        here.pass_time(31)
        assert [plan.node for plan in proxy.choose(["od-1"], 1).plans] == ["od-1"]


def test_a_node_drained_by_a_daemon_is_not_a_victim() -> None:
    mark = Intent("daemon", Step.DRAINING, START, until=START + timedelta(minutes=3), identity="team/lease")
    with world(node("od-1", annotations={ANNOTATION: mark.dump()}), node("od-2")) as here:
        choice = view(here).choose(["od-1"], 1)
        [rejected] = choice.rejected
        assert (choice.plans, [blocker.reason for blocker in rejected.blockers]) == ((), [Reason.OTHER_INSTALLATION])
