"""Tests of slow, silent, faulty or too many clients: their connections are closed, without other effects."""

import asyncio
import contextlib
import logging
import socket
import threading
from collections import deque
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator

import h11
import httpx2
import pytest
from starlette.applications import Starlette
from starlette.requests import ClientDisconnect, Request
from starlette.responses import PlainTextResponse, Response, StreamingResponse
from starlette.routing import Route

from rescheduler.net import accepting, connection, server
from rescheduler.settings import ListenAddress

LARGE = 8 << 20  #: bytes, more than the buffers of both sides hold
Page = Callable[[Request], Awaitable[Response]]


async def ok(_: Request) -> Response:
    return PlainTextResponse("ok")


async def large(_: Request) -> Response:
    return PlainTextResponse("x" * LARGE)


async def whole(request: Request) -> Response:
    """Respond when the complete body was received, or not at all."""
    with contextlib.suppress(ClientDisconnect):
        await request.body()
    return PlainTextResponse("read")


async def parted(_: Request) -> Response:
    async def parts() -> AsyncIterator[bytes]:
        yield b"a part"
        await asyncio.sleep(60)  # the client disconnects before
        yield b"the rest"

    return StreamingResponse(parts())


PAGES: dict[str, Page] = {"/": ok, "/large": large, "/whole": whole, "/parted": parted}
APPLICATION = Starlette(routes=[Route(path, page, methods=["GET", "POST"]) for path, page in PAGES.items()])


@pytest.fixture
def address() -> Iterator[ListenAddress]:
    with server.serving(APPLICATION, ListenAddress("127.0.0.1", 0)) as where:
        yield where
        assert httpx2.get(f"http://{where}/", timeout=60).text == "ok"


def after(address: ListenAddress, *sent: bytes) -> bytes:
    """Return all data that is received until the server closes the connection."""
    with socket.create_connection((address.host, address.port), timeout=60) as client:
        received = b""
        with contextlib.suppress(ConnectionError):
            for part in sent:
                client.sendall(part)
            while data := client.recv(1 << 16):
                received += data
        return received


