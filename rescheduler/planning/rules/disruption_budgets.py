"""When Karpenter removes the empty nodes of a NodePool, by its ``consolidateAfter`` and its disruption budgets, and how
many of its nodes these budgets allow to be disrupted at a time.

Sources in sigs.k8s.io/karpenter: ``pkg/apis/v1/nodepool.go`` (GetAllowedDisruptionsByReason, IsActive),
``pkg/controllers/disruption/emptiness.go``; schedules as ``ParseStandard`` of github.com/robfig/cron/v3 reads them.
"""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Final

from predicates.objects import DisruptionBudget, NodePool
from predicates.texts import quoted
from rescheduler import durations
from rescheduler.planning.forms import utc

_NEVER: Final = "Never"
#: The reason of a disruption that removes a node without pods.
_EMPTY: Final = "Empty"

#: An opening is searched this far ahead, and among this many ends of budgets.
_AHEAD: Final = timedelta(days=15)
_MOST_ENDS: Final = 1000

_DAY: Final = timedelta(days=1)
_DIGITS: Final = 9  #: of the longest number of nodes in a budget
_MACROS: Final = {
    "@yearly": "0 0 1 1 *",
    "@annually": "0 0 1 1 *",
    "@monthly": "0 0 1 * *",
    "@weekly": "0 0 * * 0",
    "@daily": "0 0 * * *",
    "@midnight": "0 0 * * *",
    "@hourly": "0 * * * *",
}
_MONTHS: Final = ("jan", "feb", "mar", "apr", "may", "jun", "jul", "aug", "sep", "oct", "nov", "dec")
_DAYS: Final = ("sun", "mon", "tue", "wed", "thu", "fri", "sat")


def why_not_removed(pool: NodePool, now: datetime) -> str:
    """Return why Karpenter does not remove an empty node of *pool* at present, or "". A time in it is in UTC."""
    disruption = pool.spec.disruption
    if disruption.consolidate_after == _NEVER:
        return "consolidateAfter is Never"
    zero = [budget for budget in disruption.budgets or () if _is_zero(budget) and _concerns_empty(budget)]
    if always := next((budget for budget in zero if budget.schedule is None and budget.duration is None), None):
        return f"its disruption budget allows {always.nodes} nodes"
    try:
        schedules = [Schedule.of(budget) for budget in zero]
    except ValueError as error:  # Karpenter allows no disruption, either
        return f"the schedule of its disruption budget cannot be read: {error}"
    closed = [schedule for schedule in schedules if schedule.end(now) is not None]
    if not closed:
        return ""
    opening = _opening(schedules, now)
    until = f"at {utc(opening)}" if opening is not None else f"not within {_AHEAD.days} days"
    return f"its disruption budget allows 0 nodes now (schedule {quoted(closed[0].text)}); it allows some {until}"


def allowed_at_once(pool: NodePool, nodes: int, now: datetime) -> int | None:
    """Return how many of the *nodes* of *pool* may be disrupted at a time, or None if no budget says.

    Budgets of 0, and those that cannot be read, do not count: they stop what Karpenter does by itself, and say nothing
    about a deletion that a user orders.
    """
    numbers = [
        _number_of(budget, nodes)
        for budget in pool.spec.disruption.budgets or ()
        if _concerns_empty(budget) and _is_active(budget, now)
    ]
    return min((number for number in numbers if number > 0), default=None)


