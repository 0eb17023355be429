"""Replacement pods are predicted: controllers of all kinds create pods of the class that the plan was made for."""

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

import pytest

from devcluster import manifests
from devcluster.api import Json
from devcluster.manifests import deployment, job, namespace, spot, statefulset
from devcluster.plane import ControlPlane
from devcluster.stages import COMPLETE_AFTER, NEVER
from predicates.objects import Pod, PodClass
from predicates.snapshot import Snapshot
from rescheduler.clock import SystemClock
from rescheduler.kube.client import Client
from rescheduler.kube.connection import Kubeconfig
from rescheduler.kube.lister import ALL_RESOURCES
from rescheduler.kube.state import read_cluster
from rescheduler.planning.replacements import Replacements
from tests.cluster.observer import Observer

STRATEGIC: Final = "application/strategic-merge-patch+json"
LIMITED: Final = "limited"  #: a namespace with a LimitRange
POLICIES: Final = "/apis/admissionregistration.k8s.io/v1/mutatingadmissionpolicies"
BINDINGS: Final = "/apis/admissionregistration.k8s.io/v1/mutatingadmissionpolicybindings"

#: Labels that differ from pod to pod.
_OWN_LABELS: Final = ("batch.kubernetes.io/controller-uid", "controller-uid", "controller-revision-hash")
_RANDOM: Final = re.compile(r"kube-api-access-.*")

#: Adds a sidecar with a volume to pods with the label ``mesh``, and a toleration to those with the label ``tolerant``.
INJECTION: Final = """[
  JSONPatch{op: "add", path: "/spec/containers/-", value: Object.spec.containers{
    name: "proxy", image: "proxy:1",
    resources: Object.spec.containers.resources{requests: {"cpu": "70m", "memory": "32Mi"}}}}
]"""


def injection() -> list[Json]:
    """Return the policy that injects a sidecar, and its binding."""
    meta = {"metadata": {"name": "mesh"}}
    match = {
        "resourceRules": [{"apiGroups": [""], "apiVersions": ["v1"], "operations": ["CREATE"], "resources": ["pods"]}]
    }
    spec = {
        "matchConstraints": match | {"objectSelector": {"matchLabels": {"mesh": "on"}}},
        "failurePolicy": "Fail",
        "reinvocationPolicy": "Never",
        "mutations": [{"patchType": "JSONPatch", "jsonPatch": {"expression": INJECTION}}],
    }
    api = {"apiVersion": "admissionregistration.k8s.io/v1"}
    return [
        {**api, "kind": "MutatingAdmissionPolicy", **meta, "spec": spec},
        {**api, "kind": "MutatingAdmissionPolicyBinding", **meta, "spec": {"policyName": "mesh"}},
    ]


def injects(cluster: ControlPlane) -> bool:
    """Return whether the API server applies the policy to new pods, which it does some time after it has stored it."""
    created = cluster.api.post(
        "/api/v1/namespaces/default/pods", manifests.pod("probe", labels={"mesh": "on"}), dryRun="All"
    )
    return len(created["spec"]["containers"]) > 1


@pytest.fixture
def mesh(cluster: ControlPlane) -> Iterator[None]:
    """Install an admission policy that injects a sidecar."""
    cluster.apply(injection())
    cluster.wait_for(lambda: injects(cluster), "the effect of the policy")
    yield
    for path in (BINDINGS, POLICIES):
        cluster.api.delete(f"{path}/mesh")


def without_requests(workload: Json) -> Json:
    for container in workload["spec"]["template"]["spec"]["containers"]:
        container["resources"] = {}
    return workload


def with_init(workload: Json, cpu: str, **fields: Any) -> Json:
    init = {"name": "init", "image": "init:1", "resources": {"requests": {"cpu": cpu}}, **fields}
    workload["spec"]["template"]["spec"]["initContainers"] = [init]
    return workload


def with_strategy(workload: Json, strategy: Json) -> Json:
    workload["spec"]["updateStrategy"] = strategy
    return workload


