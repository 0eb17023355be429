"""Checks by fresh reads: whether the watched state has caught up, and whether the machine of a drained node may end."""

import enum
import math
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta
from typing import Final, TypeAlias

from predicates.objects import Node, Pod, PodDisruptionBudget
from predicates.snapshot import DRAIN_TAINT, Snapshot
from rescheduler.planning.controllers import Controller, ControllerState
from rescheduler.planning.debts import BecameReady, Debt, Replicas, paid, shortfall
from rescheduler.planning.forms import count, shortened
from rescheduler.planning.node_info import label_of
from rescheduler.planning.policy import Circumstances, Policy
from rescheduler.planning.rules.candidates import (
    SAME_MACHINE,
    control_plane_label,
    node_blockers,
    why_going,
    why_not_target,
)
from rescheduler.planning.rules.minimum import minimum
from rescheduler.planning.rules.pod_traits import belongs_to_node

# Whether the machine of a drained node may end: the check before each single request that could end it.
#
# Minutes may pass between the moment when a node was empty and the last request. Each fact is therefore read again:
# nothing in :class:`Seen` is older than the check.

_BEFORE_ALL: Final = datetime.min.replace(tzinfo=UTC)

#: A text names at most this many pods or controllers.
_NAMED = 3


class Ground(enum.Enum):
    """What an objection is about. It decides how the drain continues."""

    MARK = enum.auto()  #: our mark is not on the node: another process continues
    TAINT = enum.auto()  #: our taint is not on the node
    NOT_ON_DEMAND = enum.auto()  #: the node or its machine is another one, or it is not an on-demand node any more
    #: A rule keeps the node: an opt-out, the control plane, another tool that removes it, another Node of its machine.
    KEPT = enum.auto()
    PODS = enum.auto()  #: pods that must move are on the node
    MINIMUM = enum.auto()  #: too few on-demand nodes would be left
    OWED = enum.auto()  #: pods that the drain moved do not run
    DOUBT = enum.auto()  #: the drain itself objects: it only asks what became of an earlier order


@dataclass(frozen=True, slots=True)
class Objection:
    """Why a machine may not end now."""

    ground: Ground
    why: str


@dataclass(frozen=True, slots=True)
class OrderTerms:
    """What a drain knows about its order. It is compared with the current state of the cluster."""

    policy: Policy | None = None  #: today's settings; None for a proxy, whose pool defines the nodes
    debts: tuple[Debt, ...] = ()  #: to all controllers whose pods left the node in any drain, including the paid ones
    evicted: frozenset[str] = frozenset()  #: UIDs of the evicted pods
    stays: Callable[[Pod], bool] = belongs_to_node  #: whether a pod ends with its node
    ready: bool = True  #: whether replacement pods must be Ready; otherwise it is enough that they are bound
    #: The on-demand nodes that keep pods and whose machines are not about to end, as last watched.
    keeping: frozenset[str] = frozenset()
    in_use: bool = True  #: whether the node had pods that the drain moved, or may have had some
    doubt: str = ""  #: why the drain itself objects, or ""
    with_other_places: frozenset[str] = frozenset()  #: nodes whose pods all have another place if the node goes
    proved_at: float = -math.inf  #: when that was found out, in monotonic seconds
    ending: frozenset[str] = frozenset()  #: nodes that the provider has announced to reclaim
    became_ready: BecameReady = lambda _: None  #: thread-safe
    #: Returns the debts to controllers whose pods were preempted, also since the order began. Thread-safe.
    preempted: Callable[[], tuple[Debt, ...]] = tuple
    #: Returns the other Nodes of the machine, as last watched. Thread-safe.
    mates: Callable[[], tuple[str, ...]] = tuple

    def at_present(self) -> "OrderTerms":
        """Return the terms with the debts to controllers of pods that have been preempted by now."""
        known = {debt.controller for debt in self.debts}
        return replace(self, debts=(*self.debts, *(debt for debt in self.preempted() if debt.controller not in known)))


