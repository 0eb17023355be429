"""Read files that users name in flags or configurations. Only regular files are read, so that reading never blocks.

Opening a FIFO without a writer blocks, and a device may never end. So the type of the file is checked before the file
is opened, and again afterwards.
"""

import errno
import os
import stat
from pathlib import Path
from typing import BinaryIO, Final

#: Maximum size in bytes of a file that is read at once. Configurations, credentials and certificates are small.
MOST: Final = 16 << 20

_FLAGS: Final = os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK


def opened(path: Path | str) -> BinaryIO:
    """Open the regular file *path* for reading. Raises OSError with a readable message."""
    if "\0" in str(path):
        raise OSError(errno.EINVAL, "a path cannot contain a NUL character")
    _check_kind(Path(path).stat())  # before open(), which has side effects on some devices
    handle = os.open(path, _FLAGS)
    try:
        _check_kind(os.fstat(handle))
        return os.fdopen(handle, "rb")
    except BaseException:
        os.close(handle)
        raise


def check(path: Path | str) -> None:
    """Check that *path* is a readable regular file before a library opens it. Raises OSError (see `opened`)."""
    opened(path).close()


def read_bytes(path: Path | str) -> bytes:
    """Return the content of the file, at most `MOST` bytes. Raises OSError (see `opened`)."""
    with opened(path) as file:
        content = file.read(MOST + 1)
    if len(content) > MOST:
        raise OSError(errno.EFBIG, f"it is larger than {MOST >> 20} MiB")
    return content


def read_text(path: Path | str) -> str:
    """Return the content of the file as UTF-8 text. Raises OSError (see `read_bytes`) and UnicodeDecodeError."""
    return read_bytes(path).decode("utf-8").replace("\r\n", "\n")


def printable(path: Path | str) -> str:
    """Return *path* for a message, with unprintable characters escaped."""
    return str(path).encode("unicode_escape").decode("ascii") if not str(path).isprintable() else str(path)


def _check_kind(status: os.stat_result) -> None:
    if stat.S_ISDIR(status.st_mode):
        raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR))
    if not stat.S_ISREG(status.st_mode):
        raise OSError(errno.EINVAL, "expected a regular file, not a FIFO, device or socket")
