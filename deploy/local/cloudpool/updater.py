"""The pool's desired size, and the updates in the background that work towards it."""

import datetime as dt
from collections.abc import Callable, Iterable
from functools import partial

from deploy.local.cloudpool.agenda import Agenda
from deploy.local.cloudpool.fetcher import Fetcher, View, active, allocated
from deploy.local.cloudpool.machines import Machine
from deploy.local.cloudpool.settings import PoolDocument
from deploy.local.cloudpool.store import Store


class Updater:
    """Updates and changes of single machines exclude each other (`locked`); reading and setting the size do not wait.

    An update refreshes the cached view and then acts on it: machines that it launches are missing in the view until
    the next refresh. The desired size is lost when the pool is stopped, and is then the number of active machines at
    its first need. For one thread at a time.
    """

    def __init__(
        self,
        store: Store,
        fetcher: Fetcher,
        agenda: Agenda,
        interval: dt.timedelta,
        document: Callable[[], PoolDocument | None],
        end: Callable[[str, dt.datetime], None],
    ) -> None:
        """*end* terminates a machine of that id; *document* is the configuration."""
        self._store, self._fetcher, self._agenda = store, fetcher, agenda
        self._interval, self._document, self._end = interval, document, end
        self.desired: int | None = None
        self.locked = False
        self._waiting = False  # an update waits for the lock

    def start(self, now: dt.datetime) -> None:
        self._agenda.enter(now + self._interval, self._periodically)

    def stop(self) -> None:
        self.desired, self.locked, self._waiting = None, False, False
        self._agenda.clear()

    def size(self, now: dt.datetime) -> int:
        """The desired size; at its first need, the number of active machines in the cached view."""
        if self.desired is None:
            self.desired = _active(self._fetcher.get(now))
        return self.desired

    def set_size(self, desired: int, now: dt.datetime) -> None:
        """Answered at once; an update follows as soon as the lock is free."""
        self.desired = desired
        self._agenda.enter(now, self._update)

    def free(self, now: dt.datetime) -> None:
        """The lock is free again."""
        self.locked = False
        if self._waiting:
            self._waiting = False
            self._agenda.enter(now, self._update)

    def launch(self, machines: int, now: dt.datetime) -> None:
        document = self._document()
        if document is None:
            return
        for _ in range(machines):
            there = sum(one.allocated(now) for one in self._store.machines())
            number, rejected = self._store.next_number(), there >= document.quota
            self._store.save(Machine(number=number, pool=document, requested_at=now, rejected=rejected))

    def _periodically(self, at: dt.datetime) -> None:
        self._update(at, then=self._interval)

    def _update(self, at: dt.datetime, *, then: dt.timedelta | None = None) -> None:
        if self.locked:
            self._waiting = True
            if then is not None:
                self._agenda.enter(at + then, self._periodically)
            return
        self.locked = True
        listed = self._fetcher.listed(at)
        self._agenda.enter(at + self._fetcher.list_delay, partial(self._act, listed, then))

    def _act(self, listed: View | None, then: dt.timedelta | None, now: dt.datetime) -> None:
        """Launch what is missing, end what is too many; disposable machines go in any case, protected ones never."""
        document = self._document()
        if listed is None or document is None:
            self._updated(then, now)
            return
        self._fetcher.keep(listed, now)
        self.desired = _active(listed) if self.desired is None else self.desired
        missing = self.desired - _active(listed)
        self.launch(missing, now)
        launched = now + dt.timedelta(seconds=document.start_blocks if missing > 0 else 0)
        victims = _victims(listed, -missing, document)
        self._agenda.enter(launched, partial(self._shrink, victims, then, document))

    def _shrink(self, victims: list[str], then: dt.timedelta | None, document: PoolDocument, now: dt.datetime) -> None:
        for machine in victims:
            self._end(machine, now)
        blocked = dt.timedelta(seconds=document.end_blocks if victims else 0)
        self._agenda.enter(now + blocked, partial(self._updated, then))

    def _updated(self, then: dt.timedelta | None, now: dt.datetime) -> None:
        self.free(now)
        if then is not None:
            self._agenda.enter(now + then, self._periodically)


def _active(view: View) -> int:
    return sum(map(active, view["machines"]))


def _victims(view: View, excess: int, document: PoolDocument) -> list[str]:
    """Whom a resize ends: what is only requested, then by the policy; and all disposable machines."""
    evictable = [one for one in view["machines"] if one["membershipStatus"]["evictable"]]
    requested = [one["id"] for one in evictable if active(one) and one["machineState"] == "REQUESTED"]
    others = (one for one in evictable if active(one) and one["machineState"] != "REQUESTED")
    chosen = [*requested, *_by_policy(others, document)][: max(0, excess)]
    disposable = [one["id"] for one in evictable if allocated(one) and not active(one)]
    return chosen + disposable


def _by_policy(machines: Iterable[View], document: PoolDocument) -> list[str]:
    """By the time of the launch, then by the id."""
    newest = document.victim_selection_policy == "NEWEST"
    return [one["id"] for one in sorted(machines, key=lambda one: (one["launchTime"], one["id"]), reverse=newest)]
