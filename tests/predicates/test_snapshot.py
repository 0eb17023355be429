"""A snapshot does not depend on whether its objects are added at once or one by one."""

import json
from collections.abc import Mapping
from random import Random
from typing import Any

import pytest

from predicates.filters import Filters
from predicates.objects import Object, Pod
from predicates.snapshot import PLACEHOLDER, ROOM_NAMESPACE, Snapshot, key_of
from predicates.wire import KINDS, Decoder, Interner
from tests.conformance.builders import node, pod
from tests.conformance.generate import cluster
from tests.conformance.generate.world import Json


def _objects(items: list[Json]) -> dict[str, dict[str, Object]]:
    decoder = Decoder(Interner())
    result: dict[str, dict[str, Object]] = {kind: {} for kind in KINDS}
    for item in (item for item in items if item["kind"] in KINDS):
        obj = decoder.decode(item["kind"], json.dumps(item).encode())
        result[item["kind"]][key_of(obj)] = obj
    return result


def _facts(snapshot: Snapshot) -> Mapping[str, Any]:
    free = {name: snapshot.nodes.free[row].tolist() for name, row in snapshot.nodes.row.items()}
    # Classes of one decoder have one spec each; snapshots derive classes with added labels from them.
    rows = {(id(pod.spec), *sorted(pod.labels.items())): dict(snapshot.rows_of(pod)) for pod in snapshot.classes()}
    on = {node: list(pods) for node, pods in snapshot.pods_on.items() if pods}
    noted = snapshot.preempted, snapshot.refused
    return {"pods": snapshot.pods, "order": list(snapshot.pods), "on": on, "free": free, "rows": rows, "noted": noted}


def test_pods_of_several_nodes_leave_their_own_nodes() -> None:
    pods = [pod(name, on, requests={"cpu": "1"}) for name, on in (("p", "a"), ("q", "b"), ("r", "a"))]
    objects = _objects([node("a"), node("b"), *pods])
    snapshot = Snapshot()
    for kind, some in objects.items():
        snapshot.replace(kind, some.values())
    with snapshot.trial() as one_by_one:
        for each in snapshot.pods.values():
            one_by_one.evict(each)
        expected = _facts(snapshot)
    with snapshot.trial() as trial:
        trial.evict(*snapshot.pods.values())
        assert _facts(snapshot) == expected
        trial.restore(*snapshot.pods.values())
        restored = _facts(snapshot)
    assert restored == _facts(snapshot) != expected


def _assert_alike(objects: dict[str, dict[str, Object]]) -> Snapshot:
    at_once, one_by_one = Snapshot(), Snapshot()
    for kind, some in objects.items():
        at_once.replace(kind, some.values())
        for obj in some.values():
            one_by_one.upsert(kind, obj)
    assert _facts(at_once) == _facts(one_by_one)
    return at_once


@pytest.mark.parametrize("seed", range(40))
def test_pods_added_at_once_or_one_by_one_give_the_same_snapshot(seed: int) -> None:
    _assert_alike(_objects(cluster(seed)["items"]))


def _resized(name: str, cpu: str) -> Json:
    obj = pod(name, "n", requests={"cpu": "1", "example.com/a": "1"})
    given = {"name": "c", "resources": {"requests": {"cpu": cpu, "example.com/a": "1", f"example.com/{name}": "2"}}}
    return {**obj, "status": {"phase": "Running", "containerStatuses": [given]}}


def test_resizing_finished_and_unbound_pods_added_at_once_or_one_by_one_give_the_same_snapshot() -> None:
    ended = {**pod("ended", "n", requests={"cpu": "1"}), "status": {"phase": "Failed"}}
    others = [pod("plain", "n", requests={"cpu": "1"}), pod("lost", "gone"), pod("pending")]
    snapshot = _assert_alike(_objects([node("n"), _resized("x", "3"), ended, *others, _resized("y", "2")]))
    assert [item.name for item in snapshot.pods.values()] == ["x", "plain", "lost", "pending", "y"]


