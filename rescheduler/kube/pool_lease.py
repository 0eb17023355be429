"""The Lease of a pool of machines: processes that change the same pool do so one after the other."""

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from rescheduler.clock import Clock
from rescheduler.errors import NoTurn, ReschedulerError
from rescheduler.kube.client import Client
from rescheduler.kube.elector import Elector, Seat, identity
from rescheduler.kube.lease import LEASE_SECONDS
from rescheduler.settings import PoolLeaseName


class PoolLease:
    """Turns of the processes that change a pool: the Lease *lease* is held during each turn. Thread-safe.

    A Lease that is not released expires when orders of its last holder cannot take effect any more. A process that is
    started again in the same network namespace continues its turn at once, because it knows these orders by the intents
    on Nodes, or repeats none; the others wait until the end.
    """

    def __init__(self, client: Client, clock: Clock, lease: PoolLeaseName, pod_name: str = "") -> None:
        self._client, self._clock, self._lease = client, clock, lease
        self._seat = Seat(f"{client.host}/{lease.namespace}/{lease.name}")
        self._identity = identity(pod_name, self._seat.tag)
        self._elector: Elector | None = None
        self._lock = threading.Lock()
        self._exists = False
        self._unsettled = float("-inf")  #: until then, an order of the process before this one may take effect
        self._settle = 0.0

    def close(self) -> None:
        self._seat.close()

    def check(self) -> None:
        """Raise NoTurn if the Lease does not exist and may not be created, or if it cannot be read."""
        if not self._exists:
            try:
                self._electing().create_if_missing()
            except ReschedulerError as error:
                raise NoTurn(str(error)) from error
            self._exists = True

    @contextmanager
    def hold(self, seconds: float, settle: float, in_doubt: Callable[[], bool]) -> Iterator[Callable[[], None]]:
        """Hold the Lease during the block; see :class:`rescheduler.providers.base.Turns`."""
        end = self._clock.monotonic() + seconds
        if not self._lock.acquire(timeout=max(0.0, seconds)):
            raise NoTurn(f"{self}: another change is in progress")
        try:
            self._settle = max(settle, self._settle)
            elector = self._electing()
            elector.start()
            try:
                if not elector.wait_until_leading(end - self._clock.monotonic()):
                    raise NoTurn(f"{self}: {elector.trouble or self._held_by(elector)}")
                yield lambda: self._confirm(elector)
            finally:
                elector.stop(release=not in_doubt() and self._clock.monotonic() >= self._unsettled)
        finally:
            self._lock.release()

    def _confirm(self, elector: Elector) -> None:
        if not elector.leading:
            raise NoTurn(f"{self}: {elector.trouble or 'it could not be renewed'}")

    def _electing(self) -> Elector:
        """Return the elector. It remembers since when it observes the Lease of another holder."""
        if self._elector is None:
            named = self._lease.namespace, self._lease.name
            self._elector = Elector(self._client, self._clock, *named, self._identity, self._is_dead)
        self._elector.seconds = LEASE_SECONDS + self._settle
        return self._elector

    def _is_dead(self, holder: str) -> bool:
        if not self._seat.is_dead(holder):
            return False
        self._unsettled = self._clock.monotonic() + LEASE_SECONDS + self._settle
        return True

    def _held_by(self, elector: Elector) -> str:
        holder = f" by {elector.rival}" if elector.rival else ""
        return f"it is held{holder}, which may be ordering machines of the same pool"

    def __str__(self) -> str:
        return f"lease {self._lease.namespace}/{self._lease.name}"
