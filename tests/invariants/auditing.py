"""The writes of the daemon, taken from the audit log."""

from pathlib import Path
from typing import Any

import msgspec

from devcluster.audit import AuditEvent, AuditLog
from rescheduler.draining.actions import ANNOTATION
from tests.invariants.history import SentWrite
from tests.invariants.rules import Rules


class DaemonWrites:
    """Reads the entries that are added to an API server's audit log after construction. Not thread-safe."""

    def __init__(self, log: Path, rules: Rules) -> None:
        self._log, self._rules, self._read = AuditLog(log), rules, 0
        self._writes: list[SentWrite] = []

    def writes(self) -> tuple[SentWrite, ...]:
        """Return the writes of the daemon, and all writes to its Lease, in order of completion."""
        events = self._log.events()
        self._writes += [
            _sent(event, is_lease=self._is_lease(event)) for event in events[self._read :] if self._concerns(event)
        ]
        self._read = len(events)
        return tuple(self._writes)

    def _concerns(self, event: AuditEvent) -> bool:
        return event.user_agent.startswith(self._rules.agent) or self._is_lease(event)

    def _is_lease(self, event: AuditEvent) -> bool:
        name = event.name or ((event.request_object or {}).get("metadata") or {}).get("name")
        return event.kind == "leases" and (event.namespace, name) == (self._rules.namespace, self._rules.lease)


def _sent(event: AuditEvent, *, is_lease: bool) -> SentWrite:
    body = event.request_object or {}
    options: dict[str, Any] = body.get("deleteOptions") or {}
    annotations: dict[str, Any] = (body.get("metadata") or {}).get("annotations") or {}
    mark = annotations.get(ANNOTATION) if event.kind == "nodes" else None
    return SentWrite(
        verb=event.verb,
        kind=event.kind,
        namespace=event.namespace,
        name=event.name,
        user=event.user.username,
        pod=event.user.pod,
        code=event.code,
        received=event.received,
        handled=event.at,
        dry_run=event.dry_run,
        uid=(options.get("preconditions") or {}).get("uid") or "",
        holder=_holder(event) if is_lease else None,
        mark_holder=_mark_holder(mark),
    )


def _holder(event: AuditEvent) -> str:
    """Return the holder of the Lease after the write; "" if it has none or was deleted."""
    written = (event.response_object or {}).get("spec") or {}
    return "" if event.verb == "delete" else written.get("holderIdentity") or ""


def _mark_holder(mark: object) -> str:
    try:
        return str(msgspec.json.decode(mark)["holder"]) if isinstance(mark, str) else ""
    except (msgspec.DecodeError, KeyError, TypeError):
        return ""
