"""The nodes' CSINode objects, as columns."""

from typing import Final, cast

import numpy as np

from predicates.csi_translation import DRIVERS, PORTWORX
from predicates.nodes import Flags, Numbers
from predicates.objects import CSINode, PodClass
from predicates.snapshot import Snapshot
from predicates.versions import Rule

MIGRATED_PLUGINS: Final = "storage.alpha.kubernetes.io/migrated-plugins"
UNLIMITED: Final = np.iinfo(np.int64).max

_NONE: Final[frozenset[str]] = frozenset()
_ALL: Final = frozenset(DRIVERS)


class CSINodes:
    """CSINodes by row. Call :meth:`sync` before reading."""

    def __init__(self, snapshot: Snapshot) -> None:
        self._snapshot = snapshot
        self._epoch = -1
        self._facts = 0
        self.present: Flags = np.zeros(0, np.bool_)
        self.limited: Flags = np.zeros(0, np.bool_)  #: whether any driver has a limit on the node
        self.limits: dict[str, Numbers] = {}  #: by driver, for each row; UNLIMITED if there is no limit
        self.installed: dict[str, Flags] = {}  #: by driver: whether it is installed on the node
        self.migrated: dict[str, Flags] = {}  #: by in-tree plugin: whether the CSINode says that it is migrated to CSI
        #: The in-tree plugins whose volumes NodeVolumeLimits counts as CSI volumes on each row: an index in
        #: ``migrated_sets``.
        self.migrated_set: Numbers = np.zeros(0, np.int64)
        self.migrated_sets: dict[frozenset[str], int] = {}

    def watch(self, _: PodClass) -> None:
        """Ignore pods: only nodes affect this index."""

    def sync(self) -> "CSINodes":
        """Update the columns and return the index. Costs O(changed nodes), or O(nodes) in a new epoch."""
        snapshot = self._snapshot
        if self._epoch != snapshot.epoch:
            self._epoch, self._facts = snapshot.epoch, len(snapshot.node_changes)
            size = len(snapshot.nodes)
            self.present, self.limited = np.zeros(size, np.bool_), np.zeros(size, np.bool_)
            self.limits, self.installed, self.migrated = {}, {}, {}
            self.migrated_set, self.migrated_sets = np.zeros(size, np.int64), {_NONE: 0}
            for row in snapshot.nodes.row.values():
                self._read(row)
        elif self._facts != len(snapshot.node_changes):
            for row in set(snapshot.node_changes[self._facts :]):
                self._read(row)
            self._facts = len(snapshot.node_changes)
        return self

    def _read(self, row: int) -> None:
        csi_node = cast("CSINode | None", self._snapshot.of("CSINode").get(self._snapshot.nodes.names[row]))
        for limits in self.limits.values():
            limits[row] = UNLIMITED
        for flags in (*self.migrated.values(), *self.installed.values()):
            flags[row] = False
        self.migrated_set[row] = 0
        self.present[row], self.limited[row] = csi_node is not None, False
        if csi_node is None:
            return
        for driver in csi_node.spec.drivers:
            _flags(self.installed, driver.name, len(self.present))[row] = True
            if driver.allocatable is not None and driver.allocatable.count is not None:
                self._limits(driver.name)[row] = driver.allocatable.count
                self.limited[row] = True
        named = csi_node.metadata.annotations.get(MIGRATED_PLUGINS, "").split(",")
        for plugin in named:
            _flags(self.migrated, plugin, len(self.present))[row] = True
        everywhere = PORTWORX in named or self._snapshot.scheduler.version.has(Rule.PORTWORX_MIGRATED)
        counted = _ALL if everywhere else _ALL - {PORTWORX}
        self.migrated_set[row] = self.migrated_sets.setdefault(counted, len(self.migrated_sets))

    def _limits(self, driver: str) -> Numbers:
        if (column := self.limits.get(driver)) is None:
            column = self.limits[driver] = np.full(len(self.present), UNLIMITED)
        return column


def _flags(columns: dict[str, Flags], name: str, size: int) -> Flags:
    if (column := columns.get(name)) is None:
        column = columns[name] = np.zeros(size, np.bool_)
    return column
