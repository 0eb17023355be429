"""Cached results of the plugins that evaluate each node by itself, updated from the change logs."""

from collections.abc import Iterable, Iterator, Sequence
from itertools import islice
from typing import Any, Final, TypeAlias

import numpy as np
import numpy.typing as npt

from predicates.framework import Plugin, RejectsRow, Scope
from predicates.nodes import ALL, Flags, Rows
from predicates.snapshot import Snapshot

#: At most this many candidates are listed to be evaluated one by one.
_LISTED: Final = 256

#: Plugins and their states for a class (``pre_filter``), without plugins that do not apply to it.
States: TypeAlias = tuple[tuple[Plugin, Any], ...]
_NO_ROWS: Final = np.zeros(0, np.intp)


class Targets:
    """Rows where pods may be placed, in order of preference."""

    __slots__ = ("rows", "rows_set")

    def __init__(self, rows: Sequence[int] | npt.NDArray[np.intp]) -> None:
        self.rows = np.asarray(rows, np.intp)
        self.rows_set = frozenset(self.rows.tolist())


class LocalResult:
    """The cached result of all plugins with scope NODE or PODS, shared by the classes with equal states.

    The result is *exact* for the snapshot without the changes that the open trial made to ``touched`` rows. If pods
    have only been added to the targets since then, it is still *sufficient*: it accepts each target that accepts the
    pod, because further pods never make a node feasible. Accepted rows are then evaluated one by one.
    """

    __slots__ = (
        "_allowed",
        "_dirty",
        "_epoch",
        "_listed",
        "_node_changes",
        "_pod_changes",
        "_removals",
        "_revision",
        "_skipped",
        "_snapshot",
        "_states",
        "_targets",
        "candidates",
        "mask",
        "row_checks",
    )

    def __init__(self, states: States, snapshot: Snapshot) -> None:
        self._snapshot = snapshot
        self._states = states
        #: Of plugins with scope PODS only: a trial cannot change the results of those with scope NODE.
        self.row_checks = tuple(
            plugin.rejects_row(state, snapshot) for plugin, state in states if plugin.scope is Scope.PODS
        )
        self._revision = self._epoch = -1
        self._node_changes = self._pod_changes = self._removals = 0  #: how much of each change log is included
        self._dirty: frozenset[int] = frozenset()  #: rows that were evaluated while a trial had touched them
        self._allowed: Flags = np.zeros(0, np.bool_)  #: True for rows that no plugin with scope NODE rejects
        self.mask: Flags = self._allowed  #: True for rows that no plugin rejects
        self._targets: Targets | None = None
        self.candidates = _NO_ROWS  #: the selected targets that ``mask`` accepts, in order
        self._listed: list[int] = []  #: the first of ``candidates``
        self._skipped = 0  #: how many of ``_listed`` have been filled since the result was exact

    @property
    def is_exact(self) -> bool:
        """Whether the result includes all changes."""
        snapshot = self._snapshot
        return self._revision == snapshot.revision and (not self._dirty or snapshot.touched.keys() >= self._dirty)

    def is_sufficient_for(self, targets: Targets) -> bool:
        """Return whether ``candidates`` includes each of *targets* that accepts the pod."""
        snapshot = self._snapshot
        if self._targets is not targets or self._epoch != snapshot.epoch:
            return False
        if self._revision != snapshot.revision:
            if self._node_changes != len(snapshot.node_changes):
                return False
            if self._removals != len(snapshot.pod_removals):
                if not targets.rows_set.isdisjoint(snapshot.pod_removals[self._removals :]):
                    return False
                self._removals = len(snapshot.pod_removals)
        return not self._dirty or snapshot.touched.keys() >= self._dirty

    def select(self, targets: Targets) -> None:
        """Make the result exact, and select the *targets* that it accepts as candidates."""
        self.update()
        if self._targets is not targets:
            self._targets = targets
            self.candidates = targets.rows[self.mask[targets.rows]]
            self._listed, self._skipped = self.candidates[:_LISTED].tolist(), 0

    @property
    def all_listed(self) -> bool:
        """Whether :meth:`fitting_listed` evaluates all candidates."""
        return len(self._listed) == len(self.candidates)

    def fitting_listed(self) -> Iterator[int]:
        """Yield the listed candidates that accept the pod in the current trial, in order."""
        touched, stale = self._snapshot.touched, self._revision != self._snapshot.revision
        for position, row in enumerate(islice(self._listed, self._skipped, None), self._skipped):
            if not (stale or row in touched) or not any_rejects(self.row_checks, row):
                yield row
            elif position == self._skipped and row not in touched:
                self._skipped += 1

    def update(self) -> None:
        """Make the result exact: evaluate the rows that changed, or all rows if many did."""
        if self.is_exact:
            return
        snapshot = self._snapshot
        rows: set[int] = set()
        if self._epoch == snapshot.epoch:
            rows.update(snapshot.node_changes[self._node_changes :], snapshot.pod_changes[self._pod_changes :])
            rows.update(row for row in self._dirty if row not in snapshot.touched)
        evaluate_all = self._epoch != snapshot.epoch or 4 * len(rows) > len(snapshot.nodes)
        if evaluate_all:
            self._allowed = self._evaluated(ALL, Scope.NODE, snapshot.nodes.alive)
            self.mask = self._evaluated(ALL, Scope.PODS, self._allowed)
        elif rows:
            changed = np.fromiter(rows, np.intp, len(rows))
            self._allowed[changed] = self._evaluated(changed, Scope.NODE, snapshot.nodes.alive[changed])
            self.mask[changed] = self.evaluated(changed)
        if evaluate_all or rows:
            self._targets = None
        # Rows that the trial has touched were evaluated in a temporary state: evaluate them again after the trial.
        evaluated = snapshot.touched.keys() if evaluate_all else snapshot.touched.keys() & (self._dirty | rows)
        self._dirty = frozenset(evaluated)
        self._revision, self._epoch = snapshot.revision, snapshot.epoch
        self._node_changes, self._pod_changes = len(snapshot.node_changes), len(snapshot.pod_changes)
        self._removals = len(snapshot.pod_removals)

    def evaluated(self, rows: npt.NDArray[np.intp]) -> Flags:
        """Return, for each of *rows*, whether all plugins accept it in the current trial, as a new array."""
        return self._evaluated(rows, Scope.PODS, self._allowed[rows])

    def _evaluated(self, rows: Rows, scope: Scope, considered: Flags) -> Flags:
        """Return, for each row, whether it is *considered* and every plugin with this scope accepts it."""
        mask = considered.copy()
        for plugin, state in self._states:
            if plugin.scope is scope and (rejected := plugin.filter(state, self._snapshot, rows)) is not None:
                mask &= rejected.codes == 0
        return mask

    def rejects(self, row: int) -> bool:
        """Return whether *row*, which the mask accepts, rejects a pod in the current trial."""
        changed = row in self._snapshot.touched or self._revision != self._snapshot.revision
        return changed and any_rejects(self.row_checks, row)


def any_rejects(row_checks: Iterable[RejectsRow], row: int) -> bool:
    """Return whether any of the checks rejects *row*."""
    for rejects in row_checks:  # noqa: SIM110 - called for every pod: a generator costs more than most checks
        if rejects(row):
            return True
    return False


def remaining(states: States, snapshot: Snapshot, rows: npt.NDArray[np.intp]) -> npt.NDArray[np.intp]:
    """Return the *rows* that none of the plugins rejects."""
    for plugin, state in states:
        if (rejections := plugin.filter(state, snapshot, rows)) is not None:
            rows = rows[rejections.codes == 0]
    return rows
