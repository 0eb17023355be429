"""The transport to a system: proxy selection, and time limits of every exchange."""

import contextlib
import socket
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from rescheduler.clock import SystemClock
from rescheduler.errors import ConfigError
from rescheduler.net.config_files import Duration, Endpoint, plain_http
from rescheduler.net.http import JsonClient
from rescheduler.net.http_errors import NoResponse
from rescheduler.net.transport import proxy_of

NAMES = ("http_proxy", "https_proxy", "all_proxy", "no_proxy")

#: fact: (environment, URL, proxy)
WAYS: dict[str, tuple[dict[str, str], str, str | None]] = {
    "no proxy": ({}, "http://cloud", None),
    "that of the scheme": ({"http_proxy": "http://a:1", "https_proxy": "http://b:2"}, "https://cloud", "http://b:2"),
    "that of all schemes": ({"all_proxy": "http://a:1"}, "https://cloud", "http://a:1"),
    "without a scheme": ({"https_proxy": "a:1"}, "https://cloud", "http://a:1"),
    "another scheme's": ({"http_proxy": "http://a:1"}, "https://cloud", None),
    "with a password": ({"https_proxy": "http://u:p@a:1"}, "https://cloud", "http://u:p@a:1"),
    "excluded for all hosts": ({"https_proxy": "http://a:1", "no_proxy": "*"}, "https://cloud", None),
    "excluded domain": ({"https_proxy": "http://a:1", "no_proxy": "x, .example"}, "https://api.example", None),
    "excluded network": ({"http_proxy": "http://a:1", "no_proxy": "10.0.0.0/8"}, "http://10.1.2.3:80", None),
    "excluded IPv6 network": ({"http_proxy": "http://a:1", "no_proxy": "x,fd00::/8"}, "http://[fd00::1]", None),
    "other networks": (
        {"http_proxy": "http://a:1", "no_proxy": "fe80::/10,[::1],10.0.0.0/8,a b,,/"},
        "http://192.168.0.1",
        "http://a:1",
    ),
}


def environment(monkeypatch: pytest.MonkeyPatch, values: dict[str, str]) -> None:
    for name in NAMES:
        monkeypatch.delenv(name, raising=False)
        monkeypatch.delenv(name.upper(), raising=False)
    for name, value in values.items():
        monkeypatch.setenv(name.upper(), value)


@pytest.mark.parametrize("fact", WAYS)
def test_the_proxy_is_selected_by_the_environment(fact: str, monkeypatch: pytest.MonkeyPatch) -> None:
    values, url, proxy = WAYS[fact]
    environment(monkeypatch, values)
    assert proxy_of(url) == proxy
    JsonClient("system", Endpoint(url=url), Path(), SystemClock()).close()


@pytest.mark.parametrize("proxy", ["socks5://u:pass-word@a:1", "http://[::bad", "http://a:b", "http://", "a b:1"])
def test_an_invalid_proxy_is_an_error(proxy: str, monkeypatch: pytest.MonkeyPatch) -> None:
    environment(monkeypatch, {"https_proxy": proxy})
    with pytest.raises(ConfigError) as caught:
        proxy_of("https://cloud")
    assert str(caught.value) == "environment: HTTPS_PROXY: expected http(s)://[user:password@]host[:port]"


@pytest.mark.parametrize(
    "url", ["http://h\n", "http://a b/", "http://h/\x00", "http://h/a b", " http://h", "http://h\\x"]
)
def test_invalid_urls_are_rejected(url: str) -> None:
    assert not plain_http(url)


#: Bytes that a server sends first, and a piece that it then repeats slowly.
BEGINNINGS: dict[str, tuple[bytes, bytes]] = {
    "headers without end": (b"HTTP/1.1 200 OK\r\n", b"X-Y: z\r\n"),
    "an endless body": (b"HTTP/1.1 200 OK\r\ncontent-length: 100000\r\n\r\n", b" "),
    "chunks without end": (b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n", b"1\r\n \r\n"),
}


@contextlib.contextmanager
def dripping(beginning: bytes, piece: bytes) -> Iterator[str]:
    """Run a server that sends a piece ten times per second until the client disconnects."""
    over = threading.Event()

    def serve(listener: socket.socket) -> None:
        with contextlib.suppress(OSError):
            connection, _ = listener.accept()
            with connection:
                connection.recv(65536)
                connection.sendall(beginning)
                while not over.wait(0.1):
                    connection.sendall(piece)

    with socket.create_server(("127.0.0.1", 0)) as listener:
        thread = threading.Thread(target=serve, args=(listener,))
        thread.start()
        try:
            yield f"http://127.0.0.1:{listener.getsockname()[1]}"
        finally:
            over.set()
            thread.join()


@pytest.mark.parametrize("fact", BEGINNINGS)
def test_an_endless_response_times_out(fact: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """The server stops eventually; an endless one would block a failing test forever."""
    environment(monkeypatch, {})
    with dripping(*BEGINNINGS[fact]) as url:
        clock = SystemClock()
        http = JsonClient("system", Endpoint(url=url, timeout=Duration(1), attempts=1), Path(), clock)
        with pytest.raises(NoResponse):
            http.get("/x", Any, deadline=clock.monotonic() + 60)
        http.close()
