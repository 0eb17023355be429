"""Place a set of pods on the target nodes, by first-fit, then by costlier methods; and explain why a pod does
not fit.
"""

import enum
from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from operator import attrgetter
from typing import Final, TypeAlias

import numpy as np

from predicates.filters import Filters
from predicates.local_results import Targets
from predicates.objects import Pod, PodClass
from predicates.snapshot import Snapshot, Trial
from rescheduler.planning.placement.preemption import YieldingPods

# The targets where pods may be placed, and the reasons why pods do not fit on them.

Placed: TypeAlias = list[tuple[Pod, int]]


class Sizes:
    """The size of a pod relative to the targets: its largest share of the free amount of any resource."""

    def __init__(self, snapshot: Snapshot, targets: Targets) -> None:
        table = snapshot.nodes
        rows = targets.rows
        total = table.free[rows].sum(axis=0) if len(rows) else None
        self._free = {name: int(total[column]) if total is not None else 0 for name, column in table.resources.items()}
        self._sizes: dict[PodClass, float] = {}

    def of(self, pod: PodClass) -> float:
        """Return the size of a pod of this class."""
        if (size := self._sizes.get(pod)) is None:
            shares = (amount / max(self._free.get(name, 0), 1) for name, amount in pod.requests)
            size = self._sizes[pod] = max(shares, default=0.0)
        return size


@dataclass(frozen=True, slots=True)
class Room:
    """The *targets* of *snapshot* where pods may be placed, and the *filters* that decide."""

    snapshot: Snapshot
    filters: Filters
    targets: Targets
    sizes: Sizes
    targets_name: str = "spot nodes"  #: how messages name the targets
    yielding: YieldingPods | None = None  #: the pods on the targets that yield their room; None: none does


@dataclass(frozen=True, slots=True)
class Stuck:
    """A pod that does not fit together with the others, and the reasons of the targets."""

    pod: Pod
    why: str
    others: tuple["Stuck", ...] = ()  #: further pods that do not fit


class WantedReasons(enum.Enum):
    """Selects the unplaced pods for which reasons are computed, because computing reasons takes time."""

    NONE = enum.auto()
    FIRST = enum.auto()
    ALL = enum.auto()


def all_stuck(room: Room, pods: Sequence[Pod]) -> tuple[Stuck, ...]:
    """Return each of *pods*, none of which fits, with the reasons why the targets reject it in the current trial."""
    why = {cls: shortage(room, cls) for cls in dict.fromkeys(pod.cls for pod in pods)}
    return tuple(Stuck(pod, why[pod.cls]) for pod in pods)


def first_stuck(room: Room, pods: Sequence[Pod], reasons: WantedReasons) -> Stuck:
    """Return the first of *pods*, none of which fits, with the *reasons* why the targets reject it."""
    if reasons is WantedReasons.ALL:
        first, *others = all_stuck(room, pods)
        return replace(first, others=tuple(others))
    return Stuck(pods[0], shortage(room, pods[0].cls) if reasons is WantedReasons.FIRST else "")


def shortage(room: Room, pod: PodClass) -> str:
    """Return why no target accepts *pod*, in the format of the scheduler: the number of nodes for each reason."""
    counts: defaultdict[str, int] = defaultdict(int)
    free = np.ones(len(room.targets.rows), np.bool_)
    for refused in room.filters.rejections(pod, room.targets.rows):
        codes = refused.codes[free]
        for code, rows in zip(*np.unique(codes[codes != 0], return_counts=True), strict=True):
            for reason in refused.reasons(int(code)):
                counts[reason] += int(rows)
        free &= refused.codes == 0
    reasons = ", ".join(
        f"{rows} {reason}" for reason, rows in sorted(counts.items(), key=lambda item: (-item[1], item[0]))
    )
    return f"{int(free.sum())}/{len(free)} {room.targets_name} are available" + (f": {reasons}" if reasons else "")


# All methods work inside a trial of the snapshot. The costlier ones end when the :class:`Effort` is used up. Effort is
# counted in filter evaluations, not in seconds, so that the same input gives the same plan on any machine.

#: The assumed number of filter evaluations in a second of planning.
EVALUATIONS_PER_SECOND: Final = 15_000

#: Maximum depth of the chain of pods that are moved to make room for one pod.
_EJECTION_DEPTH: Final = 3

#: The exhaustive search is used for at most this many pods, and tries at most this many placements.
_FEW_PODS: Final = 60
WAYS: Final = 600


