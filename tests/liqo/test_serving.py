"""The HTTPS listener: who is let in, what is bounded, and certificates that change while it runs."""

import asyncio
import contextlib
import shutil
import socket
import ssl
import threading
from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route
from starlette.types import ASGIApp, Message
from tenacity import Retrying, retry_if_exception_type, stop_after_attempt

from rescheduler.backends.base import AboveMaximum, RateLimited
from rescheduler.errors import NotFound, ReschedulerError, UsageError
from rescheduler.liqo.answers import answer, application, status_of
from rescheduler.liqo.bounds import MAX_BODY, Bounded
from rescheduler.liqo.connection import names, peer
from rescheduler.liqo.serving import Face, serving
from rescheduler.observe import connection
from rescheduler.settings import Address
from tests.backends import pki

ANY = Address("127.0.0.1", 0)


async def _echo(request: Request) -> Response:
    return answer({"peer": sorted(peer(request)), "size": len(await request.body())})


def _fail(_: Request) -> Response:
    raise RateLimited("slowly,\nplease", retry_after=7)


def _break(_: Request) -> Response:
    raise RuntimeError("secret")


ROUTES = [Route("/echo", _echo, methods=["GET", "POST"]), Route("/fail", _fail), Route("/break", _break)]


def face(pems: Path) -> Face:
    return Face(ANY, cert=pems / "server.crt", key=pems / "server.key", client_ca=pems / "ca.pem")


@contextlib.contextmanager
def client(url: str, pems: Path, cert: str = "client", ca: str = "ca") -> Iterator[httpx.Client]:
    context = ssl.create_default_context(cafile=pems / f"{ca}.pem")
    if cert:
        context.load_cert_chain(pems / f"{cert}.pem", pems / f"{cert}.key")
    with httpx.Client(base_url=url, verify=context, timeout=60) as found:
        yield found


@pytest.fixture
def url(pems: Path) -> Iterator[str]:
    with serving(application(ROUTES), face(pems), "test") as address:
        yield f"https://{address}"


def test_who_shows_a_certificate_is_served_and_known_by_its_names(url: str, pems: Path) -> None:
    with client(url, pems) as one:
        assert one.post("/echo", content=b"four").json() == {"peer": ["client"], "size": 4}
        assert one.get("/healthz").text == "ok\n"


@pytest.mark.parametrize(("cert", "ca"), [("", "ca"), ("stranger", "ca"), ("client", "stranger")])
def test_others_are_not(url: str, pems: Path, cert: str, ca: str) -> None:
    with client(url, pems, cert, ca) as one, pytest.raises(httpx.TransportError):
        one.get("/healthz")


def test_nothing_older_than_tls_1_3_is_spoken(url: str, pems: Path) -> None:
    context = ssl.create_default_context(cafile=pems / "ca.pem")
    context.load_cert_chain(pems / "client.pem")
    context.maximum_version = ssl.TLSVersion.TLSv1_2
    with httpx.Client(base_url=url, verify=context, timeout=60) as one, pytest.raises(httpx.ConnectError):
        one.get("/healthz")


def test_http_2_is_not_spoken(url: str, pems: Path) -> None:
    """Parts of Liqo's cluster autoscaler insist on it; docs/liqo.md says what to do."""
    context = ssl.create_default_context(cafile=pems / "ca.pem")
    context.load_cert_chain(pems / "client.pem", pems / "client.key")
    context.set_alpn_protocols(["h2"])
    host, _, port = url.removeprefix("https://").partition(":")
    with socket.create_connection((host, int(port)), 60) as raw, context.wrap_socket(raw, server_hostname=host) as tls:
        assert tls.selected_alpn_protocol() is None


def test_no_session_is_taken_up_again(url: str, pems: Path) -> None:
    """Else a client of an authority that is trusted no more would go on."""
    context = ssl.create_default_context(cafile=pems / "ca.pem")
    context.load_cert_chain(pems / "client.pem")
    where = httpx.URL(url)
    with (
        socket.create_connection((where.host, where.port or 0), timeout=60) as plain,
        context.wrap_socket(plain, server_hostname=where.host) as secured,
    ):
        secured.sendall(b"GET /healthz HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n")
        assert b"200 OK" in secured.recv(1000)
        assert secured.session is None or not secured.session.has_ticket


