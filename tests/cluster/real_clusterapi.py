"""Tests beside the real controllers of Cluster API: `make clusterapi`.

pytest does not collect this file by default, because the first build takes some minutes. Set CLUSTERAPI to use an
existing binary, with the folder `crds` beside it. The controllers of Clusters, MachineDeployments, MachineSets and
Machines are real; so are the scheduler and the API server, which is both management and workload cluster. A stand-in
does what an infrastructure provider does: it gives each Machine an ID and a Node of kwok, and lets it end.
"""

import base64
import contextlib
import functools
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

import pytest
import yaml

from devcluster import build
from devcluster.api import Json
from devcluster.audit import AuditEvent
from devcluster.errors import ApiError
from devcluster.manifests import ON_DEMAND, SPOT, custom_kind, deployment, node
from devcluster.plane import ControlPlane
from devcluster.ports import reserve
from devcluster.processes import Processes
from tests.cluster.autoscaling import SETUP
from tests.cluster.daemon import NO_DELAY, Daemon
from tests.cluster.observer import AGENT, Observer
from tests.cluster.waiting import repeating
from tests.providers import pki

CORE: Final = "cluster.x-k8s.io/v1beta2"
INFRASTRUCTURE: Final = "infrastructure.cluster.x-k8s.io"
ROOT: Final = f"/apis/{CORE}/namespaces/default"
STAND_IN: Final = f"/apis/{INFRASTRUCTURE}/v1beta1/namespaces/default"
FINALIZER: Final = "stand-in/machine"
MIN_SIZE: Final = "cluster.x-k8s.io/cluster-api-autoscaler-node-group-min-size"
MAX_SIZE: Final = "cluster.x-k8s.io/cluster-api-autoscaler-node-group-max-size"
SECONDS: Final = 300.0
#: How long nothing may change after all moves, in seconds.
WATCHED: Final = float(os.environ.get("CLUSTERAPI_WATCHED", "60"))
LABELS: Final = {"on-demand": {ON_DEMAND: "true"}, "spot": {SPOT: "true"}}


KINDS: Final = ("PlainCluster", "PlainControlPlane", "PlainMachine", "PlainMachineTemplate")


def stand_in(kind: str, name: str, **fields: Any) -> Json:
    return {"apiVersion": f"{INFRASTRUCTURE}/v1beta1", "kind": kind, "metadata": {"name": name}, **fields}


def reference(kind: str, name: str) -> Json:
    return {"apiGroup": INFRASTRUCTURE, "kind": kind, "name": name}


def fleet(cluster: ControlPlane) -> list[Json]:
    """Return the Cluster, whose nodes are those of *cluster* itself, and the stand-in's part of it."""
    endpoint = {"host": "127.0.0.1", "port": int(cluster.server.rpartition(":")[2])}
    done = {
        "initialization": {"provisioned": True, "controlPlaneInitialized": True},
        "externalManagedControlPlane": True,  # as of managed clusters: there is no Machine of the control plane
    }
    kubeconfig = base64.b64encode(cluster.kubeconfig.read_bytes()).decode()
    return [
        stand_in("PlainCluster", "c", spec={"controlPlaneEndpoint": endpoint}, status=done),
        stand_in("PlainControlPlane", "c", spec={}, status=done),
        {
            "apiVersion": "v1",
            "kind": "Secret",
            "metadata": {"name": "c-kubeconfig", "labels": {"cluster.x-k8s.io/cluster-name": "c"}},
            "type": "cluster.x-k8s.io/secret",
            "data": {"value": kubeconfig},
        },
        {
            "apiVersion": CORE,
            "kind": "Cluster",
            "metadata": {"name": "c"},
            "spec": {
                "controlPlaneEndpoint": endpoint,
                "infrastructureRef": reference("PlainCluster", "c"),
                "controlPlaneRef": reference("PlainControlPlane", "c"),
            },
        },
        stand_in("PlainMachineTemplate", "t", spec={"template": {"spec": {}}}),
    ]


def machine_deployment(name: str, replicas: int, **limits: str) -> Json:
    labels = {"pool": name, "cluster.x-k8s.io/cluster-name": "c"}
    template = {
        "clusterName": "c",
        "bootstrap": {"dataSecretName": "none"},
        "infrastructureRef": reference("PlainMachineTemplate", "t"),
    }
    return {
        "apiVersion": CORE,
        "kind": "MachineDeployment",
        "metadata": {"name": name, "annotations": {MIN_SIZE: "0", MAX_SIZE: "10", **limits}},
        "spec": {
            "clusterName": "c",
            "replicas": replicas,
            "selector": {"matchLabels": labels},
            "rollout": {"strategy": {"type": "RollingUpdate", "rollingUpdate": {"maxSurge": 1, "maxUnavailable": 0}}},
            "template": {"metadata": {"labels": labels}, "spec": template},
        },
    }


