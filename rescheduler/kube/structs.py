"""Objects read as structs of whoever asks for them: kinds and fields that the snapshot does not have."""

from typing import Any, Generic, TypeVar, cast

import msgspec
from msgspec import Raw

from predicates.objects import Object
from predicates.wire import Interner, WireError, unreadable
from rescheduler import shapes
from rescheduler.kube.client import Client
from rescheduler.kube.codecs import Codecs
from rescheduler.kube.json_codec import JsonCodec
from rescheduler.kube.lister import read_all
from rescheduler.kube.resources import Resource
from rescheduler.settings import JSON

T = TypeVar("T", bound=msgspec.Struct)


class StructCodec(JsonCodec, Generic[T]):
    """Reads one kind as *shape*; listings and changes carry such objects."""

    def __init__(self, kind: str, shape: type[T]) -> None:
        super().__init__(kind, Interner())
        self._shapes = shapes.decoder(shape)

    def decode(self, raw: Raw) -> Object:
        try:
            found: Any = self._shapes.decode(raw)
        except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
            raise WireError(unreadable(self.kind, raw, str(error))) from error
        return cast("Object", found)


def structs(kind: str, shape: type[msgspec.Struct]) -> Codecs:
    """How to read *kind* as *shape*: as JSON, which every kind is served as."""
    codec = StructCodec(kind, shape)
    return Codecs(JSON, codec, codec)


def read_structs(client: Client, resource: Resource, shape: type[T]) -> list[T]:
    """:func:`~rescheduler.kube.lister.read_all` of *resource*, as *shape*."""
    return cast("list[T]", read_all(client, resource, StructCodec(resource.kind, shape)))
