"""The targets where pods may be placed, and the reasons why pods do not fit on them."""

import enum
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TypeAlias

import numpy as np

from predicates.filters import Filters
from predicates.local_results import Targets
from predicates.objects import Pod, PodClass
from predicates.snapshot import Snapshot

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


@dataclass(frozen=True, slots=True)
class Stuck:
    """A pod that does not fit together with the others, and the reasons of the targets."""

    pod: Pod
    why: str
    others: tuple["Stuck", ...] = ()  #: further pods that do not fit


class Reasons(enum.Enum):
    """Selects the unplaced pods for which reasons are computed, because computing reasons takes time."""

    NONE = enum.auto()
    FIRST = enum.auto()
    ALL = enum.auto()


def all_stuck(room: Room, pods: Sequence[Pod]) -> tuple[Stuck, ...]:
    """Return each of *pods*, none of which fits, with the reasons why the targets reject it in the current trial."""
    why = {cls: shortage(room, cls) for cls in dict.fromkeys(pod.cls for pod in pods)}
    return tuple(Stuck(pod, why[pod.cls]) for pod in pods)


def first_stuck(room: Room, pods: Sequence[Pod], reasons: Reasons) -> Stuck:
    """Return the first of *pods*, none of which fits, with the *reasons* why the targets reject it."""
    if reasons is Reasons.ALL:
        first, *others = all_stuck(room, pods)
        return replace(first, others=tuple(others))
    return Stuck(pods[0], shortage(room, pods[0].cls) if reasons is Reasons.FIRST else "")


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
