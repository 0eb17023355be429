"""The operations of the pool, as its API defines them."""

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import msgspec

from devcluster.cloudpool import errors
from devcluster.cloudpool.fetcher import active, allocated
from devcluster.cloudpool.machines import PoolMachine
from devcluster.cloudpool.settings import PoolDocument
from devcluster.cloudpool.state import PoolState
from rescheduler.errors import ConfigError
from rescheduler.net.config_files import shaped

SERVICE_STATES = {"BOOTING", "IN_SERVICE", "UNHEALTHY", "OUT_OF_SERVICE", "UNKNOWN"}


class ReferencePool(PoolState):
    """A pool.

    Reading and setting the size never block. Calls for single machines wait for pool updates and for each other.
    """

    # -- the pool as a whole

    def config(self) -> dict[str, Any]:
        with self._lock:
            document = self._store.get("config", dict[str, Any])
        if document is None:
            raise errors.ResourceNotFound("no configuration has been set")
        return document

    def set_config(self, document: object) -> None:
        """Store the configuration. A started pool is restarted, which resets its desired size."""
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
                self._store.set("started", value=True)
                self._start(now)

    def stop(self) -> None:
        with self._now():
            self._updater.stop()
            self._store.set("started", value=False)

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
                raise errors.CloudError(f"failed to terminate {machine}", "the cloud's response was lost")
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
            matches = [
                candidate
                for candidate in self._store.machines()
                if candidate.id(now) == machine and candidate.allocated(now)
            ]
            if not matches or matches[0].member:
                raise errors.ResourceNotFound(f"no machine {machine} outside of the pool")
            desired = self._updater.size(now)
            self._store.save(msgspec.structs.replace(matches[0], member=True, active=True, evictable=True))
            self._updater.desired = desired + 1

    def set_service_state(self, machine: str, state: str) -> None:
        if state not in SERVICE_STATES:
            raise errors.PoolError("failed to set service state", f"no enum constant ServiceState.{state}")
        with self._running() as now:
            self._reach_cloud()
            self._store.save(msgspec.structs.replace(self._member(machine, now), service_state=state))

    def set_membership(self, machine: str, *, active: bool, evictable: bool) -> None:
        with self._running() as now:
            self._reach_cloud()
            self._store.save(msgspec.structs.replace(self._member(machine, now), active=active, evictable=evictable))

    # -- for the simulated cloud

    def advance(self) -> None:
        """Execute the work that is due."""
        with self._now():
            pass

    def machines(self) -> list[PoolMachine]:
        """Return all machines, including terminated ones, with their actual state."""
        with self._now():
            return list(self._store.machines())

    def save(self, machine: PoolMachine, **changes: Any) -> None:
        with self._lock:
            current = next(candidate for candidate in self._store.machines() if candidate.number == machine.number)
            self._store.save(msgspec.structs.replace(current, **changes))

    @contextmanager
    def _changing(self, machine: str) -> Iterator[Callable[[], None]]:
        """Lock the pool for a change of *machine*, which must be an evictable member in the cached view.

        The yielded function waits as long as the cloud takes to terminate a machine.
        """
        with self._running() as now:
            listed = [
                candidate
                for candidate in self._fetcher.get(now)["machines"]
                if candidate["id"] == machine and allocated(candidate)
            ]
            if not listed:
                raise errors.ResourceNotFound(f"machine {machine} is not a member of the pool")
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

    def _wait_for_end(self) -> None:
        document = self._document()
        if document is not None and document.end_blocks:
            self._clock.wait(float(document.end_blocks), threading.Event())

    def _decrement(self, before: int) -> None:
        """Decrement the desired size unless it has been set since it was *before*."""
        with self._now() as now:
            if self._updater.size(now) == before:
                self._updater.desired = max(before - 1, 0)
