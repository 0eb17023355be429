"""Invariant 1: every evicted pod that its owner still desires has a Ready successor within the landing timeout.

A successor may be impossible, because of a quota or a broken image. Then the daemon has to abort the drain in time, so
that the pod can return to its old node. It must not evict pods in another drain while successors are missing, before
the landing timeout has passed: after that, an owner keeps only its own nodes from being drained.
"""

from collections.abc import Iterator
from dataclasses import dataclass, field
from datetime import datetime
from typing import Final

from tests.invariants.history import seconds
from tests.invariants.judging import JudgedMoment
from tests.invariants.missing import OwnerShortage
from tests.invariants.moments import HistoryMoment, PodEvicted
from tests.invariants.replay import OwnerKey, SeenDrain, named
from tests.invariants.rules import Violation

#: The observer may see an eviction this many seconds later than the daemon, at the latest.
_CLOCKS: Final = 2.0


@dataclass(slots=True)
class LandsInTime:
    _reported: set[tuple[int, OwnerKey]] = field(default_factory=set)

    def check(self, moment: HistoryMoment, scene: JudgedMoment) -> Iterator[Violation]:
        if isinstance(moment, PodEvicted):
            yield from self._further_drain(moment, scene)
        yield from self._overdue(moment.at, scene)

    def end(self, scene: JudgedMoment) -> Iterator[Violation]:
        yield from self._overdue(scene.history.until, scene)

    def _further_drain(self, moment: PodEvicted, scene: JudgedMoment) -> Iterator[Violation]:
        drain = scene.drain_of(moment.pod)
        for owner, shortage in scene.ready.shortages.items():
            if drain is None or shortage.drain.number == drain.number or not shortage.missing:
                continue
            if moment.at >= shortage.since + seconds(scene.rules.landing_timeout - _CLOCKS):
                continue
            if self._first(shortage.drain, owner):
                what = f"pod {moment.pod.key} of node {drain.node} was evicted while {_lacks(owner, shortage)}"
                yield Violation(1, moment.at, what)

    def _overdue(self, at: datetime, scene: JudgedMoment) -> Iterator[Violation]:
        patience = seconds(scene.rules.landing_timeout + scene.rules.slack)
        for owner, shortage in scene.ready.shortages.items():
            drain = shortage.drain
            acted = drain.acted or shortage.since
            if drain.ended is None and at > acted + patience and self._first(drain, owner):
                what = f"node {drain.node} is still marked {(at - acted).total_seconds():.0f} s after its last eviction"
                yield Violation(1, at, f"{what}, and {_lacks(owner, shortage)}")

    def _first(self, drain: SeenDrain, owner: OwnerKey) -> bool:
        """Return whether a violation by *drain* and *owner* is reported for the first time."""
        key = drain.number, owner
        new = key not in self._reported
        self._reported.add(key)
        return new


def _lacks(owner: OwnerKey, shortage: OwnerShortage) -> str:
    pods = ", ".join(pod.key for pod in shortage.pods[:3])
    return (
        f"{named(owner)} lacks {shortage.missing} Ready pods for those that were evicted from node "
        f"{shortage.drain.node} at {shortage.since:%H:%M:%S} ({pods})"
    )
