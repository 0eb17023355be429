"""An SQLite file that one process has to itself, and that only its owner may read."""

import os
import sqlite3
from collections.abc import Sequence
from pathlib import Path
from typing import Final, TypeVar

import msgspec

from rescheduler.errors import InputError, UsageError

MEMORY: Final = ":memory:"  #: remembers nothing over a restart

_BUSY_SECONDS: Final = 10.0

T = TypeVar("T")


def opened(path: str, schema: Sequence[str], version: int) -> sqlite3.Connection:
    """The file at *path*, with the tables of *schema* if it is new. For use by several threads, one at a time.

    Raises UsageError for a *path* that cannot be written, InputError for a file that is damaged, of something else, of
    another version, or of another process.
    """
    if path != MEMORY:
        _make_private(path)
    connection = sqlite3.connect(path, timeout=_BUSY_SECONDS, check_same_thread=False)
    try:
        found = _prepare(connection, schema, version)
    except sqlite3.Error as error:
        connection.close()
        raise InputError(f"--database {path}: no usable database: {error}") from error
    if found:
        connection.close()
        raise InputError(f"--database {path}: {found}")
    return connection


def decoded(raw: str | bytes, shape: type[T]) -> T:
    """A value that was written as JSON. Raises InputError, which does not quote it: kubeconfigs are among them."""
    try:
        return msgspec.json.decode(raw, type=shape)
    except (msgspec.DecodeError, UnicodeDecodeError):
        raise InputError(f"--database: it is damaged: an entry is no {shape.__name__}") from None


def _prepare(connection: sqlite3.Connection, schema: Sequence[str], version: int) -> str:
    """Make the tables of a new file; what is wrong with what is there, empty if nothing is."""
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
            return ""
        if found not in {0, version}:
            return f"it is of version {found}, expected {version}"
        if tables != {_spaced(statement) for statement in schema}:
            return "it is the database of something else"
        (damage,) = connection.execute("PRAGMA quick_check(1)").fetchone()
        return "" if damage == "ok" else f"it is damaged: {_spaced(damage)}"


def _spaced(text: str) -> str:
    return " ".join(text.split())


def _make_private(path: str) -> None:
    """Nobody else may read the file, nor SQLite's journal, which gets the file's mode."""
    try:
        os.close(os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600))
        Path(path).chmod(0o600)
    except OSError as error:
        raise UsageError(f"--database {path}: cannot be written: {error.strerror}") from error
