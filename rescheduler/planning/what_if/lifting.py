"""Obstacles that the owners of pods can remove, and copies of pods without them."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Final, TypeAlias

from msgspec.structs import replace

from predicates.objects import Pod
from rescheduler.planning.controller_names import ControllerName, controller_of
from rescheduler.planning.outcome import Blocker, Reason
from rescheduler.planning.policy import DEFAULT_SCHEDULER, Policy
from rescheduler.planning.rules.candidates import SCALE_DOWN_DISABLED
from rescheduler.planning.rules.declared import Fate, PodRules
from rescheduler.planning.rules.gangs import gang_of
from rescheduler.planning.rules.opt_outs import (
    DO_NOT_DRAIN,
    DO_NOT_EVICT,
    PREFER_NO_EVICTION,
    REMOVAL_DISABLED,
    RESTRICT_SCALE_DOWN,
)
from rescheduler.planning.rules.pod_rules import DO_NOT_DISRUPT, DO_NOT_EVICT_KARPENTER, SAFE_TO_EVICT
from rescheduler.planning.rules.pod_traits import SAFE_LOCAL_VOLUMES, local_volumes, needed_volumes


@dataclass(frozen=True, slots=True, order=True)
class Obstacle:
    """A property of pods or nodes that prevents drains, and that its owner can change."""

    controller: ControllerName
    reason: Reason
    description: str  #: the part to change, such as ``emptyDir cache``
    taints: str = ""  #: the taints of the spot nodes, if the pods lack only a toleration of them
    volumes: tuple[str, ...] = ()  #: the names of the local volumes that would be lost

    def __str__(self) -> str:
        return f"{self.controller}: {self.description}"


#: Returns a pod without the obstacle, and the part to change.
_Lift: TypeAlias = Callable[[Pod, Policy], tuple[Pod, str]]


def _without_annotation(key: str) -> _Lift:
    def lift(pod: Pod, _: Policy) -> tuple[Pod, str]:
        others = {name: value for name, value in pod.annotations.items() if name != key}
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
    return _allow_eviction(f"member of {gang_of(pod)}")(pod, policy)


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
    return replace(pod, cls=cls), f"schedulerName {spec.scheduler_name or DEFAULT_SCHEDULER}"


_LIFTS: Final[Mapping[Reason, _Lift]] = {
    Reason.NOT_SAFE_TO_EVICT: _without_annotation(SAFE_TO_EVICT),
    Reason.DO_NOT_DISRUPT: _without_karpenter_annotations,
    Reason.DO_NOT_EVICT: _without_annotation(DO_NOT_EVICT),
    Reason.PREFER_NO_EVICTION: _without_annotation(PREFER_NO_EVICTION),
    Reason.RESTRICT_SCALE_DOWN: _without_label(RESTRICT_SCALE_DOWN),
    Reason.REMOVAL_DISABLED: _removal_enabled,
    Reason.NO_CONTROLLER: _allow_eviction("no controller"),
    Reason.EVICTION_RESPONDER: _allow_eviction("evictionResponders"),
    Reason.GANG_MEMBER: _gang_member,
    Reason.RUNS_TO_COMPLETION: _allow_eviction("runs to completion"),
    Reason.CUSTOM_CONTROLLER: _allow_eviction("owner that is not a built-in controller"),
    Reason.KUBE_SYSTEM: _allow_eviction("a kube-system pod without a PodDisruptionBudget"),
    Reason.LIQO_COMPONENT: _allow_eviction("Liqo component"),
    Reason.LOCAL_STORAGE: _local_storage,
    Reason.OTHER_SCHEDULER: _other_scheduler,
}

#: Reasons about nodes that can be lifted, each with the part to change.
NODE_OBSTACLES: Final[Mapping[Reason, str]] = {
    Reason.SCALE_DOWN_DISABLED: f"annotation {SCALE_DOWN_DISABLED}",
    Reason.DO_NOT_DISRUPT_NODE: f"annotation {DO_NOT_DISRUPT}",
    Reason.DO_NOT_DRAIN: f"annotation {DO_NOT_DRAIN}",
    Reason.REMOVAL_DISABLED: f"annotation or label {REMOVAL_DISABLED}",
}

#: Reasons about pods that :func:`lifted` removes.
LIFTABLE: Final = frozenset(_LIFTS)


def lifted(pod: Pod, reason: Reason, policy: Policy) -> Pod:
    """Return *pod* without the obstacle *reason*, which must be one of :data:`LIFTABLE`."""
    return _LIFTS[reason](pod, policy)[0]


def lift_all(pod: Pod, rules: PodRules) -> tuple[Pod, frozenset[Obstacle], Fate | None]:
    """Return *pod* without the obstacles to its eviction, these obstacles, and its fate without them.

    The fate is None if no change to the pod would allow its eviction.
    """
    obstacles = set[Obstacle]()
    while isinstance(result := rules.fate(pod), Blocker):
        lift = _LIFTS.get(result.reason)
        if lift is None or any(obstacle.reason is result.reason for obstacle in obstacles):
            return pod, frozenset(obstacles), None
        policy, volumes = rules.facts.policy, tuple[str, ...]()
        if result.reason is Reason.LOCAL_STORAGE:
            volumes = tuple(sorted(volume.name for volume in needed_volumes(pod, policy.ignore_local_volumes)))
        pod, description = lift(pod, policy)
        obstacles.add(Obstacle(controller_of(pod), result.reason, description, volumes=volumes))
    return pod, frozenset(obstacles), result
