"""Single drains on a cluster in memory, in frozen time."""

import itertools
from collections.abc import Callable
from dataclasses import replace
from datetime import timedelta
from typing import Any

import msgspec
import pytest

from predicates.objects import Taint
from predicates.snapshot import Snapshot
from rescheduler.draining import actions
from rescheduler.draining.actions import Intent, Step
from rescheduler.draining.events import EvictionRefused, EvictionResult
from rescheduler.draining.exits import REQUEST_INTERVAL, REQUEST_SECONDS
from rescheduler.draining.state import Failure, Why
from rescheduler.errors import (
    BackendUnavailable,
    Conflict,
    Forbidden,
    NotFound,
    Permanent,
    ReschedulerError,
    Retryable,
    Unauthorized,
)
from rescheduler.facts.round_facts import RoundFacts
from rescheduler.housekeeping.loop import RoundOutcome
from rescheduler.kube.cluster import NodeEdit
from rescheduler.observe.events import (
    CoolingDown,
    DrainEnded,
    DrainStarted,
    ErrorKind,
    EvictionAnswered,
    Held,
    InvolvedNode,
    MachineAnswered,
    MachineGone,
    MachineOrdered,
    Sweep,
    Swept,
    Trouble,
    Waiting,
)
from rescheduler.planning.controllers import Controller
from rescheduler.planning.debts import Debt
from rescheduler.planning.outcome import Blocker, Reason
from rescheduler.planning.rules.candidates import PROXIES
from rescheduler.providers.base import Accepted, AlreadyGone, Deleted, DeleteOutcome, Refusal, Refused
from rescheduler.providers.base import Failed as RemovalFailed
from rescheduler.providers.base import NodeRef as MachineRef
from rescheduler.settings import Timing
from tests.housekeeping.world import IDENTITY, START, LoopWorld, Replacement, ScriptedProvider, blockers, world
from tests.planning.builders import ON_DEMAND, Manifest, node, pod

CLUSTER = (
    node("od-1", ON_DEMAND),
    node("spot-1"),
    pod("web-1", "od-1"),
    pod("web-2", "od-1"),
)
MARKED = [("taint", "od-1")] * 2  # the second write adds the debts
#: A renewal of the mark that stores the times of the drain.
TIMES = ("taint", "od-1")
OD = InvolvedNode("od-1", "uid-od-1")
EVICTIONS = [("evict", "web-1"), ("evict", "web-2")]
WEB = Controller("default", "ReplicaSet", "web", "uid-of-web")
QUESTIONS = (
    10,
    20,
    40,
    80,
    160,
    300,
    300,
    300,
    300,
)  # seconds between checks of a machine in half an hour
OWED = Debt(WEB, ready=2, bound=2, owner_uids=("uid-of-web",))


def ended(here: LoopWorld) -> DrainEnded:
    [event] = here.of(DrainEnded)
    assert isinstance(event, DrainEnded)
    return event


def why(here: LoopWorld) -> Why | None:
    failure = ended(here).failure
    return failure.why if failure else None


def test_a_drain_taints_then_evicts_then_removes_the_taint() -> None:
    with world(*CLUSTER) as here:
        here.loop().round()
        assert here.writes == [*MARKED, *EVICTIONS, ("untaint", "od-1")]
        assert [str(pod) for pod in ended(here).evicted] == ["default/web-1", "default/web-2"]
        assert [event.result for event in here.of(EvictionAnswered)] == [EvictionResult.EVICTED] * 2


