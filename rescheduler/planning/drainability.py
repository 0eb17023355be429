"""Which pods of a node must move, which stay, and which forbid that the node is emptied.

The rules are asked in the order of :data:`RULES`; the first that has an opinion decides. They follow Cluster
Autoscaler's (``simulator/drainability/rules``), so that annotations mean here what they mean there.
"""

import enum
import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Final, TypeAlias

from predicates.objects import Pod, PodClass, Volume
from rescheduler.planning.outcome import Blocker, Reason
from rescheduler.planning.policy import Policy

SAFE_TO_EVICT: Final = "cluster-autoscaler.kubernetes.io/safe-to-evict"
SAFE_LOCAL_VOLUMES: Final = "cluster-autoscaler.kubernetes.io/safe-to-evict-local-volumes"
DO_NOT_DISRUPT: Final = "karpenter.sh/do-not-disrupt"
MIRROR: Final = "kubernetes.io/config.mirror"


class Fate(enum.Enum):
    """What becomes of a pod when its node is emptied."""

    STAYS = enum.auto()  #: it belongs to the node (mirror, DaemonSet) and does not count
    LEAVES = enum.auto()  #: it is being deleted: waited for, not moved
    MOVES = enum.auto()


@dataclass(frozen=True, slots=True)
class Context:
    """What the rules know beside the pod."""

    policy: Policy
    now: datetime
    has_budget: Callable[[Pod], bool]
    #: By class, and kind of owner: what was found for pods that carry no annotation. Without any nothing else decides.
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
        if isinstance(opinion, Blocker):  # It names the pod.
            return opinion
        found = context.fates[alike] = opinion
    return found


def _judged(rules: Iterable[Rule], pod: Pod, context: Context) -> Fate | Blocker:
    for rule in rules:
        if (opinion := rule(pod, context)) is not None:
            return opinion
    return Fate.MOVES


def _mirror(pod: Pod, _: Context) -> Opinion:
    return Fate.STAYS if MIRROR in pod.annotations else None


def _daemon(pod: Pod, _: Context) -> Opinion:
    return Fate.STAYS if pod.owner is not None and pod.owner.kind == "DaemonSet" else None


def _terminating(pod: Pod, _: Context) -> Opinion:
    return Fate.LEAVES if pod.cls.terminating else None


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
    _mirror,
    _daemon,
    _terminating,
    _not_safe_to_evict,
    _do_not_disrupt,
    _safe_to_evict,
    _no_controller,
    _kube_system,
    _local_storage,
)


#: The rules that have an opinion on pods without any annotation that is read here: nearly all pods.
_WITHOUT_ANNOTATIONS: Final[tuple[Rule, ...]] = (_daemon, _terminating, _no_controller, _kube_system, _local_storage)


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
    """An API timestamp; None where there is none, or it is none."""
    try:
        return datetime.fromisoformat(text) if text else None
    except ValueError:
        return None
