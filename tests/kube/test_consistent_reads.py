"""Consistent reads and their requests."""

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from rescheduler.errors import Forbidden, InputError, NotFound, ReschedulerError, Retryable
from rescheduler.kube.client import Client
from rescheduler.kube.cluster import KubeCluster
from rescheduler.kube.consistent_reads import MANY
from rescheduler.planning.last_look import FreshPod, NodeLease, PreemptedPod
from tests.kube.edge import ReceivedRequest, Reply, ScriptedApiServer, Step, status

NODES, PODS, BUDGETS = "/api/v1/nodes", "/api/v1/pods", "/apis/policy/v1/poddisruptionbudgets"


def node(name: str, **status: Any) -> dict[str, Any]:
    return {"metadata": {"name": name, "uid": f"uid-{name}"}, "status": status}


def pod(name: str, on: str = "", phase: str = "Running", **meta: Any) -> dict[str, Any]:
    meta = {"namespace": "ns", "name": name, "uid": f"uid-{name}", **meta}
    return {"metadata": meta, "spec": {"nodeName": on}, "status": {"phase": phase}}


def budget(name: str, namespace: str) -> dict[str, Any]:
    return {"metadata": {"namespace": namespace, "name": name}, "status": {"disruptionsAllowed": 1}}


def listed(*items: dict[str, Any], following: str = "") -> Reply:
    return Reply({"metadata": {"resourceVersion": "9", "continue": following}, "items": items})


def by_selector(**answers: Reply) -> Any:
    """Script responses to lists of pods by field selector, with ``_`` for characters that names cannot contain."""

    def answer(request: ReceivedRequest) -> Reply:
        return answers[request.query["fieldSelector"].replace("spec.nodeName=", "").replace(",status.phase=", "_")]

    return answer


def asked(edge: ScriptedApiServer) -> list[tuple[str, str]]:
    """Return paths and field selectors of the requests. Checks that no request may be served from a cache."""
    assert not any("resourceVersion" in request.query for request in edge.requests)
    return [(request.path, request.query.get("fieldSelector", "")) for request in edge.requests]


def test_a_few_targets_are_read_one_by_one(edge: ScriptedApiServer, client: Client) -> None:
    leaving = pod("b", "od", deletionTimestamp="2026-01-01T00:00:00Z")
    edge.on("GET", f"{NODES}/od", Reply(node("od")))
    edge.on("GET", f"{NODES}/spot", Reply(node("spot", allocatable={"cpu": "4"})))
    edge.on("GET", f"{NODES}/gone", status(404))
    edge.on(
        "GET",
        PODS,
        by_selector(
            _Pending=listed(pod("new"), pod("bound-meanwhile")),
            od=listed(pod("a", "od"), leaving),
            spot=listed(pod("bound-meanwhile", "spot"), pod("c", "spot", "Succeeded")),
            gone=listed(),
        ),
    )
    edge.on("GET", "/apis/policy/v1/namespaces/ns/poddisruptionbudgets", listed(budget("web", "ns")))
    fresh = KubeCluster(client).read_fresh("od", ["spot", "gone"], ["ns"])
    assert (fresh.node, sorted(fresh.asked), sorted(fresh.nodes)) == ("od", ["gone", "od", "spot"], ["od", "spot"])
    assert fresh.nodes["spot"].status.allocatable == {"cpu": "4"}
    assert fresh.pods == {
        "uid-new": FreshPod("ns", "new", ""),
        "uid-bound-meanwhile": FreshPod("ns", "bound-meanwhile", "spot"),
        "uid-a": FreshPod("ns", "a", "od"),
        "uid-b": FreshPod("ns", "b", "od", terminating=True),
        "uid-c": FreshPod("ns", "c", "spot", finished=True),
    }
    assert [(key, budget_.status.disruptions_allowed) for key, budget_ in fresh.budgets.items()] == [("ns/web", 1)]
    assert asked(edge) == [
        (f"{NODES}/gone", ""),
        (f"{NODES}/od", ""),
        (f"{NODES}/spot", ""),
        (PODS, "spec.nodeName=,status.phase=Pending"),
        (PODS, "spec.nodeName=gone"),
        (PODS, "spec.nodeName=od"),
        (PODS, "spec.nodeName=spot"),
        ("/apis/policy/v1/namespaces/ns/poddisruptionbudgets", ""),
    ]


def test_many_targets_and_namespaces_are_read_with_one_list_each(edge: ScriptedApiServer, client: Client) -> None:
    targets, namespaces = [f"spot-{number}" for number in range(11)], [f"ns-{number}" for number in range(11)]
    unreadable = {"metadata": {"name": "else", "namespace": "else"}, "spec": "?"}
    edge.on("GET", NODES, listed(*map(node, targets[:6]), following="n1"), listed(*map(node, targets[6:]), unreadable))
    edge.on("GET", PODS, listed(pod("a", "od"), pod("b", "spot-3"), following="n1"), listed(pod("c"), pod("d", "else")))
    edge.on("GET", BUDGETS, listed(budget("web", "ns-1"), budget("web", "else"), unreadable))
    fresh = KubeCluster(client).read_fresh("od", targets, namespaces)
    assert set(fresh.nodes) == set(targets)
    assert fresh.pods == {
        "uid-a": FreshPod("ns", "a", "od"),
        "uid-b": FreshPod("ns", "b", "spot-3"),
        "uid-c": FreshPod("ns", "c", ""),
    }
    assert set(fresh.budgets) == {"ns-1/web"}
    live = "status.phase!=Succeeded,status.phase!=Failed"
    assert asked(edge) == [(NODES, ""), (NODES, ""), (PODS, live), (PODS, live), (BUDGETS, "")]
    assert [request.query.get("continue") for request in edge.requests] == [None, "n1", None, "n1", None]


