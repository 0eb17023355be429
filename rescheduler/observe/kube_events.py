"""The events as Kubernetes Events on nodes and pods, where ``kubectl describe`` shows them.

The reasons of k8s-spot-rescheduler, ``Rescheduler`` and ``ReschedulerFailed``, stand where it wrote them:
on a node that is marked or could not be drained, on a pod that is evicted or could not be. What it did not
tell has reasons of its own.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Final, Protocol

from rescheduler.observe.events import (
    Chosen,
    CoolingDown,
    DrainEnded,
    DrainStarted,
    Event,
    EvictionAnswered,
    EvictionResult,
    MachineGone,
    MachineOrdered,
    NodeRef,
    Planned,
    RemovalPostponed,
    Swept,
    Tainted,
)
from rescheduler.planning.outcome import PodRef, Rejected

RESCHEDULER: Final = "Rescheduler"
RESCHEDULER_FAILED: Final = "ReschedulerFailed"

_REASONS_TOLD: Final = 3


class Record(Protocol):
    """Writes one Kubernetes Event, later and without raising; repeats are counted and not written anew."""

    def __call__(self, subject: NodeRef | PodRef, reason: str, message: str, *, warning: bool = False) -> None: ...


@dataclass(frozen=True, slots=True)
class Words:
    """What differs between those who drain; `{node}` is the node's name."""

    planned: str = "move to spot nodes"
    evicted: str = "evicted from on-demand node {node} to move to a spot node"


class KubeEvents:
    """The listener. That a node stays is told when its reasons change."""

    def __init__(self, record: Record, words: Words = Words()) -> None:
        self._record, self._words = record, words
        self._told: dict[NodeRef, object] = {}

    def __call__(self, event: Event) -> None:
        match event:
            case Planned():
                self._judged(event.planning.rejected, event.nodes, complete=event.complete)
            case Chosen():
                self._judged(event.rejected, event.nodes, complete=False)
            case DrainStarted(node, plan) if plan is not None:
                where = ", ".join(f"{one.pod} → {one.node}" for one in plan.placements)
                self._record(node, "DrainPlanned", f"{len(plan.placements)} pods {self._words.planned}: {where}")
            case Tainted(node):
                self._record(node, RESCHEDULER, "marked the node as draining, it takes no more pods")
            case EvictionAnswered():
                self._eviction(event)
            case MachineOrdered(node, provider, group):
                self._record(node, "MachineRemovalOrdered", f"{provider} takes the machine out of group {group}")
            case DrainEnded():
                self._ended(event)
            case MachineGone() | RemovalPostponed() | CoolingDown() | Swept():
                self._after(event)
            case _:
                pass  # of no single node or pod

    def _after(self, event: MachineGone | RemovalPostponed | CoolingDown | Swept) -> None:
        match event:
            case MachineGone(node):
                self._record(node, "MachineRemoved", "the machine is going or gone, the Node is deleted")
            case RemovalPostponed(node, failure):
                text = f"the machine may have been ordered away, it is not ordered again for now: {failure.detail}"
                self._record(node, "MachineRemovalPostponed", text, warning=True)
            case CoolingDown(node, until, failures):
                text = f"left alone until {until:%Y-%m-%dT%H:%M:%SZ} after {failures} failed drains in a row"
                self._record(node, "DrainCoolDown", text)
            case Swept(node, holder, done):
                self._record(node, "DrainSwept", f"a drain begun by {holder or 'an unknown holder'} was {done}")

    def _judged(self, rejected: Iterable[Rejected], nodes: Mapping[str, NodeRef], *, complete: bool) -> None:
        blocked: dict[NodeRef, object] = {}
        for verdict in rejected:
            node = nodes[verdict.node]
            blocked[node] = {(one.reason, one.pod) for one in verdict.blockers}
            if self._told.get(node) != blocked[node]:
                self._record(node, "DrainBlocked", _blocked(verdict))
        judged = set(nodes.values())
        kept = {} if complete else {node: told for node, told in self._told.items() if node not in judged}
        self._told = kept | blocked

    def _eviction(self, event: EvictionAnswered) -> None:
        match event.result:
            case EvictionResult.EVICTED:
                self._record(event.pod, RESCHEDULER, self._words.evicted.format(node=event.node))
            case EvictionResult.FAILED:
                self._record(event.pod, RESCHEDULER_FAILED, f"not evicted: {event.detail}", warning=True)
            case EvictionResult.REFUSED | EvictionResult.GONE:
                pass  # asked again, or nobody left to tell

    def _ended(self, event: DrainEnded) -> None:
        failure = event.failure
        if failure is None:
            gone = "its machine is taken away" if event.removed or event.handed_over else event.removed_by
            gone = f"another machine comes in its place: {event.unshrunk}" if event.unshrunk else gone
            text = f"drained in {event.seconds:.0f} s, {len(event.evicted)} pods evicted{gone and f'; {gone}'}"
            self._record(event.node, "NodeDrained", text)
            how = "its pods are evicted, another tool is removing it" if event.removed_by else "its pods run elsewhere"
            self._record(event.node, RESCHEDULER, f"drained the node, {how}")
            return
        self._record(event.node, "DrainFailed", f"{failure.why}: {failure.detail}", warning=True)
        self._record(event.node, RESCHEDULER_FAILED, f"failed to drain the node: {failure.why}", warning=True)
        for pod in failure.pods:
            self._record(pod, RESCHEDULER_FAILED, f"still on {event.node}: {failure.why}", warning=True)


def _blocked(verdict: Rejected) -> str:
    said = [f"{one.reason}: {f'pod {one.pod}: ' if one.pod else ''}{one.detail}" for one in verdict.blockers]
    more = f"; and {len(said) - _REASONS_TOLD} more" if len(said) > _REASONS_TOLD else ""
    return "the node stays: " + "; ".join(said[:_REASONS_TOLD]) + more
