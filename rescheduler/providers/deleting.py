"""What the deletions of all providers share: their loop, the orders of this process, and waits of threads."""

import threading
from collections import OrderedDict
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Generic, TypeVar

from rescheduler import errors
from rescheduler.clock import Clock
from rescheduler.errors import DeadlineExceeded
from rescheduler.net.http_errors import one_attempt
from rescheduler.providers.base import Alone, DeleteOutcome, MayEnd, NodeRef, Turns, UnknownGroup

# The loop of all deletions: read the state and send orders until all outcomes are known or the deadline passes.


def delete_until_confirmed(
    nodes: Sequence[NodeRef],
    advance: Callable[[dict[str, DeleteOutcome]], None],
    wait: Callable[[], bool],
    give_up: Callable[[str], Mapping[str, DeleteOutcome]],
    *,
    is_accepted: Callable[[NodeRef], bool] = lambda _: False,
    is_ordered: Callable[[], bool] = lambda: True,
) -> Mapping[str, DeleteOutcome]:
    """Return the outcome of each node, in order. Errors and timeouts become outcomes.

    *advance* reads the state of the system, sends the requests that are due, and adds the known outcomes to the mapping
    that it is given. It sends each request once; the next call repeats failed requests. *wait* waits until the next
    call; it returns False if there is no time for one. *give_up* returns the outcomes for the nodes that have none,
    given the last error. The loop does not wait for a node for which *is_accepted* is true. UnknownGroup is raised
    unless *is_ordered*, because an exception means that no order can take effect.
    """
    done: dict[str, DeleteOutcome] = {}
    while True:
        last_error = "timed out"
        try:
            with one_attempt():
                advance(done)
        except errors.ReschedulerError as error:
            if isinstance(error, UnknownGroup) and not is_ordered():
                raise
            last_error = str(error)
            if not isinstance(error, errors.Retryable):
                break
        if all(node.name in done or is_accepted(node) for node in nodes) or not wait():
            break
    late = give_up(last_error)
    return {node.name: done.get(node.name) or late[node.name] for node in nodes}


# The deletion orders of this process, and the machine that each node had when its order was given.

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


# Waits for others that share a system: between polls, and for changes by other threads and processes.


class PolledSystem:
    """A system that is polled every *poll* seconds; *name* identifies it in errors. Thread-safe.

    An order may take effect for *settle* seconds. :attr:`turns` are those of all processes that change the system.
    """

    def __init__(self, name: str, clock: Clock, poll: float, settle: float) -> None:
        self.clock = clock
        self.closed = threading.Event()
        self.turns: Turns = Alone()
        self._name, self._poll, self._settle = name, poll, settle
        self._turn = threading.Lock()
        self._confirm_turn: Callable[[], None] = lambda: None

    def in_doubt(self) -> bool:
        """Return whether the system may not show the effect of an order of this process yet."""
        return False

    def ask(self, may_end: MayEnd, node: NodeRef) -> None:
        """Ask, right before a request that could end the machine of *node*, whether it may be sent.

        Raises the errors of *may_end*, and NoTurn if another process may change the system now.
        """
        may_end(node)
        self._confirm_turn()

    def pause(
        self, why: str, deadline: float, stop: threading.Event | None = None, *, seconds: float | None = None
    ) -> None:
        """Wait one poll interval, or *seconds*. Raises DeadlineExceeded if the deadline is earlier or *stop* is set."""
        seconds = self._poll if seconds is None else seconds
        if self.clock.monotonic() + seconds >= deadline:
            raise DeadlineExceeded(f"{self._name}: {why}")
        if self.clock.wait(seconds, stop or self.closed):
            raise DeadlineExceeded(f"{self._name}: {why}; stopping")

    def wait_poll_interval(self, deadline: float) -> bool:
        """Wait one poll interval; return False if that would exceed the deadline or the system is closed."""
        try:
            self.pause("timed out", deadline)
        except DeadlineExceeded:
            return False
        return True

    @contextmanager
    def changing(self, *, deadline: float) -> Iterator[None]:
        """Allow one change at a time, so that each is based on the result of the previous one. Raises NoTurn."""
        if not self._turn.acquire(timeout=max(0.0, deadline - self.clock.monotonic())):
            raise DeadlineExceeded(f"{self._name}: another change is in progress")
        try:
            with self.turns.hold(deadline - self.clock.monotonic(), self._settle, self.in_doubt) as confirm:
                self._confirm_turn = confirm
                yield
        finally:
            self._turn.release()
