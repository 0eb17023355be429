"""Tests of the order of evictions: one pod, one per namespace, one per controller, then growing steps.

The pods of a step leave one after the other in each namespace, when the replacement pods of those before are bound.
"""

from collections import Counter
from collections.abc import Mapping
from dataclasses import replace
from typing import ClassVar

import msgspec
import pytest

from rescheduler.draining import transitions
from rescheduler.draining.actions import Evict, LookAgain, PlanAgain
from rescheduler.draining.events import EvictionAccepted, EvictionRefused, PlannedAgain, PodGone
from rescheduler.draining.state import Phase
from rescheduler.planning.debts import Debt, Replicas
from rescheduler.planning.outcome import Plan
from tests.draining.stories import (
    EMPTY,
    PLAN,
    WEB,
    A,
    B,
    Story,
    Workload,
    begun,
    plan,
    planning,
    play,
    resumed,
    running,
    seen,
    step,
    workload,
)

Counts = Mapping[Workload, Replicas]


def steps(drain_plan: Plan, *workloads: Workload, running_as: Counts | None = None, again: Plan = EMPTY) -> list[str]:
    """Return the pods of each step, if every replacement pod is Ready immediately. *again* is the plan of each step."""
    drain, done, now = begun(drain_plan, *workloads), list[str](), 5.0
    replicas = running_as or {each: each.running for each in workloads}
    while drain.phase is Phase.EVICTING and now < 60:
        present = " ".join(victim.pod.uid for victim in drain.waiting)
        drain, actions = transitions.step(drain, seen(present, replicas), now)
        if any(isinstance(action, PlanAgain) for action in actions):
            drain, evictions = transitions.step(drain, PlannedAgain(again), now)
            pods = [action.pod for action in evictions if isinstance(action, Evict)]
            for pod in pods:
                drain, _ = transitions.step(drain, EvictionAccepted(pod.uid), now)
            done.append(" ".join(pod.name for pod in pods))
        now += 1
    return done


def pods(prefix: str, count: int) -> list[str]:
    return [f"{prefix}{number}" for number in range(1, count + 1)]


TABLE: dict[str, tuple[tuple[Workload, ...], str, list[str]]] = {
    "one pod": ((workload("web", "a"),), "", ["a"]),
    "one controller: one pod, then steps that double": (
        (workload("web", *pods("a", 9)),),
        "",
        pods("a", 9),
    ),
    "one pod; one per namespace; one per controller; the rest": (
        (
            workload("api", *pods("a", 3), namespace="one"),
            workload("web", *pods("b", 2), namespace="one"),
            workload("api", *pods("c", 3), namespace="two"),
            workload("web", *pods("d", 1), namespace="two"),
            workload("api", *pods("e", 1), namespace="three"),
        ),
        "",
        ["a1", "c1 e1", "b1", "d1", "a2 c2", "b2 c3", "a3"],
    ),
    "one pod; one per controller, in steps that double": (
        tuple(workload(f"w{number:02}", f"p{number}") for number in range(1, 13)),
        "",
        pods("p", 12),
    ),
    "the controllers of all namespaces are in the same steps": (
        tuple(
            workload(f"w{number}", f"{space[0]}{number}", namespace=space)
            for space in ("one", "two")
            for number in range(1, 5)
        ),
        "",
        ["o1", "t1", "o2", "o3", "o4", "t2", "t3", "t4"],
    ),
    "the rest of a controller starts with one pod": (
        (workload("api", *pods("a", 1)), workload("web", *pods("b", 8))),
        "",
        ["a1", *pods("b", 8)],
    ),
    "controllers with similar names are distinct": (
        (workload("web", "a", "b"), workload("web-2", "c")),
        "",
        ["a", "c", "b"],
    ),
    "pods without a controller are the last": (
        (workload("web", "a", "b"),),
        "xyz",
        ["a", "b", "x y z"],
    ),
    "only pods without a controller": ((), "xyz", ["x y z"]),
    "pods of a StatefulSet are evicted one at a time, not first": (
        (workload("db", *pods("a", 4), kind="StatefulSet"), workload("web", *pods("b", 2))),
        "",
        ["b1", "a1", "b2", "a2", "a3", "a4"],
    ),
    "pods of a Job are not evicted first": (
        (workload("job", *pods("a", 4), kind="Job"), workload("web", *pods("b", 4))),
        "",
        ["b1", "a1", "b2", "a2", "b3", "b4", "a3", "a4"],
    ),
}


