"""Tests of violations, and of allowed cases: changes by other clients, watch lag, writes during a takeover."""

from collections.abc import Callable
from dataclasses import replace
from typing import Any, Final

import msgspec
import pytest

from devcluster.manifests import ON_DEMAND, SPOT
from tests.invariants.history import Revision
from tests.invariants.objects import SeenPod, SeenWorkload
from tests.invariants.replay import Replay
from tests.invariants.scripted import BEGIN, RULES, HistoryScript

PROTECTED: Final = {"cluster-autoscaler.kubernetes.io/safe-to-evict": "false"}


def waves(script: HistoryScript) -> None:
    script.mark()
    for number in range(3):
        script.evict(f"web-{number}")
        script.after(1)
        script.pod(f"new-{number}", "spot")
        script.after(1)
    script.release()


def doubled_step(script: HistoryScript) -> None:
    """Evict two pods after two others have landed, so that two may be missing."""
    waves(script)
    script.after(1)


def two_at_once(script: HistoryScript) -> None:
    script.mark()
    script.evict("web-0")
    script.evict("web-1")


def second_owner_before_the_first_runs(script: HistoryScript) -> None:
    """Evict a pod of another owner while the successor of the first pod is bound and not Ready."""
    script.pod("db-0", owner="db")
    script.mark()
    script.evict("web-0")
    script.pod("new-0", "spot", ready=False)
    script.after(1)
    script.evict("db-0")


def second_owner_after_the_first_ran(script: HistoryScript) -> None:
    """The same after the successor of the first pod was Ready for a while."""
    script.pod("db-0", owner="db")
    script.mark()
    script.evict("web-0")
    script.pod("new-0", "spot")
    script.after(1)
    script.pod("new-0", "spot", ready=False)
    script.evict("db-0")


def evicted_while_another_is_deleted_by_others(script: HistoryScript) -> None:
    script.mark()
    script.delete("web-3")
    script.evict("web-0")


def deleted_by_others_before_the_eviction(script: HistoryScript) -> None:
    """Evict two pods, of which the first was already deleted by another client."""
    script.mark()
    script.delete("web-0")
    script.after(1)
    script.write("create", "pods/eviction", "web-0")
    script.evict("web-1")


def successor_crashes(script: HistoryScript) -> None:
    script.mark()
    script.evict("web-0")
    script.pod("new-0", "spot")
    script.after(1)
    script.pod("new-0", "spot", ready=False)
    script.evict("web-1")


def rolled_out_after_the_eviction(script: HistoryScript) -> None:
    script.mark()
    script.evict("web-0")
    script.workload(replicas=4, template="2")
    script.after(1)
    script.evict("web-1")


def ready_just_before_the_evictions(script: HistoryScript) -> None:
    """Evict pods that became Ready after the state on which the daemon decided."""
    for number in range(2):
        script.pod(f"web-{number}", ready=False)
    script.after(5)
    script.mark()
    for number in range(2):
        script.pod(f"web-{number}")
        script.evict(f"web-{number}")


def ready_long_before_the_evictions(script: HistoryScript) -> None:
    for number in range(2):
        script.pod(f"web-{number}", ready=False)
    script.mark()
    for number in range(2):
        script.pod(f"web-{number}")
    script.after(2)
    for number in range(2):
        script.evict(f"web-{number}")


def scaled_down_after_the_eviction(script: HistoryScript) -> None:
    script.mark()
    script.evict("web-0")
    script.workload(replicas=3)
    script.after(1)
    script.evict("web-1")


def never_landed_and_rolled_back(script: HistoryScript) -> None:
    """Evict a pod whose successor cannot land, and abort the drain in time."""
    script.mark()
    script.evict("web-0")
    script.after(30)
    script.release()
    script.after(300)


def never_landed_and_still_marked(script: HistoryScript) -> None:
    script.mark()
    script.evict("web-0")
    script.after(40)
    script.node("spot", SPOT)


def further_drain_while_missing(script: HistoryScript) -> None:
    script.workload(replicas=5)
    script.node("od-2", ON_DEMAND)
    script.pod("web-9", "od-2")
    script.mark()
    script.evict("web-0")
    script.after(20)
    script.release()
    script.node("od-2", ON_DEMAND, "draining")
    script.evict("web-9")


