"""Rounds that would find what the last one has found are not run: when the loop must look again, and at what."""

from dataclasses import dataclass
from datetime import datetime
from typing import Final

from rescheduler.clock import Clock
from rescheduler.execution.cluster_view import ClusterView
from rescheduler.housekeeping.round_plans import SURVEY, Knowledge, LoopState, Mode, RoundPlans
from rescheduler.observe.events import Held, Waiting
from rescheduler.planning.pauses import next_opening

#: What no drain waits for longer than an instant that is known.
_TIMED: Final = frozenset(
    {Waiting.DRAIN_DELAY, Waiting.RETURNED_PODS, Waiting.OUTSIDE_DRAIN_WINDOW, Waiting.SPOT_SETTLING, Waiting.PAUSED}
)

#: At most this many rounds in a row are left out.
LEFT_OUT: Final = 5


@dataclass(slots=True)
class Resting:
    """Tells whether the next round can be left out. Used by the loop's thread only.

    Each wait has a known end: the waits that are remembered, the drain windows, the settling of spot nodes, the times
    that rules compare with, and vetoes. What is not watched (the memory, which a user may change, what the provider
    says, rights, price files) is read again after LEFT_OUT rounds, and at least every SURVEY; in a simulated cluster,
    where nobody else changes it, more seldom. So a round that is left out can delay what follows from these, and
    nothing else. While a drain is open, something is owed, pods are pending, or room is ordered, no round is left out.
    """

    view: ClusterView
    plans: RoundPlans
    knowledge: Knowledge
    run_state: LoopState
    mode: Mode
    clock: Clock
    #: The inputs of the last round, and the first instant at which a round may find something else.
    _rest: tuple[object, datetime] | None = None

    def wake(self) -> None:
        """Let the next round run."""
        self._rest = None

    def begin(self, held: Held | None, settled_at: datetime | None) -> None:
        """Rest after a round of the leader, which *held* drains for a reason, or found none to start."""
        if self.mode.dry_run or not self._is_at_rest(held):
            return
        now, interval = self.clock.now(), self.mode.timing.housekeeping_interval
        longest = min(SURVEY, (LEFT_OUT + 1) * interval) * self.mode.pace
        closed = held is not None and held.waiting is Waiting.OUTSIDE_DRAIN_WINDOW
        opening = next_opening(self.mode.windows, now) if closed else None
        planned = self.plans.none_until(longest) if held is None else None
        ends = (self.knowledge.history.next_end(), settled_at, opening, planned)
        self._rest = self._inputs(), min([now + longest, *filter(None, ends)])

    def _is_at_rest(self, held: Held | None) -> bool:
        memory, facts = self.knowledge.history.memory, self.view.facts
        ordered = memory.spot_orders.open is not None or facts.placeholders()
        active = memory.debts or facts.marked or ordered or self.view.snapshot.pods_on.get("")
        return not active and (held is None or held.waiting in _TIMED)

    def lasts(self) -> bool:
        """Return whether the next round would find what the last one has found."""
        inputs, until = self._rest or (None, None)
        if until is None or self.clock.now() >= until:
            return False
        self.view.advance()
        return self._inputs() == inputs

    def _inputs(self) -> object:
        """Return what changes with the watched state, a user's pause, and whether somebody reads the pages."""
        snapshot = self.view.snapshot
        return snapshot.changes, snapshot.unreadable, self.run_state.paused, self.knowledge.page_is_read()
