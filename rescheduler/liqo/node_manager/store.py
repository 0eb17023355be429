"""The node manager's database, an SQLite file: reservations, failures of clusters, our peerings and stored groups.

Every change is on disk before it is reported. What can be read from the cluster is not stored, except for the names of
deleted machines, so that a repeated deletion returns "gone" and not "unknown".
"""

import datetime as dt
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final

import msgspec

from rescheduler.errors import Retryable
from rescheduler.liqo.database import Database, decoded
from rescheduler.liqo.node_manager.groups import VirtualNodeGroup
from rescheduler.liqo.node_manager.machines import MachineRecord

#: How long the name of a deleted machine is stored.
REMEMBERED: Final = dt.timedelta(days=7)

_VERSION: Final = 1
_TABLES: Final = (
    "CREATE TABLE machines (name TEXT PRIMARY KEY, removed INTEGER NOT NULL, record BLOB NOT NULL)",
    "CREATE TABLE clusters (name TEXT PRIMARY KEY, failures INTEGER NOT NULL, failed_at TEXT NOT NULL)",
    "CREATE TABLE peerings (cluster TEXT PRIMARY KEY)",
    "CREATE TABLE groups (id TEXT PRIMARY KEY, definition BLOB NOT NULL)",
)


@dataclass(frozen=True, slots=True)
class Failures:
    """The consecutive failures of a cluster."""

    count: int
    last: dt.datetime


class NodeManagerStore:
    """The database. Thread-safe; verbs raise Retryable if the file cannot be used."""

    def __init__(self, path: str) -> None:
        """Open the database. Raises UsageError or InputError if *path* is unusable."""
        # A full or missing disk may become available again.
        self._database = Database(path, _TABLES, _VERSION, failure=lambda error: Retryable(f"database: {error}"))

    def close(self) -> None:
        self._database.close()

    def records(self) -> Sequence[MachineRecord]:
        """Return the records of machines that are not known to be gone."""
        rows = self._rows("SELECT record FROM machines WHERE NOT removed")
        return [decoded(row[0], MachineRecord) for row in rows]

    def record(self, name: str) -> MachineRecord | None:
        rows = self._rows("SELECT record FROM machines WHERE name = ?", name)
        return decoded(rows[0][0], MachineRecord) if rows else None

    def save(self, *records: MachineRecord) -> None:
        """Store all records or none."""
        values = [(record.name, record.removed_at is not None, msgspec.json.encode(record)) for record in records]
        with self._database.transaction() as database:
            database.executemany("INSERT OR REPLACE INTO machines VALUES (?, ?, ?)", values)

    def forget(self, now: dt.datetime) -> None:
        """Delete the records of machines that have been gone for a long time."""
        for row in self._rows("SELECT record FROM machines WHERE removed"):
            record = decoded(row[0], MachineRecord)
            if record.removed_at is not None and record.removed_at < now - REMEMBERED:
                self._rows("DELETE FROM machines WHERE name = ?", record.name)

    def failures(self) -> dict[str, Failures]:
        rows = self._rows("SELECT name, failures, failed_at FROM clusters")
        return {name: Failures(count, dt.datetime.fromisoformat(at)) for name, count, at in rows}

    def failed(self, cluster: str, now: dt.datetime) -> None:
        self._rows(
            "INSERT INTO clusters VALUES (?, 1, ?) ON CONFLICT (name) "
            "DO UPDATE SET failures = failures + 1, failed_at = excluded.failed_at",
            cluster,
            now.isoformat(),
        )

    def succeeded(self, cluster: str) -> None:
        self._rows("DELETE FROM clusters WHERE name = ?", cluster)

    def peerings(self) -> Sequence[str]:
        """Return the clusters with which we have established the peering."""
        return [row[0] for row in self._rows("SELECT cluster FROM peerings ORDER BY cluster")]

    def peered(self, cluster: str) -> None:
        self._rows("INSERT OR IGNORE INTO peerings VALUES (?)", cluster)

    def unpeered(self, cluster: str) -> None:
        self._rows("DELETE FROM peerings WHERE cluster = ?", cluster)

    def groups(self) -> Sequence[VirtualNodeGroup]:
        rows = self._rows("SELECT definition FROM groups ORDER BY id")
        return [decoded(row[0], VirtualNodeGroup) for row in rows]

    def save_group(self, group: VirtualNodeGroup) -> None:
        self._rows("INSERT INTO groups VALUES (?, ?)", group.id, msgspec.json.encode(group))

    def delete_group(self, name: str) -> None:
        self._rows("DELETE FROM groups WHERE id = ?", name)

    def _rows(self, statement: str, *values: Any) -> list[tuple[Any, ...]]:
        with self._database.transaction() as database:
            return database.execute(statement, values).fetchall()
