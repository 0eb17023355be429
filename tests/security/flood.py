"""Open many connections that never send a complete request.

``python -m tests.security.flood PORT COUNT HEX [ADDRESS …]`` prints a line when all connections were opened, and opens
those again that the server closes, until killed. HEX is what each of them sends. They come from the addresses in
turn; 127.0.0.1 and 127.0.0.2 if there are none.
"""

import contextlib
import resource
import selectors
import socket
import sys
from collections.abc import Sequence
from typing import Final

ADDRESSES: Final = ("127.0.0.1", "127.0.0.2")


def main(port: int, count: int, sent: bytes, addresses: Sequence[str]) -> None:
    _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))
    selector = selectors.DefaultSelector()
    for number in range(count):
        opened(selector, port, addresses[number % len(addresses)], sent)
    sys.stdout.write("flooding\n")
    sys.stdout.flush()
    while True:
        for key, _ in selector.select():
            ended = key.fileobj
            assert isinstance(ended, socket.socket)
            with contextlib.suppress(ConnectionError):
                if ended.recv(1 << 16):
                    continue
            address = key.data
            selector.unregister(ended)
            ended.close()
            opened(selector, port, address, sent)


def opened(selector: selectors.BaseSelector, port: int, address: str, sent: bytes) -> None:
    connection = socket.create_connection(("127.0.0.1", port), source_address=(address, 0))
    selector.register(connection, selectors.EVENT_READ, address)
    with contextlib.suppress(ConnectionError):
        connection.sendall(sent)


if __name__ == "__main__":
    main(int(sys.argv[1]), int(sys.argv[2]), bytes.fromhex(sys.argv[3]), sys.argv[4:] or ADDRESSES)
