"""Groups of pods on a control plane: the object is read by discovery, under the shipped permissions."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

import httpx2
import pytest

from devcluster.api import Json
from devcluster.errors import ApiError
from devcluster.manifests import deployment
from devcluster.plane import ControlPlane
from tests import forking
from tests.cluster.daemon import ClusterQueries, Daemon
from tests.cluster.operators import PlayedOwner, definition
from tests.cluster.rendering import kustomization
from tests.cluster.rights import ACCESS
from tests.proxy.world import ProxyWorld, world

GROUP: Final = PlayedOwner("scheduling.x-k8s.io/v1alpha1/PodGroup", "train", "", plays=False)
LABEL: Final = "scheduling.x-k8s.io/pod-group"
APART: Final = {
    "maxSkew": 1,
    "topologyKey": "kubernetes.io/hostname",
    "whenUnsatisfiable": "DoNotSchedule",
    "labelSelector": {"matchLabels": {"app": "train"}},
}


@pytest.fixture
def account(cluster: ControlPlane) -> Iterator[Path]:
    """Install the PodGroups, and the shipped RBAC; the value is the kubeconfig of the daemon's account."""
    shipped = [item for item in kustomization("base") if "Role" in item["kind"] or item["kind"] == "ServiceAccount"]
    cluster.apply([definition(GROUP), *shipped])
    cluster.wait_for(lambda: _served(cluster), "the PodGroups")
    yield cluster.service_account_kubeconfig("spot-rescheduler", "spot-rescheduler")
    for item in (definition(GROUP), *shipped):
        cluster.api.delete(cluster.api.path(item))


def _served(cluster: ControlPlane) -> bool:
    try:
        return cluster.api.items(f"/apis/{GROUP.group}/{GROUP.version}/{GROUP.plural}") == []
    except ApiError:
        return False


def _minimum(count: int) -> Json:
    return {**GROUP.manifest, "spec": {"minMember": count}}


def _planned(account: Path) -> dict[str, Any]:
    done = forking.run("plan", f"--kubeconfig={account}", "-o", "json", "--independent")
    assert done.returncode == 0, done.stderr
    nodes: list[Any] = json.loads(done.stdout)["nodes"]
    return {node["node"]: [(each["reason"], each["detail"]) for each in node["blockers"]] for node in nodes}


def test_a_group_on_two_nodes_stays_until_its_minimum_is_lower(cluster: ControlPlane, account: Path) -> None:
    queries = ClusterQueries(cluster)
    queries.nodes(2, 2)
    cluster.apply([_minimum(2), deployment("train", 2, labels={LABEL: "train"}, topologySpreadConstraints=[APART])])
    queries.running(2)
    assert queries.places("train") == {"on-demand-1": 1, "on-demand-2": 1}
    queries.open_spot()
    why = (
        "it belongs to coscheduling PodGroup default/train (minimum 2): 1 of its 2 pods would move, the others run on "
    )
    assert _planned(account) == {
        "on-demand-1": [("gang-member", f"{why}on-demand-2")],
        "on-demand-2": [("gang-member", f"{why}on-demand-1")],
    }
    with Daemon(cluster, "--dry-run", "--namespace=spot-rescheduler", kubeconfig=account) as daemon:
        queries.eventually(lambda: _blocked(daemon) == {"gang-member"}, "the reason of the daemon")
    cluster.apply([_minimum(1)])
    assert _planned(account) == {"on-demand-1": [], "on-demand-2": []}


def _blocked(daemon: Daemon) -> set[str]:
    """Return the reasons of nodes that the daemon exports."""
    if not daemon.address:
        return set()
    lines = httpx2.get(f"{daemon.address}/metrics", trust_env=False).text.splitlines()
    name = "spot_rescheduler_blocked_nodes{"
    found = (line for line in lines if line.startswith(name) and not line.endswith(" 0.0"))
    return {line.partition('reason="')[2].partition('"')[0] for line in found}


@pytest.fixture
def proxy_account(cluster: ControlPlane) -> Iterator[Path]:
    """Install the PodGroups, and the RBAC of the proxy; the value is the kubeconfig of the proxy's account."""
    shipped = [item for item in kustomization("proxy") if item["kind"] in ACCESS]
    cluster.apply([definition(GROUP), *shipped])
    cluster.wait_for(lambda: _served(cluster), "the PodGroups")
    yield cluster.service_account_kubeconfig("spot-rescheduler", "cloudpool-proxy")
    for item in (definition(GROUP), *shipped):
        cluster.api.delete(cluster.api.path(item))


def test_the_proxy_reads_the_minimum_of_a_group(cluster: ControlPlane, proxy_account: Path, tmp_path: Path) -> None:
    def prepare(proxied: ProxyWorld) -> None:
        for name, node in (("one", "od-1"), ("two", "od-2")):
            proxied.deploy(name, 1, on=node, labels={LABEL: "train"})
        cluster.apply([_minimum(1)])

    with world(cluster, tmp_path, 3, kubeconfig=proxy_account, before=prepare) as proxied:
        terminate = {"machineId": proxied.id("od-1"), "decrementDesiredSize": True}
        response = proxied.post("/pool/terminate", terminate)
        assert response.status_code == httpx2.codes.OK, response.text
        assert proxied.running() == ["od-2", "od-3"]
