"""Leader election with a Lease: a thread acquires, renews and releases it."""

import contextlib
import datetime as dt
import hashlib
import json
import logging
import socket
import threading
import uuid
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any, Final

import msgspec

from rescheduler.clock import Clock, Thread
from rescheduler.errors import Conflict, Forbidden, NotFound, NotLeading, NoTurn, ReschedulerError
from rescheduler.kube.client import JSON, MERGE_PATCH, Client
from rescheduler.kube.lease import (
    LEASE_SECONDS,
    RENEW_SECONDS,
    RETRY_SECONDS,
    WRITE_SECONDS,
    AcquireLease,
    LeaseNotes,
    LeaseRecord,
    ObservedLease,
    RenewLease,
    WaitForHolder,
    decide,
    held,
    lease_of,
    lease_path,
    released,
)
from rescheduler.settings import PoolLeaseName

#: Minimum interval between two log lines about errors.
COMPLAINT_SECONDS: Final = 15.0

#: Timeout of one request: half the time within which a renewal must succeed.
_REQUEST_SECONDS: Final = RENEW_SECONDS / 2

#: The API server's fencing policy reads the Lease from a cache that may lag behind by this time.
FENCE_SECONDS: Final = 5.0

_NEVER: Final = float("-inf")

log = logging.getLogger(__name__)


# The identity of a holder, and how a process knows that the holder before it is dead.
#
# A container that is killed soon after each start would never lead if it had to wait until the Lease of the process
# before it expires. All containers of a pod share a network namespace, also those that are started again. Only one
# process in a network namespace can have a socket with a given abstract name, and the kernel closes it when the process
# ends. So a process that has the socket knows that an earlier holder with the same seat is dead.

_BOOT_ID: Final = Path("/proc/sys/kernel/random/boot_id")
_NETWORK: Final = Path("/proc/self/ns/net")


class Seat:
    """The place of this process among those that compete for the Lease *lease* in its network namespace."""

    def __init__(self, lease: str) -> None:
        """Take the seat. :attr:`tag` identifies it; it is "" if another process has the seat.

        Processes in one network namespace that reach the API server at different hosts have different seats, and so
        different tags: neither may conclude that the other is dead.
        """
        self._socket = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        try:
            self._socket.bind(b"\0spot-rescheduler/" + hashlib.sha256(lease.encode()).hexdigest().encode())
            seat = f"{_BOOT_ID.read_text().strip()}/{_NETWORK.stat().st_ino}/{lease}"
        except OSError:  # another process has it, or this is not Linux
            self.tag = ""
        else:
            self.tag = hashlib.sha256(seat.encode()).hexdigest()[:16]

    def is_dead(self, holder: str) -> bool:
        """Return whether *holder* had this seat before. Then its process has ended."""
        return bool(self.tag) and holder.rpartition("_")[2].startswith(f"{self.tag}.")

    def identity(self, pod_name: str = "") -> str:
        """Return a new holder identity with this seat; see :func:`identity`."""
        return identity(pod_name, self.tag)

    def close(self) -> None:
        self._socket.close()


def identity(pod_name: str = "", seat: str = "") -> str:
    """Return the holder identity of this process: the name of the pod or the host, *seat*, and a UUID.

    The fencing policy compares the part before the ``_``; pod names contain no ``_``.
    """
    return f"{pod_name or socket.gethostname()}_{seat}{'.' if seat else ''}{uuid.uuid4()}"


