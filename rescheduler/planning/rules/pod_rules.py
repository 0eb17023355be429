"""The rules for the pods of a drained node, in the order in which they are applied, each with its reason and text.

Each rule declares what it reads (:mod:`rescheduler.planning.rules.declared`); nothing else has to be changed for a new
one. They follow Cluster Autoscaler's rules (``simulator/drainability/rules``), so that annotations have the same
meaning in both.
"""

from datetime import timedelta
from typing import Final

from predicates.objects import IMPERATIVE_EVICTION, Pod, PodClass
from predicates.objects.pods import DO_NOT_DISRUPT
from predicates.scheduler import DEFAULT_NAME
from predicates.texts import shown
from rescheduler import durations
from rescheduler.planning.controllers import controller_of
from rescheduler.planning.forms import instant, utc
from rescheduler.planning.outcome import Blocker, Reason
from rescheduler.planning.policy import Destination, MoveJobs, Now, Policy
from rescheduler.planning.rules import lifts
from rescheduler.planning.rules.declared import Facts, Fate, RuleResult, class_rule, declared_in, pod_rule, timed_rule
from rescheduler.planning.rules.gangs import GANG_ANNOTATIONS, has_class_gang
from rescheduler.planning.rules.lifts import Risk
from rescheduler.planning.rules.minimum import single_replica
from rescheduler.planning.rules.pod_traits import (
    DO_NOT_EVICT,
    DO_NOT_EVICT_KARPENTER,
    OF_NODE_ANNOTATIONS,
    PREFER_NO_EVICTION,
    REMOVAL_DISABLED,
    RESTRICT_SCALE_DOWN,
    SAFE_LOCAL_VOLUMES,
    SAFE_TO_EVICT,
    SYSTEM,
    annotated_opt_out,
    ends_by_itself,
    expendable_volumes,
    is_annotated_as_of_node,
    is_custom,
    is_expendable,
    is_job,
    is_mount_pod,
    is_owned_by_node,
    labeled_opt_out,
    local_volumes,
    may_be_mount_pod,
    may_be_of_node,
    needed_volumes,
    runs_to_completion,
)

#: The label of Liqo's virtual kubelets, and the prefix of the namespaces that Liqo creates for them and its gateways.
LIQO_COMPONENT: Final = "offloading.liqo.io/component"
LIQO_TENANT: Final = "liqo-tenant-"

NOT_RECREATED: Final = "no controller would recreate it"

#: A pod that still exists this long after its deletionTimestamp (which includes the grace period) is stuck.
OVERDUE: Final = timedelta(seconds=30)


def other_scheduler(cls: PodClass, policy: Policy) -> Blocker | None:
    """Block pods of other schedulers: plans predict placements by the default scheduler's rules only."""
    names, name = policy.scheduler_names, shown(cls.spec.scheduler_name or DEFAULT_NAME)
    if not names:
        return None
    unknown = next((each.name for each in policy.unknown_plugins if each.concerns(cls, name)), None)
    if unknown is not None:
        detail = (
            f"its scheduler {name} runs {unknown}, whose rules are not known; --assume-plugins={unknown} allows "
            "eviction if it never rejects a node"
        )
        return Blocker(Reason.OTHER_SCHEDULER, detail)
    if name in names or name in policy.profiles:
        return None
    detail = f"its scheduler is {name}; --scheduler-name={name} allows eviction if it uses the default rules"
    return Blocker(Reason.OTHER_SCHEDULER, detail)


@class_rule()
def _system_pod(cls: PodClass, policy: Policy) -> RuleResult:
    return Fate.STAYS if policy.system_pods_stay and cls.namespace == SYSTEM else None


@pod_rule(Reason.UNREADABLE_OBJECT, owned=lambda owner: owner is None)
def _unreadable_owner(pod: Pod, _: Facts) -> RuleResult:
    """Block pods whose owner cannot be read: whether they come back cannot be known. Its texts reach no request."""
    if not pod.owner_fault:
        return None
    return Blocker(Reason.UNREADABLE_OBJECT, f"its owner cannot be read: ownerReferences: {pod.owner_fault}")


