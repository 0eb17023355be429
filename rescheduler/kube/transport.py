"""Convert connection errors of urllib3 to errors of this program."""

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
from rescheduler.kube.responses import one_line

#: Most specific first: some are subclasses of others.
_WHY: Final = (
    (ProxyError, "the proxy to {host} failed: {message}"),
    (NameResolutionError, "the name of {host} cannot be resolved"),
    (NewConnectionError, "no connection to {host}: {end}"),
    (ConnectTimeoutError, "the connection to {host} timed out"),
    (SSLError, "no trusted connection to {host}: {message}"),
    (ReadTimeoutError, "{host} did not respond in time"),
)


@contextlib.contextmanager
def translating_errors(act: str, host: str) -> Iterator[None]:
    """Raise Retryable if the connection fails within the block, or Permanent if the server is not trusted.

    *act* describes the request, *host* is the server's URL.
    """
    try:
        yield
    except (HTTPError, OSError, ValueError) as error:  # ValueError: a read after the socket was shut down
        kind = Permanent if _untrusted(error) else Retryable
        raise kind(f"{act}: {_cause_text(error, host)}") from error


def _untrusted(error: Exception) -> bool:
    """Return whether the server's certificate was rejected. A retry would not succeed."""
    return isinstance(error, SSLError) and any(isinstance(cause, ssl.SSLCertVerificationError) for cause in error.args)


def _cause_text(error: Exception, host: str) -> str:
    """Return the cause in one line."""
    cause = error.original_error if isinstance(error, ProxyError) else error
    message = one_line(str(cause))
    for kind, text in _WHY:
        if isinstance(error, kind):
            return text.format(host=host, message=message, end=message.rpartition(": ")[2].rpartition("] ")[2])
    return f"the connection to {host} broke: {message}"
