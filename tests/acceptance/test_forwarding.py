"""Requests that remove no machine are forwarded unchanged, and so are their responses."""

import gzip
import hashlib
import json
from collections.abc import Iterator
from typing import Any

import httpx2
import pytest

from devcluster.standin.faults import Fault, LoggedRequest
from rescheduler.cloudpool.proxy.forward import FAILED
from tests.proxy.test_forward import line, raw
from tests.proxy.world import ProxyWorld

pytestmark = pytest.mark.cluster

CONFIG = {"name": "od", "bootDelay": "1s", "labels": {"pool-worker": "true"}}
JSON = {"content-type": "application/json"}


@pytest.fixture(autouse=True)
def _only_new_requests(guarded: ProxyWorld) -> Iterator[None]:
    guarded.server.faulty_app.requests.clear()
    yield
    assert (guarded.running(), guarded.desired) == (["od-1", "od-2"], 2)


def seen(env: ProxyWorld) -> list[LoggedRequest]:
    return list(env.server.faulty_app.requests)


#: API calls that remove nothing: method, path, body, and fields of the pool's response.
CALLS: list[tuple[str, str, Any, dict[str, Any] | None]] = [
    ("GET", "/config", None, {}),
    ("POST", "/config", CONFIG, None),
    ("POST", "/stop", None, None),
    ("GET", "/status", None, {"started": False, "configured": True}),
    ("POST", "/start", None, None),
    ("GET", "/status", None, {"started": True, "configured": True}),
    ("GET", "/pool", None, {}),
    ("GET", "/pool/size", None, {"desiredSize": 2, "allocated": 2, "active": 2}),
]


def test_api_calls_that_remove_nothing_are_forwarded(guarded: ProxyWorld) -> None:
    for method, path, body, expected in CALLS:
        content = None if body is None else json.dumps(body, indent=1).encode()
        guarded.server.faulty_app.requests.clear()
        answer = httpx2.request(method, f"{guarded.url}{path}", content=content, headers=JSON, timeout=60)
        assert (answer.status_code, bool(answer.content)) == (200, expected is not None), path
        if expected is not None:
            assert expected.items() <= answer.json().items()
            assert answer.headers["content-type"] == "application/json"
        (arrived,) = seen(guarded)
        assert (arrived.method, arrived.path, arrived.body) == (method, path, content or b"")
    machines = httpx2.get(f"{guarded.url}/pool", timeout=60).json()["machines"]
    assert [machine["id"] for machine in machines] == [guarded.id("od-1"), guarded.id("od-2")]


def listed(guarded: ProxyWorld) -> dict[str, Any]:
    """Return the machines in the pool's cached view by id."""
    machines = httpx2.get(f"{guarded.server.url}/pool", timeout=60).json()["machines"]
    return {machine["id"]: machine for machine in machines}


def test_calls_about_a_machine_that_remove_nothing_are_forwarded(guarded: ProxyWorld) -> None:
    machine = guarded.id("od-1")

    def post(path: str, **body: Any) -> None:
        answer = httpx2.post(f"{guarded.url}{path}", json={"machineId": machine, **body}, timeout=60)
        assert (answer.status_code, answer.content) == (200, b"")

    post("/pool/serviceState", serviceState="OUT_OF_SERVICE")
    assert guarded.machine("od-1").service_state == "OUT_OF_SERVICE"
    post("/pool/membershipStatus", membershipStatus={"active": True, "evictable": False})
    assert not guarded.machine("od-1").evictable
    post("/pool/membershipStatus", membershipStatus={})
    assert guarded.machine("od-1").evictable
    guarded.plane.wait_for(lambda: listed(guarded)[machine]["membershipStatus"]["evictable"], "the pool's next refresh")
    guarded.server.pool.detach(machine, decrement=True)
    assert guarded.desired == 1
    post("/pool/attach")
    assert guarded.desired == 2
    bodies = [json.loads(request.body) for request in seen(guarded) if request.path == "/pool/attach"]
    assert bodies == [{"machineId": machine}]


def test_paths_and_queries_are_forwarded_unchanged(guarded: ProxyWorld) -> None:
    targets = ["/pool?a=b&c=d%20e&a=", "/a%2Fb%3Fc%20d?x", "/a//b/./c/../d/", "/%7Euser/%e4", "/POOL/SIZE", "/"]
    for target in targets:
        raw(guarded.url, line("GET", target))
    assert [request.target for request in seen(guarded)] == targets


