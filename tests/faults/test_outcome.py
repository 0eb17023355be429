"""Broken invariants are seen: each of them is broken by hand in a scene in which no daemon runs."""

from collections.abc import Callable, Iterator

import httpx
import pytest

from deploy.local.api import Api, Json
from deploy.local.manifests import Json as Manifest
from deploy.local.plane import ControlPlane
from rescheduler.draining.intent import ANNOTATION
from tests.faults.outcome import Ended, ended, too_many_missing, violations
from tests.faults.scene import WEB, Scene, scene
from tests.faults.sites import account, site

pytestmark = pytest.mark.cluster

MARKED: Manifest = {"metadata": {"annotations": {ANNOTATION: "{}"}}}


@pytest.fixture(scope="module")
def made(control_plane: ControlPlane, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Scene]:
    with site(control_plane, "judged", tmp_path_factory.mktemp("judged") / "site") as at, scene(at) as filled:
        yield filled


@pytest.fixture
def daemon(made: Scene) -> Iterator[Api]:
    """The API server for whoever has the daemon's token."""
    path = f"/api/v1/namespaces/{made.site.name}/serviceaccounts/{account(made.site.name)}/token"
    review = {"apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest", "spec": {}}
    token = made.plane.api.post(path, review)["status"]["token"]
    with Api(made.plane.server, ca=made.plane.ca, token=token) as api:
        yield api


def patch(made: Scene, node: str, change: Json) -> None:
    made.plane.api.patch(f"/api/v1/nodes/{node}", change)


def cordon(made: Scene, *, on: bool) -> None:
    patch(made, made.node, {"spec": {"unschedulable": True if on else None}})


def mark(made: Scene, *, on: bool) -> None:
    patch(made, made.node, MARKED if on else {"metadata": {"annotations": {ANNOTATION: None}}})


def want_more(made: Scene, *, on: bool) -> None:
    made.wanted[WEB] += 2 if on else -2


STATES: dict[str, tuple[Callable[..., None], str]] = {
    "a mark": (mark, "{node} is marked"),
    "a cordon": (cordon, "{node} takes no pods: "),
    "pods that are missing": (want_more, "2 pods of web are not Ready"),
}


@pytest.mark.parametrize("name", STATES)
def test_states_that_are_neither_finished_nor_rolled_back(made: Scene, name: str) -> None:
    change, words = STATES[name]
    assert ended(made) == Ended("rolled back")
    change(made, on=True)
    seen = ended(made)
    change(made, on=False)
    made.plane.wait_for(lambda: ended(made).end == "rolled back", "the scene as it was")
    assert seen.end == "neither"
    assert [why for why in seen.why if why.startswith(words.format(node=made.node))]
    assert bool(too_many_missing(made, seen)) is (change is want_more)


def test_what_the_daemon_must_not_do_is_seen(made: Scene, daemon: Api) -> None:
    assert violations(made) == []
    spot = f"{made.name}-spot-1"
    for node in (made.node, spot):
        daemon.patch(f"/api/v1/nodes/{node}", MARKED)
    [pod, *_] = made.pods()
    machine = made.pool.pool()["machines"][0]["id"]
    order = {"machineId": machine, "decrementDesiredSize": False}
    assert httpx.post(f"{made.pool_proxy.url}/pool/terminate", json=order, trust_env=False).is_success
    seen = violations(made)
    assert f"changed the Node {spot}" in seen
    assert f"marked at once: {made.node}, {spot}" in seen
    assert f"ordered the machine away with {pod['metadata']['name']} on its node" in seen
    assert [why for why in ended(made).why if why.startswith(("machines", "the pool has"))]
