"""Requests: all failures of an API server or of the connection become errors of this program."""

from pathlib import Path

import pytest

from rescheduler import VERSION
from rescheduler.clock import SystemClock
from rescheduler.errors import (
    Conflict,
    Expired,
    Forbidden,
    InputError,
    NotFound,
    Permanent,
    ReschedulerError,
    Retryable,
    Unauthorized,
)
from rescheduler.kube.client import Client
from rescheduler.kube.connection import Kubeconfig
from tests.kube.conftest import kubeconfig
from tests.kube.edge import Reply, ResetReply, ScriptedApiServer, StallReply, Step, WatchReply, status

REFUSALS: dict[str, tuple[Step, type[ReschedulerError], str]] = {
    "400": (status(400, "bad field"), Permanent, "list pods: bad field (400)"),
    "401": (
        status(401, "Unauthorized"),
        Unauthorized,
        "list pods: the credentials were rejected; the token may have expired (401)",
    ),
    "403": (
        status(403, 'pods is forbidden: User "eve" cannot list resource "pods"'),
        Forbidden,
        'list pods: pods is forbidden: User "eve" cannot list resource "pods" (403)',
    ),
    "404": (status(404, "not found"), NotFound, "list pods: not found (404)"),
    "409": (status(409, "modified"), Conflict, "list pods: modified (409)"),
    "410": (status(410, "too old"), Expired, "list pods: too old (410)"),
    "422": (status(422, "invalid"), Permanent, "list pods: invalid (422)"),
    "429": (status(429, "slow down"), Retryable, "list pods: slow down (429)"),
    "500": (status(500, "oops"), Retryable, "list pods: oops (500)"),
    "501": (status(501, "no such verb"), Permanent, "list pods: no such verb (501)"),
    "503 by a load balancer": (
        Reply(b"<html>go away</html>", 503, content_type="text/html"),
        Retryable,
        "list pods: Service Unavailable (503)",
    ),
    "a redirect": (Reply(code=302, headers={"location": "http://evil.test"}), Permanent, "list pods: Found (302)"),
    "a multi-line message": (status(400, "one\ntwo"), Permanent, "list pods: one two (400)"),
    "nulls": (Reply({"message": None, "details": None}, 404), NotFound, "list pods: Not Found (404)"),
    "an unknown code": (Reply(code=799), Permanent, "list pods: unknown HTTP status (799)"),
}


@pytest.mark.parametrize(("step", "kind", "text"), REFUSALS.values(), ids=REFUSALS)
def test_a_refusal_becomes_an_error_that_names_the_request(
    edge: ScriptedApiServer, client: Client, step: Step, kind: type[ReschedulerError], text: str
) -> None:
    edge.on("GET", "/x", step)
    with pytest.raises(ReschedulerError) as caught:
        client.request("list pods", "GET", "/x")
    assert (type(caught.value), str(caught.value)) == (kind, text)


WAITS = {
    "in the body": (status(429, retryAfterSeconds=7), 7.0),
    "in the header": (Reply({}, 503, {"retry-after": "9"}), 9.0),
    "the body wins": (Reply({"details": {"retryAfterSeconds": 7}}, 429, {"retry-after": "9"}), 7.0),
    "not given": (status(503), None),
    "a date, which is not supported": (Reply({}, 503, {"retry-after": "Wed, 21 Oct 2026 07:28:00 GMT"}), None),
}


@pytest.mark.parametrize(("step", "expected"), WAITS.values(), ids=WAITS)
def test_the_retry_time_of_the_server_is_read(
    edge: ScriptedApiServer, client: Client, step: Step, expected: float | None
) -> None:
    edge.on("GET", "/x", step)
    with pytest.raises(Retryable) as caught:
        client.request("list pods", "GET", "/x")
    assert caught.value.retry_after == expected


def test_a_reset_connection_is_retryable(edge: ScriptedApiServer, client: Client) -> None:
    edge.on("GET", "/x", ResetReply())
    with pytest.raises(Retryable, match=f"list pods: the connection to {edge.url} broke"):
        client.request("list pods", "GET", "/x")


def test_a_stalled_server_is_retryable(edge: ScriptedApiServer, client: Client) -> None:
    edge.on("GET", "/x", StallReply())
    with pytest.raises(Retryable, match=f"^list pods: {edge.url} did not respond in time$"):
        client.request("list pods", "GET", "/x", read_seconds=0.05)


def test_a_call_can_override_the_timeout_of_the_client(edge: ScriptedApiServer, tmp_path: Path) -> None:
    hasty = Client(Kubeconfig(str(kubeconfig(tmp_path, edge.url))), SystemClock(), read_seconds=0.05)
    edge.on("GET", "/x", StallReply())
    with pytest.raises(Retryable, match=f"^list pods: {edge.url} did not respond in time$"):
        hasty.request("list pods", "GET", "/x")


def test_a_truncated_body_is_retryable(edge: ScriptedApiServer, client: Client) -> None:
    edge.on("GET", "/x", WatchReply(({"a": 1},), end="truncate"))
    with pytest.raises(Retryable, match="broke"):
        client.request("list pods", "GET", "/x")


def test_a_request_has_its_headers_query_and_body(edge: ScriptedApiServer, client: Client) -> None:
    edge.on("PATCH", "/x", Reply({"done": True}))
    response = client.request(
        "patch x",
        "PATCH",
        "/x",
        query={"a": "1 2"},
        body={"spec": None},
        content_type="application/merge-patch+json",
        accept="application/json",
    )
    assert response.body == b'{"done": true}'
    [seen] = edge.requests
    assert (seen.query, seen.body) == ({"a": "1 2"}, {"spec": None})
    assert {name: seen.headers[name] for name in ("authorization", "content-type", "accept", "user-agent")} == {
        "authorization": "Bearer sesame",
        "content-type": "application/merge-patch+json",
        "accept": "application/json",
        "user-agent": f"spot-rescheduler/{VERSION}",
    }


def test_a_stream_yields_chunks_without_delay_and_ends_when_stopped(edge: ScriptedApiServer, client: Client) -> None:
    edge.on_watch("/x", WatchReply(("one", "two"), end="hang"))
    stream = client.stream("watch x", "/x", query={"watch": "true"}, idle_seconds=30)
    chunks = stream.chunks()
    assert [next(chunks), next(chunks)] == [b'"one"\n', b'"two"\n']
    stream.stop()
    with pytest.raises(Retryable):
        next(chunks)
    stream.close()


def test_a_rejected_stream_raises_the_error_of_its_status(edge: ScriptedApiServer, client: Client) -> None:
    edge.on_watch("/x", status(410, "too old resource version"))
    with pytest.raises(Expired, match="too old resource version"):
        client.stream("watch x", "/x", query={"watch": "true"}, idle_seconds=30)


@pytest.mark.parametrize(
    "name", [".", "..", "", "%2e%2e", "a%2Fb", "%252e", "a?b", "a#b", "a b", "a\n", "ä", "a\\b", "%"]
)
def test_a_path_that_would_not_be_sent_as_it_was_built_is_an_error(
    edge: ScriptedApiServer, client: Client, name: str
) -> None:
    path = f"/api/v1/namespaces/shop/pods/{name}"
    for method in ("GET", "PATCH", "DELETE"):
        with pytest.raises(InputError, match="get web: not sent: "):
            client.request("get web", method, path)
    with pytest.raises(InputError, match="watch: not sent: "):
        client.stream("watch", path, query={}, idle_seconds=1)
    assert edge.requests == []
