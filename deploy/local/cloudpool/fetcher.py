"""The pool's cached view of its machines, as GET /pool and all membership checks see it."""

import datetime as dt
from collections.abc import Mapping
from typing import Any

from deploy.local.cloudpool import errors
from deploy.local.cloudpool.agenda import Agenda
from deploy.local.cloudpool.machines import timestamp
from deploy.local.cloudpool.settings import Settings
from deploy.local.cloudpool.store import Store

View = dict[str, Any]
CLOUD_DOWN = "the cloud's API cannot be reached"


class Fetcher:
    """Lists the machines every refresh interval, and when an update asks for it. No request makes it list.

    A listing takes `list_delay`, and its timestamp is taken at its end: what changed in between is missing in a view
    that seems to be younger. For one thread at a time.
    """

    def __init__(self, settings: Settings, store: Store, agenda: Agenda) -> None:
        self._settings, self._store, self._agenda = settings, store, agenda
        self._interval = dt.timedelta(seconds=settings.refresh_interval)
        self.list_delay = dt.timedelta(seconds=settings.list_delay)
        self.cloud_down = False

    def start(self, now: dt.datetime) -> None:
        """The first listing is waited for, and may fail."""
        self.keep(self.listed(now), now)
        if self._interval:
            self._agenda.enter(now + self._interval, self._refresh)

    def get(self, now: dt.datetime) -> View:
        """The cached view; a cloud that is down is covered up for `reachability_timeout`."""
        if not self._interval:
            self.keep(self.listed(now), now)
        cached = self._store.get("cache", View)
        if cached is None:
            raise errors.CloudError("the pool cannot be reached", CLOUD_DOWN)
        age = now - dt.datetime.fromisoformat(cached["timestamp"])
        if age.total_seconds() >= self._settings.reachability_timeout > 0:
            raise errors.CloudError("the pool cannot be reached", CLOUD_DOWN)
        return cached

    def listed(self, now: dt.datetime) -> View | None:
        """What the cloud lists now, `None` where it is down; not in the cache yet."""
        if self.cloud_down:
            return None
        return {"machines": [one.document(now) for one in self._store.machines() if one.member and one.listed(now)]}

    def keep(self, listed: View | None, now: dt.datetime) -> None:
        """The listing has ended."""
        if listed is not None:
            self._store.set("cache", {"timestamp": timestamp(now), **listed})

    def _refresh(self, at: dt.datetime) -> None:
        """Of many that are due while nothing else happens, the last one counts."""
        at += self._interval * max(0, (self._agenda.horizon - at) // self._interval)
        listed, end = self.listed(at), at + self.list_delay
        self._agenda.enter(end, lambda now: self.keep(listed, now))
        self._agenda.enter(end + self._interval, self._refresh)


def allocated(machine: Mapping[str, Any]) -> bool:
    return machine["machineState"] in {"REQUESTED", "PENDING", "RUNNING"}


def active(machine: Mapping[str, Any]) -> bool:
    return allocated(machine) and bool(machine["membershipStatus"]["active"])
