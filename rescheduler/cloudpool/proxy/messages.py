"""The requests that the proxy reads, decoded as in the original (Go's encoding/json), and the responses that it
creates.
"""

import asyncio
import json
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, MutableMapping
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any, NoReturn, TypeAlias, TypeVar

from starlette.responses import Response

from rescheduler.durations import INT64

# The request bodies of removals, decoded as in the original (Go's encoding/json), and its error format.
#
# Keys are case-insensitive. The last of duplicate keys counts, unknown keys are ignored, and `null` leaves a field
# unset. Integers must be written as such: ``3``, not ``3.0``, ``3e0`` or ``"3"``.

T = TypeVar("T")

#: Non-ASCII letters that Go's case folding equates with ASCII ones.
_FOLD = str.maketrans({"\u017f": "s", "\u212a": "k"})


class BadRequest(Exception):
    """An invalid request: a message in the original's wording, and the detail."""

    def __init__(self, message: str, detail: str = "") -> None:
        super().__init__(message)
        self.message, self.detail = message, detail


@dataclass(frozen=True, slots=True)
class OnMachine:
    """The body of a terminate or detach request."""

    machine: str
    decrement: bool


@dataclass(frozen=True, slots=True)
class SetMembership:
    machine: str
    active: bool
    evictable: bool

    @property
    def disposable(self) -> bool:
        """Whether the pool terminates a machine with this status on its own."""
        return self.evictable and not self.active


def set_size(body: bytes) -> int:
    """Decode the desired size, which is at least 0."""
    fields = _fields(body, "setDesiredSize")
    desired = _field(fields, "desiredSize", _integer, "setDesiredSize")
    if desired is None:
        raise BadRequest("setDesiredSize message did not specify a desiredSize")
    if desired < 0:
        raise BadRequest("setDesiredSize message: desiredSize must be non-negative")
    return desired


def on_machine(body: bytes, name: str, machine: str | None = None) -> OnMachine:
    """Decode the body of the message *name*; *machine* is the id in the path, if there is one."""
    fields = _fields(body, name) if body or machine is None else {}
    named = machine or _field(fields, "machineId", _string, name)
    if not named:
        raise BadRequest(f"{name} message did not specify a machineId")
    return OnMachine(named, decrement=bool(_field(fields, "decrementDesiredSize", _boolean, name)))


def set_membership(body: bytes, machine: str | None = None) -> SetMembership:
    """Decode a membership status; missing fields mean true, as in the reference server."""
    name = "setMembershipStatus"
    fields = _fields(body, name)
    named = machine or _field(fields, "machineId", _string, name)
    if not named:
        raise BadRequest(f"{name} message did not specify a machineId")
    status = _field(fields, "membershipStatus", _object, name)
    if status is None:
        raise BadRequest(f"{name} message did not specify a membershipStatus")
    active, evictable = (_field(status, key, _boolean, name) for key in ("active", "evictable"))
    return SetMembership(named, active=active is not False, evictable=evictable is not False)


def error_document(message: str, detail: str) -> bytes:
    """Encode an error, byte for byte as the original does."""
    text = json.dumps({"message": message, "detail": detail}, indent=2, ensure_ascii=False)
    for character in "<>&\u2028\u2029":
        text = text.replace(character, f"\\u{ord(character):04x}")
    return text.encode("utf-8", "replace")


def _fields(body: bytes, name: str) -> Mapping[str, Any]:
    try:
        document = _decode(body)
    except (ValueError, RecursionError) as error:
        raise BadRequest(f"failed to decode {name} message", str(error) or "nested too deeply") from error
    if document is None:
        return {}
    if not isinstance(document, dict):
        raise BadRequest(f"failed to decode {name} message", f"expected an object, got {_kind(document)}")
    return document


def _decode(body: bytes) -> Any:
    """Decode JSON. Invalid UTF-8 becomes replacement characters, as in Go; a byte order mark is an error."""
    text = body.decode("utf-8", "replace")
    return json.loads(text, object_pairs_hook=_folded, parse_float=_no_integer, parse_constant=_no_constant)