@pytest.mark.parametrize("sent", [b"", b"GET / HT", b"GET / HTTP/1.1\r\nHost: localhost\r\n"])
def test_incomplete_headers_time_out(sent: bytes, address: ListenAddress, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(connection, "HEAD_SECONDS", 0.2)
    assert after(address, sent) == b""


@pytest.mark.parametrize("path", [b"/", b"/whole"])
def test_an_incomplete_body_times_out(path: bytes, address: ListenAddress, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(connection, "BODY_SECONDS", 0.2)
    head = b"POST %b HTTP/1.1\r\nHost: localhost\r\nContent-Length: 10\r\n\r\n12345" % path
    assert after(address, head).startswith(b"HTTP/1.1 200 OK" if path == b"/" else b"")


def test_a_response_that_is_not_received_times_out(monkeypatch: pytest.MonkeyPatch) -> None:
    lost = threading.Event()

    class WatchedConnection(connection.HttpConnection):
        def connection_lost(self, exc: Exception | None) -> None:
            super().connection_lost(exc)
            lost.set()

    monkeypatch.setattr(connection, "SEND_SECONDS", 0.2)
    monkeypatch.setattr(server, "HttpConnection", WatchedConnection)
    with (
        server.serving(APPLICATION, ListenAddress("127.0.0.1", 0)) as where,
        socket.create_connection((where.host, where.port), timeout=60) as client,
    ):
        client.sendall(b"GET /large HTTP/1.1\r\nHost: localhost\r\n\r\n")
        assert lost.wait(60)
        received = 0
        with contextlib.suppress(ConnectionError):
            while data := client.recv(1 << 20):
                received += len(data)
    assert received < LARGE


REQUEST = b"GET / HTTP/1.1\r\nHost: localhost\r\n\r\n"


def limited(monkeypatch: pytest.MonkeyPatch, most: int) -> None:
    """Set the maximum number of connections of a server, of which one client may have all."""
    monkeypatch.setattr(accepting, "MAX_CONNECTIONS", most)
    monkeypatch.setattr(accepting, "ADDRESS_SHARE", 1)


def responding(
    opened: contextlib.ExitStack, address: ListenAddress, sent: bytes = REQUEST, source: str = "127.0.0.1"
) -> socket.socket:
    """Return a connection whose first response has started."""
    to = (address.host, address.port)
    client = opened.enter_context(socket.create_connection(to, timeout=60, source_address=(source, 0)))
    client.sendall(sent)
    assert client.recv(12) == b"HTTP/1.1 200"
    return client


def again(client: socket.socket) -> None:
    """Wait for the next response, after the rest of the previous one."""
    received = b""
    while b"HTTP/1.1 200" not in received:
        data = client.recv(1 << 16)
        assert data, received
        received += data


def test_above_the_maximum_the_longest_idle_connection_is_closed(
    address: ListenAddress, monkeypatch: pytest.MonkeyPatch
) -> None:
    limited(monkeypatch, 2)
    with contextlib.ExitStack() as opened:
        first, second, third = (responding(opened, address) for _ in range(3))
        with contextlib.suppress(ConnectionError):
            while first.recv(1 << 16):
                pass
        for client in (second, third):
            client.sendall(REQUEST)
            again(client)


def test_above_the_maximum_the_new_connection_is_closed_if_none_is_idle(
    address: ListenAddress, monkeypatch: pytest.MonkeyPatch
) -> None:
    limited(monkeypatch, 2)
    with contextlib.ExitStack() as opened:
        working = [responding(opened, address, REQUEST.replace(b"/ ", b"/parted ", 1)) for _ in range(2)]
        assert after(address, REQUEST) == b""
        assert all(client.fileno() > 0 for client in working)


def test_connections_of_the_client_with_the_most_are_closed_first(monkeypatch: pytest.MonkeyPatch) -> None:
    """A probe of another client is not closed, regardless of how long it has been idle."""
    limited(monkeypatch, 3)
    with server.serving(APPLICATION, ListenAddress("0.0.0.0", 0)) as where, contextlib.ExitStack() as opened:
        probe = responding(opened, ListenAddress("127.0.0.1", where.port), source="127.0.0.2")
        for _ in range(5):
            responding(opened, ListenAddress("127.0.0.1", where.port))
        probe.sendall(REQUEST)
        again(probe)


def test_one_client_cannot_have_all_connections(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(accepting, "MAX_CONNECTIONS", 4)
    with server.serving(APPLICATION, ListenAddress("0.0.0.0", 0)) as where, contextlib.ExitStack() as opened:
        address = ListenAddress("127.0.0.1", where.port)
        first, *others = (responding(opened, address) for _ in range(3))
        with contextlib.suppress(ConnectionError):
            while first.recv(1 << 16):
                pass
        for client in (*others, responding(opened, address, source="127.0.0.2")):
            client.sendall(REQUEST)
            again(client)


@pytest.mark.parametrize(
    ("first", "second", "same"),
    [
        ("10.0.0.1", "10.0.0.2", False),
        ("::ffff:10.0.0.1", "10.0.0.1", True),
        ("2001:db8:0:1::1", "2001:db8:0:1:ffff::2", True),
        ("2001:db8:0:1::1", "2001:db8:0:2::1", False),
        ("fe80::1%eth0", "fe80::2%eth0", True),
    ],
)
def test_the_addresses_of_one_site_are_one_client(first: str, second: str, *, same: bool) -> None:
    assert (accepting.client_group(first) == accepting.client_group(second)) == same


def test_errors_of_accept_are_logged_once_a_minute(caplog: pytest.LogCaptureFixture) -> None:
    now = [100.0]
    lines = accepting.MinuteLog(lambda: now[0])
    for _ in range(3):
        lines.warn("cannot accept connections:", "Too many open files")
    now[0] += 60
    lines.warn("cannot accept connections:", "Too many open files")
    assert caplog.messages == [
        "cannot accept connections: Too many open files",
        "cannot accept connections: Too many open files (2 more since the last line)",
    ]


#: data after a valid beginning: status codes of the responses
DAMAGED = {
    b"what is this\r\n\r\n": [400],
    b"GET / HTTP/1.1\r\nHost: localhost\r\n\r\nwhat is this\r\n\r\n": [200, 400],
    b"POST /whole HTTP/1.1\r\nHost: localhost\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nabcdefg": [400],
    b"POST / HTTP/1.1\r\nHost: localhost\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\n": [400],
    b"HEAD / HTTP/1.1\r\nHost: localhost\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\n": [],
    b"HEAD / HTTP/1.1\r\nHost: localhost\r\n\r\nwhat is this\r\n\r\n": [200, 400],
    b"GET / HTTP/1.1\r\nHost: localhost\r\nConnection: upgrade\r\nUpgrade: websocket\r\n\r\nwhat\r\n\r\n": [200, 400],
}


CHUNKED = b"POST /whole HTTP/1.1\r\nHost: localhost\r\nTransfer-Encoding: chunked\r\n\r\n"
#: Requests in which another server might see other requests, and which are therefore the last of their connection.
SMUGGLED = {
    "both lengths": (
        b"POST /whole HTTP/1.1\r\nHost: localhost\r\nTransfer-Encoding: chunked\r\nContent-Length: 5\r\n\r\n0\r\n\r\n"
    ),
    "both lengths, in the other order": (
        b"POST /whole HTTP/1.1\r\nHost: localhost\r\nContent-Length: 5\r\ntransfer-ENCODING: chunked\r\n\r\n0\r\n\r\n"
    ),
    "chunks in HTTP/1.0": (
        b"POST /whole HTTP/1.0\r\nTransfer-Encoding: chunked\r\nConnection: keep-alive\r\n\r\n0\r\n\r\n"
    ),
    "a bare line feed after the first line": b"GET / HTTP/1.1\nHost: localhost\r\n\r\n",
    "a bare line feed after a header": b"GET / HTTP/1.1\r\nHost: localhost\nA: b\r\n\r\n",
    "only bare line feeds": b"GET / HTTP/1.1\nHost: localhost\n\n",
    "a folded header": b"GET / HTTP/1.1\r\nHost: localhost\r\nA: b\r\n c\r\n\r\n",
    "a header that is folded with a tab": b"GET / HTTP/1.1\r\nHost: localhost\r\n"
    b"A: b\r\n\tTransfer-Encoding: chunked\r\n\r\n",
    "two equal lengths": b"POST /whole HTTP/1.1\r\nHost: localhost\r\nContent-Length: 1\r\ncontent-length: 1\r\n\r\nx",
    "a list of lengths": b"POST /whole HTTP/1.1\r\nHost: localhost\r\nContent-Length: 1, 1\r\n\r\nx",
    "an unknown version": b"GET / HTTP/2.0\r\nHost: localhost\r\n\r\n",
    "a bare line feed in a chunk": CHUNKED + b"1\nx\r\n0\r\n\r\n",
    "a bare line feed in the extension of a chunk": CHUNKED + b"1;\nxx\r\n0\r\n\r\n",
    "a bare line feed after the last chunk": CHUNKED + b"0\r\n\n",
    "a bare line feed in the trailers": CHUNKED + b"1\r\nx\r\n0\r\nA: b\n\r\n",
    "folded trailers": CHUNKED + b"0\r\nA: b\r\n c\r\n\r\n",
    "a bare line feed at the end of the headers": b"GET / HTTP/1.1\r\nHost: localhost\r\n\n"
    b"GET / HTTP/1.1\r\nHost: localhost\r\n\r\n",
}


@pytest.mark.parametrize("name", SMUGGLED)
@pytest.mark.parametrize("first", [b"", REQUEST], ids=["first", "second"])
def test_an_ambiguous_request_is_rejected_and_ends_its_connection(
    first: bytes, name: str, address: ListenAddress
) -> None:
    answers = after(address, first + SMUGGLED[name] + REQUEST)
    statuses = [int(response[:3]) for response in answers.split(b"HTTP/1.1 ")[1:]]
    assert statuses == ([200, 400] if first else [400])


@pytest.mark.parametrize("name", SMUGGLED)
def test_an_ambiguous_request_is_rejected_however_it_is_cut(name: str) -> None:
    """Byte by byte, the parser comes to the same result."""
    parser = connection.StrictConnection()

    def parse(byte: int) -> None:
        parser.receive_data(bytes([byte]))
        while isinstance(parser.next_event(), h11.Event):
            pass

    with pytest.raises(h11.RemoteProtocolError):
        deque(map(parse, SMUGGLED[name]), maxlen=0)


FIELD = b"A: b\r\n"
#: Requests that would take a hundred times the time of others: fields and chunks of one byte, in 60 KB and more.
COSTLY: dict[str, bytes] = {
    "fields": b"GET / HTTP/1.1\r\nHost: localhost\r\n" + FIELD * 10_000 + b"\r\n",
    "fields, of which the last is missing": b"GET / HTTP/1.1\r\nHost: localhost\r\n" + FIELD * 10_000,
    "chunks": CHUNKED + b"1\r\nx\r\n" * 40_000,
    "chunks after a large one": CHUNKED + b"1000\r\n%b\r\n" % (b"x" * 0x1000) + b"1\r\nx\r\n" * 40_000,
    "trailers": CHUNKED + b"0\r\n" + FIELD * 10_000 + b"\r\n",
    "trailers with bare line feeds": CHUNKED + b"0\r\n" + b"A: b\n" * 10_000 + b"\n\r\n",
}


@pytest.mark.parametrize("size", [1 << 10, 1 << 20])
@pytest.mark.parametrize("name", COSTLY)
def test_a_request_that_costs_much_is_rejected_early(name: str, size: int) -> None:
    events = []

    def parse(parser: connection.StrictConnection) -> None:
        for start in range(0, len(COSTLY[name]), size):
            parser.receive_data(COSTLY[name][start : start + size])
            while isinstance(event := parser.next_event(), h11.Event):
                events.append(event)

    with pytest.raises(h11.RemoteProtocolError, match=r"header fields|too small"):
        parse(connection.StrictConnection())
    assert len(events) < 200


USUAL: dict[str, bytes] = {
    "many fields": b"GET / HTTP/1.1\r\nHost: localhost\r\n" + FIELD * (connection.MAX_FIELDS - 2) + b"\r\n",
    "small chunks": CHUNKED + b"1\r\nx\r\n" * connection.FREE_CHUNKS + b"0\r\n\r\n",
    "chunks": CHUNKED + b"40\r\n%b\r\n" % (b"x" * 0x40) * 1000 + b"0\r\n\r\n",
    "trailers": CHUNKED + b"0\r\n" + FIELD * (connection.MAX_FIELDS - 1) + b"\r\n",
    "a body of lines": b"POST / HTTP/1.1\r\nHost: localhost\r\nContent-Length: 9000\r\n\r\n" + b"\n" * 9000,
}


@pytest.mark.parametrize("name", USUAL)
def test_other_requests_are_read_again_and_again(name: str, address: ListenAddress) -> None:
    """Nothing is counted across requests."""
    assert after(address, *[USUAL[name]] * 3, b"x\r\n\r\n").count(b"HTTP/1.1 200") == 3


def test_no_client_keeps_others_waiting_while_its_data_is_read(monkeypatch: pytest.MonkeyPatch) -> None:
    received = set()

    class WatchedConnection(connection.HttpConnection):
        def data_received(self, data: bytes) -> None:
            received.add(len(data))
            super().data_received(data)

    monkeypatch.setattr(server, "HttpConnection", WatchedConnection)
    with server.serving(APPLICATION, ListenAddress("127.0.0.1", 0)) as address:
        body = b"POST /whole HTTP/1.1\r\nHost: localhost\r\nContent-Length: 1000000\r\n\r\n" + b"x" * 1_000_000
        assert after(address, body, b"x\r\n\r\n").count(b"HTTP/1.1 200") == 1
    assert max(received) == connection.MAX_RECEIVED


@pytest.mark.parametrize("trailers", [b"", b"A: b\r\n"])
def test_line_feeds_in_chunks_are_data(trailers: bytes, address: ListenAddress) -> None:
    body = b"3;a=b\r\n\n \n\r\n2\r\n\n\t\r\n0\r\n%b\r\n" % trailers
    assert after(address, CHUNKED + body + REQUEST + b"x\r\n\r\n").count(b"HTTP/1.1 200") == 2


def test_line_feeds_in_a_body_are_data(address: ListenAddress) -> None:
    sent = b"POST /whole HTTP/1.1\r\nHost: localhost\r\nContent-Length: 4\r\n\r\n\n \n\t" + REQUEST
    assert after(address, sent + b"x\r\n\r\n").count(b"HTTP/1.1 200") == 2


@pytest.mark.parametrize("sent", DAMAGED)
def test_invalid_http_gets_a_400_response(
    sent: bytes, address: ListenAddress, caplog: pytest.LogCaptureFixture
) -> None:
    answers = after(address, sent)
    assert [int(response[:3]) for response in answers.split(b"HTTP/1.1 ")[1:]] == DAMAGED[sent]
    assert not [record for record in caplog.records if record.levelno >= logging.WARNING]


def test_invalid_data_after_the_start_of_a_response_closes_the_connection(
    address: ListenAddress, caplog: pytest.LogCaptureFixture
) -> None:
    head = b"POST /parted HTTP/1.1\r\nHost: localhost\r\nTransfer-Encoding: chunked\r\n\r\n"
    with socket.create_connection((address.host, address.port), timeout=60) as client:
        client.sendall(head)
        received = b""
        while b"a part" not in received:
            received += client.recv(1 << 16)
        client.sendall(b"zz\r\n")
        with contextlib.suppress(ConnectionError):
            while data := client.recv(1 << 16):
                received += data
    assert b"the rest" not in received
    assert not [record for record in caplog.records if record.levelno >= logging.WARNING]


def test_client_errors_are_logged_at_the_debug_level(address: ListenAddress, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG)
    after(address, b"what is this\r\n\r\n")
    assert "Invalid HTTP request received." in caplog.messages
