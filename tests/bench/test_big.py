"""Generated large clusters have the documented properties, tested on a small one."""

import json
from collections import Counter
from pathlib import Path

import pytest

from tests.bench.big import Big, big, firstfit_request
from tests.conformance.generate.world import Json
from tests.conformance.oracle import Oracle


@pytest.fixture(scope="module")
def small(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Big]:
    path = tmp_path_factory.mktemp("big") / "list.json"
    return path, big(path, on_demand=30, spot=60, pods_per_node=16, seed=3)


def _pods(path: Path) -> list[Json]:
    return [obj for obj in json.loads(path.read_text())["items"] if obj["kind"] == "Pod"]


def test_the_seed_determines_the_cluster(small: tuple[Path, Big], tmp_path: Path) -> None:
    again = tmp_path / "list.json"
    cluster = big(again, on_demand=30, spot=60, pods_per_node=16, seed=3)
    assert (cluster, again.read_bytes()) == (small[1], small[0].read_bytes())


def test_every_node_has_its_pods_and_each_kind_has_constraints(small: tuple[Path, Big]) -> None:
    pods = _pods(small[0])
    on = Counter(pod["spec"]["nodeName"] for pod in pods)
    wishes = Counter(
        wish
        for pod in pods
        for wish in (*pod["spec"].get("affinity", {}), *(key for key in pod["spec"] if key.startswith("topology")))
    )
    assert set(on.values()) == {16}
    assert wishes.keys() >= {"podAntiAffinity", "podAffinity", "topologySpreadConstraints"}


def test_every_pod_satisfies_its_constraints(small: tuple[Path, Big]) -> None:
    given = json.loads(small[0].read_text())
    stands = {
        f"{pod['metadata']['namespace']}/{pod['metadata']['name']}": pod["spec"]["nodeName"] for pod in _pods(small[0])
    }
    with Oracle() as oracle:
        verdicts = oracle.explain(given)
    assert [verdict["pod"] for verdict in verdicts if verdict["nodes"][stands[verdict["pod"]]]] == []


def test_every_on_demand_node_can_be_drained(small: tuple[Path, Big]) -> None:
    with Oracle() as oracle:
        response = oracle.ask(firstfit_request(*small))
    assert [(drain["node"], drain["unplaced"]) for drain in response["nodes"]] == [
        (node, None) for node in small[1].on_demand
    ]
