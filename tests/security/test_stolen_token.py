"""What the owner of the daemon's token can do, on the control plane."""

from collections.abc import Iterator
from pathlib import Path

import pytest
import yaml

from devcluster import cleaning
from devcluster.api import Api
from devcluster.errors import ApiError
from devcluster.manifests import namespace, node, pod
from devcluster.plane import INSTALLATION, ControlPlane
from tests.cluster.rendering import composed, kustomization
from tests.cluster.rights import ACCESS, user
from tests.security.thief import (
    ACCOUNT,
    ADMISSION,
    ALLOWED,
    FOREIGN,
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