class Elector:
    """Acquires and renews the Lease for *identity*, and guards the writes of the leader.

    :attr:`leading` and the guard may be used by any thread.
    """

    def __init__(
        self,
        client: Client,
        clock: Clock,
        namespace: str,
        name: str,
        identity: str,
        is_dead: Callable[[str], bool] = lambda _: False,
        *,
        seconds: float = LEASE_SECONDS,
        pace: float = 1.0,
    ) -> None:
        """Create the elector. *is_dead* returns whether a holder has certainly ended.

        The Lease expires *seconds* after the last renewal. All times of the election are multiplied by *pace*, which
        must be the same for all replicas.
        """
        self._pace = pace
        self._client = client
        self._is_dead = is_dead
        self.seconds = seconds * pace
        self._clock = clock
        self._namespace = namespace
        self._name = name
        self._collection = lease_path(namespace)
        self._path = lease_path(namespace, name)
        self.identity = identity
        self.holder = ""  #: the last known leader, for logs and the status page
        self.notes = LeaseNotes()  #: as of the last read or renewal
        self._renewed_at = _NEVER  #: monotonic time at which the last successful renewal was sent
        self._acquired_at = _NEVER
        self._observed: ObservedLease | None = None
        self._version = ""
        self.forbidden = False  #: the last request was rejected because of a missing permission
        self.missing = ""  #: which command creates the Lease, if it is missing and this account may not create it
        self._complained: float | None = None
        self.trouble = ""  #: the error of the last step, or ""
        self.changed: Callable[[], object] = lambda: None  #: called when this replica begins or stops to lead
        self._stepped = threading.Event()  #: set after each step
        self._stopping = threading.Event()
        self._thread: Thread | None = None

    @property
    def leading(self) -> bool:
        """Whether this replica is the leader.

        It becomes False RENEW_SECONDS after the last successful renewal was *sent*, even while the API server hangs.
        That is well before another replica may acquire the Lease.
        """
        return self.deadline > _NEVER

    @property
    def deadline(self) -> float:
        """The monotonic time by which a request that is sent now must have completed; -inf if not the leader."""
        renewed_at = self._renewed_at
        if self._stopping.is_set() or self._clock.monotonic() >= renewed_at + RENEW_SECONDS * self._pace:
            return _NEVER
        return renewed_at + WRITE_SECONDS * self._pace

    @property
    def rival(self) -> str:
        """The last known leader, if it is another replica; otherwise ""."""
        return "" if self.holder == self.identity else self.holder

    def seconds_left(self) -> float:
        deadline = self.deadline
        if deadline == _NEVER:
            state = f"is held by {self.rival}" if self.rival else "is not held by this replica"
            raise NotLeading(f"the lease {self._namespace}/{self._name} {state}")
        return deadline - self._clock.monotonic()

    @property
    def fence_may_lag(self) -> bool:
        return self.leading and self._clock.monotonic() < self._acquired_at + FENCE_SECONDS

    def start(self) -> None:
        """Acquire the Lease, and renew it until :meth:`stop`. May be called again after that."""
        self._stopping = threading.Event()
        self._thread = self._clock.thread("elector", partial(self._run, self._stopping))
        self._thread.start()

    @property
    def record(self) -> LeaseRecord:
        """The Lease as of the last read or renewal."""
        return self._observed.record if self._observed is not None else LeaseRecord()

    def stop(self, seconds: float = _REQUEST_SECONDS, *, keep: float = 0.0) -> None:
        """Stop leading. The Lease is released, so that another replica can lead at once, or ends in *keep* seconds."""
        self._stopping.set()
        if self._thread is not None:
            self._thread.join(seconds)
        # The thread may have acquired or renewed the Lease while it stopped.
        ended = self._thread is None or not self._thread.is_alive()
        if ended and self._clock.monotonic() < self._renewed_at + RENEW_SECONDS * self._pace:
            self._renewed_at = _NEVER
            self.release(keep)

    def wait_until_leading(self, seconds: float) -> bool:
        """Wait for at most *seconds*. Return whether this process leads."""
        end = self._clock.monotonic() + seconds
        while not self.leading and (left := end - self._clock.monotonic()) > 0:
            self._clock.wait(left, self._stepped)
            self._stepped.clear()
        return self.leading

    def create_if_missing(self) -> None:
        """Create the Lease, without a holder, if it does not exist. Raises ReschedulerError."""
        try:
            self._send("get", "GET", self._path)
        except NotFound:
            with contextlib.suppress(Conflict):  # another process has created it
                self._create({})

    def _run(self, stopping: threading.Event) -> None:
        was_leading, acquired_at = False, self._acquired_at
        while not stopping.is_set():
            try:
                self._take_step()
                self.forbidden, self.missing, self.trouble = False, "", ""
            except ReschedulerError as error:
                self.forbidden = isinstance(error, Forbidden)
                self._failed(str(error))
            except Exception as error:  # noqa: BLE001 - a bug must not end the election silently
                self._failed(f"{type(error).__name__}: {error}")
            acquired = acquired_at != self._acquired_at  # also if it was lost during the same step
            if (leading := self.leading) != was_leading or acquired:
                log.info("%s lease %s/%s as %s", "acquired" if leading else "lost", *self._named)
                self.changed()
            was_leading, acquired_at = leading, self._acquired_at
            self._stepped.set()
            self._clock.wait(RETRY_SECONDS * self._pace, stopping)

    def _failed(self, why: str) -> None:
        """Log the error, at most every COMPLAINT_SECONDS, and read the Lease again at the next attempt."""
        self._version, self.trouble = "", why
        now = self._clock.monotonic()
        if self._complained is None or now - self._complained >= COMPLAINT_SECONDS:
            self._complained = now
            log.warning("lease %s/%s: %s", self._namespace, self._name, why)

    @property
    def _named(self) -> tuple[str, str, str]:
        return self._namespace, self._name, self.identity

    def _take_step(self) -> None:
        """Read the Lease, unless the last write returned it; then acquire it, renew it or wait."""
        if not self._version or self._observed is None or self._observed.record.holder_identity != self.identity:
            self._read_lease()
        sent = self._clock.monotonic()
        match decide(self._observed, self.identity, sent):
            case AcquireLease() | RenewLease():
                self._hold(sent)
            case WaitForHolder(holder) if self._is_dead(holder):
                log.info("lease %s/%s is held by %s, which has ended", self._namespace, self._name, holder)
                self._give_back(holder)
                self._hold(sent)
            case WaitForHolder(holder):
                if holder != self.holder:
                    log.info("lease %s/%s is held by %s", self._namespace, self._name, holder)
                self.holder = holder

    def _read_lease(self) -> None:
        try:
            self._note(self._send("get", "GET", self._path))
        except NotFound:
            self._observed, self._version, self.notes = None, "", LeaseNotes()
        if self._observed is None or self._observed.record.holder_identity != self.identity:
            self._renewed_at = _NEVER  # another replica acquired it, or it was deleted

    def _hold(self, sent: float) -> None:
        old = self._observed.record if self._observed is not None else None
        spec = _spec(held(old, self.identity, self._clock.now(), self.seconds))
        try:
            body = self._create(spec) if old is None else self._patch(spec)
        except (Conflict, NotFound):  # it was modified or deleted concurrently
            self._read_lease()
            return
        self._note(body)
        self.holder = self.identity
        if not self.leading:
            self._acquired_at = self._clock.monotonic()
        self._renewed_at = sent

    def _create(self, spec: dict[str, Any]) -> bytes:
        """Create the Lease. The shipped Role does not allow it, because this permission cannot be limited to a name."""
        try:
            return self._send("create", "POST", self._collection, self._lease_body(spec))
        except Forbidden as error:
            manifest = json.dumps({key: value for key, value in self._lease_body({}).items() if value})
            command = f"kubectl create -f - <<< '{manifest}'"
            self.missing = f"lease {self._namespace}/{self._name} is missing; create it with: {command}"
            raise Forbidden(f"{error}; {self.missing}") from error

    def release(self, keep: float = 0.0) -> None:
        """Release the Lease, or let it end in *keep* seconds. For a process that does not lead any more."""
        try:
            try:
                self._give_back(self.identity, keep)
            except Conflict:  # it was modified concurrently, for example its annotations
                self._read_lease()
                self._give_back(self.identity, keep)
        except ReschedulerError as error:
            log.info("lease %s/%s not released, it will expire: %s", *self._named[:2], error)

    def _give_back(self, holder: str, keep: float = 0.0) -> None:
        """Release the Lease if it is held by *holder*, or let it end in *keep* seconds."""
        if not self._version:
            self._read_lease()
        if self._observed is None or self._observed.record.holder_identity != holder:
            return  # another replica holds it
        record, now = self._observed.record, self._clock.now()
        self._note(self._patch(_spec(held(record, holder, now, keep) if keep else released(record, now))))

    def _patch(self, spec: dict[str, Any]) -> bytes:
        change = {"metadata": {"resourceVersion": self._version}, "spec": spec}
        return self._send("patch", "PATCH", self._path, change, content_type=MERGE_PATCH)

    def _send(self, verb: str, method: str, path: str, body: Any = None, content_type: str = JSON) -> bytes:
        act = f"{verb} lease {self._namespace}/{self._name}"
        return self._client.request(
            act, method, path, body=body, content_type=content_type, read_seconds=_REQUEST_SECONDS
        ).body

    def _lease_body(self, spec: dict[str, Any]) -> dict[str, Any]:
        return {
            "apiVersion": "coordination.k8s.io/v1",
            "kind": "Lease",
            "metadata": {"namespace": self._namespace, "name": self._name},
            "spec": spec,
        }

    def _note(self, body: bytes) -> None:
        lease, now = lease_of(body), self._clock.monotonic()
        self._version = lease.metadata.resource_version
        self.notes = LeaseNotes(lease.metadata.uid, lease.annotations)
        self._observed = (
            ObservedLease(lease.spec, now) if self._observed is None else self._observed.again(lease.spec, now)
        )


