"""The replacement pods that failed drains of a proxy still owe, for the lifetime of its process."""

from collections.abc import Iterable, Mapping
from datetime import timedelta
from typing import Final

from rescheduler.clock import Clock
from rescheduler.draining.state import Drain
from rescheduler.errors import ReschedulerError
from rescheduler.execution.cluster_view import ClusterView
from rescheduler.execution.context import Controllers
from rescheduler.execution.landings import Landings
from rescheduler.observe.events import Report
from rescheduler.planning.controllers import Controller
from rescheduler.planning.debts import Debt
from rescheduler.planning.memory import OpenDebt, owing
from rescheduler.planning.not_recovered import NotRecovered, OwnerWait
from rescheduler.planning.waits import Waits

_WAIVE: Final = "a restart of the proxy waives the debts"


class FailedDrains:
    """The debts of failed drains, and the owners that are set aside because of them. Not thread-safe."""

    def __init__(
        self,
        view: ClusterView,
        controllers: Controllers,
        clock: Clock,
        report: Report,
        patience: timedelta,
        *,
        ready: bool,
    ) -> None:
        """Create a record without debts. *patience* is the landing timeout.

        Without *ready*, replacement pods only need to be bound.
        """
        self.debts: tuple[OpenDebt, ...] = ()
        self._clock = clock
        self._not_recovered = NotRecovered()
        self._landings = Landings(view, controllers, self, report, clock, patience, ready=ready, waive=_WAIVE)

    def not_recovered(self) -> Mapping[str, OwnerWait]:
        """Return the owners and namespaces whose pods are not moved at present."""
        return self._not_recovered.active(self._clock.now())

    def set_aside(self, owner: Controller) -> None:
        """Do not move the pods of *owner* for a while."""
        self._not_recovered = self._not_recovered.failed(owner, self._clock.now(), Waits().recovery)

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
