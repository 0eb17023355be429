"""All filter plugins on one snapshot, with cached results, which follow the changes of nodes."""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any, Final, TypeVar

import numpy as np
import numpy.typing as npt

from predicates import plugins
from predicates.framework import Plugin, PluginRejections, Reasons, RejectsRow, Scope
from predicates.indexes.terms import forget_terms
from predicates.kubelet import kubelets as plugins_of_kubelets
from predicates.local_results import UNKNOWN, LocalResult, States, Targets, any_of, any_rejects, remaining
from predicates.node_selectors import tolerated
from predicates.nodes import Flags
from predicates.objects import PodClass
from predicates.placed import Filling
from predicates.scheduler import Profile
from predicates.snapshot import DRAIN_TAINT, Snapshot, Trial
from predicates.texts import LONGEST_REASON, shown

_CLUSTER: Final = Scope.CLUSTER

_T = TypeVar("_T")


class _ClassFilter:
    """The filter for the pods of one class: the cached result, and the plugins that depend on the whole cluster."""

    __slots__ = ("_cluster_states", "_concerning", "_rejects_row", "_snapshot", "_ties", "fills", "local")

    def __init__(self, pod: PodClass, local: LocalResult, cluster_states: States, snapshot: Snapshot) -> None:
        self.local = local
        all_checked = local.needs is not None and len(local.needs) == 1 + len(pod.requests)  # one is for the pod itself
        #: What a pod takes, if that is all it needs.
        self.fills = local.needs if all_checked and not pod.claims else None
        self._cluster_states = cluster_states
        self._snapshot = snapshot
        self._ties = -1  #: ``snapshot.ties`` when the following were chosen
        self._concerning: States = ()  #: those of the plugins that can reject a node
        self._rejects_row: RejectsRow | None = None  #: whether one of them rejects a row; None if there are none

    @property
    def cluster_states(self) -> States:
        """The plugins that depend on the whole cluster, as far as they can reject a node."""
        self.choose()
        return self._concerning

    def choose(self) -> None:
        """Choose the plugins that depend on the whole cluster, if they may have changed."""
        snapshot = self._snapshot
        if self._ties == snapshot.ties:
            return
        self._ties = snapshot.ties  # before the plugins are asked: their indexes may give a namespace up
        self._concerning = tuple(
            [each for each in self._cluster_states if (may := each[0].concerns) is None or may(each[1], snapshot)]
        )
        self._rejects_row = any_of(self._concerning, snapshot)

    def first(self, targets: Targets, filling: Filling) -> int | None:
        """Return the first of *targets* that accepts a pod after those of *filling*, or None."""
        local = self.local
        if local.needs is None:
            filling.finish()
        if not local.is_sufficient_for(targets):
            filling.finish()
            local.select(targets)
        self.choose()
        row = local.first_fitting(filling.free, self._rejects_row)
        if row != UNKNOWN:
            return row
        filling.finish()
        return next(self.fitting(), None)

    def still_fits(self, row: int) -> bool:
        """Return whether *row*, which accepted the class before, accepts it in the current trial."""
        self.choose()
        rejects = self._rejects_row
        return not self.local.rejects_row(row) and (rejects is None or not rejects(row))

    def fitting(self) -> Iterator[int]:
        """Yield the selected targets that accept a pod in the current trial, in order."""
        for row in remaining(self.cluster_states, self._snapshot, self.local.unfilled).tolist():
            if not self.local.rejects(row):
                yield row


def _readable(reasons: Callable[[int], Reasons]) -> Callable[[int], Reasons]:
    """Return *reasons* in texts that are printable and short: some quote what the owner of the pod wrote."""
    return lambda code: tuple(shown(reason, LONGEST_REASON) for reason in reasons(code))


class _FactsByClass(dict[PodClass, _T]):
    """Computes a fact on each class on first access."""

    def __init__(self, filters: "Filters", compute: Callable[["Filters", PodClass], _T]) -> None:
        super().__init__()
        self._filters = filters
        self._compute = compute

    def __missing__(self, pod: PodClass) -> _T:
        fact = self._compute(self._filters, pod)
        self[pod] = fact
        return fact


