"""The cluster as the proxy plans it, and the marks of its drains."""

import threading
from datetime import timedelta

import msgspec
import pytest

from rescheduler.cloudpool.proxy.service import ClusterNodes, choose
from rescheduler.draining.actions import ANNOTATION, Intent, Step, is_marked, read, taint
from rescheduler.draining.state import Drain, Why
from rescheduler.errors import MarkLost, NotFound, Retryable
from rescheduler.execution.cluster_view import ClusterView, ViewSources
from rescheduler.execution.context import DrainContext, Threads
from rescheduler.execution.drainer import Drainer, PendingRemoval
from rescheduler.facts.round_facts import Known
from rescheduler.kube.cluster import NodeEdit
from rescheduler.planning.memory import Memory
from rescheduler.planning.movements import NotRecovered, OwnerWait
from rescheduler.planning.outcome import Reason
from rescheduler.providers.base import CloudProvider, Deleted
from rescheduler.providers.none import NoProvider
from tests.housekeeping.world import LIMITS, START, Inline, LoopWorld, ScriptedProvider, world
from tests.planning.builders import ON_DEMAND, node, pod
from tests.proxy.planning import POLICY

HOLDER = "cloudpool-proxy.1"


def view(here: LoopWorld) -> ClusterView:
    return ClusterView(here, POLICY, here.clock, Known(holder=HOLDER))


def cluster_nodes(here: LoopWorld) -> ClusterNodes:
    access = DrainContext(here, NoProvider(), here.clock, HOLDER, here, mark_validity=timedelta(minutes=5))
    return ClusterNodes(view(here), access, here.report, threading.Event(), str)


def marks(here: LoopWorld) -> dict[str, Intent | None]:
    """Return the marks of the nodes that have our taint or our annotation."""
    return {node.name: read(node) for node in here.cluster.nodes if is_marked(node)}


def test_a_silent_watch_holds_removals() -> None:
    with world(node("od-1")) as here:
        nodes = cluster_nodes(here)
        nodes.end_sweep()
        assert nodes.why_unusable() == ""
        here.watch_ages = {"Pod": 151.0}
        assert nodes.why_unusable() == "Pod: no event or bookmark for 151 s"


def test_nothing_is_removed_before_a_sweep_or_while_marks_of_an_interrupted_drain_are_left() -> None:
    mark = Intent(HOLDER, Step.DRAINING, START, until=START + timedelta(minutes=3))
    with world(node("od-1", annotations={ANNOTATION: mark.dump()}), node("od-2")) as here:
        nodes = cluster_nodes(here)
        assert nodes.why_unusable() == "interrupted drains of an earlier process have not been looked for yet"
        nodes.sweep = nodes.end_sweep
        assert nodes.why_unusable() == "node od-1 has the marks of an interrupted drain, which are being removed"


def test_marks_that_only_a_late_watch_shows_hold_nothing() -> None:
    mark = Intent(HOLDER, Step.DRAINING, START, until=START + timedelta(minutes=3))
    with world(node("od-1", annotations={ANNOTATION: mark.dump()}), node("od-2")) as here:
        nodes, marked = cluster_nodes(here), here.node("od-1")
        here.edit_node("od-1", "uid-od-1", NodeEdit(annotate={ANNOTATION: None}))
        here.hide_change("od-1", marked)
        nodes.end_sweep()
        assert (nodes.draining(), nodes.why_unusable()) == ({"od-1"}, "")


def test_nodes_with_pods_of_an_owner_that_is_set_aside_are_no_victims() -> None:
    with world(node("od-1"), node("od-2"), node("od-3"), pod("web-1", "od-1")) as here:
        proxy = view(here)
        assert [plan.node for plan in choose(proxy, ["od-1"], 1).plans] == ["od-1"]
        wait = OwnerWait(until=START + timedelta(minutes=10), failures=1)
        memory = Memory(not_recovered=NotRecovered({"default/ReplicaSet/web": wait}))
        proxy._sources = ViewSources(memory=lambda: memory)
        planning = choose(proxy, ["od-1", "od-2"], 2)
        assert [plan.node for plan in planning.plans] == ["od-2"]
        assert [blocker.reason for verdict in planning.rejected for blocker in verdict.blockers] == [
            Reason.NOT_RECOVERED
        ]


