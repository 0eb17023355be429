"""What the owner of a stolen token of the daemon may try: tables of verb, object and field.

Each request is a dry run, which is authorized and admitted like any other. SECURITY.md has a row for each group.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

import yaml

from devcluster.api import Api, Json
from devcluster.errors import ApiError
from devcluster.manifests import node, pod
from devcluster.plane import INSTALLATION, ControlPlane
from rescheduler.settings import LEASE, MEMORY_NAME, SAVINGS_NAME
from tests.cluster.rights import user

ACCOUNT: Final = "spot-rescheduler"
MERGE: Final = "application/merge-patch+json"
STRATEGIC: Final = "application/strategic-merge-patch+json"
JSON_PATCH: Final = "application/json-patch+json"
APPLY: Final = "application/apply-patch+yaml"
PLAIN: Final = "application/json"

NODE: Final = "/api/v1/nodes/n1"
POD: Final = "/api/v1/namespaces/default/pods/p1"
CORE: Final = f"/api/v1/namespaces/{INSTALLATION}"
LEASES: Final = "/apis/coordination.k8s.io/v1/namespaces"
OURS: Final = f"{LEASES}/{INSTALLATION}/leases/{LEASE}"
MEMORY: Final = f"{CORE}/configmaps/{MEMORY_NAME}"
SAVINGS: Final = f"{CORE}/configmaps/{SAVINGS_NAME}"
RBAC: Final = "/apis/rbac.authorization.k8s.io/v1"
ADMISSION: Final = "/apis/admissionregistration.k8s.io/v1"

TAINT: Final = "status-taint.cluster-autoscaler.kubernetes.io/spot-rescheduler-"
FOREIGN: Final[Json] = {"key": "example.org/reserved", "effect": "NoSchedule"}
OWNER: Final[Json] = {"apiVersion": "v1", "kind": "ConfigMap", "name": "gone", "uid": "no-such-object"}
CONFIG_MAP: Final[Json] = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "aws-auth"}}
ANOTHER_LEASE: Final[Json] = {
    "apiVersion": "coordination.k8s.io/v1",
    "kind": "Lease",
    "metadata": {"name": "cluster-autoscaler"},
}
EVENT: Final[Json] = {
    "apiVersion": "v1",
    "kind": "Event",
    "metadata": {"generateName": "e", "namespace": "default"},
    "involvedObject": {"kind": "Node", "name": "n1"},
    "reason": "Tested",
}


@dataclass(frozen=True)
class Try:
    """A request. *body* may contain UID, which is replaced by that of the object at *path*."""

    method: str
    path: str
    body: Any = None
    content_type: str = PLAIN
    headers: Mapping[str, str] | None = None


def merge(path: str, **fields: Any) -> Try:
    return Try("PATCH", path, fields, MERGE)


def apply(path: str, kind: str, version: str = "v1", **fields: Any) -> Try:
    metadata = {"name": path.rpartition("/")[2], **fields.pop("metadata", {})}
    return Try("PATCH", path, {"apiVersion": version, "kind": kind, "metadata": metadata, **fields}, APPLY)


def taints(*ours: Json) -> Try:
    """Replace the taints of the Node, of which the first is another program's."""
    return merge(NODE, spec={"taints": list(ours)})


def ours(name: str = "draining", effect: str = "NoSchedule") -> Json:
    return {"key": TAINT + name, "effect": effect, "value": "x"}


def evict(*, version: str = "policy/v1", **options: Any) -> Try:
    metadata = {"name": "p1", "namespace": "default"}
    body = {
        "apiVersion": version,
        "kind": "Eviction",
        "metadata": metadata,
        "deleteOptions": {"dryRun": ["All"], **options},
    }
    return Try("POST", f"{POD}/eviction", body)


UID: Final = "the UID of the object"
SAME: Final[Json] = {"preconditions": {"uid": UID}, "dryRun": ["All"]}  # the options in a body replace the query

