"""Which orders this process gave, and which machine a node was when they were given."""

import threading
from collections import OrderedDict
from typing import Generic, TypeVar

from rescheduler.backends.base import NodeRef

Given = TypeVar("Given")

_REMEMBERED = 10_000  #: orders, and nodes; the oldest are forgotten


class Ledger(Generic[Given]):
    """Safe to use from several threads. A machine that is gone is still known here by its node."""

    def __init__(self) -> None:
        self._orders: OrderedDict[str, Given] = OrderedDict()
        self._machines: OrderedDict[tuple[str, str], str] = OrderedDict()
        self._lock = threading.Lock()

    def record(self, machine: str, order: Given, node: NodeRef | None = None) -> None:
        """The last order for *machine*, which was *node*'s."""
        with self._lock:
            self._orders[machine] = order
            self._orders.move_to_end(machine)
            if node is not None:
                self._machines[node.name, node.provider_id] = machine
            for memory in (self._orders, self._machines):
                while len(memory) > _REMEMBERED:
                    memory.popitem(last=False)

    def forget(self, machine: str) -> None:
        """The machine stays: its next order is the first one."""
        with self._lock:
            self._orders.pop(machine, None)
            for node in [node for node, one in self._machines.items() if one == machine]:
                del self._machines[node]

    def order(self, machine: str) -> Given | None:
        with self._lock:
            return self._orders.get(machine)

    def machine_of(self, node: NodeRef) -> str | None:
        with self._lock:
            return self._machines.get((node.name, node.provider_id))

    def orders(self) -> dict[str, Given]:
        with self._lock:
            return dict(self._orders)
