"""The node manager's metrics for Prometheus."""

from collections import Counter as Counted
from collections.abc import Iterable

from prometheus_client import CollectorRegistry, Counter, Gauge

from rescheduler.liqo_services.node_manager.machines import MachinesView
from rescheduler.providers.base import InstanceState


class NodeManagerMetrics:
    def __init__(self, registry: CollectorRegistry) -> None:
        self._machines = Gauge(
            "spot_rescheduler_liqo_machines",
            "Virtual nodes by group and state, reservations included.",
            ["group", "state"],
            registry=registry,
        )
        self._failures = Counter(
            "spot_rescheduler_liqo_failures_total",
            "Virtual nodes that failed to start, by group and code.",
            ["group", "code"],
            registry=registry,
        )

    def update(self, groups: Iterable[str], view: MachinesView) -> None:
        """Set the gauge for each state of each group, including zeros."""
        counted = Counted((machine.group, machine.state) for machine in view.machines.values())
        for group in {*groups, *(group for group, _ in counted)}:
            for state in InstanceState:
                self._machines.labels(group, state.value).set(counted[group, state])

    def failed(self, group: str, code: str) -> None:
        self._failures.labels(group, code).inc()