def test_plain_text_is_not_understood(url: str) -> None:
    with pytest.raises(httpx.TransportError):
        httpx.get(url.replace("https", "http") + "/healthz")


def test_new_certificates_count_from_the_next_connection_on(url: str, pems: Path, tmp_path: Path) -> None:
    with client(url, pems) as one:
        assert one.get("/echo").is_success
    newer = tmp_path / "newer"
    newer.mkdir()
    pki.make(newer)
    for name in ("server.key", "server.crt", "ca.pem"):
        shutil.copy(newer / name, pems / name)
    with client(url, newer) as one:
        assert one.get("/echo").is_success
    (pems / "ca.pem").write_bytes((newer / "ca.pem").read_bytes())
    shutil.copytree(newer, tmp_path / "mixed")
    for name in ("client.pem", "client.key"):
        shutil.copy(pems / name, tmp_path / "mixed" / name)  # of the authority that is trusted no more
    with client(url, tmp_path / "mixed") as one, pytest.raises(httpx.TransportError):
        one.get("/echo")


def test_broken_certificates_change_nothing(url: str, pems: Path) -> None:
    (pems / "server.crt").write_text("no PEM")
    with client(url, pems) as one:
        assert one.get("/echo").is_success


def test_errors_are_one_line_of_json(url: str, pems: Path) -> None:
    with client(url, pems) as one:
        late = one.get("/fail")
        assert (late.status_code, late.json(), late.headers["retry-after"]) == (429, {"error": "slowly, please"}, "7")
        assert (one.get("/nothing").status_code, one.get("/nothing").json()) == (404, {"error": "Not Found"})
        wrong = one.delete("/echo")
        assert (wrong.status_code, wrong.json()) == (405, {"error": "Method Not Allowed"})
        broken = one.get("/break")
        assert (broken.status_code, broken.json()) == (500, {"error": "internal error: RuntimeError"})


def test_statuses_tell_what_the_caller_can_do() -> None:
    errors = (UsageError(""), NotFound(""), AboveMaximum(""), ReschedulerError(""))
    assert [status_of(one) for one in errors] == [400, 404, 409, 500]


def test_a_body_without_end_is_refused(url: str, pems: Path) -> None:
    with client(url, pems) as one:
        refused = one.post("/echo", content=b"x" * (MAX_BODY + 1))
        assert (refused.status_code, refused.headers["connection"]) == (413, "close")
        assert one.post("/echo", content=b"x" * MAX_BODY).json()["size"] == MAX_BODY


def test_a_head_that_does_not_end_is_cut_off(monkeypatch: pytest.MonkeyPatch) -> None:
    with serving(application(ROUTES), Face(ANY, plaintext=True), "test") as address:
        with monkeypatch.context() as hasty:
            hasty.setattr(connection, "HEAD_SECONDS", 0.2)
            for said in (b"", b"GET /healthz HTTP/1.1\r\nHost: x\r\n"):
                with socket.create_connection((address.host, address.port), timeout=60) as slow:
                    slow.sendall(said)
                    with contextlib.suppress(ConnectionResetError):
                        assert slow.recv(100) == b""
        assert httpx.get(f"http://{address}/healthz", timeout=60).text == "ok\n"


def test_a_request_is_not_cut_off_with_its_head_behind_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(connection, "HEAD_SECONDS", 0.2)
    gone_by = threading.Event()

    def slow(_: Request) -> Response:
        gone_by.wait(1)
        return answer("done")

    with serving(application([Route("/slow", slow)]), Face(ANY, plaintext=True), "test") as address:
        # On a busy machine the head itself may come too late, though hardly ever ten times.
        asked = Retrying(retry=retry_if_exception_type(httpx.TransportError), stop=stop_after_attempt(10), reraise=True)
        assert asked(httpx.get, f"http://{address}/slow", timeout=60).json() == "done"


