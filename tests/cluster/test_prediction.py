"""Replacement pods are predicted: controllers of all kinds create pods of the class that the plan was made for.

The prediction is derived from templates, or the creation of a pod is tried in a dry run.
"""

import re
from collections import Counter
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any, Final

import pytest

from devcluster import build, manifests
from devcluster.api import Json
from devcluster.errors import ApiError
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
from rescheduler.kube.unwatched import read_templates
from rescheduler.planning.outcome import Reason
from rescheduler.planning.replacements import Replacements
from tests.cluster.bad_days import FLAGS
from tests.cluster.daemon import Daemon
from tests.cluster.machines import machines
from tests.cluster.observer import Observer
from tests.cluster.predicted_workloads import ON_DELETE, replica_set, replication_controller, without_requests

STRATEGIC: Final = "application/strategic-merge-patch+json"
LIMITED: Final = "limited"  #: a namespace with a LimitRange
POLICIES: Final = "/apis/admissionregistration.k8s.io/v1/mutatingadmissionpolicies"
VALIDATING: Final = "/apis/admissionregistration.k8s.io/v1/validatingadmissionpolicies"
VALIDATING_BINDINGS: Final = "/apis/admissionregistration.k8s.io/v1/validatingadmissionpolicybindings"
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


#: The first minor version with MutatingAdmissionPolicies in the API v1.
MUTATING: Final = 36

#: The same with twice the CPU: running pods do not tell it.
LARGER: Final = INJECTION.replace("70m", "140m")


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
        "mutations": mutations(INJECTION),
    }
    api = {"apiVersion": "admissionregistration.k8s.io/v1"}
    return [
        {**api, "kind": "MutatingAdmissionPolicy", **meta, "spec": spec},
        {**api, "kind": "MutatingAdmissionPolicyBinding", **meta, "spec": {"policyName": "mesh"}},
    ]


def mutations(expression: str) -> list[Json]:
    return [{"patchType": "JSONPatch", "jsonPatch": {"expression": expression}}]


def injects(cluster: ControlPlane, cpu: str = "70m") -> bool:
    """Return whether the API server applies the policy to new pods, which it does some time after it has stored it."""
    created = cluster.api.post(
        "/api/v1/namespaces/default/pods", manifests.pod("probe", labels={"mesh": "on"}), dryRun="All"
    )
    added = created["spec"]["containers"][1:]
    return [container["resources"]["requests"]["cpu"] for container in added] == [cpu]


@pytest.fixture
def mesh(cluster: ControlPlane) -> Iterator[None]:
    """Install an admission policy that injects a sidecar."""
    cluster.apply(injection())
    cluster.wait_for(lambda: injects(cluster), "the effect of the policy")
    yield
    for path in (BINDINGS, POLICIES):
        cluster.api.delete(f"{path}/mesh")


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


def tried(kubeconfig: Path, before: Snapshot) -> Snapshot:
    """Add what dry runs say about the controllers of all pods in *before*."""
    owners = {(pod.namespace, pod.owner) for pod in before.pods.values() if pod.owner is not None}
    for kind, each in read_templates(Client(Kubeconfig(str(kubeconfig)), SystemClock()), owners, dry_run=True):
        before.upsert(kind, each)
    return before


def predicted(before: Snapshot) -> dict[str, dict[str, object]]:
    replacements = Replacements(before)
    return {workload_of(pod): essence(replacements.of(pod).cls) for pod in before.pods.values()}


def differing(one: dict[str, Any], other: dict[str, Any]) -> set[str]:
    return {name for name in one if one[name] != other[name]}


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


@pytest.mark.skipif(
    build.minor_version() < MUTATING, reason=f"MutatingAdmissionPolicies are served from Kubernetes 1.{MUTATING} on"
)
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
    derived = predicted(before)
    running = {workload_of(pod): essence(pod.cls) for pod in before.pods.values()}
    assert differing(running, derived) == DIFFERENT
    from_dry_runs = predicted(tried(cluster.kubeconfig, before))
    replace_all(cluster, observer)
    created = {workload_of(pod): essence(pod.cls) for pod in read(cluster.kubeconfig).pods.values()}
    assert len(created) == 21  # the two replicas of one Deployment are alike
    assert derived == created
    assert from_dry_runs == created

    cluster.api.patch(f"{POLICIES}/mesh", {"spec": {"mutations": mutations(LARGER)}})
    cluster.wait_for(lambda: injects(cluster, "140m"), "the effect of the new policy")
    before = read(cluster.kubeconfig)
    derived, from_dry_runs = predicted(before), predicted(tried(cluster.kubeconfig, before))
    replace_all(cluster, observer)
    created = {workload_of(pod): essence(pod.cls) for pod in read(cluster.kubeconfig).pods.values()}
    assert differing(created, derived) == {"mesh", "meshresized", "meshondelete 0"}
    assert from_dry_runs == created


