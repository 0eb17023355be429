"""Properties of pods that rules read: who brings them back, their data on the node, opt-outs, and failures of Jobs."""

import math
import re
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from datetime import datetime, timedelta
from typing import Final, TypeAlias

from predicates.objects import Node, NodeSelectorTerm, OwnerReference, Pod, PodClass, Volume
from predicates.texts import quoted, shown
from rescheduler import durations
from rescheduler.planning.controllers import Controller, ControllerState, Disruption, JobFacts
from rescheduler.planning.forms import utc
from rescheduler.planning.outcome import Blocker, Reason
from rescheduler.planning.policy import Destination, MoveJobs, Policy

# Properties of pods: who brings them back, and the data that they store on the node.

SYSTEM: Final = "kube-system"  #: the namespace of the system's pods
MIRROR: Final = "kubernetes.io/config.mirror"
#: Cluster Autoscaler (``utils/pod/pod.go``): the pod is treated like the pod of a DaemonSet.
DAEMONSET_POD: Final = "cluster-autoscaler.kubernetes.io/daemonset-pod"
#: The annotations of pods that belong to their node whatever their owner is.
OF_NODE_ANNOTATIONS: Final = (MIRROR, DAEMONSET_POD)
SAFE_TO_EVICT: Final = "cluster-autoscaler.kubernetes.io/safe-to-evict"
SAFE_LOCAL_VOLUMES: Final = "cluster-autoscaler.kubernetes.io/safe-to-evict-local-volumes"


#: Kinds that run a pod on each node, in any API group: OpenKruise has a DaemonSet, Datadog an ExtendedDaemonSet.
_OF_NODES: Final = frozenset({"DaemonSet", "ExtendedDaemonSet", "ExtendedDaemonSetReplicaSet"})

#: The API group of each built-in kind of controller. References without a group are taken for built-in kinds.
_BUILT_IN: Final[Mapping[str, str]] = {
    "Deployment": "apps",
    "ReplicaSet": "apps",
    "StatefulSet": "apps",
    "DaemonSet": "apps",
    "ReplicationController": "",
    "Job": "batch",
}
#: The former API group of some of these kinds.
_FORMER_GROUP: Final = "extensions"

_ORDINAL: Final = re.compile(r"-[0-9]{1,4}")


def belongs_to_node(pod: Pod) -> bool:
    """Return whether *pod* belongs to its node: it is ignored, and ends with the node.

    It is a mirror pod, it belongs to a DaemonSet or to a kind like it, or to the Node itself, it says so in an
    annotation, or an operator created it for this node, without a scheduler: its owner is a custom resource.
    """
    return bool(pod.annotations and is_annotated_as_of_node(pod)) or is_owned_by_node(pod) or is_mount_pod(pod)


def is_annotated_as_of_node(pod: Pod) -> bool:
    """Return whether annotations say that *pod* belongs to its node."""
    return MIRROR in pod.annotations or pod.annotations.get(DAEMONSET_POD) == "true"


#: The namespaces in which CSI drivers create pods that mount a volume for the workloads of one node.
_OF_DRIVERS: Final = frozenset({"mount-s3", "kube-system"})
_CSI_NODE: Final = "CSINode"
_HOST: Final = "kubernetes.io/hostname"


def is_mount_pod(pod: Pod) -> bool:
    """Return whether a CSI driver created *pod* for the volumes of its node: it ends with the last pod that uses it."""
    if pod.owner is not None and pod.owner.kind != _CSI_NODE:
        return False
    of_driver = pod.namespace in _OF_DRIVERS
    return (of_driver and pod.assigned) or ((of_driver or _is_of_driver(pod)) and is_for_one_node(pod.cls))


def may_be_mount_pod(cls: PodClass) -> bool:
    """Return whether pods of this class may be what :func:`is_mount_pod` says."""
    return cls.namespace in _OF_DRIVERS or is_for_one_node(cls)


def is_for_one_node(cls: PodClass) -> bool:
    """Return whether pods of this class require the node with one name."""
    affinity = cls.spec.affinity.node_affinity if cls.spec.affinity is not None else None
    terms = affinity.required.node_selector_terms if affinity is not None and affinity.required is not None else ()
    names = {_named(term) for term in terms}
    return _HOST in cls.spec.node_selector or (len(names) == 1 and "" not in names)


def _named(term: NodeSelectorTerm) -> str:
    """Return the only node that *term* may match, by its name or its label, or ""."""
    rules = (*term.match_fields, *term.match_expressions)
    single = (rule for rule in rules if rule.operator == "In" and len(rule.values) == 1)
    return next((rule.values[0] for rule in single if rule.key in ("metadata.name", _HOST)), "")


