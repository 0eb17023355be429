"""Nulls in JSON, as Go reads them: a field that is null is left out, one in a list or a map is a zero."""

from functools import cache
from typing import Any

import msgspec
from msgspec import inspect


def without_nulls(value: Any, kind: type[msgspec.Struct]) -> Any:
    """The decoded JSON *value* of a *kind*, without nulls and without fields that the kind does not know."""
    return _filled(value, _type_info(kind))


@cache
def _type_info(kind: type[msgspec.Struct]) -> inspect.Type:
    return inspect.type_info(kind)


def _filled(value: Any, info: inspect.Type) -> Any:
    info = _one_of(info, value)
    if isinstance(info, inspect.StructType) and isinstance(value, dict):
        known = {field.encode_name: field.type for field in info.fields}
        return {name: _filled(one, known[name]) for name, one in value.items() if name in known and one is not None}
    if isinstance(info, inspect.DictType) and isinstance(value, dict):
        return {key: _entry(one, info.value_type) for key, one in value.items()}
    if isinstance(info, inspect.VarTupleType) and isinstance(value, list):
        return [_entry(one, info.item_type) for one in value]
    return value


def _entry(value: Any, info: inspect.Type) -> Any:
    return _zero(info) if value is None else _filled(value, info)


def _zero(info: inspect.Type) -> Any:
    """The zero of the type; of a quantity, which may be text or number, the number."""
    kinds = info.types if isinstance(info, inspect.UnionType) else (info,)
    for kind, zero in ((inspect.IntType, 0), (inspect.StrType, ""), (inspect.StructType, {})):
        if any(isinstance(one, kind) for one in kinds):
            return zero
    return None


def _one_of(info: inspect.Type, value: Any) -> inspect.Type:
    """Of several types the one that has parts like those of *value*."""
    if not isinstance(info, inspect.UnionType):
        return info
    parts = (inspect.StructType, inspect.DictType) if isinstance(value, dict) else (inspect.VarTupleType,)
    return next((one for one in info.types if isinstance(one, parts)), info)
