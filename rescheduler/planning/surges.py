"""Pods that a drain moves without an eviction: their Deployment rolls out, with the drained node closed.

A rolling update with ``maxSurge`` and without ``maxUnavailable`` starts the new pods first, and ends the old ones when
these are Ready. So it can move what a budget never lets go, and a single replica, without downtime. It replaces all
pods of the Deployment, on all nodes.
"""

from collections import defaultdict
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import Final

from msgspec.structs import replace

from predicates.node_selectors import tolerated
from predicates.objects import Deployment, Pod, StatefulSet, Workload
from predicates.snapshot import DRAIN_TAINT, Snapshot
from predicates.storage import find_claim
from rescheduler.planning.budgets import Budgets, why_never
from rescheduler.planning.controllers import ControllerName, controller_of
from rescheduler.planning.forms import count, fenceposts
from rescheduler.planning.kept import ClusterPart, Kept
from rescheduler.planning.outcome import Blocker, PodRef, Reason, Surge
from rescheduler.planning.policy import Policy, Surging
from rescheduler.planning.replacements import Replacements
from rescheduler.planning.rules.declared import PodRules
from rescheduler.planning.rules.minimum import (
    MIN_ON_DEMAND_REPLICAS,
    OwnerCounts,
    OwnerKey,
    owned_pods,
    owner_key,
    single_replica,
)
from rescheduler.planning.rules.volumes import MANY_NODES

#: Annotation of a pod template or a Deployment: "true" asks drains to move its pods by a rolling update, "false"
#: forbids it. That of the template counts first.
ANNOTATION: Final = "spot-rescheduler/surge"

#: What keeps a pod from being evicted, but not from being moved by a rolling update.
LIFTED: Final = frozenset({Reason.BUDGET, Reason.MANY_BUDGETS, Reason.SINGLE_REPLICA})

#: The defaults of the API for a Deployment's maxSurge and maxUnavailable.
_DEFAULT: Final = "25%"

_NEVER_EXTRA: Final[Mapping[str, str]] = {
    "StatefulSet": "a StatefulSet ends each pod before it creates the new one, which has the same name",
    "Rollout": "Argo Rollouts restarts pods (spec.restartAt) by evicting them before the new ones run",
}


@dataclass(frozen=True, slots=True)
class NodeSurge:
    """A Deployment whose pods on one node are moved by a rolling update."""

    deployment: Deployment
    pods: tuple[Pod, ...]  #: its pods on the node
    restarted: tuple[Pod, ...]  #: the new pods in place of those on other nodes, under names of their own
    extra: int  #: how many pods more than its replicas it has meanwhile

    @property
    def surge(self) -> Surge:
        """Return the part of the plan."""
        meta = self.deployment.metadata
        pods = tuple(map(PodRef.of, self.pods))
        return Surge(meta.namespace, meta.name, meta.uid, len(self.pods) + len(self.restarted), pods)

    @property
    def keys(self) -> tuple[str, ...]:
        """Return the keys of all pods that are replaced, those of the node first."""
        return tuple(pod.key for pod in (*self.pods, *self.restarted))


@dataclass(frozen=True, slots=True)
class NodeSurges:
    """The pods of one node that are moved by rolling updates, and why others are not."""

    surges: tuple[NodeSurge, ...] = ()
    why_not: Mapping[str, str] = field(default_factory=dict)  #: by pod key: why a rolling update cannot move it
    refused: tuple[Blocker, ...] = ()  #: for pods that ask for a rolling update which is not possible

    @property
    def keys(self) -> frozenset[str]:
        """Return the keys of the node's pods that are moved by rolling updates."""
        return frozenset(pod.key for surge in self.surges for pod in surge.pods)

    def explained(self, blocker: Blocker) -> Blocker:
        """Return *blocker*, which says as well why a rolling update cannot move the pod, if one was looked for."""
        why = self.why_not.get(blocker.pod or "")
        if not why or blocker.reason not in LIFTED:
            return blocker
        return Blocker(blocker.reason, f"{blocker.detail}; a rolling update cannot move it either: {why}", blocker.pod)


NO_SURGES: Final = NodeSurges()


def limits_of(deployment: Deployment) -> tuple[int, int]:
    """Return how many pods a rolling update of *deployment* adds, and how many it leaves out."""
    limits = deployment.spec.strategy.rolling_update
    most, least = (None, None) if limits is None else (limits.max_surge, limits.max_unavailable)
    most, least = (_DEFAULT if value is None else value for value in (most, least))
    return fenceposts(most, least, replicas_of(deployment))


def replicas_of(deployment: Deployment) -> int:
    """Return the desired number of pods."""
    return 1 if deployment.spec.replicas is None else deployment.spec.replicas


def why_no_surge(deployment: Deployment) -> str:
    """Return why a rolling update of *deployment*, begun now, would not keep all of its pods available, or ""."""
    if deployment.metadata.deletion_timestamp is not None:
        return f"{_name(deployment)} is being deleted"
    if why := why_downtime(deployment):
        return why
    if deployment.spec.paused:
        return f"{_name(deployment)} is paused"
    return "" if is_settled(deployment) else f"{_name(deployment)} is rolling out, or not all of its pods are available"