@pytest.mark.parametrize(("workloads", "bare", "expected"), TABLE.values(), ids=TABLE)
def test_pods_are_evicted_in_these_steps(workloads: tuple[Workload, ...], bare: str, expected: list[str]) -> None:
    assert steps(plan(*workloads, bare=bare), *workloads) == expected


def steps_until_ready(drain_plan: Plan, *workloads: Workload) -> list[str]:
    """Return the pods that leave before the drain waits until all are Ready. Replacement pods are bound at once."""
    drain, done, now = begun(drain_plan, *workloads), [""], 5.0
    while drain.phase is Phase.EVICTING and now < 60:
        gone = Counter(drain.controllers[pod.uid] for pod in drain.evicted if pod.name in done[-1].split())
        replicas = {each: running(each.total - gone[each.controller], bound=each.total) for each in workloads}
        present = " ".join(victim.pod.uid for victim in drain.waiting)
        drain, actions = transitions.step(drain, seen(present, replicas), now)
        if any(isinstance(action, PlanAgain) for action in actions):
            drain, evictions = transitions.step(drain, PlannedAgain(EMPTY), now)
            for pod in (action.pod for action in evictions if isinstance(action, Evict)):
                drain, _ = transitions.step(drain, EvictionAccepted(pod.uid), now)
                done[-1] = f"{done[-1]} {pod.name}".strip()
        else:
            done.append("")
        now += 1
    return [each for each in done if each]


SLOW: dict[str, tuple[tuple[Workload, ...], list[str]]] = {
    "one controller": ((workload("web", *pods("a", 9)),), ["a1", "a2", "a3 a4", "a5 a6 a7 a8", "a9"]),
    "many controllers": (
        tuple(workload(f"w{number:02}", f"p{number}") for number in range(1, 13)),
        ["p1", "p2", "p3 p4", "p5 p6 p7 p8", "p9 p10 p11 p12"],
    ),
    "the rest of each controller": (
        (workload("api", *pods("a", 4)), workload("web", *pods("b", 4))),
        ["a1", "b1 a2", "a3 a4 b2", "b3 b4"],
    ),
    "a StatefulSet beside others": (
        (workload("db", *pods("a", 3), kind="StatefulSet"), workload("web", *pods("b", 4))),
        ["b1", "a1 b2", "b3 b4 a2", "a3"],
    ),
}


@pytest.mark.parametrize(("workloads", "expected"), SLOW.values(), ids=SLOW)
def test_the_pods_of_a_step_need_not_be_ready_for_the_next_pod_of_it(
    workloads: tuple[Workload, ...], expected: list[str]
) -> None:
    assert steps_until_ready(plan(*workloads), *workloads) == expected


#: What replacement pods lack after an obstacle has begun: created, or bound.
LACKING: dict[str, Replicas] = {
    "rejected, as by a quota or a webhook": running(2, bound=3),
    "pending, as without a scheduler": running(2, bound=3, live=4),
}


@pytest.mark.parametrize("lacking", LACKING.values(), ids=LACKING)
@pytest.mark.parametrize("moment", range(6))
def test_an_obstacle_costs_one_pod_of_its_namespace_whenever_it_begins(lacking: Replicas, moment: int) -> None:
    """Two controllers of four pods. From the eviction number *moment* on, replacement pods are not bound."""
    both = (workload("api", *pods("a", 4)), workload("web", *pods("b", 4)))
    drain, now, evicted = begun(plan(*both), *both), 5.0, list[str]()
    while drain.phase is Phase.EVICTING and now < 60:
        lost = drain.controllers[evicted[moment]] if len(evicted) > moment else None
        replicas = {each: lacking if each.controller == lost else each.running for each in both}
        drain, actions = transitions.step(drain, seen(" ".join(v.pod.uid for v in drain.waiting), replicas), now)
        if any(isinstance(action, PlanAgain) for action in actions):
            drain, evictions = transitions.step(drain, PlannedAgain(EMPTY), now)
            for pod in (action.pod for action in evictions if isinstance(action, Evict)):
                drain, _ = transitions.step(drain, EvictionAccepted(pod.uid), now)
                evicted.append(pod.uid)
        now += 1
    assert len(evicted) == moment + 1


