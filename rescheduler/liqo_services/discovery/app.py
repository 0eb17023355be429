"""The routes of discovery: ``GET /list`` for node managers, ``POST /update`` for the clusters' agents."""

import datetime as dt
import logging
import threading
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

import msgspec
from starlette.applications import Starlette
from starlette.concurrency import run_in_threadpool
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from rescheduler.clock import Clock
from rescheduler.errors import Forbidden, UsageError
from rescheduler.liqo_services import answers
from rescheduler.liqo_services.connection import client_names
from rescheduler.liqo_services.discovery import checks
from rescheduler.liqo_services.discovery.messages import ClusterUpdate, Description, Updated, UpdateRequest
from rescheduler.liqo_services.discovery.store import AGENT, ClusterStore, DatedDescription

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
            checks.cluster_id(name)
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
        "kubeconfig": checks.kubeconfig,
        "resources": lambda resources: checks.quantities(resources, "resources"),
        "labels": checks.labels,
        "has_nat": bool,
        "price": checks.price,
        "free": lambda free: checks.quantities(free, "free"),
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
        response = answers.json_response(store.clusters(clock.now()))
        response.headers["cache-control"] = "no-store"
        return response

    def apply(names: frozenset[str], body: bytes) -> Updated:
        update = answers.body(body, UpdateRequest)
        for name in (*(cluster.name for cluster in update.clusters), *update.deleted):
            access.check_updater(names, name)
        updated = updates.apply(update)
        log.debug("%s: updated %d, deleted %d", _client_text(names), updated.updated, updated.deleted)
        return updated

    async def update(request: Request) -> Response:
        return answers.json_response(await run_in_threadpool(apply, client_names(request), await request.body()))

    return answers.application([Route("/list", listed, methods=["GET"]), Route("/update", update, methods=["POST"])])


def _client_text(names: frozenset[str]) -> str:
    return ", ".join(sorted(names)) or "a client without a certificate"
