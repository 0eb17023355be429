"""A small autoscaler for tests: it adds a spot node while a pod that must run on spot nodes is unschedulable."""

from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from typing import Final

from devcluster.api import Json
from devcluster.manifests import spot
from devcluster.plane import ControlPlane
from predicates.snapshot import PLACEHOLDER, ROOM_NAMESPACE
from rescheduler.planning.room.manifests import PRIORITY, PRIORITY_CLASS
from tests.cluster.waiting import repeating

#: Steps, half a second apart, in which the scheduler may place pods on a new node before another one is added.
SETTLE_STEPS: Final = 20

PODS: Final = f"/api/v1/namespaces/{ROOM_NAMESPACE}/pods"

#: What deploy/components/make-room contains besides permissions.
SETUP: Final[list[Json]] = [
    {
        "apiVersion": "v1",
        "kind": "Namespace",
        "metadata": {"name": ROOM_NAMESPACE, "labels": {"pod-security.kubernetes.io/enforce": "restricted"}},
    },
    {
        "apiVersion": "scheduling.k8s.io/v1",
        "kind": "PriorityClass",
        "metadata": {"name": PRIORITY_CLASS},
        "value": PRIORITY,
        "preemptionPolicy": "Never",
    },
]


@dataclass
class SpotAutoscaler:
    """Adds nodes named grown-1 … of *cpu* CPUs, one at a time."""

    plane: ControlPlane
    cpu: str = "4"
    allowed: bool = True  #: False: the cloud has no spot capacity
    nodes: list[str] = field(default_factory=list)
    waited: int = 0  #: steps in which pods were unschedulable although all nodes were ready

    def step(self) -> None:
        pods = self.plane.api.items(PODS, labelSelector=PLACEHOLDER)
        waiting = self.allowed and any(map(_unschedulable, pods)) and self._all_ready()
        self.waited = self.waited + 1 if waiting else 0
        if waiting and self.waited > (SETTLE_STEPS if self.nodes else 0):
            self.waited = 0
            self.nodes.append(f"grown-{len(self.nodes) + 1}")
            self.plane.apply([spot(self.nodes[-1], allocatable={"cpu": self.cpu})])

    def _all_ready(self) -> bool:
        """Return whether pods can run on the nodes that were added before."""
        nodes = [self.plane.api.get(f"/api/v1/nodes/{name}") for name in self.nodes]
        return all(not node["spec"].get("taints") for node in nodes)

    def running(self) -> AbstractContextManager[None]:
        return repeating(self.step)


def _unschedulable(pod: Json) -> bool:
    return any(condition.get("reason") == "Unschedulable" for condition in pod["status"].get("conditions", ()))
