"""Transitions of a drain after its node is empty: machine termination is requested and the Node is deleted."""

from dataclasses import replace
from typing import Final

from rescheduler.draining import exits
from rescheduler.draining.actions import Action, DeleteNode, Mark, OrderRemoval, StoreDebts
from rescheduler.draining.events import (
    Cause,
    Done,
    NodeGone,
    NodeSeen,
    NotDone,
    Outcome,
    Removed,
    RequestWithheld,
    Stop,
)
from rescheduler.draining.exits import if_due, requesting
from rescheduler.draining.state import NEVER, RENEW_INTERVAL, Drain, Failure, Phase, Result, Why
from rescheduler.planning.last_look import Ground

#: Seconds between requests for the state of a terminating machine.
REMOVAL_INTERVAL: Final = 10.0

#: Seconds between attempts to delete the Node.
DELETION_INTERVAL: Final = 2.0


def emptied(drain: Drain, now: float) -> Result:
    """Remove the machine of the empty node, or release the node if there is no provider for it."""
    if drain.group is None:
        return exits.release(drain, now)
    drain, withdrawals = exits.withdraw(drain) if drain.requested else (drain, ())
    return requesting(drain, Phase.ORDERING), (StoreDebts(end=True), *withdrawals, exits.removing(drain))


def order_marked(drain: Drain, _: Done[Mark], now: float) -> Result:
    """Request machine termination after the intent was written."""
    drain = replace(requesting(drain, Phase.REMOVING), ordered=True, deadline=now + drain.limits.removal)
    return replace(drain, renew_at=now + RENEW_INTERVAL), order(drain)


def order(drain: Drain, *, again: bool = False) -> tuple[Action, ...]:
    """Return the request to terminate the machine. With *again*, it may have been requested before."""
    assert drain.group is not None
    doubt = "" if drain.doubt is None else drain.doubt.detail
    return (OrderRemoval(drain.group, drain.ordered_at, again or drain.ordered_at is not None, doubt),)


def order_tick(drain: Drain, event: NodeSeen, now: float) -> Result:
    """Write the intent to remove the machine again when a retry is due."""
    drain = exits.owing_preempted(drain, event.preemption)
    return if_due(drain, now, exits.removing(drain))


def renewal_failed(drain: Drain, event: NotDone[Mark], now: float) -> Result:
    """Handle a failed renewal of the mark. A lost mark is not written again."""
    if event.outcome is Outcome.REFUSED:
        return _mark_lost(drain, event.why)
    return node_gone(drain, NodeGone(event.why), now) if event.outcome is Outcome.GONE else (drain, ())


def _mark_lost(drain: Drain, why: str) -> Result:
    """End the drain: the removal continues without this process."""
    return replace(drain, phase=Phase.DONE, failure=Failure(Why.MARK_LOST, why)), ()


def node_gone(drain: Drain, _: NodeGone, now: float) -> Result:
    """End the drain if nothing is in flight: another client may have deleted the Node.

    Otherwise wait for the response to the termination request, which decides whether the machine is removed.
    """
    if not drain.in_flight:
        return _end(drain)
    given_up = drain.stopping and now >= drain.deadline
    return replace(drain, phase=Phase.DONE) if given_up else drain, ()


def deletion_renewal_failed(drain: Drain, event: NotDone[Mark], now: float) -> Result:
    """Handle a failed renewal of the mark while the Node is being deleted."""
    return _end(drain) if event.outcome is Outcome.GONE else renewal_failed(drain, event, now)


def gone_while_deleted(drain: Drain, _: NodeGone, __: float) -> Result:
    """End the drain, because the Node was deleted."""
    return _end(drain)


