"""The routes of discovery, ``GET /list`` for node managers and ``POST /update`` for the clusters' agents, and
its database.
"""

import datetime as dt
import logging
import threading
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

import msgspec
from starlette.applications import Starlette
from starlette.concurrency import run_in_threadpool
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from rescheduler.clock import Clock
from rescheduler.errors import Forbidden, InputError, UsageError
from rescheduler.liqo import serving
from rescheduler.liqo.database import Database, decoded
from rescheduler.liqo.discovery import messages
from rescheduler.liqo.discovery.messages import ClusterUpdate, Description, Listed, Updated, UpdateRequest
from rescheduler.liqo.serving import client_names

# The database of clusters in SQLite. It has one row per cluster and source, so that no source overwrites another.
#
# An agent's description takes precedence over a Secret's. It expires, whereas a Secret's is valid for as long as the
# Secret exists.

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


_MOST: Final = 1000  #: maximum number of clusters in one update

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class ClientAccess:
    """Access by the names in client certificates. Readers see kubeconfigs; empty: every client of the CA may read."""

    readers: frozenset[str] = frozenset()
    #: Names that may update every cluster; other clients may only update the cluster whose ID is in their certificate.
    updaters: frozenset[str] = frozenset()

    def check_reader(self, names: frozenset[str]) -> None:
        """Raise Forbidden if the client may not list clusters."""
        if self.readers and not self.readers & names:
            raise Forbidden(f"{_client_text(names)} may not list clusters")

    def check_updater(self, names: frozenset[str], cluster: str) -> None:
        """Raise Forbidden if the client may not update *cluster*."""
        if self.updaters and not self.updaters & names and cluster not in names:
            raise Forbidden(f"{_client_text(names)} may not update cluster {cluster}")


class AgentUpdates:
    """Validates the updates of agents and writes them to the store."""

    def __init__(self, store: ClusterStore, clock: Clock, expire_after: dt.timedelta) -> None:
        self._store, self._clock, self._expire_after = store, clock, expire_after
        self._lock = threading.Lock()

    def apply(self, update: UpdateRequest) -> Updated:
        """Apply an update. Raises UsageError that names the cluster, the key and the expected value."""
        names = [cluster.name for cluster in update.clusters] + list(update.deleted)
        for name in names:
            messages.cluster_id(name)
        if len(set(names)) < len(names) or len(names) > _MOST:
            raise UsageError(f"clusters, deleted: expected each cluster once, and at most {_MOST}")
        with self._lock:
            now = self._clock.now()
            descriptions = {cluster.name: self._dated_description(cluster, now) for cluster in update.clusters}
            deleted = self._store.change(AGENT, descriptions, update.deleted, now)
        return Updated(len(descriptions), deleted)

    def _dated_description(self, update: ClusterUpdate, now: dt.datetime) -> DatedDescription:
        if update.ttl is not None and update.ttl <= 0:
            raise UsageError(f"cluster {update.name}: ttl: expected more than 0s")
        validity = self._expire_after if update.ttl is None else dt.timedelta(seconds=update.ttl)
        try:
            values = _validated(update)
        except UsageError as error:
            raise UsageError(f"cluster {update.name}: {error}") from error
        before = self._store.description(AGENT, update.name, now)
        return DatedDescription(msgspec.structs.replace(before, **values), now + validity)


def _validated(update: ClusterUpdate) -> Mapping[str, Any]:
    """Return the validated values of the keys that are present."""
    rules: Mapping[str, Any] = {
        "kubeconfig": messages.kubeconfig,
        "resources": lambda resources: messages.quantities(resources, "resources"),
        "labels": messages.labels,
        "has_nat": bool,
        "price": messages.price,
        "free": lambda free: messages.quantities(free, "free"),
    }
    given = {name: getattr(update, name) for name in Description.__struct_fields__}
    return {
        name: None if value is None else rules[name](value)
        for name, value in given.items()
        if value is not msgspec.UNSET
    }


def discovery(store: ClusterStore, updates: AgentUpdates, access: ClientAccess, clock: Clock) -> Starlette:
    def listed(request: Request) -> Response:
        access.check_reader(client_names(request))
        response = serving.json_response(store.clusters(clock.now()))
        response.headers["cache-control"] = "no-store"
        return response

    def apply(names: frozenset[str], body: bytes) -> Updated:
        update = serving.body(body, UpdateRequest)
        for name in (*(cluster.name for cluster in update.clusters), *update.deleted):
            access.check_updater(names, name)
        updated = updates.apply(update)
        log.debug("%s: updated %d, deleted %d", _client_text(names), updated.updated, updated.deleted)
        return updated

    async def update(request: Request) -> Response:
        return serving.json_response(await run_in_threadpool(apply, client_names(request), await request.body()))

    return serving.application([Route("/list", listed, methods=["GET"]), Route("/update", update, methods=["POST"])])


def _client_text(names: frozenset[str]) -> str:
    return ", ".join(sorted(names)) or "a client without a certificate"
