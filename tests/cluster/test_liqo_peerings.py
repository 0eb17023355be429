"""Peerings with providers, with liqoctl and the shipped rights.

Consumers, unreachable clusters and other classes of slices are in `tests/liqo_services`.
"""

import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from devcluster.api import Json
from devcluster.liqo import objects
from devcluster.liqo.peerings import FOREIGN_CLUSTERS, IDENTITIES
from devcluster.plane import ControlPlane
from rescheduler.clock import SystemClock
from rescheduler.errors import ReschedulerError
from rescheduler.liqo.provider import LiqoProvider
from rescheduler.providers.base import InstanceState, NodeRef
from tests.cluster.rendering import composed
from tests.cluster.rights import is_allowed, user
from tests.cluster.virtual import CONFIG, WAIT_SECONDS, VirtualSite, site

GROUP = "STANDARD"
PARTS, ACCOUNT = "liqo-autoscaling", "node-manager"
ROOT = Path(__file__).parents[2]


def within() -> float:
    return SystemClock().monotonic() + WAIT_SECONDS


def running(provider: LiqoProvider) -> bool:
    result = provider.instances(GROUP, deadline=within())
    return [each.state for each in result] == [InstanceState.RUNNING]


def is_ordered(provider: LiqoProvider) -> bool:
    """Order a node; return False if the peering is being deleted."""
    try:
        provider.increase_size(GROUP, 1, deadline=within())
    except ReschedulerError as error:
        if "its peering is being ended" not in str(error):
            raise
        return False
    return True


def foreign_cluster(here: VirtualSite, name: str) -> Json:
    return here.plane.api.get(f"{FOREIGN_CLUSTERS}/{name}")


@pytest.fixture
def liqoctl(tmp_path: Path) -> Path:
    """The liqoctl stand-in as an executable."""
    program = tmp_path / "liqoctl"
    module = f'{sys.executable} -m devcluster.liqo.liqoctl "$@"'
    program.write_text(f'#!/bin/sh\necho "$1" >> {tmp_path}/calls\nPYTHONPATH={ROOT} exec {module}\n')
    program.chmod(0o755)
    return program


@pytest.fixture
def installed(cluster: ControlPlane, tmp_path: Path) -> Iterator[ControlPlane]:
    """The manifests of deploy/liqo with the liqoctl component, without Deployments."""
    component = {"resources": ["../liqo"], "components": ["../liqo/components/liqoctl"]}
    applied = [each for each in composed(tmp_path, ours=component) if each["kind"] != "Deployment"]
    cluster.apply([*objects.installation(), *applied])
    yield cluster
    for each in applied:
        if each["kind"].startswith("ClusterRole"):
            cluster.api.delete(cluster.api.path(each))


def test_a_peering_is_created_used_deleted_and_recreated_with_the_shipped_rights(
    installed: ControlPlane, tmp_path: Path, liqoctl: Path
) -> None:
    """After the deletion, the ForeignCluster still has the status "enabled", in real clusters for hours."""
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
                here.eventually(lambda: not _identities(here), "the deletion of the peering")
                here.eventually(lambda: not _kubeconfigs(here), "the deletion of the kubeconfig")
                here.eventually(lambda: _authentication(here) == {"enabled": True}, "the remaining status")
        assert not here.manager.logged("orbidden")
        assert not here.manager.logged("No such option")


def _ref(node: Json) -> NodeRef:
    return NodeRef(node["metadata"]["name"], node["spec"]["providerID"], node["metadata"]["labels"])


def _authentication(here: VirtualSite) -> Json:
    result: Json = foreign_cluster(here, "turin")["status"]["modules"]["authentication"]
    return result


def _identities(here: VirtualSite) -> list[Json]:
    return here.plane.api.items(IDENTITIES)


def _kubeconfigs(here: VirtualSite) -> list[Json]:
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


def test_the_component_grants_exactly_these_rights(installed: ControlPlane) -> None:
    def allowed(verb: str, group: str, resource: str, namespace: str) -> bool:
        attributes = {"namespace": namespace, "verb": verb, "group": group, "resource": resource}
        return is_allowed(installed.api, user(PARTS, ACCOUNT), attributes)

    # RBAC changes take effect with a delay.
    installed.wait_for(
        lambda: allowed("list", "", "configmaps", "liqo"), "the rights to take effect", seconds=WAIT_SECONDS
    )
    assert {right: allowed(*right) for right in RIGHTS} == RIGHTS
