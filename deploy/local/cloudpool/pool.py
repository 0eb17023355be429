"""What the pool does, in the words of its API."""

import datetime as dt
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import msgspec

from deploy.local.cloudpool import errors
from deploy.local.cloudpool.agenda import Agenda
from deploy.local.cloudpool.fetcher import CLOUD_DOWN, Fetcher, active, allocated
from deploy.local.cloudpool.machines import Machine
from deploy.local.cloudpool.settings import PoolDocument, Settings, encode
from deploy.local.cloudpool.store import Store
from deploy.local.cloudpool.updater import Updater
from rescheduler.backends.base import ConfigError
from rescheduler.backends.config import shaped
from rescheduler.clock import Clock

SERVICE_STATES = {"BOOTING", "IN_SERVICE", "UNHEALTHY", "OUT_OF_SERVICE", "UNKNOWN"}
_UNKNOWN = "the cloud knows no such instance"
_TURN_SECONDS: Final = 0.01  #: between two looks whether another change of a machine has ended


@dataclass(frozen=True, slots=True)
class Termination:
    """A machine that the pool ended, and which pods its Node had at that moment."""

    machine: str  #: the name of its Node
    at: dt.datetime
    by_resize: bool  #: the pool chose it; else a request named it
    pods: tuple[str, ...]


