"""Cached results of the plugins that evaluate each node by itself, updated from the change logs."""

from collections.abc import Iterable, Sequence
from functools import partial
from itertools import islice
from typing import Any, Final, TypeAlias

import numpy as np
import numpy.typing as npt

from predicates.framework import Plugin, RejectsRow, Scope
from predicates.nodes import ALL, Flags, Rows
from predicates.placed import FreeAmounts, Needs
from predicates.snapshot import Snapshot

#: This many candidates are listed at a time to be evaluated one by one.
_LISTED: Final = 256

#: After this many candidates were rejected because of other nodes, the remaining ones are evaluated together.
_MAX_SINGLE_CHECKS: Final = 12
#: What :meth:`LocalResult.first_fitting` returns in this case: it is not known yet which candidate accepts the pod.
UNKNOWN: Final = -1

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
        "_filled",
        "_listed",
        "_node_changes",
        "_pod_changes",
        "_releases",
        "_removals",
        "_revision",
        "_skipped",
        "_snapshot",
        "_targets",
        "_touched_at",
        "candidates",
        "mask",
        "needs",
        "rejects_row",
        "states",
    )

    def __init__(self, states: States, snapshot: Snapshot) -> None:
        self._snapshot = snapshot
        self.states = states
        #: Of plugins with scope PODS only: a trial cannot change the results of those with scope NODE.
        of_pods = tuple([each for each in states if each[0].scope is Scope.PODS])
        self.rejects_row = any_of(of_pods, snapshot) or _never
        self.needs = _needs_of(of_pods, snapshot)  #: the amounts that decide alone about rows that the mask accepts
        self._revision = self._epoch = -1
        self._node_changes = self._pod_changes = self._removals = 0  #: how much of each change log is included
        self._dirty: frozenset[int] = frozenset()  #: rows that were evaluated while a trial had touched them
        self._touched_at = (-1, -1)  #: the revision and releases at which all of these were as they were evaluated
        self._allowed: Flags = np.zeros(0, np.bool_)  #: True for rows that no plugin with scope NODE rejects
        self.mask: Flags = self._allowed  #: True for rows that no plugin rejects
        self._targets: Targets | None = None
        self.candidates = _NO_ROWS  #: the selected targets that ``mask`` accepts, in order
        self._listed: list[int] = []  #: the first of ``candidates``
        self._skipped = 0  #: how many of ``_listed`` have been filled since the result was exact
        #: How many of ``_listed`` reject the pod in the current trial while ``snapshot.releases`` stays ``_releases``.
        self._filled = self._releases = 0

    @property
    def is_exact(self) -> bool:
        """Whether the result includes all changes."""
        snapshot = self._snapshot
        return self._revision == snapshot.revision and self._is_dirty_current()

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
        return self._is_dirty_current()

    def _is_dirty_current(self) -> bool:
        """Return whether no row lost pods that were on it when it was evaluated while a trial had touched it."""
        if not self._dirty:
            return True
        # Without a new revision, rows stop being touched only when placements are undone.
        at = self._snapshot.revision, self._snapshot.releases
        if self._touched_at != at:
            if any(map(self._is_released, self._dirty)):
                return False
            self._touched_at = at
        return True

    def _is_released(self, row: int) -> bool:
        """Return whether a trial has removed pods from the dirty *row* since it was evaluated, or has ended."""
        return row not in self._snapshot.touched or self._snapshot.released.get(row, 0) > self._touched_at[1]

    def is_selected(self, targets: Targets) -> bool:
        """Return whether the result is exact and the *targets* that it accepts are selected."""
        return self._targets is targets and self._revision == self._snapshot.revision and self._is_dirty_current()

    def select(self, targets: Targets) -> None:
        """Make the result exact, and select the *targets* that it accepts as candidates."""
        self.update()
        if self._targets is not targets:
            self._targets = targets
            self.candidates = targets.rows[self.mask[targets.rows]]
            self._listed, self._skipped, self._filled = [], 0, 0

    def _known_filled(self) -> int:
        """Return how many of the first candidates are known to reject the pod in the current trial."""
        if self._releases != self._snapshot.releases:
            self._filled, self._releases = self._skipped, self._snapshot.releases
        return self._filled

    @property
    def unfilled(self) -> npt.NDArray[np.intp]:
        """The selected candidates of which it is not known that they reject the pod in the current trial."""
        return self.candidates[self._known_filled() :]

    def first_fitting(self, free: FreeAmounts, rejects: RejectsRow | None) -> int | None:
        """Return the first selected candidate that accepts the pod in the current trial, or None.

        *free* has what is free in the current trial. *rejects* evaluates the plugins that depend on other nodes: after
        it has rejected :data:`_MAX_SINGLE_CHECKS` candidates, the result is :data:`UNKNOWN`.
        """
        stale = self._revision != self._snapshot.revision
        position, tries = self._known_filled(), 0
        while position < len(self._listed) or self._list_more():
            for row in islice(self._listed, position, None):
                if self._is_filled(row, free, stale=stale):
                    if position == self._filled:
                        self._filled += 1
                        if position == self._skipped and row not in self._snapshot.touched:
                            self._skipped += 1
                elif rejects is None or not rejects(row):
                    return row
                elif (tries := tries + 1) == _MAX_SINGLE_CHECKS:
                    return UNKNOWN
                position += 1
        return None

    def _is_filled(self, row: int, free: FreeAmounts, *, stale: bool) -> bool:
        if self.needs is None:
            return (stale or row in self._snapshot.touched) and self.rejects_row(row)
        left = free[row]
        for column, amount in self.needs:  # noqa: SIM110 - as in any_rejects
            if left[column] < amount:
                return True
        return False

    def _list_more(self) -> bool:
        """List more of the candidates. Return whether there are any."""
        more = self.candidates[len(self._listed) :][:_LISTED].tolist()
        self._listed += more
        return bool(more)

    def update(self) -> None:
        """Make the result exact: evaluate the rows that changed, or all rows if many did."""
        if self.is_exact:
            return
        snapshot = self._snapshot
        rows: set[int] = set()
        if self._epoch == snapshot.epoch:
            rows.update(snapshot.node_changes[self._node_changes :], snapshot.pod_changes[self._pod_changes :])
            rows.update(filter(self._is_released, self._dirty))
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
        self._dirty, self._touched_at = frozenset(evaluated), (snapshot.revision, snapshot.releases)
        self._revision, self._epoch = snapshot.revision, snapshot.epoch
        self._node_changes, self._pod_changes = len(snapshot.node_changes), len(snapshot.pod_changes)
        self._removals = len(snapshot.pod_removals)

    def evaluated(self, rows: npt.NDArray[np.intp]) -> Flags:
        """Return, for each of *rows*, whether all plugins accept it in the current trial, as a new array."""
        return self._evaluated(rows, Scope.PODS, self._allowed[rows])

    def _evaluated(self, rows: Rows, scope: Scope, considered: Flags) -> Flags:
        """Return, for each row, whether it is *considered* and every plugin with this scope accepts it."""
        mask = considered.copy()
        for plugin, state in self.states:
            if plugin.scope is scope and (rejected := plugin.filter(state, self._snapshot, rows)) is not None:
                mask &= rejected.codes == 0
        return mask

    def rejects(self, row: int) -> bool:
        """Return whether *row*, which the mask accepts, rejects a pod in the current trial."""
        changed = row in self._snapshot.touched or self._revision != self._snapshot.revision
        return changed and self.rejects_row(row)


