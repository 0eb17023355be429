"""Obstacles that the owners of pods can remove, and copies of pods without them."""

import enum
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Final, TypeAlias

from msgspec.structs import replace

from predicates.objects import (
    Node,
    Pod,
)
from predicates.objects.pods import DO_NOT_DISRUPT
from predicates.scheduler import DEFAULT_NAME
from predicates.texts import shown
from rescheduler.planning.controllers import ControllerName, controller_of
from rescheduler.planning.outcome import Blocker, Reason
from rescheduler.planning.policy import Policy
from rescheduler.planning.pool_shares import MAX_SHARE, WHOLE
from rescheduler.planning.rules.candidates import SCALE_DOWN_DISABLED
from rescheduler.planning.rules.declared import Fate, PodRules
from rescheduler.planning.rules.gangs import gangs_of
from rescheduler.planning.rules.pod_rules import DO_NOT_EVICT_KARPENTER, SAFE_TO_EVICT
from rescheduler.planning.rules.pod_traits import (
    DO_NOT_DRAIN,
    DO_NOT_EVICT,
    PREFER_NO_EVICTION,
    REMOVAL_DISABLED,
    RESTRICT_SCALE_DOWN,
    SAFE_LOCAL_VOLUMES,
    local_volumes,
    needed_volumes,
)

#: The field of a pod.
GRACE: Final = "terminationGracePeriodSeconds"


class Trait(enum.StrEnum):
    """What pods of several controllers can have in common, so that one change removes their obstacles."""

    SELECTOR = "Selector"  #: what the pods demand of a node's labels
    TAINT = "Taint"  #: of the spot nodes, which the pods do not tolerate
    KEY = "Key"  #: of an annotation or label of the pods
    NODE_KEY = "NodeKey"  #: of an annotation or label of the nodes
    VOLUME = "Volume"  #: the name of a local volume


#: Traits with their texts, such as ``capacity-type=on-demand`` or ``spot=true:NoSchedule``.
Traits: TypeAlias = tuple[tuple[Trait, str], ...]


@dataclass(frozen=True, slots=True, order=True)
class Obstacle:
    """A property of pods or nodes that prevents drains, and that its owner can change."""

    controller: ControllerName
    reason: Reason
    description: str  #: the part to change, such as ``emptyDir cache``
    traits: Traits = ()  #: the obstacle is removed if all of these are; empty if only the owner can remove it

    def __str__(self) -> str:
        return f"{self.controller}: {self.description}"


#: Returns a pod without the obstacle, and the part to change.
_Lift: TypeAlias = Callable[[Pod, Policy], tuple[Pod, str]]


def _without_annotation(key: str, allows: str | None = None) -> _Lift:
    """Return the lift that removes the annotation, unless its value is *allows*."""

    def lift(pod: Pod, _: Policy) -> tuple[Pod, str]:
        others = {name: value for name, value in pod.annotations.items() if name != key or value == allows}
        return replace(pod, annotations=others), f"annotation {key}: {pod.annotations.get(key, '')}"

    return lift


def _without_label(key: str) -> _Lift:
    def lift(pod: Pod, _: Policy) -> tuple[Pod, str]:
        others = {name: value for name, value in pod.cls.labels.items() if name != key}
        return replace(pod, cls=replace(pod.cls, labels=others)), f"label {key}: {pod.cls.labels.get(key, '')}"

    return lift


def _removal_enabled(pod: Pod, policy: Policy) -> tuple[Pod, str]:
    """Return the pod without CAST AI's key, which may be an annotation, a label or both."""
    texts = []
    for present, without in ((pod.annotations, _without_annotation), (pod.cls.labels, _without_label)):
        if present.get(REMOVAL_DISABLED) == "true":
            pod, description = without(REMOVAL_DISABLED)(pod, policy)
            texts.append(description)
    return pod, ", ".join(texts)


def _without_karpenter_annotations(pod: Pod, policy: Policy) -> tuple[Pod, str]:
    """Return the pod without Karpenter's annotation, under its present and its former name."""
    texts = []
    for key in (DO_NOT_DISRUPT, DO_NOT_EVICT_KARPENTER):
        if key in pod.annotations:
            pod, description = _without_annotation(key)(pod, policy)
            texts.append(description)
    return pod, ", ".join(texts)


