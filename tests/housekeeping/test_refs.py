"""Rivals of a node: other Nodes that may represent the same machine."""

from typing import Any

import pytest

from predicates.objects import Node, NodeAddress, NodeSpec, NodeStatus, ObjectMeta
from rescheduler.execution import machine_orders
from rescheduler.providers.base import NodeRef


def node(name: str, provider_id: str = "", *ips: str, hostname: str = "") -> Node:
    labels = {"kubernetes.io/hostname": hostname} if hostname else {}
    addresses: Any = [NodeAddress(type="InternalIP", address=ip) for ip in ips]
    return Node(
        metadata=ObjectMeta(name=name, labels=labels),
        spec=NodeSpec(provider_id=provider_id),
        status=NodeStatus(addresses=tuple(addresses)),
    )


NODE = node("n1", "aws:///zone-a/i-1", "10.0.0.1", "fd00::1", hostname="n1.local")


@pytest.mark.parametrize(
    "other",
    [
        node("x", "aws:///zone-a/i-1"),
        node("x", "aws:///zone-b/I-1"),
        node("x", "", "10.9.9.9", "fd00::1"),
        node("N1.local"),
        node("x", hostname="n1"),
    ],
)
def test_nodes_with_a_common_identifier_conflict(other: Node) -> None:
    assert machine_orders.rivals(NODE, [NODE, other]) == (machine_orders.ref(other),)


@pytest.mark.parametrize("other", [node("n2"), node("n2", "aws:///zone-a/i-2", "10.0.0.2", hostname="n2.local")])
def test_other_nodes_do_not_conflict(other: Node) -> None:
    assert machine_orders.rivals(NODE, [NODE, other]) == ()


def test_a_reference_has_the_identifiers_of_its_node() -> None:
    labels = {"kubernetes.io/hostname": "n1.local"}
    assert machine_orders.ref(NODE) == NodeRef("n1", "aws:///zone-a/i-1", labels, internal_ips=("10.0.0.1", "fd00::1"))
