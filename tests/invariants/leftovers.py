"""Invariant 5: no mark of the installation outlives its drain for longer than the timeouts.

The timeouts restart with each new leader: only the time of an uninterrupted tenure counts.
"""

from collections.abc import Iterator
from dataclasses import dataclass, field
from datetime import datetime

from tests.invariants.history import seconds
from tests.invariants.judging import JudgedMoment
from tests.invariants.leases import LeaseTimes
from tests.invariants.marks import DRAINING, NodeMark
from tests.invariants.moments import HistoryMoment
from tests.invariants.rules import Violation


@dataclass(slots=True)
class NoLeftovers:
    _leases: LeaseTimes | None = None
    _half: dict[str, datetime] = field(default_factory=dict)  #: time since when the mark is incomplete, by node
    _reported: set[tuple[str, str]] = field(default_factory=set)

    def check(self, moment: HistoryMoment, scene: JudgedMoment) -> Iterator[Violation]:
        yield from self._look(moment.at, scene)

    def end(self, scene: JudgedMoment) -> Iterator[Violation]:
        yield from self._look(scene.history.until, scene)

    def _look(self, at: datetime, scene: JudgedMoment) -> Iterator[Violation]:
        marks = scene.now.marks
        halves = {node for node, mark in marks.items() if not mark.whole or not mark.holder}
        self._half = {node: self._half.get(node, at) for node in halves}
        self._reported = {(node, what) for node, what in self._reported if node in marks}
        if not marks:
            return
        if self._leases is None:
            self._leases = LeaseTimes.of(scene.history.writes)
        steady, holder = self._leases.steady_since(at), self._leases.holder(at)
        if steady is None or holder is None:
            return
        for node, mark in marks.items():
            what = self._stale(node, mark, at, steady, holder, scene)
            if what and (node, what) not in self._reported:
                self._reported.add((node, what))
                yield Violation(5, at, f"node {node} {what}, with {holder} leading since {steady:%H:%M:%S}")

    def _stale(
        self, node: str, mark: NodeMark, at: datetime, steady: datetime, holder: str, scene: JudgedMoment
    ) -> str:
        """Return the error of *mark* that has lasted for too long, or ""."""
        rules = scene.rules
        if node in self._half and at > max(self._half[node], steady) + seconds(rules.leftover):
            return "has the taint without the annotation" if mark.tainted else "has an incomplete mark"
        if mark.step != DRAINING or at <= steady + seconds(rules.abandoned):
            return ""
        if mark.until is not None and at > mark.until + seconds(rules.abandoned):
            return f"has a mark that expired at {mark.until:%H:%M:%S}"
        if mark.holder != holder:
            return f"has the mark of {mark.holder}"
        return ""
