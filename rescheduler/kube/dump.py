"""Write the objects that plans are made from as a ``kind: List``, as ``plan --snapshot`` reads it."""

from collections.abc import Callable, Iterator
from functools import partial
from typing import Any, Final, cast

import msgspec
from msgspec import Raw

from predicates.nulls import without_nulls
from predicates.objects import Object
from predicates.pod_keys import RAW_PODS
from predicates.wire import FILE_KINDS, Interner, WireError, pod_annotations, unreadable
from rescheduler.clock import Clock
from rescheduler.errors import Forbidden
from rescheduler.kube import pod_groups
from rescheduler.kube.client import Client
from rescheduler.kube.json_codec import JsonCodec
from rescheduler.kube.lister import Lister, list_patiently
from rescheduler.kube.resources import ALL_RESOURCES, Resource
from rescheduler.kube.state import read_optional

#: The annotation in which kubectl repeats the whole object, with the values of environment variables.
_LAST_APPLIED: Final = "kubectl.kubernetes.io/last-applied-configuration"


class _ItemCodec(JsonCodec):
    """Reduces the objects of one kind to the fields that are read, as JSON."""

    def __init__(self, kind: str, api_version: str) -> None:
        super().__init__(kind, Interner())
        self._head = msgspec.json.encode({"apiVersion": api_version, "kind": kind})[:-1] + b","

    def decode(self, raw: Raw) -> Object:
        """Return the item as bytes. Raises WireError."""
        try:
            reduced = _pod(raw) if self.kind == "Pod" else _other(self.kind, raw)
        except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
            raise WireError(unreadable(self.kind, raw, str(error))) from error
        return cast("Object", self._head + reduced[1:])


def items(client: Client, clock: Clock, warn: Callable[[str], None]) -> Iterator[bytes]:
    """Yield the objects of the cluster as JSON, without the fields that no plan reads.

    So a dump contains no values of environment variables. *warn* receives a message for each optional kind that may not
    be read, and for each object that is left out because it cannot be decoded. Raises the errors of requests.
    """
    for resource in (*ALL_RESOURCES, *_of_groups(client, warn)):
        codec = _ItemCodec(resource.kind, resource.api_version)
        listing = read_optional(resource, partial(list_patiently, Lister(resource, client, codec, clock), clock), warn)
        if listing is None:
            continue
        for left_out in listing.unreadable.values():
            warn(f"left out, because it cannot be decoded: {left_out.why}")
        yield from cast("list[bytes]", listing.objects)


def _of_groups(client: Client, warn: Callable[[str], None]) -> Iterator[Resource]:
    """Yield the resources of groups of pods that the API server serves."""
    for group in pod_groups.KINDS:
        try:
            yield from pod_groups.served(client, group)
        except Forbidden as error:
            warn(f"{error}; groups of pods are left out")


def version_item(version: str) -> bytes:
    """Return the item of the list that contains the *version* of the API server."""
    item = {"apiVersion": "spot-rescheduler/v1", "kind": "ServerVersion", "metadata": {"name": "kubernetes"}}
    return msgspec.json.encode({**item, "gitVersion": version})


def _pod(raw: Raw) -> bytes:
    pod = RAW_PODS.decode(raw)
    meta = msgspec.structs.replace(pod.metadata, annotations=dict(pod_annotations(pod.metadata.annotations)))
    return msgspec.json.encode(msgspec.structs.replace(pod, metadata=meta))


def _other(kind: str, raw: Raw) -> bytes:
    struct = FILE_KINDS[kind]
    try:
        decoded: Any = msgspec.json.decode(raw, type=struct)
    except msgspec.ValidationError:
        decoded = msgspec.convert(without_nulls(msgspec.json.decode(raw), struct), struct)
    meta = decoded.metadata
    annotations = {key: value for key, value in meta.annotations.items() if key != _LAST_APPLIED}
    return msgspec.json.encode(
        msgspec.structs.replace(decoded, metadata=msgspec.structs.replace(meta, annotations=annotations))
    )