def why_downtime(deployment: Deployment) -> str:
    """Return why the strategy of *deployment* may end old pods before the new ones are available, or ""."""
    if deployment.spec.strategy.type != "RollingUpdate":
        return f"the strategy of {_name(deployment)} is {deployment.spec.strategy.type}, which ends old pods first"
    surge, unavailable = limits_of(deployment)
    if unavailable or not surge:
        of = count(replicas_of(deployment), "replica")
        return f"for {of}, {_name(deployment)} has maxSurge {surge} and maxUnavailable {unavailable} after rounding"
    return ""


def is_settled(deployment: Deployment) -> bool:
    """Return whether all pods are of the current template and available (``deploymentutil.DeploymentComplete``)."""
    status, replicas = deployment.status, replicas_of(deployment)
    if status is None:  # only in files
        return True
    observed = status.has_observed(deployment.metadata)
    return observed and status.replicas == status.updated_replicas == status.available_replicas == replicas


def _name(deployment: Deployment) -> str:
    return f"Deployment {deployment.metadata.namespace}/{deployment.metadata.name}"


class Surges:
    """Finds the pods of *snapshot* that are moved by rolling updates. Valid while the ground of a round is the same."""

    def __init__(self, snapshot: Snapshot, policy: Policy, counts: OwnerCounts, replacements: Replacements) -> None:
        self._snapshot = snapshot
        self._policy = policy
        self._counts = counts
        self._replacements = replacements
        self._by_owner = Kept(_by_owner, ClusterPart.ANYTHING)  #: because pods are edited

    def may_be_wanted(self, pods: Iterable[Pod]) -> bool:
        """Return whether a rolling update may be wanted for any of *pods*, before the rules are applied to them."""
        if self._policy.surge is Surging.OFF:
            return False
        held = self._policy.surge is Surging.BLOCKED
        return held or self._annotated or any(ANNOTATION in pod.annotations for pod in pods)

    def on(self, pods: Collection[Pod], rules: PodRules, budgets: Budgets) -> NodeSurges:
        """Return which of *pods*, which have to leave one node, are moved by rolling updates."""
        if self._policy.surge is Surging.OFF:
            return NO_SURGES
        wanted: dict[OwnerKey, bool] = {}  #: by controller: whether it asked for that
        for pod in pods:
            if (asked := self._asks(pod)) or (asked is None and self._is_held(pod, budgets)):
                wanted[owner_key(pod)] = wanted.get(owner_key(pod), False) or bool(asked)
        if not wanted:
            return NO_SURGES
        groups: defaultdict[OwnerKey, list[Pod]] = defaultdict(list)
        for pod in pods:
            groups[owner_key(pod)].append(pod)
        surges: list[NodeSurge] = []
        why_not: dict[str, str] = {}
        refused: list[Blocker] = []
        for key, asked in wanted.items():
            here = groups[key]
            too_many = self._too_many(here)
            why = "" if too_many else self._obstacle(here, rules) or self._volume(here[0])
            if not (why or too_many):
                surges.append(self._surge(here))
            why_not |= dict.fromkeys((pod.key for pod in here if why or too_many), why or too_many)
            if why and asked:
                refused += [self._refused(pod, why) for pod in here]
        return NodeSurges(tuple(surges), why_not, tuple(refused))

    def lifts(self, pod: Pod, blockers: Collection[Blocker]) -> bool:
        """Return whether *pod*, which has these *blockers*, could still be moved by a rolling update."""
        off = self._policy.surge is Surging.OFF or self._asks(pod) is False
        return not off and all(blocker.reason in LIFTED for blocker in blockers)

    def _asks(self, pod: Pod) -> bool | None:
        """Return whether the owner wants a rolling update for *pod*; None if it says nothing."""
        value = pod.annotations.get(ANNOTATION) if pod.annotations else None
        if value is None and self._annotated and (deployment := self._deployment(pod)) is not None:
            value = deployment.metadata.annotations.get(ANNOTATION)
        return {"true": True, "false": False}.get(value or "")

    @cached_property
    def _annotated(self) -> bool:
        """Whether any Deployment has the annotation."""
        of_kind = self._snapshot.of("Deployment").values()
        return any(ANNOTATION in each.metadata.annotations for each in of_kind if isinstance(each, Deployment))

    def _is_held(self, pod: Pod, budgets: Budgets) -> bool:
        """Return whether nothing but a rolling update will ever move *pod*, and the policy wants one then."""
        if self._policy.surge is not Surging.BLOCKED:
            return False
        if self._policy.skip_single_replicas and single_replica(pod, self._counts) is not None:
            return True
        keys = budgets.of(pod)
        if len(keys) != 1 or pod.phase == "Pending":
            return len(keys) > 1 and pod.phase != "Pending"
        return not budgets.allowed[keys[0]] and why_never(keys[0], budgets.get(keys[0])) is not None

    def _obstacle(self, pods: list[Pod], rules: PodRules) -> str:
        """Return why no rolling update can move *pods* of one controller without downtime, or ""."""
        pod = pods[0]
        if pod.owner is None:
            return "it has no controller"
        top = self._top(pod)
        if top.kind != "Deployment":
            return _NEVER_EXTRA.get(top.kind, f"{top} is not a Deployment")
        if (deployment := self._deployment(pod)) is None:
            return f"{top} is not known, or may not be changed (deploy/components/surge)"
        if why := why_no_surge(deployment):
            return why
        if deployment.status is None and len(self._siblings(pod)) != replicas_of(deployment):
            return f"{top} is rolling out, or not all of its pods are available"
        if tolerated(DRAIN_TAINT, pod.cls.spec.tolerations):
            return f"it tolerates the taint {DRAIN_TAINT.key}: the new pod could come back to this node"
        if MIN_ON_DEMAND_REPLICAS in pod.annotations:
            return f"a rolling update moves all pods, and {MIN_ON_DEMAND_REPLICAS} keeps some on on-demand nodes"
        for sibling in self._siblings(pod):
            kept = [each for each in rules.blockers(sibling) if each.reason not in LIFTED]
            if kept:
                return f"a rolling update would also replace pod {sibling.key}: {kept[0].detail}"
        return ""

    def _volume(self, pod: Pod) -> str:
        """Return which volume of *pod* two nodes cannot attach at the same time, or ""."""
        for claim in pod.cls.claims:
            found = None if claim.ephemeral else find_claim(self._snapshot, pod.namespace, claim.name)
            if found is not None and MANY_NODES.isdisjoint(found.spec.access_modes):
                modes = ", ".join(found.spec.access_modes) or "unknown"
                return f"its PersistentVolumeClaim {claim.name} is {modes}: two nodes cannot attach its volume"
            if found is None and not claim.ephemeral:
                return f"its PersistentVolumeClaim {claim.name} is not known"
        if pod.cls.disks:
            return f"its volume {pod.cls.disks[0].name} names a disk: two nodes cannot attach it"
        return ""

    def _too_many(self, pods: list[Pod]) -> str:
        """Return that a rolling update would replace too many other pods, or ""."""
        deployment, limit = self._deployment(pods[0]), self._policy.surge_max_replicas
        replicas = 0 if deployment is None else replicas_of(deployment)
        if replicas <= limit or 2 * len(pods) > replicas:
            return ""
        return (
            f"a rolling update restarts {count(replicas, 'pod')} to move {len(pods)} of them, "
            f"and --surge-max-replicas is {limit}"
        )

    def _surge(self, pods: list[Pod]) -> NodeSurge:
        deployment = self._deployment(pods[0])
        assert deployment is not None
        here, node = {pod.key for pod in pods}, pods[0].node_name
        others = (self._replacements.of(pod) for pod in self._siblings(pods[0]) if pod.key not in here)
        renamed = (replace(pod, name=f"{pod.name} (restarted by the drain of {node})", uid="") for pod in others)
        extra = min(limits_of(deployment)[0], replicas_of(deployment))
        return NodeSurge(deployment, tuple(pods), tuple(renamed), extra)

    def _refused(self, pod: Pod, why: str) -> Blocker:
        detail = f'{ANNOTATION}: "true" asks for a rolling update, which cannot move it without downtime: {why}'
        return Blocker(Reason.NO_SURGE, detail, pod.key)

    def _deployment(self, pod: Pod) -> Deployment | None:
        top = self._top(pod)
        found = self._snapshot.of("Deployment").get(f"{top.namespace}/{top.name}")
        return found if isinstance(found, Deployment) and top.kind == "Deployment" else None

    def _top(self, pod: Pod) -> ControllerName:
        """Return the topmost controller, from the ReplicaSet if it is known, otherwise from the labels of *pod*."""
        owner = pod.owner
        below = None if owner is None else self._snapshot.of(owner.kind).get(f"{pod.namespace}/{owner.name}")
        if owner is not None and isinstance(below, Workload | StatefulSet):
            above = below.metadata.controller
            same = not below.metadata.uid or not owner.uid or below.metadata.uid == owner.uid
            if same and above is not None:
                return ControllerName(pod.namespace, above.kind, above.name)
        return controller_of(pod)

    def _siblings(self, pod: Pod) -> list[Pod]:
        """Return the pods with the same controller as *pod*, including *pod*, by name."""
        return self._by_owner.of(self._snapshot).get(owner_key(pod), [])


def _by_owner(snapshot: Snapshot) -> Mapping[OwnerKey, list[Pod]]:
    """Return the pods of each controller, by name."""
    by_owner: defaultdict[OwnerKey, list[Pod]] = defaultdict(list)
    for pod in sorted(owned_pods(snapshot), key=lambda pod: pod.key):
        by_owner[owner_key(pod)].append(pod)
    return by_owner
