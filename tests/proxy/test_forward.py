"""Requests that are not removals are forwarded unchanged, and their responses are returned unchanged."""

import gzip
import http.client
import json
import socket
import ssl
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import httpx2
import pytest

from rescheduler.cloudpool.proxy.app import ClientTimeouts
from rescheduler.cloudpool.proxy.config import ServerSection, ServerTls
from rescheduler.cloudpool.proxy.forward import FAILED
from rescheduler.observe.logs import LEVELS
from tests.proxy.backend import JSON, Backend, proxying


def raw(url: str, request: bytes) -> bytes:
    """Send a request and return all received bytes until the connection ends."""
    parts = urlsplit(url)
    with socket.create_connection((parts.hostname, parts.port), timeout=60) as connection:
        connection.sendall(request)
        received = b""
        while chunk := connection.recv(65536):
            received += chunk
        return received


def line(method: str, target: str, *headers: str) -> bytes:
    sends = any(header.startswith(("Content-Length", "Transfer-Encoding")) for header in headers)
    kind = ["Content-Type: application/json"] if sends else []
    head = "\r\n".join([f"{method} {target} HTTP/1.1", "Host: proxy", "Connection: close", *kind, *headers])
    return (head + "\r\n\r\n").encode()


@pytest.mark.parametrize("method", ["GET", "HEAD", "PUT", "DELETE", "PATCH", "OPTIONS", "POST"])
def test_every_method_is_forwarded(method: str, backend: Backend) -> None:
    with proxying(backend.url) as url:
        response = httpx2.request(method, f"{url}/config", timeout=60)
    assert (response.status_code, response.content) == (200, b"" if method == "HEAD" else b"ok")
    assert [(request.method, request.target) for request in backend.seen] == [(method, b"/config")]


#: target from the client: target at the backend
TARGETS = {
    "/": "/",
    "/pool": "/pool",
    "/pool?a=b&c=d%20e": "/pool?a=b&c=d%20e",
    "/pool?": "/pool",
    "/pool?a=b&c=d%20e&a=": "/pool?a=b&c=d%20e&a=",
    "/POOL/SIZE": "/POOL/SIZE",
    "/a%2Fb%3Fc%20d": "/a%2Fb%3Fc%20d",
    "/a//b/./c/../d/": "/a//b/./c/../d/",
    "/%7Euser/%e4": "/%7Euser/%e4",
    "/a;b=c": "/a;b=c",
    "/a[b]|c": "/a[b]|c",
    "/pool?a=<b>": "/pool?a=<b>",
    "http://elsewhere/pool?x": "/pool?x",
}


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("base", ["", "/base"])
def test_targets_are_forwarded_byte_for_byte(target: str, base: str, backend: Backend) -> None:
    with proxying(backend.url + base) as url:
        raw(url, line("GET", target))
    assert [request.target.decode() for request in backend.seen] == [base + TARGETS[target]]


def test_end_to_end_headers_pass_and_hop_by_hop_headers_do_not(backend: Backend) -> None:
    sent = [
        "Authorization: Basic abc",
        "Cookie: a=b",
        "X-Many: 1",
        "X-Many: 2",
        "Accept-Encoding: br",
        "User-Agent: me",
        "Keep-Alive: timeout=5",
        "TE: trailers",
        "Upgrade: h2c",
        "Proxy-Authorization: secret",
        "X-Named: dropped",
        "Connection: X-Named",
    ]
    with proxying(backend.url) as url:
        raw(url, line("GET", "/pool", *sent))
    (seen,) = backend.seen
    passed = {name: seen.all(name) for name in ("authorization", "cookie", "x-many", "accept-encoding", "user-agent")}
    assert passed == {
        "authorization": ["Basic abc"],
        "cookie": ["a=b"],
        "x-many": ["1", "2"],
        "accept-encoding": ["br"],
        "user-agent": ["me"],
    }
    names = {name for name, _ in seen.headers}
    assert not names & {b"keep-alive", b"te", b"upgrade", b"proxy-authorization", b"x-named"}
    assert seen.all("host") == [urlsplit(backend.url).netloc]


