"""What the ServiceAccount of the daemon may change of Machines, with the permissions and the policy that are shipped.

`make clusterapi` runs the daemon with the real controllers of Cluster API.
"""

import contextlib
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import pytest

from devcluster.api import Api, Json
from devcluster.errors import ApiError
from devcluster.manifests import custom_kind, deployment, on_demand, spot
from devcluster.plane import ControlPlane
from devcluster.standin.server import StandinServer
from rescheduler.clock import SystemClock
from rescheduler.execution.machine_objects import MachineObjects
from rescheduler.kube.client import Client
from rescheduler.kube.connection import Kubeconfig
from rescheduler.providers.base import Accepted, NodeRef
from rescheduler.providers.clusterapi import ClusterApiFile, ClusterApiProvider
from rescheduler.providers.clusterapi.machines import REMOVED
from rescheduler.providers.clusterapi.objects import OPENSHIFT
from tests.cluster.bad_days import FLAGS
from tests.cluster.daemon import Daemon
from tests.cluster.observer import Observer
from tests.cluster.rendering import chart, composed
from tests.cluster.test_control_plane import read_kubeconfig
from tests.kube.conftest import kubeconfig
from tests.providers.clusterapis import POOL, SPACE, MachineCluster, application

COMPONENT: Final[Json] = {"resources": ["../base"], "components": ["../components/clusterapi"]}
ACCOUNT: Final = "spot-rescheduler"
GROUP: Final = "cluster.x-k8s.io"
LEASE: Final = "/apis/coordination.k8s.io/v1/namespaces/spot-rescheduler/leases/k8s-spot-rescheduler"
FENCING: Final = "spot-rescheduler-fencing.spot-rescheduler.spot-rescheduler"
ROOT: Final = f"/apis/{GROUP}/v1beta2/namespaces/default"
MARK: Final = f"{GROUP}/delete-machine"
OPENSHIFT_MARK, OLDER_MARK = OPENSHIFT.marks


@dataclass(frozen=True)
class Account:
    """The ServiceAccount of the daemon."""

    api: Api
    kubeconfig: Path


def item(kind: str, name: str, spec: Json, owner: Json | None = None, **fields: Any) -> Json:
    meta: Json = {"name": name, "labels": {"a": "b"}, "annotations": {"c": "d"}}
    if owner is not None:
        uid, of = owner["metadata"]["uid"], {"apiVersion": owner["apiVersion"], "kind": owner["kind"]}
        meta["ownerReferences"] = [{**of, "name": owner["metadata"]["name"], "uid": uid, "controller": True}]
    return {"apiVersion": f"{GROUP}/v1beta2", "kind": kind, "metadata": meta, "spec": spec, **fields}


@pytest.fixture(params=["component", "chart"])
def account(request: pytest.FixtureRequest, cluster: ControlPlane, tmp_path: Path) -> Iterator[Account]:
    """Install what is shipped, by kustomize or Helm."""
    values = {"cloudProvider": {"name": "clusterapi"}}
    with installed(cluster, chart(values) if request.param == "chart" else composed(tmp_path, ours=COMPONENT)) as own:
        yield own


@contextlib.contextmanager
def installed(cluster: ControlPlane, objects: list[Json]) -> Iterator[Account]:
    """Install *objects* without the daemon, a Cluster, and a MachineDeployment with a Machine."""
    space = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "spot-rescheduler"}}
    kinds = [custom_kind(kind, GROUP, "v1beta2") for kind in ("Cluster", "MachineDeployment", "MachineSet", "Machine")]
    cluster.apply(kinds)
    for plural in ("clusters", "machinedeployments", "machinesets", "machines"):
        cluster.wait_for(lambda plural=plural: served(cluster, plural), f"{plural} to be served")  # type: ignore[misc]
    applied = cluster.apply([space, *(each for each in objects if each["kind"] not in ("Namespace", "Deployment"))])
    observed = {"status": {"observedGeneration": 1}}
    spec: Json = {"replicas": 1, "clusterName": "c"}
    [*_, deployment] = cluster.apply(
        [item("Cluster", "c", {}), item("MachineDeployment", "md", {**spec, "template": {"a": 1}}, **observed)]
    )
    limited = item("MachineSet", "ms", spec, deployment, **observed)
    limits = {
        f"{GROUP}/cluster-api-autoscaler-node-group-{key}-size": text for key, text in (("min", "1"), ("max", "5"))
    }
    limited["metadata"]["annotations"] |= limits
    [machine_set] = cluster.apply([limited])
    marked = item("Machine", "marked", {})
    marked["metadata"]["annotations"] |= {MARK: "true", OPENSHIFT_MARK: "", OLDER_MARK: "spot-rescheduler then"}
    cluster.apply([marked])
    cluster.apply([item("Machine", "m", {"providerID": "x://n"}, machine_set, status={"nodeRef": {"name": "n"}})])
    own = cluster.service_account_kubeconfig("spot-rescheduler", ACCOUNT)
    with Api(cluster.server, ca=cluster.ca, token=read_kubeconfig(own)[1]) as api:
        yield Account(api, own)
    for each in (*kinds, *applied[:0:-1]):
        cluster.api.delete(cluster.api.path(each))


