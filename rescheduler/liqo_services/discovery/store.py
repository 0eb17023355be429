"""The database of clusters in SQLite. It has one row per cluster and source, so that no source overwrites another.

An agent's description takes precedence over a Secret's. It expires, whereas a Secret's is valid for as long as the
Secret exists.
"""

import datetime as dt
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

import msgspec

from rescheduler.errors import InputError
from rescheduler.liqo_services.database import Database, decoded
from rescheduler.liqo_services.discovery.messages import Description, Listed

SECRET: Final = "secret"  # noqa: S105 - a kind of source
AGENT: Final = "agent"
SOURCES: Final = (AGENT, SECRET)  #: all sources in order of precedence

_VERSION: Final = 1
_TABLE: Final = """
CREATE TABLE clusters (
    name TEXT NOT NULL,
    source TEXT NOT NULL,
    said TEXT NOT NULL,
    last_seen REAL NOT NULL,
    expires REAL,
    PRIMARY KEY (name, source)
) WITHOUT ROWID
"""
_UPSERT: Final = """
INSERT INTO clusters (name, source, said, last_seen, expires) VALUES (?, ?, ?, ?, ?)
ON CONFLICT (name, source) DO UPDATE
SET said = excluded.said, last_seen = excluded.last_seen, expires = excluded.expires
"""


@dataclass(frozen=True, slots=True)
class DatedDescription:
    """A source's description of a cluster, and when it expires (`None`: never)."""

    description: Description
    expires: dt.datetime | None = None


class ClusterStore:
    """The database. Thread-safe. Changes are on disk before a call returns."""

    def __init__(self, path: str) -> None:
        """Open the database. Raises UsageError if *path* cannot be written, and InputError for another kind of file."""
        self._database = Database(
            path, [_TABLE], _VERSION, failure=lambda error: InputError(f"--database {path}: {error}")
        )

    def close(self) -> None:
        self._database.close()

    def clusters(self, now: dt.datetime) -> Sequence[Listed]:
        """Return all clusters with a valid description, by name."""
        query = "SELECT name, source, said, last_seen FROM clusters WHERE expires IS NULL OR expires > ? ORDER BY name"
        with self._database.transaction() as connection:
            rows = connection.execute(query, (now.timestamp(),)).fetchall()
        rows_by_cluster: dict[str, dict[str, tuple[str, float]]] = {}
        for name, source, text, last_seen in rows:
            rows_by_cluster.setdefault(name, {})[source] = (text, last_seen)
        return [_listed(name, by_source) for name, by_source in rows_by_cluster.items()]

    def description(self, source: str, name: str, now: dt.datetime) -> Description:
        """Return the description from *source*; an empty description if there is none."""
        query = "SELECT said FROM clusters WHERE source = ? AND name = ? AND (expires IS NULL OR expires > ?)"
        with self._database.transaction() as connection:
            row = connection.execute(query, (source, name, now.timestamp())).fetchone()
        return _decoded(row[0]) if row else Description()

    def change(
        self, source: str, descriptions: Mapping[str, DatedDescription], gone: Collection[str], now: dt.datetime
    ) -> int:
        """Store *descriptions* and delete *gone* in one transaction; return how many of *gone* existed."""
        rows = [
            (
                name,
                source,
                _encoded(dated.description),
                now.timestamp(),
                dated.expires.timestamp() if dated.expires else None,
            )
            for name, dated in descriptions.items()
        ]
        with self._database.transaction() as connection:
            connection.executemany(_UPSERT, rows)
            query = "DELETE FROM clusters WHERE source = ? AND name = ?"
            return sum(connection.execute(query, (source, name)).rowcount for name in gone)

    def replace(self, source: str, descriptions: Mapping[str, DatedDescription], now: dt.datetime) -> None:
        """Store *descriptions* as all descriptions of *source*, and delete its other descriptions."""
        with self._database.transaction() as connection:
            known = connection.execute("SELECT name FROM clusters WHERE source = ?", (source,)).fetchall()
        self.change(source, descriptions, {name for (name,) in known} - descriptions.keys(), now)

    def expire(self, now: dt.datetime) -> Sequence[str]:
        """Delete the expired descriptions and return their clusters."""
        past = (now.timestamp(),)
        with self._database.transaction() as connection:
            expired = connection.execute("SELECT name FROM clusters WHERE expires <= ? ORDER BY name", past).fetchall()
            connection.execute("DELETE FROM clusters WHERE expires <= ?", past)
        return [name for (name,) in expired]


def _listed(name: str, rows: Mapping[str, tuple[str, float]]) -> Listed:
    description = Description()
    for source in reversed(SOURCES):
        if source in rows:
            description = _decoded(rows[source][0]).over(description)
    return Listed(
        name=name,
        kubeconfig=description.kubeconfig or "",
        resources=description.resources or {},
        labels=description.labels or {},
        has_nat=bool(description.has_nat),
        price=description.price,
        free=description.free,
        last_seen=dt.datetime.fromtimestamp(max(seen for _, seen in rows.values()), dt.UTC),
    )


def _encoded(description: Description) -> str:
    return msgspec.json.encode(description).decode()


def _decoded(text: str) -> Description:
    return decoded(text, Description)