class Infrastructure:
    """The stand-in for an infrastructure provider."""

    def __init__(self, cluster: ControlPlane) -> None:
        self._cluster, self._api = cluster, cluster.api

    def act(self) -> None:
        """Start and end machines; what fails is done the next time."""
        for machine in self._api.items(f"{STAND_IN}/plainmachines"):
            with contextlib.suppress(ApiError):
                self._serve(machine)

    def _serve(self, machine: Json) -> None:
        meta, path = machine["metadata"], f"{STAND_IN}/plainmachines/{machine['metadata']['name']}"
        if "deletionTimestamp" in meta:
            self._api.patch(path, {"metadata": {"finalizers": None}})
        elif "providerID" not in machine.get("spec", {}):
            provider_id = f"plain://{meta['name']}"
            labels = next(own for pool, own in LABELS.items() if meta["name"].startswith(pool))
            self._cluster.apply([node(meta["name"], labels=labels, providerID=provider_id)])
            self._api.patch(path, {"metadata": {"finalizers": [FINALIZER]}, "spec": {"providerID": provider_id}})
            self._api.patch(f"{path}/status", {"status": {"initialization": {"provisioned": True}}})


@pytest.fixture(scope="session")
def program() -> Path:
    return Path(os.environ["CLUSTERAPI"]) if "CLUSTERAPI" in os.environ else build.cluster_api()


@pytest.fixture
def capi(program: Path, cluster: ControlPlane, tmp_path: Path) -> Iterator[None]:
    """Run the controllers and the stand-in; remove all of their objects at the end."""
    contract = {"cluster.x-k8s.io/v1beta2": "v1beta1"}
    plain = [custom_kind(name, INFRASTRUCTURE, "v1beta1", labels=contract) for name in KINDS]
    crds = [*plain, *map(kind, sorted((program.parent / "crds").glob("*.yaml")))]
    cluster.apply(crds)
    for path in (f"{ROOT}/machines", f"{ROOT}/clusters", f"{STAND_IN}/plainmachines"):
        cluster.wait_for(functools.partial(served, cluster, path), f"{path} to be served")
    pki.make(tmp_path)
    processes = Processes()
    ports = contextlib.ExitStack()
    processes.start("clusterapi", command(program, cluster, tmp_path, reserve(ports)), tmp_path / "clusterapi.log")
    try:
        with repeating(Infrastructure(cluster).act, 0.5):
            cluster.apply(fleet(cluster))
            yield
            remove_all(cluster)
    finally:
        processes.stop_all()
        ports.close()
        for crd in crds:
            cluster.api.delete(cluster.api.path(crd))


def kind(path: Path) -> Json:
    """Return a CustomResourceDefinition of Cluster API without old versions, which need its webhooks."""
    crd: Json = yaml.safe_load(path.read_text())
    stored = [version for version in crd["spec"]["versions"] if version["storage"]]
    return {**crd, "spec": {**crd["spec"], "versions": stored, "conversion": {"strategy": "None"}}}


def command(program: Path, cluster: ControlPlane, folder: Path, port: int) -> list[str]:
    return [
        "env",
        "POD_NAMESPACE=default",
        "POD_NAME=clusterapi",
        "POD_UID=1",
        f"KUBECONFIG={cluster.kubeconfig}",
        "no_proxy=127.0.0.1",
        str(program),
        f"--webhook-port={port}",
        f"--webhook-cert-dir={folder}",
        "--webhook-cert-name=server.crt",
        "--webhook-key-name=server.key",
        "--health-addr=127.0.0.1:0",
        "--diagnostics-address=127.0.0.1:0",
        "--insecure-diagnostics",
        "--skip-crd-migration-phases=StorageVersionMigration,CleanupManagedFields",
        "--feature-gates=MachineSetPreflightChecks=false",
    ]


def served(cluster: ControlPlane, path: str) -> bool:
    with contextlib.suppress(ApiError):
        cluster.api.items(path)
        return True
    return False


def remove_all(cluster: ControlPlane) -> None:
    """Delete the pods and the MachineDeployments, and wait until all machines have ended."""
    for root in ("/apis/apps/v1/namespaces/default/deployments", f"{ROOT}/machinedeployments"):
        for item in cluster.api.items(root):
            cluster.api.delete(f"{root}/{item['metadata']['name']}")
    cluster.wait_for(lambda: not cluster.api.items(f"{ROOT}/machines"), "the end of the Machines", seconds=SECONDS)
    cluster.api.delete(f"{ROOT}/clusters/c")
    cluster.wait_for(lambda: not cluster.api.items(f"{ROOT}/clusters"), "the end of the Cluster", seconds=SECONDS)


