"""Files that a person names, in a flag or in a file: only regular files are read, and never waited for.

A FIFO without a writer blocks whoever opens it, and a device may never end. So what a path leads to is looked at
before it is opened, and again afterwards.
"""

import errno
import os
import stat
from pathlib import Path
from typing import BinaryIO, Final

#: Bytes of a file that is read as a whole: configurations, credentials and certificates are small.
MOST: Final = 16 << 20

_FLAGS: Final = os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK


def opened(path: Path | str) -> BinaryIO:
    """The regular file *path*, open for reading. Raises OSError with a text for a person."""
    if "\0" in str(path):
        raise OSError(errno.EINVAL, "a path cannot hold a NUL character")
    _check_kind(Path(path).stat())  # before open, which alone makes some devices act
    handle = os.open(path, _FLAGS)
    try:
        _check_kind(os.fstat(handle))
        return os.fdopen(handle, "rb")
    except BaseException:
        os.close(handle)
        raise


def check(path: Path | str) -> None:
    """See that *path* is a regular file that can be read, for libraries that open it. Raises OSError as `opened`."""
    opened(path).close()


def read_bytes(path: Path | str) -> bytes:
    """The whole file, of at most `MOST` bytes. Raises OSError as `opened`."""
    with opened(path) as file:
        content = file.read(MOST + 1)
    if len(content) > MOST:
        raise OSError(errno.EFBIG, f"it is larger than {MOST >> 20} MiB")
    return content


def read_text(path: Path | str) -> str:
    """The whole file as UTF-8. Raises OSError as `read_bytes`, and UnicodeDecodeError."""
    return read_bytes(path).decode("utf-8").replace("\r\n", "\n")


def printable(path: Path | str) -> str:
    """*path* for a message: characters that would change the line are escaped."""
    return str(path).encode("unicode_escape").decode("ascii") if not str(path).isprintable() else str(path)


def _check_kind(status: os.stat_result) -> None:
    if stat.S_ISDIR(status.st_mode):
        raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR))
    if not stat.S_ISREG(status.st_mode):
        raise OSError(errno.EINVAL, "expected a regular file, not a FIFO, device or socket")
