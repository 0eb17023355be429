"""Faults of the HTTP proxy, in front of a small HTTP server."""

import json
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import httpx2
import pytest

from devcluster.faults.calls import kubernetes_call
from devcluster.faults.exchange import ProxiedRequest
from devcluster.faults.injected import (
    ExpiredToken,
    HalfBody,
    Hook,
    InjectedError,
    InjectedFault,
    Reset,
    SlowBytes,
    Stall,
)
from devcluster.faults.proxy import FaultProxy, before_cloudpool
from devcluster.faults.rules import FaultRule, RandomFaults
from devcluster.faults.upstream import Upstream

NODES = "/api/v1/nodes"
LIST = "list nodes"
PATCH = "patch nodes"
SECONDS = 60.0


class NumberingBackend(ThreadingHTTPServer):
    """A server that responds to every request with its number and the received data."""

    daemon_threads = True

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), _Answers)
        self.requests: list[tuple[str, str, bytes]] = []

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server_address[1]}"


class _Answers(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    server: NumberingBackend

    def do_GET(self) -> None:
        self._answer()

    def do_PATCH(self) -> None:
        self._answer()

    def _answer(self) -> None:
        body = self.rfile.read(int(self.headers.get("content-length") or 0))
        self.server.requests.append((self.command, self.path, body))
        response = json.dumps(
            {"number": len(self.server.requests), "token": self.headers.get("authorization")}
        ).encode()
        self.send_response(200)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(response)))
        self.end_headers()
        self.wfile.write(response)

    def log_message(self, *_: object) -> None:
        pass


@pytest.fixture
def backend() -> Iterator[NumberingBackend]:
    server = NumberingBackend()
    thread = threading.Thread(target=server.serve_forever, args=(0.05,))
    thread.start()
    yield server
    server.shutdown()
    server.server_close()
    thread.join()


@pytest.fixture
def proxy(backend: NumberingBackend) -> Iterator[FaultProxy]:
    with FaultProxy(Upstream(backend.url), kubernetes_call) as fault_proxy:
        yield fault_proxy


@pytest.fixture
def client(proxy: FaultProxy) -> Iterator[httpx2.Client]:
    with httpx2.Client(base_url=proxy.url, timeout=SECONDS, trust_env=False) as http_client:
        yield http_client


def numbers(client: httpx2.Client, times: int) -> list[int]:
    return [client.get(NODES).json()["number"] for _ in range(times)]


def test_without_rules_all_requests_pass(proxy: FaultProxy, backend: NumberingBackend, client: httpx2.Client) -> None:
    response = client.patch(f"{NODES}/n?x=1", content=b"body", headers={"authorization": "Bearer secret"})
    assert response.json() == {"number": 1, "token": "Bearer secret"}
    assert backend.requests == [("PATCH", f"{NODES}/n?x=1", b"body")]
    assert numbers(client, 2) == [2, 3]
    assert [(str(seen.call), seen.target, seen.fault) for seen in proxy.seen] == [
        (PATCH, f"{NODES}/n?x=1", None),
        (LIST, NODES, None),
        (LIST, NODES, None),
    ]


@pytest.mark.parametrize(
    ("fault", "status", "retry_after", "reason"),
    [
        (InjectedError(401), 401, None, "Unauthorized"),
        (InjectedError(403), 403, None, "Forbidden"),
        (InjectedError(410), 410, None, "Expired"),
        (InjectedError(429), 429, None, "TooManyRequests"),
        (InjectedError(429, retry_after=7), 429, "7", "TooManyRequests"),
        (InjectedError(500), 500, None, "InternalError"),
        (InjectedError(503), 503, None, "ServiceUnavailable"),
    ],
)
def test_refusals_do_not_reach_the_server(
    proxy: FaultProxy,
    backend: NumberingBackend,
    client: httpx2.Client,
    fault: InjectedError,
    status: int,
    retry_after: str | None,
    reason: str,
) -> None:
    proxy.rules.add(FaultRule(LIST, fault))
    response = client.get(NODES)
    assert (response.status_code, response.headers.get("retry-after")) == (status, retry_after)
    assert (response.json()["kind"], response.json()["reason"], response.json()["code"]) == ("Status", reason, status)
    assert backend.requests == []
    assert client.get(NODES).status_code == 200


