"""The rules for the pods of a drained node, each with its reason and text.

They follow Cluster Autoscaler's rules (``simulator/drainability/rules``), so that annotations have the same meaning in
both. :mod:`rescheduler.planning.rules.drainability` applies them.
"""

import enum
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Final, TypeAlias

from predicates.bound_labels import LabelPairs
from predicates.objects import Pod, PodClass
from rescheduler import durations
from rescheduler.planning.controller_names import controller_of
from rescheduler.planning.deadlines import Deadlines
from rescheduler.planning.outcome import Blocker, Reason
from rescheduler.planning.policy import DEFAULT_SCHEDULER, MoveJobs, Policy
from rescheduler.planning.rules.opt_outs import annotated_opt_out, labeled_opt_out
from rescheduler.planning.rules.pod_traits import (
    SAFE_LOCAL_VOLUMES,
    belongs_to_node,
    expendable_volumes,
    is_built_in,
    is_job,
    local_volumes,
    runs_to_completion,
)
from rescheduler.planning.rules.replica_floors import OwnerCounts, single_replica
from rescheduler.planning.timestamps import instant, utc

SAFE_TO_EVICT: Final = "cluster-autoscaler.kubernetes.io/safe-to-evict"
DO_NOT_DISRUPT: Final = "karpenter.sh/do-not-disrupt"
#: The former name of this annotation, in Karpenter's v1alpha5 API.
DO_NOT_EVICT_KARPENTER: Final = "karpenter.sh/do-not-evict"
#: The label of Liqo's virtual kubelets, and the prefix of the namespaces that Liqo creates for them and its gateways.
LIQO_COMPONENT: Final = "offloading.liqo.io/component"
LIQO_TENANT: Final = "liqo-tenant-"

NOT_RECREATED: Final = "no controller would recreate it"

#: A pod that still exists this long after its deletionTimestamp (which includes the grace period) is stuck.
OVERDUE: Final = timedelta(seconds=30)


class Fate(enum.Enum):
    """What happens to a pod when its node is drained."""

    STAYS = enum.auto()  #: it belongs to the node (mirror pod, DaemonSet) and is ignored
    LEAVES = enum.auto()  #: it is being deleted; the drain waits for that
    MOVES = enum.auto()


@dataclass(frozen=True, slots=True)
class Context:
    """The inputs of the rules other than the pod."""

    policy: Policy
    now: datetime
    has_budget: Callable[[Pod], bool]
    #: UIDs of pods that the current drain has evicted. The drain waits for them; other terminating pods block the node.
    evicted: Collection[str] = frozenset()
    waits_for_terminating: bool = False  #: also wait for other terminating pods that are not overdue
    namespace_labels: Callable[[str], Mapping[str, str]] = lambda _: {}
    counts: OwnerCounts | None = None  #: the pods of each controller; None: not known
    deadlines: Deadlines = field(default_factory=Deadlines, repr=False, compare=False)
    #: Cache by class, added labels and kind of owner, for pods whose fate depends on nothing else.
    fates: dict[tuple[PodClass, LabelPairs, tuple[str, str], bool], Fate] = field(default_factory=dict, compare=False)

    def reached(self, instant: datetime) -> bool:
        """Return whether *instant* has been reached, and record it as a deadline if not."""
        return self.deadlines.reached(instant, self.now)


RuleResult: TypeAlias = Fate | Blocker | None
Rule: TypeAlias = Callable[[Pod, Context], RuleResult]


def _node_owned(pod: Pod, _: Context) -> RuleResult:
    return Fate.STAYS if belongs_to_node(pod) else None


def _terminating(pod: Pod, context: Context) -> RuleResult:
    if not pod.cls.terminating:
        return None
    if pod.uid in context.evicted:
        return Fate.LEAVES
    ends = instant(pod.deletion_timestamp)
    if ends is not None and context.deadlines.passed(ends + OVERDUE, context.now):
        detail = f"it should have terminated by {utc(ends)}; check its finalizers and the node's kubelet"
        return Blocker(Reason.POD_STUCK_TERMINATING, detail, pod.key)
    if context.waits_for_terminating:
        return Fate.LEAVES
    until = "" if ends is None else f" (grace period until {utc(ends)})"
    return Blocker(Reason.POD_TERMINATING, f"it is being deleted{until}; the drain waits until it is gone", pod.key)


