"""Which pods of a node must move, which stay, and which forbid that the node is emptied.

The rules are asked in the order of :data:`RULES`; the first that has an opinion decides. They follow Cluster
Autoscaler's (``simulator/drainability/rules``), so that annotations mean here what they mean there.
"""

import enum
import re
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import Final, TypeAlias

from predicates.objects import Pod, PodClass, Volume
from rescheduler.planning.outcome import Blocker, Reason
from rescheduler.planning.policy import DEFAULT_SCHEDULER, MoveJobs, Policy

SAFE_TO_EVICT: Final = "cluster-autoscaler.kubernetes.io/safe-to-evict"
SAFE_LOCAL_VOLUMES: Final = "cluster-autoscaler.kubernetes.io/safe-to-evict-local-volumes"
DO_NOT_DISRUPT: Final = "karpenter.sh/do-not-disrupt"
MIRROR: Final = "kubernetes.io/config.mirror"
#: The label of Liqo's virtual kubelets, and how the namespaces begin that it makes for them and for its gateways.
LIQO_COMPONENT: Final = "offloading.liqo.io/component"
LIQO_TENANT: Final = "liqo-tenant-"

#: A pod that is there so long after its deletionTimestamp, which includes the grace period, does not end by itself.
OVERDUE: Final = timedelta(seconds=30)


class Fate(enum.Enum):
    """What becomes of a pod when its node is emptied."""

    STAYS = enum.auto()  #: it belongs to the node (mirror, DaemonSet) and does not count
    LEAVES = enum.auto()  #: it is being deleted, and waited for
    MOVES = enum.auto()


@dataclass(frozen=True, slots=True)
class Context:
    """What the rules know beside the pod."""

    policy: Policy
    now: datetime
    has_budget: Callable[[Pod], bool]
    #: UIDs of pods that the current drain has evicted: they leave. Other terminating pods block the node.
    evicted: Collection[str] = frozenset()
    waits_for_terminating: bool = False  #: those that are not overdue leave, too
    #: By class, and kind of owner: the fates that nothing else decides.
    fates: dict[tuple[PodClass, str | None], Fate] = field(default_factory=dict, compare=False)


Opinion: TypeAlias = Fate | Blocker | None
Rule: TypeAlias = Callable[[Pod, Context], Opinion]


def fate(pod: Pod, context: Context) -> Fate | Blocker:
    """What becomes of *pod*, or why its node stays. Finished pods are not asked about: they are in no snapshot."""
    if pod.annotations:
        return _judged(RULES, pod, context)
    alike = pod.cls, pod.owner.kind if pod.owner is not None else None
    if (found := context.fates.get(alike)) is None:
        opinion = _judged(_WITHOUT_ANNOTATIONS, pod, context)
        if isinstance(opinion, Blocker) or _is_judged_by_itself(pod):  # A blocker names the pod.
            return opinion
        found = context.fates[alike] = opinion
    return found


def _is_judged_by_itself(pod: Pod) -> bool:
    """Whether its UID, or the API group of its owner, decides as well as its class and the kind of its owner."""
    return pod.cls.terminating or (pod.owner is not None and pod.owner.kind == "Job")


def _judged(rules: Iterable[Rule], pod: Pod, context: Context) -> Fate | Blocker:
    for rule in rules:
        if (opinion := rule(pod, context)) is not None:
            return opinion
    return Fate.MOVES


def belongs_to_node(pod: Pod) -> bool:
    """Whether it is a mirror pod or of a DaemonSet: such pods do not count."""
    return MIRROR in pod.annotations or (pod.owner is not None and pod.owner.kind == "DaemonSet")


def _node_owned(pod: Pod, _: Context) -> Opinion:
    return Fate.STAYS if belongs_to_node(pod) else None


def _terminating(pod: Pod, context: Context) -> Opinion:
    if not pod.cls.terminating:
        return None
    if pod.uid in context.evicted:
        return Fate.LEAVES
    ends = instant(pod.deletion_timestamp)
    if ends is not None and context.now > ends + OVERDUE:
        detail = f"it should have ended at {ends:%Y-%m-%dT%H:%M:%SZ}; see its finalizers, and whether its kubelet works"
        return Blocker(Reason.POD_STUCK_TERMINATING, detail, pod.key)
    if context.waits_for_terminating:
        return Fate.LEAVES
    until = "" if ends is None else f" and has time until {ends:%Y-%m-%dT%H:%M:%SZ}"
    return Blocker(Reason.POD_TERMINATING, f"it is being deleted{until}; the node waits for its end", pod.key)


def _not_safe_to_evict(pod: Pod, _: Context) -> Opinion:
    value = pod.annotations.get(SAFE_TO_EVICT)
    if value == "false":
        return Blocker(Reason.NOT_SAFE_TO_EVICT, f'it carries {SAFE_TO_EVICT}: "false"', pod.key)
    if value == "on-completion":
        return Blocker(Reason.NOT_SAFE_TO_EVICT, f"it may go only when it has ended ({SAFE_TO_EVICT})", pod.key)
    return None


def _do_not_disrupt(pod: Pod, context: Context) -> Opinion:
    value = pod.annotations.get(DO_NOT_DISRUPT)
    if value is None:
        return None
    if value == "true":
        return Blocker(Reason.DO_NOT_DISRUPT, f'it carries {DO_NOT_DISRUPT}: "true"', pod.key)
    period, since = go_duration(value), instant(pod.start_time or pod.creation_timestamp)
    if period is None or since is None or context.now >= since + period:
        return None
    return Blocker(
        Reason.DO_NOT_DISRUPT, f"{DO_NOT_DISRUPT}: {value} ends at {since + period:%Y-%m-%dT%H:%M:%SZ}", pod.key
    )


