"""The pool's state in SQLite; every change is stored before the response is sent."""

import functools
import sqlite3
from collections.abc import Sequence
from typing import TypeVar

import msgspec

from devcluster.cloudpool.machines import PoolMachine
from devcluster.cloudpool.settings import encode
from rescheduler import decoding
from rescheduler.net.config_files import decode

T = TypeVar("T")


class Store:
    """Machines by number, and single values by name. Not thread-safe; the pool serializes access."""

    def __init__(self, database: str) -> None:
        self._connection = sqlite3.connect(database, check_same_thread=False, isolation_level=None)
        self._connection.execute("PRAGMA journal_mode = WAL")
        self._connection.execute(
            "CREATE TABLE IF NOT EXISTS machines (number INTEGER PRIMARY KEY, machine BLOB NOT NULL)"
        )
        self._connection.execute("CREATE TABLE IF NOT EXISTS facts (name TEXT PRIMARY KEY, fact BLOB NOT NULL)")

    def close(self) -> None:
        self._connection.close()

    def machines(self) -> Sequence[PoolMachine]:
        rows = self._connection.execute("SELECT machine FROM machines ORDER BY number")
        return [_decoded(row[0]) for row in rows]

    def save(self, machine: PoolMachine) -> None:
        statement = "INSERT OR REPLACE INTO machines VALUES (?, ?)"
        self._connection.execute(statement, (machine.number, msgspec.json.encode(machine, enc_hook=encode)))

    def next_number(self) -> int:
        """Return a new number. Numbers are never reused, so ids and addresses derived from them are unique."""
        number: int = self._connection.execute("SELECT coalesce(max(number), 0) + 1 FROM machines").fetchone()[0]
        return number

    def get(self, name: str, shape: type[T]) -> T | None:
        row = self._connection.execute("SELECT fact FROM facts WHERE name = ?", (name,)).fetchone()
        return None if row is None else decoding.decode(row[0], shape)

    def set(self, name: str, value: object) -> None:
        self._connection.execute("INSERT OR REPLACE INTO facts VALUES (?, ?)", (name, msgspec.json.encode(value)))


@functools.lru_cache(maxsize=4096)
def _decoded(machine: bytes) -> PoolMachine:
    """Decode a machine. The cache pays off because few machines change between two calls."""
    return decoding.decode(machine, PoolMachine, dec_hook=decode)
