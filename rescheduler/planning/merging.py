"""Merges of what two processes made of a value that both have read: neither loses what the other noted. Pure."""

from collections.abc import Callable, Mapping
from typing import TypeAlias, TypeVar

_T = TypeVar("_T")

#: Decides what becomes of a value that both have changed. It gets the value, that of the other, and that of the base.
Both: TypeAlias = Callable[[_T, _T, _T | None], _T]


def mine_first(mine: _T, _: _T, __: _T | None) -> _T:
    """Return *mine*: for values of which only the last is of use."""
    return mine


def merged_value(mine: _T, remote: _T, base: _T | None, both: Both[_T]) -> _T:
    """Return the value that was changed since *base*. If both have changed it, *both* decides."""
    if mine in (base, remote):
        return remote
    return mine if remote == base else both(mine, remote, base)


def merged_entries(
    mine: Mapping[str, _T],
    remote: Mapping[str, _T],
    base: Mapping[str, _T],
    both: Both[_T],
) -> dict[str, _T]:
    """Return the entries with the changes of both since *base*.

    If both have changed an entry, *both* decides. An entry that one has removed stays if the other has changed it.
    """
    merged = {}
    for key in sorted(mine.keys() | remote.keys()):
        ours, theirs, before = mine.get(key), remote.get(key), base.get(key)
        if ours is not None and theirs is not None:
            merged[key] = merged_value(ours, theirs, before, both)
        elif (left := theirs if ours is None else ours) is not None and left != before:
            merged[key] = left
    return merged
