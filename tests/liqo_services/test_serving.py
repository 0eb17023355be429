"""The HTTPS listener: authentication, limits, and certificate rotation at runtime."""

import asyncio
import contextlib
import shutil
import socket
import ssl
import threading
from collections.abc import Iterator
from pathlib import Path

import httpx2
import pytest
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route
from starlette.types import ASGIApp, Message
from tenacity import Retrying, retry_if_exception_type, stop_after_attempt

from rescheduler.errors import NotFound, RateLimited, ReschedulerError, UsageError
from rescheduler.liqo.serving import (
    MAX_BODY,
    Bounded,
    HttpsListener,
    application,
    certificate_names,
    client_names,
    json_response,
    serving,
    status_of,
)
from rescheduler.net import connection
from rescheduler.providers.base import AboveMaximum
from rescheduler.settings import ListenAddress
from tests.providers import pki

LOOPBACK = ListenAddress("127.0.0.1", 0)


async def _echo(request: Request) -> Response:
    return json_response({"peer": sorted(client_names(request)), "size": len(await request.body())})


def _fail(_: Request) -> Response:
    raise RateLimited("slowly,\nplease", retry_after=7)


def _break(_: Request) -> Response:
    raise RuntimeError("secret")


ROUTES = [Route("/echo", _echo, methods=["GET", "POST"]), Route("/fail", _fail), Route("/break", _break)]


def listener(pems: Path) -> HttpsListener:
    return HttpsListener(LOOPBACK, cert=pems / "server.crt", key=pems / "server.key", client_ca=pems / "ca.pem")


@contextlib.contextmanager
def client(url: str, pems: Path, cert: str = "client", ca: str = "ca") -> Iterator[httpx2.Client]:
    context = ssl.create_default_context(cafile=pems / f"{ca}.pem")
    if cert:
        context.load_cert_chain(pems / f"{cert}.pem", pems / f"{cert}.key")
    with httpx2.Client(
        base_url=url, verify=context, headers={"content-type": "application/json"}, timeout=60
    ) as opened:
        yield opened


@pytest.fixture
def url(pems: Path) -> Iterator[str]:
    with serving(application(ROUTES), listener(pems), "test") as address:
        yield f"https://{address}"


def test_clients_with_a_certificate_are_served_and_identified(url: str, pems: Path) -> None:
    with client(url, pems) as caller:
        assert caller.post("/echo", content=b"four").json() == {"peer": ["client"], "size": 4}
        assert caller.get("/healthz").text == "ok\n"


@pytest.mark.parametrize(("cert", "ca"), [("", "ca"), ("stranger", "ca"), ("client", "stranger")])
def test_other_clients_are_rejected(url: str, pems: Path, cert: str, ca: str) -> None:
    with client(url, pems, cert, ca) as caller, pytest.raises(httpx2.TransportError):
        caller.get("/healthz")


def test_tls_below_1_3_is_rejected(url: str, pems: Path) -> None:
    context = ssl.create_default_context(cafile=pems / "ca.pem")
    context.load_cert_chain(pems / "client.pem")
    context.maximum_version = ssl.TLSVersion.TLSv1_2
    with (
        httpx2.Client(base_url=url, verify=context, headers={"content-type": "application/json"}, timeout=60) as caller,
        pytest.raises(httpx2.ConnectError),
    ):
        caller.get("/healthz")


def test_http_2_is_not_supported(url: str, pems: Path) -> None:
    """Parts of Liqo's cluster autoscaler require it; docs/liqo.md describes the solution."""
    context = ssl.create_default_context(cafile=pems / "ca.pem")
    context.load_cert_chain(pems / "client.pem", pems / "client.key")
    context.set_alpn_protocols(["h2"])
    host, _, port = url.removeprefix("https://").partition(":")
    with socket.create_connection((host, int(port)), 60) as raw, context.wrap_socket(raw, server_hostname=host) as tls:
        assert tls.selected_alpn_protocol() is None


