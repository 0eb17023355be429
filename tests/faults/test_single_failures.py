"""Retries within a drain: one failed request does not fail the first drain."""

from collections.abc import Iterator

import pytest

from devcluster.faults.rules import FaultRule
from devcluster.plane import ControlPlane
from tests.faults.outcome import ended
from tests.faults.programs import running
from tests.faults.scene import scene
from tests.faults.sites import Site, site

pytestmark = pytest.mark.cluster

#: Read and mark the node, read it and its pods consistently, read the controllers of its pods.
CALLS = ("get nodes", "patch nodes (draining)", "list pods by spec.nodeName", "get replicasets", "get deployments")


@pytest.fixture(scope="module")
def at(control_plane: ControlPlane, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Site]:
    with site(control_plane, "single", tmp_path_factory.mktemp("single") / "site") as scene_site:
        yield scene_site


@pytest.mark.parametrize("kind", ["401", "403", "429", "503", "reset-before", "reset-after"])
def test_requests_that_fail_once_do_not_end_a_drain(at: Site, kind: str) -> None:
    with scene(at) as env:
        env.proxy.rules.add(*(FaultRule(call, env.proxy.all_faults()[kind]) for call in CALLS))
        with running("daemon", env) as program:
            env.plane.wait_for(lambda: ended(env).end == "finished", "the end of the drain")
        assert {str(seen.call) for seen in env.proxy.seen if seen.fault} == set(CALLS)
        assert program.answers() == []