def with_limits(workload: Json) -> Json:
    [container] = workload["spec"]["template"]["spec"]["containers"]
    container["resources"] = {"limits": {"cpu": "300m", "memory": "96Mi"}}
    return workload


def replication_controller(name: str) -> Json:
    workload = deployment(name)
    spec = workload["spec"]
    return {
        **workload,
        "apiVersion": "v1",
        "kind": "ReplicationController",
        "spec": {**spec, "selector": spec["selector"]["matchLabels"]},
    }


def replica_set(name: str, **fields: Any) -> Json:
    return {**deployment(name, **fields), "kind": "ReplicaSet"}


ON_DELETE: Final = {"type": "OnDelete"}
FROM_1: Final = {"type": "RollingUpdate", "rollingUpdate": {"partition": 1}}
MESH: Final[dict[str, Any]] = {"labels": {"mesh": "on"}}
SPREAD: Final = [
    {
        "maxSkew": 1,
        "topologyKey": "kubernetes.io/hostname",
        "whenUnsatisfiable": "ScheduleAnyway",
        "labelSelector": {"matchLabels": {"app": "spread"}},
    }
]

#: The workloads, by the name of their app.
WORKLOADS: Final = [
    deployment("plain"),
    deployment("resized"),
    deployment("paused"),
    deployment("mesh", **MESH),
    deployment("meshresized", **MESH),
    deployment("spread", 2, topologySpreadConstraints=SPREAD),
    deployment("tolerant", tolerations=[{"key": "x", "operator": "Exists"}]),
    with_init(deployment("init"), "400m"),
    with_init(deployment("native"), "50m", restartPolicy="Always"),
    with_limits(deployment("limits")),
    replica_set("bare"),
    replica_set("barechanged"),
    replication_controller("controller"),
    statefulset("steady"),
    with_strategy(statefulset("ondelete"), ON_DELETE),
    with_strategy(statefulset("partition", 2), FROM_1),
    with_strategy(statefulset("meshondelete", **MESH), ON_DELETE),
    with_strategy(without_requests(statefulset("defaulted", namespace=LIMITED)), ON_DELETE),
    without_requests(deployment("limited", namespace=LIMITED)),
    job("batch", annotations={COMPLETE_AFTER: NEVER}),
]

APPS: Final = "/apis/apps/v1/namespaces"

#: Changed templates, by the path of the workload: pods that exist already keep what they have.
CHANGED: Final[dict[str, Json]] = {
    f"{APPS}/default/deployments/paused": {"paused": True},
    f"{APPS}/default/replicasets/barechanged": {},
    f"{APPS}/default/statefulsets/ondelete": {},
    f"{APPS}/default/statefulsets/partition": {},
    f"{APPS}/default/statefulsets/meshondelete": {},
    f"{APPS}/{LIMITED}/statefulsets/defaulted": {},
}


#: The pods whose replacements differ from them.
DIFFERENT: Final = {
    *("resized", "meshresized", "barechanged", "defaulted 0", "meshondelete 0", "ondelete 0"),
}


def change_templates(cluster: ControlPlane) -> None:
    """Give the pod templates of CHANGED other requests, labels and node selectors."""
    for path, spec in CHANGED.items():
        template = cluster.api.get(path)["spec"]["template"]
        [container] = template["spec"]["containers"]
        resources = {} if LIMITED in path else {"requests": {"cpu": "150m", "memory": "80Mi"}}
        new: Json = {
            "containers": [{**container, "resources": resources}],
            "nodeSelector": {"kubernetes.io/os": "linux"},
        }
        cluster.api.patch(path, {"spec": {**spec, "template": {"metadata": {"labels": {"version": "2"}}, "spec": new}}})


def resize(cluster: ControlPlane, observer: Observer, app: str) -> None:
    """Resize the main container of the pods of *app* in place."""
    for pod in observer.pods(app):
        path = f"/api/v1/namespaces/default/pods/{pod['metadata']['name']}"
        reported = [{"name": container["name"], "resources": {}} for container in pod["spec"]["containers"]]
        cluster.api.patch(f"{path}/status", {"status": {"containerStatuses": reported}}, STRATEGIC)  # as a kubelet does
        main = {"name": "main", "resources": {"requests": {"cpu": "250m"}}}
        cluster.api.patch(f"{path}/resize", {"spec": {"containers": [main]}}, STRATEGIC)


