"""The memory after restarts, changes of leader and external changes to the ConfigMap."""

from collections.abc import Callable
from dataclasses import replace
from datetime import timedelta
from typing import Any

import msgspec
import pytest

from rescheduler.draining.events import EvictionFailed
from rescheduler.draining.state import Drain, Failure, Phase, Why
from rescheduler.errors import Conflict, Forbidden, NotFound, ReschedulerError, Retryable
from rescheduler.execution.cluster_view import ClusterView
from rescheduler.facts.round_facts import Known
from rescheduler.housekeeping.drain_history import DrainHistory, DrainRecords
from rescheduler.housekeeping.loop import RoundOutcome
from rescheduler.housekeeping.synced_memory import ATTEMPTS, SyncedMemory
from rescheduler.kube.memory import Stored
from rescheduler.observe.events import (
    DrainEnded,
    ErrorKind,
    Held,
    OwnerSetAside,
    Planned,
    RoundEnded,
    Trouble,
    Waiting,
)
from rescheduler.planning.controllers import Controller, ControllerState, controller_of
from rescheduler.planning.debts import Debt, OpenDebt
from rescheduler.planning.memory import Memory, Reactivation, StoredSettings, dump
from rescheduler.planning.movements import ControllerMoves, LeftoverMoves, Move, Movements, NotRecovered, OwnerWait
from rescheduler.planning.outcome import Blocker, Placement, PodRef, Reason
from rescheduler.planning.owner_records import OwnerRecord, OwnerRecords
from rescheduler.planning.policy import LeaderFacts, Policy
from rescheduler.planning.pools import PoolLosses, PoolRecord
from rescheduler.planning.refusals import KubeletRefusal, KubeletRefusals
from rescheduler.planning.room.increase import SpotOrder, SpotOrders
from rescheduler.planning.waits import Cooldown, Cooldowns, Pause, Waits
from rescheduler.settings import Timing
from tests.housekeeping.config_map import InMemoryConfigMap
from tests.housekeeping.world import CLUSTER, LIMITS, START, LoopWorld, world
from tests.planning.builders import ON_DEMAND, node, pod, snapshot

FORBIDDEN = EvictionFailed("", "evict pod default/web-1: not allowed (403)", retryable=False)
WEB = Controller("default", "Deployment", "web", "uid-web")
DB = Controller("default", "StatefulSet", "db", "uid-db")
MINUTE = timedelta(minutes=1)

#: What earlier processes have noted.
EARLIER_MEMORY = Memory(
    drained_at=START - MINUTE,
    drained_node="od-0",
    cooldowns=Cooldowns({"od-1": Cooldown("uid-od-1", 3, START + 20 * MINUTE)}),
    not_recovered=NotRecovered({str(WEB): OwnerWait(2, START + 20 * MINUTE)}),
    room=Pause(2, START + 20 * MINUTE),
    returned=Pause(2, START + 20 * MINUTE),
    debts=(OpenDebt("od-3", START - MINUTE, Debt(WEB, 1, 1)),),
    settled=(OpenDebt("od-4", START - MINUTE, Debt(WEB, 1, 1)),),
    movements=Movements({"default/uid-web": ControllerMoves((Move(START - MINUTE, 2),), namespace="default")}),
    leftovers=LeftoverMoves({"default/uid-rs": START - MINUTE}, begun={"uid": "default/uid-b"}, begun_at=START),
    owners=OwnerRecords({str(WEB): OwnerRecord(START - MINUTE, (Move(START - MINUTE, 2),), 30.0)}),
    spot_orders=SpotOrders((SpotOrder("od-1", "uid-od-1", "spot-group", 5, 1, START - MINUTE),)),
    pools=PoolLosses({"zone-a": PoolRecord(at=START, losses=4, recent=2.0, last=START - MINUTE)}),
    refusals=KubeletRefusals().noted(KubeletRefusal(WEB, "digest", (("spot", None),), "spot-1", "OutOfcpu", START)),
    leader=LeaderFacts(own="od-9"),
    reactivation=Reactivation("i-1", evictable=True, size=3),
)


def _includes(found: Any, least: Any) -> bool:
    """Return whether *found* has the entries that *least* has."""
    if isinstance(least, tuple):
        return set(least) <= set(found)
    table, wanted = (
        next(iter(msgspec.structs.asdict(each).values())) if isinstance(each, msgspec.Struct) else each
        for each in (found, least)
    )
    return bool(wanted.items() <= table.items() if isinstance(wanted, dict) else found == least)


