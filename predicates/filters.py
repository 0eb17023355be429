"""All filter plugins on one snapshot, with cached results."""

from collections.abc import Iterable, Iterator, Sequence
from typing import Final

import numpy as np
import numpy.typing as npt

from predicates import plugins
from predicates.framework import Plugin, PluginRejections, Scope
from predicates.indexes.terms import forget_terms
from predicates.local_results import LocalResult, States, Targets, any_rejects, remaining
from predicates.nodes import Flags
from predicates.objects import PodClass
from predicates.snapshot import DRAIN_TAINT, Snapshot
from predicates.tolerations import tolerated

#: After this many candidates were rejected because of other nodes, the remaining ones are evaluated together.
_MAX_SINGLE_CHECKS: Final = 12


class _ClassFilter:
    """The filter for the pods of one class: the cached result, and the plugins that depend on the whole cluster."""

    __slots__ = ("_row_checks", "_snapshot", "cluster_states", "local")

    def __init__(self, local: LocalResult, cluster_states: States, snapshot: Snapshot) -> None:
        self.local = local
        self.cluster_states = cluster_states
        self._row_checks = tuple(plugin.rejects_row(state, snapshot) for plugin, state in cluster_states)
        self._snapshot = snapshot

    def first(self, targets: Targets) -> int | None:
        """Return the first of *targets* that accepts a pod in the current trial, or None."""
        local = self.local
        if not local.is_sufficient_for(targets):
            local.select(targets)
        tries = _MAX_SINGLE_CHECKS
        for row in local.fitting_listed():
            if not any_rejects(self._row_checks, row):
                return row
            tries -= 1
            if not tries:
                break
        else:
            if local.all_listed:
                return None
        local.select(targets)
        return next(self.fitting(), None)

    def still_fits(self, row: int) -> bool:
        """Return whether *row*, which accepted the class before, accepts it in the current trial."""
        return not any_rejects(self.local.row_checks, row) and not any_rejects(self._row_checks, row)

    def fitting(self) -> Iterator[int]:
        """Yield the selected targets that accept a pod in the current trial, in order."""
        for row in remaining(self.cluster_states, self._snapshot, self.local.candidates).tolist():
            if not self.local.rejects(row):
                yield row


