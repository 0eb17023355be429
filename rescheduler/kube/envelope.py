"""Kubernetes' protobuf bodies: four magic bytes ("k8s" and zero), then a ``runtime.Unknown`` that holds the object.

Source: ``apimachinery/pkg/runtime/serializer/protobuf`` (envelope, length-delimited frames of watches).
"""

from typing import Final

from google.protobuf.message import DecodeError

from rescheduler.kube import schema

CONTENT_TYPE: Final = "application/vnd.kubernetes.protobuf"

_MAGIC: Final = b"k8s\0"


class EnvelopeError(ValueError):
    """Bytes that are not what the content type promised."""


def unwrap(body: bytes) -> bytes:
    """The object's own bytes."""
    if not body.startswith(_MAGIC):
        raise EnvelopeError("expected a protobuf body of Kubernetes (k8s\\0)")
    try:
        return schema.Unknown.FromString(body[len(_MAGIC) :]).raw
    except DecodeError as error:
        raise EnvelopeError("broken protobuf envelope") from error


def status(body: bytes) -> schema.Status:
    """The Status that a refusal carries."""
    try:
        return schema.Status.FromString(unwrap(body))
    except DecodeError as error:
        raise EnvelopeError("broken protobuf Status") from error