@dataclass(frozen=True, slots=True)
class Seen:
    """The current state of the cluster, as far as an order depends on it."""

    node: Node
    pods: Sequence[Pod] = ()  #: on the node
    nodes: Sequence[Node] = ()  #: all nodes; empty unless a minimum is required, or pods may be owed
    states: Mapping[Controller, ControllerState] = field(default_factory=dict)  #: of the controllers in the debts
    replicas: Mapping[Controller, Replicas] = field(default_factory=dict)  #: of the same controllers
    now: datetime = _BEFORE_ALL  #: by default, no opt-out has expired
    mates: Sequence[tuple[Node, Sequence[Pod]]] = ()  #: the other Nodes of the machine, with their pods


def objection(before: Node, terms: OrderTerms, seen: Seen) -> Objection | None:
    """Return why the machine of *before*, the node when its drain began, may not end, or None if it may."""
    return (
        _another_node(before, terms, seen.node)
        or _untainted(seen.node)
        or _of_control_plane(seen.node)
        or _kept(terms, seen, empty=True)
        or _late_pods(terms, seen)
        or _shared(terms, seen)
        or _below_minimum(before, terms, seen.nodes)
        or _owed(terms, seen)
    )


def objection_to_drain(before: Node, terms: OrderTerms, seen: Seen) -> Objection | None:
    """Return why the drain of *before*, as it was watched, may not begin, or None if it may."""
    return (
        _another_node(before, terms, seen.node)
        or _kept(terms, seen, empty=False)
        or _below_minimum(before, terms, seen.nodes)
    )


def _another_node(before: Node, terms: OrderTerms, node: Node) -> Objection | None:
    if node.spec.provider_id != before.spec.provider_id:
        was, now = before.spec.provider_id or "empty", node.spec.provider_id or "empty"
        return Objection(Ground.NOT_ON_DEMAND, f"its provider ID was {was} and is now {now}")
    policy = terms.policy
    if policy is None:
        return None
    if not policy.on_demand_label.matches(node.metadata.labels):
        why = f"its labels do not match --on-demand-node-label={policy.on_demand_label} any more"
        return Objection(Ground.NOT_ON_DEMAND, why)
    if policy.spot_label.matches(node.metadata.labels):
        return Objection(Ground.NOT_ON_DEMAND, f"its labels match --spot-node-label={policy.spot_label}")
    return None


def _of_control_plane(node: Node) -> Objection | None:
    label = control_plane_label(node)
    return Objection(Ground.KEPT, f"it has the label {label} of the control plane") if label else None


def _kept(terms: OrderTerms, seen: Seen, *, empty: bool) -> Objection | None:
    """Object to what a person or another tool has written to the node since it was planned."""
    if terms.policy is None:
        return None
    blockers = node_blockers(seen.node, terms.policy, Circumstances(seen.now), empty=empty)
    return Objection(Ground.KEPT, str(blockers[0])) if blockers else None


def is_closed(node: Node) -> bool:
    """Return whether *node* has the drain taint, with the effect that keeps new pods away."""
    return any((taint.key, taint.effect) == (DRAIN_TAINT.key, DRAIN_TAINT.effect) for taint in node.spec.taints)


def _untainted(node: Node) -> Objection | None:
    if is_closed(node):
        return None
    return Objection(Ground.TAINT, "another client removed our taint or changed its effect")


def _late_pods(terms: OrderTerms, seen: Seen) -> Objection | None:
    late = _must_move(terms, seen.node, seen.pods)
    return Objection(Ground.PODS, f"{late[0]} on the node must move first: {late[1]}") if late else None


def _must_move(terms: OrderTerms, node: Node, pods: Iterable[Pod]) -> tuple[str, str] | None:
    """Return how many of the *pods* on *node* must move, and which; None if none.

    Without a kubelet, pods that are being deleted do not run any more.
    """
    stopped = node.condition("Ready") not in ("True", "")
    found = sorted(
        pod.key for pod in pods if not (pod.finished or terms.stays(pod) or (stopped and pod.cls.terminating))
    )
    return (count(len(found), "pod"), shortened(found, _NAMED)) if found else None


