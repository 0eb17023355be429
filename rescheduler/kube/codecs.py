"""The content type that is asked for, and the codec for the one that comes back."""

from dataclasses import dataclass

from predicates.wire import Interner
from rescheduler.kube.codec import Codec
from rescheduler.kube.json_codec import JsonCodec
from rescheduler.kube.proto_codec import ProtoCodec
from rescheduler.settings import JSON, PROTOBUF


@dataclass(frozen=True, slots=True)
class Codecs:
    """One kind, in what the server answers; *accept* is the header that says what we would like."""

    accept: str
    json: Codec
    protobuf: Codec

    def of(self, content_type: str) -> Codec:
        """The codec for an answer of *content_type*."""
        return self.protobuf if content_type.startswith(PROTOBUF) else self.json


def codecs(kind: str, content_type: str, interner: Interner) -> Codecs:
    """How to read *kind*. With protobuf wanted, JSON stays welcome: custom resources know only that."""
    accept = f"{PROTOBUF}, {JSON};q=0.9" if content_type == PROTOBUF else JSON
    return Codecs(accept, JsonCodec(kind, interner), ProtoCodec(kind, interner))
