"""Conditions of a running drain: consistent reads, target nodes, and lost spot nodes."""

import itertools
from collections.abc import Callable
from datetime import timedelta
from typing import Any

import msgspec
import pytest

from predicates.objects import Condition, Taint
from predicates.snapshot import DRAIN_TAINT
from rescheduler.draining.actions import Evict, Intent, Step, taint
from rescheduler.draining.events import EvictionAccepted, EvictionRefused
from rescheduler.draining.state import Why
from rescheduler.errors import Retryable
from rescheduler.execution.observation import READS
from rescheduler.housekeeping.loop import RoundOutcome
from rescheduler.observe.events import DrainEnded, DrainStarted, Held, Waiting
from rescheduler.planning.controllers import Controller, JobFacts
from rescheduler.planning.debts import Debt, OpenDebt
from rescheduler.planning.last_look import PreemptedPod
from rescheduler.planning.memory import Memory, dump
from rescheduler.providers.base import Deleted
from rescheduler.settings import Timing
from tests.housekeeping.world import IDENTITY, START, Inline, LoopWorld, Replacement, ScriptedProvider, world
from tests.planning.builders import ON_DEMAND, node, pod

THREE = [pod(f"web-{n}", "od-1") for n in (1, 2, 3)]
CLUSTER = (node("od-1", ON_DEMAND), node("spot-1"), *THREE)


def evictions(here: LoopWorld) -> list[str]:
    return [name for kind, name in here.writes if kind == "evict"]


def edit(here: LoopWorld, name: str, **spec: object) -> None:
    known = here.node(name)
    here.cluster.upsert("Node", msgspec.structs.replace(known, spec=msgspec.structs.replace(known.spec, **spec)))


def lose(here: LoopWorld, name: str) -> None:
    """Make the node NotReady."""
    known = here.node(name)
    status = msgspec.structs.replace(known.status, conditions=(Condition("Ready", "Unknown"),))
    here.cluster.upsert("Node", msgspec.structs.replace(known, status=status))


