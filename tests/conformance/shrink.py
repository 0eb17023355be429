"""The smallest snapshot that still shows what a big one showed."""

from collections.abc import Callable, Iterator
from copy import deepcopy
from typing import Any

from tests.conformance.generate.world import Json

_KEPT = {("kind",), ("metadata",), ("metadata", "name"), ("metadata", "namespace")}


def shrink(snapshot: Json, shows: Callable[[Json], bool], budget: int = 4000) -> Json:
    """Take away objects, then fields, for as long as *shows* holds; at most *budget* tries."""
    tries = _Tries(shows, budget)
    items = _drop_objects(list(snapshot["items"]), tries)
    return {"kind": "List", "apiVersion": "v1", "items": _drop_fields(items, tries)}


class _Tries:
    def __init__(self, shows: Callable[[Json], bool], budget: int) -> None:
        self._shows, self._left = shows, budget

    def show(self, items: list[Json]) -> bool:
        self._left -= 1
        return self._left >= 0 and self._shows({"kind": "List", "apiVersion": "v1", "items": items})


def _drop_objects(items: list[Json], tries: _Tries) -> list[Json]:
    """Drop halves, quarters … single objects."""
    size = max(len(items) // 2, 1)
    while True:
        at = 0
        while at < len(items):
            fewer = items[:at] + items[at + size :]
            if tries.show(fewer):
                items = fewer
            else:
                at += size
        if size == 1:
            return items
        size //= 2


def _drop_fields(items: list[Json], tries: _Tries) -> list[Json]:
    changed = True
    while changed:
        changed = False
        for path in list(_paths(items)):
            fewer = deepcopy(items)
            if _delete(fewer, path) and tries.show(fewer):
                items, changed = fewer, True
    return items


def _paths(items: list[Json]) -> Iterator[tuple[Any, ...]]:
    """Every field that may go, big ones first; a list's last entries before its first, so that paths stay true."""
    for i, one in enumerate(items):
        yield from ((i, *path) for path in _inside(one, ()) if path not in _KEPT)


def _inside(value: Any, path: tuple[Any, ...]) -> Iterator[tuple[Any, ...]]:
    if isinstance(value, dict):
        entries = list(value.items())
    elif isinstance(value, list):
        entries = list(enumerate(value))[::-1]
    else:
        return
    for key, inner in entries:
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
