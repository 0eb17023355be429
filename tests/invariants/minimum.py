"""Invariant 7: never fewer on-demand nodes than the minimum, and only nodes with the on-demand label are drained."""

from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass, field
from datetime import datetime

from tests.invariants.history import seconds
from tests.invariants.judging import JudgedMoment
from tests.invariants.moments import HistoryMoment, MachineTerminated, PodEvicted, Wrote
from tests.invariants.objects import SeenNode
from tests.invariants.replay import SeenDrain
from tests.invariants.rules import Rules, Violation


@dataclass(slots=True)
class KeepsMinimum:
    #: The nodes that counted, and since when.
    _kept: deque[tuple[datetime, frozenset[str]]] = field(default_factory=deque)

    def check(self, moment: HistoryMoment, scene: JudgedMoment) -> Iterator[Violation]:
        match moment:
            case PodEvicted(_, pod, _):
                drain = scene.drain_of(pod)
                if drain is not None and len(drain.evicted) == 1:
                    yield from self._enough(drain, "drained", moment.at, scene.rules.lag, scene)
                if drain is not None and (node := scene.now.nodes.get(drain.node)) is not None:
                    yield from _on_demand(node, "drained", moment.at, scene.rules.lag, scene)
            case MachineTerminated(termination):
                if (node := scene.now.nodes.get(termination.node)) is not None:
                    yield from _on_demand(node, "terminated", moment.at, termination.look(scene.rules.look), scene)
                drain = scene.now.drains.get(termination.node)
                if drain is not None and drain.evicted:
                    look = termination.look(scene.rules.look) if termination.looked else scene.rules.lag
                    yield from self._enough(drain, "terminated", moment.at, look, scene)
            case Wrote(revision):
                drain = scene.now.drains.get(revision.object.metadata.name)
                begins = drain is not None and drain.number == revision.number and not drain.restored
                if isinstance(revision.object, SeenNode) and begins:
                    yield from _on_demand(revision.object, "marked", moment.at, scene.rules.lag, scene)
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

    def _enough(
        self, drain: SeenDrain, action: str, at: datetime, lag: float, scene: JudgedMoment
    ) -> Iterator[Violation]:
        """Check the minimum with the most favorable state within the lag; a mark without an eviction does not count."""
        wanted, since = scene.rules.minimum, at - seconds(lag)
        ends = [*[changed for changed, _ in self._kept][1:], at]
        kept = (counted for (_, counted), end in zip(self._kept, ends, strict=False) if end >= since)
        others = max((len(counted - {drain.node}) for counted in kept), default=wanted)
        if others < wanted:
            what = f"node {drain.node} was {action} with only {others} other on-demand nodes with pods"
            yield Violation(7, at, f"{what}; {wanted} must remain")


def _on_demand(node: SeenNode, action: str, at: datetime, lag: float, scene: JudgedMoment) -> Iterator[Violation]:
    states = scene.now.recent(node.metadata.uid, at, lag)
    if not any(_is_on_demand(state, scene.rules) for state in states if isinstance(state, SeenNode)):
        labels = ", ".join(sorted(node.metadata.labels))
        yield Violation(7, at, f"node {node.metadata.name} was {action} but is no on-demand node ({labels})")


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
