"""Checks of candidates before a drain: vetoes, their duration, and the next candidate."""

from datetime import timedelta
from typing import Any

import pytest

from rescheduler.errors import Forbidden, InputError, Retryable
from rescheduler.housekeeping.loop import Loop, RoundOutcome
from rescheduler.housekeeping.round_plans import CANDIDATES
from rescheduler.observe.events import CoolingDown, DrainEnded, Held, Planned, Waiting
from rescheduler.planning.controllers import Controller, JobFacts
from rescheduler.planning.memory import Memory, dump
from rescheduler.planning.movements import ControllerMoves, Move, Movements
from rescheduler.planning.outcome import Blocker, Reason, Rejected
from rescheduler.planning.rules.pod_traits import SAFE_TO_EVICT
from rescheduler.providers.base import Deleted, Refusal, Refused
from rescheduler.settings import Timing
from tests.housekeeping.world import START, LoopWorld, ScriptedProvider, blockers, world
from tests.planning.builders import ON_DEMAND, Manifest, node, pod

OTHERS = (
    node("od-1", ON_DEMAND),
    node("od-2", ON_DEMAND),
    node("spot-1", cpu="64"),
    pod("db-1", "od-2"),
    pod("db-2", "od-2"),
)
JOB = pod("batch-1", "od-1", owner="batch/v1/Job")
CLUSTER_KIND = "postgresql.cnpg.io/v1/Cluster"
FRAGILE = {"wanted": 1, "job": JobFacts(backoff_limit=0)}
UNREADY = {"conditions": [{"type": "Ready", "status": "False"}]}
MOVED = ControllerMoves((Move(START - timedelta(hours=1), 1),), returns=1, until=START + timedelta(minutes=10))


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
            Memory(movements=Movements({"default/uid-of-web": MOVED})),
            (Reason.MOVED_RECENTLY, "default/web-1", "default/ReplicaSet/web: its pods returned"),
            id="a controller whose pods returned",
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
            (Reason.REPLICAS_NOT_READY, "default/sql-0", "1 not Ready"),
            id="a StatefulSet with a missing pod",
        ),
        pytest.param(
            [pod("pg-1", "od-1", owner=CLUSTER_KIND), pod("pg-2", "spot-1", owner=CLUSTER_KIND, status=UNREADY)],
            {"pg": {"wanted": 2}},
            Memory(),
            (Reason.REPLICAS_NOT_READY, "default/pg-1", "1 not Ready"),
            id="a custom owner of pods with ordinal names, one of which is not Ready",
        ),
        pytest.param(
            [pod("web-1", "od-1")],
            {"web": {"exists": False, "wanted": 0}},
            Memory(),
            (Reason.NO_CONTROLLER, "default/web-1", "default/ReplicaSet/web was deleted"),
            id="an owner that was deleted",
        ),
        pytest.param(
            [pod("web-1", "od-1")],
            {"web": {"deleting": True}},
            Memory(),
            (Reason.NO_CONTROLLER, "default/web-1", "is being deleted"),
            id="an owner that is being deleted",
        ),
        pytest.param(
            [pod("web-1", "od-1", owner="argoproj.io/v1alpha1/Workflow")],
            {"web": {"finished": True}},
            Memory(),
            (Reason.NO_CONTROLLER, "default/web-1", "default/Workflow/web has finished"),
            id="an owner that has finished",
        ),
    ],
)
def test_a_veto_has_a_reason_and_the_next_candidate_is_drained(
    pods: list[Manifest], states: dict[str, Any], memory: Memory, expected: tuple[Reason, str, str]
) -> None:
    with world(*OTHERS, *pods) as here:
        here.controllers.update(states)
        here.config_map.put(dump(memory))
        assert here.loop().round() is RoundOutcome.DRAINED
        [blocker] = blockers(here, "od-1")
        assert (blocker.reason, blocker.pod) == expected[:2]
        assert expected[2] in blocker.detail
        assert here.drained == ["od-2"]


