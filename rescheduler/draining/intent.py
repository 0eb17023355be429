"""What we write on a Node before each step of its drain, so that whoever comes next can go on or go back."""

import enum
import re
from dataclasses import dataclass
from datetime import MAXYEAR, MINYEAR, UTC, datetime
from typing import Any, Final

import msgspec

from predicates.objects import Node, Taint
from predicates.snapshot import DRAIN_TAINT
from rescheduler.planning.debts import Debt
from rescheduler.planning.minimum import DRAIN_ANNOTATION

ANNOTATION: Final = DRAIN_ANNOTATION

_NOT_IN_LABELS: Final = re.compile(r"[^A-Za-z0-9._-]")
_LONGEST_LABEL: Final = 63


class Step(enum.StrEnum):
    DRAINING = "draining"  #: the taint is on, pods may be on their way
    REMOVING = "removing"  #: the node is empty, its machine may have been ordered away


@dataclass(frozen=True, slots=True)
class Intent:
    """The annotation's content."""

    holder: str  #: who drains
    step: Step
    since: datetime  #: when the step was begun; of REMOVING: before the machine was ordered away
    pods: tuple[str, ...] = ()  #: UIDs of the pods to move
    group: str = ""  #: of REMOVING: the provider's node group that the machine belongs to
    until: datetime | None = None  #: by then the holder has finished or renewed the annotation; None: not known
    identity: str = ""  #: the installation that drains: namespace and Lease; "" in annotations of 0.1.0 and of proxies
    debts: tuple[Debt, ...] = ()  #: what the drain owes; empty until it is known

    def dump(self) -> str:
        until = "" if self.until is None else _written(self.until)
        shape = _Shape(
            self.holder, self.step, _written(self.since), self.pods, self.group, until, self.identity, self.debts
        )
        return msgspec.json.encode(shape).decode()

    def lapsed(self, now: datetime) -> bool:
        """Whether the holder must be dead."""
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


#: Made here, once: see :mod:`rescheduler.shapes`.
_SHAPES: Final = msgspec.json.Decoder(_Shape)


def taint(holder: str) -> Taint:
    """The taint of a node that *holder* drains; its value tells people who that is."""
    value = _NOT_IN_LABELS.sub("-", holder)[:_LONGEST_LABEL].strip("-._")
    return Taint(key=DRAIN_TAINT.key, effect=DRAIN_TAINT.effect, value=value)


def read(node: Node) -> Intent | None:
    """The intent on *node*; None where there is none that can be read."""
    text: Any = node.metadata.annotations.get(ANNOTATION)
    return None if text is None else parse(text)


def parse(text: str) -> Intent | None:
    """The content of an annotation; None where it cannot be read."""
    try:
        shape = _SHAPES.decode(text)
        since = _read(shape.since)
        until = _read(shape.until) if shape.until else None
    except (msgspec.MsgspecError, ValueError, RecursionError):
        return None
    return Intent(shape.holder, shape.step, since, shape.pods, shape.group, until, shape.identity, shape.debts)


def _written(moment: datetime) -> str:
    return f"{moment.astimezone(UTC):%Y-%m-%dT%H:%M:%S.%fZ}"


def _read(text: str) -> datetime:
    """Raises ValueError. A time without a zone is UTC."""
    moment = datetime.fromisoformat(text)
    if not MINYEAR < moment.year < MAXYEAR:
        raise ValueError(f"nothing can be reckoned with {text}")
    return moment if moment.tzinfo else moment.replace(tzinfo=UTC)


def is_marked(node: Node) -> bool:
    """Whether *node* carries anything of ours: the taint, or the annotation, in whatever shape."""
    return ANNOTATION in node.metadata.annotations or any(one.key == DRAIN_TAINT.key for one in node.spec.taints)
