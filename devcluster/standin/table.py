"""Machines in SQLite; every change is stored before the response is sent."""

import sqlite3
from collections.abc import Sequence
from typing import Generic, TypeVar

import msgspec

from rescheduler import decoding

T = TypeVar("T", bound=msgspec.Struct)


class Table(Generic[T]):
    """Values by number. Not thread-safe; the owner serializes access."""

    def __init__(self, database: str, shape: type[T]) -> None:
        self._shape = shape
        self._connection = sqlite3.connect(database, check_same_thread=False, isolation_level=None)
        self._connection.execute("PRAGMA journal_mode = WAL")
        self._connection.execute("CREATE TABLE IF NOT EXISTS machines (number INTEGER PRIMARY KEY, machine BLOB)")

    def close(self) -> None:
        self._connection.close()

    def all(self) -> Sequence[T]:
        rows = self._connection.execute("SELECT machine FROM machines ORDER BY number")
        return [decoding.decode(row[0], self._shape) for row in rows]

    def get(self, number: int) -> T | None:
        row = self._connection.execute("SELECT machine FROM machines WHERE number = ?", (number,)).fetchone()
        return None if row is None else decoding.decode(row[0], self._shape)

    def save(self, number: int, machine: T) -> None:
        encoded = msgspec.json.encode(machine)
        self._connection.execute("INSERT OR REPLACE INTO machines VALUES (?, ?)", (number, encoded))

    def next_number(self, first: int) -> int:
        """Return a new number; numbers are never reused, because terminated machines stay in the table."""
        number: int = self._connection.execute(
            "SELECT max(coalesce(max(number), 0) + 1, ?) FROM machines", (first,)
        ).fetchone()[0]
        return number