@pod_rule(annotations=OF_NODE_ANNOTATIONS)
def _annotated_as_of_node(pod: Pod, _: Facts) -> RuleResult:
    return Fate.STAYS if is_annotated_as_of_node(pod) else None


@pod_rule(owned=may_be_of_node)
def _node_owned(pod: Pod, _: Facts) -> RuleResult:
    return Fate.STAYS if is_owned_by_node(pod) else None


@pod_rule(when=may_be_mount_pod)
def _mount_pod(pod: Pod, _: Facts) -> RuleResult:
    return Fate.STAYS if is_mount_pod(pod) else None


@timed_rule(Reason.POD_STUCK_TERMINATING, Reason.POD_TERMINATING, when=lambda cls: cls.terminating)
def _terminating(pod: Pod, facts: Facts, now: Now) -> RuleResult:
    if is_expendable(pod.cls, facts.policy.expendable_pods_priority_cutoff):
        return Fate.STAYS
    if pod.uid in facts.evicted:
        return Fate.LEAVES
    ends = instant(pod.deletion_timestamp)
    if ends is not None and now.passed(ends + OVERDUE):
        detail = f"it should have terminated by {utc(ends)}; check its finalizers and the node's kubelet"
        return Blocker(Reason.POD_STUCK_TERMINATING, detail)
    if facts.waits_for_terminating:
        return Fate.LEAVES
    until = "" if ends is None else f" (grace period until {utc(ends)})"
    return Blocker(Reason.POD_TERMINATING, f"it is being deleted{until}; the drain waits until it is gone")


@pod_rule(
    Reason.LOCAL_STORAGE,
    when=lambda cls: bool(cls.spec.volumes),
    enabled=lambda policy: policy.keep_any_local_volume,
)
def _any_local_volume(pod: Pod, _: Facts) -> RuleResult:
    """Block pods with hostPath and emptyDir volumes of any medium, unless an annotation allows their loss."""
    if pod.annotations.get(SAFE_TO_EVICT) == "true":
        return None
    local = (volume for volume in pod.cls.spec.volumes if volume.host_path is not None or volume.empty_dir is not None)
    expendable = expendable_volumes(pod)
    if not (names := [volume.name for volume in local if volume.name not in expendable]):
        return None
    detail = f"local storage {shown(', '.join(names))} would be lost; {SAFE_LOCAL_VOLUMES} allows eviction"
    return Blocker(Reason.LOCAL_STORAGE, detail)


@pod_rule(Reason.NAMESPACE_EXCLUDED, enabled=lambda policy: not policy.namespaces.everything)
def _namespace_excluded(pod: Pod, facts: Facts) -> RuleResult:
    scope = facts.policy.namespaces
    if not (why := scope.why_excluded(pod.namespace, facts.namespace_labels(pod.namespace))):
        return None
    return Blocker(Reason.NAMESPACE_EXCLUDED, why)


@class_rule()
def _expendable(cls: PodClass, policy: Policy) -> RuleResult:
    """Ignore expendable pods: they neither move nor keep their node, and no opt-out or budget counts for them."""
    return Fate.STAYS if is_expendable(cls, policy.expendable_pods_priority_cutoff) else None


@pod_rule(Reason.NOT_SAFE_TO_EVICT, annotations=[SAFE_TO_EVICT], lifted_by=lifts.removing(SAFE_TO_EVICT, allows="true"))
def _not_safe_to_evict(pod: Pod, _: Facts) -> RuleResult:
    value = pod.annotations.get(SAFE_TO_EVICT)
    if value == "false":
        return Blocker(Reason.NOT_SAFE_TO_EVICT, f'it has the annotation {SAFE_TO_EVICT}: "false"')
    if value == "on-completion":
        return Blocker(Reason.NOT_SAFE_TO_EVICT, f"it must run to completion ({SAFE_TO_EVICT}: on-completion)")
    return None