class TestReads:
    def test_the_targets_of_the_plan_are_read(self) -> None:
        with world(*CLUSTER, node("spot-2")) as here:
            here.loop().round()
            [started] = here.of(DrainStarted)
            assert started.plan is not None
            assert {placement.node for placement in started.plan.placements} == {"spot-1"}
            assert here.asked == [{"od-1", "spot-1"}, {"od-1"}]

    def test_the_targets_of_a_step_and_the_nodes_of_replacements_are_read_before_it(self) -> None:
        with world(*CLUSTER, node("spot-2")) as here:
            here.loop().round()
            assert evictions(here) == ["web-1", "web-2", "web-3"]
            assert here.asked_for_steps == [{"od-1", "spot-1"}] * 3

    def test_a_target_that_is_lost_unseen_stops_the_drain_before_the_next_step(self) -> None:
        """The watch does not report that the node of a replacement pod is gone."""
        with world(*CLUSTER, node("spot-2")) as here:
            here.on_evicted = lambda: setattr(here, "hidden", frozenset({"spot-1"}))
            here.loop().round()
            assert (here.failures, evictions(here), here.marked) == ([Why.API_ERROR], ["web-1"], [])

    @pytest.mark.parametrize(
        ("change", "stopped"),
        [
            (lambda here: here.add(pod("big-1", "spot-1", cpu="4")), Why.TARGET_LOST),
            (lambda here: setattr(here, "hidden", frozenset({"spot-1"})), Why.API_ERROR),
            (lambda here: here.ended.update(web="ReplicaSet default/web is being deleted"), Why.PLAN_CHANGED),
        ],
        ids=["its target is full", "its target is gone unseen", "its owner ends"],
    )
    def test_an_eviction_that_a_budget_rejected_is_read_and_planned_again(
        self, change: Callable[[LoopWorld], object], stopped: Why
    ) -> None:
        with world(*CLUSTER) as here:
            here.answers["default/web-1"] = [EvictionRefused("", "budget", retry_after=30.0), EvictionAccepted("")]
            here.at(10, lambda: change(here))
            here.loop().round()
            assert (here.failures, evictions(here), here.marked) == ([stopped], ["web-1"], [])

    @pytest.mark.parametrize(("seconds", "sent"), [(4.0, 1), (6.0, 2)])
    def test_an_eviction_that_waited_behind_slow_requests_is_planned_again(
        self, monkeypatch: pytest.MonkeyPatch, seconds: float, sent: int
    ) -> None:
        """The first eviction does not leave at once. After more than five seconds its plan is too old."""
        with world(*CLUSTER) as here:
            submit = Inline.submit

            def slowly(self: Inline, perform: Any, *args: Any, **fields: Any) -> Any:
                if isinstance(args[0], Evict) and not evictions(here):
                    monkeypatch.setattr(Inline, "submit", submit)
                    here.pass_time(seconds)
                return submit(self, perform, *args, **fields)

            monkeypatch.setattr(Inline, "submit", slowly)
            here.loop().round()
            assert here.failures == [None]
            first = [asked for asked in here.asked_for_steps if asked == {"od-1", "spot-1"}]
            assert len(first) == len(THREE) + sent - 1

    def test_an_owner_that_ends_before_a_step_stops_the_drain(self) -> None:
        with world(*CLUSTER) as here:
            here.on_evicted = lambda: here.ended.update(web="ReplicaSet default/web is being deleted")
            here.loop().round()
            [failure] = here.of(DrainEnded)
            assert failure.failure is not None
            assert "no-controller: pod default/web-2: ReplicaSet default/web is being" in failure.failure.detail
            assert (evictions(here), here.marked) == (["web-1"], [])

    @pytest.mark.parametrize(
        ("more", "what"),
        [({"cpu": "2"}, "requests more cpu"), ({"priority": 10}, "has a higher priority")],
        ids=["requests", "priority"],
    )
    def test_a_replacement_that_asks_for_more_than_planned_stops_the_drain(
        self, more: dict[str, Any], what: str
    ) -> None:
        """It may preempt pods on spot nodes: admission, a VPA or a new template made it larger."""
        with world(*CLUSTER) as here:
            here.on_evicted = lambda: here.add(pod(f"web-{len(evictions(here))}x", "spot-1", **more))
            here.loop().round()
            [ended] = here.of(DrainEnded)
            assert ended.failure is not None
            assert (ended.failure.why, evictions(here), here.marked) == (Why.PLAN_CHANGED, ["web-1"], [])
            assert what in ended.failure.detail

    def test_new_targets_of_a_new_plan_are_read(self) -> None:
        with world(*CLUSTER, node("spot-2")) as here:
            loop = here.loop()
            here.on_taint = lambda: here.add(pod("big-1", "spot-1", cpu="3"))
            assert loop.round() is RoundOutcome.DRAINED
            assert here.asked[:2] == [{"od-1", "spot-1"}, {"od-1", "spot-1", "spot-2"}]
            assert here.writes[0] == ("taint", "od-1")

    def test_replica_sets_of_evicted_pods_are_read(self) -> None:
        """A rollout during the drain creates a new ReplicaSet."""
        with world(*CLUSTER[:2], pod("shop/web-1", "od-1"), pod("db-1", "od-1")) as here:
            here.replacements.update({"web": Replacement.UNREADY, "db": Replacement.UNREADY})
            here.at(10, lambda: here.add(pod("shop/web2-1", "spot-1")))
            for app in ("web", "db"):
                here.at(20, lambda app=app: here.recover(app))  # type: ignore[misc]
            here.loop().round()
            assert here.failures == [None]
            assert here.siblings[-1] == {"web", "web2", "db"}

    def test_a_plan_that_changes_with_each_read_is_not_executed(self) -> None:
        with world(*CLUSTER, *(node(f"spot-{n}") for n in range(2, 9))) as here:
            full = itertools.count(1)

            def fill() -> None:
                number = next(full)
                here.add(pod(f"big{number}-1", f"spot-{number}", cpu="4"))

            here.on_read = fill
            here.loop().round()
            assert (here.failures, evictions(here), here.marked) == ([Why.API_ERROR], [], [])
            assert len(here.asked) == READS

    def test_the_machine_is_removed_after_another_read_5_s_after_the_taint(self) -> None:
        with world(*CLUSTER) as here:
            pool = ScriptedProvider([Deleted()])
            ordered_at: list[float] = []
            here.on_taint = lambda: ordered_at.append(here.now)
            here.loop(provider=pool).round()
            assert here.asked == [{"od-1", "spot-1"}, {"od-1"}]
            assert ordered_at[-1] >= 5
            assert here.failures == [None]

    def test_a_pod_that_is_bound_within_5_s_is_evicted(self) -> None:
        with world(*CLUSTER) as here:
            here.at(4, lambda: here.add(pod("late-1", "od-1")))
            here.loop(provider=ScriptedProvider([Deleted()])).round()
            assert (evictions(here)[-1], here.failures) == ("late-1", [None])
            assert here.writes[-1] == ("delete", "od-1")


