"""How severe a reason is for which a node stays: whether something is wrong, has to change, or is as it should be."""

import enum
from collections.abc import Iterable, Mapping
from typing import Any, Final

from rescheduler.planning.outcome import Blocker, Planning, Reason, Rejected, Verdict, nodes_by_reason


class Severity(enum.StrEnum):
    """What a reason says about the cluster, the worst first."""

    ERROR = "error"  #: pods do not run, or would not run again if their node failed: to repair, also without a drain
    WARNING = "warning"  #: the node stays until somebody changes the workload, the spot nodes or a setting
    INFO = "info"  #: it ends by itself, or somebody has asked for it by an annotation, a label or a setting


_ERRORS: Final = frozenset(
    {
        Reason.NODE_NOT_READY,
        Reason.UNREADABLE_OBJECT,
        Reason.NO_CONTROLLER,
        Reason.KUBELET,
        Reason.REFUSED_BEFORE,
        Reason.NOT_RECOVERED,
        Reason.POD_STUCK_TERMINATING,
        Reason.REPLICAS_NOT_READY,
        Reason.NODE_NAME_IN_TEMPLATE,
        Reason.VOLUME_ATTACHMENT,
        Reason.QUOTA_EXCEEDED,
        Reason.ADMISSION_REJECTS,
    }
)

_PASSING: Final = frozenset(
    {
        Reason.COOLING_DOWN,
        Reason.NODE_DELETING,
        Reason.BEING_DRAINED,
        Reason.HOSTS_LEADER,
        Reason.NOT_ON_DEMAND,
        Reason.PENDING_POD,
        Reason.SPOT_POOL_SETTLING,
        Reason.DISRUPTION_BUDGET,
        Reason.POD_TERMINATING,
        Reason.TIMEOUT,
    }
)

_WANTED: Final = frozenset(
    {
        Reason.SCALE_DOWN_DISABLED,
        Reason.DO_NOT_DISRUPT_NODE,
        Reason.CONTROL_PLANE,
        Reason.MIN_ON_DEMAND_NODES,
        Reason.OTHER_INSTALLATION,
        Reason.BELOW_MINIMUM,
        Reason.STATIC_CAPACITY,
        Reason.NEVER_REMOVED,
        Reason.DO_NOT_DRAIN,
        Reason.REMOVAL_DISABLED,
        Reason.CAPACITY_BUFFER,
        Reason.NOT_SAFE_TO_EVICT,
        Reason.DO_NOT_DISRUPT,
        Reason.LIQO_COMPONENT,
        Reason.NAMESPACE_EXCLUDED,
        Reason.DO_NOT_EVICT,
        Reason.PREFER_NO_EVICTION,
        Reason.EVICTION_RESPONDER,
        Reason.RESTRICT_SCALE_DOWN,
        Reason.SINGLE_REPLICA,
        Reason.MIN_ON_DEMAND_REPLICAS,
        Reason.WOULD_NOT_SURVIVE,
        Reason.FALLBACK_HEADROOM,
    }
)

#: By reason; all others are warnings.
_SEVERITIES: Final[Mapping[Reason, Severity]] = {
    **dict.fromkeys(_ERRORS, Severity.ERROR),
    **dict.fromkeys(_PASSING | _WANTED, Severity.INFO),
}

_ORDER: Final = {severity: number for number, severity in enumerate((*Severity, None))}


def severity_of(reason: Reason) -> Severity:
    """Return the severity of *reason*."""
    return _SEVERITIES.get(reason, Severity.WARNING)


def rank(severity: Severity | None) -> int:
    """Return a number by which severities are sorted, the worst first and those that have none last."""
    return _ORDER[severity]


def worst_of(blockers: Iterable[Blocker]) -> Severity | None:
    """Return the worst severity of *blockers*; None if there are none."""
    return min((severity_of(blocker.reason) for blocker in blockers), key=rank, default=None)


def severity_of_verdict(verdict: Verdict) -> Severity | None:
    """Return the worst severity of the reasons for which a node stays; None if it can be drained."""
    return worst_of(verdict.blockers) if isinstance(verdict, Rejected) else None


def reasons_of(planning: Planning) -> list[tuple[Reason, Severity, int]]:
    """Return the reasons of the nodes that stay, each with the number of nodes: most nodes first, then the worst."""
    rows = [(reason, severity_of(reason), number) for reason, number in nodes_by_reason(planning).items()]
    return sorted(rows, key=lambda row: (-row[2], rank(row[1]), row[0]))


def blocker_object(blocker: Blocker) -> dict[str, Any]:
    """Return the object of *blocker* for JSON."""
    return {
        "pod": blocker.pod,
        "reason": blocker.reason,
        "severity": severity_of(blocker.reason),
        "detail": blocker.detail,
    }
