"""A pool of spot nodes loses a node: drains go to other pools or wait, also after a restart of the daemon."""

import httpx2

from devcluster.manifests import ON_DEMAND, deployment, on_demand, pdb, spot
from devcluster.plane import ControlPlane
from rescheduler.planning.outcome import Reason
from tests.cluster.daemon import NO_DELAY, SOFT, ClusterQueries, Daemon, prefers

NO_BURST = "--spot-settle=0"


def pool(zone: str) -> dict[str, str]:
    return {"topology.kubernetes.io/zone": zone, "node.kubernetes.io/instance-type": "m5.large"}


def scene(cluster: ControlPlane, queries: ClusterQueries) -> None:
    """Create two nodes with 1 and 2 pods, a pool of two nodes, and a pool of one node with room for one pod."""
    taints = [{"key": ON_DEMAND, "value": "true", "effect": SOFT}]
    small = {"cpu": "150m"}
    cluster.apply([on_demand(f"on-demand-{number}", taints=taints) for number in (1, 2)])
    cluster.apply([spot(f"spot-{number}", labels=pool("a"), unschedulable=True) for number in (1, 2)])
    cluster.apply([spot("spot-3", labels=pool("b"), allocatable=small, unschedulable=True)])
    queries.nodes_ready(5)
    apps = {"few": 1, "many": 2}
    cluster.apply([pdb(app, max_unavailable=0) for app in apps])
    cluster.apply([deployment(app, apps[app], affinity=prefers(f"on-demand-{apps[app]}")) for app in apps])
    queries.running(3)
    queries.open_spot()


def test_drains_avoid_a_pool_that_lost_a_node(cluster: ControlPlane) -> None:
    queries = ClusterQueries(cluster)
    scene(cluster, queries)
    with Daemon(cluster, NO_DELAY, NO_BURST) as daemon:
        queries.eventually(lambda: len(daemon.logged("", reason=Reason.BUDGET)) > 1, "both nodes blocked by budgets")
        cluster.api.delete("/api/v1/nodes/spot-1")
        queries.eventually(lambda: daemon.logged("spot pool a/m5.large lost 1 node"), "the loss")
        for app in ("few", "many"):
            cluster.api.delete(f"/apis/policy/v1/namespaces/default/poddisruptionbudgets/{app}")
        queries.eventually(lambda: daemon.logged("drained after"), "the drain to the other pool")
        [started] = daemon.logged("draining; moving 1 pod: default/few-")
        assert started["message"].endswith(" to spot-3")
        waiting = queries.eventually(
            lambda: daemon.logged("", reason=Reason.SPOT_POOL_SETTLING, node="on-demand-2"), ""
        )
        assert "pools that lost nodes are not trusted: 1 node of a/m5.large until " in waiting[-1]["message"]
        lines = httpx2.get(f"{daemon.address}/metrics", timeout=60, trust_env=False).text.splitlines()
        assert {
            'spot_rescheduler_spot_pool_losses_total{pool="a/m5.large"} 1.0',
            'spot_rescheduler_spot_pool_losses_total{pool="b/m5.large"} 0.0',
            'spot_rescheduler_spot_pool_hazard{pool="b/m5.large"} 0.0',
        } <= set(lines)
    with Daemon(cluster, NO_DELAY, NO_BURST) as daemon:
        queries.eventually(
            lambda: daemon.logged("", reason=Reason.SPOT_POOL_SETTLING, node="on-demand-2"), "the memory"
        )
        assert daemon.logged("draining;") == []
    assert queries.places("many") == {"on-demand-2": 2}