def _is_of_driver(pod: Pod) -> bool:
    """Return whether the owner or a label of *pod* names a CSI driver, such as ``s3.csi.aws.com/volume-name``."""
    return pod.owner is not None or any(".csi." in key.partition("/")[0] for key in pod.cls.labels if "/" in key)


def is_owned_by_node(pod: Pod) -> bool:
    """Return whether *pod* belongs to its node because of its owner."""
    owner = pod.owner
    if owner is None:
        return False
    return owner.kind in _OF_NODES or _is_node(owner) or (pod.assigned and _is_custom_resource(owner))


def may_be_of_node(owner: OwnerReference | None) -> bool:
    """Return whether pods of *owner* may belong to their node because of it; see :func:`is_owned_by_node`."""
    return owner is not None and (owner.kind in _OF_NODES or not is_built_in(owner))


def is_expendable(cls: PodClass, cutoff: int) -> bool:
    """Return whether pods of this class have a priority below *cutoff*, so that they end with their node."""
    return is_below(cls.spec.priority, cutoff)


def is_below(priority: int | None, cutoff: float) -> bool:
    """Return whether *priority* is below *cutoff*.

    As in Cluster Autoscaler (``core/utils/expendable.go``), a pod without a priority is not expendable.
    """
    return priority is not None and priority < cutoff


def yields_room(cls: PodClass, policy: Policy) -> bool:
    """Return whether pods of this class give their room to others: they are expendable, or have a negative priority.

    If pods may go to any node, none does.
    """
    return is_below(cls.spec.priority, yielding_below(policy))


def yielding_below(policy: Policy) -> float:
    """Return the priority below which pods yield their room."""
    to_spot = policy.destination is Destination.SPOT
    return max(policy.expendable_pods_priority_cutoff, 0) if to_spot else -math.inf


def ends_with_node(pod: Pod, policy: Policy) -> bool:
    """Return whether *pod* belongs to its node, is expendable, or is a pod of the system that stays."""
    return (
        belongs_to_node(pod)
        or is_expendable(pod.cls, policy.expendable_pods_priority_cutoff)
        or (policy.system_pods_stay and pod.namespace == SYSTEM)
    )


def is_built_in(owner: OwnerReference) -> bool:
    """Return whether *owner* is a controller of Kubernetes, not a custom resource that may have the same kind."""
    group = owner.api_version.rpartition("/")[0]
    return owner.kind in _BUILT_IN and group in ("", _BUILT_IN[owner.kind], _FORMER_GROUP)


def is_custom(owner: OwnerReference | None) -> bool:
    """Return whether *owner* is not a controller of Kubernetes. A pod without an owner has none."""
    return owner is not None and not is_built_in(owner)


#: The kinds of Kubernetes whose pods are followed after their eviction.
_FOLLOWED: Final = frozenset({"Deployment", "ReplicaSet", "StatefulSet", "ReplicationController", "Job"})


def named_controller(namespace: str, reference: OwnerReference) -> Controller:
    """Return the controller in *reference*. Its kind includes the API group if a custom kind has a built-in name."""
    if is_built_in(reference):
        return Controller(namespace, reference.kind, reference.name, reference.uid)
    group = reference.api_version.rpartition("/")[0]
    kind = f"{reference.kind}.{group}" if reference.kind in _FOLLOWED else reference.kind
    return Controller(namespace, kind, reference.name, reference.uid, reference.api_version)


def _is_custom_resource(owner: OwnerReference) -> bool:
    """Return whether *owner* is a custom resource: their API groups have a dot, which those of Kubernetes need not."""
    return "." in owner.api_version.rpartition("/")[0] and not is_built_in(owner)


def _is_node(owner: OwnerReference) -> bool:
    return owner.kind == "Node" and owner.api_version in ("", "v1")


def is_job(owner: OwnerReference | None) -> bool:
    """Return whether *owner* is a Kubernetes Job, not a custom resource of the same kind."""
    return owner is not None and owner.kind == "Job" and is_built_in(owner)


def is_stateful(owner: OwnerReference | None) -> bool:
    """Return whether *owner* is a Kubernetes StatefulSet, not a custom resource of the same kind."""
    return owner is not None and owner.kind == "StatefulSet" and is_built_in(owner)


def ends_by_itself(cls: PodClass) -> bool:
    """Return whether the kubelet does not restart pods of this class after success."""
    return cls.spec.restart_policy not in ("", "Always")


def runs_to_completion(pod: Pod) -> bool:
    """Return whether *pod* is not restarted and its owner is no Job: an eviction ends its run.

    The other built-in controllers create only pods that are restarted. A program may still name one as the owner of its
    own pods, so that they end with it: Flink's TaskManagers name a Deployment.
    """
    return ends_by_itself(pod.cls) and pod.owner is not None and not is_job(pod.owner)


