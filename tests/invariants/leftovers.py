"""Invariant 5: no mark of the installation is older than the time-outs without a live drain.

Time counts only while the same replica has held the Lease all along: a new leader gets all of it again.
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
    _half: dict[str, datetime] = field(default_factory=dict)  #: by node: since when its mark is half a mark
    _told: set[tuple[str, str]] = field(default_factory=set)

    def ask(self, moment: HistoryMoment, scene: JudgedMoment) -> Iterator[Violation]:
        yield from self._look(moment.at, scene)

    def end(self, scene: JudgedMoment) -> Iterator[Violation]:
        yield from self._look(scene.history.until, scene)

    def _look(self, at: datetime, scene: JudgedMoment) -> Iterator[Violation]:
        marks = scene.now.marks
        halves = {node for node, mark in marks.items() if not mark.whole or not mark.holder}
        self._half = {node: self._half.get(node, at) for node in halves}
        self._told = {(node, what) for node, what in self._told if node in marks}
        if not marks:
            return
        if self._leases is None:
            self._leases = LeaseTimes.of(scene.history.writes)
        steady, holder = self._leases.steady_since(at), self._leases.holder(at)
        if steady is None or holder is None:
            return
        for node, mark in marks.items():
            what = self._stale(node, mark, at, steady, holder, scene)
            if what and (node, what) not in self._told:
                self._told.add((node, what))
                yield Violation(5, at, f"node {node} {what}, with {holder} leading since {steady:%H:%M:%S}")

    def _stale(
        self, node: str, mark: NodeMark, at: datetime, steady: datetime, holder: str, scene: JudgedMoment
    ) -> str:
        """What is wrong with *mark* for too long; "" for nothing."""
        rules = scene.rules
        if node in self._half and at > max(self._half[node], steady) + seconds(rules.leftover):
            return "carries the taint without the annotation" if mark.tainted else "carries half a mark"
        if mark.step != DRAINING or at <= steady + seconds(rules.abandoned):
            return ""
        if mark.until is not None and at > mark.until + seconds(rules.abandoned):
            return f"carries a mark that was good until {mark.until:%H:%M:%S}"
        if mark.holder != holder:
            return f"carries the mark of {mark.holder}"
        return ""