def limit_range() -> Json:
    limits = {"type": "Container", "defaultRequest": {"cpu": "120m"}, "default": {"cpu": "1", "memory": "128Mi"}}
    meta = {"name": "defaults", "namespace": LIMITED}
    return {"apiVersion": "v1", "kind": "LimitRange", "metadata": meta, "spec": {"limits": [limits]}}


def read(kubeconfig: Path) -> Snapshot:
    clock = SystemClock()
    return read_cluster(Client(Kubeconfig(str(kubeconfig)), clock), clock, resources=ALL_RESOURCES)


def workload_of(pod: Pod) -> str:
    """Return the app of *pod*, with its ordinal if it has one."""
    ordinal = pod.name.rpartition("-")[2] if pod.owner is not None and pod.owner.kind == "StatefulSet" else ""
    return f"{pod.cls.labels['app']} {ordinal}".strip()


def essence(cls: PodClass) -> dict[str, object]:
    """Return what the scheduler, the quotas and the drain see of a class of pods."""
    spec = cls.spec
    return {
        "labels": {key: value for key, value in cls.labels.items() if key not in _OWN_LABELS},
        "requests": dict(cls.requests),
        "containers": sorted(container.name for container in (*spec.containers, *spec.init_containers)),
        "volumes": sorted(volume.name for volume in spec.volumes if not _RANDOM.fullmatch(volume.name)),
        "tolerations": sorted(map(str, spec.tolerations)),
        "selector": dict(spec.node_selector),
        "affinity": spec.affinity,
        "spread": spec.topology_spread_constraints,
        "priority": spec.priority,
        "scheduler": spec.scheduler_name,
        "ports": cls.ports,
        "claims": cls.claims,
    }


def test_the_predicted_pods_are_created(cluster: ControlPlane, mesh: None) -> None:
    observer = Observer(cluster)
    cluster.apply([spot("spot-1"), spot("spot-2"), namespace(LIMITED), limit_range()])
    observer.open_all()
    cluster.apply(WORKLOADS)
    observer.eventually(lambda: len(all_running(observer)) == 22, "all pods run")
    change_templates(cluster)
    for app in ("resized", "meshresized"):
        resize(cluster, observer, app)
    observer.eventually(lambda: len(rolled_out(observer)) == 1, "the roll-out from the partition on")
    observer.eventually(lambda: len(all_running(observer)) == 22, "all pods run")
    before = read(cluster.kubeconfig)
    replacements = Replacements(before)
    predicted = {workload_of(pod): essence(replacements.of(pod).cls) for pod in before.pods.values()}
    running = {workload_of(pod): essence(pod.cls) for pod in before.pods.values()}
    assert {name for name in running if running[name] != predicted[name]} == DIFFERENT
    old = {pod["metadata"]["uid"] for pod in observer.pods()}
    for pod in observer.pods():
        cluster.api.delete(f"/api/v1/namespaces/{pod['metadata']['namespace']}/pods/{pod['metadata']['name']}")
    observer.eventually(
        lambda: len(all_running(observer)) == 22 and not old & observer.uids(), "all pods run again", seconds=120
    )
    created = {workload_of(pod): essence(pod.cls) for pod in read(cluster.kubeconfig).pods.values()}
    assert len(created) == 21  # the two replicas of one Deployment are alike
    assert predicted == created


def rolled_out(observer: Observer) -> list[Json]:
    """Return the pods with the new labels that a controller created without waiting for a deletion."""
    return [pod for pod in all_running(observer) if pod["metadata"]["labels"].get("version") == "2"]


def all_running(observer: Observer) -> list[Json]:
    return [pod for pod in observer.pods() if pod["status"].get("phase") == "Running"]
