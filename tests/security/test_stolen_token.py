"""What the owner of the daemon's token can do, on the control plane."""

from collections.abc import Iterator
from pathlib import Path
from typing import Final

import pytest
import yaml

from devcluster import cleaning
from devcluster.api import Api, Json
from devcluster.errors import ApiError
from devcluster.manifests import deployment, namespace, node, pdb, pod
from devcluster.plane import INSTALLATION, ControlPlane
from rescheduler.clock import SystemClock
from tests.cluster.rendering import composed
from tests.cluster.rights import ACCESS, user
from tests.security.forged_placeholders import (
    FORGED,
    MOVERS,
    ON_PLACEHOLDER,
    POLICY_ON_ROOM,
    ROOM,
    creating,
    placeholder,
)
from tests.security.thief import (
    ACCOUNT,
    ADMISSION,
    ALLOWED,
    FOREIGN,
    FORGED_WRITERS,
    FUTURE,
    LEASE_CHANGES,
    LIMITED,
    MERGE,
    MORE,
    NO_RIGHT,
    NODE,
    OTHERS,
    OURS,
    STRATEGIC,
    WITH_MORE_RIGHTS,
    Thief,
    held,
    merge,
)

pytestmark = pytest.mark.cluster


WITH_ROOM: Final = {"resources": ["../base"], "components": ["../components/make-room"]}


@pytest.fixture(scope="module")
def thief(control_plane: ControlPlane, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Thief]:
    """The shipped manifests, also for placeholders, are installed. The thief has a token of their ServiceAccount."""
    shipped = composed(tmp_path_factory.mktemp("room"), ours=WITH_ROOM)
    kinds = ACCESS | {"Namespace", "ResourceQuota", "PriorityClass"}
    objects = [each for each in shipped if each["kind"] in kinds or "Admission" in each["kind"]]
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


def test_the_status_is_not_changed_through_the_node(thief: Thief) -> None:
    """The role permits this request, and the API server ignores the field."""
    body = {"status": {"capacity": {"pods": "0"}, "conditions": []}}
    for kind in (MERGE, STRATEGIC):
        stored = thief.api.request("PATCH", NODE, body, kind, {"dryRun": "All"})
        assert stored["status"]["capacity"] == thief.plane.api.get(NODE)["status"]["capacity"]
        assert stored["status"]["conditions"] != []


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


@pytest.fixture(scope="module")
def room(thief: Thief) -> str:
    """The namespace of placeholders is ready for them. Return its UID."""
    uid = str(thief.plane.api.get(ROOM)["metadata"]["uid"])
    usable = creating(placeholder(MOVERS["a plain pod"], uid))
    thief.plane.wait_for(lambda: thief.attempt(usable) == "", "the ServiceAccount and the quota of the namespace")
    return uid


@pytest.mark.parametrize("mover", MOVERS)
def test_the_placeholders_of_the_daemon_are_allowed(mover: str, thief: Thief, room: str) -> None:
    assert thief.attempt(creating(placeholder(MOVERS[mover], room))) == ""


@pytest.mark.parametrize("name", FORGED)
def test_a_placeholder_has_only_what_it_needs(name: str, thief: Thief, room: str) -> None:
    """Pod Security admission, the quota or the validation of pods may reject it before the policy does."""
    path, value, rule = FORGED[name]
    made = placeholder(MOVERS["a plain pod"], room, path, value)
    if rule == "priority":
        del made["spec"]["preemptionPolicy"]  # that of the PriorityClass
    answer = thief.attempt(creating(made))
    other = ("violates PodSecurity", "is invalid: ", "no PriorityClass with name")
    assert f"denied request: spot-rescheduler limits: {POLICY_ON_ROOM[rule]}" in answer or any(
        each in answer for each in other
    ), answer


@pytest.mark.parametrize("name", ON_PLACEHOLDER)
def test_a_placeholder_is_not_changed(name: str, thief: Thief, room: str) -> None:
    thief.plane.apply([placeholder(MOVERS["a plain pod"], room, ("metadata", "name"), "room-1")])
    assert f'User "{user(INSTALLATION, ACCOUNT)}" cannot ' in thief.attempt(ON_PLACEHOLDER[name])


def test_no_pod_behind_a_budget_is_preempted_by_a_thief(thief: Thief, room: str) -> None:
    """13 pods fill a node, and their budget allows no eviction."""
    plane = thief.plane
    full = node("full", labels={"full": ""}, allocatable={"cpu": "1300m"})
    plane.apply([full, deployment("web", 13, nodeSelector={"full": ""}), pdb("web", max_unavailable=0)])
    pods = "/api/v1/namespaces/default/pods"

    def running() -> set[str]:
        found = [each for each in plane.api.items(pods) if each["metadata"]["name"].startswith("web-")]
        return {each["metadata"]["uid"] for each in found if each["status"]["phase"] == "Running"}

    plane.wait_for(lambda: len(running()) == 13, "the pods")
    before = running()
    for number in range(50):
        made = placeholder(MOVERS["a plain pod"], room, ("spec", "nodeSelector"), {"full": ""})
        made["metadata"]["name"] = f"room-{number}"
        for name in ("system-node-critical", "system-cluster-critical"):
            made["spec"] |= {"priorityClassName": name, "preemptionPolicy": "PreemptLowerPriority"}
            with pytest.raises(ApiError, match="has the PriorityClass spot-rescheduler-room"):
                thief.api.post(f"{ROOM}/pods", made)
    honest = placeholder(MOVERS["a plain pod"], room, ("spec", "nodeSelector"), {"full": ""})
    created = thief.api.post(f"{ROOM}/pods", honest)
    path = f"{ROOM}/pods/{created['metadata']['name']}"

    def refused() -> bool:
        conditions = plane.api.get(path)["status"].get("conditions", [])
        return any(each.get("reason") == "Unschedulable" for each in conditions)

    plane.wait_for(refused, "the scheduler to find no room for it")
    assert running() == before
    thief.api.delete(path)


@pytest.mark.parametrize("name", FORGED_WRITERS)
def test_the_times_of_a_lease_are_compared_with_those_of_the_api_server(name: str, thief: Thief) -> None:
    """They are in its managed fields, which a client may write, too."""
    thief.plane.api.patch(OURS, {"spec": held("a_1", "02:00", 7, "00:00")})
    forged, why = FORGED_WRITERS[name]
    lease = thief.plane.api.get(OURS)
    entry = {"manager": "x", "operation": "Update", "apiVersion": "coordination.k8s.io/v1", "fieldsType": "FieldsV1"}
    fields: Json = {"fieldsV1": {"f:spec": {"f:leaseTransitions": {}}}}
    lease["metadata"]["managedFields"] = [{**entry, **fields, **each} for each in forged] or [{}]
    lease["spec"] |= {"renewTime": "2094-01-01T00:00:00.000000Z"}
    assert why in thief.attempt(
        merge(OURS, metadata={"managedFields": lease["metadata"]["managedFields"]}, spec=lease["spec"])
    )


def test_the_times_of_a_lease_hold_for_two_requests_in_a_second(thief: Thief) -> None:
    for number in range(20):
        now = f"{SystemClock().now():%Y-%m-%dT%H:%M:%S.%fZ}"
        thief.api.patch(OURS, {"spec": {"holderIdentity": "", "renewTime": now}})
        future = {"spec": {"renewTime": f"20{number + 60}-01-01T00:00:00.000000Z"}}
        with pytest.raises(ApiError, match=FUTURE):
            thief.api.patch(OURS, future)


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