def keeps_its_identity(pod: Pod) -> bool:
    """Return whether *pod* of an owner that is not built in has an ordinal name or persistent volumes.

    Such pods are not interchangeable: their owner replaces them one at a time, like a StatefulSet.
    """
    if pod.owner is None or is_built_in(pod.owner):
        return False
    return bool(pod.cls.claims) or _ORDINAL.search(pod.name, max(0, pod.name.rfind("-"))) is not None


def local_volumes(cls: PodClass) -> list[Volume]:
    """Return the volumes of pods of this class whose data is lost when a pod leaves its node."""
    return [volume for volume in cls.spec.volumes if _is_local(volume)]


def needed_volumes(pod: Pod, ignored: Collection[str] = ()) -> list[Volume]:
    """Return the local volumes of *pod* whose loss neither an annotation nor their name allows (*ignored*)."""
    allowed = {*expendable_volumes(pod), *ignored}
    return [volume for volume in local_volumes(pod.cls) if volume.name not in allowed]


def expendable_volumes(pod: Pod) -> list[str]:
    """Return the names of the local volumes whose loss an annotation allows."""
    return pod.annotations.get(SAFE_LOCAL_VOLUMES, "").split(",")


def _is_local(volume: Volume) -> bool:
    if volume.host_path is not None:
        return True
    return volume.empty_dir is not None and volume.empty_dir.medium != "Memory"


# Annotations and labels with which users and other tools exempt nodes and pods from drains. Pure.

#: Our own annotation: ``true``, or a duration from the creation of the node or the start of the pod. ``false`` has no
#: effect, and an invalid value counts as ``true``.
DO_NOT_DRAIN: Final = "spot-rescheduler/do-not-drain"
DO_NOT_EVICT: Final = "spot-rescheduler/do-not-evict"

#: The former name of Karpenter's ``do-not-disrupt``, in its v1alpha5 API.
DO_NOT_EVICT_KARPENTER: Final = "karpenter.sh/do-not-evict"
#: Descheduler: its evictor only checks that the annotation exists.
PREFER_NO_EVICTION: Final = "descheduler.alpha.kubernetes.io/prefer-no-eviction"
#: Spot Ocean: a label of pods.
RESTRICT_SCALE_DOWN: Final = "spotinst.io/restrict-scale-down"
#: CAST AI: an annotation or a label, of nodes and of pods.
REMOVAL_DISABLED: Final = "autoscaling.cast.ai/removal-disabled"

#: Returns whether an instant has been reached.
Reached: TypeAlias = Callable[[datetime], bool]


def node_opt_out(node: Node, since: datetime | None, reached: Reached) -> Blocker | None:
    """Return a blocker if *node* is exempt from drains, or None. *since* is its creation time."""
    value = node.metadata.annotations.get(DO_NOT_DRAIN)
    if value is not None and (why := _own_opt_out(DO_NOT_DRAIN, value, since, reached)):
        return Blocker(Reason.DO_NOT_DRAIN, why)
    if kind := _with_removal_disabled(node.metadata.annotations.get, node.metadata.labels.get):
        return Blocker(Reason.REMOVAL_DISABLED, f'it has the {kind} {REMOVAL_DISABLED}: "true"')
    return None


def annotated_opt_out(pod: Pod, since: datetime | None, reached: Reached) -> Blocker | None:
    """Return a blocker if an annotation exempts *pod* from evictions, or None. *since* is its start time."""
    value = pod.annotations.get(DO_NOT_EVICT)
    if value is not None and (why := _own_opt_out(DO_NOT_EVICT, value, since, reached)):
        return Blocker(Reason.DO_NOT_EVICT, why)
    if pod.annotations.get(PREFER_NO_EVICTION, "false") != "false":
        return Blocker(Reason.PREFER_NO_EVICTION, f"it has the annotation {PREFER_NO_EVICTION}")
    if pod.annotations.get(REMOVAL_DISABLED) == "true":
        return Blocker(Reason.REMOVAL_DISABLED, f'it has the annotation {REMOVAL_DISABLED}: "true"')
    return None


def labeled_opt_out(cls: PodClass) -> Blocker | None:
    """Return a blocker if a label exempts the pods of a class from evictions, or None."""
    if cls.labels.get(RESTRICT_SCALE_DOWN) == "true":
        return Blocker(Reason.RESTRICT_SCALE_DOWN, f'it has the label {RESTRICT_SCALE_DOWN}: "true"')
    if cls.labels.get(REMOVAL_DISABLED) == "true":
        return Blocker(Reason.REMOVAL_DISABLED, f'it has the label {REMOVAL_DISABLED}: "true"')
    return None


def _with_removal_disabled(annotation: Callable[[str], str | None], label: Callable[[str], str | None]) -> str:
    if annotation(REMOVAL_DISABLED) == "true":
        return "annotation"
    return "label" if label(REMOVAL_DISABLED) == "true" else ""


