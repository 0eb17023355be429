"""Names of the controllers of pods, in the form that users see and write."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from predicates.objects import Pod

#: By label: the kind of workload that appends the label's value to the names of its ReplicaSets.
_TEMPLATE_HASHES: Final[Mapping[str, str]] = {
    "pod-template-hash": "Deployment",
    "rollouts-pod-template-hash": "Rollout",  # Argo Rollouts
}


@dataclass(frozen=True, slots=True, order=True)
class ControllerName:
    """A controller, or an object without a controller, such as ``Pod ci/build`` or ``Node worker-1``."""

    namespace: str  #: "" for nodes
    kind: str
    name: str

    def __str__(self) -> str:
        return f"{self.kind} {self.namespace}/{self.name}" if self.namespace else f"{self.kind} {self.name}"

    @property
    def path(self) -> str:
        """Return the name as an argument of ``--what-if``: ``namespace/deployment/name``."""
        return f"{self.namespace}/{self.kind.lower()}/{self.name}"


def controller_of(pod: Pod) -> ControllerName:
    """Return the controller of *pod* as users know it.

    That is the Deployment or the Rollout if a ReplicaSet owns the pod, and the pod itself if it has no owner or if the
    owner is a pod, such as the driver of a Spark executor.
    """
    owner = pod.owner
    if owner is None or owner.kind == "Pod":
        return ControllerName(pod.namespace, "Pod", pod.name)
    if owner.kind == "ReplicaSet":
        for label, kind in _TEMPLATE_HASHES.items():
            suffix = f"-{pod.cls.labels.get(label, '')}"
            if 1 < len(suffix) < len(owner.name) and owner.name.endswith(suffix):
                return ControllerName(pod.namespace, kind, owner.name.removesuffix(suffix))
    return ControllerName(pod.namespace, owner.kind, owner.name)