def test_a_drain_goes_on_while_pods_come_and_go_between_any_two_reads(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each read of the watched state applies changes: the oldest pod of a Job ends, and the next is created."""
    others = [pod(f"other-{number}", "else-1", owner="Job") for number in range(9)]
    with world(*others, node("else-1", "neither"), *CLUSTER, pod("web-3", "od-1")) as here:
        read, first = here.snapshot, itertools.count()

        def changing() -> Snapshot:
            number = next(first)
            here.cluster.delete("Pod", f"default/other-{number}")
            here.add(pod(f"other-{number + 9}", "else-1", owner="Job"))
            return read()

        monkeypatch.setattr(here, "snapshot", changing)
        here.loop().round()
        assert ended(here).failure is None
        assert [name for verb, name in here.writes if verb == "evict"] == ["web-1", "web-2", "web-3"]


def test_the_intent_is_on_the_node_while_it_is_drained() -> None:
    with world(*CLUSTER) as here:
        here.loop().round()
        until = START + timedelta(minutes=3)
        marked = Intent("me", Step.DRAINING, START, ("uid-web-1", "uid-web-2"), until=until, identity=IDENTITY)
        assert here.intents == [(0, marked), (0, replace(marked, debts=(OWED,)))]
        assert here.marked == []


def test_a_pod_bound_between_plan_and_taint_is_seen() -> None:
    """karpenter#651: the scheduler bound a pod between the validation and the taint."""
    with world(*CLUSTER) as here:
        here.on_taint = lambda: here.add(pod("big-1", "od-1", cpu="3"))
        here.loop().round()
        assert here.writes == [("taint", "od-1"), ("untaint", "od-1")]
        assert why(here) is Why.PLAN_CHANGED


def test_a_drain_waits_for_a_watch_that_lags() -> None:
    with world(*CLUSTER) as here:
        here.unseen = {"late": 7}
        here.at(7, lambda: here.add(pod("late", "od-1") | {"metadata": {**pod("late")["metadata"], "uid": "late"}}))
        here.loop().round()
        assert why(here) is None
        assert "default/late" in {str(pod) for pod in ended(here).evicted}


def test_a_watch_that_never_agrees_fails_the_drain_before_any_eviction() -> None:
    with world(*CLUSTER) as here:
        here.unseen = {"never": 1e9}
        here.loop().round()
        assert here.writes == [("taint", "od-1"), ("untaint", "od-1")]
        assert why(here) is Why.API_ERROR


def test_a_pod_that_does_not_terminate_fails_the_drain() -> None:
    with world(*CLUSTER) as here:
        here.endless = {"default/web-1"}
        here.loop().round()
        assert why(here) is Why.TERMINATION_TIMEOUT
        assert 60 <= ended(here).seconds < 62  # its grace period of 30 s, and a margin
        assert here.marked == []


def test_a_budget_that_rejects_an_eviction_for_too_long_fails_the_drain() -> None:
    with world(*CLUSTER) as here:
        here.answers["default/web-1"] = [EvictionRefused("", "would violate web")]
        here.loop().round()
        assert why(here) is Why.EVICTION_TIMEOUT
        assert 120 <= ended(here).seconds < 122
        assert [event.failures for event in here.of(CoolingDown)] == [1]


def test_a_stop_during_a_drain_rolls_it_back_without_a_cooldown() -> None:
    with world(*CLUSTER) as here:
        here.endless = {"default/web-1"}
        here.stop_at(5)
        here.loop().run()
        assert why(here) is Why.STOPPED
        assert here.now < 20
        assert here.marked == []
        assert here.of(CoolingDown) == []


def test_a_lost_lease_stops_the_drain_at_once_and_the_next_leader_resumes_it() -> None:
    with world(*CLUSTER) as here:
        here.endless = {"default/web-1"}
        here.at(5, lambda: setattr(here, "leading", False))
        here.loop().round()
        assert (why(here), ended(here).tainted) == (Why.LEADERSHIP_LOST, True)
        assert here.writes == [*MARKED, ("evict", "web-1"), TIMES]
        assert here.marked == ["od-1"]

        here.leading = True
        here.endless.clear()
        here.loop(holder="the next").round()
        assert here.of(Swept)[0].done is Sweep.RESUMED
        assert here.intents[-1][1].debts == (OWED,)
        assert here.of(DrainEnded)[-1].failure is None
        assert here.marked == []


@pytest.mark.parametrize("remaining", ["the Node", "nothing"])
def test_removed_marks_in_a_stale_watch_are_not_resumed(remaining: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """A drain that has just ended is not resumed, and a deleted Node is not a failure."""
    without_spot = [manifest for manifest in CLUSTER if manifest["metadata"]["name"] != "spot-1"]
    with world(*without_spot) as here:
        here.mark("od-1", Intent("me", Step.REMOVING, START, group="workers", identity=IDENTITY).dump())
        marked = here.node("od-1")
        loop = here.loop(provider=ScriptedProvider([Deleted()]))
        if remaining == "nothing":
            monkeypatch.setattr(LoopWorld, "node", lambda *_: (_ for _ in ()).throw(NotFound("node od-1 is not there")))
        else:
            bare = msgspec.structs.replace(marked, metadata=msgspec.structs.replace(marked.metadata, annotations={}))
            monkeypatch.setattr(LoopWorld, "node", lambda *_: bare)
        loop.round()
        assert (here.of(Swept), here.of(DrainStarted), here.of(DrainEnded), here.of(MachineGone)) == ([], [], [], [])


def test_our_own_leftover_drain_is_rolled_back_and_not_resumed() -> None:
    """The drain failed and the taint was not removed: the drain must not be resumed as if another process began it."""
    with world(*CLUSTER) as here:
        here.endless = {"default/web-1"}
        here.edit_errors = [None, None, *[Retryable("patch node: no answer")] * 20]
        loop = here.loop()
        loop.round()
        assert (why(here), ended(here).tainted) == (Why.TERMINATION_TIMEOUT, True)
        assert here.of(Trouble)[0].detail == "the taint could not be removed: patch node: no answer"
        here.edit_errors = []
        loop.round()
        assert [(event.done, event.holder) for event in here.of(Swept)] == [(Sweep.ROLLED_BACK, "me")]
        assert here.marked == []
        assert len(here.of(DrainStarted)) == 1
        assert [owed.debt for owed in here.memory.debts] == [OWED]


@pytest.mark.parametrize(
    ("error", "expected", "writes"),
    [
        pytest.param(NotFound("gone"), Why.NODE_GONE, [], id="the node is gone"),
        pytest.param(Conflict("tried 5 times"), Why.API_ERROR, [("untaint", "od-1")], id="permanent conflicts"),
        pytest.param(Permanent("no answer"), Why.API_ERROR, [("untaint", "od-1")], id="it may have been written"),
    ],
)
def test_a_taint_that_cannot_be_added_fails_the_drain(error: Any, expected: Why, writes: list[Any]) -> None:
    with world(*CLUSTER) as here:
        here.edit_errors = [error]
        here.loop().round()
        assert (why(here), here.writes) == (expected, writes)


TRIES = int(REQUEST_SECONDS / REQUEST_INTERVAL)


@pytest.mark.parametrize("error", [Retryable("busy (503)"), Unauthorized("refused (401)"), Forbidden("no right (403)")])
@pytest.mark.parametrize(("times", "succeeded"), [(1, True), (TRIES, True), (TRIES + 1, False)])
def test_adding_the_taint_is_retried(error: ReschedulerError, times: int, succeeded: bool) -> None:
    with world(*CLUSTER) as here:
        here.edit_errors = [error] * times
        here.loop().round()
        assert (ended(here).failure is None) is succeeded


def test_a_node_deleted_during_its_drain_ends_the_drain() -> None:
    with world(*CLUSTER) as here:
        here.endless = {"default/web-1"}

        def vanish() -> None:
            here.cluster.delete("Pod", "default/web-1")
            here.cluster.delete("Node", "od-1")

        here.at(5, vanish)
        here.loop().round()
        assert why(here) is Why.NODE_GONE


def test_a_node_deleted_before_the_second_read_ends_the_drain() -> None:
    """The API server reports it before the watch does."""
    with world(*CLUSTER) as here:

        def missing() -> None:
            raise NotFound("get node od-1: not found")

        here.on_read = missing
        here.loop().round()
        assert why(here) is Why.NODE_GONE


def test_a_drain_that_another_tool_completes_is_not_a_failure_and_its_debts_are_tracked() -> None:
    """There is no cooldown. The drain delay is active, and no drain starts while a replacement pod is missing."""
    nodes = (node("od-1", ON_DEMAND), node("od-2", ON_DEMAND), node("spot-1"))
    with world(*nodes, pod("web-1", "od-1"), pod("next-1", "od-2"), pod("next-2", "od-2")) as here:
        here.replacements["web"] = Replacement.UNREADY
        taint = Taint("ToBeDeletedByClusterAutoscaler", "1700000000", "NoSchedule")
        here.at(3, lambda: here.edit_node("od-1", "uid-od-1", NodeEdit(taint=(taint,))))
        here.at(20, lambda: here.cluster.delete("Node", "od-1"))
        loop = here.loop(Timing(node_drain_delay=timedelta(minutes=1)))
        assert loop.round() is RoundOutcome.DRAINED
        end = ended(here)
        detail = "another tool is removing it (taint ToBeDeletedByClusterAutoscaler of Cluster Autoscaler)"
        assert (end.failure, end.removed_by, end.removed, end.tainted) == (None, detail, False, False)
        assert (here.of(CoolingDown), here.memory.drained_at is not None) == ([], True)
        assert [str(owed.debt.controller) for owed in here.memory.debts] == ["default/ReplicaSet/web"]
        here.pass_time(120)
        assert (loop.round(), here.of(Held)[-1].waiting) == (RoundOutcome.HELD, Waiting.LANDING_PENDING)
        here.recover("web")
        assert loop.round() is RoundOutcome.DRAINED
        assert here.drained == ["od-1", "od-2"]


@pytest.mark.parametrize(
    ("owner", "name"),
    [
        pytest.param(RoundFacts, "pods_of", id="while reading the cluster"),
        pytest.param(LoopWorld, "read", id="in a request"),
    ],
)
def test_an_internal_error_stops_the_evictions_and_the_next_round_rolls_back(
    monkeypatch: pytest.MonkeyPatch, owner: type, name: str
) -> None:
    with world(*CLUSTER) as here:
        here.replacements["web"] = Replacement.UNBOUND
        here.at(1, lambda: monkeypatch.setattr(owner, name, lambda *_, **__: 1 / 0))
        loop = here.loop()
        assert loop.round() is RoundOutcome.FAILED
        detail = "ZeroDivisionError: division by zero"
        times = [write for write in here.writes[3:] if write == TIMES]
        assert here.of(Trouble) == [Trouble(ErrorKind.ROUND, detail, "od-1")]
        assert ended(here).failure == Failure(Why.INTERNAL_ERROR, detail)
        assert (here.writes, here.marked) == ([*MARKED, ("evict", "web-1"), *times], ["od-1"])
        assert [event.failures for event in here.of(CoolingDown)] == [1]

        monkeypatch.undo()
        assert loop.round() is RoundOutcome.HELD
        assert here.of(Swept) == [Swept(OD, "me", Sweep.ROLLED_BACK)]
        assert (here.writes[-1], here.marked) == (("untaint", "od-1"), [])
        assert [owed.debt for owed in here.memory.debts] == [OWED]


class TestSweep:
    @pytest.mark.parametrize("step", Step)
    def test_the_marks_of_a_cloudpool_proxy_are_kept(self, step: Step) -> None:
        with world(*CLUSTER) as here:
            written = Intent(f"{PROXIES}0a1b2c3d", step, START, group="pool")
            here.mark("od-1", written.dump(), actions.taint(written.holder))
            here.loop(provider=ScriptedProvider([Deleted()])).round()
            assert (here.writes, here.of(Swept), here.of(DrainStarted)) == ([], [], [])
            assert actions.read(here.node("od-1")) == written

    @pytest.mark.parametrize(
        ("step", "ready", "undone"),
        [
            pytest.param(Step.DRAINING, "True", True, id="its drain is rolled back"),
            pytest.param(Step.REMOVING, "True", True, id="its machine was never removed"),
            pytest.param(Step.REMOVING, "False", False, id="its machine is gone"),
        ],
    )
    def test_expired_marks_of_a_cloudpool_proxy_are_rolled_back_unless_the_machine_is_gone(
        self, step: Step, ready: str, undone: bool
    ) -> None:
        """The mark expires if no proxy renews it."""
        with world(node("od-1", ON_DEMAND, ready=ready), *CLUSTER[1:]) as here:
            until = START + timedelta(hours=1)
            written = Intent(f"{PROXIES}0a1b2c3d", step, START, group="pool", until=until)
            here.mark("od-1", written.dump(), actions.taint(written.holder))
            loop = here.loop()
            here.pass_time(3599)
            loop.round()
            assert here.writes == []
            here.pass_time(2)
            loop.round()
            assert here.writes[:1] == ([("untaint", "od-1")] if undone else [])
            assert [event.done for event in here.of(Swept)] == ([Sweep.ROLLED_BACK] if undone else [])

    @pytest.mark.parametrize("holder", [f"{PROXIES}0a1b2c3d", "cloudpool-proxy"])
    def test_marks_of_holders_with_a_similar_name_are_rolled_back(self, holder: str) -> None:
        """The proxy's own marks, and a daemon in a pod whose name has the same prefix."""
        with world(*CLUSTER) as here:
            here.mark("od-1", Intent(holder, Step.DRAINING, START).dump(), actions.taint(holder))
            here.loop(holder=f"{PROXIES}0a1b2c3d").round()
            assert [event.holder for event in here.of(Swept)] == [holder]

    def test_unreadable_marks_are_removed(self) -> None:
        with world(*CLUSTER) as here:
            here.mark("od-1", "{", actions.taint("x"))
            here.loop().round()
            assert here.of(Swept)[0].done is Sweep.ROLLED_BACK
            assert here.writes[0] == ("untaint", "od-1")

    def test_a_resumed_drain_whose_pods_no_longer_fit_is_rolled_back(self) -> None:
        with world(*CLUSTER, pod("big-1", "od-1", cpu="8")) as here:
            here.mark("od-1", Intent("before", Step.DRAINING, START).dump(), actions.taint("before"))
            here.loop().round()
            assert why(here) is Why.PLAN_CHANGED
            assert here.marked == []
            assert ("evict", "web-1") not in here.writes

    def test_a_removal_without_a_provider_is_rolled_back(self) -> None:
        """The configuration was changed after the termination of the machine was requested."""
        with world(*CLUSTER[:2]) as here:
            here.mark("od-1", Intent("before", Step.REMOVING, START, group="g").dump(), actions.taint("before"))
            here.loop().round()
            assert why(here) is Why.PROVIDER
            assert here.marked == []


def lose_node(here: LoopWorld) -> None:
    here.cluster.delete("Node", "spot-1")


def stop_kubelet(here: LoopWorld) -> None:
    here.add(node("spot-1", ready="Unknown"))


def replace_node(here: LoopWorld) -> None:
    here.cluster.delete("Node", "od-1")
    another = node("od-1", ON_DEMAND)
    another["metadata"]["uid"] = "another"
    here.add(another)


def remove_mark(here: LoopWorld) -> None:
    known = here.node("od-1")
    unmarked = msgspec.structs.replace(known.metadata, annotations={})
    here.cluster.upsert("Node", msgspec.structs.replace(known, metadata=unmarked))


class TestProvider:
    def test_the_machine_is_removed_and_the_node_is_deleted(self) -> None:
        with world(*CLUSTER) as here:
            pool = ScriptedProvider([Deleted("terminated")])
            here.loop(provider=pool).round()
            assert here.writes == [*MARKED, *EVICTIONS, ("taint", "od-1"), ("delete", "od-1")]
            assert (ended(here).removed, why(here)) == (True, None)
            assert [(event.provider, event.outcome) for event in here.of(MachineAnswered)] == [("pool", "deleted")]
            assert pool.orders == [MachineRef("od-1")]

    def test_a_group_whose_size_was_not_reduced_is_reported(self) -> None:
        with world(*CLUSTER) as here:
            here.loop(provider=ScriptedProvider([Deleted(unshrunk="502: the size is still 3")])).round()
            assert (ended(here).removed, ended(here).unshrunk) == (True, "502: the size is still 3")
            assert [(event.kind, event.detail) for event in here.of(Trouble)] == [
                (
                    ErrorKind.PROVIDER,
                    "pool: the machine is gone, but the group size was not reduced: 502: the size is still 3",
                )
            ]

    @pytest.mark.parametrize("own", ["pool: ", "pool ", ""])
    def test_the_name_of_the_provider_is_written_once(self, own: str) -> None:
        """Its errors begin with it, or with it and a name of the system's own."""
        outcomes: list[DeleteOutcome | ReschedulerError] = [
            Permanent(f"{own}p1: 403"),
            RemovalFailed(f"{own}p1: 403", retryable=False),
            Deleted(unshrunk=f"{own}p1: 403"),
        ]
        for answer in outcomes:
            with world(*CLUSTER) as here:
                here.loop(provider=ScriptedProvider([answer])).round()
                texts = [line.text for _, event in here.reported for line in event.log_lines()]
                texts += [event.detail for event in here.of(Trouble)]
                told = [text for text in texts if "p1: 403" in text]
                assert told
                assert [text for text in told if text.count("pool") > 1] == []
        with world(*CLUSTER) as here:
            here.loop(provider=ScriptedProvider([Deleted()], trouble=BackendUnavailable(f"{own}p1: 503"))).round()
            assert {event.detail for event in here.of(Trouble)} == {"pool: p1: 503"}

    def test_the_machine_of_an_empty_node_is_removed(self) -> None:
        with world(*CLUSTER[:2]) as here:
            here.loop(provider=ScriptedProvider([AlreadyGone()])).round()
            assert here.writes == [("taint", "od-1"), ("taint", "od-1"), ("delete", "od-1")]

    def test_a_machine_with_two_nodes_is_not_removed(self) -> None:
        """A kubelet that registers under a new name leaves its old Node behind."""
        twins = [{**node(name, ON_DEMAND), "spec": {"providerID": "aws:///z/i-1"}} for name in ("od-1", "od-2")]
        with world(*twins, *CLUSTER[1:]) as here:
            pool = ScriptedProvider([Deleted()])
            here.loop(provider=pool).round()
            assert (here.writes, pool.orders, here.of(DrainStarted)) == ([], [], [])
            detail = "its machine would end for node od-1, too: spec.providerID is the same"
            assert blockers(here, "od-2") == [Blocker(Reason.SHARED_MACHINE, detail)]

    def test_the_provider_receives_other_nodes_that_may_represent_the_machine(self) -> None:
        address = {"addresses": [{"type": "InternalIP", "address": "10.0.0.7"}]}
        both = [node(name, ON_DEMAND) for name in ("od-1", "od-2")]
        same = [{**manifest, "status": {**manifest["status"], **address}} for manifest in both]
        with world(*same, CLUSTER[1]) as here:
            pool = ScriptedProvider([AlreadyGone()])
            here.loop(provider=pool).round()
            assert [(order.name, [rival.name for rival in order.rivals]) for order in pool.orders] == [
                ("od-1", ["od-2"])
            ] * 2

    def test_a_rejected_removal_was_not_requested(self) -> None:
        with world(*CLUSTER) as here:
            here.loop(provider=ScriptedProvider([Refused(Refusal.BELOW_MINIMUM, "1 of 1")])).round()
            assert (here.of(MachineOrdered), here.marked) == ([], [])
            assert [event.outcome for event in here.of(MachineAnswered)] == ["refused"]

    def test_no_pod_is_evicted_if_the_provider_rejects_the_removal_at_the_start(self) -> None:
        """The group reached its minimum after the node was planned."""
        with world(*CLUSTER) as here:
            pool = ScriptedProvider([Deleted()])
            here.at(0, lambda: setattr(pool, "refusal", Refused(Refusal.BELOW_MINIMUM, "1 of 1")))
            pool.on_notices = lambda: here.pass_time(1)
            here.loop(provider=pool).round()
            assert here.writes == []
            assert ended(here).failure == Failure(Why.REFUSED, "pool: below-minimum: 1 of 1")
            assert len(here.of(CoolingDown)) == 1

    @pytest.mark.parametrize(
        ("answer", "expected"),
        [
            (RemovalFailed("terminate failed", retryable=False), Why.PROVIDER),
            (Refused(Refusal.PROTECTED, "not evictable"), Why.REFUSED),
            (Permanent("no such group"), Why.PROVIDER),
        ],
    )
    def test_a_failed_removal_releases_the_node(self, answer: Any, expected: Why) -> None:
        with world(*CLUSTER) as here:
            here.loop(provider=ScriptedProvider([answer])).round()
            assert why(here) is expected
            assert here.marked == []
            assert here.writes[-1] == ("untaint", "od-1")

    def test_a_provider_that_rejects_only_the_removal_is_the_reason_of_the_node(self) -> None:
        """The provider did not reject the node before the drain. The next drain starts after the cooldown."""
        with world(*CLUSTER) as here:
            loop = here.loop(provider=ScriptedProvider([Refused(Refusal.PROTECTED, "not on a Sunday")]))
            loop.round()
            here.pass_time(240)
            loop.round()
            [blocker] = blockers(here, "od-1")
            assert blocker.reason is Reason.PROVIDER_REFUSED
            assert blocker.detail.startswith("pool: protected: not on a Sunday; no new attempt before ")

    def test_a_pending_removal_is_checked_until_it_is_done(self) -> None:
        with world(*CLUSTER) as here:
            pool = ScriptedProvider([Accepted("booked"), Retryable("busy"), Deleted()])
            here.loop(provider=pool).round()
            assert (ended(here).removed, len(pool.orders)) == (True, 3)

    @pytest.mark.parametrize("loss", [lose_node, stop_kubelet])
    def test_the_machine_stays_if_the_node_with_the_moved_pods_is_lost(
        self, loss: Callable[[LoopWorld], object]
    ) -> None:
        """Their pods look as if they ran, until other controllers of the cluster notice. They are still owed."""
        with world(*CLUSTER) as here:
            pool = ScriptedProvider([Retryable("503"), Deleted()])
            pool.on_order = lambda: loss(here)
            here.loop(provider=pool).round()
            assert (why(here), len(pool.orders)) == (Why.REPLACEMENT_LOST, 1)
            assert [owed.debt.controller for owed in here.memory.debts] == [WEB]

    @pytest.mark.parametrize("change", [replace_node, remove_mark])
    @pytest.mark.parametrize("seconds", [1, 4, 6, 12, 16])
    def test_no_machine_is_ordered_after_its_node_was_replaced_or_lost_its_mark(
        self, seconds: float, change: Callable[[LoopWorld], object]
    ) -> None:
        """The new Node has the name of the former one. Orders before the change had no effect."""
        with world(*CLUSTER) as here:
            pool = ScriptedProvider([Retryable("503")])
            before: list[int] = []
            here.at(seconds, lambda: before.append(len(pool.orders)))
            here.at(seconds, lambda: change(here))
            here.loop(provider=pool).round()
            assert before == [len(pool.orders)]
            assert here.node("od-1")
            assert ("delete", "od-1") not in here.writes

    def test_a_slow_removal_is_checked_in_later_rounds(self) -> None:
        with world(*CLUSTER) as here:
            pool = ScriptedProvider([Accepted("booked")])
            loop = here.loop(provider=pool)
            assert loop.round() is RoundOutcome.DRAINED
            assert (ended(here).handed_over, ended(here).tainted) == (True, True)
            assert here.marked == ["od-1"]

            asked = len(pool.orders)
            assert loop.round() is RoundOutcome.HELD
            assert (len(pool.orders), [held.waiting for held in here.of(Held)]) == (asked, [Waiting.DRAIN_DELAY])
            here.pass_time(10)
            assert loop.round() is RoundOutcome.HELD
            assert (len(pool.orders), len(here.of(DrainEnded))) == (asked + 1, 1)
            here.pass_time(20)
            pool.answers = [Deleted()]
            loop.round()
            assert (here.of(MachineGone), here.writes[-1]) == ([MachineGone(OD)], ("delete", "od-1"))

    def test_machines_that_do_not_terminate_do_not_delay_other_drains(self) -> None:
        """The machines are checked at growing intervals, and other nodes are drained in between."""
        ordered = {name: Intent("before", Step.REMOVING, START, group="workers") for name in ("od-1", "od-2")}
        others = [*map(node, ("od-1", "od-2", "od-3", "od-4"), [ON_DEMAND] * 4), node("spot-1")]
        with world(*others, pod("web-1", "od-3"), pod("db-1", "od-4")) as here:
            for name, written in ordered.items():
                here.mark(name, written.dump(), actions.taint("before"))
            pool = ScriptedProvider([Accepted("booked")], gone=("od-3", "od-4"))
            here.stop_at(1800)
            here.loop(Timing(node_drain_delay=timedelta()), provider=pool).run()
            assert [event.node.name for event in here.of(DrainEnded) if event.removed] == ["od-3", "od-4"]
            assert here.times(DrainEnded, "od-4")[0] < 120
            asked = itertools.pairwise(here.times(MachineOrdered, "od-1"))
            late = [later - earlier - wait for (earlier, later), wait in zip(asked, QUESTIONS, strict=True)]
            assert all(0 <= seconds < 40 for seconds in late), late  # the round, and the turns of others
            assert (here.marked, here.of(CoolingDown)) == (["od-1", "od-2"], [])

    def test_a_stop_during_a_pending_removal_hands_it_over(self) -> None:
        with world(*CLUSTER) as here:
            here.stop_at(8)
            here.loop(provider=ScriptedProvider([Accepted("booked")])).run()
            assert (ended(here).handed_over, here.marked) == (True, ["od-1"])

    def test_after_a_restart_the_provider_receives_the_time_of_the_request(self) -> None:
        with world(*CLUSTER[:2]) as here:
            here.mark("od-1", Intent("before", Step.REMOVING, START, group="workers").dump(), actions.taint("before"))
            here.pass_time(3600)
            pool = ScriptedProvider([Deleted()])
            here.loop(provider=pool).round()
            assert pool.orders == [MachineRef("od-1", ordered_at=START, annotations=pool.orders[0].annotations)]
            assert here.writes == [("taint", "od-1"), ("taint", "od-1"), ("delete", "od-1")]
            assert here.of(MachineGone) == [MachineGone(OD)]

    @pytest.mark.parametrize(
        ("pods", "gone"),
        [
            ((), True),
            ((pod("ended-1", "od-1", deleted="2026-01-01T11:00:00Z"),), True),
            ((pod("web-1", "od-1"),), False),
        ],
        ids=["no pods", "a pod without a kubelet to terminate it", "a pod that was added since"],
    )
    def test_a_machine_that_is_gone_is_confirmed(self, pods: tuple[Manifest, ...], gone: bool) -> None:
        """The Node of such a machine is NotReady; the drain is still resumed."""
        with world(node("od-1", ON_DEMAND, ready="Unknown"), node("spot-1"), *pods) as here:
            here.mark("od-1", Intent("before", Step.REMOVING, START, group="workers").dump(), actions.taint("before"))
            pool = ScriptedProvider([AlreadyGone()], pending=() if gone else ("od-1",))
            here.loop(provider=pool).round()
            assert len(pool.orders) == gone
            assert here.marked == ([] if gone else ["od-1"])
            assert not here.of(EvictionAnswered)

    def test_a_repeated_removal_request_keeps_its_first_time(self) -> None:
        """The intent contains the time of the request. A new drain would lose it and repeat the request too early."""
        with world(*CLUSTER[:2]) as here:
            here.mark("od-1", Intent("before", Step.REMOVING, START, group="workers").dump(), actions.taint("before"))
            pool = ScriptedProvider([Accepted("the order got no response")])
            loop = here.loop(Timing(node_drain_delay=timedelta()), provider=pool)
            for _ in range(2):
                loop.round()
                here.pass_time(10)
            written = actions.read(here.node("od-1"))
            assert written is not None
            assert (written.step, written.since) == (Step.REMOVING, START)
            assert {order.ordered_at for order in pool.orders} == {START}
            assert here.of(DrainStarted) == []