def _own_opt_out(key: str, value: str, since: datetime | None, reached: Reached) -> str:
    """Return the reason if our annotation *key* applies now, or ""."""
    if value == "false":
        return ""
    if value == "true":
        return f'it has the annotation {key}: "true"'
    try:
        period = timedelta(seconds=durations.seconds(value))
    except ValueError:
        return f'it has the annotation {key}: {quoted(value)}, expected "true", "false" or a duration such as 4h'
    if since is None:
        return f"it has the annotation {key}: {value}, and its start is not known"
    return "" if reached(since + period) else f"{key}: {value} ends at {utc(since + period)}"


# Checks whether evictions could make a Job fail.
#
# The Job controller (``pkg/controller/job/job_controller.go``) counts an evicted pod as failed. It fails the Job when
# there are more failures than ``backoffLimit``. It fails an index of an Indexed Job when a pod fails whose index
# already has ``backoffLimitPerIndex`` or more failures.

#: Python refuses to parse numbers of more than 4,300 digits; the Job controller those beyond 32 bits.
_INT32_DIGITS: Final = 10
#: The annotation on pods of Jobs with ``backoffLimitPerIndex``: the earlier failures of their index.
INDEX_FAILURES: Final = "batch.kubernetes.io/job-index-failure-count"

_ADVICE: Final = (
    "a podFailurePolicy that ignores the condition DisruptionTarget, or --move-jobs=always, allows eviction"
)


def pods_by_job(pods: Iterable[Pod]) -> dict[str, list[Pod]]:
    """Group the Job pods among a node's *pods* by the UID of their Job. Pods that are being deleted are left out."""
    by_uid: dict[str, list[Pod]] = {}
    for pod in pods:
        if pod.owner is not None and is_job(pod.owner) and not pod.cls.terminating:
            by_uid.setdefault(pod.owner.uid, []).append(pod)
    return by_uid


def job_blockers(states: Iterable[ControllerState], pods: Iterable[Pod], move_jobs: MoveJobs) -> tuple[Blocker, ...]:
    """Return a blocker for each Job in *states* that could fail if *pods*, all from one node, were evicted."""
    by_job = pods_by_job(pods)
    facts = ((state.job, by_job.get(state.controller.uid, ())) for state in states)
    blockers = (job_blocker(job, job_pods, move_jobs) for job, job_pods in facts if job is not None)
    return tuple(blocker for blocker in blockers if blocker is not None)


def job_blocker(facts: JobFacts, pods: Sequence[Pod], move_jobs: MoveJobs) -> Blocker | None:
    """Return a blocker if evicting *pods*, all of one Job and on one node, could make the Job fail, or None.

    :attr:`MoveJobs.NEVER` is handled by a rule in ``pod_rules``, because it does not depend on the Job's state.
    """
    if not pods or move_jobs is not MoveJobs.TOLERANT:
        return None
    if facts.managed_by:
        detail = (
            f"its Job is managed by {shown(facts.managed_by)} (spec.managedBy): it is not known whether that replaces "
            "an evicted pod; --move-jobs=always allows eviction"
        )
        return Blocker(Reason.JOB_WOULD_FAIL, detail, pods[0].key)
    if facts.disruption is Disruption.IGNORED:
        return None
    if facts.disruption is Disruption.FAILS:
        detail = "its Job has a podFailurePolicy with a FailJob or FailIndex rule that an eviction may match"
        return Blocker(Reason.JOB_WOULD_FAIL, f"{detail}; {_ADVICE}", pods[0].key)
    remaining = facts.backoff_limit - facts.failures
    if remaining < len(pods):
        detail = (
            f"its Job fails after more than {facts.backoff_limit} pod failures (backoffLimit): it has "
            f"{facts.failures}, and {len(pods)} of its pods are on this node"
        )
        return Blocker(Reason.JOB_WOULD_FAIL, f"{detail}; {_ADVICE}", pods[0].key)
    limit = facts.backoff_limit_per_index
    pod = None if limit is None else next((pod for pod in pods if index_failures(pod) >= limit), None)
    if pod is None:
        return None
    detail = f"its next failure fails its index of the Job: {index_failures(pod)} of {limit} (backoffLimitPerIndex)"
    return Blocker(Reason.JOB_WOULD_FAIL, f"{detail}; {_ADVICE}", pod.key)


def index_failures(pod: Pod) -> int:
    """Return the number of earlier failures of the pod's index. As in the Job controller, it is 0 if invalid."""
    text = pod.annotations.get(INDEX_FAILURES, "")
    return int(text) if text.isascii() and text.isdigit() and len(text) <= _INT32_DIGITS else 0