def _allow_eviction(description: str) -> _Lift:
    def lift(pod: Pod, _: Policy) -> tuple[Pod, str]:
        return replace(pod, annotations={**pod.annotations, SAFE_TO_EVICT: "true"}), description

    return lift


def _gang_member(pod: Pod, policy: Policy) -> tuple[Pod, str]:
    return _allow_eviction(f"member of {', '.join(map(str, gangs_of(pod)))}")(pod, policy)


def _local_storage(pod: Pod, policy: Policy) -> tuple[Pod, str]:
    names = ",".join(volume.name for volume in local_volumes(pod.cls))
    description = ", ".join(
        f"{'emptyDir' if volume.host_path is None else 'hostPath'} {volume.name}"
        for volume in needed_volumes(pod, policy.ignore_local_volumes)
    )
    return replace(pod, annotations={**pod.annotations, SAFE_LOCAL_VOLUMES: names}), description


def _other_scheduler(pod: Pod, policy: Policy) -> tuple[Pod, str]:
    spec = pod.cls.spec
    cls = replace(pod.cls, spec=replace(spec, scheduler_name=policy.scheduler_names[0]))
    return replace(pod, cls=cls), f"schedulerName {spec.scheduler_name or DEFAULT_NAME}"


def _with_shorter_grace(pod: Pod, policy: Policy) -> tuple[Pod, str]:
    seconds, longest = pod.cls.spec.termination_grace_period_seconds, int(policy.max_graceful_termination)
    if seconds is None or seconds <= longest:
        return pod, ""
    spec = replace(pod.cls.spec, termination_grace_period_seconds=longest)
    return replace(pod, cls=replace(pod.cls, spec=spec)), f"{GRACE}: {seconds}"


def _without_share(pod: Pod, _: Policy) -> tuple[Pod, str]:
    """Return the pod whose controller may have all replicas on one pool of spot nodes."""
    return replace(pod, annotations={**pod.annotations, MAX_SHARE: f"{WHOLE}%"}), MAX_SHARE


class Risk(enum.StrEnum):
    """What is lost for good when an obstacle is lifted and the pods are evicted, the worst first."""

    DATA = "data"
    POD = "pod"
    WORK = "work"

    @property
    def text(self) -> str:
        """Return the meaning, as a sentence part."""
        return _RISK_TEXTS[self]