JOB = pod("batch-1", "od-1", owner="batch/v1/Job")
FRAGILE = JobFacts(backoff_limit=0)


class TestJobsDuringADrain:
    """Jobs whose pods were created or failed after the node was chosen."""

    def test_a_pod_that_is_bound_during_marking_is_kept_if_its_job_would_fail(self) -> None:
        with world(*CLUSTER) as here:
            here.controllers["batch"] |= {"wanted": 1, "job": FRAGILE}
            here.on_taint = lambda: here.add(JOB)
            here.loop().round()
            assert (here.failures, evictions(here), here.marked) == ([Why.PLAN_CHANGED], [], [])

    def test_the_next_pod_is_kept_if_its_job_has_reached_its_backoff_limit(self) -> None:
        with world(*CLUSTER[:2], JOB, pod("batch-2", "od-1", owner="batch/v1/Job")) as here:
            here.controllers["batch"] |= {"wanted": 2, "job": JobFacts(backoff_limit=4, failures=1)}
            here.replacements["batch"] = Replacement.UNREADY
            here.at(20, lambda: here.controllers["batch"].update(job=JobFacts(backoff_limit=4, failures=4)))
            here.at(40, lambda: here.recover("batch"))
            here.loop().round()
            assert (here.failures, evictions(here), here.marked) == ([Why.PLAN_CHANGED], ["batch-1"], [])


TARGET_LOST: dict[str, Callable[[LoopWorld], object]] = {
    "deleted": lambda here: here.cluster.delete("Node", "spot-1"),
    "cordoned": lambda here: edit(here, "spot-1", unschedulable=True),
    "not Ready": lambda here: lose(here, "spot-1"),
    "filled with other pods": lambda here: here.add(pod("big-1", "spot-1", cpu="3")),
}


@pytest.mark.parametrize("lose_target", TARGET_LOST.values(), ids=TARGET_LOST)
class TestTargets:
    def test_a_lost_target_stops_the_drain(self, lose_target: Callable[[LoopWorld], object]) -> None:
        with world(*CLUSTER) as here:
            here.replacements["web"] = Replacement.UNREADY
            here.at(30, lambda: lose_target(here))
            here.at(40, lambda: here.recover("web"))
            here.loop().round()
            assert (here.failures, evictions(here), here.marked) == ([Why.TARGET_LOST], ["web-1"], [])

    def test_the_drain_continues_if_another_node_has_room(self, lose_target: Callable[[LoopWorld], object]) -> None:
        with world(*CLUSTER, node("spot-2")) as here:
            here.replacements["web"] = Replacement.UNREADY
            here.at(30, lambda: lose_target(here))
            here.at(40, lambda: here.recover("web"))
            here.loop().round()
            assert (here.failures, evictions(here)) == ([None], ["web-1", "web-2", "web-3"])


def test_a_quota_costs_one_pod() -> None:
    with world(*CLUSTER, pod("db-1", "od-1"), node("spot-2")) as here:
        here.replacements.update({"web": Replacement.REFUSED, "db": Replacement.REFUSED})
        here.loop().round()
        assert (here.failures, len(evictions(here)), here.marked) == ([Why.REPLACEMENT_REFUSED], 1, [])


