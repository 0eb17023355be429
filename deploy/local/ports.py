"""Free TCP ports that stay free until they are used."""

import fcntl
import random
import socket
from contextlib import ExitStack
from typing import IO

from deploy.local import cache
from deploy.local.errors import SetupError

#: below Linux's range for outgoing connections (32768 up), so that none of those takes a port in between
RANGE = range(20000, 32000)
_ATTEMPTS = 200


def reserve(until: ExitStack) -> int:
    """A port on 127.0.0.1 that nobody listens on and no other plane gets before *until* closes.

    Asking the kernel for a port and closing the socket would leave a gap for another plane; a lock file a
    port leaves none.
    """
    for port in random.sample(RANGE, _ATTEMPTS):
        handle = _claimed(port)
        if handle is None:
            continue
        if _free(port):
            until.enter_context(handle)
            return port
        handle.close()
    raise SetupError(f"found no free port on 127.0.0.1 in {_ATTEMPTS} attempts between {RANGE[0]} and {RANGE[-1]}")


def _claimed(port: int) -> IO[str] | None:
    folder = cache.folder() / "ports"
    folder.mkdir(exist_ok=True)
    handle = (folder / str(port)).open("w")
    try:
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        handle.close()
        return None
    return handle


def _free(port: int) -> bool:
    with socket.socket() as probe:
        try:
            probe.bind(("127.0.0.1", port))
        except OSError:
            return False
    return True
