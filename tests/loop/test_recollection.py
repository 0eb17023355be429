"""What survives restarts, changes of leader, and what others do to the ConfigMap; on a cluster in memory."""

from dataclasses import replace
from datetime import timedelta

import pytest

from rescheduler.draining.state import Drain, Failure, Phase, Why
from rescheduler.errors import Conflict, Forbidden, NotFound, ReschedulerError, Retryable
from rescheduler.kube.eviction import Failed
from rescheduler.loop import Outcome
from rescheduler.observe.events import DrainEnded, DrainStarted, ErrorKind, Held, Planned, RoundEnded, Trouble, Waiting
from rescheduler.planning.controllers import Controller, ControllerState
from rescheduler.planning.debts import Debt
from rescheduler.planning.memory import Memory, OpenDebt, dump, load
from rescheduler.planning.outcome import Blocker, Reason
from rescheduler.planning.policy import Policy
from rescheduler.recollection import Recollection
from rescheduler.records import DrainRecords
from rescheduler.settings import Timing
from rescheduler.synced_memory import ATTEMPTS
from rescheduler.view import View
from tests.loop.world import LIMITS, START, World, world
from tests.planning.builders import ON_DEMAND, node, pod, snapshot

CLUSTER = (
    node("od-1", ON_DEMAND),
    node("od-2", ON_DEMAND),
    node("spot-1", cpu="16"),
    pod("web-1", "od-1"),
    pod("db-1", "od-2"),
    pod("db-2", "od-2"),
)
FORBIDDEN = Failed("evict pod default/web-1: not allowed (403)", retryable=False)
WEB = Controller("default", "Deployment", "web", "uid-web")
DB = Controller("default", "StatefulSet", "db", "uid-db")
MINUTE = timedelta(minutes=1)


def recollection(here: World, *, dry_run: bool = False) -> Recollection:
    """As of a process that starts now."""
    return Recollection(here.config_map, Timing(), here.clock, here.report, lambda: here.leading, dry_run=dry_run)


def stored(here: World) -> Memory:
    assert here.config_map.stored is not None
    return load(here.config_map.stored.content)


def held(here: World) -> list[Waiting]:
    """Why nothing was drained, without repetitions."""
    found = [event.waiting for event in here.of(Held)]
    return [one for n, one in enumerate(found) if found[n - 1 : n] != [one]]


def drained(here: World) -> list[str]:
    return [event.node.name for event in here.of(DrainStarted)]


def test_the_drain_delay_outlasts_the_process() -> None:
    with world(*CLUSTER) as here:
        assert here.loop().round() is Outcome.DRAINED
        for _ in range(9):
            here.pass_time(60)
            assert here.loop().round() is Outcome.HELD
        assert held(here) == [Waiting.DRAIN_DELAY]
        here.pass_time(60)
        assert here.loop().round() is Outcome.DRAINED
        assert drained(here) == ["od-1", "od-2"]


def test_a_cooldown_outlasts_the_process_and_doubles_in_the_next() -> None:
    with world(*CLUSTER[:1], *CLUSTER[2:4]) as here:
        here.answers["default/web-1"] = [FORBIDDEN]
        assert here.loop().round() is Outcome.FAILED
        assert here.loop().round() is Outcome.IDLE
        here.pass_time(301)
        assert here.loop().round() is Outcome.FAILED
        here.pass_time(301)
        assert here.loop().round() is Outcome.IDLE
        assert stored(here).cooldowns.by_node["od-1"].failures == 2


def test_another_node_of_the_same_name_is_not_left_alone() -> None:
    with world(*CLUSTER[:1], *CLUSTER[2:4]) as here:
        here.answers["default/web-1"] = [FORBIDDEN, FORBIDDEN]
        here.loop().round()
        here.cluster.delete("Node", "od-1")
        another = node("od-1", ON_DEMAND)
        another["metadata"]["uid"] = "another"
        here.add(another)
        assert here.loop().round() is Outcome.FAILED


