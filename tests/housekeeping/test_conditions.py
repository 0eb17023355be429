"""The condition DrainInProgress of drained nodes (``--report-node-conditions``)."""

from typing import Any, Final

import pytest

from rescheduler.errors import Forbidden, Retryable
from rescheduler.housekeeping.loop import RoundOutcome
from rescheduler.observe.events import DrainEnded, Trouble
from rescheduler.providers.base import Deleted
from tests.housekeeping.test_kills import CLUSTER, TIMING, SimulatedKill, kill_at
from tests.housekeeping.world import Replacement, ScriptedProvider, world

ONE_NODE: Final = (CLUSTER[0], *CLUSTER[2:5])
WRITES: Final = 7  #: mark, condition, debts, two evictions, release, removal of the condition


def test_no_condition_is_written_by_default() -> None:
    with world(*ONE_NODE) as here:
        assert here.loop().round() is RoundOutcome.DRAINED
        assert "report" not in dict(here.writes)


def test_the_node_has_the_condition_from_its_mark_until_its_release() -> None:
    with world(*ONE_NODE) as here:
        seen: list[list[str]] = []
        here.on_evicted = lambda: seen.append(here.conditions.reported)
        assert here.loop(report_conditions=True).round() is RoundOutcome.DRAINED
        assert seen == [["od-1"], ["od-1"]]
        assert (here.conditions.reported, here.marked) == ([], [])
        names = [name for name, _ in here.writes]
        assert names.index("taint") < names.index("report") < names.index("evict")
        assert names.index("untaint") < names.index("report no more")


def test_the_condition_is_no_evidence_of_another_tool_and_ends_with_a_rollback() -> None:
    with world(*ONE_NODE) as here:
        here.replacements["web"] = Replacement.UNSCHEDULABLE
        assert here.loop(report_conditions=True).round() is RoundOutcome.FAILED
        [ended] = here.of(DrainEnded)
        assert "cannot place" in ended.failure.detail
        assert (here.conditions.reported, here.marked) == ([], [])


def test_the_condition_of_a_removed_machine_ends_with_its_node() -> None:
    with world(*ONE_NODE) as here:
        loop = here.loop(report_conditions=True, provider=ScriptedProvider([Deleted()]))
        assert loop.round() is RoundOutcome.DRAINED
        assert here.conditions.reported == []
        assert "report no more" not in dict(here.writes)


@pytest.mark.parametrize("error", [Forbidden("no right"), Retryable("busy")], ids=["forbidden", "an outage"])
def test_an_api_server_that_rejects_the_condition_changes_no_drain(error: Any) -> None:
    with world(*ONE_NODE) as here:
        here.conditions.error = error
        assert here.loop(report_conditions=True).round() is RoundOutcome.DRAINED
        assert {event.detail for event in here.of(Trouble)} == {str(error)}


@pytest.mark.parametrize("reports", [True, False], ids=["the next process reports", "the next process does not report"])
@pytest.mark.parametrize("after", [False, True], ids=["before the write", "after the write"])
@pytest.mark.parametrize("write", range(1, WRITES + 1))
def test_no_condition_stays_after_a_kill_at_any_write(write: int, after: bool, reports: bool) -> None:
    with world(*ONE_NODE) as here:
        kill_at(here, write, (here.conditions, "set"), (here.conditions, "remove"), after=after)
        here.stop_at(900)
        with pytest.raises(SimulatedKill):
            here.loop(TIMING, holder="first", report_conditions=True).run()
        here.pass_time(15)
        here.leading = True
        here.loop(TIMING, holder="second", report_conditions=reports).run()
        assert (here.conditions.reported, here.marked) == ([], [])
