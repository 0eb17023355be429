"""Objects that exist but cannot be decoded. They are missing from the snapshot, which can block the drain of nodes."""

import contextlib
import json
from dataclasses import dataclass

from msgspec import Raw

from predicates.objects import FINISHED


@dataclass(frozen=True, slots=True)
class Unreadable:
    """A record of an object that cannot be decoded."""

    kind: str
    key: str  #: ``namespace/name``, or ``name``; ``without a name`` if unknown
    why: str  #: the error in one line, with kind and name of the object
    node: str | None = None  #: of a Pod: its node; "" if unbound or finished; None if unknown


def pod_node_name(raw: bytes | Raw | memoryview) -> str | None:
    """Return the node of a Pod in JSON, as in :attr:`Unreadable.node`."""
    with contextlib.suppress(ValueError, RecursionError, AttributeError):
        pod = json.loads(bytes(raw).decode(errors="replace"))
        status, name = pod.get("status"), pod.get("spec").get("nodeName")
        finished = isinstance(status, dict) and status.get("phase") in FINISHED
        if name is None or finished:
            return ""
        return name if isinstance(name, str) else None
    return None
