"""Transitions of a drain once its node is empty: the machine is ordered away, the Node deleted."""

from dataclasses import replace
from typing import Final

from rescheduler.draining import exits
from rescheduler.draining.intent import Step
from rescheduler.draining.messages import (
    Action,
    DeleteNode,
    Mark,
    Marked,
    MarkFailed,
    NodeDeleted,
    NodeDeletionFailed,
    OrderRemoval,
    RemovalFailed,
    RemovalPending,
    Removed,
    Seen,
)
from rescheduler.draining.state import NEVER, Drain, Failure, Phase, Result, Why

#: Seconds between two looks at a machine that was ordered away.
REMOVAL_INTERVAL: Final = 10.0

#: Seconds between two tries to delete the Node.
DELETION_INTERVAL: Final = 2.0


def emptied(drain: Drain, now: float) -> Result:
    if drain.group is None:
        return exits.release(drain, now)
    return order(drain)


def order(drain: Drain) -> Result:
    assert drain.group is not None
    mark = Mark(Step.REMOVING, group=drain.group, since=drain.ordered_at)
    return replace(drain, phase=Phase.ORDERING, deadline=NEVER), (mark,)


def order_marked(drain: Drain, _: Marked, now: float) -> Result:
    drain = replace(drain, phase=Phase.REMOVING, ordered=True, deadline=now + drain.limits.removal)
    return drain, _removal(drain)


def _removal(drain: Drain) -> tuple[Action, ...]:
    assert drain.group is not None
    return (OrderRemoval(drain.group, drain.ordered_at),)


def order_mark_failed(drain: Drain, event: MarkFailed, now: float) -> Result:
    if event.node_gone:
        return exits.node_gone(drain, event.why)
    if drain.ordered_at is not None:  # an earlier order may be at work: the node is not ours to free
        return replace(drain, phase=Phase.DONE), ()
    return exits.give_up(drain, Failure(Why.API_ERROR, event.why), now)


def removed(drain: Drain, _: Removed, __: float) -> Result:
    return replace(drain, phase=Phase.DELETING, retry_at=NEVER), (DeleteNode(),)


def removal_pending(drain: Drain, _: RemovalPending, now: float) -> Result:
    return replace(drain, retry_at=now + REMOVAL_INTERVAL), ()


def removal_failed(drain: Drain, event: RemovalFailed, now: float) -> Result:
    return exits.give_up(drain, Failure(Why.PROVIDER, event.why), now)


def node_deletion_failed(drain: Drain, _: NodeDeletionFailed, now: float) -> Result:
    return replace(drain, retry_at=now + DELETION_INTERVAL), ()


def removal_tick(drain: Drain, _: Seen, now: float) -> Result:
    """Ask again; past the deadline the order is left at work, with the intent on the node for a later look."""
    awaited = drain.retry_at == NEVER  # an answer is on its way
    if now >= drain.deadline and (drain.stopping or not awaited):
        return replace(drain, phase=Phase.DONE), ()
    if awaited:
        return drain, ()
    if now < drain.retry_at:
        return drain, ()
    again = _removal(drain) if drain.phase is Phase.REMOVING else (DeleteNode(),)
    return replace(drain, retry_at=NEVER), again


def node_deleted(drain: Drain, _: NodeDeleted, __: float) -> Result:
    return replace(drain, phase=Phase.DONE, released=True), ()