#: What the daemon does, and must be able to do.
ALLOWED: Final[dict[str, Try]] = {
    "patch a Node: our taint": taints(FOREIGN, ours()),
    "patch a Node: our soft taint": taints(FOREIGN, ours("prefer-spot", "PreferNoSchedule")),
    "patch a Node: our taint, by server-side apply": apply(NODE, "Node", spec={"taints": [FOREIGN, ours()]}),
    "patch a Node: cordon": merge(NODE, spec={"unschedulable": True}),
    "patch a Node: our annotation": merge(NODE, metadata={"annotations": {"spot-rescheduler/drain": "x"}}),
    "patch a Node: remove our annotation": merge(NODE, metadata={"annotations": {"spot-rescheduler/old": None}}),
    "evict a pod with its UID": evict(**SAME),
    "evict a pod with its UID and a grace period": evict(**SAME, gracePeriodSeconds=1),
    "patch our Lease": merge(OURS, spec={"holderIdentity": "a_1"}),
    "patch our Lease: our annotation": merge(OURS, metadata={"annotations": {"spot-rescheduler/paused": "true"}}),
    "patch the memory": merge(MEMORY, binaryData={"memory": "YQ=="}),
    "patch the ledger": merge(SAVINGS, data={"summary": "x"}),
    "create an Event": Try("POST", "/api/v1/namespaces/default/events", EVENT),
}

DEFAULT: Final = "/api/v1/namespaces/default"
SYSTEM: Final = "/api/v1/namespaces/kube-system"
POLICY: Final = "/apis/policy"
SECRET: Final[Json] = {"apiVersion": "v1", "kind": "Secret", "metadata": {"name": "x"}}
BINDING: Final[Json] = {
    "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "cluster-admin"},
    "subjects": [{"kind": "ServiceAccount", "name": ACCOUNT, "namespace": INSTALLATION}],
    "metadata": {"name": "x"},
}
EVERYTHING: Final[list[Json]] = [{"apiGroups": ["*"], "resources": ["*"], "verbs": ["*"]}]
DEBUGGER: Final[list[Json]] = [{"name": "debug", "image": "debug", "targetContainerName": "main"}]


def impersonating(**headers: str) -> Try:
    """Read what the role permits to read, as somebody else."""
    return Try("GET", NODE, headers={f"Impersonate-{name}": value for name, value in headers.items()})


