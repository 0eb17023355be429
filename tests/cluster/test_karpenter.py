"""The daemon with --cloud-provider=karpenter, with real NodeClaims and a stand-in for the controller that ends them."""

import contextlib
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import pytest

from devcluster.api import Api, Json
from devcluster.errors import ApiError
from devcluster.manifests import on_demand
from devcluster.plane import ControlPlane
from rescheduler.draining.actions import ANNOTATION
from tests.cluster import replicas
from tests.cluster.bad_days import FLAGS
from tests.cluster.daemon import Daemon
from tests.cluster.node_claims import NODE_CLAIMS, claim, claimed, node_pool, served
from tests.cluster.observer import Observer
from tests.cluster.rendering import chart, composed
from tests.cluster.replicas import ReplicatedInstallation
from tests.cluster.test_control_plane import read_kubeconfig

NODE: Final = "od-1"
COMPONENT: Final[Json] = {"resources": ["../base"], "components": ["../components/karpenter"]}
ACCOUNT: Final = "spot-rescheduler"


def test_emptied_nodes_go_by_our_order_and_each_pod_moves_once(cluster: ControlPlane, observer: Observer) -> None:
    """Budgets of 0 and `consolidateAfter: Never` limit what Karpenter does by itself."""
    with claimed(observer, 3, 3) as machines:
        budgets = {"budgets": [{"nodes": "0"}], "consolidateAfter": "Never"}
        cluster.apply([node_pool(disruption=budgets)])
        machines.fill(web=2, api=2, db=2)
        observer.running(6)
        observer.open_all()
        with Daemon(cluster, *FLAGS, *machines.flags):
            observer.eventually(lambda: not machines.claims(), "the end of the NodeClaims")
            observer.eventually(lambda: observer.kinds() == {"spot": 6}, "all pods on spot nodes")
        assert observer.evicted() == {"default/web": 2, "default/api": 2, "default/db": 2}
        assert [event.code for event in machines.orders()] == [200, 200, 200]
        assert not [
            event for event in observer.audit.writes("nodes", agent="spot-rescheduler/") if "create" in event.verb
        ]


def test_a_killed_daemon_sends_no_second_deletion(cluster: ControlPlane, observer: Observer) -> None:
    with claimed(observer, 1, 1) as machines:
        machines.fill(web=2)
        machines.never_end(NODE)
        observer.running(2)
        observer.open_all()
        with Daemon(cluster, *FLAGS, *machines.flags) as daemon:
            observer.eventually(machines.orders, "the deletion of the NodeClaim")
            daemon.kill()
        with Daemon(cluster, *FLAGS, *machines.flags):
            observer.stays(lambda: len(machines.orders()), 1)
            machines.end_all()
            observer.eventually(lambda: NODE not in observer.node_names(), "the end of the node")
            observer.eventually(lambda: not machines.claims(), "the end of the NodeClaim")
        assert len(machines.orders()) == 1
        assert observer.evicted() == {"default/web": 2}


def test_a_node_that_cannot_be_ended_is_not_drained(cluster: ControlPlane, observer: Observer) -> None:
    """Its NodeClaim would end at once. `tests/providers/test_karpenter.py` has the other reasons."""
    with claimed(observer, 1, 1) as machines:
        cluster.api.patch(f"{NODE_CLAIMS}/claim-{NODE}", {"metadata": {"finalizers": ["example.com/other"]}})
        machines.fill(web=1)
        observer.running(1)
        observer.open_all()
        with Daemon(cluster, *FLAGS, *machines.flags):
            observer.wait_told(NODE, "DrainBlocked", "NodeClaim claim-od-1 has no finalizer karpenter.sh/termination")
            observer.stays(lambda: (observer.markings(), machines.orders()), ([], []), seconds=3)
        assert observer.evicted() == {}


@pytest.fixture(params=["component", "chart"])
def account(request: pytest.FixtureRequest, cluster: ControlPlane, tmp_path: Path) -> Iterator[Api]:
    """Return a connection as the ServiceAccount of the daemon, with the permissions that are shipped."""
    values = {"cloudProvider": {"name": "karpenter"}}
    with installed(cluster, chart(values) if request.param == "chart" else composed(tmp_path, ours=COMPONENT)) as api:
        yield api


@contextlib.contextmanager
def installed(cluster: ControlPlane, objects: list[Json]) -> Iterator[Api]:
    """Apply *objects* without the daemon. The block gets a connection as its ServiceAccount."""
    space = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "spot-rescheduler"}}
    shipped = [each for each in objects if each["kind"] not in ("Namespace", "Deployment")]
    with served(cluster):
        applied = cluster.apply([space, *shipped])
        kubeconfig = cluster.service_account_kubeconfig("spot-rescheduler", ACCOUNT)
        with Api(cluster.server, ca=cluster.ca, token=read_kubeconfig(kubeconfig)[1]) as api:
            yield api
        for item in applied[:0:-1]:
            cluster.api.delete(cluster.api.path(item))


