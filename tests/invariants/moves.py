"""Invariant 9: the average number of moves per replica of an owner and day does not exceed the limit."""

from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass, field
from datetime import datetime, timedelta

from tests.invariants.judging import JudgedMoment
from tests.invariants.moments import HistoryMoment, PodEvicted, Wrote
from tests.invariants.objects import SeenPod, SeenWorkload
from tests.invariants.replay import OwnerKey, named
from tests.invariants.rules import Violation

DAY = timedelta(days=1)


@dataclass(slots=True)
class WithinMoves:
    _moved: defaultdict[OwnerKey, list[datetime]] = field(default_factory=lambda: defaultdict(list))
    _replicas: defaultdict[str, int] = field(default_factory=lambda: defaultdict(int))  #: maximum so far by UID

    def check(self, moment: HistoryMoment, scene: JudgedMoment) -> Iterator[Violation]:
        match moment:
            case Wrote(revision):
                self._count(revision.object, scene)
            case PodEvicted(write, pod, _):
                owner = scene.owner(pod)
                if owner is not None:
                    yield from self._judged(owner, write.handled, scene)

    def end(self, _: JudgedMoment) -> Iterator[Violation]:
        return iter(())

    def _count(self, item: object, scene: JudgedMoment) -> None:
        """Track the maximum number of replicas, because the daemon may have applied the limit at an earlier time."""
        if isinstance(item, SeenWorkload):
            self._replicas[item.metadata.uid] = max(self._replicas[item.metadata.uid], item.wanted)
        elif isinstance(item, SeenPod) and (owner := scene.owner(item)) and scene.now.wanted(owner) is None:
            pods = sum(1 for _ in scene.now.pods_of(owner))
            self._replicas[owner[3]] = max(self._replicas[owner[3]], pods)

    def _judged(self, owner: OwnerKey, at: datetime, scene: JudgedMoment) -> Iterator[Violation]:
        limit = scene.rules.moves_per_pod_and_day
        moved = self._moved[owner]
        moved.append(at)
        recent = sum(moment > at - DAY for moment in moved)
        replicas = max(1, self._replicas[owner[3]])
        if limit and recent > limit * replicas:
            what = f"{recent} pods of {named(owner)} were moved within a day, with {replicas} replicas at most"
            yield Violation(9, at, f"{what}; the limit is {limit:g} for each")
