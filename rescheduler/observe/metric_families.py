"""The metrics of the daemon: names, meanings and labels. :mod:`rescheduler.observe.metrics` sets their values."""

from collections.abc import Iterable, Iterator, Mapping
from datetime import datetime, timedelta
from typing import Final

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, ProcessCollector, disable_created_metrics
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric, UntypedMetricFamily
from prometheus_client.registry import Collector

from rescheduler.draining.events import EvictionResult
from rescheduler.draining.state import Why
from rescheduler.observe.events import CODES, ErrorKind, MetricSample, RoomEnding, SurgeResult
from rescheduler.planning.memory import ENTRY_KINDS
from rescheduler.planning.money.savings import Savings
from rescheduler.planning.outcome import LandingOutcome
from rescheduler.planning.pools import PoolState

# The possible label values of counters. A counter starts at 0 for each of them.
#
# Prometheus computes an increase from two samples. A series that first appears with the value 1 has no increase, so an
# alert would miss the first occurrence.

#: HTTP statuses of failed eviction requests; "" if there was no response. The series of any other status is added when
#: the status occurs.
FAILURE_CODES: Final = (
    "", "400", "401", "403", "405", "408", "409", "410", "413", "415", "422", "429", "500", "502", "503", "504",
)  # fmt: skip

#: Responses of cloud providers: the values of :class:`rescheduler.providers.base.DeleteResult`.
REMOVAL_RESULTS: Final = ("deleted", "alreadygone", "accepted", "refused", "failed")

#: Values of the label ``result`` of the counter of drains.
DRAIN_RESULTS: Final = ("success", "failure")


def all_eviction_labels() -> Iterator[tuple[str, str]]:
    """Yield the pairs of ``result`` and ``code`` that are known to occur."""
    yield from CODES.items()
    for code in FAILURE_CODES:
        yield EvictionResult.FAILED, code


# The metrics of k8s-spot-rescheduler with a node label: the nodes with their pods, and drains by node.

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


# The two counters of savings. They show the ledger, which survives restarts, and never decrease.


class SavingsSeries(Collector):
    """The counters as they are scraped: 0 until the ledger is known."""

    def __init__(self, prefix: str, currency: str) -> None:
        self._prefix = prefix
        self._node_hours = 0.0
        self._money: dict[str, float] = {currency: 0.0}

    def show(self, total: Savings) -> None:
        """Set the counters to *total*. A lower value, after the end of a saving was corrected, is ignored."""
        self._node_hours = max(self._node_hours, total.node_hours)
        money = dict(self._money)
        for currency, amount in total.money.items():
            money[currency] = max(money.get(currency, 0.0), float(amount))
        self._money = money  # scrapes run on other threads

    def collect(self) -> Iterable[Metric]:
        money = CounterMetricFamily(
            self._prefix + "savings_money",
            "Money saved by removed on-demand nodes, as in the ledger of savings.",
            labels=["currency"],
        )
        for currency, amount in sorted(self._money.items()):
            money.add_metric([currency], amount)
        hours = "Node-hours of on-demand nodes saved, as in the ledger of savings."
        return (money, CounterMetricFamily(self._prefix + "savings_nodehours", hours, value=self._node_hours))


# The pools of spot nodes. Their number is bounded by the memory, whose records they show.


class PoolSeries(Collector):
    """The losses of the pools of spot nodes as they are scraped; none on replicas that are not the leader."""

    def __init__(self, prefix: str) -> None:
        self._prefix = prefix
        self.pools: tuple[PoolState, ...] = ()

    def collect(self) -> Iterable[Metric]:
        losses = CounterMetricFamily(
            self._prefix + "spot_pool_losses", "Spot nodes that were lost, by pool.", labels=["pool"]
        )
        hazard = GaugeMetricFamily(
            self._prefix + "spot_pool_hazard",
            "Decayed rate of lost spot nodes per node-hour, by pool.",
            labels=["pool"],
        )
        for pool in self.pools:
            losses.add_metric([pool.name], pool.losses)
            hazard.add_metric([pool.name], pool.per_node_hour)
        return (losses, hazard)


# The four metrics of k8s-spot-rescheduler keep their names and labels. Two of them end in ``_count``, which
# Prometheus's linter reserves for histograms, so they are exposed without a type; queries are not affected.
#
# Counters without a node label start at 0 for all label values that can occur.

PREFIX: Final = "spot_rescheduler_"

_QUICK: Final = (0.01, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30)
_SLOW: Final = (5, 15, 30, 60, 120, 180, 300, 600, 1200)