class TestSpotSettling:
    def test_drains_wait_after_a_burst_of_lost_spot_nodes(self) -> None:
        with world(*CLUSTER, *(node(f"spot-{n}") for n in range(2, 5))) as here:
            loop = here.loop()
            here.config_map.put(dump(Memory(drained_at=START - timedelta(seconds=590))))
            assert loop.round() is RoundOutcome.HELD
            here.cluster.delete("Node", "spot-3")
            lose(here, "spot-4")
            here.pass_time(10)
            assert loop.round() is RoundOutcome.HELD
            here.pass_time(599)
            assert loop.round() is RoundOutcome.HELD
            detail = "many spot nodes were lost at once; drains wait until 2026-01-01T12:10:10Z"
            assert here.of(Held)[1:] == [Held(Waiting.SPOT_SETTLING, detail)] * 2
            here.pass_time(1)
            assert loop.round() is RoundOutcome.DRAINED

    def test_losses_that_are_far_apart_are_not_a_burst(self) -> None:
        with world(*CLUSTER, *(node(f"spot-{n}") for n in range(2, 5))) as here:
            db = Controller("default", "ReplicaSet", "db", "uid-of-db")
            here.config_map.put(dump(Memory(debts=(OpenDebt("od-9", START, Debt(db, 1, 1)),))))
            loop = here.loop(Timing(landing_timeout=timedelta(minutes=15)))
            assert loop.round() is RoundOutcome.HELD
            for name in ("spot-3", "spot-4"):
                here.pass_time(400)
                here.cluster.delete("Node", name)
                assert loop.round() is RoundOutcome.HELD
            here.add(pod("db-1", "spot-1"))
            assert loop.round() is RoundOutcome.DRAINED


@pytest.mark.parametrize("priority", [1000, None], ids=["of a lower priority", "of the same priority"])
def test_pods_that_replacements_preempt_stop_the_drain_and_are_owed(priority: int | None) -> None:
    """Only pods of a lower priority can be preempted by the waiting replacement pod."""
    low = pod("low-1", "spot-1"), pod("low-2", "spot-1")
    web = [pod(f"web-{number}", "od-1", priority=priority) for number in (1, 2)]
    with world(node("od-1", ON_DEMAND), node("spot-1", cpu="16"), *low, *web) as here:
        here.replacements["web"] = Replacement.UNBOUND

        def preempt() -> None:
            victim = here.cluster.pods["default/low-1"]
            ending = msgspec.structs.replace(victim, preempted=True, deletion_timestamp=here.time(30))
            here.cluster.upsert("Pod", ending)

        here.at(2, preempt)
        here.at(5, lambda: here.cluster.delete("Pod", "default/low-1"))
        here.loop().round()
        [ended] = here.of(DrainEnded)
        assert ended.failure is not None
        assert here.marked == []
        stopped = Why.PREEMPTED if priority else Why.REPLACEMENT_NOT_BOUND
        assert ended.failure.why is stopped
        owed = {owed.debt.controller.name: owed.debt.ready for owed in here.memory.debts}
        assert owed == {"web": 2} | ({"low": 2} if priority else {})
        assert ("evict", "web-2") not in here.writes


PREEMPTED = {
    "conditions": [{"type": "DisruptionTarget", "status": "True", "reason": "PreemptionByScheduler"}],
}
#: When the replacement pod was created, which preempts another pod, and why the resumed drain fails.
CREATED = {"2026-01-01T11:59:50Z": Why.PREEMPTED, "2026-01-01T11:58:00Z": None}


@pytest.mark.parametrize(("created", "stopped"), CREATED.items(), ids=["by the drain", "before the drain"])
def test_pods_that_were_preempted_before_a_kill_are_attributed_to_the_resumed_drain(
    created: str, stopped: Why | None
) -> None:
    """The earlier process was killed after the preemption, before it noticed or stored it."""
    moved = pod("web-1", "spot-1", priority=1000, created=created)
    low = pod("low-1", "spot-1", status=PREEMPTED, deleted=True)
    left = pod("web-2", "od-1", priority=1000, created="2026-01-01T10:00:00Z")
    owed = Debt(Controller("default", "ReplicaSet", "web", "uid-of-web"), 2, 2, owner_uids=("uid-of-web",))
    since = START - timedelta(seconds=20)
    before = Intent("before", Step.DRAINING, since, ("uid-gone", "uid-web-2"), identity=IDENTITY, debts=(owed,))
    with world(node("od-1", ON_DEMAND), node("spot-1", cpu="16"), moved, low, left) as here:
        here.mark("od-1", before.dump(), taint("before"))
        here.at(5, lambda: here.cluster.delete("Pod", "default/low-1"))
        here.loop().round()
        assert here.failures == [stopped]
        assert ("low" in {each.debt.controller.name for each in here.memory.debts}) is (stopped is not None)
        assert ("web-2" in evictions(here)) is (stopped is None)


