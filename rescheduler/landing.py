"""Whether drains came out as forecast: where the pods that a drain moved came up again, beside where they were seen.

A plan is a forecast: the scheduler decides. Where too many pods come back to on-demand nodes, drains only shuffle
pods about, so the next ones wait, each time longer, until a drain lands well.
"""

import enum
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Final

from predicates.objects import Pod
from rescheduler.planning.outcome import Plan

#: So long a controller and the scheduler get to bring the pods back.
PATIENCE: Final = timedelta(minutes=5)

#: The pause after a drain whose pods mostly came back; doubled by each further one.
FIRST_PAUSE: Final = timedelta(minutes=10)
LONGEST_PAUSE: Final = timedelta(hours=4)


class Outcome(enum.StrEnum):
    """What became of one forecast; a label of metrics."""

    AS_FORECAST = "as-forecast"  #: on the very node
    OTHER_SPOT = "other-spot"
    RETURNED = "on-demand"  #: on a node that is not spot, where that was not foreseen
    FORESEEN_RETURN = "on-demand-as-forecast"
    MISSING = "missing"  #: it did not come up in time


@dataclass(frozen=True, slots=True)
class Landed:
    """How the pods of one drained node came up again."""

    node: str
    outcomes: Counter[Outcome]

    @property
    def returned(self) -> int:
        return self.outcomes.get(Outcome.RETURNED, 0) + self.outcomes.get(Outcome.FORESEEN_RETURN, 0)

    @property
    def badly(self) -> bool:
        """More pods came back to on-demand nodes than went anywhere else."""
        return 2 * self.returned > sum(self.outcomes.values())


@dataclass(slots=True)
class _Watch:
    """A drain whose pods are on their way; by controller, the nodes that were forecast for its pods."""

    node: str
    until: datetime
    known: frozenset[str]  #: UIDs of the controllers' pods before the drain: any other is a replacement
    wanted: dict[str, list[str]] = field(default_factory=lambda: defaultdict(list))


class Landings:
    """The drains whose pods are on their way, and how long the next drain waits."""

    def __init__(self) -> None:
        self._watches: list[_Watch] = []
        self._bad = 0
        self._paused_until: datetime | None = None

    def expect(self, plan: Plan, pods: Mapping[str, Pod], now: datetime) -> "Callable[[datetime], None]":
        """Remember what *plan* foresees while its pods still stand; call the result once they are gone.

        *pods* are all there are, by key.
        """
        watch = _Watch(plan.node, now + PATIENCE, frozenset(pod.uid for pod in pods.values() if pod.owner is not None))
        for one in plan.forecast or plan.placements:
            pod = pods.get(str(one.pod))
            if pod is not None and pod.owner is not None and pod.owner.uid:
                watch.wanted[pod.owner.uid].append(one.node)

        def begin(ended: datetime) -> None:
            watch.until = ended + PATIENCE
            if watch.wanted:
                self._watches.append(watch)

        return begin

    def look(self, pods: Iterable[Pod], is_spot: Callable[[str], bool], now: datetime) -> list[Landed]:
        """The drains whose pods are all back, or whose time is over; each is told once."""
        if not self._watches:
            return []
        owned = [pod for pod in pods if pod.owner is not None and pod.node_name]
        told, waiting = [], []
        for watch in self._watches:
            landed, complete = _compared(watch, owned, is_spot)
            if complete or now >= watch.until:
                told.append(landed)
                self._weigh(landed, now)
            else:
                waiting.append(watch)
        self._watches = waiting
        return told

    def paused_until(self, now: datetime) -> datetime | None:
        """Until when drains wait because the last ones landed badly, None where they need not."""
        return self._paused_until if self._paused_until is not None and now < self._paused_until else None

    def _weigh(self, landed: Landed, now: datetime) -> None:
        if not landed.badly:
            self._bad, self._paused_until = 0, None
            return
        self._paused_until = now + min(FIRST_PAUSE * 2 ** min(self._bad, 10), LONGEST_PAUSE)
        self._bad += 1


def _compared(watch: _Watch, pods: Iterable[Pod], is_spot: Callable[[str], bool]) -> tuple[Landed, bool]:
    """How the pods landed so far, and whether all have; pods of one controller are not told apart."""
    landed: defaultdict[str, list[str]] = defaultdict(list)
    for pod in pods:
        assert pod.owner is not None
        if pod.uid not in watch.known:
            landed[pod.owner.uid].append(pod.node_name)
    outcomes: Counter[Outcome] = Counter()
    for owner, wanted in watch.wanted.items():
        outcomes += _of_controller(wanted, landed.get(owner, []), is_spot)
    return Landed(watch.node, outcomes), not outcomes[Outcome.MISSING]


def _of_controller(wanted: list[str], landed: list[str], is_spot: Callable[[str], bool]) -> Counter[Outcome]:
    forecast, found = Counter(wanted), Counter(landed[: len(wanted)])
    outcomes: Counter[Outcome] = Counter()
    for node, count in (forecast & found).items():
        outcomes[Outcome.AS_FORECAST if is_spot(node) else Outcome.FORESEEN_RETURN] += count
    foreseen = sum(count for node, count in (forecast - found).items() if not is_spot(node))
    for node, count in (found - forecast).items():
        if is_spot(node):
            outcomes[Outcome.OTHER_SPOT] += count
            continue
        also = min(count, foreseen)
        foreseen -= also
        outcomes[Outcome.FORESEEN_RETURN] += also
        outcomes[Outcome.RETURNED] += count - also
    outcomes[Outcome.MISSING] += len(wanted) - found.total()
    return outcomes