def _other_scheduler(pod: Pod, context: Context) -> Opinion:
    """Plans predict placements by the default scheduler's rules only."""
    names, name = context.policy.scheduler_names, pod.cls.spec.scheduler_name or DEFAULT_SCHEDULER
    if not names or name in names:
        return None
    detail = f"{name} places it; --scheduler-name={name} would let it go, if that scheduler has the default's rules"
    return Blocker(Reason.OTHER_SCHEDULER, detail, pod.key)


def _job(pod: Pod, context: Context) -> Opinion:
    if context.policy.move_jobs is not MoveJobs.NEVER or not of_job(pod):
        return None
    detail = "a pod of a Job; --move-jobs=tolerant would let it go where that cannot fail the Job"
    return Blocker(Reason.JOB_WOULD_FAIL, detail, pod.key)


def of_job(pod: Pod) -> bool:
    """Whether a Job of Kubernetes owns the pod; custom resources may be called so, too."""
    owner = pod.owner
    return owner is not None and owner.kind == "Job" and owner.api_version.partition("/")[0] in ("batch", "")


def _safe_to_evict(pod: Pod, _: Context) -> Opinion:
    """The owner's word lifts the guards below; budgets still count."""
    return Fate.MOVES if pod.annotations.get(SAFE_TO_EVICT) == "true" else None


def _no_controller(pod: Pod, context: Context) -> Opinion:
    if pod.owner is not None or context.policy.delete_non_replicated_pods:
        return None
    return Blocker(
        Reason.NO_CONTROLLER,
        f'nothing would make it anew; --delete-non-replicated-pods or {SAFE_TO_EVICT}: "true" would let it go',
        pod.key,
    )


def _kube_system(pod: Pod, context: Context) -> Opinion:
    """As in Cluster Autoscaler, a budget on such a pod says that somebody has thought about its eviction."""
    if pod.namespace != "kube-system" or not context.policy.skip_nodes_with_system_pods or context.has_budget(pod):
        return None
    return Blocker(
        Reason.KUBE_SYSTEM,
        "a kube-system pod without a PodDisruptionBudget; --skip-nodes-with-system-pods=false would let it go",
        pod.key,
    )


def _liqo_component(pod: Pod, _: Context) -> Opinion:
    """A virtual node is not Ready while its virtual kubelet moves, and its pods may be given up meanwhile."""
    if pod.cls.labels.get(LIQO_COMPONENT) != "virtual-kubelet" and not pod.namespace.startswith(LIQO_TENANT):
        return None
    return Blocker(
        Reason.LIQO_COMPONENT,
        f'virtual nodes of Liqo depend on it; {SAFE_TO_EVICT}: "true" would let it go',
        pod.key,
    )


def _local_storage(pod: Pod, context: Context) -> Opinion:
    if not context.policy.skip_nodes_with_local_storage:
        return None
    local = [one.name for one in pod.cls.spec.volumes if _is_local(one)]
    if not local:
        return None
    allowed = pod.annotations.get(SAFE_LOCAL_VOLUMES, "").split(",")
    blocking = [name for name in local if name not in allowed]
    if not blocking:
        return None
    return Blocker(
        Reason.LOCAL_STORAGE,
        f"local volume {', '.join(blocking)} would be lost; {SAFE_LOCAL_VOLUMES} or "
        "--skip-nodes-with-local-storage=false would let it go",
        pod.key,
    )


#: In the order in which they are asked.
RULES: Final[tuple[Rule, ...]] = (
    _node_owned,
    _terminating,
    _not_safe_to_evict,
    _do_not_disrupt,
    _other_scheduler,
    _job,
    _safe_to_evict,
    _no_controller,
    _kube_system,
    _liqo_component,
    _local_storage,
)


#: The rules that have an opinion on pods without any annotation that is read here: nearly all pods.
_WITHOUT_ANNOTATIONS: Final[tuple[Rule, ...]] = (
    _node_owned,
    _terminating,
    _other_scheduler,
    _job,
    _no_controller,
    _kube_system,
    _liqo_component,
    _local_storage,
)


def _is_local(volume: Volume) -> bool:
    if volume.host_path is not None:
        return True
    return volume.empty_dir is not None and volume.empty_dir.medium != "Memory"


_DURATION_PART: Final = re.compile(r"(\d+(?:\.\d+)?)(h|m|s|ms)")
_SECONDS: Final[Mapping[str, float]] = {"h": 3600, "m": 60, "s": 1, "ms": 0.001}


def go_duration(text: str) -> timedelta | None:
    """``1h30m`` as a period; None where *text* is none."""
    parts = _DURATION_PART.findall(text)
    if not parts or "".join(number + unit for number, unit in parts) != text:
        return None
    return timedelta(seconds=sum(float(number) * _SECONDS[unit] for number, unit in parts))


def instant(text: str | None) -> datetime | None:
    """An API timestamp; None where there is none, or it is none. One without a zone is UTC."""
    try:
        moment = datetime.fromisoformat(text) if text else None
    except ValueError:
        return None
    return moment.replace(tzinfo=UTC) if moment is not None and moment.tzinfo is None else moment
