"""A backend and its system, as the facts of `conformance` and `groupless` use them."""

import threading
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager
from typing import Protocol

from rescheduler.clock import Clock
from rescheduler.providers.base import (
    AlreadyGone,
    CloudProvider,
    Deleted,
    DeleteOutcome,
    MayEnd,
    NodeRef,
    Refusal,
    Refused,
    any_may_end,
)

MINUTES = 600.0  #: seconds; long enough for every system to become consistent


class World(Protocol):
    """One group of running machines with Nodes: the requested minimum, a maximum of 10."""

    @property
    def provider(self) -> CloudProvider: ...

    @property
    def group(self) -> str: ...

    @property
    def clock(self) -> Clock:
        """The provider's clock."""
        ...

    def restart(self) -> None:
        """Replace the provider with a new one, as after a restart of the process."""
        ...

    def nodes(self) -> list[NodeRef]:
        """Return the Nodes of the running machines."""
        ...

    def foreign(self) -> NodeRef:
        """Return a Node of a machine outside of the group."""
        ...

    def placeholder(self) -> NodeRef | None:
        """Return a machine without a Node as Cluster Autoscaler names it; `None` if the system has none."""
        ...

    def runs(self, node: NodeRef) -> bool:
        """Return whether the machine really runs, regardless of any response."""
        ...

    def target(self) -> int:
        """Return the system's target, or its number of machines if it has no target."""
        ...

    def fail_deletions(self, times: int) -> None:
        """Let the next deletions fail with an error, without an effect."""
        ...

    def lose_answers(self, times: int) -> None:
        """Let the system perform the next deletions and break the connection before the response."""
        ...

    def lose_orders(self, times: int) -> None:
        """Break the connection before the system reads the next deletions."""
        ...

    def go_down(self) -> None:
        """Let the system fail every request."""
        ...


MakeWorld = Callable[[int, int], AbstractContextManager[World]]  #: machines, minimum

Check = Callable[[MakeWorld], None]


def into(table: dict[str, Check]) -> Callable[[str], Callable[[Check], Check]]:
    """Return a decorator that adds a check to *table* under its fact."""

    def check(fact: str) -> Callable[[Check], Check]:
        def register(function: Check) -> Check:
            table[fact] = function
            return function

        return register

    return check


def delete(
    world: World, *nodes: NodeRef, within: float = MINUTES, may_end: MayEnd = any_may_end
) -> list[DeleteOutcome]:
    deadline = world.clock.monotonic() + within
    outcomes = world.provider.delete_nodes(world.group, nodes, deadline=deadline, may_end=may_end)
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
    """Start the calls together, each on its own thread, and return their outcomes."""
    barrier = threading.Barrier(len(calls))

    def run(call: Callable[[], DeleteOutcome]) -> DeleteOutcome:
        barrier.wait(timeout=120)
        return call()

    with ThreadPoolExecutor(len(calls)) as threads:
        return list(threads.map(run, calls))
