"""The fencing policy on a real API server, with another namespace, name and Lease."""

import contextlib
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any, Final

import pytest
import yaml

from devcluster.api import Api, Json
from devcluster.errors import ApiError
from devcluster.manifests import deployment, namespace, node, pod
from devcluster.plane import ControlPlane
from rescheduler.clock import SystemClock
from rescheduler.errors import NotLeading
from rescheduler.kube.client import MERGE_PATCH, Client
from rescheduler.kube.cluster import KubeCluster
from rescheduler.kube.connection import Kubeconfig
from rescheduler.kube.deployments import RESTARTED_AT
from rescheduler.kube.responses import ApiResponse, denied_by_fencing
from tests.cluster.rendering import chart, composed, kustomization, leader_lease, only_of_kind
from tests.cluster.replicas import FENCED, ReplicatedInstallation, installed
from tests.security.forged_placeholders import MOVERS, placeholder

#: A kustomization with its own namespace and Lease, and one on top of it that adds fencing.
LAYERS: Final[dict[str, Json]] = {
    "ours": {
        "resources": ["../base"],
        "components": ["../components/machines"],
        "namespace": "ours",
        "nameSuffix": "-eu",
        "patches": [
            {
                "target": {"kind": kind, "name": name},
                "patch": f'[{{"op": "replace", "path": "/metadata/name", "value": "{renamed}"}}]',
                "options": {"allowNameChange": True},
            }
            for kind, name, renamed in (
                ("Lease", "k8s-spot-rescheduler", "mover"),
                ("ConfigMap", "spot-rescheduler-memory", "mover-memory"),
                ("ConfigMap", "spot-rescheduler-savings", "mover-savings"),
            )
        ],
    },
    "fenced": {
        "resources": ["../ours"],
        "components": [f"../components/{name}" for name in ("fencing", "make-room", "surge")],
    },
}
RELEASE: Final[Json] = {
    "fencing": {"enabled": True},
    "cloudProvider": {"name": "cloudpool"},
    "makeRoom": {"mode": "placeholders"},
    "rbac": {"surge": True},
    "options": {"lease-name": "mover-eu", "memory-name": "mover-memory-eu", "savings-name": "mover-savings-eu"},
}
NODE: Final = "/api/v1/nodes/n1"
ROOM: Final = "spot-rescheduler-room"
WEB: Final = "/apis/apps/v1/namespaces/default/deployments/web"
PLACEHOLDERS: Final = f"/api/v1/namespaces/{ROOM}/pods"
MEMORY: Final = "/api/v1/namespaces/ours/configmaps/mover-memory-eu"

#: RBAC for the memory, for all ServiceAccounts of the namespace.
MEMORY_RIGHTS: Final[tuple[Json, ...]] = (
    {
        "apiVersion": "rbac.authorization.k8s.io/v1",
        "kind": "Role",
        "metadata": {"name": "memory", "namespace": "ours"},
        "rules": [{"apiGroups": [""], "resources": ["configmaps"], "verbs": ["create", "patch"]}],
    },
    {
        "apiVersion": "rbac.authorization.k8s.io/v1",
        "kind": "RoleBinding",
        "metadata": {"name": "memory", "namespace": "ours"},
        "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "Role", "name": "memory"},
        "subjects": [{"kind": "Group", "name": "system:serviceaccounts:ours", "apiGroup": "rbac.authorization.k8s.io"}],
    },
    {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "mover-memory-eu", "namespace": "ours"}},
)


class Writers:
    """Clients with the tokens of an installation's pods a and b."""

    def __init__(self, installation: ReplicatedInstallation, opened: contextlib.ExitStack) -> None:
        self.installation, self.plane, self._opened = installation, installation.plane, opened

    def api(self, replica: str | None) -> Api:
        """Return a client with a token that is bound to the replica's pod, or to no pod."""
        config = yaml.safe_load(self.installation.kubeconfig(replica).read_text())
        token = config["users"][0]["user"]["token"]
        return self._opened.enter_context(Api(self.plane.server, ca=self.plane.ca, token=token))

    def lead(self, holder: str) -> None:
        self.plane.api.patch(self.installation.lease_path, {"spec": {"holderIdentity": holder}})


