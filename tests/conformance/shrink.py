"""Shrinks a snapshot to a minimal one with the same property."""

from collections.abc import Callable, Iterator
from copy import deepcopy
from typing import Any

from tests.conformance.generate.world import Json

_REQUIRED_FIELDS = {("kind",), ("metadata",), ("metadata", "name"), ("metadata", "namespace")}


def shrink(snapshot: Json, reproduces: Callable[[Json], bool], budget: int = 4000) -> Json:
    """Remove objects, then fields, as long as *reproduces* returns True; at most *budget* attempts."""
    attempts = _Attempts(reproduces, budget)
    items = _drop_objects(list(snapshot["items"]), attempts)
    return {"kind": "List", "apiVersion": "v1", "items": _drop_fields(items, attempts)}


class _Attempts:
    """Calls ``reproduces`` until the budget is spent."""

    def __init__(self, reproduces: Callable[[Json], bool], budget: int) -> None:
        self._reproduces, self._left = reproduces, budget

    def reproduces(self, items: list[Json]) -> bool:
        self._left -= 1
        return self._left >= 0 and self._reproduces({"kind": "List", "apiVersion": "v1", "items": items})


def _drop_objects(items: list[Json], attempts: _Attempts) -> list[Json]:
    """Remove halves, then quarters, and so on down to single objects."""
    size = max(len(items) // 2, 1)
    while True:
        at = 0
        while at < len(items):
            fewer = items[:at] + items[at + size :]
            if attempts.reproduces(fewer):
                items = fewer
            else:
                at += size
        if size == 1:
            return items
        size //= 2


def _drop_fields(items: list[Json], attempts: _Attempts) -> list[Json]:
    changed = True
    while changed:
        changed = False
        for path in list(_paths(items)):
            fewer = deepcopy(items)
            if _delete(fewer, path) and attempts.reproduces(fewer):
                items, changed = fewer, True
    return items


def _paths(items: list[Json]) -> Iterator[tuple[Any, ...]]:
    """Yield the paths of all removable fields, outer ones first; lists from the end, so that paths stay valid."""
    for i, item in enumerate(items):
        yield from ((i, *path) for path in _inside(item, ()) if path not in _REQUIRED_FIELDS)


def _inside(value: Any, path: tuple[Any, ...]) -> Iterator[tuple[Any, ...]]:
    if isinstance(value, dict):
        enattempts = list(value.items())
    elif isinstance(value, list):
        enattempts = list(enumerate(value))[::-1]
    else:
        return
    for key, inner in enattempts:
        yield (*path, key)
        yield from _inside(inner, (*path, key))


def _delete(value: Any, path: tuple[Any, ...]) -> bool:
    for key in path[:-1]:
        try:
            value = value[key]
        except (KeyError, IndexError, TypeError):
            return False
    try:
        del value[path[-1]]
    except (KeyError, IndexError, TypeError):
        return False
    return True
