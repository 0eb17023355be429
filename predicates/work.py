"""Limits of the work that one namespace may cause, counted in units: planning reads no clock.

Everybody who may create objects in a namespace can fill an index, or a list, that is read for each plan. So each of
them counts its work by the namespace that causes it. What a namespace cannot pay for is not done: its pods are judged
as too many to judge, which keeps the nodes that they run on, and costs the others nothing.
"""

from collections import Counter
from typing import Final

#: The units of a namespace. A unit is about half a microsecond, the time of one evaluation of a selector.
UNITS: Final = 50_000

#: What each node of the cluster adds to them: plans of larger clusters take longer anyway, and their teams are larger.
UNITS_PER_NODE: Final = 100

#: At most this many terms of one namespace decide about the nodes of a class, which evaluates each of them for each
#: node, and at most this many count the pods of a class, which changes each of them with each placement.
MOST_TERMS: Final = 50


class NamespaceWork:
    """The work of each namespace so far, in a cluster with this number of *nodes*."""

    __slots__ = ("_limit", "_units")

    def __init__(self, nodes: int) -> None:
        self._limit = UNITS + UNITS_PER_NODE * nodes
        self._units: Counter[str] = Counter()

    def take(self, namespace: str, units: int) -> bool:
        """Count *units* for work of *namespace*. Return False, and count nothing, if it has not as many left."""
        total = self._units[namespace] + units
        if total > self._limit:
            return False
        self._units[namespace] = total
        return True

    def renew(self) -> None:
        """Forget the work so far: a limit that is kept is one for each round, in which little is new."""
        self._units.clear()

    def take_many(self, namespace: str, units: int, number: int) -> int:
        """Count *units* for each of *number* equal pieces of work, as many as it has left. Return how many."""
        number = min(number, (self._limit - self._units[namespace]) // units)
        self._units[namespace] += units * number
        return number
