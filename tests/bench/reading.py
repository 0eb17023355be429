"""Initial read of a cluster, compared to the official client's models: whole processes on a real API server."""

import base64
import json
import subprocess
import sys
import time
from collections.abc import Iterator
from itertools import islice
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Final

import httpx2

from devcluster.plane import ControlPlane
from tests.bench.big import big
from tests.bench.result import Result, faster

ROOT: Final = Path(__file__).parents[2]

#: etcd prefixes of the kinds that are written.
_KEYS: Final = {
    "Namespace": "namespaces",
    "Node": "minions",
    "Pod": "pods",
    "PodDisruptionBudget": "poddisruptionbudgets",
    "ReplicaSet": "replicasets",
}
_WRITES_AT_ONCE: Final = 100

#: The last line reports the number of pods and the peak memory in kB (ru_maxrss would include the parent's).
_TELL: Final = """
with open("/proc/self/status") as status:
    print(pods, next(line.split()[1] for line in status if line.startswith("VmHWM")))
"""

OURS: Final = """
import sys
from rescheduler.cli.cluster_source import ClusterSource
from rescheduler.settings import ApiServerConnection, Scheduling
pods = len(ClusterSource(None, ApiServerConnection(kubeconfig=sys.argv[1]), Scheduling()).read().pods)
"""

_PEER: Final = """
import sys
from kubernetes import client, config
config.load_kube_config(sys.argv[1])
core = client.CoreV1Api()
read = [
    core.list_namespace(),
    core.list_node(),
    client.PolicyV1Api().list_pod_disruption_budget_for_all_namespaces(),
    core.list_pod_for_all_namespaces(),
]
pods = len(read[-1].items)
"""


def run(nodes: int = 1000, pods_per_node: int = 30, times: int = 2) -> Iterator[Result]:
    """Yield the rows on reading: the best of *times* alternating runs of each. Takes a few minutes."""
    with TemporaryDirectory() as folder, ControlPlane(running=("etcd", "kube-apiserver")) as plane:
        written = Path(folder) / "cluster.json"
        big(written, on_demand=nodes // 3, spot=nodes - nodes // 3, pods_per_node=pods_per_node)
        seed(plane, written)
        runs = [(_process(plane, OURS), _process(plane, _PEER)) for _ in range(times)]
    (seconds, peak), (peer_seconds, peer_peak) = (
        tuple(map(min, zip(*measured, strict=True))) for measured in zip(*runs, strict=True)
    )
    size = f"reading {nodes:,} nodes and {nodes * pods_per_node:,} pods at start"
    yield faster(f"{size}: whole process", seconds, peer_seconds, 5, 8)
    ours, peer = f"{peak / 1e3:.0f} MB", f"{peer_peak / 1e3:.0f} MB"
    yield Result(f"{size}: peak memory", ours, peer, peer_peak / peak, "×", 4, 6)


def seed(plane: ControlPlane, cluster: Path) -> None:
    """Write the objects of *cluster* directly to etcd, a hundred times faster than through the API server."""
    plane.stop_component("kube-apiserver")
    url = f"http://127.0.0.1:{plane._setting.etcd_port}/v3/kv/txn"
    puts = _puts(cluster)
    with httpx2.Client(trust_env=False) as etcd:
        while batch := list(islice(puts, _WRITES_AT_ONCE)):
            etcd.post(url, json={"success": batch}).raise_for_status()
    plane.start_component("kube-apiserver")


def _puts(cluster: Path) -> Iterator[dict[str, dict[str, str]]]:
    for obj in json.loads(cluster.read_text())["items"]:
        if (folder := _KEYS.get(obj["kind"])) is None:
            continue
        meta = obj["metadata"]
        meta.pop("resourceVersion", None)  # assigned by etcd
        key = "/".join(filter(None, ("/registry", folder, meta.get("namespace"), meta["name"])))
        request = {"key": base64.b64encode(key.encode()), "value": base64.b64encode(json.dumps(obj).encode())}
        yield {"requestPut": {name: text.decode() for name, text in request.items()}}


def _process(plane: ControlPlane, code: str) -> tuple[float, float]:
    """Return the seconds from start to end, and the peak memory in kB."""
    start = time.perf_counter()
    command = [sys.executable, "-c", code + _TELL, str(plane.kubeconfig)]
    output = subprocess.run(command, cwd=ROOT, check=True, capture_output=True, text=True).stdout
    seconds = time.perf_counter() - start
    pods, peak = map(int, output.split()[-2:])
    assert pods, "nothing was read"
    return seconds, peak
