"""Content negotiation: the Accept header, and the codec for the content type of the response."""

from dataclasses import dataclass

from predicates.wire import Interner
from rescheduler.kube.codec import Codec
from rescheduler.kube.json_codec import JsonCodec
from rescheduler.kube.proto_codec import ProtoCodec
from rescheduler.settings import JSON, PROTOBUF


@dataclass(frozen=True, slots=True)
class Codecs:
    """The codecs of one kind by content type, and the Accept header."""

    accept: str
    json: Codec
    protobuf: Codec

    def of(self, content_type: str) -> Codec:
        """Return the codec for a response of *content_type*."""
        return self.protobuf if content_type.startswith(PROTOBUF) else self.json


def codecs(kind: str, content_type: str, interner: Interner) -> Codecs:
    """Return the codecs for *kind*. If protobuf is preferred, JSON is accepted too, for custom resources."""
    accept = f"{PROTOBUF}, {JSON};q=0.9" if content_type == PROTOBUF else JSON
    return Codecs(accept, JsonCodec(kind, interner), ProtoCodec(kind, interner))
