"""Removals are processed by the proxy, one at a time, and not forwarded; every response has the API's format."""

import json
import logging
import socket
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager

import httpx2
import pytest
from prometheus_client import CollectorRegistry

from rescheduler.cloudpool.proxy import messages
from rescheduler.cloudpool.proxy.app import ClientTimeouts
from rescheduler.cloudpool.proxy.paths import ProxyMetrics
from rescheduler.observe.events import NOTICE
from tests.cluster.waiting import eventually
from tests.proxy.backend import JSON, Backend, RecordedUpdates, failing, proxying
from tests.proxy.test_forward import line, raw
from tests.proxy.test_metrics import counted

MACHINE = b'{"machineId": "i-1", "decrementDesiredSize": true}'

#: (path, body) of removals
REMOVALS: dict[tuple[str, bytes], tuple[object, ...]] = {
    ("/pool/size", b'{"desiredSize": 3}'): ("size", 3),
    ("/pool/size/", b'{"desiredSize": 3}'): ("size", 3),
    ("//pool/size", b'{"desiredSize": 3}'): ("size", 3),
    ("/pool%2Fsiz%65?a=b", b'{"DESIREDSIZE": 3}'): ("size", 3),
    ("http://x/pool/size", b'{"desiredSize": 3}'): ("size", 3),
    ("/pool/terminate", MACHINE): ("terminate", "i-1", True),
    ("/terminate", MACHINE): ("terminate", "i-1", True),
    ("/pool/i-1/terminate", b""): ("terminate", "i-1", False),
    ("/pool/detach", MACHINE): ("detach", "i-1", True),
    ("/pool/i-1/detach", MACHINE): ("detach", "i-1", True),
    ("/pool/membershipStatus", b'{"machineId": "i-1", "membershipStatus": {"active": false}}'): (
        "dispose",
        "i-1",
    ),
    ("/pool/i-1/membershipStatus", b'{"membershipStatus": {"active": false, "evictable": true}}'): (
        "dispose",
        "i-1",
    ),
}


@pytest.mark.parametrize("removal", REMOVALS, ids=lambda request: request[0])
def test_removals_are_processed(removal: tuple[str, bytes], backend: Backend) -> None:
    target, body = removal
    asked = RecordedUpdates()
    with proxying(backend.url, asked) as url:
        response = raw(url, line("POST", target, f"Content-Length: {len(body)}") + body)
    assert response.startswith(b"HTTP/1.1 200 OK\r\ncontent-length: 0\r\n")
    assert (asked.calls, backend.seen) == ([REMOVALS[removal]], [])


#: Results of updates: the logged line
LOGGED: dict[str, tuple[Callable[[], str], tuple[str, str]]] = {
    "done": (lambda: "", ("Level 25", "POST /pool/size: 200 done")),
    "in part": (lambda: "1 of 2", ("WARNING", "POST /pool/size: 200 partially done: 1 of 2")),
    "failed": (failing(502, "a\nb"), ("WARNING", "POST /pool/size: 502 failed to set desired size: a b")),
}


@pytest.mark.parametrize("case", LOGGED)
def test_the_log_has_the_client_and_the_result(case: str, backend: Backend, caplog: pytest.LogCaptureFixture) -> None:
    does, expected = LOGGED[case]
    caplog.set_level("INFO", "rescheduler.cloudpool.proxy.app")
    with proxying(backend.url, RecordedUpdates(does)) as url:
        httpx2.post(f"{url}/pool/size", content=b'{"desiredSize": 3}', headers=JSON, timeout=60)
    logged = [
        (record.levelname, record.getMessage())
        for record in caplog.records
        if record.name == "rescheduler.cloudpool.proxy.app"
    ]
    assert logged == [("INFO", "POST /pool/size from 127.0.0.1"), expected]


#: requests: those of the lines at each verbosity
REQUESTS: dict[str, tuple[str, str, list[str], list[str]]] = {
    "forwarded": ("GET", "/pool", ["GET /pool: 200"], ["GET /pool: 200"]),
    "forwarded, with a long path": ("GET", f"/{'x' * 20000}", [f"GET /{'x' * 255}…: 200"], [f"GET /{'x' * 255}…: 200"]),
    "refused": ("TRACE", "/pool", [], ["TRACE /pool: 405"]),
    "with a long method": ("X" * 5000, "/pool", [f"{'X' * 16}… /pool: 200"], [f"{'X' * 16}… /pool: 200"]),
    "an invalid removal": ("POST", "/pool/size", [], ["POST /pool/size from 127.0.0.1", "POST /pool/size: 400 failed"]),
}


