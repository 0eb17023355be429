"""Writes: outcomes of evictions, edits of nodes with concurrent writers, deletions by UID."""

from datetime import UTC, datetime
from typing import Any

import pytest

from predicates.objects import Node, Taint
from rescheduler.draining.events import EvictionAccepted, EvictionFailed, EvictionOutcome, EvictionRefused, PodGone
from rescheduler.errors import Conflict, MarkLost, NotFound
from rescheduler.kube.client import Client
from rescheduler.kube.cluster import KubeCluster, NodeConditions, NodeEdit
from tests.kube.edge import Reply, ResetReply, ScriptedApiServer, Step, status

POD = "/api/v1/namespaces/ns/pods/web-0"
EVICTION = f"{POD}/eviction"
NODE = "/api/v1/nodes/node-1"
UID = "u1"


def refused_by(*messages: str, seconds: int = 0) -> Reply:
    causes = [{"reason": "DisruptionBudget", "message": text} for text in messages]
    text = "Cannot evict pod as it would violate the pod's disruption budget."
    return status(429, text, "TooManyRequests", causes=causes, retryAfterSeconds=seconds)


NEEDS = "The disruption budget web needs 2 healthy pods and has 2 currently"
TWO_BUDGETS = "This pod has more than one PodDisruptionBudget, which the eviction subresource does not support."

EVACUATES = 'Eviction triggered evacuation of VMI "ns/vm"'

ANSWERS: dict[str, tuple[Step, EvictionOutcome]] = {
    "evicted": (Reply({"kind": "Status", "status": "Success", "code": 201}, 201), EvictionAccepted(UID)),
    "gone": (status(404, 'pods "web-0" not found'), PodGone(UID)),
    "rejected by a budget": (refused_by(NEEDS), EvictionRefused(UID, NEEDS, None)),
    "a budget that is not counted yet": (
        refused_by("The disruption budget web is still being processed by the server.", seconds=10),
        EvictionFailed(
            UID,
            "evict pod ns/web-0: The disruption budget web is still being processed by the server. (429)",
            retryable=True,
            retry_after=10.0,
            code=429,
        ),
    ),
    "rejected by a budget with a retry time": (refused_by(NEEDS, seconds=7), EvictionRefused(UID, NEEDS, 7.0)),
    "two causes": (
        refused_by(NEEDS, "no name here"),
        EvictionRefused(UID, f"{NEEDS}; no name here", None),
    ),
    "the server is busy": (
        status(429, "too many requests", retryAfterSeconds=3),
        EvictionFailed(UID, "evict pod ns/web-0: too many requests (429)", retryable=True, retry_after=3.0, code=429),
    ),
    "two budgets: code 201 and a failure in the body": (
        Reply({"kind": "Status", "status": "Failure", "code": 500, "message": TWO_BUDGETS}, 201),
        EvictionFailed(UID, f"evict pod ns/web-0: {TWO_BUDGETS} (500)", retryable=False, code=500),
    ),
    "two budgets: an error code": (
        status(500, TWO_BUDGETS),
        EvictionFailed(UID, f"evict pod ns/web-0: {TWO_BUDGETS} (500)", retryable=False, code=500),
    ),
    "an error of the server": (
        status(500, "oops"),
        EvictionFailed(UID, "evict pod ns/web-0: oops (500)", retryable=True, code=500),
    ),
    "a timeout of the server": (
        status(504, "couldn't update PodDisruptionBudget", retryAfterSeconds=10),
        EvictionFailed(
            UID,
            "evict pod ns/web-0: couldn't update PodDisruptionBudget (504)",
            retryable=True,
            retry_after=10.0,
            code=504,
        ),
    ),
    "not permitted": (
        status(403, "pods/eviction is forbidden"),
        EvictionFailed(UID, "evict pod ns/web-0: pods/eviction is forbidden (403)", retryable=False, code=403),
    ),
    "an expired token": (
        status(401, "Unauthorized"),
        EvictionFailed(
            UID,
            "evict pod ns/web-0: the credentials were rejected; the token may have expired (401)",
            retryable=True,
            code=401,
        ),
    ),
    "rejected by a budget, since Kubernetes 1.37": (
        status(403, "Cannot evict pod", causes=[{"reason": "DisruptionBudget", "message": NEEDS}]),
        EvictionRefused(UID, NEEDS, None),
    ),
    "denied by a webhook that moves the pod by itself": (
        status(429, f'admission webhook "kubevirt.io" denied the request: {EVACUATES}', retryAfterSeconds=1),
        EvictionFailed(
            UID,
            f'evict pod ns/web-0: admission webhook "kubevirt.io" denied the request: {EVACUATES} (429)',
            retryable=False,
            code=429,
            migrating=True,
        ),
    ),
    "denied by a webhook with a conflict": (
        status(409, 'admission webhook "no.test" denied the request: not now'),
        EvictionFailed(
            UID,
            'evict pod ns/web-0: admission webhook "no.test" denied the request: not now (409)',
            retryable=False,
            code=409,
        ),
    ),
    "a webhook that cannot be called": (
        status(500, 'Internal error occurred: failed calling webhook "no.test"'),
        EvictionFailed(
            UID,
            'evict pod ns/web-0: Internal error occurred: failed calling webhook "no.test" (500)',
            retryable=True,
            code=500,
        ),
    ),
    "denied by a webhook": (
        status(400, 'admission webhook "no.test" denied the request'),
        EvictionFailed(
            UID, 'evict pod ns/web-0: admission webhook "no.test" denied the request (400)', retryable=False, code=400
        ),
    ),
}