def _through(bounded: ASGIApp, received: list[Message], *, stalled: bool = False) -> list[Message]:
    """What the application answers to a client that sends *received* and then nothing, or takes nothing."""
    sent: list[Message] = []

    async def receive() -> Message:
        if received:
            return received.pop(0)
        await asyncio.Event().wait()
        raise AssertionError

    async def send(message: Message) -> None:
        if stalled:
            await asyncio.Event().wait()
        sent.append(message)

    asyncio.run(bounded({"type": "http", "method": "GET", "path": "/", "headers": []}, receive, send))  # type: ignore[arg-type]
    return sent


PART: Message = {"type": "http.request", "body": b"a part", "more_body": True}
WHOLE: Message = {"type": "http.request", "body": b"all"}


def test_a_body_that_does_not_come_is_not_waited_for() -> None:
    head, body = _through(Bounded(application(ROUTES), body_seconds=0.01), [PART])
    assert (head["status"], body["body"]) == (408, b'{"error":"the body did not arrive within 0.01 s"}')


def test_a_client_that_leaves_gets_no_answer() -> None:
    assert _through(Bounded(application(ROUTES)), [PART, {"type": "http.disconnect"}]) == []


def test_an_answer_that_is_not_taken_is_given_up() -> None:
    assert _through(Bounded(application(ROUTES), taking_seconds=0.01), [WHOLE], stalled=True) == []


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        (
            Face(ANY),
            "--tls-cert, --tls-key and --tls-client-ca: expected all three, for mutual TLS, or --insecure-plaintext",
        ),
        (
            Face(Address("", 0), plaintext=True),
            "--insecure-plaintext: expected --listen on a loopback address, got :0",
        ),
        (
            Face(ANY, cert=Path("x"), plaintext=True),
            "--insecure-plaintext: expected without --tls-cert, --tls-key and --tls-client-ca",
        ),
        (
            Face(ANY, cert=Path("/no/cert"), key=Path("/no/key"), client_ca=Path("/no/ca")),
            "--tls-key /no/key: cannot be read: No such file or directory",
        ),
    ],
)
def test_flags_that_do_not_belong_together_are_wrong_use(wrong: Face, message: str) -> None:
    with pytest.raises(UsageError) as told, serving(application([]), wrong, "test"):
        pass
    assert str(told.value) == message


def test_an_idle_client_does_not_hold_up_the_end(pems: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It does not read, so it does not answer the end of TLS either."""
    monkeypatch.setattr("asyncio.constants.SSL_SHUTDOWN_TIMEOUT", 3600)
    monkeypatch.setattr("rescheduler.liqo.serving._GRACE_SECONDS", 3600)
    with contextlib.ExitStack() as served, contextlib.ExitStack() as asking:
        address = served.enter_context(serving(application(ROUTES), face(pems), "test"))
        one = asking.enter_context(client(f"https://{address}", pems))
        assert one.get("/healthz").is_success
        ending = threading.Thread(target=served.pop_all().close)
        ending.start()
        ending.join(60)
        ended = not ending.is_alive()
        asking.close()
        ending.join(60)
        assert ended


def test_an_address_in_use_is_told() -> None:
    with serving(application([]), Face(ANY, plaintext=True), "test") as address:
        again = Face(address, plaintext=True)
        with pytest.raises(ReschedulerError, match=f"--listen {address}: cannot listen there"):  # noqa: SIM117
            with serving(application([]), again, "test"):
                pass


def test_names_of_a_certificate() -> None:
    certificate = {
        "subject": ((("organizationName", "o"),), (("commonName", "agent"),)),
        "subjectAltName": (("DNS", "a.b"), ("URI", "spiffe://x/y"), ("IP Address", "10.0.0.1")),
    }
    assert names(certificate) == {"agent", "a.b", "spiffe://x/y"}
    assert names({}) == frozenset()
