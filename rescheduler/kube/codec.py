"""The content of lists and watches, independent of the content type."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal, Protocol, TypeAlias

from predicates.objects import Object
from predicates.unreadable import Unreadable
from rescheduler.errors import Retryable

ChangeType: TypeAlias = Literal["ADDED", "MODIFIED", "DELETED", "BOOKMARK"]


@dataclass(frozen=True, slots=True)
class RawPage:
    """One page of a list whose objects are not decoded yet. The codec that returned it can decode them."""

    items: Sequence[Any]
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
    """A response that does not match its content type, for example a truncated one."""


class Codec(Protocol):
    """A decoder of one kind in one content type. Used by one thread."""

    def split(self, body: bytes) -> RawPage:
        """Read the metadata of a page, and split it into its objects, without decoding them. Raises Broken."""
        ...

    def decoded(self, page: RawPage) -> ListPage:
        """Decode the objects of a page."""
        ...

    def changes(self, chunks: Iterable[bytes]) -> Iterator[Change]:
        """Decode the events of a watch. Raises Broken, and the error of an ERROR event (usually Expired)."""
        ...


def decode_page(codec: Codec, body: bytes) -> ListPage:
    """Decode a page of a list. Raises Broken."""
    return codec.decoded(codec.split(body))


def key(namespace: str, name: str) -> str:
    """Return the key of an object within its kind."""
    return f"{namespace}/{name}" if namespace else name
