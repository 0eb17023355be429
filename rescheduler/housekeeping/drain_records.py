"""Record the results of drains in the memory: delays, cooldowns, pauses, debts and moves."""

from datetime import datetime, timedelta
from typing import Final

from rescheduler.clock import Clock
from rescheduler.draining.failures import Failure, Why
from rescheduler.draining.state import Drain, Phase
from rescheduler.execution.cluster_view import ClusterView
from rescheduler.housekeeping.drain_history import DrainHistory
from rescheduler.observe.events import Compared, CoolingDown, InvolvedNode, Report
from rescheduler.planning.landing import Landed
from rescheduler.planning.outcome import Reason

#: Failures that the node did not cause; it does not cool down after them.
NOT_CAUSED_BY_NODE: Final = frozenset({Why.STOPPED, Why.PAUSED, Why.LEADERSHIP_LOST, Why.NODE_GONE})

#: Failures that are shown as the reason while the node cools down. For all others the reason is ``cooling-down``.
_REASONS: Final = {Why.EVICTION_REFUSED: Reason.EVICTION_REFUSED, Why.REFUSED: Reason.PROVIDER_REFUSED}


class DrainRecords:
    """Records the results of drains. Used by the loop's thread only."""

    def __init__(
        self, history: DrainHistory, view: ClusterView, clock: Clock, report: Report, *, returns_pause: bool = True
    ) -> None:
        """Create the recorder. With *returns_pause*, drains pause if most pods of a drain return to on-demand nodes."""
        self._returns_pause = returns_pause
        self._history = history
        self._view = view
        self._clock = clock
        self._report = report

    def store_before_end(self, drain: Drain) -> None:
        """Store the debts of a drain and start the drain delay, because this process may be killed at any moment."""
        self._owe(drain)
        self._history.save()

    def store_expected(self, drain: Drain) -> bool:
        """Store the expected debts of a drain before its first eviction, because the Node and its mark may be deleted.

        Return whether they are stored.
        """
        self._history.owe(drain.node, drain.debts.values())
        return self._history.save()

    def record_landing(self, landed: Landed) -> None:
        """Record where the replacement pods of a successful drain were placed."""
        outcomes = {str(outcome): pods for outcome, pods in landed.outcomes.items()}
        self._report(Compared(landed.node, outcomes, landed.returned))
        if landed.badly and self._returns_pause:
            self._history.pods_returned()
        else:
            self._history.pods_stayed()

    def record_end(self, drain: Drain, began: datetime) -> None:
        """Record the end of a drain whose evictions started at *began*."""
        for controller in sorted(set(drain.controllers.values())):
            pods = sum(drain.controllers.get(pod.uid) == controller for pod in drain.evicted)
            if pods:
                self._history.moved(controller, pods, began)
        self._owe(drain)
        if drain.rolled_back:
            pass  # the result of the drain is not known
        elif drain.failure is None:
            self._history.node_succeeded(drain.node)
            moved = {drain.controllers.get(pod.uid) for pod in drain.evicted} - set(drain.owed)
            self._history.recovered(owner for owner in moved if owner is not None)
        else:
            self._failed(drain, drain.failure)
        self._history.save()

    def _owe(self, drain: Drain) -> None:
        """Record unpaid debts. A drain that evicted a pod or requested a termination starts the drain delay.

        An eviction that timed out may have been accepted, so its debt counts as well.
        """
        earlier = drain.resumed or drain.rolled_back  # the pods that another process evicted are not known
        debts = [debt for controller, debt in drain.owed.items() if earlier or controller in drain.begun]
        if debts or not earlier:
            self._history.owe(drain.node, debts, self._last_eviction(drain))
        ordered = drain.ordered or drain.phase is Phase.ORDERING
        if (earlier and debts) or drain.evicted or (ordered and drain.ordered_at is None):
            self._history.drained()

    def _last_eviction(self, drain: Drain) -> datetime | None:
        """Return when the last pod of *drain* was evicted; None if it is not known. Its debts are open since then."""
        if drain.last_eviction_at is None:
            return None
        return self._clock.now() - timedelta(seconds=max(0.0, self._clock.monotonic() - drain.last_eviction_at))

    def _failed(self, drain: Drain, failure: Failure) -> None:
        for owner in failure.owners:
            self._history.set_aside(owner)
        node = self._view.node(drain.node)
        if failure.why in NOT_CAUSED_BY_NODE or node is None:
            return
        reason = _REASONS.get(failure.why, "")
        pod = str(failure.pods[0]) if failure.why is Why.EVICTION_REFUSED and failure.pods else ""
        cooldown = self._history.node_failed(drain.node, node.metadata.uid, reason, failure.detail, pod)
        self._report(CoolingDown(InvolvedNode.of(node), cooldown.until, cooldown.failures))