@dataclass(slots=True)
class Effort:
    """The number of filter evaluations that may still be spent."""

    left: int

    def spend(self, evaluations: int = 1) -> bool:
        """Spend effort. Return whether enough was left."""
        self.left -= evaluations
        return self.left >= 0

    def affords(self, evaluations: int) -> bool:
        """Return whether so much effort is left."""
        return self.left >= evaluations

    @property
    def exhausted(self) -> bool:
        """Return whether no effort is left."""
        return self.left <= 0


class Packing:
    """The pods placed so far in *trial*."""

    def __init__(self, room: Room, trial: Trial) -> None:
        self._filters = room.filters
        self._targets = room.targets
        self._sizes = room.sizes
        self._trial = trial
        self._placements: dict[str, tuple[Pod, int]] = {}  #: by pod key, in the order of placing

    @property
    def placed(self) -> Placed:
        """Return the placed pods and their rows, in the order of placing."""
        return list(self._placements.values())

    def first_fit(self, pods: Iterable[Pod]) -> list[Pod]:
        """Place each pod on the first target that accepts it. Return the pods that did not fit.

        Pods that do not fit are tried again after the others, because pod affinity may require one of the others.
        """
        waiting = list(pods)
        while waiting:
            rows = self._filters.first_fit([pod.cls for pod in waiting], self._targets, self._trial)
            self._placements.update(
                {pod.key: (pod, row) for pod, row in zip(waiting, rows, strict=True) if row is not None}
            )
            unplaced = [pod for pod, row in zip(waiting, rows, strict=True) if row is None]
            if len(unplaced) == len(waiting):
                break
            waiting = unplaced
        return waiting

    def squeeze(self, pods: Sequence[Pod], effort: Effort) -> list[Pod]:
        """Place *pods* by moving pods that were placed before. Return the pods that still do not fit."""
        return [pod for pod in pods if not self._eject(pod, _EJECTION_DEPTH, effort)]

    def every_way(self, pods: Sequence[Pod], effort: Effort) -> bool:
        """Place *pods* in this order, trying every row for each. Return whether all fit before *effort* was used up."""
        if not pods:
            return True
        pod, rest = pods[0], pods[1:]
        mark = self._trial.savepoint()
        for row in list(self._filters.fitting(pod.cls, self._targets)):
            if not effort.spend():
                return False
            self._add(pod, row)
            if self.every_way(rest, effort):
                return True
            self._trial.revert(mark)
            del self._placements[pod.key]
        return False

    def replay(self, placed: Placed) -> bool:
        """Place each pod on its row again, one after the other. Return whether the filters accepted all of them.

        Moving pods can lead to a set of placements that no order of scheduling can reach.
        """
        waiting = placed
        while waiting:
            unplaced = [(pod, row) for pod, row in waiting if not self._put(pod, row)]
            if len(unplaced) == len(waiting):
                return False
            waiting = unplaced
        return True

    def clear(self, mark: int) -> None:
        """Undo everything since *mark*, which must be older than the first placement."""
        self._trial.revert(mark)
        self._placements.clear()

    def _put(self, pod: Pod, row: int) -> bool:
        if not self._filters.fits(pod.cls, row):
            return False
        self._add(pod, row)
        return True

    def _insert(self, pod: Pod) -> bool:
        row = self._filters.first(pod.cls, self._targets)
        if row is None:
            return False
        self._add(pod, row)
        return True

    def _eject(self, pod: Pod, depth: int, effort: Effort) -> bool:
        """Place *pod*, if necessary by moving smaller pods to other nodes."""
        if not effort.spend():
            return False
        if self._insert(pod):
            return True
        if depth == 0:
            return False
        rows = dict.fromkeys(row for _, row in self._placements.values())
        return any(self._take_over(pod, row, depth, effort) for row in rows)

    def _take_over(self, pod: Pod, row: int, depth: int, effort: Effort) -> bool:
        """Remove placed pods from *row*, smallest first, until *pod* fits; then place the removed pods elsewhere."""
        previous = dict(self._placements)
        mark = self._trial.savepoint()
        size = self._sizes.of(pod.cls)
        placed_pods = [placed_pod for placed_pod, at in self._placements.values() if at == row]
        removed: list[Pod] = []
        for placed_pod in sorted(placed_pods, key=lambda placed_pod: (self._sizes.of(placed_pod.cls), placed_pod.key)):
            if self._sizes.of(placed_pod.cls) >= size and removed:
                break
            self._remove(placed_pod, row)
            removed.append(placed_pod)
            if not effort.spend():
                break
            if self._filters.fits(pod.cls, row):
                self._add(pod, row)
                if all(self._eject(removed_pod, depth - 1, effort) for removed_pod in reversed(removed)):
                    return True
                break
        self._trial.revert(mark)
        self._placements = previous
        return False

    def _add(self, pod: Pod, row: int) -> None:
        self._trial.place(pod.cls, row)
        self._placements[pod.key] = pod, row

    def _remove(self, pod: Pod, row: int) -> None:
        self._trial.unplace(pod.cls, row)
        del self._placements[pod.key]


