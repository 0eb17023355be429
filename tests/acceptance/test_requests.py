"""What asks for a removal is understood however it is written, or refused; it never slips through to the pool."""

import datetime as dt
import json
from collections.abc import Iterator
from urllib.parse import quote

import httpx
import pytest

from deploy.local.cloudpool.faults import Fault
from rescheduler.clock import SystemClock
from rescheduler.proxy import answers
from tests.proxy.test_forward import line, raw
from tests.proxy.test_messages import MACHINES, NO_SIZE, SIZES
from tests.proxy.world import World

pytestmark = pytest.mark.cluster

#: A view of this age is the last one of a pool that cannot look at its machines.
LAST_LOOK = dt.timedelta(seconds=4)
REASON = 'it has the annotation cluster-autoscaler.kubernetes.io/scale-down-disabled: "true"'
PROTECTED = REASON.replace('"', '\\"')  #: as it stands in JSON
NO_NODE = "the request would remove a machine that this proxy knows no node of"


@pytest.fixture(autouse=True)
def _nothing_slips_through(guarded: World) -> Iterator[None]:
    """The pool is told of no removal, and its machines stay as they are."""
    guarded.server.face.requests.clear()
    yield
    assert not [one for one in guarded.server.face.requests if one.method == "POST"]
    assert (guarded.running(), guarded.desired, guarded.tainted()) == (["od-1", "od-2"], 2, [])
    assert all(one.member and one.active for one in guarded.server.pool.machines())


def ask(made: World, target: str, body: bytes, *headers: str) -> tuple[int, bytes]:
    """Status and body of the answer to a POST, written as it is."""
    found = raw(made.url, line("POST", target, f"Content-Length: {len(body)}", *headers) + body)
    head, _, rest = found.partition(b"\r\n\r\n")
    return int(head.split()[1]), rest


def document(message: str, detail: str) -> bytes:
    """An error as the original wrote it, to the byte; *detail* is JSON already."""
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


def test_spellings_of_the_size(guarded: World) -> None:
    """A size that is left out would empty the pool."""
    for spelling in SPELLINGS:
        target = spelling.format("siz%65")
        assert ask(guarded, target, b"{}") == (400, document(NO_SIZE, "")), target


def test_spellings_of_a_termination(guarded: World) -> None:
    body = json.dumps({"machineId": guarded.id("od-1"), "decrementDesiredSize": True}).encode()
    for spelling in [*SPELLINGS, "/{}"]:
        expected = document(answers.TERMINATE, f"node od-1: {PROTECTED}")
        assert ask(guarded, spelling.format("terminate"), body) == (500, expected), spelling


def test_other_ways_to_remove_a_machine(guarded: World) -> None:
    machine = guarded.id("od-1")
    named = json.dumps({"machineId": machine}).encode()
    disposable = json.dumps({"machineId": machine, "membershipStatus": {"active": False, "evictable": True}}).encode()
    removals = {
        ("/pool/detach", named): answers.DETACH,
        ("/pool/membershipStatus", disposable): answers.MEMBERSHIP,
        (f"/pool/{machine}/terminate", b""): answers.TERMINATE,
        (f"/pool/{quote(machine, safe='')}/detach", b"{}"): answers.DETACH,
        (f"/pool/{machine}/membershipStatus", b'{"membershipStatus": {"active": false}}'): answers.MEMBERSHIP,
    }
    for (target, body), message in removals.items():
        assert ask(guarded, target, body) == (500, document(message, f"node od-1: {PROTECTED}")), target
    for target in ("/cloudpools/other/terminate", "/cloudpools/other/pool/size"):
        assert ask(guarded, target, named) == (500, document(answers.TERMINATE, NO_NODE))


def test_a_size_below_what_there_is(guarded: World) -> None:
    nodes = "; ".join(f"node od-{number}: {PROTECTED}" for number in (1, 2))
    assert ask(guarded, "/pool/size/", b'{"desiredSize": 1}') == (500, document(answers.SET_SIZE, nodes))


def sizes(made: World) -> list[bytes]:
    return [one.body for one in made.server.face.requests if (one.method, one.path) == ("POST", "/pool/size")]


def test_bodies_of_sizes(guarded: World) -> None:
    """Sizes that grow the pool are kept from it here: it is told the number that was understood."""
    for body, expected in SIZES.items():
        if isinstance(expected, str):
            status, answer = ask(guarded, "/pool/size", body)
            assert (status, json.loads(answer)["message"]) == (400, expected), body
            assert bool(json.loads(answer)["detail"]) is expected.startswith("failed to decode"), body
        elif expected > 2:
            guarded.server.face.inject(Fault(path="/pool/size", status=200, body=""))
            assert ask(guarded, "/pool/size", body) == (200, b""), body
            assert [json.loads(one) for one in sizes(guarded)] == [{"desiredSize": expected}]
        guarded.server.face.requests.clear()