class Filters:
    """Evaluates filter plugins on one snapshot. Results are cached, and updated from the snapshot's change logs."""

    def __init__(
        self,
        snapshot: Snapshot,
        using: Sequence[Plugin] | None = None,
        *,
        kubelets: bool = False,
        others: tuple[Plugin, ...] = (),
    ) -> None:
        """Evaluate the plugins of each pod's profile of ``snapshot.scheduler``, or only those in *using*.

        With *kubelets*, nodes whose kubelet would refuse the pod reject it, too. The scheduler may still choose them,
        and those that *others* reject.
        """
        self._snapshot = snapshot
        self._using = None if using is None else tuple(using)
        self._beyond = (*(plugins_of_kubelets(snapshot) if kubelets else ()), *others)
        self._schedulers: Filters | None = None  #: those of the scheduler alone, if some class needs them
        self._generation = snapshot.generation
        self._classes: dict[PodClass, _ClassFilter] = {}
        self._local_results: dict[States, LocalResult] = {}
        #: Classes whose results include all changes until this revision of the snapshot, and no changes of a trial.
        self._refreshed: set[PodClass] = set()
        self._refreshed_at = -1
        self._last_plugins: tuple[Profile | None, tuple[Plugin, ...]] = None, ()
        self._facts: dict[Callable[..., object], _FactsByClass[Any]] = {}
        self._facts_from = (-1, -1)  #: the generation and ties of the snapshot for which they are valid

    @property
    def snapshot(self) -> Snapshot:
        """The snapshot on which the plugins are evaluated."""
        return self._snapshot

    def facts(self, compute: Callable[["Filters", PodClass], _T]) -> Mapping[PodClass, _T]:
        """Return a mapping from class to ``compute(self, class)``, which is computed on first access.

        The result of *compute* must stay the same while ``Snapshot.ties`` and ``Snapshot.generation`` do. Callers must
        not keep the mapping.
        """
        valid_for = self._snapshot.generation, self._snapshot.ties
        if self._facts_from != valid_for:
            self._facts_from = valid_for
            self._facts.clear()
        facts: _FactsByClass[_T] | None = self._facts.get(compute)
        if facts is None:
            facts = self._facts[compute] = _FactsByClass(self, compute)
        return facts

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

    def refusable(self, pod: PodClass) -> bool:
        """Return whether nodes may refuse pods of the class that the scheduler places there."""
        return any(plugin.pre_filter(pod) is not None for plugin in self._beyond)

    def of_scheduler(self, pod: PodClass) -> "Filters":
        """Return the filters by which the scheduler chooses a node for the class, whatever its kubelet says."""
        if not self.facts(Filters.refusable)[pod]:
            return self
        if self._schedulers is None:
            self._schedulers = Filters(self._snapshot, self._using)
        return self._schedulers

    def first(self, pod: PodClass, targets: Targets) -> int | None:
        """Return the first of *targets* that accepts a pod of the class in the current trial, or None."""
        return self._class_filter(pod).first(targets, Filling(self._snapshot))

    def first_fit(self, pods: Iterable[PodClass], targets: Targets, trial: Trial) -> list[int | None]:
        """Place pods of these classes in *trial*, each on the first of *targets* that accepts it after the others.

        Return their rows, with None for pods that no target accepts.
        """
        rows: list[int | None] = []
        filling = trial.filling()
        for pod in pods:
            cached = self._class_filter(pod)
            row = cached.first(targets, filling)
            rows.append(row)
            if row is None:
                continue
            if cached.fills is not None:
                filling.place(pod, row, cached.fills)
            else:
                filling.finish()
                trial.place(pod, row)
        filling.finish()
        return rows

    def fitting(self, pod: PodClass, targets: Targets) -> Iterator[int]:
        """Yield the *targets* that accept a pod of the class in the current trial, in order."""
        cached = self._class_filter(pod)
        cached.local.select(targets)
        return cached.fitting()

    def refresh(self, pods: Iterable[PodClass]) -> None:
        """Update the cached results of these classes. This is cheapest when no trial has touched any rows."""
        snapshot = self._snapshot
        if self._refreshed_at != snapshot.revision or snapshot.touched:
            self._refreshed_at, self._refreshed = snapshot.revision, set()
        new = set(pods) - self._refreshed
        snapshot.expect(new)
        filters = [self._class_filter(pod) for pod in new]
        for each in filters:
            each.choose()  # creates indexes, for which a trial would have to count its pods
        for local in {each.local for each in filters}:
            local.update()
        if not snapshot.touched:
            self._refreshed |= new

    def fits(self, pod: PodClass, row: int) -> bool:
        """Return whether *row* accepts a pod of the class in the current trial; evaluates all plugins."""
        cached = self._class_filter(pod)
        states = (*cached.local.states, *cached.cluster_states)
        return not any_rejects((plugin.rejects_row(state, self._snapshot) for plugin, state in states), row)

    def still_fits(self, pod: PodClass, row: int) -> bool:
        """Return whether *row*, which accepted the class before, accepts it in the current trial."""
        return self._class_filter(pod).still_fits(row)

    def could_fit(self, pod: PodClass, targets: Targets) -> bool:
        """Return whether any of *targets* would accept a pod of the class if there were no other pods."""
        return bool(len(self._possible(pod, targets.rows)))

    def possible(self, pod: PodClass, rows: npt.NDArray[np.intp] | None = None) -> list[int]:
        """Return those of *rows*, by default of all nodes, that would accept the class if there were no other pods."""
        rows = np.flatnonzero(self._snapshot.nodes.alive) if rows is None else rows
        found: list[int] = self._possible(pod, rows).tolist()
        return found

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
        return self.any_never_fits((pod,), targets)

    def any_never_fits(self, pods: Iterable[PodClass], targets: Targets) -> bool:
        """Return whether any of the classes never fits; see :meth:`never_fits`. Classes alike are evaluated once."""
        for local in {self._class_filter(pod).local for pod in pods}:
            if not local.is_selected(targets):
                local.select(targets)
            if not len(local.candidates):
                return True
        return False

    def local(self, pod: PodClass) -> LocalResult:
        """Return the current result of the plugins that evaluate each node by itself. Classes alike share it."""
        local = self._class_filter(pod).local
        local.update()
        return local

    def of_nodes(self, pod: PodClass) -> States:
        """Return the plugins, with their states, that judge a node by itself, whichever pods are on it.

        Equal ones accept the same nodes (:func:`.local_results.remaining`), if these have enough of what is requested.
        """
        return tuple([each for each in self._class_filter(pod).local.states if each[0].scope is Scope.NODE])

    def plugins_of(self, pod: PodClass) -> tuple[Plugin, ...]:
        """Return the plugins that evaluate pods of the class for other reasons than the node itself."""
        cached = self._class_filter(pod)
        states = (*cached.local.states, *cached.cluster_states)
        return tuple([plugin for plugin, _ in states if plugin.scope is not Scope.NODE])

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
                reasons = _readable(result.reasons)
                rejections = PluginRejections(plugin.name, result.codes, reasons, result.prefilter)
                (pre_filter if result.prefilter else filtered).append(rejections)
        return pre_filter + filtered

    def _plugins(self, pod: PodClass) -> tuple[Plugin, ...]:
        if self._using is not None:
            return self._using
        profile = self._snapshot.scheduler.profile(pod.spec.scheduler_name)
        if profile is not self._last_plugins[0]:  # almost all pods have the same profile, and its hash is not cached
            self._last_plugins = profile, plugins.of(profile) + self._beyond
        return self._last_plugins[1]

    def _reject_draining(self, pod: PodClass, mask: Flags) -> None:
        draining_rows = self._snapshot.draining_rows
        if draining_rows and not self.accepts_drained(pod):
            mask[list(draining_rows)] = False

    def accepts_drained(self, pod: PodClass) -> bool:
        """Return whether drained nodes accept the class: it tolerates their taint, or its profile checks no taints."""
        if not self._snapshot.scheduler.profile(pod.spec.scheduler_name).has("TaintToleration"):
            return True
        return tolerated(DRAIN_TAINT, pod.spec.tolerations)

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
        cluster_states = tuple([state for state in states if state[0].scope is _CLUSTER])
        local_states = tuple([state for state in states if state[0].scope is not _CLUSTER])
        if (local := self._local_results.get(local_states)) is None:
            local = self._local_results[local_states] = LocalResult(local_states, self._snapshot)
        return _ClassFilter(pod, local, cluster_states, self._snapshot)


def _states(plugins: Iterable[Plugin], pod: PodClass) -> States:
    return tuple([(plugin, state) for plugin in plugins if (state := plugin.pre_filter(pod)) is not None])