#: What the role does not permit.
NO_RIGHT: Final[dict[str, Try]] = {
    # Nodes and their kubelets
    "delete a Node": Try("DELETE", NODE, SAME),
    "delete all Nodes": Try("DELETE", "/api/v1/nodes"),
    "create a Node": Try("POST", "/api/v1/nodes", node("n2")),
    "create a Node by server-side apply": apply("/api/v1/nodes/n2", "Node"),
    "update a Node": Try("PUT", NODE, node("n1")),
    "update a Node's status": Try("PUT", f"{NODE}/status", node("n1")),
    "patch a Node's status": merge(f"{NODE}/status", status={"capacity": {"pods": "0"}}),
    "patch a Node's status, strategic": Try("PATCH", f"{NODE}/status", {"status": {"conditions": []}}, STRATEGIC),
    "patch a Node's status by server-side apply": apply(f"{NODE}/status", "Node", metadata={"name": "n1"}, status={}),
    "reach a kubelet": Try("GET", f"{NODE}/proxy/pods"),
    "reach a kubelet at its port": Try("GET", "/api/v1/nodes/https:n1:10250/proxy/configz"),
    "run a command through a kubelet": Try("POST", f"{NODE}/proxy/run/default/p1/main?command=id"),
    # pods
    "delete a pod": Try("DELETE", POD),
    "delete a pod at once": Try("DELETE", POD, {"gracePeriodSeconds": 0, "dryRun": ["All"]}),
    "delete all pods": Try("DELETE", f"{DEFAULT}/pods"),
    "resize a pod": merge(f"{POD}/resize", spec={}),
    "patch a pod": merge(POD, metadata={"labels": {"a": "b"}}),
    "patch a pod by server-side apply": apply(POD, "Pod", metadata={"name": "p1", "finalizers": ["a.b/x"]}),
    "update a pod": Try("PUT", POD, pod("p1")),
    "patch a pod's status": merge(f"{POD}/status", status={"phase": "Failed"}),
    "create a pod": Try("POST", f"{DEFAULT}/pods", pod("p2")),
    "create a pod by server-side apply": apply(f"{DEFAULT}/pods/p2", "Pod", spec=pod("p2")["spec"]),
    "create a pod in our namespace": Try("POST", f"{CORE}/pods", pod("p2", namespace=INSTALLATION)),
    "run a command in a pod": Try("POST", f"{POD}/exec?command=id"),
    "run a command in a pod by GET": Try("GET", f"{POD}/exec?command=id"),
    "attach to a pod": Try("POST", f"{POD}/attach"),
    "forward a port of a pod": Try("POST", f"{POD}/portforward"),
    "reach a port of a pod": Try("GET", f"{POD}/proxy/"),
    "reach a Service": Try("GET", f"{DEFAULT}/services/kubernetes/proxy/"),
    "read the log of a pod": Try("GET", f"{POD}/log"),
    "add a container to a pod": merge(f"{POD}/ephemeralcontainers", spec={"ephemeralContainers": DEBUGGER}),
    "add a container to a pod, strategic": Try(
        "PATCH", f"{POD}/ephemeralcontainers", {"spec": {"ephemeralContainers": DEBUGGER}}, STRATEGIC
    ),
    "add a container to a pod, update": Try("PUT", f"{POD}/ephemeralcontainers", pod("p1")),
    "bind a pod": Try("POST", f"{POD}/binding", {"apiVersion": "v1", "kind": "Binding", "target": {"name": "n1"}}),
    "bind a pod by name": Try("POST", f"{DEFAULT}/bindings", {"metadata": {"name": "p1"}, "target": {"name": "n1"}}),
    # Secrets, tokens and identities
    "read Secrets": Try("GET", "/api/v1/secrets"),
    "read Secrets of our namespace": Try("GET", f"{CORE}/secrets"),
    "read a Secret": Try("GET", f"{SYSTEM}/secrets/x"),
    "watch Secrets": Try("GET", "/api/v1/watch/secrets"),
    "create a Secret": Try("POST", f"{CORE}/secrets", SECRET),
    "create a Secret by server-side apply": apply(f"{CORE}/secrets/x", "Secret"),
    "delete all Secrets": Try("DELETE", f"{CORE}/secrets"),
    "create a token": Try("POST", f"{CORE}/serviceaccounts/{ACCOUNT}/token", {"spec": {}}),
    "create a token of a controller": Try("POST", f"{SYSTEM}/serviceaccounts/node-controller/token", {"spec": {}}),
    "create a ServiceAccount": Try("POST", f"{CORE}/serviceaccounts", {"metadata": {"name": "x"}}),
    "patch a ServiceAccount": merge(f"{CORE}/serviceaccounts/{ACCOUNT}", secrets=[{"name": "x"}]),
    "delete a ServiceAccount": Try("DELETE", f"{CORE}/serviceaccounts/{ACCOUNT}"),
    "review a token": Try("POST", "/apis/authentication.k8s.io/v1/tokenreviews", {"spec": {"token": "x"}}),
    "ask for a certificate": Try(
        "POST", "/apis/certificates.k8s.io/v1/certificatesigningrequests", {"metadata": {"name": "x"}, "spec": {}}
    ),
    "approve a certificate": merge("/apis/certificates.k8s.io/v1/certificatesigningrequests/x/approval", status={}),
    "impersonate a user": impersonating(User="kubernetes-admin"),
    "impersonate an administrator": impersonating(User="x", Group="system:masters"),
    "impersonate a group": impersonating(User=user(INSTALLATION, ACCOUNT), Group="system:masters"),
    "impersonate a ServiceAccount": impersonating(User=user("kube-system", "node-controller")),
    "impersonate another ServiceAccount of the namespace": impersonating(User=user(INSTALLATION, "default")),
    "impersonate a node": impersonating(User="system:node:n1", Group="system:nodes"),
    "impersonate a UID": impersonating(User=user(INSTALLATION, ACCOUNT), Uid="x"),
    "impersonate with further attributes": impersonating(User="x", **{"Extra-scopes": "all"}),
    # roles and admission
    "grant itself more": merge(f"{RBAC}/clusterroles/{ACCOUNT}", rules=EVERYTHING),
    "grant itself more by server-side apply": apply(
        f"{RBAC}/clusterroles/{ACCOUNT}", "ClusterRole", "rbac.authorization.k8s.io/v1", rules=EVERYTHING
    ),
    "grant itself more in our namespace": merge(f"{RBAC}/namespaces/{INSTALLATION}/roles/{ACCOUNT}", rules=EVERYTHING),
    "create a ClusterRole": Try("POST", f"{RBAC}/clusterroles", {"metadata": {"name": "x"}, "rules": EVERYTHING}),
    "create a Role": Try("POST", f"{RBAC}/namespaces/{INSTALLATION}/roles", {"metadata": {"name": "x"}, "rules": []}),
    "bind itself to a role": Try("POST", f"{RBAC}/clusterrolebindings", BINDING),
    "bind itself to a role in a namespace": Try("POST", f"{RBAC}/namespaces/kube-system/rolebindings", BINDING),
    "bind itself by server-side apply": Try("PATCH", f"{RBAC}/clusterrolebindings/x", BINDING, APPLY),
    "bind others to its role": merge(f"{RBAC}/clusterrolebindings/{ACCOUNT}", subjects=[]),
    "delete its binding": Try("DELETE", f"{RBAC}/clusterrolebindings/{ACCOUNT}"),
    "bind itself with the old version": Try("POST", f"{RBAC}beta1/clusterrolebindings", BINDING),
    "delete the limits": Try("DELETE", f"{ADMISSION}/validatingadmissionpolicybindings/spot-rescheduler-limits"),
    "delete all limits": Try("DELETE", f"{ADMISSION}/validatingadmissionpolicybindings"),
    "patch the limits": merge(f"{ADMISSION}/validatingadmissionpolicies/spot-rescheduler-limits", spec={}),
    "create a webhook": Try("POST", f"{ADMISSION}/mutatingwebhookconfigurations", {"metadata": {"name": "x"}}),
    "create an APIService": Try("POST", "/apis/apiregistration.k8s.io/v1/apiservices", {"metadata": {"name": "x"}}),
    "create a kind": Try(
        "POST", "/apis/apiextensions.k8s.io/v1/customresourcedefinitions", {"metadata": {"name": "x"}}
    ),
    # ConfigMaps and Leases
    "create a ConfigMap in kube-system": Try("POST", f"{SYSTEM}/configmaps", CONFIG_MAP),
    "create a ConfigMap of our name in kube-system": apply(f"{SYSTEM}/configmaps/{MEMORY_NAME}", "ConfigMap"),
    "create a ConfigMap in our namespace": Try("POST", f"{CORE}/configmaps", CONFIG_MAP),
    "create a ConfigMap by server-side apply": apply(f"{CORE}/configmaps/aws-auth", "ConfigMap"),
    "patch another ConfigMap": merge(f"{CORE}/configmaps/kube-root-ca.crt", data={"ca.crt": ""}),
    "patch the ConfigMap of the API server's certificates": merge(
        f"{SYSTEM}/configmaps/extension-apiserver-authentication", data={"requestheader-client-ca-file": ""}
    ),
    "patch CoreDNS": merge(f"{SYSTEM}/configmaps/coredns", data={"Corefile": ""}),
    "read another ConfigMap": Try("GET", f"{SYSTEM}/configmaps/coredns"),
    "list ConfigMaps": Try("GET", f"{CORE}/configmaps"),
    "delete the memory": Try("DELETE", MEMORY),
    "delete all ConfigMaps": Try("DELETE", f"{CORE}/configmaps"),
    "update the memory": Try("PUT", MEMORY, CONFIG_MAP | {"metadata": {"name": MEMORY_NAME}}),
    "create a Lease in kube-system": Try("POST", f"{LEASES}/kube-system/leases", ANOTHER_LEASE),
    "create a Lease by server-side apply": apply(
        f"{LEASES}/kube-system/leases/cluster-autoscaler", "Lease", "coordination.k8s.io/v1"
    ),
    "create a Lease of our name in kube-system": apply(
        f"{LEASES}/kube-system/leases/{LEASE}", "Lease", "coordination.k8s.io/v1"
    ),
    "create a Lease in our namespace": Try("POST", f"{LEASES}/{INSTALLATION}/leases", ANOTHER_LEASE),
    "patch the Lease of a node": merge(f"{LEASES}/kube-node-lease/leases/n1", spec={"holderIdentity": "x"}),
    "patch the Lease of the scheduler": merge(
        f"{LEASES}/kube-system/leases/kube-scheduler", spec={"holderIdentity": ""}
    ),
    "patch the Lease of the scheduler, old version": Try(
        "PATCH",
        f"{LEASES.replace('v1', 'v1beta1')}/kube-system/leases/kube-scheduler",
        {"spec": {"holderIdentity": ""}},
        MERGE,
    ),
    "update our Lease": Try("PUT", OURS, ANOTHER_LEASE | {"metadata": {"name": LEASE}}),
    "delete our Lease": Try("DELETE", OURS),
    "delete all Leases of our namespace": Try("DELETE", f"{LEASES}/{INSTALLATION}/leases"),
    # budgets, workloads and the rest
    "patch a PodDisruptionBudget": merge(f"{POLICY}/v1/namespaces/default/poddisruptionbudgets/b", spec={}),
    "patch the status of a PodDisruptionBudget": merge(
        f"{POLICY}/v1/namespaces/default/poddisruptionbudgets/b/status", status={"disruptionsAllowed": 9}
    ),
    "patch a PodDisruptionBudget with the old version": merge(
        f"{POLICY}/v1beta1/namespaces/default/poddisruptionbudgets/b", spec={}
    ),
    "delete all PodDisruptionBudgets": Try("DELETE", f"{POLICY}/v1/namespaces/default/poddisruptionbudgets"),
    "patch a Deployment": merge("/apis/apps/v1/namespaces/default/deployments/d", spec={"replicas": 0}),
    "patch a Deployment with the old version": merge(
        "/apis/extensions/v1beta1/namespaces/default/deployments/d", spec={"replicas": 0}
    ),
    "scale a Deployment": merge("/apis/apps/v1/namespaces/default/deployments/d/scale", spec={"replicas": 0}),
    "delete all ReplicaSets": Try("DELETE", "/apis/apps/v1/namespaces/default/replicasets"),
    "create a DaemonSet": Try("POST", "/apis/apps/v1/namespaces/default/daemonsets", {"metadata": {"name": "x"}}),
    "create a Job": Try("POST", "/apis/batch/v1/namespaces/default/jobs", {"metadata": {"name": "x"}}),
    "delete a namespace": Try("DELETE", DEFAULT),
    "delete a volume": Try("DELETE", "/api/v1/persistentvolumes/x"),
    "patch a claim": merge(f"{DEFAULT}/persistentvolumeclaims/x", spec={}),
    "create a PriorityClass": Try("POST", "/apis/scheduling.k8s.io/v1/priorityclasses", {"metadata": {"name": "x"}}),
    "delete Events": Try("DELETE", f"{DEFAULT}/events"),
    "create an Event with the new version": Try(
        "POST", "/apis/events.k8s.io/v1/namespaces/default/events", {"metadata": {"name": "x"}}
    ),
    "read the debug pages": Try("GET", "/debug/pprof/heap"),
    "read the API server's logs": Try("GET", "/logs/"),
}