def served(cluster: ControlPlane, plural: str) -> bool:
    with contextlib.suppress(ApiError):
        cluster.api.items(f"{ROOT}/{plural}")
        return True
    return False


#: A change → the beginning of why it is denied; "" if it is allowed.
CHANGES: Final[dict[str, tuple[str, Json, str]]] = {
    "a mark": ("machines/m", {"metadata": {"annotations": {MARK: "spot-rescheduler now"}}}, ""),
    "a mark of others": ("machines/m", {"metadata": {"annotations": {MARK: "true"}}}, "only own marks may be set"),
    "a mark instead of that of others": (
        "machines/marked",
        {"metadata": {"annotations": {MARK: "spot-rescheduler now"}}},
        "only own marks may be replaced",
    ),
    "the mark of others that goes": (
        "machines/marked",
        {"metadata": {"annotations": {MARK: None}}},
        "only own marks may be replaced",
    ),
    "a mark instead of none": (
        "machines/marked",
        {"metadata": {"annotations": {OPENSHIFT_MARK: "spot-rescheduler now"}}},
        "",
    ),
    "an own mark that goes": ("machines/marked", {"metadata": {"annotations": {OLDER_MARK: None}}}, ""),
    "another annotation": ("machines/m", {"metadata": {"annotations": {"x": "y"}}}, "only the mark of a Machine"),
    "an annotation that goes": ("machines/m", {"metadata": {"annotations": {"c": None}}}, "only the mark"),
    "a label": ("machines/m", {"metadata": {"labels": {"a": "c"}}}, "labels, finalizers and owners"),
    "labels that go": ("machinesets/ms", {"metadata": {"labels": None}}, "labels, finalizers and owners"),
    "a finalizer": ("machinesets/ms", {"metadata": {"finalizers": ["a/b"]}}, "labels, finalizers and owners"),
    "owners": ("machines/m", {"metadata": {"ownerReferences": None}}, "labels, finalizers and owners"),
    "the Machine": ("machines/m", {"spec": {"providerID": "x://other"}}, "of a spec, only replicas"),
    "one fewer": (
        "machinedeployments/md",
        {"spec": {"replicas": 0}, "metadata": {"annotations": {REMOVED: "uid now"}}},
        "",
    ),
    "more": ("machinesets/ms", {"spec": {"replicas": 5}}, ""),
    "more than the maximum": ("machinesets/ms", {"spec": {"replicas": 6}}, "replicas are lowered one by one"),
    "more without a maximum": ("machinedeployments/md", {"spec": {"replicas": 2}}, "replicas are lowered one by one"),
    "fewer than the minimum": ("machinesets/ms", {"spec": {"replicas": 0}}, "replicas are lowered one by one"),
    "two fewer": ("machinedeployments/md", {"spec": {"replicas": -1}}, "replicas are lowered one by one"),
    "a template": ("machinedeployments/md", {"spec": {"template": {"a": 2}}}, "of a spec, only replicas"),
    "a template that goes": ("machinedeployments/md", {"spec": {"template": None}}, "of a spec, only replicas"),
    "a new field": ("machinesets/ms", {"spec": {"deletion": {"order": "Oldest"}}}, "of a spec, only replicas"),
    "a mark of a group": ("machinesets/ms", {"metadata": {"annotations": {MARK: "spot-rescheduler"}}}, "only the mark"),
    "a Cluster": ("clusters/c", {"spec": {"paused": True}}, "clusters.cluster.x-k8s.io"),
}