#: The PriorityClass of placeholders under the name that the daemon knows: a suffix of kustomize renames it.
ROOM_PRIORITY: Final[Json] = {
    "apiVersion": "scheduling.k8s.io/v1",
    "kind": "PriorityClass",
    "metadata": {"name": ROOM},
    "value": -5,
    "preemptionPolicy": "Never",
}


def prepare(cluster: ControlPlane) -> None:
    """Create the objects that the writes change."""
    cluster.apply([node("n1"), pod("moved", nodeName="n1"), deployment("web", 0), namespace(ROOM), ROOM_PRIORITY])
    cluster.wait_for(lambda: cluster.api.items(f"/api/v1/namespaces/{ROOM}/serviceaccounts"), "the ServiceAccount")
    cluster.apply([pod("room-1", namespace=ROOM)])


@pytest.fixture(params=["kustomization", "chart"])
def writers(request: pytest.FixtureRequest, cluster: ControlPlane, tmp_path: Path) -> Iterator[Writers]:
    """Clients of an installation in which pod a leads."""
    prepare(cluster)
    objects, account = composed(tmp_path, **LAYERS), "spot-rescheduler-eu"
    if request.param == "chart":
        objects, account = chart(RELEASE, "spot-rescheduler", "ours"), "spot-rescheduler"
    cluster.apply([namespace("ours"), *MEMORY_RIGHTS])
    with (
        installed(ReplicatedInstallation(cluster, "ours", account, "mover-eu"), objects) as installation,
        contextlib.ExitStack() as opened,
    ):
        writers = Writers(installation, opened)
        writers.lead("a_0b0fd9a2-32c5-43b7-8d09-3c6a0c3f3c19")
        leader, other = writers.api("a"), writers.api("b")
        for write in ("patch a Node", "try to roll a Deployment out", "try to create a placeholder"):
            cluster.wait_for(partial(denied, other, write), "the policy and its bindings")
        cluster.wait_for(lambda: attempt(leader, "patch a Node") == "", "pod a accepted as the leader")
        yield writers


PODS: Final = "/api/v1/namespaces/default/pods"


def with_uid(api: Api, path: str) -> Json:
    """Return the precondition that the policy of limits requires, with the UID of the object at *path*."""
    return {"preconditions": {"uid": api.get(path)["metadata"]["uid"]}}


def room(name: str) -> Json:
    """Return a placeholder as the daemon creates it."""
    return placeholder(MOVERS["a plain pod"], "a-uid", ("metadata", "name"), name)


def eviction(api: Api) -> Json:
    metadata = {"name": "moved", "namespace": "default"}
    options = with_uid(api, f"{PODS}/moved")
    return {"apiVersion": "policy/v1", "kind": "Eviction", "metadata": metadata, "deleteOptions": options}


def restart(value: str) -> Json:
    return {"spec": {"template": {"metadata": {"annotations": {RESTARTED_AT: value}}}}}


WRITES: Final[dict[str, Callable[[Api], Any]]] = {
    "patch a Node": lambda api: api.patch(NODE, {"metadata": {"annotations": {"spot-rescheduler/mark": "x"}}}),
    "patch the memory": lambda api: api.patch(MEMORY, {"data": {"mark": "x"}}),
    "evict in a dry run": lambda api: api.post(f"{PODS}/moved/eviction", eviction(api), dryRun="All"),
    "evict": lambda api: api.post(f"{PODS}/moved/eviction", eviction(api)),
    "try to roll a Deployment out": lambda api: api.request("PATCH", WEB, restart("1"), MERGE_PATCH, {"dryRun": "All"}),
    "roll a Deployment out": lambda api: api.patch(WEB, restart("2")),
    "try to create a placeholder": lambda api: api.post(PLACEHOLDERS, room("room-3"), dryRun="All"),
    "create a placeholder": lambda api: api.post(PLACEHOLDERS, room("room-2")),
    "delete a placeholder": lambda api: api.request("DELETE", f"{PLACEHOLDERS}/room-1"),
    "delete a Node": lambda api: api.request("DELETE", NODE, with_uid(api, NODE)),
}


def attempt(api: Api, write: str) -> str:
    """Return the API server's error message, or "" if the write succeeds."""
    try:
        WRITES[write](api)
    except ApiError as error:
        return str(error)
    return ""


def denied(api: Api, write: str) -> bool:
    """Return whether *write* by pod b is denied because it does not lead."""
    return DENIED["b"] in attempt(api, write)


