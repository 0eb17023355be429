"""Prometheus metrics for the events of :mod:`rescheduler.observe.events`."""

from collections import Counter as Tally
from collections.abc import Mapping
from typing import Any

from prometheus_client import CollectorRegistry, Gauge

from rescheduler.observe.events import (
    DrainEnded,
    DrainStarted,
    Event,
    Held,
    LeadershipChanged,
    Observed,
    Planned,
    SavingsCounted,
    Waiting,
    WatchAges,
)
from rescheduler.observe.metric_families import MetricFamilies
from rescheduler.planning.money.worth import summed
from rescheduler.planning.outcome import Planning


class Metrics(MetricFamilies):
    """A listener that registers all metrics in *registry*. *backend* is the name of the cloud provider, if any."""

    def __init__(self, registry: CollectorRegistry, backend: str = "", currency: str = "") -> None:
        """Register the metrics. *currency* is the currency of the savings, as given by the user."""
        super().__init__(registry, backend, currency)
        self._wait: Waiting | None = None  # the active wait, as shown
        for kind in Waiting:
            self._cooling.labels(kind)
        self._ages: dict[str, Gauge] = {}  # the series of the ages of watches, by plural
        self._cooling.labels("node")
        self._shown: Planning | None = None  # the planning that the gauges show

    def __call__(self, event: Event) -> None:
        match event:
            case Observed():
                self._observed(event)
            case Held(waiting):
                self._waits(waiting)
            case Planned():
                self._planned(event)
            case DrainStarted():
                self._waits(None)
            case DrainEnded(node=node, failure=failure):
                self._drains.count("Failure" if failure else "Success", node.name)
            case LeadershipChanged(leading=False):
                self._owed.set(0)  # only the leader reports it, and placeholders
                self._placeholders.clear()
                self._pools.pools = ()
            case WatchAges(seconds):
                self._show_ages(seconds)
            case SavingsCounted(total):
                self._savings.show(total)
        for sample in event.samples():
            self.add(sample)

    def _observed(self, event: Observed) -> None:
        self._nodes.pods = event.pods
        self._pools.pools = event.pools
        self._cooling.labels("node").set(len(event.cooling))
        self._drains.observe(event.all_nodes, event.at)

    def _waits(self, waiting: Waiting | None) -> None:
        """Set the active wait."""
        for kind in {self._wait, waiting} - {None} if waiting is not self._wait else ():
            self._cooling.labels(kind).set(kind is waiting)
        self._wait = waiting

    def _show_ages(self, ages: Mapping[str, float]) -> None:
        if ages.keys() != self._ages.keys():
            self._watch_age.clear()
            self._ages = {kind: self._watch_age.labels(kind) for kind in ages}
        for kind, age in ages.items():
            self._ages[kind].set(age)

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


def _set_all(gauge: Gauge, values: Mapping[str, Any]) -> None:
    """Replace all values of *gauge* with *values*."""
    gauge.clear()
    for label, value in values.items():
        gauge.labels(label).set(value)
