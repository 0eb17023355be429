"""Reported failures in which the kubelet or admission decides: the scheduler's own rules allow these placements."""

from typing import Any

import pytest

from rescheduler.planning.planner import Planner
from tests.field.test_plans import (
    LIMIT_RANGES,
    ON_DELETE,
    PLAN,
    Case,
    claim,
    cluster,
    container,
    controller,
    db_pod,
    disk,
    limits,
    recommendation,
    revision,
    scratch,
    stateful,
    uses,
    volume,
)
from tests.planning.builders import CIRCUMSTANCES, ON_DEMAND, Manifest, budget, node, pod, short, snapshot

INTERFACE = "vpc.amazonaws.com/pod-eni"
SECRETS = "secrets-store.csi.k8s.io"


def with_interface(made: Manifest) -> Manifest:
    """Return the pod *made* with a network interface that a webhook has added to the first container."""
    made["spec"]["containers"][0]["resources"]["requests"][INTERFACE] = "1"
    return made


def drivers(node_name: str, *names: str) -> Manifest:
    spec = {"drivers": [{"name": name, "nodeID": node_name} for name in names]}
    return {"kind": "CSINode", "metadata": {"name": node_name}, "spec": spec}


def driver_missing(driver: str, spot: str = "") -> list[Manifest]:
    """Return CSINodes of which only that of the on-demand node has *driver*, and that of the spot node *spot*."""
    return [drivers("od", driver), *(drivers(name, *[driver] * (name == spot)) for name in ("s-1", "s-2"))]


def boosted(app: str, cpu: str, boost: dict[str, Any], mode: str = "Auto", **policy: str) -> Manifest:
    """Return a VerticalPodAutoscaler that raises the CPU of new pods until they have started."""
    made = recommendation(app, cpu, **policy)
    made["spec"] |= {"startupBoost": {"cpu": boost}, "updatePolicy": {"updateMode": mode}}
    return made


def host_port(**port: int) -> dict[str, Any]:
    return {"hostNetwork": True, "containers": [container("main") | {"ports": [{"containerPort": 9100, **port}]}]}


def changed(made: Manifest, generation: int) -> Manifest:
    """Return the budget *made* with this version of its spec; its status is of the first one."""
    status = made["status"] | {"observedGeneration": 1}
    return made | {"metadata": made["metadata"] | {"generation": generation}, "status": status}


INJECTED = "aws/amazon-vpc-resource-controller-k8s#154"
MISSING_DRIVER = "Azure/secrets-store-csi-driver-provider-azure#120"
BOOST = "kubernetes/autoscaler#7862, #9141"
HOST_PORTS = "kubernetes/kubernetes#117689, #117696"
OF_THE_NODE = "kubernetes documentation: static pods"
NOT_OBSERVED = "kubernetes/kubernetes, pkg/registry/core/pod/storage/eviction.go"

