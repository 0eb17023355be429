"""The content of lists and watches."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal, TypeAlias

from msgspec import Raw

from predicates.objects import Object
from predicates.unreadable import Unreadable
from rescheduler.errors import Retryable

ChangeType: TypeAlias = Literal["ADDED", "MODIFIED", "DELETED", "BOOKMARK"]


@dataclass(frozen=True, slots=True)
class RawPage:
    """One page of a list whose objects are not decoded yet. The codec that returned it can decode them."""

    items: Sequence[Raw]
    resource_version: str
    next: str = ""  #: continue token of the next page; "" on the last page


@dataclass(frozen=True, slots=True)
class ListPage:
    """One page of a list."""

    objects: tuple[Object, ...]
    resource_version: str
    next: str = ""  #: continue token of the next page; "" on the last page
    unreadable: Mapping[str, Unreadable] = field(default_factory=dict)  #: objects left out, by key


@dataclass(frozen=True, slots=True)
class Change:
    """One event of a watch."""

    type: ChangeType
    key: str  #: ``namespace/name``, or ``name`` for cluster-scoped objects
    object: Object | None  #: None if it was deleted, cannot be decoded, or the event is a bookmark
    resource_version: str
    unreadable: Unreadable | None = None  #: set if the object cannot be decoded


class Broken(Retryable):
    """A response that is not valid JSON or not of its kind, for example a truncated one."""


def key(namespace: str, name: str) -> str:
    """Return the key of an object within its kind."""
    return f"{namespace}/{name}" if namespace else name
