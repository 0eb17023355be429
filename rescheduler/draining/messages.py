"""What a drain is told (events) and what it wants done (actions). Frozen values, one class each."""

import enum
from dataclasses import dataclass
from datetime import datetime
from typing import TypeAlias

from rescheduler.draining.intent import Step
from rescheduler.planning.outcome import PodRef, Verdict

# Actions


@dataclass(frozen=True, slots=True)
class AskProvider:
    """Who owns the node's machine, and would it be taken? → :class:`ProviderAnswered`"""


@dataclass(frozen=True, slots=True)
class Mark:
    """Write intent and taint on the node, in one PATCH. → :class:`Marked` or :class:`MarkFailed`"""

    step: Step
    pods: tuple[str, ...] = ()
    group: str = ""
    since: datetime | None = None  #: None: from this moment


@dataclass(frozen=True, slots=True)
class LookAgain:
    """Plan the node once more, on a state that is not older than this action. → :class:`Looked`"""


@dataclass(frozen=True, slots=True)
class Evict:
    """Ask for the eviction of this very pod. → one of the ``Eviction…`` events, or :class:`PodGone`"""

    pod: PodRef
    grace: int | None = None  #: seconds; None: the pod's own


@dataclass(frozen=True, slots=True)
class OrderRemoval:
    """Order the node's machine away. → :class:`Removed`, :class:`RemovalPending` or :class:`RemovalFailed`"""

    group: str
    since: datetime | None = None  #: when an earlier process may have ordered it


@dataclass(frozen=True, slots=True)
class DeleteNode:
    """Delete the Node object. → :class:`NodeDeleted` or :class:`NodeDeletionFailed`"""


@dataclass(frozen=True, slots=True)
class Release:
    """Take taint and intent off. → :class:`Released` or :class:`ReleaseFailed`"""


Action: TypeAlias = AskProvider | Mark | LookAgain | Evict | OrderRemoval | DeleteNode | Release

# Events


@dataclass(frozen=True, slots=True)
class ProviderAnswered:
    group: str | None  #: None: nobody takes the machine, the node is left
    refusal: str = ""  #: why the machine would not be given away


@dataclass(frozen=True, slots=True)
class Marked:
    pass


@dataclass(frozen=True, slots=True)
class MarkFailed:
    why: str
    node_gone: bool = False


@dataclass(frozen=True, slots=True)
class Looked:
    verdict: Verdict


@dataclass(frozen=True, slots=True)
class LookFailed:
    why: str
    node_gone: bool = False


@dataclass(frozen=True, slots=True)
class EvictionAccepted:
    uid: str


@dataclass(frozen=True, slots=True)
class EvictionRefused:
    """Budgets do not allow it at present (429)."""

    uid: str
    why: str
    retry_after: float | None = None  #: seconds


@dataclass(frozen=True, slots=True)
class EvictionFailed:
    uid: str
    why: str
    retryable: bool
    retry_after: float | None = None  #: seconds


@dataclass(frozen=True, slots=True)
class PodGone:
    """404, or another pod bears its name."""

    uid: str


@dataclass(frozen=True, slots=True)
class Seen:
    """Time has passed, and these pods (UIDs) are on the node, finished ones left out."""

    present: frozenset[str]


@dataclass(frozen=True, slots=True)
class Removed:
    """The machine is going or gone."""


@dataclass(frozen=True, slots=True)
class RemovalPending:
    """The order may be at work."""

    detail: str


@dataclass(frozen=True, slots=True)
class RemovalFailed:
    """The machine stays, and no order is at work."""

    why: str


@dataclass(frozen=True, slots=True)
class NodeDeleted:
    pass


@dataclass(frozen=True, slots=True)
class NodeDeletionFailed:
    why: str


@dataclass(frozen=True, slots=True)
class Released:
    """Off, or the node is gone."""


@dataclass(frozen=True, slots=True)
class ReleaseFailed:
    why: str


class Cause(enum.Enum):
    TERMINATED = enum.auto()  #: we were told to stop: what was begun is taken back
    LEADERSHIP_LOST = enum.auto()  #: somebody else acts now: nothing more is written


@dataclass(frozen=True, slots=True)
class Stop:
    cause: Cause


Event: TypeAlias = (
    ProviderAnswered
    | Marked
    | MarkFailed
    | Looked
    | LookFailed
    | EvictionAccepted
    | EvictionRefused
    | EvictionFailed
    | PodGone
    | Seen
    | Removed
    | RemovalPending
    | RemovalFailed
    | NodeDeleted
    | NodeDeletionFailed
    | Released
    | ReleaseFailed
    | Stop
)
