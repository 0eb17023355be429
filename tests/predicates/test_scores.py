"""Each score plugin on a few nodes, with values calculated manually from the scheduler's rules."""

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from predicates import scores
from predicates.indexes.by_node import NonZero
from predicates.indexes.domains import DomainCounts
from predicates.indexes.topology import AffinityWeights
from predicates.nodes import CPU, MEMORY, Numbers
from predicates.objects import Pod
from predicates.scheduler import Scheduler
from predicates.scores.frame import Scorer, ScoringRequest
from predicates.scores.nodes import normalized_image_name
from predicates.scores.pods import spreads_by_default
from predicates.snapshot import Snapshot
from tests.planning.builders import ZONE, Manifest, node, pod, repels, seeks, snapshot

MI = 1024 * 1024


def box(cpu: str | None = None, memory: str | None = None, image: str = "app:1") -> list[Manifest]:
    requests = {name: amount for name, amount in (("cpu", cpu), ("memory", memory)) if amount}
    return [{"name": "main", "image": image, "resources": {"requests": requests}}]


def asking(name: str = "new-1", cpu: str | None = None, memory: str | None = None, **fields: Any) -> Manifest:
    return pod(name, containers=box(cpu, memory), **fields)


def using(name: str, on: str, cpu: str | None = None, memory: str | None = None, **fields: Any) -> Manifest:
    return pod(name, on, containers=box(cpu, memory), **fields)


def images(name: str, **sizes: int) -> Manifest:
    manifest = node(name)
    manifest["status"]["images"] = [{"names": [f"{image}:1"], "sizeBytes": size * MI} for image, size in sizes.items()]
    return manifest


def sized(name: str, cpu: str, memory: str) -> Manifest:
    manifest = node(name)
    manifest["status"]["allocatable"] = {"cpu": cpu, "memory": memory, "pods": "110"}
    return manifest


def avoided(name: str, *keys: str) -> Manifest:
    return node(name, taints=[{"key": key, "effect": "PreferNoSchedule"} for key in keys])


def likes(weight: int, app: str, *, near: bool = True) -> Manifest:
    term = {"topologyKey": ZONE, "labelSelector": {"matchLabels": {"app": app}}}
    preferred = [{"weight": weight, "podAffinityTerm": term}]
    return {
        "podAffinity" if near else "podAntiAffinity": {"preferredDuringSchedulingIgnoredDuringExecution": preferred}
    }


def likes_zones(**weights: int) -> Manifest:
    terms = [
        {"weight": weight, "preference": {"matchExpressions": [{"key": ZONE, "operator": "In", "values": [zone]}]}}
        for zone, weight in weights.items()
    ]
    return {"nodeAffinity": {"preferredDuringSchedulingIgnoredDuringExecution": terms}}


def spread(app: str, *, when: str = "ScheduleAnyway", **fields: Any) -> Manifest:
    return {
        "maxSkew": 1,
        "topologyKey": ZONE,
        "whenUnsatisfiable": when,
        "labelSelector": {"matchLabels": {"app": app}},
        **fields,
    }


def without_zone(name: str) -> Manifest:
    manifest = node(name)
    del manifest["metadata"]["labels"][ZONE]
    return manifest


A, B, C = (node(name, zone=name) for name in "abc")
FIT, BALANCE = "NodeResourcesFit", "NodeResourcesBalancedAllocation"
PAIR = [sized("a", "4", "8Gi"), sized("b", "4", "8Gi")]
TAINTED = [node("a"), avoided("b", "x"), avoided("c", "x", "y")]

