"""A real Prometheus scrapes the daemon, and promtool accepts its metrics page."""

import subprocess
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import httpx2

from devcluster.debian import Prometheus
from devcluster.manifests import deployment
from devcluster.plane import ControlPlane
from devcluster.ports import reserve
from tests.cluster.daemon import ClusterQueries, Daemon

ORIGINAL = (
    "spot_rescheduler_node_pods_count",
    "spot_rescheduler_nodes_count",
    "spot_rescheduler_node_drain_total",
    "spot_rescheduler_evicted_pods_total",
)


@contextmanager
def scraping(prometheus: Prometheus, target: str, folder: Path) -> Iterator[str]:
    """Run a Prometheus that scrapes *target* and yield its URL."""
    config, data = folder / "prometheus.yml", folder / "data"
    job = {"job_name": "daemon", "scrape_interval": "1s", "static_configs": [{"targets": [target]}]}
    config.write_text(str({"scrape_configs": [job]}).replace("'", '"'))
    command = [
        str(prometheus.prometheus),
        f"--config.file={config}",
        f"--storage.tsdb.path={data}",
    ]
    with ExitStack() as until:
        address = f"127.0.0.1:{reserve(until)}"
        command.append(f"--web.listen-address={address}")
        process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        until.callback(process.wait)
        until.callback(process.kill)
        yield f"http://{address}"


def query(url: str, metric: str) -> list[dict[str, Any]]:
    try:
        response = httpx2.get(f"{url}/api/v1/query", params={"query": metric})
    except httpx2.TransportError:
        return []
    result: list[dict[str, Any]] = response.json()["data"]["result"] if response.is_success else []
    return result


def test_prometheus_has_the_four_original_metrics(
    cluster: ControlPlane, prometheus: Prometheus, tmp_path: Path
) -> None:
    queries = ClusterQueries(cluster)
    queries.nodes(1, 2)
    cluster.apply([deployment("web", 3)])
    queries.running(3)
    queries.open_spot()
    with Daemon(cluster) as daemon:
        queries.eventually(lambda: daemon.logged("drained after"), "a drain")
        address = daemon.address.removeprefix("http://")
        with scraping(prometheus, address, tmp_path) as url:
            result = {
                metric: queries.eventually(lambda metric=metric: query(url, metric), f"{metric} in Prometheus")
                for metric in ORIGINAL
            }
        page = httpx2.get(f"{daemon.address}/metrics").content
        linted = subprocess.run([prometheus.promtool, "check", "metrics"], input=page, capture_output=True, check=False)
    labels = {
        metric: [set(sample["metric"]) - {"__name__", "instance", "job"} for sample in result[metric]]
        for metric in result
    }
    assert labels["spot_rescheduler_evicted_pods_total"] == [set()]
    assert {"drain_state", "node"} in labels["spot_rescheduler_node_drain_total"]
    assert {"node_type", "node"} in labels["spot_rescheduler_node_pods_count"]
    assert {"node_type"} in labels["spot_rescheduler_nodes_count"]
    drains = {
        sample["metric"]["drain_state"]: sample["value"][1] for sample in result["spot_rescheduler_node_drain_total"]
    }
    assert drains["Success"] == "1"
    assert result["spot_rescheduler_evicted_pods_total"][0]["value"][1] == "3"
    assert (linted.returncode, linted.stdout, linted.stderr) == (0, b"", b"")
