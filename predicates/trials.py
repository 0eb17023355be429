"""Trials: placements and evictions that are undone when the trial ends."""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Final, TypeAlias

import numpy as np

from predicates.nodes import Numbers
from predicates.objects import Pod, PodClass, Taint
from predicates.placed import Effects, PlacementState
from predicates.scheduler import Scheduler

#: The taint of a node that is being drained. Cluster Autoscaler ignores taints with this prefix in node templates,
#: so the taint cannot prevent a scale-up from zero (kubernetes/autoscaler#6452).
DRAIN_TAINT: Final = Taint(
    key="status-taint.cluster-autoscaler.kubernetes.io/spot-rescheduler-draining", effect="NoSchedule"
)

#: The classes of the pods, their total requests, the row, +1 or -1, and whether it counts in ``assumed_claims``.
JournalEntry: TypeAlias = tuple[Sequence[Effects], Numbers, int, int, bool]


class TrialState(PlacementState):
    """The placed pods, with the changes of the current trial applied."""

    def __init__(self, scheduler: Scheduler | None = None) -> None:
        super().__init__(scheduler)
        self.touched: dict[int, None] = {}  #: rows changed by the current trial since the last ``keep``
        self.draining_rows: dict[int, None] = {}  #: rows that the current trial drains: they have DRAIN_TAINT
        #: By class and row: how many pods with claims the current trial has placed (``AssumePodVolumes``).
        self.assumed_claims: dict[tuple[PodClass, int], int] = {}
        self._journal: list[JournalEntry] | None = None
        self._kept = 0

    @contextmanager
    def trial(self) -> Iterator["Trial"]:
        """Start a trial. All of its changes are undone on exit. Trials can be nested."""
        outermost = self._journal is None
        if self._journal is None:
            self._journal = []
        trial = Trial(self, len(self._journal))
        draining_rows = dict(self.draining_rows)
        try:
            yield trial
        finally:
            self._undo(trial.start)
            self.draining_rows = draining_rows
            if outermost:
                self._journal, self._kept = None, 0
                self.touched.clear()

    def _savepoint(self) -> int:
        assert self._journal is not None
        return len(self._journal)

    def _undo(self, start: int) -> None:
        journal = self._journal
        assert journal is not None
        kept_rows: dict[int, None] = {}
        while len(journal) > start:
            pods, load, row, delta, has_claims = journal.pop()
            self._shift(pods, load, row, -delta)
            if has_claims:
                self._assume(pods[0].pod, row, -delta)
            if len(journal) < self._kept:
                kept_rows[row] = None
                if delta > 0:
                    self.pod_removals.append(row)
        if kept_rows:
            self._log(self.pod_changes, kept_rows)
        self._kept = min(self._kept, start)
        self.touched = dict.fromkeys(row for _, _, row, _, _ in journal[self._kept :])

    def _place(self, pod: PodClass, row: int, delta: int) -> None:
        """Add a new pod of the class to *row* (delta = +1), or remove it again (delta = -1)."""
        effects, has_claims = self._effects_of(pod, self.labels_added_on(row)), bool(pod.claims)
        if has_claims:
            self._assume(effects.pod, row, delta)
        self._move((effects,), effects.vector, row, delta, has_claims=has_claims)

    def _evict(self, pods: Sequence[Pod]) -> None:
        """Remove *pods*, which must all be on the same node."""
        effects, loads = zip(*map(self._effects_and_load, pods), strict=True)
        self._move(effects, np.add.reduce(loads), self.nodes.row[pods[0].node_name], -1, has_claims=False)

    def _move(self, pods: Sequence[Effects], load: Numbers, row: int, delta: int, *, has_claims: bool) -> None:
        assert self._journal is not None
        self._shift(pods, load, row, delta)
        self._journal.append((pods, load, row, delta, has_claims))
        self.touched[row] = None

    def _assume(self, pod: PodClass, row: int, delta: int) -> None:
        if count := self.assumed_claims.get((pod, row), 0) + delta:
            self.assumed_claims[pod, row] = count
        else:
            del self.assumed_claims[pod, row]

    def _keep(self) -> None:
        assert self._journal is not None
        self.pod_removals += [row for _, _, row, delta, _ in self._journal[self._kept :] if delta < 0]
        self._log(self.pod_changes, self.touched)
        self._kept = len(self._journal)
        self.touched.clear()


class Trial:
    """Tentative placements and evictions; created by :meth:`TrialState.trial`."""

    __slots__ = ("_state", "start")

    def __init__(self, state: TrialState, start: int) -> None:
        self._state = state
        self.start = start

    def place(self, pod: PodClass, row: int) -> None:
        """Place a new pod of the class, as its controller would create it, on *row*."""
        self._state._place(pod, row, +1)  # noqa: SLF001

    def unplace(self, pod: PodClass, row: int) -> None:
        """Undo one call of :meth:`place`, regardless of later placements."""
        self._state._place(pod, row, -1)  # noqa: SLF001

    def evict(self, *pods: Pod) -> None:
        """Remove *pods*, which must all be on the same node."""
        if pods:
            self._state._evict(pods)  # noqa: SLF001

    def savepoint(self) -> int:
        """Return a savepoint to which :meth:`revert` can return."""
        return self._state._savepoint()  # noqa: SLF001

    def revert(self, savepoint: int) -> None:
        """Undo all changes since *savepoint*. :meth:`keep` must not have been called in between."""
        self._state._undo(savepoint)  # noqa: SLF001

    def drain(self, row: int) -> None:
        """Treat the node as drained: it gets :data:`DRAIN_TAINT`, but its topology domain still exists.

        Without the node, its topology domain would disappear as well (kubernetes/autoscaler#9287).
        """
        self._state.draining_rows[row] = None

    def undrain(self, row: int) -> None:
        """Undo one call of :meth:`drain`."""
        self._state.draining_rows.pop(row, None)

    def keep(self) -> None:
        """Keep all changes so far until the outermost trial ends.

        Cached results are then updated once to include them, instead of being corrected at every call.
        """
        self._state._keep()  # noqa: SLF001
