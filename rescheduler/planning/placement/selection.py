"""Nodes that a plan may drain, and those that it selects."""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import TypeAlias

from predicates.objects import Pod
from rescheduler.planning.outcome import PodRef


@dataclass(frozen=True, slots=True)
class Candidate:
    """An on-demand node whose pods may all be evicted according to the rules."""

    node: str
    row: int
    movers: tuple[Pod, ...]
    incoming: tuple[Pod, ...]  #: the replacement pods of ``movers``, in the same order
    leaving: tuple[PodRef, ...] = ()  #: pods that are being deleted: the drain waits for them
    counts: bool = False  #: whether it counts towards --min-on-demand-nodes


@dataclass(frozen=True, slots=True)
class SelectedNode:
    """A candidate selected for a drain, and the placements of its pods in an order in which they can be scheduled."""

    candidate: Candidate
    placed: tuple[tuple[Pod, int], ...]


Selection: TypeAlias = tuple[SelectedNode, ...]


def counting(victims: Iterable[SelectedNode]) -> int:
    """Return how many of *victims* count towards the minimum of on-demand nodes."""
    return sum(victim.candidate.counts for victim in victims)
