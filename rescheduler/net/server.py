"""Serve ASGI applications in separate threads."""

import contextlib
import socket
import threading
from collections.abc import Iterator
from typing import Final

import uvicorn
from starlette.applications import Starlette

from rescheduler.errors import ReschedulerError
from rescheduler.net.connection import HttpConnection
from rescheduler.settings import ListenAddress

_STOP_SECONDS: Final = 5.0


@contextlib.contextmanager
def serving(application: Starlette, address: ListenAddress, flag: str = "--listen-address") -> Iterator[ListenAddress]:
    """Serve *application* in a separate thread while the block runs. Yield the address with the actual port.

    Raises ReschedulerError naming the *flag* if the address cannot be used.
    """
    settings = uvicorn.Config(
        application, log_config=None, access_log=False, lifespan="off", ws="none", http=HttpConnection
    )
    with running(settings, listen(address, flag), "http", _STOP_SECONDS) as port:
        yield ListenAddress(address.host, port)


@contextlib.contextmanager
def running(
    settings: uvicorn.Config, listener: socket.socket, name: str, patience: float | None = None
) -> Iterator[int]:
    """Serve *listener* in a thread *name* while the block runs. Yield its port, and close the listener at the end.

    Then wait for requests in progress: *patience* seconds, or as long as *settings* allow.
    """
    server = uvicorn.Server(settings)
    thread = threading.Thread(target=server.run, args=([listener],), name=name, daemon=patience is not None)
    thread.start()
    try:
        yield listener.getsockname()[1]
    finally:
        server.should_exit = True
        thread.join(patience)
        listener.close()


def listen(address: ListenAddress, flag: str) -> socket.socket:
    """Return a listening socket. It is not created by the server, so that errors in the address can be reported.

    Raises ReschedulerError naming the *flag* if the address cannot be used.
    """
    try:
        addresses = socket.getaddrinfo(
            address.host or None, address.port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
        )
        # As in Go, prefer IPv4 for a name with addresses of both families.
        family, kind, protocol, _, socket_address = min(
            addresses, key=lambda candidate: candidate[0] is not socket.AF_INET
        )
        listener = socket.socket(family, kind, protocol)
    except OSError as error:
        raise ReschedulerError(f"{flag} {address}: {error.strerror}") from error
    try:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listener.bind(socket_address)
        listener.listen()
    except OSError as error:
        listener.close()
        raise ReschedulerError(f"{flag} {address}: cannot listen there: {error.strerror}") from error
    return listener