def test_bodies_of_terminations(guarded: World) -> None:
    for body, expected in MACHINES.items():
        status, answer = ask(guarded, "/pool/terminate", body)
        if isinstance(expected, str):
            assert (status, json.loads(answer)["message"]) == (400, expected), body
        else:
            assert (status, json.loads(answer)["message"]) == (404, answers.TERMINATE), body


def test_a_body_that_does_not_arrive(guarded: World) -> None:
    found = raw(guarded.url, line("POST", "/pool/size", "Content-Length: 20") + b'{"desired')
    head, _, rest = found.partition(b"\r\n\r\n")
    assert head.split()[1] == b"400"
    assert rest == document("failed to read request body", "it did not arrive within 10 s")


def test_a_machine_that_nobody_knows(guarded: World) -> None:
    """404, and not the 500 of old; what JSON lets pass in HTML is escaped."""
    detail = "machine i-\\u003c1\\u003e\\u0026 is no member of the pool"
    assert ask(guarded, "/pool/terminate", b'{"machineId": "i-<1>&"}') == (404, document(answers.TERMINATE, detail))


def test_a_machine_that_the_pool_protects(guarded: World) -> None:
    machine = guarded.id("od-1")
    guarded.server.pool.set_membership(machine, active=True, evictable=False)
    try:
        guarded.plane.wait_for(
            lambda: "false" in httpx.get(f"{guarded.server.url}/pool", timeout=60).text, "the pool to tell"
        )
        for path in ("/pool/terminate", "/pool/detach"):
            answer = httpx.post(f"{guarded.url}{path}", json={"machineId": machine}, timeout=60)
            assert (answer.status_code, answer.json()["detail"]) == (
                500,
                f"machine {machine}: its membership status says that it is not evictable",
            )
        assert httpx.post(f"{guarded.url}/pool/size", json={"desiredSize": 1}, timeout=60).json()["detail"] == (
            f"node od-2: {REASON}; machine {machine}: its membership status says that it is not evictable"
        )
    finally:
        guarded.server.pool.set_membership(machine, active=True, evictable=True)


def test_a_pool_that_looks_at_its_machines_no_more(guarded: World) -> None:
    """Sizes are not judged on a view that is older than the request: the answer says so at the update's deadline."""
    guarded.server.pool.cloud_down = True
    try:
        guarded.plane.wait_for(lambda: _age_of_view(guarded) > LAST_LOOK, "the last view to be old")
        answer = httpx.post(f"{guarded.url}/pool/size", json={"desiredSize": 1}, timeout=60)
    finally:
        guarded.server.pool.cloud_down = False
    assert (answer.status_code, answer.json()["message"]) == (504, answers.SET_SIZE), answer.text
    assert answer.json()["detail"].startswith("cloudpool pool: the pool's answers are older than ")


def _age_of_view(made: World) -> dt.timedelta:
    return SystemClock().now() - dt.datetime.fromisoformat(made.server.pool.pool()["timestamp"])


def test_a_pool_that_fails(guarded: World) -> None:
    """Its own words are told as they are, also where they look like a format."""
    fault = Fault(path="/pool", method="GET", status=503, body='{"message": "100% down", "detail": "x"}', times=9)
    for path, body, message in (
        ("/pool/size", {"desiredSize": 3}, answers.SET_SIZE),
        ("/pool/terminate", {"machineId": "i-1"}, answers.TERMINATE),
    ):
        guarded.server.face.inject(fault)
        answer = httpx.post(f"{guarded.url}{path}", json=body, timeout=60)
        assert (answer.status_code, answer.json()["message"]) == (502, message)
        assert "GET /pool" in answer.json()["detail"]
        assert answer.json()["detail"].endswith(": 503 Service Unavailable: 100% down: x")
        guarded.server.face.forget()
    guarded.server.face.inject(Fault(path="/pool/size", status=503, body="", times=9))
    answer = httpx.post(f"{guarded.url}/pool/size", json={"desiredSize": 3}, timeout=60)
    assert (answer.status_code, answer.json()["message"]) == (502, answers.SET_SIZE)
    assert "POST /pool/size: 503 Service Unavailable" in answer.json()["detail"]
    guarded.server.face.forget()
    guarded.server.face.requests.clear()
