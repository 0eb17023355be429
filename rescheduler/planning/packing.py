"""Finding a place for each of some pods on the target nodes, all at once: first-fit first, then harder.

Everything happens inside a trial of the snapshot. The harder ways end when the :class:`Effort` is spent; it is
counted in questions to the filters, not in seconds, so that the same input gives the same plan on any machine.
"""

from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Final, TypeAlias

import numpy as np

from predicates.filters import Filters, Targets
from predicates.objects import Pod, PodClass
from predicates.snapshot import Snapshot, Trial

#: How many questions a second of planning is taken for.
QUESTIONS_PER_SECOND: Final = 15_000

#: How many pods may be moved in turn to make room for one.
_EJECTION_DEPTH: Final = 3

#: For up to so many pods, so many ways of placing them are tried where nothing else led to a place for each.
_FEW_PODS: Final = 60
WAYS: Final = 600

Placed: TypeAlias = list[tuple[Pod, int]]


@dataclass(frozen=True, slots=True)
class Stuck:
    """A pod that found no place beside the others, and what each target said."""

    pod: Pod
    why: str


@dataclass(slots=True)
class Effort:
    """How many questions may still be asked."""

    left: int

    def spend(self, questions: int = 1) -> bool:
        """Take some; whether there were any left."""
        self.left -= questions
        return self.left >= 0

    @property
    def exhausted(self) -> bool:
        return self.left <= 0


class Sizes:
    """How large a request is beside the targets: the share of the scarcest resource, of one average target."""

    def __init__(self, snapshot: Snapshot, targets: Targets) -> None:
        table = snapshot.nodes
        rows = targets.rows
        total = table.free[rows].sum(axis=0) if len(rows) else None
        self._room = {name: int(total[column]) if total is not None else 0 for name, column in table.resources.items()}
        self._seen: dict[PodClass, float] = {}

    def of(self, pod: PodClass) -> float:
        if (size := self._seen.get(pod)) is None:
            shares = (amount / max(self._room.get(name, 0), 1) for name, amount in pod.requests)
            size = self._seen[pod] = max(shares, default=0.0)
        return size


@dataclass(frozen=True, slots=True)
class Room:
    """Where pods may go: *targets* of *snapshot*, as *filters* see them."""

    snapshot: Snapshot
    filters: Filters
    targets: Targets
    sizes: Sizes
    called: str = "spot nodes"  #: the targets, in reasons


class Packing:
    """The pods placed so far in *trial*."""

    def __init__(self, room: Room, trial: Trial) -> None:
        self._filters = room.filters
        self._targets = room.targets
        self._sizes = room.sizes
        self._trial = trial
        self._at: dict[str, tuple[Pod, int]] = {}  #: by pod key, in the order of placing

    @property
    def placed(self) -> Placed:
        return list(self._at.values())

    def first_fit(self, pods: Iterable[Pod]) -> list[Pod]:
        """Place what fits, each on the first target that takes it; what did not fit.

        Who does not fit is asked again after the others: it may need one of them as a neighbour.
        """
        waiting = list(pods)
        while waiting:
            left = [pod for pod in waiting if not self._insert(pod)]
            if len(left) == len(waiting):
                break
            waiting = left
        return waiting

    def squeeze(self, pods: Sequence[Pod], effort: Effort) -> list[Pod]:
        """Place *pods* by moving others that were placed here; what still does not fit."""
        return [pod for pod in pods if not self._eject(pod, _EJECTION_DEPTH, effort)]

    def every_way(self, pods: Sequence[Pod], effort: Effort) -> bool:
        """Place *pods*, in this order, each on every row in turn: whether a way was found before *effort* ended."""
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
            del self._at[pod.key]
        return False

    def replay(self, placed: Placed) -> bool:
        """Place each pod on its row again, one after the other; whether the filters agreed each time.

        Moving pods about can leave a set of places that no order of arriving leads to.
        """
        waiting = placed
        while waiting:
            left = [(pod, row) for pod, row in waiting if not self._put(pod, row)]
            if len(left) == len(waiting):
                return False
            waiting = left
        return True

    def clear(self, mark: int) -> None:
        """Undo everything since *mark*, which must be older than the first placement."""
        self._trial.revert(mark)
        self._at.clear()

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
        """Place *pod*, if need be in the place of smaller ones that go elsewhere."""
        if not effort.spend():
            return False
        if self._insert(pod):
            return True
        if depth == 0:
            return False
        rows = dict.fromkeys(row for _, row in self._at.values())
        return any(self._take_over(pod, row, depth, effort) for row in rows)

    def _take_over(self, pod: Pod, row: int, depth: int, effort: Effort) -> bool:
        """Clear *row* of pods placed here, smallest first, until *pod* fits; then find them other places."""
        before = dict(self._at)
        mark = self._trial.savepoint()
        size = self._sizes.of(pod.cls)
        tenants = [one for one, at in self._at.values() if at == row]
        moved: list[Pod] = []
        for tenant in sorted(tenants, key=lambda one: (self._sizes.of(one.cls), one.key)):
            if self._sizes.of(tenant.cls) >= size and moved:
                break
            self._remove(tenant, row)
            moved.append(tenant)
            if not effort.spend():
                break
            if self._filters.fits(pod.cls, row):
                self._add(pod, row)
                if all(self._eject(one, depth - 1, effort) for one in reversed(moved)):
                    return True
                break
        self._trial.revert(mark)
        self._at = before
        return False

    def _add(self, pod: Pod, row: int) -> None:
        self._trial.place(pod.cls, row)
        self._at[pod.key] = pod, row

    def _remove(self, pod: Pod, row: int) -> None:
        self._trial.unplace(pod.cls, row)
        del self._at[pod.key]


