"""The deletion orders of this process, and the machine that each node had when its order was given."""

import threading
from collections import OrderedDict
from typing import Generic, TypeVar

from rescheduler.providers.base import NodeRef

Given = TypeVar("Given")

_MAX_ORDERS = 10_000  #: maximum number of orders, and of nodes; the oldest are dropped


class Ledger(Generic[Given]):
    """The last order per machine, and the machine per node, even after the machine is gone. Thread-safe."""

    def __init__(self) -> None:
        self._orders: OrderedDict[str, Given] = OrderedDict()
        self._machines: OrderedDict[tuple[str, str], str] = OrderedDict()
        self._lock = threading.Lock()

    def record(self, machine: str, order: Given, node: NodeRef | None = None) -> None:
        """Store *order* as the last order for *machine*, and *machine* as the machine of *node*."""
        with self._lock:
            self._orders[machine] = order
            self._orders.move_to_end(machine)
            if node is not None:
                self._machines[node.name, node.provider_id] = machine
            for memory in (self._orders, self._machines):
                while len(memory) > _MAX_ORDERS:
                    memory.popitem(last=False)

    def forget(self, machine: str) -> None:
        """Delete the machine's order and nodes, so that its next order counts as the first one."""
        with self._lock:
            self._orders.pop(machine, None)
            for node in [node for node, owned in self._machines.items() if owned == machine]:
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
