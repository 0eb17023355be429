"""Debts of earlier drains block drains until they are paid, expire or are waived, also after restarts."""

from datetime import timedelta
from typing import Any

import pytest

from rescheduler.draining.eviction_outcomes import EvictionFailed, EvictionRefused
from rescheduler.draining.failures import Why
from rescheduler.errors import InputError
from rescheduler.housekeeping.loop import RoundOutcome
from rescheduler.observe.events import (
    CoolingDown,
    DrainEnded,
    DrainStarted,
    ErrorKind,
    Held,
    OwedChanged,
    Planned,
    Trouble,
    Waiting,
)
from rescheduler.planning.controllers import Controller
from rescheduler.planning.debts import Debt
from rescheduler.planning.memory import Memory, OpenDebt, dump
from rescheduler.planning.outcome import Reason
from rescheduler.settings import Timing
from tests.housekeeping.world import START, LoopWorld, Replacement, world
from tests.planning.builders import ON_DEMAND, node, pod

CLUSTER = (
    node("od-1", ON_DEMAND),
    node("od-2", ON_DEMAND),
    node("spot-1", cpu="16"),
    pod("web-1", "od-1"),
    pod("db-1", "od-2"),
    pod("db-2", "od-2"),
)
WEB = Controller("default", "ReplicaSet", "web", "uid-of-web")
OWED = Debt(WEB, ready=1, bound=1, owner_uids=("uid-of-web",))
LACKS_ONE_POD = (
    "replacement pods are not running yet: default/ReplicaSet/web lacks 1 since the drain of od-1; "
    "rescheduler resume --waive NAMESPACE/KIND/NAME waives a debt"
)
FORBIDDEN = EvictionFailed("", "evict pod default/web-1: webhook says no (403)", retryable=False)
#: No other wait may hide the wait for replacement pods.
IMPATIENT = Timing(node_drain_delay=timedelta(), pending_patience=timedelta(), failure_pause=timedelta())
IMPATIENT_BUT_FOR_PAUSES = Timing(node_drain_delay=timedelta(), pending_patience=timedelta())


def failures(here: LoopWorld) -> list[Why | None]:
    return [event.failure.why if event.failure else None for event in here.of(DrainEnded)]


def drained(here: LoopWorld) -> list[str]:
    return [event.node.name for event in here.of(DrainStarted)]


def waits(here: LoopWorld) -> list[Waiting]:
    """Return the held events without repetitions."""
    waits = [event.waiting for event in here.of(Held)]
    return [waiting for n, waiting in enumerate(waits) if waits[n - 1 : n] != [waiting]]


@pytest.mark.parametrize(
    ("replacement", "why"),
    [
        (Replacement.REFUSED, Why.REPLACEMENT_REFUSED),
        (Replacement.UNSCHEDULABLE, Why.REPLACEMENT_UNSCHEDULABLE),
        (Replacement.UNBOUND, Why.REPLACEMENT_NOT_BOUND),
        (Replacement.UNREADY, Why.LANDING_TIMEOUT),
    ],
)
def test_no_drain_starts_before_the_replacement_pods_of_a_failed_drain_run(replacement: Replacement, why: Why) -> None:
    with world(*CLUSTER) as here:
        here.replacements["web"] = replacement
        loop = here.loop(IMPATIENT)
        assert loop.round() is RoundOutcome.FAILED
        assert (failures(here), here.marked) == ([why], [])
        for _ in range(20):
            here.pass_time(60)
            assert loop.round() is RoundOutcome.HELD
        assert {(event.waiting, event.detail) for event in here.of(Held)} == {(Waiting.LANDING_PENDING, LACKS_ONE_POD)}
        assert here.of(OwedChanged)[-1] == OwedChanged(1)
        here.add(pod("web-2", "spot-1"))
        assert loop.round() is RoundOutcome.DRAINED
        assert drained(here) == ["od-1", "od-2"]
        assert (here.memory.debts, here.of(OwedChanged)[-1]) == ((), OwedChanged(0))


def test_a_paid_debt_does_not_return() -> None:
    with world(*CLUSTER) as here:
        here.config_map.put(dump(Memory(debts=(OpenDebt("od-1", START, OWED),))))
        assert here.loop(IMPATIENT).round() is RoundOutcome.DRAINED
        here.cluster.delete("Pod", "default/web-1-again")
        assert here.loop(IMPATIENT).round() is RoundOutcome.DRAINED


