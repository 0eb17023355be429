"""What this process ordered and what it asked for, until the system shows it."""

import datetime as dt
from collections import OrderedDict
from collections.abc import Iterable
from dataclasses import dataclass

from rescheduler.backends import ledger


@dataclass(frozen=True, slots=True)
class Order:
    """The last order to end a machine."""

    at: dt.datetime
    taken: bool  #: the system said yes
    open_since: dt.datetime | None  #: when this one, or one before it, was given that may be at work
    words: str = ""  #: what went wrong
    attempts: int = 1


class Ledger(ledger.Ledger[Order]):
    """And what was asked for."""

    def __init__(self) -> None:
        super().__init__()
        self._expected: OrderedDict[str, tuple[str, dt.datetime]] = OrderedDict()

    def open(self, key: str, since: dt.datetime) -> bool:
        """Whether an order of *since* or later may be at work."""
        order = self.order(key)
        return order is not None and order.open_since is not None and order.open_since >= since

    def expect(self, key: str, group: str, now: dt.datetime) -> None:
        """The system said that it makes the machine, and may not list it yet."""
        with self._lock:
            self._expected[key] = (group, now)

    def seen(self, keys: Iterable[str], since: dt.datetime) -> None:
        """Machines that are listed are expected no longer, nor those that were asked for before *since*."""
        listed = frozenset(keys)
        with self._lock:
            for key, (_, asked_at) in list(self._expected.items()):
                if key in listed or asked_at < since:
                    del self._expected[key]

    def expected(self, group: str) -> list[str]:
        with self._lock:
            return [key for key, (of, _) in self._expected.items() if of == group]