class TestStart:
    def test_a_fresh_installation_creates_it_and_drains(self) -> None:
        with world(*CLUSTER) as here:
            assert here.loop().round() is Outcome.DRAINED
            assert here.config_map.created
            assert stored(here).drained_at == here.clock.now()
            assert "last drain: 2026-01-01T12:" in here.config_map.summary

    def test_deleted_while_nobody_ran_costs_one_drain_delay(self) -> None:
        with world(*CLUSTER) as here:
            here.config_map.created = True
            assert here.loop().round() is Outcome.HELD
            assert held(here) == [Waiting.DRAIN_DELAY]
            assert stored(here) == Memory(drained_at=START)
            here.pass_time(600)
            assert here.loop().round() is Outcome.DRAINED

    def test_without_a_lease_a_missing_one_is_taken_for_a_fresh_installation(self) -> None:
        with world(*CLUSTER) as here:
            here.config_map.elected, here.config_map.created = False, True
            assert here.loop().round() is Outcome.DRAINED

    def test_one_that_is_there_is_noted_on_the_lease(self) -> None:
        """Whoever created it may have died before it could tell."""
        with world(*CLUSTER) as here:
            here.config_map.put(dump(Memory()))
            here.loop().round()
            assert here.config_map.created


class TestDeleted:
    def test_while_we_lead_it_costs_one_drain_delay(self) -> None:
        with world(*CLUSTER[:1], *CLUSTER[2:4]) as here:
            here.config_map.elected = False
            here.answers["default/web-1"] = [FORBIDDEN]
            loop = here.loop()
            assert loop.round() is Outcome.FAILED
            here.config_map.delete()
            here.pass_time(10)
            assert loop.round() is Outcome.HELD
            assert stored(here) == Memory(drained_at=START + timedelta(seconds=here.now))

    def test_debts_that_are_known_stay(self) -> None:
        with world() as here:
            ours = recollection(here)
            ours.refresh()
            ours.owe("od-1", [Debt(WEB, 1, 1)])
            assert ours.save()
            here.config_map.delete()
            ours.refresh()
            assert stored(here) == Memory(drained_at=START, debts=(OpenDebt("od-1", START, Debt(WEB, 1, 1)),))

    def test_between_reading_and_writing(self) -> None:
        with world() as here:
            ours = recollection(here)
            ours.refresh()
            here.config_map.delete()
            ours.owe("od-1", [Debt(WEB, 1, 1)])
            assert ours.save()
            assert stored(here) == Memory(drained_at=START, debts=(OpenDebt("od-1", START, Debt(WEB, 1, 1)),))


class TestUnreadable:
    @pytest.mark.parametrize(
        ("content", "told"),
        [
            (b"broken", "ConfigMap kube-system/spot-rescheduler-memory: expected gzip: "),
            (None, "get configmap kube-system/spot-rescheduler-memory: not allowed (403)"),
        ],
    )
    def test_it_holds_drains_and_is_left_as_it_is(self, content: bytes | None, told: str) -> None:
        with world(*CLUSTER) as here:
            if content is None:
                here.config_map.unreadable = told
            else:
                here.config_map.put(content)
            here.stop_at(60)
            here.loop().run()
            assert held(here) == [Waiting.MEMORY_UNREADABLE]
            assert told in here.of(Held)[0].detail
            assert (here.config_map.writes, drained(here)) == (0, [])
            here.config_map.unreadable, here.stopping = "", False
            here.config_map.put(dump(Memory()))
            assert here.loop().round() is Outcome.DRAINED

    def test_what_is_noted_meanwhile_is_not_lost(self) -> None:
        with world() as here:
            ours = recollection(here)
            here.config_map.put(b"broken")
            ours.refresh()
            ours.owe("od-1", [Debt(WEB, 1, 1)])
            assert not ours.save()
            assert here.config_map.attempts == 0
            here.config_map.put(dump(Memory(drained_at=START - MINUTE, debts=(OpenDebt("od", START, Debt(DB, 1, 1)),))))
            ours.refresh()
            assert [one.debt.controller for one in ours.memory.debts] == [WEB, DB]
            assert stored(here) == ours.memory
            assert ours.memory.drained_at == START - MINUTE

    def test_no_answer_is_an_error_of_the_round(self, monkeypatch: pytest.MonkeyPatch) -> None:
        def silent() -> None:
            raise Retryable("get configmap: no connection")

        with world(*CLUSTER) as here:
            monkeypatch.setattr(here.config_map, "read", silent)
            assert here.loop().round() is Outcome.BROKEN
            assert here.of(Trouble) == [Trouble(ErrorKind.READ, "get configmap: no connection")]


