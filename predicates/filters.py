"""All filter plugins on one snapshot, with cached results."""

from collections.abc import Iterable, Iterator, Sequence
from typing import Any, Final, TypeAlias

import numpy as np
import numpy.typing as npt

from predicates.framework import Plugin, PluginRejections, RejectsRow, Scope
from predicates.indexes.terms import forget_terms
from predicates.nodes import ALL, Flags, Rows
from predicates.objects import PodClass
from predicates.snapshot import DRAIN_TAINT, Snapshot
from predicates.tolerations import tolerated

#: How many candidates are evaluated one by one before the rest is evaluated at once: usually one of them fits.
_FEW: Final = 12

#: Plugins and their states for a class (``pre_filter``), without plugins that do not apply to it.
_States: TypeAlias = tuple[tuple[Plugin, Any], ...]
_NO_ROWS: Final = np.zeros(0, np.intp)


class Targets:
    """Rows where pods may be placed, in order of preference."""

    __slots__ = ("rows",)

    def __init__(self, rows: Sequence[int] | npt.NDArray[np.intp]) -> None:
        self.rows = np.asarray(rows, np.intp)


class _LocalResult:
    """The cached result of all plugins with scope NODE or PODS, shared by the classes with equal states."""

    __slots__ = (
        "dirty",
        "epoch",
        "first",
        "mask",
        "node_changes",
        "pod_changes",
        "rest",
        "revision",
        "row_checks",
        "states",
        "targets",
    )

    def __init__(self, states: _States, snapshot: Snapshot) -> None:
        self.states = states
        #: Of plugins with scope PODS only: a trial cannot change the results of those with scope NODE.
        self.row_checks = tuple(
            plugin.rejects_row(state, snapshot) for plugin, state in states if plugin.scope is Scope.PODS
        )
        self.revision = self.epoch = -1
        self.node_changes = self.pod_changes = 0  #: how much of the snapshot's change logs is included
        self.dirty: tuple[int, ...] = ()  #: rows that were evaluated while a trial had touched them
        self.mask: Flags = np.zeros(0, np.bool_)  #: True for rows that no plugin rejects
        self.targets: Targets | None = None
        self.first: list[int] = []  #: the first few of the targets that ``mask`` accepts …
        self.rest = _NO_ROWS  #: … and the others

    def select(self, targets: Targets) -> None:
        """Split the *targets* that the mask accepts into ``first`` and ``rest``."""
        self.targets = targets
        candidates = targets.rows[self.mask[targets.rows]]
        self.first, self.rest = candidates[:_FEW].tolist(), candidates[_FEW:]


class _ClassFilter:
    """How the pods of one class are filtered: the cached result, and the plugins that depend on the whole cluster."""

    __slots__ = ("_row_checks", "_snapshot", "cluster_states", "local")

    def __init__(self, local: _LocalResult, cluster_states: _States, snapshot: Snapshot) -> None:
        self.local = local
        self.cluster_states = cluster_states
        self._row_checks = tuple(plugin.rejects_row(state, snapshot) for plugin, state in cluster_states)
        self._snapshot = snapshot

    def accepts(self, row: int) -> bool:
        """Return whether *row*, which the cached mask accepts, accepts a pod in the current trial."""
        if row in self._snapshot.touched and _any_rejects(self.local.row_checks, row):
            return False
        for rejects in self._row_checks:  # noqa: SIM110 - see _any_rejects
            if rejects(row):
                return False
        return True