#: The plugin, the cluster, the pod, and the score of each node; None if the plugin does not apply.
TABLE: dict[str, tuple[str, list[Manifest], Manifest, dict[str, int] | None]] = {
    "free cpu and memory have equal weight": (
        FIT,
        [*PAIR, using("x", "b", "2", "2Gi")],
        asking(cpu="1", memory="2Gi"),
        {"a": 75, "b": 37},  # b: 25 and 50
    ),
    "a resource that does not fit counts 0": (
        FIT,
        [sized("a", "500m", "8Gi")],
        asking(cpu="1", memory="2Gi"),
        {"a": 37},
    ),
    "no requests count as 100m and 200Mi": (FIT, [sized("a", "1", "1000Mi")], asking(), {"a": 85}),
    "placed pods without requests count as 100m and 200Mi": (
        FIT,
        [sized("a", "1", "1000Mi"), using("x", "a"), using("y", "a")],
        asking(),
        {"a": 55},  # 70 and 40
    ),
    "a resource that the node lacks is left out": (
        FIT,
        [sized("a", "4", "0")],
        asking(cpu="1"),
        {"a": 75},
    ),
    "unchanged balance is 75": (BALANCE, PAIR, asking(cpu="1", memory="2Gi"), {"a": 75, "b": 75}),
    "worse or better balance": (
        BALANCE,
        [*PAIR, using("x", "b", memory="4Gi")],
        asking(cpu="2"),
        {"a": 62, "b": 87},  # utilization 50 and 0, 50 and 50
    ),
    "pods without requests are not scored for balance": (BALANCE, PAIR, asking(), None),
    "fewer PreferNoSchedule taints are better": ("TaintToleration", TAINTED, asking(), {"a": 100, "b": 50, "c": 0}),
    "tolerated PreferNoSchedule taints do not count": (
        "TaintToleration",
        TAINTED,
        asking(tolerations=[{"operator": "Exists", "effect": "PreferNoSchedule"}]),
        {"a": 100, "b": 100, "c": 100},
    ),
    "a toleration of NoSchedule does not help": (
        "TaintToleration",
        TAINTED,
        asking(tolerations=[{"operator": "Exists", "effect": "NoSchedule"}]),
        {"a": 100, "b": 50, "c": 0},
    ),
    "scores are relative to the best node": (
        "NodeAffinity",
        [A, B, C],
        asking(affinity=likes_zones(a=10, b=30)),
        {"a": 33, "b": 100, "c": 0},
    ),
    "no preferred node": ("NodeAffinity", [A, B], asking(), None),
    "the zone with more pods is worse": (
        "PodTopologySpread",
        [A, B, using("web-1", "a"), using("web-2", "a")],
        asking(labels={"app": "web"}, topologySpreadConstraints=[spread("web")]),
        {"a": 0, "b": 100},  # 2 x log 4 = 3 and 0
    ),
    "a node without the label gets 0": (
        "PodTopologySpread",
        [A, without_zone("n"), using("web-1", "a")],
        asking(labels={"app": "web"}, topologySpreadConstraints=[spread("web")]),
        {"a": 100, "n": 0},
    ),
    "hard constraints do not score": (
        "PodTopologySpread",
        [A, B, using("web-1", "a")],
        asking(labels={"app": "web"}, topologySpreadConstraints=[spread("web", when="DoNotSchedule")]),
        None,
    ),
    "default constraints spread the owner's pods": (
        "PodTopologySpread",
        [A, B, using("web-1", "a"), using("web-2", "a")],
        asking("web-3"),
        {"a": 50, "b": 100},  # by host and zone: 2 x 2 x log 4 + 2 + 4 = 12, and 6
    ),
    "default constraints do not apply to Jobs": (
        "PodTopologySpread",
        [A, B, using("web-1", "a")],
        asking("web-3", owner="Job"),
        None,
    ),
    "preferred affinity": (
        "InterPodAffinity",
        [A, B, using("db-1", "a")],
        asking(affinity=likes(5, "db")),
        {"a": 100, "b": 0},
    ),
    "preferred anti-affinity": (
        "InterPodAffinity",
        [A, B, using("db-1", "a")],
        asking(affinity=likes(5, "db", near=False)),
        {"a": 0, "b": 100},
    ),
    "placed pods: preferred terms, and required affinity with weight 1": (
        "InterPodAffinity",
        [A, B, C, using("db-1", "a", affinity=likes(5, "new")), using("io-1", "b", affinity=seeks("new", ZONE))],
        asking(),
        {"a": 100, "b": 20, "c": 0},
    ),
    "placed pods: required anti-affinity does not score": (
        "InterPodAffinity",
        [A, B, using("db-1", "a", affinity=repels("other"))],
        asking(),
        None,
    ),
    "an image on one of two nodes counts half": (
        "ImageLocality",
        [images("a", app=500), images("b")],
        asking(),
        {"a": 23, "b": 0},  # (250 - 23) of 977
    ),
    "an image on all nodes counts fully": (
        "ImageLocality",
        [images("a", app=500), images("b", app=5000)],
        asking(),
        {"a": 48, "b": 100},
    ),
    "images that the pod does not use do not count": ("ImageLocality", [images("a", other=500)], asking(), None),
}