def test_tls_sessions_are_not_resumed(url: str, pems: Path) -> None:
    """A resumed session would keep a client of a CA that is no longer trusted."""
    context = ssl.create_default_context(cafile=pems / "ca.pem")
    context.load_cert_chain(pems / "client.pem")
    where = httpx2.URL(url)
    with (
        socket.create_connection((where.host, where.port or 0), timeout=60) as plain,
        context.wrap_socket(plain, server_hostname=where.host) as secured,
    ):
        secured.sendall(b"GET /healthz HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n")
        assert b"200 OK" in secured.recv(1000)
        assert secured.session is None or not secured.session.has_ticket


def test_plain_text_is_rejected(url: str) -> None:
    with pytest.raises(httpx2.TransportError):
        httpx2.get(url.replace("https", "http") + "/healthz")


def test_new_certificates_are_used_for_new_connections(url: str, pems: Path, tmp_path: Path) -> None:
    with client(url, pems) as caller:
        assert caller.get("/echo").is_success
    newer = tmp_path / "newer"
    newer.mkdir()
    pki.make(newer)
    for name in ("server.key", "server.crt", "ca.pem"):
        shutil.copy(newer / name, pems / name)
    with client(url, newer) as caller:
        assert caller.get("/echo").is_success
    (pems / "ca.pem").write_bytes((newer / "ca.pem").read_bytes())
    shutil.copytree(newer, tmp_path / "mixed")
    for name in ("client.pem", "client.key"):
        shutil.copy(pems / name, tmp_path / "mixed" / name)  # issued by the CA that is no longer trusted
    with client(url, tmp_path / "mixed") as caller, pytest.raises(httpx2.TransportError):
        caller.get("/echo")


def test_invalid_certificates_are_ignored(url: str, pems: Path) -> None:
    (pems / "server.crt").write_text("no PEM")
    with client(url, pems) as caller:
        assert caller.get("/echo").is_success


def test_errors_are_one_line_of_json(url: str, pems: Path) -> None:
    with client(url, pems) as caller:
        late = caller.get("/fail")
        assert (late.status_code, late.json(), late.headers["retry-after"]) == (429, {"error": "slowly, please"}, "7")
        assert (caller.get("/nothing").status_code, caller.get("/nothing").json()) == (404, {"error": "Not Found"})
        wrong = caller.delete("/echo")
        assert (wrong.status_code, wrong.json()) == (405, {"error": "Method Not Allowed"})
        broken = caller.get("/break")
        assert (broken.status_code, broken.json()) == (500, {"error": "internal error: RuntimeError"})


def test_errors_map_to_statuses() -> None:
    errors = (UsageError(""), NotFound(""), AboveMaximum(""), ReschedulerError(""))
    assert [status_of(error) for error in errors] == [400, 404, 409, 500]


def test_an_endless_body_is_rejected(url: str, pems: Path) -> None:
    with client(url, pems) as caller:
        refused = caller.post("/echo", content=b"x" * (MAX_BODY + 1))
        assert (refused.status_code, refused.headers["connection"]) == (413, "close")
        assert caller.post("/echo", content=b"x" * MAX_BODY).json()["size"] == MAX_BODY


def test_an_incomplete_head_times_out(monkeypatch: pytest.MonkeyPatch) -> None:
    with serving(application(ROUTES), HttpsListener(LOOPBACK, plaintext=True), "test") as address:
        with monkeypatch.context() as hasty:
            hasty.setattr(connection, "HEAD_SECONDS", 0.2)
            for sent in (b"", b"GET /healthz HTTP/1.1\r\nHost: x\r\n"):
                with socket.create_connection((address.host, address.port), timeout=60) as slow:
                    slow.sendall(sent)
                    with contextlib.suppress(ConnectionResetError):
                        assert slow.recv(100) == b""
        assert httpx2.get(f"http://{address}/healthz", timeout=60).text == "ok\n"