def _never(_: int) -> bool:
    return False


def any_of(states: States, snapshot: Snapshot) -> RejectsRow | None:
    """Return a function that evaluates all plugins for single rows; None if there are none."""
    checks = [plugin.rejects_row(state, snapshot) for plugin, state in states]
    if len(checks) <= 1:
        return checks[0] if checks else None
    return partial(any_rejects, tuple(checks))


def _needs_of(states: States, snapshot: Snapshot) -> Needs | None:
    """Return the amounts that decide whether the plugins accept a row; None if they depend on more than that."""
    needs: list[tuple[int, int]] = []
    for plugin, state in states:
        if plugin.needs is None or (amounts := plugin.needs(state, snapshot)) is None:
            return None
        needs += amounts
    return tuple(needs)


def any_rejects(row_checks: Iterable[RejectsRow], row: int) -> bool:
    """Return whether any of the checks rejects *row*."""
    for rejects in row_checks:  # noqa: SIM110 - called for many pods: a generator costs more than most checks
        if rejects(row):
            return True
    return False


def remaining(states: States, snapshot: Snapshot, rows: npt.NDArray[np.intp]) -> npt.NDArray[np.intp]:
    """Return the *rows* that none of the plugins rejects."""
    for plugin, state in states:
        if (rejections := plugin.filter(state, snapshot, rows)) is not None:
            rows = rows[rejections.codes == 0]
    return rows
