"""Detection of violated invariants: each is violated manually in a scene without a daemon."""

from collections.abc import Callable, Iterator

import httpx2
import pytest

from devcluster.api import Api, Json
from devcluster.manifests import Json as Manifest
from devcluster.plane import ControlPlane
from rescheduler.draining.actions import ANNOTATION
from tests.faults.outcome import Ended, ended, too_many_missing, violations
from tests.faults.scene import WEB, Scene, scene
from tests.faults.sites import account, site

pytestmark = pytest.mark.cluster

MARKED: Manifest = {"metadata": {"annotations": {ANNOTATION: "{}"}}}


@pytest.fixture(scope="module")
def env(control_plane: ControlPlane, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Scene]:
    with site(control_plane, "judged", tmp_path_factory.mktemp("judged") / "site") as at, scene(at) as filled:
        yield filled


@pytest.fixture
def daemon(env: Scene) -> Iterator[Api]:
    """A client with the daemon's token."""
    path = f"/api/v1/namespaces/{env.site.name}/serviceaccounts/{account(env.site.name)}/token"
    review = {"apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest", "spec": {}}
    token = env.plane.api.post(path, review)["status"]["token"]
    with Api(env.plane.server, ca=env.plane.ca, token=token) as api:
        yield api


def patch(env: Scene, node: str, change: Json) -> None:
    env.plane.api.patch(f"/api/v1/nodes/{node}", change)


def cordon(env: Scene, *, on: bool) -> None:
    patch(env, env.node, {"spec": {"unschedulable": True if on else None}})


def mark(env: Scene, *, on: bool) -> None:
    patch(env, env.node, MARKED if on else {"metadata": {"annotations": {ANNOTATION: None}}})


def want_more(env: Scene, *, on: bool) -> None:
    env.wanted[WEB] += 2 if on else -2


STATES: dict[str, tuple[Callable[..., None], str]] = {
    "a mark": (mark, "{node} is marked"),
    "a cordon": (cordon, "{node} takes no pods: "),
    "pods that are missing": (want_more, "2 pods of web are not Ready"),
}


@pytest.mark.parametrize("name", STATES)
def test_states_that_are_neither_finished_nor_rolled_back(env: Scene, name: str) -> None:
    change, words = STATES[name]
    assert ended(env) == Ended("rolled back")
    change(env, on=True)
    seen = ended(env)
    change(env, on=False)
    env.plane.wait_for(lambda: ended(env).end == "rolled back", "the scene as it was")
    assert seen.end == "neither"
    assert [why for why in seen.why if why.startswith(words.format(node=env.node))]
    assert bool(too_many_missing(env, seen)) is (change is want_more)


def test_forbidden_actions_are_detected(env: Scene, daemon: Api) -> None:
    assert violations(env) == []
    spot = f"{env.name}-spot-1"
    for node in (env.node, spot):
        daemon.patch(f"/api/v1/nodes/{node}", MARKED)
    [pod, *_] = env.pods()
    machine = env.pool.pool()["machines"][0]["id"]
    order = {"machineId": machine, "decrementDesiredSize": False}
    assert httpx2.post(f"{env.pool_proxy.url}/pool/terminate", json=order, trust_env=False).is_success
    seen = violations(env)
    assert f"changed the Node {spot}" in seen
    assert f"marked at once: {env.node}, {spot}" in seen
    assert f"ordered the machine away with {pod['metadata']['name']} on its node" in seen
    assert [why for why in ended(env).why if why.startswith(("machines", "the pool has"))]
