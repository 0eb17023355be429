"""The marks that a daemon writes on a Node, read as plain JSON."""

import json
from dataclasses import dataclass
from datetime import datetime
from typing import Final

from predicates.snapshot import DRAIN_TAINT
from rescheduler.draining.actions import ANNOTATION
from tests.invariants.objects import SeenNode

DRAINING: Final = "draining"
REMOVING: Final = "removing"


@dataclass(frozen=True, slots=True)
class NodeMark:
    """The mark of an installation on a Node."""

    tainted: bool
    annotated: bool
    holder: str = ""
    step: str = ""
    identity: str = ""
    surges: str = ""  #: the namespace of a roll-out that is in progress
    until: datetime | None = None  #: the holder has renewed or removed the annotation by then

    @property
    def whole(self) -> bool:
        return self.tainted and self.annotated


def mark_on(node: SeenNode, identity: str) -> NodeMark | None:
    """Return the mark of the installation *identity* on *node*, or None. A taint alone counts for any installation."""
    tainted = any(taint.key == DRAIN_TAINT.key for taint in node.spec.taints)
    text = node.metadata.annotations.get(ANNOTATION)
    if text is None:
        return NodeMark(tainted=True, annotated=False) if tainted else None
    try:
        read = json.loads(text)
        until = datetime.fromisoformat(read["until"]) if read.get("until") else None
        surges = str((read.get("surge") or {}).get("namespace", ""))
        mark = NodeMark(tainted, True, read["holder"], read["step"], read.get("identity", ""), surges, until)
    except (ValueError, KeyError, TypeError, AttributeError):
        return NodeMark(tainted, annotated=True)
    return mark if mark.identity == identity else None
