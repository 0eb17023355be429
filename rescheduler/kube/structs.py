"""Kinds that the snapshot knows nothing of, read by a reflector as structs of whoever asks for them."""

from typing import Any, Generic, TypeVar, cast

import msgspec
from msgspec import Raw

from predicates.objects import Object
from predicates.wire import Interner, WireError, name_of
from rescheduler import shapes
from rescheduler.kube.codecs import Codecs
from rescheduler.kube.json_codec import JsonCodec
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
            raise WireError(f"{self.kind} {name_of(raw)}: {error}") from error
        return cast("Object", found)


def structs(kind: str, shape: type[msgspec.Struct]) -> Codecs:
    """How to read *kind* as *shape*: as JSON, which every kind is served as."""
    codec = StructCodec(kind, shape)
    return Codecs(JSON, codec, codec)
