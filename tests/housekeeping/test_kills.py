"""The process is killed before or after each write of a drain, and another process takes over."""

from collections.abc import Callable
from datetime import timedelta
from typing import Any, Final

import pytest

from rescheduler.draining.state import Why
from rescheduler.housekeeping.loop import RoundOutcome
from rescheduler.observe.events import DrainEnded
from rescheduler.providers.base import AlreadyGone, Deleted
from rescheduler.settings import Timing
from tests.housekeeping.world import LoopWorld, Replacement, ScriptedProvider, world
from tests.planning.builders import ON_DEMAND, node, pod

CLUSTER = (
    node("od-1", ON_DEMAND),
    node("od-2", ON_DEMAND),
    node("spot-1", cpu="16"),
    pod("web-1", "od-1", cpu="500m"),
    pod("web-2", "od-1", cpu="500m"),
    pod("db-1", "od-2", cpu="2"),
)
#: No other wait may hold the second drain than its debts.
TIMING = Timing(
    housekeeping_interval=timedelta(seconds=20),
    node_drain_delay=timedelta(),
    pending_patience=timedelta(),
    failure_pause=timedelta(),
    return_wait=timedelta(),
)
RECOVERY: Final = 100.0  #: time at which the replacement pods of web run
WRITES: Final = 7  #: number of writes of a drain with one renewal of its mark and a removed machine


class SimulatedKill(BaseException):
    """Simulates SIGKILL: no code of the process runs after it."""


def kill_at(here: LoopWorld, write: int, *others: tuple[object, str], after: bool) -> None:
    """Kill the process at the write with this number, before or *after* it reaches the API server.

    Writes are those to nodes, evictions, and the *others*: objects, each with the name of a method.
    """
    count = 0

    def killing(perform: Callable[..., Any]) -> Callable[..., Any]:
        def performed(*args: Any, **fields: Any) -> Any:
            nonlocal count
            count += not fields.get("dry_run", False)
            if count != write or fields.get("dry_run", False):
                return perform(*args, **fields)
            count += 1  # once
            if after:
                perform(*args, **fields)
            here.leading = False  # it writes nothing more
            raise SimulatedKill

        return performed

    own = ((here, name) for name in ("edit_node", "delete_node", "evict"))
    for owner, name in (*own, *others):
        setattr(owner, name, killing(getattr(owner, name)))


def lives(here: LoopWorld, provider: ScriptedProvider | None) -> None:
    """Run a process that is killed, and then its successor until the drain is done."""
    with pytest.raises(SimulatedKill):
        here.loop(TIMING, provider=provider, holder="first").run()
    here.pass_time(15)  # the Lease expires
    here.leading = True
    here.loop(TIMING, provider=provider, holder="second").run()


@pytest.mark.slow
@pytest.mark.parametrize("after", [False, True], ids=["before the write", "after the write"])
@pytest.mark.parametrize("write", range(1, WRITES + 1))
@pytest.mark.parametrize("provided", [False, True], ids=["no provider", "a provider"])
def test_after_a_kill_at_any_write_the_next_process_finishes_the_drain(provided: bool, write: int, after: bool) -> None:
    with world(*CLUSTER) as here:
        evicted_at: dict[str, float] = {}
        evict = here.evict

        def noted(namespace: str, name: str, *args: Any, **fields: Any) -> Any:
            if not fields.get("dry_run", False):
                evicted_at.setdefault(name, here.now)
            return evict(namespace, name, *args, **fields)

        here.evict = noted  # type: ignore[method-assign]
        kill_at(here, write, after=after)
        here.replacements["web"] = Replacement.UNREADY
        here.at(RECOVERY, lambda: here.recover("web"))
        here.stop_at(900)
        lives(here, ScriptedProvider([AlreadyGone(), AlreadyGone(), Deleted()]) if provided else None)

        assert here.marked == []
        assert {pod.owner.name for pod in here.cluster.pods.values() if pod.owner} == {"web", "db"}
        assert len(here.cluster.pods) == 3
        assert all(pod.node_name == "spot-1" and pod.ready for pod in here.cluster.pods.values())
        assert evicted_at["db-1"] >= RECOVERY > evicted_at["web-1"]
        assert here.memory.debts == ()
        records = here.memory.movements.by_uid.values()
        assert sorted(sum(move.pods for move in record.moves) for record in records) == [1, 2]
        assert [node.name for node in here.cluster.nodes] == (["spot-1"] if provided else ["od-1", "od-2", "spot-1"])


def reopened_at(here: LoopWorld, life: float, lives: int = 40) -> float:
    """Kill each process *life* seconds after its start, until the node is open. Return when it was."""
    for number in range(lives):
        start = here.now
        here.at(start + life, lambda: setattr(here, "leading", False))
        here.stop_at(start + life)
        here.stopping = False
        here.leading = True
        here.loop(TIMING, provider=None, holder=f"process-{number}").run()
        if number and not here.marked:
            return here.now
    raise AssertionError(f"still marked after {lives} processes: {here.marked}")


@pytest.mark.parametrize("life", [3.0, 7.0, 12.0, 20.0])
@pytest.mark.parametrize(
    ("replacement", "limit"),
    [
        (Replacement.UNSCHEDULABLE, 60),
        (Replacement.UNBOUND, 120),
        (Replacement.REFUSED, 700),
        (Replacement.UNREADY, 700),
    ],
)
def test_a_process_that_is_killed_soon_after_each_start_reopens_the_node(
    replacement: Replacement, limit: float, life: float
) -> None:
    with world(*CLUSTER) as here:
        here.replacements["web"] = replacement
        assert reopened_at(here, life, int(limit / life) + 1) <= limit
        assert ("evict", "web-2") not in here.writes


def test_an_overdue_drain_is_reopened_before_the_caches_are_full() -> None:
    with world(*CLUSTER) as here:
        here.replacements["web"] = Replacement.UNSCHEDULABLE
        here.at(10, lambda: setattr(here, "leading", False))
        here.stop_at(10)
        here.loop(TIMING, holder="first").run()
        assert here.marked == ["od-1"]
        here.pass_time(20)
        here.leading, here.stopping, here.synced = True, False, False
        loop = here.loop(TIMING, holder="second")
        assert loop.round() is RoundOutcome.UNFIT
        assert here.marked == []
        [ended] = [event for event in here.of(DrainEnded) if event.failure and event.failure.why is Why.OVERDUE]
        assert "had to run by" in ended.failure.detail
        here.synced = True
        loop.round()
        assert [owed.debt.controller.name for owed in here.memory.debts] == ["web"]
        assert here.memory.cooldowns.by_node.keys() == {"od-1"}
