"""What is no removal arrives as it was sent, and comes back as it was answered."""

import gzip
import http.client
import json
import socket
import ssl
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import httpx
import pytest

from rescheduler.observe.logs import LEVELS
from rescheduler.proxy.app import Patience
from rescheduler.proxy.config import Server, ServerTls
from rescheduler.proxy.forward import FAILED
from tests.proxy.backend import Backend, proxying, running


@pytest.fixture
def backend() -> Iterator[Backend]:
    with running(Backend()) as made:
        yield made


def raw(url: str, request: bytes) -> bytes:
    """What comes back for the bytes of a request, to the end of the connection."""
    parts = urlsplit(url)
    with socket.create_connection((parts.hostname, parts.port), timeout=60) as connection:
        connection.sendall(request)
        found = b""
        while chunk := connection.recv(65536):
            found += chunk
        return found


def line(method: str, target: str, *headers: str) -> bytes:
    head = "\r\n".join([f"{method} {target} HTTP/1.1", "Host: proxy", "Connection: close", *headers])
    return (head + "\r\n\r\n").encode()


@pytest.mark.parametrize("method", ["GET", "HEAD", "PUT", "DELETE", "PATCH", "OPTIONS", "POST"])
def test_every_method(method: str, backend: Backend) -> None:
    with proxying(backend.url) as url:
        answer = httpx.request(method, f"{url}/config", timeout=60)
    assert (answer.status_code, answer.content) == (200, b"" if method == "HEAD" else b"ok")
    assert [(one.method, one.target) for one in backend.seen] == [(method, b"/config")]