def test_pods_that_have_a_place_in_one_order_only_move_in_it() -> None:
    """Also if a pod of a StatefulSet comes first, which would come last otherwise."""
    db, web = workload("db", "b1", kind="StatefulSet"), workload("web", *pods("a", 3))
    ordered = replace(plan(db, web), one_by_one=True)
    assert steps(ordered, db, web, again=ordered) == ["b1", "a1", "a2", "a3"]


def test_a_step_whose_pods_have_no_place_yet_gives_way_to_the_first_pod_of_the_new_plan() -> None:
    """The plan of the step shows that another pod has to move first."""
    db, web = workload("db", "b1", kind="StatefulSet"), workload("web", *pods("a", 3))
    ordered = replace(plan(db, web), one_by_one=True)
    assert steps(plan(db, web), db, web, again=ordered) == ["", "b1", "a1", "a2", "a3"]


def together(drain_plan: Plan, *groups: str) -> Plan:
    """Return the plan in which the pods of each of *groups* (names) share a volume."""
    group_of = {name: group for group in groups for name in group.split()}
    placements = (
        msgspec.structs.replace(each, together=group_of.get(each.pod.name, "")) for each in drain_plan.placements
    )
    return replace(drain_plan, placements=tuple(placements))


SHARING: dict[str, tuple[tuple[Workload, ...], str, list[str]]] = {
    "the first step has all pods of the group": ((workload("web", *pods("a", 4)),), "a1 a3", ["a1 a3", "a2", "a4"]),
    "pods of two controllers": (
        (workload("api", "a", "b"), workload("web", "c", "d"), workload("xyz", "x")),
        "a d",
        ["a d", "x", "b", "c"],
    ),
    "pods of a StatefulSet": ((workload("db", *pods("a", 3), kind="StatefulSet"),), "a1 a2", ["a1 a2", "a3"]),
    "the group of a later step": ((workload("web", *pods("a", 4)),), "a2 a4", ["a1", "a2 a4", "a3"]),
}


@pytest.mark.parametrize(("workloads", "group", "expected"), SHARING.values(), ids=SHARING)
def test_pods_that_share_a_volume_are_evicted_in_one_step(
    workloads: tuple[Workload, ...], group: str, expected: list[str]
) -> None:
    assert steps(together(plan(*workloads), group), *workloads) == expected


def test_no_pod_of_a_group_is_evicted_while_another_one_may_not_be() -> None:
    """A pod of the other controller is not Ready, and it shares a volume: without it, the volume would not move."""
    calm, sick = workload("calm", "a"), workload("sick", "b", total=2)
    drain = begun(together(plan(calm, sick), "a b"), calm, sick)
    replicas = {calm: running(1), sick: running(1, bound=2)}
    _, actions = transitions.step(drain, seen("a b", replicas), 5)
    assert not any(isinstance(action, PlanAgain) for action in actions)
    _, actions = transitions.step(drain, seen("a b", {calm: running(1), sick: running(2)}), 5)
    assert any(isinstance(action, PlanAgain) for action in actions)


API, OTHER = workload("api", "b", "c"), workload("api", "x", "y", namespace="other")