def test_a_pending_pod_that_the_scheduler_leaves_alone_does_not_hold_removals() -> None:
    waiting = pod("p-1", cpu="3", created="2026-01-01T11:59:30Z")
    with world(node("od-1"), node("od-2"), pod("web-1", "od-1", cpu="2"), waiting) as here:
        proxy = view(here)
        assert choose(proxy, ["od-1"], 1).plans == ()
        here.pass_time(31)
        assert [plan.node for plan in choose(proxy, ["od-1"], 1).plans] == ["od-1"]


def test_a_node_drained_by_a_daemon_is_not_a_victim() -> None:
    mark = Intent("daemon", Step.DRAINING, START, until=START + timedelta(minutes=3), identity="team/lease")
    with world(node("od-1", annotations={ANNOTATION: mark.dump()}), node("od-2")) as here:
        choice = choose(view(here), ["od-1"], 1)
        [rejected] = choice.rejected
        assert (choice.plans, [blocker.reason for blocker in rejected.blockers]) == ((), [Reason.OTHER_INSTALLATION])


def new_drainer(here: LoopWorld, provider: CloudProvider) -> Drainer:
    access = DrainContext(here, provider, here.clock, HOLDER, here, mark_validity=timedelta(minutes=5))
    return Drainer(access, view(here), here, Threads(Inline(), Inline()), LIMITS, here.report)


def order(here: LoopWorld, node_name: str) -> Drain:
    """Choose the node and drain it, as for a machine that stays. Replacement pods run on "spot-1", a node like it."""
    drainer = new_drainer(here, NoProvider())
    [plan] = choose(view(here), [node_name], 1).plans
    ended = drainer.order(plan)
    assert isinstance(ended, Drain)
    return ended


def test_a_victim_is_drained_to_another_node_by_the_plans_of_its_policy() -> None:
    pods = [pod("web-1", "od-1"), pod("web-2", "od-1"), pod("kube-system/dns-1", "od-1"), pod("p-1", cpu="500m")]
    with world(node("od-1", ON_DEMAND), node("spot-1", ON_DEMAND), *pods) as here:
        here.controllers["web"] = {"wanted": 2}
        drain = order(here, "od-1")
        assert (drain.failure, drain.released) == (None, True)
        assert sorted(ref.name for ref in drain.evicted) == ["web-1", "web-2"]
        assert sorted(here.cluster.pods_on["od-1"]) == ["kube-system/dns-1"]
        assert marks(here) == {}


def test_pods_that_are_preempted_between_the_order_and_the_wait_for_its_machine_keep_the_machine() -> None:
    """The pool was not reachable. While another machine is removed, a moved pod is lost, and its successor preempts."""
    web, low = pod("web-1", "od-1", priority=1000), pod("other/low-1", "spot-1")
    with world(node("od-1", ON_DEMAND), node("spot-1", ON_DEMAND, cpu="16"), web, low) as here:
        provider = ScriptedProvider([Retryable("503"), Deleted()])
        drainer = new_drainer(here, provider)
        [plan] = choose(view(here), ["od-1"], 1).plans
        pending = drainer.order(plan)
        assert isinstance(pending, PendingRemoval)
        moved = here.cluster.pods["default/web-1-again"]
        here.cluster.delete("Pod", moved.key)
        victim = here.cluster.pods["other/low-1"]
        ending = msgspec.structs.replace(victim, preempted=True, deletion_timestamp=here.time(30))
        here.cluster.upsert("Pod", ending)
        here.cluster.delete("Pod", victim.key)
        here.cluster.upsert("Pod", msgspec.structs.replace(moved, name="web-1-third", uid="uid-third"))
        drain = drainer.finish(pending)
        assert drain.failure is not None
        assert (drain.failure.why, drain.released, len(provider.orders)) == (Why.REPLACEMENT_LOST, True, 1)
        assert {owed.controller.name for owed in drain.debts.values()} == {"web", "low"}


