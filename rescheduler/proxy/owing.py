"""What failed drains of a proxy still owe, for as long as its process lives."""

from collections.abc import Iterable
from typing import Final

from rescheduler.access import Controllers
from rescheduler.clock import Clock
from rescheduler.draining.state import Drain
from rescheduler.errors import ReschedulerError
from rescheduler.landings import Landings
from rescheduler.observe.events import Report
from rescheduler.planning.debts import Debt
from rescheduler.planning.memory import OpenDebt, owing
from rescheduler.view import View

_WAIVE: Final = "a restart of the proxy gives the debts up"


class FailedDrains:
    """No drain begins while an earlier one that failed owes replacement pods: each would cost further pods.

    For one thread at a time.
    """

    def __init__(self, view: View, controllers: Controllers, clock: Clock, report: Report, *, ready: bool) -> None:
        """Without *ready*, bound replacement pods are enough."""
        self.debts: tuple[OpenDebt, ...] = ()
        self._clock = clock
        self._landings = Landings(view, controllers, self, report, ready=ready, waive=_WAIVE)

    def owe(self, node: str, debts: Iterable[Debt]) -> None:
        self.debts = owing(self.debts, node, debts, self._clock.now())

    def note(self, drain: Drain) -> None:
        """*drain* has ended."""
        if drain.begun or drain.resumed or drain.rolled_back:
            failed = drain.failure is not None or drain.rolled_back
            self.owe(drain.node, drain.debts.values() if failed else ())
            self._landings.evicted(drain.evicted)

    def owed(self) -> str:
        """Why no drain may begin now; "" where nothing is owed."""
        try:
            held = self._landings.settle()
        except ReschedulerError as error:
            return f"what earlier drains owe cannot be read: {error}"
        return held.detail if held is not None else ""
