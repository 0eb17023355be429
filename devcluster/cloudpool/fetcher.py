"""The pool's cached view of its machines, which GET /pool and all membership checks use."""

import datetime as dt
from collections.abc import Mapping
from typing import Any

from devcluster.cloudpool import errors
from devcluster.cloudpool.agenda import Agenda
from devcluster.cloudpool.machines import timestamp
from devcluster.cloudpool.settings import CloudpoolSettings
from devcluster.cloudpool.store import Store

View = dict[str, Any]
CLOUD_DOWN = "the cloud's API cannot be reached"


class Fetcher:
    """Lists the machines every refresh interval and before each pool update, but not for requests.

    A listing takes `list_delay`, and its timestamp is the time at its end. Changes during the listing are therefore
    missing from a view that has a later timestamp. Not thread-safe.
    """

    def __init__(self, settings: CloudpoolSettings, store: Store, agenda: Agenda) -> None:
        self._settings, self._store, self._agenda = settings, store, agenda
        self._interval = dt.timedelta(seconds=settings.refresh_interval)
        self.list_delay = dt.timedelta(seconds=settings.list_delay)
        self.cloud_down = False

    def start(self, now: dt.datetime) -> None:
        """Do the first listing and schedule the next one; the first listing may fail."""
        self.keep(self.listed(now), now)
        if self._interval:
            self._agenda.enter(now + self._interval, self._refresh)

    def get(self, now: dt.datetime) -> View:
        """Return the cached view. Raises CloudError if it is older than `reachability_timeout`."""
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
        """Return the machines that the cloud lists now, without caching them; `None` if the cloud is down."""
        if self.cloud_down:
            return None
        return {
            "machines": [
                machine.document(now) for machine in self._store.machines() if machine.member and machine.listed(now)
            ]
        }

    def keep(self, listed: View | None, now: dt.datetime) -> None:
        """Cache the result of a listing that ended at *now*."""
        if listed is not None:
            self._store.set("cache", {"timestamp": timestamp(now), **listed})

    def _refresh(self, at: dt.datetime) -> None:
        """List the machines; if several listings are due in sequence, do only the last one."""
        at += self._interval * max(0, (self._agenda.horizon - at) // self._interval)
        listed, end = self.listed(at), at + self.list_delay
        self._agenda.enter(end, lambda now: self.keep(listed, now))
        self._agenda.enter(end + self._interval, self._refresh)


def allocated(machine: Mapping[str, Any]) -> bool:
    return machine["machineState"] in {"REQUESTED", "PENDING", "RUNNING"}


def active(machine: Mapping[str, Any]) -> bool:
    return allocated(machine) and bool(machine["membershipStatus"]["active"])
