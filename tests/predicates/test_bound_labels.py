"""Labels that the API server adds to bound pods: which selectors match them before and after a pod is moved."""

import numpy as np

from predicates import plugins
from predicates.filters import Filters
from predicates.objects import PodClass
from predicates.snapshot import Snapshot
from tests.conformance.builders import apart, node, pod, together
from tests.conformance.generate.world import Json
from tests.predicates.asking import load

ZONE, HOST = "topology.kubernetes.io/zone", "kubernetes.io/hostname"
NODES = [node("a1", labels={ZONE: "a"}), node("a2", labels={ZONE: "a"}), node("b1", labels={ZONE: "b"})]


def _feasible(table: Snapshot, pod_class: PodClass) -> set[str]:
    rows = np.flatnonzero(Filters(table, plugins.DEFAULT).feasible(pod_class))
    return {table.nodes.names[row] for row in rows}


def _bound(name: str, on: str, zone: str) -> Json:
    return pod(name, on, labels={"app": name, ZONE: zone})


def test_placed_pods_have_the_labels_for_selectors_of_others() -> None:
    seeker = pod("seeker", affinity=together(HOST, {ZONE: "a"}))
    table = load(*NODES, _bound("w", "a1", "a"), _bound("v", "b1", "b"), seeker)
    assert _feasible(table, table.pods["default/seeker"].cls) == {"a1"}


def test_a_pod_to_be_moved_does_not_have_the_labels_yet() -> None:
    guard = pod("guard", "a2", affinity=apart(HOST, {ZONE: "a"}), labels={"app": "guard", ZONE: "a"})
    table = load(*NODES, _bound("w", "a1", "a"), guard)
    assert _feasible(table, table.pods["default/w"].cls) == {"a1", "a2", "b1"}


def test_a_pod_gets_the_labels_of_the_node_where_a_trial_places_it() -> None:
    seeker = pod("seeker", affinity=together(HOST, {ZONE: "b"}))
    table = load(*NODES, _bound("w", "a1", "a"), seeker)
    moved, searching = table.pods["default/w"], table.pods["default/seeker"].cls
    with table.trial() as trial:
        trial.evict(moved)
        trial.place(moved.cls, table.nodes.row["b1"])
        assert _feasible(table, searching) == {"b1"}
        trial.unplace(moved.cls, table.nodes.row["b1"])
        assert _feasible(table, searching) == set()
    assert _feasible(table, searching) == set()


def test_a_trial_adds_no_labels_if_no_pod_has_them() -> None:
    seeker = pod("seeker", affinity=together(HOST, {ZONE: "b"}))
    table = load(*NODES, pod("w", "a1"), seeker)
    with table.trial() as trial:
        trial.place(table.pods["default/w"].cls, table.nodes.row["b1"])
        assert _feasible(table, table.pods["default/seeker"].cls) == set()


def test_dropping_unused_classes_keeps_the_labels_of_pods() -> None:
    seeker = pod("seeker", affinity=together(HOST, {ZONE: "a"}))
    table = load(*NODES, _bound("w", "a1", "a"), _bound("gone", "a2", "a"), seeker)
    table.delete("Pod", "default/gone")
    classes = table.compact()
    assert len(classes) == 2
    assert sorted(sorted(cls.labels) for cls in table.classes()) == [[], ["app", ZONE]]
    assert _feasible(table, table.pods["default/seeker"].cls) == {"a1"}


def test_a_pod_whose_added_labels_change_counts_with_the_new_labels() -> None:
    seeker = pod("seeker", affinity=together(HOST, {ZONE: "z"}))
    table = load(*NODES, _bound("w", "a1", "a"), seeker)
    searching = table.pods["default/seeker"].cls
    assert _feasible(table, searching) == set()
    relabeled = load(_bound("w", "a1", "z")).pods["default/w"]
    table.upsert("Pod", relabeled)
    assert _feasible(table, searching) == {"a1"}
