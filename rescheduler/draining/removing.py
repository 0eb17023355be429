"""Transitions of a drain after its node is empty: machine termination is requested, the Node is deleted."""

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

#: Seconds between requests for the state of a terminating machine.
REMOVAL_INTERVAL: Final = 10.0

#: Seconds between attempts to delete the Node.
DELETION_INTERVAL: Final = 2.0


def emptied(drain: Drain, now: float) -> Result:
    """Remove the machine of the empty node, or release the node if there is no provider for it."""
    if drain.group is None:
        return exits.release(drain, now)
    return requesting(drain, Phase.ORDERING), (marking.removing(drain),)


def order_marked(drain: Drain, _: Marked, now: float) -> Result:
    """Request machine termination after the intent was written."""
    drain = replace(requesting(drain, Phase.REMOVING), ordered=True, deadline=now + drain.limits.removal)
    return replace(drain, renew_at=now + RENEW_INTERVAL), _removal(drain)


def _removal(drain: Drain, *, again: bool = False) -> tuple[Action, ...]:
    assert drain.group is not None
    return (OrderRemoval(drain.group, drain.ordered_at, again or drain.ordered_at is not None),)


def await_end(drain: Drain, limits: Limits, now: float) -> Result:
    """Continue *drain*, which was handed over, with *limits*: ask whether the terminated machine is gone."""
    drain = replace(drain, limits=limits, phase=Phase.REMOVING, retry_at=NEVER, deadline=now + limits.removal)
    return replace(drain, renew_at=now + RENEW_INTERVAL), _removal(drain, again=True)


def renewal_failed(drain: Drain, event: MarkFailed, now: float) -> Result:
    """Handle a failed renewal of the mark while the machine is being removed.

    Others may delete the Node now; a lost mark is not written again. While a termination request is in flight, its
    response decides what happens to the machine.
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
    """Delete the Node. If the provider does not know the machine of a Ready node, it is asked twice before."""
    if event.unproven and not drain.absent:
        return replace(drain, absent=True, retry_at=now + REMOVAL_INTERVAL), ()
    drain = replace(drain, confirmed=not event.unseen, unshrunk=event.unshrunk)
    return replace(drain, phase=Phase.DELETING, retry_at=NEVER), (DeleteNode(),)


def removal_pending(drain: Drain, _: RemovalPending, now: float) -> Result:
    """Ask again later."""
    return replace(drain, absent=False, retry_at=now + REMOVAL_INTERVAL), ()


def removal_failed(drain: Drain, event: RemovalFailed, now: float) -> Result:
    """Release the node, because its machine stays."""
    if event.node_gone:
        return exits.node_gone(drain, event.why)
    why = Why.REFUSED if event.refused else Why.PROVIDER
    return exits.reopen(drain, Failure(why, event.why), now)


def node_deletion_failed(drain: Drain, _: NodeDeletionFailed, now: float) -> Result:
    """Retry later."""
    return replace(drain, retry_at=now + DELETION_INTERVAL), ()


def removal_tick(drain: Drain, _: Seen, now: float) -> Result:
    """Ask again.

    After the deadline the removal continues without us; the intent stays on the node for a later round.
    """
    in_flight = drain.retry_at == NEVER  # a request is in flight
    if now >= drain.deadline and (drain.stopping or not in_flight):
        return replace(drain, phase=Phase.DONE), ()
    if in_flight:
        return drain, ()
    if now < drain.retry_at:
        return drain, ()
    again = _removal(drain, again=True) if drain.phase is Phase.REMOVING else (DeleteNode(),)
    return replace(drain, retry_at=NEVER), again


def node_deleted(drain: Drain, _: NodeDeleted, __: float) -> Result:
    """End the drain."""
    return replace(drain, phase=Phase.DONE, released=True), ()
