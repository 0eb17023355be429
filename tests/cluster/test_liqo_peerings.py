"""Who lends us resources, and who borrows ours: peerings that come and go, consumers, clusters that are away."""

import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from deploy.local.api import Json
from deploy.local.liqo import objects
from deploy.local.liqo.peerings import FOREIGN_CLUSTERS, IDENTITIES
from deploy.local.liqo.playing import borrowed
from deploy.local.plane import ControlPlane
from rescheduler.backends.base import InstanceState, NodeRef
from rescheduler.backends.liqo.provider import LiqoProvider
from rescheduler.clock import SystemClock
from rescheduler.errors import ReschedulerError
from tests.cluster.rendering import composed
from tests.cluster.virtual import CONFIG, NODE, WAIT_SECONDS, Site, site

GROUP = "STANDARD"
PARTS, ACCOUNT = "liqo-autoscaling", "node-manager"
ROOT = Path(__file__).parents[2]


def within() -> float:
    return SystemClock().monotonic() + WAIT_SECONDS


def running(provider: LiqoProvider) -> bool:
    found = provider.instances(GROUP, deadline=within())
    return [each.state for each in found] == [InstanceState.RUNNING]


def is_ordered(provider: LiqoProvider) -> bool:
    """Nothing is ordered while a peering ends."""
    try:
        provider.increase_size(GROUP, 1, deadline=within())
    except ReschedulerError as error:
        if "its peering is ending" not in str(error):
            raise
        return False
    return True


def foreign_cluster(here: Site, name: str) -> Json:
    return here.plane.api.get(f"{FOREIGN_CLUSTERS}/{name}")


def refused(provider: LiqoProvider) -> str:
    with pytest.raises(ReschedulerError) as error:
        provider.increase_size(GROUP, 1, deadline=within())
    return str(error.value)


@pytest.fixture
def liqoctl(tmp_path: Path) -> Path:
    """The stand-in, as a program."""
    program = tmp_path / "liqoctl"
    module = f'{sys.executable} -m deploy.local.liqo.liqoctl "$@"'
    program.write_text(f'#!/bin/sh\necho "$1" >> {tmp_path}/calls\nPYTHONPATH={ROOT} exec {module}\n')
    program.chmod(0o755)
    return program


@pytest.fixture
def installed(cluster: ControlPlane, tmp_path: Path) -> Iterator[ControlPlane]:
    """deploy/liqo with the component for liqoctl, without the processes."""
    component = {"resources": ["../liqo"], "components": ["../liqo/components/liqoctl"]}
    made = [each for each in composed(tmp_path, ours=component) if each["kind"] != "Deployment"]
    cluster.apply([*objects.installation(), *made])
    yield cluster
    for each in made:
        if each["kind"].startswith("ClusterRole"):
            cluster.api.delete(cluster.api.path(each))


def test_a_peering_is_made_used_ended_and_made_again_with_the_shipped_rights(
    installed: ControlPlane, tmp_path: Path, liqoctl: Path
) -> None:
    """After the end the ForeignCluster still says "enabled", as real ones do for hours."""
    own = installed.service_account_kubeconfig(PARTS, ACCOUNT)
    calls = tmp_path / "calls"
    with site(installed, tmp_path, {"turin": 1}, own=own, peers=(), start=False) as here:
        flags = (f"--liqoctl={liqoctl}", "--liqoctl-argument=--networking-disabled")
        here.start(CONFIG + "unpeerAfter: 1s\n", *flags)
        with here.provider() as provider:
            for expected in ("peer\n", "peer\nunpeer\npeer\n"):
                here.eventually(lambda: is_ordered(provider), "an order")
                here.eventually(lambda: running(provider), "a virtual node")
                assert calls.read_text() == expected
                assert foreign_cluster(here, "turin")["status"]["role"] == "Provider"
                [name] = here.nodes()
                node = here.nodes()[name]
                provider.delete_nodes(GROUP, [_ref(node)], deadline=within())
                here.eventually(lambda: not _identities(here), "the peering to end")
                here.eventually(lambda: not _kubeconfigs(here), "the kubeconfig to go")
                here.eventually(lambda: _authentication(here) == {"enabled": True}, "the status that is left")
        assert not here.manager.told("orbidden")
        assert not here.manager.told("No such option")


def _ref(node: Json) -> NodeRef:
    return NodeRef(node["metadata"]["name"], node["spec"]["providerID"], node["metadata"]["labels"])


def _authentication(here: Site) -> Json:
    found: Json = foreign_cluster(here, "turin")["status"]["modules"]["authentication"]
    return found


def _identities(here: Site) -> list[Json]:
    return here.plane.api.items(IDENTITIES)


def _kubeconfigs(here: Site) -> list[Json]:
    return here.plane.api.items("/api/v1/secrets", labelSelector="liqo.io/identity-type=ControlPlane")


RIGHTS = {
    ("create", "", "namespaces", ""): True,
    ("delete", "", "namespaces", ""): False,
    ("list", "", "configmaps", "liqo"): True,
    ("list", "", "configmaps", "kube-system"): False,
    ("get", "", "secrets", "liqo-tenant-turin"): True,
    ("list", "", "secrets", "liqo-tenant-turin"): True,
    ("create", "", "secrets", "liqo-tenant-turin"): True,
    ("update", "", "secrets", "liqo-tenant-turin"): False,
    ("delete", "", "secrets", "liqo-tenant-turin"): False,
    ("get", "authentication.liqo.io", "identities", ""): True,
    ("list", "authentication.liqo.io", "identities", ""): True,
    ("create", "authentication.liqo.io", "identities", ""): True,
    ("delete", "authentication.liqo.io", "identities", ""): True,
    ("update", "authentication.liqo.io", "identities", ""): False,
    ("create", "authentication.liqo.io", "tenants", ""): False,
    ("list", "networking.liqo.io", "gatewayclients", ""): True,
    ("list", "networking.liqo.io", "gatewayservers", ""): True,
    ("list", "networking.liqo.io", "configurations", ""): True,
    ("create", "networking.liqo.io", "configurations", ""): False,
}


