"""Topology domains (groups of nodes with the same value of a label), and counts of placed pods by node and domain."""

from collections.abc import Mapping
from typing import Final, NamedTuple, TypeAlias

import numpy as np
import numpy.typing as npt

from predicates.node_selectors import first_untolerated, node_labels_mask, node_selector_mask, tolerated
from predicates.nodes import ALL, Flags, Rows
from predicates.objects import NodeSelector, Toleration
from predicates.selectors import Pair
from predicates.snapshot import DRAIN_TAINT, Snapshot

# Topology domains: groups of nodes with the same value of a label.

#: The label whose domains are single nodes.
HOSTNAME: Final = "kubernetes.io/hostname"

Slots: TypeAlias = npt.NDArray[np.intp]


class Topology(NamedTuple):
    """A topology key and its eligible nodes: pods count only on nodes that match all other fields."""

    key: str
    required_keys: frozenset[str] = frozenset()  #: labels that the node must have
    node_selector: tuple[Pair, ...] = ()
    node_affinity: NodeSelector | None = None
    tolerations: tuple[Toleration, ...] | None = None  #: None: taints are ignored

    @property
    def values(self) -> int:
        """The number of values that are compared with each node."""
        terms = () if self.node_affinity is None else self.node_affinity.node_selector_terms
        return sum(1 + len(each.values) for term in terms for each in (*term.match_expressions, *term.match_fields))


class Domains:
    """The domains of a topology, by node row.

    ``slots`` has the number of each row's domain, or ``size`` if it is in none. ``counted`` is the same, but also
    ``size`` for nodes that are not eligible. ``version`` is incremented when any of these change.
    """

    def __init__(self, topology: Topology, snapshot: Snapshot) -> None:
        self.topology = topology
        self.version = 0
        self.size = 0
        self.slots: Slots = np.zeros(0, np.intp)
        self.counted: Slots = self.slots
        self.cells: list[int] = []  #: ``counted`` as a list, in which single rows are read faster
        self.complete = True  #: whether every node is in a domain
        self.occupied: Slots = self.slots  #: the domains with an eligible node
        tolerations = topology.tolerations
        #: Whether nodes that a trial drains are not eligible, because of their taint.
        self.excludes_draining = tolerations is not None and not tolerated(DRAIN_TAINT, tolerations)
        self._snapshot = snapshot
        self._stamp = (-1, 0)
        self._nodes: npt.NDArray[np.int64] = np.zeros(0, np.int64)
        self._without: tuple[int, Slots] = (-1, self.slots)

    def refresh(self) -> int:
        """Update the domains and return the version. Costs O(nodes) if any node has changed."""
        stamp = (self._snapshot.epoch, len(self._snapshot.node_changes))
        if stamp != self._stamp:
            self._stamp = stamp
            self._read()
        return self.version

    def occupied_without_drained(self) -> Slots:
        """Return the domains with an eligible node that the trial does not drain."""
        drains, occupied = self._without
        if drains != self._snapshot.drains:
            nodes, rows = self._nodes.copy(), self._snapshot.draining_rows
            np.subtract.at(nodes, self.counted[np.fromiter(rows, np.intp, len(rows))], 1)
            occupied = np.flatnonzero(nodes[:-1] > 0)
            self._without = self._snapshot.drains, occupied
        return occupied

    def for_rows(self, codes: npt.NDArray[np.int8], rows: Rows) -> npt.NDArray[np.int8]:
        """Map *codes* from domains to *rows*. The last code is for rows in no domain."""
        return codes.take(self.slots[rows] if isinstance(rows, slice) else self.slots.take(rows))

    def _read(self) -> None:
        table = self._snapshot.nodes
        ids = table.label(self.topology.key).ids
        labeled = ids >= 0
        present = np.bincount(ids[labeled], minlength=1) > 0
        numbers = np.cumsum(present) - 1
        size = int(numbers[-1]) + 1
        slots = np.where(labeled, numbers[ids], size).astype(np.intp)
        counted = np.where(self._eligible() & labeled, slots, size)
        self.complete = bool((labeled | ~table.alive).all())
        same = np.array_equal(slots, self.slots) and np.array_equal(counted, self.counted)
        if self.version and same and size == self.size:  # a row without a domain has the slot that the next one gets
            return
        self.version += 1
        self.size, self.slots, self.counted, self.cells = size, slots, counted, counted.tolist()
        self._nodes = np.bincount(counted, minlength=size + 1)
        self.occupied = np.flatnonzero(self._nodes[:-1] > 0)
        self._without = -1, self.occupied

    def _eligible(self) -> Flags:
        snapshot, topology = self._snapshot, self.topology
        mask = node_labels_mask(topology.node_selector, snapshot, ALL)
        for key in topology.required_keys:
            mask &= snapshot.nodes.label(key).ids >= 0
        if topology.node_affinity is not None:
            mask &= node_selector_mask(topology.node_affinity, snapshot, ALL)
        if (tolerations := topology.tolerations) is not None:
            sets = snapshot.nodes.taint_sets
            untainted = np.array([first_untolerated(taints, tolerations) is None for taints in sets], np.bool_)
            mask &= untainted[snapshot.nodes.taint_set]
        return mask


# Counts of placed pods, by node and by topology domain.

Counts = npt.NDArray[np.int32]


class PodCounter:
    """Counts the pods of one set by row. ``shift`` costs O(topologies by which the set is counted)."""

    __slots__ = ("domain_counts", "namespace", "rows")

    def __init__(self, namespace: str = "") -> None:
        self.namespace = namespace  #: whose pods need the counter
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