@pytest.mark.parametrize(("by", "stopped"), [("uid-web-1", Why.PREEMPTED), ("uid-other", None)])
def test_a_resumed_drain_learns_from_events_of_preempted_pods_that_are_gone(by: str, stopped: Why | None) -> None:
    """The earlier process was killed, and the preempted pod had left before the next one read the pods."""
    moved = pod("web-1", "spot-1", priority=1000, created="2026-01-01T11:59:50Z")
    left = pod("web-2", "od-1", priority=1000, created="2026-01-01T10:00:00Z")
    owed = Debt(Controller("default", "ReplicaSet", "web", "uid-of-web"), 2, 2, owner_uids=("uid-of-web",))
    since = START - timedelta(seconds=20)
    before = Intent("before", Step.DRAINING, since, ("uid-gone", "uid-web-2"), identity=IDENTITY, debts=(owed,))
    with world(node("od-1", ON_DEMAND), node("spot-1", cpu="16"), moved, left) as here:
        here.mark("od-1", before.dump(), taint("before"))
        here.preempted_pods.append(PreemptedPod("other/low-1", by))
        here.loop().round()
        assert here.failures == [stopped]
        assert ("web-2" in evictions(here)) is (stopped is None)
        assert here.marked == []


def test_pods_that_are_preempted_while_the_provider_refuses_keep_the_machine() -> None:
    """A moved pod is lost, and its next replacement preempts a pod of another namespace, which has no other place."""
    web, low = pod("web-1", "od-1", priority=1000), pod("other/low-1", "spot-1")
    with world(node("od-1", ON_DEMAND), node("spot-1", cpu="16"), low, web) as here:
        provider = ScriptedProvider([Retryable("503")])

        def preempt() -> None:
            assert provider.orders
            moved = here.cluster.pods["default/web-1-again"]
            here.cluster.delete("Pod", moved.key)
            deleted_at(here, "other/low-1", preempted=True)
            here.cluster.delete("Pod", "other/low-1")
            here.cluster.upsert("Pod", msgspec.structs.replace(moved, name="web-1-third", uid="uid-third"))
            provider.answers = [Deleted()]

        here.at(12, preempt)
        here.loop(provider=provider).round()
        assert here.failures == [Why.REPLACEMENT_LOST]
        assert {owed.debt.controller.name for owed in here.memory.debts} == {"web", "low"}
        assert here.marked == []
        assert len(provider.orders) == 1


REMOVED = {"uid-third": Why.PREEMPTED, "uid-other": None}


@pytest.mark.parametrize(("by", "stopped"), REMOVED.items(), ids=["by a moved pod", "by another pod"])
def test_a_resumed_removal_learns_from_events_of_preempted_pods(by: str, stopped: Why | None) -> None:
    """While no daemon ran, a moved pod was lost, and its next replacement preempted a pod, which is gone."""
    third = pod("web-3", "spot-1", priority=1000, created="2026-01-01T11:59:50Z")
    third["metadata"]["uid"] = "uid-third"
    owed = Debt(Controller("default", "ReplicaSet", "web", "uid-of-web"), 1, 1, owner_uids=("uid-of-web",))
    since = START - timedelta(seconds=20)
    before = Intent("before", Step.REMOVING, since, group="workers", identity=IDENTITY, debts=(owed,))
    with world(node("od-1", ON_DEMAND), node("spot-1", cpu="16"), third) as here:
        here.mark("od-1", before.dump(), taint("before"))
        here.preempted_pods.append(PreemptedPod("other/low-1", by))
        provider = ScriptedProvider([Deleted()])
        here.loop(provider=provider).round()
        assert (here.failures, len(provider.orders)) == (([stopped], 0) if stopped else ([], 1))
        assert here.marked == []


