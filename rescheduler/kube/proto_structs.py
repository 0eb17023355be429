"""Convert protobuf messages to the structs of :mod:`predicates.objects`.

A reader is created once for each pair of a struct and a message; it maps fields to arguments. A field of a struct that
the schema lacks is detected when the reader is created, not when a pod is read.

Empty strings, zero and false become the struct's default, because JSON omits them. Optional fields (``| None``) are
pointers in Go: they are sent only if they are set, so "empty" and "not set" are distinct.
"""

import datetime as dt
import functools
import types
import typing
from collections.abc import Callable
from typing import Any, Final, TypeVar

import msgspec
from google.protobuf.descriptor import Descriptor, FieldDescriptor
from google.protobuf.message import Message

from rescheduler.kube import schema

#: Messages that share a struct with a larger message, and the field that they lack.
_LACKING: Final = {"ExactDeviceRequest": "name"}

#: Messages that are equal in many pods, and how many of them are cached.
_ALIKE: Final = frozenset({"Container", "ContainerStatus", "PodCondition", "Toleration", "Volume"})
_MAX_CACHED: Final = 512

Struct = TypeVar("Struct", bound=msgspec.Struct)
Read = Callable[[Any], Any]

#: Fields whose messages are inlined in JSON.
_INLINED: Final = ("volumeSource", "persistentVolumeSource")


def reader(struct: type[Struct], message: type[Message]) -> Callable[[Any], Struct]:
    """Return a function that converts a *message* to a *struct*."""
    return _reader(struct, message.DESCRIPTOR)


@functools.cache
def _reader(struct: type[Struct], message: Descriptor) -> Callable[[Any], Struct]:
    hints = typing.get_type_hints(struct)
    own, inlined = [], []
    for field in msgspec.structs.fields(struct):
        if _LACKING.get(message.name) == field.encode_name:
            continue
        hint = hints[field.name]
        if field.encode_name in message.fields_by_name:
            own.append(_part(field.name, hint, message.fields_by_name[field.encode_name]))
        else:
            outer, inner = _inlined(struct, field.encode_name, message)
            inlined.append((outer, _part(field.name, hint, inner)))

    def read(given: Any) -> Struct:
        arguments: dict[str, Any] = {}
        for part in own:
            part(given, arguments)
        for outer, part in inlined:
            part(getattr(given, outer), arguments)
        return struct(**arguments)

    return read


def _inlined(struct: type, name: str, message: Descriptor) -> tuple[str, FieldDescriptor]:
    for outer in _INLINED:
        field = message.fields_by_name.get(outer)
        source = field.message_type if field is not None else None
        if source is not None and name in source.fields_by_name:
            return outer, source.fields_by_name[name]
    raise TypeError(f"schema.proto: message {message.name} lacks {name} of {struct.__name__}")


def _part(name: str, hint: Any, field: FieldDescriptor) -> Callable[[Any, dict[str, Any]], None]:
    """Return a function that reads one field of a message into the argument *name*."""
    source, convert = field.name, _converter(hint, field)
    if field.is_repeated:
        return lambda given, arguments: _set_if_any(arguments, name, convert(getattr(given, source)))
    if field.message_type is None and types.NoneType not in typing.get_args(hint):
        return lambda given, arguments: _set_if_any(arguments, name, getattr(given, source))

    def present(given: Any, arguments: dict[str, Any]) -> None:
        if given.HasField(source) and (value := convert(getattr(given, source))) is not None:
            arguments[name] = value

    return present


def _set_if_any(arguments: dict[str, Any], name: str, value: Any) -> None:
    if value:
        arguments[name] = value


def _converter(hint: Any, field: FieldDescriptor) -> Read:
    message = field.message_type
    if message is None:
        return tuple if field.is_repeated else _identity
    if message.GetOptions().map_entry:
        return _map(message.fields_by_name["value"].message_type)
    convert = _SPECIAL.get(message.name) or _struct(hint, message)
    return (lambda messages: tuple(map(convert, messages))) if field.is_repeated else convert


def _struct(hint: Any, message: Descriptor) -> Read:
    inner = next(leaf for leaf in _leaves(hint) if leaf is not types.NoneType and leaf is not Ellipsis)
    read = _reader(inner, message)
    return _with_cache(read) if message.name in _ALIKE else read


def _with_cache(read: Read) -> Read:
    """Return *read* with a cache for equal messages. The results are frozen and can be shared."""
    structs: dict[bytes, Any] = {}

    def read_cached(message: Message) -> Any:
        key = message.SerializeToString()
        if (struct := structs.get(key)) is None:
            if len(structs) == _MAX_CACHED:
                structs.clear()
            struct = structs[key] = read(message)
        return struct

    return read_cached


def _leaves(hint: Any) -> list[Any]:
    parts = typing.get_args(hint)
    return [leaf for part in parts for leaf in _leaves(part)] if parts else [hint]


def _map(value: Descriptor | None) -> Read:
    if value is None:
        return dict
    convert = _SPECIAL[value.name]
    return lambda entries: {key: convert(entry) for key, entry in entries.items()}


def _identity(value: Any) -> Any:
    return value


def moment(message: schema.Time) -> str | None:
    """Return a time as in JSON (RFC 3339, whole seconds, UTC); None for the zero time."""
    if not message.seconds and not message.nanos:
        return None
    return _format_time(message.seconds)


@functools.lru_cache(maxsize=256)
def _format_time(seconds: int) -> str:
    return dt.datetime.fromtimestamp(seconds, dt.UTC).isoformat().removesuffix("+00:00") + "Z"


def _int_or_string(message: schema.IntOrString) -> int | str:
    return message.strVal if message.type else message.intVal


def _quantity(message: schema.Quantity) -> str:
    return message.string


_SPECIAL: Final[dict[str, Read]] = {
    "Time": moment,
    "IntOrString": _int_or_string,
    "Quantity": _quantity,
}