STATE: Final = "the ConfigMaps with the state may not become immutable"
METADATA: Final = "of the metadata, only annotations may be changed"
ANNOTATIONS: Final = "only annotations with the prefix spot-rescheduler/ may be changed"
SPEC: Final = "of a Node's spec, only taints and unschedulable may be changed"
TAINTS: Final = "only taints status-taint.cluster-autoscaler.kubernetes.io/spot-rescheduler-"
EVICTION: Final = "a pod may be evicted only with its UID as precondition"
STATUS: Final = "of a Node's status, only the condition DrainInProgress with the reason SpotRescheduler may be added"
AT_ONCE: Final = "a pod may not be evicted without a grace period"
DELETION: Final = "a Node may be deleted only with its UID as precondition"

#: Fields of a Node that the policy protects, with a value for each: patched in all ways that there are.
FIELDS: Final[dict[str, tuple[str, Any, str]]] = {
    "ownerReferences": ("metadata", [OWNER], METADATA),
    "finalizers": ("metadata", ["example.org/x"], METADATA),
    "labels": ("metadata", {"role": "x"}, METADATA),
    "annotations": ("metadata", {"example.org/y": "1"}, ANNOTATIONS),
    "providerID": ("spec", "x://other", SPEC),
    "podCIDR": ("spec", "10.9.8.0/24", SPEC),
    "podCIDRs": ("spec", ["10.9.8.0/24"], SPEC),
    "taints": ("spec", [FOREIGN, ours(effect="NoExecute")], TAINTS),
}