@pytest.mark.parametrize(
    ("pods", "states"),
    [
        pytest.param([JOB], {"batch": {"wanted": 1, "job": JobFacts()}}, id="a Job that would not fail"),
        pytest.param(
            [pod("sql-0", "od-1", owner="StatefulSet"), pod("sql-1", "spot-1", owner="StatefulSet")],
            {"sql": {"wanted": 2}},
            id="a StatefulSet with all other pods Ready",
        ),
        pytest.param(
            [pod("web-1", "od-1", annotations={SAFE_TO_EVICT: "true"})],
            {"web": {"exists": False, "wanted": 0}},
            id="an owner that was deleted, of a pod that may be lost",
        ),
        pytest.param(
            [
                pod("web-x7xkz", "od-1", owner=CLUSTER_KIND),
                pod("web-x7xkv", "spot-1", owner=CLUSTER_KIND, status=UNREADY),
            ],
            {"web": {"wanted": 2}},
            id="a custom owner of interchangeable pods",
        ),
    ],
)
def test_controllers_without_a_veto_do_not_prevent_a_drain(pods: list[Manifest], states: dict[str, Any]) -> None:
    with world(*OTHERS, *pods) as here:
        here.controllers.update(states)
        assert here.loop().round() is RoundOutcome.DRAINED
        assert here.drained == ["od-1"]


def times_of_reads(here: LoopWorld, loop: Loop) -> list[float]:
    """Return when controllers were read, in rounds every 10 seconds until the end."""
    read_at: list[float] = []
    while not here.stopping:
        before = len(here.reads)
        assert loop.round() is RoundOutcome.IDLE
        read_at += [here.now] * (len(here.reads) - before)
        here.pass_time(10)
    return read_at


def test_a_veto_lasts_for_a_minute_and_then_twice_as_long() -> None:
    with world(*OTHERS[:1], OTHERS[2], JOB) as here:
        here.controllers["batch"] = FRAGILE
        here.stop_at(16 * 60)
        assert times_of_reads(here, here.loop()) == [0, 60, 180, 420, 900]


def test_a_dry_run_reads_the_controllers_of_the_same_plan_once_a_minute() -> None:
    with world(*OTHERS, pod("web-1", "od-1")) as here:
        here.stop_at(125)
        assert sorted(set(times_of_reads(here, here.loop(dry_run=True)))) == [0, 60, 120]


def test_a_veto_ends_when_its_reason_is_gone() -> None:
    with world(*OTHERS[:1], OTHERS[2], JOB) as here:
        here.controllers["batch"] = FRAGILE
        loop = here.loop()
        assert loop.round() is RoundOutcome.IDLE
        del here.controllers["batch"]
        here.pass_time(59)
        assert loop.round() is RoundOutcome.IDLE
        here.pass_time(1)
        assert loop.round() is RoundOutcome.DRAINED


def test_a_controller_that_cannot_be_decoded_blocks_its_node_only() -> None:
    with world(*OTHERS, pod("web-1", "od-1")) as here:
        here.controller_errors["web"] = InputError("get replicasets default/web: unexpected response")
        assert here.loop().round() is RoundOutcome.DRAINED
        detail = "get replicasets default/web: unexpected response"
        assert (blockers(here, "od-1"), here.drained) == ([Blocker(Reason.UNREADABLE_OBJECT, detail)], ["od-2"])


#: Refusals of the provider, and the resulting blocker.
REFUSALS: dict[str, tuple[Refused, Blocker]] = {
    "its group is at the minimum": (
        Refused(Refusal.BELOW_MINIMUM, "group od must keep 2, 1 would be left"),
        Blocker(Reason.BELOW_MINIMUM, "pool: group od must keep 2, 1 would be left"),
    ),
    "the provider protects the machine": (
        Refused(Refusal.PROTECTED, "its membership status is not evictable"),
        Blocker(Reason.PROVIDER_REFUSED, "pool: protected: its membership status is not evictable"),
    ),
}


@pytest.mark.parametrize("pods", [[pod("web-1", "od-1")], []], ids=["with pods", "empty"])
@pytest.mark.parametrize(("refused", "expected"), REFUSALS.values(), ids=REFUSALS)
def test_a_machine_that_the_provider_would_not_remove_is_a_blocker_and_not_a_failed_drain(
    refused: Refused, expected: Blocker, pods: list[Manifest]
) -> None:
    with world(*OTHERS, *pods) as here:
        loop = here.loop(provider=ScriptedProvider([Deleted()], refused={"od-1": refused}))
        assert loop.round() is RoundOutcome.DRAINED
        assert (blockers(here, "od-1"), here.drained) == ([expected], ["od-2"])
        assert (here.of(CoolingDown), [event.failure for event in here.of(DrainEnded)]) == ([], [None])