def pack(
    room: Room,
    trial: Trial,
    pods: Sequence[Pod],
    effort: Effort,
    ways: int = WAYS,
    *,
    reasons: WantedReasons = WantedReasons.FIRST,
) -> Placed | Stuck:
    """Place all of *pods* in an order in which the filters accept each of them, or return the pods that do not fit.

    Methods in order: first-fit with the largest pods first, first-fit by name (the result is never worse than this),
    moving placed pods, and for few pods an exhaustive search. On success the placements remain in *trial*; otherwise
    *trial* is unchanged. The result has ``others`` only with :attr:`WantedReasons.ALL`.
    """
    packing = Packing(room, trial)
    mark = trial.savepoint()
    by_name = sorted(pods, key=attrgetter("key"))
    largest_first = sorted(by_name, key=lambda pod: -room.sizes.of(pod.cls))
    stuck: Stuck | None = None
    for order in (largest_first, by_name, largest_first[::-1]):
        if not effort.spend(len(pods)) and stuck is not None:
            return stuck
        if not (left := packing.first_fit(order)):
            return packing.placed
        stuck = stuck or first_stuck(room, left, reasons)
        if not packing.squeeze(left, effort) and _can_be_scheduled(packing, mark):
            return packing.placed
        packing.clear(mark)
    assert stuck is not None
    return packing.placed if _tried_every_way(packing, largest_first, effort, ways) else stuck


def _tried_every_way(packing: Packing, pods: Sequence[Pod], effort: Effort, ways: int) -> bool:
    """Return whether the exhaustive search placed all of *pods*. It is not tried for many pods."""
    if len(pods) > _FEW_PODS or effort.left <= 0:
        return False
    limited = Effort(min(effort.left, ways))
    budget = limited.left
    success = packing.every_way(pods, limited)
    effort.spend(budget - max(limited.left, 0))
    return success


def _can_be_scheduled(packing: Packing, mark: int) -> bool:
    """Return whether the pods can be scheduled one after the other on the rows that were found."""
    placed = packing.placed
    packing.clear(mark)
    return packing.replay(placed)


# Place pods by first-fit, and explain why a pod does not fit.


def first_fitting(room: Room, pods: Iterable[Pod]) -> Placed:
    """Return where first-fit places those of *pods* that fit. The snapshot is not changed."""
    with room.snapshot.trial() as trial:
        packing = Packing(room, trial)
        packing.first_fit(pods)
        return packing.placed


def place_or_explain(
    room: Room, trial: Trial, pods: Sequence[Pod], never_fitting: dict[PodClass, str]
) -> Placed | Stuck:
    """Place all of *pods* by first-fit, the largest first, or return the pods that do not fit.

    On success the placements remain in *trial*; otherwise *trial* is unchanged. *never_fitting* caches the reasons why
    no target accepts a class regardless of *pods*. It is valid while only the nodes of *pods* change in *trial*.
    """
    reasons = {pod.cls: _why_never(room, pod.cls, never_fitting) for pod in pods}
    by_size = sorted(pods, key=lambda pod: (-room.sizes.of(pod.cls), pod.key))
    packing = Packing(room, trial)
    mark = trial.savepoint()
    unplaced = packing.first_fit(pod for pod in by_size if reasons[pod.cls] is None)
    stuck = tuple(Stuck(pod, why) for pod in by_size if (why := reasons[pod.cls]) is not None)
    if unplaced:
        stuck += all_stuck(room, unplaced)
    if not stuck:
        return packing.placed
    packing.clear(mark)
    return replace(stuck[0], others=stuck[1:])


def _why_never(room: Room, pod: PodClass, never_fitting: dict[PodClass, str]) -> str | None:
    """Return why no target accepts the class of *pod* even if nothing else is placed, or None if one may accept it."""
    if (why := never_fitting.get(pod)) is None and room.filters.never_fits(pod, room.targets):
        why = shortage(room, pod)
        if not room.filters.depends_on_cluster(pod):
            never_fitting[pod] = why
    return why
