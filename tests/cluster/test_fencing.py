"""The fencing policy on a real API server: in a second namespace, under another name, with another Lease."""

import contextlib
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, Final

import pytest
import yaml

from deploy.local.api import Api, Json
from deploy.local.errors import ApiError
from deploy.local.manifests import namespace, node, pod
from deploy.local.plane import ControlPlane
from rescheduler.clock import SystemClock
from rescheduler.errors import NotLeading
from rescheduler.kube.answers import Answer
from rescheduler.kube.client import MERGE_PATCH, Client
from rescheduler.kube.cluster import Cluster
from rescheduler.kube.connection import Kubeconfig
from rescheduler.kube.guard import denied_by_fencing
from tests.cluster.rendering import chart, composed, kustomization, one
from tests.cluster.replicas import FENCED, Installation, installed

#: A kustomization with a namespace and a Lease of its own, and the fence in one above it.
LAYERS: Final[dict[str, Json]] = {
    "ours": {
        "resources": ["../base"],
        "components": ["../components/machines"],
        "namespace": "ours",
        "nameSuffix": "-eu",
        "patches": [
            {
                "target": {"kind": "Role"},
                "patch": '[{"op": "replace", "path": "/rules/1/resourceNames/0", "value": "mover"},'
                ' {"op": "replace", "path": "/rules/3/resourceNames/0", "value": "mover-memory"}]',
            }
        ],
    },
    "fenced": {"resources": ["../ours"], "components": ["../components/fencing"]},
}
RELEASE: Final[Json] = {
    "fencing": {"enabled": True},
    "cloudProvider": {"name": "cloudpool"},
    "options": {"lease-name": "mover", "memory-name": "mover-memory"},
}
NODE: Final = "/api/v1/nodes/n1"
MEMORY: Final = "/api/v1/namespaces/ours/configmaps/mover-memory"

#: What the memory needs, for any ServiceAccount of the namespace.
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
    {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "mover-memory", "namespace": "ours"}},
)


class Writers:
    """The pods a and b of an installation, and what they and others may write to."""

    def __init__(self, made: Installation, opened: contextlib.ExitStack) -> None:
        self.made, self.plane, self._opened = made, made.plane, opened

    def api(self, replica: str | None) -> Api:
        """As the replica's pod, or with a token that was made for no pod."""
        config = yaml.safe_load(self.made.kubeconfig(replica).read_text())
        token = config["users"][0]["user"]["token"]
        return self._opened.enter_context(Api(self.plane.server, ca=self.plane.ca, token=token))

    def lead(self, holder: str) -> None:
        self.plane.api.patch(self.made.lease_path, {"spec": {"holderIdentity": holder}})


@pytest.fixture(params=["kustomization", "chart"])
def writers(request: pytest.FixtureRequest, cluster: ControlPlane, tmp_path: Path) -> Iterator[Writers]:
    """Pod a leads."""
    cluster.apply([node("n1"), pod("moved", nodeName="n1")])
    objects, account = composed(tmp_path, **LAYERS), "spot-rescheduler-eu"
    if request.param == "chart":
        objects, account = chart(RELEASE, "spot-rescheduler", "ours"), "spot-rescheduler"
    cluster.apply([namespace("ours"), *MEMORY_RIGHTS])
    with (
        installed(Installation(cluster, "ours", account, "mover"), objects) as made,
        contextlib.ExitStack() as opened,
    ):
        found = Writers(made, opened)
        found.lead("a_0b0fd9a2-32c5-43b7-8d09-3c6a0c3f3c19")
        leader, other = found.api("a"), found.api("b")
        cluster.wait_for(lambda: DENIED["b"] in attempt(other, "patch a Node"), "the policy at work")
        cluster.wait_for(lambda: attempt(leader, "patch a Node") == "", "pod a known as the leader's")
        yield found