def _shared(terms: OrderTerms, seen: Seen) -> Objection | None:
    """Object to another Node of the same machine that has pods, or gets some at any time."""
    for node, pods in seen.mates:
        if (theirs := _must_move(terms, node, pods)) is not None:
            why = f"on which {theirs[0]} must move first: {theirs[1]}"
        elif why_not_target(node) is None:
            why = "which accepts pods"
        else:
            continue
        return Objection(Ground.KEPT, f"its machine is also that of node {node.name} ({SAME_MACHINE}), {why}")
    return None


def _below_minimum(before: Node, terms: OrderTerms, nodes: Iterable[Node]) -> Objection | None:
    policy = terms.policy
    if policy is None or not policy.min_on_demand_nodes:
        return None
    on_demand = (node for node in nodes if label_of(node, policy) == policy.on_demand_label)
    held = minimum(policy.min_on_demand_nodes, on_demand, terms.keeping)
    blocker = held.blocker(before.name, in_use=terms.in_use)
    return Objection(Ground.MINIMUM, blocker.detail) if blocker is not None else None


def _owed(terms: OrderTerms, seen: Seen) -> Objection | None:
    lacking = []
    for debt in terms.debts:
        state = seen.states.get(debt.controller)
        if state is None:
            continue
        replicas = seen.replicas.get(debt.controller, Replicas())
        missing = shortfall(debt, state, replicas, staying=True)
        if not paid(missing, ready=terms.ready):
            why = f"; {replicas.at_risk}" if replicas.at_risk else ""
            lacking.append(f"{debt.controller} ({max(missing.ready, missing.bound)} missing{why})")
    if not lacking:
        return None
    return Objection(
        Ground.OWED, f"pods that left the node do not run elsewhere, or may not stay: {shortened(lacking, _NAMED)}"
    )


#: A kubelet renews the Lease of its Node four times in this Lease's duration. Twice in a row it may fail.
_RENEWALS_MISSED: Final = 2

#: The longest time without a renewal, whatever the duration of the Lease: then a Node counts as lost.
_LEASE_AGE: Final = timedelta(seconds=40)


@dataclass(frozen=True, slots=True)
class NodeLease:
    """The Lease of a Node, which its kubelet renews."""

    renewed: datetime
    duration: timedelta

    def expired(self, now: datetime) -> str:
        """Return that the kubelet does not renew the Lease any more, or ""."""
        age = now - self.renewed
        if age < min(self.duration * _RENEWALS_MISSED / 4, _LEASE_AGE):
            return ""
        return f"its kubelet last renewed its Lease {age.total_seconds():.0f} s ago"


#: Reads the Leases of Nodes by their names.
ReadLeases: TypeAlias = Callable[[Collection[str]], Mapping[str, NodeLease]]


def why_at_risk(terms: OrderTerms, leases: Mapping[str, NodeLease], now: datetime, pod: Pod, node: Node) -> str:
    """Return why *pod*, which runs on *node*, may soon have no place, or "". *leases* are those of the nodes."""
    lease = leases.get(node.name)
    dead = "" if lease is None else lease.expired(now)
    sign = "" if node.name in terms.with_other_places else why_going(node, terms.ending)
    why = dead or sign
    return f"node {node.name} of pod {pod.key}: {why}" if why else ""


# Checks whether the watched state has caught up with a consistent read of the API server.
#
# A watch normally lags behind the API server by milliseconds. Before a drain relies on its plan, it compares the
# watched state with a consistent read taken after the node was tainted, and waits until nothing is missing. Additional
# objects in the watched state are newer, or only make plans stricter. The exception is the drained node: a pod that is
# watched there but was not listed is gone, and its eviction would fail.
#
# What was read may have changed again when it is compared. Resource versions grow with each change of a kind: once the
# watch has reported a later change than that of an object, the watched state contains what became of the object.


@dataclass(frozen=True, slots=True)
class FreshPod:
    """A pod as returned by the API server."""

    namespace: str
    name: str
    node: str  #: "" if it is not bound
    terminating: bool = False
    finished: bool = False
    version: str = ""  #: the resource version; "" if it is unknown

    @property
    def key(self) -> str:
        """The key of the pod: ``namespace/name``."""
        return f"{self.namespace}/{self.name}"


@dataclass(frozen=True, slots=True)
class PreemptedPod:
    """A pod that the scheduler has preempted, according to an Event. It may be gone."""

    key: str  #: ``namespace/name``
    by: str  #: UID of the pod that took its place


