"""The API server's audit log: the user, time and result of each write request.

The log has one line for each request that is not a read, written before the client receives the response, and one line
for each read by a ServiceAccount. The line of a watch is written when the watch ends. Requests of the control plane's
own components are omitted. Bodies are recorded for the resources that tests inspect: evictions, nodes, leases and
config maps.
"""

import json
import os
from collections.abc import Mapping, Sequence
from datetime import datetime
from pathlib import Path
from typing import Any, Final

import msgspec

from rescheduler import decoding

Json = dict[str, Any]

_FORBIDDEN: Final = 403

#: Bytes. etcd rejects objects larger than 1.5 MB, and a line contains at most one object and its patch.
_LONGEST_LINE: Final = 4 << 20

_READS: Final = ("get", "list", "watch")

POD_NAME: Final = (
    "authentication.kubernetes.io/pod-name"  #: key in the user's extra fields: the pod that the token is bound to
)

_WITH_BODIES: Final = (
    {"group": "", "resources": ["pods/eviction", "nodes", "configmaps"]},
    {"group": "coordination.k8s.io", "resources": ["leases"]},
)


def policy(silent: Sequence[str]) -> Json:
    """Return the audit policy. Requests of the users *silent* are not logged."""
    return {
        "apiVersion": "audit.k8s.io/v1",
        "kind": "Policy",
        "omitStages": ["RequestReceived", "ResponseStarted", "Panic"],
        "omitManagedFields": True,
        "rules": [
            {"level": "None", "users": ["system:apiserver", *silent]},
            {"level": "Metadata", "userGroups": ["system:serviceaccounts"], "verbs": list(_READS)},
            {"level": "None", "verbs": list(_READS)},
            {"level": "RequestResponse", "resources": list(_WITH_BODIES)},
            {"level": "Metadata"},
        ],
    }


def write_policy(target: Path, silent: Sequence[str]) -> Path:
    """Write the audit policy to the file *target*, as JSON, which is valid YAML."""
    target.write_text(json.dumps(policy(silent), indent=2) + "\n")
    return target


class AuditUser(msgspec.Struct, frozen=True):
    """The authenticated user of a request."""

    username: str = ""
    extra: Mapping[str, tuple[str, ...]] = {}

    @property
    def pod(self) -> str:
        """The pod that the token is bound to, or ""."""
        return next(iter(self.extra.get(POD_NAME, ())), "")


class AuditObject(msgspec.Struct, frozen=True, rename="camel"):
    """The object of a request."""

    api_group: str = ""  #: "" for the core group
    resource: str = ""
    subresource: str = ""
    namespace: str = ""
    name: str = ""  #: "" if the API server generated the name


class _ResponseStatus(msgspec.Struct, frozen=True):
    code: int = 0


class AuditEvent(msgspec.Struct, frozen=True, rename="camel"):
    """A completed request."""

    verb: str
    user: AuditUser
    request_received_timestamp: datetime
    stage_timestamp: datetime
    request_uri: str = msgspec.field(default="", name="requestURI")
    user_agent: str = ""
    object_ref: AuditObject = AuditObject()
    response_status: _ResponseStatus = _ResponseStatus()
    request_object: Json | None = None  #: the request body, for resources whose bodies are recorded
    response_object: Json | None = None  #: the response body, for the same resources

    @property
    def received(self) -> datetime:
        """The time at which the API server received the request."""
        return self.request_received_timestamp

    @property
    def at(self) -> datetime:
        """The time at which the API server completed the request."""
        return self.stage_timestamp

    @property
    def kind(self) -> str:
        """The resource and subresource, such as `nodes` or `pods/eviction`."""
        target = self.object_ref
        return f"{target.resource}/{target.subresource}" if target.subresource else target.resource

    @property
    def namespace(self) -> str:
        return self.object_ref.namespace

    @property
    def name(self) -> str:
        return self.object_ref.name

    @property
    def code(self) -> int:
        """The HTTP status code of the response."""
        return self.response_status.code

    @property
    def accepted(self) -> bool:
        """Whether the request succeeded."""
        return 200 <= self.code < 300  # noqa: PLR2004 - the 2xx range

    @property
    def dry_run(self) -> bool:
        """Whether the request was a dry run, by its query or by the delete options of an eviction."""
        options = (self.request_object or {}).get("deleteOptions") or {}
        return "dryRun=" in self.request_uri or bool(options.get("dryRun"))


def _end_of_whole_lines(file: Path) -> int:
    """Return the offset after the last complete line; the API server may be writing the next line."""
    with file.open("rb") as log:
        size = log.seek(0, os.SEEK_END)
        start = log.seek(max(0, size - _LONGEST_LINE))
        return start + log.read().rfind(b"\n") + 1


class AuditLog:
    """Reads the entries that are added to an API server's audit log after construction. Not thread-safe."""

    def __init__(self, file: Path) -> None:
        self._file = file
        self._offset = _end_of_whole_lines(file) if file.exists() else 0
        self._events: list[AuditEvent] = []

    def events(self) -> Sequence[AuditEvent]:
        """Return all new requests except reads, in order of completion."""
        return [event for event in self._since() if event.verb not in _READS]

    def rights_used(self, user: str) -> set[tuple[str, str, str]]:
        """Return the permissions that *user* exercised: verb, API group, and resource with its subresource."""
        return {
            (event.verb, event.object_ref.api_group, event.kind)
            for event in self._since()
            if event.user.username == user and event.code != _FORBIDDEN and event.object_ref.resource
        }

    def _since(self) -> Sequence[AuditEvent]:
        with self._file.open("rb") as log:
            log.seek(self._offset)
            read = log.read()
        whole = read[: read.rfind(b"\n") + 1]  # the last line may be incomplete
        self._offset += len(whole)
        self._events += [decoding.decode(line, AuditEvent) for line in whole.splitlines()]
        return self._events

    def writes(self, *kinds: str, user: str = "", agent: str = "", dry_run: bool = False) -> list[AuditEvent]:
        """Return the successful writes to *kinds* (such as `nodes`, `pods/eviction`), by default to all kinds.

        *user* is the full user name, *agent* is a prefix of the user agent. Return only dry runs if *dry_run* is true,
        and no dry runs otherwise.
        """
        return [
            event
            for event in self.events()
            if event.accepted
            and event.dry_run is dry_run
            and (not kinds or event.kind in kinds)
            and user in ("", event.user.username)
            and event.user_agent.startswith(agent)
        ]

    def evictions(self, *, user: str = "", agent: str = "") -> list[AuditEvent]:
        """Return the successful evictions; *user* and *agent* as for `writes`."""
        return self.writes("pods/eviction", user=user, agent=agent)
