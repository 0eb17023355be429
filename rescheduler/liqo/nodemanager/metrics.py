"""What the node manager counts for Prometheus."""

from collections import Counter as Counted
from collections.abc import Iterable

from prometheus_client import CollectorRegistry, Counter, Gauge

from rescheduler.backends.base import InstanceState
from rescheduler.liqo.nodemanager.machines import View


class Metrics:
    def __init__(self, registry: CollectorRegistry) -> None:
        self._machines = Gauge(
            "spot_rescheduler_liqo_machines",
            "Virtual nodes by group and state, reservations included.",
            ["group", "state"],
            registry=registry,
        )
        self._failures = Counter(
            "spot_rescheduler_liqo_failures_total",
            "Virtual nodes that did not come to run, by group and code.",
            ["group", "code"],
            registry=registry,
        )

    def seen(self, groups: Iterable[str], view: View) -> None:
        """Every state of every group has its value, also 0."""
        counted = Counted((one.group, one.state) for one in view.machines.values())
        for group in {*groups, *(group for group, _ in counted)}:
            for state in InstanceState:
                self._machines.labels(group, state.value).set(counted[group, state])

    def failed(self, group: str, code: str) -> None:
        self._failures.labels(group, code).inc()
