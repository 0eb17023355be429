"""Removes nulls from JSON as Go decodes them: a null field is unset; a null list item or map value is a zero value."""

from functools import cache
from typing import Any

import msgspec
from msgspec import inspect


def without_nulls(value: Any, kind: type[msgspec.Struct]) -> Any:
    """Return *value* (decoded JSON for the struct *kind*) without nulls and unknown fields."""
    return _normalize(value, _type_info(kind))


@cache
def _type_info(kind: type[msgspec.Struct]) -> inspect.Type:
    return inspect.type_info(kind)


def _normalize(value: Any, info: inspect.Type) -> Any:
    info = _matching_type(info, value)
    if isinstance(info, inspect.StructType) and isinstance(value, dict):
        known = {field.encode_name: field.type for field in info.fields}
        return {
            name: _normalize(field, known[name]) for name, field in value.items() if name in known and field is not None
        }
    if isinstance(info, inspect.DictType) and isinstance(value, dict):
        return {key: _normalize_item(item, info.value_type) for key, item in value.items()}
    if isinstance(info, inspect.VarTupleType) and isinstance(value, list):
        return [_normalize_item(item, info.item_type) for item in value]
    return value


def _normalize_item(value: Any, info: inspect.Type) -> Any:
    return _zero_value(info) if value is None else _normalize(value, info)


def _zero_value(info: inspect.Type) -> Any:
    """Return the zero value of the type; 0 for a quantity, which can be text or a number."""
    kinds = info.types if isinstance(info, inspect.UnionType) else (info,)
    for kind, zero in ((inspect.IntType, 0), (inspect.StrType, ""), (inspect.StructType, {})):
        if any(isinstance(candidate, kind) for candidate in kinds):
            return zero
    return None


def _matching_type(info: inspect.Type, value: Any) -> inspect.Type:
    """Return the type in a union that has the same structure as *value*."""
    if not isinstance(info, inspect.UnionType):
        return info
    parts = (inspect.StructType, inspect.DictType) if isinstance(value, dict) else (inspect.VarTupleType,)
    return next((member for member in info.types if isinstance(member, parts)), info)
