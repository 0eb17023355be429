"""Invariant 2: an owner never has more missing pods at once than a wave allows.

The waves are: one pod, also by a roll-out; one pod per namespace; one pod per owner; then the rest of each owner in
steps of 1, 2, 4, … The first wave and the later steps of an owner wait for Ready successors, the others for bound ones.
So an owner with N landed successors may lack max(N, 1) more pods; a StatefulSet never lacks more than one. Within a
step, the pods of a namespace leave one after the other, each when the one before has a bound successor; and none leaves
while successors are lost.
"""

from collections.abc import Iterator
from dataclasses import dataclass, field

from tests.invariants.history import seconds
from tests.invariants.judging import JudgedMoment
from tests.invariants.moments import HistoryMoment, PodEvicted
from tests.invariants.replay import OwnerKey, SeenDrain, named
from tests.invariants.rules import Violation


@dataclass(slots=True)
class WithinWaves:
    #: By drain: the wave in which each owner's first pod was evicted.
    _waves: dict[int, dict[OwnerKey, int]] = field(default_factory=dict)

    def check(self, moment: HistoryMoment, scene: JudgedMoment) -> Iterator[Violation]:
        if not isinstance(moment, PodEvicted):
            return
        owner, drain = scene.owner(moment.pod), scene.drain_of(moment.pod)
        if owner is None or drain is None:
            return
        yield from _too_many(moment, owner, drain, scene)
        yield from self._too_early(moment, owner, drain, scene)
        if scene.rules.paced:
            yield from _unpaced(moment, owner, drain, scene)

    def end(self, _: JudgedMoment) -> Iterator[Violation]:
        return iter(())

    def _too_early(
        self, moment: PodEvicted, owner: OwnerKey, drain: SeenDrain, scene: JudgedMoment
    ) -> Iterator[Violation]:
        begun = self._waves.setdefault(drain.number, {})
        if owner in begun:
            return
        namespaces = {other[1] for other in begun} | drain.rolled_out
        wave = 3 if owner[1] in namespaces else 2 if begun or drain.moved_before else 1
        if scene.rules.first_runs and [*begun.values()] == [1]:
            [first] = begun
            if scene.ready.of(first) and not scene.ready.paid.get((drain.number, first)):
                what = (
                    f"pod {moment.pod.key} was evicted before the first pod, of {named(first)}, was replaced by a Ready"
                )
                yield Violation(2, moment.at, f"{what} one (wave {wave} of node {drain.node})")
        for other, earlier in begun.items():
            if earlier < wave and scene.bound.of(other):
                what = f"pod {moment.pod.key} was evicted before the pods of {named(other)} were bound to nodes again"
                yield Violation(2, moment.at, f"{what} (waves {earlier} and {wave} of node {drain.node})")
        begun[owner] = wave


def _too_many(moment: PodEvicted, owner: OwnerKey, drain: SeenDrain, scene: JudgedMoment) -> Iterator[Violation]:
    missing = scene.ready.of(owner)
    paid = scene.ready.paid.get((drain.number, owner), 0)
    allowed = 1 if owner[0] == "StatefulSet" else max(1, paid)
    if missing > allowed:
        what = f"{named(owner)} lacks {missing} pods at once with the eviction of {moment.pod.key}"
        yield Violation(2, moment.at, f"{what}; the waves of node {drain.node} allow {allowed}")


def _unpaced(moment: PodEvicted, owner: OwnerKey, drain: SeenDrain, scene: JudgedMoment) -> Iterator[Violation]:
    for other, shortage in scene.bound.shortages.items():
        if other[1] == owner[1] and shortage.drain is drain and shortage.missing > (other == owner):
            what = f"pod {moment.pod.key} was evicted while an evicted pod of {named(other)} had no bound successor"
            yield Violation(2, moment.at, f"{what}, which is in the same namespace")
    since = moment.write.received - seconds(scene.rules.lag)
    for (number, other), moved in scene.bound.moved.items():
        lost = moved.lacking_since if moved.recovered and number == drain.number else None
        if lost is not None and lost < since:
            what = f"pod {moment.pod.key} was evicted while {named(other)} had lost pods again since {lost:%H:%M:%S}"
            yield Violation(2, moment.at, what)
