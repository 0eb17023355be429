"""The packed form of stored values: gzip, limited in size."""

import zlib
from collections.abc import Callable
from typing import Final

from rescheduler.errors import InputError

#: Maximum size of the packed form in bytes. With base64 encoding and a summary, a ConfigMap stays below 256 KiB.
LIMIT: Final = 180 * 1024

#: Maximum size of the unpacked form in bytes.
_UNPACKED: Final = 64 << 20

_GZIP: Final = 31  #: zlib's ``wbits`` value for the gzip format

#: The number of entries to drop is determined to within one part in this many of all entries.
_FINENESS: Final = 64


def pack(content: bytes) -> bytes:
    """Compress *content*. Equal contents give equal bytes."""
    packer = zlib.compressobj(wbits=_GZIP)
    return packer.compress(content) + packer.flush()


def unpack(content: bytes) -> bytes:
    """Decompress the output of :func:`pack`. Raises InputError if it is not one complete gzip member."""
    unpacker = zlib.decompressobj(wbits=_GZIP)
    try:
        text = unpacker.decompress(content, _UNPACKED)
    except zlib.error as error:
        raise InputError(f"expected gzip: {error}") from error
    if not unpacker.eof or unpacker.unused_data:
        raise InputError(f"expected one whole gzip member of at most {_UNPACKED >> 20} MiB")
    return text


def packed_within(limit: int, entries: int, without: Callable[[int], bytes]) -> bytes:
    """Return ``without(n)``, the packed form without the *n* least important of all *entries*, for a small *n*.

    The result has at most *limit* bytes, unless it is larger even without all entries.
    """
    whole = without(0)
    if len(whole) <= limit:
        return whole
    low, high = 0, entries  # dropping `low` entries is too few, dropping `high` is enough
    best = without(entries)
    while high - low > max(1, entries // _FINENESS):
        middle = (low + high) // 2
        packed = without(middle)
        if len(packed) <= limit:
            high, best = middle, packed
        else:
            low = middle
    return best