def patches(field: str, under: str, value: Any, why: str) -> dict[str, tuple[Try, str]]:
    body: Json = {under: {field: value}}
    operations = [{"op": "add", "path": f"/{under}/{field}", "value": value}]
    return {
        f"patch a Node: {field}": (merge(NODE, **body), why),
        f"patch a Node: {field}, strategic": (Try("PATCH", NODE, body, STRATEGIC), why),
        f"patch a Node: {field}, JSON patch": (Try("PATCH", NODE, operations, JSON_PATCH), why),
        f"patch a Node: {field}, server-side apply": (apply(NODE, "Node", **body), why),
    }


#: What the role would permit, and the policy rejects.
LIMITED: Final[dict[str, tuple[Try, str]]] = {
    **{
        name: row
        for field, (under, value, why) in FIELDS.items()
        for name, row in patches(field, under, value, why).items()
    },
    "patch a Node: replace its spec": (
        Try("PATCH", NODE, [{"op": "replace", "path": "/spec", "value": {}}], JSON_PATCH),
        TAINTS,
    ),
    "patch a Node: move a label into an annotation": (
        Try(
            "PATCH",
            NODE,
            [
                {
                    "op": "move",
                    "from": "/metadata/labels/kubernetes.io~1os",
                    "path": "/metadata/annotations/spot-rescheduler~1x",
                }
            ],
            JSON_PATCH,
        ),
        METADATA,
    ),
    "patch a Node: remove all labels": (merge(NODE, metadata={"labels": None}), METADATA),
    "patch a Node: a label with our prefix": (merge(NODE, metadata={"labels": {"spot-rescheduler/x": ""}}), METADATA),
    "patch a Node: change another annotation": (
        merge(NODE, metadata={"annotations": {"example.org/x": "2"}}),
        ANNOTATIONS,
    ),
    "patch a Node: remove all annotations": (merge(NODE, metadata={"annotations": None}), ANNOTATIONS),
    "patch a Node: our taint with both effects": (taints(FOREIGN, ours(), ours(effect="NoExecute")), TAINTS),
    "patch a Node: NoExecute, server-side apply": (
        apply(NODE, "Node", spec={"taints": [{"key": "example.org/x", "effect": "NoExecute"}]}),
        TAINTS,
    ),
    "patch a Node: NoExecute, JSON patch": (
        Try(
            "PATCH",
            NODE,
            [
                {"op": "test", "path": "/spec/taints/0/key", "value": FOREIGN["key"]},
                {"op": "replace", "path": "/spec/taints/0/effect", "value": "NoExecute"},
            ],
            JSON_PATCH,
        ),
        TAINTS,
    ),
    "patch a Node: remove another taint, strategic": (
        Try("PATCH", NODE, {"spec": {"$patch": "replace", "unschedulable": True}}, STRATEGIC),
        TAINTS,
    ),
    "patch a Node: another taint": (taints(FOREIGN, {"key": "example.org/x", "effect": "NoSchedule"}), TAINTS),
    "patch a Node: another taint with NoExecute": (taints({**FOREIGN, "effect": "NoExecute"}), TAINTS),
    "patch a Node: the value of another taint": (taints({**FOREIGN, "value": "x"}), TAINTS),
    "patch a Node: remove another taint": (merge(NODE, spec={"taints": None}), TAINTS),
    "patch a Node: Cluster Autoscaler's taint": (
        taints(FOREIGN, {"key": "ToBeDeletedByClusterAutoscaler", "effect": "NoSchedule"}),
        TAINTS,
    ),
    "patch a Node: our taint in place of another, server-side apply": (
        apply(NODE, "Node", spec={"taints": [ours()]}),
        TAINTS,
    ),
    "evict a pod": (evict(), EVICTION),
    "evict a pod at once": (evict(gracePeriodSeconds=0), EVICTION),
    "evict a pod with its version": (evict(preconditions={"resourceVersion": "1"}), EVICTION),
    "evict a pod with an empty UID": (evict(preconditions={"uid": ""}), EVICTION),
    "evict a pod at once, with its UID": (evict(**SAME, gracePeriodSeconds=0), AT_ONCE),
    "evict a pod at once with the old version, with its UID": (
        evict(**SAME, version="policy/v1beta1", gracePeriodSeconds=0),
        AT_ONCE,
    ),
    "evict a pod at once, with its version": (
        evict(gracePeriodSeconds=0, preconditions={"resourceVersion": "1"}),
        EVICTION,
    ),
    "evict a pod at once with the old version": (evict(version="policy/v1beta1", gracePeriodSeconds=0), EVICTION),
    "evict a pod with the old version": (evict(version="policy/v1beta1"), EVICTION),
    "patch our Lease: ownerReferences": (merge(OURS, metadata={"ownerReferences": [OWNER]}), METADATA),
    "patch our Lease: finalizers": (merge(OURS, metadata={"finalizers": ["a.b/x"]}), METADATA),
    "patch our Lease: another annotation": (merge(OURS, metadata={"annotations": {"a.b/x": "y"}}), ANNOTATIONS),
    "patch the memory: ownerReferences": (merge(MEMORY, metadata={"ownerReferences": [OWNER]}), METADATA),
    "patch the memory: labels, server-side apply": (
        apply(MEMORY, "ConfigMap", metadata={"labels": {"grafana_dashboard": "1"}}),
        METADATA,
    ),
    "patch the memory: immutable": (merge(MEMORY, immutable=True), STATE),
    "patch the ledger: immutable, server-side apply": (apply(SAVINGS, "ConfigMap", immutable=True), STATE),
    "patch the ledger: finalizers": (merge(SAVINGS, metadata={"finalizers": ["a.b/x"]}), METADATA),
}