@timed_rule(
    Reason.DO_NOT_DISRUPT,
    annotations=(DO_NOT_DISRUPT, DO_NOT_EVICT_KARPENTER),
    lifted_by=lifts.NO_KARPENTER_OPT_OUT,
)
def _do_not_disrupt(pod: Pod, _: Facts, now: Now) -> RuleResult:
    """Keep pods as Karpenter does (``pkg/utils/pod/scheduling.go``, IsDoNotDisruptActive)."""
    if pod.annotations.get(DO_NOT_EVICT_KARPENTER) == "true":
        return Blocker(Reason.DO_NOT_DISRUPT, f'it has the annotation {DO_NOT_EVICT_KARPENTER}: "true"')
    value = pod.annotations.get(DO_NOT_DISRUPT)
    if value is None:
        return None
    if value == "true":
        return Blocker(Reason.DO_NOT_DISRUPT, f'it has the annotation {DO_NOT_DISRUPT}: "true"')
    period, since = durations.period(value), instant(pod.start_time)
    if period is None or period <= timedelta():
        return None
    if not pod.start_time:
        return Blocker(
            Reason.DO_NOT_DISRUPT, f"{DO_NOT_DISRUPT}: {value} begins when it starts, and it has not started"
        )
    if since is None or now.reached(since + period):
        return None
    return Blocker(Reason.DO_NOT_DISRUPT, f"{DO_NOT_DISRUPT}: {value} ends at {utc(since + period)}")


@timed_rule(
    Reason.DO_NOT_EVICT,
    Reason.PREFER_NO_EVICTION,
    Reason.REMOVAL_DISABLED,
    annotations=(DO_NOT_EVICT, PREFER_NO_EVICTION, REMOVAL_DISABLED),
    lifted_by={
        Reason.DO_NOT_EVICT: lifts.removing(DO_NOT_EVICT),
        Reason.PREFER_NO_EVICTION: lifts.removing(PREFER_NO_EVICTION),
        Reason.REMOVAL_DISABLED: lifts.NO_CAST_AI_OPT_OUT,
    },
)
def _annotated(pod: Pod, _: Facts, now: Now) -> RuleResult:
    return annotated_opt_out(pod, instant(pod.start_time or pod.creation_timestamp), now.reached)


@class_rule(
    Reason.REMOVAL_DISABLED,
    Reason.RESTRICT_SCALE_DOWN,
    lifted_by={
        Reason.REMOVAL_DISABLED: lifts.NO_CAST_AI_OPT_OUT,
        Reason.RESTRICT_SCALE_DOWN: lifts.removing_label(RESTRICT_SCALE_DOWN),
    },
)
def _labeled(cls: PodClass, _: Policy) -> RuleResult:
    return labeled_opt_out(cls)


@class_rule(Reason.OTHER_SCHEDULER, lifted_by=lifts.OUR_SCHEDULER)
def _other_scheduler(cls: PodClass, policy: Policy) -> RuleResult:
    return other_scheduler(cls, policy)


@class_rule(Reason.GRACE_PERIOD, lifted_by=lifts.SHORTER_GRACE)
def _grace_period(cls: PodClass, policy: Policy) -> RuleResult:
    """Block pods that would be killed before the time that they ask for: they may lose data, or replicas of it."""
    seconds, longest = cls.spec.termination_grace_period_seconds or 0, policy.max_graceful_termination
    if seconds <= longest or policy.shorten_grace_periods:
        return None
    detail = (
        f"it asks for {seconds} s to terminate (terminationGracePeriodSeconds), more than --max-graceful-termination, "
        f"which is {longest:.0f} s; a higher limit allows eviction, --shorten-grace-periods allows it with this limit"
    )
    return Blocker(Reason.GRACE_PERIOD, detail)


@pod_rule(Reason.JOB_WOULD_FAIL, owned=is_job, enabled=lambda policy: policy.move_jobs is MoveJobs.NEVER)
def _job(_: Pod, __: Facts) -> RuleResult:
    detail = "it belongs to a Job; --move-jobs=tolerant allows eviction if that cannot fail the Job"
    return Blocker(Reason.JOB_WOULD_FAIL, detail)


