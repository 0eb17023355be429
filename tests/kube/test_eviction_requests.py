"""EvictionRequests: what is sent, and what the answers mean."""

import re
from typing import Any

import pytest

from rescheduler.draining.events import EvictionFailed, EvictionRequested, RequestSeen, RequestsUnserved
from rescheduler.errors import Forbidden, Retryable
from rescheduler.kube.client import Client
from rescheduler.kube.eviction_requests import EvictionRequests
from rescheduler.planning.outcome import PodRef
from tests.kube.edge import Reply, ScriptedApiServer, status

POD = PodRef("ns", "web-0", "0a1b")
ALL = "/apis/lifecycle.k8s.io/v1alpha1/evictionrequests"
REQUESTS = "/apis/lifecycle.k8s.io/v1alpha1/namespaces/ns/evictionrequests"
EVICTIONS = "/apis/lifecycle.k8s.io/v1alpha1/namespaces/ns/evictions"


@pytest.fixture
def requests(client: Client) -> EvictionRequests:
    return EvictionRequests(client, "ns/lease")


def name(edge: ScriptedApiServer, requests: EvictionRequests) -> str:
    edge.on("POST", REQUESTS, Reply({}, 201), status(409, "already exists"))
    requests.create(POD)
    found: str = edge.seen("POST")[-1].body["metadata"]["name"]
    return found


def request(target: str = POD.uid, intent: str = "Eviction", **fields: Any) -> Reply:
    metadata = {"name": "x", "namespace": "ns", "uid": "u1"}
    spec = {"target": {"pod": {"name": POD.name, "uid": target}}, "intent": intent}
    metadata |= fields.pop("metadata", {})
    return Reply({"metadata": metadata, "spec": spec, **fields})


def condition(kind: str, message: str = "") -> dict[str, Any]:
    return {"conditions": [{"type": kind, "status": "True", "reason": "Reason", "message": message}]}


def test_a_request_names_the_pod_by_its_uid_and_belongs_to_it(
    edge: ScriptedApiServer, requests: EvictionRequests, client: Client
) -> None:
    edge.on("POST", REQUESTS, Reply({}, 201))
    assert requests.create(POD) == EvictionRequested(POD.uid)
    EvictionRequests(client, "ns/other").create(POD)
    requests.create(PodRef("ns", "web-0", "another"))
    requests.create(POD, dry_run=True)
    sent, other, replaced, again = (each.body for each in edge.seen("POST"))
    target = {"name": "web-0", "uid": POD.uid}
    assert sent["spec"] == {"target": {"pod": target}, "requester": "spot-rescheduler/drain", "intent": "Eviction"}
    assert sent["metadata"]["ownerReferences"] == [{"apiVersion": "v1", "kind": "Pod", **target}]
    names = [each["metadata"]["name"] for each in (sent, other, replaced, again)]
    assert all(re.fullmatch("[a-z0-9-]{1,63}", each) for each in names)
    assert (len(set(names)), again) == (3, sent)
    assert sent["metadata"]["labels"] != other["metadata"]["labels"]
    assert ["dryRun" in each.query for each in edge.seen("POST")] == [False, False, False, True]


ANSWERS: dict[str, tuple[Reply, object]] = {
    "not served": (status(404, "the server could not find the requested resource"), RequestsUnserved),
    "not permitted": (status(403, "forbidden"), False),
    "rejected": (status(422, "spec.requester: Invalid"), False),
    "busy": (status(429, "busy", retryAfterSeconds=3), True),
    "an old token": (status(401, "Unauthorized"), True),
}


@pytest.mark.parametrize(("reply", "expected"), ANSWERS.values(), ids=ANSWERS)
def test_errors_are_outcomes(edge: ScriptedApiServer, requests: EvictionRequests, reply: Reply, expected: Any) -> None:
    edge.on("POST", REQUESTS, reply)
    outcome = requests.create(POD)
    if expected is RequestsUnserved:
        assert isinstance(outcome, RequestsUnserved)
    else:
        assert isinstance(outcome, EvictionFailed)
        assert outcome.retryable is expected


EXISTING: dict[str, tuple[Reply, bool]] = {
    "of an earlier process": (request(status={"observedGeneration": 1}), True),
    "withdrawn": (request(intent="Withdrawn"), False),
    "of another pod": (request(target="another"), False),
    "failed": (request(status=condition("Failed")), False),
    "being deleted": (request(metadata={"deletionTimestamp": "2026-05-04T03:02:01Z"}), False),
}


