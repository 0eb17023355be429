"""Metrics of the node manager."""

from prometheus_client import CollectorRegistry

from rescheduler.liqo.node_manager.upkeep import NodeManagerMetrics, Upkeep
from tests.liqo_services.builders import bench, cluster


def test_machines_are_counted_by_state_and_failures_by_code() -> None:
    registry = CollectorRegistry()
    with bench(cluster("rome", 1), cluster("milan", 9, price="1"), starting=60) as here:
        upkeep = Upkeep(here.ports, here.service, here.patience, NodeManagerMetrics(registry))

        def machines(state: str) -> float | None:
            labels = {"group": "STANDARD", "state": state}
            return registry.get_sample_value("spot_rescheduler_liqo_machines", labels)

        upkeep.step()
        assert [machines(state) for state in ("creating", "running", "deleting")] == [0, 0, 0]
        here.liqo.add("rome-1", "STANDARD", "rome")
        here.service.increase("STANDARD", 2)
        here.liqo.denied["milan"] = "Resources"
        upkeep.step()
        assert [machines(state) for state in ("creating", "running", "deleting")] == [2, 1, 0]
        here.service.remove("STANDARD", "rome-1")
        upkeep.step()
        assert [machines(state) for state in ("creating", "running", "deleting")] == [2, 0, 1]
        failed = {"group": "STANDARD", "code": "OUT_OF_RESOURCES"}
        assert registry.get_sample_value("spot_rescheduler_liqo_failures_total", failed) == 2