def test_a_request_with_a_complete_head_does_not_time_out(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(connection, "HEAD_SECONDS", 0.2)
    gone_by = threading.Event()

    def slow(_: Request) -> Response:
        gone_by.wait(1)
        return json_response("done")

    with serving(application([Route("/slow", slow)]), HttpsListener(LOOPBACK, plaintext=True), "test") as address:
        # A busy machine may delay the head itself, so try up to ten times.
        asked = Retrying(
            retry=retry_if_exception_type(httpx2.TransportError), stop=stop_after_attempt(10), reraise=True
        )
        assert asked(httpx2.get, f"http://{address}/slow", timeout=60).json() == "done"


def _through(bounded: ASGIApp, received: list[Message], *, stalled: bool = False) -> list[Message]:
    """Return the application's response to a client that sends *received* and then stalls, or does not read."""
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


def test_a_stalled_body_times_out() -> None:
    head, body = _through(Bounded(application(ROUTES), body_seconds=0.01), [PART])
    assert (head["status"], body["body"]) == (408, b'{"error":"the body did not arrive within 0.01 s"}')


def test_a_disconnected_client_gets_no_response() -> None:
    assert _through(Bounded(application(ROUTES)), [PART, {"type": "http.disconnect"}]) == []


def test_a_response_that_is_not_read_is_aborted() -> None:
    assert _through(Bounded(application(ROUTES), taking_seconds=0.01), [WHOLE], stalled=True) == []


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        (
            HttpsListener(LOOPBACK),
            "--tls-cert, --tls-key and --tls-client-ca: expected all three, for mutual TLS, or --insecure-plaintext",
        ),
        (
            HttpsListener(ListenAddress("", 0), plaintext=True),
            "--insecure-plaintext: expected --listen on a loopback address, got :0",
        ),
        (
            HttpsListener(LOOPBACK, cert=Path("x"), plaintext=True),
            "--insecure-plaintext: expected without --tls-cert, --tls-key and --tls-client-ca",
        ),
        (
            HttpsListener(LOOPBACK, cert=Path("/no/cert"), key=Path("/no/key"), client_ca=Path("/no/ca")),
            "--tls-key /no/key: cannot be read: No such file or directory",
        ),
    ],
)
def test_conflicting_flags_are_a_usage_error(wrong: HttpsListener, message: str) -> None:
    with pytest.raises(UsageError) as caught, serving(application([]), wrong, "test"):
        pass
    assert str(caught.value) == message


def test_an_idle_client_does_not_delay_the_shutdown(pems: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The client does not read, so it does not respond to the TLS shutdown either."""
    monkeypatch.setattr("asyncio.constants.SSL_SHUTDOWN_TIMEOUT", 3600)
    monkeypatch.setattr("rescheduler.liqo.serving._GRACE_SECONDS", 3600)
    with contextlib.ExitStack() as served, contextlib.ExitStack() as asking:
        address = served.enter_context(serving(application(ROUTES), listener(pems), "test"))
        caller = asking.enter_context(client(f"https://{address}", pems))
        assert caller.get("/healthz").is_success
        ending = threading.Thread(target=served.pop_all().close)
        ending.start()
        ending.join(60)
        ended = not ending.is_alive()
        asking.close()
        ending.join(60)
        assert ended


def test_an_address_in_use_is_reported() -> None:
    with serving(application([]), HttpsListener(LOOPBACK, plaintext=True), "test") as address:
        again = HttpsListener(address, plaintext=True)
        with pytest.raises(ReschedulerError, match=f"--listen {address}: cannot listen there"):  # noqa: SIM117
            with serving(application([]), again, "test"):
                pass


def test_all_names_of_a_certificate_are_read() -> None:
    certificate = {
        "subject": ((("organizationName", "o"),), (("commonName", "agent"),)),
        "subjectAltName": (("DNS", "a.b"), ("URI", "spiffe://x/y"), ("IP Address", "10.0.0.1")),
    }
    assert certificate_names(certificate) == {"agent", "a.b", "spiffe://x/y"}
    assert certificate_names({}) == frozenset()
