"""What the pool does, in the words of its API."""

import datetime as dt
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import msgspec

from deploy.local.cloudpool import errors
from deploy.local.cloudpool.machines import Machine, timestamp
from deploy.local.cloudpool.settings import PoolDocument, Settings, encode
from deploy.local.cloudpool.store import Store
from rescheduler.backends.base import ConfigError
from rescheduler.backends.config import shaped
from rescheduler.clock import Clock

SERVICE_STATES = {"BOOTING", "IN_SERVICE", "UNHEALTHY", "OUT_OF_SERVICE", "UNKNOWN"}
_UNKNOWN = "the cloud knows no such instance"
_CLOUD_DOWN = "the cloud's API cannot be reached"


class Pool:
    """One pool. Every call first lets happen what was due by now; calls exclude each other."""

    def __init__(self, settings: Settings, clock: Clock) -> None:
        self.settings, self._clock = settings, clock
        self._store = Store(settings.database)
        self._lock = threading.RLock()
        self.cloud_down = False
        if settings.pool is not None and self._store.get("config", dict[str, Any]) is None:
            self._store.set("config", msgspec.to_builtins(settings.pool, enc_hook=encode))
            if settings.desired_size is not None:
                self._store.set("desired", settings.desired_size)
            if settings.started:
                self._store.set("started", fact=True)
        with self._now():
            pass

    def close(self) -> None:
        self._store.close()

    # -- the pool as a whole

    def config(self) -> dict[str, Any]:
        with self._lock:
            found = self._store.get("config", dict[str, Any])
        if found is None:
            raise errors.NotFound("no configuration has been set")
        return found

    def set_config(self, document: object) -> None:
        if not isinstance(document, dict):
            raise errors.BadInput("the configuration is not a JSON object")
        try:
            shaped(document, PoolDocument, "configuration")
        except ConfigError as error:
            raise errors.BadInput("the configuration is not valid", str(error)) from error
        with self._now():
            self._reach_cloud()
            self._store.set("config", document)

    def start(self) -> None:
        with self._lock:
            if self._document() is None:
                raise errors.NotConfigured("attempt to start the cloud pool before it was configured")
            self._store.set("started", fact=True)
        with self._now():
            pass

    def stop(self) -> None:
        with self._lock:
            self._store.set("started", fact=False)

    def status(self) -> dict[str, bool]:
        with self._lock:
            return {"started": self._started(), "configured": self._document() is not None}

    def pool(self) -> dict[str, Any]:
        with self._running() as now:
            return self._view(now)

    def size(self) -> dict[str, Any]:
        with self._running() as now:
            view = self._view(now)
            allocated = [one for one in view["machines"] if _allocated(one)]
            active = sum(one["membershipStatus"]["active"] for one in allocated)
            return {
                "timestamp": view["timestamp"],
                "desiredSize": self._desired(now),
                "allocated": len(allocated),
                "active": active,
            }

    def set_size(self, desired: int) -> None:
        if desired < 0:
            raise errors.BadInput("negative desired pool size")
        with self._running() as now:
            self._store.set("desired", desired)
            self._resize(now)

    # -- single machines

    def terminate(self, machine: str, *, decrement: bool, fail_before_decrement: bool = False) -> None:
        with self._running() as now:
            member = self._evictable(machine, now)
            before = self._desired(now)
            self._reach_cloud()
            self._end(member, now)
            if fail_before_decrement:
                raise errors.PoolError("failed to terminate machine", "an unexpected error after the termination")
            if decrement and self._desired(now) == before:
                self._store.set("desired", max(before - 1, 0))

    def detach(self, machine: str, *, decrement: bool) -> None:
        with self._running() as now:
            member = self._evictable(machine, now)
            self._reach_cloud()
            self._store.save(msgspec.structs.replace(member, member=False))
            if decrement:
                self._store.set("desired", max(self._desired(now) - 1, 0))

    def attach(self, machine: str) -> None:
        with self._running() as now:
            self._reach_cloud()
            found = [one for one in self._store.machines() if one.id(now) == machine and one.allocated(now)]
            if not found or found[0].member:
                raise errors.NotFound(f"no machine {machine} outside of the pool")
            desired = self._desired(now)
            self._store.save(msgspec.structs.replace(found[0], member=True, active=True, evictable=True))
            self._store.set("desired", desired + 1)

    def set_service_state(self, machine: str, state: str) -> None:
        if state not in SERVICE_STATES:
            raise errors.PoolError("failed to set service state", f"no enum constant ServiceState.{state}")
        with self._running() as now:
            member = self._member(machine, now)
            self._reach_cloud()
            self._store.save(msgspec.structs.replace(member, service_state=state))

    def set_membership(self, machine: str, *, active: bool, evictable: bool) -> None:
        with self._running() as now:
            member = self._member(machine, now)
            self._reach_cloud()
            self._store.save(msgspec.structs.replace(member, active=active, evictable=evictable))

    # -- for whoever plays the cloud

    def advance(self) -> None:
        """Let happen what was due by now."""
        with self._now():
            pass

    def machines(self) -> list[Machine]:
        """All machines that there ever were, as they truly are."""
        with self._lock:
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
            due = self._store.get("resize_at", dt.datetime)
            if self._started() and (due is None or now >= due):
                self._resize(now)
            yield now

    @contextmanager
    def _running(self) -> Iterator[dt.datetime]:
        with self._now() as now:
            if not self._started():
                raise errors.NotStarted
            yield now

    def _started(self) -> bool:
        return bool(self._store.get("started", bool))

    def _document(self) -> PoolDocument | None:
        found = self._store.get("config", dict[str, Any])
        return None if found is None else shaped(found, PoolDocument, f"database {Path(self.settings.database)}")

    def _reach_cloud(self) -> None:
        if self.cloud_down:
            raise errors.CloudError("failed to talk to the cloud", _CLOUD_DOWN)

    def _desired(self, now: dt.datetime) -> int:
        """At first need: the number of active machines."""
        desired = self._store.get("desired", int)
        if desired is None:
            members = [one for one in self._store.machines() if one.member and one.allocated(now) and one.active]
            desired = len(members)
            self._store.set("desired", desired)
        return desired

    def _view(self, now: dt.datetime) -> dict[str, Any]:
        """The cached view; a cloud that is down is covered up for a while."""
        cached = self._store.get("cache", dict[str, Any])
        age = None if cached is None else now - dt.datetime.fromisoformat(cached["timestamp"])
        if cached is not None and age is not None and age.total_seconds() < self.settings.refresh_interval:
            return cached
        if not self.cloud_down:
            return self._refresh(now)
        if cached is None or age is None or age.total_seconds() > self.settings.reachability_timeout:
            raise errors.CloudError("the pool cannot be reached", _CLOUD_DOWN)
        return cached

    def _refresh(self, now: dt.datetime) -> dict[str, Any]:
        machines = [one.document(now) for one in self._store.machines() if one.member and one.listed(now)]
        view = {"timestamp": timestamp(now), "machines": machines}
        self._store.set("cache", view)
        return view

    def _member(self, machine: str, now: dt.datetime) -> Machine:
        """A member by the cached view, which may lag behind."""
        if not any(one["id"] == machine and _allocated(one) for one in self._view(now)["machines"]):
            raise errors.NotFound(f"machine {machine} is not a member of the pool")
        found = [one for one in self._store.machines() if machine in {one.id(now), one.id(one.requested_at)}]
        if not found:
            raise errors.CloudError(f"failed to find {machine}", _UNKNOWN)
        return found[0]

    def _evictable(self, machine: str, now: dt.datetime) -> Machine:
        member = self._member(machine, now)
        if not member.evictable:
            raise errors.CloudError(f"machine {machine} is not evictable")
        return member

    def _end(self, machine: Machine, now: dt.datetime) -> None:
        if machine.ending_at is not None:
            if self.settings.second_termination == "error":
                raise errors.CloudError(f"failed to terminate {machine.id(now)}", _UNKNOWN)
            return
        self._store.save(msgspec.structs.replace(machine, ending_at=now))

    def _resize(self, now: dt.datetime) -> None:
        """Disposable machines go, then the size is worked towards; never the protected ones."""
        self._store.set("resize_at", now + dt.timedelta(seconds=self.settings.pool_update))
        document = self._document()
        if self.cloud_down or document is None:
            return
        members = [one for one in self._store.machines() if one.member and one.allocated(now)]
        for machine in members:
            if not machine.active and machine.evictable:
                self._end(machine, now)
        active = [one for one in members if one.active]
        missing = self._desired(now) - len(active)
        for _ in range(missing):
            self._request(document, now)
        victims = sorted((one for one in active if one.evictable), key=lambda one: _newest_first(one, now))
        for machine in victims[: max(0, -missing)]:
            self._end(machine, now)
        self._refresh(now)

    def _request(self, document: PoolDocument, now: dt.datetime) -> None:
        there = sum(one.allocated(now) for one in self._store.machines())
        machine = Machine(
            number=self._store.next_number(), pool=document, requested_at=now, rejected=there >= document.quota
        )
        self._store.save(machine)


def _newest_first(machine: Machine, now: dt.datetime) -> tuple[bool, float, list[int]]:
    """What is only requested, then the latest launch, then the highest id."""
    descending = [-ord(character) for character in machine.id(now)]
    return machine.state(now) != "REQUESTED", -machine.pending_at.timestamp(), descending


def _allocated(machine: Mapping[str, Any]) -> bool:
    return machine["machineState"] in {"REQUESTED", "PENDING", "RUNNING"}