HELD: Final = "another replica holds the Lease; it can be taken after it was released or has expired"


LONG: Final = "a Lease may be held for an hour at most after its last renewal"
FUTURE: Final = "the times of a Lease may not be in the future"
COUNTED: Final = "the transitions of a Lease may only be counted one by one"


def held(holder: str, renewed: str, transitions: int, acquired: str = "") -> Json:
    moments = {
        "renewTime": f"2026-05-04T03:{renewed}.000000Z",
        "acquireTime": f"2026-05-04T03:{acquired or renewed}.000000Z",
    }
    return {"holderIdentity": holder, "leaseDurationSeconds": 15, "leaseTransitions": transitions, **moments}


#: Changes of the Lease, which a_1 has renewed at 03:02:00, and whether they are permitted.
LEASE_CHANGES: Final[dict[str, tuple[Json, str]]] = {
    "its holder renews it": (held("a_1", "02:02", 7, "00:00"), ""),
    "its holder releases it": ({"holderIdentity": ""}, ""),
    "another replica takes it after it expired": (held("b_1", "02:15", 8), ""),
    "another replica takes it too early": (held("b_1", "02:14", 8), HELD),
    "another replica takes it at once": ({"holderIdentity": "b_1"}, HELD),
    "another replica takes it with an old time of acquisition": (held("b_1", "02:15", 8, "00:00"), HELD),
    "another replica takes it without counting it": (held("b_1", "02:15", 7), HELD),
    "another replica takes it and removes the times": (
        {"holderIdentity": "b_1", "renewTime": None, "acquireTime": None},
        HELD,
    ),
    "its holder renews it with a time of settling": (
        {**held("a_1", "02:02", 7, "00:00"), "leaseDurationSeconds": 3600},
        "",
    ),
    "its holder renews it for 68 years": ({**held("a_1", "02:02", 7), "leaseDurationSeconds": 2**31 - 1}, LONG),
    "its holder renews it for more than an hour": ({"leaseDurationSeconds": 3601}, LONG),
    "another replica takes it for 68 years": ({**held("b_1", "02:15", 8), "leaseDurationSeconds": 2**31 - 1}, LONG),
    "it is released for 68 years": ({"holderIdentity": "", "leaseDurationSeconds": 2**31 - 1}, LONG),
    "its holder renews it in the future": ({"renewTime": "2094-01-01T00:00:00.000000Z"}, FUTURE),
    "its holder has acquired it in the future": ({"acquireTime": "2094-01-01T00:00:00.000000Z"}, FUTURE),
    "it is released in the future": ({"holderIdentity": "", "renewTime": "2094-01-01T00:00:00.000000Z"}, FUTURE),
    "another replica takes it in the future": (
        {**held("b_1", "02:15", 8), "renewTime": "2094-01-01T00:00:00.000000Z"},
        FUTURE,
    ),
    "its holder counts to the end": ({"leaseTransitions": 2**31 - 1}, COUNTED),
    "its holder counts two": ({"leaseTransitions": 9}, COUNTED),
    "its holder counts back": ({"leaseTransitions": 6}, COUNTED),
    "its holder removes the count": ({"leaseTransitions": None}, COUNTED),
}

