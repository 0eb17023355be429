"""An SQLite file that one process has to itself, and that only its owner may read."""

import os
import sqlite3
import stat
from collections.abc import Sequence
from pathlib import Path
from typing import Final, TypeVar

import msgspec

from rescheduler import shapes
from rescheduler.errors import InputError, ReschedulerError, UsageError

MEMORY: Final = ":memory:"  #: remembers nothing over a restart

_BUSY_SECONDS: Final = 10.0
_PRIVATE: Final = 0o600

T = TypeVar("T")


def opened(path: str, schema: Sequence[str], version: int) -> sqlite3.Connection:
    """The file at *path*, with the tables of *schema* if it is new. For use by several threads, one at a time.

    Raises UsageError for a *path* that cannot be written and for a file of something else or of another version,
    InputError for one that is damaged or in use by another process.
    """
    if path != MEMORY:
        _make(path)
    connection = sqlite3.connect(path, timeout=_BUSY_SECONDS, check_same_thread=False)
    try:
        _prepare(connection, schema, version)
        if path != MEMORY:
            _make_private(path)  # now that it is known to be ours
    except sqlite3.Error as error:
        connection.close()
        foreign = getattr(error, "sqlite_errorcode", None) == sqlite3.SQLITE_NOTADB
        raise (UsageError if foreign else InputError)(f"--database {path}: no usable database: {error}") from error
    except ReschedulerError as error:
        connection.close()
        raise type(error)(f"--database {path}: {error}") from error
    return connection


def decoded(raw: str | bytes, shape: type[T]) -> T:
    """A value that was written as JSON. Raises InputError, which does not quote it: kubeconfigs are among them."""
    try:
        return shapes.decode(raw, shape)
    except (msgspec.DecodeError, UnicodeDecodeError):
        raise InputError(f"--database: it is damaged: an entry is no {shape.__name__}") from None


def _prepare(connection: sqlite3.Connection, schema: Sequence[str], version: int) -> None:
    """Make the tables of a new file. Raises UsageError and InputError for what is wrong with what is there."""
    # Two processes would each undo, or do again, what the other one has just done.
    connection.execute("PRAGMA locking_mode = EXCLUSIVE")
    connection.execute("BEGIN EXCLUSIVE")
    with connection:
        (found,) = connection.execute("PRAGMA user_version").fetchone()
        tables = {_spaced(sql) for (sql,) in connection.execute("SELECT sql FROM sqlite_schema WHERE sql IS NOT NULL")}
        if found == 0 and not tables:
            for statement in schema:
                connection.execute(statement)
            connection.execute(f"PRAGMA user_version = {version}")
            return
        if found not in {0, version}:
            raise UsageError(f"it is of version {found}, expected {version}")
        if tables != {_spaced(statement) for statement in schema}:
            raise UsageError("it is the database of something else")
        (damage,) = connection.execute("PRAGMA quick_check(1)").fetchone()
        if damage != "ok":
            raise InputError(f"it is damaged: {_spaced(damage)}")


def _spaced(text: str) -> str:
    return " ".join(text.split())


def _make(path: str) -> None:
    """A file that nobody else may read, if there is none. SQLite's journal gets the file's mode."""
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
        raise UsageError(f"cannot be kept from others' eyes: {error.strerror}") from error
