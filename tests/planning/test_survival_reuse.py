"""Certificates that reuse what did not change, and prove all losses at once, equal those that do neither."""

from copy import deepcopy
from random import Random
from typing import Any

import pytest

from predicates.objects import PodClass
from predicates.snapshot import Snapshot
from rescheduler.planning.placement.ample import Ample
from rescheduler.planning.planner import Planner
from rescheduler.planning.policy import Policy, Survive
from tests.planning.builders import CIRCUMSTANCES, ON_DEMAND, Manifest, node, pod, repels, seeks, snapshot
from tests.planning.changing import ChangingCluster

TYPE = "node.kubernetes.io/instance-type"
ZONE = "topology.kubernetes.io/zone"


def cluster(seed: int) -> tuple[list[Manifest], list[Manifest]]:
    """Return nodes of three pools and more, and pods with and without rules about others; there is some room."""
    rng = Random(seed)
    spot = [
        node(f"s{number}", zone=rng.choice("abc"), labels={TYPE: rng.choice("mc")}, cpu=rng.choice(("4", "8", "16")))
        for number in range(rng.randint(4, 9))
    ]
    others = [node(f"o{number}", ON_DEMAND, zone=rng.choice("abc"), cpu="8") for number in range(rng.randint(0, 3))]
    names = [each["metadata"]["name"] for each in (*spot, *others)]
    return [*spot, *others], [_pod(rng, number, rng.choice(names)) for number in range(rng.randint(14, 25))]


def _pod(rng: Random, number: int, on: str) -> Manifest:
    app = f"app{rng.randrange(4)}"
    more: dict[str, Any] = {
        "labels": {"app": app},
        "cpu": f"{rng.randint(1, 12) * 100}m",
        "priority": rng.choice((0, 5)),
    }
    match rng.randrange(7):
        case 0:
            more["affinity"] = repels(app)
        case 1:
            more["affinity"] = repels(app, ZONE)
        case 2:
            more["affinity"] = seeks(app, ZONE)
        case 3:
            selector = {"matchLabels": {"app": app}}
            constraint = {"maxSkew": 5, "whenUnsatisfiable": "DoNotSchedule", "labelSelector": selector}
            more["topologySpreadConstraints"] = [{**constraint, "topologyKey": ZONE}]
        case 4:
            port = {"containerPort": 80, "hostPort": 80 + rng.randrange(2)}
            more["containers"] = [{"name": "m", "image": "i", "ports": [port]}]
    return pod(f"p{number}", on, owner=None if rng.random() < 0.1 else "ReplicaSet", **more)


def certified(table: Snapshot) -> Any:
    return Planner(table, Policy()).certificate(CIRCUMSTANCES, Survive.POOL)


@pytest.mark.parametrize("seed", range(40))
def test_proofs_for_all_pools_at_once_change_nothing(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    nodes, pods = cluster(seed)
    found = certified(snapshot([*nodes, *pods]))
    monkeypatch.setattr(Ample, "fits_always", lambda *_: False)
    assert certified(snapshot([*nodes, *pods])) == found


def test_most_is_proved_for_all_pools_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    proved: list[bool] = []
    fits_always = Ample.fits_always

    def noted(ample: Ample, pod: PodClass, pending: int, with_ports: int) -> bool:
        proved.append(fits_always(ample, pod, pending, with_ports))
        return proved[-1]

    monkeypatch.setattr(Ample, "fits_always", noted)
    for seed in range(40):
        nodes, pods = cluster(seed)
        certified(snapshot([*nodes, *pods]))
    assert proved.count(True) > 40
    assert proved.count(False) > 40


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(30))
def test_a_planner_that_has_seen_changes_finds_what_a_new_one_finds(seed: int) -> None:
    """Pods move, come, go, and are replaced by others of the same name; their owner goes, they terminate."""
    rng, (nodes, pods) = Random(seed), cluster(seed)
    table, names = snapshot([*nodes, *pods]), [each["metadata"]["name"] for each in nodes]
    planner = Planner(table, Policy())
    planner.certificate(CIRCUMSTANCES, Survive.POOL)
    for step in range(6):
        number = rng.randrange(len(pods))
        changed = pods[number] = deepcopy(pods[number])
        match rng.randrange(5):
            case 0:
                changed["spec"]["nodeName"] = rng.choice(names)
                changed["metadata"]["uid"] = f"moved-{step}"
            case 1:
                pods[number] = _pod(rng, int(changed["metadata"]["name"][1:]), rng.choice(names))
            case 2:
                changed["metadata"]["ownerReferences"] = []
            case 3:
                changed["metadata"]["deletionTimestamp"] = "2026-01-01T00:00:00Z"
            case 4:
                pods.append(_pod(rng, 100 + step, rng.choice(names)))
        fresh = snapshot([*nodes, *pods])
        for key, each in fresh.pods.items():
            if table.pods.get(key) != each:
                table.upsert("Pod", each)
        assert planner.certificate(CIRCUMSTANCES, Survive.POOL) == certified(fresh)
        gone = rng.choice(list(fresh.pods))
        table.delete("Pod", gone)
        pods = [each for each in pods if f"default/{each['metadata']['name']}" != gone]
        assert planner.certificate(CIRCUMSTANCES, Survive.POOL) == certified(snapshot([*nodes, *pods]))


SPOT_NODES = [node(f"s-{zone}", zone=zone, labels={TYPE: "m"}) for zone in "ab"]


def runtime(overhead: str) -> Manifest:
    fixed = {"overhead": {"podFixed": {"cpu": overhead}}}
    return {
        "apiVersion": "node.k8s.io/v1",
        "kind": "RuntimeClass",
        "metadata": {"name": "kata"},
        "handler": "k",
        **fixed,
    }


def replica_set() -> Manifest:
    container = {"name": "main", "image": "app:1", "resources": {"requests": {"cpu": "1"}}}
    template = {"metadata": {"labels": {"app": "web"}}, "spec": {"runtimeClassName": "kata", "containers": [container]}}
    meta = {"name": "web", "namespace": "default", "uid": "uid-of-web"}
    return {"apiVersion": "apps/v1", "kind": "ReplicaSet", "metadata": meta, "spec": {"template": template}}


def namespace(level: str) -> Manifest:
    labels = {"pod-security.kubernetes.io/enforce": level}
    return {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "default", "labels": labels}}


@pytest.mark.parametrize(
    ("pods", "before", "after"),
    [
        (
            [
                replica_set(),
                *(pod(f"web-{n}", "s-a", runtimeClassName="kata", overhead={"cpu": "100m"}) for n in range(3)),
            ],
            runtime("100m"),
            runtime("900m"),
        ),
        ([pod("web-0", "s-a", hostNetwork=True)], namespace("privileged"), namespace("baseline")),
    ],
    ids=["runtime class", "pod security"],
)
def test_what_replacements_derive_from_ends_a_certificate(
    pods: list[Manifest], before: Manifest, after: Manifest
) -> None:
    cluster = ChangingCluster([*SPOT_NODES, *pods, before])
    planner = Planner(cluster.snapshot, Policy())
    assert planner.certificate(CIRCUMSTANCES, Survive.POOL).holds
    cluster.put(after)
    assert not planner.certificate(CIRCUMSTANCES, Survive.POOL).holds
    assert not certified(cluster.snapshot).holds
