"""A real API server with etcd and a large cluster. No other component runs, so only the churn changes objects."""

import contextlib
import json
import subprocess
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar
from urllib.parse import urlsplit

from devcluster import build
from devcluster.plane import ControlPlane
from tests.bench import shapes
from tests.bench.big import big
from tests.bench.reading import seed


@dataclass(frozen=True)
class KubeApiServer:
    """A running API server. Its pods are changed by requests of ``scale churn``."""

    name: ClassVar = "kube-apiserver"

    kubeconfig: Path
    port: int

    def churn(self, kind: str, rate: int, seconds: int, seed: int = 1) -> int:
        flags = {"kubeconfig": self.kubeconfig, "kind": kind, "rate": rate, "seconds": seconds, "seed": seed}
        command = [str(build.scale()), "churn", *(f"--{flag}={value}" for flag, value in flags.items())]
        done = subprocess.run(command, check=True, capture_output=True, text=True)
        return int(json.loads(done.stdout)["events"])


@contextlib.contextmanager
def kube_apiserver(folder: Path, nodes: int, pods: int) -> Iterator[KubeApiServer]:
    """Run an API server with *nodes* nodes, a third of them on-demand, and about *pods* pods.

    The objects are written to etcd: bound pods with their statuses would take some minutes through the API.
    """
    cluster = folder / "cluster.json"
    big(cluster, on_demand=nodes // 3, spot=nodes - nodes // 3, pods_per_node=pods // nodes)
    with ControlPlane(running=("etcd", "kube-apiserver")) as plane:
        seed(plane, cluster)
        cluster.unlink()
        for namespace in shapes.NAMESPACES:  # new pods need the ServiceAccount, and no controller creates it
            account = {"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": "default"}}
            plane.api.post(f"/api/v1/namespaces/{namespace}/serviceaccounts", account)
        yield KubeApiServer(plane.kubeconfig, urlsplit(plane.server).port or 0)
