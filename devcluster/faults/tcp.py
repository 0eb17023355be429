"""A proxy for any TCP protocol, such as gRPC, that resets, stalls, slows down or truncates connections."""

import contextlib
import socket
import struct
import threading
from collections import deque
from dataclasses import dataclass
from typing import Final, Literal, Self

TcpFaultKind = Literal["reset", "stall", "slow", "half"]

_BUFFER: Final = 1 << 14
_RESET_ON_CLOSE: Final = struct.pack("ii", 1, 0)  #: SO_LINGER: closing sends RST


@dataclass(frozen=True, slots=True)
class TcpFault:
    """A fault of one connection after the server has sent *after* bytes.

    `reset`: the connection is reset. `stall`: it stays open but forwards nothing. `slow`: each byte from the server
    takes *seconds*. `half`: half of the server's next data is forwarded, then the connection is closed.
    """

    kind: TcpFaultKind
    after: int = 0
    seconds: float = 0.01


class TcpFaultProxy:
    """Forwards connections to *port* of 127.0.0.1. Use it as a context manager."""

    def __init__(self, port: int) -> None:
        self._target = ("127.0.0.1", port)
        self._listener = socket.create_server(("127.0.0.1", 0))
        self._lock = threading.Lock()
        self._planned: deque[TcpFault] = deque()
        self._open: set[socket.socket] = set()
        self._stopping = threading.Event()
        self.connections = 0  #: number of accepted connections

    @property
    def port(self) -> int:
        port: int = self._listener.getsockname()[1]
        return port

    def __enter__(self) -> Self:
        self._thread = threading.Thread(target=self._accept, name="tcp-fault-proxy", daemon=True)
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stopping.set()
        _shut(self._listener)
        self._listener.close()
        self.cut()
        self._thread.join()

    def inject(self, *faults: TcpFault) -> None:
        """Inject one of *faults* into each of the next connections."""
        with self._lock:
            self._planned.extend(faults)

    def cut(self) -> None:
        """Shut down all open connections."""
        with self._lock:
            for connection in self._open:
                _shut(connection)

    def _accept(self) -> None:
        while not self._stopping.is_set():
            try:
                client, _ = self._listener.accept()
            except OSError:
                return
            with self._lock:
                self.connections += 1
                fault = self._planned.popleft() if self._planned else None
            threading.Thread(target=self._serve, args=(client, fault), name="tcp-fault", daemon=True).start()

    def _serve(self, client: socket.socket, fault: TcpFault | None) -> None:
        with client, contextlib.suppress(OSError), socket.create_connection(self._target) as server:
            with self._lock:
                self._open |= {client, server}
            upward = threading.Thread(target=_copy, args=(client, server), name="tcp-upward", daemon=True)
            upward.start()
            reset = False
            try:
                reset = self._downward(server, client, fault)
            finally:
                # `close` does not close a socket while another thread reads from it: wake that thread first.
                _shut(client, socket.SHUT_RD if reset else socket.SHUT_RDWR)
                _shut(server)
                upward.join()
                if reset:
                    client.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _RESET_ON_CLOSE)
                with self._lock:
                    self._open -= {client, server}

    def _downward(self, server: socket.socket, client: socket.socket, fault: TcpFault | None) -> bool:
        """Forward data from the server until the end; return whether to reset the client's connection."""
        passed = 0
        while True:
            if fault is not None and passed >= fault.after and fault.kind in ("reset", "stall"):
                if fault.kind == "stall":
                    self._stopping.wait()
                return fault.kind == "reset"
            data = server.recv(_BUFFER)
            if not data:
                return False
            if fault is None or passed < fault.after:
                client.sendall(data)
            elif fault.kind == "half":
                client.sendall(data[: len(data) // 2])
                return False
            else:
                self._slowly(client, data, fault.seconds)
            passed += len(data)

    def _slowly(self, client: socket.socket, data: bytes, seconds: float) -> None:
        for start in range(len(data)):
            if self._stopping.wait(seconds):
                return
            client.sendall(data[start : start + 1])


def _copy(source: socket.socket, target: socket.socket) -> None:
    with contextlib.suppress(OSError):
        while data := source.recv(_BUFFER):
            target.sendall(data)
        target.shutdown(socket.SHUT_WR)


def _shut(connection: socket.socket, how: int = socket.SHUT_RDWR) -> None:
    with contextlib.suppress(OSError):
        connection.shutdown(how)