def further_drain_after_the_landing_timeout(script: HistoryScript) -> None:
    """The owner of the second pod keeps its other nodes from being drained; that is another invariant's business."""
    script.workload(replicas=5)
    script.node("od-2", ON_DEMAND)
    script.pod("web-9", "od-2")
    script.mark()
    script.evict("web-0")
    script.after(30)
    script.release()
    script.node("od-2", ON_DEMAND, "draining")
    script.evict("web-9")


def terminated_while_missing(script: HistoryScript) -> None:
    script.mark()
    for number in range(4):
        script.delete(f"web-{number}") if number else script.evict("web-0")
    script.mark("removing")
    script.after(5)
    script.terminate()


def _preempting(script: HistoryScript, node: str, priority: int = 1000, low: int = 0) -> None:
    """Move all pods with *priority*, one in place of a preempted pod. The pod that replaces it is bound to *node*."""
    script.pod("low-0", "spot", owner="low", priority=low)
    script.mark()
    for number in range(4):
        script.evict(f"web-{number}")
        if not number:
            script.pod("low-0", "spot", owner="low", preempted=True, priority=low)
            script.delete("low-0")
            script.pod("low-1", node, owner="low", ready=bool(node), priority=low)
        script.pod(f"new-{number}", "spot", priority=priority)
        script.after(1)
    script.after(6)
    script.mark("removing")
    script.after(1)
    script.terminate()


def _losing(script: HistoryScript, *, back: bool = False, late: bool = False) -> None:
    """Each eviction is settled; then a successor is lost."""
    script.mark()
    for number in range(4):
        script.evict(f"web-{number}")
        script.pod(f"new-{number}", "spot")
        script.after(1)
    script.after(6)
    script.mark("removing")
    if not late:
        script.delete("new-0")
        script.after(6)
    if back:
        script.pod("again", "spot")
    script.after(1)
    if late:
        script.delete("new-0")
    script.terminate()


def terminated_while_settled_pods_are_lost_again(script: HistoryScript) -> None:
    _losing(script)


def terminated_after_lost_pods_came_back(script: HistoryScript) -> None:
    _losing(script, back=True)


def terminated_with_fewer_pods_as_a_node_was_lost_before(script: HistoryScript) -> None:
    """Two of four pods ran on a node that is gone when the others are evicted."""
    script.node("od-2", ON_DEMAND)
    for number in (2, 3):
        script.pod(f"web-{number}", "od-2")
    script.lose("od-2")
    script.mark()
    for number in (0, 1):
        script.evict(f"web-{number}")
        script.pod(f"new-{number}", "spot")
        script.after(1)
    for number in (2, 3):
        script.delete(f"web-{number}")
    script.after(10)
    script.mark("removing")
    script.after(10)
    script.terminate()


def terminated_right_after_a_pod_was_lost(script: HistoryScript) -> None:
    _losing(script, late=True)


def terminated_while_preempted_pods_are_pending(script: HistoryScript) -> None:
    _preempting(script, "")


def terminated_after_preempted_pods_have_a_place(script: HistoryScript) -> None:
    _preempting(script, "spot")


def terminated_while_pods_that_others_preempted_are_pending(script: HistoryScript) -> None:
    """The moved pods have no higher priority than the preempted one."""
    _preempting(script, "", priority=0)


def terminated_while_preempted_pods_that_yield_their_room_are_pending(script: HistoryScript) -> None:
    _preempting(script, "", low=-10)


def _edited(script: HistoryScript, replicas: int, ready: int) -> None:
    """A template is edited after the eviction, and at the termination *ready* of the owner's pods are Ready."""
    script.workload(replicas)
    for number in range(4, replicas):
        script.pod(f"web-{number}", "spot")
    script.mark()
    script.evict("web-0")
    script.workload(replicas, template="2")
    for number in range(1, 4):
        script.delete(f"web-{number}")
    for number in range(ready - max(0, replicas - 4)):
        script.pod(f"new-{number}", "spot")
    script.after(6)
    script.mark("removing")
    script.after(1)
    script.terminate()


def terminated_after_an_edit_without_successors(script: HistoryScript) -> None:
    _edited(script, 4, 0)


def terminated_after_an_edit_with_too_few_successors(script: HistoryScript) -> None:
    _edited(script, 8, 5)


def terminated_during_a_roll_out_within_its_limits(script: HistoryScript) -> None:
    _edited(script, 8, 6)


def relabeled_before_the_termination(script: HistoryScript) -> None:
    script.workload(replicas=0)
    for number in range(4):
        script.delete(f"web-{number}")
    script.mark("removing")
    script.after(1)
    script.node("od", SPOT, "removing")
    script.after(6)
    script.terminate()


