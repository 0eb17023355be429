"""Nodes as providers are told of them."""

from collections.abc import Iterable
from datetime import datetime
from typing import Final

from predicates.objects import Node
from rescheduler.backends.base import NodeRef

_HOSTNAME_LABEL: Final = "kubernetes.io/hostname"


def ref(
    node: Node, *, rivals: tuple[NodeRef, ...] = (), control_plane: bool = False, ordered_at: datetime | None = None
) -> NodeRef:
    """*node* for a provider; see NodeRef for the rest."""
    return NodeRef(
        name=node.name,
        provider_id=node.spec.provider_id,
        labels=node.metadata.labels,
        annotations=node.metadata.annotations,
        internal_ips=tuple(one.address for one in node.status.addresses if one.type == "InternalIP"),
        control_plane=control_plane,
        ordered_at=ordered_at,
        rivals=rivals,
    )


def rivals(node: Node, nodes: Iterable[Node]) -> tuple[NodeRef, ...]:
    """Those of *nodes* that share a sign with *node*: a kubelet that registers anew may leave an old Node behind.

    Whether a sign means the same machine is the provider's to say, so here rather too many are named.
    """
    signs = _signs(node)
    return tuple(ref(one) for one in nodes if one.name != node.name and not signs.isdisjoint(_signs(one)))


def _signs(node: Node) -> set[tuple[str, str]]:
    """What a provider may know a machine by; of a provider ID the end, as clouds write the rest in several ways."""
    instance = node.spec.provider_id.rsplit("/", 1)[-1].lower()
    return {
        *([("provider ID", instance)] if instance else ()),
        *(("address", one.address) for one in node.status.addresses if one.type == "InternalIP"),
        ("name", node.name.lower()),
        ("name", node.metadata.labels.get(_HOSTNAME_LABEL, node.name).lower()),
    }
