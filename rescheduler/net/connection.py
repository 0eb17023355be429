"""HTTP connections of our servers, with limits against slow, silent, faulty or too many clients."""

import asyncio
import logging
import re
from typing import Any, Final

import h11
from h11._receivebuffer import ReceiveBuffer
from uvicorn.protocols.http.h11_impl import H11Protocol

#: Time limit for a request's first line and headers, from the start of the connection or their first byte, in seconds.
HEAD_SECONDS: Final = 10.0
#: Maximum size of a request's first line and headers, in bytes; and of one for pages, which need no long paths.
MAX_HEAD: Final = 64 << 10
MAX_PAGE_HEAD: Final = 16 << 10
#: Maximum number of header fields of a request, and of fields after its body. Each takes the time of 200 bytes.
MAX_FIELDS: Final = 200
#: A body may have so many chunks, and further ones if the average chunk has at least so many bytes: a chunk takes the
#: time of 500 bytes.
FREE_CHUNKS: Final = 64
LEAST_CHUNK: Final = 64
#: Bytes that are received at a time. While they are handled, other connections wait. asyncio's default is 256 KiB.
MAX_RECEIVED: Final = 16 << 10
#: Time limit for receiving the rest of a request, in seconds.
BODY_SECONDS: Final = 60.0
#: Time limit for a client to receive a part of its response, in seconds.
SEND_SECONDS: Final = 60.0
#: At shutdown, the time limit for an idle client to close its side, in seconds. An idle pooled connection does not
#: respond to the TLS close_notify, and would delay the shutdown by half a minute.
CLOSE_SECONDS: Final = 2.0


#: Line ends that servers interpret differently: a line feed alone, and a header that goes on in the next line.
_AMBIGUOUS: Final = re.compile(rb"(?<!\r)\n|\n[ \t]")
_VERSIONS: Final = frozenset({b"1.0", b"1.1"})
_HEAD_END: Final = b"\r\n\r\n"
_LENGTH: Final = re.compile(rb"\ncontent-length:([^\r\n]*)", re.IGNORECASE)


class _Fields(ReceiveBuffer):
    """The received data, from which fields are taken: those of a request, and those after its last chunk."""

    def maybe_extract_lines(self) -> list[bytearray] | None:
        end = self._data.find(b"\n\r\n")
        if self._data.count(b"\n", 0, len(self._data) if end < 0 else end) > MAX_FIELDS:
            raise h11.LocalProtocolError(f"expected at most {MAX_FIELDS} header fields")
        return super().maybe_extract_lines()


class StrictConnection(h11.Connection):
    """A parser that rejects requests in which another server might see other requests (RFC 9112, 11.2).

    Rejected are a line feed without a carriage return and folded headers, also after the last chunk of a body; several
    lengths, also equal ones; a transfer coding together with a length, and in HTTP/1.0; and versions other than 1.0
    and 1.1. Requests that take much time for their size are rejected as well: those of many fields or of tiny chunks.
    The connection is closed after each of them.
    """

    _checked = 0  #: bytes at the start of the buffer that were checked, so that each is checked once
    _chunks = _chunked = 0  #: number and bytes of the chunks of the current body

    def __init__(self, max_head: int = MAX_HEAD) -> None:
        super().__init__(h11.SERVER, max_head)
        self._receive_buffer = _Fields()

    def next_event(self) -> Any:
        in_body = self.their_state is h11.SEND_BODY
        before = self.trailing_data[0] if in_body or self.their_state is h11.IDLE else b""
        if not in_body:
            self._check(before)
        event = super().next_event()
        if isinstance(event, h11.Request):
            self._checked = self._chunks = self._chunked = 0
            names = {name for name, _ in event.headers}
            if event.http_version not in _VERSIONS:
                raise h11.RemoteProtocolError("expected HTTP/1.0 or HTTP/1.1")
            if b"transfer-encoding" in names and (b"content-length" in names or event.http_version < b"1.1"):
                raise h11.RemoteProtocolError("the length of the body is ambiguous")
        elif isinstance(event, h11.Data):
            self._count(event)
        elif in_body and isinstance(event, h11.EndOfMessage):
            trailers = before.removesuffix(self.trailing_data[0])  # with the line of the last chunk
            if _AMBIGUOUS.search(trailers):
                raise h11.RemoteProtocolError("the line ends of the trailers are ambiguous")
        return event

    def _count(self, data: h11.Data) -> None:
        self._chunks += data.chunk_start
        self._chunked += len(data.data)
        if self._chunks > FREE_CHUNKS and self._chunked < LEAST_CHUNK * (self._chunks - 1):
            raise h11.RemoteProtocolError("the chunks are too small")

    def _check(self, received: bytes) -> None:
        start = max(0, self._checked - len(_HEAD_END))
        end = received.find(_HEAD_END, start)
        if _AMBIGUOUS.search(received, start, len(received) if end < 0 else end):
            raise h11.RemoteProtocolError("the line ends of the headers are ambiguous")
        lengths = _LENGTH.findall(received, 0, end) if end >= 0 else []
        if len(lengths) > 1 or any(b"," in length for length in lengths):
            raise h11.RemoteProtocolError("the length of the body is ambiguous")
        self._checked = len(received)


