"""What goes wrong on the way to the API server and back, as errors of ours."""

import contextlib
import ssl
from collections.abc import Iterator
from typing import Final

from urllib3.exceptions import (
    ConnectTimeoutError,
    HTTPError,
    NameResolutionError,
    NewConnectionError,
    ProxyError,
    ReadTimeoutError,
    SSLError,
)

from rescheduler.errors import Permanent, Retryable
from rescheduler.kube.answers import one_line

#: Most special first: some are subclasses of others.
_WHY: Final = (
    (ProxyError, "the proxy to {host} failed: {said}"),
    (NameResolutionError, "the name of {host} cannot be resolved"),
    (NewConnectionError, "no connection to {host}: {end}"),
    (ConnectTimeoutError, "no connection to {host} in time"),
    (SSLError, "no trusted connection to {host}: {said}"),
    (ReadTimeoutError, "{host} went silent"),
)


@contextlib.contextmanager
def speaking(act: str, host: str) -> Iterator[None]:
    """Raises Retryable where the connection fails within the block, Permanent where the server is not to be trusted.

    *act* says what is tried, *host* is the server's URL.
    """
    try:
        yield
    except (HTTPError, OSError, ValueError) as error:  # ValueError: a read after the socket was shut
        kind = Permanent if _untrusted(error) else Retryable
        raise kind(f"{act}: {_why(error, host)}") from error


def _untrusted(error: Exception) -> bool:
    """Whether the server's certificate was refused, which trying again does not change."""
    return isinstance(error, SSLError) and any(isinstance(one, ssl.SSLCertVerificationError) for one in error.args)


def _why(error: Exception, host: str) -> str:
    """What went wrong on the way, in one line."""
    cause = error.original_error if isinstance(error, ProxyError) else error
    said = one_line(str(cause))
    for kind, text in _WHY:
        if isinstance(error, kind):
            return text.format(host=host, said=said, end=said.rpartition(": ")[2].rpartition("] ")[2])
    return f"the connection to {host} broke: {said}"
