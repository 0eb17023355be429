"""Names of the controllers of pods, in the form that users see and write."""

from dataclasses import dataclass
from typing import Final

from predicates.objects import Pod

#: The label with the hash that a Deployment appends to the names of its ReplicaSets.
_TEMPLATE_HASH: Final = "pod-template-hash"


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
    """Return the controller of *pod*: the Deployment if a ReplicaSet owns the pod, or the pod if it has no owner."""
    owner = pod.owner
    if owner is None:
        return ControllerName(pod.namespace, "Pod", pod.name)
    suffix = f"-{pod.cls.labels.get(_TEMPLATE_HASH, '')}"
    if owner.kind == "ReplicaSet" and 1 < len(suffix) < len(owner.name) and owner.name.endswith(suffix):
        return ControllerName(pod.namespace, "Deployment", owner.name.removesuffix(suffix))
    return ControllerName(pod.namespace, owner.kind, owner.name)
