"""All filter plugins on one snapshot, with cached results, which follow the changes of nodes."""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import partial
from itertools import islice
from typing import Any, Final, TypeAlias, TypeVar

import numpy as np
import numpy.typing as npt

from predicates import plugins
from predicates.framework import Plugin, PluginRejections, Reasons, RejectsRow, Scope
from predicates.indexes.terms import forget_terms
from predicates.node_selectors import tolerated
from predicates.nodes import ALL, Flags, Rows
from predicates.objects import PodClass
from predicates.placed import Filling, FreeAmounts, Needs
from predicates.scheduler import Profile
from predicates.snapshot import DRAIN_TAINT, Snapshot, Trial
from predicates.texts import LONGEST_REASON, shown

# Cached results of the plugins that evaluate each node by itself, updated from the change logs.

#: This many candidates are listed at a time to be evaluated one by one.
_LISTED: Final = 256

#: After this many candidates were rejected because of other nodes, the remaining ones are evaluated together. Which of
#: them accepts a pod is then not known yet.
_MAX_SINGLE_CHECKS: Final = 12
_UNKNOWN: Final = -1

#: Plugins and their states for a class (``pre_filter``), without plugins that do not apply to it.
States: TypeAlias = tuple[tuple[Plugin, Any], ...]
_NO_ROWS: Final = np.zeros(0, np.intp)
_CLUSTER: Final = Scope.CLUSTER

_T = TypeVar("_T")


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
        self.rejects_row = _any_of(of_pods, snapshot) or _never
        self.needs = _needs_of(of_pods, snapshot)  #: the amounts that decide alone about rows that the mask accepts
        self._revision = self._epoch = -1
        self._node_changes = self._pod_changes = self._removals = 0  #: how much of each change log is included
        self._dirty: frozenset[int] = frozenset()  #: rows that were evaluated while a trial had touched them
        self._touched_at = (-1, -1)  #: the revision and releases at which the current trial touched all of these
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
        return self._revision == snapshot.revision and self._touches_dirty()

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
        return self._touches_dirty()

    def _touches_dirty(self) -> bool:
        """Return whether the current trial still touches all rows that were evaluated while a trial did."""
        if not self._dirty:
            return True
        # Without a new revision, rows stop being touched only when placements are undone.
        at = self._snapshot.revision, self._snapshot.releases
        if self._touched_at != at:
            if not self._snapshot.touched.keys() >= self._dirty:
                return False
            self._touched_at = at
        return True

    def is_selected(self, targets: Targets) -> bool:
        """Return whether the result is exact and the *targets* that it accepts are selected."""
        return self._targets is targets and self._revision == self._snapshot.revision and self._touches_dirty()

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
        it has rejected :data:`_MAX_SINGLE_CHECKS` candidates, the result is :data:`_UNKNOWN`.
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
                    return _UNKNOWN
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
        self._dirty, self._touched_at = frozenset(evaluated), (-1, -1)
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


def _any_of(states: States, snapshot: Snapshot) -> RejectsRow | None:
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
        self._concerning = tuple(
            [each for each in self._cluster_states if (may := each[0].concerns) is None or may(each[1], snapshot)]
        )
        self._rejects_row = _any_of(self._concerning, snapshot)
        self._ties = snapshot.ties

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
        if row != _UNKNOWN:
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

    def __init__(self, snapshot: Snapshot, using: Sequence[Plugin] | None = None) -> None:
        """Evaluate the plugins of each pod's profile of ``snapshot.scheduler``, or only those in *using*."""
        self._snapshot = snapshot
        self._using = None if using is None else tuple(using)
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
        filters = [self._class_filter(pod) for pod in new]
        for each in filters:
            each.choose()  # creates indexes, for which a trial would have to count its pods
        for local in {each.local for each in filters}:
            local.update()
        if not snapshot.touched:
            self._refreshed |= new

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
            self._last_plugins = profile, plugins.of(profile)
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
