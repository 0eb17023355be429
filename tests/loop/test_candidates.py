"""What is read of a node's controllers before it is drained: vetoes, how long they stand, whose turn is next."""

from datetime import timedelta
from typing import Any

import pytest

from rescheduler.backends.base import Deleted, Refusal, Refused
from rescheduler.errors import Forbidden, InputError, Retryable
from rescheduler.loop import CANDIDATES, Outcome
from rescheduler.observe.events import CoolingDown, DrainEnded, DrainStarted, Held, Waiting
from rescheduler.planning.controllers import Controller, JobFacts
from rescheduler.planning.memory import Memory, dump
from rescheduler.planning.movements import ControllerMoves, Move, Movements
from rescheduler.planning.outcome import Blocker, Reason
from rescheduler.settings import Timing
from tests.loop.world import START, Pool, World, blockers, world
from tests.planning.builders import ON_DEMAND, Manifest, node, pod

OTHERS = (
    node("od-1", ON_DEMAND),
    node("od-2", ON_DEMAND),
    node("spot-1", cpu="64"),
    pod("db-1", "od-2"),
    pod("db-2", "od-2"),
)
JOB = pod("batch-1", "od-1", owner="batch/v1/Job")
FRAGILE = {"wanted": 1, "job": JobFacts(backoff_limit=0)}
UNREADY = {"conditions": [{"type": "Ready", "status": "False"}]}
MOVED = ControllerMoves((Move(START - timedelta(hours=1), 1),), returns=1, until=START + timedelta(minutes=10))


def drained(here: World) -> list[str]:
    return [event.node.name for event in here.of(DrainStarted)]


@pytest.mark.parametrize(
    ("pods", "states", "memory", "expected"),
    [
        pytest.param(
            [JOB],
            {"batch": FRAGILE},
            Memory(),
            (Reason.JOB_WOULD_FAIL, "default/batch-1", "backoffLimit"),
            id="a Job that would fail",
        ),
        pytest.param(
            [pod("web-1", "od-1")],
            {},
            Memory(movements=Movements({"uid-of-web": MOVED})),
            (Reason.MOVED_RECENTLY, "default/web-1", "default/ReplicaSet/web: its pods returned"),
            id="a controller whose pods came back",
        ),
        pytest.param(
            [pod("sql-0", "od-1", owner="StatefulSet"), pod("sql-1", "spot-1", owner="StatefulSet", status=UNREADY)],
            {"sql": {"wanted": 2}},
            Memory(),
            (Reason.REPLICAS_NOT_READY, "default/sql-0", "default/StatefulSet/sql are moved only while"),
            id="a StatefulSet with a pod that is not Ready",
        ),
        pytest.param(
            [pod("sql-0", "od-1", owner="StatefulSet")],
            {"sql": {"wanted": 2}},
            Memory(),
            (Reason.REPLICAS_NOT_READY, "default/sql-0", "1 are not"),
            id="a StatefulSet that lacks a pod",
        ),
    ],
)
def test_a_veto_names_its_reason_and_the_next_candidate_has_its_turn(
    pods: list[Manifest], states: dict[str, Any], memory: Memory, expected: tuple[Reason, str, str]
) -> None:
    with world(*OTHERS, *pods) as here:
        here.controllers.update(states)
        here.config_map.put(dump(memory))
        assert here.loop().round() is Outcome.DRAINED
        [blocker] = blockers(here, "od-1")
        assert (blocker.reason, blocker.pod) == expected[:2]
        assert expected[2] in blocker.detail
        assert drained(here) == ["od-2"]


@pytest.mark.parametrize(
    ("pods", "states"),
    [
        pytest.param([JOB], {"batch": {"wanted": 1, "job": JobFacts()}}, id="a Job that survives it"),
        pytest.param(
            [pod("sql-0", "od-1", owner="StatefulSet"), pod("sql-1", "spot-1", owner="StatefulSet")],
            {"sql": {"wanted": 2}},
            id="a StatefulSet with all other pods Ready",
        ),
    ],
)
def test_controllers_that_forbid_nothing(pods: list[Manifest], states: dict[str, Any]) -> None:
    with world(*OTHERS, *pods) as here:
        here.controllers.update(states)
        assert here.loop().round() is Outcome.DRAINED
        assert drained(here) == ["od-1"]


def test_a_veto_stands_for_a_minute_and_then_twice_as_long() -> None:
    with world(*OTHERS[:1], OTHERS[2], JOB) as here:
        here.controllers["batch"] = FRAGILE
        here.stop_at(16 * 60)
        loop = here.loop()
        read_at: list[float] = []
        while not here.stopping:
            before = len(here.reads)
            assert loop.round() is Outcome.IDLE
            read_at += [here.now] * (len(here.reads) - before)
            here.pass_time(10)
        assert read_at == [0, 60, 180, 420, 900]


def test_a_veto_whose_reason_is_gone_is_not_found_again() -> None:
    with world(*OTHERS[:1], OTHERS[2], JOB) as here:
        here.controllers["batch"] = FRAGILE
        loop = here.loop()
        assert loop.round() is Outcome.IDLE
        del here.controllers["batch"]
        here.pass_time(59)
        assert loop.round() is Outcome.IDLE
        here.pass_time(1)
        assert loop.round() is Outcome.DRAINED


