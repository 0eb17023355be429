"""The oracle on small snapshots whose verdict the upstream documentation gives."""

import pytest

from tests.conformance.builders import (
    claim,
    csi_node,
    mounts,
    node,
    pod,
    snapshot,
    storage_class,
    volume,
)
from tests.conformance.generate.world import Json
from tests.conformance.oracle import Oracle, OracleError

ZONE = "topology.kubernetes.io/zone"
HOST = "kubernetes.io/hostname"
DRAINING = {"key": "draining", "effect": "NoSchedule"}
WEB = {"app": "web"}


def _against(topology_key: str) -> Json:
    term = {"labelSelector": {"matchLabels": WEB}, "topologyKey": topology_key}
    return {"podAntiAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [term]}}


def _with(topology_key: str) -> Json:
    return {"podAffinity": _against(topology_key)["podAntiAffinity"]}


def _spread(topology_key: str) -> list[Json]:
    return [
        {
            "maxSkew": 1,
            "topologyKey": topology_key,
            "whenUnsatisfiable": "DoNotSchedule",
            "labelSelector": {"matchLabels": WEB},
        }
    ]


def _on_zone(zone: str) -> Json:
    term = {"matchExpressions": [{"key": ZONE, "operator": "In", "values": [zone]}]}
    return {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": [term]}}}


def _only_node(*names: str) -> Json:
    fields = [{"key": "metadata.name", "operator": "In", "values": [name]} for name in names]
    terms = {"nodeSelectorTerms": [{"matchFields": fields}]}
    return {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": terms}}


def _port(**port: object) -> list[Json]:
    return [{"name": "c", "image": "i", "ports": [{"containerPort": 80, "hostPort": 80, "protocol": "TCP", **port}]}]


#: What is asked is always the pod p; what refuses it on which node.
TABLE: dict[str, tuple[Json, dict[str, list[tuple[str, list[str]]]]]] = {
    "a pod fits an empty node": (snapshot(node("a"), pod("p", requests={"cpu": "4"})), {"a": []}),
    "a pod does not count against itself": (
        snapshot(node("a"), pod("p", "a", requests={"cpu": "4"})),
        {"a": []},
    ),
    "a finished pod does not count": (
        snapshot(
            node("a"),
            pod("x", "a", requests={"cpu": "4"}) | {"status": {"phase": "Failed"}},
            pod("p", requests={"cpu": "1"}),
        ),
        {"a": []},
    ),
    "a pod on a node that is not there does not count": (
        snapshot(node("a"), pod("x", "gone", requests={"cpu": "4"}), pod("p", requests={"cpu": "4"})),
        {"a": []},
    ),
    "every resource that lacks is a reason": (
        snapshot(
            node("a", allocatable={"pods": "0"}), pod("p", requests={"cpu": "5", "memory": "9Gi", "x.org/y": "1"})
        ),
        {
            "a": [
                (
                    "NodeResourcesFit",
                    ["Too many pods", "Insufficient cpu", "Insufficient memory", "Insufficient x.org/y"],
                )
            ]
        },
    ),
    "a cordoned node": (
        snapshot(node("a", unschedulable=True), pod("p")),
        {"a": [("NodeUnschedulable", ["node(s) were unschedulable"])]},
    ),
    "a taint, and every other plugin after it": (
        snapshot(
            node("a", taints=[{"key": "k", "effect": "NoSchedule"}]),
            pod("p", nodeSelector={"x": "y"}, requests={"cpu": "5"}),
        ),
        {
            "a": [
                ("TaintToleration", ["node(s) had untolerated taint(s)"]),
                ("NodeAffinity", ["node(s) didn't match Pod's node affinity/selector"]),
                ("NodeResourcesFit", ["Insufficient cpu"]),
            ]
        },
    ),
    "node affinity": (
        snapshot(node("a", labels={ZONE: "1"}), node("b", labels={ZONE: "2"}), pod("p", affinity=_on_zone("1"))),
        {"a": [], "b": [("NodeAffinity", ["node(s) didn't match Pod's node affinity/selector"])]},
    ),
    "node affinity by contradictory names refuses before the nodes": (
        snapshot(node("a"), node("b"), pod("p", affinity=_only_node("a", "b"))),
        {
            "a": [("NodeAffinity", ["pod affinity terms conflict"])],
            "b": [("NodeAffinity", ["pod affinity terms conflict"])],
        },
    ),
    "a host port on all addresses": (
        snapshot(node("a"), pod("x", "a", containers=_port(hostIP="127.0.0.1")), pod("p", containers=_port())),
        {"a": [("NodePorts", ["node(s) didn't have free ports for the requested pod ports"])]},
    ),
    "a host port of another protocol": (
        snapshot(node("a"), pod("x", "a", containers=_port(protocol="UDP")), pod("p", containers=_port())),
        {"a": []},
    ),
    "a disk that is mounted for writing": (
        snapshot(
            node("a"),
            node("b"),
            pod("x", "a", volumes=[{"name": "d", "gcePersistentDisk": {"pdName": "d"}}]),
            pod("p", volumes=[{"name": "d", "gcePersistentDisk": {"pdName": "d", "readOnly": True}}]),
        ),
        {"a": [("VolumeRestrictions", ["node(s) had no available disk"])], "b": []},
    ),
    "a claim for one pod, in use": (
        snapshot(
            node("a"),
            volume("v"),
            claim("c", "", "v", ("ReadWriteOncePod",)),
            pod("x", "a", volumes=mounts("c")),
            pod("p", volumes=mounts("c")),
        ),
        {
            "a": [
                (
                    "VolumeRestrictions",
                    [
                        "node(s) unavailable due to PersistentVolumeClaim with ReadWriteOncePod access mode "
                        "already in-use by another pod"
                    ],
                )
            ]
        },
    ),
    "more volumes than the node may attach": (
        snapshot(
            node("a"),
            csi_node("a", 1),
            volume("v"),
            volume("w"),
            claim("c", "", "v"),
            claim("d", "", "w"),
            pod("x", "a", volumes=mounts("c")),
            pod("p", volumes=mounts("d")),
        ),
        {"a": [("NodeVolumeLimits", ["node(s) exceed max volume count"])]},
    ),
    "a volume that the node holds already is not one more": (
        snapshot(
            node("a"),
            csi_node("a", 1),
            volume("v"),
            claim("c", "", "v"),
            pod("x", "a", volumes=mounts("c")),
            pod("p", volumes=mounts("c")),
        ),
        {"a": []},
    ),
    "a claim that is not there refuses before the nodes, in every plugin that reads it": (
        snapshot(node("a"), pod("p", volumes=mounts("c"))),
        {
            "a": [
                ("VolumeRestrictions", ['persistentvolumeclaim "c" not found']),
                ("VolumeBinding", ['persistentvolumeclaim "c" not found']),
                ("VolumeZone", ['persistentvolumeclaim "c" not found']),
                ("NodeVolumeLimits", ['looking up PVC default/c: persistentvolumeclaim "c" not found']),
            ]
        },
    ),
    "a volume elsewhere": (
        snapshot(
            node("a", labels={ZONE: "1"}),
            node("b", labels={ZONE: "2"}),
            volume("v", zone="1"),
            claim("c", "", "v"),
            pod("p", volumes=mounts("c")),
        ),
        {"a": [], "b": [("VolumeBinding", ["node(s) didn't match PersistentVolume's node affinity"])]},
    ),
    "a claim that nobody has bound yet": (
        snapshot(node("a"), storage_class("now", "Immediate"), claim("c", "now"), pod("p", volumes=mounts("c"))),
        {
            "a": [
                ("VolumeBinding", ["pod has unbound immediate PersistentVolumeClaims"]),
                ("VolumeZone", ["PersistentVolume had no name"]),
            ]
        },
    ),
    "a claim that waits for its pod takes a volume that is there": (
        snapshot(
            node("a", labels={ZONE: "1"}),
            node("b", labels={ZONE: "2"}),
            storage_class("local", provisioner="kubernetes.io/no-provisioner"),
            volume("v", "local", zone="1"),
            claim("c", "local"),
            pod("p", volumes=mounts("c")),
        ),
        {"a": [], "b": [("VolumeBinding", ["node(s) didn't find available persistent volumes to bind"])]},
    ),
    "a volume's zone label": (
        snapshot(
            node("a", labels={ZONE: "1"}),
            node("b", labels={ZONE: "3"}),
            node("c"),
            volume("v", labels={ZONE: "1__2"}),
            claim("c", "", "v"),
            pod("p", volumes=mounts("c")),
        ),
        {"a": [], "b": [("VolumeZone", ["node(s) had no available volume zone"])], "c": []},
    ),
    "topology spread": (
        snapshot(
            node("a", labels={ZONE: "1"}),
            node("b", labels={ZONE: "2"}),
            node("c"),
            pod("x", "a", labels=WEB),
            pod("p", labels=WEB, topologySpreadConstraints=_spread(ZONE)),
        ),
        {
            "a": [("PodTopologySpread", ["node(s) didn't match pod topology spread constraints"])],
            "b": [],
            "c": [
                ("PodTopologySpread", ["node(s) didn't match pod topology spread constraints (missing required label)"])
            ],
        },
    ),
    "another pod's anti-affinity": (
        snapshot(
            node("a", labels={ZONE: "1"}),
            node("b", labels={ZONE: "1"}),
            node("c", labels={ZONE: "2"}),
            pod("x", "a", affinity=_against(ZONE)),
            pod("p", labels=WEB),
        ),
        {
            "a": [("InterPodAffinity", ["node(s) didn't satisfy existing pods anti-affinity rules"])],
            "b": [("InterPodAffinity", ["node(s) didn't satisfy existing pods anti-affinity rules"])],
            "c": [],
        },
    ),
    "its own anti-affinity": (
        snapshot(node("a"), node("b"), pod("x", "a", labels=WEB), pod("p", affinity=_against(HOST))),
        {"a": [("InterPodAffinity", ["node(s) didn't match pod anti-affinity rules"])], "b": []},
    ),
    "affinity to a pod that is nowhere": (
        snapshot(node("a"), pod("p", affinity=_with(HOST))),
        {"a": [("InterPodAffinity", ["node(s) didn't match pod affinity rules"])]},
    ),
    "affinity to itself, the first of its kind": (
        snapshot(node("a"), pod("p", labels=WEB, affinity=_with(HOST))),
        {"a": []},
    ),
    "a gated pod": (
        snapshot(node("a", unschedulable=True), pod("p", schedulingGates=[{"name": "g"}])),
        {
            "a": [
                ("SchedulingGates", ["waiting for scheduling gates: [g]"]),
                ("NodeUnschedulable", ["node(s) were unschedulable"]),
            ]
        },
    ),
    "a feature that the node does not declare": (
        snapshot(node("a"), pod("p", hostNetwork=True, hostUsers=False)),
        {"a": [("NodeDeclaredFeatures", ["node(s) didn't match Pod's required features"])]},
    ),
    "a resource claim that is not there": (
        snapshot(node("a"), pod("p", resourceClaims=[{"name": "r", "resourceClaimName": "r"}])),
        {"a": [("DynamicResources", ['could not find ResourceClaim "default/r"'])]},
    ),
}


@pytest.mark.parametrize(("given", "expected"), TABLE.values(), ids=TABLE)
def test_every_plugin_that_refuses(
    oracle: Oracle, given: Json, expected: dict[str, list[tuple[str, list[str]]]]
) -> None:
    (verdict,) = oracle.explain(given, ["default/p"])
    everywhere = [(one["plugin"], one["reasons"]) for one in verdict["everywhere"]]
    found = {
        name: everywhere + [(one["plugin"], one["reasons"]) for one in late] for name, late in verdict["nodes"].items()
    }
    assert found == expected


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
        pod("p", "od", labels=WEB, affinity=_against(HOST)),
        pod("q", "od", labels=WEB, affinity=_against(HOST)),
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
        pod("p", "b", labels=WEB, topologySpreadConstraints=_spread(ZONE)),
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
