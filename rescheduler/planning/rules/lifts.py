"""What lifts a reason: the change that removes the obstacle, and what that may cost. Each rule declares it.

Levers and ``--what-if`` try these changes (:mod:`rescheduler.planning.what_if.lifting`).
"""

import enum
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Final, TypeAlias

from msgspec.structs import replace

from predicates.objects import Pod
from predicates.objects.pods import DO_NOT_DISRUPT
from predicates.scheduler import DEFAULT_NAME
from rescheduler.planning.policy import Policy
from rescheduler.planning.rules.gangs import gangs_of
from rescheduler.planning.rules.pod_traits import (
    DO_NOT_EVICT_KARPENTER,
    REMOVAL_DISABLED,
    SAFE_LOCAL_VOLUMES,
    SAFE_TO_EVICT,
    local_volumes,
    needed_volumes,
)

#: The field of a pod.
GRACE: Final = "terminationGracePeriodSeconds"


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


#: Returns a pod without the obstacle, and the part to change.
PodLift: TypeAlias = Callable[[Pod, Policy], tuple[Pod, str]]


@dataclass(frozen=True, slots=True, kw_only=True)
class Remedy:
    """How an obstacle is removed, and what that may cost."""

    lift: PodLift | None = None  #: of pods; None: only nodes have the obstacle
    key: str = ""  #: the annotation or label that is the obstacle
    place: str = "annotation"  #: what the key of a node is
    flag: str = ""  #: the setting that removes the obstacles of all controllers
    risk: Risk | None = None  #: what is lost for good when the pods are evicted; None: nothing


def removing(key: str, allows: str | None = None) -> Remedy:
    """Return the remedy for an annotation of pods: to remove it, unless its value is *allows*."""
    return Remedy(lift=_without_annotation(key, allows), key=key)


def removing_label(key: str) -> Remedy:
    """Return the remedy for a label of pods."""
    return Remedy(lift=_without_label(key), key=key)


def removing_from_node(key: str, place: str = "annotation") -> Remedy:
    """Return the remedy for an annotation or label of nodes."""
    return Remedy(key=key, place=place)


def allowing(description: str, flag: str = "", risk: Risk | None = None) -> Remedy:
    """Return the remedy for pods that an annotation allows to evict."""
    return Remedy(lift=_allow_eviction(description), flag=flag, risk=risk)


def _without_annotation(key: str, allows: str | None = None) -> PodLift:
    """Return the lift that removes the annotation, unless its value is *allows*."""

    def lift(pod: Pod, _: Policy) -> tuple[Pod, str]:
        others = {name: value for name, value in pod.annotations.items() if name != key or value == allows}
        return replace(pod, annotations=others), f"annotation {key}: {pod.annotations.get(key, '')}"

    return lift


def _without_label(key: str) -> PodLift:
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


def _allow_eviction(description: str) -> PodLift:
    def lift(pod: Pod, _: Policy) -> tuple[Pod, str]:
        return replace(pod, annotations={**pod.annotations, SAFE_TO_EVICT: "true"}), description

    return lift


def _gang_member(pod: Pod, policy: Policy) -> tuple[Pod, str]:
    return _allow_eviction(f"member of {', '.join(map(str, gangs_of(pod)))}")(pod, policy)


def _without_local_storage(pod: Pod, policy: Policy) -> tuple[Pod, str]:
    names = ",".join(volume.name for volume in local_volumes(pod.cls))
    description = ", ".join(
        f"{'emptyDir' if volume.host_path is None else 'hostPath'} {volume.name}"
        for volume in needed_volumes(pod, policy.ignore_local_volumes)
    )
    return replace(pod, annotations={**pod.annotations, SAFE_LOCAL_VOLUMES: names}), description


def _with_scheduler(pod: Pod, policy: Policy) -> tuple[Pod, str]:
    spec = pod.cls.spec
    cls = replace(pod.cls, spec=replace(spec, scheduler_name=policy.scheduler_names[0]))
    return replace(pod, cls=cls), f"schedulerName {spec.scheduler_name or DEFAULT_NAME}"


def _with_shorter_grace(pod: Pod, policy: Policy) -> tuple[Pod, str]:
    seconds, longest = pod.cls.spec.termination_grace_period_seconds, int(policy.max_graceful_termination)
    if seconds is None or seconds <= longest:
        return pod, ""
    spec = replace(pod.cls.spec, termination_grace_period_seconds=longest)
    return replace(pod, cls=replace(pod.cls, spec=spec)), f"{GRACE}: {seconds}"


NO_KARPENTER_OPT_OUT: Final = Remedy(lift=_without_karpenter_annotations, key=DO_NOT_DISRUPT)
NO_CAST_AI_OPT_OUT: Final = Remedy(lift=_removal_enabled, key=REMOVAL_DISABLED)
NO_LOCAL_STORAGE: Final = Remedy(
    lift=_without_local_storage, flag="--skip-nodes-with-local-storage=false", risk=Risk.DATA
)
LEAVING_ITS_GANG: Final = Remedy(lift=_gang_member, risk=Risk.WORK)
OUR_SCHEDULER: Final = Remedy(lift=_with_scheduler)
SHORTER_GRACE: Final = Remedy(lift=_with_shorter_grace)