CASES: dict[str, Case] = {
    "a network interface that admission adds, and a VerticalPodAutoscaler": Case(
        cluster(with_interface(db_pod("db-0")), stateful(), recommendation("db", "1")), ["no-room-on-spot"], INJECTED
    ),
    "a network interface that admission added to a pod that was resized": Case(
        cluster(with_interface(pod("a-1", "od", generation=2)), controller("ReplicaSet", "a", owned=True)),
        ["no-room-on-spot"],
        INJECTED,
    ),
    "a network interface that neither the old nor the new template has": Case(
        cluster(with_interface(db_pod("db-0")), stateful(**ON_DELETE), revision("db-1")), ["no-room-on-spot"], INJECTED
    ),
    "a network interface that the new template does not have any more": Case(
        cluster(
            with_interface(db_pod("db-0")),
            stateful(**ON_DELETE),
            revision("db-1", containers=[container("main") | {"resources": {"requests": {INTERFACE: "1"}}}]),
        ),
        {"db-0": "s-1"},
        INJECTED,
    ),
    "a volume of the pod itself, and spot nodes without its CSI driver": Case(
        cluster(
            pod("a-1", "od", volumes=[{"name": "keys", "csi": {"driver": SECRETS, "readOnly": True}}]),
            *driver_missing(SECRETS),
        ),
        ["volume-attachment"],
        MISSING_DRIVER,
    ),
    "a volume of the pod itself, and one spot node without its CSI driver": Case(
        cluster(
            pod("a-1", "od", volumes=[{"name": "keys", "csi": {"driver": SECRETS}}]), *driver_missing(SECRETS, "s-1")
        ),
        ["volume-attachment"],
        MISSING_DRIVER,
    ),
    "a volume of the new template only, and spot nodes without its CSI driver": Case(
        cluster(
            db_pod("db-0", volumes=[{"name": "cache", "emptyDir": {"medium": "Memory"}}], containers=[container("m")]),
            stateful(**ON_DELETE, volumes=[{"name": "keys", "csi": {"driver": SECRETS}}]),
            *driver_missing(SECRETS),
        ),
        ["volume-attachment"],
        MISSING_DRIVER,
    ),
    "an in-tree volume, and spot nodes without the CSI driver that it is migrated to": Case(
        cluster(
            pod("a-1", "od", **uses("data")),
            claim("data", "pv"),
            volume("pv", "data", awsElasticBlockStore={"volumeID": "vol-1"}),
            *driver_missing("ebs.csi.aws.com"),
        ),
        ["volume-attachment"],
        MISSING_DRIVER,
    ),
    "a generic ephemeral volume, and spot nodes without its CSI driver": Case(
        cluster(*scratch("a-1", "a"), *driver_missing("disk.csi")), ["volume-attachment"], MISSING_DRIVER
    ),
    "a claim that is being deleted": Case(
        cluster(
            pod("a-1", "od", **uses("data")),
            *(each | {"metadata": each["metadata"] | {"deletionTimestamp": "2026-01-01T12:00:00Z"}} for each in disk()),
        ),
        ["no-room-on-spot"],
        "kubernetes documentation: storage object in use protection",
    ),
    "a LimitRange whose maximum the claim of an ephemeral volume exceeds": Case(
        cluster(
            *scratch("a-1", "a"),
            limits(type="PersistentVolumeClaim", max={"storage": "5Gi"}),
        ),
        ["admission-rejects-replacement"],
        LIMIT_RANGES,
    ),
    "three times the CPU until the start": Case(
        cluster(db_pod("db-0"), stateful(), boosted("db", "2", {"type": "Factor", "factor": 3})),
        ["no-room-on-spot"],
        BOOST,
    ),
    "more CPU until the start, by an autoscaler that is off": Case(
        cluster(db_pod("db-0"), stateful(), boosted("db", "9", {"type": "Quantity", "quantity": "3500m"}, "Off")),
        ["no-room-on-spot"],
        BOOST,
    ),
    "more CPU until the start, which fits": Case(
        cluster(db_pod("db-0"), stateful(), boosted("db", "9", {"type": "Quantity", "quantity": "2500m"}, "Off")),
        {"db-0": "s-1"},
        BOOST,
    ),
    "more CPU until the start, but not above the limit": Case(
        cluster(
            db_pod("db-0"),
            stateful(limits={"cpu": "2"}),
            boosted("db", "1", {"factor": 9}, controlledValues="RequestsOnly"),
        ),
        {"db-0": "s-1"},
        BOOST,
    ),
    "a new template on the host's network, which does not name the host port": Case(
        [
            node("od", ON_DEMAND),
            node("s-1"),
            db_pod("db-0"),
            stateful(**ON_DELETE, **host_port()),
            pod("b-1", "s-1", **host_port(hostPort=9100)),
        ],
        ["no-room-on-spot"],
        HOST_PORTS,
    ),
    "a pod of a Node": Case(cluster(pod("a-1", "od", owner="v1/Node")), {}, OF_THE_NODE),
    "a pod of a custom resource that is called Node": Case(
        cluster(pod("a-1", "od", owner="longhorn.io/v1beta2/Node")), {"a-1": "s-1"}, OF_THE_NODE
    ),
    "a budget whose status is of an older version of it": Case(
        cluster(pod("a-1", "od"), changed(budget("a", "a", allowed=1, healthy=2, expected=2), 2)),
        ["pod-disruption-budget"],
        NOT_OBSERVED,
    ),
    "a budget whose status is of its version": Case(
        cluster(pod("a-1", "od"), changed(budget("a", "a", allowed=1, healthy=2, expected=2), 1)),
        {"a-1": "s-1"},
        NOT_OBSERVED,
    ),
}


@pytest.mark.parametrize("case", CASES.values(), ids=CASES)
def test_the_verdict_is_the_right_one(case: Case) -> None:
    assert case.source
    planner = Planner(snapshot(case.objects), PLAN)
    assert short(planner.plan_node("od", CIRCUMSTANCES)) == case.right
    [found] = [each for each in planner.plan_all(CIRCUMSTANCES).verdicts if each.node == "od"]
    assert short(found) == case.right, "all nodes in sequence"