class TestRefusedWrites:
    @pytest.mark.parametrize(
        "refusal",
        [
            pytest.param(Forbidden("create configmap: cannot create resource (403)"), id="no right"),
            pytest.param(Retryable("create configmap: busy (503)"), id="no answer"),
            pytest.param(NotFound("create configmap: no such namespace (404)"), id="no namespace"),
        ],
    )
    def test_nothing_is_drained_until_it_is_stored(self, refusal: ReschedulerError) -> None:
        with world(*CLUSTER) as here:
            here.config_map.refusals = [refusal] * ATTEMPTS
            loop = here.loop()
            assert loop.round() is Outcome.HELD
            assert [one.waiting for one in here.of(Held)] == [Waiting.MEMORY_UNREADABLE]
            assert str(refusal) in here.of(Held)[0].detail
            assert {one.kind for one in here.of(Trouble)} == {ErrorKind.WRITE}
            here.config_map.refusals.clear()
            assert loop.round() is Outcome.DRAINED
            assert here.of(RoundEnded)[-1].succeeded

    def test_nothing_is_evicted_where_the_debts_cannot_be_stored(self) -> None:
        with world(*CLUSTER) as here:
            here.config_map.put(dump(Memory()))
            here.config_map.refusals = [Retryable("patch configmap: busy (503)")] * 100
            assert here.loop().round() is Outcome.FAILED
            [ended] = here.of(DrainEnded)
            assert (ended.evicted, ended.tainted) == ((), False)
            assert ended.failure == Failure(Why.API_ERROR, "what the drain will owe could not be stored in the memory")

    def test_conflicts_without_end(self) -> None:
        with world() as here:
            ours = recollection(here)
            ours.refresh()
            ours.drained()
            here.config_map.refusals = [Conflict("patch configmap: modified (409)")] * ATTEMPTS
            assert not ours.save()
            [trouble] = here.of(Trouble)
            assert trouble == Trouble(
                ErrorKind.WRITE, "the memory is not stored: patch configmap: modified (409) (tried 3 times)"
            )
            assert ours.held() == Held(
                Waiting.MEMORY_UNREADABLE,
                "the memory cannot be read or stored: patch configmap: modified (409) (tried 3 times)",
            )
            ours.refresh()
            assert stored(here) == Memory(drained_at=START)

    def test_a_later_write_of_the_same_round_ends_the_trouble(self) -> None:
        with world() as here:
            ours = recollection(here)
            ours.refresh()
            ours.landing_failed()
            here.config_map.refusals = [Retryable("patch configmap: busy (503)")]
            assert [ours.save(), ours.save()] == [False, True]
            waiting = ours.held()
            assert waiting is not None
            assert waiting.waiting is Waiting.FAILURE_PAUSE

    def test_who_does_not_lead_any_more_writes_nothing(self) -> None:
        with world() as here:
            ours = recollection(here)
            ours.refresh()
            here.leading = False
            ours.drained()
            assert not ours.save()
            assert stored(here) == Memory()


