"""A drain that another tool takes over is not counted as a removal by the proxy."""

from rescheduler.cloudpool.proxy.removal import RemovalMethod, RemovalProgress, VictimOutcome
from rescheduler.draining.state import Drain, Limits, Phase
from rescheduler.planning.outcome import Plan
from rescheduler.providers.none import NoProvider


def test_a_drain_taken_over_by_another_tool_is_not_counted() -> None:
    limits = Limits(eviction=120, grace=60, headroom=30, release=20)
    message = "another tool is removing it (taint ToBeDeletedByClusterAutoscaler of Cluster Autoscaler)"
    drain = Drain("od-1", limits, Phase.DONE, released=True, removed_by=message)
    removal = RemovalProgress()
    outcome = removal.drain(
        Plan("od-1", ()), RemovalMethod(lambda _: drain, lambda ordered: ordered.drain, NoProvider())
    )
    assert (outcome, removal.gone, removal.ordered, removal.status) == (VictimOutcome.BROKEN, 0, 0, 500)
    assert removal.failures == [f"node od-1: {message}: the termination of its machine was not requested"]
