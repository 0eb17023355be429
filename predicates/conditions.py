"""What a pod's conditions say, in whichever encoding they came."""

from collections.abc import Callable, Iterable
from typing import Protocol, TypeVar

from predicates.requests import RESIZE_PENDING


class Condition(Protocol):
    """What is read of a pod's condition, in either encoding."""

    @property
    def type(self) -> str: ...

    @property
    def status(self) -> str: ...

    @property
    def reason(self) -> str: ...


C = TypeVar("C", bound=Condition)


def conditions(
    given: Iterable[C], since_of: Callable[[C], str | None]
) -> tuple[bool, str | None, str | None, str | None]:
    """Whether nothing says that it is not ready, since when it is Ready and finds no place, why its resize is pending.

    *since_of* reads the time of a condition's last transition.
    """
    ready, ready_since, unschedulable_since, resize = True, None, None, None
    for one in given:
        kind = one.type
        if kind == "Ready":
            ready = one.status == "True"
            ready_since = since_of(one) if ready else None
        elif kind == "PodScheduled":
            if one.status == "False" and one.reason == "Unschedulable":
                unschedulable_since = since_of(one) or ""
        elif kind == RESIZE_PENDING and resize is None:
            resize = one.reason
    return ready, ready_since, unschedulable_since, resize