@pytest.mark.parametrize("name", REQUESTS)
def test_a_client_cannot_fill_the_log(name: str, backend: Backend, caplog: pytest.LogCaptureFixture) -> None:
    method, path, *expected = REQUESTS[name]
    for level, lines in zip((NOTICE, logging.INFO), expected, strict=True):
        caplog.clear()
        caplog.set_level(level, "rescheduler.cloudpool.proxy.app")
        with proxying(backend.url) as url:
            httpx2.request(method, url + path, timeout=60)
        logged = [record.getMessage() for record in caplog.records if record.name == "rescheduler.cloudpool.proxy.app"]
        assert [line[: len(begin)] for line, begin in zip(logged, lines, strict=True)] == lines


def test_clients_without_the_token_cause_no_lines(backend: Backend, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(NOTICE, "rescheduler.cloudpool.proxy.app")
    with proxying(backend.url, token=lambda: "secret") as url:
        for path in ("/pool", "/pool/size"):
            assert httpx2.post(url + path, timeout=60).status_code == 401
    assert [record for record in caplog.records if record.name.startswith("rescheduler")] == []


def test_reactivations_are_processed(backend: Backend) -> None:
    asked = RecordedUpdates(lambda: "the size was raised")
    asked.outside = ["i-1"]
    with proxying(backend.url, asked) as url:
        bodies = [
            b'{"machineId": "i-1", "membershipStatus": {"evictable": false}}',
            b'{"machineId": "i-2", "membershipStatus": {}}',
        ]
        answers_ = [
            httpx2.post(f"{url}/pool/membershipStatus", content=body, headers=JSON, timeout=60) for body in bodies
        ]
    assert [response.status_code for response in answers_] == [200, 200]
    assert answers_[0].json()["detail"] == "the size was raised"
    assert (asked.calls, len(backend.seen)) == ([("take back", "i-1", False)], 1)


#: body of POST /pool/membershipStatus: body as forwarded
STATUSES = {
    '{"machineId": "i-1", "membershipStatus": {"active": true, "evictable": false}}': {
        "machineId": "i-1",
        "membershipStatus": {"active": True, "evictable": False},
    },
    '{"MACHINEID": "i-1", "membershipStatus": {}}': {
        "machineId": "i-1",
        "membershipStatus": {"active": True, "evictable": True},
    },
    '{"machineId": "i-1", "membershipStatus": {"active": false, "active": true, "evictable": null}}': {
        "machineId": "i-1",
        "membershipStatus": {"active": True, "evictable": True},
    },
}


@pytest.mark.parametrize("body", STATUSES)
def test_other_membership_statuses_are_forwarded_normalized(body: str, backend: Backend) -> None:
    backend.status, backend.chunks = 404, [b"no such"]
    asked = RecordedUpdates()
    with proxying(backend.url, asked) as url:
        response = httpx2.post(f"{url}/pool/membershipStatus?a=b", content=body, headers=JSON, timeout=60)
    assert (response.status_code, response.text, asked.calls) == (404, "no such", [])
    assert (json.loads(backend.seen[0].body), backend.seen[0].target) == (
        STATUSES[body],
        b"/pool/membershipStatus?a=b",
    )


#: (method, path) that are forwarded, as in the original's test
FORWARDED = [
    ("GET", "/config"),
    ("POST", "/config"),
    ("POST", "/start"),
    ("POST", "/stop"),
    ("GET", "/status"),
    ("GET", "/pool"),
    ("GET", "/pool/size"),
    ("POST", "/pool/attach"),
    ("POST", "/pool/serviceState"),
    ("PUT", "/pool/size"),
    ("OPTIONS", "/pool/terminate"),
    ("POST", "/POOL/SIZES"),
]


@pytest.mark.parametrize(("method", "path"), FORWARDED)
def test_other_requests_are_forwarded(method: str, path: str, backend: Backend) -> None:
    asked = RecordedUpdates()
    with proxying(backend.url, asked) as url:
        response = httpx2.request(method, url + path, content=b'{"a": 1}', headers=JSON, timeout=60)
    assert (response.text, asked.calls) == ("ok", [])
    assert [(request.method, request.target.decode(), request.body) for request in backend.seen] == [
        (method, path, b'{"a": 1}')
    ]


@pytest.mark.parametrize("path", ["/cloudpools/other/terminate", "/x/pool/size", "/x/../../a/pool/terminate"])
def test_removals_on_other_paths_are_rejected(path: str, backend: Backend) -> None:
    asked = RecordedUpdates()
    with proxying(backend.url, asked) as url:
        response = raw(url, line("POST", path, "Content-Length: 2") + b"{}")
    assert response.startswith(b"HTTP/1.1 500")
    assert (asked.calls, backend.seen) == ([], [])


#: (path, body): the message of a 400
INVALID = {
    ("/pool/size", b"{}"): "setDesiredSize message did not specify a desiredSize",
    ("/pool/size", b'{"desiredSize": -1}'): "setDesiredSize message: desiredSize must be non-negative",
    ("/pool/size", b"{"): "failed to decode setDesiredSize message",
    ("/pool/size", b" " * (1 << 20) + b"{}"): "failed to read request body",
    ("/pool/terminate", b"{}"): "terminateMachine message did not specify a machineId",
    ("/pool/terminate", b"["): "failed to decode terminateMachine message",
    ("/pool/detach", b"{}"): "detachMachine message did not specify a machineId",
    ("/pool/membershipStatus", b"{}"): "setMembershipStatus message did not specify a machineId",
}


@pytest.mark.parametrize("request_", INVALID, ids=lambda request: request[0])
def test_invalid_input_is_rejected_and_not_forwarded(request_: tuple[str, bytes], backend: Backend) -> None:
    asked = RecordedUpdates()
    with proxying(backend.url, asked) as url:
        response = httpx2.post(url + request_[0], content=request_[1], headers=JSON, timeout=60)
    assert (response.status_code, response.json()["message"]) == (400, INVALID[request_])
    assert response.headers["content-type"] == "application/json"
    assert (asked.calls, backend.seen) == ([], [])


def test_an_incomplete_body_is_rejected(backend: Backend) -> None:
    with proxying(backend.url, patience=ClientTimeouts(0.3, 60.0)) as url:
        response = raw(url, line("POST", "/pool/size", "Content-Length: 20"))
    assert response.startswith(b"HTTP/1.1 400")
    assert b"failed to read request body" in response


@pytest.mark.parametrize("status", [404, 500, 502, 503, 504])
@pytest.mark.parametrize(
    ("path", "message"),
    [
        ("/pool/size", messages.SET_SIZE),
        ("/pool/terminate", messages.TERMINATE),
        ("/pool/detach", messages.DETACH),
    ],
)
def test_failures_have_a_message_and_a_detail(status: int, path: str, message: str, backend: Backend) -> None:
    body = b'{"desiredSize": 1, "machineId": "i-1"}'
    with proxying(backend.url, RecordedUpdates(failing(status, "node <n1>: why"))) as url:
        response = httpx2.post(url + path, content=body, headers=JSON, timeout=60)
    expected = f'{{\n  "message": "{message}",\n  "detail": "node \\u003cn1\\u003e: why"\n}}'
    assert (response.status_code, response.text) == (status, expected)


def test_partial_results_are_a_success_with_a_detail(backend: Backend) -> None:
    with proxying(backend.url, RecordedUpdates(lambda: "1 of 2 removed; node n2: why")) as url:
        response = httpx2.post(f"{url}/pool/size", content=b'{"desiredSize": 1}', headers=JSON, timeout=60)
    assert (response.status_code, response.json()) == (
        200,
        {"message": "partially done", "detail": "1 of 2 removed; node n2: why"},
    )


def test_an_internal_error_does_not_block_later_updates(backend: Backend) -> None:
    def odd() -> str:
        raise ZeroDivisionError

    asked = RecordedUpdates(odd)
    with proxying(backend.url, asked) as url:
        statuses = [
            httpx2.post(f"{url}/pool/size", content=b'{"desiredSize": 1}', headers=JSON, timeout=60).status_code
            for _ in range(3)
        ]
    assert (statuses, len(asked.calls)) == ([500, 500, 500], 3)


# -- one at a time


class UpdateGate:
    """An update that blocks until released, and counts concurrent calls."""

    def __init__(self) -> None:
        self.open, self.entered = threading.Event(), threading.Event()
        self._now, self.most = 0, 0
        self._lock = threading.Lock()

    def __call__(self) -> str:
        with self._lock:
            self._now += 1
            self.most = max(self.most, self._now)
        self.entered.set()
        assert self.open.wait(timeout=120)
        with self._lock:
            self._now -= 1
        return ""


def test_updates_never_overlap(backend: Backend) -> None:
    gate = UpdateGate()
    gate.open.set()
    asked = RecordedUpdates(gate)
    with proxying(backend.url, asked, patience=ClientTimeouts(120.0, 120.0)) as url, ThreadPoolExecutor(20) as clients:
        calls = [("/pool/size", b'{"desiredSize": 1}'), ("/pool/terminate", b'{"machineID": "i-1"}')] * 10
        responses = list(
            clients.map(lambda call: httpx2.post(url + call[0], content=call[1], headers=JSON, timeout=120), calls)
        )
    assert ({response.status_code for response in responses}, gate.most, len(asked.calls)) == ({200}, 1, 20)


def test_reads_and_bad_input_do_not_wait_for_updates(backend: Backend) -> None:
    gate = UpdateGate()
    with proxying(backend.url, RecordedUpdates(gate)) as url, ThreadPoolExecutor(1) as client:
        update = client.submit(httpx2.post, f"{url}/pool/size", content=b'{"desiredSize": 1}', headers=JSON, timeout=60)
        assert gate.entered.wait(timeout=60)
        assert httpx2.get(f"{url}/pool", timeout=60).text == "ok"
        assert httpx2.post(f"{url}/pool/size", content=b"{}", headers=JSON, timeout=60).status_code == 400
        assert not update.done()
        gate.open.set()
        assert update.result().status_code == 200


def test_a_blocked_queue_times_out(backend: Backend) -> None:
    gate = UpdateGate()
    asked = RecordedUpdates(gate)
    with proxying(backend.url, asked, patience=ClientTimeouts(60.0, 0.3)) as url, ThreadPoolExecutor(1) as client:
        update = client.submit(httpx2.post, f"{url}/pool/size", content=b'{"desiredSize": 1}', headers=JSON, timeout=60)
        assert gate.entered.wait(timeout=60)
        second = httpx2.post(f"{url}/pool/size", content=b'{"desiredSize": 2}', headers=JSON, timeout=60)
        assert (second.status_code, second.json()["detail"]) == (504, "timed out after 0.3 s waiting for other updates")
        gate.open.set()
        assert update.result().status_code == 200
    assert asked.calls == [("size", 1)]


@contextmanager
def asking(url: str, size: int) -> Iterator[None]:
    """Send a request; disconnect at the end of the block."""
    body = b'{"desiredSize": %d}' % size
    where = httpx2.URL(url)
    with socket.create_connection((where.host, where.port or 0), timeout=60) as client:
        client.sendall(line("POST", "/pool/size", f"Content-Length: {len(body)}") + body)
        yield


def test_the_update_of_a_disconnected_client_is_skipped(backend: Backend) -> None:
    gate, registry = UpdateGate(), CollectorRegistry()
    asked = RecordedUpdates(gate)
    with proxying(backend.url, asked, metrics=ProxyMetrics(registry)) as url, ThreadPoolExecutor(1) as client:
        update = client.submit(httpx2.post, f"{url}/pool/size", content=b'{"desiredSize": 1}', headers=JSON, timeout=60)
        assert gate.entered.wait(timeout=60)
        with asking(url, 2):
            eventually(lambda: counted(registry, "updates_waiting"))
        eventually(lambda: counted(registry, "updates_total") == {("size", "client-gone"): 1})
        gate.open.set()
        assert update.result().status_code == 200
        assert (
            httpx2.post(f"{url}/pool/size", content=b'{"desiredSize": 3}', headers=JSON, timeout=60).status_code == 200
        )
    assert asked.calls == [("size", 1), ("size", 3)]


def test_a_disconnect_does_not_stop_a_running_update(backend: Backend) -> None:
    gate = UpdateGate()
    asked = RecordedUpdates(gate)
    with proxying(backend.url, asked) as url:
        with asking(url, 1):
            assert gate.entered.wait(timeout=60)
        gate.open.set()
        assert (
            httpx2.post(f"{url}/pool/size", content=b'{"desiredSize": 2}', headers=JSON, timeout=60).status_code == 200
        )
    assert asked.calls == [("size", 1), ("size", 2)]
