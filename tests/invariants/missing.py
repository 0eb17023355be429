"""The evicted pods without a successor, by owner.

An eviction is settled by a successor: a pod of the same owner that was created later and reached the same state as the
evicted pod. It is also settled when the owner has as many pods as before the drain. For landings, a settled eviction
stays settled, because later failures of the successor are not caused by the daemon. When the machine ends, however, its
owner must not lack pods again (see :class:`MovedOwner`). An owner that was scaled down, has a new template
or was deleted lacks no pods. Doubtful cases are decided in favor of the daemon.
"""

from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import datetime
from typing import Final

from tests.invariants.objects import SeenPod
from tests.invariants.replay import OwnerKey, Replay, SeenDrain

#: A pod that reached the state later than this before its eviction may not have been seen in it, in seconds.
UNSEEN: Final = 1.0

#: The state that a successor must reach: bound to a node, or Ready.
Measure = Callable[[SeenPod], bool]


def is_bound(pod: SeenPod) -> bool:
    return pod.bound


def is_ready(pod: SeenPod) -> bool:
    return pod.ready


@dataclass(slots=True)
class OwnerShortage:
    """The missing pods of an owner."""

    drain: SeenDrain  #: the drain with the first unsettled eviction
    first: int  #: revision of the first unsettled eviction
    before: int  #: pods of the owner before that
    succeeded: int
    template: object
    since: datetime
    pods: list[SeenPod] = field(default_factory=list)  #: evicted and not settled
    successors: set[str] = field(default_factory=set)
    missing: int = 0


@dataclass(slots=True)
class MovedOwner:
    """An owner that lost pods to a drain. It is looked at until the machine ends, also after its debt was settled."""

    before: int  #: its pods before the first eviction
    succeeded: int
    lacking_since: datetime | None = None  #: since when it has fewer pods than before, and than it wants
    recovered: bool = False  #: whether it has had as many again, or wanted no more, since the last eviction


@dataclass(slots=True)
class MissingPods:
    """The shortages of all owners, by one measure."""

    measure: Measure
    shortages: dict[OwnerKey, OwnerShortage] = field(default_factory=dict)
    paid: dict[tuple[int, OwnerKey], int] = field(default_factory=dict)  #: settled evictions by drain
    moved: dict[tuple[int, OwnerKey], MovedOwner] = field(default_factory=dict)  #: by number of the drain
    landings: list[float] = field(default_factory=list)  #: seconds from an owner's first eviction until all are settled

    def evicted(self, pod: SeenPod, owner: OwnerKey, drain: SeenDrain, at: datetime, number: int, now: Replay) -> None:
        """Count an eviction before it is applied."""
        recent = [state for state in now.recent(pod.metadata.uid, at, UNSEEN) if isinstance(state, SeenPod)]
        if not all(map(self.measure, [pod, *recent])):
            return
        ready = sum(self._counts(other, now) for other in now.pods_of(owner))
        moved = MovedOwner(ready, now.succeeded(owner))
        self.moved.setdefault((drain.number, owner), moved).recovered = False
        shortage = self.shortages.get(owner)
        if shortage is None:
            shortage = OwnerShortage(drain, number, ready, now.succeeded(owner), now.template(owner), at)
            self.shortages[owner] = shortage
        shortage.pods.append(pod)
        shortage.missing += 1

    def _counts(self, pod: SeenPod, now: Replay) -> bool:
        """Return whether *pod* has reached the state. One whose node is gone does not run, although it says so."""
        return self.measure(pod) and pod.spec.node_name not in now.lost_nodes

    def inherit(self, replica_set: str, old: OwnerKey, new: OwnerKey, now: Replay) -> None:
        """Let *new* lack what its ReplicaSet lacked while *old* owned it."""
        shortage = self.shortages.get(old)
        if shortage is None or all(
            pod.controller is None or pod.controller.uid != replica_set for pod in shortage.pods
        ):
            return
        shortage.template = now.template(new)
        self.shortages[new] = self.shortages.pop(old)
        for number, owner in [key for key in self.moved if key[1] == old]:
            self.moved[number, new] = self.moved.pop((number, owner))

    def update(self, owner: OwnerKey, now: Replay, at: datetime) -> None:
        """Update the shortage after a change of *owner* or its pods."""
        for (_, moved), state in self.moved.items():
            if moved == owner:
                lacks = self.lacks(owner, state, now, self.measure)
                state.lacking_since = (state.lacking_since or at) if lacks else None
                state.recovered = state.recovered or state.lacking_since is None
        shortage = self.shortages.get(owner)
        if shortage is None:
            return
        pods = list(now.pods_of(owner))
        after = (pod for pod in pods if now.created[pod.metadata.uid] > shortage.first)
        shortage.successors |= {pod.metadata.uid for pod in after if self.measure(pod) or _succeeded(pod)}
        shortage.missing = max(0, min(len(shortage.pods) - len(shortage.successors), self._deficit(owner, now)))
        if not shortage.missing:
            key = shortage.drain.number, owner
            self.paid[key] = self.paid.get(key, 0) + len(shortage.pods)
            self.landings.append((at - shortage.since).total_seconds())
            del self.shortages[owner]

    def lacks(self, owner: OwnerKey, moved: MovedOwner, now: Replay, measure: Measure, more: int = 0) -> bool:
        """Return whether *owner* has fewer pods by *measure* than before the drain. Unknown wishes count as none.

        *more* pods count that are gone.

        A new template does not forgive: only as many pods as its roll-out may make unavailable are allowed for.
        """
        wanted = (now.wanted(owner) or 0) - now.may_lack(owner)
        needed = min(moved.before - max(0, now.succeeded(owner) - moved.succeeded), wanted)
        return sum(measure(pod) for pod in now.pods_of(owner)) + more < needed

    def _deficit(self, owner: OwnerKey, now: Replay) -> int:
        shortage, wanted = self.shortages[owner], now.wanted(owner)
        if now.template(owner) != shortage.template:
            return 0
        needed = shortage.before - max(0, now.succeeded(owner) - shortage.succeeded)
        if wanted is not None:
            needed = min(needed, wanted)
        return needed - sum(self.measure(pod) for pod in now.pods_of(owner))

    @property
    def total(self) -> int:
        return sum(shortage.missing for shortage in self.shortages.values())

    def of(self, owner: OwnerKey) -> int:
        return self.shortages[owner].missing if owner in self.shortages else 0


def _succeeded(pod: SeenPod) -> bool:
    return pod.status.phase == "Succeeded"