def test_a_machine_is_removed_once_its_group_is_above_its_minimum() -> None:
    with world(*OTHERS[:1], OTHERS[2], pod("web-1", "od-1")) as here:
        pool = ScriptedProvider([Deleted()], Refused(Refusal.BELOW_MINIMUM, "1 of 1"))
        loop = here.loop(provider=pool)
        assert loop.round() is RoundOutcome.IDLE
        pool.refusal = None
        here.pass_time(59)
        assert loop.round() is RoundOutcome.IDLE
        here.pass_time(1)
        assert loop.round() is RoundOutcome.DRAINED


def test_a_provider_that_does_not_respond_holds_drains() -> None:
    with world(*OTHERS) as here:
        pool = ScriptedProvider([Deleted()])
        pool.trouble = Retryable("no answer")
        assert here.loop(provider=pool).round() is RoundOutcome.BROKEN
        detail = "the provider does not respond: no answer"
        assert (here.of(Held), here.drained) == ([Held(Waiting.PROVIDER_SILENT, detail)], [])


def test_a_missing_right_holds_all_drains_and_is_reported() -> None:
    with world(*OTHERS, pod("web-1", "od-1")) as here:
        here.controller_errors["web"] = Forbidden("get replicasets default/web: not allowed (403)")
        assert here.loop().round() is RoundOutcome.UNFIT
        detail = Held(Waiting.NOT_SYNCED, "get replicasets default/web: not allowed (403)")
        assert (here.of(Held), here.drained) == ([detail], [])


def test_a_round_reads_the_controllers_of_a_limited_number_of_nodes() -> None:
    fragile = [f"od-{n:02}" for n in range(CANDIDATES + 5)]
    jobs = [pod(f"batch{n}-1", name, owner="batch/v1/Job") for n, name in enumerate(fragile)]
    nodes = [node(name, ON_DEMAND) for name in [*fragile, "od-last"]]
    with world(*nodes, node("spot-1", cpu="64"), *jobs, pod("web-1", "od-last")) as here:
        here.controllers.update({f"batch{n}": FRAGILE for n in range(len(fragile))})
        loop = here.loop(Timing(node_drain_delay=timedelta()))
        assert loop.round() is RoundOutcome.IDLE
        assert here.reads == [f"batch{n}" for n in range(CANDIDATES)]
        here.pass_time(10)
        assert loop.round() is RoundOutcome.DRAINED
        assert here.drained == ["od-last"]


def test_returned_pods_are_stored() -> None:
    with world(*OTHERS[:1], OTHERS[2], pod("web-1", "od-1", created="2026-01-01T11:30:00Z")) as here:
        moves = ControllerMoves((Move(START - timedelta(hours=1), 1),))
        here.config_map.put(dump(Memory(movements=Movements({"default/uid-of-web": moves}))))
        assert here.loop().round() is RoundOutcome.IDLE
        web = here.memory.movements.by_uid["default/uid-of-web"]
        assert (web.returns, web.until) == (1, START + timedelta(minutes=10))
        controller = Controller("default", "ReplicaSet", "web", "uid-of-web")
        detail = f"{controller}: its pods returned to on-demand nodes once"
        [blocker] = blockers(here, "od-1")
        assert blocker.detail.startswith(detail)


def test_templates_that_keep_a_node_are_read_again_after_a_while() -> None:
    def template(cpu: str) -> Manifest:
        containers = [{"name": "main", "image": "app:1", "resources": {"requests": {"cpu": cpu}}}]
        spec = {"replicas": 1, "template": {"spec": {"containers": containers}}, "updateStrategy": {"type": "OnDelete"}}
        meta = {"name": "sql", "namespace": "default", "uid": "uid-of-sql"}
        return {"kind": "StatefulSet", "metadata": meta, "spec": spec, "status": {"updateRevision": "sql-2"}}

    stateful = pod("sql-0", "od-1", owner="apps/v1/StatefulSet")
    with world(node("od-1", ON_DEMAND), node("spot-1", cpu="4"), stateful) as here:
        here.controllers["sql"] = {"wanted": 1}
        here.templates = [template("64")]
        loop = here.loop()
        assert loop.round() is not RoundOutcome.DRAINED
        here.templates = [template("1")]
        outcomes = []
        for _ in range(3):
            here.frozen.tick(timedelta(minutes=6))
            outcomes.append(loop.round())
        assert outcomes[-1] is RoundOutcome.DRAINED
        assert here.drained == ["od-1"]


