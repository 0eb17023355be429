"""Connections of the HTTPS services, whose requests carry the names from the client's certificate."""

import asyncio
from collections.abc import Mapping
from typing import Any

from starlette.requests import Request

from rescheduler.net import connection


class PeerConnection(connection.HttpConnection):
    """An HTTP connection that adds the names from the client's certificate to each request."""

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        self.app_state = self.app_state | {"peer": certificate_names(transport.get_extra_info("peercert") or {})}


def certificate_names(certificate: Mapping[str, Any]) -> frozenset[str]:
    """Return the common name and the DNS and URI names of a certificate (from `ssl.SSLSocket.getpeercert`)."""
    subject = [value for part in certificate.get("subject", ()) for key, value in part if key == "commonName"]
    alternatives = [value for kind, value in certificate.get("subjectAltName", ()) if kind in {"DNS", "URI"}]
    return frozenset(subject + alternatives)


def client_names(request: Request) -> frozenset[str]:
    """Return the names in the client's certificate; the set is empty over plain text."""
    certified: frozenset[str] = request.state.peer
    return certified
