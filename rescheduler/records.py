"""What drains did, noted in the memory: delays, cooldowns, pauses, debts, moves."""

from datetime import datetime
from typing import Final

from rescheduler.clock import Clock
from rescheduler.draining.state import LANDING_FAILURES, Drain, Failure, Phase, Why
from rescheduler.observe.events import Compared, CoolingDown, NodeRef, Report
from rescheduler.planning.landing import Landed
from rescheduler.planning.outcome import Reason
from rescheduler.recollection import Recollection
from rescheduler.view import View

#: Failures that are not the node's fault: it does not cool down for them.
NOT_THE_NODES: Final = frozenset({Why.STOPPED, Why.LEADERSHIP_LOST, Why.NODE_GONE})

#: Failures that are told as the reason while the node cools down. All others are ``cooling-down``.
_REASONS: Final = {Why.EVICTION_REFUSED: Reason.EVICTION_REFUSED, Why.REFUSED: Reason.PROVIDER_REFUSED}


class DrainRecords:
    """For the loop's thread."""

    def __init__(
        self, recollection: Recollection, view: View, clock: Clock, report: Report, *, returns_pause: bool = True
    ) -> None:
        """*returns_pause*: drains pause after one whose pods mostly came back to on-demand nodes."""
        self._returns_pause = returns_pause
        self._recollection = recollection
        self._view = view
        self._clock = clock
        self._report = report

    def ending(self, drain: Drain) -> None:
        """Store what a drain owes, and that the drain delay runs: this process may end at any moment."""
        self._owe(drain)
        self._recollection.save()

    def noted(self, drain: Drain) -> bool:
        """Store what a drain will owe before its first eviction: the Node may be lost with its mark.

        Whether it is stored.
        """
        self._recollection.owe(drain.node, drain.debts.values())
        return self._recollection.save()

    def landed(self, landed: Landed) -> None:
        """Where the replacement pods of a successful drain are."""
        outcomes = {str(outcome): pods for outcome, pods in landed.outcomes.items()}
        self._report(Compared(landed.node, outcomes, landed.returned))
        self._recollection.landing_succeeded()
        if landed.badly and self._returns_pause:
            self._recollection.pods_returned()
        else:
            self._recollection.pods_stayed()

    def ended(self, drain: Drain, began: datetime) -> None:
        """A drain that began to evict at *began* has ended."""
        for controller in sorted(set(drain.controllers.values())):
            pods = sum(drain.controllers.get(pod.uid) == controller for pod in drain.evicted)
            if pods:
                self._recollection.moved(controller, pods, began)
        self._owe(drain)
        if drain.rolled_back:
            pass  # how the drain ended is not known
        elif drain.failure is None:
            self._recollection.node_succeeded(drain.node)
        else:
            self._failed(drain, drain.failure)
        self._recollection.save()

    def _owe(self, drain: Drain) -> None:
        """Note what is not paid at the end. A drain that evicted a pod or ordered a machine starts the drain delay.

        An eviction whose answer did not come in time may have been accepted, so its controller is owed, too.
        """
        earlier = drain.resumed or drain.rolled_back  # which pods another process evicted is not known
        debts = [debt for each, debt in drain.debts.items() if earlier or each in drain.begun]
        if debts or not earlier:
            self._recollection.owe(drain.node, debts)
        ordered = drain.ordered or drain.phase is Phase.ORDERING
        if (earlier and debts) or drain.evicted or (ordered and drain.ordered_at is None):
            self._recollection.drained()

    def _failed(self, drain: Drain, failure: Failure) -> None:
        if failure.why in LANDING_FAILURES:
            self._recollection.landing_failed()
        node = self._view.node(drain.node)
        if failure.why in NOT_THE_NODES or node is None:
            return
        reason = _REASONS.get(failure.why, "")
        cooldown = self._recollection.node_failed(drain.node, node.metadata.uid, reason, failure.detail)
        self._report(CoolingDown(NodeRef(drain.node, node.metadata.uid), cooldown.until, cooldown.failures))
