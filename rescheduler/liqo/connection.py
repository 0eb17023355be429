"""A connection of the HTTPS faces: clients that are slow lose it, and requests know who is asking."""

import asyncio
from collections.abc import Mapping
from typing import Any, Final

import h11
from starlette.requests import Request
from uvicorn.protocols.http.h11_impl import H11Protocol

#: Seconds for a request's first line and headers, from the connection or from their first byte on.
HEAD_SECONDS: Final = 15.0


class Connection(H11Protocol):
    """Uvicorn's, with a deadline for the head of a request and the names of the client's certificate."""

    _head_due: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        self.app_state = self.app_state | {"peer": names(transport.get_extra_info("peercert") or {})}
        self._watch()

    def data_received(self, data: bytes) -> None:
        super().data_received(data)
        self._watch()

    def connection_lost(self, exc: Exception | None) -> None:
        self._unwatch()
        super().connection_lost(exc)

    def _watch(self) -> None:
        if self.conn.their_state is not h11.IDLE:
            self._unwatch()
        elif self._head_due is None:
            self._head_due = self.loop.call_later(HEAD_SECONDS, self.transport.abort)

    def _unwatch(self) -> None:
        if self._head_due is not None:
            self._head_due.cancel()
            self._head_due = None


def names(certificate: Mapping[str, Any]) -> frozenset[str]:
    """The common name and the DNS and URI names of a certificate as `ssl.SSLSocket.getpeercert` gives it."""
    subject = [value for part in certificate.get("subject", ()) for key, value in part if key == "commonName"]
    alternatives = [value for kind, value in certificate.get("subjectAltName", ()) if kind in {"DNS", "URI"}]
    return frozenset(subject + alternatives)


def peer(request: Request) -> frozenset[str]:
    """Under which names the client's authority knows it; nothing over plain text."""
    found: frozenset[str] = request.state.peer
    return found
