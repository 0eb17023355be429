"""The state of the pool, and the order of its changes."""

import datetime as dt
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import msgspec

from devcluster.cloudpool import errors
from devcluster.cloudpool.agenda import Agenda
from devcluster.cloudpool.fetcher import CLOUD_DOWN, Fetcher
from devcluster.cloudpool.machines import PoolMachine
from devcluster.cloudpool.settings import CloudpoolSettings, PoolDocument, encode
from devcluster.cloudpool.store import Store
from devcluster.cloudpool.updater import Updater
from rescheduler.clock import Clock
from rescheduler.net.config_files import shaped

_UNKNOWN = "the cloud has no such instance"
_TURN_SECONDS: Final = 0.01  #: poll interval while another change of a machine is in progress


@dataclass(frozen=True, slots=True)
class Termination:
    """A termination of a machine, and the pods on its Node at that time."""

    machine: str  #: the name of the Node
    at: dt.datetime
    by_resize: bool  #: the pool selected the machine; false if a request named it
    pods: tuple[str, ...]


class PoolState:
    """The stored machines, their due work, and the lock. Every access first executes the work that is due."""

    def __init__(self, settings: CloudpoolSettings, clock: Clock) -> None:
        self.settings, self._clock = settings, clock
        self._store = Store(settings.database)
        self._lock = threading.RLock()
        self._agenda = Agenda()
        self._fetcher = Fetcher(settings, self._store, self._agenda)
        interval = dt.timedelta(seconds=settings.pool_update)
        end = self._end_by_resize
        self._updater = Updater(self._store, self._fetcher, self._agenda, interval, self._document, end)
        self.failing_terminations = 0  #: number of requests that fail in the driver after terminating the machine
        self.pods_on: Callable[[str], Sequence[str]] = lambda _: ()  #: returns the pods on a Node, for `terminations`
        self.terminations: list[Termination] = []
        now = clock.now()
        self._set_up(now)
        if self._started():
            self._start(now)

    def _set_up(self, now: dt.datetime) -> None:
        """Create the initial machines, as already running, at the first start."""
        pool = self.settings.pool
        if pool is None or self._store.get("config", dict[str, Any]) is not None:
            return
        self._store.set("config", msgspec.to_builtins(pool, enc_hook=encode))
        if self.settings.started:
            self._store.set("started", value=True)
            self._updater.desired = self.settings.desired_size
            self._updater.launch(self.settings.desired_size or 0, now)

    def close(self) -> None:
        self._store.close()

    @property
    def cloud_down(self) -> bool:
        return self._fetcher.cloud_down

    @cloud_down.setter
    def cloud_down(self, down: bool) -> None:
        with self._now():
            self._fetcher.cloud_down = down

    @contextmanager
    def _now(self) -> Iterator[dt.datetime]:
        with self._lock:
            now = self._clock.now()
            self._agenda.advance(now)
            yield now

    @contextmanager
    def _running(self) -> Iterator[dt.datetime]:
        with self._now() as now:
            if not self._started():
                raise errors.NotStarted
            yield now

    @contextmanager
    def _exclusively(self) -> Iterator[dt.datetime]:
        with self._running():
            pass
        self._take_turn()
        try:
            with self._now() as now:
                yield now
        finally:
            with self._now() as now:
                self._updater.free(now)

    def _take_turn(self) -> None:
        never = threading.Event()
        while True:
            with self._now() as now:
                if not self._updater.locked:
                    self._updater.locked = True
                    return
                due = self._agenda.next()
            remaining = _TURN_SECONDS if due is None else (due - now).total_seconds()
            self._clock.wait(min(max(remaining, 0.0), _TURN_SECONDS), never)

    def _started(self) -> bool:
        return bool(self._store.get("started", bool))

    def _start(self, now: dt.datetime) -> None:
        self._fetcher.start(now)
        self._updater.start(now)

    def _document(self) -> PoolDocument | None:
        config = self._store.get("config", dict[str, Any])
        return None if config is None else shaped(config, PoolDocument, f"database {Path(self.settings.database)}")

    def _reach_cloud(self) -> None:
        if self.cloud_down:
            raise errors.CloudError("failed to talk to the cloud", CLOUD_DOWN)

    def _known(self, machine: str, now: dt.datetime) -> PoolMachine:
        """Return the machine with that id, in any state."""
        matches = [
            candidate
            for candidate in self._store.machines()
            if machine in {candidate.id(now), candidate.id(candidate.requested_at)}
        ]
        if not matches:
            raise errors.CloudError(f"failed to find {machine}", _UNKNOWN)
        return matches[0]

    def _member(self, machine: str, now: dt.datetime) -> PoolMachine:
        """Return the member that the cloud lists now; the driver does not use the cached view."""
        for candidate in self._store.machines():
            if (
                candidate.member
                and candidate.allocated(now)
                and machine in {candidate.id(now), candidate.id(candidate.requested_at)}
            ):
                return candidate
        raise errors.ResourceNotFound(f"machine {machine} is not a member of the pool")

    def _end(self, machine: PoolMachine, now: dt.datetime, *, by_resize: bool) -> None:
        if machine.ending_at is not None:
            if self.settings.second_termination == "error":
                raise errors.CloudError(f"failed to terminate {machine.id(now)}", _UNKNOWN)
            return
        pods = tuple(self.pods_on(machine.name)) if machine.joined else ()
        self._store.save(msgspec.structs.replace(machine, ending_at=now))
        self.terminations.append(Termination(machine.name, now, by_resize, pods))

    def _end_by_resize(self, machine: str, now: dt.datetime) -> None:
        """Terminate the machine unless it is already terminating; a later update retries failures."""
        known = self._known(machine, now)
        if known.ending_at is None:
            self._end(known, now, by_resize=True)
