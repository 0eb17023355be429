"""What earlier drains owe: it holds drains until it is paid, lapses or is waived, and outlasts everything."""

from datetime import timedelta
from typing import Any

import pytest

from rescheduler.draining.state import Why
from rescheduler.errors import InputError
from rescheduler.kube.eviction import Failed, Refused
from rescheduler.loop import Outcome
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
from tests.loop.world import START, Replacement, World, world
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
LACKS = (
    "replacement pods do not run yet: default/ReplicaSet/web lacks 1 since the drain of od-1; "
    "rescheduler resume --waive NAMESPACE/KIND/NAME gives a debt up"
)
FORBIDDEN = Failed("evict pod default/web-1: webhook says no (403)", retryable=False)
#: No other wait may hide the one for replacement pods.
IMPATIENT = Timing(node_drain_delay=timedelta(), pending_patience=timedelta(), failure_pause=timedelta())
IMPATIENT_BUT_FOR_PAUSES = Timing(node_drain_delay=timedelta(), pending_patience=timedelta())


def failures(here: World) -> list[Why | None]:
    return [event.failure.why if event.failure else None for event in here.of(DrainEnded)]


def drained(here: World) -> list[str]:
    return [event.node.name for event in here.of(DrainStarted)]


def waits(here: World) -> list[Waiting]:
    """Without repetitions."""
    told = [event.waiting for event in here.of(Held)]
    return [waiting for n, waiting in enumerate(told) if told[n - 1 : n] != [waiting]]


@pytest.mark.parametrize(
    ("replacement", "why"),
    [
        (Replacement.REFUSED, Why.REPLACEMENT_REFUSED),
        (Replacement.UNSCHEDULABLE, Why.REPLACEMENT_UNSCHEDULABLE),
        (Replacement.UNBOUND, Why.REPLACEMENT_NOT_BOUND),
        (Replacement.UNREADY, Why.LANDING_TIMEOUT),
    ],
)
def test_no_drain_begins_before_the_replacement_pods_of_a_failed_one_run(replacement: Replacement, why: Why) -> None:
    with world(*CLUSTER) as here:
        here.replacements["web"] = replacement
        loop = here.loop(IMPATIENT)
        assert loop.round() is Outcome.FAILED
        assert (failures(here), here.marked) == ([why], [])
        for _ in range(20):
            here.pass_time(60)
            assert loop.round() is Outcome.HELD
        assert {(event.waiting, event.detail) for event in here.of(Held)} == {(Waiting.LANDING_PENDING, LACKS)}
        assert here.of(OwedChanged)[-1] == OwedChanged(1)
        here.add(pod("web-2", "spot-1"))
        assert loop.round() is Outcome.DRAINED
        assert drained(here) == ["od-1", "od-2"]
        assert (here.memory.debts, here.of(OwedChanged)[-1]) == ((), OwedChanged(0))


def test_what_was_paid_once_is_not_owed_again() -> None:
    with world(*CLUSTER) as here:
        here.config_map.put(dump(Memory(debts=(OpenDebt("od-1", START, OWED),))))
        assert here.loop(IMPATIENT).round() is Outcome.DRAINED
        here.cluster.delete("Pod", "default/web-1-again")
        assert here.loop(IMPATIENT).round() is Outcome.DRAINED


@pytest.mark.parametrize(
    "state",
    [
        pytest.param({"exists": False}, id="deleted"),
        pytest.param({"suspended": True}, id="suspended"),
        pytest.param({"template": "new"}, id="rolled out"),
        pytest.param({"wanted": 0}, id="scaled down"),
        pytest.param({"wanted": 1, "succeeded": 1}, id="a pod has succeeded since"),
    ],
)
def test_a_debt_lapses(state: dict[str, Any]) -> None:
    with world(*CLUSTER) as here:
        here.cluster.delete("Pod", "default/web-1")
        debt = Debt(WEB, ready=1, bound=1, template="old")
        here.config_map.put(dump(Memory(debts=(OpenDebt("od-1", START, debt),))))
        assert here.loop().round() is Outcome.HELD
        here.controllers["web"] = state
        assert here.loop().round() is Outcome.DRAINED
        assert (here.memory.debts, drained(here)) == ((), ["od-2"])