def history(here: LoopWorld, *, dry_run: bool = False) -> DrainHistory:
    """Return the history of a process that starts now."""
    return DrainHistory(here.config_map, Timing(), here.clock, here.report, lambda: here.leading, dry_run=dry_run)


def test_the_drain_delay_survives_a_restart() -> None:
    with world(*CLUSTER) as here:
        assert here.loop().round() is RoundOutcome.DRAINED
        for _ in range(9):
            here.pass_time(60)
            assert here.loop().round() is RoundOutcome.HELD
        assert here.waits == [Waiting.DRAIN_DELAY]
        here.pass_time(60)
        assert here.loop().round() is RoundOutcome.DRAINED
        assert here.drained == ["od-1", "od-2"]


def test_a_cooldown_survives_a_restart_and_doubles_afterwards() -> None:
    with world(*CLUSTER[:1], *CLUSTER[2:4]) as here:
        here.answers["default/web-1"] = [FORBIDDEN]
        assert here.loop().round() is RoundOutcome.FAILED
        assert here.loop().round() is RoundOutcome.IDLE
        here.pass_time(301)
        assert here.loop().round() is RoundOutcome.FAILED
        here.pass_time(301)
        assert here.loop().round() is RoundOutcome.IDLE
        assert here.memory.cooldowns.by_node["od-1"].failures == 2


def test_another_node_of_the_same_name_does_not_cool_down() -> None:
    with world(*CLUSTER[:1], *CLUSTER[2:4]) as here:
        here.answers["default/web-1"] = [FORBIDDEN, FORBIDDEN]
        here.loop().round()
        here.cluster.delete("Node", "od-1")
        another = node("od-1", ON_DEMAND)
        another["metadata"]["uid"] = "another"
        here.add(another)
        assert here.loop().round() is RoundOutcome.FAILED


class TestStart:
    def test_a_fresh_installation_creates_its_memory_and_drains(self) -> None:
        with world(*CLUSTER) as here:
            assert here.loop().round() is RoundOutcome.DRAINED
            assert here.config_map.created
            assert here.memory.drained_at == here.clock.now()
            assert "last drain: 2026-01-01T12:" in here.config_map.summary

    def test_an_empty_config_map_of_the_manifests_is_a_fresh_installation(self) -> None:
        with world(*CLUSTER) as here:
            here.config_map.empty()
            assert here.loop().round() is RoundOutcome.DRAINED
            assert here.memory.drained_at == here.clock.now()

    def test_a_memory_emptied_while_no_process_ran_starts_the_drain_delay(self) -> None:
        """Its content may have forbidden a drain."""
        with world(*CLUSTER) as here:
            here.config_map.empty()
            here.config_map.created = True
            assert here.loop().round() is RoundOutcome.HELD
            assert here.waits == [Waiting.DRAIN_DELAY]
            assert here.memory == Memory(drained_at=START)

    def test_a_memory_deleted_while_no_process_ran_starts_the_drain_delay(self) -> None:
        with world(*CLUSTER) as here:
            here.config_map.created = True
            assert here.loop().round() is RoundOutcome.HELD
            assert here.waits == [Waiting.DRAIN_DELAY]
            assert here.memory == Memory(drained_at=START)
            here.pass_time(600)
            assert here.loop().round() is RoundOutcome.DRAINED

    def test_without_a_lease_a_missing_config_map_means_a_fresh_installation(self) -> None:
        with world(*CLUSTER) as here:
            here.config_map.elected, here.config_map.created = False, True
            assert here.loop().round() is RoundOutcome.DRAINED

    def test_an_existing_config_map_is_recorded_on_the_lease(self) -> None:
        """The process that created the ConfigMap may have been killed before it annotated the Lease."""
        with world(*CLUSTER) as here:
            here.config_map.put(dump(Memory()))
            here.loop().round()
            assert here.config_map.created