def _folded(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    """Fold the case of keys. The last of duplicate keys counts, and `null` removes an earlier value."""
    return {key.translate(_FOLD).lower(): value for key, value in pairs}


def _field(fields: Mapping[str, Any], key: str, read: Callable[[Any], T], name: str) -> T | None:
    value = fields.get(key.lower())
    if value is None:
        return None
    try:
        return read(value)
    except TypeError as error:
        raise BadRequest(f"failed to decode {name} message", f"{key}: {error}") from error


def _integer(value: Any) -> int:
    if not isinstance(value, int) or isinstance(value, bool) or value not in INT64:
        raise TypeError(f"expected an integer of 64 bits, got {_kind(value)}")
    return value


def _string(value: Any) -> str:
    if not isinstance(value, str):
        raise TypeError(f"expected a string, got {_kind(value)}")
    return value


def _boolean(value: Any) -> bool:
    if not isinstance(value, bool):
        raise TypeError(f"expected true or false, got {_kind(value)}")
    return value


def _object(value: Any) -> Mapping[str, Any]:
    if not isinstance(value, dict):
        raise TypeError(f"expected an object, got {_kind(value)}")
    return value


class _Decimal(float):
    """A number written with a decimal point or an exponent."""


def _no_integer(text: str) -> _Decimal:
    return _Decimal(text)


def _no_constant(text: str) -> NoReturn:
    raise ValueError(f"{text} is not JSON")


def _kind(value: Any) -> str:
    match value:
        case bool():
            return "a boolean"
        case _Decimal():
            return "a decimal number"
        case int():
            return "a number" if value in INT64 else "a number out of range"
        case str():
            return "a string"
        case list():
            return "an array"
    return "an object"


# The responses that the proxy itself creates, in the format of the API.

SET_SIZE = "failed to set desired size"
TERMINATE = "failed to terminate machine"
DETACH = "failed to detach machine"
MEMBERSHIP = "failed to set membership status"


class UpdateFailed(Exception):
    """A complete or partial failure of an update: the status code and the detail.

    404: unknown machine. 502: backend error. 503: API server error, or replacement pods are owed. 504: timeout.
    500: everything else.
    """

    def __init__(self, status: int, detail: str) -> None:
        super().__init__(detail)
        self.status, self.detail = status, detail


def error(status: int, message: str, detail: str = "") -> Response:
    return Response(error_document(message, detail), status, media_type="application/json")


def done(message: str = "", detail: str = "") -> Response:
    """Return a success response, which has a body only if there is a message."""
    if not message:
        return Response()
    return Response(error_document(message, detail), media_type="application/json")


# The client of a request: the body that it sends, and whether it has disconnected.

AsgiScope: TypeAlias = MutableMapping[str, Any]
AsgiMessage: TypeAlias = MutableMapping[str, Any]
Receive: TypeAlias = Callable[[], Awaitable[AsgiMessage]]
AsgiSend: TypeAlias = Callable[[AsgiMessage], Awaitable[None]]
Header: TypeAlias = tuple[bytes, bytes]


class ClientGone(Exception):
    """The client has disconnected."""


class ClientSlow(Exception):
    """The client did not send the announced body in time."""


class RequestClient:
    """The client of a request, first for its body and then for its disconnect."""

    def __init__(self, receive: Receive, patience: float, *, sends: bool) -> None:
        self.receive, self.sends = receive, sends
        self._patience = patience
        self._sent = asyncio.Event()
        if not sends:
            self._sent.set()

    async def body(self) -> AsyncIterator[bytes]:
        while True:
            try:
                message = await asyncio.wait_for(self.receive(), self._patience)
            except TimeoutError:
                raise ClientSlow(f"no more of the request's body arrived for {self._patience:g} s") from None
            if message["type"] == "http.disconnect":
                raise ClientGone
            if message.get("body"):
                yield message["body"]
            if not message.get("more_body", False):
                self._sent.set()
                return

    @asynccontextmanager
    async def cancel_on_disconnect(self) -> AsyncIterator[None]:
        """Run the block, and cancel it without an error when the client disconnects."""
        working = asyncio.current_task()
        assert working is not None
        left = over = False

        def leave(_: object) -> None:
            nonlocal left
            if not over:
                left = True
                working.cancel()

        watching = asyncio.ensure_future(self._wait_for_disconnect())
        watching.add_done_callback(leave)
        try:
            yield
        except asyncio.CancelledError:
            if not left or working.uncancel():  # another task also canceled it
                raise
        finally:
            over = True
            watching.cancel()

    async def _wait_for_disconnect(self) -> None:
        await self._sent.wait()
        await disconnected(self.receive)


async def disconnected(receive: Receive) -> None:
    """Wait until the client disconnects; its request must have been read."""
    while (await receive())["type"] != "http.disconnect":
        pass