def replicas(cluster: ControlPlane, name: str) -> int:
    return int(cluster.api.get(f"{ROOT}/machinedeployments/{name}")["spec"]["replicas"])


def machines(cluster: ControlPlane, pool: str) -> list[str]:
    """Return the Machines of *pool* that are not being deleted."""
    items = cluster.api.items(f"{ROOT}/machines", labelSelector=f"pool={pool}")
    return sorted(each["metadata"]["name"] for each in items if "deletionTimestamp" not in each["metadata"])


def joined(cluster: ControlPlane, observer: Observer, **pools: int) -> None:
    """Create MachineDeployments, and wait until their Machines have nodes."""
    named = {name.replace("_", "-"): number for name, number in pools.items()}
    cluster.apply([machine_deployment(name, number) for name, number in named.items()])
    observer.eventually(
        lambda: sum("nodeRef" in each.get("status", {}) for each in cluster.api.items(f"{ROOT}/machines")),
        "the nodes of all Machines",
        seconds=SECONDS,
    )
    observer.nodes_ready(sum(pools.values()))


@pytest.mark.cluster
def test_six_machines_go_by_our_order_and_stay_away(cluster: ControlPlane, observer: Observer, capi: None) -> None:
    """The daemon is killed after its first order; the next one goes on, and lowers no replicas twice."""
    cluster.apply(SETUP)
    joined(cluster, observer, on_demand=6)
    cluster.apply([deployment(f"web{n}", 2, cpu="1800m") for n in range(6)])
    observer.running(12)
    cluster.apply([machine_deployment("spot", 6)])
    observer.nodes_ready(12)
    flags = (NO_DELAY, "--cloud-provider=clusterapi")
    with Daemon(cluster, *flags) as first:
        observer.eventually(lambda: replicas(cluster, "on-demand") == 5, "the first order", seconds=SECONDS)
        first.kill()
    with Daemon(cluster, *flags):
        observer.eventually(lambda: not machines(cluster, "on-demand"), "the end of all Machines", seconds=SECONDS)
        observer.running(12)
        before = state(cluster, observer)
        assert replicas(cluster, "on-demand") == 0
        observer.stays(lambda: state(cluster, observer), before, seconds=WATCHED)
    lowered = patches(observer, "machinedeployments")
    assert len(lowered) == 6, "replicas were lowered more than once for a Machine"
    assert sum(observer.evicted().values()) == 12, f"pods moved more than once: {observer.evicted()}"


def state(cluster: ControlPlane, observer: Observer) -> object:
    """Return what must not change any more: pods, Machines and replicas."""
    pools = {pool: (replicas(cluster, pool), tuple(machines(cluster, pool))) for pool in LABELS}
    return observer.uids(), pools


def patches(observer: Observer, plural: str) -> list[AuditEvent]:
    """Return the successful changes of the daemon."""
    events = [each for each in observer.audit.events() if each.user_agent.startswith(AGENT) and each.verb == "patch"]
    return [each for each in events if each.kind == plural and each.accepted]


@pytest.mark.cluster
def test_a_group_keeps_its_minimum(cluster: ControlPlane, observer: Observer, capi: None) -> None:
    cluster.apply(SETUP)
    joined(cluster, observer, on_demand=3)
    cluster.apply([machine_deployment("on-demand", 3, **{MIN_SIZE: "2"}), deployment("web", 3, cpu="3")])
    observer.running(3)
    cluster.apply([machine_deployment("spot", 3)])
    observer.nodes_ready(6)
    with Daemon(cluster, NO_DELAY, "--cloud-provider=clusterapi"):
        observer.eventually(lambda: len(machines(cluster, "on-demand")) == 2, "the end of a Machine", seconds=SECONDS)
        observer.stays(
            lambda: (replicas(cluster, "on-demand"), len(machines(cluster, "on-demand"))), (2, 2), seconds=15
        )
    assert sum(observer.evicted().values()) == 1


@pytest.mark.cluster
def test_room_is_made_by_raising_replicas(cluster: ControlPlane, observer: Observer, capi: None) -> None:
    cluster.apply(SETUP)
    joined(cluster, observer, on_demand=2)
    cluster.apply([deployment(f"web{n}", 2, cpu="1800m") for n in range(2)])
    observer.running(4)
    cluster.apply([machine_deployment("spot", 1)])
    observer.nodes_ready(3)
    with Daemon(cluster, NO_DELAY, "--cloud-provider=clusterapi", "--make-room=provider"):
        observer.eventually(lambda: not machines(cluster, "on-demand"), "the end of all Machines", seconds=SECONDS)
        observer.running(4)
        assert replicas(cluster, "spot") == 2