def test_only_marks_and_replicas_may_be_changed(cluster: ControlPlane, account: Account) -> None:
    cluster.wait_for(lambda: denial(account, *CHANGES["a label"][:2]), "the policy", seconds=30)
    for fact, (path, change, why) in CHANGES.items():
        told = denial(account, path, change)
        assert told.startswith(why) if why else not told, f"{fact}: {told}"
    with pytest.raises(ApiError, match="forbidden"):
        account.api.delete(f"{ROOT}/machines/m")
    cluster.api.patch(f"{ROOT}/machines/m", {"metadata": {"labels": {"e": "f"}}})  # other clients are not limited
    removes(cluster, account)


def denial(account: Account, path: str, change: Json) -> str:
    """Return why a change is denied, by a dry run."""
    try:
        account.api.request("PATCH", f"{ROOT}/{path}", change, "application/merge-patch+json", {"dryRun": "All"})
    except ApiError as error:
        return str(error).rpartition("spot-rescheduler clusterapi: ")[2].removeprefix("403 Forbidden: ")
    return ""


def test_fencing_lets_only_the_leader_change_machines(cluster: ControlPlane, tmp_path: Path) -> None:
    fenced = {**COMPONENT, "components": [*COMPONENT["components"], "../components/fencing"]}
    path, change, _ = CHANGES["a mark"]
    with installed(cluster, composed(tmp_path, ours=fenced)) as own:
        cluster.wait_for(lambda: "is not bound to a pod" in denial(own, path, change), "the policy", seconds=30)
        binding = f"/apis/admissionregistration.k8s.io/v1/validatingadmissionpolicybindings/{FENCING}"
        cluster.api.delete(binding)  # without it, the Lease can be deleted, once the API server has noticed
        cluster.wait_for(lambda: can_delete(cluster, LEASE), "the end of the policy", seconds=60)


def can_delete(cluster: ControlPlane, path: str) -> bool:
    try:
        cluster.api.delete(path, dryRun="All")
    except ApiError:
        return False
    return True


def test_machines_are_removed_in_another_management_cluster(
    cluster: ControlPlane, observer: Observer, tmp_path: Path
) -> None:
    """No node is drained while it does not respond."""
    machines = MachineCluster(SystemClock(), seconds=1.0)
    machines.add_group(POOL, 1, 0)
    [machine] = machines.alive()
    name = machine["status"]["nodeRef"]["name"]
    cluster.apply([on_demand(name, providerID=machine["spec"]["providerID"]), spot("spot-1")])
    observer.nodes_ready(2)
    observer.start_on(name, deployment("web", 2), pods=2)
    observer.running(2)
    observer.open_all()
    config = tmp_path / "cloud-config"
    config.write_text(f"kubeconfig: kubeconfig\nnamespace: {SPACE}\n")
    machines.down = True
    with StandinServer(machines, application(machines)).running() as server:
        kubeconfig(tmp_path, server.url)
        with Daemon(cluster, *FLAGS, "--cloud-provider=clusterapi", f"--cloud-config={config}"):
            observer.stays(lambda: (observer.markings(), machines.ended), ([], []), seconds=3)
            machines.down = False
            observer.eventually(lambda: name not in observer.node_names(), "the end of the node")
    assert machines.item("machinedeployments", POOL)["spec"]["replicas"] == 0
    assert (len(machines.ended), observer.evicted()) == (1, {"default/web": 2})


def removes(cluster: ControlPlane, account: Account) -> None:
    """Check that the provider needs no more permissions."""
    clock = SystemClock()
    provider = ClusterApiProvider(ClusterApiFile(), clock, Path())
    provider.use_cluster(MachineObjects(Client(Kubeconfig(str(account.kubeconfig)), clock)))
    node = NodeRef("n", "x://n")
    deadline = clock.monotonic() + 5
    group = provider.group_for(node, deadline=deadline)
    assert group is not None
    outcomes = provider.delete_nodes(group.id, [node], deadline=deadline)
    assert isinstance(outcomes["n"], Accepted)
    assert cluster.api.get(f"{ROOT}/machinedeployments/md")["spec"]["replicas"] == 0
    notes = cluster.api.get(f"{ROOT}/machines/m")["metadata"]["annotations"]
    assert notes[MARK].startswith("spot-rescheduler ")
