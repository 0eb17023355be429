"""Replacement pods that become Ready late or in a fixed order: the drain succeeds, and the next drain starts."""

from typing import Any

from devcluster.api import Json
from devcluster.manifests import deployment, statefulset
from devcluster.plane import ControlPlane
from devcluster.stages import NEVER, START_AFTER, TERMINATE_AFTER
from tests.cluster.bad_days import FLAGS, NODE_1, SLOW, assert_both_drained, next_node
from tests.cluster.daemon import Daemon
from tests.cluster.observer import Observer


def test_a_pod_that_was_never_ready_needs_only_a_bound_replacement(cluster: ControlPlane, observer: Observer) -> None:
    observer.nodes(2, 2)
    broken = deployment("broken", 1, annotations={START_AFTER: NEVER})
    observer.start_on(NODE_1, broken, deployment("web", 4, annotations=SLOW), pods=5)
    next_node(observer)
    observer.running(4, "web")
    observer.open_all()
    with Daemon(cluster, *FLAGS), observer.least_ready("web") as least:
        assert_both_drained(observer)
        assert least() >= 2
    assert observer.kinds("broken") == {"spot": 1}


def test_a_pod_whose_anti_affinity_counts_its_terminating_predecessor_is_moved(
    cluster: ControlPlane, observer: Observer
) -> None:
    """All nodes are in one topology domain, so the replacement pod is unschedulable until the old pod is gone."""
    observer.nodes(2, 2)
    term = {"topologyKey": "kubernetes.io/os", "labelSelector": {"matchLabels": {"app": "single"}}}
    alone = {"podAntiAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [term]}}
    single = deployment("single", 1, affinity=alone, annotations={TERMINATE_AFTER: "5s"})
    observer.start_on(NODE_1, single, deployment("web", 4, annotations=SLOW), pods=5)
    next_node(observer)
    observer.running(7)
    observer.open_all()
    with Daemon(cluster, *FLAGS), observer.least_ready("web") as least:
        assert_both_drained(observer)
        assert least() >= 2
    assert observer.kinds("single") == {"spot": 1}


def test_an_ordered_stateful_set_lacks_at_most_one_pod(cluster: ControlPlane, observer: Observer) -> None:
    """At most one of its pods is unavailable at a time, although each takes some time to terminate and start."""
    observer.nodes(2, 2)
    cluster.apply(volume(number) for number in range(3))
    observer.start_on(NODE_1, ordered_database(3), pods=3)
    next_node(observer)
    observer.running(5)
    observer.open_all()
    with Daemon(cluster, *FLAGS), observer.least_ready("db") as least:
        assert_both_drained(observer)
        assert least() == 2
    assert observer.kinds("db") == {"spot": 3}


def volume(number: int) -> Json:
    """Return a volume that is accessible from every node; it is never mounted."""
    spec: dict[str, Any] = {
        "capacity": {"storage": "1Gi"},
        "accessModes": ["ReadWriteOncePod"],
        "storageClassName": "by-hand",
        "hostPath": {"path": f"/volumes/{number}"},
    }
    return {"apiVersion": "v1", "kind": "PersistentVolume", "metadata": {"name": f"volume-{number}"}, "spec": spec}


def ordered_database(replicas: int) -> Json:
    database = statefulset("db", replicas, annotations={START_AFTER: "1s", TERMINATE_AFTER: "1s"})
    claim = {
        "accessModes": ["ReadWriteOncePod"],
        "storageClassName": "by-hand",
        "resources": {"requests": {"storage": "1Gi"}},
    }
    database["spec"]["podManagementPolicy"] = "OrderedReady"
    database["spec"]["volumeClaimTemplates"] = [{"metadata": {"name": "data"}, "spec": claim}]
    [container] = database["spec"]["template"]["spec"]["containers"]
    container["volumeMounts"] = [{"name": "data", "mountPath": "/data"}]
    return database