def evicted_and_adopted(script: HistoryScript) -> None:
    """Evict a pod of a ReplicaSet without a Deployment, which a Deployment adopts afterwards."""
    script.workload(replicas=2, name="old", kind="ReplicaSet")
    for number in range(2):
        script.pod(f"old-{number}", "od" if number else "spot", owner="old", kind="ReplicaSet")
    script.mark()
    script.evict("old-1")
    script.workload(replicas=2, name="new", template="2")
    script.workload(replicas=2, name="old", kind="ReplicaSet", above="new")


def terminated_after_an_adopted_pod_came_back(script: HistoryScript) -> None:
    evicted_and_adopted(script)
    script.pod("old-2", "spot", owner="old", kind="ReplicaSet")
    _emptied_and_terminated(script)


def terminated_while_an_adopted_pod_is_missing(script: HistoryScript) -> None:
    evicted_and_adopted(script)
    _emptied_and_terminated(script)


def _emptied_and_terminated(script: HistoryScript) -> None:
    for number in range(4):
        script.pod(f"web-{number}", "spot")
    script.after(10)
    script.mark("removing")
    script.terminate()


def terminated_without_a_mark(script: HistoryScript) -> None:
    script.terminate()
    script.after(2)


def terminated_empty(script: HistoryScript) -> None:
    script.workload(replicas=0)
    for number in range(4):
        script.delete(f"web-{number}")
    script.mark()
    script.after(5)
    script.mark("removing")
    script.terminate()
    script.after(2)


def opted_out_before_the_lag(script: HistoryScript) -> None:
    script.pod("web-0", annotations=PROTECTED)
    script.after(6)
    script.mark()
    script.evict("web-0")


def opted_out_of_this_program(script: HistoryScript) -> None:
    script.pod("web-0", annotations={"spot-rescheduler/do-not-evict": "true"})
    script.after(6)
    script.mark()
    script.evict("web-0")


def _opted_out_of_karpenter(script: HistoryScript, value: str) -> None:
    script.pod("web-0", annotations={"karpenter.sh/do-not-disrupt": value}, created=True)
    script.after(6)
    script.mark()
    script.evict("web-0")


def opted_out_for_an_hour(script: HistoryScript) -> None:
    _opted_out_of_karpenter(script, "1h")


def opted_out_with_a_text_that_is_no_duration(script: HistoryScript) -> None:
    """Go would read it as a duration, but it is longer than the documentation allows."""
    _opted_out_of_karpenter(script, "1h" * 33)


def opted_out_within_the_lag(script: HistoryScript) -> None:
    script.after(6)
    script.mark()
    script.pod("web-0", annotations=PROTECTED)
    script.after(1)
    script.evict("web-0")


def evicted_from_an_unmarked_node(script: HistoryScript) -> None:
    script.after(6)
    script.evict("web-0")


def evicted_when_its_node_has_just_registered_again(script: HistoryScript) -> None:
    script.mark()
    script.after(10)
    script.node("od", ON_DEMAND, uid="again")
    script.after(1)
    script.evict("web-0")


def evicted_long_after_its_node_has_registered_again(script: HistoryScript) -> None:
    script.mark()
    script.node("od", ON_DEMAND, uid="again")
    script.after(10)
    script.evict("web-0")


def two_drains_at_once(script: HistoryScript) -> None:
    script.node("od-2", ON_DEMAND)
    script.mark()
    script.node("od-2", ON_DEMAND, "draining")


def drained_just_after_a_marked_node_was_restored(script: HistoryScript) -> None:
    script.node("od-2", ON_DEMAND, "draining")
    script.after(1)
    script.mark()


def drained_long_after_a_marked_node_was_restored(script: HistoryScript) -> None:
    script.node("od-2", ON_DEMAND, "draining")
    script.after(11)
    script.mark()


def drained_while_a_machine_terminates(script: HistoryScript) -> None:
    terminated_empty(script)
    script.node("od-2", ON_DEMAND)
    script.node("od-2", ON_DEMAND, "draining")


def written_just_after_the_takeover(script: HistoryScript) -> None:
    script.mark()
    script.lease("b_1")
    script.after(0.5)
    script.write("patch", "nodes", "od", replica="a")


def written_long_after_the_takeover(script: HistoryScript) -> None:
    script.mark()
    script.lease("b_1")
    script.after(2)
    script.write("patch", "nodes", "od", replica="a")


def incomplete_mark(script: HistoryScript) -> None:
    script.node("od", ON_DEMAND, "draining", tainted=False)
    script.after(6)
    script.pod("other", "spot")


