"""The metrics of the daemon: names, meanings and labels. :mod:`rescheduler.observe.metrics` sets their values.

The four metrics of k8s-spot-rescheduler keep their names and labels. Two of them end in ``_count``, which Prometheus's
linter reserves for histograms, so they are exposed without a type; queries are not affected.

Counters without a node label start at 0 for all label values that can occur.
"""

from collections.abc import Iterable
from typing import Final

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, ProcessCollector, disable_created_metrics

from rescheduler.draining.failures import Why
from rescheduler.observe.events import ErrorKind, RoomEnding
from rescheduler.observe.label_values import DRAIN_RESULTS, REMOVAL_RESULTS, all_eviction_labels
from rescheduler.observe.node_metrics import NodeCounts, NodeDrains
from rescheduler.observe.savings_metrics import SavingsSeries
from rescheduler.planning.landing import LandingOutcome
from rescheduler.planning.memory import ENTRY_KINDS

PREFIX: Final = "spot_rescheduler_"

_QUICK: Final = (0.01, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30)
_SLOW: Final = (5, 15, 30, 60, 120, 180, 300, 600, 1200)


class MetricFamilies:
    """All metrics, registered in *registry*."""

    def __init__(self, registry: CollectorRegistry, backend: str, currency: str) -> None:
        disable_created_metrics()  # type: ignore[no-untyped-call]
        self._registry = registry
        self._nodes = NodeCounts(PREFIX)
        registry.register(self._nodes)
        self._savings = SavingsSeries(PREFIX, currency)
        registry.register(self._savings)
        ProcessCollector(registry=registry)
        self._make_gauges()
        self._make_counters(backend)
        self._make_histograms()

    def _make_gauges(self) -> None:
        self._build = self._gauge("build_info", "Version of this program, value 1.", "version", "python")
        self._leader = self._gauge("leader", "Whether this replica is the leader (1) or not (0).")
        self._success = self._gauge(
            "last_success_timestamp_seconds", "Time of the last round without errors, in Unix seconds."
        )
        self._drainable = self._gauge(
            "drainable_nodes", "On-demand nodes with pods that could be drained, each by itself."
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
        self._draining = self._gauge("drains_in_progress", "Drains in progress.")
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
        self._results = self._counter("drains", "Drains by result (success, failure).", "result", zeros=DRAIN_RESULTS)
        self._evicted = self._counter("evicted_pods", "Pods whose eviction was accepted.")
        self._evictions = self._counter(
            "evictions", "Responses to eviction requests.", "result", "code", zeros=all_eviction_labels()
        )
        self._errors = self._counter("errors", "Errors outside of drains, by type.", "type", zeros=ErrorKind)
        self._failures = self._counter("drain_failures", "Failed drains by cause.", "cause", zeros=Why)
        self._predictions = self._counter(
            "placement_predictions",
            "Evicted pods by actual versus forecast placement.",
            "outcome",
            zeros=LandingOutcome,
        )
        self._returned = self._counter("returned_pods", "Evicted pods that returned to nodes that are not spot.")
        self._ended_debts = self._counter(
            "owed_replacements_given_up",
            "Replacement pods that are not waited for any more: nothing tells their number.",
        )
        self._dropped = self._counter(
            "memory_entries_dropped",
            "Entries dropped from the stored memory because of its limits.",
            "kind",
            zeros=ENTRY_KINDS,
        )
        self._rooms = self._counter(
            "room_orders", "Orders of spot room that have ended, by outcome.", "outcome", zeros=RoomEnding
        )
        self._removals = self._counter(
            "node_removals",
            "Responses of the cloud provider to node removals.",
            "backend",
            "result",
            zeros=removals,
        )

    def _make_histograms(self) -> None:
        self._round = self._histogram(
            "loop_duration_seconds", "Duration of rounds, including drains.", (*_QUICK, 60, 120, 300, 600, 1200)
        )
        self._plan = self._histogram("plan_duration_seconds", "Duration of planning in a round.", _QUICK)
        self._drain = self._histogram("drain_duration_seconds", "Duration of drains, from the taint to the end.", _SLOW)
        self._landing = self._histogram(
            "landing_duration_seconds", "Time from the last eviction of a drain until all replacement pods run.", _SLOW
        )

    def _gauge(self, name: str, meaning: str, *labels: str) -> Gauge:
        return Gauge(PREFIX + name, meaning, labels, registry=self._registry)

    def _counter(self, name: str, meaning: str, *labels: str, zeros: Iterable[str | tuple[str, ...]] = ()) -> Counter:
        """Return a counter that has a series for each of *zeros*, the values of its label or labels."""
        counter = Counter(PREFIX + name, meaning, labels, registry=self._registry)
        for values in zeros:
            counter.labels(*((values,) if isinstance(values, str) else values))
        return counter

    def _histogram(self, name: str, meaning: str, buckets: tuple[float, ...]) -> Histogram:
        return Histogram(PREFIX + name, meaning, buckets=buckets, registry=self._registry)