def test_a_removal_does_not_go_on_before_the_events_are_read() -> None:
    owed = Debt(Controller("default", "ReplicaSet", "web", "uid-of-web"), 1, 1, owner_uids=("uid-of-web",))
    before = Intent("before", Step.REMOVING, START, group="workers", identity=IDENTITY, debts=(owed,))
    with world(node("od-1", ON_DEMAND), node("spot-1", cpu="16"), pod("web-1", "spot-1")) as here:
        here.mark("od-1", before.dump(), taint("before"))
        errors = [Retryable("list events: 503")]

        def read() -> list[PreemptedPod]:
            if errors:
                raise errors.pop()
            return []

        here.preempted = read  # type: ignore[method-assign]
        provider = ScriptedProvider([Deleted()])
        loop = here.loop(provider=provider)
        assert loop.round() is RoundOutcome.BROKEN
        assert (here.marked, provider.orders) == (["od-1"], [])
        here.pass_time(60)
        loop.round()
        assert (here.marked, len(provider.orders)) == ([], 1)


def test_a_pod_that_left_by_itself_and_is_lost_again_keeps_the_machine() -> None:
    """Its owner deleted it after the node was closed, so that it was never evicted, but had no place there any more."""
    web, db = pod("web-1", "od-1"), pod("db-1", "od-1")
    with world(node("od-1", ON_DEMAND), node("spot-1", cpu="16"), web, db) as here:
        provider = ScriptedProvider([Retryable("503"), Deleted()])
        provider.on_order = lambda: here.cluster.delete("Pod", "default/web-1-again")
        here.replacements["db"] = Replacement.UNREADY
        here.at(2, lambda: here.moves("default/web-1"))
        here.at(4, lambda: here.recover("db"))
        here.loop(provider=provider).round()
        assert evictions(here) == ["db-1"]
        assert here.failures == [Why.REPLACEMENT_LOST]
        assert (here.marked, len(provider.orders)) == ([], 1)


def keeps(here: LoopWorld, **annotations: str) -> None:
    """Annotate the drained node, as a person does who wants to keep it."""
    known = here.node("od-1")
    meta = msgspec.structs.replace(known.metadata, annotations={**known.metadata.annotations, **annotations})
    here.cluster.upsert("Node", msgspec.structs.replace(known, metadata=meta))


def is_removed_by_another_tool(here: LoopWorld) -> None:
    taints = here.node("od-1").spec.taints
    edit(here, "od-1", taints=(*taints, Taint(key="ToBeDeletedByClusterAutoscaler", effect="NoSchedule")))


KEPT: dict[str, Callable[[LoopWorld], object]] = {
    "an opt-out": lambda here: keeps(here, **{"spot-rescheduler/do-not-drain": "true"}),
    "an opt-out of Cluster Autoscaler": lambda here: keeps(
        here, **{"cluster-autoscaler.kubernetes.io/scale-down-disabled": "true"}
    ),
    "another tool": is_removed_by_another_tool,
}


@pytest.mark.parametrize("act", KEPT.values(), ids=KEPT)
def test_what_is_written_to_the_node_while_the_provider_refuses_keeps_the_machine(
    act: Callable[[LoopWorld], object],
) -> None:
    with world(node("od-1", ON_DEMAND), node("spot-1", cpu="16"), pod("web-1", "od-1")) as here:
        provider = ScriptedProvider([Retryable("503"), Deleted()], on_order=lambda: act(here))
        here.loop(provider=provider).round()
        assert here.failures == [Why.PLAN_CHANGED]
        assert len(provider.orders) == 1
        assert DRAIN_TAINT.key not in {taint.key for taint in here.node("od-1").spec.taints}


@pytest.mark.parametrize(("seconds", "orders"), [(9.0, 1), (11.0, 0)])
def test_no_order_rests_on_reads_that_took_long(seconds: float, orders: int) -> None:
    """The pods are listed slowly. What was read before that may have changed."""
    with world(node("od-1", ON_DEMAND), node("spot-1", cpu="16"), pod("web-1", "od-1")) as here:
        listed = here.pods

        def slowly(*args: Any) -> Any:
            here.pass_time(seconds)
            return listed(*args)

        provider = ScriptedProvider([Deleted()])
        provider.before_order = lambda: setattr(here, "pods", slowly)
        here.stop_at(100)
        here.loop(provider=provider).round()
        assert len(provider.orders) == orders


