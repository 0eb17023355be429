"""Tests of the daemon as a process while a client holds 1,000 connections: probes and Prometheus are still served."""

import contextlib
import resource
import socket
from collections.abc import Iterator
from pathlib import Path

import httpx2
import pytest

from tests.fuzz import targets
from tests.fuzz.process import Watched

HELD = 1000
#: What the client sends before it is silent; connections use these in turn.
BEGUN = (
    b"",
    b"GET ",
    b"GET /healthz HTTP/1.1\r\nHost: localhost\r\n",
    b"POST /metrics HTTP/1.1\r\nHost: localhost\r\nContent-Length: 9\r\n\r\n",
    b"GET /statusz HTTP/1.1\r\nHost: localhost\r\n\r\n",
)


@pytest.fixture
def _descriptors() -> Iterator[None]:
    """Raise the limit of file descriptors for this process."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (min(hard, 4 * HELD), hard))
    yield
    resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


@contextlib.contextmanager
def held(port: int) -> Iterator[list[socket.socket]]:
    with contextlib.ExitStack() as opened:
        connections = []
        for number in range(HELD):
            connection = opened.enter_context(socket.create_connection(("127.0.0.1", port), timeout=120))
            with contextlib.suppress(ConnectionError):
                connection.sendall(BEGUN[number % len(BEGUN)])
            connections.append(connection)
        yield connections


def ended(connection: socket.socket) -> bool:
    """Return whether the server closes the connection; data before that is ignored."""
    with contextlib.suppress(ConnectionError):
        while connection.recv(1 << 16):
            pass
    return True


@pytest.mark.usefixtures("_descriptors")
def test_probes_and_metrics_are_served_and_silent_clients_are_disconnected(tmp_path: Path) -> None:
    with targets.pages(tmp_path) as target:
        process: Watched = target.process
        before = process.descriptors
        with held(target.port) as connections:
            for _ in range(20):
                for path, status in (("/healthz", 200), ("/metrics", 200), ("/statusz", 200)):
                    response = httpx2.get(f"http://127.0.0.1:{target.port}{path}", timeout=60, trust_env=False)
                    assert response.status_code == status, path
            assert process.descriptors < before + HELD
            assert all(ended(connection) for connection in connections)
        assert process.problems() == []
        assert process.stop() == 0
