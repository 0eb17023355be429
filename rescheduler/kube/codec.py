"""What lists and watches say, whatever they are written in."""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Literal, Protocol, TypeAlias

from predicates.objects import Object
from predicates.unreadable import Unreadable
from rescheduler.errors import Retryable

ChangeType: TypeAlias = Literal["ADDED", "MODIFIED", "DELETED", "BOOKMARK"]


@dataclass(frozen=True, slots=True)
class Page:
    """One page of a list."""

    objects: tuple[Object, ...]
    resource_version: str
    next: str = ""  #: asks for the page after it; "" on the last
    unreadable: Mapping[str, Unreadable] = field(default_factory=dict)  #: objects left out, by key


@dataclass(frozen=True, slots=True)
class Change:
    """One event of a watch."""

    type: ChangeType
    key: str  #: ``namespace/name``, or ``name`` of what has no namespace
    object: Object | None  #: None where it is gone, cannot be read, or is a bookmark's
    resource_version: str
    unreadable: Unreadable | None = None  #: set where the object cannot be read


class Broken(Retryable):
    """An answer that is not what its content type promises, for instance one that was cut off."""


class Codec(Protocol):
    """Decodes one kind in one content type. Used by one thread."""

    def page(self, body: bytes) -> Page:
        """A page of a list. Raises Broken."""
        ...

    def changes(self, chunks: Iterable[bytes]) -> Iterator[Change]:
        """The events of a watch. Raises Broken, and what an ERROR event stands for (Expired above all)."""
        ...


def key(namespace: str, name: str) -> str:
    """How an object is called within its kind."""
    return f"{namespace}/{name}" if namespace else name
