"""The API server's audit log: who wrote what, when, and with which result.

The log has one line for each request that is not a read, written before the client has its answer, and one for each
read of a ServiceAccount; a watch has its line when it ends. Requests of the control plane's own components are left
out. Bodies are kept where a test has to see them: evictions, nodes, leases and config maps.
"""

import json
from collections.abc import Mapping, Sequence
from datetime import datetime
from pathlib import Path
from typing import Any, Final

import msgspec

from rescheduler import shapes

Json = dict[str, Any]

_FORBIDDEN: Final = 403

_READS: Final = ("get", "list", "watch")

POD_NAME: Final = "authentication.kubernetes.io/pod-name"  #: key of the user's extra: the pod that a token is bound to

_WITH_BODIES: Final = (
    {"group": "", "resources": ["pods/eviction", "nodes", "configmaps"]},
    {"group": "coordination.k8s.io", "resources": ["leases"]},
)


def policy(silent: Sequence[str]) -> Json:
    """The audit policy; requests of the users *silent* are left out."""
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
    """`policy` as a file; JSON is YAML."""
    target.write_text(json.dumps(policy(silent), indent=2) + "\n")
    return target


class AuditUser(msgspec.Struct, frozen=True):
    """Who sent a request, as the API server authenticated it."""

    username: str = ""
    extra: Mapping[str, tuple[str, ...]] = {}

    @property
    def pod(self) -> str:
        """The pod that the token is bound to; "" where it is bound to none."""
        return next(iter(self.extra.get(POD_NAME, ())), "")


class AuditObject(msgspec.Struct, frozen=True, rename="camel"):
    """What a request was about."""

    api_group: str = ""  #: "" for the core group
    resource: str = ""
    subresource: str = ""
    namespace: str = ""
    name: str = ""  #: "" where the API server made the name


class _Status(msgspec.Struct, frozen=True):
    code: int = 0


class AuditEvent(msgspec.Struct, frozen=True, rename="camel"):
    """One request, at its end."""

    verb: str
    user: AuditUser
    request_received_timestamp: datetime
    stage_timestamp: datetime
    request_uri: str = msgspec.field(default="", name="requestURI")
    user_agent: str = ""
    object_ref: AuditObject = AuditObject()
    response_status: _Status = _Status()
    request_object: Json | None = None  #: the body, of the kinds whose bodies are kept
    response_object: Json | None = None  #: the answer, of the same kinds

    @property
    def received(self) -> datetime:
        """When the API server got the request."""
        return self.request_received_timestamp

    @property
    def at(self) -> datetime:
        """When the API server had handled it."""
        return self.stage_timestamp

    @property
    def kind(self) -> str:
        """Resource and subresource: `nodes`, `pods/eviction`."""
        about = self.object_ref
        return f"{about.resource}/{about.subresource}" if about.subresource else about.resource

    @property
    def namespace(self) -> str:
        return self.object_ref.namespace

    @property
    def name(self) -> str:
        return self.object_ref.name

    @property
    def code(self) -> int:
        """HTTP status code of the answer."""
        return self.response_status.code

    @property
    def accepted(self) -> bool:
        """Whether the API server did what it was asked."""
        return 200 <= self.code < 300  # noqa: PLR2004 - HTTP's range of success

    @property
    def dry_run(self) -> bool:
        """Whether nothing was to be stored, by the query or by an eviction's own options."""
        options = (self.request_object or {}).get("deleteOptions") or {}
        return "dryRun=" in self.request_uri or bool(options.get("dryRun"))


class AuditLog:
    """Reads the log of one API server, from the end that it has now on. For one thread."""

    def __init__(self, file: Path) -> None:
        self._file = file
        self._offset = file.stat().st_size if file.exists() else 0
        self._events: list[AuditEvent] = []

    def events(self) -> Sequence[AuditEvent]:
        """All requests since that are no reads, in the order in which they ended."""
        return [event for event in self._since() if event.verb not in _READS]

    def rights_used(self, user: str) -> set[tuple[str, str, str]]:
        """What *user* asked for and was permitted: verb, API group, and resource with its subresource."""
        return {
            (event.verb, event.object_ref.api_group, event.kind)
            for event in self._since()
            if event.user.username == user and event.code != _FORBIDDEN and event.object_ref.resource
        }

    def _since(self) -> Sequence[AuditEvent]:
        with self._file.open("rb") as log:
            log.seek(self._offset)
            read = log.read()
        whole = read[: read.rfind(b"\n") + 1]  # the last line may be only half written
        self._offset += len(whole)
        self._events += [shapes.decode(line, AuditEvent) for line in whole.splitlines()]
        return self._events

    def writes(self, *kinds: str, user: str = "", agent: str = "", dry_run: bool = False) -> list[AuditEvent]:
        """Requests that were accepted, of *kinds* (`nodes`, `pods/eviction`; none: of all).

        *user* is the whole user name, *agent* the begin of the user agent. Dry runs are left out, or with *dry_run*
        everything else.
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
        """Pods that were evicted; *user* and *agent* as for `writes`."""
        return self.writes("pods/eviction", user=user, agent=agent)