def removed(drain: Drain, event: Removed, now: float) -> Result:
    """Delete the Node. If the machine of a Ready node is unknown to the provider, repeat the request first."""
    if event.unproven and not drain.absent:
        return replace(drain, absent=True, retry_at=now + REMOVAL_INTERVAL), ()
    drain = replace(drain, confirmed=not event.unseen, unshrunk=event.unshrunk)
    return replace(drain, phase=Phase.DELETING, retry_at=None), (DeleteNode(),)


def not_removed(drain: Drain, event: NotDone[OrderRemoval], now: float) -> Result:
    """Ask again later whether the machine is terminated, as long as it may be. Otherwise release its node: it stays.

    A later round asks about a machine in doubt.
    """
    if event.outcome is Outcome.GONE:
        return exits.node_gone(drain, event.why)
    if event.outcome is not Outcome.UNKNOWN:
        why = Why.REFUSED if event.outcome is Outcome.REFUSED else Why.PROVIDER
        return exits.reopen(drain, drain.doubt or Failure(why, event.why), now)
    if drain.doubt is not None:
        return replace(drain, phase=Phase.DONE, postponed=drain.doubt, absent=False), ()
    return replace(drain, absent=False, retry_at=now + REMOVAL_INTERVAL), ()


#: How often late pods may send a drain back from the removal of the machine. Then the node is reopened.
RETURNS: Final = 3


def withheld(drain: Drain, event: RequestWithheld, now: float) -> Result:
    """Move pods that came to the empty node late, by all rules; for any other objection, reopen the node.

    No order can take effect, so the mark of a removal is replaced by that of a drain, unless it belongs to another
    process.
    """
    if event.ground is Ground.MARK:
        return _mark_lost(drain, event.why)
    drain = replace(drain, ordered=False, ordered_at=None, since=None, absent=False, returns=drain.returns + 1)
    if drain.doubt is not None:
        return exits.reopen(drain, drain.doubt, now)
    may_move = drain.returns <= RETURNS and not (drain.stopping or drain.paused)
    if event.ground is Ground.PODS and may_move:
        drain = replace(requesting(drain, Phase.MARKING), landed_at=None, deadline=NEVER)
        return drain, (exits.mark(drain),)
    drain = replace(drain, paid=frozenset())  # minutes may have passed: later rounds count the pods again
    return exits.reopen(drain, Failure(exits.WITHHELD[event.ground], event.why), now)


def node_deletion_failed(drain: Drain, _: NotDone[DeleteNode], now: float) -> Result:
    """Schedule the next attempt to delete the Node."""
    return replace(drain, retry_at=now + DELETION_INTERVAL), ()


def removal_tick(drain: Drain, event: NodeSeen, now: float) -> Result:
    """Check again whether the machine is terminated, when a retry is due."""
    return _tick(exits.owing_preempted(drain, event.preemption), order(drain, again=True), now)


def deletion_tick(drain: Drain, _: NodeSeen, now: float) -> Result:
    """Delete the Node again when a retry is due."""
    return _tick(drain, (DeleteNode(),), now)


def _tick(drain: Drain, request: tuple[Action, ...], now: float) -> Result:
    """Send *request* when it is due.

    After the deadline the drain ends; the intent stays on the node for a later round.
    """
    if now >= drain.deadline and (drain.stopping or not drain.in_flight):
        return replace(drain, phase=Phase.DONE), ()
    return if_due(drain, now, *request)


def node_deleted(drain: Drain, _: Done[DeleteNode], __: float) -> Result:
    """End the drain."""
    return _end(drain)


def _end(drain: Drain) -> Result:
    return replace(drain, phase=Phase.DONE, released=True), ()


def stop(drain: Drain, event: Stop, now: float) -> Result:
    """Wait only briefly for the machine to terminate. A pause does not affect a removal in progress."""
    if exits.is_leadership_lost(event):
        return exits.leadership_lost(drain)
    if event.cause is Cause.PAUSED:
        return replace(drain, paused=True), ()
    return replace(drain, stopping=True, deadline=min(drain.deadline, now + drain.limits.release)), ()
