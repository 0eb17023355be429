"""A connection of the HTTPS faces: requests know who is asking."""

import asyncio
from collections.abc import Mapping
from typing import Any

from starlette.requests import Request

from rescheduler.observe import connection


class Connection(connection.HttpConnection):
    """One whose requests know the names of the client's certificate."""

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        self.app_state = self.app_state | {"peer": names(transport.get_extra_info("peercert") or {})}


def names(certificate: Mapping[str, Any]) -> frozenset[str]:
    """The common name and the DNS and URI names of a certificate as `ssl.SSLSocket.getpeercert` gives it."""
    subject = [value for part in certificate.get("subject", ()) for key, value in part if key == "commonName"]
    alternatives = [value for kind, value in certificate.get("subjectAltName", ()) if kind in {"DNS", "URI"}]
    return frozenset(subject + alternatives)


def peer(request: Request) -> frozenset[str]:
    """Under which names the client's authority knows it; nothing over plain text."""
    found: frozenset[str] = request.state.peer
    return found