class TestDeleted:
    def test_a_memory_deleted_while_leading_starts_the_drain_delay(self) -> None:
        with world(*CLUSTER[:1], *CLUSTER[2:4]) as here:
            here.config_map.elected = False
            here.answers["default/web-1"] = [FORBIDDEN]
            loop = here.loop()
            assert loop.round() is RoundOutcome.FAILED
            here.config_map.delete()
            here.pass_time(10)
            assert loop.round() is RoundOutcome.HELD
            assert here.memory == Memory(drained_at=START + timedelta(seconds=here.now))

    @pytest.mark.parametrize("lose", [InMemoryConfigMap.delete, InMemoryConfigMap.empty])
    @pytest.mark.parametrize("moment", ["before a read", "before a write"])
    @pytest.mark.parametrize("kind", ["debts", "settled", "spot_orders", "reactivation"])
    def test_what_this_process_still_has_to_do_is_kept(
        self, kind: str, moment: str, lose: Callable[[InMemoryConfigMap], None]
    ) -> None:
        with world() as here:
            ours = SyncedMemory(here.config_map, Waits(), here.clock, here.report, lambda: True)
            ours.refresh()
            kept = {kind: getattr(EARLIER_MEMORY, kind)}
            ours.memory = Memory(**kept)
            assert ours.save()
            lose(here.config_map)
            if moment == "before a write":
                ours.memory = msgspec.structs.replace(ours.memory, drained_at=START - MINUTE)
                assert ours.save()
            ours.refresh()
            assert here.memory == ours.memory == Memory(drained_at=START, **kept)

    def test_a_memory_deleted_between_read_and_write_is_created_with_a_drain_delay(self) -> None:
        with world() as here:
            ours = history(here)
            ours.refresh()
            here.config_map.delete()
            ours.owe("od-1", [Debt(WEB, 1, 1)])
            assert ours.save()
            assert here.memory == Memory(drained_at=START, debts=(OpenDebt("od-1", START, Debt(WEB, 1, 1)),))


