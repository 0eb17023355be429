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
