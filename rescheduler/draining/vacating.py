"""Transitions of a drain whose pods have placeholders: the placeholders of a step are deleted before its evictions.

A kubelet counts the requests of a placeholder until the placeholder is gone, and would reject a replacement pod that
needs the room earlier. Once all placeholders of a step are gone, the step is selected and planned again.
"""

from collections.abc import Iterable
from dataclasses import replace
from datetime import timedelta
from typing import Final

from rescheduler.backoff import Backoff
from rescheduler.draining import exits
from rescheduler.draining.actions import DeletePlaceholder
from rescheduler.draining.events import PlaceholderDeleted, PlaceholderNotDeleted, Seen
from rescheduler.draining.failures import Failure, Why
from rescheduler.draining.state import Deletion, Drain, Result
from rescheduler.draining.victims import Victim

_BACKOFF: Final = Backoff(timedelta(seconds=1), timedelta(seconds=10))


def vacate(drain: Drain, step: Iterable[Victim], now: float) -> Result | None:
    """Delete the placeholders of the pods in *step*. Return None if there are none."""
    reserved = {victim.pod.uid for victim in step if victim.pod.uid in drain.placeholders}
    if not reserved:
        return None
    until = now + drain.limits.vacating
    new = {uid: Deletion(drain.placeholders[uid], until) for uid in sorted(reserved - drain.vacating.keys())}
    drain = replace(drain, vacating={**drain.vacating, **new})
    return drain, tuple(DeletePlaceholder(deletion.placeholder, uid) for uid, deletion in new.items())


def observed(drain: Drain, event: Seen, now: float) -> Result:
    """Drop deletions whose placeholder or pod is gone, and request again those that are due."""
    present = event.placeholders.keys() & {victim.pod.uid for victim in drain.waiting}
    vacating = {uid: deletion for uid, deletion in drain.vacating.items() if uid in present}
    due = {uid: replace(deletion, ask_at=None) for uid, deletion in vacating.items() if deletion.is_due(now)}
    drain = replace(drain, placeholders=event.placeholders, vacating={**vacating, **due})
    return drain, tuple(DeletePlaceholder(deletion.placeholder, uid) for uid, deletion in due.items())


def deleted(drain: Drain, event: PlaceholderDeleted, _: float) -> Result:
    """Wait until the placeholder is gone."""
    return _with_deletion(drain, event.uid, last_error="it is still terminating"), ()


def not_deleted(drain: Drain, event: PlaceholderNotDeleted, now: float) -> Result:
    """Schedule a retry, or give up if the error is permanent."""
    deletion = drain.vacating.get(event.uid)
    if deletion is None:
        return drain, ()
    if not event.retryable:
        return exits.give_up(drain, Failure(Why.PLACEHOLDER_NOT_DELETED, event.why), now)
    errors = deletion.errors + 1
    ask_at = now + _BACKOFF.seconds_after(errors)
    return _with_deletion(drain, event.uid, ask_at=ask_at, errors=errors, last_error=event.why), ()


def placeholder_overdue(drain: Drain, now: float) -> Failure | None:
    """Return a failure if a placeholder is not gone in time, otherwise None."""
    for _, deletion in sorted(drain.vacating.items()):
        if now >= deletion.until:
            why = f": {deletion.last_error}" if deletion.last_error else ""
            detail = f"placeholder {deletion.placeholder} is not gone after {drain.limits.vacating:g} s{why}"
            return Failure(Why.PLACEHOLDER_NOT_DELETED, detail)
    return None


def _with_deletion(drain: Drain, uid: str, **changes: object) -> Drain:
    deletion = drain.vacating.get(uid)
    if deletion is None:
        return drain
    return replace(drain, vacating={**drain.vacating, uid: replace(deletion, **changes)})  # type: ignore[arg-type]