def test_a_controller_that_cannot_be_decoded_blocks_its_node_only() -> None:
    with world(*OTHERS, pod("web-1", "od-1")) as here:
        here.controller_errors["web"] = InputError("get replicasets default/web: the answer is not what was expected")
        assert here.loop().round() is Outcome.DRAINED
        told = "get replicasets default/web: the answer is not what was expected"
        assert (blockers(here, "od-1"), drained(here)) == ([Blocker(Reason.UNREADABLE_OBJECT, told)], ["od-2"])


#: What the provider refuses, and why the node stays.
REFUSALS: dict[str, tuple[Refused, Blocker]] = {
    "its group is at the minimum": (
        Refused(Refusal.BELOW_MINIMUM, "group od must keep 2, 1 would be left"),
        Blocker(Reason.BELOW_MINIMUM, "pool: group od must keep 2, 1 would be left"),
    ),
    "the provider protects the machine": (
        Refused(Refusal.PROTECTED, "its membership status says that it is not evictable"),
        Blocker(Reason.PROVIDER_REFUSED, "pool: protected: its membership status says that it is not evictable"),
    ),
}


@pytest.mark.parametrize("pods", [[pod("web-1", "od-1")], []], ids=["with pods", "empty"])
@pytest.mark.parametrize(("refused", "expected"), REFUSALS.values(), ids=REFUSALS)
def test_a_machine_that_the_provider_keeps_is_a_reason_and_no_failed_drain(
    refused: Refused, expected: Blocker, pods: list[Manifest]
) -> None:
    with world(*OTHERS, *pods) as here:
        loop = here.loop(provider=Pool([Deleted()], refused={"od-1": refused}))
        assert loop.round() is Outcome.DRAINED
        assert (blockers(here, "od-1"), drained(here)) == ([expected], ["od-2"])
        assert (here.of(CoolingDown), [event.failure for event in here.of(DrainEnded)]) == ([], [None])


def test_a_group_above_its_minimum_again_gives_the_machine_away() -> None:
    with world(*OTHERS[:1], OTHERS[2], pod("web-1", "od-1")) as here:
        pool = Pool([Deleted()], Refused(Refusal.BELOW_MINIMUM, "1 of 1"))
        loop = here.loop(provider=pool)
        assert loop.round() is Outcome.IDLE
        pool.refusal = None
        here.pass_time(59)
        assert loop.round() is Outcome.IDLE
        here.pass_time(1)
        assert loop.round() is Outcome.DRAINED


def test_a_provider_that_is_silent_about_a_candidate_holds_drains() -> None:
    with world(*OTHERS) as here:
        pool = Pool([Deleted()])
        pool.trouble = Retryable("no answer")
        assert here.loop(provider=pool).round() is Outcome.BROKEN
        told = "the provider cannot be asked now: no answer"
        assert (here.of(Held), drained(here)) == ([Held(Waiting.PROVIDER_SILENT, told)], [])


def test_a_missing_right_holds_all_drains_and_is_named() -> None:
    with world(*OTHERS, pod("web-1", "od-1")) as here:
        here.controller_errors["web"] = Forbidden("get replicasets default/web: not allowed (403)")
        assert here.loop().round() is Outcome.UNFIT
        told = Held(Waiting.NOT_SYNCED, "get replicasets default/web: not allowed (403)")
        assert (here.of(Held), drained(here)) == ([told], [])


def test_a_round_reads_the_controllers_of_so_many_nodes_only_and_the_next_round_those_of_others() -> None:
    fragile = [f"od-{n:02}" for n in range(CANDIDATES + 5)]
    jobs = [pod(f"batch{n}-1", name, owner="batch/v1/Job") for n, name in enumerate(fragile)]
    nodes = [node(name, ON_DEMAND) for name in [*fragile, "od-last"]]
    with world(*nodes, node("spot-1", cpu="64"), *jobs, pod("web-1", "od-last")) as here:
        here.controllers.update({f"batch{n}": FRAGILE for n in range(len(fragile))})
        loop = here.loop(Timing(node_drain_delay=timedelta()))
        assert loop.round() is Outcome.IDLE
        assert here.reads == [f"batch{n}" for n in range(CANDIDATES)]
        here.pass_time(10)
        assert loop.round() is Outcome.DRAINED
        assert drained(here) == ["od-last"]


def test_what_was_seen_to_come_back_is_stored() -> None:
    with world(*OTHERS[:1], OTHERS[2], pod("web-1", "od-1", created="2026-01-01T11:30:00Z")) as here:
        moves = ControllerMoves((Move(START - timedelta(hours=1), 1),))
        here.config_map.put(dump(Memory(movements=Movements({"uid-of-web": moves}))))
        assert here.loop().round() is Outcome.IDLE
        web = here.memory.movements.by_uid["uid-of-web"]
        assert (web.returns, web.until) == (1, START + timedelta(minutes=10))
        told = f"{Controller('default', 'ReplicaSet', 'web', 'uid-of-web')}: its pods returned to on-demand nodes once"
        [blocker] = blockers(here, "od-1")
        assert blocker.detail.startswith(told)