@dataclass(frozen=True, slots=True)
class Fresh:
    """A consistent read of a part of the cluster."""

    node: str  #: the drained node
    asked: frozenset[str]  #: nodes that were requested: the drained node and the targets of its pods
    nodes: Mapping[str, Node]  #: the requested nodes that exist
    pods: Mapping[str, FreshPod]  #: by UID: pods on these nodes, and unbound pods
    budgets: Mapping[str, PodDisruptionBudget]  #: by ``namespace/name``


def lag(fresh: Fresh, snapshot: Snapshot) -> str:
    """Return the first difference by which the watched *snapshot* lags behind *fresh*, in one line, or ""."""
    for differences in (_nodes(fresh, snapshot), _pods(fresh, snapshot), _budgets(fresh, snapshot)):
        for difference in differences:
            return difference
    return ""


def _nodes(fresh: Fresh, snapshot: Snapshot) -> Iterator[str]:
    for name in sorted(fresh.asked):
        row = snapshot.nodes.row.get(name)
        watched, current = None if row is None else snapshot.nodes.nodes[row], fresh.nodes.get(name)
        if current is not None and _is_older("Node", current.metadata.resource_version, snapshot):
            continue
        if current is None and watched is not None:
            yield f"node {name} was deleted, but is still in the cache"
        elif current is not None and watched is None:
            yield f"node {name} is not in the cache yet"
        elif current is not None and watched is not None and _facts(current) != _facts(watched):
            yield f"a change of node {name} is not in the cache yet"


def _is_older(kind: str, version: str, snapshot: Snapshot) -> bool:
    """Return whether the watch has reported changes of *kind* up to *version*."""
    watched = snapshot.watched_to.get(kind, "")
    return version.isdigit() and watched.isdigit() and int(version) <= int(watched)


def _facts(node: Node) -> tuple[object, ...]:
    """Return the fields of a node that decide which pods it accepts."""
    meta, conditions = node.metadata, {condition.type: condition.status for condition in node.status.conditions}
    deleting = meta.deletion_timestamp is not None
    return meta.uid, meta.labels, deleting, node.spec, node.status.allocatable, conditions


def _pods(fresh: Fresh, snapshot: Snapshot) -> Iterator[str]:
    live = {uid: pod for uid, pod in fresh.pods.items() if not pod.finished}
    for uid, pod in live.items():
        watched = snapshot.pods.get(pod.key) or snapshot.placeholders.get(pod.key)
        if _is_older("Pod", pod.version, snapshot):
            continue
        if watched is None or watched.uid != uid:
            yield f"pod {pod.key} is not in the cache yet"
        elif pod.node and watched.node_name != pod.node:
            yield f"pod {pod.key} is not bound to node {pod.node} in the cache yet"
        elif pod.terminating and watched.deletion_timestamp is None:
            yield f"the deletion of pod {pod.key} is not in the cache yet"
    cached_pods: Mapping[str, Pod] = snapshot.pods_on.get(fresh.node, {})
    for watched in cached_pods.values():
        if watched.uid not in live or live[watched.uid].node != fresh.node:
            yield f"pod {watched.key} is gone, but is still on node {fresh.node} in the cache"


def _budgets(fresh: Fresh, snapshot: Snapshot) -> Iterator[str]:
    watched = snapshot.of("PodDisruptionBudget")
    for key, budget in sorted(fresh.budgets.items()):
        cached = watched.get(key)
        if _is_older("PodDisruptionBudget", budget.metadata.resource_version, snapshot):
            continue
        if not isinstance(cached, PodDisruptionBudget):
            yield f"PodDisruptionBudget {key} is not in the cache yet"
        elif _terms(cached) != _terms(budget):
            yield f"a change of PodDisruptionBudget {key} is not in the cache yet"


def _terms(budget: PodDisruptionBudget) -> tuple[object, ...]:
    """Return the fields of a budget that decide which evictions it allows."""
    deleting = budget.metadata.deletion_timestamp is not None
    return budget.metadata.uid, deleting, budget.spec, budget.status.disruptions_allowed
