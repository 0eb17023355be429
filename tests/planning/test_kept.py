"""A kept value is computed again after a change of the parts that it names, and only then."""

from collections.abc import Callable
from typing import Final

import pytest

from predicates.snapshot import Snapshot
from rescheduler.planning.kept import ClusterPart, Kept, PartOrKind, version
from tests.planning.builders import ON_DEMAND, budget, node, pod
from tests.planning.changing import ChangingCluster

#: What happens → which parts change by it.
CHANGES: Final[dict[str, tuple[Callable[[ChangingCluster], object], set[PartOrKind]]]] = {
    "nothing": (lambda _: None, set()),
    "a node gets a label": (
        lambda cluster: cluster.put(node("n-1", labels={"a": "b"})),
        {ClusterPart.NODES, ClusterPart.PLACED},
    ),
    "a pod comes": (lambda cluster: cluster.put(pod("b-1", "n-1")), {ClusterPart.PLACED}),
    "a pod goes": (lambda cluster: cluster.delete("Pod", "default/a-1"), {ClusterPart.PLACED}),
    "a pod waits": (lambda cluster: cluster.put(pod("b-1")), {ClusterPart.UNPLACED}),
    "a pod gets an annotation": (lambda cluster: cluster.put(pod("a-1", "n-1", annotations={"a": "b"})), set()),
    "a budget comes": (lambda cluster: cluster.put(budget("b", "a", allowed=1)), {"PodDisruptionBudget"}),
    "classes are dropped": (lambda cluster: cluster.snapshot.compact(), {ClusterPart.PLACED, ClusterPart.CLASSES}),
}


@pytest.mark.parametrize(("change", "changed"), CHANGES.values(), ids=CHANGES)
def test_each_part_has_changed_after_what_changes_it(
    change: Callable[[ChangingCluster], object], changed: set[PartOrKind]
) -> None:
    cluster = ChangingCluster()
    cluster.put(node("n-1", ON_DEMAND))
    cluster.put(pod("a-1", "n-1"))
    parts = [*ClusterPart, "PodDisruptionBudget", "Deployment"]
    before = {part: version(cluster.snapshot, part) for part in parts}
    count = cluster.snapshot.changes
    change(cluster)
    expected = {*changed, *([ClusterPart.ANYTHING] if cluster.snapshot.changes != count else [])}
    assert {part for part in parts if version(cluster.snapshot, part) != before[part]} == expected


def test_a_kept_value_is_the_same_object_until_what_it_names_changes() -> None:
    def nodes(snapshot: Snapshot, suffix: str) -> list[str]:
        return [f"{each.name}{suffix}" for each in snapshot.nodes if each.name.startswith("n-")]

    cluster, kept = ChangingCluster(), Kept(nodes, ClusterPart.NODES)
    cluster.put(node("n-1"))
    first = kept.of(cluster.snapshot, "!")
    cluster.put(pod("a-1", "n-1"))
    assert kept.of(cluster.snapshot, "!") is first
    assert kept.of(cluster.snapshot, "?") == ["n-1?"]
    cluster.put(node("n-2"))
    assert kept.of(cluster.snapshot, "?") == ["n-1?", "n-2?"]
    assert kept.of(ChangingCluster().snapshot, "?") == []