#: Who manages the fields of the Lease is written by the API server, with the time. What a thief may add to it.
FORGED_WRITERS: Final[dict[str, tuple[list[Json], str]]] = {
    "a later writer": ([{"time": "2094-01-01T00:00:00Z"}], FUTURE),
    "a writer without a time": ([{}], FUTURE),
    "no writer": ([], "the managed fields of a Lease may not be removed"),
}

#: With all rights to Nodes, as an administrator may grant them: only the policy decides.
CONDITION: Final[Json] = {"type": "DrainInProgress", "status": "True", "reason": "SpotRescheduler"}
OTHERS: Final[Json] = {"type": "Drained", "status": "True", "reason": "Administrator"}  # the Node has it


def conditions(*changes: Json) -> Try:
    return Try("PATCH", f"{NODE}/status", {"status": {"conditions": list(changes)}}, STRATEGIC)


WITH_MORE_RIGHTS: Final[dict[str, tuple[Try, str]]] = {
    "delete a Node with its UID": (Try("DELETE", NODE, SAME), ""),
    "delete a Node": (Try("DELETE", NODE), DELETION),
    "delete all Nodes": (Try("DELETE", "/api/v1/nodes"), DELETION),
    "create a Node": (Try("POST", "/api/v1/nodes", node("n2")), "Nodes may not be created"),
    "create a Node by server-side apply": (apply("/api/v1/nodes/n2", "Node"), "Nodes may not be created"),
    "update a Node: replace everything": (Try("PUT", NODE, node("n1")), "spot-rescheduler limits: "),
    "patch the status: our condition": (conditions(CONDITION), ""),
    "patch the status: our condition, another reason": (conditions({**CONDITION, "reason": "X"}), STATUS),
    "patch the status: our condition, no reason": (conditions({"type": "DrainInProgress", "status": "True"}), STATUS),
    "patch the status: our condition, another status": (conditions({**CONDITION, "status": "False"}), STATUS),
    "patch the status: another type with our reason": (conditions({**CONDITION, "type": "Drained"}), STATUS),
    "patch the status: another's condition": (conditions({**OTHERS, "status": "False"}), STATUS),
    "patch the status: remove another's condition": (conditions({"$patch": "delete", "type": "Drained"}), STATUS),
    "patch the status: Ready": (conditions({"type": "Ready", "status": "False"}), STATUS),
    "patch the status: capacity": (merge(f"{NODE}/status", status={"capacity": {"pods": "0"}}), STATUS),
    "patch the status: addresses, server-side apply": (
        apply(f"{NODE}/status", "Node", metadata={"name": "n1"}, status={"addresses": []}),
        "",  # an empty list changes nothing
    ),
    "patch the status: volumesAttached, server-side apply": (
        apply(
            f"{NODE}/status",
            "Node",
            metadata={"name": "n1"},
            status={"volumesAttached": [{"name": "v", "devicePath": "/dev/v"}]},
        ),
        STATUS,
    ),
    "patch the status: a label of the Node": (merge(f"{NODE}/status", metadata={"labels": {"a": "b"}}), METADATA),
}

