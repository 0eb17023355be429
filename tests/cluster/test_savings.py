"""The ledger of savings on a real API server: from a drain until a new node ends the saving."""

import json
from typing import Any

import httpx2
import pytest

from devcluster.api import Json
from devcluster.manifests import deployment, mixed_nodes
from devcluster.plane import ControlPlane
from rescheduler.settings import SAVINGS_NAME
from tests import forking
from tests.cluster.daemon import ClusterQueries, Daemon

NODE = "on-demand-1"
NODES = "/api/v1/nodes"
CONFIG_MAPS = "/api/v1/namespaces/default/configmaps"
FLAGS = ("--price-per-vcpu=0.1", "--price-per-gib=0", "--spot-price-per-vcpu=0.01", "--currency=EUR")


@pytest.fixture
def queries(cluster: ControlPlane) -> ClusterQueries:
    return ClusterQueries(cluster)


def summary(cluster: ControlPlane) -> str:
    """Return the summary in the ConfigMap, "" if it does not exist."""
    items: list[Json] = cluster.api.items(CONFIG_MAPS)
    return next((item["data"]["summary"] for item in items if item["metadata"]["name"] == SAVINGS_NAME), "")


def savings(cluster: ControlPlane, *arguments: str) -> Any:
    """Return the output of ``rescheduler savings -o json``."""
    flags = (f"--kubeconfig={cluster.kubeconfig}", "--namespace=default", "-o=json")
    done = forking.run("savings", *flags, *arguments, check=True)
    assert done.stderr == ""
    return json.loads(done.stdout)


def counters(daemon: Daemon) -> dict[str, float]:
    """Return the two counters, as they are scraped."""
    lines = [line.split(" ") for line in httpx2.get(f"{daemon.address}/metrics").text.splitlines()]
    return {name.removeprefix("spot_rescheduler_"): float(value) for name, value in lines_of(lines)}


def lines_of(lines: list[list[str]]) -> list[tuple[str, str]]:
    return [(line[0], line[1]) for line in lines if line[0].startswith("spot_rescheduler_savings_")]


def test_a_saving_is_recorded_from_the_drain_until_a_new_node_ends_it(
    cluster: ControlPlane, queries: ClusterQueries
) -> None:
    """An autoscaler, here the test, removes the drained node; later it adds another one."""
    queries.nodes(2, 2)
    cluster.apply([deployment("web", 3)])
    queries.running(3)
    queries.open_spot()
    with Daemon(cluster, *FLAGS) as daemon:
        queries.eventually(lambda: "drained nodes that still exist: 1" in summary(cluster), "the drain recorded")
        drained = daemon.logged("drained after")[0]["node"]
        before = savings(cluster)
        assert ([item["node"] for item in before["waiting"]], before["days"]) == ([drained], [])
        assert counters(daemon) == {'savings_money_total{currency="EUR"}': 0, "savings_nodehours_total": 0}
        cluster.api.delete(f"{NODES}/{drained}")
        queries.eventually(lambda: "gone and still count: 1" in summary(cluster), "the saving")
        queries.eventually(lambda: counters(daemon)["savings_nodehours_total"] > 0, "the metrics")
        daemon.terminate()
        assert daemon.end() == 0
    with Daemon(cluster, *FLAGS) as daemon:
        queries.eventually(lambda: daemon.address and counters(daemon)["savings_nodehours_total"] > 0, "the restart")
        cluster.apply([{**mixed_nodes(3, 0)[2]}])
        queries.eventually(lambda: "gone and still count: 0" in summary(cluster), "the end of the saving")
    [receipt] = [item for day in savings(cluster)["days"][:1] for item in day["receipts"]]
    assert (receipt["node"], receipt["ending"], receipt["currency"]) == (drained, "replaced", "EUR")
    assert receipt["price"] > receipt["spot_cost"] >= 0
    assert receipt["money"]["EUR"] >= 0
    total = savings(cluster)["total"]
    assert (total["machines_removed"], total["node_hours"] > 0) == (1, True)