#: Headers that override method or path for some servers, in the spellings of gateways.
REWRITING = (
    "X-HTTP-Method-Override",
    "x-http-method",
    "X-METHOD-OVERRIDE",
    "X_HTTP_Method_Override",
    "X-Http_Method.Override",
    "HTTP-Method-Override",
    "X-Original-Method",
    "X-Forwarded-Method",
    "X-Original-URL",
    "X_Original_Url",
    "X-Original-URI",
    "X-Original-Path",
    "X-Rewrite-URL",
    "X-REWRITE-URI",
    "X-Override-URL",
    "X-Forwarded-URI",
    "X-Forwarded-Path",
    "X-Forwarded-Prefix",
    "X-Envoy-Original-Path",
    "X-MS-Original-URL",
    "X-Request-Method",
    "X-Real-Path",
    "X-Proxy-URL",
    "X-Forwarded-Original-Path",
    "Request-URI",
    "X-HTTP-Method-Overrides",
)
#: Similar headers without an effect.
HARMLESS = (
    "X-Original-Forwarded-For",
    "X-Method-Name",
    "X-Callback-Url",
    "X-Forwarded-Host",
    "X-Request-Id",
    "Override",
)


@pytest.mark.parametrize("method", ["GET", "POST"])
def test_headers_that_override_the_method_or_the_path_do_not_pass(method: str, backend: Backend) -> None:
    sent = [f"{name}: /pool/size" for name in (*REWRITING, *HARMLESS)]
    with proxying(backend.url) as url:
        raw(url, line(method, "/config", *sent))
    (seen,) = backend.seen
    passed = {name.decode().lower() for name, value in seen.headers if value == b"/pool/size"}
    assert passed == {name.lower() for name in HARMLESS}


def test_no_headers_are_added(backend: Backend) -> None:
    with proxying(backend.url) as url:
        raw(url, line("GET", "/pool"))
    assert {name for name, _ in backend.seen[0].headers} - {b"host", b"connection"} == {b"x-forwarded-for"}


#: X-Forwarded-For from the client: X-Forwarded-For at the backend
CHAINS: dict[tuple[str, ...], str] = {
    (): "127.0.0.1",
    ("10.0.0.1",): "10.0.0.1, 127.0.0.1",
    ("10.0.0.1, 10.0.0.2",): "10.0.0.1, 10.0.0.2, 127.0.0.1",
    ("10.0.0.1", "10.0.0.2"): "10.0.0.1, 10.0.0.2, 127.0.0.1",
    ("fd00::1",): "fd00::1, 127.0.0.1",
}


def test_a_non_ascii_base_is_encoded_once(backend: Backend) -> None:
    for base in ("/p%C3%B6ol", "/p\u00f6ol"):
        with proxying(f"{backend.url}{base}") as url:
            assert httpx2.get(f"{url}/pool").status_code == 200
    assert [request.target for request in backend.seen] == [b"/p%C3%B6ol/pool"] * 2


