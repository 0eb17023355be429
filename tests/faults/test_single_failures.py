"""Requests of a drain that fail once are made again: the first drain succeeds."""

from collections.abc import Iterator

import pytest

from deploy.local.faults.rules import FaultRule
from deploy.local.plane import ControlPlane
from tests.faults.outcome import ended
from tests.faults.programs import running
from tests.faults.scene import Scene, scene
from tests.faults.sites import Site, site

pytestmark = pytest.mark.cluster

#: Reading the node, marking it, reading it and its pods consistently, reading the controllers of its pods.
CALLS = ("get nodes", "patch nodes", "list pods by spec.nodeName", "get replicasets", "get deployments")


@pytest.fixture(scope="module")
def at(control_plane: ControlPlane, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Site]:
    with site(control_plane, "single", tmp_path_factory.mktemp("single") / "site") as made:
        yield made


@pytest.mark.parametrize("kind", ["401", "403", "429", "503", "reset-before", "reset-after"])
def test_requests_that_fail_once_do_not_end_a_drain(at: Site, kind: str) -> None:
    with scene(at) as made:
        made.proxy.rules.add(*(FaultRule(call, made.proxy.all_faults()[kind]) for call in CALLS))
        with running("daemon", made):
            made.plane.wait_for(lambda: ended(made).end == "finished", "the end of the drain")
        assert {str(seen.call) for seen in made.proxy.seen if seen.fault} == set(CALLS)
        assert failed_drains(made) == []


def failed_drains(made: Scene) -> list[str]:
    """Messages of the Events by which the daemon reports that a drain of the node has failed."""
    events = made.plane.api.items("/api/v1/events", fieldSelector=f"involvedObject.name={made.node}")
    return [event["message"] for event in events if event["reason"] == "DrainFailed"]
