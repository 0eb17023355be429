"""What every backend keeps to, told over a world that each of them makes: its system, really spoken to.

A backend joins by one line in `test_conformance.BACKENDS`. One that owns no machines has facts of its own, GROUPLESS.
"""

import threading
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager
from dataclasses import replace
from decimal import Decimal
from typing import Protocol

import pytest

from rescheduler import errors
from rescheduler.backends.base import (
    AboveMaximum,
    Accepted,
    AlreadyGone,
    BelowMinimum,
    CloudProvider,
    Deleted,
    DeleteOutcome,
    Failed,
    InstanceState,
    NodeRef,
    NotSupported,
    Refusal,
    Refused,
    UnknownGroup,
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
CHECKS: dict[str, Check] = {}
GROUPLESS: dict[str, Check] = {}


def check(fact: str, *tables: dict[str, Check]) -> Callable[[Check], Check]:
    """Into CHECKS, or into *tables*."""

    def register(function: Check) -> Check:
        for table in tables or (CHECKS,):
            table[fact] = function
        return function

    return register


def delete(world: World, *nodes: NodeRef, within: float = MINUTES) -> list[DeleteOutcome]:
    deadline = world.clock.monotonic() + within
    outcomes = world.provider.delete_nodes(world.group, nodes, deadline=deadline)
    assert list(outcomes) == [node.name for node in nodes]
    return list(outcomes.values())


def went(outcome: DeleteOutcome) -> bool:
    return isinstance(outcome, Deleted | AlreadyGone)


@check("a node is deleted: its machine ends and the target is one less")
def _(make: MakeWorld) -> None:
    with make(3, 0) as world:
        node = world.nodes()[0]
        assert went(*delete(world, node))
        assert (world.runs(node), world.target()) == (False, 2)


@check("a node deleted twice lowers the target once")
def _(make: MakeWorld) -> None:
    with make(3, 0) as world:
        node = world.nodes()[0]
        delete(world, node)
        assert went(*delete(world, node))
        assert world.target() == 2


@check("a deletion is taken up by the next process, which finds it done")
def _(make: MakeWorld) -> None:
    with make(3, 0) as world:
        node, intent = world.nodes()[0], world.clock.now()
        delete(world, node)
        world.restart()
        resumed = NodeRef(node.name, node.provider_id, node.labels, ordered_at=intent)
        assert went(*delete(world, resumed))
        assert world.target() == 2


@check("a deletion that an earlier process only meant to give is given by the next")
def _(make: MakeWorld) -> None:
    with make(3, 0) as world:
        node, intent = world.nodes()[0], world.clock.now()
        world.restart()
        resumed = NodeRef(node.name, node.provider_id, node.labels, ordered_at=intent)
        assert went(*delete(world, resumed))
        assert (world.runs(node), world.target()) == (False, 2)


@check("nothing is deleted below the minimum, and what is above it goes")
def _(make: MakeWorld) -> None:
    with make(3, 2) as world:
        nodes = world.nodes()
        first, *others = delete(world, *nodes)
        assert went(first)
        assert [outcome.reason for outcome in others if isinstance(outcome, Refused)] == [Refusal.BELOW_MINIMUM] * 2
        assert ([world.runs(node) for node in nodes], world.target()) == ([False, True, True], 2)


@check("what is foretold to be refused is refused")
def _(make: MakeWorld) -> None:
    with make(3, 2) as world:
        nodes = world.nodes()
        foretold = world.provider.refusals(world.group, nodes, deadline=MINUTES + world.clock.monotonic())
        come = dict(zip([node.name for node in nodes], delete(world, *nodes), strict=True))
        assert {name: come[name] for name in foretold} == dict(foretold)


@check("a node of elsewhere has no group and is refused")
def _(make: MakeWorld) -> None:
    with make(2, 0) as world:
        node = world.foreign()
        assert group_of(world, node) is None
        assert reasons(world, node) == [Refusal.NOT_IN_GROUP]
        assert world.target() == 2


@check("a node of the control plane has no group and is refused, by either label and on the caller's word")
def _(make: MakeWorld) -> None:
    with make(2, 0) as world:
        node = world.nodes()[0]
        for role in (
            {"labels": {"node-role.kubernetes.io/control-plane": ""}},
            {"labels": {"node-role.kubernetes.io/master": "true"}},
            {"control_plane": True},
        ):
            master = replace(node, **role)
            assert group_of(world, master) is None
            assert reasons(world, master) == [Refusal.CONTROL_PLANE]
        assert (world.runs(node), world.target()) == (True, 2)


@check("a group that there is not is an error of every verb", CHECKS, GROUPLESS)
def _(make: MakeWorld) -> None:
    with make(1, 0) as world:
        deadline = MINUTES + world.clock.monotonic()
        verbs: list[Callable[[], object]] = [
            lambda: world.provider.target_size("nowhere", deadline=deadline),
            lambda: world.provider.instances("nowhere", deadline=deadline),
            lambda: world.provider.delete_nodes("nowhere", world.nodes(), deadline=deadline),
            lambda: world.provider.increase_size("nowhere", 1, deadline=deadline),
            lambda: world.provider.decrease_target_size("nowhere", -1, deadline=deadline),
            lambda: world.provider.template("nowhere", deadline=deadline),
        ]
        for verb in verbs:
            with pytest.raises(UnknownGroup):
                verb()


@check("every node of a group is found in it, and its instance bears the provider ID")
def _(make: MakeWorld) -> None:
    with make(3, 0) as world:
        deadline = MINUTES + world.clock.monotonic()
        world.provider.refresh(deadline=deadline)
        groups = [group.id for group in world.provider.groups(deadline=deadline)]
        assert [group_of(world, node) for node in world.nodes()] == [world.group] * 3
        instances = world.provider.instances(world.group, deadline=deadline)
        assert world.group in groups
        assert {one.id: one.state for one in instances} == dict.fromkeys(
            (node.provider_id for node in world.nodes()), InstanceState.RUNNING
        )
        for node in world.nodes():
            assert world.provider.instance_for(node, deadline=deadline) in {None, node.provider_id}


@check("a machine without a Node is deleted by its placeholder")
def _(make: MakeWorld) -> None:
    with make(2, 0) as world:
        node = world.placeholder()
        if node is None:
            pytest.skip("the system has no placeholders")
        assert node.placeholder
        assert went(*delete(world, node))
        assert (world.runs(node), world.target()) == (False, 1)


@check("one node's failure is its own")
def _(make: MakeWorld) -> None:
    with make(3, 0) as world:
        nodes = world.nodes()
        stranger = world.foreign()
        first, refused, second = delete(world, nodes[0], stranger, nodes[1])
        assert went(first)
        assert went(second)
        assert isinstance(refused, Refused)
        assert world.target() == 1


@check("a system that fails for a moment is asked again, once the machine was seen to run")
def _(make: MakeWorld) -> None:
    with make(3, 0) as world:
        node = world.nodes()[0]
        world.fail_deletions(2)
        assert went(*delete(world, node))
        assert (world.runs(node), world.target()) == (False, 2)


@check("a system that fails on and on: the machine runs, nothing was lowered, it may be tried later")
def _(make: MakeWorld) -> None:
    with make(3, 0) as world:
        node = world.nodes()[0]
        world.fail_deletions(10_000)
        (outcome,) = delete(world, node)
        assert isinstance(outcome, Failed | Accepted)
        assert not isinstance(outcome, Failed) or outcome.retryable
        assert (world.runs(node), world.target()) == (True, 3)


@check("an answer that is lost after the deed lowers nothing twice")
def _(make: MakeWorld) -> None:
    with make(3, 0) as world:
        node = world.nodes()[0]
        world.lose_answers(1)
        assert went(*delete(world, node))
        assert (world.runs(node), world.target()) == (False, 2)


@check("an order that was lost before the deed is never called done while the machine runs")
def _(make: MakeWorld) -> None:
    with make(3, 0) as world:
        node = world.nodes()[0]
        world.lose_orders(1)
        (outcome,) = delete(world, node, within=20.0)
        assert went(outcome) != world.runs(node)
        assert went(*delete(world, node))
        assert (world.runs(node), world.target()) == (False, 2)


@check("no time at all: nothing happens, and nobody claims it did")
def _(make: MakeWorld) -> None:
    with make(2, 0) as world:
        node = world.nodes()[0]
        try:
            (outcome,) = delete(world, node, within=0.0)
        except errors.Retryable:
            outcome = Failed("raised", retryable=True)
        assert outcome == Failed(getattr(outcome, "error", ""), retryable=True)
        assert (world.runs(node), world.target()) == (True, 2)


@check("a system that is down: every verb says so, and no node is called gone")
def _(make: MakeWorld) -> None:
    with make(2, 0) as world:
        node = world.nodes()[0]
        world.go_down()
        deadline = world.clock.monotonic() + 60
        for verb in (world.provider.target_size, world.provider.instances):
            with pytest.raises(errors.Retryable):
                verb(world.group, deadline=deadline)
            deadline = world.clock.monotonic() + 60
        try:
            (outcome,) = delete(world, node, within=60)
        except errors.Retryable:
            outcome = Failed("raised", retryable=True)
        assert outcome == Failed(getattr(outcome, "error", ""), retryable=True)
        assert world.runs(node)


@check("the same node from many threads lowers the target once")
def _(make: MakeWorld) -> None:
    with make(5, 0) as world:
        node = world.nodes()[0]
        outcomes = at_once([lambda: delete(world, node)[0]] * 4)
        assert all(went(outcome) for outcome in outcomes)
        assert (world.runs(node), world.target()) == (False, 4)


@check("many nodes from many threads never undercut the minimum")
def _(make: MakeWorld) -> None:
    with make(5, 2) as world:
        nodes = world.nodes()
        outcomes = at_once([lambda node=node: delete(world, node)[0] for node in nodes])  # type: ignore[misc]
        assert sorted(type(outcome).__name__ for outcome in outcomes) == ["Deleted"] * 3 + ["Refused"] * 2
        assert (sum(world.runs(node) for node in nodes), world.target()) == (2, 2)


@check("the target is raised, up to the maximum")
def _(make: MakeWorld) -> None:
    with make(3, 0) as world:
        deadline = MINUTES + world.clock.monotonic()
        world.provider.increase_size(world.group, 2, deadline=deadline)
        assert (world.target(), world.provider.target_size(world.group, deadline=deadline)) == (5, 5)
        with pytest.raises(AboveMaximum):
            world.provider.increase_size(world.group, 6, deadline=deadline)
        assert world.target() == 5


@check("machines that run are not given up by lowering the target")
def _(make: MakeWorld) -> None:
    with make(3, 0) as world:
        nodes = world.nodes()
        with pytest.raises(BelowMinimum):
            world.provider.decrease_target_size(world.group, -1, deadline=MINUTES + world.clock.monotonic())
        assert ([world.runs(node) for node in nodes], world.target()) == ([True] * 3, 3)


@check("a change of size with the wrong sign is wrong use")
def _(make: MakeWorld) -> None:
    with make(1, 0) as world:
        deadline = MINUTES + world.clock.monotonic()
        for verb, delta in ((world.provider.increase_size, -1), (world.provider.decrease_target_size, 1)):
            with pytest.raises(errors.UsageError):
                verb(world.group, delta, deadline=deadline)


@check("there are no groups, and looking again finds none", GROUPLESS)
def _(make: MakeWorld) -> None:
    with make(0, 0) as world:
        for _ in range(2):
            deadline = MINUTES + world.clock.monotonic()
            assert list(world.provider.groups(deadline=deadline)) == []
            world.provider.refresh(deadline=deadline)


@check("no node is its own, wherever it comes from", GROUPLESS)
def _(make: MakeWorld) -> None:
    with make(0, 0) as world:
        deadline = MINUTES + world.clock.monotonic()
        for node in (
            world.foreign(),
            NodeRef("bare"),
            NodeRef("aws:///zone/i-1", "aws:///zone/i-1"),
            replace(world.foreign(), control_plane=True),
        ):
            assert group_of(world, node) is None
            assert world.provider.has_instance(node, deadline=deadline) is None
            assert world.provider.instance_for(node, deadline=deadline) is None


@check("it has no prices and no graphics cards", GROUPLESS)
def _(make: MakeWorld) -> None:
    with make(0, 0) as world:
        deadline, now = MINUTES + world.clock.monotonic(), world.clock.now()
        with pytest.raises(NotSupported):
            world.provider.node_price(world.foreign(), now, now, deadline=deadline)
        with pytest.raises(NotSupported):
            world.provider.pod_price({"cpu": Decimal(1)}, now, now, deadline=deadline)
        assert (world.provider.gpu_label(), world.provider.gpu_types()) == ("", frozenset())


@check("options of a group that there is not are nobody's", GROUPLESS)
def _(make: MakeWorld) -> None:
    with make(0, 0) as world, pytest.raises(UnknownGroup):
        world.provider.options("nowhere", deadline=MINUTES + world.clock.monotonic())


@check("it may be closed twice", GROUPLESS)
def _(make: MakeWorld) -> None:
    with make(0, 0) as world:
        world.provider.close()
        world.provider.close()


def group_of(world: World, node: NodeRef) -> str | None:
    group = world.provider.group_for(node, deadline=world.clock.monotonic() + MINUTES)
    return group.id if group else None


def reasons(world: World, *nodes: NodeRef) -> list[Refusal]:
    return [outcome.reason for outcome in delete(world, *nodes) if isinstance(outcome, Refused)]


def at_once(calls: Sequence[Callable[[], DeleteOutcome]]) -> list[DeleteOutcome]:
    """The outcomes of calls that begin together, each on a thread of its own."""
    barrier = threading.Barrier(len(calls))

    def run(call: Callable[[], DeleteOutcome]) -> DeleteOutcome:
        barrier.wait(timeout=30)
        return call()

    with ThreadPoolExecutor(len(calls)) as threads:
        return list(threads.map(run, calls))