def _verdicts(here: LoopWorld) -> dict[str, list[Reason]]:
    """Return the reasons of all nodes in the last report; empty for a node that can be drained."""
    planning = here.of(Planned)[-1].planning
    return {
        verdict.node: [blocker.reason for blocker in verdict.blockers] if isinstance(verdict, Rejected) else []
        for verdict in planning.verdicts
    }


RETURNED_UNSEEN = ControllerMoves((Move(START - timedelta(hours=1), 1),))


@pytest.mark.parametrize("dry_run", [False, True], ids=["in the drain delay", "in a dry run"])
@pytest.mark.parametrize(
    ("moves", "held"),
    [
        (MOVED, [Reason.MOVED_RECENTLY]),
        (RETURNED_UNSEEN, [Reason.MOVED_RECENTLY]),
        (ControllerMoves((Move(START - timedelta(hours=2), 24),), returned=True), [Reason.MOVED_RECENTLY]),
        (ControllerMoves((Move(START - timedelta(hours=2), 1),), returned=True), []),
    ],
    ids=["its pods returned", "they returned and no round has seen it", "moved often", "moved once"],
)
def test_nodes_whose_pods_were_moved_are_not_shown_as_drainable_while_nothing_is_drained(
    moves: ControllerMoves, held: list[Reason], *, dry_run: bool
) -> None:
    web = [pod("web-1", "od-1", created="2026-01-01T11:30:00Z"), pod("web-2", "spot-1")]
    with world(*OTHERS, *web) as here:
        memory = Memory(
            drained_at=None if dry_run else START - timedelta(seconds=30),
            movements=Movements({"default/uid-of-web": moves}),
        )
        here.config_map.put(dump(memory))
        loop = here.loop(Timing(node_drain_delay=timedelta(minutes=5)), dry_run=dry_run)
        loop.round()
        assert _verdicts(here) == {"od-1": held, "od-2": []}
        assert here.memory.movements.by_uid["default/uid-of-web"] == moves
        assert here.drained == []


OWNERS: dict[str, tuple[Manifest, dict[str, Any], list[Reason]]] = {
    "a Job that would fail": (JOB, {"batch": FRAGILE}, [Reason.JOB_WOULD_FAIL]),
    "a StatefulSet with a missing pod": (
        pod("sql-0", "od-1", owner="StatefulSet"),
        {"sql": {"wanted": 2}},
        [Reason.REPLICAS_NOT_READY],
    ),
    "an owner that was deleted": (
        pod("web-1", "od-1"),
        {"web": {"exists": False, "wanted": 0}},
        [Reason.NO_CONTROLLER],
    ),
    "an owner that keeps no pod": (pod("web-1", "od-1"), {"web": {"wanted": 1}}, []),
}


@pytest.mark.parametrize("dry_run", [False, True], ids=["in the drain delay", "in a dry run"])
@pytest.mark.parametrize(("mover", "states", "held"), OWNERS.values(), ids=OWNERS)
def test_nodes_that_owners_keep_are_not_shown_as_drainable_while_nothing_is_drained(
    mover: Manifest, states: dict[str, Any], held: list[Reason], *, dry_run: bool
) -> None:
    with world(*OTHERS, mover) as here:
        here.controllers.update(states)
        here.config_map.put(dump(Memory(drained_at=None if dry_run else START)))
        here.loop(Timing(node_drain_delay=timedelta(minutes=5)), dry_run=dry_run).round()
        assert _verdicts(here) == {"od-1": held, "od-2": []}


def test_such_a_node_is_shown_as_drainable_once_its_pods_may_be_moved_again() -> None:
    with world(*OTHERS, pod("web-1", "od-1")) as here:
        here.config_map.put(dump(Memory(drained_at=START, movements=Movements({"default/uid-of-web": MOVED}))))
        loop = here.loop(Timing(node_drain_delay=timedelta(hours=1)))
        shown = []
        for _ in range(4):
            loop.round()
            shown.append(_verdicts(here)["od-1"])
            here.pass_time(4 * 60)
        assert shown == [[Reason.MOVED_RECENTLY]] * 3 + [[]]


def test_a_round_that_cannot_read_controllers_still_shows_its_plans() -> None:
    with world(*OTHERS, pod("web-1", "od-1")) as here:
        here.config_map.put(dump(Memory(drained_at=START, movements=Movements({"default/uid-of-web": MOVED}))))
        here.controller_errors["web"] = Retryable("busy")
        assert here.loop(Timing(node_drain_delay=timedelta(hours=1))).round() is RoundOutcome.HELD
        assert _verdicts(here) == {"od-1": [], "od-2": []}