def incomplete_mark_without_a_leader(script: HistoryScript) -> None:
    script.lease("")
    incomplete_mark(script)


def marked_spot_node(script: HistoryScript) -> None:
    script.node("spot", SPOT, "draining")


def _while_missing(script: HistoryScript, change: Callable[[], object] = lambda: None, period: float = 60.0) -> None:
    """A pod does not come back. After *period*, *change* takes place, and the node of another namespace is drained."""
    for number in range(12):  # the holder renews its Lease
        script.clock = 10.0 * number
        script.lease("a_1")
    script.clock = 0
    script.node("od-2", ON_DEMAND)
    script.pod("other-0", "od-2", owner="other", namespace="shop")
    script.mark()
    script.evict("web-0")
    script.after(1)
    script.release()
    script.after(period)
    change()
    script.after(1)
    script.node("od-2", ON_DEMAND, "draining")


def held_by_another_namespace(script: HistoryScript) -> None:
    _while_missing(script)


def held_by_another_namespace_until_its_pods_run(script: HistoryScript) -> None:
    _while_missing(script, lambda: script.pod("new-0", "spot"))


def drained_after_the_landing_timeout(script: HistoryScript) -> None:
    _while_missing(script, period=32)


def drained_once_there_is_room(script: HistoryScript) -> None:
    _while_missing(script, lambda: script.node("spot-2", SPOT))


def held_by_its_own_namespace(script: HistoryScript) -> None:
    """There is a pod of the namespace that lacks pods on the node."""
    script.pod("web-9", "od-2")
    _while_missing(script)


def drained_once_another_drain_has_ended(script: HistoryScript) -> None:
    script.node("od-3", ON_DEMAND)

    def another() -> None:
        script.node("od-3", ON_DEMAND, "draining")
        script.after(1)
        script.node("od-3", ON_DEMAND)

    _while_missing(script, another)


PINNED: Final = {ON_DEMAND: "true"}


def leftover_moved_twice(script: HistoryScript, rest: float = 600.0) -> None:
    """Move a pod that only on-demand nodes accept to another one, and after *rest* seconds back."""
    script.pod("web-0", selector=PINNED)
    script.node("od-2", ON_DEMAND)
    script.mark()
    script.evict("web-0")
    script.pod("new-0", "od-2", created=True, selector=PINNED)
    script.after(5)
    script.release()
    script.after(rest)
    script.node("od-2", ON_DEMAND, "draining")
    script.evict("new-0")
    script.pod("new-1", created=True, selector=PINNED)


def leftovers_that_leave_a_node_together(script: HistoryScript) -> None:
    """Move a pod of an owner, and, when its rest is over, two that were created since then."""
    leftover_moved_twice(script, rest=86400.0)
    script.pod("new-2", "od-2", created=True, selector=PINNED)
    script.after(2)
    script.evict("new-2")
    script.pod("new-3", created=True, selector=PINNED)


def leftover_evicted_while_no_spot_node_takes_pods(script: HistoryScript) -> None:
    script.pod("web-0", selector=PINNED)
    script.node("od-2", ON_DEMAND)
    script.node("spot", "none")
    script.after(10)
    script.mark()
    script.evict("web-0")
    script.pod("new-0", "od-2", created=True, selector=PINNED)


def leftover_moved_after_its_rest(script: HistoryScript) -> None:
    leftover_moved_twice(script, rest=86400.0)


def leftovers_of_an_owner_moved_once_each(script: HistoryScript) -> None:
    """Move two pods of an owner in two drains. The second one is older than the first move."""
    script.pod("web-0", selector=PINNED)
    script.node("od-2", ON_DEMAND)
    script.pod("web-1", "od-2", created=True, selector=PINNED)
    script.mark()
    script.evict("web-0")
    script.pod("new-0", "od-3", created=True, selector=PINNED)
    script.after(5)
    script.release()
    script.node("od-2", ON_DEMAND, "draining")
    script.evict("web-1")
    script.pod("new-1", "od-3", created=True, selector=PINNED)


