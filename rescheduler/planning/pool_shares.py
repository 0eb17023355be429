"""The largest share of a controller's replicas on one pool of spot nodes: ``--max-share-per-spot-pool``. Pure.

Replicas are counted by topmost controller, so that those of all ReplicaSets of a Deployment count together: the
replicas that stay, and those that a plan moves, on the nodes where its forecast puts them. Replicas on nodes that are
not spot count only in the total. The share is rounded down, and one replica is always allowed.
"""

import json
import re
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Final, TypeAlias

from msgspec.structs import replace

from predicates.objects import LabelSelector, Pod, TopologySpreadConstraint
from predicates.snapshot import Snapshot
from predicates.texts import quoted
from rescheduler.errors import UsageError
from rescheduler.planning.controllers import ControllerName, controller_of
from rescheduler.planning.outcome import Blocker, Plan, Reason
from rescheduler.planning.policy import Policy
from rescheduler.planning.pools import Pools, spot_pools

#: Annotation of pods, set in the pod template: the largest share of the controller's replicas on one pool.
MAX_SHARE: Final = "spot-rescheduler/max-share-per-spot-pool"

#: The share that limits nothing.
WHOLE: Final = 100

_PERCENT: Final = re.compile(r"([0-9]{1,3})%")
_EXPECTED: Final = "expected a percentage from 1% to 100%"

#: Labels of pods that differ between the pods or the revisions of a controller.
_OF_ONE_POD: Final = (
    "pod-template-hash",
    "rollouts-pod-template-hash",
    "controller-revision-hash",
    "statefulset.kubernetes.io/pod-name",
    "apps.kubernetes.io/pod-index",
    "batch.kubernetes.io/job-completion-index",
)

#: By controller: the replicas that earlier plans move to each pool.
Moved: TypeAlias = dict[ControllerName, Counter[str]]


def parse_share(text: str) -> int:
    """Parse a percentage such as ``50%``. Raises UsageError."""
    if (percent := _percent(text)) is None:
        raise UsageError(f"{quoted(text)}: {_EXPECTED}, such as 50%")
    return percent


@dataclass(frozen=True, slots=True)
class PoolReplicas:
    """The replicas of a controller."""

    total: int = 0
    by_pool: Counter[str] = field(default_factory=Counter)


