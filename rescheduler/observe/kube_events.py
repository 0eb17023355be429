"""Kubernetes Events on nodes and pods, shown by ``kubectl describe``.

The reasons of k8s-spot-rescheduler, ``Rescheduler`` and ``ReschedulerFailed``, are used as in k8s-spot-rescheduler: on
a node that is marked or could not be drained, and on a pod that is evicted or could not be evicted. All other events
have their own reasons.
"""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Final, Protocol

from rescheduler.draining.events import EvictionResult
from rescheduler.observe.events import (
    Chosen,
    CoolingDown,
    DebtEnded,
    DrainEnded,
    DrainStarted,
    Event,
    EvictionAnswered,
    InvolvedLease,
    InvolvedNode,
    MachineGone,
    MachineOrdered,
    MemoryDropped,
    OrderWithheld,
    PauseChanged,
    Planned,
    RemovalPostponed,
    RoomEnded,
    RoomEnding,
    RoomOrdered,
    SurgeEnded,
    SurgeResult,
    SurgeStarted,
    Swept,
    Tainted,
)
from rescheduler.planning.forms import count, shortened, utc
from rescheduler.planning.outcome import Planning, PodRef, Rejected

RESCHEDULER: Final = "Rescheduler"
RESCHEDULER_FAILED: Final = "ReschedulerFailed"

_MAX_REASONS: Final = 3


class RecordEvent(Protocol):
    """Writes one Kubernetes Event asynchronously, without raising. Repeated events are counted, not written again."""

    def __call__(
        self, subject: InvolvedNode | InvolvedLease | PodRef, reason: str, message: str, *, warning: bool = False
    ) -> None: ...


@dataclass(frozen=True, slots=True)
class EventTexts:
    """Texts that differ between the daemon and the proxy; `{node}` is the node's name."""

    targets: str = "to spot nodes"
    evicted: str = "evicted from on-demand node {node} to move to a spot node"


