"""The node table while nodes are added, changed and removed."""

import msgspec

from predicates.nodes import NodeTable
from predicates.objects import Node
from tests.conformance.builders import node


def _node(name: str, *taints: tuple[str, str]) -> Node:
    given = [{"key": key, "effect": "NoExecute", "timeAdded": time} for key, time in taints]
    return msgspec.convert(node(name, taints=given), Node)


def _taints(table: NodeTable) -> dict[str, list[str]]:
    return {name: [taint.key for taint in table.taint_sets[table.taint_set[row]]] for name, row in table.row.items()}


def test_taints_that_differ_only_in_time_share_a_set() -> None:
    table = NodeTable()
    for number in range(5):
        table.put(_node(f"n{number}", ("a", f"2024-01-01T00:00:0{number}Z")))
    assert (len(table.taint_sets), _taints(table)) == (2, {f"n{number}": ["a"] for number in range(5)})


def test_unused_taint_sets_are_dropped() -> None:
    table = NodeTable()
    table.put(_node("kept", ("b", "")))
    for number in range(1000):
        table.put(_node("n", (f"a{number}", "")))
    assert (len(table.taint_sets) <= 2 * len(table) + 1, _taints(table)) == (True, {"kept": ["b"], "n": ["a999"]})
