"""What a drain writes on its node.

The mark of a removal that an earlier process may have ordered keeps its step, group and time, also while pods that
came since are moved: whoever comes next must know that the machine may be on its way out.
"""

from rescheduler.draining.intent import Step
from rescheduler.draining.messages import Mark, Renew
from rescheduler.draining.state import Drain


def mark(drain: Drain) -> Mark:
    """The mark as it has to be now."""
    if drain.ordered or drain.ordered_at is not None:
        return removing(drain)
    return Mark(Step.DRAINING, drain.intended, debts=tuple(drain.debts.values()))


def removing(drain: Drain) -> Mark:
    """The mark that must be on the node before its machine is ordered."""
    assert drain.group is not None
    return Mark(Step.REMOVING, group=drain.group, since=drain.ordered_at, debts=tuple(drain.debts.values()))


def renew(drain: Drain) -> Renew:
    written = mark(drain)
    return Renew(written.step, written.pods, written.group, written.since, written.debts)
