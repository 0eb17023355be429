"""Convert Nodes to the references that providers receive."""

from collections.abc import Iterable
from datetime import datetime
from typing import Final

from predicates.objects import Node
from rescheduler.providers.base import NodeRef

_HOSTNAME_LABEL: Final = "kubernetes.io/hostname"


def ref(
    node: Node, *, rivals: tuple[NodeRef, ...] = (), control_plane: bool = False, ordered_at: datetime | None = None
) -> NodeRef:
    """Return the reference to *node* for a provider. For the other arguments see NodeRef."""
    return NodeRef(
        name=node.name,
        provider_id=node.spec.provider_id,
        labels=node.metadata.labels,
        annotations=node.metadata.annotations,
        internal_ips=tuple(address.address for address in node.status.addresses if address.type == "InternalIP"),
        control_plane=control_plane,
        ordered_at=ordered_at,
        rivals=rivals,
    )


def rivals(node: Node, nodes: Iterable[Node]) -> tuple[NodeRef, ...]:
    """Return the *nodes* that may represent the same machine as *node*.

    A kubelet that registers again under another name may leave an old Node behind. The provider decides whether both
    are the same machine, so the result may contain Nodes of other machines.
    """
    ids = _identifiers(node)
    return tuple(ref(rival) for rival in nodes if rival.name != node.name and not ids.isdisjoint(_identifiers(rival)))


def _identifiers(node: Node) -> set[tuple[str, str]]:
    """Return the values by which a provider may identify a machine.

    Only the last part of the provider ID is used, because the rest has several forms.
    """
    instance = node.spec.provider_id.rsplit("/", 1)[-1].lower()
    return {
        *([("provider ID", instance)] if instance else ()),
        *(("address", address.address) for address in node.status.addresses if address.type == "InternalIP"),
        ("name", node.name.lower()),
        ("name", node.metadata.labels.get(_HOSTNAME_LABEL, node.name).lower()),
    }