CASES: Final[dict[Callable[[HistoryScript], None], set[int]]] = {
    waves: set(),
    doubled_step: set(),
    two_at_once: {2},
    second_owner_before_the_first_runs: {2},
    second_owner_after_the_first_ran: set(),
    evicted_while_another_is_deleted_by_others: set(),
    deleted_by_others_before_the_eviction: set(),
    successor_crashes: set(),
    rolled_out_after_the_eviction: set(),
    ready_just_before_the_evictions: set(),
    ready_long_before_the_evictions: {2},
    scaled_down_after_the_eviction: set(),
    never_landed_and_rolled_back: set(),
    never_landed_and_still_marked: {1},
    further_drain_while_missing: {1, 2},
    further_drain_after_the_landing_timeout: {2},
    terminated_while_missing: {6},
    terminated_while_settled_pods_are_lost_again: {6},
    terminated_after_an_adopted_pod_came_back: set(),
    terminated_while_an_adopted_pod_is_missing: {6, 11},
    terminated_after_lost_pods_came_back: set(),
    terminated_with_fewer_pods_as_a_node_was_lost_before: set(),
    terminated_right_after_a_pod_was_lost: set(),
    terminated_while_preempted_pods_are_pending: {6},
    terminated_after_preempted_pods_have_a_place: set(),
    terminated_while_preempted_pods_that_yield_their_room_are_pending: set(),
    terminated_while_pods_that_others_preempted_are_pending: set(),
    terminated_after_an_edit_without_successors: {6},
    terminated_after_an_edit_with_too_few_successors: {6},
    terminated_during_a_roll_out_within_its_limits: set(),
    relabeled_before_the_termination: {7},
    terminated_without_a_mark: {6},
    terminated_empty: set(),
    opted_out_before_the_lag: {3},
    opted_out_of_this_program: {3},
    opted_out_for_an_hour: {3},
    opted_out_with_a_text_that_is_no_duration: set(),
    opted_out_within_the_lag: set(),
    evicted_from_an_unmarked_node: {3},
    evicted_when_its_node_has_just_registered_again: set(),
    evicted_long_after_its_node_has_registered_again: {3},
    leftover_evicted_while_no_spot_node_takes_pods: set(),
    two_drains_at_once: {4},
    drained_just_after_a_marked_node_was_restored: set(),
    drained_long_after_a_marked_node_was_restored: {4},
    drained_while_a_machine_terminates: set(),
    written_just_after_the_takeover: set(),
    written_long_after_the_takeover: {4},
    incomplete_mark: {5},
    incomplete_mark_without_a_leader: set(),
    marked_spot_node: {7},
    held_by_another_namespace: {10},
    held_by_another_namespace_until_its_pods_run: {10},
    drained_after_the_landing_timeout: set(),
    drained_once_there_is_room: set(),
    held_by_its_own_namespace: set(),
    drained_once_another_drain_has_ended: {10},
    leftover_moved_twice: {13},
    leftover_moved_after_its_rest: set(),
    leftovers_that_leave_a_node_together: set(),
    leftovers_of_an_owner_moved_once_each: set(),
}


@pytest.mark.parametrize("happens", CASES, ids=lambda case: case.__name__)
def test_exactly_the_violated_invariants_are_reported(happens: Callable[[HistoryScript], None]) -> None:
    script = HistoryScript()
    happens(script)
    assert script.violated() == CASES[happens]


@pytest.mark.parametrize(("others", "violated"), [(1, {7}), (2, set())])
def test_drains_below_the_minimum_are_violations(others: int, violated: set[int]) -> None:
    """Some of the other on-demand nodes have pods; one has none."""
    script = HistoryScript(replace(RULES, minimum=2))
    script.node("empty", ON_DEMAND)
    for number in range(others):
        script.node(f"other-{number}", ON_DEMAND)
        script.pod(f"more-{number}", f"other-{number}")
    script.after(10)
    script.mark()
    script.evict("web-0")
    assert script.violated() == violated


@pytest.mark.parametrize(("delay", "violated"), [(0.0, {10}), (600.0, set())])
def test_the_delay_between_drains_holds_nodes(delay: float, violated: set[int]) -> None:
    script = HistoryScript(replace(RULES, drain_delay=delay))
    held_by_another_namespace(script)
    assert script.violated() == violated


def evicted_before_the_pod_of_another_owner_is_bound(script: HistoryScript) -> None:
    """Two owners of one namespace lose their first pods in the same step."""
    _three_owners(script)
    script.evict("app-0")
    script.evict("db-0")


def evicted_after_the_pod_of_another_owner_is_bound(script: HistoryScript) -> None:
    _three_owners(script)
    script.evict("app-0")
    script.pod("app-1", "spot", ready=False, owner="app")
    script.evict("db-0")