@pytest.mark.parametrize(
    ("fault", "arrives", "body"),
    [
        (InjectedError(204, arrived=True), True, b""),
        (InjectedError(502), False, b'"code": 502'),
        (InjectedError(502, arrived=True), True, b'"code": 502'),
        (InjectedError(504), False, b"<html>"),
        (InjectedError(429, cause="Quota"), False, b'"causes": [{"reason": "Quota"'),
    ],
)
def test_a_write_gets_another_response_and_takes_effect_if_it_arrives(
    backend: NumberingBackend, fault: InjectedError, arrives: bool, body: bytes
) -> None:
    with before_cloudpool(backend.url) as pool:
        pool.rules.add(FaultRule("PATCH /pool", fault))
        response = httpx2.patch(f"{pool.url}/pool", content=b"body", trust_env=False)
    assert response.status_code == fault.code
    assert body in response.content
    assert bool(response.content) is bool(body)
    assert bool(backend.requests) is arrives


@pytest.mark.parametrize(
    ("fault", "error", "arrives"),
    [
        (Reset(arrived=False), httpx2.ReadError, False),
        (Reset(arrived=True), httpx2.ReadError, True),
        (HalfBody(), httpx2.RemoteProtocolError, True),
        (Stall(0.2), httpx2.RemoteProtocolError, False),
        (Stall(0.2, arrived=True), httpx2.RemoteProtocolError, True),
    ],
)
def test_a_lost_response_is_an_error_of_the_client(
    proxy: FaultProxy,
    backend: NumberingBackend,
    client: httpx2.Client,
    fault: InjectedFault,
    error: type[Exception],
    arrives: bool,
) -> None:
    proxy.rules.add(FaultRule(PATCH, fault))
    with pytest.raises(error):
        client.patch(f"{NODES}/n", content=b"body")
    assert bool(backend.requests) is arrives
    assert client.patch(f"{NODES}/n", content=b"body").status_code == 200


def test_a_stall_lasts_longer_than_the_client_waits(proxy: FaultProxy, client: httpx2.Client) -> None:
    proxy.rules.add(FaultRule(LIST, Stall(SECONDS)))
    with pytest.raises(httpx2.ReadTimeout):
        client.get(NODES, timeout=0.2)


def test_half_a_body_is_delivered(proxy: FaultProxy, client: httpx2.Client) -> None:
    proxy.rules.add(FaultRule(LIST, HalfBody()))
    with client.stream("GET", NODES) as response:
        parts = response.iter_raw()
        assert len(next(parts)) == int(response.headers["content-length"]) // 2
        with pytest.raises(httpx2.RemoteProtocolError):
            next(parts)


def test_slow_bytes_all_arrive(proxy: FaultProxy, client: httpx2.Client) -> None:
    proxy.rules.add(FaultRule(LIST, SlowBytes(0.4)))
    with client.stream("GET", NODES) as response:
        parts = list(response.iter_raw())
    assert len(parts) > 1
    assert json.loads(b"".join(parts))["number"] == 1


def test_a_stale_list_is_the_oldest_recorded(proxy: FaultProxy, client: httpx2.Client) -> None:
    proxy.rules.add(FaultRule(LIST, proxy.stale_list(), occurrence=3))
    assert numbers(client, 4) == [1, 2, 1, 3]


def test_a_stale_list_requires_an_older_list(proxy: FaultProxy, client: httpx2.Client) -> None:
    proxy.rules.add(FaultRule(LIST, proxy.stale_list()))
    assert numbers(client, 2) == [1, 2]