@pytest.mark.parametrize("phase", ["Pending", "Running", "Failed"])
@pytest.mark.parametrize("on", ["n", "gone", ""])
def test_preempted_and_refused_pods_added_at_once_or_one_by_one_are_noted(phase: str, on: str) -> None:
    """A drain that goes on after a restart learns of them from the first LIST."""
    conditions = [{"type": "DisruptionTarget", "status": "True", "reason": "PreemptionByScheduler"}]
    preempted = pod("low", on, requests={"cpu": "1"}) | {"status": {"phase": phase, "conditions": conditions}}
    refused = pod("refused", "n") | {"status": {"phase": "Failed", "reason": "OutOfcpu", "message": "no"}}
    snapshot = _assert_alike(_objects([node("n"), preempted, refused]))
    assert [item.name for item in snapshot.preempted.values()] == ["low"]
    assert [item.name for item in snapshot.refused.values()] == ["refused"]


def test_replacing_all_pods_leaves_nothing_behind() -> None:
    objects = _objects([node("n"), *(pod(f"p{i}", "n", requests={"cpu": "1"}) for i in range(3))])
    snapshot = _assert_alike(objects)
    kept = next(item for item in objects["Pod"].values() if isinstance(item, Pod))
    snapshot.replace("Pod", [kept])
    expected = Snapshot()
    expected.replace("Node", objects["Node"].values())
    expected.replace("Pod", [kept])
    assert _facts(snapshot) == _facts(expected)


def test_a_node_that_a_trial_takes_away_comes_back() -> None:
    """Within the trial, filters and domains are those of a snapshot without the node; afterwards, those of before."""
    spread = {
        "maxSkew": 1,
        "topologyKey": "zone",
        "whenUnsatisfiable": "DoNotSchedule",
        "labelSelector": {"matchLabels": {"app": "a"}},
    }
    incoming = pod("new", "", labels={"app": "a"}, topologySpreadConstraints=[spread])
    manifests = [
        node("n1", labels={"zone": "1"}),
        node("n2", labels={"zone": "2"}),
        node("n3", labels={"zone": "3"}),
        *(pod(f"p{number}", f"n{number}", labels={"app": "a"}) for number in (1, 2)),
        incoming,
    ]
    snapshot = Snapshot()
    for kind, objects in _objects(manifests).items():
        snapshot.replace(kind, objects.values())
    filters, cls = Filters(snapshot), snapshot.pods["default/new"].cls

    def accepting() -> set[str]:
        return {snapshot.nodes.names[row] for row in filters.feasible(cls).nonzero()[0]}

    assert accepting() == {"n3"}
    before = _facts(snapshot)
    with snapshot.trial() as trial:
        trial.lose(snapshot.nodes.row["n3"])
        assert accepting() == {"n1", "n2"}
        mark = trial.savepoint()
        trial.evict(snapshot.pods["default/p1"])
        trial.lose(snapshot.nodes.row["n1"])
        assert accepting() == {"n2"}
        trial.revert(mark)
        trial.keep()
        assert accepting() == {"n1", "n2"}
    assert accepting() == {"n3"}
    assert _facts(snapshot) == before


@pytest.mark.parametrize("seed", range(30))
def test_lost_nodes_are_as_if_they_were_deleted(seed: int) -> None:
    objects = _objects(cluster(seed, "all")["items"])
    snapshot, without = Snapshot(), Snapshot()
    for kind, some in objects.items():
        snapshot.replace(kind, some.values())
        without.replace(kind, some.values())
    names = sorted(snapshot.nodes.row)[::3]
    for name in names:
        for key in list(without.pods_on[name]):
            without.delete("Pod", key)
        without.delete("Node", name)
    filters, expected = Filters(snapshot), Filters(without)
    classes = dict.fromkeys(each.cls for each in snapshot.pods.values())
    filters.refresh(classes)
    with snapshot.trial() as trial:
        for name in names:
            trial.evict(*snapshot.pods_on[name].values())
            trial.lose(snapshot.nodes.row[name])
        for cls in classes:
            accepted = {snapshot.nodes.names[row] for row in filters.feasible(cls).nonzero()[0]}
            assert accepted == {without.nodes.names[row] for row in expected.feasible(cls).nonzero()[0]}


@pytest.mark.parametrize("seed", range(20))
def test_pods_placed_at_once_or_one_by_one_are_the_same_to_all_filters(seed: int) -> None:
    snapshot = Snapshot()
    for kind, some in _objects(cluster(seed, "all")["items"]).items():
        snapshot.replace(kind, some.values())
    classes = [*dict.fromkeys(each.cls for each in snapshot.pods.values())]
    row, before = next(iter(snapshot.nodes.row.values())), snapshot.nodes.free.tolist()
    results = []
    for at_once in (True, False):
        with snapshot.trial() as trial:
            if at_once:
                trial.place_all(classes, row)
            for cls in () if at_once else classes:
                trial.place(cls, row)
            filters = Filters(snapshot)
            accepted = [filters.feasible(cls).tolist() for cls in classes]
            results.append((snapshot.nodes.free.tolist(), dict(snapshot.assumed_claims), accepted))
        assert (snapshot.nodes.free.tolist(), snapshot.assumed_claims) == (before, {})
    assert results[0] == results[1]


