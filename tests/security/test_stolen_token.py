"""What the owner of the daemon's token can do, on the control plane: a table of verb, object and field.

Each request is a dry run, which is authorized and admitted like any other. SECURITY.md has a row for each group.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import pytest
import yaml

from devcluster import cleaning
from devcluster.api import Api, Json
from devcluster.errors import ApiError
from devcluster.manifests import namespace, node, pod
from devcluster.plane import INSTALLATION, ControlPlane
from rescheduler.settings import LEASE, MEMORY_NAME, SAVINGS_NAME
from tests.cluster.rendering import composed, kustomization
from tests.cluster.rights import ACCESS, user

pytestmark = pytest.mark.cluster

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
    "patch our Lease": merge(OURS, spec={"holderIdentity": "a_1"}),
    "patch our Lease: our annotation": merge(OURS, metadata={"annotations": {"spot-rescheduler/paused": "true"}}),
    "patch the memory": merge(MEMORY, binaryData={"memory": "YQ=="}),
    "patch the ledger": merge(SAVINGS, data={"summary": "x"}),
    "create an Event": Try("POST", "/api/v1/namespaces/default/events", EVENT),
}

#: What the role does not permit.
NO_RIGHT: Final[dict[str, Try]] = {
    "delete a Node": Try("DELETE", NODE, SAME),
    "delete all Nodes": Try("DELETE", "/api/v1/nodes"),
    "create a Node": Try("POST", "/api/v1/nodes", node("n2")),
    "create a Node by server-side apply": apply("/api/v1/nodes/n2", "Node"),
    "update a Node": Try("PUT", NODE, node("n1")),
    "patch a Node's status": merge(f"{NODE}/status", status={"capacity": {"pods": "0"}}),
    "reach a kubelet": Try("GET", f"{NODE}/proxy/pods"),
    "delete a pod": Try("DELETE", POD),
    "delete a pod at once": Try("DELETE", POD, {"gracePeriodSeconds": 0, "dryRun": ["All"]}),
    "update our Lease": Try("PUT", OURS, ANOTHER_LEASE | {"metadata": {"name": LEASE}}),
    "delete all Leases of our namespace": Try("DELETE", f"{LEASES}/{INSTALLATION}/leases"),
    "patch a Node's status by server-side apply": apply(f"{NODE}/status", "Node", metadata={"name": "n1"}, status={}),
    "resize a pod": merge(f"{POD}/resize", spec={}),
    "delete all pods": Try("DELETE", "/api/v1/namespaces/default/pods"),
    "patch a pod": merge(POD, metadata={"labels": {"a": "b"}}),
    "patch a pod's status": merge(f"{POD}/status", status={"phase": "Failed"}),
    "create a pod": Try("POST", "/api/v1/namespaces/default/pods", pod("p2")),
    "create a pod in our namespace": Try("POST", f"{CORE}/pods", pod("p2", namespace=INSTALLATION)),
    "run a command in a pod": Try("POST", f"{POD}/exec?command=id"),
    "add a container to a pod": merge(f"{POD}/ephemeralcontainers", spec={"ephemeralContainers": []}),
    "bind a pod": Try("POST", f"{POD}/binding", {"apiVersion": "v1", "kind": "Binding", "target": {"name": "n1"}}),
    "read Secrets": Try("GET", "/api/v1/secrets"),
    "read Secrets of our namespace": Try("GET", f"{CORE}/secrets"),
    "create a token": Try("POST", f"{CORE}/serviceaccounts/{ACCOUNT}/token", {"spec": {}}),
    "create a ConfigMap in kube-system": Try("POST", "/api/v1/namespaces/kube-system/configmaps", CONFIG_MAP),
    "create a ConfigMap in our namespace": Try("POST", f"{CORE}/configmaps", CONFIG_MAP),
    "create a ConfigMap by server-side apply": apply(f"{CORE}/configmaps/aws-auth", "ConfigMap"),
    "patch another ConfigMap": merge(f"{CORE}/configmaps/kube-root-ca.crt", data={"ca.crt": ""}),
    "list ConfigMaps": Try("GET", f"{CORE}/configmaps"),
    "delete the memory": Try("DELETE", MEMORY),
    "create a Lease in kube-system": Try("POST", f"{LEASES}/kube-system/leases", ANOTHER_LEASE),
    "create a Lease in our namespace": Try("POST", f"{LEASES}/{INSTALLATION}/leases", ANOTHER_LEASE),
    "patch another Lease": merge(f"{LEASES}/kube-node-lease/leases/n1", spec={"holderIdentity": "x"}),
    "delete our Lease": Try("DELETE", OURS),
    "patch a PodDisruptionBudget": merge("/apis/policy/v1/namespaces/default/poddisruptionbudgets/b", spec={}),
    "patch a Deployment": merge("/apis/apps/v1/namespaces/default/deployments/d", spec={"replicas": 0}),
    "grant itself more": merge(f"{RBAC}/clusterroles/{ACCOUNT}", rules=[]),
    "bind itself to a role": Try("POST", f"{RBAC}/clusterrolebindings", {"metadata": {"name": "x"}}),
    "delete the limits": Try("DELETE", f"{ADMISSION}/validatingadmissionpolicybindings/spot-rescheduler-limits"),
}

METADATA: Final = "of the metadata, only annotations may be changed"
ANNOTATIONS: Final = "only annotations with the prefix spot-rescheduler/ may be changed"
SPEC: Final = "of a Node's spec, only taints and unschedulable may be changed"
TAINTS: Final = "only taints status-taint.cluster-autoscaler.kubernetes.io/spot-rescheduler-"
EVICTION: Final = "a pod may be evicted only with its UID as precondition"
STATUS: Final = "of a Node's status, only the condition DrainInProgress with the reason SpotRescheduler may be added"
DELETION: Final = "a Node may be deleted only with its UID as precondition"

#: What the role would permit, and the policy rejects.
LIMITED: Final[dict[str, tuple[Try, str]]] = {
    "patch a Node: ownerReferences": (merge(NODE, metadata={"ownerReferences": [OWNER]}), METADATA),
    "patch a Node: ownerReferences, strategic": (
        Try("PATCH", NODE, {"metadata": {"ownerReferences": [OWNER]}}, STRATEGIC),
        METADATA,
    ),
    "patch a Node: ownerReferences, JSON patch": (
        Try("PATCH", NODE, [{"op": "add", "path": "/metadata/ownerReferences", "value": [OWNER]}], JSON_PATCH),
        METADATA,
    ),
    "patch a Node: ownerReferences, server-side apply": (
        apply(NODE, "Node", metadata={"ownerReferences": [OWNER]}),
        METADATA,
    ),
    "patch a Node: finalizers": (merge(NODE, metadata={"finalizers": ["example.org/x"]}), METADATA),
    "patch a Node: finalizers, server-side apply": (apply(NODE, "Node", metadata={"finalizers": ["a.b/x"]}), METADATA),
    "patch a Node: a label": (merge(NODE, metadata={"labels": {"role": "x"}}), METADATA),
    "patch a Node: remove all labels": (merge(NODE, metadata={"labels": None}), METADATA),
    "patch a Node: a label with our prefix": (merge(NODE, metadata={"labels": {"spot-rescheduler/x": ""}}), METADATA),
    "patch a Node: another annotation": (merge(NODE, metadata={"annotations": {"example.org/y": "1"}}), ANNOTATIONS),
    "patch a Node: change another annotation": (
        merge(NODE, metadata={"annotations": {"example.org/x": "2"}}),
        ANNOTATIONS,
    ),
    "patch a Node: remove all annotations": (merge(NODE, metadata={"annotations": None}), ANNOTATIONS),
    "patch a Node: our taint with NoExecute": (taints(FOREIGN, ours(effect="NoExecute")), TAINTS),
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
    "patch a Node: NoExecute, strategic": (
        Try("PATCH", NODE, {"spec": {"taints": [FOREIGN, ours(effect="NoExecute")]}}, STRATEGIC),
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
    "patch a Node: providerID": (merge(NODE, spec={"providerID": "x://other"}), SPEC),
    "patch a Node: our taint in place of another, server-side apply": (
        apply(NODE, "Node", spec={"taints": [ours()]}),
        TAINTS,
    ),
    "evict a pod": (evict(), EVICTION),
    "evict a pod at once": (evict(gracePeriodSeconds=0), EVICTION),
    "evict a pod with its version": (evict(preconditions={"resourceVersion": "1"}), EVICTION),
    "evict a pod with an empty UID": (evict(preconditions={"uid": ""}), EVICTION),
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
    "patch the ledger: finalizers": (merge(SAVINGS, metadata={"finalizers": ["a.b/x"]}), METADATA),
}

HELD: Final = "another replica holds the Lease; it can be taken after it was released or has expired"


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
            self.api.request(request.method, path, self._with_uid(request), request.content_type, query)
        except ApiError as error:
            return str(error)
        return ""

    def _with_uid(self, request: Try) -> Any:
        if UID not in repr(request.body):
            return request.body
        target = self.plane.api.get(request.path.removesuffix("/eviction"))
        return yaml.safe_load(yaml.safe_dump(request.body).replace(UID, target["metadata"]["uid"]))


@pytest.fixture(scope="module")
def thief(control_plane: ControlPlane) -> Iterator[Thief]:
    """The shipped manifests are installed, and the thief has a token of their ServiceAccount."""
    objects = [each for each in kustomization("base") if each["kind"] in ACCESS or "Admission" in each["kind"]]
    target = node("n1", taints=[FOREIGN], annotations={"example.org/x": "1", "spot-rescheduler/old": "1"})
    control_plane.apply([namespace(INSTALLATION), *objects, target, pod("p1", nodeName="n1")])
    token = control_plane.service_account_kubeconfig(INSTALLATION, ACCOUNT)
    config = yaml.safe_load(token.read_text())
    with Api(control_plane.server, ca=control_plane.ca, token=config["users"][0]["user"]["token"]) as api:
        thief = Thief(control_plane, api)
        request, why = LIMITED["patch a Node: finalizers"]
        control_plane.wait_for(lambda: why in thief.attempt(request), "the policy")
        ready = "the taints of a Node that is not ready yet to be removed"
        control_plane.wait_for(lambda: control_plane.api.get(NODE)["spec"]["taints"] == [FOREIGN], ready)
        control_plane.api.patch(f"{NODE}/status", {"status": {"conditions": [OTHERS]}}, STRATEGIC)
        yield thief
    for each in (*objects, *MORE):
        control_plane.api.delete(control_plane.api.path(each))
    cleaning.empty(control_plane)


def test_what_the_daemon_does_is_allowed(thief: Thief) -> None:
    assert {name: thief.attempt(request) for name, request in ALLOWED.items()} == dict.fromkeys(ALLOWED, "")


@pytest.mark.parametrize("name", NO_RIGHT)
def test_what_the_role_does_not_permit_is_forbidden(name: str, thief: Thief) -> None:
    assert f'User "{user(INSTALLATION, ACCOUNT)}" cannot ' in thief.attempt(NO_RIGHT[name])


@pytest.mark.parametrize("name", LIMITED)
def test_what_the_policy_limits_is_forbidden(name: str, thief: Thief) -> None:
    request, why = LIMITED[name]
    assert f"denied request: spot-rescheduler limits: {why}" in thief.attempt(request)


def test_another_holder_takes_the_lease_only_after_it_expired(thief: Thief) -> None:
    """What a process that has lost count of the time does not do. A thief may write any time."""
    thief.plane.api.patch(OURS, {"spec": held("a_1", "02:00", 7, "00:00")})
    for name, (spec, why) in LEASE_CHANGES.items():
        actual = thief.attempt(merge(OURS, spec=spec))
        assert (why in actual) if why else actual == "", (name, actual)
    thief.plane.api.patch(OURS, {"spec": {"holderIdentity": ""}})
    assert thief.attempt(merge(OURS, spec=held("b_1", "02:01", 8))) == ""


def test_the_policy_holds_for_an_account_with_more_rights(thief: Thief) -> None:
    thief.plane.apply(MORE)
    status, _ = WITH_MORE_RIGHTS["patch the status: our condition"]
    thief.plane.wait_for(lambda: thief.attempt(status) == "", "the rights")
    for name, (request, why) in WITH_MORE_RIGHTS.items():
        actual = thief.attempt(request)
        assert (why in actual) if why else actual == "", (name, actual)


def test_other_accounts_are_not_limited(thief: Thief) -> None:
    administrator = Thief(thief.plane, thief.plane.api)
    for name, (request, _) in LIMITED.items():
        assert "spot-rescheduler limits" not in administrator.attempt(request), name


def test_the_policy_passes_type_checking(thief: Thief) -> None:
    path = f"{ADMISSION}/validatingadmissionpolicies/spot-rescheduler-limits"
    status = thief.plane.wait_for(lambda: thief.plane.api.get(path).get("status"), "the types checked")
    assert status == {"observedGeneration": 1, "typeChecking": {}}


def test_the_right_to_try_the_creation_of_pods_creates_none(thief: Thief, tmp_path: Path) -> None:
    """RBAC cannot limit the right of deploy/components/predict to dry runs: its policy does."""
    layer = {"resources": ["../base"], "components": ["../components/predict"]}
    added = [each for each in composed(tmp_path, ours=layer) if each["metadata"]["name"] == "spot-rescheduler-predict"]
    assert len(added) == 4
    thief.plane.apply(added)
    try:
        try_one = NO_RIGHT["create a pod"]
        thief.plane.wait_for(lambda: thief.attempt(try_one) == "", "the right")
        thief.plane.wait_for(lambda: "in dry runs only" in created(thief, "default"), "the policy")
        for where in ("default", "kube-system", INSTALLATION):
            assert "denied request: this account may create pods in dry runs only" in created(thief, where)
        assert "cannot delete" in thief.attempt(NO_RIGHT["delete a pod"])
        assert Thief(thief.plane, thief.plane.api).attempt(try_one) == ""
    finally:
        for each in added:
            thief.plane.api.delete(thief.plane.api.path(each))


def created(thief: Thief, where: str) -> str:
    """Create a pod with the daemon's token, not in a dry run. Return the API server's error, or "" and delete it."""
    path = f"/api/v1/namespaces/{where}/pods"
    try:
        thief.api.post(path, pod("real", namespace=where))
    except ApiError as error:
        return str(error)
    thief.plane.api.delete(f"{path}/real")
    return ""