def test_a_drain_ends_if_a_pending_pod_takes_the_room_of_its_pods() -> None:
    pods = [pod("web-1", "od-1", cpu="2"), pod("web-2", "od-1", cpu="1")]
    with world(node("od-1", ON_DEMAND), node("spot-1", ON_DEMAND), *pods) as here:
        here.controllers["web"] = {"wanted": 2}
        here.on_taint = lambda: here.add(pod("p-1", cpu="2", created="2026-01-01T12:00:00Z"))
        drain = order(here, "od-1")
        assert drain.failure is not None
        assert (drain.failure.why, drain.evicted, drain.released) == (Why.PLAN_CHANGED, (), True)
        assert marks(here) == {}


def test_victims_are_marked_together_and_those_that_stay_are_released() -> None:
    with world(node("od-1"), node("od-2"), node("od-3")) as here:
        nodes = cluster_nodes(here)
        nodes.taint(["od-1", "od-2"])
        mark = Intent(HOLDER, Step.DRAINING, START, until=START + timedelta(minutes=5))
        assert marks(here) == {"od-1": mark, "od-2": mark}
        assert [node.spec.taints for node in here.cluster.nodes] == [(taint(HOLDER),), (taint(HOLDER),), ()]
        nodes.release(["od-2"])
        assert marks(here) == {"od-1": mark}
        nodes.release(["od-1", "od-3"])
        assert marks(here) == {}


def test_a_mark_whose_write_may_have_failed_is_released() -> None:
    with world(node("od-1"), node("od-2")) as here:
        nodes = cluster_nodes(here)
        here.edit_errors = [None, Retryable("gone quiet")]
        with pytest.raises(Retryable):
            nodes.taint(["od-1", "od-2"])
        nodes.release(["od-1", "od-2"])
        assert marks(here) == {}


OTHERS = {
    "a daemon of version 0.1.0": Intent("daemon", Step.DRAINING, START).dump(),
    "another proxy": Intent("cloudpool-proxy.2", Step.DRAINING, START).dump(),
    "not readable": "?",
}


@pytest.mark.parametrize("text", OTHERS.values(), ids=OTHERS)
def test_the_marks_of_others_stay(text: str) -> None:
    with world(node("od-1", annotations={ANNOTATION: text})) as here:
        nodes = cluster_nodes(here)
        with pytest.raises(MarkLost, match="another program drains it"):
            nodes.taint(["od-1"])
        nodes.release(["od-1"])
        [left] = here.cluster.nodes
        assert left.metadata.annotations == {ANNOTATION: text}


@pytest.mark.parametrize(("step", "stays"), [(Step.DRAINING, False), (Step.REMOVING, True)])
def test_the_mark_of_a_machine_that_may_have_been_ordered_away_stays(step: Step, *, stays: bool) -> None:
    with world(node("od-1"), node("od-2")) as here:
        nodes = cluster_nodes(here)
        nodes.taint(["od-1"])
        here.mark("od-1", Intent(HOLDER, step, START, ("uid",), "group").dump(), taint(HOLDER))
        nodes.release(["od-1"])
        assert bool(marks(here)) == stays


def test_a_node_that_is_gone_cannot_be_marked() -> None:
    with world(node("od-1")) as here, pytest.raises(NotFound):
        cluster_nodes(here).taint(["od-9"])


def test_a_drainer_continues_only_the_drains_that_it_handles() -> None:
    mark = Intent(HOLDER, Step.DRAINING, START, until=START + timedelta(minutes=3))
    with world(node("od-1", annotations={ANNOTATION: mark.dump()})) as here:
        access = DrainContext(here, NoProvider(), here.clock, HOLDER, here, mark_validity=timedelta(minutes=5))
        threads = Threads(Inline(), Inline())
        others = Drainer(access, view(here), here, threads, LIMITS, here.report, handles=lambda _: False)
        assert (others.sweep(), marks(here)) == (False, {"od-1": mark})
        ours = Drainer(access, view(here), here, threads, LIMITS, here.report, handles=mark.__eq__)
        assert (ours.sweep(), marks(here)) == (True, {})