@pytest.mark.parametrize(("plugin", "cluster", "pod", "expected"), TABLE.values(), ids=TABLE)
def test_each_plugin_scores_like_the_scheduler(
    plugin: str, cluster: list[Manifest], pod: Manifest, expected: dict[str, int] | None
) -> None:
    table = snapshot([*cluster, pod])
    obj = next(iter(table.pods_on[""].values()))
    scorer = next(each for each in scores.of(Scheduler().default) if each.name == plugin)
    actual = scorer.score(_request(table, obj))
    assert (None if actual is None else _by_name(table, actual)) == expected


def test_the_total_is_weighted() -> None:
    """The total of 450 is 300 without a soft taint, 75 for free resources and 75 for balance."""
    table = snapshot([node("a"), avoided("b", "x"), asking(cpu="1", memory="4Gi", owner=None)])
    actual = scores.totals(_request(table, next(iter(table.pods_on[""].values()))))
    assert _by_name(table, actual) == {"a": 450, "b": 150}


@pytest.mark.parametrize(
    ("image", "name"),
    [
        ("app", "app:latest"),
        ("app:2", "app:2"),
        ("host:5000/app", "host:5000/app:latest"),
        ("a@sha256:0", "a@sha256:0"),
    ],
)
def test_image_names_are_normalized(image: str, name: str) -> None:
    assert normalized_image_name(image) == name


def test_images_are_updated_with_their_nodes() -> None:
    table = snapshot([images("a", app=500), images("b"), asking()])
    request = _request(table, next(iter(table.pods_on[""].values())))
    locality = next(plugin for plugin in scores.of(Scheduler().default) if plugin.name == "ImageLocality")
    assert locality.score(request) is not None
    table.upsert("Node", next(iter(snapshot([images("a")]).nodes)))
    assert locality.score(request) is None


APPS = ("web", "db", "io")
POD = st.tuples(
    st.sampled_from(APPS),
    st.sampled_from(("a", "b", "c")),
    st.sampled_from(
        (None, likes(5, "web"), likes(7, "db", near=False), likes(5, "web") | repels("io"), seeks("web", ZONE))
    ),
    st.sampled_from((None, "100m")),
)
STEP = st.tuples(st.sampled_from(("place", "evict", "back")), st.integers(0, 99), st.integers(0, 2))