def test_a_pod_that_admission_rejects_blocks_its_node(cluster: ControlPlane) -> None:
    observer = Observer(cluster)
    cluster.apply([spot("spot-1")])
    observer.open_all()
    cluster.apply([deployment("plain"), statefulset("steady"), deployment("other")])
    observer.eventually(lambda: len(all_running(observer)) == 3, "all pods run")
    cluster.apply(rejection())
    try:
        cluster.wait_for(lambda: not is_admitted(cluster), "the effect of the policy")
        cluster_state = tried(cluster.kubeconfig, read(cluster.kubeconfig))
    finally:
        for path in (VALIDATING_BINDINGS, VALIDATING):
            cluster.api.delete(f"{path}/licensed")
    found = Replacements(cluster_state).blockers(cluster_state.pods.values())
    blockers = {workload_of(cluster_state.pods[blocker.pod or ""]): blocker for blocker in found}
    assert set(blockers) == {"plain", "steady 0"}
    assert {blocker.reason for blocker in blockers.values()} == {Reason.ADMISSION_REJECTS}
    assert all("only pods with a license run here" in blocker.detail for blocker in blockers.values())


def test_the_daemon_plans_with_what_admission_makes_of_the_pods(cluster: ControlPlane, tmp_path: Path) -> None:
    """The pod runs, but a new policy rejects its replacement: nothing is evicted, and the next node is drained."""
    observer = Observer(cluster)
    with machines(observer, tmp_path, 2, 1) as pool:
        observer.start_on("od-1", deployment("plain"), pods=1)
        observer.start_on("od-2", deployment("other", 2), pods=2)
        observer.running(3)
        observer.open_all()
        cluster.apply(rejection())
        try:
            cluster.wait_for(lambda: not is_admitted(cluster), "the effect of the policy")
            with Daemon(cluster, *FLAGS, "--predict=dry-run", *pool.flags):
                observer.eventually(pool.ordered, "the removal of the other node")
        finally:
            for path in (VALIDATING_BINDINGS, VALIDATING):
                cluster.api.delete(f"{path}/licensed")
        assert pool.ordered() == ["od-2"]
        assert set(observer.evicted()) == {"default/other"}


def rejection() -> list[Json]:
    """Return a policy that rejects new pods of two apps, and its binding."""
    match = {
        "resourceRules": [{"apiGroups": [""], "apiVersions": ["v1"], "operations": ["CREATE"], "resources": ["pods"]}],
        "objectSelector": {"matchExpressions": [{"key": "app", "operator": "In", "values": ["plain", "steady"]}]},
    }
    deny = {"expression": "false", "message": "only pods with a license run here"}
    api = {"apiVersion": "admissionregistration.k8s.io/v1", "metadata": {"name": "licensed"}}
    return [
        {
            **api,
            "kind": "ValidatingAdmissionPolicy",
            "spec": {"matchConstraints": match, "validations": [deny], "failurePolicy": "Fail"},
        },
        {
            **api,
            "kind": "ValidatingAdmissionPolicyBinding",
            "spec": {"policyName": "licensed", "validationActions": ["Deny"]},
        },
    ]


def is_admitted(cluster: ControlPlane) -> bool:
    probe = manifests.pod("probe", labels={"app": "plain"})
    try:
        cluster.api.post("/api/v1/namespaces/default/pods", probe, dryRun="All")
    except ApiError:
        return False
    return True


def replace_all(cluster: ControlPlane, observer: Observer, seconds: float = 120) -> None:
    """Delete all pods, and wait until as many others of each app run: a controller may create one too many first."""
    pods = observer.pods()
    old, apps = {pod["metadata"]["uid"] for pod in pods}, by_app(pods)
    for pod in pods:
        cluster.api.delete(f"/api/v1/namespaces/{pod['metadata']['namespace']}/pods/{pod['metadata']['name']}")
    observer.eventually(
        lambda: by_app(all_running(observer)) == apps and not old & observer.uids(),
        "all pods run again",
        seconds=seconds,
    )


def by_app(pods: Iterable[Json]) -> Counter[str]:
    """Return the number of *pods* of each app."""
    return Counter(pod["metadata"]["labels"]["app"] for pod in pods)


def rolled_out(observer: Observer) -> list[Json]:
    """Return the pods with the new labels that a controller created without waiting for a deletion."""
    return [pod for pod in all_running(observer) if pod["metadata"]["labels"].get("version") == "2"]


def all_running(observer: Observer) -> list[Json]:
    return [pod for pod in observer.pods() if pod["status"].get("phase") == "Running"]
