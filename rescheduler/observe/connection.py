"""A connection of our HTTP faces, for clients of every kind: slow, silent, damaged, or many."""

import asyncio
import logging
from collections import Counter
from typing import Any, Final

import h11
from uvicorn.protocols.http.h11_impl import H11Protocol

#: Seconds for a request's first line and headers, from the connection or from their first byte on.
HEAD_SECONDS: Final = 15.0
#: Seconds for the rest of a request to arrive.
BODY_SECONDS: Final = 60.0
#: Seconds for a client to take a part of its answer.
TAKING_SECONDS: Final = 60.0
#: Seconds, at our end, for a client that asks nothing to end its side. One whose connection lies idle in a pool does
#: not answer the end of TLS, which would be waited for half a minute.
LEAVING_SECONDS: Final = 2.0
#: Connections of a face at once; more would take the descriptors that the program needs for its own work.
MOST: Final = 512


class Connection(H11Protocol):
    """Uvicorn's, with deadlines for what comes and for what goes, and an orderly end for what is no HTTP.

    Clients can make it say nothing above the level of debugging, lest they fill the log.
    """

    def __init__(
        self, *arguments: Any, head_seconds: float | None = None, body_seconds: float | None = None, **more: Any
    ) -> None:
        super().__init__(*arguments, **more)
        self.logger = _log
        self._head_seconds = HEAD_SECONDS if head_seconds is None else head_seconds
        self._body_seconds = BODY_SECONDS if body_seconds is None else body_seconds
        self._heard = 0.0
        self._awaited: object = None  #: the part of a request that is due
        self._due: asyncio.TimerHandle | None = None
        self._taking: asyncio.TimerHandle | None = None
        self._leaving: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        self._heard = self.loop.time()
        if len(self.connections) > MOST:
            self._make_room().transport.abort()
        if not transport.is_closing():
            self._watch()

    def data_received(self, data: bytes) -> None:
        self._heard = self.loop.time()
        super().data_received(data)
        self._watch()

    def connection_lost(self, exc: Exception | None) -> None:
        self._unwatch()
        self._taken()
        if self._leaving is not None:
            self._leaving.cancel()
        super().connection_lost(exc)

    def shutdown(self) -> None:
        super().shutdown()
        if self.transport.is_closing() and self._taking is None:
            self._leaving = self.loop.call_later(LEAVING_SECONDS, self.transport.abort)

    def pause_writing(self) -> None:
        super().pause_writing()
        self._expect_taking()

    def resume_writing(self) -> None:
        self._taken()
        super().resume_writing()

    def on_response_complete(self) -> None:
        super().on_response_complete()
        if self.transport.is_closing():
            self._expect_taking()  # of what is still to be sent

    def send_400_response(self, msg: str) -> None:
        """What follows is no HTTP: told to the client where no answer is on its way, and to whoever reads a body."""
        method = ""
        if self.cycle is not None and not self.cycle.response_complete:
            method = self.scope["method"]
            self.cycle.disconnected = True
            self.cycle.message_event.set()
        # The answer to a HEAD must not have the body that is about to be sent.
        if self.conn.our_state in {h11.IDLE, h11.SEND_RESPONSE} and method != "HEAD":
            super().send_400_response(msg)
        else:
            self.transport.close()

    def _make_room(self) -> "Connection":
        """The connection to give up where there are too many: one of the client that has most, idle for longest.

        So clients that hold connections cannot keep others away: a probe of the kubelet above all. Where all are at
        work, it is this one.
        """
        idle = [one for one in self.connections if isinstance(one, Connection) and one is not self and one.idle]
        if not idle:
            return self
        of_host = Counter(one.host for one in idle)
        most = max(of_host.values())
        return min((one for one in idle if of_host[one.host] == most), key=lambda one: one.heard)

    @property
    def idle(self) -> bool:
        """Whether no answer is on its way, or the client does not take it."""
        return self.cycle is None or self.cycle.response_complete or self._taking is not None

    @property
    def host(self) -> str:
        return str(self.client[0]) if self.client else ""

    @property
    def heard(self) -> float:
        """When the client last sent something, by the loop's clock."""
        return self._heard

    def _watch(self) -> None:
        """Let what has begun to come be due."""
        state = self.conn.their_state
        if state is not self._awaited:
            self._unwatch()
            self._awaited = state
        seconds = {h11.IDLE: self._head_seconds, h11.SEND_BODY: self._body_seconds}.get(state)
        if seconds is not None and self._due is None and not self.transport.is_closing():
            self._due = self.loop.call_later(seconds, self.transport.abort)

    def _unwatch(self) -> None:
        if self._due is not None:
            self._due.cancel()
            self._due = None

    def _expect_taking(self) -> None:
        if self._taking is None:
            self._taking = self.loop.call_later(TAKING_SECONDS, self.transport.abort)

    def _taken(self) -> None:
        if self._taking is not None:
            self._taking.cancel()
            self._taking = None


def _ours(record: logging.LogRecord) -> bool:
    """Errors of the application; what clients did wrong only where everything is logged."""
    return record.levelno >= logging.ERROR or _log.isEnabledFor(logging.DEBUG)


_log = logging.getLogger(__name__)
_log.addFilter(_ours)