def _namespace_excluded(pod: Pod, context: Context) -> RuleResult:
    scope = context.policy.namespaces
    if scope.everything or not (why := scope.why_excluded(pod.namespace, context.namespace_labels(pod.namespace))):
        return None
    return Blocker(Reason.NAMESPACE_EXCLUDED, why, pod.key)


def _annotated(pod: Pod, context: Context) -> RuleResult:
    return annotated_opt_out(pod, instant(pod.start_time or pod.creation_timestamp), context.reached)


def _labeled(pod: Pod, _: Context) -> RuleResult:
    return labeled_opt_out(pod)


def _single_replica(pod: Pod, context: Context) -> RuleResult:
    """Block the only pod of a controller. Once a drain has evicted pods, their replacements may still be missing."""
    if not context.policy.skip_single_replicas or context.counts is None or context.evicted:
        return None
    return single_replica(pod, context.counts)


def _not_safe_to_evict(pod: Pod, _: Context) -> RuleResult:
    value = pod.annotations.get(SAFE_TO_EVICT)
    if value == "false":
        return Blocker(Reason.NOT_SAFE_TO_EVICT, f'it has the annotation {SAFE_TO_EVICT}: "false"', pod.key)
    if value == "on-completion":
        return Blocker(Reason.NOT_SAFE_TO_EVICT, f"it must run to completion ({SAFE_TO_EVICT}: on-completion)", pod.key)
    return None


def _do_not_disrupt(pod: Pod, context: Context) -> RuleResult:
    if pod.annotations.get(DO_NOT_EVICT_KARPENTER) == "true":
        return Blocker(Reason.DO_NOT_DISRUPT, f'it has the annotation {DO_NOT_EVICT_KARPENTER}: "true"', pod.key)
    value = pod.annotations.get(DO_NOT_DISRUPT)
    if value is None:
        return None
    if value == "true":
        return Blocker(Reason.DO_NOT_DISRUPT, f'it has the annotation {DO_NOT_DISRUPT}: "true"', pod.key)
    period, since = durations.period(value), instant(pod.start_time or pod.creation_timestamp)
    if period is None or since is None or context.reached(since + period):
        return None
    return Blocker(Reason.DO_NOT_DISRUPT, f"{DO_NOT_DISRUPT}: {value} ends at {utc(since + period)}", pod.key)


def _other_scheduler(pod: Pod, context: Context) -> RuleResult:
    """Block pods of other schedulers: plans predict placements by the default scheduler's rules only."""
    names, name = context.policy.scheduler_names, pod.cls.spec.scheduler_name or DEFAULT_SCHEDULER
    if not names or name in names:
        return None
    detail = f"its scheduler is {name}; --scheduler-name={name} allows eviction if it uses the default rules"
    return Blocker(Reason.OTHER_SCHEDULER, detail, pod.key)


def _job(pod: Pod, context: Context) -> RuleResult:
    if context.policy.move_jobs is not MoveJobs.NEVER or not is_job(pod.owner):
        return None
    detail = "it belongs to a Job; --move-jobs=tolerant allows eviction if that cannot fail the Job"
    return Blocker(Reason.JOB_WOULD_FAIL, detail, pod.key)


def _safe_to_evict(pod: Pod, _: Context) -> RuleResult:
    """Skip the rules below if the owner allows eviction. PodDisruptionBudgets still apply."""
    return Fate.MOVES if pod.annotations.get(SAFE_TO_EVICT) == "true" else None


def _no_controller(pod: Pod, context: Context) -> RuleResult:
    if pod.owner is not None or context.policy.delete_non_replicated_pods:
        return None
    return Blocker(
        Reason.NO_CONTROLLER,
        f'{NOT_RECREATED}; --delete-non-replicated-pods or {SAFE_TO_EVICT}: "true" allows eviction',
        pod.key,
    )