_RISK_TEXTS: Final[Mapping[Risk, str]] = {
    Risk.DATA: "what the pods keep in local volumes is lost",
    Risk.POD: "nothing creates the pod again",
    Risk.WORK: "the pods start their work again, or never",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Remedy:
    """How an obstacle is removed, and what that may cost."""

    lift: _Lift | None = None  #: of pods; None: only nodes have the obstacle
    key: str = ""  #: the annotation or label of pods that is the obstacle
    node_key: str = ""  #: that of nodes
    flag: str = ""  #: the setting that removes the obstacles of all controllers
    risk: Risk | None = None  #: what is lost for good when the pods are evicted; None: nothing


def _annotation(key: str, allows: str | None = None) -> Remedy:
    return Remedy(lift=_without_annotation(key, allows), key=key)


#: What removes each obstacle that levers try, and that ``--what-if`` can remove.
REMEDIES: Final[Mapping[Reason, Remedy]] = {
    Reason.NOT_SAFE_TO_EVICT: _annotation(SAFE_TO_EVICT, allows="true"),
    Reason.DO_NOT_DISRUPT: Remedy(lift=_without_karpenter_annotations, key=DO_NOT_DISRUPT),
    Reason.DO_NOT_EVICT: _annotation(DO_NOT_EVICT),
    Reason.PREFER_NO_EVICTION: _annotation(PREFER_NO_EVICTION),
    Reason.RESTRICT_SCALE_DOWN: Remedy(lift=_without_label(RESTRICT_SCALE_DOWN), key=RESTRICT_SCALE_DOWN),
    Reason.REMOVAL_DISABLED: Remedy(lift=_removal_enabled, key=REMOVAL_DISABLED, node_key=REMOVAL_DISABLED),
    Reason.SCALE_DOWN_DISABLED: Remedy(node_key=SCALE_DOWN_DISABLED),
    Reason.DO_NOT_DISRUPT_NODE: Remedy(node_key=DO_NOT_DISRUPT),
    Reason.DO_NOT_DRAIN: Remedy(node_key=DO_NOT_DRAIN),
    Reason.NO_CONTROLLER: Remedy(lift=_allow_eviction("no controller"), risk=Risk.POD),
    Reason.EVICTION_RESPONDER: Remedy(lift=_allow_eviction("evictionResponders")),
    Reason.GANG_MEMBER: Remedy(lift=_gang_member, risk=Risk.WORK),
    Reason.RUNS_TO_COMPLETION: Remedy(lift=_allow_eviction("runs to completion"), risk=Risk.WORK),
    Reason.CUSTOM_CONTROLLER: Remedy(
        lift=_allow_eviction("owner that is not a built-in controller"),
        flag="--skip-nodes-with-custom-controller-pods=false",
        risk=Risk.POD,
    ),
    Reason.KUBE_SYSTEM: Remedy(
        lift=_allow_eviction("a kube-system pod without a PodDisruptionBudget"),
        flag="--skip-nodes-with-system-pods=false",
    ),
    Reason.LIQO_COMPONENT: Remedy(lift=_allow_eviction("Liqo component")),
    Reason.LOCAL_STORAGE: Remedy(lift=_local_storage, flag="--skip-nodes-with-local-storage=false", risk=Risk.DATA),
    Reason.OTHER_SCHEDULER: Remedy(lift=_other_scheduler),
    Reason.GRACE_PERIOD: Remedy(lift=_with_shorter_grace),
    Reason.SPOT_POOL_SHARE: Remedy(lift=_without_share),
}

#: The annotation or label that is the reason about a pod, and about a node.
POD_KEYS: Final[Mapping[Reason, str]] = {reason: each.key for reason, each in REMEDIES.items() if each.key}
NODE_KEYS: Final[Mapping[Reason, str]] = {reason: each.node_key for reason, each in REMEDIES.items() if each.node_key}

#: Reasons about nodes that can be lifted, each with the part to change.
NODE_OBSTACLES: Final[Mapping[Reason, str]] = {
    reason: f"annotation {'or label ' if reason is Reason.REMOVAL_DISABLED else ''}{key}"
    for reason, key in NODE_KEYS.items()
}

#: Reasons about pods that :func:`lifted` removes.
LIFTABLE: Final = frozenset(reason for reason, each in REMEDIES.items() if each.lift is not None)


def lifted(pod: Pod, reason: Reason, policy: Policy) -> Pod:
    """Return *pod* without the obstacle *reason*, which must be one of :data:`LIFTABLE`."""
    return _lift_of(reason)(pod, policy)[0]


def _lift_of(reason: Reason) -> _Lift:
    lift = REMEDIES[reason].lift
    assert lift is not None
    return lift


def node_without(node: Node, reason: Reason) -> Node:
    """Return *node* without the annotation or label that is the obstacle *reason*, one of :data:`NODE_KEYS`."""
    key, meta = NODE_KEYS[reason], node.metadata
    annotations = {name: value for name, value in meta.annotations.items() if name != key}
    labels = {name: value for name, value in meta.labels.items() if name != key}
    return replace(node, metadata=replace(meta, annotations=annotations, labels=labels))


def lift_all(pod: Pod, rules: PodRules) -> tuple[Pod, frozenset[Obstacle], Fate | None]:
    """Return *pod* without the obstacles to its eviction, these obstacles, and its fate without them.

    The fate is None if no change to the pod would allow its eviction.
    """
    obstacles = set[Obstacle]()
    while isinstance(result := rules.fate(pod), Blocker):
        if result.reason not in LIFTABLE or any(obstacle.reason is result.reason for obstacle in obstacles):
            return pod, frozenset(obstacles), None
        traits = _traits(pod, result.reason, rules.facts.policy)
        pod, description = _lift_of(result.reason)(pod, rules.facts.policy)
        obstacles.add(Obstacle(controller_of(pod), result.reason, shown(description), traits))
    return pod, frozenset(obstacles), result


def _traits(pod: Pod, reason: Reason, policy: Policy) -> Traits:
    """Return what *pod* can have in common with pods of other controllers that have the obstacle *reason*."""
    if reason is Reason.LOCAL_STORAGE:
        names = {volume.name for volume in needed_volumes(pod, policy.ignore_local_volumes)}
        return tuple((Trait.VOLUME, name) for name in sorted(names))
    return ((Trait.KEY, POD_KEYS[reason]),) if reason in POD_KEYS else ()
