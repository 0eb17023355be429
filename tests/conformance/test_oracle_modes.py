"""What else the oracle does: replays plans, plans by first fit, scores, and says what is wrong with a request."""

import pytest

from tests.conformance.builders import apart, claim, mounts, node, pod, snapshot, spread, storage_class, volume
from tests.conformance.generate.world import Json
from tests.conformance.oracle import Oracle, OracleError

ZONE = "topology.kubernetes.io/zone"
HOST = "kubernetes.io/hostname"
DRAINING = {"key": "draining", "effect": "NoSchedule"}
WEB = {"app": "web"}


def test_the_filters_stand_in_the_order_of_the_default_profile(oracle: Oracle) -> None:
    enabled = oracle.ask({"mode": "plugins"})["Filter"]["Enabled"]
    assert [one["Name"] for one in enabled] == [
        "NodeUnschedulable",
        "NodeName",
        "TaintToleration",
        "NodeAffinity",
        "NodePorts",
        "NodeResourcesFit",
        "VolumeRestrictions",
        "NodeVolumeLimits",
        "VolumeBinding",
        "VolumeZone",
        "PodTopologySpread",
        "InterPodAffinity",
        "DynamicResources",
        "NodeDeclaredFeatures",
    ]


ERRORS: dict[str, tuple[Json, str]] = {
    "no such pod": ({"mode": "explain", "pods": ["default/p"]}, 'pod "default/p" is not in the snapshot'),
    "no such node": ({"mode": "explain", "nodes": ["a"]}, 'node "a" is not in the snapshot'),
    "no such mode": ({"mode": "guess"}, 'mode "guess"'),
    "broken quantity": ({"mode": "explain", "snapshot": snapshot(node("a", allocatable={"cpu": "x"}))}, "items[0]"),
}


@pytest.mark.parametrize(("request_", "message"), ERRORS.values(), ids=ERRORS)
def test_a_request_that_cannot_be_answered_says_why_and_the_next_one_is(
    oracle: Oracle, request_: Json, message: str
) -> None:
    with pytest.raises(OracleError) as caught:
        oracle.ask(request_)
    assert message in str(caught.value)
    assert oracle.explain(snapshot(node("a"))) == []


def _two_pods_leave() -> Json:
    return snapshot(
        node("od", labels={ZONE: "1"}),
        node("s", labels={ZONE: "2"}),
        node("t", labels={ZONE: "2"}),
        pod("p", "od", labels=WEB, affinity=apart(HOST, WEB)),
        pod("q", "od", labels=WEB, affinity=apart(HOST, WEB)),
    )


def _drain(*placements: tuple[str, str], name: str = "od", **rest: object) -> Json:
    return {
        "node": name,
        "taint": DRAINING,
        "placements": [{"pod": f"default/{pod}", "node": target} for pod, target in placements],
        **rest,
    }


def _plugins(placements: list[Json]) -> list[list[str]]:
    return [[refused["plugin"] for refused in one["refused"]] for one in placements]


def test_replayed_placements_see_those_before_them(oracle: Oracle) -> None:
    together = oracle.replay(_two_pods_leave(), [_drain(("p", "s"), ("q", "s"))])
    apart = oracle.replay(_two_pods_leave(), [_drain(("p", "s"), ("q", "t"))])
    assert (_plugins(together), _plugins(apart)) == ([[], ["InterPodAffinity"]], [[], []])


def test_a_replayed_drain_goes_on_where_the_one_before_ended(oracle: Oracle) -> None:
    back = _drain(("p", "od"), name="s")
    assert _plugins(oracle.replay(_two_pods_leave(), [_drain(("p", "s")), back])) == [[], ["TaintToleration"]]


def test_the_drained_node_keeps_its_domain_unless_it_is_removed(oracle: Oracle) -> None:
    """The only node of zone 1 is drained: as a ghost it makes zone 2 look crowded, removed it does not."""
    given = snapshot(
        node("od", labels={ZONE: "1"}),
        node("b", labels={ZONE: "2"}),
        node("s", labels={ZONE: "2"}),
        pod("x", "s", labels=WEB),
        pod("p", "b", labels=WEB, topologySpreadConstraints=spread(ZONE, WEB)),
    )
    ghost = oracle.replay(given, [_drain(), _drain(("p", "s"), name="b")])
    gone = oracle.replay(given, [_drain(remove=True), _drain(("p", "s"), name="b")])
    assert (_plugins(ghost), _plugins(gone)) == ([["PodTopologySpread"]], [[]])


def test_replay_reserves_the_volume_that_a_claim_took(oracle: Oracle) -> None:
    given = snapshot(
        node("od"),
        node("s"),
        storage_class("local", provisioner="kubernetes.io/no-provisioner"),
        volume("v", "local"),
        claim("c", "local"),
        claim("d", "local"),
        pod("p", "od", volumes=mounts("c")),
        pod("q", "od", volumes=mounts("d")),
    )
    assert _plugins(oracle.replay(given, [_drain(("p", "s"), ("q", "s"))])) == [[], ["VolumeBinding"]]


def test_first_fit_places_each_node_s_pods_or_names_the_first_without_a_place(oracle: Oracle) -> None:
    given = snapshot(
        *(node(name) for name in ("od", "full", "s", "t")),
        *(pod(name, "od", requests={"cpu": "3"}) for name in ("p", "q")),
        *(pod(name, "full", requests={"cpu": "3"}) for name in ("x", "y", "z")),
    )
    answer = oracle.ask(
        {
            "mode": "firstfit",
            "snapshot": given,
            "ondemand": ["od", "full"],
            "spot": ["s", "t"],
            "movable": {
                "od": ["default/p", "default/q"],
                "full": ["default/x", "default/y", "default/z"],
            },
            "taint": DRAINING,
        }
    )
    assert answer["nodes"] == [
        {
            "node": "od",
            "placements": [{"pod": "default/p", "node": "s"}, {"pod": "default/q", "node": "t"}],
            "unplaced": None,
        },
        {
            "node": "full",
            "placements": [{"pod": "default/x", "node": "s"}, {"pod": "default/y", "node": "t"}],
            "unplaced": "default/z",
        },
    ]
    assert (answer["pods_asked"], answer["filter_calls"]) == (5, 8)


def test_scores_are_weighted_and_of_feasible_nodes_alone(oracle: Oracle) -> None:
    """NodeAffinity has weight 2 and TaintToleration 3, both normalized to 100 (default_plugins.go)."""
    preferred = [{"weight": 1, "preference": {"matchExpressions": [{"key": ZONE, "operator": "Exists"}]}}]
    given = snapshot(
        node("a", labels={ZONE: "1"}),
        node("b", taints=[{"key": "k", "effect": "PreferNoSchedule"}]),
        node("c", unschedulable=True),
        pod("p", affinity={"nodeAffinity": {"preferredDuringSchedulingIgnoredDuringExecution": preferred}}),
    )
    (scores,) = oracle.ask({"mode": "score", "snapshot": given})["scores"]
    by_plugin = {
        name: {plugin: each[plugin] for plugin in ("NodeAffinity", "TaintToleration")}
        for name, each in scores["nodes"].items()
    }
    assert by_plugin == {
        "a": {"NodeAffinity": 200, "TaintToleration": 300},
        "b": {"NodeAffinity": 0, "TaintToleration": 0},
    }
    assert scores["total"] == {name: sum(each.values()) for name, each in scores["nodes"].items()}