EVICTION: Final = {
    "apiVersion": "policy/v1",
    "kind": "Eviction",
    "metadata": {"name": "moved", "namespace": "default"},
}
WRITES: Final[dict[str, Callable[[Api], Any]]] = {
    "patch a Node": lambda api: api.patch(NODE, {"metadata": {"annotations": {"mark": "x"}}}),
    "patch the memory": lambda api: api.patch(MEMORY, {"data": {"mark": "x"}}),
    "evict in a dry run": lambda api: api.post(
        "/api/v1/namespaces/default/pods/moved/eviction", EVICTION, dryRun="All"
    ),
    "evict": lambda api: api.post("/api/v1/namespaces/default/pods/moved/eviction", EVICTION),
    "delete a Node": lambda api: api.request("DELETE", NODE),
}


def attempt(api: Api, write: str) -> str:
    """What the API server says against it, after the status; "" for nothing."""
    try:
        WRITES[write](api)
    except ApiError as error:
        return str(error)
    return ""


DENIED: Final = {
    "b": "denied request: spot-rescheduler fencing: pod b does not hold the Lease ours/mover, a does",
    None: "denied request: spot-rescheduler fencing: the token was made for no pod",
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


def test_when_nobody_leads_nobody_writes(writers: Writers) -> None:
    writers.lead("")
    leader = writers.api("a")
    writers.plane.wait_for(lambda: "nobody does" in attempt(leader, "patch a Node"), "the Lease known as given back")
    for write in WRITES:
        assert "pod a does not hold the Lease ours/mover, nobody does" in attempt(leader, write), write


def test_others_are_not_concerned(writers: Writers) -> None:
    assert {write: attempt(writers.plane.api, write) for write in WRITES} == dict.fromkeys(WRITES, "")


def test_the_lease_stays_as_long_as_the_policy_needs_it(writers: Writers) -> None:
    """Without it, everybody's evictions and changes of Nodes would be denied."""
    collection = writers.made.lease_path.rpartition("/")[0]
    for path in (writers.made.lease_path, collection):
        with pytest.raises(ApiError, match="delete the ValidatingAdmissionPolicyBinding first"):
            writers.plane.api.request("DELETE", path)
    elsewhere = {"apiVersion": "coordination.k8s.io/v1", "kind": "Lease", "metadata": {"name": "mover"}}
    writers.plane.apply([elsewhere])
    writers.plane.api.delete("/apis/coordination.k8s.io/v1/namespaces/default/leases/mover")


def test_a_denial_is_known_as_one(writers: Writers) -> None:
    client = Client(Kubeconfig(str(writers.made.kubeconfig("b"))), SystemClock())
    answer = client.send("evict", "POST", "/api/v1/namespaces/default/pods/moved/eviction", body=EVICTION)
    assert denied_by_fencing(answer)


def test_so_is_that_of_a_policy_whose_lease_is_missing(cluster: ControlPlane, tmp_path: Path) -> None:
    """It is denied to everybody, which is why the Lease is shipped."""
    cluster.apply([node("n1")])
    objects = [item for item in composed(tmp_path, **LAYERS) if item["kind"] != "Lease"]
    with installed(Installation(cluster, "ours", "spot-rescheduler-eu", "mover"), objects, replicas=()):
        client = Client(Kubeconfig(str(cluster.kubeconfig)), SystemClock())

        def patched() -> Answer:
            body = {"metadata": {"annotations": {"mark": "x"}}}
            return client.send("patch node", "PATCH", NODE, body=body, content_type=MERGE_PATCH)

        cluster.wait_for(lambda: not patched().ok, "the policy")
        answer = patched()
        assert (answer.code, denied_by_fencing(answer)) == (422, True)
    cluster.wait_for(lambda: patched().ok, "the end of the policy")


def test_the_api_server_finds_no_mistake_in_the_policy(writers: Writers) -> None:
    name = f"spot-rescheduler-fencing.ours.{writers.made.account}"
    path = f"/apis/admissionregistration.k8s.io/v1/validatingadmissionpolicies/{name}"
    status = writers.plane.wait_for(lambda: writers.plane.api.get(path).get("status"), "the types checked")
    assert status == {"observedGeneration": 1, "typeChecking": {}}


def fence(objects: list[Json]) -> Json:
    """What has to agree."""
    policy, binding = one(objects, "ValidatingAdmissionPolicy"), one(objects, "ValidatingAdmissionPolicyBinding")
    account, lease = one(objects, "ServiceAccount")["metadata"], one(objects, "Lease")["metadata"]
    assert binding["spec"]["policyName"] == policy["metadata"]["name"] == binding["metadata"]["name"]
    assert binding["spec"]["paramRef"] == {
        "name": lease["name"],
        "namespace": lease["namespace"],
        "parameterNotFoundAction": "Deny",
    }
    [condition] = policy["spec"]["matchConditions"]
    assert f'string(params.metadata.namespace), "{account["name"]}"]' in condition["expression"]
    assert lease["namespace"] == account["namespace"]
    role, rules = one(objects, "Role")["rules"], policy["spec"]["matchConstraints"]["resourceRules"]
    assert role[1]["resourceNames"] == [lease["name"]]
    assert role[3]["resourceNames"] == rules[2]["resourceNames"][:1]
    return {"policy": policy["metadata"]["name"], "lease": f"{lease['namespace']}/{lease['name']}"}


RENDERED: Final[dict[str, tuple[Callable[[Path], list[Json]], str, str]]] = {
    "on the base": (
        lambda folder: composed(folder, ours=FENCED),
        "kube-system.spot-rescheduler",
        "kube-system/k8s-spot-rescheduler",
    ),
    "on a kustomization with names of its own": (
        lambda folder: composed(folder, **LAYERS),
        "ours.spot-rescheduler-eu",
        "ours/mover",
    ),
    "in the kustomization that sets the namespace": (
        lambda folder: composed(folder, ours={**FENCED, "namespace": "ours"}),
        "kube-system.spot-rescheduler",  # names stay, and are nothing but names
        "ours/k8s-spot-rescheduler",
    ),
    "by the chart": (
        lambda _: chart({"fencing": {"enabled": True}}),
        "kube-system.spot-rescheduler",
        "kube-system/k8s-spot-rescheduler",
    ),
    "by the chart, with names of its own": (
        lambda _: chart({**RELEASE, "serviceAccount": {"name": "moving"}}, "blue", "ours"),
        "ours.moving",
        "ours/mover",
    ),
}


@pytest.mark.parametrize(("render", "name", "lease"), RENDERED.values(), ids=RENDERED)
def test_names_agree(tmp_path: Path, render: Callable[[Path], list[Json]], name: str, lease: str) -> None:
    assert fence(render(tmp_path)) == {"policy": f"spot-rescheduler-fencing.{name}", "lease": lease}


def test_component_and_chart_have_the_same_policy(tmp_path: Path) -> None:
    ours, shipped = (
        one(objects, "ValidatingAdmissionPolicy")["spec"]
        for objects in (chart({"fencing": {"enabled": True}}), composed(tmp_path, ours=FENCED))
    )
    assert ours == shipped


def test_it_is_off_unless_asked_for() -> None:
    for objects in (kustomization("base"), chart()):
        assert not [item for item in objects if "Admission" in item["kind"] or item["kind"] == "Lease"]


def test_a_leader_s_client_raises_not_leading_for_a_denial(writers: Writers) -> None:
    class Leads:
        fence_may_lag = False

        def seconds_left(self) -> float:
            return 10.0

    client = Client(Kubeconfig(str(writers.made.kubeconfig("b"))), SystemClock()).guarded(Leads())
    with pytest.raises(NotLeading, match="does not hold the Lease ours/mover"):
        Cluster(client).evict("default", "moved", "x", dry_run=True)
