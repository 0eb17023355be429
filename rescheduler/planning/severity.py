"""How severe a reason is for which a node stays: whether something is wrong, has to change, or is as it should be."""

from collections.abc import Iterable
from typing import Any, Final

from rescheduler.planning.outcome import Blocker, Planning, Reason, Rejected, Severity, Verdict, nodes_by_reason

_ORDER: Final = {severity: number for number, severity in enumerate((*Severity, None))}


def rank(severity: Severity | None) -> int:
    """Return a number by which severities are sorted, the worst first and those that have none last."""
    return _ORDER[severity]


def worst_of(blockers: Iterable[Blocker]) -> Severity | None:
    """Return the worst severity of *blockers*; None if there are none."""
    return min((blocker.reason.severity for blocker in blockers), key=rank, default=None)


def severity_of_verdict(verdict: Verdict) -> Severity | None:
    """Return the worst severity of the reasons for which a node stays; None if it can be drained."""
    return worst_of(verdict.blockers) if isinstance(verdict, Rejected) else None


def reasons_of(planning: Planning) -> list[tuple[Reason, Severity, int]]:
    """Return the reasons of the nodes that stay, each with the number of nodes: most nodes first, then the worst."""
    rows = [(reason, reason.severity, number) for reason, number in nodes_by_reason(planning).items()]
    return sorted(rows, key=lambda row: (-row[2], rank(row[1]), row[0]))


def blocker_object(blocker: Blocker) -> dict[str, Any]:
    """Return the object of *blocker* for JSON."""
    return {
        "pod": blocker.pod,
        "reason": blocker.reason,
        "severity": blocker.reason.severity,
        "detail": blocker.detail,
    }
