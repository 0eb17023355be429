"""Counts of placed pods, by node and by topology domain."""

from collections.abc import Mapping

import numpy as np
import numpy.typing as npt

from predicates.indexes.domains import Domains

Counts = npt.NDArray[np.int32]


class PodCounter:
    """Counts the pods of one set by row. ``shift`` costs O(topologies by which the set is counted)."""

    __slots__ = ("domain_counts", "rows")

    def __init__(self) -> None:
        self.rows: dict[int, int] = {}  #: pods by row; rows without such pods are left out
        self.domain_counts: list[DomainCounts] = []

    def shift(self, row: int, delta: int) -> None:
        """Add *delta* pods to *row*; *delta* is negative if pods were removed."""
        rows = self.rows
        if count := rows.get(row, 0) + delta:
            rows[row] = count
        else:
            rows.pop(row, None)
        for counts in self.domain_counts:
            if row < len(counts.slots):  # A row added since the last recount invalidates the counts anyway.
                counts.cells[counts.slots[row]] += delta

    def add(self, rows: Mapping[int, int]) -> None:
        """Add the initial numbers of pods by row. Must be called before the pods are counted by domain."""
        counts = self.rows
        if not counts:
            counts.update(rows)
            return
        for row, count in rows.items():
            counts[row] = counts.get(row, 0) + count


class DomainCounts:
    """The pods of a counter by topology domain.

    There is one entry for each domain, and a last one for pods on nodes that do not count in any domain.
    """

    __slots__ = ("_counts", "_version", "cells", "counter", "domains", "slots")

    def __init__(self, counter: PodCounter, domains: Domains) -> None:
        self.counter = counter
        self.domains = domains
        self.slots: list[int] = []
        self._version = 0
        self._fill(np.zeros(1, np.int32))
        counter.domain_counts.append(self)

    def current(self) -> Counts:
        """Return the current counts, recounted if the nodes have changed. Callers must not modify the array."""
        version = self.domains.refresh()
        if version != self._version:
            self._recount()
            self._version = version
        return self._counts

    def in_domain_of(self, row: int) -> int | None:
        """Return the number of pods in the domain of *row*, or None if the row is in no domain."""
        self.current()
        domains = self.domains
        slot = domains.slots.item(row)
        count: int | None = self.cells[slot] if slot < domains.size else None
        return count

    def _recount(self) -> None:
        domains, rows = self.domains, self.counter.rows
        pod_rows = np.fromiter(rows, np.intp, len(rows))
        pods = np.fromiter(rows.values(), np.int64, len(rows))
        self.slots = domains.cells
        self._fill(np.bincount(domains.counted[pod_rows], pods, domains.size + 1).astype(np.int32))

    def _fill(self, counts: Counts) -> None:
        self._counts = counts
        self.cells: memoryview[int] = counts.data  # Single cells are read about three times as fast this way.
