"""Thread-safe JSON decoders for known types.

msgspec collects information about a type at its first use. Concurrent first use of a msgspec type can crash the
process, so decoders are created under a lock.
"""

import threading
from collections.abc import Callable
from typing import Any, Final, TypeVar

import msgspec

T = TypeVar("T")
Hook = Callable[[type, Any], Any]

_lock: Final = threading.Lock()
_decoders: Final[dict[tuple[Any, bool, Hook | None], msgspec.json.Decoder[Any]]] = {}


def decoder(type_: type[T], *, strict: bool = True, dec_hook: Hook | None = None) -> msgspec.json.Decoder[T]:
    """Return the shared, thread-safe decoder of *type_*. For the other arguments see :class:`msgspec.json.Decoder`."""
    key = type_, strict, dec_hook
    if (cached := _decoders.get(key)) is None:
        with _lock:
            cached = _decoders.setdefault(key, msgspec.json.Decoder(type_, strict=strict, dec_hook=dec_hook))
    return cached


def decode(raw: bytes | str, type_: type[T], *, strict: bool = True, dec_hook: Hook | None = None) -> T:
    """Decode *raw* as *type_*. Raises the same errors as :func:`msgspec.json.decode`."""
    return decoder(type_, strict=strict, dec_hook=dec_hook).decode(raw)