@pytest.mark.parametrize("seed", range(8))
def test_the_pods_of_owners_are_those_that_a_search_of_all_pods_finds(seed: int) -> None:
    """Pods come, go, finish, move, are orphaned and adopted, are placeholders, and are all replaced, in any order."""
    rng, snapshot, decoder = Random(seed), Snapshot(), Decoder(Interner())
    owners = [(namespace, f"uid-{number}") for namespace in ("a", "b") for number in range(3)]

    def changed() -> Object:
        namespace = rng.choice("ab")
        manifest = pod(
            f"p{rng.randrange(6)}", rng.choice(["", "n1", "n2"]), labels=rng.choice([{}, {PLACEHOLDER: "x"}])
        )
        manifest["metadata"] |= {"namespace": rng.choice([namespace, ROOM_NAMESPACE]), "uid": str(rng.random())}
        if rng.random() < 0.8:
            owner = {"kind": "ReplicaSet", "name": "web", "uid": f"uid-{rng.randrange(3)}", "controller": True}
            manifest["metadata"]["ownerReferences"] = [owner]
        manifest["status"] = {"phase": rng.choice(["Running", "Running", "Succeeded"])}
        return decoder.decode("Pod", json.dumps(manifest).encode())

    for step in range(300):
        if rng.random() < 0.02:
            pods = {key_of(each): each for each in (changed() for _ in range(5))}
            snapshot.replace("Pod", pods.values())
        elif rng.random() < 0.3 and snapshot.pods:
            snapshot.delete("Pod", rng.choice([*snapshot.pods]))
        else:
            snapshot.upsert("Pod", changed())
        if step < 50 and seed % 2:
            continue  # the index is built late
        for owner in owners:
            found = {each.key: each for each in snapshot.owned_by(owner)}
            owned = {key: each for key, each in snapshot.pods.items() if each.owner and each.owner.uid == owner[1]}
            assert found == {key: each for key, each in owned.items() if each.namespace == owner[0]}
        for namespaces in ((), ("a",), ("a", "b"), (ROOM_NAMESPACE, "other")):
            inside = [each for each in snapshot.pods.values() if each.owner and each.namespace in namespaces]
            assert sorted(each.key for each in snapshot.owned_in(namespaces)) == sorted(each.key for each in inside)


@pytest.mark.parametrize("seed", range(8))
def test_the_priorities_are_those_of_the_pods_that_are_there(seed: int) -> None:
    """Pods come, go, finish, are edited, get another priority, are placeholders, and are all replaced, in any order."""
    rng, snapshot, decoder = Random(seed), Snapshot(), Decoder(Interner())

    def changed() -> Object:
        labels = rng.choice([{}, {PLACEHOLDER: "x"}])
        manifest = pod(f"p{rng.randrange(5)}", rng.choice(["", "n1"]), labels=labels)
        manifest["metadata"] |= {"namespace": rng.choice(["a", ROOM_NAMESPACE]), "annotations": {"a": rng.choice("bc")}}
        manifest["spec"] |= rng.choice([{}, {"priority": 1}, {"priority": -1, "priorityClassName": "low"}])
        manifest["status"] = {"phase": rng.choice(["Running", "Running", "Succeeded"])}
        return decoder.decode("Pod", json.dumps(manifest).encode())

    for step in range(300):
        if rng.random() < 0.02:
            pods = {key_of(each): each for each in (changed() for _ in range(5))}
            snapshot.replace("Pod", pods.values() if rng.random() < 0.5 else ())
        elif rng.random() < 0.02:
            snapshot.compact()
        elif rng.random() < 0.3 and snapshot.pods:
            snapshot.delete("Pod", rng.choice([*snapshot.pods]))
        else:
            snapshot.upsert("Pod", changed())
        if step >= 50 or not seed % 2:  # the pods are counted early or late
            specs = [each.cls.spec for each in snapshot.pods.values()]
            assert set(snapshot.priorities()) == {(spec.priority_class_name, spec.priority) for spec in specs}
