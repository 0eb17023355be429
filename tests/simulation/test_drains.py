"""The daemon in the simulated cluster: drains end to end, and the same course for the same seed."""

import gzip
import json
from dataclasses import replace
from pathlib import Path

import pytest

from rescheduler.draining.state import Why
from rescheduler.observe.events import DrainEnded, Event, Planned
from rescheduler.planning.money.prices import PriceList
from rescheduler.planning.policy import Policy
from rescheduler.settings import Provider, Running
from rescheduler.simulation.daemon import SLOW, DaemonSettings
from rescheduler.simulation.engine import Process
from rescheduler.simulation.requests import ApiRequest
from rescheduler.simulation.run import RunPlan, as_of, simulate
from rescheduler.simulation.store import Json
from rescheduler.simulation.world import World, WorldSettings
from tests.simulation.worlds import START, Scene, budget, node, workload

_DAEMON = DaemonSettings(Policy(), Running(provider=Provider("simulated")))
_SAMPLE = Path(__file__).parents[2] / "docs" / "sample.json.gz"


def _sample() -> list[Json]:
    items: list[Json] = json.loads(gzip.decompress(_SAMPLE.read_bytes()))["items"]
    return items


def test_a_node_is_drained_and_its_machine_ends() -> None:
    here = Scene([node("od-1"), node("spot-1", spot=True), node("spot-2", spot=True)])
    here.world.store.create("deployments", workload("Deployment", "web", 3))
    here.run(1)  # the pods are spread; some are on the on-demand node
    here.begin().run(300)
    assert [(drain.node.name, drain.failure, drain.removed) for drain in here.drains] == [("od-1", None, True)]
    assert here.nodes == ["spot-1", "spot-2"]
    assert [pod["status"]["phase"] for pod in here.pods(app="web")] == ["Running"] * 3
    here.world.close()


def test_a_replacement_that_is_never_ready_reopens_the_node() -> None:
    here = Scene([node("od-1"), node("spot-1", spot=True)])
    here.world.store.create("deployments", workload("Deployment", "web", 4))
    here.run(60)
    here.world.kubelets.start_seconds = lambda _: float("inf")
    here.begin().run(1200)
    assert [(drain.failure.why if drain.failure else None, len(drain.evicted)) for drain in here.drains] == [
        (Why.LANDING_TIMEOUT, 1)
    ]
    reopened = here.world.store.get("nodes", "od-1")
    assert reopened is not None
    assert not [taint for taint in reopened["spec"].get("taints") or () if taint["effect"] == "NoSchedule"]
    here.world.close()


def _quiet_hour(pace: float) -> tuple[int, int]:
    """Return how many requests a daemon sends in an hour without changes, and how many nodes it drains then in time."""
    here = World([node("spot-1", spot=True)], WorldSettings(START), replace(_DAEMON, pace=pace))
    sent: list[str] = []

    def audit(_: Process, request: ApiRequest, *__: object) -> None:
        sent.append(request.path)

    here.network.audit.append(audit)
    here.start_daemons()
    here.run(3600)
    requests = len(sent)
    here.store.create("nodes", node("od-1"))
    here.run(120)
    here.close()
    return requests, len(here.machines.terminations)


def test_one_replica_in_a_cluster_that_nobody_else_changes_sends_few_requests_and_drains_a_new_node_as_soon() -> None:
    (usual, drained), (few, drained_too) = _quiet_hour(1.0), _quiet_hour(SLOW)
    assert drained == drained_too == 1
    assert few < usual / 3


def _told(*, is_read: bool) -> tuple[list[str], int]:
    """Return the nodes that are drained in half an hour, and how often all nodes were planned."""
    items, told = _sample(), list[Event]()
    daemon = replace(_DAEMON, pace=SLOW, is_read=is_read)
    here = World(items, WorldSettings(as_of(items), 7, 2.0), daemon, lambda _, event: told.append(event))
    here.start_daemons()
    here.run(1800)
    here.close()
    drained = [event.node.name for event in told if isinstance(event, DrainEnded) and event.failure is None]
    return drained, sum(isinstance(event, Planned) and event.complete for event in told)


def test_all_nodes_are_planned_only_if_somebody_reads_it_and_the_drains_are_the_same() -> None:
    (drained, often), (drained_too, seldom) = _told(is_read=True), _told(is_read=False)
    assert drained == drained_too
    assert len(drained) > 1
    assert often - seldom > len(drained)  # the others are rounds that find no plan


def test_a_budget_is_kept() -> None:
    here = Scene([node("od-1"), node("spot-1", spot=True), budget("web", minAvailable=3)])
    here.world.store.create("deployments", workload("Deployment", "web", 4))
    seen = []
    here.world.store.listen(
        "poddisruptionbudgets", lambda change: seen.append(change.after.object["status"]["currentHealthy"])
    )
    here.run(60)
    settled = len(seen)
    here.begin().run(600)
    assert [drain.failure for drain in here.drains] == [None]
    assert min(seen[settled:]) == 3
    here.world.close()


@pytest.mark.parametrize("losses", [0.0, 2.0])
def test_the_same_seed_has_the_same_course(losses: float) -> None:
    items = _sample()
    running = Running(provider=Provider("simulated"), manage_soft_taint=True)
    plan = RunPlan(items, WorldSettings(as_of(items), 7, losses), 3000)
    daemon = DaemonSettings(Policy(), running, PriceList())
    first, second = (json.dumps(simulate(plan, daemon).to_json()) for _ in range(2))
    assert first == second
    assert json.loads(first)["drains"]["done"] > 3
    other = simulate(replace(plan, world=replace(plan.world, seed=8)), daemon)
    assert json.dumps(other.to_json()) != first


def test_a_killed_daemon_goes_on_with_its_drain() -> None:
    here = Scene([node("od-1"), node("spot-1", spot=True), node("spot-2", spot=True)])
    here.world.store.create("deployments", workload("Deployment", "web", 6))
    here.begin().run(12)
    here.world.daemons[0].kill()
    here.run(400)
    assert here.nodes == ["spot-1", "spot-2"]
    assert here.world.engine.crashes == []
    here.world.close()


def test_one_of_two_replicas_drains() -> None:
    here = Scene(
        [node("od-1"), node("od-2"), node("spot-1", spot=True), node("spot-2", spot=True)],
        WorldSettings(START, replicas=2),
    )
    here.world.store.create("deployments", workload("Deployment", "web", 6))
    here.begin().run(1500)
    drained = {replica for _, replica, event in here.reported if event in here.drains}
    assert len(drained) == 1
    assert here.nodes == ["spot-1", "spot-2"]
    here.world.close()


@pytest.mark.parametrize("seconds", [40, 400], ids=["shorter than a client waits", "longer than a client waits"])
def test_a_silent_watch_shows_its_changes_later(seconds: float) -> None:
    here = Scene([node("od-1"), node("spot-1", spot=True)])
    here.world.store.create("deployments", workload("Deployment", "web", 1))
    here.begin().run(5)
    here.world.network.silent_until = here.world.engine.now + seconds
    here.run(seconds - 10)
    assert here.nodes == ["od-1", "spot-1"]
    here.run(3600)
    assert here.nodes == ["spot-1"]
    here.world.close()


def test_a_forbidden_kind_stops_drains_until_it_may_be_read() -> None:
    here = Scene([node("od-1"), node("spot-1", spot=True)])
    here.world.store.create("deployments", workload("Deployment", "web", 1))
    here.world.network.forbidden["pods"] = 300.0
    here.begin().run(230)
    assert here.drains == []
    here.run(600)
    assert [drain.failure for drain in here.drains] == [None]
    here.world.close()