class TestOthers:
    def test_ours_is_kept_where_somebody_wrote_in_between(self) -> None:
        with world() as here:
            ours = recollection(here)
            ours.refresh()
            ours.owe("od-1", [Debt(WEB, 1, 1)])
            ours.save()
            ours.owe("od-1", [])
            theirs = (*stored(here).debts, OpenDebt("od-2", START, Debt(DB, 1, 1)))
            here.config_map.put(dump(Memory(debts=theirs)))
            assert ours.save()
            assert stored(here) == Memory(debts=theirs[1:])

    def test_another_leader_s_is_taken_where_nothing_was_noted(self) -> None:
        with world() as here:
            ours = recollection(here)
            ours.refresh()
            here.config_map.put(dump(Memory(drained_at=START)))
            ours.refresh()
            assert ours.memory == Memory(drained_at=START)

    def test_a_wrong_clock_of_another_leader_holds_nothing_for_longer(self) -> None:
        with world() as here:
            here.config_map.put(dump(Memory(drained_at=START + 99 * MINUTE)))
            recollection(here).refresh()
            assert stored(here) == Memory(drained_at=START)

    def test_what_was_not_stored_is_not_mixed_with_another_leader_s(self) -> None:
        with world() as here:
            ours = recollection(here)
            ours.refresh()
            here.leading = False
            ours.drained()
            ours.owe("od-1", [Debt(WEB, 1, 1)])
            assert not ours.save()
            ours.forget()
            here.config_map.put(dump(Memory(drained_at=START - MINUTE)))
            here.leading = True
            ours.refresh()
            assert ours.memory == stored(here) == Memory(drained_at=START - MINUTE)

    def test_a_deposed_leader_forgets_what_it_has_not_stored(self) -> None:
        with world(*CLUSTER) as here:
            here.config_map.put(dump(Memory()))
            here.config_map.refusals = [None, Retryable("patch configmap: busy (503)")]
            loop = here.loop()
            assert loop.round() is Outcome.DRAINED
            here.leading = False
            assert loop.round() is Outcome.UNFIT
            here.config_map.put(dump(Memory()))
            here.leading = True
            assert loop.round() is Outcome.DRAINED


class TestWaivers:
    def test_they_are_applied_and_taken_off(self) -> None:
        with world() as here:
            ours = recollection(here)
            ours.refresh()
            ours.owe("od-1", [Debt(WEB, 1, 1), Debt(DB, 1, 1)])
            ours.save()
            here.config_map.waive(str(WEB), "default/Deployment/unknown")
            ours.refresh()
            assert stored(here).debts == (OpenDebt("od-1", START, Debt(DB, 1, 1)),)
            assert here.config_map.stored is not None
            assert here.config_map.stored.waived == ()
            writes = here.config_map.writes
            ours.refresh()
            assert here.config_map.writes == writes

    def test_one_that_meets_no_debt_is_taken_off_too(self) -> None:
        with world() as here:
            here.config_map.put(dump(Memory()), str(WEB))
            recollection(here).refresh()
            assert here.config_map.stored is not None
            assert (here.config_map.stored.waived, here.config_map.writes) == ((), 1)

    def test_in_the_middle_of_a_drain(self) -> None:
        with world() as here:
            ours = recollection(here)
            ours.refresh()
            ours.owe("od-1", [Debt(WEB, 1, 1)])
            ours.save()
            here.config_map.waive(str(WEB))
            ours.drained()
            assert ours.save()
            assert stored(here) == Memory(drained_at=START)


class TestDryRun:
    def test_it_reads_and_writes_nothing(self) -> None:
        with world(*CLUSTER) as here:
            here.config_map.put(dump(Memory(drained_at=START)), str(WEB))
            assert here.loop(dry_run=True).round() is Outcome.HELD
            assert held(here) == [Waiting.DRAIN_DELAY]
            assert (here.config_map.writes, here.config_map.created) == (0, False)

    def test_where_there_is_none_it_creates_none(self) -> None:
        with world(*CLUSTER) as here:
            assert here.loop(dry_run=True).round() is Outcome.IDLE
            assert here.config_map.stored is None

    def test_without_the_right_it_tells_once_and_goes_on(self) -> None:
        with world(*CLUSTER) as here:
            here.config_map.unreadable = "get configmap: not allowed (403)"
            here.stop_at(60)
            here.loop(dry_run=True).run()
            told = "this dry run does not know the memory: get configmap: not allowed (403)"
            assert here.of(Trouble) == [Trouble(ErrorKind.READ, told)]
            assert here.of(Held) == []


