"""The pods that are counted for a drain: a count that is kept equals one that is made anew, whatever has changed."""

import itertools
import random
from collections.abc import Collection
from dataclasses import replace
from types import SimpleNamespace
from typing import Any, Final, cast

import pytest

from predicates.objects import Pod
from rescheduler.execution.running_pods import RunningPods
from rescheduler.planning.controllers import Controller, ControllerState
from rescheduler.planning.forms import instant
from rescheduler.planning.rules.candidates import why_not_target
from tests.planning.builders import node, pod
from tests.planning.changing import ON_DEMAND_NODES, SPOT_NODES, ChangingCluster, at, stamp

NODES: Final = (*ON_DEMAND_NODES, *SPOT_NODES)
OWNERS: Final = tuple(f"w{number}" for number in range(3))
STATES: Final = [
    ControllerState(Controller("default", "ReplicaSet", name, f"uid-of-{name}"), frozenset({f"uid-of-{name}"}))
    for name in OWNERS
]


def changed(cluster: ChangingCluster, rng: random.Random, seconds: float) -> None:
    """Change a pod or a node of *cluster* at random."""
    name, host = f"{rng.choice(OWNERS)}-{rng.randrange(3)}", rng.choice(NODES)
    match rng.randrange(7):
        case 0:
            cluster.delete("Pod", f"default/{name}")
        case 1:
            cluster.delete("Node", host)
        case 2:
            cluster.put(node(host, ready=rng.choice(("True", "Unknown")), unschedulable=rng.random() < 0.3))
        case _:
            on, ready = rng.choice(("", *NODES)), str(rng.random() < 0.8)
            condition = {"type": "Ready", "status": ready, "lastTransitionTime": stamp(seconds)}
            cpu = rng.choice(("100m", "2"))  # a pod may be resized in place
            status = {"phase": "Running" if on else "Pending", "conditions": [condition]}
            cluster.put(pod(name, on, cpu=cpu, status=status))


def watched(cluster: ChangingCluster, rng: random.Random, seconds: float, ground: int) -> dict[str, Any]:
    """Return what is read of the state of *cluster*. *ground* decides which pods have no other place."""
    snapshot = cluster.snapshot
    ending = frozenset(rng.sample(NODES, rng.choice((0, 0, 1))))
    facts = SimpleNamespace(
        snapshot=snapshot,
        known=SimpleNamespace(leader=SimpleNamespace(ending=ending)),
        nodes={each.name: each for each in snapshot.nodes},
        now=at(seconds),
        owned_by=lambda owners: {owner: [*snapshot.owned_by(owner)] for owner in owners},
        going=lambda node: why_not_target(node) or ("it is ending" if node.name in ending else ""),
        pods_of=lambda name: [*snapshot.pods_on.get(name, {}).values()],
    )

    def loss(_: object, going: Collection[str], gone: Collection[str]) -> Any:
        pods = [pod for name in sorted(going) for pod in snapshot.pods_on.get(name, {}).values()]
        terms = {pod.key: f"{ground} {pod.key} {pod.cls.spec} {sorted(gone)}" for pod in pods}
        homeless = [key for key, term in terms.items() if random.Random(term).random() < 0.5]
        return SimpleNamespace(homeless=[SimpleNamespace(pods=homeless)], judged=True)

    planner = SimpleNamespace(loss=loss, round=lambda _: SimpleNamespace(ground=ground))
    times = {"watched_at": seconds, "became_ready": became_ready}
    return {**times, "snapshot": snapshot, "facts": facts, "circumstances": None, "planner": planner}


def became_ready(pod: Pod) -> float | None:
    """Every third pod was Ready before it was watched. The clocks of nodes are three seconds behind."""
    since = instant(pod.ready_since)
    return None if since is None or pod.name.endswith("1") else (since - at(0)).total_seconds() + 3


def asked(rng: random.Random) -> dict[str, Any]:
    """Return at random for which drain the pods are counted: mostly for the same."""
    uids = [f"uid-{owner}-0" for owner in OWNERS]
    return {
        "states": [replace(each, min_ready_seconds=rng.choice((0, 0, 0, 5))) for each in STATES],
        "node": rng.choice(("", *NODES[:2])),
        "staying": rng.choice(((), (), uids)),
        "evicted": rng.choice(((), (), (), (), uids)),
        "left": rng.choice(((), (), NODES[-1:])),
    }


@pytest.mark.parametrize("seed", range(40))
def test_a_count_that_is_kept_is_that_of_the_present_cluster(seed: int) -> None:
    rng, cluster, seconds, ground = random.Random(seed), ChangingCluster(), 0.0, 0
    view: Any = SimpleNamespace()
    ticks = itertools.count(0, 10)  # what a loss of nodes leaves without a place is proved anew at each look
    clock = cast("Any", SimpleNamespace(monotonic=lambda: next(ticks), now=lambda: at(seconds)))
    kept, question = RunningPods(view, clock), asked(rng)
    for _ in range(120):
        for _ in range(rng.choice((0, 0, 0, 1, 4))):
            changed(cluster, rng, seconds)
        seconds += rng.choice((0.0, 0.4, 1.0, 3.0, 11.0))
        ground += rng.random() < 0.3
        vars(view).update(watched(cluster, rng, seconds, ground))
        question |= {each: value for each, value in asked(rng).items() if rng.random() < 0.25}
        anew = RunningPods(view, clock).replicas(**question)
        assert kept.replicas(**question) == anew
