"""Removal requests are recognized in all spellings or rejected, but never forwarded unchecked."""

import datetime as dt
import json
from collections.abc import Iterator
from urllib.parse import quote

import httpx2
import pytest

from devcluster.standin.faults import Fault
from rescheduler.clock import SystemClock
from rescheduler.cloudpool.proxy import messages
from tests.proxy.test_forward import line, raw
from tests.proxy.test_messages import NO_SIZE
from tests.proxy.world import ProxyWorld

pytestmark = pytest.mark.cluster

#: An older view of the pool is no longer refreshed.
LAST_LOOK = dt.timedelta(seconds=4)
REASON = 'it has the annotation cluster-autoscaler.kubernetes.io/scale-down-disabled: "true"'
PROTECTED = REASON.replace('"', '\\"')  #: escaped for JSON
NO_NODE = "the request would remove a machine whose node is unknown to this proxy"


@pytest.fixture(autouse=True)
def _nothing_slips_through(guarded: ProxyWorld) -> Iterator[None]:
    """Check that the pool receives no removal and that its machines are unchanged."""
    guarded.server.faulty_app.requests.clear()
    yield
    assert not [request for request in guarded.server.faulty_app.requests if request.method == "POST"]
    assert (guarded.running(), guarded.desired, guarded.tainted()) == (["od-1", "od-2"], 2, [])
    assert all(machine.member and machine.active for machine in guarded.server.pool.machines())


def ask(env: ProxyWorld, target: str, body: bytes, *headers: str) -> tuple[int, bytes]:
    """Send a raw POST request and return status and body of the response."""
    response = raw(env.url, line("POST", target, f"Content-Length: {len(body)}", *headers) + body)
    head, _, rest = response.partition(b"\r\n\r\n")
    return int(head.split()[1]), rest


def document(message: str, detail: str) -> bytes:
    """Return an error in the exact format of the original; *detail* is already escaped."""
    return f'{{\n  "message": "{message}",\n  "detail": "{detail}"\n}}'.encode()


SPELLINGS = [
    "/pool/{}",
    "/pool/{}/",
    "//pool/{}",
    "/pool//{}",
    "/pool/./{}",
    "/pool/x/../{}",
    "/../pool/{}",
    "/pool%2F{}",
    "/pool%252f{}",
    "/%70ool/{}",
    "/pool/{};x=1",
    "/pool;a/{}",
    "/pool\\{}",
    "/pool/{}%3Fa=b",
    "/pool/{}%20",
    "http://elsewhere/pool/{}",
]


def test_all_spellings_of_a_size_request_are_recognized(guarded: ProxyWorld) -> None:
    """The pool would interpret a missing size as zero."""
    for spelling in SPELLINGS:
        target = spelling.format("siz%65")
        assert ask(guarded, target, b"{}") == (400, document(NO_SIZE, "")), target


def test_all_spellings_of_a_termination_request_are_recognized(guarded: ProxyWorld) -> None:
    body = json.dumps({"machineId": guarded.id("od-1"), "decrementDesiredSize": True}).encode()
    for spelling in [*SPELLINGS, "/{}"]:
        expected = document(messages.TERMINATE, f"node od-1: {PROTECTED}")
        assert ask(guarded, spelling.format("terminate"), body) == (500, expected), spelling


def test_other_ways_to_remove_a_machine_are_rejected(guarded: ProxyWorld) -> None:
    machine = guarded.id("od-1")
    named = json.dumps({"machineId": machine}).encode()
    disposable = json.dumps({"machineId": machine, "membershipStatus": {"active": False, "evictable": True}}).encode()
    removals = {
        ("/pool/detach", named): messages.DETACH,
        ("/pool/membershipStatus", disposable): messages.MEMBERSHIP,
        (f"/pool/{machine}/terminate", b""): messages.TERMINATE,
        (f"/pool/{quote(machine, safe='')}/detach", b"{}"): messages.DETACH,
        (f"/pool/{machine}/membershipStatus", b'{"membershipStatus": {"active": false}}'): messages.MEMBERSHIP,
    }
    for (target, body), message in removals.items():
        assert ask(guarded, target, body) == (500, document(message, f"node od-1: {PROTECTED}")), target
    for target in ("/cloudpools/other/terminate", "/cloudpools/other/pool/size"):
        assert ask(guarded, target, named) == (500, document(messages.TERMINATE, NO_NODE))