class TestNotes:
    def test_evictions_that_were_not_answered_in_time_are_owed_and_start_no_drain_delay(self) -> None:
        with world(*CLUSTER) as here:
            kept, debt = recollection(here), Debt(WEB, ready=1, bound=1)
            kept.refresh()
            drain = Drain("od-1", LIMITS, Phase.DONE, debts={WEB: debt}, begun=frozenset({WEB}), released=True)
            drain = replace(drain, failure=Failure(Why.STOPPED, "told to stop"))
            view = View(here, Policy(), here.clock, "holder")
            DrainRecords(kept, view, here.clock, here.report).ended(drain, START)
            assert stored(here) == Memory(debts=(OpenDebt("od-1", START, debt),))

    def test_failed_landings_pause_all_drains_each_time_longer(self) -> None:
        with world(*CLUSTER) as here:
            ours = recollection(here)
            ours.refresh()
            assert [ours.landing_failed() - START for _ in range(6)] == [
                minutes * MINUTE for minutes in (10, 20, 40, 80, 160, 240)
            ]
            assert ours.held() == Held(
                Waiting.FAILURE_PAUSE,
                "replacement pods of the last drains did not run in time; drains wait until 2026-01-01T16:00:00Z",
            )
            assert ours.save()
            assert here.loop().round() is Outcome.HELD
            ours.landing_succeeded()
            assert ours.held() is None
            assert ours.landing_failed() - START == 10 * MINUTE

    def test_returned_pods_pause_all_drains_each_time_longer(self) -> None:
        with world() as here:
            ours = recollection(here)
            ours.refresh()
            assert [ours.pods_returned() - START for _ in range(2)] == [10 * MINUTE, 20 * MINUTE]
            waiting = ours.held()
            assert waiting is not None
            assert (waiting.waiting, "12:20:00Z" in waiting.detail) == (Waiting.RETURNED_PODS, True)
            ours.pods_stayed()
            assert ours.held() is None

    def test_debts_are_those_that_a_drain_owes_now(self) -> None:
        with world() as here:
            ours = recollection(here)
            ours.refresh()
            ours.owe("od-1", [Debt(WEB, 2, 3), Debt(DB, 1, 1)])
            ours.owe("od-2", [Debt(DB, 1, 1)])
            here.pass_time(60)
            ours.owe("od-1", [Debt(WEB, 1, 2)])
            assert set(ours.memory.debts) == {
                OpenDebt("od-1", START, Debt(WEB, 1, 2)),
                OpenDebt("od-2", START, Debt(DB, 1, 1)),
            }
            ours.waive([str(DB)])
            ours.owe("od-1", [])
            assert ours.memory.debts == ()

    def test_a_return_is_noted_where_it_is_seen(self) -> None:
        with world() as here:
            ours = recollection(here)
            ours.refresh()
            ours.moved(WEB, 1, START - 60 * MINUTE)
            back = pod("web-1", "od-1")
            back["metadata"]["creationTimestamp"] = "2026-01-01T11:30:00Z"
            pods = {ControllerState(WEB, frozenset({"rs"}), 1): list(snapshot([back]).pods.values())}
            told = "its pods returned to on-demand nodes once; they are not moved before 2026-01-01T12:10:00Z"
            vetoes = (Blocker(Reason.MOVED_RECENTLY, f"{WEB}: {told}", "default/web-1"),)
            assert ours.vetoes("od-1", pods) == vetoes
            assert ours.save()
            again = recollection(here)
            again.refresh()
            assert again.vetoes("od-1", pods) == vetoes

    def test_a_refused_eviction_is_shown_for_as_long_as_the_node_cools_down(self) -> None:
        with world(*CLUSTER) as here:
            ours = recollection(here)
            ours.refresh()
            ours.node_failed("od-1", "uid-od-1", Reason.EVICTION_REFUSED, "a webhook refuses default/web-1")
            ours.save()
            assert here.loop(dry_run=True).round() is Outcome.IDLE
            [rejected] = here.of(Planned)[-1].planning.rejected
            assert rejected.blockers == (
                Blocker(
                    Reason.EVICTION_REFUSED,
                    "a webhook refuses default/web-1; no new attempt before 2026-01-01T12:05:00Z",
                ),
            )