def _runs_to_completion(pod: Pod, _: Context) -> RuleResult:
    """Block pods that are not restarted, of owners that are not built in: an eviction ends their run.

    Workflows, CI runners, Spark and virtual machines do not repeat it, or not without being told to. The rules of Jobs
    are built in.
    """
    if not runs_to_completion(pod):
        return None
    detail = (
        f"it runs to completion (restartPolicy {pod.cls.spec.restart_policy}), and its eviction would end this run of "
        f'{controller_of(pod)}; {SAFE_TO_EVICT}: "true" allows eviction'
    )
    return Blocker(Reason.RUNS_TO_COMPLETION, detail, pod.key)


def _custom_controller(pod: Pod, context: Context) -> RuleResult:
    if not context.policy.skip_nodes_with_custom_controller_pods or pod.owner is None or is_built_in(pod.owner):
        return None
    detail = (
        f"its owner {controller_of(pod)} is not a built-in controller; --skip-nodes-with-custom-controller-pods=false "
        f'or {SAFE_TO_EVICT}: "true" allows eviction'
    )
    return Blocker(Reason.CUSTOM_CONTROLLER, detail, pod.key)


def _kube_system(pod: Pod, context: Context) -> RuleResult:
    """Block kube-system pods without a PodDisruptionBudget.

    As in Cluster Autoscaler, a budget shows that the owner has considered the eviction of the pod.
    """
    if pod.namespace != "kube-system" or not context.policy.skip_nodes_with_system_pods or context.has_budget(pod):
        return None
    return Blocker(
        Reason.KUBE_SYSTEM,
        "a kube-system pod without a PodDisruptionBudget; --skip-nodes-with-system-pods=false allows eviction",
        pod.key,
    )


def _liqo_component(pod: Pod, _: Context) -> RuleResult:
    """Block Liqo's virtual kubelets.

    A virtual node is not Ready while its virtual kubelet moves, and its pods may be evicted in the meantime.
    """
    if pod.cls.labels.get(LIQO_COMPONENT) != "virtual-kubelet" and not pod.namespace.startswith(LIQO_TENANT):
        return None
    return Blocker(
        Reason.LIQO_COMPONENT,
        f'Liqo virtual nodes depend on it; {SAFE_TO_EVICT}: "true" allows eviction',
        pod.key,
    )


def _local_storage(pod: Pod, context: Context) -> RuleResult:
    if not context.policy.skip_nodes_with_local_storage or runs_to_completion(pod):
        return None  # the volumes of a pod that runs to completion are not what keeps it
    if not (local := local_volumes(pod)):
        return None
    expendable = expendable_volumes(pod)
    blocking = [volume.name for volume in local if volume.name not in expendable]
    if not blocking:
        return None
    return Blocker(
        Reason.LOCAL_STORAGE,
        f"local volume {', '.join(blocking)} would be lost; {SAFE_LOCAL_VOLUMES} or "
        "--skip-nodes-with-local-storage=false allows eviction",
        pod.key,
    )


#: The rules in the order in which they are applied; the first one that returns a result decides.
RULES: Final[tuple[Rule, ...]] = (
    _node_owned,
    _terminating,
    _namespace_excluded,
    _not_safe_to_evict,
    _do_not_disrupt,
    _annotated,
    _labeled,
    _other_scheduler,
    _job,
    _safe_to_evict,
    _single_replica,
    _no_controller,
    _runs_to_completion,
    _custom_controller,
    _kube_system,
    _liqo_component,
    _local_storage,
)

#: The rules that can apply to pods without annotations. Most pods have none.
RULES_WITHOUT_ANNOTATIONS: Final[tuple[Rule, ...]] = (
    _node_owned,
    _terminating,
    _namespace_excluded,
    _labeled,
    _other_scheduler,
    _job,
    _single_replica,
    _no_controller,
    _runs_to_completion,
    _custom_controller,
    _kube_system,
    _liqo_component,
    _local_storage,
)