def test_fencing_lets_only_the_leader_delete_node_claims(
    cluster: ControlPlane, observer: Observer, tmp_path: Path
) -> None:
    fenced = {**COMPONENT, "components": [*COMPONENT["components"], "../components/fencing"]}
    objects, installation = composed(tmp_path, ours=fenced), ReplicatedInstallation(cluster)
    marked = on_demand("marked", providerID="kwok://marked", annotations={ANNOTATION: "{}"})
    with served(cluster), replicas.installed(installation, objects):
        cluster.apply([marked, claim("marked")])
        cluster.api.patch(installation.lease_path, {"spec": {"holderIdentity": "a_1"}})
        path = f"{NODE_CLAIMS}/claim-marked"

        def refused(pod: str) -> str:
            token = read_kubeconfig(installation.kubeconfig(pod))[1]
            current = cluster.api.get(path)
            try:
                with Api(cluster.server, ca=cluster.ca, token=token) as api:
                    api.request("DELETE", path, options(current) | {"dryRun": ["All"]})
            except ApiError as error:
                return str(error)
            return ""

        cluster.wait_for(lambda: "pod b does not hold the Lease" in refused("b"), "the policy", seconds=30)
        cluster.wait_for(lambda: not refused("a"), "the Lease of a", seconds=30)


def options(item: Json, **changes: str) -> Json:
    meta = item["metadata"]
    return {"preconditions": {"uid": meta["uid"], "resourceVersion": meta["resourceVersion"], **changes}}


def test_only_node_claims_of_marked_nodes_may_be_deleted(
    cluster: ControlPlane, observer: Observer, account: Api
) -> None:
    names = ("marked", "unmarked", "joining")
    marked = on_demand("marked", providerID="kwok://marked", annotations={ANNOTATION: "{}"})
    other = {**on_demand("renamed", providerID="kwok://shared"), "spec": {"providerID": "kwok://shared"}}
    cluster.apply([marked, on_demand("unmarked", providerID="kwok://unmarked"), other, *map(claim, names)])
    shared = claim("marked-too")
    shared["status"] = {"nodeName": "marked", "providerID": "kwok://shared"}
    [shared] = cluster.apply([shared])
    cluster.api.patch(f"{NODE_CLAIMS}/claim-joining/status", {"status": {"nodeName": None}})
    claims = {each["metadata"]["name"]: each for each in account.items(NODE_CLAIMS)}
    others = [claims[name] for name in ("claim-unmarked", "claim-marked-too")]
    cluster.wait_for(
        lambda: all(is_denied(account, each) for each in others), "the policy to see the Nodes", seconds=30
    )
    assert refusal(account, claims["claim-unmarked"]) == "node unmarked has no annotation spot-rescheduler/drain"
    assert refusal(account, claims["claim-marked-too"]) == "node renamed has no annotation spot-rescheduler/drain"
    assert (
        refusal(account, claims["claim-joining"]) == "the NodeClaim of a machine that has not joined may not be deleted"
    )
    plain = {"preconditions": {"uid": claims["claim-marked"]["metadata"]["uid"]}}
    bodies: tuple[Json, ...] = (plain, {"preconditions": {}})
    for body in bodies:
        assert "with its UID and a resourceVersion as preconditions" in refusal(account, claims["claim-marked"], body)
    assert cluster.api.items(NODE_CLAIMS) == [*claims.values()]
    account.request("DELETE", f"{NODE_CLAIMS}/claim-marked", options(claims["claim-marked"]))
    assert "deletionTimestamp" in cluster.api.get(f"{NODE_CLAIMS}/claim-marked")["metadata"]
    with pytest.raises(ApiError, match="forbidden"):
        account.patch(f"{NODE_CLAIMS}/claim-unmarked", {"metadata": {"finalizers": None}})
    cluster.api.delete(f"{NODE_CLAIMS}/claim-unmarked")  # other clients are not limited


def is_denied(account: Api, item: Json) -> bool:
    """Return whether the deletion of *item* is denied, by a dry run."""
    body = options(item) | {"dryRun": ["All"]}
    try:
        account.request("DELETE", f"{NODE_CLAIMS}/{item['metadata']['name']}", body)
    except ApiError:
        return True
    return False


def refusal(account: Api, item: Json, body: Json | None = None) -> str:
    """Return why the deletion of *item* is denied; *body* replaces its preconditions."""
    with pytest.raises(ApiError) as raised:
        account.request("DELETE", f"{NODE_CLAIMS}/{item['metadata']['name']}", options(item) if body is None else body)
    assert raised.value.status == 403
    return str(raised.value).partition("denied request: spot-rescheduler karpenter: ")[2].partition(": it is not")[0]


def test_the_daemon_needs_no_more_than_the_component(cluster: ControlPlane, observer: Observer, tmp_path: Path) -> None:
    objects = composed(tmp_path, ours=COMPONENT)
    space = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "spot-rescheduler"}}
    with claimed(observer, 1, 1) as machines:
        applied = cluster.apply([space, *(each for each in objects if each["kind"] not in ("Namespace", "Deployment"))])
        machines.fill(web=1)
        observer.running(1)
        observer.open_all()
        own = cluster.service_account_kubeconfig("spot-rescheduler", ACCOUNT)
        flags = (*FLAGS, *machines.flags, "--namespace=spot-rescheduler")
        with Daemon(cluster, *flags, kubeconfig=own):
            observer.eventually(lambda: not machines.claims(), "the end of the NodeClaim")
        for item in applied[:0:-1]:
            cluster.api.delete(cluster.api.path(item))
    assert observer.evicted() == {"default/web": 1}