class MetricFamilies:
    """All metrics, registered in *registry*."""

    def __init__(self, registry: CollectorRegistry, backend: str, currency: str) -> None:
        disable_created_metrics()  # type: ignore[no-untyped-call]
        self._registry = registry
        self._families: dict[str, Gauge | Counter | Histogram] = {}  # by name without prefix
        self._nodes = NodeCounts(PREFIX)
        registry.register(self._nodes)
        self._savings = SavingsSeries(PREFIX, currency)
        registry.register(self._savings)
        self._pools = PoolSeries(PREFIX)
        registry.register(self._pools)
        ProcessCollector(registry=registry)
        self._make_gauges()
        self._make_counters(backend)
        self._make_histograms()

    def add(self, sample: MetricSample) -> None:
        """Increase the counter, set the gauge, or observe the value of the histogram that *sample* names."""
        family = self._families[sample.metric]
        series = family.labels(*sample.labels) if sample.labels else family
        match series:
            case Counter():
                series.inc(sample.value)
            case Gauge():
                series.set(sample.value)
            case Histogram():
                series.observe(sample.value)

    def _make_gauges(self) -> None:
        self._gauge("build_info", "Version of this program, value 1.", "version", "python")
        self._gauge("leader", "Whether this replica is the leader (1) or not (0).")
        self._gauge("last_success_timestamp_seconds", "Time of the last round without errors, in Unix seconds.")
        self._drainable = self._gauge(
            "drainable_nodes", "On-demand nodes with pods that could be drained, each by itself."
        )
        self._empty = self._gauge("empty_nodes", "On-demand nodes without pods to move, which could be removed.")
        self._potential = self._gauge(
            "potential_savings",
            "Money per month that draining the drainable nodes would save, each by itself.",
            "currency",
        )
        self._blocked_nodes = self._gauge(
            "blocked_nodes", "On-demand nodes that cannot be drained, by their first reason.", "reason"
        )
        self._blocked_pods = self._gauge(
            "blocked_pods", "Pods that block drains of on-demand nodes, by reason.", "reason"
        )
        self._cooling = self._gauge(
            "cooldown_active",
            "Nodes in cooldown after a failed drain (kind=node), and the reason why no drain starts (1).",
            "kind",
        )
        self._gauge("drains_in_progress", "Drains in progress.")
        self._watch_age = self._gauge(
            "watch_age_seconds", "Seconds since a watch last received an event, a bookmark or a list.", "kind"
        )
        self._placeholders = self._gauge("placeholders", "Placeholders of this installation by state.", "state")
        self._owed = self._gauge("owed_replacements", "Replacement pods that earlier drains still owe.")

    def _make_counters(self, backend: str) -> None:
        removals = [(backend, result) for result in REMOVAL_RESULTS if backend]
        self._drains = NodeDrains(
            self._counter("node_drain", "Drains by result (Success, Failure).", "drain_state", "node")
        )
        self._counter("drains", "Drains by result (success, failure).", "result", zeros=DRAIN_RESULTS)
        self._counter("evicted_pods", "Pods whose eviction was accepted.")
        self._counter("evictions", "Responses to eviction requests.", "result", "code", zeros=all_eviction_labels())
        self._counter("errors", "Errors outside of drains, by type.", "type", zeros=ErrorKind)
        self._counter("drain_failures", "Failed drains by cause.", "cause", zeros=Why)
        self._counter(
            "placement_predictions",
            "Evicted pods by actual versus forecast placement.",
            "outcome",
            zeros=LandingOutcome,
        )
        self._counter("returned_pods", "Evicted pods that returned to nodes that are not spot.")
        self._counter(
            "owed_replacements_given_up",
            "Replacement pods that are not waited for any more: nothing tells their number.",
        )
        self._counter(
            "memory_entries_dropped",
            "Entries dropped from the stored memory because of its limits.",
            "kind",
            zeros=ENTRY_KINDS,
        )
        self._counter(
            "surges", "Rolling updates of Deployments instead of evictions, by result.", "result", zeros=SurgeResult
        )
        self._counter("room_orders", "Orders of spot room that have ended, by outcome.", "outcome", zeros=RoomEnding)
        self._counter(
            "node_removals",
            "Responses of the cloud provider to node removals.",
            "backend",
            "result",
            zeros=removals,
        )

    def _make_histograms(self) -> None:
        self._histogram(
            "loop_duration_seconds", "Duration of rounds, including drains.", (*_QUICK, 60, 120, 300, 600, 1200)
        )
        self._plan = self._histogram("plan_duration_seconds", "Duration of planning in a round.", _QUICK)
        self._histogram("drain_duration_seconds", "Duration of drains, from the taint to the end.", _SLOW)
        self._histogram(
            "landing_duration_seconds", "Time from the last eviction of a drain until all replacement pods run.", _SLOW
        )

    def _gauge(self, name: str, meaning: str, *labels: str) -> Gauge:
        self._families[name] = gauge = Gauge(PREFIX + name, meaning, labels, registry=self._registry)
        return gauge

    def _counter(self, name: str, meaning: str, *labels: str, zeros: Iterable[str | tuple[str, ...]] = ()) -> Counter:
        """Return a counter that has a series for each of *zeros*, the values of its label or labels."""
        self._families[name] = counter = Counter(PREFIX + name, meaning, labels, registry=self._registry)
        for values in zeros:
            counter.labels(*((values,) if isinstance(values, str) else values))
        return counter

    def _histogram(self, name: str, meaning: str, buckets: tuple[float, ...]) -> Histogram:
        self._families[name] = histogram = Histogram(PREFIX + name, meaning, buckets=buckets, registry=self._registry)
        return histogram
