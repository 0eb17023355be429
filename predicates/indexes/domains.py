"""Topology domains: groups of nodes with the same value of a label."""

from collections.abc import Mapping
from typing import Final, NamedTuple, TypeAlias

import numpy as np
import numpy.typing as npt

from predicates.node_selectors import node_labels_mask, node_selector_mask
from predicates.nodes import ALL, Flags, Rows
from predicates.objects import NodeSelector, Toleration
from predicates.selectors import Pair
from predicates.snapshot import DRAIN_TAINT, Snapshot
from predicates.tolerations import first_untolerated, tolerated

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
        self._without: tuple[Mapping[int, None] | None, int, Slots] = (None, 0, self.slots)

    def refresh(self) -> int:
        """Update the domains and return the version. Costs O(nodes) if any node has changed."""
        stamp = (self._snapshot.epoch, len(self._snapshot.node_changes))
        if stamp != self._stamp:
            self._stamp = stamp
            self._read()
        return self.version

    def occupied_without(self, draining_rows: Mapping[int, None]) -> Slots:
        """Return the domains with an eligible node that is not in *draining_rows*.

        The result is cached by the length of *draining_rows*: a trial only adds rows to it.
        """
        cached_for, length, occupied = self._without
        if cached_for is not draining_rows or length != len(draining_rows):
            nodes = self._nodes.copy()
            np.subtract.at(nodes, self.counted[np.fromiter(draining_rows, np.intp, len(draining_rows))], 1)
            occupied = np.flatnonzero(nodes[:-1] > 0)
            self._without = draining_rows, len(draining_rows), occupied
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
        if self.version and np.array_equal(slots, self.slots) and np.array_equal(counted, self.counted):
            return
        self.version += 1
        self.size, self.slots, self.counted, self.cells = size, slots, counted, counted.tolist()
        self._nodes = np.bincount(counted, minlength=size + 1)
        self.occupied = np.flatnonzero(self._nodes[:-1] > 0)
        self._without = None, 0, self.occupied

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
