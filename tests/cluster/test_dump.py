"""`rescheduler snapshot` on a real API server: the file gives the same plan as the cluster, and contains no secrets."""

import gzip
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from devcluster import build
from devcluster.errors import ApiError
from devcluster.manifests import daemonset, deployment, on_demand, pdb, spot, statefulset
from devcluster.plane import ControlPlane
from tests import forking
from tests.cluster.operators import PlayedOwner, definition
from tests.cluster.rich import RICH

BUFFERS = "/apis/autoscaling.x-k8s.io/v1beta1"
SECRET = "correct-horse-battery-staple"


def planned(*arguments: str) -> dict[str, Any]:
    done = forking.run("plan", *arguments, "-o", "json")
    assert done.returncode == 0, done.stderr
    result: dict[str, Any] = json.loads(done.stdout)
    del result["summary"]["seconds"], result["summary"]["survival"]["seconds"]
    for lever in result["summary"]["levers"]:
        del lever["try"]  # the command names the file or the kubeconfig
    return result


DEFINITION = definition(PlayedOwner("autoscaling.x-k8s.io/v1beta1/CapacityBuffer", "spare", ""))


def serves_buffers(cluster: ControlPlane) -> bool:
    try:
        return bool(cluster.api.get(BUFFERS)["resources"])
    except ApiError:
        return False


@pytest.fixture
def kept_room(cluster: ControlPlane) -> Iterator[None]:
    """Create a CapacityBuffer for one pod of 500m, as its controller stores it."""
    containers = [{"name": "main", "image": "app", "resources": {"requests": {"cpu": "500m"}}}]
    meta = {"name": "spare", "namespace": "default"}
    template = {"template": {"spec": {"containers": containers}}}
    accepted = [{"type": "ReadyForProvisioning", "status": "True"}]
    buffer = {"spec": {"podTemplateRef": {"name": "spare"}, "replicas": 1}}
    cluster.apply([DEFINITION])
    cluster.wait_for(lambda: serves_buffers(cluster), "CapacityBuffers served")
    cluster.apply([{"apiVersion": "v1", "kind": "PodTemplate", "metadata": meta, **template}])
    kind = {"apiVersion": "autoscaling.x-k8s.io/v1beta1", "kind": "CapacityBuffer", "metadata": meta}
    cluster.api.post(f"{BUFFERS}/namespaces/default/capacitybuffers", {**kind, **buffer, "status": {
        "replicas": 1, "podTemplateRef": {"name": "spare"}, "conditions": accepted,
    }})  # fmt: skip
    yield
    cluster.api.delete(cluster.api.path(DEFINITION))


def test_a_snapshot_gives_the_same_plan_as_the_cluster(cluster: ControlPlane, kept_room: None, tmp_path: Path) -> None:
    environment = [{"name": "PASSWORD", "value": SECRET}]
    containers = [{"name": "main", "image": "app", "env": environment, "resources": {"requests": {"cpu": "1"}}}]
    cluster.apply([on_demand("od"), spot("s1"), *RICH, daemonset("agent", namespace="kube-system")])
    cluster.wait_for(lambda: _bound(cluster, "kube-system") == 2, "the pods of the agent, which every real cluster has")
    cluster.apply([deployment("web", 3, containers=containers), statefulset("db", 2), pdb("web", max_unavailable=1)])
    cluster.wait_for(lambda: _bound(cluster) >= 5, "bound pods")

    done = forking.run("snapshot", f"--kubeconfig={cluster.kubeconfig}")
    assert (done.returncode, done.stderr) == (0, "")
    assert SECRET not in done.stdout
    file = tmp_path / "cluster.json.gz"
    file.write_bytes(gzip.compress(done.stdout.encode()))
    kinds = {item["kind"] for item in json.loads(done.stdout)["items"]}
    assert {"Node", "Pod", "ReplicaSet", "StatefulSet", "PodDisruptionBudget", "Namespace"} <= kinds
    versions = [item for item in json.loads(done.stdout)["items"] if item["kind"] == "ServerVersion"]
    assert [item["gitVersion"] for item in versions] == [build.RELEASES[build.version()]]
    of_file, live = planned(f"--snapshot={file}"), planned(f"--kubeconfig={cluster.kubeconfig}")
    assert of_file["summary"] == live["summary"]
    assert of_file == live
    assert live["summary"]["buffer_pods"] == 1


def _bound(cluster: ControlPlane, namespace: str = "default") -> int:
    pods = cluster.api.get(f"/api/v1/namespaces/{namespace}/pods")["items"]
    return sum(bool(pod["spec"].get("nodeName")) for pod in pods)
