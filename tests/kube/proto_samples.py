"""Convert JSON objects to protobuf with our schema, with the fields that we read."""

import datetime as dt
import struct
from collections.abc import Iterable
from typing import Any

from google.protobuf.message import Message

from rescheduler.kube import schema

_INLINED = ("volumeSource", "persistentVolumeSource")

#: Kinds of volumes that only the key of a class contains, and not the structs.
_UNREAD = ("projected", "configMap", "secret", "downwardAPI")


def message(kind: str, value: dict[str, Any]) -> Message:
    target: Message = getattr(schema, kind)()
    _fill(target, value)
    return target


def enveloped(inner: Message | bytes) -> bytes:
    raw = inner if isinstance(inner, bytes) else inner.SerializeToString()
    return b"k8s\0" + schema.Unknown(raw=raw).SerializeToString()


def page(kind: str, items: Iterable[dict[str, Any]], version: str = "10", following: str = "") -> bytes:
    meta = schema.ListMeta(resourceVersion=version, continueToken=following)
    return enveloped(schema.List(metadata=meta, items=[message(kind, item).SerializeToString() for item in items]))


def frame(event_type: str, kind: str, value: dict[str, Any]) -> bytes:
    raw = schema.RawExtension(raw=enveloped(message(kind, value)))
    body = schema.WatchEvent(type=event_type, object=raw).SerializeToString()
    return struct.pack(">I", len(body)) + body


def _fill(target: Any, value: dict[str, Any]) -> None:
    fields = target.DESCRIPTOR.fields_by_name
    for name, given in value.items():
        if name in fields:
            _set(target, fields[name], given)
            continue
        if target.DESCRIPTOR.name == "Volume" and name in _UNREAD:
            target.volumeSource.MergeFromString(schema.VolumeSourceKey(**{name: b""}).SerializeToString())
            continue
        for outer in _INLINED:
            if outer in fields and name in fields[outer].message_type.fields_by_name:
                inner = getattr(target, outer)
                inner.SetInParent()
                _set(inner, inner.DESCRIPTOR.fields_by_name[name], given)


def _set(target: Any, field: Any, value: Any) -> None:
    if field.message_type is None:
        if field.is_repeated:
            getattr(target, field.name).extend(value)
        else:
            setattr(target, field.name, value)
    elif field.message_type.GetOptions().map_entry:
        _set_map(getattr(target, field.name), field.message_type.fields_by_name["value"].message_type, value)
    elif field.is_repeated:
        for item in value:
            _set_message(getattr(target, field.name).add(), item)
    else:
        _set_message(getattr(target, field.name), value)


def _set_map(entries: Any, of: Any, entries_by_key: dict[str, Any]) -> None:
    for key, item in entries_by_key.items():
        if of is None:
            entries[key] = item
        else:
            _set_message(entries[key], item)


def _set_message(target: Any, value: Any) -> None:
    target.SetInParent()
    match target.DESCRIPTOR.name:
        case "Quantity":
            target.string = value
        case "Time":
            target.seconds = int(dt.datetime.fromisoformat(value).timestamp())
        case "IntOrString":
            target.type = int(isinstance(value, str))
            setattr(target, "strVal" if isinstance(value, str) else "intVal", value)
        case _:
            _fill(target, value)
