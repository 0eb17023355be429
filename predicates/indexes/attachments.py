"""The CSI volumes attached to each node, counted by driver, and the nodes' CSINode objects as columns. It is an
index, which follows placements and knows no plugin.
"""

from collections import Counter
from collections.abc import Iterator
from functools import partial
from typing import Final, cast

import numpy as np

from predicates.csi import (
    DRIVERS,
    PORTWORX,
    AttachedVolumes,
    CSIVolume,
    RequestedVolumes,
    volumes_of_incoming,
    volumes_of_placed,
)
from predicates.nodes import Flags, Numbers
from predicates.objects import CSINode, PodClass, VolumeAttachment
from predicates.placed import Watchers
from predicates.snapshot import Snapshot
from predicates.storage import find_volume
from predicates.versions import VersionRule

# The nodes' CSINode objects, as columns.

MIGRATED_PLUGINS: Final = "storage.alpha.kubernetes.io/migrated-plugins"
UNLIMITED: Final = np.iinfo(np.int64).max

_NONE: Final[frozenset[str]] = frozenset()


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
        everywhere = PORTWORX in named or self._snapshot.scheduler.version.has(VersionRule.PORTWORX_MIGRATED)
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


# The CSI volumes attached to each node, counted by driver.
#
# Source: ``nodevolumelimits/csi.go``. The index is rebuilt when an object that volumes are resolved from changes.
# Placements update the counts.

#: The kinds from which the volumes of a pod are resolved, in addition to its spec.
_RESOLVED: Final = ("PersistentVolumeClaim", "PersistentVolume", "StorageClass")

#: All in-tree plugins that can be migrated. If they are migrated everywhere, volumes on nodes without a CSINode are
#: counted as well; those nodes have no limits.
_ALL: Final = frozenset(DRIVERS)


