"""The oracle on small snapshots whose verdicts follow from the upstream documentation."""

import pytest

from tests.conformance.builders import (
    apart,
    claim,
    csi_node,
    mounts,
    node,
    pod,
    snapshot,
    spread,
    storage_class,
    together,
    volume,
)
from tests.conformance.generate.world import Json
from tests.conformance.oracle import Oracle

ZONE = "topology.kubernetes.io/zone"
HOST = "kubernetes.io/hostname"
IN_USE = (
    "node(s) unavailable due to PersistentVolumeClaim with ReadWriteOncePod access mode already in-use by another pod"
)
WEB = {"app": "web"}


def _on_zone(zone: str) -> Json:
    term = {"matchExpressions": [{"key": ZONE, "operator": "In", "values": [zone]}]}
    return {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": [term]}}}


def _only_node(*names: str) -> Json:
    fields = [{"key": "metadata.name", "operator": "In", "values": [name]} for name in names]
    terms = {"nodeSelectorTerms": [{"matchFields": fields}]}
    return {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": terms}}


def _port(**port: object) -> list[Json]:
    return [{"name": "c", "image": "i", "ports": [{"containerPort": 80, "hostPort": 80, "protocol": "TCP", **port}]}]


#: The snapshot, and the plugins that reject the pod p by node.
TABLE: dict[str, tuple[Json, dict[str, list[tuple[str, list[str]]]]]] = {
    "a pod fits an empty node": (snapshot(node("a"), pod("p", requests={"cpu": "4"})), {"a": []}),
    "the pod itself does not count": (
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
    "a pod on an unknown node does not count": (
        snapshot(node("a"), pod("x", "gone", requests={"cpu": "4"}), pod("p", requests={"cpu": "4"})),
        {"a": []},
    ),
    "every insufficient resource is a reason": (
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
    "a taint, and every later plugin": (
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
    "contradictory names in node affinity reject in PreFilter": (
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
    "a host port with a different protocol": (
        snapshot(node("a"), pod("x", "a", containers=_port(protocol="UDP")), pod("p", containers=_port())),
        {"a": []},
    ),
    "a disk mounted for writing": (
        snapshot(
            node("a"),
            node("b"),
            pod("x", "a", volumes=[{"name": "d", "gcePersistentDisk": {"pdName": "d"}}]),
            pod("p", volumes=[{"name": "d", "gcePersistentDisk": {"pdName": "d", "readOnly": True}}]),
        ),
        {"a": [("VolumeRestrictions", ["node(s) had no available disk"])], "b": []},
    ),
    "a ReadWriteOncePod claim in use": (
        snapshot(
            node("a"),
            volume("v"),
            claim("c", "", "v", ("ReadWriteOncePod",)),
            pod("x", "a", volumes=mounts("c")),
            pod("p", volumes=mounts("c")),
        ),
        {"a": [("VolumeRestrictions", [IN_USE])]},
    ),
    "more volumes than the limit of the node": (
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
    "a volume already attached to the node does not count again": (
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
    "a missing claim rejects in PreFilter, in every plugin that reads it": (
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
    "a volume in another zone": (
        snapshot(
            node("a", labels={ZONE: "1"}),
            node("b", labels={ZONE: "2"}),
            volume("v", zone="1"),
            claim("c", "", "v"),
            pod("p", volumes=mounts("c")),
        ),
        {"a": [], "b": [("VolumeBinding", ["node(s) didn't match PersistentVolume's node affinity"])]},
    ),
    "an unbound claim": (
        snapshot(node("a"), storage_class("now", "Immediate"), claim("c", "now"), pod("p", volumes=mounts("c"))),
        {
            "a": [
                ("VolumeBinding", ["pod has unbound immediate PersistentVolumeClaims"]),
                ("VolumeZone", ["PersistentVolume had no name"]),
            ]
        },
    ),
    "a claim that waits for its first consumer matches an existing volume": (
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
            pod("p", labels=WEB, topologySpreadConstraints=spread(ZONE, WEB)),
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
            pod("x", "a", affinity=apart(ZONE, WEB)),
            pod("p", labels=WEB),
        ),
        {
            "a": [("InterPodAffinity", ["node(s) didn't satisfy existing pods anti-affinity rules"])],
            "b": [("InterPodAffinity", ["node(s) didn't satisfy existing pods anti-affinity rules"])],
            "c": [],
        },
    ),
    "its own anti-affinity": (
        snapshot(node("a"), node("b"), pod("x", "a", labels=WEB), pod("p", affinity=apart(HOST, WEB))),
        {"a": [("InterPodAffinity", ["node(s) didn't match pod anti-affinity rules"])], "b": []},
    ),
    "affinity to a pod that does not exist": (
        snapshot(node("a"), pod("p", affinity=together(HOST, WEB))),
        {"a": [("InterPodAffinity", ["node(s) didn't match pod affinity rules"])]},
    ),
    "affinity to itself, the first pod": (
        snapshot(node("a"), pod("p", labels=WEB, affinity=together(HOST, WEB))),
        {"a": []},
    ),
    "scheduling gates": (
        snapshot(node("a", unschedulable=True), pod("p", schedulingGates=[{"name": "g"}])),
        {
            "a": [
                ("SchedulingGates", ["waiting for scheduling gates: [g]"]),
                ("NodeUnschedulable", ["node(s) were unschedulable"]),
            ]
        },
    ),
    "an undeclared feature": (
        snapshot(node("a"), pod("p", hostNetwork=True, hostUsers=False)),
        {"a": [("NodeDeclaredFeatures", ["node(s) didn't match Pod's required features"])]},
    ),
    "a missing resource claim": (
        snapshot(node("a"), pod("p", resourceClaims=[{"name": "r", "resourceClaimName": "r"}])),
        {"a": [("DynamicResources", ['could not find ResourceClaim "default/r"'])]},
    ),
}


@pytest.mark.parametrize(("given", "expected"), TABLE.values(), ids=TABLE)
def test_the_oracle_reports_every_rejecting_plugin(
    oracle: Oracle, given: Json, expected: dict[str, list[tuple[str, list[str]]]]
) -> None:
    (verdict,) = oracle.explain(given, ["default/p"])
    everywhere = [(item["plugin"], item["reasons"]) for item in verdict["everywhere"]]
    actual = {
        name: everywhere + [(item["plugin"], item["reasons"]) for item in late]
        for name, late in verdict["nodes"].items()
    }
    assert actual == expected
