"""Objects as protobuf, made from their JSON by our own schema: what an API server would send of the fields we read."""

import datetime as dt
import struct
from collections.abc import Iterable
from typing import Any

from google.protobuf.message import Message

from rescheduler.kube import schema

_INLINED = ("volumeSource", "persistentVolumeSource")

#: Kinds of volumes that the structs do not know, only the key of a class.
_UNREAD = ("projected", "configMap", "secret", "downwardAPI")


def message(kind: str, value: dict[str, Any]) -> Message:
    made: Message = getattr(schema, kind)()
    _fill(made, value)
    return made


def enveloped(inner: Message | bytes) -> bytes:
    raw = inner if isinstance(inner, bytes) else inner.SerializeToString()
    return b"k8s\0" + schema.Unknown(raw=raw).SerializeToString()


def page(kind: str, items: Iterable[dict[str, Any]], version: str = "10", following: str = "") -> bytes:
    meta = schema.ListMeta(resourceVersion=version, continueToken=following)
    return enveloped(schema.List(metadata=meta, items=[message(kind, one).SerializeToString() for one in items]))


def frame(event_type: str, kind: str, value: dict[str, Any]) -> bytes:
    raw = schema.RawExtension(raw=enveloped(message(kind, value)))
    body = schema.WatchEvent(type=event_type, object=raw).SerializeToString()
    return struct.pack(">I", len(body)) + body


def _fill(made: Any, value: dict[str, Any]) -> None:
    fields = made.DESCRIPTOR.fields_by_name
    for name, given in value.items():
        if name in fields:
            _set(made, fields[name], given)
            continue
        if made.DESCRIPTOR.name == "Volume" and name in _UNREAD:
            made.volumeSource.MergeFromString(schema.VolumeSourceKey(**{name: b""}).SerializeToString())
            continue
        for outer in _INLINED:
            if outer in fields and name in fields[outer].message_type.fields_by_name:
                inner = getattr(made, outer)
                inner.SetInParent()
                _set(inner, inner.DESCRIPTOR.fields_by_name[name], given)


def _set(made: Any, field: Any, given: Any) -> None:
    if field.message_type is None:
        if field.is_repeated:
            getattr(made, field.name).extend(given)
        else:
            setattr(made, field.name, given)
    elif field.message_type.GetOptions().map_entry:
        _set_map(getattr(made, field.name), field.message_type.fields_by_name["value"].message_type, given)
    elif field.is_repeated:
        for one in given:
            _set_message(getattr(made, field.name).add(), one)
    else:
        _set_message(getattr(made, field.name), given)


def _set_map(entries: Any, of: Any, given: dict[str, Any]) -> None:
    for key, one in given.items():
        if of is None:
            entries[key] = one
        else:
            _set_message(entries[key], one)


def _set_message(made: Any, given: Any) -> None:
    made.SetInParent()
    match made.DESCRIPTOR.name:
        case "Quantity":
            made.string = given
        case "Time":
            made.seconds = int(dt.datetime.fromisoformat(given).timestamp())
        case "IntOrString":
            made.type = int(isinstance(given, str))
            setattr(made, "strVal" if isinstance(given, str) else "intVal", given)
        case _:
            _fill(made, given)
