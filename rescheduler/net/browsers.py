"""Requests that a web page can make a browser send, to services that only programs call.

A page on any site can send a request to an address that the browser reaches, with the client certificate of its user.
Browsers mark such requests with ``Origin`` (all that can change something, and all that a script reads) and
``Sec-Fetch-Site``. A page cannot send JSON to another site without asking that site first. With DNS rebinding, a page
can make its own name point to our address; the ``Host`` header then still has that name.
"""

import ipaddress
from collections.abc import Collection, Iterable, Sequence
from http import HTTPStatus
from typing import Final, TypeAlias

#: Header fields as in ASGI: names in lower case.
Headers: TypeAlias = Sequence[tuple[bytes, bytes]]

#: For HTML pages: no page of another site may show ours in a frame, where it could lead the user's clicks.
FRAMES: Final = "frame-ancestors 'none'"
#: The headers of responses that are not HTML documents with a policy of their own.
SECURED: Final = {
    b"content-security-policy": f"default-src 'none'; {FRAMES}".encode(),
    b"x-content-type-options": b"nosniff",
    b"x-frame-options": b"DENY",
}

MISDIRECTED: Final = "the Host header has none of the names of this service"

_FROM_ELSEWHERE: Final = frozenset({"cross-site", "same-site"})
_READING: Final = frozenset({"GET", "HEAD", "OPTIONS"})
_JSON: Final = "application/json"


def refusal(method: str, headers: Headers, names: Collection[str]) -> tuple[HTTPStatus, str] | None:
    """Return the status and the text for a request that is refused; `None` if it is not. *names*: see `misdirected`."""
    fields = [(name, value.decode("latin-1").strip().lower()) for name, value in headers]
    if misdirected(headers, names):
        return HTTPStatus.MISDIRECTED_REQUEST, MISDIRECTED
    if any(name == b"origin" or (name == b"sec-fetch-site" and value in _FROM_ELSEWHERE) for name, value in fields):
        return HTTPStatus.FORBIDDEN, "requests of web pages are refused: they have the header Origin or Sec-Fetch-Site"
    sends = any(name == b"transfer-encoding" or (name == b"content-length" and value != "0") for name, value in fields)
    kinds = {value.partition(";")[0].rstrip() for name, value in fields if name == b"content-type"}
    # Clients of the original proxy need not name a type. A browser always sends Origin with a body that has none.
    if method.upper() not in _READING and sends and kinds - {_JSON}:
        return HTTPStatus.UNSUPPORTED_MEDIA_TYPE, f"expected the header Content-Type: {_JSON}"
    return None


def misdirected(headers: Headers, names: Collection[str]) -> bool:
    """Return whether the Host header has a name that is not one of *names*; if there are none, all are accepted.

    IP addresses are always accepted, because a page cannot be loaded by the address of somebody else.
    """
    hosts = [value.decode("latin-1").strip() for name, value in headers if name == b"host"]
    return bool(names) and not all(_is_ours(host, names) for host in hosts)


def host_names(listen_host: str, configured: Iterable[str] = ()) -> frozenset[str]:
    """Return the names of a service that listens on *listen_host*: the *configured* ones, and the host unless it is an
    address or empty.
    """
    own = () if not listen_host or _is_address(listen_host) else (listen_host,)
    return frozenset(name.lower().rstrip(".") for name in (*configured, *own))


def _is_ours(host: str, names: Collection[str]) -> bool:
    name = host.rpartition("]")[0].removeprefix("[") or host.partition(":")[0]
    name = name.lower().rstrip(".")
    return name in names or _is_address(name)


def _is_address(host: str) -> bool:
    try:
        ipaddress.ip_address(host.partition("%")[0])
    except ValueError:
        return False
    return True
