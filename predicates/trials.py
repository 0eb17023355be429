"""Trials: what is placed and evicted in one is taken back when it ends."""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Final, TypeAlias

import numpy as np

from predicates.nodes import Numbers
from predicates.objects import Pod, PodClass, Taint
from predicates.placed import Effects, Placed

#: The taint of ours that a node carries while it is drained. Cluster Autoscaler leaves taints of this prefix
#: out of node templates, so ours cannot poison a scale-up from zero (kubernetes/autoscaler#6452).
DRAIN_TAINT: Final = Taint(
    key="status-taint.cluster-autoscaler.kubernetes.io/spot-rescheduler-draining", effect="NoSchedule"
)

#: Of which classes, what they take together, row, +1 or -1, and whether it counts in ``claimants``.
Step: TypeAlias = tuple[Sequence[Effects], Numbers, int, int, bool]


class Tried(Placed):
    """What stands where, the trial under way included."""

    def __init__(self) -> None:
        super().__init__()
        self.touched: dict[int, None] = {}  #: rows changed by the trial under way, as far as not kept
        self.ghosts: dict[int, None] = {}  #: rows drained by the trial under way: they carry DRAIN_TAINT
        #: By class and row: pods with claims that the trial under way has placed.
        self.claimants: dict[tuple[PodClass, int], int] = {}
        self._journal: list[Step] | None = None
        self._kept = 0

    @contextmanager
    def trial(self) -> Iterator["Trial"]:
        """What is placed and evicted inside is undone on the way out, unless kept for the trial around it."""
        outermost = self._journal is None
        if self._journal is None:
            self._journal = []
        trial = Trial(self, len(self._journal))
        ghosts = dict(self.ghosts)
        try:
            yield trial
        finally:
            self._undo(trial.start)
            self.ghosts = ghosts
            if outermost:
                self._journal, self._kept = None, 0
                self.touched.clear()

    def _mark(self) -> int:
        assert self._journal is not None
        return len(self._journal)

    def _undo(self, start: int) -> None:
        journal = self._journal
        assert journal is not None
        settled: dict[int, None] = {}
        while len(journal) > start:
            pods, taken, row, by, claims = journal.pop()
            self._shift(pods, taken, row, -by)
            if claims:
                self._claim(pods[0].pod, row, -by)
            if len(journal) < self._kept:
                settled[row] = None
        if settled:
            self._log(self.changed, settled)
        self._kept = min(self._kept, start)
        self.touched = dict.fromkeys(row for _, _, row, _, _ in journal[self._kept :])

    def _make(self, pod: PodClass, row: int, by: int) -> None:
        """A pod of the class comes to *row* (+1), as its controller makes it, or is taken back (-1)."""
        effects, claims = self._effects_of(pod), bool(pod.claims)
        if claims:
            self._claim(pod, row, by)
        self._move((effects,), effects.vector, row, by, claims=claims)

    def _evict(self, pods: Sequence[Pod]) -> None:
        """The pods, which all stand on one node, leave it."""
        effects, taken = zip(*map(self._taken_by, pods), strict=True)
        self._move(effects, np.add.reduce(taken), self.nodes.row[pods[0].node_name], -1, claims=False)

    def _move(self, pods: Sequence[Effects], taken: Numbers, row: int, by: int, *, claims: bool) -> None:
        assert self._journal is not None
        self._shift(pods, taken, row, by)
        self._journal.append((pods, taken, row, by, claims))
        self.touched[row] = None

    def _claim(self, pod: PodClass, row: int, by: int) -> None:
        if count := self.claimants.get((pod, row), 0) + by:
            self.claimants[pod, row] = count
        else:
            del self.claimants[pod, row]

    def _keep(self) -> None:
        assert self._journal is not None
        self._log(self.changed, self.touched)
        self._kept = len(self._journal)
        self.touched.clear()


class Trial:
    """Placements that are being tried; made by :meth:`Tried.trial`."""

    __slots__ = ("_tried", "start")

    def __init__(self, tried: Tried, start: int) -> None:
        self._tried = tried
        self.start = start

    def place(self, pod: PodClass, row: int) -> None:
        """A pod of the class, as its controller makes it anew, comes to *row*."""
        self._tried._make(pod, row, +1)

    def displace(self, pod: PodClass, row: int) -> None:
        """Take back one :meth:`place`, whatever was placed in between."""
        self._tried._make(pod, row, -1)

    def evict(self, *pods: Pod) -> None:
        """Pods leave their node; it must be the same of all."""
        if pods:
            self._tried._evict(pods)  # noqa: SLF001

    def mark(self) -> int:
        """A point to come back to with :meth:`back`."""
        return self._tried._mark()  # noqa: SLF001

    def back(self, mark: int) -> None:
        """Undo what was done since *mark*; nothing may have been kept in between."""
        self._tried._undo(mark)  # noqa: SLF001

    def drain(self, row: int) -> None:
        """The node stands from here on as a ghost: it carries :data:`DRAIN_TAINT`, its domain still counts.

        A node that vanished would take its topology domain along (kubernetes/autoscaler#9287).
        """
        self._tried.ghosts[row] = None

    def undrain(self, row: int) -> None:
        """Take back one :meth:`drain`."""
        self._tried.ghosts.pop(row, None)

    def keep(self) -> None:
        """What was done so far is the ground that further questions stand on, until the outermost trial ends.

        Cached answers are brought up to date once, instead of being corrected at each question.
        """
        self._tried._keep()  # noqa: SLF001