def _number_of(budget: DisruptionBudget, nodes: int) -> int:
    """Return how many of *nodes* the budget allows; a percentage is rounded up. 0 if it cannot be read."""
    number = _number_in(budget) or 0
    return -(-number * nodes // 100) if budget.nodes.endswith("%") else number


def _is_active(budget: DisruptionBudget, now: datetime) -> bool:
    if budget.schedule is None and budget.duration is None:
        return True
    try:
        return Schedule.of(budget).end(now) is not None
    except ValueError:
        return False


def _is_zero(budget: DisruptionBudget) -> bool:
    """Return whether the budget allows no disruption while it is active. A percentage is rounded up."""
    return _number_in(budget) == 0


def _number_in(budget: DisruptionBudget) -> int | None:
    """Return the number of nodes or percents, or None if it is none, or has more digits than any number of nodes."""
    digits = budget.nodes.removesuffix("%").lstrip("0") or budget.nodes[:1]
    return int(digits) if digits.isdecimal() and len(digits) <= _DIGITS else None


def _concerns_empty(budget: DisruptionBudget) -> bool:
    return budget.reasons is None or _EMPTY in budget.reasons


@dataclass(frozen=True, slots=True)
class Schedule:
    """When a budget is active: for *duration* from each time that the cron expression *text* names, in UTC."""

    text: str
    minutes: tuple[int, ...]
    hours: tuple[int, ...]
    days: frozenset[int]  #: of the month
    months: frozenset[int]
    weekdays: frozenset[int]  #: 0 is Sunday
    either_day: bool  #: a day of the month or of the week suffices: both are restricted
    duration: timedelta

    @classmethod
    def of(cls, budget: DisruptionBudget) -> "Schedule":
        """Return the schedule of *budget*. Raises ValueError."""
        text = budget.schedule or ""
        fields = _MACROS.get(text, text).split()
        if len(fields) != 5:  # noqa: PLR2004
            raise ValueError(f"{quoted(text)}: expected five fields")
        minute, hour, day, month, weekday = fields
        duration = durations.period(budget.duration or "0s")
        if duration is None:
            raise ValueError(f"{quoted(budget.duration or '')}: expected a duration")
        return cls(
            text,
            tuple(sorted(_values(minute, 0, 59))),
            tuple(sorted(_values(hour, 0, 23))),
            frozenset(_values(day, 1, 31)),
            frozenset(_values(month, 1, 12, _MONTHS)),
            frozenset(_values(weekday, 0, 6, _DAYS)),
            either_day=not (_is_open(day) or _is_open(weekday)),
            duration=duration,
        )

    def end(self, now: datetime) -> datetime | None:
        """Return until when the budget is active, or None if it is not active at *now*."""
        last = next(self._hits(now), None)
        return None if last is None or last + self.duration <= now else last + self.duration

    def _hits(self, now: datetime) -> Iterator[datetime]:
        """Yield the times before or at *now*, the latest first, as far back as one can matter."""
        midnight = now.replace(hour=0, minute=0, second=0, microsecond=0)
        for back in range(self.duration // _DAY + 2):
            day = midnight - back * _DAY
            if self._matches(day):
                times = (day.replace(hour=h, minute=m) for h in reversed(self.hours) for m in reversed(self.minutes))
                yield from (moment for moment in times if moment <= now)

    def _matches(self, day: datetime) -> bool:
        if day.month not in self.months:
            return False
        of_month, of_week = day.day in self.days, day.isoweekday() % 7 in self.weekdays
        return of_month or of_week if self.either_day else of_month and of_week


def _opening(schedules: Iterable[Schedule], now: datetime) -> datetime | None:
    """Return the first time from *now* on at which none of the *schedules* is active; None if that is far away."""
    moment = now
    for _ in range(_MOST_ENDS):
        ends = [end for schedule in schedules if (end := schedule.end(moment)) is not None]
        if not ends:
            return moment
        moment = max(ends)
        if moment - now > _AHEAD:
            return None
    return None


def _is_open(field: str) -> bool:
    return field.startswith(("*", "?"))


def _values(field: str, low: int, high: int, names: tuple[str, ...] = ()) -> set[int]:
    """Return the numbers that a field of a cron expression names. Raises ValueError."""
    values: set[int] = set()
    for part in field.split(","):
        span, slash, step = part.partition("/")
        first, dash, last = span.partition("-")
        if span in ("*", "?"):
            start, end = low, high
        else:
            start = _number(first, low, names)
            end = _number(last, low, names) if dash else (high if slash else start)
        if not low <= start <= end <= high or (slash and not (step.isdecimal() and int(step))):
            raise ValueError(f"{quoted(field)}: expected numbers from {low} to {high}")
        values.update(range(start, end + 1, int(step) if slash else 1))
    return values


def _number(text: str, low: int, names: tuple[str, ...]) -> int:
    if text.lower() in names:
        return names.index(text.lower()) + low
    if not text.isdecimal():
        raise ValueError(f"{quoted(text)}: expected a number")
    return int(text)
