"""Kubernetes Events on nodes and pods, shown by ``kubectl describe``.

The reasons of k8s-spot-rescheduler, ``Rescheduler`` and ``ReschedulerFailed``, are used as in k8s-spot-rescheduler: on
a node that is marked or could not be drained, and on a pod that is evicted or could not be evicted. All other events
have their own reasons.
"""

from collections.abc import Callable, Iterable, Mapping
from typing import Final, Protocol

from rescheduler.observe.events import DAEMON_TEXTS, Chosen, Event, EventTexts, InvolvedLease, InvolvedNode, Planned
from rescheduler.planning.forms import shortened
from rescheduler.planning.outcome import Planning, PodRef, Rejected

_MAX_REASONS: Final = 3


class RecordEvent(Protocol):
    """Writes one Kubernetes Event asynchronously, without raising. Repeated events are counted, not written again."""

    def __call__(
        self, subject: InvolvedNode | InvolvedLease | PodRef, reason: str, message: str, *, warning: bool = False
    ) -> None: ...


class KubeEvents:
    """A listener that writes Kubernetes Events. Blockers of a node are reported when they change."""

    def __init__(
        self,
        record: RecordEvent,
        texts: EventTexts = DAEMON_TEXTS,
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
        for each in event.kube_events(self._texts):
            if (subject := each.subject or self._lease()) is not None:
                self._record(subject, each.reason, each.text, warning=each.warning)

    def _planned(self, event: Planned) -> None:
        """Report the blocked nodes, unless this planning was the last one reported."""
        last = self._last
        if last is None or last[0] is not event.planning or last[1] is not event.nodes:
            self._last = event.planning, event.nodes
            self._report_blocked(event.planning.rejected, event.nodes, complete=event.complete)

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


def _blocked(verdict: Rejected) -> str:
    reasons = [str(blocker) for blocker in verdict.blockers]
    return f"the node is not drained: {shortened(reasons, _MAX_REASONS, separator='; ', before='; ')}"
