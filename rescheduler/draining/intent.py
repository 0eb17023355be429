"""The annotation that a Node gets before each step of its drain, so that another process can resume or roll back."""

import enum
import re
from dataclasses import dataclass
from datetime import MAXYEAR, MINYEAR, UTC, datetime
from typing import Any, Final

import msgspec

from predicates.objects import Node, Taint
from predicates.snapshot import DRAIN_TAINT
from rescheduler.planning.debts import Debt
from rescheduler.planning.rules.minimum import DRAIN_ANNOTATION

ANNOTATION: Final = DRAIN_ANNOTATION

_NOT_IN_LABELS: Final = re.compile(r"[^A-Za-z0-9._-]")
_LONGEST_LABEL: Final = 63


class Step(enum.StrEnum):
    """The steps of a drain that are recorded on the Node."""

    DRAINING = "draining"  #: the taint is set, pods may be moving
    REMOVING = "removing"  #: the node is empty, machine termination may have been requested


@dataclass(frozen=True, slots=True)
class Intent:
    """The content of the annotation."""

    holder: str  #: identity of the draining process
    step: Step
    since: datetime  #: start of the step; for REMOVING, before machine termination was requested
    pods: tuple[str, ...] = ()  #: UIDs of the pods to move
    group: str = ""  #: for REMOVING: the provider's node group of the machine
    until: datetime | None = None  #: end of the lease; the holder finishes or renews it before then; None if unknown
    identity: str = ""  #: the installation: namespace and Lease; "" for 0.1.0 and for proxies
    debts: tuple[Debt, ...] = ()  #: pods that the drain owes; empty until they are counted
    evicted: datetime | None = None  #: when the last pod was evicted; None if that is not known
    due: datetime | None = None  #: when the drain fails unless its pods run by then; None if that is not known

    def dump(self) -> str:
        """Return the annotation's value as JSON."""
        shape = _Shape(
            self.holder,
            self.step,
            _format_time(self.since),
            self.pods,
            self.group,
            _format_time(self.until),
            self.identity,
            self.debts,
            _format_time(self.evicted),
            _format_time(self.due),
        )
        return msgspec.json.encode(shape).decode()

    def lapsed(self, now: datetime) -> bool:
        """Return whether the lease has expired, so that the holder must have stopped."""
        return self.until is not None and self.until < now


class _Shape(msgspec.Struct, frozen=True, omit_defaults=True):
    holder: str
    step: Step
    since: str
    pods: tuple[str, ...] = ()
    group: str = ""
    until: str = ""
    identity: str = ""
    debts: tuple[Debt, ...] = ()
    evicted: str = ""
    due: str = ""


#: Created once, at import: see :mod:`rescheduler.decoding`.
_SHAPES: Final = msgspec.json.Decoder(_Shape)


def taint(holder: str) -> Taint:
    """Return the taint of a node that *holder* drains. The value of the taint names the holder for people."""
    value = _NOT_IN_LABELS.sub("-", holder)[:_LONGEST_LABEL].strip("-._")
    return Taint(key=DRAIN_TAINT.key, effect=DRAIN_TAINT.effect, value=value)


def read(node: Node) -> Intent | None:
    """Return the intent on *node*, or None if there is none or it cannot be parsed."""
    text: Any = node.metadata.annotations.get(ANNOTATION)
    return None if text is None else parse(text)


def parse(text: str) -> Intent | None:
    """Return the content of an annotation, or None if it cannot be parsed."""
    try:
        shape = _SHAPES.decode(text)
        since = _read(shape.since)
        until, evicted, due = (_read(text) if text else None for text in (shape.until, shape.evicted, shape.due))
    except (msgspec.MsgspecError, ValueError, RecursionError):
        return None
    return Intent(
        shape.holder, shape.step, since, shape.pods, shape.group, until, shape.identity, shape.debts, evicted, due
    )


def _format_time(moment: datetime | None) -> str:
    return "" if moment is None else f"{moment.astimezone(UTC):%Y-%m-%dT%H:%M:%S.%fZ}"


def _read(text: str) -> datetime:
    """Parse a time; without a zone it is UTC. Raises ValueError."""
    moment = datetime.fromisoformat(text)
    if not MINYEAR < moment.year < MAXYEAR:
        raise ValueError(f"time {text} is out of range")
    return moment if moment.tzinfo else moment.replace(tzinfo=UTC)


def is_marked(node: Node) -> bool:
    """Return whether *node* has our taint or our annotation, valid or not."""
    return ANNOTATION in node.metadata.annotations or any(
        taint_on_node.key == DRAIN_TAINT.key for taint_on_node in node.spec.taints
    )