@pytest.mark.parametrize(("step", "expected"), ANSWERS.values(), ids=ANSWERS)
def test_each_response_to_an_eviction_has_an_outcome(
    edge: ScriptedApiServer, client: Client, step: Step, expected: EvictionOutcome
) -> None:
    edge.on("POST", EVICTION, step)
    assert KubeCluster(client).evict("ns", "web-0", "u1", 30) == expected


CONFLICTS: dict[str, tuple[Step, EvictionOutcome]] = {
    "replaced by another pod": (Reply({"metadata": {"uid": "u2"}}), PodGone(UID)),
    "deleted": (status(404), PodGone(UID)),
    "modified concurrently": (
        Reply({"metadata": {"uid": "u1"}}),
        EvictionFailed(UID, "evict pod ns/web-0: the pod was modified concurrently (409)", retryable=True, code=409),
    ),
    "the pod cannot be read": (
        status(503, "away"),
        EvictionFailed(UID, "get pod ns/web-0: away (503)", retryable=True),
    ),
}


@pytest.mark.parametrize(("pod_response", "expected"), CONFLICTS.values(), ids=CONFLICTS)
def test_after_409_the_pod_is_read(
    edge: ScriptedApiServer, client: Client, pod_response: Step, expected: EvictionOutcome
) -> None:
    edge.on("POST", EVICTION, status(409, "the UID in the precondition (u1) does not match"))
    edge.on("GET", POD, pod_response)
    assert KubeCluster(client).evict("ns", "web-0", "u1") == expected


def test_an_eviction_without_a_response_is_retryable(edge: ScriptedApiServer, client: Client) -> None:
    edge.on("POST", EVICTION, ResetReply())
    outcome = KubeCluster(client).evict("ns", "web-0", "u1")
    assert isinstance(outcome, EvictionFailed)
    assert outcome.retryable


REQUESTS: dict[str, tuple[dict[str, Any], dict[str, str], dict[str, Any]]] = {
    "the pod's own grace": ({}, {}, {"preconditions": {"uid": "u1"}}),
    "a cap": ({"grace_seconds": 0}, {}, {"preconditions": {"uid": "u1"}, "gracePeriodSeconds": 0}),
    "a dry run": ({"dry_run": True}, {"dryRun": "All"}, {"preconditions": {"uid": "u1"}, "dryRun": ["All"]}),
}


@pytest.mark.parametrize(("options", "query", "expected"), REQUESTS.values(), ids=REQUESTS)
def test_an_eviction_has_the_uid_of_the_pod(
    edge: ScriptedApiServer, client: Client, options: dict[str, Any], query: dict[str, str], expected: dict[str, Any]
) -> None:
    edge.on("POST", EVICTION, Reply({}, 201))
    KubeCluster(client).evict("ns", "web-0", "u1", **options)
    assert edge.requests[0].query == query
    assert edge.requests[0].body == {
        "apiVersion": "policy/v1",
        "kind": "Eviction",
        "metadata": {"namespace": "ns", "name": "web-0"},
        "deleteOptions": expected,
    }


TAINT = Taint(key="ours", effect="NoSchedule", value="now")


def node(
    version: str,
    *,
    uid: str = "n1",
    taints: list[dict[str, str]] | None = None,
    annotations: dict[str, str] | None = None,
) -> Reply:
    marks = {"annotations": annotations} if annotations else {}
    return Reply(
        {
            "metadata": {"name": "node-1", "uid": uid, "resourceVersion": version, **marks},
            "spec": {"taints": taints} if taints else {},
        }
    )