DENIED: Final = {
    "b": "denied request: spot-rescheduler fencing: pod b does not hold the Lease ours/mover-eu, a does",
    None: "denied request: spot-rescheduler fencing: the token is not bound to a pod",
}


@pytest.mark.parametrize("replica", DENIED)
def test_only_the_leader_s_pod_may_write(writers: Writers, replica: str | None) -> None:
    stranger = writers.api(replica)
    for write in WRITES:
        denial = attempt(stranger, write)
        assert denial.startswith("403 Forbidden: "), write
        assert DENIED[replica] in denial, write
    leader = writers.api("a")
    assert {write: attempt(leader, write) for write in WRITES} == dict.fromkeys(WRITES, "")


def test_without_a_leader_all_writes_are_denied(writers: Writers) -> None:
    writers.lead("")
    leader = writers.api("a")
    writers.plane.wait_for(lambda: "no pod does" in attempt(leader, "patch a Node"), "the released Lease")
    for write in WRITES:
        assert "pod a does not hold the Lease ours/mover-eu, no pod does" in attempt(leader, write), write


def test_other_users_are_not_restricted(writers: Writers) -> None:
    assert {write: attempt(writers.plane.api, write) for write in WRITES} == dict.fromkeys(WRITES, "")


def test_the_lease_cannot_be_deleted_while_the_policy_needs_it(writers: Writers) -> None:
    """Without the Lease, evictions and changes of Nodes by all users would be denied."""
    collection = writers.installation.lease_path.rpartition("/")[0]
    for path in (writers.installation.lease_path, collection):
        with pytest.raises(ApiError, match="delete the ValidatingAdmissionPolicyBinding first"):
            writers.plane.api.request("DELETE", path)
    elsewhere = {"apiVersion": "coordination.k8s.io/v1", "kind": "Lease", "metadata": {"name": "mover-eu"}}
    writers.plane.apply([elsewhere])
    writers.plane.api.delete("/apis/coordination.k8s.io/v1/namespaces/default/leases/mover-eu")


def test_a_fencing_denial_is_recognized(writers: Writers) -> None:
    client = Client(Kubeconfig(str(writers.installation.kubeconfig("b"))), SystemClock())
    response = client.send("evict", "POST", f"{PODS}/moved/eviction", body=eviction(writers.plane.api))
    assert denied_by_fencing(response)


def test_a_denial_because_of_a_missing_lease_is_recognized(cluster: ControlPlane, tmp_path: Path) -> None:
    """The policy then denies the requests of all users, which is why the manifests contain the Lease.

    It does not deny writes of pods and of Deployments: placeholders can be deleted manually, and others roll out.
    """
    prepare(cluster)
    objects = [item for item in composed(tmp_path, **LAYERS) if item["kind"] != "Lease"]
    with installed(ReplicatedInstallation(cluster, "ours", "spot-rescheduler-eu", "mover-eu"), objects, replicas=()):
        client = Client(Kubeconfig(str(cluster.kubeconfig)), SystemClock())

        def patched() -> ApiResponse:
            body = {"metadata": {"annotations": {"spot-rescheduler/mark": "x"}}}
            return client.send("patch node", "PATCH", NODE, body=body, content_type=MERGE_PATCH)

        cluster.wait_for(lambda: not patched().ok, "the policy")
        response = patched()
        assert (response.code, denied_by_fencing(response)) == (422, True)
        others = "create a placeholder", "delete a placeholder", "roll a Deployment out"
        assert [attempt(cluster.api, write) for write in others] == [""] * 3
        cluster.apply([pod("other", nodeName="n1")])
    cluster.wait_for(lambda: patched().ok, "the end of the policy")


def test_the_policy_passes_type_checking(writers: Writers) -> None:
    name = f"spot-rescheduler-fencing.ours.{writers.installation.account}"
    path = f"/apis/admissionregistration.k8s.io/v1/validatingadmissionpolicies/{name}"
    status = writers.plane.wait_for(lambda: writers.plane.api.get(path).get("status"), "the types checked")
    assert status == {"observedGeneration": 1, "typeChecking": {}}


def fencing(objects: list[Json]) -> list[Json]:
    """Return the policy and the bindings of the fencing, without those of the limits."""
    return [item for item in objects if "Admission" in item["kind"] and "fencing" in item["metadata"]["name"]]


