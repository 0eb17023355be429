"""The two node metrics of k8s-spot-rescheduler."""

from collections.abc import Iterable, Mapping

from prometheus_client.core import Metric, UntypedMetricFamily
from prometheus_client.registry import Collector


class NodeCounts(Collector):
    """Collects the metrics at each scrape, so that deleted nodes leave no series."""

    def __init__(self, prefix: str) -> None:
        self._prefix = prefix
        self.pods: Mapping[str, Mapping[str, int]] = {}  #: by type label and node: number of pods

    def collect(self) -> Iterable[Metric]:
        nodes = UntypedMetricFamily(self._prefix + "nodes_count", "Nodes by type label.", labels=["node_type"])
        pods = UntypedMetricFamily(
            self._prefix + "node_pods_count",
            "Pods of each node, without DaemonSet and mirror pods.",
            labels=["node_type", "node"],
        )
        for node_type, counts in self.pods.items():
            nodes.add_metric([node_type], len(counts))
            for node, count in counts.items():
                pods.add_metric([node_type, node], count)
        return (nodes, pods)
