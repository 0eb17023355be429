"""Discovery's metrics for Prometheus."""

from prometheus_client import CollectorRegistry, Counter, Gauge


class DiscoveryMetrics:
    def __init__(self, registry: CollectorRegistry) -> None:
        self._clusters = Gauge("spot_rescheduler_liqo_clusters", "Clusters that discovery lists.", registry=registry)
        self._unreadable = Gauge(
            "spot_rescheduler_liqo_unreadable_secrets", "Secrets that describe no cluster.", registry=registry
        )
        self._expired = Counter(
            "spot_rescheduler_liqo_expired_total",
            "Cluster registrations that expired without renewal.",
            registry=registry,
        )

    def update(self, clusters: int, unreadable: int) -> None:
        self._clusters.set(clusters)
        self._unreadable.set(unreadable)

    def expired(self, count: int) -> None:
        self._expired.inc(count)