def fence(objects: list[Json]) -> Json:
    """Assert that the names in *objects* agree, and return them."""
    policy = only_of_kind(fencing(objects), "ValidatingAdmissionPolicy")
    account, lease = only_of_kind(objects, "ServiceAccount")["metadata"], leader_lease(objects)["metadata"]
    bindings = [item for item in fencing(objects) if item["kind"] == "ValidatingAdmissionPolicyBinding"]
    name = policy["metadata"]["name"]
    assert {item["metadata"]["name"]: item["spec"]["paramRef"].pop("parameterNotFoundAction") for item in bindings} == {
        name: "Deny",
        name.replace("fencing.", "fencing-karpenter."): "Allow",
        name.replace("fencing.", "fencing-room."): "Allow",
        name.replace("fencing.", "fencing-surge."): "Allow",
    }
    for item in bindings:
        assert item["spec"]["policyName"] == name
        assert item["spec"]["paramRef"] == {"name": lease["name"], "namespace": lease["namespace"]}
    [condition] = policy["spec"]["matchConditions"]
    assert f'string(params.metadata.namespace), "{account["name"]}"]' in condition["expression"]
    assert lease["namespace"] == account["namespace"]
    local = [item for item in objects if item["metadata"].get("namespace") == lease["namespace"]]
    granted = [rule for item in local if item["kind"] == "Role" for rule in item["rules"]]
    leases, config_maps = (
        {name for rule in granted if resource in rule["resources"] for name in rule["resourceNames"]}
        for resource in ("leases", "configmaps")
    )
    assert leases == {item["metadata"]["name"] for item in local if item["kind"] == "Lease"}
    assert config_maps == set(policy["spec"]["matchConstraints"]["resourceRules"][2]["resourceNames"])
    return {"policy": policy["metadata"]["name"], "lease": f"{lease['namespace']}/{lease['name']}"}


RENDERED: Final[dict[str, tuple[Callable[[Path], list[Json]], str, str]]] = {
    "on the base": (
        lambda folder: composed(folder, ours=FENCED),
        "spot-rescheduler.spot-rescheduler",
        "spot-rescheduler/k8s-spot-rescheduler",
    ),
    "on a kustomization with its own names": (
        lambda folder: composed(folder, **LAYERS),
        "ours.spot-rescheduler-eu",
        "ours/mover-eu",
    ),
    "in the kustomization that sets the namespace": (
        lambda folder: composed(folder, ours={**FENCED, "namespace": "ours"}),
        "spot-rescheduler.spot-rescheduler",  # the policy's name has no meaning and is not changed
        "ours/k8s-spot-rescheduler",
    ),
    "by the chart": (
        lambda _: chart({"fencing": {"enabled": True}}),
        "spot-rescheduler.spot-rescheduler",
        "spot-rescheduler/k8s-spot-rescheduler",
    ),
    "by the chart, with its own names": (
        lambda _: chart({**RELEASE, "serviceAccount": {"name": "moving"}}, "blue", "ours"),
        "ours.moving",
        "ours/mover-eu",
    ),
}


@pytest.mark.parametrize(("render", "name", "lease"), RENDERED.values(), ids=RENDERED)
def test_the_names_in_the_rendered_policy_agree(
    tmp_path: Path, render: Callable[[Path], list[Json]], name: str, lease: str
) -> None:
    assert fence(render(tmp_path)) == {"policy": f"spot-rescheduler-fencing.{name}", "lease": lease}


def test_component_and_chart_have_the_same_policy(tmp_path: Path) -> None:
    ours, shipped = (
        [item["spec"] for item in fencing(objects)]
        for objects in (chart({"fencing": {"enabled": True}}), composed(tmp_path, ours=FENCED))
    )
    assert sorted(ours, key=str) == sorted(shipped, key=str)


def test_fencing_is_disabled_by_default() -> None:
    for objects in (kustomization("base"), chart()):
        assert fencing(objects) == []


def test_a_leader_s_client_raises_not_leading_for_a_denial(writers: Writers) -> None:
    class Leads:
        fence_may_lag = False

        def seconds_left(self) -> float:
            return 10.0

    client = Client(Kubeconfig(str(writers.installation.kubeconfig("b"))), SystemClock()).guarded(Leads())
    with pytest.raises(NotLeading, match="does not hold the Lease ours/mover-eu"):
        KubeCluster(client).evict("default", "moved", "x", dry_run=True)
