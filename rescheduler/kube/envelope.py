"""Kubernetes protobuf bodies: four magic bytes ("k8s" and zero), then a ``runtime.Unknown`` with the object.

Source: ``apimachinery/pkg/runtime/serializer/protobuf`` (envelope, length-delimited frames of watches).
"""

from typing import Final

from google.protobuf.message import DecodeError

from rescheduler.kube import schema

CONTENT_TYPE: Final = "application/vnd.kubernetes.protobuf"

_MAGIC: Final = b"k8s\0"


class EnvelopeError(ValueError):
    """Bytes that do not match the content type."""


def unwrap(body: bytes) -> bytes:
    """Return the bytes of the object in *body*. Raises EnvelopeError."""
    if not body.startswith(_MAGIC):
        raise EnvelopeError("expected a Kubernetes protobuf body (k8s\\0)")
    try:
        return schema.Unknown.FromString(body[len(_MAGIC) :]).raw
    except DecodeError as error:
        raise EnvelopeError("broken protobuf envelope") from error


def status(body: bytes) -> schema.Status:
    """Decode the Status in the body of an error response. Raises EnvelopeError."""
    try:
        return schema.Status.FromString(unwrap(body))
    except DecodeError as error:
        raise EnvelopeError("broken protobuf Status") from error
