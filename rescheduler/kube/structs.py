"""Read objects as structs of the caller, for kinds and fields that the snapshot does not contain."""

from typing import Any, Generic, TypeVar, cast

import msgspec
from msgspec import Raw

from predicates.objects import Object
from predicates.wire import Interner, WireError, unreadable
from rescheduler import decoding
from rescheduler.kube.client import Client
from rescheduler.kube.json_codec import JsonCodec
from rescheduler.kube.lister import read_all
from rescheduler.kube.resources import Resource

T = TypeVar("T", bound=msgspec.Struct)


class StructCodec(JsonCodec, Generic[T]):
    """A decoder of the objects of one kind as *shape*."""

    def __init__(self, kind: str, shape: type[T]) -> None:
        super().__init__(kind, Interner())
        self._shapes = decoding.decoder(shape)

    def decode(self, raw: Raw) -> Object:
        try:
            decoded: Any = self._shapes.decode(raw)
        except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
            raise WireError(unreadable(self.kind, raw, str(error))) from error
        return cast("Object", decoded)


def read_structs(client: Client, resource: Resource, shape: type[T]) -> list[T]:
    """Return all objects of *resource* as *shape*; see :func:`~rescheduler.kube.lister.read_all`."""
    return cast("list[T]", read_all(client, resource, StructCodec(resource.kind, shape)))
