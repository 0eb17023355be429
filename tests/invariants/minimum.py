"""Invariant 7: never below the minimum, never a node that is not on-demand by the daemon's labels."""

from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass, field
from datetime import datetime

from tests.invariants.history import seconds
from tests.invariants.judging import JudgedMoment
from tests.invariants.moments import HistoryMoment, PodEvicted, Wrote
from tests.invariants.objects import SeenNode
from tests.invariants.replay import SeenDrain
from tests.invariants.rules import Rules, Violation


@dataclass(slots=True)
class KeepsMinimum:
    _kept: deque[tuple[datetime, frozenset[str]]] = field(default_factory=deque)  #: which nodes counted, and since when

    def ask(self, moment: HistoryMoment, scene: JudgedMoment) -> Iterator[Violation]:
        match moment:
            case PodEvicted(_, pod, _):
                drain = scene.drain_of(pod)
                if drain is not None and len(drain.evicted) == 1:
                    yield from self._enough(drain, moment.at, scene)
            case Wrote(revision):
                drain = scene.now.drains.get(revision.object.metadata.name)
                if isinstance(revision.object, SeenNode) and drain is not None and drain.number == revision.number:
                    yield from _on_demand(revision.object, moment.at, scene)
                if scene.rules.minimum:
                    self._note(moment.at, scene)

    def end(self, _: JudgedMoment) -> Iterator[Violation]:
        return iter(())

    def _note(self, at: datetime, scene: JudgedMoment) -> None:
        counted = frozenset(name for name, node in scene.now.nodes.items() if _counts(node, scene))
        if not self._kept or self._kept[-1][1] != counted:
            self._kept.append((at, counted))
        while len(self._kept) > 1 and self._kept[1][0] < at - seconds(scene.rules.lag):
            self._kept.popleft()

    def _enough(self, drain: SeenDrain, at: datetime, scene: JudgedMoment) -> Iterator[Violation]:
        """Judged by the best that the daemon can have seen lately. Without an eviction, a mark takes nothing away."""
        wanted = scene.rules.minimum
        others = max((len(counted - {drain.node}) for _, counted in self._kept), default=wanted)
        if others < wanted:
            what = f"node {drain.node} was emptied with {others} other on-demand nodes that keep pods"
            yield Violation(7, at, f"{what}; {wanted} must remain")


def _on_demand(node: SeenNode, at: datetime, scene: JudgedMoment) -> Iterator[Violation]:
    states = scene.now.recent(node.metadata.uid, at, scene.rules.lag)
    if not any(_is_on_demand(state, scene.rules) for state in states if isinstance(state, SeenNode)):
        labels = ", ".join(sorted(node.metadata.labels))
        yield Violation(7, at, f"node {node.metadata.name} was marked and is not on-demand by its labels ({labels})")


def _is_on_demand(node: SeenNode, rules: Rules) -> bool:
    return node.has(rules.on_demand) and not node.has(rules.spot)


def _counts(node: SeenNode, scene: JudgedMoment) -> bool:
    return (
        _is_on_demand(node, scene.rules)
        and node.ready
        and node.metadata.deletion_timestamp is None
        and node.metadata.name not in scene.now.marks
        and scene.now.keeps_pods(node.metadata.name)
    )
