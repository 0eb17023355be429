"""The CSI volumes attached to each node, counted by driver.

Source: ``nodevolumelimits/csi.go``. The index is rebuilt when an object that volumes are resolved from changes.
Placements update the counts.
"""

from collections import Counter
from collections.abc import Iterator
from functools import partial
from typing import Final, cast

import numpy as np

from predicates.csi_translation import DRIVERS, CSIVolume
from predicates.csi_volumes import AttachedVolumes, RequestedVolumes, volumes_of_incoming, volumes_of_placed
from predicates.indexes.csi_nodes import CSINodes
from predicates.nodes import Numbers
from predicates.objects import PodClass, VolumeAttachment
from predicates.placed import Watchers
from predicates.snapshot import Snapshot
from predicates.storage import find_volume
from predicates.versions import Rule

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
        everywhere = snapshot.scheduler.version.has(Rule.PORTWORX_MIGRATED)
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
        if not snapshot.scheduler.version.has(Rule.PORTWORX_MIGRATED):
            nodes = snapshot.index(CSINodes).sync()
            names = list(nodes.migrated_sets)
            self._sets = [names[number] for number in nodes.migrated_set.tolist()]
        for pod in snapshot.classes():
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
