"""What the node manager counts."""

from prometheus_client import CollectorRegistry

from rescheduler.liqo.nodemanager.metrics import Metrics
from rescheduler.liqo.nodemanager.upkeep import Upkeep
from tests.liqo.builders import bench, cluster


def test_machines_by_state_and_failures_by_code() -> None:
    registry = CollectorRegistry()
    with bench(cluster("rome", 1), cluster("milan", 9, price="1"), starting=60) as found:
        upkeep = Upkeep(found.ports, found.service, found.patience, Metrics(registry))

        def machines(state: str) -> float | None:
            labels = {"group": "STANDARD", "state": state}
            return registry.get_sample_value("spot_rescheduler_liqo_machines", labels)

        upkeep.step()
        assert [machines(state) for state in ("creating", "running", "deleting")] == [0, 0, 0]
        found.liqo.add("rome-1", "STANDARD", "rome")
        found.service.increase("STANDARD", 2)
        found.liqo.denied["milan"] = "Resources"
        upkeep.step()
        assert [machines(state) for state in ("creating", "running", "deleting")] == [2, 1, 0]
        found.service.remove("STANDARD", "rome-1")
        upkeep.step()
        assert [machines(state) for state in ("creating", "running", "deleting")] == [2, 0, 1]
        failed = {"group": "STANDARD", "code": "OUT_OF_RESOURCES"}
        assert registry.get_sample_value("spot_rescheduler_liqo_failures_total", failed) == 2