def _spec(record: LeaseRecord) -> dict[str, Any]:
    spec: dict[str, Any] = msgspec.to_builtins(record)
    return {name: value for name, value in spec.items() if value is not None}


# The Lease of a pool of machines: processes that change the same pool do so one after the other.


class PoolLease:
    """Turns of the processes that change a pool: the Lease *lease* is held during each turn. Thread-safe.

    A Lease that is not released expires when orders of its last holder cannot take effect any more. A process that is
    started again in the same network namespace continues its turn at once, because it knows these orders by the intents
    on Nodes, or repeats none. The others wait until the Lease of the process before it would have ended, and no longer:
    after a turn, the Lease lasts for the rest of that time only.
    """

    def __init__(
        self,
        client: Client,
        clock: Clock,
        lease: PoolLeaseName,
        pod_name: str = "",
        new_seat: Callable[[str], Seat] = Seat,
    ) -> None:
        self._client, self._clock, self._lease = client, clock, lease
        self._seat = new_seat(f"{client.host}/{lease.namespace}/{lease.name}")
        self._identity = self._seat.identity(pod_name)
        self._elector: Elector | None = None
        self._lock = threading.Lock()
        self._exists = False
        self._unsettled = float("-inf")  #: until then, an order of the process before this one may take effect
        self._settle = 0.0
        self._in_doubt: Callable[[], bool] | None = None  #: of a turn after which the Lease was kept

    def close(self) -> None:
        """Release the Lease if it was kept after the last turn and no order may take effect any more."""
        if self._in_doubt is not None and self._elector is not None and not self._seconds_kept(self._in_doubt):
            self._elector.release()
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
                keep = self._seconds_kept(in_doubt)
                elector.stop(keep=keep)
                self._in_doubt = in_doubt if keep else None
        finally:
            self._lock.release()

    def _confirm(self, elector: Elector) -> None:
        if not elector.leading:
            raise NoTurn(f"{self}: {elector.trouble or 'it could not be renewed'}")

    def _seconds_kept(self, in_doubt: Callable[[], bool]) -> float:
        """Return how long others get no turn after one of this process; 0: they get it at once."""
        own = LEASE_SECONDS + self._settle if in_doubt() else 0.0
        return max(own, self._unsettled - self._clock.monotonic(), 0.0)

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
        # Its last request may take effect until its Lease ends. The clock is that of the same machine.
        record = self._electing().record
        left = float(record.lease_duration_seconds or LEASE_SECONDS)
        with contextlib.suppress(TypeError, ValueError):
            renewed = dt.datetime.fromisoformat(record.renew_time)  # type: ignore[arg-type]
            left = min(left, left - (self._clock.now() - renewed).total_seconds())
        self._unsettled = max(self._unsettled, self._clock.monotonic() + left)
        return True

    def _held_by(self, elector: Elector) -> str:
        holder = f" by {elector.rival}" if elector.rival else ""
        return f"it is held{holder}, which may be ordering machines of the same pool"

    def __str__(self) -> str:
        return f"lease {self._lease.namespace}/{self._lease.name}"
