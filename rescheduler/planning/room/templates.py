"""The templates of spot nodes that an autoscaler may add: one existing node of each group."""

from collections.abc import Iterable
from typing import Final, TypeAlias

from predicates.objects import Node, Taint
from predicates.snapshot import Snapshot
from rescheduler.planning.money.prices import instance_type, zone_of
from rescheduler.planning.policy import Policy
from rescheduler.planning.rules.candidates import groups, why_not_target

#: At most this many groups are tried.
MOST_GROUPS: Final = 8

_Group: TypeAlias = tuple[str, str, tuple[tuple[str, str], ...], frozenset[Taint]]


def templates(snapshot: Snapshot, policy: Policy) -> list[str]:
    """Return the first node of each group of spot nodes, by name.

    Nodes that accept no pods at present are used only if there are no others. The result is empty if there is no spot
    node at all.
    """
    nodes = [snapshot.nodes.nodes[row] for row in groups(snapshot, policy).spot_rows]
    spot = [node for node in nodes if node is not None]
    usable = [node for node in spot if why_not_target(node) is None]
    return _first_of_each(usable or spot)[:MOST_GROUPS]


def _first_of_each(nodes: Iterable[Node]) -> list[str]:
    first_by_group: dict[_Group, str] = {}
    for node in nodes:
        first_by_group.setdefault(_group(node), node.name)
    return list(first_by_group.values())


def _group(node: Node) -> _Group:
    """Return the properties that nodes of one group share, regardless of the autoscaler that defines the groups."""
    sizes = tuple(sorted((name, str(amount)) for name, amount in node.status.allocatable.items()))
    return instance_type(node), zone_of(node), sizes, frozenset(node.spec.taints)
