"""The daemon drains nodes of a real cluster. Pods start on on-demand nodes, then spot nodes are uncordoned."""

import pytest

from devcluster.api import Json
from devcluster.manifests import deployment
from devcluster.plane import ControlPlane
from rescheduler.draining import actions
from rescheduler.draining.actions import ANNOTATION
from tests.cluster.daemon import ClusterQueries, Daemon

NODE_1 = "on-demand-1"


@pytest.fixture
def queries(cluster: ControlPlane) -> ClusterQueries:
    return ClusterQueries(cluster)


def drained_once(cluster: ControlPlane, *flags: str, fresh: bool = False) -> Daemon:
    with Daemon(cluster, "--once", *flags, fresh=fresh) as daemon:
        assert daemon.end() == 0
    return daemon


def test_a_node_is_drained_and_its_pods_run_on_spot_nodes(cluster: ControlPlane, queries: ClusterQueries) -> None:
    """In a new interpreter: the processes of other tests are forked."""
    queries.nodes(1, 2)
    cluster.apply([deployment("web", 3)])
    queries.running(3)
    assert queries.kinds() == {"on-demand": 3}
    queries.open_spot()
    drained_once(cluster, fresh=True)
    queries.running(3)
    assert queries.kinds() == {"spot": 3}
    assert queries.marks() == {}
    assert queries.events(NODE_1) == {"DrainPlanned", "Rescheduler", "NodeDrained"}


def test_dry_run_changes_nothing(cluster: ControlPlane, queries: ClusterQueries) -> None:
    queries.nodes(1, 1)
    cluster.apply([deployment("web", 2)])
    queries.running(2)
    queries.open_spot()
    annotate(cluster, NODE_1, "left by another program")
    before = versions(cluster)
    daemon = drained_once(cluster, "--dry-run")
    assert daemon.logged("can be drained: 2 pods", node=NODE_1)
    assert versions(cluster) == before


def versions(cluster: ControlPlane) -> dict[str, str]:
    """Return the versions of all objects that a write of the daemon would change."""
    kinds = ("/api/v1/pods", "/api/v1/events", "/apis/coordination.k8s.io/v1/namespaces/default/leases")
    objects = {
        item["metadata"]["uid"]: item["metadata"]["resourceVersion"] for kind in kinds for item in items(cluster, kind)
    }
    nodes = {
        item["metadata"]["name"]: repr((item["spec"], item["metadata"]["annotations"]))
        for item in cluster.api.items("/api/v1/nodes")
    }
    return objects | nodes


def items(cluster: ControlPlane, kind: str) -> list[Json]:
    """Return the objects of a kind, without Events of the control plane's components."""
    objects = cluster.api.items(kind)
    return [item for item in objects if _component(item) == "rescheduler"]


def _component(event: Json) -> str:
    """Return the reporting component of an Event, in old or new format; other objects count as ours."""
    return str(event.get("source", {}).get("component") or event.get("reportingComponent") or "rescheduler")


def annotate(cluster: ControlPlane, node: str, text: str) -> None:
    taint = actions.taint("other-holder")
    spec = {"taints": [{"key": taint.key, "value": taint.value, "effect": taint.effect}]}
    cluster.api.patch(f"/api/v1/nodes/{node}", {"metadata": {"annotations": {ANNOTATION: text}}, "spec": spec})