class Attachments:
    """CSI volumes by row. Call :meth:`sync` before reading."""

    def __init__(self, snapshot: Snapshot) -> None:
        self._snapshot = snapshot
        self._built_from: tuple[int, ...] = ()
        self._read_up_to = (-1, 0)
        self._rows = 0
        self._attached: dict[tuple[PodClass, frozenset[str]], AttachedVolumes] = {}
        self._requested: dict[tuple[PodClass, frozenset[str]], RequestedVolumes] = {}
        self._sets: list[frozenset[str]] = []  #: by row: the in-tree plugins whose volumes count; see :class:`CSINodes`
        self._from_attachments: dict[int, frozenset[CSIVolume]] = {}  #: by row, from VolumeAttachments
        self._by_node: dict[str, list[VolumeAttachment]] = {}
        self._by_node_version = -1
        self.counts: dict[str, Numbers] = {}  #: by driver: number of volumes on each row
        self.users: dict[CSIVolume, dict[int, int]] = {}  #: by volume and row: number of pods that use it
        self.unresolved: dict[int, Counter[str]] = {}  #: by row: errors of pods whose volumes cannot be resolved

    def watch(self, pod: PodClass) -> Watchers | None:
        return Watchers(partial(self._shift, pod)) if pod.claims or pod.disks else None

    def _shift(self, pod: PodClass, row: int, delta: int) -> None:
        if row >= self._rows:
            self._built_from = ()  # The index is rebuilt by the next sync.
            return
        attached = self._volumes_of(pod, self._sets[row] if self._sets else _ALL)
        for volume in attached.volumes:
            self._use(volume, row, delta)
        if attached.error is not None:
            errors = self.unresolved.setdefault(row, Counter())
            errors[attached.error] += delta
            if not errors[attached.error]:
                del errors[attached.error]
            if not errors:
                del self.unresolved[row]

    def sync(self) -> "Attachments":
        """Update the counts and return the index.

        Costs O(changed nodes), or O(all pods with volumes) if claims, volumes or storage classes have changed.
        """
        snapshot = self._snapshot
        everywhere = snapshot.scheduler.version.has(VersionRule.PORTWORX_MIGRATED)
        versions = (snapshot.versions[kind] for kind in (_RESOLVED if everywhere else (*_RESOLVED, "CSINode")))
        built_from = (*versions, snapshot.generation, len(snapshot.nodes))
        (epoch, position), self._read_up_to = self._read_up_to, (snapshot.epoch, len(snapshot.node_changes))
        if built_from != self._built_from:
            self._built_from = built_from
            self._rebuild()
        elif epoch != snapshot.epoch:
            for row in [*self._from_attachments, *snapshot.nodes.row.values()]:
                self._read_attachments(row)
        elif position != len(snapshot.node_changes):
            for row in set(snapshot.node_changes[position:]):
                self._read_attachments(row)
        return self

    def requested(self, pod: PodClass, migrated: frozenset[str]) -> RequestedVolumes:
        """Return the volumes of an incoming pod of the class, on nodes where the plugins *migrated* are migrated."""
        if (volumes := self._requested.get((pod, migrated))) is None:
            volumes = self._requested[pod, migrated] = volumes_of_incoming(pod, self._snapshot, migrated)
        return volumes

    def _rebuild(self) -> None:
        snapshot = self._snapshot
        self._rows = len(snapshot.nodes)
        self._attached, self._requested, self._from_attachments = {}, {}, {}
        self.counts, self.users, self.unresolved = {}, {}, {}
        self._sets = []
        if not snapshot.scheduler.version.has(VersionRule.PORTWORX_MIGRATED):
            nodes = snapshot.index(CSINodes).sync()
            names = list(nodes.migrated_sets)
            self._sets = [names[number] for number in nodes.migrated_set.tolist()]
        for pod in snapshot.watched_classes():
            if (watchers := self.watch(pod)) is not None:
                snapshot.replay_placements(watchers, pod)
        for row in snapshot.nodes.row.values():
            self._read_attachments(row)

    def _read_attachments(self, row: int) -> None:
        """Update the volumes of *row* from the VolumeAttachments of its node."""
        before = self._from_attachments.pop(row, frozenset())
        after = frozenset(self._attached_to(self._snapshot.nodes.names[row]))
        if after:
            self._from_attachments[row] = after
        for volume in before ^ after:
            if row not in self.users.get(volume, ()):
                self._count(volume.driver, row, 1 if volume in after else -1)

    def _attached_to(self, node: str) -> Iterator[CSIVolume]:
        """Yield the volumes attached to *node*. As upstream, only volumes with a CSI source count."""
        if self._by_node_version != self._snapshot.versions["VolumeAttachment"]:
            self._by_node_version, self._by_node = self._snapshot.versions["VolumeAttachment"], {}
            for attachment in cast("dict[str, VolumeAttachment]", self._snapshot.of("VolumeAttachment")).values():
                self._by_node.setdefault(attachment.spec.node_name, []).append(attachment)
        for attachment in self._by_node.get(node, ()):
            name = attachment.spec.source.persistent_volume_name
            volume = find_volume(self._snapshot, name) if attachment.spec.attacher and name is not None else None
            if volume is not None and volume.spec.csi is not None:
                yield CSIVolume(attachment.spec.attacher, volume.spec.csi.volume_handle)

    def _use(self, volume: CSIVolume, row: int, delta: int) -> None:
        rows = self.users.setdefault(volume, {})
        before = rows.get(row, 0)
        after = rows[row] = before + delta
        if not after:
            del rows[row]
            if not rows:
                del self.users[volume]
        if (before == 0 or after == 0) and volume not in self._from_attachments.get(row, ()):
            self._count(volume.driver, row, 1 if before == 0 else -1)

    def _count(self, driver: str, row: int, delta: int) -> None:
        if (column := self.counts.get(driver)) is None:
            column = self.counts[driver] = np.zeros(self._rows, np.int64)
        column[row] += delta

    def _volumes_of(self, pod: PodClass, migrated: frozenset[str]) -> AttachedVolumes:
        if (volumes := self._attached.get((pod, migrated))) is None:
            volumes = self._attached[pod, migrated] = volumes_of_placed(pod, self._snapshot, migrated)
        return volumes