class TestUnreadable:
    @pytest.mark.parametrize(
        ("content", "detail"),
        [
            (b"broken", "ConfigMap kube-system/spot-rescheduler-memory: expected gzip: "),
            (None, "get configmap kube-system/spot-rescheduler-memory: not allowed (403)"),
        ],
    )
    def test_an_unreadable_memory_holds_drains_and_is_not_overwritten(self, content: bytes | None, detail: str) -> None:
        with world(*CLUSTER) as here:
            if content is None:
                here.config_map.unreadable = detail
            else:
                here.config_map.put(content)
            here.stop_at(60)
            here.loop().run()
            assert here.waits == [Waiting.MEMORY_UNREADABLE]
            assert detail in here.of(Held)[0].detail
            assert (here.config_map.writes, here.drained) == (0, [])
            here.config_map.unreadable, here.stopping = "", False
            here.config_map.put(dump(Memory()))
            assert here.loop().round() is RoundOutcome.DRAINED

    def test_changes_made_in_the_meantime_are_not_lost(self) -> None:
        with world() as here:
            ours = history(here)
            here.config_map.put(b"broken")
            ours.refresh()
            ours.owe("od-1", [Debt(WEB, 1, 1)])
            assert not ours.save()
            assert here.config_map.attempts == 0
            here.config_map.put(dump(Memory(drained_at=START - MINUTE, debts=(OpenDebt("od", START, Debt(DB, 1, 1)),))))
            ours.refresh()
            assert [debt.debt.controller for debt in ours.memory.debts] == [WEB, DB]
            assert here.memory == ours.memory
            assert ours.memory.drained_at == START - MINUTE

    @pytest.mark.parametrize("kind", EARLIER_MEMORY.__struct_fields__)
    def test_what_earlier_processes_stored_is_kept_if_something_is_noted_before_it_is_read(self, kind: str) -> None:
        with world() as here:
            here.config_map.put(b"broken")
            ours = history(here)
            ours.refresh()
            ours.node_failed("od-2", "uid-od-2")
            ours.moved(DB, 1, START)
            ours.set_aside(DB)
            here.config_map.put(dump(EARLIER_MEMORY))
            ours.refresh()
            assert _includes(getattr(here.memory, kind), getattr(EARLIER_MEMORY, kind))
            assert "od-2" in here.memory.cooldowns.by_node
            assert "default/uid-db" in here.memory.movements.by_uid
            assert str(DB) in here.memory.not_recovered.by_name

    @pytest.mark.parametrize("unreadable", ["get configmap: not allowed (403)", ""])
    def test_a_daemon_that_starts_meanwhile_keeps_the_waits_of_earlier_ones(self, unreadable: str) -> None:
        """It notes what it knows when it plans, for commands."""
        with world(*CLUSTER) as here:
            here.config_map.put(dump(EARLIER_MEMORY))
            stored, here.config_map.unreadable = here.config_map.stored, unreadable
            here.config_map.stored = stored if unreadable else Stored(b"broken", "0")
            here.own_node = "spot-1"
            loop = here.loop()
            assert loop.round() is RoundOutcome.HELD
            here.pass_time(10)
            here.config_map.unreadable, here.config_map.stored = "", stored
            assert loop.round() is RoundOutcome.HELD
            assert here.memory.cooldowns == EARLIER_MEMORY.cooldowns
            assert here.memory.movements == EARLIER_MEMORY.movements
            assert here.memory.not_recovered == EARLIER_MEMORY.not_recovered
            assert here.memory.returned == EARLIER_MEMORY.returned
            assert here.memory.leftovers == EARLIER_MEMORY.leftovers

    @pytest.mark.parametrize("lose", [InMemoryConfigMap.delete, InMemoryConfigMap.empty])
    def test_what_was_noted_meanwhile_is_kept_if_the_config_map_is_deleted(
        self, lose: Callable[[InMemoryConfigMap], None]
    ) -> None:
        with world() as here:
            here.config_map.put(b"broken")
            here.config_map.created = True
            ours = history(here)
            ours.refresh()
            cooldown = ours.node_failed("od-2", "uid-od-2")
            lose(here.config_map)
            ours.refresh()
            assert here.memory == Memory(drained_at=START, cooldowns=Cooldowns({"od-2": cooldown}))

    def test_a_missing_response_is_an_error_of_the_round(self, monkeypatch: pytest.MonkeyPatch) -> None:
        def silent() -> None:
            raise Retryable("get configmap: no connection")

        with world(*CLUSTER) as here:
            monkeypatch.setattr(here.config_map, "read", silent)
            assert here.loop().round() is RoundOutcome.BROKEN
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
    def test_nothing_is_drained_until_the_memory_is_stored(self, refusal: ReschedulerError) -> None:
        with world(*CLUSTER) as here:
            here.config_map.refusals = [refusal] * ATTEMPTS
            loop = here.loop()
            assert loop.round() is RoundOutcome.HELD
            assert [event.waiting for event in here.of(Held)] == [Waiting.MEMORY_UNREADABLE]
            assert str(refusal) in here.of(Held)[0].detail
            assert {event.kind for event in here.of(Trouble)} == {ErrorKind.WRITE}
            here.config_map.refusals.clear()
            assert loop.round() is RoundOutcome.DRAINED
            assert here.of(RoundEnded)[-1].succeeded

    def test_nothing_is_evicted_if_the_debts_cannot_be_stored(self) -> None:
        with world(*CLUSTER) as here:
            here.config_map.put(dump(Memory()))
            here.config_map.refusals = [Retryable("patch configmap: busy (503)")] * 100
            assert here.loop().round() is RoundOutcome.FAILED
            [ended] = here.of(DrainEnded)
            assert (ended.evicted, ended.tainted) == ((), False)
            assert ended.failure == Failure(
                Why.API_ERROR, "the expected debts of the drain could not be stored in the memory"
            )

    def test_repeated_conflicts_are_reported(self) -> None:
        with world() as here:
            ours = history(here)
            ours.refresh()
            ours.drained("od-1")
            here.config_map.refusals = [Conflict("patch configmap: modified (409)")] * ATTEMPTS
            assert not ours.save()
            [trouble] = here.of(Trouble)
            assert trouble == Trouble(
                ErrorKind.WRITE, "the memory could not be stored: patch configmap: modified (409) (tried 3 times)"
            )
            assert ours.held() == Held(
                Waiting.MEMORY_UNREADABLE,
                "the memory cannot be read or stored: patch configmap: modified (409) (tried 3 times)",
            )
            ours.refresh()
            assert here.memory == Memory(drained_at=START, drained_node="od-1")

    def test_a_later_successful_write_clears_the_error(self) -> None:
        with world() as here:
            ours = history(here)
            ours.refresh()
            ours.pods_returned()
            here.config_map.refusals = [Retryable("patch configmap: busy (503)")]
            assert [ours.save(), ours.save()] == [False, True]
            waiting = ours.held()
            assert waiting is not None
            assert waiting.waiting is Waiting.RETURNED_PODS

    def test_a_replica_that_no_longer_leads_writes_nothing(self) -> None:
        with world() as here:
            ours = history(here)
            ours.refresh()
            here.leading = False
            ours.drained("od-1")
            assert not ours.save()
            assert here.memory == Memory()


