"""Quantities in every format that the API accepts."""

from typing import Any

from tests.conformance.generate.world import ClusterBuilder

_BINARY = {"Ki": 2**10, "Mi": 2**20, "Gi": 2**30, "Ti": 2**40}
_DECIMAL = {"k": 10**3, "M": 10**6, "G": 10**9}
_ODD = (
    "0",
    "0.0",
    "-0",
    "00",
    "+1",
    ".5",
    "5.",
    "1e3",
    "1E3",
    "12e-1",
    "1.5Gi",
    "0.5Ki",
    "123456u",
    "1n",
    "999n",
    "100001n",
)
_HUGE = ("9223372036854775807", "8Ei", "1e18", "1E", "9223372036854775807m", "7E")

_AMOUNTS = ("allocatable", "allocatedResources", "limits", "overhead", "requests")


def whole(world: ClusterBuilder, value: int) -> str | int:
    """Return *value* in a random format, some of which round it."""
    forms: list[str | int] = [
        str(value),
        f"{value}",
        f"{value * 1000}m",
        f"{value * 10**6}u",
        f"{value * 10**9}n",
        f"{value}.0",
        f"{value}e0",
        f"{value / 1000:.3f}e3",
        value,
    ]
    forms += [f"{value / size:.3f}{suffix}" for suffix, size in (_BINARY | _DECIMAL).items() if value > size]
    return world.pick(forms)


def milli(world: ClusterBuilder, value: int) -> str | int:
    """Return *value* thousandths in a random format."""
    forms: list[str | int] = [
        f"{value}m",
        f"{value}m",
        f"{value / 1000:.3f}",
        f"{value}e-3",
        f"{value * 1000}u",
        f"{value * 10**6}n",
        f"{value * 1000 + 1}u",
        f"{value}.4m",
    ]
    if value % 1000 == 0:
        forms.append(value // 1000)
    return world.pick(forms)


def odd(world: ClusterBuilder) -> str:
    return world.pick(_ODD)


def huge(world: ClusterBuilder) -> str:
    return world.pick(_HUGE)


def without_huge(given: Any, *, amounts: bool = False) -> Any:
    """Return *given*, with 1 instead of each amount of which some unit does not fit into 64 bits.

    Go saturates such amounts from 1.38 on, and wraps them around before. Ours are those of before.
    """
    if isinstance(given, list):
        return [without_huge(each) for each in given]
    if isinstance(given, dict):
        return {key: without_huge(value, amounts=key in _AMOUNTS or amounts) for key, value in given.items()}
    return "1" if amounts and given in _HUGE else given
