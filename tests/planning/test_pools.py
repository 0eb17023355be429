"""Tests of pools of spot nodes: their names, their rows, and zones as pools."""

import pytest

from rescheduler.planning.pools import POOL_LABELS, pool_of, spot_pools
from tests.planning.builders import ON_DEMAND, node, snapshot

ZONE, TYPE = POOL_LABELS
OLD_ZONE, OLD_TYPE = "failure-domain.beta.kubernetes.io/zone", "beta.kubernetes.io/instance-type"

#: case: labels of the node, keys → pool
POOLS: dict[str, tuple[dict[str, str], tuple[str, ...], str]] = {
    "zone and instance type": ({ZONE: "a", TYPE: "m5.large"}, POOL_LABELS, "a/m5.large"),
    "older names": ({OLD_ZONE: "a", OLD_TYPE: "m5.large"}, POOL_LABELS, "a/m5.large"),
    "an older and a current name": ({ZONE: "a", OLD_TYPE: "m5.large"}, POOL_LABELS, "a/m5.large"),
    "the current name wins": ({ZONE: "a", OLD_ZONE: "b", TYPE: "x"}, POOL_LABELS, "a/x"),
    "an empty current name": ({ZONE: "", OLD_ZONE: "b", TYPE: "x"}, POOL_LABELS, "b/x"),
    "no zone": ({TYPE: "m5.large"}, POOL_LABELS, "no-zone/m5.large"),
    "no instance type": ({ZONE: "a"}, POOL_LABELS, "a/no-instance-type"),
    "neither": ({}, POOL_LABELS, "no-zone/no-instance-type"),
    "empty values": ({ZONE: "", TYPE: ""}, POOL_LABELS, "no-zone/no-instance-type"),
    "another label": ({"example.com/pool": "blue", ZONE: "a"}, ("example.com/pool",), "blue"),
    "without the other label": ({ZONE: "a"}, ("example.com/pool",), "no-pool"),
    "three labels": ({ZONE: "a", TYPE: "x", "pool": "blue"}, ("pool", ZONE, TYPE), "blue/a/x"),
    "an older name that is given": ({ZONE: "a", OLD_ZONE: "b"}, (OLD_ZONE,), "b"),
}


@pytest.mark.parametrize(("labels", "keys", "expected"), POOLS.values(), ids=POOLS)
def test_a_pool_is_named_by_the_values_of_the_labels(
    labels: dict[str, str], keys: tuple[str, ...], expected: str
) -> None:
    assert pool_of(labels, keys) == expected


def test_the_spot_nodes_of_a_snapshot_are_grouped_by_row() -> None:
    cluster = snapshot(
        [
            node("s1", zone="b", labels={TYPE: "x"}),
            node("od", ON_DEMAND, zone="a", labels={TYPE: "x"}),
            node("s2", zone="a", labels={TYPE: "x"}),
            node("s3", zone="b", labels={TYPE: "x"}),
            node("gone", zone="c", labels={TYPE: "x"}),
        ]
    )
    cluster.delete("Node", "gone")
    table = cluster.nodes
    rows = [table.row[name] for name in ("s1", "s2", "s3")]
    pools = spot_pools(table, rows)
    assert pools.names == ("a/x", "b/x")
    named = {name: [table.names[row] for row in pools.rows_of(name)] for name in pools.names}
    assert named == {"a/x": ["s2"], "b/x": ["s1", "s3"]}
    assert [pools.of_row(table.row[name]) for name in ("s1", "od")] == ["b/x", ""]
    assert (len(pools.ids), list(pools.rows_of("c/x"))) == (len(table), [])


def test_a_zone_is_a_pool_by_one_label() -> None:
    cluster = snapshot([node("s1", zone="b", labels={TYPE: "x"}), node("s2", zone="b", labels={TYPE: "y"})])
    assert spot_pools(cluster.nodes, cluster.nodes.row.values(), (ZONE,)).names == ("b",)


def test_no_spot_nodes_are_no_pools() -> None:
    assert spot_pools(snapshot([]).nodes, []).names == ()