class Filters:
    """Evaluates filter plugins on one snapshot. Results are cached, and updated from the snapshot's change logs."""

    def __init__(self, snapshot: Snapshot, using: Sequence[Plugin] | None = None) -> None:
        """Evaluate the plugins of each pod's profile of ``snapshot.scheduler``, or only those in *using*."""
        self._snapshot = snapshot
        self._using = None if using is None else tuple(using)
        self._generation = snapshot.generation
        self._classes: dict[PodClass, _ClassFilter] = {}
        self._local_results: dict[States, LocalResult] = {}

    def feasible(self, pod: PodClass) -> Flags:
        """Return which rows accept a pod of the class in the current trial, as a new array."""
        snapshot, cached = self._snapshot, self._class_filter(pod)
        cached.local.update()
        mask = cached.local.mask & snapshot.nodes.alive
        if snapshot.touched:
            rows = np.fromiter(snapshot.touched, np.intp, len(snapshot.touched))
            mask[rows] = cached.local.evaluated(rows)
        self._reject_draining(pod, mask)
        for plugin, state in cached.cluster_states:
            rows = np.flatnonzero(mask)
            if (rejections := plugin.filter(state, snapshot, rows)) is not None:
                mask[rows[rejections.codes != 0]] = False
        return mask

    def first(self, pod: PodClass, targets: Targets) -> int | None:
        """Return the first of *targets* that accepts a pod of the class in the current trial, or None."""
        return self._class_filter(pod).first(targets)

    def fitting(self, pod: PodClass, targets: Targets) -> Iterator[int]:
        """Yield the *targets* that accept a pod of the class in the current trial, in order."""
        cached = self._class_filter(pod)
        cached.local.select(targets)
        return cached.fitting()

    def refresh(self, pods: Iterable[PodClass]) -> None:
        """Update the cached results of these classes. This is cheapest when no trial has touched any rows."""
        for pod in dict.fromkeys(pods):
            self._class_filter(pod).local.update()

    def fits(self, pod: PodClass, row: int) -> bool:
        """Return whether *row* accepts a pod of the class in the current trial; evaluates all plugins."""
        states = _states(self._plugins(pod), pod)
        return not any_rejects((plugin.rejects_row(state, self._snapshot) for plugin, state in states), row)

    def still_fits(self, pod: PodClass, row: int) -> bool:
        """Return whether *row*, which accepted the class before, accepts it in the current trial."""
        return self._class_filter(pod).still_fits(row)

    def could_fit(self, pod: PodClass, targets: Targets) -> bool:
        """Return whether any of *targets* would accept a pod of the class if there were no other pods."""
        return bool(len(self._possible(pod, targets.rows)))

    def possible(self, pod: PodClass) -> list[int]:
        """Return the rows that would accept a pod of the class if there were no other pods."""
        rows: list[int] = self._possible(pod, np.flatnonzero(self._snapshot.nodes.alive)).tolist()
        return rows

    def _possible(self, pod: PodClass, rows: npt.NDArray[np.intp]) -> npt.NDArray[np.intp]:
        profile = self._snapshot.scheduler.profile(pod.spec.scheduler_name)
        table, vector = self._snapshot.nodes, self._snapshot.vector(profile.checked(pod.requests))
        rows = rows[(vector <= table.allocatable[rows]).all(axis=1)]
        plugins = (plugin for plugin in self._plugins(pod) if plugin.scope is Scope.NODE)
        return remaining(_states(plugins, pod), self._snapshot, rows)

    def never_fits(self, pod: PodClass, targets: Targets) -> bool:
        """Return whether each of *targets* rejects the class because of the node itself or the pods on it.

        Further placements cannot change that, nor can evictions from other nodes.
        """
        local = self._class_filter(pod).local
        local.select(targets)
        return not len(local.candidates)

    def depends_on_cluster(self, pod: PodClass) -> bool:
        """Return whether a node's result for the class depends on the pods of other nodes."""
        return bool(self._class_filter(pod).cluster_states)

    def rejections(self, pod: PodClass, rows: npt.NDArray[np.intp]) -> list[PluginRejections]:
        """Return the rejections of every plugin that rejects any of *rows*.

        The result is in the scheduler's order: PreFilter rejections first, then those of Filter. The scheduler reports
        only the first plugin that rejects a node.
        """
        pre_filter: list[PluginRejections] = []
        filtered: list[PluginRejections] = []
        for plugin, state in _states(self._plugins(pod), pod):
            result = plugin.filter(state, self._snapshot, rows)
            if result is not None and result.codes.any():
                rejections = PluginRejections(plugin.name, result.codes, result.reasons, result.prefilter)
                (pre_filter if result.prefilter else filtered).append(rejections)
        return pre_filter + filtered

    def _plugins(self, pod: PodClass) -> tuple[Plugin, ...]:
        if self._using is not None:
            return self._using
        return plugins.of(self._snapshot.scheduler.profile(pod.spec.scheduler_name))

    def _reject_draining(self, pod: PodClass, mask: Flags) -> None:
        draining_rows = self._snapshot.draining_rows
        checked = self._snapshot.scheduler.profile(pod.spec.scheduler_name).has("TaintToleration")
        if draining_rows and checked and not tolerated(DRAIN_TAINT, pod.spec.tolerations):
            mask[list(draining_rows)] = False

    def _class_filter(self, pod: PodClass) -> _ClassFilter:
        """Return the filter of the class, whose cached result may be out of date."""
        if self._generation != self._snapshot.generation:
            self._generation = self._snapshot.generation
            self._classes.clear()
            self._local_results.clear()
            forget_terms()
        if (cached := self._classes.get(pod)) is None:
            cached = self._classes[pod] = self._new_class_filter(pod)
        return cached

    def _new_class_filter(self, pod: PodClass) -> _ClassFilter:
        states = _states(self._plugins(pod), pod)
        cluster_states = tuple([state for state in states if state[0].scope is Scope.CLUSTER])
        local_states = tuple([state for state in states if state[0].scope is not Scope.CLUSTER])
        if (local := self._local_results.get(local_states)) is None:
            local = self._local_results[local_states] = LocalResult(local_states, self._snapshot)
        return _ClassFilter(local, cluster_states, self._snapshot)


def _states(plugins: Iterable[Plugin], pod: PodClass) -> States:
    return tuple([(plugin, state) for plugin in plugins if (state := plugin.pre_filter(pod)) is not None])
