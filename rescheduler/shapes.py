"""JSON of a known shape, decoded by any thread.

What msgspec knows of a struct it finds out when it first meets it. A thread that meets the same one in the meantime
reads what is not there yet, and the process is gone. So shapes are met one after the other.
"""

import threading
from collections.abc import Callable
from typing import Any, Final, TypeVar

import msgspec

T = TypeVar("T")
Hook = Callable[[type, Any], Any]

_lock: Final = threading.Lock()
_met: Final[dict[tuple[Any, bool, Hook | None], msgspec.json.Decoder[Any]]] = {}


def decoder(shape: type[T], *, strict: bool = True, dec_hook: Hook | None = None) -> msgspec.json.Decoder[T]:
    """The one decoder of *shape*; all threads may use it at once. For the rest see :class:`msgspec.json.Decoder`."""
    key = shape, strict, dec_hook
    if (found := _met.get(key)) is None:
        with _lock:
            found = _met.setdefault(key, msgspec.json.Decoder(shape, strict=strict, dec_hook=dec_hook))
    return found


def decode(raw: bytes | str, shape: type[T], *, strict: bool = True, dec_hook: Hook | None = None) -> T:
    """*raw* as a *shape*; errors as of :func:`msgspec.json.decode`."""
    return decoder(shape, strict=strict, dec_hook=dec_hook).decode(raw)
