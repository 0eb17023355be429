"""The reasons why a node cannot be removed: each on its own, and all of them in one response."""

from collections.abc import Iterator
from typing import Any

import pytest

from devcluster import cleaning, manifests
from devcluster.api import Json
from devcluster.plane import ControlPlane
from tests.acceptance.scenes import scene
from tests.proxy.world import ProxyWorld

pytestmark = pytest.mark.cluster

DISABLED = "cluster-autoscaler.kubernetes.io/scale-down-disabled"
SAFE = "cluster-autoscaler.kubernetes.io/safe-to-evict"
LOCAL = "cluster-autoscaler.kubernetes.io/safe-to-evict-local-volumes allows eviction"
EMPTY_DIR = [{"name": "data", "emptyDir": {}}]
IN_MEMORY = [{"name": "data", "emptyDir": {"medium": "Memory"}}]
HOST_PATH = [{"name": "logs", "hostPath": {"path": "/var/log"}}]
OWNER = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "owner"}}


class ObstacleBuilder:
    """A builder of the obstacles on the nodes od-1 …."""

    def __init__(self, env: ProxyWorld) -> None:
        self._plane = env.plane
        owner = env.plane.apply([OWNER])[0]
        self._owner = {"apiVersion": "v1", "kind": "ConfigMap", "name": "owner", "uid": owner["metadata"]["uid"]}

    def system_pod(self, name: str, node: str, **fields: Any) -> None:
        self._plane.apply([manifests.pod(name, namespace="kube-system", nodeName=node, **fields)])

    def pod(self, name: str, node: str, *, controller: bool | None = True, **fields: Any) -> None:
        """Create a pod on *node*; *controller* is the owner reference's flag, `None` for a pod without an owner."""
        manifest = manifests.pod(name, nodeName=node, **fields)
        if controller is not None:
            flag = {"controller": True} if controller else {}
            manifest["metadata"]["ownerReferences"] = [{**self._owner, **flag}]
        self._plane.apply([manifest])

    def apply(self, *objects: Json) -> None:
        self._plane.apply(objects)

    def annotate(self, node: str, key: str, value: str) -> None:
        self._plane.api.patch(f"/api/v1/nodes/{node}", {"metadata": {"annotations": {key: value}}})


def prepare(env: ProxyWorld) -> None:
    to = ObstacleBuilder(env)
    to.pod("on-host", "od-1", controller=None, volumes=HOST_PATH)
    to.pod("scratch", "od-2", volumes=EMPTY_DIR)
    to.pod("in-memory", "od-3", volumes=IN_MEMORY)
    to.pod("bare", "od-4", controller=None)
    to.pod("owned-by-halves", "od-5", controller=False)
    to.pod("guarded", "od-6", labels={"app": "guarded"})
    to.apply(manifests.pdb("guarded", min_available=1))
    to.annotate("od-7", DISABLED, "true")
    to.pod("dear", "od-8", annotations={SAFE: "false"})
    to.pod("large", "od-9", cpu="3500m", memory="1Gi")
    to.pod("wide", "od-10", cpu="100m", memory="15Gi")
    for number in range(1, 13):
        amounts = {9: ("100m", "2Gi"), 10: ("1", "500Mi")}.get(number, ("1", "2Gi"))
        to.system_pod(f"filler-{number}", f"od-{number}", cpu=amounts[0], memory=amounts[1])
    free(env, to)


def free(env: ProxyWorld, to: ObstacleBuilder) -> None:
    """Create pods on od-11 that blocked it only in the original, and a node without allocatable resources."""
    to.annotate("od-11", DISABLED, "yes")
    to.system_pod("of-the-system", "od-11", volumes=EMPTY_DIR)
    to.pod("mirror", "od-11", controller=None, mirror=True)
    to.apply(manifests.daemonset("agent", cpu="10m", memory="10Mi", volumes=HOST_PATH))
    to.apply(manifests.job("finished", nodeName="od-11", volumes=EMPTY_DIR))
    env.deploy("elsewhere", 1, on="od-11")
    to.apply(manifests.pdb("elsewhere", namespace="kube-public", min_available=1))
    to.apply(manifests.node("nothing", allocatable={"cpu": "0", "memory": "0", "pods": "0"}))


@pytest.fixture(scope="module")
def env(control_plane: ControlPlane, tmp_path_factory: pytest.TempPathFactory) -> Iterator[ProxyWorld]:
    with scene(control_plane, tmp_path_factory.mktemp("rejections"), 12, before=prepare) as ready:
        control_plane.wait_for(lambda: len(ready.pods()) >= 12, "the pods")
        machine = ready.id("od-12")
        ready.server.pool.set_membership(machine, active=True, evictable=False)
        yield ready
    cleaning.empty(control_plane)


NO_NODES = "0/{n} nodes are available"
#: By node: the reason why the node cannot be removed; n is the number of other nodes.
REASONS = {
    "od-1": f"pod default/on-host: local storage logs would be lost; {LOCAL}",
    "od-2": f"pod default/scratch: local storage data would be lost; {LOCAL}",
    "od-3": f"pod default/in-memory: local storage data would be lost; {LOCAL}",
    "od-4": f'pod default/bare: no controller would recreate it; {SAFE}: "true" allows eviction',
    "od-5": f'pod default/owned-by-halves: no controller would recreate it; {SAFE}: "true" allows eviction',
    "od-6": "pod default/guarded: PodDisruptionBudget default/guarded can never allow an eviction: "
    "minAvailable 1 requires 1 of 1 pods",
    "od-7": f'it has the annotation {DISABLED}: "true"',
    "od-8": f'pod default/dear: it has the annotation {SAFE}: "false"',
    "od-9": f"pod default/large: {NO_NODES}: {{n}} Insufficient cpu, 2 Insufficient memory, 1 Too many pods",
    "od-10": f"pod default/wide: {NO_NODES}: {{n}} Insufficient memory, 1 Insufficient cpu, 1 Too many pods",
}


@pytest.mark.parametrize("node", REASONS)
def test_a_rejected_termination_names_the_reason(node: str, env: ProxyWorld) -> None:
    response = env.post("/pool/terminate", {"machineId": env.id(node), "decrementDesiredSize": True})
    assert (response.status_code, response.json()) == (
        500,
        {"message": "failed to terminate machine", "detail": f"node {node}: {REASONS[node].format(n=12)}"},
    )
    assert (env.orders(), env.tainted()) == ([], [])


def test_a_resize_names_all_rejected_nodes(env: ProxyWorld) -> None:
    """12 → 9: one machine is removed; the response names every other node and the protected machine."""
    response = env.post("/pool/size", {"desiredSize": 9})
    protected = f"machine {env.id('od-12')}: its membership status is not evictable"
    expected = [f"node {node}: {reason.format(n=11)}" for node, reason in REASONS.items()]
    assert response.status_code == 200
    reasons = response.json()["detail"].removeprefix("1 of 3 machines were removed: ").split("; node ")
    assert sorted(["node " + reason.removeprefix("node ") for reason in reasons]) == sorted(
        [*expected[:-1], f"{expected[-1]}; {protected}"]
    )
    assert (len(env.running()), env.desired, env.tainted()) == (11, 11, [])
    assert "od-11" not in env.running()