def test_no_order_is_sent_if_the_lease_is_lost_during_the_reads() -> None:
    with world(node("od-1", ON_DEMAND), node("spot-1", cpu="16"), pod("web-1", "od-1")) as here:
        listed = here.pods

        def losing(*args: Any) -> Any:
            here.leading = False
            return listed(*args)

        provider = ScriptedProvider([Deleted()])
        provider.before_order = lambda: setattr(here, "pods", losing)
        here.loop(provider=provider).round()
        assert (here.failures, provider.orders) == ([Why.LEADERSHIP_LOST], [])


def deleted_at(here: LoopWorld, key: str, *, preempted: bool) -> None:
    """Begin to delete a pod, as the scheduler does with a preempted pod or as any other client does."""
    victim = here.cluster.pods[key]
    here.cluster.upsert("Pod", msgspec.structs.replace(victim, preempted=preempted, deletion_timestamp=here.time(30)))


def nominate(here: LoopWorld, key: str, on: str) -> None:
    here.cluster.upsert("Pod", msgspec.structs.replace(here.cluster.pods[key], nominated_node_name=on))


def at_once(here: LoopWorld) -> None:
    """The victim is gone and its place is taken before the drain looks again."""
    deleted_at(here, "default/low-1", preempted=True)
    here.cluster.delete("Pod", "default/low-1")
    here.cluster.upsert(
        "Pod", msgspec.structs.replace(here.cluster.pods["default/web-1-again"], node_name="spot-1", phase="Running")
    )


def by_nomination(here: LoopWorld) -> None:
    """The condition of the victim is not known, but the replacement pod is nominated to its node."""
    nominate(here, "default/web-1-again", "spot-1")
    deleted_at(here, "default/low-1", preempted=False)


def after_the_nomination(here: LoopWorld) -> None:
    nominate(here, "default/web-1-again", "spot-1")
    deleted_at(here, "default/low-1", preempted=True)
    here.at(here.now + 3, lambda: here.cluster.delete("Pod", "default/low-1"))


def for_others(here: LoopWorld) -> None:
    """The replacement pod is nominated to another node than that of the victim."""
    nominate(here, "default/web-1-again", "spot-2")
    deleted_at(here, "default/low-1", preempted=True)


def deleted_elsewhere(here: LoopWorld) -> None:
    """A pod of a lower priority is deleted on a node to which no replacement pod is nominated."""
    nominate(here, "default/web-1-again", "spot-2")
    deleted_at(here, "default/low-1", preempted=False)


#: What happens to a pod of a lower priority while a replacement pod waits, and whether it counts as preempted by it.
PREEMPTIONS: dict[str, tuple[Callable[[LoopWorld], object], bool]] = {
    "gone before it is seen": (at_once, True),
    "by its node alone": (by_nomination, True),
    "on the nominated node": (after_the_nomination, True),
    "on another node": (for_others, False),
    "deleted on another node": (deleted_elsewhere, False),
}


@pytest.mark.parametrize(("happens", "ours"), PREEMPTIONS.values(), ids=PREEMPTIONS)
@pytest.mark.parametrize("owner", ["ReplicaSet", "apps.kruise.io/v1alpha1/CloneSet", None])
def test_preempted_pods_are_attributed_by_their_condition_and_by_nominated_replacements(
    happens: Callable[[LoopWorld], object], ours: bool, owner: str | None
) -> None:
    """A pod without a controller is owed to nobody, but the drain stops before it costs another one."""
    web = [pod(f"web-{number}", "od-1", priority=1000) for number in (1, 2)]
    spots = (node("spot-1", cpu="16"), node("spot-2", cpu="16"))
    with world(node("od-1", ON_DEMAND), *spots, pod("low-1", "spot-1", owner=owner), *web) as here:
        here.replacements["web"] = Replacement.UNBOUND
        here.at(2, lambda: happens(here))
        here.loop().round()
        [ended] = here.of(DrainEnded)
        assert ended.failure is not None
        assert (ended.failure.why is Why.PREEMPTED) is ours
        owed = {(each.debt.controller.kind, each.debt.ready) for each in here.memory.debts} - {("ReplicaSet", 2)}
        version, _, kind = (owner or "").rpartition("/")
        assert owed == ({(kind, 1)} if ours and owner else set())
        assert {each.debt.controller.api_version for each in here.memory.debts} <= {version, ""}
        assert ("evict", "web-2") not in here.writes
        if ours:
            assert "default/low-1" in str(ended.failure)