class HttpConnection(H11Protocol):
    """Uvicorn's connection, with time limits for receiving and sending, and an orderly response to invalid HTTP.

    Clients cannot cause log lines above the debug level, so that they cannot flood the log.
    """

    def __init__(
        self,
        *arguments: Any,
        head_seconds: float | None = None,
        body_seconds: float | None = None,
        max_head: int = MAX_HEAD,
        **more: Any,
    ) -> None:
        super().__init__(*arguments, **more)
        self.logger = _log
        self.conn = StrictConnection(max_head)
        self._head_seconds = HEAD_SECONDS if head_seconds is None else head_seconds
        self._body_seconds = BODY_SECONDS if body_seconds is None else body_seconds
        self._last_received = 0.0
        self.lost: asyncio.Future[None] = self.loop.create_future()  #: done when the connection is closed
        self._awaited_state: object = None  #: the protocol state for which the receive timer runs
        self._receive_timer: asyncio.TimerHandle | None = None
        self._send_timer: asyncio.TimerHandle | None = None
        self._close_timer: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        if hasattr(transport, "max_size"):  # without TLS; see accepting.py for that
            transport.max_size = MAX_RECEIVED
        self._start_receive_timer()

    def data_received(self, data: bytes) -> None:
        self._last_received = self.loop.time()
        super().data_received(data)
        self._start_receive_timer()

    def connection_lost(self, exc: Exception | None) -> None:
        self._stop_receive_timer()
        self._stop_send_timer()
        if self._close_timer is not None:
            self._close_timer.cancel()
        super().connection_lost(exc)
        if not self.lost.done():
            self.lost.set_result(None)

    def shutdown(self) -> None:
        super().shutdown()
        if self.transport.is_closing() and self._send_timer is None:
            self._close_timer = self.loop.call_later(CLOSE_SECONDS, self.transport.abort)

    def pause_writing(self) -> None:
        super().pause_writing()
        self._start_send_timer()

    def resume_writing(self) -> None:
        self._stop_send_timer()
        super().resume_writing()

    def on_response_complete(self) -> None:
        super().on_response_complete()
        if self.transport.is_closing():
            self._start_send_timer()  # for the data that has not been sent yet

    def send_400_response(self, msg: str) -> None:
        """Respond to invalid HTTP with 400 unless a response has started. Interrupt a handler that reads the body."""
        method = ""
        if self.cycle is not None and not self.cycle.response_complete:
            method = self.scope["method"]
            self.cycle.disconnected = True
            self.cycle.message_event.set()
        # The response to HEAD must not have a body.
        if self.conn.our_state in {h11.IDLE, h11.SEND_RESPONSE} and method != "HEAD":
            super().send_400_response(msg)
        else:
            self.transport.close()

    @property
    def idle(self) -> bool:
        """Whether no response is in progress, or the client is not receiving it."""
        return self.cycle is None or self.cycle.response_complete or self._send_timer is not None

    @property
    def last_received(self) -> float:
        """When the client last sent data, on the event loop's clock."""
        return self._last_received

    def _start_receive_timer(self) -> None:
        """Start the timer for the part of a request that is expected next."""
        state = self.conn.their_state
        if state is not self._awaited_state:
            self._stop_receive_timer()
            self._awaited_state = state
        seconds = {h11.IDLE: self._head_seconds, h11.SEND_BODY: self._body_seconds}.get(state)
        if seconds is not None and self._receive_timer is None and not self.transport.is_closing():
            self._receive_timer = self.loop.call_later(seconds, self.transport.abort)

    def _stop_receive_timer(self) -> None:
        if self._receive_timer is not None:
            self._receive_timer.cancel()
            self._receive_timer = None

    def _start_send_timer(self) -> None:
        if self._send_timer is None:
            self._send_timer = self.loop.call_later(SEND_SECONDS, self.transport.abort)

    def _stop_send_timer(self) -> None:
        if self._send_timer is not None:
            self._send_timer.cancel()
            self._send_timer = None


def _is_logged(record: logging.LogRecord) -> bool:
    """Return whether to log *record*: errors of the application always, errors of clients only at the debug level."""
    return record.levelno >= logging.ERROR or _log.isEnabledFor(logging.DEBUG)


_log = logging.getLogger(__name__)
_log.addFilter(_is_logged)
