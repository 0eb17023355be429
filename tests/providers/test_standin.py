"""The HTTP server of the stand-ins."""

import asyncio
import contextlib
import gc
import socket
import threading
from urllib.parse import urlsplit

from devcluster.standin.faults import App
from devcluster.standin.server import StandinServer


class EmptyCloud:
    def close(self) -> None:
        pass


def test_connections_of_unfinished_requests_are_closed_at_the_end() -> None:
    began = threading.Event()

    async def endless(scope: object, receive: object, send: object) -> None:
        began.set()
        await asyncio.sleep(3600)

    app: App = endless
    with StandinServer(EmptyCloud(), app).running() as server:
        address = urlsplit(server.url)
        client = socket.create_connection((address.hostname, address.port))
        client.sendall(b"GET / HTTP/1.1\r\nHost: localhost\r\n\r\n")
        assert began.wait(10)
    del server
    gc.collect()  # pytest reports an unclosed transport as an error
    with client, contextlib.suppress(ConnectionResetError):
        client.settimeout(10)
        while client.recv(4096):
            pass
