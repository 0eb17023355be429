"""A small autoscaler for tests: it adds a spot node while a pod that must run on spot nodes is unschedulable."""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from threading import Event, Thread
from typing import Final

from devcluster.api import Json
from devcluster.manifests import spot
from devcluster.plane import ControlPlane
from predicates.placeholders import PLACEHOLDER, ROOM_NAMESPACE
from rescheduler.planning.room.manifests import PRIORITY, PRIORITY_CLASS

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

    def step(self) -> None:
        waiting = [pod for pod in self.plane.api.items(PODS, labelSelector=PLACEHOLDER) if _unschedulable(pod)]
        if waiting and self.allowed and self._all_ready():
            self.nodes.append(f"grown-{len(self.nodes) + 1}")
            self.plane.apply([spot(self.nodes[-1], allocatable={"cpu": self.cpu})])

    def _all_ready(self) -> bool:
        """Return whether pods can run on the nodes that were added before."""
        nodes = [self.plane.api.get(f"/api/v1/nodes/{name}") for name in self.nodes]
        return all(not node["spec"].get("taints") for node in nodes)

    @contextmanager
    def running(self) -> Iterator[None]:
        ended = Event()

        def run() -> None:
            while not ended.wait(0.5):
                self.step()

        thread = Thread(target=run, name="autoscaler")
        thread.start()
        try:
            yield
        finally:
            ended.set()
            thread.join()


def _unschedulable(pod: Json) -> bool:
    return any(condition.get("reason") == "Unschedulable" for condition in pod["status"].get("conditions", ()))
