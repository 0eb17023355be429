"""Room that pods yield: the scheduler preempts them for pods with a higher priority.

Only pods that say so by their priority yield: the pause pods of an overprovisioner, whose priority is negative, and
pods that are expendable. All others would be missed, so no plan counts on their room.
"""

from collections.abc import Iterable, Mapping, Sequence
from itertools import islice
from typing import Final

from predicates.filters import Filters
from predicates.objects import Pod, PodClass
from predicates.snapshot import Snapshot, Trial
from rescheduler.planning.kept import ClusterPart, Kept
from rescheduler.planning.policy import Policy
from rescheduler.planning.rules.pod_traits import is_below, yielding_below

#: The scheduler's choice among so many nodes with yielding pods is simulated.
_MOST_NODES: Final = 50


def priority_of(pod: Pod | PodClass) -> int:
    """Return the priority of a pod; 0 if it has none."""
    cls = pod.cls if isinstance(pod, Pod) else pod
    return cls.spec.priority or 0


def preempts(cls: PodClass) -> bool:
    """Return whether the scheduler preempts other pods for the pods of a class."""
    return cls.spec.preemption_policy != "Never"


class YieldingPods:
    """The pods on the nodes of *rows* of *snapshot* that yield their room. They are listed again after each change."""

    def __init__(self, snapshot: Snapshot, rows: Iterable[int], policy: Policy) -> None:
        self._snapshot = snapshot
        self._rows = tuple(rows)
        self._below = yielding_below(policy)
        self._on: dict[int, tuple[int, Sequence[Pod]]] = {}  #: by row: when its pods were listed, and these
        self._listed = Kept(self._by_row, ClusterPart.ANYTHING)

    def by_row(self) -> Mapping[int, Sequence[Pod]]:
        """Return the pods by row, those with the highest priority first."""
        return self._listed.of(self._snapshot)

    @property
    def names(self) -> Mapping[int, Sequence[tuple[str, str]]]:
        """The names and UIDs of the pods by row. Plans and messages name them, so equal pods are no substitute."""
        return {row: [(pod.key, pod.uid) for pod in pods] for row, pods in self.by_row().items()}

    def _by_row(self, snapshot: Snapshot) -> Mapping[int, Sequence[Pod]]:
        found: dict[int, Sequence[Pod]] = {}
        if not any(is_below(priority, self._below) for _, priority in snapshot.priorities()):  # as in most clusters
            return found
        for row in self._rows:
            node = snapshot.nodes.names[row]
            changed = max(snapshot.placed_on.get(node, 0), snapshot.edited_on.get(node, 0))
            if row not in self._on or self._on[row][0] < changed:
                self._on[row] = snapshot.changes, self._of_node(snapshot.pods_on[node].values())
            if pods := self._on[row][1]:
                found[row] = pods
        return found

    def _of_node(self, pods: Iterable[Pod]) -> Sequence[Pod]:
        found = [pod for pod in pods if is_below(pod.cls.spec.priority, self._below)]
        return sorted(found, key=lambda pod: (-priority_of(pod), pod.key))

    def below(self, priority: int, gone: Iterable[str] = ()) -> dict[int, list[Pod]]:
        """Return those with a lower priority, by row, without those whose UIDs are *gone*."""
        left = frozenset(gone)
        rows = (
            (row, [pod for pod in pods if priority_of(pod) < priority and pod.uid not in left])
            for row, pods in self.by_row().items()
        )
        return {row: pods for row, pods in rows if pods}


def restored(
    victims: Mapping[int, Sequence[Pod]], placed: Mapping[int, Sequence[PodClass]], filters: Filters, trial: Trial
) -> list[Pod]:
    """Put the evicted *victims*, by row, back where they leave room for what is *placed* there; return the others."""
    preempted = []
    for row, pods in victims.items():
        for pod in pods:
            trial.restore(pod)
            if not _is_within(row, filters.snapshot) or not _still_fit(placed.get(row, ()), row, filters, trial):
                trial.evict(pod)
                preempted.append(pod)
    return preempted


def _is_within(row: int, snapshot: Snapshot) -> bool:
    return bool((snapshot.nodes.free[row] >= 0).all())


def _still_fit(classes: Iterable[PodClass], row: int, filters: Filters, trial: Trial) -> bool:
    for cls in dict.fromkeys(classes):
        trial.unplace(cls, row)
        fits = filters.fits(cls, row)
        trial.place(cls, row)
        if not fits:
            return False
    return True


def preempt_for(
    pod: Pod, yielding: YieldingPods, gone: Iterable[str], filters: Filters, trial: Trial
) -> tuple[int, list[Pod]] | None:
    """Evict in *trial* what the scheduler would preempt for *pod*, which no node accepts. Return the row, and the pods.

    It prefers the node on which the highest priority of these is the lowest, then the one with the fewest of them.
    """
    if not preempts(pod.cls):
        return None
    best: tuple[tuple[int, int, int], list[Pod]] | None = None
    for row, pods in islice(yielding.below(priority_of(pod), gone).items(), _MOST_NODES):
        mark = trial.savepoint()
        trial.evict(*pods)
        if filters.fits(pod.cls, row):
            trial.place(pod.cls, row)
            victims = restored({row: pods}, {row: [pod.cls]}, filters, trial)
            key = max(map(priority_of, victims), default=-(2**31)), len(victims), row
            if best is None or key < best[0]:
                best = key, victims
        trial.revert(mark)
    if best is None:
        return None
    (*_, row), victims = best
    trial.evict(*victims)
    return row, victims
