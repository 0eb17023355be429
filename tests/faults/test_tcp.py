"""Faults of the TCP proxy."""

import contextlib
import socket
import threading
from collections.abc import Iterator

import pytest

from devcluster.faults.tcp import TcpFault, TcpFaultProxy

ANSWER = b"0123456789"


@pytest.fixture
def port() -> Iterator[int]:
    """A server that sends ANSWER for each received byte."""
    listener = socket.create_server(("127.0.0.1", 0))

    def serve(connection: socket.socket) -> None:
        with connection, contextlib.suppress(OSError):
            while connection.recv(1):
                connection.sendall(ANSWER)

    def accept() -> None:
        with contextlib.suppress(OSError):
            while True:
                threading.Thread(target=serve, args=(listener.accept()[0],), daemon=True).start()

    thread = threading.Thread(target=accept)
    thread.start()
    yield listener.getsockname()[1]
    listener.shutdown(socket.SHUT_RDWR)
    listener.close()
    thread.join()


@pytest.fixture
def proxy(port: int) -> Iterator[TcpFaultProxy]:
    with TcpFaultProxy(port) as fault_proxy:
        yield fault_proxy


@contextlib.contextmanager
def connected(proxy: TcpFaultProxy) -> Iterator[socket.socket]:
    with socket.create_connection(("127.0.0.1", proxy.port), timeout=60) as connection:
        yield connection


def asked(connection: socket.socket) -> bytes:
    """Send one byte; return the received data when the response is complete or the connection ends."""
    connection.sendall(b"?")
    read = b""
    while len(read) < len(ANSWER) and (part := connection.recv(64)):
        read += part
    return read


def test_without_faults_bytes_pass(proxy: TcpFaultProxy) -> None:
    with connected(proxy) as connection:
        assert [asked(connection), asked(connection)] == [ANSWER, ANSWER]
    assert proxy.connections == 1


def test_a_reset_ends_only_its_connection(proxy: TcpFaultProxy) -> None:
    proxy.inject(TcpFault("reset"))
    with connected(proxy) as connection, pytest.raises((ConnectionResetError, BrokenPipeError)):
        asked(connection)
    with connected(proxy) as connection:
        assert asked(connection) == ANSWER


def test_reset_after_the_first_response(proxy: TcpFaultProxy) -> None:
    proxy.inject(TcpFault("reset", after=len(ANSWER)))
    with connected(proxy) as connection:
        assert asked(connection) == ANSWER
        with pytest.raises((ConnectionResetError, BrokenPipeError)):
            asked(connection)


def test_a_stall_stops_the_data_and_keeps_the_connection_open(proxy: TcpFaultProxy) -> None:
    proxy.inject(TcpFault("stall", after=len(ANSWER)))
    with connected(proxy) as connection:
        assert asked(connection) == ANSWER
        connection.settimeout(0.3)
        with pytest.raises(TimeoutError):
            asked(connection)


def test_half_of_the_data_arrives(proxy: TcpFaultProxy) -> None:
    proxy.inject(TcpFault("half"))
    with connected(proxy) as connection:
        assert asked(connection) == ANSWER[:5]


def test_slow_bytes_all_arrive(proxy: TcpFaultProxy) -> None:
    proxy.inject(TcpFault("slow", seconds=0.05))
    with connected(proxy) as connection:
        connection.sendall(b"?")
        parts = [connection.recv(64)]
        while sum(map(len, parts)) < len(ANSWER):
            parts.append(connection.recv(64))
    assert b"".join(parts) == ANSWER
    assert len(parts) > 1


def test_a_cut_ends_open_connections(proxy: TcpFaultProxy) -> None:
    with connected(proxy) as connection:
        assert asked(connection) == ANSWER
        proxy.cut()
        assert asked_after_cut(connection) == b""


def asked_after_cut(connection: socket.socket) -> bytes:
    try:
        return asked(connection)
    except ConnectionError:
        return b""