class KubeEvents:
    """A listener that writes Kubernetes Events. Blockers of a node are reported when they change."""

    def __init__(
        self,
        record: RecordEvent,
        texts: EventTexts = EventTexts(),
        lease: Callable[[], InvolvedLease | None] = lambda: None,
    ) -> None:
        """Create the listener. *lease* is the subject of events about the installation, if there is one."""
        self._record, self._texts, self._lease = record, texts, lease
        self._reported: dict[InvolvedNode, object] = {}
        self._last: tuple[Planning, Mapping[str, InvolvedNode]] | None = None  #: reported planning, with its nodes

    def __call__(self, event: Event) -> None:
        match event:
            case Planned():
                self._planned(event)
            case Chosen():
                self._report_blocked(event.rejected, event.nodes, complete=False)
            case DrainStarted(node, plan) if plan is not None:
                where = ", ".join(f"{placement.pod} → {placement.node}" for placement in plan.placements)
                self._record(
                    node, "DrainPlanned", f"moving {count(len(plan.placements), 'pod')} {self._texts.targets}: {where}"
                )
            case Tainted(node):
                self._record(node, RESCHEDULER, "marked the node as draining: it accepts no more pods")
            case EvictionAnswered():
                self._eviction(event)
            case SurgeStarted() | SurgeEnded():
                self._surge(event)
            case MachineOrdered(node, provider, group):
                self._record(
                    node,
                    "MachineRemovalOrdered",
                    f"requested termination of the machine in group {group} from {provider}",
                )
            case OrderWithheld(node, why):
                self._record(node, "MachineKept", f"the machine was not ordered away: {why}", warning=True)
            case PauseChanged(lease, paused):
                reason = "DrainsPaused" if paused else "DrainsResumed"
                self._record(lease, reason, paused or "drains are no longer paused")
            case DebtEnded() | MemoryDropped():
                self._of_history(event)
            case DrainEnded():
                self._ended(event)
            case MachineGone() | RemovalPostponed() | CoolingDown() | Swept() | RoomOrdered() | RoomEnded():
                self._node_state(event)
            case _:
                pass  # does not concern a single node or pod

    def _of_history(self, event: DebtEnded | MemoryDropped) -> None:
        if (lease := self._lease()) is None:
            return
        match event:
            case DebtEnded():
                self._record(lease, "DebtEnded", event.text, warning=True)
            case MemoryDropped(detail=detail):
                self._record(lease, "MemoryDropped", f"the memory dropped entries: {detail}", warning=True)

    def _planned(self, event: Planned) -> None:
        """Report the blocked nodes, unless this planning was the last one reported."""
        last = self._last
        if last is None or last[0] is not event.planning or last[1] is not event.nodes:
            self._last = event.planning, event.nodes
            self._report_blocked(event.planning.rejected, event.nodes, complete=event.complete)

    def _room(self, event: RoomOrdered | RoomEnded) -> None:
        match event:
            case RoomOrdered(node, pods, nodes, template, until=until, group=group):
                text = (
                    f"created {count(pods, 'placeholder')}: expecting {count(nodes, 'new spot node')} like {template}"
                )
                if group:
                    added = count(nodes, "spot node")
                    text = f"requested {added} in group {group} from the provider for {count(pods, 'pod')}"
                self._record(node, "SpotRoomOrdered", f"{text} by {utc(until)}")
            case RoomEnded(node, RoomEnding.TIMED_OUT, detail):
                self._record(node, "NoSpotCapacity", f"no room was made in time: {detail}", warning=True)
            case RoomEnded(node, ending, detail):
                warning = ending not in (RoomEnding.FILLED, RoomEnding.WITHDRAWN)
                self._record(node, "SpotRoomEnded", f"{ending}{detail and f': {detail}'}", warning=warning)

    def _node_state(
        self, event: MachineGone | RemovalPostponed | CoolingDown | Swept | RoomOrdered | RoomEnded
    ) -> None:
        match event:
            case MachineGone(node):
                self._record(node, "MachineRemoved", "the machine is terminating or gone, and the Node was deleted")
            case RemovalPostponed(node, failure):
                text = (
                    f"machine termination may have been requested before; not requested again for now: {failure.detail}"
                )
                self._record(node, "MachineRemovalPostponed", text, warning=True)
            case CoolingDown(node, until, failures):
                text = f"no new attempt before {utc(until)} after {failures} consecutive failed drains"
                self._record(node, "DrainCoolDown", text)
            case Swept(node, holder, done):
                self._record(node, "DrainSwept", f"a drain by {holder or 'an unknown holder'} was {done}")
            case RoomOrdered() | RoomEnded():
                self._room(event)

    def _report_blocked(
        self, rejected: Iterable[Rejected], nodes: Mapping[str, InvolvedNode], *, complete: bool
    ) -> None:
        blocked: dict[InvolvedNode, object] = {}
        for verdict in rejected:
            node = nodes[verdict.node]
            blocked[node] = {(blocker.reason, blocker.pod) for blocker in verdict.blockers}
            if self._reported.get(node) != blocked[node]:
                self._record(node, "DrainBlocked", _blocked(verdict))
        evaluated = set(nodes.values())
        previous = {} if complete else {node: last for node, last in self._reported.items() if node not in evaluated}
        self._reported = previous | blocked

    def _eviction(self, event: EvictionAnswered) -> None:
        match event.result:
            case EvictionResult.EVICTED:
                self._record(event.pod, RESCHEDULER, self._texts.evicted.format(node=event.node))
            case EvictionResult.FAILED:
                self._record(event.pod, RESCHEDULER_FAILED, f"not evicted: {event.detail}", warning=True)
            case EvictionResult.REFUSED | EvictionResult.GONE | EvictionResult.REQUESTED:
                pass  # retried, or the pod is gone or not evicted yet

    def _surge(self, event: SurgeStarted | SurgeEnded) -> None:
        what = f"Deployment {event.deployment}"
        match event:
            case SurgeStarted(node, pods=pods):
                self._record(node, "SurgeStarted", f"rolling out {what} to move {count(pods, 'pod')}")
            case SurgeEnded(node, result=SurgeResult.DONE):
                self._record(node, "SurgeDone", f"{what} has rolled out: its pods run elsewhere")
            case SurgeEnded(node, result=SurgeResult.ROLLED_BACK):
                self._record(node, "SurgeRolledBack", f"{what} has its former template again", warning=True)
            case SurgeEnded(node):
                self._record(node, "SurgeStopped", f"another client changed {what}: it is left alone", warning=True)

    def _ended(self, event: DrainEnded) -> None:
        failure = event.failure
        if failure is None:
            gone = "its machine is terminated" if event.removed or event.handed_over else event.removed_by
            gone = f"a new machine will replace it: {event.unshrunk}" if event.unshrunk else gone
            back = f", {event.returned} of them back on nodes that are not spot" if event.returned else ""
            pods = f"{event.pods_moved}{back}"
            text = f"drained in {event.seconds:.0f} s, {pods}{gone and f'; {gone}'}"
            self._record(event.node, "NodeDrained", text)
            state = (
                "its pods are evicted, another tool is removing it" if event.removed_by else "its pods run elsewhere"
            )
            self._record(event.node, RESCHEDULER, f"drained the node: {state}")
            return
        self._record(event.node, "DrainFailed", f"{failure.why}: {failure.detail}", warning=True)
        self._record(event.node, RESCHEDULER_FAILED, f"failed to drain the node: {failure.why}", warning=True)
        for pod in failure.pods:
            self._record(pod, RESCHEDULER_FAILED, f"still on {event.node}: {failure.why}", warning=True)


def _blocked(verdict: Rejected) -> str:
    reasons = [str(blocker) for blocker in verdict.blockers]
    return f"the node is not drained: {shortened(reasons, _MAX_REASONS, separator='; ', before='; ')}"