class Filters:
    """Evaluates filter plugins on one snapshot. Results are cached, and updated from the snapshot's change logs."""

    def __init__(self, snapshot: Snapshot, plugins: Sequence[Plugin]) -> None:
        self._snapshot = snapshot
        self._plugins = tuple(plugins)
        self._generation = snapshot.generation
        self._classes: dict[PodClass, _ClassFilter] = {}
        self._local_results: dict[_States, _LocalResult] = {}

    def feasible(self, pod: PodClass) -> Flags:
        """Return which rows accept a pod of the class in the current trial, as a new array."""
        snapshot, cached = self._snapshot, self._cached(pod)
        mask = cached.local.mask & snapshot.nodes.alive
        if snapshot.touched:
            rows = np.fromiter(snapshot.touched, np.intp, len(snapshot.touched))
            mask[rows] = self._local_mask(cached.local.states, rows)
        self._reject_draining(pod, mask)
        for plugin, state in cached.cluster_states:
            rows = np.flatnonzero(mask)
            if (rejections := plugin.filter(state, snapshot, rows)) is not None:
                mask[rows[rejections.codes != 0]] = False
        return mask

    def first(self, pod: PodClass, targets: Targets) -> int | None:
        """Return the first of *targets* that accepts a pod of the class in the current trial, or None."""
        cached = self._with_targets(pod, targets)
        for row in cached.local.first:
            if cached.accepts(row):
                return row
        return next(self._fitting_rest(cached), None)

    def fitting(self, pod: PodClass, targets: Targets) -> Iterator[int]:
        """Yield the *targets* that accept a pod of the class, in order.

        Rows are evaluated lazily, in the state of the trial at that time.
        """
        cached = self._with_targets(pod, targets)
        yield from filter(cached.accepts, cached.local.first)
        yield from self._fitting_rest(cached)

    def refresh(self, pods: Iterable[PodClass]) -> None:
        """Update the cached results of these classes. This is cheapest when no trial has touched any rows."""
        classes, revision = self._classes, self._snapshot.revision
        for pod in pods:
            cached = classes.get(pod)
            if cached is None or cached.local.revision != revision:
                self._cached(pod)

    def fits(self, pod: PodClass, row: int) -> bool:
        """Return whether *row* accepts a pod of the class in the current trial; evaluates all plugins."""
        states = _states(self._plugins, pod)
        return not _any_rejects((plugin.rejects_row(state, self._snapshot) for plugin, state in states), row)

    def could_fit(self, pod: PodClass, targets: Targets) -> bool:
        """Return whether any of *targets* would accept a pod of the class if there were no other pods."""
        table, rows = self._snapshot.nodes, targets.rows
        vector = self._snapshot.vector(pod.requests)
        rows = rows[(vector <= table.allocatable[rows]).all(axis=1)]
        plugins = (plugin for plugin in self._plugins if plugin.scope is Scope.NODE)
        return bool(len(_remaining(_states(plugins, pod), self._snapshot, rows)))

    def never_fits(self, pod: PodClass, targets: Targets) -> bool:
        """Return whether each of *targets* rejects the class because of the node itself or the pods on it.

        Further placements cannot change that, nor can evictions from other nodes.
        """
        return not self._with_targets(pod, targets).local.first

    def depends_on_cluster(self, pod: PodClass) -> bool:
        """Return whether a node's result for the class depends on the pods of other nodes."""
        return bool(self._cached(pod).cluster_states)

    def rejections(self, pod: PodClass, rows: npt.NDArray[np.intp]) -> list[PluginRejections]:
        """Return the rejections of every plugin that rejects any of *rows*.

        They are in the scheduler's order: PreFilter rejections first, then those of Filter. The scheduler reports
        only the first plugin that rejects a node.
        """
        pre_filter: list[PluginRejections] = []
        filtered: list[PluginRejections] = []
        for plugin, state in _states(self._plugins, pod):
            result = plugin.filter(state, self._snapshot, rows)
            if result is not None and result.codes.any():
                rejections = PluginRejections(plugin.name, result.codes, result.reasons, result.prefilter)
                (pre_filter if result.prefilter else filtered).append(rejections)
        return pre_filter + filtered

    def _with_targets(self, pod: PodClass, targets: Targets) -> _ClassFilter:
        cached = self._cached(pod)
        if cached.local.targets is not targets:
            cached.local.select(targets)
        return cached

    def _fitting_rest(self, cached: _ClassFilter) -> Iterator[int]:
        """Yield the candidates after the first few that accept the pod."""
        local, touched = cached.local, self._snapshot.touched
        if len(local.rest):
            for row in _remaining(cached.cluster_states, self._snapshot, local.rest).tolist():
                if row not in touched or not _any_rejects(local.row_checks, row):
                    yield row

    def _reject_draining(self, pod: PodClass, mask: Flags) -> None:
        draining_rows = self._snapshot.draining_rows
        if draining_rows and not tolerated(DRAIN_TAINT, pod.spec.tolerations):
            mask[list(draining_rows)] = False

    def _cached(self, pod: PodClass) -> _ClassFilter:
        """Return the up-to-date filter of the class."""
        snapshot = self._snapshot
        if self._generation != snapshot.generation:
            self._generation = snapshot.generation
            self._classes.clear()
            self._local_results.clear()
            forget_terms()
        if (cached := self._classes.get(pod)) is None:
            cached = self._classes[pod] = self._class_filter(pod)
        if cached.local.revision != snapshot.revision or cached.local.dirty:
            self._sync(cached.local)
        return cached

    def _class_filter(self, pod: PodClass) -> _ClassFilter:
        states = _states(self._plugins, pod)
        cluster_states = tuple(state for state in states if state[0].scope is Scope.CLUSTER)
        local_states = tuple(state for state in states if state not in cluster_states)
        if (local := self._local_results.get(local_states)) is None:
            local = self._local_results[local_states] = _LocalResult(local_states, self._snapshot)
        return _ClassFilter(local, cluster_states, self._snapshot)

    def _sync(self, local: _LocalResult) -> None:
        """Update a cached result: evaluate the rows that changed, or all rows if many did."""
        snapshot = self._snapshot
        rows: set[int] = set()
        if local.epoch == snapshot.epoch:
            rows.update(snapshot.node_changes[local.node_changes :], snapshot.pod_changes[local.pod_changes :])
            rows.update(row for row in local.dirty if row not in snapshot.touched)
        evaluate_all = local.epoch != snapshot.epoch or 4 * len(rows) > len(snapshot.nodes)
        if evaluate_all:
            local.mask = self._local_mask(local.states, ALL)
        elif rows:
            changed = np.fromiter(rows, np.intp, len(rows))
            local.mask[changed] = self._local_mask(local.states, changed)
        if evaluate_all or rows:
            local.targets = None
        # Rows that the trial has touched were evaluated in a temporary state: evaluate them again after the trial.
        still_touched = (row for row in local.dirty if row in snapshot.touched)
        local.dirty = tuple(snapshot.touched if evaluate_all else {*still_touched, *(rows & snapshot.touched.keys())})
        local.revision, local.epoch = snapshot.revision, snapshot.epoch
        local.node_changes, local.pod_changes = len(snapshot.node_changes), len(snapshot.pod_changes)

    def _local_mask(self, states: _States, rows: Rows) -> Flags:
        mask = np.array(self._snapshot.nodes.alive[rows])
        for plugin, state in states:
            if (rejections := plugin.filter(state, self._snapshot, rows)) is not None:
                mask &= rejections.codes == 0
        return mask


def _states(plugins: Iterable[Plugin], pod: PodClass) -> _States:
    return tuple([(plugin, state) for plugin in plugins if (state := plugin.pre_filter(pod)) is not None])


def _any_rejects(row_checks: Iterable[RejectsRow], row: int) -> bool:
    for rejects in row_checks:  # noqa: SIM110 - called for every pod: a generator costs more than most checks
        if rejects(row):
            return True
    return False


def _remaining(states: _States, snapshot: Snapshot, rows: npt.NDArray[np.intp]) -> npt.NDArray[np.intp]:
    """Return those of *rows* that none of the plugins rejects."""
    for plugin, state in states:
        if (rejections := plugin.filter(state, snapshot, rows)) is not None:
            rows = rows[rejections.codes == 0]
    return rows
