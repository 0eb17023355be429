"""What a daemon did, read from an audit log, and whether two runs of a scene agree."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from devcluster.audit import AuditEvent
from tests.cluster.observer import AGENT, markings

#: How far evictions and the times of drains may differ.
EVICTIONS: Final = 0.05
SECONDS: Final = 0.2
#: Seconds for which a run waits for the end of its last drain.
LONGEST_DRAIN: Final = 90.0


@dataclass(frozen=True, slots=True)
class SceneCourse:
    """The nodes with our marks in their order, for how many seconds, and the accepted evictions."""

    nodes: tuple[str, ...]
    seconds: tuple[float, ...]
    evictions: int


def course_of(events: Sequence[AuditEvent]) -> SceneCourse:
    """Return what the audit log *events* shows. A drain that has not ended counts until the last event."""
    if not events:
        return SceneCourse((), (), 0)
    accepted = [event for event in events if event.accepted and not event.dry_run]
    last = max(event.at for event in events)
    marked = markings([event for event in accepted if event.kind == "nodes"])
    seconds = tuple(((each.until or last) - each.since).total_seconds() for each in marked)
    evictions = sum(event.kind == "pods/eviction" and event.user_agent.startswith(AGENT) for event in accepted)
    return SceneCourse(tuple(each.node for each in marked), seconds, evictions)


def is_open(events: Sequence[AuditEvent]) -> bool:
    """Return whether a drain has not ended."""
    return any(
        each.until is None for each in markings(event for event in events if event.accepted and event.kind == "nodes")
    )


@dataclass(frozen=True, slots=True)
class Agreement:
    """A scene on the real control plane and in the simulated cluster."""

    scene: str
    real: SceneCourse
    simulated: SceneCourse

    @property
    def differences(self) -> list[str]:
        """What differs more than is allowed."""
        real, simulated = self.real, self.simulated
        if real.nodes != simulated.nodes:
            return ["the nodes"]
        found = []
        if not _near(real.evictions, simulated.evictions, EVICTIONS):
            found.append("evictions")
        pairs = zip(real.nodes, real.seconds, simulated.seconds, strict=True)
        found += [f"the time of {node}" for node, one, other in pairs if not _near(one, other, SECONDS)]
        return found


def _near(one: float, other: float, share: float) -> bool:
    return abs(one - other) <= share * one


def table(agreements: Sequence[Agreement]) -> list[str]:
    """Return the table of the documentation."""
    lines = ["| scene | drained nodes | evictions | seconds of each drain | agree |", "|---|---|---|---|---|"]
    for each in agreements:
        real, simulated = each.real, each.simulated
        nodes = _both(_listed(real.nodes), _listed(simulated.nodes))
        evictions = _both(str(real.evictions), str(simulated.evictions))
        times = [f"{_times(real)} / {_times(simulated)}"]
        said = ", ".join(each.differences)
        lines.append(f"| {each.scene} | {nodes} | {evictions} | {times[0]} | {f'no: {said}' if said else 'yes'} |")
    return lines


def _listed(nodes: Sequence[str]) -> str:
    return ", ".join(node.rpartition("-")[2] for node in nodes) or "none"


def _both(real: str, simulated: str) -> str:
    return real if real == simulated else f"{real} / {simulated}"


def _times(course: SceneCourse) -> str:
    return ", ".join(f"{seconds:.1f}" for seconds in course.seconds) or "none"
