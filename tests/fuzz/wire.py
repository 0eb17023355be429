"""Paced exchange of bytes with a port."""

import contextlib
import enum
import socket
import ssl
import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

_TIMEOUT: Final = 150.0  #: seconds for the response to a complete request
_STEP: Final = 1 << 16
_SHOWN: Final = 300
_OPTIONAL_TIMEOUT: Final = 0.2  #: seconds for an optional response


class End(enum.Enum):
    """Action of the client after its last byte."""

    READ = enum.auto()  #: read until the server is idle after its response, or closes
    HALF = enum.auto()  #: half-close, then read
    RESET = enum.auto()  #: reset the connection
    LEAVE = enum.auto()  #: close without reading


@dataclass(frozen=True)
class Exchange:
    """Pieces to send, with a pause in seconds after each, and the end of the connection."""

    pieces: Sequence[bytes]
    pause: float = 0.0
    end: End = End.READ
    whole: bool = False  #: the pieces are a complete request, which must get a response

    def __repr__(self) -> str:
        pieces = [
            piece if len(piece) <= _SHOWN else piece[:_SHOWN] + b" ... %d bytes" % len(piece) for piece in self.pieces
        ]
        return f"Exchange({pieces!r}, {self.pause}, {self.end}, whole={self.whole})"


def exchange(port: int, sent: Exchange, tls: ssl.SSLContext | None = None) -> bytes:
    """Send the pieces and return the received bytes."""
    try:
        connection = connect(port, tls)
    except (ssl.SSLError, ConnectionError):
        return b""
    with connection:
        received = bytearray()
        with contextlib.suppress(OSError):
            _send(connection, sent, received)
            _finish(connection, sent, received)
        return bytes(received)


def connect(port: int, tls: ssl.SSLContext | None = None) -> socket.socket:
    plain = socket.create_connection(("127.0.0.1", port), timeout=_TIMEOUT)
    if tls is None:
        return plain
    try:
        return tls.wrap_socket(plain, server_hostname="127.0.0.1")
    except BaseException:
        plain.close()
        raise


def _send(connection: socket.socket, sent: Exchange, received: bytearray) -> None:
    for piece in sent.pieces:
        connection.sendall(piece)
        if sent.pause:
            time.sleep(sent.pause)  # noqa: TID251 - a slow client is simulated
            _drain(connection, received, 0.0)


def _finish(connection: socket.socket, sent: Exchange, received: bytearray) -> None:
    match sent.end:
        case End.RESET:
            linger = b"\x01\x00\x00\x00\x00\x00\x00\x00"  # on, zero seconds: close() sends RST
            connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, linger)
        case End.HALF:
            connection.shutdown(socket.SHUT_WR)
            _drain(connection, received, _OPTIONAL_TIMEOUT)
        case End.READ:
            _drain(connection, received, _TIMEOUT if sent.whole else _OPTIONAL_TIMEOUT)


def _drain(connection: socket.socket, received: bytearray, patience: float) -> None:
    """Read until the connection is idle; *patience* is the wait for the first byte."""
    connection.settimeout(patience or 0.001)
    with contextlib.suppress(TimeoutError, ssl.SSLWantReadError):
        while data := connection.recv(_STEP):
            received += data
            connection.settimeout(_OPTIONAL_TIMEOUT if patience else 0.001)
    connection.settimeout(_TIMEOUT)