ERRORS: dict[str, tuple[dict[str, Step], type[ReschedulerError], str]] = {
    "a missing permission": ({PODS: status(403, "no")}, Forbidden, "list pods: no (403)"),
    "a busy server": ({f"{NODES}/od": status(429, "slow down")}, Retryable, "get node od: slow down (429)"),
    "a list that expired": ({PODS: status(410, "too old")}, Retryable, "list pods: too old (410)"),
    "a node that cannot be decoded": (
        {f"{NODES}/od": Reply({"metadata": {"name": "od"}, "spec": 7})},
        InputError,
        "get node od: Node od: Expected `object`, got `int` - at `$.spec`",
    ),
    "a pod that cannot be decoded": (
        {PODS: listed({"metadata": {"namespace": "ns", "name": "p"}, "spec": 7})},
        InputError,
        "list pods: Pod ns/p: Expected `object`, got `int` - at `$.spec`",
    ),
}


@pytest.mark.parametrize(("served", "kind", "message"), ERRORS.values(), ids=ERRORS)
def test_failed_reads_are_errors(
    edge: ScriptedApiServer, client: Client, served: dict[str, Step], kind: type[ReschedulerError], message: str
) -> None:
    for path, step in {f"{NODES}/od": Reply(node("od")), PODS: listed(), **served}.items():
        edge.on("GET", path, step)
    with pytest.raises(ReschedulerError) as caught:
        KubeCluster(client).read_fresh("od", [], [])
    assert (type(caught.value), str(caught.value)) == (kind, message)


def test_a_single_node_can_be_read_consistently(edge: ScriptedApiServer, client: Client) -> None:
    edge.on("GET", f"{NODES}/od", Reply(node("od", conditions=[{"type": "Ready", "status": "True"}])), status(404))
    od = KubeCluster(client).node("od")
    assert (od.metadata.uid, od.condition("Ready")) == ("uid-od", "True")
    with pytest.raises(NotFound):
        KubeCluster(client).node("od")


def test_events_tell_which_pods_were_preempted_and_by_which(edge: ScriptedApiServer, client: Client) -> None:
    def told(name: str, **more: Any) -> dict[str, Any]:
        return {"involvedObject": {"namespace": "ns", "name": name, "uid": f"uid-{name}"}, **more}

    events = (
        told("low", related={"uid": "uid-high"}, message="Preempted by pod uid-other on node n"),
        told("text", message="Preempted by pod uid-high on node n"),  # since Kubernetes 1.36
        told("unrelated", related=None),
        told("group", message="Preempted by podgroup uid-group on node n"),
        told("long", message=f"Preempted by pod {'u' * 65} on node n"),
        {"related": "unreadable"},
    )
    edge.on("GET", "/api/v1/events", listed(*events))
    assert KubeCluster(client).preempted() == [PreemptedPod("ns/low", "uid-high"), PreemptedPod("ns/text", "uid-high")]
    assert asked(edge) == [("/api/v1/events", "involvedObject.kind=Pod,reason=Preempted")]


LEASES = "/apis/coordination.k8s.io/v1/namespaces/kube-node-lease/leases"
RENEWED = "2026-01-01T00:00:00.000000Z"


def lease(name: str, **spec: Any) -> dict[str, Any]:
    return {"metadata": {"name": name, "namespace": "kube-node-lease"}, "spec": spec}


def test_the_leases_of_a_few_nodes_are_read_one_by_one(edge: ScriptedApiServer, client: Client) -> None:
    edge.on("GET", f"{LEASES}/a", Reply(lease("a", renewTime=RENEWED, leaseDurationSeconds=40)))
    edge.on("GET", f"{LEASES}/never-renewed", Reply(lease("never-renewed")))
    edge.on("GET", f"{LEASES}/none", status(404))
    found = KubeCluster(client).node_leases({"none", "never-renewed", "a"})
    assert found == {"a": NodeLease(datetime(2026, 1, 1, tzinfo=UTC), timedelta(seconds=40))}
    assert asked(edge) == [(f"{LEASES}/{name}", "") for name in ("a", "never-renewed", "none")]


def test_the_leases_of_many_nodes_are_read_with_one_list(edge: ScriptedApiServer, client: Client) -> None:
    names = [f"node-{number}" for number in range(MANY + 1)]
    leases = [lease(name, renewTime=RENEWED, leaseDurationSeconds=40) for name in (*names[1:], "another")]
    edge.on("GET", LEASES, listed(*leases))
    assert KubeCluster(client).node_leases(names).keys() == {*names[1:]}
    assert asked(edge) == [(LEASES, "")]


def test_without_the_right_to_read_leases_nodes_count_as_alive(edge: ScriptedApiServer, client: Client) -> None:
    edge.on("GET", f"{LEASES}/a", status(403))
    assert KubeCluster(client).node_leases({"a"}) == {}


def test_of_other_nodes_only_the_pods_of_the_owners_are_decoded(edge: ScriptedApiServer, client: Client) -> None:
    def owned(name: str, on: str, owner: str, **fields: Any) -> dict[str, Any]:
        references = [{"kind": "ReplicaSet", "name": owner, "uid": owner, "controller": True}]
        return {**pod(name, on, ownerReferences=references), **fields}

    unreadable = {"spec": {"nodeName": 1}}
    edge.on("GET", PODS, listed(pod("alone", "od")))
    pods = listed(owned("ours", "spot", "web"), owned("broken", "spot", "db", **unreadable), pod("bare", "spot"))
    edge.on("GET", "/api/v1/namespaces/ns/pods", pods)
    read = KubeCluster(client).pods("od", {("ns", "web"), ("ns", "gone")})
    assert sorted(each.name for each in read) == ["alone", "ours"]
