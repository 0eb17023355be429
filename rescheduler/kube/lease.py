"""The Lease: its rules, its form in the API, a thread that reads it without holding it, and pauses that it carries."""

import datetime as dt
import logging
import math
import threading
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import partial
from typing import Any, Final, TypeAlias
from urllib.parse import quote

import msgspec

from rescheduler import decoding
from rescheduler.clock import Clock
from rescheduler.errors import Forbidden, NotFound, ReschedulerError, Retryable
from rescheduler.kube.client import MERGE_PATCH, Client, deletion_conflicts, retry_on_conflict

# Leader election rules: decide from a Lease and the local clock which replica leads. Pure.
#
# Source: ``client-go/tools/leaderelection``. The times in a Lease are informational. A holder is considered dead when
# *this process* has observed no change of the record for the record's lease duration, so clocks may differ.

LEASE_SECONDS: Final = 15.0  #: other replicas wait this long after the last renewal that they observed
RENEW_SECONDS: Final = 10.0  #: a holder that could not renew for this long stops leading
WRITE_SECONDS: Final = LEASE_SECONDS - 2.0  #: requests of a holder complete within this time after its last renewal
RETRY_SECONDS: Final = 2.0  #: between two reads or renewals


class LeaseRecord(msgspec.Struct, frozen=True, rename="camel"):
    """``coordination.k8s.io/v1`` LeaseSpec."""

    holder_identity: str | None = None
    lease_duration_seconds: int | None = None
    acquire_time: str | None = None
    renew_time: str | None = None
    lease_transitions: int | None = None


@dataclass(frozen=True, slots=True)
class ObservedLease:
    """A record, and when it was first observed with this content (monotonic seconds)."""

    record: LeaseRecord
    at: float

    def again(self, record: LeaseRecord, now: float) -> "ObservedLease":
        """Return the observation after another read. An unchanged record keeps its time."""
        return self if record == self.record else ObservedLease(record, now)


@dataclass(frozen=True, slots=True)
class AcquireLease:
    """No replica leads: acquire the Lease."""


@dataclass(frozen=True, slots=True)
class RenewLease:
    """The Lease is ours: renew it."""


@dataclass(frozen=True, slots=True)
class WaitForHolder:
    """*holder* leads, or its lease has not expired yet: wait."""

    holder: str


LeaseStep: TypeAlias = AcquireLease | RenewLease | WaitForHolder


def decide(observed: ObservedLease | None, identity: str, now: float) -> LeaseStep:
    """Return the next step of *identity*. *observed* is None if the Lease does not exist; *now* is monotonic."""
    if observed is None or not (holder := observed.record.holder_identity):
        return AcquireLease()
    if holder == identity:
        return RenewLease()
    duration = observed.record.lease_duration_seconds
    alive_until = observed.at + (LEASE_SECONDS if duration is None else duration)
    return AcquireLease() if now >= alive_until else WaitForHolder(holder)


def held(old: LeaseRecord | None, identity: str, now: dt.datetime, seconds: float = LEASE_SECONDS) -> LeaseRecord:
    """Return the record with *identity* as the holder for *seconds*. *now* is the wall clock; it is informational."""
    ours = old is not None and old.holder_identity == identity
    transitions = (old.lease_transitions or 0) if old is not None else 0
    return LeaseRecord(
        holder_identity=identity,
        lease_duration_seconds=math.ceil(seconds),
        acquire_time=old.acquire_time if old is not None and ours else micro_time(now),
        renew_time=micro_time(now),
        lease_transitions=transitions if ours or old is None else transitions + 1,
    )


def released(old: LeaseRecord, now: dt.datetime) -> LeaseRecord:
    """Return the record that lets another replica acquire the Lease at once."""
    return msgspec.structs.replace(old, holder_identity="", lease_duration_seconds=1, renew_time=micro_time(now))


def micro_time(now: dt.datetime) -> str:
    """Format *now* as ``meta/v1`` MicroTime."""
    return now.astimezone(dt.UTC).strftime("%Y-%m-%dT%H:%M:%S.%fZ")


# The Lease as the API server returns it, and a thread that reads it without holding it.

_REQUEST_SECONDS: Final = 5.0

log = logging.getLogger(__name__)


class _LeaseMeta(msgspec.Struct, rename="camel"):
    resource_version: str = ""
    uid: str = ""
    namespace: str = ""
    name: str = ""
    annotations: dict[str, str] | None = None
    labels: dict[str, str] | None = None


class LeaseObject(msgspec.Struct):
    """A Lease."""

    metadata: _LeaseMeta
    spec: LeaseRecord = LeaseRecord()

    @property
    def annotations(self) -> Mapping[str, str]:
        return self.metadata.annotations or {}


