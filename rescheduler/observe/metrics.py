"""Prometheus metrics for the events of :mod:`rescheduler.observe.events`."""

import platform
from collections import Counter as Tally
from collections.abc import Mapping
from typing import Any, assert_never

from prometheus_client import CollectorRegistry, Gauge

from rescheduler.draining.events import EvictionResult
from rescheduler.observe.events import (
    Chosen,
    Compared,
    CoolingDown,
    DebtEnded,
    DrainEnded,
    DrainProgressed,
    DrainStarted,
    DrainWaits,
    Event,
    EvictionAnswered,
    Held,
    HistoryEvent,
    LeadershipChanged,
    MachineAnswered,
    MachineGone,
    MachineOrdered,
    MemoryDropped,
    NodeEvent,
    Observed,
    OrderWithheld,
    Overviewed,
    OwedChanged,
    OwnerSetAside,
    PauseChanged,
    PlaceholdersObserved,
    Planned,
    ProcessEvent,
    RemovalPostponed,
    RoomEnded,
    RoomOrdered,
    RoundEnded,
    SavingsCounted,
    Started,
    SurgeEnded,
    SurgeStarted,
    Surveyed,
    Swept,
    Tainted,
    Trouble,
    Waiting,
    WatchAges,
)
from rescheduler.observe.metric_families import MetricFamilies, eviction_labels
from rescheduler.planning.money.worth import summed
from rescheduler.planning.outcome import Planning


class Metrics(MetricFamilies):
    """A listener that registers all metrics in *registry*. *backend* is the name of the cloud provider, if any."""

    def __init__(self, registry: CollectorRegistry, backend: str = "", currency: str = "") -> None:
        """Register the metrics. *currency* is the currency of the savings, as given by the user."""
        super().__init__(registry, backend, currency)
        self._waits(None)
        self._cooling.labels("node")
        self._shown: Planning | None = None  # the planning that the gauges show

    def __call__(self, event: Event) -> None:
        match event:
            case Started() | LeadershipChanged() | PauseChanged() | WatchAges() | SavingsCounted():
                self._of_process(event)
            case Observed():
                self._observed(event)
            case Held(waiting):
                self._waits(waiting)
            case Planned():
                self._planned(event)
            case Chosen() | Surveyed() | Overviewed() | DrainProgressed() | DrainWaits():
                pass  # counted by the proxy's own metrics, by the leader, and by later events
            case OwedChanged() | PlaceholdersObserved():
                self._of_pods(event)
            case OwnerSetAside() | DebtEnded() | MemoryDropped():
                self._of_history(event)
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
                    self._pools.pools = ()
            case WatchAges(seconds):
                _set_all(self._watch_age, seconds)
            case PauseChanged():
                pass  # shown as the reason why nothing is drained
            case SavingsCounted(total):
                self._savings.show(total)

    def _of_pods(self, event: OwedChanged | PlaceholdersObserved) -> None:
        match event:
            case OwedChanged(pods):
                self._owed.set(pods)
            case PlaceholdersObserved(running, pending):
                self._placeholders.labels("running").set(running)
                self._placeholders.labels("pending").set(pending)

    def _of_history(self, event: HistoryEvent) -> None:
        match event:
            case MemoryDropped(entries):
                for kind, entries_dropped in entries.items():
                    self._dropped.labels(kind).inc(entries_dropped)
            case DebtEnded(pods=pods):
                self._ended_debts.inc(pods)
            case OwnerSetAside():
                pass  # the blocked nodes show it

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
            case SurgeEnded(result=result):
                self._surges.labels(result).inc()
            case MachineAnswered(provider=provider, outcome=outcome):
                self._removals.labels(provider, outcome).inc()
            case DrainEnded():
                self._drain_ended(event)
            case RoomEnded(ending=ending):
                self._rooms.labels(ending).inc()
            case (
                RoomOrdered()
                | Tainted()
                | SurgeStarted()
                | MachineOrdered()
                | OrderWithheld()
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
        self._pools.pools = event.pools
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
        empty = event.planning.empty
        self._drainable.set(len(event.planning.plans) - empty)
        self._empty.set(empty)
        saved = summed(event.worths.values()).net_per_month
        _set_all(self._potential, {} if saved is None else {event.currency: float(saved)})
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


def _set_all(gauge: Gauge, values: Mapping[str, Any]) -> None:
    """Replace all values of *gauge* with *values*."""
    gauge.clear()
    for label, value in values.items():
        gauge.labels(label).set(value)
