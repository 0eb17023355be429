"""Attacks of a tenant who may edit one namespace: he sends all requests with his own token."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from itertools import count
from typing import Any, Final, TypeAlias

from devcluster.api import Api, Json
from devcluster.errors import ApiError
from devcluster.manifests import deployment, namespace, pdb, pod, statefulset
from devcluster.plane import ControlPlane
from devcluster.stages import NEVER, READY_ON, START_AFTER
from rescheduler.settings import LEASE, MEMORY_NAME
from tests.cluster.daemon import prefers

TENANT: Final = "tenant"
POD: Final = f"/api/v1/namespaces/{TENANT}/pods"
CORE: Final = f"/api/v1/namespaces/{TENANT}"
APPS: Final = f"/apis/apps/v1/namespaces/{TENANT}"

#: What his requests may be answered with: what he changes has changed already, or his quota is used up.
EXPECTED_ERRORS: Final = frozenset({404, 409, 422})


@dataclass
class Tenant:
    """His client, and what the attacks of a scene need."""

    api: Api
    admin: Api  #: of the administrator who sets his quotas
    others: list[Json]  #: ReplicaSets of the other namespace
    numbers: Iterator[int] = field(default_factory=lambda: count(1))
    denied: list[str] = field(default_factory=list)

    def workload(self, build: Callable[..., Json], app: str, replicas: int, node: str, **fields: Any) -> Json:
        """Create a workload whose pods prefer *node*."""
        fields.setdefault("affinity", prefers(node))
        [stored] = self.api.apply([build(app, replicas, namespace=TENANT, **({"cpu": "10m"} | fields))])
        return stored

    def owned(self, app: str, node: str, owner: Json, **fields: Any) -> Json:
        """Create a pod with this owner, under a new name."""
        fields.setdefault("affinity", prefers(node))
        manifest = pod(
            f"{app}-{next(self.numbers)}", namespace=TENANT, labels={"app": app}, **({"cpu": "10m"} | fields)
        )
        manifest["metadata"]["labels"] = {"app": app}
        manifest["metadata"]["ownerReferences"] = [{"controller": True} | owner]
        return self.api.post(POD, manifest)

    def config_map(self, name: str) -> Json:
        """Return a reference to a ConfigMap of his, as the owner of pods for which he plays the operator."""
        stored = self.api.post(f"{CORE}/configmaps", {"metadata": {"name": name}})
        return {"apiVersion": "v1", "kind": "ConfigMap", "name": name, "uid": stored["metadata"]["uid"]}

    def live(self, app: str) -> list[Json]:
        items = self.api.items(POD, labelSelector=f"app={app}")
        return [item for item in items if "deletionTimestamp" not in item["metadata"]]

    def delete(self, app: str) -> None:
        self.api.request("DELETE", POD, query={"labelSelector": f"app={app}", "gracePeriodSeconds": 0})

    def leave(self) -> None:
        """Delete his workloads, budgets and pods."""
        budgets = f"/apis/policy/v1/namespaces/{TENANT}/poddisruptionbudgets"
        for path in (f"{APPS}/deployments", f"{APPS}/statefulsets", budgets, POD):
            self.api.request("DELETE", path)

    def attempt(self, step: Callable[[], object]) -> None:
        """Make requests, and note those that he has no permission for."""
        try:
            step()
        except ApiError as error:
            if error.status not in EXPECTED_ERRORS and "exceeded quota" not in str(error):
                self.denied.append(str(error))


#: An attack creates objects, whose pods run on his node, and returns what he does again and again.
Attack: TypeAlias = Callable[[Tenant, str], Callable[[], object]]


def nothing() -> None:
    """Do nothing after the start."""


def undefined(**fields: str) -> Json:
    return {"apiVersion": "example.com/v1", "kind": "Widget", "name": "x", "uid": "1"} | fields


# Owners


def unreplaced(tenant: Tenant, node: str) -> Callable[[], object]:
    tenant.owned("unreplaced", node, undefined())
    return nothing


def slow_operator(tenant: Tenant, node: str) -> Callable[[], object]:
    """The pod is created again long after the landing timeout."""
    owner, missing = tenant.config_map("slow"), count()
    tenant.owned("slow", node, owner, cpu="1m")

    def step() -> None:
        if not tenant.live("slow") and next(missing) % 50 == 49:
            tenant.owned("slow", node, owner)

    return step


def cycle(tenant: Tenant, node: str) -> Callable[[], object]:
    """Two pods own each other."""
    first = tenant.owned("cycle", node, undefined())["metadata"]
    second = tenant.owned(
        "cycle", node, {"apiVersion": "v1", "kind": "Pod", "name": first["name"], "uid": first["uid"]}
    )
    owner = {"apiVersion": "v1", "kind": "Pod", "name": second["metadata"]["name"], "uid": second["metadata"]["uid"]}
    change = {"metadata": {"ownerReferences": [owner | {"controller": True}]}}
    tenant.api.patch(f"{POD}/{first['name']}", change)
    return nothing


def owner_with(**fields: str) -> Attack:
    def attack(tenant: Tenant, node: str) -> Callable[[], object]:
        for _ in range(3):
            tenant.owned("texts", node, undefined(**fields))
        return nothing

    return attack


def forged_owner(tenant: Tenant, node: str) -> Callable[[], object]:
    """The garbage collector deletes pods with an owner of another namespace, so he creates them again and again."""
    [other, *_] = tenant.others
    owner = {"apiVersion": "apps/v1", "kind": "ReplicaSet"}
    owner |= {"name": other["metadata"]["name"], "uid": other["metadata"]["uid"]}

    def step() -> None:
        if len(tenant.live("forged")) < 2:
            tenant.owned("forged", node, owner)

    step()
    return step


# Pods that do not come back


def never_ready(tenant: Tenant, node: str) -> Callable[[], object]:
    tenant.workload(deployment, "unready", 2, node, cpu="1m", annotations={READY_ON: "on-demand"})
    return nothing


def broken_image(tenant: Tenant, node: str) -> Callable[[], object]:
    """The template has changed since the pods were created."""
    stored = tenant.workload(statefulset, "broken", 2, node)
    container = {"name": "main", "image": "registry.invalid/broken:1"}
    template: Json = {"metadata": {"annotations": {START_AFTER: NEVER}}, "spec": {"containers": [container]}}
    tenant.api.patch(tenant.api.path(stored), {"spec": {"updateStrategy": {"type": "OnDelete", "rollingUpdate": None}}})

    def step() -> None:
        if len(tenant.live("broken")) == 2:
            tenant.api.patch(tenant.api.path(stored), {"spec": {"template": template}})

    return step


def endless(tenant: Tenant, node: str) -> Callable[[], object]:
    """A finalizer keeps the pods."""
    manifest = deployment("endless", 1, namespace=TENANT, cpu="1m", affinity=prefers(node))
    manifest["spec"]["template"]["metadata"]["finalizers"] = ["example.com/keep"]
    tenant.api.apply([manifest])
    return nothing


def scaled_down(tenant: Tenant, node: str) -> Callable[[], object]:
    stored = tenant.workload(deployment, "scaled", 2, node, cpu="1m")

    def step() -> None:
        if len(tenant.live("scaled")) == 1:
            tenant.api.patch(tenant.api.path(stored), {"spec": {"replicas": 1}})

    return step


def changing_quota(tenant: Tenant, node: str) -> Callable[[], object]:
    tenant.workload(deployment, "quota", 1, node)
    limit = {"apiVersion": "v1", "kind": "ResourceQuota", "metadata": {"name": "pods", "namespace": TENANT}}
    turns = count()

    def step() -> None:
        tenant.admin.apply([limit | {"spec": {"hard": {"pods": "0" if next(turns) % 4 == 3 else "500"}}}])

    return step


def forged_events(tenant: Tenant, node: str) -> Callable[[], object]:
    """Events that say that no pod can be created, although they are."""
    tenant.workload(deployment, "events", 1, node)

    def step() -> None:
        for item in tenant.api.items(f"{APPS}/replicasets", labelSelector="app=events"):
            meta = item["metadata"]
            about = {"kind": "ReplicaSet", "namespace": TENANT, "name": meta["name"], "uid": meta["uid"]}
            event: Json = {"involvedObject": about | {"apiVersion": "apps/v1"}, "reason": "FailedCreate"}
            event |= {"metadata": {"generateName": "e"}, "message": "\x1b[31mexceeded quota\u202e" * 40}
            event |= {"type": "Warning", "source": {"component": "replicaset-controller"}, "count": 1}
            tenant.api.post(f"{CORE}/events", event)

    return step


# Room


def pending(tenant: Tenant, _: str) -> Callable[[], object]:
    """Pods that nobody schedules, and pods that fit nowhere, created again and again."""

    def step() -> None:
        tenant.delete("waiting")
        for scheduler, cpu in (("nobody", "1"), ("nobody", "2"), ("default-scheduler", "1000")):
            name = f"waiting-{next(tenant.numbers)}"
            tenant.api.post(
                POD, pod(name, namespace=TENANT, labels={"app": "waiting"}, cpu=cpu, schedulerName=scheduler)
            )

    return step


def flapping(tenant: Tenant, node: str) -> Callable[[], object]:
    stored = tenant.workload(deployment, "flapping", 20, node, cpu="1m")
    turns = count()
    return lambda: tenant.api.patch(
        f"{tenant.api.path(stored)}/scale", {"spec": {"replicas": 20 * (next(turns) // 2 % 2)}}
    )


def repelling(tenant: Tenant, node: str) -> Callable[[], object]:
    term = {"topologyKey": "kubernetes.io/hostname", "labelSelector": {}, "namespaceSelector": {}}
    affinity = prefers(node) | {"podAntiAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [term]}}
    tenant.workload(deployment, "repelling", 1, node, affinity=affinity)
    return nothing


# Other objects


def budgets_over_others(tenant: Tenant, node: str) -> Callable[[], object]:
    tenant.workload(deployment, "budgets", 1, node)
    others = pdb("others", namespace=TENANT, max_unavailable=0)
    others["spec"]["selector"] = {"matchExpressions": [{"key": "app", "operator": "NotIn", "values": HIS_APPS}]}
    budgets = [pdb(f"web{n}", namespace=TENANT, app=f"web{n}", max_unavailable=0) for n in range(10)]
    tenant.api.apply([*budgets, others])
    return nothing


#: Apps beside the budget over all other pods.
HIS_APPS: Final = ("budgets", "unready", "quota", "annotation", "huge")


def closing_budget(tenant: Tenant, node: str) -> Callable[[], object]:
    tenant.workload(deployment, "closing", 2, node)
    turns = count()
    return lambda: tenant.api.apply([pdb("closing", namespace=TENANT, max_unavailable=next(turns) % 2)])


def our_names(tenant: Tenant, node: str) -> Callable[[], object]:
    """A Lease and a memory under the daemon's names, and a group with the name of another team's."""
    tenant.workload(deployment, "names", 1, node, labels={"scheduling.x-k8s.io/pod-group": "web0"})
    meta = {"name": LEASE, "annotations": {"spot-rescheduler/paused": "true"}}
    lease = {"metadata": meta, "spec": {"holderIdentity": "somebody", "leaseDurationSeconds": 100_000}}
    tenant.api.post(f"{CORE}/configmaps", {"metadata": {"name": MEMORY_NAME}, "data": {"memory": "x" * 100_000}})
    if may(tenant, "create", "coordination.k8s.io", "leases"):
        tenant.api.post(f"/apis/coordination.k8s.io/v1/namespaces/{TENANT}/leases", lease)
    return nothing


def may(tenant: Tenant, verb: str, api_group: str, resource: str) -> bool:
    """Return whether he has a permission. A subresource is written as `pods/status`."""
    resource, _, subresource = resource.partition("/")
    attributes = {
        "subresource": subresource,
        "namespace": TENANT,
        "verb": verb,
        "group": api_group,
        "resource": resource,
    }
    review = {"apiVersion": "authorization.k8s.io/v1", "kind": "SelfSubjectAccessReview"}
    answer = tenant.api.post(
        "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews", review | {"spec": {"resourceAttributes": attributes}}
    )
    return bool(answer["status"]["allowed"])


def long_annotation(tenant: Tenant, node: str) -> Callable[[], object]:
    annotations = {"karpenter.sh/do-not-disrupt": "1h" * 120_000}
    tenant.workload(deployment, "annotation", 1, node, annotations=annotations)
    return nothing


def huge(tenant: Tenant, node: str) -> Callable[[], object]:
    """Pods with many containers, tolerations and terms."""
    expressions = [{"key": f"k{n}", "operator": "NotIn", "values": [str(v) for v in range(50)]} for n in range(50)]
    terms = [{"topologyKey": f"example.com/t{n}", "labelSelector": {"matchExpressions": expressions}} for n in range(9)]
    affinity = prefers(node) | {"podAntiAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": terms}}
    tolerations = [{"key": f"example.com/{n}", "operator": "Exists"} for n in range(500)]
    containers = [{"name": f"c{n}", "image": "pause:3.10"} for n in range(200)]
    tenant.workload(deployment, "huge", 2, node, affinity=affinity, tolerations=tolerations, containers=containers)
    return nothing


@contextmanager
def client(cluster: ControlPlane) -> Iterator[Api]:
    """Return a client with the ClusterRole `edit` in the tenant's namespace, and no other permission."""
    account: Json = {"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": "he", "namespace": TENANT}}
    rbac = "rbac.authorization.k8s.io"
    binding: Json = {"apiVersion": f"{rbac}/v1", "kind": "RoleBinding", "metadata": {"name": "he", "namespace": TENANT}}
    binding["subjects"] = [{"kind": "ServiceAccount", "name": "he", "namespace": TENANT}]
    binding["roleRef"] = {"apiGroup": rbac, "kind": "ClusterRole", "name": "edit"}
    cluster.apply([namespace(TENANT), account, binding])
    review: Json = {"apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest"}
    review["spec"] = {"expirationSeconds": 86_400}
    token = cluster.api.post(f"{CORE}/serviceaccounts/he/token", review)["status"]["token"]
    with Api(cluster.server, ca=cluster.ca, token=token) as api:
        yield api
