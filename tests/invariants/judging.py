"""The evaluation of a history: each invariant is checked at each moment."""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import Protocol

from tests.invariants.history import History
from tests.invariants.missing import MissingPods, is_bound, is_ready
from tests.invariants.moments import HistoryMoment, MachineTerminated, PodEvicted, Wrote, moments
from tests.invariants.objects import SeenPod, SeenWorkload
from tests.invariants.replay import OwnerKey, Replay, SeenDrain
from tests.invariants.rules import Rules, Violation


class Invariant(Protocol):
    """A check at each moment: before an eviction is applied, and after a write or termination is applied."""

    def check(self, moment: HistoryMoment, scene: "JudgedMoment") -> Iterator[Violation]: ...

    def end(self, scene: "JudgedMoment") -> Iterator[Violation]:
        """Check the end of the history."""
        ...


@dataclass(slots=True)
class JudgedMoment:
    """The state of the cluster at a moment, and the missing pods."""

    history: History
    rules: Rules
    now: Replay
    ready: MissingPods = field(default_factory=lambda: MissingPods(is_ready))
    bound: MissingPods = field(default_factory=lambda: MissingPods(is_bound))

    def drain_of(self, pod: SeenPod) -> SeenDrain | None:
        """Return the open drain of the node that *pod* is on."""
        return self.now.drains.get(pod.spec.node_name)

    def owner(self, pod: SeenPod) -> OwnerKey | None:
        return self.now.owners.get(pod.metadata.uid)


@dataclass(slots=True)
class Judgement:
    violations: list[Violation]
    scene: JudgedMoment  #: the final state
    missing: list[tuple[float, int]]  #: seconds since the start, and number of evicted pods without a Ready successor


def judge(history: History, rules: Rules, invariants: Iterable[Invariant]) -> Judgement:
    """Return all violations in *history*, in the order of detection."""
    scene = JudgedMoment(history, rules, Replay(rules.identity, rules.spot))
    judgement, checked = Judgement([], scene, []), list(invariants)
    for moment in moments(history, rules):
        _apply(moment, scene)
        for invariant in checked:
            judgement.violations += invariant.check(moment, scene)
        total = scene.ready.total
        if not judgement.missing or judgement.missing[-1][1] != total:
            judgement.missing.append(((moment.at - history.since).total_seconds(), total))
    for invariant in checked:
        judgement.violations += invariant.end(scene)
    return judgement


def _apply(moment: HistoryMoment, scene: JudgedMoment) -> None:
    match moment:
        case PodEvicted(write, pod, revision):
            owner, drain = scene.owner(pod), scene.drain_of(pod)
            if drain is None:
                return
            drain.evicted.append(pod)
            drain.acted = write.handled
            if owner is not None:
                for missing in (scene.bound, scene.ready):
                    missing.evicted(pod, owner, drain, write.handled, revision.number, scene.now)
        case Wrote(revision):
            scene.now.apply(revision)
            if scene.now.adopted is not None:
                for missing in (scene.bound, scene.ready):
                    missing.inherit(*scene.now.adopted, scene.now)
            for owner in _owners(moment, scene):
                for missing in (scene.bound, scene.ready):
                    missing.update(owner, scene.now, revision.at)
        case MachineTerminated():
            pass


def _owners(moment: Wrote, scene: JudgedMoment) -> list[OwnerKey]:
    """Return the owners whose number of missing pods may change with this write."""
    item = moment.revision.object
    if isinstance(item, SeenPod):
        owner = scene.owner(item)
        return [] if owner is None else [owner]
    if isinstance(item, SeenWorkload):
        owed = {*scene.ready.shortages, *scene.bound.shortages}
        return [owner for owner in owed if owner[3] == item.metadata.uid]
    return []
