"""An SQLite file that is locked by one process and readable only by its owner."""

import contextlib
import os
import sqlite3
import stat
import threading
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Final, TypeVar

import msgspec

from rescheduler import decoding
from rescheduler.errors import InputError, ReschedulerError, UsageError

MEMORY: Final = ":memory:"  #: an in-memory database, which is lost on a restart

_BUSY_SECONDS: Final = 10.0
_PRIVATE: Final = 0o600

T = TypeVar("T")


class Database:
    """The open file. Thread-safe: one transaction at a time."""

    def __init__(
        self, path: str, schema: Sequence[str], version: int, failure: Callable[[sqlite3.Error], ReschedulerError]
    ) -> None:
        """Open the file (see :func:`_opened`). *failure* returns the error to raise if a transaction fails."""
        self._connection = _opened(path, schema, version)
        self._failure = failure
        self._lock = threading.Lock()

    def close(self) -> None:
        with self._lock:
            self._connection.close()

    @contextlib.contextmanager
    def transaction(self) -> Iterator[sqlite3.Connection]:
        """Commit the statements of the block at its end, or roll them back if it fails."""
        with self._lock:
            try:
                with self._connection:
                    yield self._connection
            except sqlite3.Error as error:
                raise self._failure(error) from error


def _opened(path: str, schema: Sequence[str], version: int) -> sqlite3.Connection:
    """Open the file at *path*; create the tables of *schema* if it is new. Threads must use it one at a time.

    Raises UsageError if *path* cannot be written or is another kind or version of file, and InputError if it is
    damaged or in use by another process.
    """
    if path != MEMORY:
        _make(path)
    connection = sqlite3.connect(path, timeout=_BUSY_SECONDS, check_same_thread=False)
    try:
        _prepare(connection, schema, version)
        if path != MEMORY:
            _make_private(path)  # at this point, the file is a database of this program
    except sqlite3.Error as error:
        connection.close()
        foreign = getattr(error, "sqlite_errorcode", None) == sqlite3.SQLITE_NOTADB
        raise (UsageError if foreign else InputError)(f"--database {path}: no usable database: {error}") from error
    except ReschedulerError as error:
        connection.close()
        raise type(error)(f"--database {path}: {error}") from error
    return connection


def decoded(raw: str | bytes, shape: type[T]) -> T:
    """Decode a JSON value. Raises InputError, which does not quote the value because it may be a kubeconfig."""
    try:
        return decoding.decode(raw, shape)
    except (msgspec.DecodeError, UnicodeDecodeError):
        raise InputError(f"--database: it is damaged: an entry is not a {shape.__name__}") from None


def _prepare(connection: sqlite3.Connection, schema: Sequence[str], version: int) -> None:
    """Create the tables of a new file, or validate an existing one. Raises UsageError and InputError."""
    # A second process would undo or repeat the changes of the first.
    connection.execute("PRAGMA locking_mode = EXCLUSIVE")
    connection.execute("BEGIN EXCLUSIVE")
    with connection:
        (current,) = connection.execute("PRAGMA user_version").fetchone()
        tables = {
            _single_spaced(sql) for (sql,) in connection.execute("SELECT sql FROM sqlite_schema WHERE sql IS NOT NULL")
        }
        if current == 0 and not tables:
            for statement in schema:
                connection.execute(statement)
            connection.execute(f"PRAGMA user_version = {version}")
            return
        if current not in {0, version}:
            raise UsageError(f"it has version {current}, expected {version}")
        if tables != {_single_spaced(statement) for statement in schema}:
            raise UsageError("it is another program's database")
        (damage,) = connection.execute("PRAGMA quick_check(1)").fetchone()
        if damage != "ok":
            raise InputError(f"it is damaged: {_single_spaced(damage)}")


def _single_spaced(text: str) -> str:
    return " ".join(text.split())


def _make(path: str) -> None:
    """Create a private file if it does not exist. SQLite's journal gets the same mode."""
    try:
        handle = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NONBLOCK, _PRIVATE)
    except OSError as error:
        raise UsageError(f"--database {path}: cannot be written: {error.strerror}") from error
    with os.fdopen(handle, "rb", buffering=0) as file:
        if not stat.S_ISREG(os.fstat(file.fileno()).st_mode):
            raise UsageError(f"--database {path}: expected a file")


def _make_private(path: str) -> None:
    try:
        Path(path).chmod(_PRIVATE)
    except OSError as error:
        raise UsageError(f"cannot be made private: {error.strerror}") from error
