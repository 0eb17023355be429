"""Names of the controllers of pods for people: the Deployment, not its ReplicaSet."""

from typing import Final

from predicates.objects import Pod

#: The label that the Deployment controller adds to pods; names of ReplicaSets end with its value.
_TEMPLATE_HASH: Final = "pod-template-hash"


def controller_of(pod: Pod) -> str:
    """Return the controller of *pod* as ``Deployment data/api``, or ``Pod data/api-1`` if it has none."""
    owner = pod.owner
    if owner is None:
        return f"Pod {pod.key}"
    kind, name = owner.kind, owner.name
    suffix = f"-{pod.cls.labels.get(_TEMPLATE_HASH, '')}"
    if kind == "ReplicaSet" and len(suffix) > 1 and len(name) > len(suffix) and name.endswith(suffix):
        kind, name = "Deployment", name.removesuffix(suffix)
    return f"{kind} {pod.namespace}/{name}"