def test_the_rights_of_the_component(installed: ControlPlane) -> None:
    def allowed(verb: str, group: str, resource: str, namespace: str) -> bool:
        asked = {"namespace": namespace, "verb": verb, "group": group, "resource": resource}
        user = f"system:serviceaccount:{PARTS}:{ACCOUNT}"
        review = {
            "apiVersion": "authorization.k8s.io/v1",
            "kind": "SubjectAccessReview",
            "spec": {"user": user, "resourceAttributes": asked},
        }
        answer = installed.api.post("/apis/authorization.k8s.io/v1/subjectaccessreviews", review)
        return bool(answer["status"]["allowed"])

    # RBAC is read by the API server a moment after it is written.
    installed.wait_for(lambda: allowed("list", "", "configmaps", "liqo"), "the rights to count", seconds=WAIT_SECONDS)
    assert {right: allowed(*right) for right in RIGHTS} == RIGHTS


def test_slices_of_consumers_are_neither_counted_nor_deleted(cluster: ControlPlane, tmp_path: Path) -> None:
    """A replica has all labels of its original, those of the consumer's node manager included."""
    with site(cluster, tmp_path, {"rome": 1}, start=False) as here:
        here.policy.silent = frozenset({"rome"})
        lent = borrowed(cluster.api)
        here.start(CONFIG + "provisionTimeout: 1s\n")
        with here.provider() as provider:
            assert provider.target_size(GROUP, deadline=within()) == 0
            provider.increase_size(GROUP, 1, deadline=within())
            here.eventually(lambda: not here.slices(), "a slice of our own to be given back")
            assert [*provider.instances(GROUP, deadline=within())] == []
            assert borrowed(cluster.api) == lent == {"oslo-1"}


def test_a_mere_consumer_is_not_ordered_from(cluster: ControlPlane, tmp_path: Path) -> None:
    with site(cluster, tmp_path, {"oslo": 1}, peers=()) as here, here.provider() as provider:
        status = foreign_cluster(here, "oslo")["status"]
        assert (status["role"], status["modules"]["authentication"]["enabled"]) == ("Consumer", True)
        assert "oslo: there is no peering with it" in refused(provider)
        assert here.slices() == []


def test_a_cluster_that_cannot_be_reached_is_not_ordered_from(cluster: ControlPlane, tmp_path: Path) -> None:
    def told(status: str) -> bool:
        conditions = foreign_cluster(here, "rome")["status"].get("conditions", ())
        return [(each["type"], each["status"]) for each in conditions] == [("APIServerStatus", status)]

    with site(cluster, tmp_path, {"rome": 1}) as here, here.provider() as provider:
        here.policy.unreachable = frozenset({"rome"})
        here.eventually(lambda: told("Error"), "the cluster to be called unreachable")
        assert "rome: its API server cannot be reached" in refused(provider)
        assert here.slices() == []
        here.policy.unreachable = frozenset()
        here.eventually(lambda: told("Established"), "the cluster to be called reachable")
        provider.increase_size(GROUP, 1, deadline=within())
        here.eventually(lambda: running(provider), "a virtual node")


def test_a_provider_with_a_kubeconfig_and_without_an_identity_is_ordered_from(
    cluster: ControlPlane, tmp_path: Path
) -> None:
    """Liqo v1.2 takes a kubeconfig Secret that an administrator made."""
    with site(cluster, tmp_path, {"turin": 1}, peers=()) as here, here.provider() as provider:
        secret = objects.kubeconfig_secret("turin", objects.tenant_name("turin"))
        cluster.apply([objects.tenant_namespace("turin"), secret])
        here.eventually(lambda: _kubeconfigs(here), "the kubeconfig")
        assert "turin: there is no peering with it" in refused(provider)
        foreign = {"apiVersion": "core.liqo.io/v1beta1", "kind": "ForeignCluster", "metadata": {"name": "turin"}}
        cluster.apply([{**foreign, "spec": {"clusterID": "turin"}}])
        here.eventually(lambda: foreign_cluster(here, "turin").get("status", {}).get("role") == "Provider", "its role")
        assert foreign_cluster(here, "turin")["status"]["modules"]["authentication"] == {"enabled": True}
        provider.increase_size(GROUP, 1, deadline=within())
        here.eventually(lambda: running(provider), "a virtual node")


def test_a_slice_of_another_class_is_granted_by_whoever_grants_it(cluster: ControlPlane, tmp_path: Path) -> None:
    with site(cluster, tmp_path, {"rome": 1}, start=False) as here:
        here.start(CONFIG.replace("maxSize: 4", "maxSize: 4\n    class: gold"))
        with here.provider() as provider:
            provider.increase_size(GROUP, 1, deadline=within())
            here.eventually(lambda: _answered(here) == ["Authentication"], "Liqo's own answer")
            assert [each["spec"]["class"] for each in here.slices()] == ["gold"]
            here.policy.classes |= {"gold"}
            here.eventually(lambda: running(provider), "a virtual node")
            [node] = here.nodes().values()
            assert node["status"]["allocatable"] == {**NODE, "ephemeral-storage": "20Gi"}


def _answered(here: Site) -> list[str]:
    return [told["type"] for piece in here.slices() for told in piece.get("status", {}).get("conditions", ())]