@pytest.mark.parametrize(
    "state",
    [
        pytest.param({"exists": False}, id="deleted"),
        pytest.param({"suspended": True}, id="suspended"),
        pytest.param({"wanted": 0}, id="scaled down"),
        pytest.param({"wanted": 1, "succeeded": 1}, id="a pod that succeeded meanwhile"),
    ],
)
def test_a_debt_expires(state: dict[str, Any]) -> None:
    with world(*CLUSTER) as here:
        here.cluster.delete("Pod", "default/web-1")
        debt = Debt(WEB, ready=1, bound=1, template="old")
        here.config_map.put(dump(Memory(debts=(OpenDebt("od-1", START, debt),))))
        assert here.loop().round() is RoundOutcome.HELD
        here.controllers["web"] = state
        assert here.loop().round() is RoundOutcome.DRAINED
        assert (here.memory.debts, drained(here)) == ((), ["od-2"])


def test_a_roll_out_does_not_end_a_debt() -> None:
    with world(*CLUSTER) as here:
        here.cluster.delete("Pod", "default/web-1")
        here.config_map.put(dump(Memory(debts=(OpenDebt("od-1", START, Debt(WEB, ready=1, bound=1, template="old")),))))
        here.controllers["web"] = {"template": "new", "least_available": 0}
        assert here.loop().round() is RoundOutcome.HELD
        here.add(pod("web-2", "spot-1"))
        assert here.loop().round() is RoundOutcome.DRAINED


def test_a_waived_debt_does_not_hold_drains() -> None:
    with world(*CLUSTER) as here:
        here.cluster.delete("Pod", "default/web-1")
        here.config_map.put(dump(Memory(debts=(OpenDebt("od-1", START, OWED),))))
        assert here.loop().round() is RoundOutcome.HELD
        here.config_map.waive("default/ReplicaSet/web")
        assert here.loop().round() is RoundOutcome.DRAINED
        assert here.memory.debts == ()


def test_a_message_names_only_the_first_debts() -> None:
    with world(*CLUSTER[1:3], *CLUSTER[4:]) as here:
        names = ("a", "b", "c", "d")
        owed = [Debt(Controller("default", "ReplicaSet", name, f"uid-of-{name}"), 2, 2) for name in names]
        here.config_map.put(dump(Memory(debts=tuple(OpenDebt("od-9", START, debt) for debt in owed))))
        here.loop().round()
        [held] = here.of(Held)
        each = "; ".join(f"default/ReplicaSet/{name} lacks 2 since the drain of od-9" for name in names[:3])
        assert held.detail.startswith(f"replacement pods are not running yet: {each} and 1 more controllers; ")
        assert here.of(OwedChanged) == [OwedChanged(8)]


def test_pods_of_a_replica_set_with_an_unrelated_name_are_counted_after_a_restart() -> None:
    """Only the debt contains the ReplicaSet: it was read when the node was marked."""
    deployment = Controller("default", "Deployment", "shop", "uid-of-shop")
    with world(*CLUSTER) as here:
        debt = Debt(deployment, ready=1, bound=1, owner_uids=("uid-of-web",))
        here.config_map.put(dump(Memory(debts=(OpenDebt("od-9", START, debt),))))
        assert here.loop().round() is RoundOutcome.DRAINED


def test_an_evicted_pod_that_is_still_watched_does_not_pay_a_debt() -> None:
    with world(*CLUSTER) as here:
        here.endless = {"default/web-1"}
        loop = here.loop(IMPATIENT)
        assert loop.round() is RoundOutcome.FAILED
        assert loop.round() is RoundOutcome.HELD
        assert waits(here) == [Waiting.LANDING_PENDING]
        here.cluster.delete("Pod", "default/web-1")
        here.add(pod("web-2", "spot-1"))
        assert loop.round() is RoundOutcome.DRAINED


def test_a_controller_that_cannot_be_read_holds_drains() -> None:
    with world(*CLUSTER) as here:
        here.config_map.put(dump(Memory(debts=(OpenDebt("od-1", START, OWED),))))
        here.controller_errors["web"] = InputError("get replicasets default/web: no JSON")
        assert here.loop().round() is RoundOutcome.BROKEN
        assert here.of(Trouble) == [Trouble(ErrorKind.READ, "get replicasets default/web: no JSON")]
        assert (drained(here), len(here.memory.debts)) == ([], 1)