def lease_of(body: bytes) -> LeaseObject:
    """Decode a response. Raises Retryable if it is not a Lease."""
    try:
        return decoding.decode(body, LeaseObject)
    except (msgspec.MsgspecError, UnicodeDecodeError) as error:
        raise Retryable(f"the response is not a Lease: {error}") from error


@dataclass(frozen=True, slots=True)
class LeaseNotes:
    """The annotations of the Lease, which users may set."""

    uid: str = ""  #: of the Lease; "" if it does not exist
    annotations: Mapping[str, str] = field(default_factory=dict)


def lease_path(namespace: str, name: str = "") -> str:
    """Return the path of the Lease *name*, or of all Leases in *namespace*."""
    collection = f"/apis/coordination.k8s.io/v1/namespaces/{quote(namespace, safe='')}/leases"
    return f"{collection}/{quote(name, safe='')}" if name else collection


class LeaseReader:
    """Reads the Lease every few seconds, in a process that does not hold it. A missing Lease has no annotations.

    Without the permission to read it, the annotations are unknown: they count as absent, and a warning is logged.
    """

    def __init__(self, client: Client, clock: Clock, namespace: str, name: str) -> None:
        self.notes = LeaseNotes()  #: as of the last successful read
        self.unread = f"lease {namespace}/{name} has not been read yet"  #: why the annotations are not known, or ""
        self._client = client
        self._clock = clock
        self._act = f"get lease {namespace}/{name}"
        self._path = lease_path(namespace, name)
        self._warned = False
        self._stopping = threading.Event()
        self._thread = clock.thread("lease-reader", self._run)

    def start(self) -> None:
        """Read the Lease once, then start the thread."""
        self._read()
        self._thread.start()

    def stop(self) -> None:
        self._stopping.set()
        self._thread.join(_REQUEST_SECONDS)

    def _run(self) -> None:
        while not self._clock.wait(RETRY_SECONDS, self._stopping):
            self._read()

    def _read(self) -> None:
        try:
            lease = lease_of(self._client.request(self._act, "GET", self._path, read_seconds=_REQUEST_SECONDS).body)
        except NotFound:
            self.notes, self.unread = LeaseNotes(), ""
        except Forbidden as error:
            if not self._warned:
                log.warning("cannot read whether drains are paused: %s", error)
            self._warned, self.unread = True, ""
        except ReschedulerError as error:
            if self.unread:
                self.unread = str(error)
        except Exception:
            log.exception("the Lease cannot be read")
        else:
            self.notes, self.unread = LeaseNotes(lease.metadata.uid, lease.annotations), ""


# Pause and resume drains with annotations of the Lease.

#: Maximum number of attempts when a write fails with a conflict. The leader renews the Lease every two seconds.
ATTEMPTS: Final = 5


@dataclass(frozen=True, slots=True)
class LeaseStore:
    """The Lease of an installation. The holder and the times in it are never changed here."""

    client: Client
    namespace: str
    name: str

    def __str__(self) -> str:
        return f"Lease {self.namespace}/{self.name}"

    def read(self) -> LeaseObject | None:
        """Return the Lease, or None if it does not exist. Raises Unauthorized, Retryable."""
        try:
            return lease_of(self._send("get", "GET", lease_path(self.namespace, self.name)))
        except NotFound:
            return None

    def annotate(self, annotations: Mapping[str, str | None]) -> None:
        """Set *annotations*; None removes one. A Lease is never created: no daemon would notice it.

        The change is conditional on the Lease's resourceVersion, and is repeated after a conflict. Raises Conflict,
        NotFound (the Lease does not exist), Unauthorized, Retryable.
        """
        retry_on_conflict(partial(self._annotate_once, annotations), ATTEMPTS)

    def _annotate_once(self, annotations: Mapping[str, str | None]) -> None:
        if (lease := self.read()) is None:
            raise NotFound(f"{self} does not exist")
        with deletion_conflicts():
            self._patch(lease, annotations)

    def _patch(self, lease: LeaseObject, annotations: Mapping[str, str | None]) -> None:
        metadata = {"resourceVersion": lease.metadata.resource_version, "annotations": annotations}
        path = lease_path(self.namespace, self.name)
        self._send("patch", "PATCH", path, body={"metadata": metadata}, content_type=MERGE_PATCH)

    def _send(self, verb: str, method: str, path: str, **options: Any) -> bytes:
        return self.client.request(f"{verb} lease {self.namespace}/{self.name}", method, path, **options).body