@pytest.mark.parametrize("method", ["HEAD", "PUT", "DELETE", "PATCH", "OPTIONS"])
@pytest.mark.parametrize("path", ["/pool/size", "/pool/terminate"])
def test_other_methods_are_forwarded(method: str, path: str, guarded: ProxyWorld) -> None:
    through, direct = (
        httpx2.request(method, f"{url}{path}", content=b'{"desiredSize": 0}', headers=JSON, timeout=60)
        for url in (guarded.url, guarded.server.url)
    )
    assert (through.status_code, through.content) == (direct.status_code, direct.content)
    assert [(request.method, request.path) for request in seen(guarded)] == [(method, path)] * 2


def test_end_to_end_headers_are_forwarded_and_hop_by_hop_headers_are_not(guarded: ProxyWorld) -> None:
    kept = {"authorization": "Basic eDp5", "cookie": "a=b", "x-some": "thing", "x-forwarded-for": "192.0.2.1"}
    dropped = {"connection": "keep-alive, x-hop", "x-hop": "1", "te": "trailers", "proxy-authorization": "secret"}
    httpx2.get(f"{guarded.url}/pool", headers={**kept, **dropped}, timeout=60)
    (arrived,) = seen(guarded)
    names = {name for name, _ in arrived.headers}
    assert {name: arrived.all(name) for name in kept} == {
        **{name: [value] for name, value in kept.items()},
        "x-forwarded-for": ["192.0.2.1, 127.0.0.1"],
    }
    assert names.isdisjoint({"x-hop", "te", "proxy-authorization", "transfer-encoding"})
    assert arrived.all("host") == [guarded.server.url.removeprefix("http://")]


#: Responses of the pool: status, headers, body as text.
ANSWERS: dict[str, tuple[int, dict[str, str], str]] = {
    "an empty response": (204, {}, ""),
    "a redirect, which the client follows": (302, {"location": "http://elsewhere/pool"}, ""),
    "an error of the pool": (404, {}, '{"message": "no such thing", "detail": "100% sure"}'),
    "an error that is not JSON": (503, {"content-type": "text/plain", "retry-after": "7"}, "busy"),
    "a compressed body": (
        200,
        {"content-encoding": "gzip"},
        gzip.compress(b"{}", mtime=0).decode("utf-8", "surrogateescape"),
    ),
}


@pytest.mark.parametrize("fact", ANSWERS)
def test_responses_are_returned_unchanged(fact: str, guarded: ProxyWorld) -> None:
    status, headers, text = ANSWERS[fact]
    body = text.encode("utf-8", "surrogateescape")
    guarded.server.faulty_app.inject(Fault(path="/pool", method="GET", status=status, headers=headers, body=text))
    response = raw(guarded.url, line("GET", "/pool"))
    head, _, rest = response.partition(b"\r\n\r\n")
    lines = head.decode().split("\r\n")
    assert lines[0].split()[1] == str(status)
    assert {f"{name}: {value}" for name, value in headers.items()} <= set(lines)
    assert rest == body


def test_large_bodies_are_forwarded(guarded: ProxyWorld) -> None:
    """Request and response bodies are streamed; both are larger than any single read."""
    body = b"0123456789abcdef" * (1 << 20)
    guarded.server.faulty_app.inject(Fault(path="/big", status=200, body=body.decode()))
    answer = httpx2.post(
        f"{guarded.url}/big",
        content=(body[start:][: 1 << 16] for start in range(0, len(body), 1 << 16)),
        headers={"Content-Type": "application/json"},
        timeout=60,
    )
    (arrived,) = seen(guarded)
    digests = [hashlib.sha256(content).hexdigest() for content in (body, arrived.body, answer.content)]
    assert (answer.status_code, digests) == (200, [digests[0]] * 3)


def test_a_pool_that_resets_or_does_not_respond_is_an_error(guarded: ProxyWorld) -> None:
    for kind, status in (("reset", 502), ("hang", 504)):
        guarded.server.faulty_app.inject(Fault(path="/start", kind=kind))  # type: ignore[arg-type]
        answer = httpx2.post(f"{guarded.url}/start", timeout=30)
        assert (answer.status_code, answer.json()["message"]) == (status, FAILED)
        assert answer.json()["detail"]