def test_each_request_is_logged_at_every_verbosity(backend: Backend, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(LEVELS[0])
    with proxying(backend.url) as url:
        httpx2.get(f"{url}/pool/size?secret=1")
        backend.status = 502
        httpx2.post(f"{url}/start")
    lines = [message for message in caplog.messages if " after " in message]
    assert [line.rpartition(" after ")[0] for line in lines] == ["GET /pool/size: 200", "POST /start: 502"]
    assert [line[-2:] for line in lines] == [" s", " s"]


@pytest.mark.parametrize("chain", CHAINS)
def test_the_client_is_added_to_x_forwarded_for(chain: tuple[str, ...], backend: Backend) -> None:
    with proxying(backend.url) as url:
        raw(url, line("GET", "/pool", *(f"X-Forwarded-For: {client}" for client in chain)))
    assert backend.seen[0].all("x-forwarded-for") == [CHAINS[chain]]


def test_an_ipv4_client_of_a_dual_stack_listener_has_its_ipv4_address(backend: Backend) -> None:
    with proxying(backend.url, host="") as url:
        raw(url, line("GET", "/pool"))
    assert backend.seen[0].all("x-forwarded-for") == ["127.0.0.1"]


@pytest.mark.parametrize("framing", ["length", "chunks"])
@pytest.mark.parametrize("method", ["POST", "PUT", "GET"])
def test_bodies_keep_their_framing(framing: str, method: str, backend: Backend) -> None:
    pieces = [b"a" * 70_000, b"b" * 70_000]
    content: Any = b"".join(pieces) if framing == "length" else iter(pieces)
    with proxying(backend.url) as url:
        httpx2.request(method, f"{url}/config", content=content, headers=JSON, timeout=60)
    (seen,) = backend.seen
    assert seen.body == b"".join(pieces)
    assert (seen.all("content-length"), seen.all("transfer-encoding")) == (
        (["140000"], []) if framing == "length" else ([], ["chunked"])
    )


def test_a_post_without_a_body_is_forwarded_without_one(backend: Backend) -> None:
    with proxying(backend.url) as url:
        httpx2.post(f"{url}/start", timeout=60)
    assert (backend.seen[0].body, backend.seen[0].all("transfer-encoding")) == (b"", [])


@pytest.mark.parametrize("status", [200, 201, 204, 301, 302, 304, 307, 400, 404, 405, 418, 500, 503, 599])
def test_statuses_are_returned_unchanged(status: int, backend: Backend) -> None:
    backend.status, backend.headers = status, [(b"location", b"/elsewhere"), (b"retry-after", b"7")]
    if status in {204, 304}:
        backend.chunks = []
    with proxying(backend.url) as url:
        response = httpx2.get(f"{url}/pool", timeout=60)
    assert (response.status_code, response.content) == (status, b"".join(backend.chunks))
    assert (response.headers["location"], response.headers["retry-after"]) == ("/elsewhere", "7")
    assert len(backend.seen) == 1


def test_headers_of_the_response_are_returned(backend: Backend) -> None:
    backend.headers = [
        (b"set-cookie", b"a=1"),
        (b"set-cookie", b"b=2"),
        (b"date", b"Wed, 01 May 2024 12:00:00 GMT"),
        (b"server", b"pool"),
        (b"keep-alive", b"timeout=5"),
        (b"x-named", b"dropped"),
        (b"connection", b"x-named"),
    ]
    with proxying(backend.url) as url:
        response = httpx2.get(f"{url}/pool", timeout=60)
    assert response.headers.get_list("set-cookie") == ["a=1", "b=2"]
    assert "Wed, 01 May 2024 12:00:00 GMT" in response.headers.get_list("date")
    assert response.headers.get_list("server") == ["pool"]
    assert not {"keep-alive", "x-named"} & set(response.headers)


def test_an_encoded_response_is_not_decoded(backend: Backend) -> None:
    packed = gzip.compress(b"hello")
    backend.headers, backend.chunks = [(b"content-encoding", b"gzip")], [packed]
    with proxying(backend.url) as url:
        response = raw(url, line("GET", "/pool"))
    assert packed in response
    assert b"content-encoding: gzip" in response


def test_head_returns_the_length_from_the_backend(backend: Backend) -> None:
    backend.headers, backend.chunks = [(b"content-length", b"1234")], []
    with proxying(backend.url) as url:
        assert httpx2.head(f"{url}/pool", timeout=60).headers["content-length"] == "1234"


def test_large_responses_are_streamed(backend: Backend) -> None:
    backend.chunks = [bytes([number]) * 100_000 for number in range(50)]
    with proxying(backend.url) as url:
        assert httpx2.get(f"{url}/pool", timeout=60).content == b"".join(backend.chunks)


def test_a_truncated_response_stays_truncated(backend: Backend) -> None:
    backend.broken = True
    with proxying(backend.url) as url, pytest.raises(httpx2.RemoteProtocolError):
        httpx2.get(f"{url}/pool", timeout=60)


def test_connections_are_reused_only_for_safe_requests(backend: Backend) -> None:
    with proxying(backend.url) as url:
        for _ in range(3):
            httpx2.get(f"{url}/pool", timeout=60)
        for _ in range(3):
            httpx2.post(f"{url}/config", content=b"{}", headers=JSON, timeout=60)
    reads, writes = (
        {request.connection for request in backend.seen if request.method == method} for method in ("GET", "POST")
    )
    assert (len(reads), len(writes)) == (1, 3)


def test_a_reused_connection_closed_by_the_backend_is_not_a_failure(backend: Backend) -> None:
    backend.forgetful = True
    with proxying(backend.url) as url:
        assert [httpx2.get(f"{url}/pool", timeout=60).status_code for _ in range(2)] == [200, 200]
    assert [request.connection == backend.seen[0].connection for request in backend.seen] == [True, True, False]


@pytest.mark.parametrize("method", ["GET", "POST"])
def test_an_unreachable_backend_gives_502(method: str) -> None:
    with socket.socket() as held:
        held.bind(("127.0.0.1", 0))  # bound but not listening, so that connections are refused
        down = f"http://127.0.0.1:{held.getsockname()[1]}"
        with proxying(down) as url:
            response = httpx2.request(method, f"{url}/config", timeout=60)
    assert (response.status_code, response.headers["content-type"]) == (502, "application/json")
    assert list(response.json()) == ["message", "detail"]
    assert response.json()["message"] == FAILED
    assert response.json()["detail"] == f"{down}: All connection attempts failed"


def test_a_slow_backend_gives_504(backend: Backend) -> None:
    backend.silent = True
    with proxying(backend.url, timeout=1) as url:
        response = httpx2.get(f"{url}/pool", timeout=60)
    assert (response.status_code, response.json()["message"]) == (504, FAILED)
    assert response.json()["detail"] == f"{backend.url}: ReadTimeout after 1 s"


def test_a_client_that_stalls_within_its_body_times_out(backend: Backend) -> None:
    with proxying(backend.url, patience=ClientTimeouts(0.3, 60.0)) as url:
        response = raw(url, line("POST", "/config", "Content-Length: 20") + b"{")
    assert response.startswith(b"HTTP/1.1 408")
    assert b"no more of the request's body arrived for 0.3 s" in response


def test_a_request_with_two_lengths_is_not_forwarded(backend: Backend) -> None:
    with proxying(backend.url) as url:
        request = line("POST", "/config", "Content-Length: 9", "Transfer-Encoding: chunked")
        response = raw(url, request + b"2\r\n{}\r\n0\r\n\r\n" + line("GET", "/pool"))
    assert response.startswith(b"HTTP/1.1 400")
    assert (response.count(b"HTTP/1.1"), backend.seen) == (1, [])


def test_a_disconnect_cancels_the_request_to_the_backend(backend: Backend) -> None:
    backend.silent = True
    with proxying(backend.url, timeout=60) as url:
        with pytest.raises(httpx2.ReadTimeout):
            httpx2.get(f"{url}/pool", timeout=httpx2.Timeout(60, read=0.3))
        backend.silent = False
        assert httpx2.get(f"{url}/pool", timeout=60).status_code == 200


# -- credentials


def test_the_proxys_credentials_are_used_if_the_client_sends_none(tmp_path: Path, backend: Backend) -> None:
    (tmp_path / "token").write_text("ours")
    with proxying(backend.url, folder=tmp_path, token_file="token") as url:
        httpx2.get(f"{url}/pool", timeout=60)
        httpx2.get(f"{url}/pool", headers={"authorization": "Bearer theirs"}, timeout=60)
    assert [request.all("authorization") for request in backend.seen] == [["Bearer ours"], ["Bearer theirs"]]


@pytest.mark.parametrize("method", ["TRACE", "trace", "CONNECT"])
def test_methods_that_reflect_credentials_are_not_forwarded(method: str, backend: Backend, tmp_path: Path) -> None:
    (tmp_path / "token").write_text("sesame")
    with proxying(backend.url, folder=tmp_path, token_file="token") as url:
        response = raw(url, line(method, "/config"))
    assert response.startswith(b"HTTP/1.1 405 ")
    assert backend.seen == []


#: Whitespace around a value and the case of a scheme are insignificant (RFC 9110, 5.5 and 11.1).
RIGHT = ("Bearer right", "Bearer right ", "bearer  right")


@pytest.mark.parametrize("header", [None, "", "Bearer", "Bearer wrong", "right", "Basic right", *RIGHT])
def test_requests_without_the_token_are_rejected(header: str | None, backend: Backend) -> None:
    headers = [] if header is None else [f"Authorization: {header}"]
    with proxying(backend.url, token=lambda: "right") as url:
        response = raw(url, line("GET", "/pool", *headers))
    expected = b"HTTP/1.1 200" if header in RIGHT else b"HTTP/1.1 401"
    assert response.startswith(expected)
    assert (b"\r\nwww-authenticate: Bearer\r\n" in response) is (header not in RIGHT)


def test_the_clients_token_is_not_forwarded(backend: Backend) -> None:
    with proxying(backend.url, token=lambda: "right") as url:
        httpx2.get(f"{url}/pool", headers={"authorization": "Bearer right"}, timeout=60)
    assert backend.seen[0].all("authorization") == []


def test_a_listener_with_tls_requires_client_certificates(certificates: Path, backend: Backend) -> None:
    names = {name: str(certificates / f"{name}.pem") for name in ("server", "client", "ca")}
    tls = ServerTls(cert_path=names["server"], key_path=names["server"], client_ca_path=names["ca"])
    trusting = ssl.create_default_context(cafile=names["ca"])
    with proxying(backend.url, config=ServerSection(tls=tls)) as url:
        with pytest.raises(httpx2.TransportError):
            httpx2.get(f"{url}/pool", verify=trusting, timeout=60)
        trusting.load_cert_chain(names["client"])
        assert httpx2.get(f"{url}/pool", verify=trusting, timeout=60).status_code == 200


def test_the_address_of_an_ipv6_client_is_forwarded(backend: Backend) -> None:
    with proxying(backend.url) as url:
        connection = http.client.HTTPConnection(urlsplit(url).netloc, timeout=60)
        connection.request("GET", "/pool", headers={"X-Forwarded-For": "fd00::7"})
        assert connection.getresponse().read() == b"ok"
        connection.close()
    assert json.dumps(backend.seen[0].all("x-forwarded-for")) == '["fd00::7, 127.0.0.1"]'