def test_a_waived_debt_holds_nothing() -> None:
    with world(*CLUSTER) as here:
        here.cluster.delete("Pod", "default/web-1")
        here.config_map.put(dump(Memory(debts=(OpenDebt("od-1", START, OWED),))))
        assert here.loop().round() is Outcome.HELD
        here.config_map.waive("default/ReplicaSet/web")
        assert here.loop().round() is Outcome.DRAINED
        assert here.memory.debts == ()


def test_many_debts_are_named_in_part() -> None:
    with world(*CLUSTER[1:3], *CLUSTER[4:]) as here:
        names = ("a", "b", "c", "d")
        owed = [Debt(Controller("default", "ReplicaSet", name, f"uid-of-{name}"), 2, 2) for name in names]
        here.config_map.put(dump(Memory(debts=tuple(OpenDebt("od-9", START, debt) for debt in owed))))
        here.loop().round()
        [held] = here.of(Held)
        each = "; ".join(f"default/ReplicaSet/{name} lacks 2 since the drain of od-9" for name in names[:3])
        assert held.detail.startswith(f"replacement pods do not run yet: {each} and 1 more controllers; ")
        assert here.of(OwedChanged) == [OwedChanged(8)]


def test_pods_of_a_replica_set_with_a_name_of_its_own_are_counted_after_a_restart() -> None:
    """Nothing tells of it but the debt: it was read when the node was marked."""
    deployment = Controller("default", "Deployment", "shop", "uid-of-shop")
    with world(*CLUSTER) as here:
        debt = Debt(deployment, ready=1, bound=1, owner_uids=("uid-of-web",))
        here.config_map.put(dump(Memory(debts=(OpenDebt("od-9", START, debt),))))
        assert here.loop().round() is Outcome.DRAINED


def test_an_evicted_pod_whose_end_is_not_watched_yet_pays_nothing() -> None:
    with world(*CLUSTER) as here:
        here.endless = {"default/web-1"}
        loop = here.loop(IMPATIENT)
        assert loop.round() is Outcome.FAILED
        assert loop.round() is Outcome.HELD
        assert waits(here) == [Waiting.LANDING_PENDING]
        here.cluster.delete("Pod", "default/web-1")
        here.add(pod("web-2", "spot-1"))
        assert loop.round() is Outcome.DRAINED


def test_a_controller_that_cannot_be_read_holds_drains() -> None:
    with world(*CLUSTER) as here:
        here.config_map.put(dump(Memory(debts=(OpenDebt("od-1", START, OWED),))))
        here.controller_errors["web"] = InputError("get replicasets default/web: no JSON")
        assert here.loop().round() is Outcome.BROKEN
        assert here.of(Trouble) == [Trouble(ErrorKind.READ, "get replicasets default/web: no JSON")]
        assert (drained(here), len(here.memory.debts)) == ([], 1)


