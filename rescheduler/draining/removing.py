"""Transitions of a drain once its node is empty: the machine is ordered away, the Node is deleted."""

from dataclasses import replace
from typing import Final

from rescheduler.draining import exits, marking
from rescheduler.draining.messages import (
    Action,
    DeleteNode,
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
from rescheduler.draining.state import (
    NEVER,
    RENEW_INTERVAL,
    Drain,
    Failure,
    Limits,
    Phase,
    Result,
    Why,
    requesting,
)

#: Seconds between two looks at a machine that was ordered away.
REMOVAL_INTERVAL: Final = 10.0

#: Seconds between two tries to delete the Node.
DELETION_INTERVAL: Final = 2.0


def emptied(drain: Drain, now: float) -> Result:
    if drain.group is None:
        return exits.release(drain, now)
    return requesting(drain, Phase.ORDERING), (marking.removing(drain),)


def order_marked(drain: Drain, _: Marked, now: float) -> Result:
    drain = replace(requesting(drain, Phase.REMOVING), ordered=True, deadline=now + drain.limits.removal)
    return replace(drain, renew_at=now + RENEW_INTERVAL), _removal(drain)


def _removal(drain: Drain, *, again: bool = False) -> tuple[Action, ...]:
    assert drain.group is not None
    return (OrderRemoval(drain.group, drain.ordered_at, again or drain.ordered_at is not None),)


def await_end(drain: Drain, limits: Limits, now: float) -> Result:
    """Continue *drain*, which was handed over, with *limits*: ask for the end of the machine that it ordered away."""
    drain = replace(drain, limits=limits, phase=Phase.REMOVING, retry_at=NEVER, deadline=now + limits.removal)
    return replace(drain, renew_at=now + RENEW_INTERVAL), _removal(drain, again=True)


def renewal_failed(drain: Drain, event: MarkFailed, now: float) -> Result:
    """Of the mark on a node whose machine goes: others may delete the Node then. A lost mark is left as it is.

    While an order is on its way, its answer tells what becomes of the machine.
    """
    if event.lost:
        return replace(drain, phase=Phase.DONE, failure=Failure(Why.MARK_LOST, event.why)), ()
    if not event.node_gone:
        return drain, ()
    if drain.phase is Phase.DELETING or drain.retry_at != NEVER:
        return node_deleted(drain, NodeDeleted(), now)
    given_up = drain.stopping and now >= drain.deadline
    return replace(drain, phase=Phase.DONE) if given_up else drain, ()


def removed(drain: Drain, event: Removed, now: float) -> Result:
    """A provider that does not know the machine of a Ready node is asked twice before the Node is deleted."""
    if event.unproven and not drain.absent:
        return replace(drain, absent=True, retry_at=now + REMOVAL_INTERVAL), ()
    drain = replace(drain, confirmed=not event.unseen, unshrunk=event.unshrunk)
    return replace(drain, phase=Phase.DELETING, retry_at=NEVER), (DeleteNode(),)


def removal_pending(drain: Drain, _: RemovalPending, now: float) -> Result:
    return replace(drain, absent=False, retry_at=now + REMOVAL_INTERVAL), ()


def removal_failed(drain: Drain, event: RemovalFailed, now: float) -> Result:
    if event.node_gone:
        return exits.node_gone(drain, event.why)
    why = Why.REFUSED if event.refused else Why.PROVIDER
    return exits.reopen(drain, Failure(why, event.why), now)


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
    again = _removal(drain, again=True) if drain.phase is Phase.REMOVING else (DeleteNode(),)
    return replace(drain, retry_at=NEVER), again


def node_deleted(drain: Drain, _: NodeDeleted, __: float) -> Result:
    return replace(drain, phase=Phase.DONE, released=True), ()
