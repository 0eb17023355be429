"""The metrics of k8s-spot-rescheduler with a node label: the nodes with their pods, and drains by node."""

from collections.abc import Iterable, Mapping
from datetime import datetime, timedelta
from typing import Final

from prometheus_client import Counter
from prometheus_client.core import Metric, UntypedMetricFamily
from prometheus_client.registry import Collector

#: How long the counters of a node are kept after the node is gone, so that the last value is scraped.
GONE_NODE: Final = timedelta(minutes=15)


class NodeCounts(Collector):
    """Collects the metrics at each scrape, so that deleted nodes leave no series.

    The same metric objects are returned until :attr:`pods` is replaced.
    """

    def __init__(self, prefix: str) -> None:
        self._prefix = prefix
        self.pods: Mapping[str, Mapping[str, int]] = {}  #: by type label and node: number of pods
        self._collected: tuple[Mapping[str, Mapping[str, int]], tuple[Metric, ...]] | None = None

    def collect(self) -> Iterable[Metric]:
        current, collected = self.pods, self._collected
        if collected is None or collected[0] is not current:
            collected = self._collected = current, self._metrics(current)
        return collected[1]

    def _metrics(self, by_type: Mapping[str, Mapping[str, int]]) -> tuple[Metric, ...]:
        nodes = UntypedMetricFamily(self._prefix + "nodes_count", "Nodes by type label.", labels=["node_type"])
        pods = UntypedMetricFamily(
            self._prefix + "node_pods_count",
            "Pods of each node, without DaemonSet and mirror pods.",
            labels=["node_type", "node"],
        )
        for node_type, counts in by_type.items():
            nodes.add_metric([node_type], len(counts))
            for node, count in counts.items():
                pods.add_metric([node_type, node], count)
        return (nodes, pods)


class NodeDrains:
    """Counts drains by node, in a counter with the labels ``drain_state`` and ``node``."""

    def __init__(self, counter: Counter) -> None:
        self._counter = counter
        self._gone_since: dict[str, datetime | None] = {}  # of counted nodes; None: the node exists

    def count(self, drain_state: str, node: str) -> None:
        self._gone_since[node] = None
        self._counter.labels(drain_state, node).inc()

    def observe(self, nodes: frozenset[str], now: datetime) -> None:
        """Remove the series of nodes that have not been among *nodes*, the nodes of the cluster, for GONE_NODE."""
        for node, gone_since in list(self._gone_since.items()):
            if node in nodes:
                self._gone_since[node] = None
            elif gone_since is None:
                self._gone_since[node] = now
            elif now - gone_since >= GONE_NODE:
                del self._gone_since[node]
                self._counter.remove_by_labels({"node": node})
