"""--drain-order=worth and --min-worth on a real control plane, judged by the pods of the API server."""

import base64

import httpx2
import pytest

from devcluster.api import Json
from devcluster.manifests import deployment
from devcluster.plane import ControlPlane
from rescheduler.planning.memory import load
from rescheduler.planning.owner_records import OwnerRecord
from rescheduler.settings import MEMORY_NAME
from tests.cluster.daemon import NO_DELAY, ClusterQueries, Daemon

MANY, FEW = "on-demand-1", "on-demand-2"
FLAGS = ("--price-per-vcpu=0.1", "--price-per-gib=0", "--spot-price-per-vcpu=0.01", "--spot-price-per-gib=0")


@pytest.fixture
def queries(cluster: ControlPlane) -> ClusterQueries:
    return ClusterQueries(cluster)


def on(pool: str) -> Json:
    """Return the affinity of pods that run on the on-demand node with the label *pool*, and on spot nodes."""
    terms = [{"matchExpressions": [{"key": "pool", "operator": "In", "values": [pool, "spot"]}]}]
    return {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": terms}}}


def uids(queries: ClusterQueries, app: str) -> set[str]:
    return {pod["metadata"]["uid"] for pod in queries.pods(app)}


def remembered(cluster: ControlPlane) -> dict[str, OwnerRecord]:
    """Return what the daemon has stored of the owners whose pods it moved."""
    maps = cluster.api.items("/api/v1/namespaces/default/configmaps")
    stored = [item["binaryData"]["memory"] for item in maps if item["metadata"]["name"] == MEMORY_NAME]
    return load(base64.b64decode(stored[0])).owners.by_name if stored else {}


def reasons(daemon: Daemon) -> dict[str, str]:
    """Return the first reason of each node that stays."""
    page = httpx2.get(f"{daemon.address}/statusz", headers={"Accept": "application/json"}, trust_env=False).json()
    return {each["node"]: each["blockers"][0]["reason"] for each in page["nodes"] if each.get("blockers")}


def test_nodes_go_in_the_order_of_worth_and_one_that_saves_too_little_stays(
    cluster: ControlPlane, queries: ClusterQueries
) -> None:
    """Eight small pods request less CPU than two large ones, so that their node is the first in the usual order."""
    queries.nodes(2, 2)
    for node, pool in {MANY: "many", FEW: "few", "spot-1": "spot", "spot-2": "spot"}.items():
        cluster.api.patch(f"/api/v1/nodes/{node}", {"metadata": {"labels": {"pool": pool}}})
    many = deployment("many", 8, cpu="50m", affinity=on("many"))
    few = deployment("few", 2, cpu="800m", affinity=on("few"))
    cluster.apply([many, few])
    queries.running(8, "many")
    queries.running(2, "few")
    queries.open_spot()
    before = uids(queries, "many")
    with Daemon(cluster, *FLAGS, "--drain-order=worth") as daemon:  # one drain: the next is an hour away
        queries.eventually(lambda: queries.kinds("few") == {"spot": 2}, "the node of the few pods drained")
        queries.eventually(lambda: not queries.marks(), "the end of the drain")
        assert (queries.places("many"), uids(queries, "many")) == ({MANY: 8}, before)
        queries.eventually(lambda: remembered(cluster), "the history of the owner stored")
        daemon.terminate()
        assert daemon.end() == 0
    [(owner, record)] = remembered(cluster).items()
    assert (owner, sum(day.pods for day in record.days)) == ("default/Deployment/few", 2)
    assert record.ready is not None  # the replacement pods were Ready
    with Daemon(cluster, *FLAGS, NO_DELAY, "--drain-order=worth", "--min-worth=100") as daemon:
        queries.eventually(lambda: daemon.address and reasons(daemon).get(MANY) == "not-worth-it", "the reason")
        assert (queries.places("many"), uids(queries, "many")) == ({MANY: 8}, before)
        daemon.terminate()
        assert daemon.end() == 0
    assert (queries.marks(), uids(queries, "many")) == ({}, before)
    with Daemon(cluster, *FLAGS, NO_DELAY, "--drain-order=worth", "--min-worth=1"):
        queries.eventually(lambda: queries.kinds("many") == {"spot": 8}, "the node of the many pods drained")