def test_a_node_is_patched_at_the_version_that_was_read(edge: ScriptedApiServer, client: Client) -> None:
    edge.on("GET", NODE, node("7", taints=[{"key": "theirs", "effect": "NoExecute"}]))
    edge.on("PATCH", NODE, Reply())
    KubeCluster(client).edit_node("node-1", "n1", NodeEdit(taint=(TAINT,), annotate={"intent": "drain"}))
    assert [request.body for request in edge.seen("PATCH")] == [
        {
            "metadata": {"uid": "n1", "resourceVersion": "7", "annotations": {"intent": "drain"}},
            "spec": {
                "taints": [
                    {"key": "theirs", "effect": "NoExecute"},
                    {"key": "ours", "value": "now", "effect": "NoSchedule"},
                ]
            },
        }
    ]
    assert edge.seen("PATCH")[0].headers["content-type"] == "application/merge-patch+json"


def test_a_concurrently_modified_node_is_read_and_patched_again(edge: ScriptedApiServer, client: Client) -> None:
    foreign = {"key": "theirs", "effect": "NoExecute"}
    ours = {"key": "ours", "value": "now", "effect": "NoSchedule"}
    edge.on("GET", NODE, node("7"), node("8", taints=[foreign]))
    edge.on("PATCH", NODE, status(409, "the object has been modified"), Reply())
    KubeCluster(client).edit_node("node-1", "n1", NodeEdit(taint=(TAINT,)))
    assert [
        (request.body["metadata"]["resourceVersion"], request.body["spec"]["taints"]) for request in edge.seen("PATCH")
    ] == [
        ("7", [ours]),
        ("8", [foreign, ours]),
    ]


def test_a_node_that_keeps_changing_is_a_conflict_after_five_attempts(edge: ScriptedApiServer, client: Client) -> None:
    edge.on("GET", NODE, node("7"))
    edge.on("PATCH", NODE, status(409, "the object has been modified"))
    with pytest.raises(Conflict, match=r"patch node node-1: the object has been modified \(409\) \(tried 5 times\)"):
        KubeCluster(client).edit_node("node-1", "n1", NodeEdit(taint=(TAINT,)))
    assert len(edge.seen("PATCH")) == 5


def test_an_edit_without_a_change_is_not_written(edge: ScriptedApiServer, client: Client) -> None:
    edge.on("GET", NODE, node("7"))
    KubeCluster(client).edit_node("node-1", "n1", NodeEdit(untaint=("ours",), annotate={"intent": None}))
    assert edge.seen("PATCH") == []


def ours_only(node: Node) -> str:
    holder = node.metadata.annotations.get("intent", "nobody")
    return "" if holder == "us" else f"the mark is that of {holder}"


RELEASE = NodeEdit(untaint=("ours",), annotate={"intent": None}, only_if=ours_only)

FOREIGN: dict[str, tuple[Reply, str]] = {
    "another holder": (node("7", annotations={"intent": "them"}), "patch node node-1: the mark is that of them"),
    "no mark, and nothing to change": (node("7"), "patch node node-1: the mark is that of nobody"),
}


@pytest.mark.parametrize(("seen", "message"), FOREIGN.values(), ids=FOREIGN)
def test_an_edit_whose_condition_does_not_hold_is_not_sent(
    edge: ScriptedApiServer, client: Client, seen: Reply, message: str
) -> None:
    edge.on("GET", NODE, seen)
    with pytest.raises(MarkLost) as caught:
        KubeCluster(client).edit_node("node-1", "n1", RELEASE)
    assert str(caught.value) == message
    assert edge.seen("PATCH") == []


def test_the_condition_is_checked_again_after_each_conflict(edge: ScriptedApiServer, client: Client) -> None:
    edge.on("GET", NODE, node("7", annotations={"intent": "us"}), node("8", annotations={"intent": "them"}))
    edge.on("PATCH", NODE, status(409, "the object has been modified"))
    with pytest.raises(MarkLost, match="the mark is that of them"):
        KubeCluster(client).edit_node("node-1", "n1", RELEASE)
    assert [request.body["metadata"]["resourceVersion"] for request in edge.seen("PATCH")] == ["7"]


def test_an_edit_whose_condition_holds_is_sent_for_the_version_that_was_checked(
    edge: ScriptedApiServer, client: Client
) -> None:
    edge.on("GET", NODE, node("7", annotations={"intent": "us"}))
    edge.on("PATCH", NODE, Reply())
    KubeCluster(client).edit_node("node-1", "n1", RELEASE)
    assert [request.body for request in edge.seen("PATCH")] == [
        {"metadata": {"uid": "n1", "resourceVersion": "7", "annotations": {"intent": None}}}
    ]


