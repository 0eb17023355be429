"""Requests: every way in which an API server, or the way to it, can fail becomes one of our errors."""

from pathlib import Path

import pytest

from rescheduler.clock import SystemClock
from rescheduler.errors import (
    Conflict,
    Expired,
    Forbidden,
    NotFound,
    Permanent,
    ReschedulerError,
    Retryable,
    Unauthorized,
)
from rescheduler.kube.client import Client
from rescheduler.kube.connection import Kubeconfig
from rescheduler.version import VERSION
from tests.kube.conftest import kubeconfig
from tests.kube.edge import Edge, Events, Reply, Reset, Stall, Step, status

REFUSALS: dict[str, tuple[Step, type[ReschedulerError], str]] = {
    "400": (status(400, "bad field"), Permanent, "list pods: bad field (400)"),
    "401": (
        status(401, "Unauthorized"),
        Unauthorized,
        "list pods: the credentials were refused; the token may have expired (401)",
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
    "a message over lines": (status(400, "one\ntwo"), Permanent, "list pods: one two (400)"),
    "nulls": (Reply({"message": None, "details": None}, 404), NotFound, "list pods: Not Found (404)"),
    "a code of nobody": (Reply(code=799), Permanent, "list pods: unknown HTTP status (799)"),
}


@pytest.mark.parametrize(("step", "kind", "text"), REFUSALS.values(), ids=REFUSALS)
def test_a_refusal_becomes_an_error_that_names_what_was_tried(
    edge: Edge, client: Client, step: Step, kind: type[ReschedulerError], text: str
) -> None:
    edge.on("GET", "/x", step)
    with pytest.raises(ReschedulerError) as caught:
        client.request("list pods", "GET", "/x")
    assert (type(caught.value), str(caught.value)) == (kind, text)


WAITS = {
    "in the body": (status(429, retryAfterSeconds=7), 7.0),
    "in the header": (Reply({}, 503, {"retry-after": "9"}), 9.0),
    "the body wins": (Reply({"details": {"retryAfterSeconds": 7}}, 429, {"retry-after": "9"}), 7.0),
    "nowhere": (status(503), None),
    "a date, which nobody sends": (Reply({}, 503, {"retry-after": "Wed, 21 Oct 2026 07:28:00 GMT"}), None),
}


@pytest.mark.parametrize(("step", "expected"), WAITS.values(), ids=WAITS)
def test_when_the_server_wants_to_be_asked_again(
    edge: Edge, client: Client, step: Step, expected: float | None
) -> None:
    edge.on("GET", "/x", step)
    with pytest.raises(Retryable) as caught:
        client.request("list pods", "GET", "/x")
    assert caught.value.retry_after == expected


def test_a_reset_connection_is_retryable(edge: Edge, client: Client) -> None:
    edge.on("GET", "/x", Reset())
    with pytest.raises(Retryable, match=f"list pods: the connection to {edge.url} broke"):
        client.request("list pods", "GET", "/x")


def test_a_server_that_goes_silent_is_retryable(edge: Edge, client: Client) -> None:
    edge.on("GET", "/x", Stall())
    with pytest.raises(Retryable, match=f"^list pods: {edge.url} went silent$"):
        client.request("list pods", "GET", "/x", read_seconds=0.05)


def test_how_long_an_answer_is_waited_for_is_the_client_s_unless_a_call_says_so(edge: Edge, tmp_path: Path) -> None:
    hasty = Client(Kubeconfig(str(kubeconfig(tmp_path, edge.url))), SystemClock(), read_seconds=0.05)
    edge.on("GET", "/x", Stall())
    with pytest.raises(Retryable, match=f"^list pods: {edge.url} went silent$"):
        hasty.request("list pods", "GET", "/x")


def test_a_body_that_is_cut_off_is_retryable(edge: Edge, client: Client) -> None:
    edge.on("GET", "/x", Events(({"a": 1},), end="truncate"))
    with pytest.raises(Retryable, match="broke"):
        client.request("list pods", "GET", "/x")


def test_what_a_request_carries(edge: Edge, client: Client) -> None:
    edge.on("PATCH", "/x", Reply({"done": True}))
    answer = client.request(
        "patch x",
        "PATCH",
        "/x",
        query={"a": "1 2"},
        body={"spec": None},
        content_type="application/merge-patch+json",
        accept="application/json",
    )
    assert answer.body == b'{"done": true}'
    [seen] = edge.requests
    assert (seen.query, seen.body) == ({"a": "1 2"}, {"spec": None})
    assert {name: seen.headers[name] for name in ("authorization", "content-type", "accept", "user-agent")} == {
        "authorization": "Bearer sesame",
        "content-type": "application/merge-patch+json",
        "accept": "application/json",
        "user-agent": f"spot-rescheduler/{VERSION}",
    }


def test_a_stream_gives_chunks_as_they_come_and_ends_when_stopped(edge: Edge, client: Client) -> None:
    edge.on_watch("/x", Events(("one", "two"), end="hang"))
    stream = client.stream("watch x", "/x", query={"watch": "true"}, accept="application/json", idle_seconds=30)
    chunks = stream.chunks()
    assert [next(chunks), next(chunks)] == [b'"one"\n', b'"two"\n']
    stream.stop()
    with pytest.raises(Retryable):
        next(chunks)
    stream.close()


def test_a_refused_stream_is_the_error_of_its_status(edge: Edge, client: Client) -> None:
    edge.on_watch("/x", status(410, "too old resource version"))
    with pytest.raises(Expired, match="too old resource version"):
        client.stream("watch x", "/x", query={"watch": "true"}, accept="application/json", idle_seconds=30)
