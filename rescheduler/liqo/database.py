"""An SQLite file that one process has to itself, and that only its owner may read."""

import os
import sqlite3
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from rescheduler.errors import InputError, UsageError

MEMORY: Final = ":memory:"  #: remembers nothing over a restart

_BUSY_SECONDS: Final = 10.0


def opened(path: str, schema: Sequence[str], version: int) -> sqlite3.Connection:
    """The file at *path*, with the tables of *schema* if it is new. For use by several threads, one at a time.

    Raises UsageError for a *path* that cannot be written, InputError for a file of something else, of another version,
    or of another process.
    """
    if path != MEMORY:
        _make_private(path)
    connection = sqlite3.connect(path, timeout=_BUSY_SECONDS, check_same_thread=False)
    try:
        found = _prepare(connection, schema, version)
    except sqlite3.Error as error:
        connection.close()
        raise InputError(f"--database {path}: no usable database: {error}") from error
    if found != version:
        connection.close()
        raise InputError(f"--database {path}: it is of version {found}, expected {version}")
    return connection


def _prepare(connection: sqlite3.Connection, schema: Sequence[str], version: int) -> int:
    """Make the tables of a new file; the version of what is there."""
    # Two processes would each undo, or do again, what the other one has just done.
    connection.execute("PRAGMA locking_mode = EXCLUSIVE")
    connection.execute("BEGIN EXCLUSIVE")
    with connection:
        (found,) = connection.execute("PRAGMA user_version").fetchone()
        if found == 0:
            for statement in schema:
                connection.execute(statement)
            connection.execute(f"PRAGMA user_version = {version}")
        return int(found) or version


def _make_private(path: str) -> None:
    """Nobody else may read the file, nor SQLite's journal, which gets the file's mode."""
    try:
        os.close(os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600))
        Path(path).chmod(0o600)
    except OSError as error:
        raise UsageError(f"--database {path}: cannot be written: {error.strerror}") from error
