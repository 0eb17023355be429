"""Why a node is no victim: each reason by itself, all of them in one answer, and what is no reason."""

from collections.abc import Iterator
from typing import Any

import pytest

from deploy.local import cleaning, manifests
from deploy.local.api import Json
from deploy.local.plane import ControlPlane
from tests.acceptance.scenes import scene
from tests.proxy.world import World

pytestmark = pytest.mark.cluster

DISABLED = "cluster-autoscaler.kubernetes.io/scale-down-disabled"
SAFE = "cluster-autoscaler.kubernetes.io/safe-to-evict"
LOCAL = "cluster-autoscaler.kubernetes.io/safe-to-evict-local-volumes allows eviction"
EMPTY_DIR = [{"name": "data", "emptyDir": {}}]
IN_MEMORY = [{"name": "data", "emptyDir": {"medium": "Memory"}}]
HOST_PATH = [{"name": "logs", "hostPath": {"path": "/var/log"}}]
OWNER = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "owner"}}


class Setting:
    """Nodes od-1 … with what stands in the way of each."""

    def __init__(self, made: World) -> None:
        self._plane = made.plane
        owner = made.plane.apply([OWNER])[0]
        self._owner = {"apiVersion": "v1", "kind": "ConfigMap", "name": "owner", "uid": owner["metadata"]["uid"]}

    def system_pod(self, name: str, node: str, **more: Any) -> None:
        self._plane.apply([manifests.pod(name, namespace="kube-system", nodeName=node, **more)])

    def pod(self, name: str, node: str, *, controller: bool | None = True, **more: Any) -> None:
        """A pod that is bound to *node*; *controller* is its owner's flag, `None` for a pod without an owner."""
        made = manifests.pod(name, nodeName=node, **more)
        if controller is not None:
            flag = {"controller": True} if controller else {}
            made["metadata"]["ownerReferences"] = [{**self._owner, **flag}]
        self._plane.apply([made])

    def apply(self, *objects: Json) -> None:
        self._plane.apply(objects)

    def annotate(self, node: str, key: str, value: str) -> None:
        self._plane.api.patch(f"/api/v1/nodes/{node}", {"metadata": {"annotations": {key: value}}})


def prepare(made: World) -> None:
    to = Setting(made)
    to.pod("on-host", "od-1", controller=None, volumes=HOST_PATH)
    to.pod("scratch", "od-2", volumes=EMPTY_DIR)
    to.pod("in-memory", "od-3", volumes=IN_MEMORY)
    to.pod("bare", "od-4", controller=None)
    to.pod("owned-by-halves", "od-5", controller=False)
    for number in (1, 2):
        to.pod(f"guarded-{number}", "od-6", labels={"app": "guarded"})
    to.apply(manifests.pdb("guarded", min_available=1))
    to.annotate("od-7", DISABLED, "true")
    to.pod("dear", "od-8", annotations={SAFE: "false"})
    to.pod("large", "od-9", cpu="3500m", memory="1Gi")
    to.pod("wide", "od-10", cpu="100m", memory="15Gi")
    for number in range(1, 13):
        amounts = {9: ("100m", "2Gi"), 10: ("1", "500Mi")}.get(number, ("1", "2Gi"))
        to.system_pod(f"filler-{number}", f"od-{number}", cpu=amounts[0], memory=amounts[1])
    free(made, to)


def free(made: World, to: Setting) -> None:
    """od-11 has whatever the original stumbled over, and can go; a node without room or resources harms nobody."""
    to.annotate("od-11", DISABLED, "yes")
    to.system_pod("of-the-system", "od-11", volumes=EMPTY_DIR)
    to.pod("mirror", "od-11", controller=None, mirror=True)
    to.apply(manifests.daemonset("agent", cpu="10m", memory="10Mi", volumes=HOST_PATH))
    to.apply(manifests.job("finished", nodeName="od-11", volumes=EMPTY_DIR))
    made.deploy("elsewhere", 1, on="od-11")
    to.apply(manifests.pdb("elsewhere", namespace="kube-public", min_available=1))
    to.apply(manifests.node("nothing", allocatable={"cpu": "0", "memory": "0", "pods": "0"}))


@pytest.fixture(scope="module")
def made(control_plane: ControlPlane, tmp_path_factory: pytest.TempPathFactory) -> Iterator[World]:
    with scene(control_plane, tmp_path_factory.mktemp("rejections"), 12, before=prepare) as ready:
        control_plane.wait_for(lambda: len(ready.pods()) >= 12, "the pods")
        machine = ready.id("od-12")
        ready.server.pool.set_membership(machine, active=True, evictable=False)
        yield ready
    control_plane.wait_for(lambda: cleaning.wipe(control_plane.api), "an empty cluster")


NONE = "0/{n} nodes are available"
#: node: why it is no victim beside n others
REASONS = {
    "od-1": f"pod default/on-host: local storage logs would be lost; {LOCAL}",
    "od-2": f"pod default/scratch: local storage data would be lost; {LOCAL}",
    "od-3": f"pod default/in-memory: local storage data would be lost; {LOCAL}",
    "od-4": f'pod default/bare: no controller would recreate it; {SAFE}: "true" allows eviction',
    "od-5": f'pod default/owned-by-halves: no controller would recreate it; {SAFE}: "true" allows eviction',
    "od-6": "pod default/guarded-2: PodDisruptionBudget default/guarded allows 1 evictions now, "
    "2 of its pods are on this node",
    "od-7": f'it has the annotation {DISABLED}: "true"',
    "od-8": f'pod default/dear: it has the annotation {SAFE}: "false"',
    "od-9": f"pod default/large: {NONE}: {{n}} Insufficient cpu, 2 Insufficient memory, 1 Too many pods",
    "od-10": f"pod default/wide: {NONE}: {{n}} Insufficient memory, 1 Insufficient cpu, 1 Too many pods",
}


@pytest.mark.parametrize("node", REASONS)
def test_one_by_one(node: str, made: World) -> None:
    answer = made.post("/pool/terminate", {"machineId": made.id(node), "decrementDesiredSize": True})
    assert (answer.status_code, answer.json()) == (
        500,
        {"message": "failed to terminate machine", "detail": f"node {node}: {REASONS[node].format(n=12)}"},
    )
    assert (made.orders(), made.tainted()) == ([], [])


def test_all_at_once(made: World) -> None:
    """12 → 9: one machine can go; the answer names every other node, and the machine that the pool protects."""
    answer = made.post("/pool/size", {"desiredSize": 9})
    protected = f"machine {made.id('od-12')}: its membership status says that it is not evictable"
    told = [f"node {node}: {reason.format(n=11)}" for node, reason in REASONS.items()]
    assert answer.status_code == 200
    found = answer.json()["detail"].removeprefix("1 of 3 machines were removed: ").split("; node ")
    assert sorted(["node " + one.removeprefix("node ") for one in found]) == sorted(
        [*told[:-1], f"{told[-1]}; {protected}"]
    )
    assert (len(made.running()), made.desired, made.tainted()) == (11, 11, [])
    assert "od-11" not in made.running()