def evicted_at_once_after_a_roll_out(script: HistoryScript) -> None:
    """The pod that a roll-out has moved was the first one: then one pod of each namespace leaves."""
    script.workload(1, name="db")
    script.pod("db-0", owner="db", namespace="shop")
    script.node("od", ON_DEMAND, "draining", surge="web")
    script.mark()
    script.evict("web-0")
    script.evict("db-0", namespace="shop")


def evicted_beside_the_namespace_of_a_roll_out(script: HistoryScript) -> None:
    """A roll-out has moved the first pod of its namespace, so the next one there leaves with others of their step."""
    for owner in ("db", "cache"):
        script.workload(1, name=owner)
        script.pod(f"{owner}-0", owner=owner, namespace="shop")
    script.node("od", ON_DEMAND, "draining", surge="api")
    script.mark()
    script.evict("db-0", namespace="shop")
    script.pod("db-1", "spot", owner="db", namespace="shop")
    script.evict("web-0")
    script.evict("cache-0", namespace="shop")


def evicted_while_a_successor_is_lost(script: HistoryScript, period: float = 10.0) -> None:
    _three_owners(script)
    script.delete("new-0")
    script.after(period)
    script.evict("app-0")


def evicted_right_after_a_successor_is_lost(script: HistoryScript) -> None:
    evicted_while_a_successor_is_lost(script, period=1.0)


def _three_owners(script: HistoryScript) -> None:
    """Let the first pod of a drain have a successor; two more owners have a pod on the node."""
    for owner in ("app", "db"):
        script.workload(1, name=owner)
        script.pod(f"{owner}-0", owner=owner)
    script.mark()
    script.evict("web-0")
    script.pod("new-0", "spot")
    script.after(1)


@pytest.mark.parametrize(
    ("happens", "found"),
    [
        (evicted_before_the_pod_of_another_owner_is_bound, {2}),
        (evicted_after_the_pod_of_another_owner_is_bound, set()),
        (evicted_at_once_after_a_roll_out, set()),
        (evicted_beside_the_namespace_of_a_roll_out, set()),
        (evicted_while_a_successor_is_lost, {2}),
        (evicted_right_after_a_successor_is_lost, set()),
    ],
)
def test_the_pace_within_a_step(happens: Callable[[HistoryScript], None], found: set[int]) -> None:
    for paced in (True, False):
        script = HistoryScript(replace(RULES, paced=paced))
        happens(script)
        assert script.violated() == (found if paced else set())


@pytest.mark.parametrize(("limit", "violated"), [(0.5, set()), (0.25, {9}), (0.0, set())])
def test_the_limit_of_moves(limit: float, violated: set[int]) -> None:
    """Two of four replicas are moved on one day."""
    script = HistoryScript(replace(RULES, moves_per_pod_and_day=limit))
    script.mark()
    for number in range(2):
        script.evict(f"web-{number}")
        script.pod(f"new-{number}", "spot")
        script.after(1)
    assert script.violated() == violated


def owned(name: str, kind: str, owner: str) -> dict[str, Any]:
    references = [{"kind": kind, "name": owner, "uid": owner, "controller": True}] if owner else []
    return {"name": name, "uid": name, "namespace": "default", "ownerReferences": references}


def test_pods_of_an_orphan_belong_to_the_deployment_that_adopts_it() -> None:
    """Their successors are created by this Deployment, so evictions after the adoption must count for it, too."""
    now = Replay("", SPOT)

    def write(number: int, seen: type[SeenPod | SeenWorkload], **fields: Any) -> None:
        now.apply(Revision(number, BEGIN, msgspec.convert(fields, seen)))

    spec = {"replicas": 2}
    write(1, SeenWorkload, metadata=owned("web-1", "", ""), spec=spec, kind="ReplicaSet")
    write(2, SeenPod, metadata=owned("a", "ReplicaSet", "web-1"))
    orphan = now.owners["a"]
    assert orphan is not None
    assert (orphan[0], now.wanted(orphan)) == ("ReplicaSet", 2)
    write(3, SeenWorkload, metadata=owned("web", "", ""), spec=spec, kind="Deployment")
    write(4, SeenWorkload, metadata=owned("web-1", "Deployment", "web"), spec=spec, kind="ReplicaSet")
    write(5, SeenPod, metadata=owned("b", "ReplicaSet", "web-1"))
    adopter = now.owners["a"]
    assert adopter is not None
    assert (adopter[0], adopter, now.wanted(orphan)) == ("Deployment", now.owners["b"], 0)
    assert ([*now.pods_of(orphan)], len([*now.pods_of(adopter)])) == ([], 2)
