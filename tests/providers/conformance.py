"""Facts that every backend must satisfy, tested with a world per backend: a real provider and its system.

Add a backend by one line in `test_conformance.BACKENDS`. Backends without machines have separate facts in `groupless`.
"""

from collections.abc import Callable
from dataclasses import replace

import pytest

from rescheduler import errors
from rescheduler.providers import ADDS_NONE
from rescheduler.providers.base import (
    AboveMaximum,
    Accepted,
    BelowMinimum,
    Failed,
    InstanceState,
    NodeRef,
    NotSupported,
    Refusal,
    Refused,
    UnknownGroup,
)
from tests.providers.worlds import MINUTES, Check, MakeWorld, at_once, delete, group_of, into, reasons, went

UNKNOWN_GROUP = "every call for an unknown group fails"

CHECKS: dict[str, Check] = {}
check = into(CHECKS)


@check("a deletion ends the machine and lowers the target by one")
def _(make: MakeWorld) -> None:
    with make(3, 0) as world:
        node = world.nodes()[0]
        assert went(*delete(world, node))
        assert (world.runs(node), world.target()) == (False, 2)


@check("a repeated deletion lowers the target once")
def _(make: MakeWorld) -> None:
    with make(3, 0) as world:
        node = world.nodes()[0]
        delete(world, node)
        assert went(*delete(world, node))
        assert world.target() == 2


@check("the next process resumes a deletion that is done")
def _(make: MakeWorld) -> None:
    with make(3, 0) as world:
        node, intent = world.nodes()[0], world.clock.now()
        delete(world, node)
        world.restart()
        resumed = NodeRef(node.name, node.provider_id, node.labels, ordered_at=intent)
        assert went(*delete(world, resumed))
        assert world.target() == 2


@check("the next process sends a deletion that an earlier process had not sent")
def _(make: MakeWorld) -> None:
    with make(3, 0) as world:
        node, intent = world.nodes()[0], world.clock.now()
        world.restart()
        resumed = NodeRef(node.name, node.provider_id, node.labels, ordered_at=intent)
        assert went(*delete(world, resumed))
        assert (world.runs(node), world.target()) == (False, 2)


@check("deletions stop at the minimum")
def _(make: MakeWorld) -> None:
    with make(3, 2) as world:
        nodes = world.nodes()
        first, *others = delete(world, *nodes)
        assert went(first)
        assert [outcome.reason for outcome in others if isinstance(outcome, Refused)] == [Refusal.BELOW_MINIMUM] * 2
        assert ([world.runs(node) for node in nodes], world.target()) == ([False, True, True], 2)


@check("forecast refusals are correct")
def _(make: MakeWorld) -> None:
    with make(3, 2) as world:
        nodes = world.nodes()
        foretold = world.provider.refusals(world.group, nodes, deadline=MINUTES + world.clock.monotonic())
        come = dict(zip([node.name for node in nodes], delete(world, *nodes), strict=True))
        assert {name: come[name] for name in foretold} == dict(foretold)


@check("a foreign node has no group and its deletion is refused")
def _(make: MakeWorld) -> None:
    with make(2, 0) as world:
        node = world.foreign()
        assert group_of(world, node) is None
        assert reasons(world, node) == [Refusal.NOT_IN_GROUP]
        assert world.target() == 2


@check("a control plane node has no group and is refused, by either label or by the caller's flag")
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


@check(UNKNOWN_GROUP)
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


