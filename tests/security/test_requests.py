"""Requests that another server could read differently end their connection on every listener; none fills the log."""

import contextlib
import re
import ssl
from collections.abc import Callable
from contextlib import AbstractContextManager
from functools import partial
from pathlib import Path
from typing import Any, Final

import httpx2
import pytest

from tests.cluster.waiting import eventually
from tests.fuzz import targets
from tests.fuzz.targets import AttackTarget
from tests.fuzz.wire import connect
from tests.observe.test_connection import COSTLY, SMUGGLED

#: A second request, which an attacker would want to be read on the same connection.
SECOND: Final = b"GET /healthz HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n"

HEAD: Final = b"POST /pool/attach HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Type: application/json\r\n%b\r\n"
CHUNKS: Final = b"Transfer-Encoding: chunked\r\n"
#: More of them than those for the parser alone, and requests that cost much, which are treated alike.
AMBIGUOUS: Final = {**SMUGGLED, **COSTLY} | {
    "a coding after the chunks": HEAD % b"Transfer-Encoding: chunked, identity\r\n" + b"0\r\n\r\n",
    "a coding that is almost chunked": HEAD % b"Transfer-Encoding: xchunked\r\n" + b"0\r\n\r\n",
    "a coding with a vertical tab": HEAD % b"Transfer-Encoding: \x0bchunked\r\n" + b"0\r\n\r\n",
    "two codings": HEAD % (CHUNKS + b"Transfer-Encoding: identity\r\n") + b"0\r\n\r\n",
    "a space before the colon": HEAD % b"Transfer-Encoding : chunked\r\n" + b"0\r\n\r\n",
    "a length and chunks": HEAD % (b"Content-Length: 3\r\nA: b\r\n" + CHUNKS) + b"0\r\n\r\n",
    "a length with a sign": HEAD % b"Content-Length: +1\r\n" + b"x",
    "a length with an underscore": HEAD % b"Content-Length: 1_0\r\n" + b"0123456789",
    "a negative length": HEAD % b"Content-Length: -1\r\n",
    "a hexadecimal length": HEAD % b"Content-Length: 0x1\r\n" + b"x",
    "a size with a prefix": HEAD % CHUNKS + b"0x1\r\nx\r\n0\r\n\r\n",
    "a size with a sign": HEAD % CHUNKS + b"+1\r\nx\r\n0\r\n\r\n",
    "a size with a space before it": HEAD % CHUNKS + b" 1\r\nx\r\n0\r\n\r\n",
    "a chunk that is longer than its size": HEAD % CHUNKS + b"1\r\nxx\r\n0\r\n\r\n",
    "two Hosts": b"GET /healthz HTTP/1.1\r\nHost: a\r\nHost: b\r\n\r\n",
    "a zero byte in a header": b"GET /healthz HTTP/1.1\r\nHost: a\r\nA: b\0\r\n\r\n",
    "a carriage return alone": b"GET /healthz HTTP/1.1\r\nHost: a\r\nA: b\rTransfer-Encoding: chunked\r\n\r\n",
    "a space in the target": b"GET /healthz HTTP/1.1 HTTP/1.1\r\nHost: a\r\n\r\n",
    "HTTP/0.9": b"GET /healthz\r\n\r\n",
}

TARGETS: Final[dict[str, Callable[[Path], AbstractContextManager[AttackTarget]]]] = {
    "run": targets.pages,
    "proxy": targets.proxy,
    "proxy with TLS": lambda folder: targets.proxy(folder, tls=True),
    "discovery": lambda folder: targets.liqo(folder, "discovery"),
    "node-manager with TLS": lambda folder: targets.liqo(folder, "node-manager", tls=True),
}


def answers(port: int, sent: bytes, tls: Any) -> list[int]:
    """Return the status codes of all responses until the server closes the connection, which it must."""
    received = b""
    closed = ConnectionError, ssl.SSLEOFError  # also while something is still sent
    with contextlib.closing(connect(port, tls)) as client, contextlib.suppress(*closed):
        client.settimeout(60)
        with contextlib.suppress(*closed):
            client.sendall(sent)
        while data := client.recv(1 << 16):
            received += data
    return [int(code) for code in re.findall(rb"HTTP/1\.1 (\d{3})", received)]


def authorized(request: bytes, shown: bytes) -> bytes:
    """Add the lines *shown* after the first line, unless that is ambiguous itself."""
    line, end, rest = request.partition(b"\r\n")
    return request if b"\n" in line else line + end + shown + rest


