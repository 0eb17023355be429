"""Prometheus metrics for the events of :mod:`rescheduler.observe.events`.

The four metrics of k8s-spot-rescheduler keep their names and labels. Two of them end in ``_count``, which Prometheus's
linter reserves for histograms, so they are exposed without a type; queries are not affected.

Counters without a node label start at 0 for all label values that can occur.
"""

import platform
from collections import Counter as Tally
from collections.abc import Iterable, Mapping
from typing import Any, Final, assert_never

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, ProcessCollector, disable_created_metrics

from rescheduler.draining.eviction_outcomes import EvictionResult
from rescheduler.draining.failures import Why
from rescheduler.observe.events import (
    Chosen,
    Compared,
    CoolingDown,
    DrainEnded,
    DrainProgressed,
    DrainStarted,
    ErrorKind,
    Event,
    EvictionAnswered,
    Held,
    KeptByGuards,
    LeadershipChanged,
    MachineAnswered,
    MachineGone,
    MachineOrdered,
    NodeEvent,
    Observed,
    OwedChanged,
    PauseChanged,
    PlaceholdersObserved,
    Planned,
    ProcessEvent,
    RemovalPostponed,
    RoomEnded,
    RoomEnding,
    RoomOrdered,
    RoundEnded,
    SavingsCounted,
    Started,
    Surveyed,
    Swept,
    Tainted,
    Trouble,
    Waiting,
    WatchAges,
)
from rescheduler.observe.label_values import DRAIN_RESULTS, REMOVAL_RESULTS, all_eviction_labels, eviction_labels
from rescheduler.observe.node_metrics import NodeCounts, NodeDrains
from rescheduler.observe.savings_metrics import SavingsSeries
from rescheduler.planning.landing import LandingOutcome
from rescheduler.planning.outcome import Planning

PREFIX: Final = "spot_rescheduler_"

_QUICK: Final = (0.01, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30)
_SLOW: Final = (5, 15, 30, 60, 120, 180, 300, 600, 1200)


class Metrics:
    """A listener that registers all metrics in *registry*. *backend* is the name of the cloud provider, if any."""

    def __init__(self, registry: CollectorRegistry, backend: str = "", currency: str = "") -> None:
        """*currency* is that of the savings, as given by the user."""
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
        self._waits(None)
        self._cooling.labels("node")
        self._shown: Planning | None = None  # the planning that the gauges show

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
            "Nodes in cooldown after a failed drain (kind=node), and why no drain starts (1).",
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

    def __call__(self, event: Event) -> None:
        match event:
            case Started() | LeadershipChanged() | PauseChanged() | WatchAges() | KeptByGuards() | SavingsCounted():
                self._of_process(event)
            case Observed():
                self._observed(event)
            case Held(waiting):
                self._waits(waiting)
            case Planned():
                self._planned(event)
            case Chosen() | Surveyed() | DrainProgressed():
                pass  # counted by the proxy's own metrics, by the leader, and by later events
            case OwedChanged() | PlaceholdersObserved():
                self._of_pods(event)
            case Trouble(kind):
                self._errors.labels(kind).inc()
            case RoundEnded(at, seconds, succeeded):
                self._round.observe(seconds)
                self._draining.set(0)  # also if an error aborted a drain
                if succeeded:
                    self._success.set(at.timestamp())
            case _:
                self._of_node(event)

    def _of_process(self, event: ProcessEvent) -> None:
        match event:
            case Started(version=version):
                self._build.labels(version, platform.python_version()).set(1)
            case LeadershipChanged(leading):
                self._leader.set(leading)
                if not leading:
                    self._owed.set(0)  # only the leader reports it, and placeholders
                    self._placeholders.clear()
            case WatchAges(seconds):
                _set_all(self._watch_age, seconds)
            case PauseChanged():
                pass  # shown as the reason why nothing is drained
            case SavingsCounted(total):
                self._savings.show(total)
            case KeptByGuards():
                pass  # only logged, once

    def _of_pods(self, event: OwedChanged | PlaceholdersObserved) -> None:
        match event:
            case OwedChanged(pods):
                self._owed.set(pods)
            case PlaceholdersObserved(running, pending):
                self._placeholders.labels("running").set(running)
                self._placeholders.labels("pending").set(pending)

    def _of_node(self, event: NodeEvent) -> None:
        match event:
            case DrainStarted():
                self._draining.set(1)
                self._waits(None)
            case Compared(outcomes=outcomes, returned=returned):
                for outcome, pods in outcomes.items():
                    self._predictions.labels(outcome).inc(pods)
                self._returned.inc(returned)
            case EvictionAnswered(result=result):
                self._evictions.labels(*eviction_labels(event)).inc()
                self._evicted.inc(result is EvictionResult.EVICTED)
            case MachineAnswered(provider=provider, outcome=outcome):
                self._removals.labels(provider, outcome).inc()
            case DrainEnded():
                self._drain_ended(event)
            case RoomEnded(ending=ending):
                self._rooms.labels(ending).inc()
            case (
                RoomOrdered()
                | Tainted()
                | MachineOrdered()
                | MachineGone()
                | RemovalPostponed()
                | CoolingDown()
                | Swept()
            ):
                pass  # counted by later events
            case _:
                assert_never(event)

    def _observed(self, event: Observed) -> None:
        self._nodes.pods = event.pods
        self._cooling.labels("node").set(len(event.cooling))
        self._drains.observe(event.all_nodes, event.at)

    def _waits(self, waiting: Waiting | None) -> None:
        """Set the active wait."""
        for kind in Waiting:
            self._cooling.labels(kind).set(kind is waiting)

    def _planned(self, event: Planned) -> None:
        self._plan.observe(event.seconds)
        self._waits(None)
        if not event.complete or event.planning is self._shown:
            return
        self._shown = event.planning
        rejected = event.planning.rejected
        self._drainable.set(sum(1 for plan in event.planning.plans if plan.placements))
        _set_all(self._blocked_nodes, Tally(str(verdict.reason) for verdict in rejected))
        blockers = {
            (blocker.pod, blocker.reason) for verdict in rejected for blocker in verdict.blockers if blocker.pod
        }
        _set_all(self._blocked_pods, Tally(str(reason) for _, reason in blockers))

    def _drain_ended(self, event: DrainEnded) -> None:
        self._draining.set(0)
        self._drain.observe(event.seconds)
        if event.landing_seconds is not None:
            self._landing.observe(event.landing_seconds)
        self._drains.count("Failure" if event.failure else "Success", event.node.name)
        self._results.labels("failure" if event.failure else "success").inc()
        if event.failure is not None:
            self._failures.labels(event.failure.why).inc()

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


def _set_all(gauge: Gauge, values: Mapping[str, Any]) -> None:
    """Replace all values of *gauge* with *values*."""
    gauge.clear()
    for label, value in values.items():
        gauge.labels(label).set(value)