class TestRecords:
    def test_debts_are_stored_before_the_node_is_released(self) -> None:
        with world(*CLUSTER) as here:
            here.replacements["web"] = Replacement.UNSCHEDULABLE
            known: list[Memory] = []
            here.on_release = lambda: known.append(here.memory)
            here.loop().round()
            assert [memory.debts for memory in known] == [(OpenDebt("od-1", known[0].debts[0].since, OWED),)]

    def test_a_stop_during_a_drain_stores_the_debts_of_evicted_pods(self) -> None:
        """There is no debt, because none of its pods was evicted."""
        with world(*CLUSTER[:4], pod("db-1", "od-1")) as here:
            here.replacements["db"] = Replacement.UNBOUND
            here.stop_at(5)
            here.loop().run()
            assert (failures(here), here.marked) == ([Why.STOPPED], [])
            db = Controller("default", "ReplicaSet", "db", "uid-of-db")
            assert [owed.debt for owed in here.memory.debts] == [Debt(db, 1, 1, owner_uids=("uid-of-db",))]
            here.stopping = False
            here.pass_time(600)
            assert here.loop().round() is RoundOutcome.HELD
            assert waits(here) == [Waiting.LANDING_PENDING]

    def test_a_failed_drain_that_evicted_a_pod_starts_the_drain_delay(self) -> None:
        with world(*CLUSTER) as here:
            here.replacements["web"] = Replacement.UNSCHEDULABLE
            loop = here.loop(Timing(pending_patience=timedelta(), failure_pause=timedelta()))
            assert loop.round() is RoundOutcome.FAILED
            here.recover("web")
            assert loop.round() is RoundOutcome.HELD
            assert waits(here) == [Waiting.DRAIN_DELAY]

    @pytest.mark.parametrize(
        ("tries", "answers", "reason"),
        [
            pytest.param({"default/web-1": FORBIDDEN}, [], Reason.EVICTION_REFUSED, id="in the dry run"),
            pytest.param({}, [FORBIDDEN], Reason.COOLING_DOWN, id="after the dry run"),
        ],
    )
    def test_a_drain_without_an_eviction_only_cools_down_its_node(
        self, tries: dict[str, Any], answers: list[Any], reason: Reason
    ) -> None:
        with world(*CLUSTER) as here:
            here.tries, here.answers["default/web-1"] = tries, answers
            loop = here.loop()
            assert loop.round() is RoundOutcome.FAILED
            assert here.memory.drained_at is None
            assert [event.failures for event in here.of(CoolingDown)] == [1]
            assert loop.round() is RoundOutcome.DRAINED
            assert here.memory.debts == ()
            [rejected] = here.of(Planned)[-1].planning.rejected
            assert (rejected.node, rejected.reason) == ("od-1", reason)
            assert drained(here) == ["od-1", "od-2"]

    def test_a_budget_that_rejects_the_dry_run_blocks_its_node(self) -> None:
        with world(*CLUSTER) as here:
            here.tries["default/web-1"] = EvictionRefused("", "would violate the budget web", None)
            loop = here.loop()
            assert loop.round() is RoundOutcome.FAILED
            assert ("evict", "web-1") not in here.writes
            assert loop.round() is RoundOutcome.DRAINED
            [rejected] = here.of(Planned)[-1].planning.rejected
            [blocker] = rejected.blockers
            detail = "would violate the budget web; no new attempt before 2026-01-01T12:05:00Z"
            assert (blocker.reason, blocker.detail) == (Reason.EVICTION_REFUSED, detail)

    def test_each_failed_landing_doubles_the_pause(self) -> None:
        names = {"od-1": "a", "od-2": "b", "od-3": "c", "od-4": "d"}
        pods = [pod(f"{app}-1", name) for name, app in names.items()]
        with world(*(node(name, ON_DEMAND) for name in names), node("spot-1", cpu="16"), *pods) as here:
            loop = here.loop(IMPATIENT_BUT_FOR_PAUSES)
            pauses: list[timedelta] = []
            for name in ("od-1", "od-2", "od-3"):
                here.replacements[names[name]] = Replacement.UNSCHEDULABLE
                assert loop.round() is RoundOutcome.FAILED
                here.recover(names[name])
                here.cluster.delete("Node", name)
                assert loop.round() is RoundOutcome.HELD
                until = here.memory.failure.until
                assert until is not None
                pauses.append(until - here.clock.now())
                here.pass_time(pauses[-1].total_seconds())
            assert pauses == [timedelta(minutes=10), timedelta(minutes=20), timedelta(minutes=40)]
            assert waits(here) == [Waiting.FAILURE_PAUSE]
            assert loop.round() is RoundOutcome.DRAINED
            assert here.memory.failure.times == 0
