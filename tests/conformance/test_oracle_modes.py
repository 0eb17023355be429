"""Other modes of the oracle: replay, first fit, scores, and errors."""

import pytest

from tests.conformance.builders import apart, claim, mounts, node, pod, snapshot, spread, storage_class, volume
from tests.conformance.generate.world import Json
from tests.conformance.oracle import Oracle, OracleError

ZONE = "topology.kubernetes.io/zone"
HOST = "kubernetes.io/hostname"
DRAINING = {"key": "draining", "effect": "NoSchedule"}
WEB = {"app": "web"}


def test_filters_are_in_the_order_of_the_default_profile(oracle: Oracle) -> None:
    enabled = oracle.ask({"mode": "plugins"})["default-scheduler"]["Filter"]["Enabled"]
    expected = [name for name in oracle.version.plugins if name != "SchedulingGates"]
    assert [item["Name"] for item in enabled] == expected


ERRORS: dict[str, tuple[Json, str]] = {
    "unknown pod": ({"mode": "explain", "pods": ["default/p"]}, 'pod "default/p" is not in the snapshot'),
    "unknown node": ({"mode": "explain", "nodes": ["a"]}, 'node "a" is not in the snapshot'),
    "unknown mode": ({"mode": "guess"}, 'mode "guess"'),
    "invalid quantity": ({"mode": "explain", "snapshot": snapshot(node("a", allocatable={"cpu": "x"}))}, "items[0]"),
}


@pytest.mark.parametrize(("request_", "message"), ERRORS.values(), ids=ERRORS)
def test_an_invalid_request_gives_an_error_and_the_next_one_succeeds(
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


def _drain(*placements: tuple[str, str], name: str = "od", **fields: object) -> Json:
    return {
        "node": name,
        "taint": DRAINING,
        "placements": [{"pod": f"default/{pod}", "node": target} for pod, target in placements],
        **fields,
    }


def _plugins(placements: list[Json]) -> list[list[str]]:
    return [[refused["plugin"] for refused in placement["refused"]] for placement in placements]


def test_replayed_placements_depend_on_earlier_ones(oracle: Oracle) -> None:
    together = oracle.replay(_two_pods_leave(), [_drain(("p", "s"), ("q", "s"))])
    apart = oracle.replay(_two_pods_leave(), [_drain(("p", "s"), ("q", "t"))])
    assert (_plugins(together), _plugins(apart)) == ([[], ["InterPodAffinity"]], [[], []])


def test_replayed_drains_depend_on_earlier_ones(oracle: Oracle) -> None:
    back = _drain(("p", "od"), name="s")
    assert _plugins(oracle.replay(_two_pods_leave(), [_drain(("p", "s")), back])) == [[], ["TaintToleration"]]


def test_domain_of_a_drained_node_exists_unless_the_node_is_removed(oracle: Oracle) -> None:
    """The only node of zone 1 is drained. If it remains, zone 2 exceeds the skew; if it is removed, it does not."""
    given = snapshot(
        node("od", labels={ZONE: "1"}),
        node("b", labels={ZONE: "2"}),
        node("s", labels={ZONE: "2"}),
        pod("x", "s", labels=WEB),
        pod("p", "b", labels=WEB, topologySpreadConstraints=spread(ZONE, WEB)),
    )
    remaining = oracle.replay(given, [_drain(), _drain(("p", "s"), name="b")])
    removed = oracle.replay(given, [_drain(remove=True), _drain(("p", "s"), name="b")])
    assert (_plugins(remaining), _plugins(removed)) == ([["PodTopologySpread"]], [[]])


def test_replay_reserves_the_volume_of_a_claim(oracle: Oracle) -> None:
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


def test_first_fit_places_the_pods_of_each_node_or_reports_the_first_that_does_not_fit(oracle: Oracle) -> None:
    given = snapshot(
        *(node(name) for name in ("od", "full", "s", "t")),
        *(pod(name, "od", requests={"cpu": "3"}) for name in ("p", "q")),
        *(pod(name, "full", requests={"cpu": "3"}) for name in ("x", "y", "z")),
    )
    response = oracle.ask(
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
    assert response["nodes"] == [
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
    assert (response["pods_asked"], response["filter_calls"]) == (5, 8)


def test_scores_are_weighted_and_only_for_feasible_nodes(oracle: Oracle) -> None:
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
