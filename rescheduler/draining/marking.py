"""The marks that a drain writes to its node, and the transitions that follow their success or failure.

The mark of a removal that an earlier process may have requested keeps its step, group and time, even while pods that
were scheduled to the node since are moved: the next process must be able to detect that the machine may be terminating.
"""

from dataclasses import replace
from typing import Final

from rescheduler.draining import exits
from rescheduler.draining.actions import DrainTimes, LookAgain, Mark, Renew
from rescheduler.draining.events import Marked, MarkFailed, NodeGone, ProviderAnswered, Seen
from rescheduler.draining.failures import Failure, Why
from rescheduler.draining.following import due_at
from rescheduler.draining.intent import Step
from rescheduler.draining.retrying import requesting, try_later
from rescheduler.draining.state import RENEW_INTERVAL, Drain, Phase, Result
from rescheduler.draining.victims import NEVER

#: The times of a drain are stored this many seconds after they changed: if they are earlier, and if they are later.
STORE_EARLIER: Final = 2.0
STORE_LATER: Final = 10.0


def mark(drain: Drain) -> Mark:
    """Return the mark for the drain's current state."""
    if drain.ordered or drain.ordered_at is not None:
        return removing(drain)
    return Mark(Step.DRAINING, drain.intended, "", drain.since, tuple(drain.debts.values()), times(drain))


def removing(drain: Drain) -> Mark:
    """Return the mark that must be on the node before machine termination is requested."""
    assert drain.group is not None
    return Mark(Step.REMOVING, group=drain.group, since=drain.ordered_at, debts=tuple(drain.debts.values()))


def renew(drain: Drain) -> Renew:
    """Return the action that renews the current mark."""
    written = mark(drain)
    return Renew(written.step, written.pods, written.group, written.since, written.debts, written.times)


def times(drain: Drain) -> DrainTimes:
    """Return the times to store with the mark of *drain*."""
    due = min(due_at(drain), drain.due_at)
    return DrainTimes(drain.last_eviction_at, None if due == NEVER else due)


def store_within(stored: DrainTimes, drain: Drain) -> float | None:
    """Return within how many seconds the times of *drain* must be stored, which differ from *stored*; None if not."""
    current = times(drain)
    if drain.phase is not Phase.EVICTING or current == stored:
        return None
    before, due = (NEVER if each.due_at is None else each.due_at for each in (stored, current))
    return STORE_EARLIER if due < before else STORE_LATER


def provider_answered(drain: Drain, event: ProviderAnswered, now: float) -> Result:
    """Write the first mark, or give up if the provider would not remove the machine."""
    if event.refusal:
        why = Why.PROVIDER if event.group is None else Why.REFUSED
        return exits.give_up(drain, Failure(why, event.refusal), now)
    drain = replace(drain, phase=Phase.MARKING, group=event.group, marked=True)
    return drain, (mark(drain),)


def marked(drain: Drain, _: Marked, now: float) -> Result:
    """Plan the node again, now that it has the taint."""
    tainted_at = min(drain.tainted_at, now)
    drain = replace(requesting(drain, Phase.LOOKING), tainted_at=tainted_at, renew_at=now + RENEW_INTERVAL)
    return drain, (LookAgain(drain.targets),)


def mark_failed(drain: Drain, event: MarkFailed, now: float) -> Result:
    """Retry, or give up. Giving up also removes the mark, because the PATCH may have been applied."""
    if event.node_gone:
        return exits.node_gone(drain, event.why)
    if event.retryable and (later := try_later(drain, now)) is not None:
        return later, ()
    why = Why.MARK_LOST if event.lost else Why.API_ERROR
    return exits.give_up(drain, Failure(why, event.why), now)


def mark_tick(drain: Drain, _: Seen, now: float) -> Result:
    """Write the mark again when a retry is due."""
    return (replace(drain, retry_at=None), (mark(drain),)) if drain.is_due(now) else (drain, ())


def renewal_failed(drain: Drain, event: MarkFailed, now: float) -> Result:
    """Keep draining after a failed renewal, which is retried, unless the mark belongs to another process."""
    if event.node_gone:
        return exits.node_gone(drain, event.why)
    return exits.mark_lost(drain, now) if event.lost else (drain, ())


def node_gone(drain: Drain, event: NodeGone, _: float) -> Result:
    """End the drain, because there is nothing left to mark or to release."""
    return exits.node_gone(drain, event.why)