#: target as the client sends it: as the backend gets it
TARGETS = {
    "/": "/",
    "/pool": "/pool",
    "/pool?a=b&c=d%20e": "/pool?a=b&c=d%20e",
    "/pool?": "/pool",
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
def test_targets_to_the_byte(target: str, base: str, backend: Backend) -> None:
    with proxying(backend.url + base) as url:
        raw(url, line("GET", target))
    assert [one.target.decode() for one in backend.seen] == [base + TARGETS[target]]


def test_headers_of_the_message_pass_and_those_of_the_connection_do_not(backend: Backend) -> None:
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


#: Headers by which some server takes a request for one of another method or path, in the spellings of gateways.
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
#: Headers that are like those, and change nothing.
HARMLESS = (
    "X-Original-Forwarded-For",
    "X-Method-Name",
    "X-Callback-Url",
    "X-Forwarded-Host",
    "X-Request-Id",
    "Override",
)


@pytest.mark.parametrize("method", ["GET", "POST"])
def test_headers_that_change_the_method_or_the_path_do_not_pass(method: str, backend: Backend) -> None:
    sent = [f"{name}: /pool/size" for name in (*REWRITING, *HARMLESS)]
    with proxying(backend.url) as url:
        raw(url, line(method, "/config", *sent))
    (seen,) = backend.seen
    passed = {name.decode().lower() for name, value in seen.headers if value == b"/pool/size"}
    assert passed == {name.lower() for name in HARMLESS}


def test_nothing_is_added_that_the_client_did_not_send(backend: Backend) -> None:
    with proxying(backend.url) as url:
        raw(url, line("GET", "/pool"))
    assert {name for name, _ in backend.seen[0].headers} - {b"host", b"connection"} == {b"x-forwarded-for"}


#: X-Forwarded-For as it comes: as it goes on
CHAINS: dict[tuple[str, ...], str] = {
    (): "127.0.0.1",
    ("10.0.0.1",): "10.0.0.1, 127.0.0.1",
    ("10.0.0.1, 10.0.0.2",): "10.0.0.1, 10.0.0.2, 127.0.0.1",
    ("10.0.0.1", "10.0.0.2"): "10.0.0.1, 10.0.0.2, 127.0.0.1",
    ("fd00::1",): "fd00::1, 127.0.0.1",
}


def test_a_base_that_is_not_ascii_is_encoded_once(backend: Backend) -> None:
    for base in ("/p%C3%B6ol", "/p\u00f6ol"):
        with proxying(f"{backend.url}{base}") as url:
            assert httpx.get(f"{url}/pool").status_code == 200
    assert [one.target for one in backend.seen] == [b"/p%C3%B6ol/pool"] * 2


def test_each_request_is_logged_at_every_verbosity(backend: Backend, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(LEVELS[0])
    with proxying(backend.url) as url:
        httpx.get(f"{url}/pool/size?secret=1")
        backend.status = 502
        httpx.post(f"{url}/start")
    lines = [message for message in caplog.messages if " after " in message]
    assert [line.rpartition(" after ")[0] for line in lines] == ["GET /pool/size: 200", "POST /start: 502"]
    assert [line[-2:] for line in lines] == [" s", " s"]


@pytest.mark.parametrize("chain", CHAINS)
def test_the_chain_of_clients_grows(chain: tuple[str, ...], backend: Backend) -> None:
    with proxying(backend.url) as url:
        raw(url, line("GET", "/pool", *(f"X-Forwarded-For: {one}" for one in chain)))
    assert backend.seen[0].all("x-forwarded-for") == [CHAINS[chain]]


def test_a_client_of_ipv4_has_its_address_on_a_listener_for_both_families(backend: Backend) -> None:
    with proxying(backend.url, host="") as url:
        raw(url, line("GET", "/pool"))
    assert backend.seen[0].all("x-forwarded-for") == ["127.0.0.1"]


@pytest.mark.parametrize("framing", ["length", "chunks"])
@pytest.mark.parametrize("method", ["POST", "PUT", "GET"])
def test_bodies_arrive_framed_as_they_were_sent(framing: str, method: str, backend: Backend) -> None:
    pieces = [b"a" * 70_000, b"b" * 70_000]
    content: Any = b"".join(pieces) if framing == "length" else iter(pieces)
    with proxying(backend.url) as url:
        httpx.request(method, f"{url}/config", content=content, timeout=60)
    (seen,) = backend.seen
    assert seen.body == b"".join(pieces)
    assert (seen.all("content-length"), seen.all("transfer-encoding")) == (
        (["140000"], []) if framing == "length" else ([], ["chunked"])
    )


def test_a_post_without_a_body_has_none(backend: Backend) -> None:
    with proxying(backend.url) as url:
        httpx.post(f"{url}/start", timeout=60)
    assert (backend.seen[0].body, backend.seen[0].all("transfer-encoding")) == (b"", [])


@pytest.mark.parametrize("status", [200, 201, 204, 301, 302, 304, 307, 400, 404, 405, 418, 500, 503, 599])
def test_statuses_come_back_as_they_are(status: int, backend: Backend) -> None:
    backend.status, backend.headers = status, [(b"location", b"/elsewhere"), (b"retry-after", b"7")]
    if status in {204, 304}:
        backend.chunks = []
    with proxying(backend.url) as url:
        answer = httpx.get(f"{url}/pool", timeout=60)
    assert (answer.status_code, answer.content) == (status, b"".join(backend.chunks))
    assert (answer.headers["location"], answer.headers["retry-after"]) == ("/elsewhere", "7")
    assert len(backend.seen) == 1


def test_headers_of_the_answer_come_back(backend: Backend) -> None:
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
        answer = httpx.get(f"{url}/pool", timeout=60)
    assert answer.headers.get_list("set-cookie") == ["a=1", "b=2"]
    assert "Wed, 01 May 2024 12:00:00 GMT" in answer.headers.get_list("date")
    assert answer.headers.get_list("server") == ["pool"]
    assert not {"keep-alive", "x-named"} & set(answer.headers)


def test_an_encoded_answer_stays_encoded(backend: Backend) -> None:
    packed = gzip.compress(b"hello")
    backend.headers, backend.chunks = [(b"content-encoding", b"gzip")], [packed]
    with proxying(backend.url) as url:
        found = raw(url, line("GET", "/pool"))
    assert packed in found
    assert b"content-encoding: gzip" in found


def test_the_length_of_a_head_is_that_of_the_backend(backend: Backend) -> None:
    backend.headers, backend.chunks = [(b"content-length", b"1234")], []
    with proxying(backend.url) as url:
        assert httpx.head(f"{url}/pool", timeout=60).headers["content-length"] == "1234"


def test_large_answers_are_streamed(backend: Backend) -> None:
    backend.chunks = [bytes([number]) * 100_000 for number in range(50)]
    with proxying(backend.url) as url:
        assert httpx.get(f"{url}/pool", timeout=60).content == b"".join(backend.chunks)


def test_an_answer_that_breaks_off_is_not_made_whole(backend: Backend) -> None:
    backend.broken = True
    with proxying(backend.url) as url, pytest.raises(httpx.RemoteProtocolError):
        httpx.get(f"{url}/pool", timeout=60)


def test_connections_are_kept_for_what_is_safe_and_not_for_what_is_not(backend: Backend) -> None:
    with proxying(backend.url) as url:
        for _ in range(3):
            httpx.get(f"{url}/pool", timeout=60)
        for _ in range(3):
            httpx.post(f"{url}/config", content=b"{}", timeout=60)
    reads, writes = ({one.connection for one in backend.seen if one.method == method} for method in ("GET", "POST"))
    assert (len(reads), len(writes)) == (1, 3)


def test_a_kept_connection_that_the_backend_closes_is_no_failure(backend: Backend) -> None:
    backend.forgetful = True
    with proxying(backend.url) as url:
        assert [httpx.get(f"{url}/pool", timeout=60).status_code for _ in range(2)] == [200, 200]
    assert [one.connection == backend.seen[0].connection for one in backend.seen] == [True, True, False]


@pytest.mark.parametrize("method", ["GET", "POST"])
def test_a_backend_that_is_down(method: str) -> None:
    with socket.socket() as held:
        held.bind(("127.0.0.1", 0))  # and does not listen; nobody else does there either
        down = f"http://127.0.0.1:{held.getsockname()[1]}"
        with proxying(down) as url:
            answer = httpx.request(method, f"{url}/config", timeout=60)
    assert (answer.status_code, answer.headers["content-type"]) == (502, "application/json")
    assert list(answer.json()) == ["message", "detail"]
    assert answer.json()["message"] == FAILED
    assert answer.json()["detail"] == f"{down}: All connection attempts failed"


def test_a_backend_that_is_slow(backend: Backend) -> None:
    backend.silent = True
    with proxying(backend.url, timeout=1) as url:
        answer = httpx.get(f"{url}/pool", timeout=60)
    assert (answer.status_code, answer.json()["message"]) == (504, FAILED)
    assert answer.json()["detail"] == f"{backend.url}: ReadTimeout after 1 s"


def test_a_client_that_stops_within_its_body_is_not_waited_for(backend: Backend) -> None:
    with proxying(backend.url, patience=Patience(0.3, 60.0)) as url:
        found = raw(url, line("POST", "/config", "Content-Length: 20") + b"{")
    assert found.startswith(b"HTTP/1.1 408")
    assert b"no more of the request's body came for 0.3 s" in found


def test_of_two_lengths_the_chunks_count(backend: Backend) -> None:
    with proxying(backend.url) as url:
        request = line("POST", "/config", "Content-Length: 9", "Transfer-Encoding: chunked")
        found = raw(url, request + b"2\r\n{}\r\n0\r\n\r\n")
    assert found.startswith(b"HTTP/1.1 200")
    assert [(one.body, one.all("content-length")) for one in backend.seen] == [(b"{}", [])]


def test_a_client_that_leaves_takes_its_request_along(backend: Backend) -> None:
    backend.silent = True
    with proxying(backend.url, timeout=60) as url:
        with pytest.raises(httpx.ReadTimeout):
            httpx.get(f"{url}/pool", timeout=httpx.Timeout(60, read=0.3))
        backend.silent = False
        assert httpx.get(f"{url}/pool", timeout=60).status_code == 200


# -- credentials


def test_credentials_towards_the_backend_are_ours_where_the_client_has_none(tmp_path: Path, backend: Backend) -> None:
    (tmp_path / "token").write_text("ours")
    with proxying(backend.url, folder=tmp_path, token_file="token") as url:
        httpx.get(f"{url}/pool", timeout=60)
        httpx.get(f"{url}/pool", headers={"authorization": "Bearer theirs"}, timeout=60)
    assert [one.all("authorization") for one in backend.seen] == [["Bearer ours"], ["Bearer theirs"]]


@pytest.mark.parametrize("method", ["TRACE", "trace", "CONNECT"])
def test_what_would_reflect_our_credentials_is_not_forwarded(method: str, backend: Backend, tmp_path: Path) -> None:
    (tmp_path / "token").write_text("sesame")
    with proxying(backend.url, folder=tmp_path, token_file="token") as url:
        answer = raw(url, line(method, "/config"))
    assert answer.startswith(b"HTTP/1.1 405 ")
    assert backend.seen == []


#: Blanks around a value mean nothing, nor does the case of a scheme (RFC 9110, 5.5 and 11.1).
RIGHT = ("Bearer right", "Bearer right ", "bearer  right")


@pytest.mark.parametrize("shown", [None, "", "Bearer", "Bearer wrong", "right", "Basic right", *RIGHT])
def test_who_shows_no_token_gets_nothing(shown: str | None, backend: Backend) -> None:
    headers = [] if shown is None else [f"Authorization: {shown}"]
    with proxying(backend.url, token=lambda: "right") as url:
        found = raw(url, line("GET", "/pool", *headers))
    expected = b"HTTP/1.1 200" if shown in RIGHT else b"HTTP/1.1 401"
    assert found.startswith(expected)
    assert (b"\r\nwww-authenticate: Bearer\r\n" in found) is (shown not in RIGHT)


def test_the_token_that_was_meant_for_us_goes_no_further(backend: Backend) -> None:
    with proxying(backend.url, token=lambda: "right") as url:
        httpx.get(f"{url}/pool", headers={"authorization": "Bearer right"}, timeout=60)
    assert backend.seen[0].all("authorization") == []


def test_a_listener_with_tls_and_client_certificates(certificates: Path, backend: Backend) -> None:
    names = {name: str(certificates / f"{name}.pem") for name in ("server", "client", "ca")}
    tls = ServerTls(cert_path=names["server"], key_path=names["server"], client_ca_path=names["ca"])
    trusting = ssl.create_default_context(cafile=names["ca"])
    with proxying(backend.url, config=Server(tls=tls)) as url:
        with pytest.raises(httpx.TransportError):
            httpx.get(f"{url}/pool", verify=trusting, timeout=60)
        trusting.load_cert_chain(names["client"])
        assert httpx.get(f"{url}/pool", verify=trusting, timeout=60).status_code == 200


def test_a_client_on_ipv6_is_named(backend: Backend) -> None:
    with proxying(backend.url) as url:
        connection = http.client.HTTPConnection(urlsplit(url).netloc, timeout=60)
        connection.request("GET", "/pool", headers={"X-Forwarded-For": "fd00::7"})
        assert connection.getresponse().read() == b"ok"
        connection.close()
    assert json.dumps(backend.seen[0].all("x-forwarded-for")) == '["fd00::7, 127.0.0.1"]'
