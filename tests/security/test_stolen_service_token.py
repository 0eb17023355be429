"""What the owners of the tokens of the proxy and of the services can do: a table of verb, object and field.

The proxy has the limits of the daemon, so its table is that of the daemon with other rights.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

import pytest
import yaml

from devcluster import cleaning
from devcluster.api import Api
from devcluster.manifests import namespace, node, pod
from devcluster.plane import INSTALLATION, ControlPlane
from tests.cluster.rendering import kustomization
from tests.cluster.rights import LIMITED_ACCESS, user
from tests.security.thief import (
    ADMISSION,
    ALLOWED,
    APPLY,
    DELETION,
    EVICTION,
    FOREIGN,
    HELD,
    LEASE_CHANGES,
    LEASES,
    LIMITED,
    LONG,
    MEMORY,
    METADATA,
    NO_RIGHT,
    NODE,
    OURS,
    OWNER,
    SAME,
    SAVINGS,
    TAINTS,
    Thief,
    Try,
    held,
    merge,
    taints,
)

pytestmark = pytest.mark.cluster

PROXY: Final = "cloudpool-proxy"
SERVICE: Final = "provider-service"
MANAGER: Final = "node-manager"
DISCOVERY: Final = "discovery-server"
LIQO: Final = "liqo-autoscaling"
POOL: Final = f"{LEASES}/{INSTALLATION}/leases/spot-rescheduler-pool"
VIRTUAL: Final = "/api/v1/nodes/virtual"
SLICES: Final = "/apis/authentication.liqo.io/v1beta1/namespaces/default/resourceslices"

#: What is about the state of the daemon, which other accounts may not read or change.
STATE: Final = (OURS, MEMORY, SAVINGS)
OF_THE_DAEMON: Final = {
    name: request
    for name, request in (*ALLOWED.items(), *((name, request) for name, (request, _) in LIMITED.items()))
    if request.path in STATE
}
#: What nobody with one of these tokens may do.
FORBIDDEN: Final = {
    name: request
    for name, request in (NO_RIGHT | OF_THE_DAEMON).items()
    if name not in {"delete a Node", "delete all Nodes"}
}


def rows(table: dict[str, Try]) -> dict[str, Try]:
    return {name: request for name, request in table.items() if request.path not in STATE}


PROXY_MAY: Final = rows(ALLOWED) | {
    "delete a Node with its UID": Try("DELETE", NODE, SAME),
    "patch the Lease of the pool": merge(POOL, spec={"holderIdentity": "a_1"}),
}
PROXY_LIMITS: Final[dict[str, tuple[Try, str]]] = {
    **{name: row for name, row in LIMITED.items() if row[0].path not in STATE},
    "delete a Node": (Try("DELETE", NODE), DELETION),
    "patch the Lease of the pool: ownerReferences": (merge(POOL, metadata={"ownerReferences": [OWNER]}), METADATA),
    "patch the Lease of the pool: finalizers": (merge(POOL, metadata={"finalizers": ["a.b/x"]}), METADATA),
    "patch the Lease of the pool: labels": (merge(POOL, metadata={"labels": {"a": "b"}}), METADATA),
}

ONLY_VIRTUAL: Final = "only virtual nodes of Liqo may be changed"
ONLY_LABELS: Final = "of the metadata, only labels may be changed"
LIQO_LABELS: Final = "labels of Liqo may not be changed, and no labels may be removed"
ONLY_ID: Final = "of a Node's spec, only providerID may be changed, to a value that begins with liqo://"
MANAGER_MAY: Final = {
    "patch a virtual node": merge(VIRTUAL, metadata={"labels": {"a": "b"}}, spec={"providerID": "liqo://virtual"}),
    "patch a virtual node: change another label": merge(VIRTUAL, metadata={"labels": {"provider": "liqo"}}),
}
MANAGER_LIMITS: Final[dict[str, tuple[Try, str]]] = {
    "patch another Node: a label": (merge(NODE, metadata={"labels": {"a": "b"}}), ONLY_VIRTUAL),
    "make another Node a virtual one": (
        merge(NODE, metadata={"labels": {"liqo.io/type": "virtual-node"}}),
        ONLY_VIRTUAL,
    ),
    "patch another Node: its provider ID": (merge(NODE, spec={"providerID": "liqo://n1"}), ONLY_VIRTUAL),
    "patch another Node: NoExecute": (taints(FOREIGN, {"key": "a.b/x", "effect": "NoExecute"}), ONLY_VIRTUAL),
    "patch another Node: ownerReferences": (merge(NODE, metadata={"ownerReferences": [OWNER]}), ONLY_VIRTUAL),
    "ownerReferences": (merge(VIRTUAL, metadata={"ownerReferences": [OWNER]}), ONLY_LABELS),
    "ownerReferences, server-side apply": (
        Try(
            "PATCH",
            VIRTUAL,
            {"apiVersion": "v1", "kind": "Node", "metadata": {"name": "virtual", "ownerReferences": [OWNER]}},
            APPLY,
        ),
        ONLY_LABELS,
    ),
    "finalizers": (merge(VIRTUAL, metadata={"finalizers": ["a.b/x"]}), ONLY_LABELS),
    "annotations": (merge(VIRTUAL, metadata={"annotations": {"a.b/x": "y"}}), ONLY_LABELS),
    "the label that makes it a virtual node": (merge(VIRTUAL, metadata={"labels": {"liqo.io/type": "x"}}), LIQO_LABELS),
    "remove that label": (merge(VIRTUAL, metadata={"labels": {"liqo.io/type": None}}), LIQO_LABELS),
    "another label of Liqo": (merge(VIRTUAL, metadata={"labels": {"offloading.liqo.io/x": "b"}}), LIQO_LABELS),
    "add a label of Liqo": (merge(VIRTUAL, metadata={"labels": {"liqo.io/y": "b"}}), LIQO_LABELS),
    "remove all labels": (merge(VIRTUAL, metadata={"labels": None}), LIQO_LABELS),
    "taints": (merge(VIRTUAL, spec={"taints": [{"key": "a.b/x", "effect": "NoExecute"}]}), ONLY_ID),
    "remove the taints": (merge(VIRTUAL, spec={"taints": None}), ONLY_ID),
    "cordon": (merge(VIRTUAL, spec={"unschedulable": True}), ONLY_ID),
    "the provider ID of a machine": (merge(VIRTUAL, spec={"providerID": "aws:///eu-1/i-1"}), ONLY_ID),
}
#: The roles do not permit these, whatever the limits say.
NO_ACCESS: Final = FORBIDDEN | {
    "patch a Node": merge(NODE, spec={"unschedulable": True}),
    "delete a Node": Try("DELETE", NODE, SAME),
    "delete all Nodes": Try("DELETE", "/api/v1/nodes"),
    "evict a pod": ALLOWED["evict a pod with its UID"],
    "patch the Lease of the pool": merge(POOL, spec={"holderIdentity": "a_1"}),
    "list pods": Try("GET", "/api/v1/pods"),
    "read Secrets of clusters": Try("GET", "/api/v1/namespaces/liqo-clusters/secrets"),
    "create a slice": Try("POST", SLICES, {"metadata": {"name": "x"}}),
}
#: What each of the services may do of these.
EXCEPT: Final = {
    SERVICE: {"patch the Lease of the pool"},
    MANAGER: {"patch a Node", "create a slice"},
    DISCOVERY: {"read Secrets of clusters"},
}


@contextmanager
def robbed(plane: ControlPlane, account: str, where: str = INSTALLATION) -> Iterator[Thief]:
    """Somebody with the token of *account* in the namespace *where*."""
    config = yaml.safe_load(plane.service_account_kubeconfig(where, account).read_text())
    with Api(plane.server, ca=plane.ca, token=config["users"][0]["user"]["token"]) as api:
        yield Thief(plane, api)


@pytest.fixture(scope="module")
def plane(control_plane: ControlPlane) -> Iterator[ControlPlane]:
    """A control plane with the manifests of the proxy and the services."""
    shipped = [each for folder in ("proxy", "provider", "liqo") for each in kustomization(folder)]
    objects = [each for each in shipped if each["kind"] in LIMITED_ACCESS | {"Namespace"}]
    labels = {"liqo.io/type": "virtual-node", "offloading.liqo.io/x": "a", "provider": "x"}
    nodes = [node("n1", taints=[FOREIGN], annotations={"example.org/x": "1", "spot-rescheduler/old": "1"})]
    nodes.append(node("virtual", labels=labels, taints=[FOREIGN]))
    control_plane.apply([namespace(INSTALLATION), *objects, *nodes, pod("p1", nodeName="n1")])

    def ready() -> bool:
        return all(each["spec"]["taints"] == [FOREIGN] for each in control_plane.api.items("/api/v1/nodes"))

    control_plane.wait_for(ready, "the taints of Nodes that are not ready yet to be removed")
    yield control_plane
    for each in objects:
        if each["kind"] != "Namespace":
            control_plane.api.delete(control_plane.api.path(each))
    cleaning.empty(control_plane)


def check(thief: Thief, limits: dict[str, tuple[Try, str]], allowed: dict[str, Try]) -> None:
    first, why = next(iter(limits.values()))
    thief.plane.wait_for(lambda: why in thief.attempt(first), "the policy")
    assert {name: thief.attempt(request) for name, request in allowed.items()} == dict.fromkeys(allowed, "")
    found = {name: thief.attempt(request) for name, (request, _) in limits.items()}
    assert {name: text for name, text in found.items() if limits[name][1] not in text} == {}


def test_the_token_of_the_proxy_has_the_limits_of_the_daemon(plane: ControlPlane) -> None:
    with robbed(plane, PROXY) as thief:
        check(thief, PROXY_LIMITS, PROXY_MAY)
        assert {why for _, why in PROXY_LIMITS.values()} >= {METADATA, TAINTS, EVICTION, DELETION}
        assert "deletecollection" in thief.attempt(Try("DELETE", "/api/v1/nodes"))
        forbidden(thief, FORBIDDEN, user(INSTALLATION, PROXY))


def test_the_lease_of_a_pool_is_taken_only_after_it_expired(plane: ControlPlane) -> None:
    with robbed(plane, PROXY) as thief:
        thief.plane.api.patch(POOL, {"spec": held("a_1", "02:00", 7, "00:00")})
        assert HELD in thief.attempt(merge(POOL, spec={"holderIdentity": "b_1"}))
        assert HELD in thief.attempt(merge(POOL, spec=held("b_1", "02:14", 8)))
        assert thief.attempt(merge(POOL, spec=held("b_1", "02:15", 8))) == ""


@pytest.mark.parametrize("account", [PROXY, SERVICE])
def test_the_lease_of_a_pool_does_not_outlast_the_theft(account: str, plane: ControlPlane) -> None:
    with robbed(plane, account) as thief:
        thief.plane.api.patch(POOL, {"spec": held("a_1", "02:00", 7, "00:00")})
        thief.plane.wait_for(lambda: LONG in thief.attempt(merge(POOL, spec={"leaseDurationSeconds": 2**31 - 1})), LONG)
        for name, (spec, why) in LEASE_CHANGES.items():
            thief.plane.api.patch(POOL, {"spec": held("a_1", "02:00", 7, "00:00")})
            actual = thief.attempt(merge(POOL, spec=spec))
            assert (why in actual) if why else actual == "", (name, actual)


def test_the_token_of_the_node_manager_changes_only_virtual_nodes(plane: ControlPlane) -> None:
    with robbed(plane, MANAGER, LIQO) as thief:
        check(thief, MANAGER_LIMITS, MANAGER_MAY)


@pytest.mark.parametrize(("account", "where"), [(SERVICE, INSTALLATION), (MANAGER, LIQO), (DISCOVERY, LIQO)])
def test_the_tokens_of_services_have_no_other_rights(account: str, where: str, plane: ControlPlane) -> None:
    with robbed(plane, account, where) as thief:
        forbidden(
            thief, {name: row for name, row in NO_ACCESS.items() if name not in EXCEPT[account]}, user(where, account)
        )


def forbidden(thief: Thief, table: dict[str, Try], account: str) -> None:
    found = {name: thief.attempt(request) for name, request in table.items()}
    assert {name: text for name, text in found.items() if f'User "{account}" cannot ' not in text} == {}


@pytest.mark.parametrize("policy", ["cloudpool-proxy-limits", "provider-service-limits", "node-manager-limits"])
def test_the_policies_pass_type_checking(policy: str, plane: ControlPlane) -> None:
    path = f"{ADMISSION}/validatingadmissionpolicies/{policy}"
    status = plane.wait_for(lambda: plane.api.get(path).get("status"), "the types checked")
    assert status == {"observedGeneration": 1, "typeChecking": {}}