def pack(room: Room, trial: Trial, pods: Sequence[Pod], effort: Effort, ways: int = WAYS) -> Placed | Stuck:
    """Places for all of *pods*, in an order in which the filters agree to each; or one pod that found none.

    Tried in turn: first-fit of the largest first, of the pods by name (the floor that nothing may fall below),
    moving placed pods about, and for few pods every way. On success the placements stand in *trial*, else none does.
    """
    packing = Packing(room, trial)
    mark = trial.savepoint()
    by_name = sorted(pods, key=lambda pod: pod.key)
    largest_first = sorted(by_name, key=lambda pod: -room.sizes.of(pod.cls))
    stuck: Stuck | None = None
    for order in (largest_first, by_name, largest_first[::-1]):
        if not effort.spend(len(pods)) and stuck is not None:
            return stuck
        if not (left := packing.first_fit(order)):
            return packing.placed
        stuck = stuck or Stuck(left[0], shortage(room, left[0].cls))
        if not packing.squeeze(left, effort) and _arrives(packing, mark):
            return packing.placed
        packing.clear(mark)
    if len(pods) <= _FEW_PODS and effort.left > 0:
        some = Effort(min(effort.left, ways))
        tried = some.left
        found = packing.every_way(largest_first, some)
        effort.spend(tried - max(some.left, 0))
        if found:
            return packing.placed
    assert stuck is not None
    return stuck


def _arrives(packing: Packing, mark: int) -> bool:
    """Whether the places just found can be taken one after the other, from the start."""
    placed = packing.placed
    packing.clear(mark)
    return packing.replay(placed)


def shortage(room: Room, pod: PodClass) -> str:
    """Why *pod* fits no target as things are, in the scheduler's manner: how many nodes for each reason."""
    counts: defaultdict[str, int] = defaultdict(int)
    free = np.ones(len(room.targets.rows), np.bool_)
    for refused in room.filters.rejections(pod, room.targets.rows):
        codes = refused.codes[free]
        for code, rows in zip(*np.unique(codes[codes != 0], return_counts=True), strict=True):
            for reason in refused.reasons(int(code)):
                counts[reason] += int(rows)
        free &= refused.codes == 0
    reasons = ", ".join(
        f"{rows} {reason}" for reason, rows in sorted(counts.items(), key=lambda one: (-one[1], one[0]))
    )
    return f"{int(free.sum())}/{len(free)} {room.called} are available" + (f": {reasons}" if reasons else "")
