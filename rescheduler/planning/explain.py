"""Explanation of which spot nodes would accept a pod, and which plugins reject the others."""

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

#: The plugins that reject a node, in the scheduler's order, with their reasons. The scheduler reports the first.
Refusals: TypeAlias = tuple[tuple[str, Reasons], ...]


@dataclass(frozen=True, slots=True)
class Explanation:
    """The plugins' results for *pod*, as if it alone were evicted and recreated, unbound and without a status.

    ``which`` has one entry per node in ``nodes``: an index into ``refusals``. Entry 0 of ``refusals`` is empty, so
    nodes with index 0 accept the pod. Nodes with the same refusals share an index.
    """

    pod: Pod
    nodes: tuple[str, ...]
    which: npt.NDArray[np.intp]
    refusals: tuple[Refusals, ...]
    blockers: tuple[Blocker, ...]  #: reasons against the eviction, not the placement

    @property
    def feasible(self) -> list[str]:
        """Return the nodes that accept the pod."""
        return [node for node, number in zip(self.nodes, self.which, strict=True) if number == 0]

    def rejecting(self) -> list[tuple[list[str], Refusals]]:
        """Return the nodes that share each set of refusals, most nodes first.

        Nodes that accept the pod are left out.
        """
        groups: dict[int, list[str]] = {}
        for node, number in zip(self.nodes, self.which.tolist(), strict=True):
            if number:
                groups.setdefault(number, []).append(node)
        pairs = ((nodes, self.refusals[number]) for number, nodes in groups.items())
        return sorted(pairs, key=lambda pair: (-len(pair[0]), pair[1]))


def explain(
    pod: Pod,
    incoming: Pod,
    snapshot: Snapshot,
    filters: Filters,
    rows: npt.NDArray[np.intp],
    blockers: Iterable[Blocker],
) -> Explanation:
    """Evaluate the *incoming* replacement of *pod* on the nodes in *rows*. The snapshot is not changed."""
    with snapshot.trial() as trial:
        if pod.node_name in snapshot.nodes.row:
            trial.evict(pod)
        rejections = filters.rejections(incoming.cls, rows)
    which, refusals = _grouped(rejections, len(rows))
    names = snapshot.nodes.names
    return Explanation(pod, tuple(names[row] for row in rows), which, refusals, tuple(blockers))


def _grouped(rejections: list[PluginRejections], rows: int) -> tuple[npt.NDArray[np.intp], tuple[Refusals, ...]]:
    """Number the distinct combinations of codes. The empty combination is number 0."""
    codes = np.zeros((len(rejections), rows + 1), np.int64)  # The last column represents a node that no plugin rejects.
    for index, result in enumerate(rejections):
        codes[index, :-1] = result.codes
    combinations, which = np.unique(codes, axis=1, return_inverse=True)
    number_of_empty = which[-1]
    order = np.argsort(np.arange(combinations.shape[1]) != number_of_empty, kind="stable")
    rank = np.empty_like(order)
    rank[order] = np.arange(len(order))
    refusals = tuple(tuple(_nonempty_refusals(rejections, combinations[:, number])) for number in order)
    return rank[which[:-1]], refusals


def _nonempty_refusals(
    rejections: list[PluginRejections], codes: npt.NDArray[np.int64]
) -> Iterator[tuple[str, Reasons]]:
    for result, code in zip(rejections, codes, strict=True):
        if code:
            yield result.plugin, result.reasons(int(code))
