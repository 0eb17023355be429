"""The routes of discovery: ``GET /list`` for whoever makes virtual nodes, ``POST /update`` for clusters' agents."""

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
from rescheduler.liqo import answers
from rescheduler.liqo.connection import peer
from rescheduler.liqo.discovery import checks
from rescheduler.liqo.discovery.messages import ClusterUpdate, Said, Update, Updated
from rescheduler.liqo.discovery.store import AGENT, Store, Word

_MOST: Final = 1000  #: clusters in one update

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Access:
    """Names of client certificates. Who lists sees kubeconfigs; empty: every certificate of the authority may."""

    readers: frozenset[str] = frozenset()
    #: May speak of every cluster; all others of the one whose ID their certificate bears.
    updaters: frozenset[str] = frozenset()

    def check_reader(self, names: frozenset[str]) -> None:
        """Raises Forbidden."""
        if self.readers and not self.readers & names:
            raise Forbidden(f"{_shown(names)} may not list clusters")

    def check_updater(self, names: frozenset[str], cluster: str) -> None:
        """Raises Forbidden."""
        if self.updaters and not self.updaters & names and cluster not in names:
            raise Forbidden(f"{_shown(names)} may not update cluster {cluster}")


class Updates:
    """What agents say, taken into the store."""

    def __init__(self, store: Store, clock: Clock, expire_after: dt.timedelta) -> None:
        self._store, self._clock, self._expire_after = store, clock, expire_after
        self._lock = threading.Lock()

    def take(self, update: Update) -> Updated:
        """Raises UsageError that names the cluster, the key and what was expected there."""
        names = [one.name for one in update.clusters] + list(update.deleted)
        for name in names:
            checks.cluster_id(name)
        if len(set(names)) < len(names) or len(names) > _MOST:
            raise UsageError(f"clusters, deleted: expected each cluster once, and at most {_MOST}")
        with self._lock:
            now = self._clock.now()
            words = {one.name: self._word(one, now) for one in update.clusters}
            deleted = self._store.change(AGENT, words, update.deleted, now)
        return Updated(len(words), deleted)

    def _word(self, update: ClusterUpdate, now: dt.datetime) -> Word:
        if update.ttl is not None and update.ttl <= 0:
            raise UsageError(f"cluster {update.name}: ttl: expected more than 0s")
        lasting = self._expire_after if update.ttl is None else dt.timedelta(seconds=update.ttl)
        try:
            told = _told(update)
        except UsageError as error:
            raise UsageError(f"cluster {update.name}: {error}") from error
        before = self._store.said(AGENT, update.name, now)
        return Word(msgspec.structs.replace(before, **told), now + lasting)


def _told(update: ClusterUpdate) -> Mapping[str, Any]:
    """The checked values of the keys that are there."""
    rules: Mapping[str, Any] = {
        "kubeconfig": checks.kubeconfig,
        "resources": lambda found: checks.quantities(found, "resources"),
        "labels": checks.labels,
        "has_nat": bool,
        "price": checks.price,
        "free": lambda found: checks.quantities(found, "free"),
    }
    given = {name: getattr(update, name) for name in Said.__struct_fields__}
    return {
        name: None if value is None else rules[name](value)
        for name, value in given.items()
        if value is not msgspec.UNSET
    }


def discovery(store: Store, updates: Updates, access: Access, clock: Clock) -> Starlette:
    def listed(request: Request) -> Response:
        access.check_reader(peer(request))
        found = answers.answer(store.clusters(clock.now()))
        found.headers["cache-control"] = "no-store"
        return found

    def take(names: frozenset[str], body: bytes) -> Updated:
        update = answers.body(body, Update)
        for cluster in (*(one.name for one in update.clusters), *update.deleted):
            access.check_updater(names, cluster)
        updated = updates.take(update)
        log.debug("%s: updated %d, deleted %d", _shown(names), updated.updated, updated.deleted)
        return updated

    async def update(request: Request) -> Response:
        return answers.answer(await run_in_threadpool(take, peer(request), await request.body()))

    return answers.application([Route("/list", listed, methods=["GET"]), Route("/update", update, methods=["POST"])])


def _shown(names: frozenset[str]) -> str:
    return ", ".join(sorted(names)) or "a client without a certificate"
