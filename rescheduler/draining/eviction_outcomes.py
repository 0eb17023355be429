"""The outcomes of eviction requests, as immutable values. A drain receives them as events."""

import enum
from dataclasses import dataclass
from typing import ClassVar, TypeAlias


class EvictionResult(enum.StrEnum):
    """The result of an eviction request; also a metric label."""

    EVICTED = "evicted"
    GONE = "gone"
    REFUSED = "refused"  #: a PodDisruptionBudget does not allow the eviction at present
    FAILED = "failed"


@dataclass(frozen=True, slots=True)
class EvictionAccepted:
    """The API server accepted the eviction: the pod terminates (in a dry run, it would)."""

    result: ClassVar[EvictionResult] = EvictionResult.EVICTED
    uid: str


@dataclass(frozen=True, slots=True)
class EvictionRefused:
    """A PodDisruptionBudget does not allow the eviction at present (429)."""

    result: ClassVar[EvictionResult] = EvictionResult.REFUSED
    uid: str
    why: str
    retry_after: float | None = None  #: seconds


@dataclass(frozen=True, slots=True)
class EvictionFailed:
    """The eviction request failed for another reason. If *retryable*, the same request may succeed later."""

    result: ClassVar[EvictionResult] = EvictionResult.FAILED
    uid: str
    why: str
    retryable: bool
    retry_after: float | None = None  #: seconds
    code: int | None = None  #: HTTP status; None if there was no response
    #: An admission webhook denied the eviction and answered 429: it may have started to move the pod by itself.
    migrating: bool = False


@dataclass(frozen=True, slots=True)
class EvictionSkipped:
    """The request was not sent, because the drain was no longer evicting pods."""

    uid: str


@dataclass(frozen=True, slots=True)
class PodGone:
    """The pod does not exist (404), or another pod has its name."""

    result: ClassVar[EvictionResult] = EvictionResult.GONE
    uid: str


#: The outcome of an eviction request that was sent.
EvictionOutcome: TypeAlias = EvictionAccepted | EvictionRefused | EvictionFailed | PodGone
