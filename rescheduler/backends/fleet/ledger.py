"""What this process ordered and what it asked for, until the system shows it."""

import datetime as dt
import threading
from collections import OrderedDict
from collections.abc import Iterable
from dataclasses import dataclass

from rescheduler.backends.base import NodeRef

_REMEMBERED = 10_000  #: orders, and nodes; the oldest are forgotten


@dataclass(frozen=True, slots=True)
class Order:
    """The last order to end a machine."""

    at: dt.datetime
    taken: bool  #: the system said yes
    open: bool  #: it may be at work
    words: str = ""  #: what went wrong
    attempts: int = 1


class Ledger:
    """Safe to use from several threads. A machine that is gone is still known here by its node."""

    def __init__(self) -> None:
        self._orders: OrderedDict[str, Order] = OrderedDict()
        self._machines: OrderedDict[tuple[str, str], str] = OrderedDict()
        self._expected: OrderedDict[str, tuple[str, dt.datetime]] = OrderedDict()
        self._lock = threading.Lock()

    def record(self, key: str, order: Order, node: NodeRef | None = None) -> None:
        with self._lock:
            self._orders[key] = order
            self._orders.move_to_end(key)
            if node is not None:
                self._machines[node.name, node.provider_id] = key
            for memory in (self._orders, self._machines):
                while len(memory) > _REMEMBERED:
                    memory.popitem(last=False)

    def order(self, key: str) -> Order | None:
        with self._lock:
            return self._orders.get(key)

    def machine_of(self, node: NodeRef) -> str | None:
        with self._lock:
            return self._machines.get((node.name, node.provider_id))

    def open(self, key: str, since: dt.datetime) -> bool:
        """Whether an order of *since* or later may be at work."""
        order = self.order(key)
        return order is not None and order.open and order.at >= since

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