class TestTheFirstWaves:
    ALL = (WEB_1 := workload("web", "a"), API, OTHER)
    RUN: ClassVar[Counts] = {each: each.running for each in ALL}

    def test_only_the_wave_of_namespaces_does_not_wait_for_ready(self) -> None:
        """A bound replacement shows that no quota, webhook or missing room prevents replacements."""
        bound = {**self.RUN, OTHER: running(1, bound=2)}
        story: Story = [
            (5, seen("a b c x y", self.RUN), (planning(),)),
            *step(5, "a"),
            (6, seen("b c x y", {**self.RUN, self.WEB_1: running(0)}), ()),
            (7, seen("b c x y", {**self.RUN, self.WEB_1: running(0, live=1)}), ()),
            (8, seen("b c x y", {**self.RUN, self.WEB_1: running(0, bound=1)}), ()),
            (9, seen("b c x y", self.RUN), (planning(),)),
            (9, PlannedAgain(EMPTY), (Evict(OTHER.pods[0]),)),
            (9, EvictionAccepted("x"), ()),
            (10, seen("b c y", {**self.RUN, OTHER: running(1)}), ()),
            (11, seen("b c y", bound), (planning(),)),
            (11, PlannedAgain(EMPTY), (Evict(B),)),
            (11, EvictionAccepted("b"), ()),
            (12, seen("c y", {**bound, API: running(1)}), ()),
            (13, seen("c y", {**bound, API: running(1, bound=2)}), ()),
        ]
        drain = play(replace(begun(plan(*self.ALL), *self.ALL), renew_at=1e9, read_at=1e9), story)
        assert [pod.name for pod in drain.evicted] == ["a", "x", "b"]

    def test_a_step_of_controllers_waits_until_all_replacements_are_ready(self) -> None:
        """The replacement pods of a namespace's first pod, and of the step before, are bound but not Ready."""
        each = tuple(workload(f"w{number}", f"p{number}") for number in range(1, 5))
        run = {one: running(1) for one in each}
        story: Story = [
            (5, seen("p1 p2 p3 p4", run), (planning(),)),
            *step(5, "p1"),
            (5.5, seen("p2 p3 p4", {**run, each[0]: running(0, bound=1)}), ()),
            (6, seen("p2 p3 p4", run), (planning(),)),
            *step(6, "p2"),
            (7, seen("p3 p4", {**run, each[1]: running(0, bound=1)}), ()),
            (8, seen("p3 p4", {**run, each[0]: running(0, bound=1)}), ()),
            (9, seen("p3 p4", run), (planning(),)),
            *step(9, "p3"),
            (10, seen("p4", {**run, each[2]: running(0, live=1)}), ()),
            (11, seen("p4", {**run, each[2]: running(0, bound=1)}), (planning(),)),
            *step(11, "p4"),
        ]
        play(replace(begun(plan(*each), *each), renew_at=1e9, read_at=1e9), story)

    def test_the_drain_also_waits_for_a_rejected_eviction(self) -> None:
        story: Story = [
            (5, seen("a b c x y", self.RUN), (planning(),)),
            (5, PlannedAgain(EMPTY), (Evict(A),)),
            (5, EvictionRefused("a", "budget", 60), ()),
            (6, seen("a b c x y", self.RUN), ()),
        ]
        play(begun(plan(*self.ALL), *self.ALL), story)


class TestLaterStepsWaitForTheWaves:
    """A rejected eviction of a wave is retried: until it is accepted, no controller loses a second pod."""

    FIRST, CALM, GUARDED = workload("first", "x"), workload("calm", "a", "b"), workload("guarded", "s")
    ALL = (FIRST, CALM, GUARDED)
    RUN: ClassVar[Counts] = {each: each.running for each in ALL}

    def test_a_rejected_eviction_holds_the_steps_of_other_controllers(self) -> None:
        story: Story = [
            (5, seen("x a b s", self.RUN), (planning(),)),
            *step(5, "x"),
            (6, seen("a b s", self.RUN), (planning(),)),
            *step(6, "a"),
            (6, seen("b s", self.RUN), (planning(),)),
            (6, PlannedAgain(EMPTY), (Evict(self.GUARDED.pods[0]),)),
            (6, EvictionRefused("s", "budget", 5), ()),
            (7, seen("b s", self.RUN), ()),
            (11, seen("b s", self.RUN), (Evict(self.GUARDED.pods[0]),)),
            (11, EvictionAccepted("s"), ()),
            (12, seen("b", self.RUN), (planning(),)),
        ]
        play(replace(begun(plan(*self.ALL), *self.ALL), renew_at=1e9, read_at=1e9), story)


