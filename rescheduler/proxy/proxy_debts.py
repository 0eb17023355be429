"""The replacement pods that failed drains of a proxy still owe, for the lifetime of its process."""

from collections.abc import Iterable
from typing import Final

from rescheduler.clock import Clock
from rescheduler.draining.state import Drain
from rescheduler.errors import ReschedulerError
from rescheduler.execution.cluster_view import ClusterView
from rescheduler.execution.context import Controllers
from rescheduler.execution.landings import Landings
from rescheduler.observe.events import Report
from rescheduler.planning.debts import Debt
from rescheduler.planning.memory import OpenDebt, owing

_WAIVE: Final = "a restart of the proxy waives the debts"


class FailedDrains:
    """The debts of failed drains. No drain starts while there are any, because it could cause more debts.

    Not thread-safe.
    """

    def __init__(
        self, view: ClusterView, controllers: Controllers, clock: Clock, report: Report, *, ready: bool
    ) -> None:
        """Create a record without debts. Without *ready*, replacement pods only need to be bound."""
        self.debts: tuple[OpenDebt, ...] = ()
        self._clock = clock
        self._landings = Landings(view, controllers, self, report, ready=ready, waive=_WAIVE)

    def owe(self, node: str, debts: Iterable[Debt]) -> None:
        self.debts = owing(self.debts, node, debts, self._clock.now())

    def note(self, drain: Drain) -> None:
        """Record the result of *drain*, which has ended."""
        if drain.begun or drain.resumed or drain.rolled_back:
            failed = drain.failure is not None or drain.rolled_back
            self.owe(drain.node, drain.owed.values() if failed else ())
            self._landings.evicted(drain.evicted)

    def owed(self) -> str:
        """Return the owed replacement pods, because of which no drain may start; "" if nothing is owed."""
        try:
            held = self._landings.settle()
        except ReschedulerError as error:
            return f"cannot check the debts of earlier drains: {error}"
        return held.detail if held is not None else ""