@dataclass(frozen=True, slots=True)
class Limit:
    """The limit of a controller, and where it comes from."""

    percent: int
    source: str  #: the flag or the annotation, with its value
    ignored: str = ""  #: why an annotation is ignored, or ""

    def allowed(self, replicas: int) -> int:
        """Return how many of *replicas* may be on one pool."""
        return max(1, replicas * self.percent // WHOLE)


class PoolShares:
    """The shares of controllers on the pools of spot nodes. Valid until the snapshot changes."""

    def __init__(self, snapshot: Snapshot, spot_rows: Iterable[int], policy: Policy) -> None:
        """Prepare to count. *spot_rows* are the rows of all spot nodes."""
        self._snapshot = snapshot
        self._spot_rows = spot_rows
        self._policy = policy

    def limits(self, pods: Iterable[Pod]) -> dict[ControllerName, Limit]:
        """Return the limits of the controllers of *pods* that have one, and at least two replicas."""
        percent = self._policy.max_share_per_spot_pool
        pods = list(pods)
        if not self._concern(pods):
            return {}
        texts: defaultdict[ControllerName, set[str]] = defaultdict(set)
        for pod in pods:
            if pod.owner is not None:
                texts[controller_of(pod)].update(filter(None, [pod.annotations.get(MAX_SHARE)]))
        limits = {name: _limit(annotated, percent) for name, annotated in texts.items()}
        return {
            name: limit for name, limit in limits.items() if limit.percent < WHOLE and self._replicas[name].total > 1
        }

    def concern(self, node: str) -> bool:
        """Return whether a pod on *node* may have a limit. It costs little where nothing is limited."""
        return self._concern(self._snapshot.pods_on[node].values())

    def _concern(self, pods: Iterable[Pod]) -> bool:
        limited = self._policy.max_share_per_spot_pool < WHOLE
        return limited or any(pod.annotations and MAX_SHARE in pod.annotations for pod in pods)

    def facts(self, pods: Sequence[Pod]) -> tuple[object, ...]:
        """Return what the results for *pods* depend on, for comparisons."""
        return tuple(
            (name, limit, self._replicas[name].total, sorted(self._replicas[name].by_pool.items()))
            for name, limit in sorted(self.limits(pods).items(), key=lambda item: item[0])
        )

    def may_exceed(self, plan: Plan, moved: Moved) -> bool:
        """Return whether *plan* could exceed a limit if the scheduler placed its pods in the worst way.

        *moved* are the replicas of earlier plans.
        """
        pods = self._pods(plan)
        moving = Counter(map(controller_of, pods))
        return any(
            self._most_on_a_pool(name, moved) + moving[name] > limit.allowed(self._replicas[name].total)
            for name, limit in self.limits(pods).items()
        )

    def blockers(self, plan: Plan, nodes: Mapping[str, str], moved: Moved) -> list[Blocker]:
        """Return the controllers of which *plan* would put too many replicas on one pool.

        *nodes* are the nodes of the plan's pods by key, and of those that a rolling update restarts. The replicas of
        earlier plans are in *moved*.
        """
        pods = {key: self._snapshot.pods[key] for key in nodes}
        arriving: defaultdict[tuple[ControllerName, str], list[str]] = defaultdict(list)
        leaving: Counter[tuple[ControllerName, str]] = Counter()
        limits = self.limits(self._pods(plan))
        for key, node in nodes.items():
            if (name := controller_of(pods[key])) in limits:
                leaving[name, self._pool(pods[key].node_name)] += 1
                if pool := self._pool(node):
                    arriving[name, pool].append(key)
        found = []
        for (name, pool), keys in sorted(arriving.items()):
            replicas = self._replicas[name]
            staying = replicas.by_pool[pool] - leaving[name, pool]
            on_pool = staying + moved.get(name, Counter())[pool] + len(keys)
            if on_pool > (allowed := limits[name].allowed(replicas.total)):
                first = pods[min(keys)]
                text = f"{on_pool} of {replicas.total} replicas of {name} would be on spot pool {pool}"
                rule = f"{limits[name].source} allows {allowed}{limits[name].ignored}"
                found.append(Blocker(Reason.SPOT_POOL_SHARE, f"{text}; {rule}; {self.remedy(first)}", first.key))
        return found

    def take(self, plan: Plan, moved: Moved) -> None:
        """Add the replicas that *plan* moves to *moved*, if their controllers are limited."""
        pods = self._pods(plan)
        if not (limits := self.limits(pods)):
            return
        for pod, placement in zip(pods, plan.placements, strict=True):
            if (name := controller_of(pod)) in limits and (pool := self._pool(placement.node)):
                moved.setdefault(name, Counter())[pool] += 1

    def remedy(self, pod: Pod) -> str:
        """Return what would make the scheduler keep the limit of the controller of *pod*."""
        constraint = self.constraint(pod)
        if constraint is None:
            return "all spot nodes are in one pool, or too few: add spot nodes of another zone or instance type"
        return f"its pod template would keep it with {spread_text(constraint)}"

    def constraint(self, pod: Pod) -> TopologySpreadConstraint | None:
        """Return a constraint that keeps the limit of the controller of *pod*, or None if none does.

        Replicas that are spread over the values of one label of pools are spread over pools. The label must have so
        many values that each one gets at most the allowed replicas.
        """
        name = controller_of(pod)
        replicas = self._replicas[name].total
        allowed = next((limit.allowed(replicas) for limit in self.limits([pod]).values()), replicas)
        present = {each.topology_key for each in pod.cls.spec.topology_spread_constraints if _is_strict(each)}
        for key in self._policy.spot_pool_labels:
            values = len({column for column in self._snapshot.nodes.label(key).ids.tolist() if column >= 0})
            if key not in present and values and -(-replicas // values) <= allowed:
                labels = {label: text for label, text in pod.cls.labels.items() if label not in _OF_ONE_POD}
                selector = LabelSelector(match_labels=labels)
                return TopologySpreadConstraint(1, key, "DoNotSchedule", selector)
        return None

    @cached_property
    def pools(self) -> Pools:
        """The pools of the spot nodes."""
        return spot_pools(self._snapshot.nodes, self._spot_rows, self._policy.spot_pool_labels)

    @cached_property
    def _replicas(self) -> defaultdict[ControllerName, PoolReplicas]:
        """The replicas by controller. Pods that are being deleted do not count."""
        rows, pool_of_row = self._snapshot.nodes.row, self.pools.of_row
        by_owner: defaultdict[tuple[str, str], list[Pod]] = defaultdict(list)
        for pod in self._snapshot.pods.values():
            if pod.owner is not None and pod.owner.kind != "Pod" and not pod.cls.terminating:
                by_owner[pod.namespace, pod.owner.uid].append(pod)
        counted: defaultdict[ControllerName, PoolReplicas] = defaultdict(PoolReplicas)
        for pods in by_owner.values():
            name = controller_of(pods[0])
            on_nodes = Counter(pod.node_name for pod in pods if pod.node_name in rows)
            by_pool = Counter(counted[name].by_pool)
            for node, number in on_nodes.items():
                if pool := pool_of_row(rows[node]):
                    by_pool[pool] += number
            counted[name] = PoolReplicas(counted[name].total + len(pods), by_pool)
        return counted

    def _most_on_a_pool(self, name: ControllerName, moved: Moved) -> int:
        return max((self._replicas[name].by_pool + moved.get(name, Counter())).values(), default=0)

    def _pods(self, plan: Plan) -> list[Pod]:
        return [self._snapshot.pods[str(placement.pod)] for placement in plan.placements]

    def _pool(self, node: str) -> str:
        row = self._snapshot.nodes.row.get(node)
        return "" if row is None else self.pools.of_row(row)


def ignored_annotation(pod: Pod) -> str:
    """Return why the annotation of *pod* is ignored, or ""."""
    text = pod.annotations.get(MAX_SHARE)
    if text is None or _percent(text) is not None:
        return ""
    return _ignored(text)


def _ignored(text: str) -> str:
    return f"the annotation {MAX_SHARE}: {quoted(text)} is ignored, {_EXPECTED}"


def with_constraint(pod: Pod, constraint: TopologySpreadConstraint) -> Pod:
    """Return *pod* with one more *constraint*."""
    spec = replace(pod.cls.spec, topology_spread_constraints=(*pod.cls.spec.topology_spread_constraints, constraint))
    return replace(pod, cls=replace(pod.cls, spec=spec))


def spread_text(constraint: TopologySpreadConstraint) -> str:
    """Return *constraint* as a field of a pod template, in the flow style of YAML."""
    selector = constraint.label_selector
    labels = selector.match_labels if selector is not None else {}
    pairs = ", ".join(f"{key}: {json.dumps(value)}" for key, value in sorted(labels.items()))
    fields = (
        f"maxSkew: {constraint.max_skew}, topologyKey: {constraint.topology_key}, "
        f"whenUnsatisfiable: {constraint.when_unsatisfiable}, labelSelector: {{matchLabels: {{{pairs}}}}}"
    )
    return f"topologySpreadConstraints: [{{{fields}}}]"


def _limit(annotations: Iterable[str], flag: int) -> Limit:
    """Return the strictest of the readable *annotations* of a controller's pods, or the *flag* if there is none."""
    known = {text: _percent(text) for text in sorted(annotations)}
    ignored = next((f" ({_ignored(text)})" for text, percent in known.items() if percent is None), "")
    readable = [percent for percent in known.values() if percent is not None]
    if readable:
        return Limit(min(readable), f"{MAX_SHARE}: {min(readable)}%", ignored)
    return Limit(flag, f"--max-share-per-spot-pool={flag}%", ignored)


def _percent(text: str) -> int | None:
    match = _PERCENT.fullmatch(text.strip())
    percent = int(match[1]) if match is not None else 0
    return percent if 1 <= percent <= WHOLE else None


def _is_strict(constraint: TopologySpreadConstraint) -> bool:
    return constraint.when_unsatisfiable != "ScheduleAnyway"