MORE: Final[tuple[Json, ...]] = (
    {
        "apiVersion": "rbac.authorization.k8s.io/v1",
        "kind": "ClusterRole",
        "metadata": {"name": "more"},
        "rules": [{"apiGroups": [""], "resources": ["nodes", "nodes/status"], "verbs": ["*"]}],
    },
    {
        "apiVersion": "rbac.authorization.k8s.io/v1",
        "kind": "ClusterRoleBinding",
        "metadata": {"name": "more"},
        "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "more"},
        "subjects": [{"kind": "ServiceAccount", "name": ACCOUNT, "namespace": INSTALLATION}],
    },
)


class Thief:
    """Somebody with the daemon's token."""

    def __init__(self, plane: ControlPlane, api: Api) -> None:
        self.plane, self.api = plane, api

    def attempt(self, request: Try) -> str:
        """Return the API server's error message, or "" if it would do it."""
        query = {"dryRun": "All"} if request.method != "GET" else {}
        if request.content_type == APPLY:
            query |= {"fieldManager": "thief", "force": "true"}
        path, _, command = request.path.partition("?")
        query |= {"command": "id"} if command else {}
        try:
            self.api.request(
                request.method, path, self._with_uid(request), request.content_type, query, request.headers
            )
        except ApiError as error:
            return str(error)
        return ""

    def _with_uid(self, request: Try) -> Any:
        if UID not in repr(request.body):
            return request.body
        target = self.plane.api.get(request.path.removesuffix("/eviction"))
        return yaml.safe_load(yaml.safe_dump(request.body).replace(UID, target["metadata"]["uid"]))
