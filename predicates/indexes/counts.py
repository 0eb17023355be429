"""How many pods of a kind stand where: on each node, and in each topology domain."""

from collections.abc import Mapping

import numpy as np
import numpy.typing as npt

from predicates.indexes.domains import Domains

Counts = npt.NDArray[np.int32]


class Counter:
    """Counts pods of one kind by row. ``shift`` costs O(topologies that somebody asked about)."""

    __slots__ = ("drawn", "rows")

    def __init__(self) -> None:
        self.rows: dict[int, int] = {}  #: rows without such pods are left out
        self.drawn: list[DomainCounts] = []

    def shift(self, row: int, by: int) -> None:
        """*by* pods came to *row*, or left it."""
        rows = self.rows
        if count := rows.get(row, 0) + by:
            rows[row] = count
        else:
            rows.pop(row, None)
        for one in self.drawn:
            if row < len(one.slots):  # Else the row came after these were drawn: they are drawn again when asked.
                one.cells[one.slots[row]] += by

    def start(self, rows: Mapping[int, int]) -> None:
        """So many pods stand on *rows*. To be called before anybody asked about topologies."""
        mine = self.rows
        if not mine:
            mine.update(rows)
            return
        for row, count in rows.items():
            mine[row] = mine.get(row, 0) + count


class DomainCounts:
    """A counter's pods by topology domain: one entry a domain, and a last one for those that count in none."""

    __slots__ = ("_counts", "_version", "cells", "counter", "domains", "slots")

    def __init__(self, counter: Counter, domains: Domains) -> None:
        self.counter = counter
        self.domains = domains
        self.slots: list[int] = []
        self._version = 0
        self._fill(np.zeros(1, np.int32))
        counter.drawn.append(self)

    def current(self) -> Counts:
        """The counts as things are; drawn from the counter's rows again if the nodes changed. Not to be written to."""
        version = self.domains.refresh()
        if version != self._version:
            self._draw()
            self._version = version
        return self._counts

    def near(self, row: int) -> int | None:
        """How many stand in the domain of *row*, as things are; None where it lies in none."""
        self.current()
        domains = self.domains
        slot = domains.slots.item(row)
        count: int | None = self.cells[slot] if slot < domains.size else None
        return count

    def _draw(self) -> None:
        domains, rows = self.domains, self.counter.rows
        at = np.fromiter(rows, np.intp, len(rows))
        pods = np.fromiter(rows.values(), np.int64, len(rows))
        self.slots = domains.cells
        self._fill(np.bincount(domains.counted[at], pods, domains.size + 1).astype(np.int32))

    def _fill(self, counts: Counts) -> None:
        self._counts = counts
        self.cells: memoryview[int] = counts.data  # Single cells are read and written three times as fast through it.
