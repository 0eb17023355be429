"""Requests that remove no machine are forwarded unchanged, and so are their responses."""

import json
from collections.abc import Iterator
from typing import Any

import httpx2
import pytest

from devcluster.standin.faults import Fault, LoggedRequest
from rescheduler.cloudpool.proxy.forward import FAILED
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


def test_a_pool_that_resets_or_does_not_respond_is_an_error(guarded: ProxyWorld) -> None:
    for kind, status in (("reset", 502), ("hang", 504)):
        guarded.server.faulty_app.inject(Fault(path="/start", kind=kind))  # type: ignore[arg-type]
        answer = httpx2.post(f"{guarded.url}/start", timeout=30)
        assert (answer.status_code, answer.json()["message"]) == (status, FAILED)
        assert answer.json()["detail"]