@pod_rule(annotations=[SAFE_TO_EVICT])
def _safe_to_evict(pod: Pod, _: Facts) -> RuleResult:
    """Skip the rules below if the owner allows eviction. PodDisruptionBudgets still apply."""
    return Fate.MOVES if pod.annotations.get(SAFE_TO_EVICT) == "true" else None


@pod_rule(
    Reason.EVICTION_RESPONDER,
    when=lambda cls: bool(responders(cls)),
    lifted_by=lifts.allowing("evictionResponders"),
)
def _eviction_responder(pod: Pod, facts: Facts) -> RuleResult:
    """Block pods whose evictions another component handles (``lifecycle.k8s.io``); an eviction would bypass it."""
    if facts.policy.eviction_requests and is_requestable(pod.cls):
        return None
    names = ", ".join(responders(pod.cls))
    if is_requestable(pod.cls):
        way = f'--eviction=request asks for it, {SAFE_TO_EVICT}: "true" allows it'
    else:
        way = f'EvictionRequests do not support pods of a PodGroup; {SAFE_TO_EVICT}: "true" allows it'
    detail = f"its eviction is the task of {names} (spec.evictionResponders), which an eviction by this program would "
    return Blocker(Reason.EVICTION_RESPONDER, f"{detail}bypass; {way}")


def is_requestable(cls: PodClass) -> bool:
    """Return whether an EvictionRequest can name the pods of *cls*: pods of PodGroups are not supported (KEP-4563)."""
    return cls.spec.scheduling_group is None


def is_left_to_responders(pod: Pod) -> bool:
    """Return whether the eviction of *pod* is the task of other components, and no annotation allows it to others."""
    return bool(responders(pod.cls)) and pod.annotations.get(SAFE_TO_EVICT) != "true"


def responders(cls: PodClass) -> list[str]:
    """Return the components, other than the eviction API, whose task the evictions of *cls* are."""
    return [each.name for each in cls.spec.eviction_responders if each.name != IMPERATIVE_EVICTION]


@pod_rule(Reason.SINGLE_REPLICA, enabled=lambda policy: policy.skip_single_replicas)
def _single_replica(pod: Pod, facts: Facts) -> RuleResult:
    """Block the only pod of a controller. Once a drain has evicted pods, their replacements may still be missing."""
    if facts.counts is None or facts.evicted:
        return None
    return single_replica(pod, facts.counts)


@pod_rule(Reason.GANG_MEMBER, when=has_class_gang, lifted_by=lifts.LEAVING_ITS_GANG)
def _gang_member(pod: Pod, facts: Facts) -> RuleResult:
    """Block pods of a group that the drain would break up. Once it has begun, their own group may be on two nodes."""
    return None if facts.gangs is None or facts.evicted else facts.gangs.broken_up(pod)


@pod_rule(Reason.GANG_MEMBER, annotations=GANG_ANNOTATIONS, lifted_by=lifts.LEAVING_ITS_GANG)
def _annotated_gang_member(pod: Pod, facts: Facts) -> RuleResult:
    if facts.gangs is None or facts.evicted or has_class_gang(pod.cls):
        return None
    return facts.gangs.broken_up(pod)


@pod_rule(
    Reason.NO_CONTROLLER,
    owned=lambda owner: owner is None,
    enabled=lambda policy: not policy.delete_non_replicated_pods,
    lifted_by=lifts.allowing("no controller", risk=Risk.POD),
)
def _no_controller(_: Pod, facts: Facts) -> RuleResult:
    has_flag = facts.policy.destination is Destination.SPOT  # the proxy has no flag for it
    way = f'{"--delete-non-replicated-pods or " if has_flag else ""}{SAFE_TO_EVICT}: "true"'
    return Blocker(Reason.NO_CONTROLLER, f"{NOT_RECREATED}; {way} allows eviction")