def test_an_expired_token_stays_expired_and_a_new_token_passes(proxy: FaultProxy, client: httpx2.Client) -> None:
    def code(token: str) -> int:
        return client.get(NODES, headers={"authorization": token}).status_code

    assert isinstance(proxy.expired_token(), ExpiredToken)
    proxy.rules.add(FaultRule(LIST, proxy.expired_token(), occurrence=2))
    assert not proxy.has_expired_tokens
    assert [code("old"), code("old"), code("old"), code("new"), code("old")] == [200, 401, 401, 200, 401]
    assert proxy.has_expired_tokens


@pytest.mark.parametrize(("moment", "arrived"), [("before", 0), ("after", 1)])
@pytest.mark.parametrize("passes", [True, False])
def test_a_hook_runs_before_or_after_the_request(
    proxy: FaultProxy, backend: NumberingBackend, client: httpx2.Client, moment: Any, arrived: int, passes: bool
) -> None:
    called: list[tuple[str, int]] = []

    def action(request: ProxiedRequest) -> bool:
        called.append((str(request.call), len(backend.requests)))
        return passes

    proxy.rules.add(FaultRule(PATCH, Hook(moment, action)))
    if passes:
        assert client.patch(f"{NODES}/n").status_code == 200
    else:
        with pytest.raises(httpx2.RemoteProtocolError):
            client.patch(f"{NODES}/n")
    assert called == [(PATCH, arrived)]
    assert len(backend.requests) == (1 if passes else arrived)


@pytest.mark.parametrize(
    ("rule", "codes"),
    [
        (FaultRule(LIST, InjectedError(500)), [500, 200, 200, 200]),
        (FaultRule(LIST, InjectedError(500), occurrence=3), [200, 200, 500, 200]),
        (FaultRule(LIST, InjectedError(500), occurrence=None), [500, 500, 500, 500]),
        (FaultRule("", InjectedError(500), occurrence=2), [200, 500, 200, 200]),
        (FaultRule(LIST, InjectedError(500), occurrence=2, seconds=SECONDS), [200, 500, 500, 500]),
        (FaultRule(PATCH, InjectedError(500)), [200, 200, 200, 200]),
        (FaultRule(LIST, InjectedError(409), occurrence=None), [200, 200, 200, 200]),
    ],
    ids=["first", "third", "all", "of any call", "for a time", "of another call", "one that does not apply"],
)
def test_rules_choose_requests(proxy: FaultProxy, client: httpx2.Client, rule: FaultRule, codes: list[int]) -> None:
    proxy.rules.add(rule)
    assert [client.get(NODES).status_code for _ in codes] == codes


def test_random_faults_follow_their_seed_and_rate(proxy: FaultProxy, client: httpx2.Client) -> None:
    def drawn(rate: float, seed: int) -> list[int]:
        proxy.rules.randomly(RandomFaults([InjectedError(500), InjectedError(503), InjectedError(409)], rate, seed))
        return [client.get(NODES).status_code for _ in range(50)]

    first = drawn(0.5, 1)
    assert set(first) == {200, 500, 503}
    assert drawn(0.5, 1) == first
    assert drawn(0.5, 2) != first
    assert drawn(0.0, 1) == [200] * 50
    assert set(drawn(1.0, 1)) == {500, 503}


def test_forgetting_ends_faults_and_waits(proxy: FaultProxy, client: httpx2.Client) -> None:
    proxy.rules.add(FaultRule(LIST, Stall(SECONDS), occurrence=None))
    errors: list[Exception] = []

    def ask() -> None:
        try:
            httpx2.get(f"{proxy.url}{NODES}", timeout=SECONDS, trust_env=False)
        except httpx2.TransportError as error:
            errors.append(error)

    thread = threading.Thread(target=ask)
    thread.start()
    while not proxy.seen:
        threading.Event().wait(0.01)
    proxy.forget()
    thread.join()
    assert len(errors) == 1
    assert proxy.seen == []
    assert client.get(NODES).status_code == 200
