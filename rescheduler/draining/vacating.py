"""Transitions of a drain whose pods have placeholders: the placeholders of a step are deleted before its evictions.

A kubelet counts a placeholder until it is gone, and would reject a replacement pod that needs its room before that.
Once they are gone, the step is selected and planned again.
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
    kept = {victim.pod.uid for victim in step if victim.pod.uid in drain.placeholders}
    if not kept:
        return None
    until = now + drain.limits.vacating
    new = {uid: Deletion(drain.placeholders[uid], until) for uid in sorted(kept - drain.vacating.keys())}
    drain = replace(drain, vacating={**drain.vacating, **new})
    return drain, tuple(DeletePlaceholder(deletion.placeholder, uid) for uid, deletion in new.items())


def observed(drain: Drain, event: Seen, now: float) -> Result:
    """Forget the placeholders that are gone, and those of pods that are gone. Send again the deletions that are due."""
    wanted = event.placeholders.keys() & {victim.pod.uid for victim in drain.waiting}
    vacating = {uid: deletion for uid, deletion in drain.vacating.items() if uid in wanted}
    due = {uid: replace(deletion, ask_at=None) for uid, deletion in vacating.items() if deletion.is_due(now)}
    drain = replace(drain, placeholders=event.placeholders, vacating={**vacating, **due})
    return drain, tuple(DeletePlaceholder(deletion.placeholder, uid) for uid, deletion in due.items())


def deleted(drain: Drain, event: PlaceholderDeleted, _: float) -> Result:
    """Wait until the placeholder is gone."""
    return _with(drain, event.uid, last_error="it is being deleted, but is not gone"), ()


def not_deleted(drain: Drain, event: PlaceholderNotDeleted, now: float) -> Result:
    """Schedule a retry, or give up if the error is permanent."""
    deletion = drain.vacating.get(event.uid)
    if deletion is None:
        return drain, ()
    if not event.retryable:
        return exits.give_up(drain, Failure(Why.PLACEHOLDER_NOT_DELETED, event.why), now)
    errors = deletion.errors + 1
    ask_at = now + _BACKOFF.seconds_after(errors)
    return _with(drain, event.uid, ask_at=ask_at, errors=errors, last_error=event.why), ()


def placeholder_overdue(drain: Drain, now: float) -> Failure | None:
    """Return the failure of a placeholder that is not gone in time, or None."""
    for _, deletion in sorted(drain.vacating.items()):
        if now >= deletion.until:
            why = f": {deletion.last_error}" if deletion.last_error else ""
            detail = f"placeholder {deletion.placeholder} is not gone after {drain.limits.vacating:g} s{why}"
            return Failure(Why.PLACEHOLDER_NOT_DELETED, detail)
    return None


def _with(drain: Drain, uid: str, **changes: object) -> Drain:
    deletion = drain.vacating.get(uid)
    if deletion is None:
        return drain
    return replace(drain, vacating={**drain.vacating, uid: replace(deletion, **changes)})  # type: ignore[arg-type]
