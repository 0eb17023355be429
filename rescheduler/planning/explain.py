"""For one pod: which spot nodes would take it, and every plugin that refuses the others."""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import TypeAlias

import numpy as np
import numpy.typing as npt

from predicates.filters import Filters
from predicates.framework import PluginRejections, Reasons
from predicates.objects import Pod
from predicates.snapshot import Snapshot
from rescheduler.planning.outcome import Blocker

#: The plugins that refuse, in the scheduler's order, each with its reasons; the first is whom the scheduler names.
Refusals: TypeAlias = tuple[tuple[str, Reasons], ...]


@dataclass(frozen=True, slots=True)
class Explanation:
    """*pod* judged as if it alone were evicted and made anew, unbound and without a status.

    ``which`` has one entry a node of ``nodes``: the number of its refusals in ``refusals``, whose entry 0 is
    empty: such a node takes the pod. Nodes with the same refusals share a number.
    """

    pod: Pod
    nodes: tuple[str, ...]
    which: npt.NDArray[np.intp]
    refusals: tuple[Refusals, ...]
    blockers: tuple[Blocker, ...]  #: what forbids the eviction, not the placement

    @property
    def feasible(self) -> list[str]:
        return [node for node, number in zip(self.nodes, self.which, strict=True) if number == 0]

    def counts(self) -> list[tuple[int, Refusals]]:
        """How many nodes share each set of refusals, most nodes first; those that take the pod are left out."""
        numbers, counts = np.unique(self.which[self.which > 0], return_counts=True)
        pairs = [(int(count), self.refusals[number]) for number, count in zip(numbers, counts, strict=True)]
        return sorted(pairs, key=lambda pair: (-pair[0], pair[1]))


def explain(
    pod: Pod, snapshot: Snapshot, filters: Filters, rows: npt.NDArray[np.intp], blockers: Iterable[Blocker]
) -> Explanation:
    """Judge *pod* on the nodes of *rows*. The snapshot is left as it was found."""
    with snapshot.trial() as trial:
        if pod.node_name in snapshot.nodes.row:
            trial.evict(pod)
        refused = filters.rejections(pod.cls, rows)
    which, refusals = _grouped(refused, len(rows))
    names = snapshot.nodes.names
    return Explanation(pod, tuple(names[row] for row in rows), which, refusals, tuple(blockers))


def _grouped(refused: list[PluginRejections], rows: int) -> tuple[npt.NDArray[np.intp], tuple[Refusals, ...]]:
    """Number the distinct combinations of codes; the empty one is number 0."""
    codes = np.zeros((len(refused), rows + 1), np.int64)  # The last column is a node that nobody refuses.
    for line, one in enumerate(refused):
        codes[line, :-1] = one.codes
    combinations, which = np.unique(codes, axis=1, return_inverse=True)
    number_of_empty = which[-1]
    order = np.argsort(np.arange(combinations.shape[1]) != number_of_empty, kind="stable")
    rank = np.empty_like(order)
    rank[order] = np.arange(len(order))
    refusals = tuple(tuple(_said(refused, combinations[:, number])) for number in order)
    return rank[which[:-1]], refusals


def _said(refused: list[PluginRejections], codes: npt.NDArray[np.int64]) -> Iterator[tuple[str, Reasons]]:
    for one, code in zip(refused, codes, strict=True):
        if code:
            yield one.plugin, one.reasons(int(code))
