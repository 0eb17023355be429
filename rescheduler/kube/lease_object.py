"""The Lease as the API server returns it, and a thread that reads it without holding it."""

import logging
import threading
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final
from urllib.parse import quote

import msgspec

from rescheduler import decoding
from rescheduler.clock import Clock
from rescheduler.errors import Forbidden, NotFound, ReschedulerError, Retryable
from rescheduler.kube.client import Client
from rescheduler.kube.lease import RETRY_SECONDS, LeaseRecord

_REQUEST_SECONDS: Final = 5.0

log = logging.getLogger(__name__)


class _LeaseMeta(msgspec.Struct, rename="camel"):
    resource_version: str = ""
    uid: str = ""
    annotations: dict[str, str] | None = None


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
        self._thread = threading.Thread(target=self._run, name="lease-reader", daemon=True)

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