@pod_rule(
    Reason.RUNS_TO_COMPLETION,
    when=ends_by_itself,
    lifted_by=lifts.allowing("runs to completion", risk=Risk.WORK),
)
def _runs_to_completion(pod: Pod, _: Facts) -> RuleResult:
    """Block pods that are not restarted, of other owners than Jobs: an eviction ends their run.

    Workflows, CI runners, Spark and virtual machines do not repeat it, or not without being told to. Jobs have rules of
    their own.
    """
    if not runs_to_completion(pod):
        return None
    detail = (
        f"it runs to completion (restartPolicy {shown(pod.cls.spec.restart_policy)}), and its eviction would end this "
        f'run of {controller_of(pod)}; {SAFE_TO_EVICT}: "true" allows eviction'
    )
    return Blocker(Reason.RUNS_TO_COMPLETION, detail)


@pod_rule(
    Reason.CUSTOM_CONTROLLER,
    owned=is_custom,
    enabled=lambda policy: policy.skip_nodes_with_custom_controller_pods,
    lifted_by=lifts.allowing(
        "owner that is not a built-in controller", "--skip-nodes-with-custom-controller-pods=false", Risk.POD
    ),
)
def _custom_controller(pod: Pod, _: Facts) -> RuleResult:
    detail = (
        f"its owner {controller_of(pod)} is not a built-in controller; --skip-nodes-with-custom-controller-pods=false "
        f'or {SAFE_TO_EVICT}: "true" allows eviction'
    )
    return Blocker(Reason.CUSTOM_CONTROLLER, detail)


@pod_rule(
    Reason.KUBE_SYSTEM,
    when=lambda cls: cls.namespace == SYSTEM,
    enabled=lambda policy: policy.skip_nodes_with_system_pods,
    lifted_by=lifts.allowing("a kube-system pod without a PodDisruptionBudget", "--skip-nodes-with-system-pods=false"),
)
def _kube_system(pod: Pod, facts: Facts) -> RuleResult:
    """Block kube-system pods without a PodDisruptionBudget.

    As in Cluster Autoscaler, a budget shows that the owner has considered the eviction of the pod.
    """
    if facts.has_budget(pod):
        return None
    return Blocker(
        Reason.KUBE_SYSTEM,
        "a kube-system pod without a PodDisruptionBudget; --skip-nodes-with-system-pods=false allows eviction",
    )


@class_rule(Reason.LIQO_COMPONENT, lifted_by=lifts.allowing("Liqo component"))
def _liqo_component(cls: PodClass, _: Policy) -> RuleResult:
    """Block Liqo's virtual kubelets.

    A virtual node is not Ready while its virtual kubelet moves, and its pods may be evicted in the meantime.
    """
    if cls.labels.get(LIQO_COMPONENT) != "virtual-kubelet" and not cls.namespace.startswith(LIQO_TENANT):
        return None
    return Blocker(
        Reason.LIQO_COMPONENT,
        f'Liqo virtual nodes depend on it; {SAFE_TO_EVICT}: "true" allows eviction',
    )


@pod_rule(
    Reason.LOCAL_STORAGE,
    when=lambda cls: bool(local_volumes(cls)),
    enabled=lambda policy: policy.skip_nodes_with_local_storage,
    lifted_by=lifts.NO_LOCAL_STORAGE,
)
def _local_storage(pod: Pod, facts: Facts) -> RuleResult:
    if runs_to_completion(pod):
        return None  # the volumes of a pod that runs to completion are not what keeps it
    blocking = [volume.name for volume in needed_volumes(pod, facts.policy.ignore_local_volumes)]
    if not blocking:
        return None
    return Blocker(
        Reason.LOCAL_STORAGE,
        f"local volume {shown(', '.join(blocking))} would be lost; {SAFE_LOCAL_VOLUMES}, --ignore-local-volumes or "
        "--skip-nodes-with-local-storage=false allows eviction",
    )


#: The rules in the order in which they are applied; the first one that returns a result decides.
RULES: Final = declared_in(globals())