@check("every node of a group is found in it, and its instance has the provider ID")
def _(make: MakeWorld) -> None:
    with make(3, 0) as world:
        deadline = MINUTES + world.clock.monotonic()
        world.provider.refresh(deadline=deadline)
        groups = [group.id for group in world.provider.groups(deadline=deadline)]
        assert [group_of(world, node) for node in world.nodes()] == [world.group] * 3
        instances = world.provider.instances(world.group, deadline=deadline)
        assert world.group in groups
        assert {instance.id: instance.state for instance in instances} == dict.fromkeys(
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


@check("the failure of one node does not affect others")
def _(make: MakeWorld) -> None:
    with make(3, 0) as world:
        nodes = world.nodes()
        stranger = world.foreign()
        first, refused, second = delete(world, nodes[0], stranger, nodes[1])
        assert went(first)
        assert went(second)
        assert isinstance(refused, Refused)
        assert world.target() == 1


@check("a failed deletion is retried once the machine was seen running")
def _(make: MakeWorld) -> None:
    with make(3, 0) as world:
        node = world.nodes()[0]
        world.fail_deletions(2)
        assert went(*delete(world, node))
        assert (world.runs(node), world.target()) == (False, 2)


@check("persistent failure: the machine runs, the target is unchanged, and a retry is possible")
def _(make: MakeWorld) -> None:
    with make(3, 0) as world:
        node = world.nodes()[0]
        world.fail_deletions(10_000)
        (outcome,) = delete(world, node)
        assert isinstance(outcome, Failed | Accepted)
        assert not isinstance(outcome, Failed) or outcome.retryable
        assert (world.runs(node), world.target()) == (True, 3)


@check("an answer lost after the deletion does not lower the target twice")
def _(make: MakeWorld) -> None:
    with make(3, 0) as world:
        node = world.nodes()[0]
        world.lose_answers(1)
        assert went(*delete(world, node))
        assert (world.runs(node), world.target()) == (False, 2)


@check("a lost deletion is never reported as done while the machine runs")
def _(make: MakeWorld) -> None:
    with make(3, 0) as world:
        node = world.nodes()[0]
        world.lose_orders(1)
        (outcome,) = delete(world, node, within=20.0)
        assert went(outcome) != world.runs(node)
        assert went(*delete(world, node))
        assert (world.runs(node), world.target()) == (False, 2)


@check("expired deadline: nothing is done and nothing is reported as done")
def _(make: MakeWorld) -> None:
    with make(2, 0) as world:
        node = world.nodes()[0]
        try:
            (outcome,) = delete(world, node, within=0.0)
        except errors.Retryable:
            outcome = Failed("raised", retryable=True)
        assert outcome == Failed(getattr(outcome, "error", ""), retryable=True)
        assert (world.runs(node), world.target()) == (True, 2)


@check("unavailable system: every call fails, and no node is reported gone")
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


@check("concurrent deletions of a node lower the target once")
def _(make: MakeWorld) -> None:
    with make(5, 0) as world:
        node = world.nodes()[0]
        outcomes = at_once([lambda: delete(world, node)[0]] * 4)
        assert all(went(outcome) for outcome in outcomes)
        assert (world.runs(node), world.target()) == (False, 4)


@check("concurrent deletions of many nodes respect the minimum")
def _(make: MakeWorld) -> None:
    with make(5, 2) as world:
        nodes = world.nodes()
        outcomes = at_once([lambda node=node: delete(world, node)[0] for node in nodes])  # type: ignore[misc]
        assert sorted(type(outcome).__name__ for outcome in outcomes) == ["Deleted"] * 3 + ["Refused"] * 2
        assert (sum(world.runs(node) for node in nodes), world.target()) == (2, 2)


class Answers:
    """Answers the question whether a machine may end: with the given errors in turn, then always with the last one."""

    def __init__(self, *answers: Exception | None) -> None:
        self.answers, self.asked = list(answers), 0

    def __call__(self, _: NodeRef) -> None:
        self.asked += 1
        answer = self.answers.pop(0) if len(self.answers) > 1 else self.answers[0]
        if answer is not None:
            raise answer


NOT_NOW = errors.Withheld("a pod came back")
UNREADABLE = errors.BackendUnavailable("the API server does not answer")


@check("an order that the caller does not allow is not sent")
def _(make: MakeWorld) -> None:
    with make(3, 0) as world:
        node, answers = world.nodes()[0], Answers(NOT_NOW)
        assert delete(world, node, may_end=answers) == [Refused(Refusal.WITHHELD, "a pod came back")]
        assert (answers.asked, world.runs(node), world.target()) == (1, True, 3)


@check("the caller is asked before each repetition of an order")
def _(make: MakeWorld) -> None:
    with make(3, 0) as world:
        node, answers = world.nodes()[0], Answers(None)
        world.fail_deletions(2)
        assert went(*delete(world, node, may_end=answers))
        assert answers.asked == 3


@check("an order that failed is not repeated if the caller does not allow it any more")
def _(make: MakeWorld) -> None:
    with make(3, 0) as world:
        node, answers = world.nodes()[0], Answers(None, NOT_NOW)
        world.fail_deletions(1)
        assert delete(world, node, may_end=answers) == [Refused(Refusal.WITHHELD, "a pod came back")]
        assert (answers.asked, world.runs(node), world.target()) == (2, True, 3)


@check("an order is sent later if the caller cannot tell at first whether it is allowed")
def _(make: MakeWorld) -> None:
    with make(3, 0) as world:
        node, answers = world.nodes()[0], Answers(UNREADABLE, UNREADABLE, None)
        assert went(*delete(world, node, may_end=answers))
        assert (answers.asked, world.runs(node), world.target()) == (3, False, 2)


@check("nothing is sent while the caller cannot tell whether it is allowed")
def _(make: MakeWorld) -> None:
    with make(3, 0) as world:
        node = world.nodes()[0]
        (outcome,) = delete(world, node, within=20.0, may_end=Answers(UNREADABLE))
        assert not went(outcome)
        assert (world.runs(node), world.target()) == (True, 3)


@check("a lost order is not repeated if the caller does not allow it any more")
def _(make: MakeWorld) -> None:
    with make(3, 0) as world:
        node, answers = world.nodes()[0], Answers(None, NOT_NOW)
        world.lose_orders(1)
        (outcome,) = delete(world, node, may_end=answers)
        assert isinstance(outcome, Accepted | Refused)
        assert (world.runs(node), world.target()) == (True, 3)


@check("the target is raised, up to the maximum, or not at all by a provider that adds no machines on request")
def _(make: MakeWorld) -> None:
    with make(3, 0) as world:
        deadline = MINUTES + world.clock.monotonic()
        if world.provider.name in ADDS_NONE:
            with pytest.raises(NotSupported):
                world.provider.increase_size(world.group, 2, deadline=deadline)
            assert world.target() == 3
            return
        world.provider.increase_size(world.group, 2, deadline=deadline)
        assert (world.target(), world.provider.target_size(world.group, deadline=deadline)) == (5, 5)
        with pytest.raises(AboveMaximum):
            world.provider.increase_size(world.group, 6, deadline=deadline)
        assert world.target() == 5


@check("a machine that is removed and one that is requested leave the target as it was")
def _(make: MakeWorld) -> None:
    with make(3, 0) as world:
        if world.provider.name in ADDS_NONE:
            pytest.skip("the provider adds no machines on request")
        assert went(*delete(world, world.nodes()[0]))
        deadline = MINUTES + world.clock.monotonic()
        world.provider.increase_size(world.group, 1, deadline=deadline)
        assert (world.target(), world.provider.target_size(world.group, deadline=deadline)) == (3, 3)


@check("lowering the target ends no running machine")
def _(make: MakeWorld) -> None:
    with make(3, 0) as world:
        nodes = world.nodes()
        with pytest.raises(BelowMinimum):
            world.provider.decrease_target_size(world.group, -1, deadline=MINUTES + world.clock.monotonic())
        assert ([world.runs(node) for node in nodes], world.target()) == ([True] * 3, 3)


@check("a change of size with the wrong sign is rejected")
def _(make: MakeWorld) -> None:
    with make(1, 0) as world:
        deadline = MINUTES + world.clock.monotonic()
        for verb, delta in ((world.provider.increase_size, -1), (world.provider.decrease_target_size, 1)):
            with pytest.raises(errors.UsageError):
                verb(world.group, delta, deadline=deadline)