class TestOthers:
    def test_our_changes_are_kept_after_a_concurrent_write(self) -> None:
        with world() as here:
            ours = history(here)
            ours.refresh()
            ours.owe("od-1", [Debt(WEB, 1, 1)])
            ours.save()
            ours.judged((), ())
            foreign = (*here.memory.debts, OpenDebt("od-2", START, Debt(DB, 1, 1)))
            here.config_map.put(dump(Memory(debts=foreign)))
            assert ours.save()
            assert here.memory == Memory(debts=foreign[1:])

    @pytest.mark.parametrize("moment", ["before its first read", "after it", "after the ConfigMap was deleted"])
    def test_two_processes_keep_what_the_other_has_noted(self, moment: str) -> None:
        """The first does not know yet that the second leads: both write."""
        with world() as here:
            first, second = history(here), history(here)
            first.refresh()
            first.node_failed("od-0", "uid-od-0")
            first.save()
            if moment != "before its first read":
                second.refresh()
            if moment == "after the ConfigMap was deleted":
                here.config_map.delete()
                first.node_failed("od-0", "uid-od-0")
            first.node_failed("od-1", "uid-od-1")
            first.moved(WEB, 2, START)
            assert first.save()
            second.node_failed("od-1", "uid-od-1")
            second.node_failed("od-2", "uid-od-2")
            second.moved(WEB, 1, START + MINUTE)
            second.refresh()
            assert second.save()
            assert here.memory == second.memory
            assert here.memory.cooldowns.by_node.keys() == {"od-0", "od-1", "od-2"}
            [moves] = here.memory.movements.by_uid.values()
            assert sum(move.pods for move in moves.moves) == 3
            first.refresh()
            assert first.memory == second.memory

    def test_a_write_without_a_response_is_not_a_change_by_another(self, monkeypatch: pytest.MonkeyPatch) -> None:
        """What it contains counts once, and what is taken out afterwards stays out."""
        with world() as here:
            ours, write = history(here), here.config_map.write

            def without_response(content: bytes, summary: str, version: str) -> str:
                write(content, summary, version)
                raise Retryable("patch configmap: no response")

            ours.refresh()
            ours.owner_moved("default/Deployment/web", 2, START)
            ours.save()
            ours.owner_moved("default/Deployment/web", 1, START)
            ours.node_failed("od-1", "uid-od-1")
            with monkeypatch.context() as patch:
                patch.setattr(here.config_map, "write", without_response)
                assert not ours.save()
            ours.owner_moved("default/Deployment/web", 1, START)
            ours.node_succeeded("od-1")
            ours.refresh()
            assert here.memory == ours.memory
            assert ours.memory.cooldowns == Cooldowns()
            assert ours.memory.owners.in_a_week(START) == {"default/Deployment/web": 4}

    @pytest.mark.parametrize("exists", [True, False], ids=["changed", "created"])
    @pytest.mark.parametrize("later", ["none", "lost", "conflict"])
    @pytest.mark.parametrize("moment", ["sent", "another was sent", "read again"])
    def test_each_write_without_a_response_may_be_what_is_stored(
        self, moment: str, later: str, monkeypatch: pytest.MonkeyPatch, *, exists: bool
    ) -> None:
        """It arrives when it is sent, or with a delay. The writes after it are lost, or fail with a conflict."""
        with world() as here:
            ours, write, sent = history(here), here.config_map.write, list[tuple[bytes, str, str]]()

            def without_response(*request: str | bytes) -> str:
                sent.append(request)  # type: ignore[arg-type]
                raise Retryable("patch configmap: no response")

            def save_something(node: str) -> None:
                ours.owner_moved("default/Deployment/web", 1, START)
                ours.node_failed(node, f"uid-{node}")
                assert not ours.save()

            with monkeypatch.context() as patch:
                if not exists:
                    patch.setattr(here.config_map, "write", without_response)
                ours.refresh()
                patch.setattr(here.config_map, "write", without_response)
                sent.clear()
                save_something("od-1")
                if moment == "another was sent":
                    save_something("od-2")
                if moment == "read again":
                    ours.refresh()
                write(*sent[0])
                if later == "lost":
                    save_something("od-3")
            if later == "conflict":
                ours.owner_moved("default/Deployment/web", 1, START)
                assert ours.save()
            moved = 1 + (moment == "another was sent") + (later != "none")
            for failed in list(ours.memory.cooldowns.by_node):
                ours.node_succeeded(failed)
            ours.refresh()
            assert here.memory == ours.memory
            assert ours.memory.cooldowns == Cooldowns()
            assert ours.memory.owners.in_a_week(START) == {"default/Deployment/web": moved}

    @pytest.mark.parametrize("arrives", [True, False])
    def test_a_change_that_is_taken_back_is_stored_if_the_write_of_it_had_no_response(
        self, monkeypatch: pytest.MonkeyPatch, *, arrives: bool
    ) -> None:
        """Otherwise a process that starts now would find it."""
        with world() as here:
            ours, write = history(here), here.config_map.write

            def without_response(content: bytes, summary: str, version: str) -> str:
                if arrives:
                    write(content, summary, version)
                raise Retryable("patch configmap: no response")

            ours.refresh()
            ours.owe("od-1", [Debt(WEB, 1, 1)])
            assert ours.save()
            before = ours.memory.debts
            with monkeypatch.context() as patch:
                patch.setattr(here.config_map, "write", without_response)
                ours.judged((), ())
                assert not ours.save()
            assert here.memory.debts == (() if arrives else before)
            ours.judged(before, ())
            attempts = here.config_map.attempts
            assert [ours.save(), ours.save()] == [True, True]
            assert here.config_map.attempts == attempts + 1 + arrives  # one of them fails with a conflict
            assert here.memory.debts == before

    def test_what_one_process_has_taken_out_stays_out(self) -> None:
        with world() as here:
            first, second = history(here), history(here)
            first.refresh()
            first.node_failed("od-1", "uid-od-1")
            first.node_failed("od-2", "uid-od-2")
            first.save()
            second.refresh()
            second.node_succeeded("od-1")
            second.node_failed("od-3", "uid-od-3")
            first.node_failed("od-2", "uid-od-2")
            assert (first.save(), second.save()) == (True, True)
            failures = {name: each.failures for name, each in here.memory.cooldowns.by_node.items()}
            assert failures == {"od-2": 2, "od-3": 1}

    def test_the_memory_of_another_leader_is_used_without_own_changes(self) -> None:
        with world() as here:
            ours = history(here)
            ours.refresh()
            here.config_map.put(dump(Memory(drained_at=START)))
            ours.refresh()
            assert ours.memory == Memory(drained_at=START)

    def test_a_wrong_clock_of_another_leader_does_not_extend_waits(self) -> None:
        with world() as here:
            here.config_map.put(dump(Memory(drained_at=START + 99 * MINUTE)))
            history(here).refresh()
            assert here.memory == Memory(drained_at=START)

    def test_unsaved_changes_are_not_merged_with_those_of_another_leader(self) -> None:
        with world() as here:
            ours = history(here)
            ours.refresh()
            here.leading = False
            ours.drained("od-1")
            ours.owe("od-1", [Debt(WEB, 1, 1)])
            assert not ours.save()
            ours.forget()
            here.config_map.put(dump(Memory(drained_at=START - MINUTE)))
            here.leading = True
            ours.refresh()
            assert ours.memory == here.memory == Memory(drained_at=START - MINUTE)

    def test_a_former_leader_discards_its_unsaved_changes(self) -> None:
        with world(*CLUSTER) as here:
            here.config_map.put(dump(Memory()))
            here.config_map.refusals = [None, Retryable("patch configmap: busy (503)")]
            loop = here.loop()
            assert loop.round() is RoundOutcome.DRAINED
            here.leading = False
            assert loop.round() is RoundOutcome.UNFIT
            here.config_map.put(dump(Memory()))
            here.leading = True
            assert loop.round() is RoundOutcome.DRAINED


