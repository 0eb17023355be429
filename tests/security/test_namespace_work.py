"""What one namespace adds to a plan is bounded, whatever it has many of, also when it changes something every second.

Calls of functions are counted, which are the same on each machine; ``tests/bench/tenants.py`` measures the times.
"""

import sys
from collections.abc import Callable
from functools import cache
from typing import Final

import pytest

from tests.bench.tenants import KINDS, Scene

#: In the first plan, and in a round. These are some tens of milliseconds, most of them for objects that are left out.
MOST_FIRST: Final = 1_200_000
MOST_LATER: Final = 600_000


def calls(act: Callable[[], object]) -> int:
    """Return how many functions *act* calls."""
    count = 0

    def profile(_: object, event: str, __: object) -> None:
        nonlocal count
        count += event in ("call", "c_call")

    sys.setprofile(profile)
    try:
        act()
    finally:
        sys.setprofile(None)
    return count


@cache
def without() -> tuple[int, int]:
    return _calls(Scene())


def _calls(scene: Scene) -> tuple[int, int]:
    """Return the calls of the first plan, and of the second of two rounds in which each namespace changes a pod."""
    first = calls(scene.plan)
    scene.change()
    scene.plan()
    scene.change()
    return first, calls(scene.plan)


@pytest.mark.parametrize("kind", KINDS)
def test_what_a_namespace_adds_is_bounded(kind: str) -> None:
    first, later = without()
    first_with, later_with = _calls(Scene(kind))
    assert first_with <= 1.2 * first + MOST_FIRST
    assert later_with <= 1.2 * later + MOST_LATER
