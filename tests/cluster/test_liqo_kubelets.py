"""The daemon in a cluster with Liqo: virtual kubelets on real nodes are not evicted."""

import json
from typing import Any

from devcluster.api import Json
from devcluster.audit import AuditLog
from devcluster.liqo import objects
from devcluster.liqo.playing import playing
from devcluster.manifests import deployment
from devcluster.plane import ControlPlane
from tests import forking
from tests.cluster.daemon import NO_DELAY, ClusterQueries, Daemon, prefers

TENANT = objects.tenant_name("rome")


def resource_slice() -> Json:
    """Return a ResourceSlice as liqoctl creates it."""
    labels = {"liqo.io/replication": "true", "liqo.io/remoteID": "rome", objects.CLUSTER_LABEL: "rome"}
    annotations = {"liqo.io/create-virtual-node": "true"}
    return {
        "apiVersion": "authentication.liqo.io/v1beta1",
        "kind": "ResourceSlice",
        "metadata": {"name": "rome", "namespace": TENANT, "labels": labels, "annotations": annotations},
        "spec": {"class": "default", "providerClusterID": "rome", "resources": {"cpu": "1", "memory": "1Gi"}},
    }


def verdicts(plane: ControlPlane) -> dict[str, Any]:
    done = forking.run("plan", f"--kubeconfig={plane.kubeconfig}", "-o", "json", check=True)
    return {each["node"]: each for each in json.loads(done.stdout)["nodes"]}


def open_spot(plane: ControlPlane, queries: ClusterQueries) -> None:
    """Uncordon spot nodes as `ClusterQueries.open_spot`, but do not wait for virtual nodes, which keep their taint."""
    nodes = {"labelSelector": "node-role.kubernetes.io/spot-worker"}
    for node in plane.api.items("/api/v1/nodes", **nodes):
        plane.api.patch(f"/api/v1/nodes/{node['metadata']['name']}", {"spec": {"unschedulable": None}})

    def untainted() -> bool:
        return not any(each["spec"].get("taints") for each in plane.api.items("/api/v1/nodes", **nodes))

    queries.eventually(untainted, "the taint of the cordon")


def test_a_node_with_a_virtual_kubelet_is_kept_and_others_are_drained(cluster: ControlPlane) -> None:
    queries, audit = ClusterQueries(cluster), AuditLog(cluster.layout.audit_log)
    queries.nodes(2, 2)
    with playing(cluster.api, queries.eventually, ["rome"]):
        cluster.apply([resource_slice()])
        selector = "offloading.liqo.io/component=virtual-kubelet"

        def kubelets() -> list[Json]:
            pods = cluster.api.items("/api/v1/pods", labelSelector=selector)
            return [each for each in pods if each["status"]["phase"] == "Running"]

        [kubelet] = queries.eventually(kubelets, "the virtual kubelet")
        home = kubelet["spec"]["nodeName"]
        [other] = {"on-demand-1", "on-demand-2"} - {home}
        cluster.apply([deployment("web", 1, affinity=prefers(other)), deployment("api", 1, affinity=prefers(home))])
        queries.running(1, "web")
        queries.running(1, "api")
        open_spot(cluster, queries)
        [blocker] = verdicts(cluster)[home]["blockers"]
        assert (blocker["pod"], blocker["reason"]) == (f"{TENANT}/{kubelet['metadata']['name']}", "liqo-component")
        with Daemon(cluster, NO_DELAY):
            queries.eventually(lambda: queries.kinds("web") == {"spot": 1}, "the other node to be drained")
            queries.eventually(lambda: not queries.marks(), "the drain to end")
        assert queries.places("api") == {home: 1}
        assert [each["metadata"]["uid"] for each in kubelets()] == [kubelet["metadata"]["uid"]]
        assert {each.namespace for each in audit.evictions()} == {"default"}