class TestLaterStepsWaitForReadyReplacements:
    def test_the_next_step_of_a_controller_waits_for_its_ready_replacements(self) -> None:
        story: Story = [
            (5, seen("a b", {WEB: running(2)}), (planning(),)),
            *step(5, "a"),
            (6, seen("b", {WEB: running(1)}), ()),
            (7, seen("b", {WEB: running(1, bound=2)}), ()),
            (40, seen("b", {WEB: running(2)}), (planning(),)),
        ]
        play(begun(PLAN, WEB), story)

    def test_other_controllers_continue(self) -> None:
        slow, fast = workload("a-slow", "a", "b"), workload("b-fast", "x", "y", "z")
        well = {slow: running(2), fast: running(3)}
        story: Story = [
            (5, seen("a b x y z", well), (planning(),)),
            *step(5, "a"),
            (6, seen("b x y z", well), (planning(),)),
            *step(6, "x"),
            (7, seen("b y z", well), (planning(),)),
            *step(7, "b"),
            (8, seen("y z", {slow: running(1), fast: running(3)}), ()),
            (9, seen("y z", {slow: running(1, bound=2), fast: running(3)}), (planning(),)),
            *step(9, "y"),
            (10, seen("z", {slow: running(1, bound=2), fast: running(2)}), ()),
            (11, seen("z", {slow: running(1, bound=2), fast: running(3)}), (planning(),)),
            *step(11, "z"),
        ]
        play(replace(begun(plan(slow, fast), slow, fast), renew_at=1e9, read_at=1e9), story)

    def test_the_drain_does_not_wait_for_a_pod_that_was_never_ready(self) -> None:
        """The replacement of such a pod must be bound, but need not be Ready."""
        broken = workload("web", "a", "b", replicas=running(0, bound=2))
        drain = begun(plan(broken), broken)
        assert drain.debts[broken.controller] == Debt(broken.controller, 0, 2, "1", owner_uids=("uid-web",))
        story: Story = [
            (5, seen("a b", {broken: running(0, bound=2)}), (planning(),)),
            *step(5, "a"),
            (6, seen("b", {broken: running(0, bound=1)}), ()),
            (7, seen("b", {broken: running(0, bound=2)}), (planning(),)),
            *step(7, "b"),
            (8, seen("", {broken: running(0, bound=2)}), (LookAgain(),)),
        ]
        play(drain, story)


def sorted_(workloads: tuple[Workload, ...]) -> list[Workload]:
    return sorted(workloads, key=lambda each: each.controller)


class TestStatefulSets:
    DB = workload("db", "a", "b", kind="StatefulSet", total=3)

    @pytest.mark.parametrize(
        ("replicas", "step_"),
        [
            (running(3), "a"),
            (running(2, bound=3, unready=("a",)), "a"),
            (running(2, bound=3, unready=("b",)), "b"),
            (running(2, bound=3, unready=("elsewhere",)), ""),
            (running(1, bound=3, unready=("a", "b")), ""),
            (running(2), ""),
        ],
        ids=[
            "all are Ready",
            "the pod itself is not Ready",
            "the one that is not Ready goes first",
            "another one is not Ready",
            "two are not Ready",
            "another one is missing",
        ],
    )
    def test_a_pod_is_evicted_only_while_all_others_are_ready(self, replicas: Replicas, step_: str) -> None:
        database = workload("db", "a", "b", kind="StatefulSet", total=3, replicas=replicas)
        drain, _ = transitions.step(begun(plan(database), database), seen("a b", {database: replicas}), 5)
        assert " ".join(victim.pod.name for victim in drain.step) == step_

    def test_the_next_pod_waits_until_the_first_runs_again(self) -> None:
        story: Story = [
            (5, seen("a b", {self.DB: running(3)}), (planning(),)),
            *step(5, "a"),
            (6, seen("a b", {self.DB: running(2)}), ()),
            (36, seen("b", {self.DB: running(2)}), ()),
            (37, seen("b", {self.DB: running(2, live=3, unready=("a2",))}), ()),
            (38, seen("b", {self.DB: running(2, bound=3, unready=("a2",))}), ()),
            (39, seen("b", {self.DB: running(3)}), (planning(),)),
            *step(39, "b"),
        ]
        play(begun(plan(self.DB), self.DB), story)

    def test_the_drain_waits_for_a_pod_deleted_by_others(self) -> None:
        drain_plan = Plan("od", plan(self.DB).placements[:1], leaving=(B,))
        only = workload("db", "a", kind="StatefulSet", total=3)
        story: Story = [
            (5, seen("a b", {only: running(2)}), ()),
            (6, seen("a", {only: running(2, bound=3, unready=("b2",))}), ()),
            (7, seen("a", {only: running(3)}), (planning(),)),
        ]
        play(begun(drain_plan, only), story)

    def test_other_controllers_do_not_wait_for_a_blocked_one(self) -> None:
        web = workload("web", "x", "y")
        replicas = {self.DB: running(2, bound=3, unready=("elsewhere",)), web: running(2)}
        drain_plan = plan(self.DB, web)
        assert steps(drain_plan, self.DB, web, running_as=replicas) == ["x", "y"]


