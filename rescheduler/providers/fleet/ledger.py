"""The deletion orders of this process, and the machines that it requested until the system lists them."""

import datetime as dt
from collections import OrderedDict
from collections.abc import Iterable
from dataclasses import dataclass

from rescheduler.providers import ledger


@dataclass(frozen=True, slots=True)
class FleetOrder:
    """The last order to delete a machine."""

    at: dt.datetime
    accepted: bool  #: the system accepted it
    open_since: dt.datetime | None  #: when this order, or an earlier one that may still take effect, was given
    error_text: str = ""  #: the error
    attempts: int = 1


class FleetLedger(ledger.Ledger[FleetOrder]):
    """The deletion orders, and the requested machines that are not listed yet."""

    def __init__(self) -> None:
        super().__init__()
        self._expected: OrderedDict[str, tuple[str, dt.datetime]] = OrderedDict()

    def may_take_effect(self, key: str, since: dt.datetime) -> bool:
        """Return whether the machine has an order, given at *since* or later, that may still take effect."""
        order = self.order(key)
        return order is not None and order.open_since is not None and order.open_since >= since

    def expect(self, key: str, group: str, now: dt.datetime) -> None:
        """Record that the system is creating the machine and may not list it yet."""
        with self._lock:
            self._expected[key] = (group, now)

    def mark_listed(self, keys: Iterable[str], since: dt.datetime) -> None:
        """Stop expecting the machines *keys*, which the system lists, and machines requested before *since*."""
        listed = frozenset(keys)
        with self._lock:
            for key, (_, requested_at) in list(self._expected.items()):
                if key in listed or requested_at < since:
                    del self._expected[key]

    def expected(self, group: str) -> list[str]:
        with self._lock:
            return [key for key, (owner, _) in self._expected.items() if owner == group]
