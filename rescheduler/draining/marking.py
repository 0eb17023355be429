"""The marks that a drain writes to its node.

The mark of a removal that an earlier process may have requested keeps its step, group and time, even while pods that
were scheduled since are moved: the next process must know that the machine may be terminating.
"""

from rescheduler.draining.intent import Step
from rescheduler.draining.messages import Mark, Renew
from rescheduler.draining.state import Drain


def mark(drain: Drain) -> Mark:
    """Return the mark for the drain's current state."""
    if drain.ordered or drain.ordered_at is not None:
        return removing(drain)
    return Mark(Step.DRAINING, drain.intended, debts=tuple(drain.debts.values()))


def removing(drain: Drain) -> Mark:
    """Return the mark that must be on the node before machine termination is requested."""
    assert drain.group is not None
    return Mark(Step.REMOVING, group=drain.group, since=drain.ordered_at, debts=tuple(drain.debts.values()))


def renew(drain: Drain) -> Renew:
    """Return the action that renews the current mark."""
    written = mark(drain)
    return Renew(written.step, written.pods, written.group, written.since, written.debts)