class TestWaivers:
    def test_waivers_are_applied_and_removed(self) -> None:
        with world() as here:
            ours = history(here)
            ours.refresh()
            ours.owe("od-1", [Debt(WEB, 1, 1), Debt(DB, 1, 1)])
            ours.save()
            here.config_map.waive([str(WEB), "default/Deployment/unknown"])
            ours.refresh()
            assert here.memory.debts == (OpenDebt("od-1", START, Debt(DB, 1, 1)),)
            assert here.config_map.stored is not None
            assert here.config_map.stored.waived == ()
            writes = here.config_map.writes
            ours.refresh()
            assert here.config_map.writes == writes

    def test_a_waiver_without_a_debt_is_removed_too(self) -> None:
        with world() as here:
            here.config_map.put(dump(Memory()), str(WEB))
            history(here).refresh()
            assert here.config_map.stored is not None
            assert (here.config_map.stored.waived, here.config_map.writes) == ((), 1)

    def test_a_waiver_during_a_drain_is_applied_at_the_next_write(self) -> None:
        with world() as here:
            ours = history(here)
            ours.refresh()
            ours.owe("od-1", [Debt(WEB, 1, 1)])
            ours.save()
            here.config_map.waive([str(WEB)])
            ours.drained("od-1")
            assert ours.save()
            assert here.memory == Memory(drained_at=START, drained_node="od-1")