def test_a_smaller_size_is_rejected_if_all_nodes_are_protected(guarded: ProxyWorld) -> None:
    nodes = "; ".join(f"node od-{number}: {PROTECTED}" for number in (1, 2))
    assert ask(guarded, "/pool/size/", b'{"desiredSize": 1}') == (500, document(messages.SET_SIZE, nodes))


def test_an_incomplete_body_is_rejected(guarded: ProxyWorld) -> None:
    response = raw(guarded.url, line("POST", "/pool/size", "Content-Length: 20") + b'{"desired')
    head, _, rest = response.partition(b"\r\n\r\n")
    assert head.split()[1] == b"400"
    assert rest == document("failed to read request body", "it did not arrive within 10 s")


def test_an_unknown_machine_is_not_found(guarded: ProxyWorld) -> None:
    """The status is 404 instead of the original's 500; HTML characters are escaped."""
    detail = "machine i-\\u003c1\\u003e\\u0026 is not a member of the pool"
    assert ask(guarded, "/pool/terminate", b'{"machineId": "i-<1>&"}') == (
        404,
        document(messages.TERMINATE, detail),
    )


def test_a_machine_that_the_pool_protects_is_not_removed(guarded: ProxyWorld) -> None:
    machine = guarded.id("od-1")
    guarded.server.pool.set_membership(machine, active=True, evictable=False)
    try:
        guarded.plane.wait_for(
            lambda: "false" in httpx2.get(f"{guarded.server.url}/pool", timeout=60).text, "the pool's view"
        )
        for path in ("/pool/terminate", "/pool/detach"):
            answer = httpx2.post(f"{guarded.url}{path}", json={"machineId": machine}, timeout=60)
            assert (answer.status_code, answer.json()["detail"]) == (
                500,
                f"machine {machine}: its membership status is not evictable",
            )
        assert httpx2.post(f"{guarded.url}/pool/size", json={"desiredSize": 1}, timeout=60).json()["detail"] == (
            f"node od-2: {REASON}; machine {machine}: its membership status is not evictable"
        )
    finally:
        guarded.server.pool.set_membership(machine, active=True, evictable=True)


def test_an_update_times_out_if_the_view_of_the_pool_is_no_longer_refreshed(guarded: ProxyWorld) -> None:
    """A size is not handled with a view that is older than the request; the update times out with that message."""
    guarded.server.pool.cloud_down = True
    try:
        guarded.plane.wait_for(lambda: _age_of_view(guarded) > LAST_LOOK, "an old view")
        answer = httpx2.post(f"{guarded.url}/pool/size", json={"desiredSize": 1}, timeout=60)
    finally:
        guarded.server.pool.cloud_down = False
    assert (answer.status_code, answer.json()["message"]) == (504, messages.SET_SIZE), answer.text
    assert answer.json()["detail"].startswith("cloudpool pool: the pool's responses are older than ")


def _age_of_view(env: ProxyWorld) -> dt.timedelta:
    return SystemClock().now() - dt.datetime.fromisoformat(env.server.pool.pool()["timestamp"])


def test_the_messages_of_a_failing_pool_are_returned(guarded: ProxyWorld) -> None:
    """The pool's messages are returned unchanged, even if they contain format characters."""
    fault = Fault(path="/pool", method="GET", status=503, body='{"message": "100% down", "detail": "x"}', times=9)
    for path, body, message in (
        ("/pool/size", {"desiredSize": 3}, messages.SET_SIZE),
        ("/pool/terminate", {"machineId": "i-1"}, messages.TERMINATE),
    ):
        guarded.server.faulty_app.inject(fault)
        answer = httpx2.post(f"{guarded.url}{path}", json=body, timeout=60)
        assert (answer.status_code, answer.json()["message"]) == (502, message)
        assert "GET /pool" in answer.json()["detail"]
        assert answer.json()["detail"].endswith(": 503 Service Unavailable: 100% down: x")
        guarded.server.faulty_app.forget()
    guarded.server.faulty_app.inject(Fault(path="/pool/size", status=503, body="", times=9))
    answer = httpx2.post(f"{guarded.url}/pool/size", json={"desiredSize": 3}, timeout=60)
    assert (answer.status_code, answer.json()["message"]) == (502, messages.SET_SIZE)
    assert "POST /pool/size: 503 Service Unavailable" in answer.json()["detail"]
    guarded.server.faulty_app.forget()
    guarded.server.faulty_app.requests.clear()