@pytest.mark.parametrize("name", TARGETS)
def test_an_ambiguous_request_is_the_last_of_its_connection(name: str, tmp_path: Path) -> None:
    with TARGETS[name](tmp_path) as target:
        shown = b"".join(line + b"\r\n" for line in target.headers)
        for port in target.process.ports:
            tls = target.tls if port == target.port else None
            for attack, request in AMBIGUOUS.items():
                codes = answers(port, authorized(request, shown) + SECOND, tls)
                assert len(codes) <= 1, (attack, port, codes)
                assert all(code >= 400 for code in codes), (attack, port, codes)
        assert target.process.problems() == []
        assert target.restore() == []


LONG: Final = f"/{'x' * 60_000}"
#: What a client of the proxy sends again and again: method, path, headers and body; whether a line is written for it.
FLOODS: Final[dict[str, tuple[str, str, dict[str, str], bytes, bool]]] = {
    "a forwarded request": ("GET", "/pool", {}, b"", True),
    "a long path that is forwarded": ("GET", LONG, {}, b"", True),
    "a long method": ("X" * 10_000, "/pool", {}, b"", True),
    "a long path without the token": ("GET", LONG, {"Authorization": "no"}, b"", False),
    "a long path of a page": ("GET", LONG, {"Origin": "https://evil.example"}, b"", False),
    "a long removal of a page": ("POST", f"/pool{LONG}/terminate", {"Origin": "https://evil.example"}, b"", False),
    "a method that reflects": ("TRACE", LONG, {}, b"", False),
    "a removal of a machine that does not exist": (
        "POST",
        "/pool/terminate",
        {},
        b'{"machineId": "%b", "decrementDesiredSize": false}' % (b"x" * 60_000),
        False,
    ),
    "a removal with an invalid body": ("POST", "/pool/size", {}, b"x" * 60_000, False),
    "a body that is not JSON": ("POST", LONG, {"Content-Type": "text/plain"}, b"x", False),
}
REPEATED: Final = 20
LONGEST: Final = 400  #: bytes of a line for a request: its method and its path are cut


def requests_by_code(port: int) -> float:
    """Return how many requests the proxy has counted, with whatever response."""
    text = httpx2.get(f"http://127.0.0.1:{port}/metrics", timeout=60, trust_env=False).text
    return sum(float(value) for value in re.findall(r"proxy_requests_total{.*} (\S+)", text))


def all_counted(port: int, expected: float) -> bool:
    """Return whether that many were counted. A request is counted after its response was sent."""
    return requests_by_code(port) == expected


def test_a_client_cannot_fill_the_log_of_the_proxy(tmp_path: Path) -> None:
    """Refused requests are counted, not printed, at the default verbosity."""
    with targets.proxy(tmp_path, verbosity=0) as proxy:
        [health] = proxy.process.ports - {proxy.port}
        shown = dict(line.decode().split(": ", 1) for line in proxy.headers) | {"Content-Type": "application/json"}
        with httpx2.Client(base_url=f"http://127.0.0.1:{proxy.port}", timeout=60, trust_env=False) as client:
            for name, (method, path, headers, body, printed) in FLOODS.items():
                before, counted = len(proxy.process.lines), requests_by_code(health)
                for _ in range(REPEATED):
                    client.request(method, path, headers=shown | headers, content=body)
                eventually(partial(all_counted, health, counted + REPEATED))
                lines = [line for line in proxy.process.lines[before:] if f" {method[:10]}" in line]
                assert len(lines) == (REPEATED if printed else 0), (name, lines[:3])
                assert all(len(line) < LONGEST for line in lines), name
        assert proxy.process.problems() == []


#: What a client can write into a header, for which a library could fail or the process could keep a page.
ODD_HEADERS: Final[tuple[dict[str, str], ...]] = (
    *({"Accept": f"application/openmetrics-text;version={version}"} for version in ("x", "1.x", "-1", "9" * 5000)),
    {"Accept": "text/plain;version=x;escaping=y"},
    {"Accept": "text/html;q=x,*/*;q=" + "9" * 5000},
    {"Accept": "\xff\xfe,text/html"},
    {"If-None-Match": '"\xff'},
    {"Connection": "upgrade", "Upgrade": "websocket", "Sec-WebSocket-Version": "x"},
    {"Cookie": "=" * 5000, "Range": "bytes=9-1", "Accept-Encoding": "\xff"},
)


def test_odd_headers_neither_fail_nor_write_lines(tmp_path: Path) -> None:
    with targets.pages(tmp_path) as target:
        before = len(target.process.lines)
        with httpx2.Client(base_url=f"http://127.0.0.1:{target.port}", timeout=60, trust_env=False) as client:
            for headers in ODD_HEADERS:
                encoded = {name.encode(): value.encode("latin-1") for name, value in headers.items()}
                for path in ("/metrics", "/statusz", "/?\xff=%ff&;=&format=%00", "/healthz"):
                    assert client.get(path, headers=encoded).status_code == 200, (headers, path)
        assert [line for line in target.process.lines[before:] if "rror" in line or "Accept" in line] == []
        assert target.process.problems() == []