class TestDryRun:
    def test_a_dry_run_reads_the_memory_and_writes_nothing(self) -> None:
        with world(*CLUSTER) as here:
            here.config_map.put(dump(Memory(drained_at=START)), str(WEB))
            assert here.loop(dry_run=True).round() is RoundOutcome.HELD
            assert here.waits == [Waiting.DRAIN_DELAY]
            assert (here.config_map.writes, here.config_map.created) == (0, False)

    def test_a_dry_run_does_not_create_a_missing_config_map(self) -> None:
        with world(*CLUSTER) as here:
            assert here.loop(dry_run=True).round() is RoundOutcome.IDLE
            assert here.config_map.stored is None

    def test_a_dry_run_without_the_right_warns_once_and_continues(self) -> None:
        with world(*CLUSTER) as here:
            here.config_map.unreadable = "get configmap: not allowed (403)"
            here.stop_at(60)
            here.loop(dry_run=True).run()
            detail = "this dry run could not read the memory: get configmap: not allowed (403)"
            assert here.of(Trouble) == [Trouble(ErrorKind.READ, detail)]
            assert here.of(Held) == []


class TestNotes:
    def test_a_drain_records_how_long_the_slowest_new_pod_of_each_owner_took(self) -> None:
        with world(*CLUSTER) as here:
            kept, moved = history(here), PodRef("default", "web-1", "uid-web-1")
            kept.refresh()
            for name, seconds in (("web-7", "20"), ("web-8", "45")):
                ready = {"type": "Ready", "status": "True", "lastTransitionTime": f"2026-01-01T12:01:{seconds}Z"}
                new = pod(name, "spot-1", created="2026-01-01T12:01:00Z", status={"conditions": [ready]})
                here.cluster.upsert("Pod", snapshot([new]).pods[f"default/{name}"])
            web = Controller("default", "ReplicaSet", "web", "uid-of-web")
            drain = Drain("od-1", LIMITS, Phase.DONE, evicted=(moved,), controllers={moved.uid: web})
            view = ClusterView(here, Policy(), here.clock, Known(holder="holder"))
            DrainRecords(kept, view, here.clock, here.report).record_end(drain, START)
            assert kept.memory.owners == OwnerRecords().moved("default/ReplicaSet/web", 1, START, ready=45)

    def test_an_owner_below_a_custom_resource_is_named_as_its_worth_names_it(self) -> None:
        """An operator's resource owns the StatefulSet: its moves are limited by the topmost owner."""
        with world(*CLUSTER) as here:
            kept, moved = history(here), PodRef("default", "pg-1", "uid-pg-1")
            kept.refresh()
            ready = {"type": "Ready", "status": "True", "lastTransitionTime": "2026-01-01T12:01:45Z"}
            status, created = {"conditions": [ready]}, "2026-01-01T12:01:00Z"
            [new] = snapshot([pod("pg-1", "spot-1", owner="StatefulSet", created=created, status=status)]).pods.values()
            here.cluster.upsert("Pod", new)
            top = Controller("default", "Postgres", "main", "uid-of-main", "db.example.com/v1")
            placement = Placement(moved, "spot-1", owner=new.owner)
            drain = Drain("od-1", LIMITS, Phase.DONE, evicted=(moved,), controllers={moved.uid: top})
            drain = replace(drain, placements=(placement,))
            view = ClusterView(here, Policy(), here.clock, Known(holder="holder"))
            DrainRecords(kept, view, here.clock, here.report).record_end(drain, START)
            name = "default/StatefulSet/pg"
            assert controller_of(new).text == name
            assert kept.memory.owners == OwnerRecords().moved(name, 1, START, ready=45)
            assert kept.memory.movements.by_uid.keys() == {"default/uid-of-main"}

    def test_evictions_without_a_response_in_time_are_debts_and_start_no_drain_delay(self) -> None:
        with world(*CLUSTER) as here:
            kept, debt = history(here), Debt(WEB, ready=1, bound=1)
            kept.refresh()
            drain = Drain("od-1", LIMITS, Phase.DONE, debts={WEB: debt}, begun=frozenset({WEB}), released=True)
            drain = replace(drain, failure=Failure(Why.STOPPED, "told to stop"))
            view = ClusterView(here, Policy(), here.clock, Known(holder="holder"))
            DrainRecords(kept, view, here.clock, here.report).record_end(drain, START)
            assert here.memory == Memory(debts=(OpenDebt("od-1", START, debt),))

    def test_an_owner_that_did_not_recover_waits_each_time_longer(self) -> None:
        with world(*CLUSTER) as here:
            ours, waits = history(here), []
            ours.refresh()
            for _ in range(10):
                for _ in range(2):
                    ours.set_aside(WEB)
                [wait] = ours.not_recovered().values()
                waits.append(wait.until - here.clock.now())
                here.pass_time(waits[-1].total_seconds())
            assert waits == [minutes * MINUTE for minutes in (10, 20, 40, 80, 160, 320, 640, 1280, 1440, 1440)]
            assert [event.failures for event in here.of(OwnerSetAside)] == list(range(1, 11))
            assert (ours.held(), ours.save()) == (None, True)
            ours.recovered([WEB])
            ours.set_aside(WEB)
            assert ours.not_recovered()[str(WEB)] == OwnerWait(1, here.clock.now() + 10 * MINUTE)

    def test_returned_pods_pause_all_drains_each_time_longer(self) -> None:
        with world() as here:
            ours = history(here)
            ours.refresh()
            assert [ours.pods_returned() - START for _ in range(2)] == [10 * MINUTE, 20 * MINUTE]
            waiting = ours.held()
            assert waiting is not None
            assert (waiting.waiting, "12:20:00Z" in waiting.detail) == (Waiting.RETURNED_PODS, True)
            ours.pods_stayed()
            assert ours.held() is None

    def test_a_drain_adds_its_debts_and_takes_out_what_it_has_paid(self) -> None:
        with world() as here:
            ours = history(here)
            ours.refresh()
            ours.owe("od-1", [Debt(WEB, 2, 3), Debt(DB, 1, 1)])
            ours.owe("od-2", [Debt(DB, 1, 1)])
            here.pass_time(60)
            ours.settle("od-1", [Debt(DB, 1, 1)], [Debt(DB, 1, 1)])
            ours.owe("od-1", [Debt(WEB, 1, 4)])
            assert set(ours.memory.debts) == {
                OpenDebt("od-1", START, Debt(WEB, 2, 4)),
                OpenDebt("od-2", START, Debt(DB, 1, 1)),
            }
            ours.settle("od-2", [Debt(DB, 1, 1)], [])
            assert [owed.node for owed in ours.memory.debts] == ["od-1"]
            assert ours.memory.settled == (OpenDebt("od-1", START + MINUTE, Debt(DB, 1, 1)),)
            assert ours.memory.of_drains_of("od-1") == (Debt(WEB, 2, 4), Debt(DB, 1, 1))

    def test_returned_pods_are_recorded(self) -> None:
        with world() as here:
            ours = history(here)
            ours.refresh()
            ours.moved(WEB, 1, START - 60 * MINUTE)
            back = pod("web-1", "od-1")
            back["metadata"]["creationTimestamp"] = "2026-01-01T11:30:00Z"
            pods = {ControllerState(WEB, frozenset({"rs"}), 1): list(snapshot([back]).pods.values())}
            detail = "its pods returned to on-demand nodes once; they are not moved before 2026-01-01T12:10:00Z"
            vetoes = (Blocker(Reason.MOVED_RECENTLY, f"{WEB}: {detail}", "default/web-1"),)
            assert ours.vetoes("od-1", pods) == vetoes
            assert ours.save()
            again = history(here)
            again.refresh()
            assert again.vetoes("od-1", pods) == vetoes

    def test_a_refused_eviction_is_shown_for_as_long_as_the_node_cools_down(self) -> None:
        with world(*CLUSTER) as here:
            ours = history(here)
            ours.refresh()
            ours.node_failed("od-1", "uid-od-1", Reason.EVICTION_REFUSED, "a webhook refuses default/web-1")
            ours.save()
            assert here.loop(dry_run=True).round() is RoundOutcome.IDLE
            [rejected] = here.of(Planned)[-1].planning.rejected
            assert rejected.blockers == (
                Blocker(
                    Reason.EVICTION_REFUSED,
                    "a webhook refuses default/web-1; no new attempt before 2026-01-01T12:05:00Z",
                ),
            )


def test_the_settings_that_explain_waits_are_stored_once() -> None:
    """Commands read them; a daemon with other flags replaces them."""
    writes = []
    with world(*CLUSTER) as here:
        for delay in (600.0, 600.0, 60.0):
            settings = StoredSettings(delay)
            DrainHistory(here.config_map, Timing(), here.clock, here.report, lambda: True, settings=settings).refresh()
            assert here.memory.settings == settings
            writes.append(here.config_map.writes)
    assert writes == [1, 1, 2]
