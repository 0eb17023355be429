"""The pool's desired size, and the background updates that converge to it."""

import datetime as dt
from collections.abc import Callable, Iterable
from functools import partial

from devcluster.cloudpool.agenda import Agenda
from devcluster.cloudpool.fetcher import Fetcher, View, active, allocated
from devcluster.cloudpool.machines import PoolMachine
from devcluster.cloudpool.settings import PoolDocument
from devcluster.cloudpool.store import Store


class Updater:
    """Updates of the pool, which exclude changes of single machines and vice versa (`locked`).

    An update refreshes the cached view and then acts on it. Machines that it launches are missing from the view until
    the next refresh. Stopping the pool resets the desired size; when it is next needed, it is set to the number of
    active machines. Reading and setting the size never block. Not thread-safe.
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
        """Create the updater. *end* terminates the machine with the given id; *document* returns the configuration."""
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
        """Return the desired size; initialize it with the number of active machines in the cached view."""
        if self.desired is None:
            self.desired = _active(self._fetcher.get(now))
        return self.desired

    def set_size(self, desired: int, now: dt.datetime) -> None:
        """Set the desired size and schedule an update, which runs when the lock is free."""
        self.desired = desired
        self._agenda.enter(now, self._update)

    def free(self, now: dt.datetime) -> None:
        """Release the lock and schedule an update that waits for it."""
        self.locked = False
        if self._waiting:
            self._waiting = False
            self._agenda.enter(now, self._update)

    def launch(self, machines: int, now: dt.datetime) -> None:
        document = self._document()
        if document is None:
            return
        for _ in range(machines):
            allocated_machines = sum(machine.allocated(now) for machine in self._store.machines())
            number, rejected = self._store.next_number(), allocated_machines >= document.quota
            self._store.save(PoolMachine(number=number, pool=document, requested_at=now, rejected=rejected))

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
        """Launch missing machines and terminate excess and disposable ones, but never protected ones."""
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
    """Return the machines to terminate: requested ones first, then by policy; and all disposable machines."""
    evictable = [machine for machine in view["machines"] if machine["membershipStatus"]["evictable"]]
    requested = [machine["id"] for machine in evictable if active(machine) and machine["machineState"] == "REQUESTED"]
    others = (machine for machine in evictable if active(machine) and machine["machineState"] != "REQUESTED")
    chosen = [*requested, *_by_policy(others, document)][: max(0, excess)]
    disposable = [machine["id"] for machine in evictable if allocated(machine) and not active(machine)]
    return chosen + disposable


def _by_policy(machines: Iterable[View], document: PoolDocument) -> list[str]:
    """Return the machine ids in the order of the policy: by launch time, then by id."""
    newest = document.victim_selection_policy == "NEWEST"
    return [
        machine["id"]
        for machine in sorted(machines, key=lambda machine: (machine["launchTime"], machine["id"]), reverse=newest)
    ]
