"""A machine whose node another tool takes over in the middle of the drain is not counted as removed by the proxy."""

from rescheduler.backends.none import NoProvider
from rescheduler.draining.state import Drain, Limits, Phase
from rescheduler.planning.outcome import Plan
from rescheduler.proxy.removal import Outcome, Removal, Way


def test_a_drain_that_another_tool_finishes() -> None:
    limits = Limits(eviction=120, grace=60, headroom=30, release=20)
    told = "another tool is removing it (taint ToBeDeletedByClusterAutoscaler of Cluster Autoscaler)"
    drain = Drain("od-1", limits, Phase.DONE, released=True, removed_by=told)
    removal = Removal()
    outcome = removal.drain(Plan("od-1", ()), Way(lambda _: drain, lambda ordered: ordered.drain, NoProvider()))
    assert (outcome, removal.gone, removal.ordered, removal.status) == (Outcome.BROKEN, 0, 0, 500)
    assert removal.failures == [f"node od-1: {told}: its machine was not ordered away"]
