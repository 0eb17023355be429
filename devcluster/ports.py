"""Free TCP ports that stay free until they are used."""

import fcntl
import random
import socket
from contextlib import ExitStack
from typing import IO

from devcluster import cache
from devcluster.errors import SetupError

#: Below Linux's ephemeral range (32768 and up), so that no outgoing connection uses a reserved port.
RANGE = range(20000, 32000)
_ATTEMPTS = 200


def reserve(until: ExitStack) -> int:
    """Return a free port on 127.0.0.1 that no other plane gets before *until* closes.

    A lock file per port prevents the race that exists when the kernel assigns a port to a socket that is closed again.
    """
    for port in random.sample(RANGE, _ATTEMPTS):
        handle = _claimed(port)
        if handle is None:
            continue
        if _free(port):
            until.enter_context(handle)
            return port
        handle.close()
    raise SetupError(f"no free port on 127.0.0.1 between {RANGE[0]} and {RANGE[-1]} in {_ATTEMPTS} attempts")


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
