"""Observe the cluster at the start of a round: record and report its nodes and the loss of spot nodes."""

from collections.abc import Mapping
from datetime import datetime

from rescheduler.clock import Clock
from rescheduler.execution.cluster_view import ClusterView
from rescheduler.execution.watched_nodes import PodCounts
from rescheduler.housekeeping.empty_node_backoff import Offers
from rescheduler.housekeeping.loop_inputs import Knowledge
from rescheduler.observe.events import Observed, Report
from rescheduler.planning.node_info import LabelFindings


class ClusterObservation:
    """Observes the cluster and reports it. Used by the loop's thread only."""

    def __init__(self, view: ClusterView, knowledge: Knowledge, offers: Offers, clock: Clock, report: Report) -> None:
        self._view = view
        self._history = knowledge.history
        self._candidates = knowledge.candidates
        self._spot_watch = knowledge.spot_watch
        self._offers = offers
        self._clock = clock
        self._report = report

    def update(self) -> datetime | None:
        """Record and report the nodes. Return the end of the wait after a burst of lost spot nodes, or None."""
        now, nodes = self._clock.now(), self._view.nodes()
        uids = {name: node.metadata.uid for name, node in nodes.items()}
        self._offers.keep(frozenset(uids.values()))
        self._history.keep_nodes(uids)
        self._view.vetoes = self._candidates.vetoes()
        settled_at = self._spot_watch.update(self._view.spot_nodes(), now)
        cooling = {node: cooldown.until for node, cooldown in self._history.cooling().items()}
        labels = self._view.label_findings()
        self._report(_observed(now, self._view.pod_counts(), frozenset(nodes), cooling, labels))
        return settled_at


def _observed(
    now: datetime,
    pods: PodCounts,
    all_nodes: frozenset[str],
    cooling: Mapping[str, datetime],
    labels: LabelFindings,
) -> Observed:
    return Observed(now, pods, all_nodes, cooling, labels.unmatched, labels.suggestion, labels.overlapping)
