"""Objects that exist and cannot be decoded: they are missing in a snapshot, and nodes may have to stay for that."""

import contextlib
import json
from dataclasses import dataclass

from msgspec import Raw

from predicates.objects import FINISHED


@dataclass(frozen=True, slots=True)
class Unreadable:
    """One such object."""

    kind: str
    key: str  #: ``namespace/name``, or ``name``, as far as it can be told
    why: str  #: in one line that names the object
    node: str | None = None  #: of a Pod: its node, "" where it has none or has finished; None where it cannot be told


def node_of(raw: bytes | Raw | memoryview) -> str | None:
    """:attr:`Unreadable.node` of a Pod in JSON."""
    with contextlib.suppress(ValueError, RecursionError, AttributeError):
        pod = json.loads(bytes(raw).decode(errors="replace"))
        status, name = pod.get("status"), pod.get("spec").get("nodeName")
        finished = isinstance(status, dict) and status.get("phase") in FINISHED
        if name is None or finished:
            return ""
        return name if isinstance(name, str) else None
    return None