@pytest.mark.parametrize(("existing", "usable"), EXISTING.values(), ids=EXISTING)
def test_an_existing_request_is_taken_over_or_deleted_first(
    edge: ScriptedApiServer, requests: EvictionRequests, existing: Reply, usable: bool
) -> None:
    path = f"{REQUESTS}/{name(edge, requests)}"
    edge.on("GET", path, existing)
    edge.on("DELETE", f"{REQUESTS}/x", Reply())
    outcome = requests.create(POD)
    if usable:
        assert outcome == EvictionRequested(POD.uid)
    else:
        assert isinstance(outcome, EvictionFailed)
        assert outcome.retryable
    assert [each.body["preconditions"] for each in edge.seen("DELETE")] == ([] if usable else [{"uid": "u1"}])


def eviction(uid: str, name: str, message: str | None) -> dict[str, Any]:
    states = {"targetResponders": [{"name": "a/b", "state": "Completed"}, {"name": name, "state": "Active"}]}
    spec = {"target": {"pod": {"uid": uid}}}
    return {"metadata": {}, "spec": spec, "status": {**states, "responders": [{"name": name, "message": message}]}}


SEEN: dict[str, tuple[Reply, RequestSeen]] = {
    "not observed": (request(), RequestSeen(POD.uid, taken=False)),
    "taken": (request(status={"observedGeneration": 1}), RequestSeen(POD.uid, taken=True, note="acme.io/m: copying")),
    "failed": (
        request(status=condition("Failed", "no  luck")),
        RequestSeen(POD.uid, taken=True, failed="Reason: no luck", note="acme.io/m: copying"),
    ),
    "gone": (status(404), RequestSeen(POD.uid, taken=False, gone=True)),
    "another form": (Reply({"metadata": 7}), RequestSeen(POD.uid, taken=False)),
}


@pytest.mark.parametrize(("reply", "expected"), SEEN.values(), ids=SEEN)
def test_progress(
    edge: ScriptedApiServer, requests: EvictionRequests, reply: Reply, expected: RequestSeen, request: Any
) -> None:
    edge.on("GET", f"{REQUESTS}/{name(edge, requests)}", reply)
    items = [eviction("another", "x/y", "no"), eviction(POD.uid, "acme.io/m", "copying\n")]
    edge.on("GET", EVICTIONS, Reply({"items": items}))
    seen = requests.follow(POD)
    assert seen == expected or (request.node.callspec.id == "another form" and "unexpected response" in seen.note)


def test_all_requests_of_the_installation_are_withdrawn_by_their_uid(
    edge: ScriptedApiServer, requests: EvictionRequests
) -> None:
    known = [{"metadata": {"name": f"r{number}", "namespace": "ns", "uid": f"u{number}"}} for number in range(3)]
    known[2]["metadata"]["deletionTimestamp"] = "2026-05-04T03:02:01Z"
    edge.on("GET", ALL, Reply({"items": known}))
    edge.on("DELETE", f"{REQUESTS}/r0", status(404))
    edge.on("DELETE", f"{REQUESTS}/r1", Reply())
    requests.withdraw_all()
    assert [each.body["preconditions"]["uid"] for each in edge.seen("DELETE")] == ["u0", "u1"]
    assert edge.seen("GET")[0].query["labelSelector"].startswith("spot-rescheduler/installation=")


def test_requests_with_our_label_that_anybody_created_cost_a_bounded_time(
    edge: ScriptedApiServer, requests: EvictionRequests
) -> None:
    known = [{"metadata": {"name": "r", "namespace": "ns", "uid": f"u{number}"}} for number in range(250)]
    edge.on("GET", ALL, Reply({"items": known}))
    edge.on("DELETE", f"{REQUESTS}/r", Reply())
    with pytest.raises(Retryable, match="50 more are withdrawn later"):
        requests.withdraw_all()
    assert len(edge.seen("DELETE")) == 200


def test_nothing_is_withdrawn_where_no_requests_are_served_and_a_missing_right_is_an_error(
    edge: ScriptedApiServer, requests: EvictionRequests
) -> None:
    edge.on("GET", ALL, status(404), status(403, "forbidden"))
    requests.withdraw_all()
    with pytest.raises(Forbidden):
        requests.withdraw_all()