def test_another_node_of_the_same_name_is_never_changed(edge: ScriptedApiServer, client: Client) -> None:
    edge.on("GET", NODE, node("7", uid="n2"))
    with pytest.raises(NotFound, match="it was replaced by another node of the same name"):
        KubeCluster(client).edit_node("node-1", "n1", NodeEdit(taint=(TAINT,)))
    assert edge.seen("PATCH") == []


def test_a_node_is_deleted_by_uid_and_a_missing_node_is_not_an_error(edge: ScriptedApiServer, client: Client) -> None:
    edge.on("DELETE", NODE, Reply(), status(404))
    KubeCluster(client).delete_node("node-1", "n1")
    KubeCluster(client).delete_node("node-1", "n1")
    assert edge.seen("DELETE")[0].body["preconditions"] == {"uid": "n1"}


def test_a_replaced_node_counts_as_deleted_and_any_other_conflict_is_an_error(
    edge: ScriptedApiServer, client: Client
) -> None:
    edge.on("DELETE", NODE, status(409, "the UID in the precondition does not match"))
    edge.on("GET", NODE, node("7", uid="n2"), status(404), node("8", uid="n1"))
    KubeCluster(client).delete_node("node-1", "n1")
    KubeCluster(client).delete_node("node-1", "n1")
    with pytest.raises(Conflict):
        KubeCluster(client).delete_node("node-1", "n1")


CONDITION = {
    "type": "DrainInProgress",
    "status": "True",
    "reason": "SpotRescheduler",
    "message": "spot-rescheduler drains this node (installation ns/lease)",
    "lastHeartbeatTime": "2026-05-04T03:02:01Z",
    "lastTransitionTime": "2026-05-04T03:02:01Z",
}
NOW = datetime(2026, 5, 4, 3, 2, 1, tzinfo=UTC)
OTHER_CONDITIONS: dict[str, tuple[Any, bool]] = {
    "no status": ({}, False),
    "no list": ({"conditions": None}, False),
    "another type": ({"conditions": [{"type": "Ready", "status": "True"}]}, False),
    "an administrator's": ({"conditions": [CONDITION | {"reason": "Maintenance"}]}, True),
    "another installation's": ({"conditions": [CONDITION | {"message": "installation other/lease"}]}, True),
}


def with_status(fields: Any) -> Reply:
    return Reply({"metadata": {"name": "node-1", "uid": "n1", "resourceVersion": "7"}, "status": fields})


@pytest.mark.parametrize(("fields", "foreign"), OTHER_CONDITIONS.values(), ids=OTHER_CONDITIONS)
def test_a_condition_is_written_unless_there_is_one_and_another_is_never_removed(
    edge: ScriptedApiServer, client: Client, fields: Any, foreign: bool
) -> None:
    edge.on("GET", NODE, with_status(fields))
    edge.on("PATCH", f"{NODE}/status", Reply())
    conditions = NodeConditions(client, "ns/lease")
    conditions.remove("node-1", "n1")
    assert edge.seen("PATCH") == []
    conditions.set("node-1", "n1", NOW)
    metadata = {"uid": "n1", "resourceVersion": "7"}
    written = [] if foreign else [{"metadata": metadata, "status": {"conditions": [CONDITION]}}]
    assert [request.body for request in edge.seen("PATCH")] == written


def test_our_condition_is_written_once_and_removed(edge: ScriptedApiServer, client: Client) -> None:
    edge.on("GET", NODE, with_status({"conditions": [{"type": "Ready"}, CONDITION]}))
    edge.on("PATCH", f"{NODE}/status", status(409, "the object has been modified"), Reply())
    conditions = NodeConditions(client, "ns/lease")
    conditions.set("node-1", "n1", NOW)
    assert edge.seen("PATCH") == []
    conditions.remove("node-1", "n1")
    deletion = {"type": "DrainInProgress", "$patch": "delete"}
    assert [request.body["status"] for request in edge.seen("PATCH")] == [{"conditions": [deletion]}] * 2
    assert edge.seen("PATCH")[0].headers["content-type"] == "application/strategic-merge-patch+json"


def test_the_condition_of_another_node_with_the_name_stays(edge: ScriptedApiServer, client: Client) -> None:
    edge.on("GET", NODE, with_status({"conditions": [CONDITION]}))
    NodeConditions(client, "ns/lease").remove("node-1", "n2")
    with pytest.raises(NotFound, match="it was replaced by another node of the same name"):
        NodeConditions(client, "ns/lease").set("node-1", "n2", NOW)
    assert edge.seen("PATCH") == []
