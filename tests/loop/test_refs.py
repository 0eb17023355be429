"""Which other Nodes a provider hears of, lest two be taken for one machine."""

from typing import Any

import pytest

from predicates.objects import Node, NodeAddress, NodeSpec, NodeStatus, ObjectMeta
from rescheduler import refs
from rescheduler.backends.base import NodeRef


def node(name: str, provider_id: str = "", *ips: str, hostname: str = "") -> Node:
    labels = {"kubernetes.io/hostname": hostname} if hostname else {}
    addresses: Any = [NodeAddress(type="InternalIP", address=ip) for ip in ips]
    return Node(
        metadata=ObjectMeta(name=name, labels=labels),
        spec=NodeSpec(provider_id=provider_id),
        status=NodeStatus(addresses=tuple(addresses)),
    )


MINE = node("n1", "aws:///zone-a/i-1", "10.0.0.1", "fd00::1", hostname="n1.local")


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
def test_whoever_shares_a_sign_is_a_rival(other: Node) -> None:
    assert refs.rivals(MINE, [MINE, other]) == (refs.ref(other),)


@pytest.mark.parametrize("other", [node("n2"), node("n2", "aws:///zone-a/i-2", "10.0.0.2", hostname="n2.local")])
def test_others_are_none(other: Node) -> None:
    assert refs.rivals(MINE, [MINE, other]) == ()


def test_what_is_told_of_a_node() -> None:
    labels = {"kubernetes.io/hostname": "n1.local"}
    assert refs.ref(MINE) == NodeRef("n1", "aws:///zone-a/i-1", labels, internal_ips=("10.0.0.1", "fd00::1"))
