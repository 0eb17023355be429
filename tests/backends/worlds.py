"""A backend and its system, really spoken to, as the facts of `conformance` and `groupless` see both."""

import threading
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager
from typing import Protocol

from rescheduler.backends.base import (
    AlreadyGone,
    CloudProvider,
    Deleted,
    DeleteOutcome,
    NodeRef,
    Refusal,
    Refused,
)
from rescheduler.clock import Clock

MINUTES = 600.0  #: seconds; long enough for every system to agree with itself


class World(Protocol):
    """One group of running machines with Nodes, as few as its minimum allowed, at most 10."""

    @property
    def provider(self) -> CloudProvider: ...

    @property
    def group(self) -> str: ...

    @property
    def clock(self) -> Clock:
        """The provider's."""
        ...

    def restart(self) -> None:
        """A new provider over the same system: the process was started again."""
        ...

    def nodes(self) -> list[NodeRef]:
        """The Nodes of the machines that run."""
        ...

    def foreign(self) -> NodeRef:
        """A Node of a machine elsewhere."""
        ...

    def placeholder(self) -> NodeRef | None:
        """A machine of the group as Cluster Autoscaler names one without a Node; `None`: there are no such."""
        ...

    def runs(self, node: NodeRef) -> bool:
        """Whether the machine runs in truth, whatever anybody says."""
        ...

    def target(self) -> int:
        """The system's own target, or its count of machines where it has none."""
        ...

    def fail_deletions(self, times: int) -> None:
        """The system answers the next deletions with an error, and does nothing."""
        ...

    def lose_answers(self, times: int) -> None:
        """The system carries the next deletions out, and the connection breaks before it answers."""
        ...

    def lose_orders(self, times: int) -> None:
        """The connection breaks before the system has read the next deletions."""
        ...

    def go_down(self) -> None:
        """The system answers nothing useful any more."""
        ...


MakeWorld = Callable[[int, int], AbstractContextManager[World]]  #: machines, minimum

Check = Callable[[MakeWorld], None]


def into(table: dict[str, Check]) -> Callable[[str], Callable[[Check], Check]]:
    """A decorator that puts a check into *table* under the fact that it tells."""

    def check(fact: str) -> Callable[[Check], Check]:
        def register(function: Check) -> Check:
            table[fact] = function
            return function

        return register

    return check


def delete(world: World, *nodes: NodeRef, within: float = MINUTES) -> list[DeleteOutcome]:
    deadline = world.clock.monotonic() + within
    outcomes = world.provider.delete_nodes(world.group, nodes, deadline=deadline)
    assert list(outcomes) == [node.name for node in nodes]
    return list(outcomes.values())


def went(outcome: DeleteOutcome) -> bool:
    return isinstance(outcome, Deleted | AlreadyGone)


def group_of(world: World, node: NodeRef) -> str | None:
    group = world.provider.group_for(node, deadline=world.clock.monotonic() + MINUTES)
    return group.id if group else None


def reasons(world: World, *nodes: NodeRef) -> list[Refusal]:
    return [outcome.reason for outcome in delete(world, *nodes) if isinstance(outcome, Refused)]


def at_once(calls: Sequence[Callable[[], DeleteOutcome]]) -> list[DeleteOutcome]:
    """The outcomes of calls that begin together, each on a thread of its own."""
    barrier = threading.Barrier(len(calls))

    def run(call: Callable[[], DeleteOutcome]) -> DeleteOutcome:
        barrier.wait(timeout=120)
        return call()

    with ThreadPoolExecutor(len(calls)) as threads:
        return list(threads.map(run, calls))