class TestWavesOfResumedDrains:
    """The drain waits for replacements of pods that the previous process evicted, as for its own."""

    def test_nothing_is_evicted_before_all_replacements_are_ready(self) -> None:
        """Otherwise a quota, or an image that never starts, would cost one more pod after each restart."""
        gone = workload("gone", total=1)
        story: Story = [
            (5, seen("a b", {WEB: running(2)}), ()),
            (6, seen("a b", {WEB: running(2), gone: running(0, live=1)}), ()),
            (7, seen("a b", {WEB: running(2), gone: running(0, bound=1)}), ()),
            (8, seen("a b", {WEB: running(2), gone: running(1)}), (planning(),)),
        ]
        play(resumed(PLAN, WEB, owed=(gone,)), story)

    @pytest.mark.parametrize(("intended", "picks"), [("a b x y z", True), ("a b c x", False), ("", False)])
    def test_a_blocked_controller_blocks_the_others_only_if_pods_may_have_left(
        self, intended: str, *, picks: bool
    ) -> None:
        """The pods that the drain was to move are all there, one of them is gone, or they are not known."""
        other = workload("db", "x", "y", "z", total=4)
        replicas = {WEB: running(2), other: running(3, bound=4)}
        actions = (planning(),) if picks else ()
        drain = resumed(plan(WEB, other), WEB, other, owed=(WEB, other), intended=tuple(intended.split()))
        play(drain, [(5, seen("a b x y z", replicas), actions)])

    def test_no_further_pod_of_a_controller_before_its_replacement_is_ready(self) -> None:
        three = workload("web", "a", "b", total=3)
        story: Story = [
            (5, seen("a b", {three: running(2, bound=3)}), ()),
            (6, seen("a b", {three: running(3)}), (planning(),)),
            *step(6, "a"),
        ]
        play(resumed(plan(three), three, owed=(three,)), story)


def test_a_step_is_planned_together_with_due_replacement_pods() -> None:
    """At every step, the remaining pods must fit together with unbound replacement pods."""
    first, second, lost = workload("a", "a", "b"), workload("b", "x", "y", "z"), "node s1: it is cordoned"
    run = {first: running(2), second: running(3)}
    story: Story = [
        (5, seen("a b x y z", run), (planning(),)),
        *step(5, "a"),
        (6, seen("b x y z", {**run, first: running(1)}, lost=lost), (planning("a"),)),
        (6, PlannedAgain(EMPTY), ()),
        (7, seen("b x y z", run), (planning(),)),
        *step(7, "x"),
        (8, seen("b y z", run), (planning(),)),
        *step(8, "b"),
        (9, seen("y z", {first: running(1), second: running(3)}, lost=lost), (planning("b"),)),
        (9, PlannedAgain(EMPTY), ()),
        (10, seen("y z", {first: running(1, bound=2), second: running(3)}), (planning(),)),
        *step(10, "y"),
        (11, seen("z", {first: running(1, bound=2), second: running(2)}, lost=lost), (planning("y"),)),
    ]
    play(begun(plan(first, second), first, second), story)


def test_pods_that_have_left_are_not_evicted() -> None:
    story: Story = [
        (5, seen("a b", {WEB: running(2)}), (planning(),)),
        (5.1, seen("b", {WEB: running(2)}), ()),
        (5.2, PlannedAgain(PLAN), ()),
        (6, seen("b", {WEB: running(2)}), (planning(),)),
        *step(6, "b"),
    ]
    assert play(begun(PLAN, WEB), story).evicted == (B,)


def test_a_pod_deleted_by_others_does_not_count_as_a_first_eviction() -> None:
    """The wave is repeated with another pod: only an eviction shows whether replacement pods are created."""
    web, api, job = workload("web", "a"), workload("api", "b"), workload("job", "c")
    every = {each: running(1) for each in (web, api, job)}
    rest = {api: running(1), job: running(1)}
    a, b = web.pods[0], api.pods[0]
    story: Story = [
        (5, seen("a b c", every), (planning(),)),
        (5, PlannedAgain(EMPTY), (Evict(a),)),
        (5, PodGone("a"), ()),
        (6, seen("b c", {web: running(0, bound=1), **rest}), (planning(),)),
        (6, PlannedAgain(EMPTY), (Evict(b),)),
        (6, EvictionAccepted("b"), ()),
        (7, seen("c", {web: running(1), api: running(0), job: running(1)}), ()),
        (8, seen("c", {web: running(1), api: running(1), job: running(1)}), (planning(),)),
    ]
    drain = play(begun(plan(web, api, job), web, api, job), story)
    assert drain.has_taken_from(web.controller)  # the response to an accepted request may have been lost