class TestRecords:
    def test_what_is_owed_is_stored_before_the_node_is_opened(self) -> None:
        with world(*CLUSTER) as here:
            here.replacements["web"] = Replacement.UNSCHEDULABLE
            known: list[Memory] = []
            here.on_release = lambda: known.append(here.memory)
            here.loop().round()
            assert [memory.debts for memory in known] == [(OpenDebt("od-1", known[0].debts[0].since, OWED),)]

    def test_told_to_stop_in_the_middle(self) -> None:
        """Of db, which has lost no pod, nothing is owed."""
        with world(*CLUSTER[:4], pod("db-1", "od-1")) as here:
            here.replacements["db"] = Replacement.UNBOUND
            here.stop_at(5)
            here.loop().run()
            assert (failures(here), here.marked) == ([Why.STOPPED], [])
            db = Controller("default", "ReplicaSet", "db", "uid-of-db")
            assert [owed.debt for owed in here.memory.debts] == [Debt(db, 1, 1, owner_uids=("uid-of-db",))]
            here.stopping = False
            here.pass_time(600)
            assert here.loop().round() is Outcome.HELD
            assert waits(here) == [Waiting.LANDING_PENDING]

    def test_a_failed_drain_that_evicted_a_pod_starts_the_drain_delay(self) -> None:
        with world(*CLUSTER) as here:
            here.replacements["web"] = Replacement.UNSCHEDULABLE
            loop = here.loop(Timing(pending_patience=timedelta(), failure_pause=timedelta()))
            assert loop.round() is Outcome.FAILED
            here.recover("web")
            assert loop.round() is Outcome.HELD
            assert waits(here) == [Waiting.DRAIN_DELAY]

    @pytest.mark.parametrize(
        ("tries", "answers", "reason"),
        [
            pytest.param({"default/web-1": FORBIDDEN}, [], Reason.EVICTION_REFUSED, id="in the dry run"),
            pytest.param({}, [FORBIDDEN], Reason.COOLING_DOWN, id="after the dry run"),
        ],
    )
    def test_a_drain_that_evicted_nothing_costs_its_node_only(
        self, tries: dict[str, Any], answers: list[Any], reason: Reason
    ) -> None:
        with world(*CLUSTER) as here:
            here.tries, here.answers["default/web-1"] = tries, answers
            loop = here.loop()
            assert loop.round() is Outcome.FAILED
            assert here.memory.drained_at is None
            assert [event.failures for event in here.of(CoolingDown)] == [1]
            assert loop.round() is Outcome.DRAINED
            assert here.memory.debts == ()
            [rejected] = here.of(Planned)[-1].planning.rejected
            assert (rejected.node, rejected.reason) == ("od-1", reason)
            assert drained(here) == ["od-1", "od-2"]

    def test_a_budget_that_refuses_in_the_dry_run_blocks_its_node(self) -> None:
        with world(*CLUSTER) as here:
            here.tries["default/web-1"] = Refused(("web",), "would violate the budget web", None)
            loop = here.loop()
            assert loop.round() is Outcome.FAILED
            assert ("evict", "web-1") not in here.writes
            assert loop.round() is Outcome.DRAINED
            [rejected] = here.of(Planned)[-1].planning.rejected
            [blocker] = rejected.blockers
            told = "would violate the budget web; no new attempt before 2026-01-01T12:05:00Z"
            assert (blocker.reason, blocker.detail) == (Reason.EVICTION_REFUSED, told)

    def test_each_failed_landing_doubles_the_pause(self) -> None:
        names = {"od-1": "a", "od-2": "b", "od-3": "c", "od-4": "d"}
        pods = [pod(f"{app}-1", name) for name, app in names.items()]
        with world(*(node(name, ON_DEMAND) for name in names), node("spot-1", cpu="16"), *pods) as here:
            loop = here.loop(IMPATIENT_BUT_FOR_PAUSES)
            pauses: list[timedelta] = []
            for name in ("od-1", "od-2", "od-3"):
                here.replacements[names[name]] = Replacement.UNSCHEDULABLE
                assert loop.round() is Outcome.FAILED
                here.recover(names[name])
                here.cluster.delete("Node", name)
                assert loop.round() is Outcome.HELD
                until = here.memory.failure.until
                assert until is not None
                pauses.append(until - here.clock.now())
                here.pass_time(pauses[-1].total_seconds())
            assert pauses == [timedelta(minutes=10), timedelta(minutes=20), timedelta(minutes=40)]
            assert waits(here) == [Waiting.FAILURE_PAUSE]
            assert loop.round() is Outcome.DRAINED
            assert here.memory.failure.times == 0
