"""Requests to the simulated API server, what they name, and rejections: a code and a Status."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import msgspec

from rescheduler.simulation.store import ServedKind


@dataclass(frozen=True, slots=True)
class ApiRequest:
    """A request as it arrives."""

    method: str
    path: str
    query: Mapping[str, str]
    body: Any = None  #: decoded JSON
    content_type: str = ""

    @property
    def dry_run(self) -> bool:
        return self.query.get("dryRun") == "All"


@dataclass(frozen=True, slots=True)
class Target:
    """What a path names."""

    served: ServedKind
    namespace: str
    name: str
    subresource: str

    @property
    def plural(self) -> str:
        return self.served.plural

    @property
    def key(self) -> str:
        return f"{self.namespace}/{self.name}" if self.namespace else self.name


class RequestRefused(Exception):
    """The API server rejects a request."""

    def __init__(self, code: int, reason: str, message: str, details: dict[str, Any] | None = None) -> None:
        super().__init__(message)
        self.code = code
        self.reason = reason
        self.message = message
        self._details = details

    @property
    def body(self) -> bytes:
        """The Status, encoded."""
        status = {"kind": "Status", "apiVersion": "v1", "status": "Failure"}
        details = {"details": self._details} if self._details else {}
        return msgspec.json.encode(
            {**status, "message": self.message, "reason": self.reason, **details, "code": self.code}
        )


def not_found(target: Target) -> RequestRefused:
    return RequestRefused(404, "NotFound", f'{target.plural} "{target.name}" not found')


def conflict(target: Target, why: str) -> RequestRefused:
    return RequestRefused(409, "Conflict", f'Operation cannot be fulfilled on {target.plural} "{target.name}": {why}')
