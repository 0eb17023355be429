"""Protobuf messages as the structs of :mod:`predicates.objects`.

A reader is made once for each pair of a struct and a message: which field becomes which argument, and how.
A struct's field that the schema lacks is a mistake found when the readers are made, not when a pod is read.

An empty text, zero and false are left to the struct's default, as JSON leaves them out, unless the struct
can tell "not given" from "empty" (``| None``): that is a pointer in Go, sent only where it is set.
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

#: Messages that share a struct with a larger one, and what they lack of it.
_LACKING: Final = {"ExactDeviceRequest": "name"}

#: Messages that are alike in many pods, and how many of them are remembered.
_ALIKE: Final = frozenset({"Container", "ContainerStatus", "PodCondition", "Toleration", "Volume"})
_REMEMBERED: Final = 4096

Struct = TypeVar("Struct", bound=msgspec.Struct)
Read = Callable[[Any], Any]

#: Messages that JSON shows inlined in the one around them.
_INLINED: Final = ("volumeSource", "persistentVolumeSource")


def reader(struct: type[Struct], message: type[Message]) -> Callable[[Any], Struct]:
    """A function from one *message* to one *struct*."""
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
    """Reads one field of a message into the argument *name*."""
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
        return tuple if field.is_repeated else _same
    if message.GetOptions().map_entry:
        return _map(message.fields_by_name["value"].message_type)
    one = _SPECIAL.get(message.name) or _struct(hint, message)
    return (lambda many: tuple(map(one, many))) if field.is_repeated else one


def _struct(hint: Any, message: Descriptor) -> Read:
    inner = next(one for one in _leaves(hint) if one is not types.NoneType and one is not Ellipsis)
    read = _reader(inner, message)
    return _remembering(read) if message.name in _ALIKE else read


def _remembering(read: Read) -> Read:
    """*read*, once for equal messages: what it gives is frozen, so that many may have it."""
    seen: dict[bytes, Any] = {}

    def look(given: Message) -> Any:
        text = given.SerializeToString()
        if (found := seen.get(text)) is None:
            if len(seen) == _REMEMBERED:
                seen.clear()
            found = seen[text] = read(given)
        return found

    return look


def _leaves(hint: Any) -> list[Any]:
    parts = typing.get_args(hint)
    return [leaf for part in parts for leaf in _leaves(part)] if parts else [hint]


def _map(value: Descriptor | None) -> Read:
    if value is None:
        return dict
    one = _SPECIAL[value.name]
    return lambda entries: {key: one(entry) for key, entry in entries.items()}


def _same(value: Any) -> Any:
    return value


def moment(given: schema.Time) -> str | None:
    """A time as JSON shows it (RFC 3339, whole seconds, UTC); None for the zero time."""
    if not given.seconds and not given.nanos:
        return None
    return _shown(given.seconds)


@functools.lru_cache(maxsize=4096)
def _shown(seconds: int) -> str:
    return dt.datetime.fromtimestamp(seconds, dt.UTC).isoformat().removesuffix("+00:00") + "Z"


def _int_or_string(given: schema.IntOrString) -> int | str:
    return given.strVal if given.type else given.intVal


def _quantity(given: schema.Quantity) -> str:
    return given.string


_SPECIAL: Final[dict[str, Read]] = {
    "Time": moment,
    "IntOrString": _int_or_string,
    "Quantity": _quantity,
}