class Pool:
    """One pool. Every call first lets happen what was due by now.

    Reading and setting the size never wait. Calls on single machines wait for updates and for each other.
    """

    def __init__(self, settings: Settings, clock: Clock) -> None:
        self.settings, self._clock = settings, clock
        self._store = Store(settings.database)
        self._lock = threading.RLock()
        self._agenda = Agenda()
        self._fetcher = Fetcher(settings, self._store, self._agenda)
        interval = dt.timedelta(seconds=settings.pool_update)
        end = self._end_by_resize
        self._updater = Updater(self._store, self._fetcher, self._agenda, interval, self._document, end)
        self.failing_terminations = 0  #: so many requests fail in the driver after the machine was ended
        self.pods_on: Callable[[str], Sequence[str]] = lambda _: ()  #: of a Node, for `terminations`
        self.terminations: list[Termination] = []
        now = clock.now()
        self._set_up(now)
        if self._started():
            self._start(now)

    def _set_up(self, now: dt.datetime) -> None:
        """The first start: a pool that has had its machines for a while."""
        pool = self.settings.pool
        if pool is None or self._store.get("config", dict[str, Any]) is not None:
            return
        self._store.set("config", msgspec.to_builtins(pool, enc_hook=encode))
        if self.settings.started:
            self._store.set("started", fact=True)
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

    # -- the pool as a whole

    def config(self) -> dict[str, Any]:
        with self._lock:
            found = self._store.get("config", dict[str, Any])
        if found is None:
            raise errors.NotFound("no configuration has been set")
        return found

    def set_config(self, document: object) -> None:
        """A pool that is started is stopped and started again, and so forgets its desired size."""
        if not isinstance(document, dict):
            raise errors.BadInput("the configuration is not a JSON object")
        try:
            shaped(document, PoolDocument, "configuration")
        except ConfigError as error:
            raise errors.BadInput("the configuration is not valid", str(error)) from error
        with self._now() as now:
            self._reach_cloud()
            self._updater.stop()
            self._store.set("config", document)
            if self._started():
                self._start(now)

    def start(self) -> None:
        with self._now() as now:
            if self._document() is None:
                raise errors.NotConfigured("attempt to start the cloud pool before it was configured")
            if not self._started():
                self._store.set("started", fact=True)
                self._start(now)

    def stop(self) -> None:
        with self._now():
            self._updater.stop()
            self._store.set("started", fact=False)

    def status(self) -> dict[str, bool]:
        with self._lock:
            return {"started": self._started(), "configured": self._document() is not None}

    def pool(self) -> dict[str, Any]:
        with self._running() as now:
            return self._fetcher.get(now)

    def size(self) -> dict[str, Any]:
        with self._running() as now:
            view = self._fetcher.get(now)
            return {
                "timestamp": view["timestamp"],
                "desiredSize": self._updater.size(now),
                "allocated": sum(map(allocated, view["machines"])),
                "active": sum(map(active, view["machines"])),
            }

    def set_size(self, desired: int) -> None:
        if desired < 0:
            raise errors.BadInput("negative desired pool size")
        with self._running() as now:
            self._updater.set_size(desired, now)
            self._agenda.advance(now)

    # -- single machines

    def terminate(self, machine: str, *, decrement: bool) -> None:
        with self._changing(machine) as ended:
            with self._now() as now:
                before = self._updater.size(now)
                self._reach_cloud()
                self._end(self._known(machine, now), now, by_resize=False)
                fails, self.failing_terminations = self.failing_terminations > 0, max(0, self.failing_terminations - 1)
            ended()
            if fails:
                raise errors.CloudError(f"failed to terminate {machine}", "the cloud's answer got lost")
            if decrement:
                self._decrement(before)

    def detach(self, machine: str, *, decrement: bool) -> None:
        with self._changing(machine):
            with self._now() as now:
                before = self._updater.size(now)
                self._reach_cloud()
                self._store.save(msgspec.structs.replace(self._known(machine, now), member=False))
            if decrement:
                self._decrement(before)

    def attach(self, machine: str) -> None:
        with self._exclusively() as now:
            self._reach_cloud()
            found = [one for one in self._store.machines() if one.id(now) == machine and one.allocated(now)]
            if not found or found[0].member:
                raise errors.NotFound(f"no machine {machine} outside of the pool")
            desired = self._updater.size(now)
            self._store.save(msgspec.structs.replace(found[0], member=True, active=True, evictable=True))
            self._updater.desired = desired + 1

    def set_service_state(self, machine: str, state: str) -> None:
        if state not in SERVICE_STATES:
            raise errors.PoolError("failed to set service state", f"no enum constant ServiceState.{state}")
        with self._running() as now:
            self._reach_cloud()
            self._store.save(msgspec.structs.replace(self._there(machine, now), service_state=state))

    def set_membership(self, machine: str, *, active: bool, evictable: bool) -> None:
        with self._running() as now:
            self._reach_cloud()
            self._store.save(msgspec.structs.replace(self._there(machine, now), active=active, evictable=evictable))

    # -- for whoever plays the cloud

    def advance(self) -> None:
        """Let happen what was due by now."""
        with self._now():
            pass

    def machines(self) -> list[Machine]:
        """All machines that there ever were, as they truly are."""
        with self._now():
            return list(self._store.machines())

    def save(self, machine: Machine, **changes: Any) -> None:
        with self._lock:
            current = next(one for one in self._store.machines() if one.number == machine.number)
            self._store.save(msgspec.structs.replace(current, **changes))

    # -- inside

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
    def _changing(self, machine: str) -> Iterator[Callable[[], None]]:
        """A change of a member that may be evicted, as the cached view shows it when the call comes.

        The yielded function waits as long as the cloud takes to end a machine.
        """
        with self._running() as now:
            listed = [one for one in self._fetcher.get(now)["machines"] if one["id"] == machine and allocated(one)]
            if not listed:
                raise errors.NotFound(f"machine {machine} is not a member of the pool")
            if not listed[0]["membershipStatus"]["evictable"]:
                raise errors.CloudError(f"machine {machine} is not evictable")
            self._updater.size(now)
        self._take_turn()
        try:
            yield self._wait_for_end
        finally:
            with self._now() as now:
                self._updater.free(now)
                self._agenda.advance(now)

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
            left = _TURN_SECONDS if due is None else (due - now).total_seconds()
            self._clock.wait(min(max(left, 0.0), _TURN_SECONDS), never)

    def _wait_for_end(self) -> None:
        document = self._document()
        if document is not None and document.end_blocks:
            self._clock.wait(float(document.end_blocks), threading.Event())

    def _decrement(self, before: int) -> None:
        """Whoever set another size meanwhile is right."""
        with self._now() as now:
            if self._updater.size(now) == before:
                self._updater.desired = max(before - 1, 0)

    def _started(self) -> bool:
        return bool(self._store.get("started", bool))

    def _start(self, now: dt.datetime) -> None:
        self._fetcher.start(now)
        self._updater.start(now)

    def _document(self) -> PoolDocument | None:
        found = self._store.get("config", dict[str, Any])
        return None if found is None else shaped(found, PoolDocument, f"database {Path(self.settings.database)}")

    def _reach_cloud(self) -> None:
        if self.cloud_down:
            raise errors.CloudError("failed to talk to the cloud", CLOUD_DOWN)

    def _known(self, machine: str, now: dt.datetime) -> Machine:
        """One that the cloud knows by that id, in whatever state."""
        found = [one for one in self._store.machines() if machine in {one.id(now), one.id(one.requested_at)}]
        if not found:
            raise errors.CloudError(f"failed to find {machine}", _UNKNOWN)
        return found[0]

    def _there(self, machine: str, now: dt.datetime) -> Machine:
        """A member that the cloud lists now: the driver looks, not at the cached view."""
        for one in self._store.machines():
            if one.member and one.allocated(now) and machine in {one.id(now), one.id(one.requested_at)}:
                return one
        raise errors.NotFound(f"machine {machine} is not a member of the pool")

    def _end(self, machine: Machine, now: dt.datetime, *, by_resize: bool) -> None:
        if machine.ending_at is not None:
            if self.settings.second_termination == "error":
                raise errors.CloudError(f"failed to terminate {machine.id(now)}", _UNKNOWN)
            return
        pods = tuple(self.pods_on(machine.name)) if machine.joined else ()
        self._store.save(msgspec.structs.replace(machine, ending_at=now))
        self.terminations.append(Termination(machine.name, now, by_resize, pods))

    def _end_by_resize(self, machine: str, now: dt.datetime) -> None:
        """What fails is tried again by a later update."""
        known = self._known(machine, now)
        if known.ending_at is None:
            self._end(known, now, by_resize=True)