@given(pods=st.lists(POD, min_size=1, max_size=8), steps=st.lists(STEP, max_size=12))
def test_sums_are_correct_after_trials(
    pods: list[tuple[str, str, Manifest | None, str | None]], steps: list[tuple[str, int, int]]
) -> None:
    """After any placements, evictions and reverts, the indexes equal new ones."""
    running = [using(f"{app}-{n}", on, cpu, affinity=likes_) for n, (app, on, likes_, cpu) in enumerate(pods)]
    table = snapshot([A, B, C, *running])
    everyone = list(table.pods.values())
    sums = {item.key: _sums(table.index(AffinityWeights), item) for item in everyone}
    requested = _requested(table, table.index(NonZero))
    with table.trial() as trial:
        placed, savepoint = {item.key: item for item in everyone}, trial.savepoint()
        for action, which, where in steps:
            item = everyone[which % len(everyone)]
            if action == "place":
                trial.place(item.cls, table.nodes.row["abc"[where]])
            elif action == "evict" and item.key in placed:
                del placed[item.key]
                trial.evict(item)
            elif action == "back":
                trial.revert(savepoint)
                placed = {item.key: item for item in everyone}
        fresh, fresh_nonzero = AffinityWeights(table), NonZero(table)
        table.add_index(fresh)
        table.add_index(fresh_nonzero)
        for item in everyone:
            assert _sums(table.index(AffinityWeights), item) == _sums(fresh, item)
        assert np.array_equal(_requested(table, table.index(NonZero)), _requested(table, fresh_nonzero))
    assert {item.key: _sums(table.index(AffinityWeights), item) for item in everyone} == sums
    assert np.array_equal(_requested(table, table.index(NonZero)), requested)


@pytest.mark.parametrize("scorer", scores.of(Scheduler().default), ids=lambda scorer: scorer.name)
def test_scores_follow_changes_of_nodes(scorer: Scorer) -> None:
    """After changes of images, taints and amounts the scores equal those on a new snapshot."""
    before = [images("a", app=500), avoided("b", "slow"), node("c")]
    after = [sized("a", "8", "8Gi"), images("b", app=700), avoided("c", "slow", "costly"), images("d", app=90)]
    table = snapshot([*before, asking()])
    new = next(iter(table.pods_on[""].values()))
    scores.totals(_request(table, new), (scorer,))
    for item in snapshot(after).nodes:
        table.upsert("Node", item)
        fresh = snapshot([asking()])
        for each in table.nodes:
            fresh.upsert("Node", each)
        ours, expected = (scores.totals(_request(some, new), (scorer,)) for some in (table, fresh))
        assert _by_name(table, ours) == _by_name(fresh, expected)


def test_dropped_classes_do_not_count() -> None:
    table = snapshot([A, B, using("db-1", "a", affinity=likes(5, "new")), asking()])
    obj = table.pods["default/new-1"]
    assert _sums(table.index(AffinityWeights), obj) == [[5, 0, 0]]
    table.delete("Pod", "default/db-1")
    table.compact()
    assert _sums(table.index(AffinityWeights), obj) == []


def test_nodes_that_are_added_later_are_counted() -> None:
    table = snapshot([A, asking()])
    table.index(NonZero)
    more = snapshot([node(f"n{n}") for n in range(40)])
    for item in more.nodes:
        table.upsert("Node", item)
    with table.trial() as trial:
        trial.place(table.pods["default/new-1"].cls, table.nodes.row["n39"])
        assert _requested(table, table.index(NonZero))[table.nodes.row["n39"]].tolist() == [100, 200 * MI]


def _requested(table: Snapshot, index: NonZero) -> Numbers:
    """Return the requested cpu and memory by row, with the defaults."""
    return table.nodes.requested[:, CPU : MEMORY + 1] + index.defaults()


def _sums(index: AffinityWeights, incoming: Pod) -> list[list[int]]:
    def current(counts: DomainCounts) -> list[int]:
        return [int(each) for each in counts.current()]

    return sorted(weights for weights in map(current, index.for_pod(incoming.cls, {})) if any(weights))


def _request(table: Snapshot, incoming: Pod) -> ScoringRequest:
    return ScoringRequest(table, incoming.cls, np.flatnonzero(table.nodes.alive), spreads_by_default(incoming))


def _by_name(table: Snapshot, by_row: Numbers | int) -> dict[str, int]:
    rows = np.flatnonzero(table.nodes.alive)
    given = np.broadcast_to(by_row, len(rows)).tolist()
    return {table.nodes.names[row]: score for row, score in zip(rows, given, strict=True)}
