"""Volumes that must be attached to a node: claims that pods share, and volumes that cannot be attached to spot nodes.

The scheduler does not know when a volume can be attached. The attach-detach controller attaches one without the access
modes of many nodes only after it was detached from its last node, and it detaches it only after all pods there that
use it are gone (Multi-Attach, ``pkg/controller/volume/attachdetach/reconciler``). Until then, the new pod is bound, but
does not start.
"""

from collections import Counter, defaultdict
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from functools import cached_property
from typing import Final, NamedTuple

import numpy as np
import numpy.typing as npt

from predicates.csi import DRIVERS, plugin_of
from predicates.filters import Filters
from predicates.indexes.attachments import CSINodes
from predicates.indexes.claims import PodDisks
from predicates.nodes import Flags
from predicates.objects import CSIDriver, PersistentVolume, Pod, PodClass, VolumeAttachment
from predicates.snapshot import Snapshot
from predicates.storage import find_claim, find_volume, own_claims
from predicates.texts import shown
from rescheduler.planning.outcome import Blocker, Reason
from rescheduler.planning.replacements import Replacements

#: Access modes with which pods on several nodes can use a volume.
MANY_NODES: Final = frozenset({"ReadWriteMany", "ReadOnlyMany"})


def attached_once(snapshot: Snapshot, claim: str) -> str:
    """Return the name of the volume of *claim* (its key) if it is attached to one node at a time, or ""."""
    namespace, _, name = claim.rpartition("/")
    found = find_claim(snapshot, namespace, name)
    if found is None or not found.spec.volume_name:
        return ""
    volume = find_volume(snapshot, found.spec.volume_name)
    modes = (volume.spec.access_modes if volume is not None else ()) or found.spec.access_modes
    once = bool(modes) and MANY_NODES.isdisjoint(modes) and (volume is None or _is_attached(volume, snapshot))
    return found.spec.volume_name if once else ""


def _is_attached(volume: PersistentVolume, snapshot: Snapshot) -> bool:
    """Return whether the volume must be attached to a node before it is mounted.

    NFS is mounted only, so its access modes stop no node: ReadWriteOnce is often written there all the same.
    """
    if volume.spec.csi is None:
        return volume.spec.nfs is None
    driver = snapshot.of("CSIDriver").get(volume.spec.csi.driver)
    return not isinstance(driver, CSIDriver) or driver.spec.attach_required


def attachments(snapshot: Snapshot) -> dict[str, list[VolumeAttachment]]:
    """Return the VolumeAttachments by the name of their volume."""
    by_volume: defaultdict[str, list[VolumeAttachment]] = defaultdict(list)
    for _, each in sorted(snapshot.of("VolumeAttachment").items()):
        if isinstance(each, VolumeAttachment) and each.spec.source.persistent_volume_name is not None:
            by_volume[each.spec.source.persistent_volume_name].append(each)
    return by_volume


def waits_for_detach(pod: Pod, snapshot: Snapshot, attached: Mapping[str, Sequence[VolumeAttachment]]) -> str:
    """Return which volume of the bound *pod* must be detached from another node before the pod starts, or "".

    *attached* are the :func:`attachments` of *snapshot*.
    """
    for claim in own_claims(pod.cls):
        if (name := attached_once(snapshot, claim)) and (
            elsewhere := [each for each in attached.get(name, ()) if each.spec.node_name != pod.node_name]
        ):
            return f"{pod.key} waits until its volume {name} is detached from {_where(elsewhere[0])}"
    return ""


def _where(attachment: VolumeAttachment) -> str:
    error = attachment.status.detach_error
    return f"node {attachment.spec.node_name}{f' ({shown(error.message)})' if error is not None else ''}"


class Volumes:
    """The volumes of the pods in *snapshot*, as the attach-detach controller treats them.

    *rows* are those of the spot nodes.
    """

    def __init__(
        self, snapshot: Snapshot, filters: Filters, replacements: Replacements, rows: npt.NDArray[np.intp]
    ) -> None:
        self._snapshot = snapshot
        self._filters = filters
        self._replacements = replacements
        self._rows = rows
        self._drivers_of: dict[PodClass, tuple[_Driver, ...]] = {}

    def concern(self, cls: PodClass) -> bool:
        """Return whether pods of the class have volumes that may keep them, or that need a CSI driver."""
        return bool(cls.claims) or bool(self._drivers(cls))

    def blockers(self, node: str, pods: Sequence[Pod], incoming: Sequence[Pod]) -> Iterator[Blocker]:
        """Yield a blocker for each of *pods*, which would leave *node*, whose volume could not follow it.

        *incoming* are their replacement pods, in the same order.
        """
        for pod, new in zip(pods, incoming, strict=True):
            blocker = self._blocker(node, pod, pods) if pod.cls.claims else None
            if blocker is None and (drivers := self._drivers(new.cls)) and (why := self._without(drivers, node, new)):
                blocker = Blocker(Reason.VOLUME_ATTACHMENT, why, pod.key)
            if blocker is not None:
                yield blocker

    def together(self, pods: Iterable[Pod]) -> dict[str, str]:
        """Return which of *pods* must leave their node in one step, because a volume stays until all its users left.

        The result has the key of each such pod, with a name that all pods of its group share.
        """
        users: defaultdict[str, list[str]] = defaultdict(list)
        for pod in pods:
            if pod.cls.claims:
                for claim in own_claims(pod.cls):
                    users[claim].append(pod.key)
        group: dict[str, str] = {}
        for claim in sorted(users):
            if len(users[claim]) == 1 or not attached_once(self._snapshot, claim):
                continue
            joined = {group[key] for key in users[claim] if key in group}
            group |= dict.fromkeys(users[claim], claim)
            group |= {key: claim for key, name in group.items() if name in joined}
        return group

    def _blocker(self, node: str, pod: Pod, movers: Sequence[Pod]) -> Blocker | None:
        for claim in own_claims(pod.cls):
            if volume := attached_once(self._snapshot, claim):
                if self._may_be_torn_apart(node, claim, movers):
                    return Blocker(Reason.SHARED_VOLUME, self._shared_text(pod, claim), pod.key)
                if why := self._stays_attached(volume, node):
                    return Blocker(Reason.VOLUME_ATTACHMENT, why, pod.key)
        return None

    # -- claims that several pods use

    def _may_be_torn_apart(self, node: str, claim: str, movers: Sequence[Pod]) -> bool:
        """Return whether several pods use *claim*, unless there is exactly one other node where they can run.

        Those that stay must already run there. A pod that stays on *node* keeps the volume there.
        """
        if self._snapshot.index(PodDisks).claims.get(claim, 0) + self._pending[claim] <= 1:
            return False
        if len(self._users.get(claim, ())) <= 1:  # the others are being deleted
            return False
        moving = [pod for pod in movers if claim in own_claims(pod.cls)]
        if self._stay(node, claim, {pod.key for pod in moving}):
            return True
        waiting = {pod.cls for pod in self._unplaced if claim in own_claims(pod.cls)}
        drained, incoming = self._snapshot.nodes.row[node], {self._replacements.of(pod).cls for pod in moving}
        possible = {row for cls in incoming | waiting for row in self._filters.possible(cls) if row != drained}
        return len(possible) != 1 or not self._rows_using(claim) - {drained} <= possible

    @cached_property
    def _users(self) -> Mapping[str, Sequence[str]]:
        """The keys of the pods that use each claim and are not being deleted."""
        users = defaultdict[str, list[str]](list)
        for key, pod in self._snapshot.pods.items():
            if pod.cls.claims and pod.deletion_timestamp is None:
                for claim in own_claims(pod.cls):
                    users[claim].append(key)
        return users

    def _stay(self, node: str, claim: str, moving: Collection[str]) -> bool:
        """Return whether a pod that uses *claim* stays on *node*, besides those *moving* (keys)."""
        return any(
            key not in moving and pod.deletion_timestamp is None and pod.cls.claims and claim in own_claims(pod.cls)
            for key, pod in self._snapshot.pods_on[node].items()
        )

    @cached_property
    def _unplaced(self) -> list[Pod]:
        return [pod for pod in self._snapshot.pods_on.get("", {}).values() if pod.cls.claims]

    @cached_property
    def _pending(self) -> Counter[str]:
        return Counter(claim for pod in self._unplaced for claim in own_claims(pod.cls))

    def _rows_using(self, claim: str) -> set[int]:
        """Return the rows of the placed pods that use *claim*."""
        return {row for cls in self._classes_using.get(claim, ()) for row in self._snapshot.rows_of(cls)}

    @cached_property
    def _classes_using(self) -> Mapping[str, Sequence[PodClass]]:
        classes = defaultdict[str, list[PodClass]](list)
        for cls in self._snapshot.classes():
            for claim in own_claims(cls):
                classes[claim].append(cls)
        return classes

    def _shared_text(self, pod: Pod, claim: str) -> str:
        others = sorted(key for key in self._users.get(claim, ()) if key != pod.key)
        return (
            f"it shares the PersistentVolumeClaim {claim.rpartition('/')[2]} with pod {others[0]}"
            f"{', …' if len(others) > 1 else ''}: its "
            "volume attaches to one node at a time, and the scheduler may place the pods on two nodes"
        )

    # -- volumes that cannot be attached

    @cached_property
    def _attachments(self) -> Mapping[str, Sequence[VolumeAttachment]]:
        return attachments(self._snapshot)

    def _stays_attached(self, volume: str, node: str) -> str:
        """Return why *volume* of a pod on *node* cannot be attached to another node at present, or ""."""
        for each in self._attachments.get(volume, ()):
            if each.spec.node_name != node:
                return (
                    f"its volume {volume} is still attached to {_where(each)}: it cannot be attached to a spot node "
                    "before it is detached there"
                )
            if each.status.detach_error is not None:
                return f"its volume {volume} cannot be detached from {_where(each)}"
        return ""

    def _without(self, drivers: Iterable["_Driver"], node: str, new: Pod) -> str:
        """Return that one of *drivers* is missing on spot nodes where the scheduler may place the pod *new*, or "".

        It is only said if the CSINode of *node* shows that drivers are registered.
        """
        incomplete = [each for each in drivers if self._is_incomplete(each, node)]
        if not incomplete:
            return ""
        spot = np.asarray(self._filters.possible(new.cls, self._rows), np.intp)  # an empty list has no integers
        for driver in incomplete:
            lacking = spot[~self._installed[driver.name][spot]]
            if len(lacking):
                return (
                    f"the CSI driver {driver.name} of its volume {driver.volume} is missing on {len(lacking)} of "
                    f"{len(spot)} spot nodes where the scheduler may place it, such as "
                    f"{self._snapshot.nodes.names[lacking[0]]}"
                )
        return ""

    @cached_property
    def _installed(self) -> Mapping[str, Flags]:
        return self._snapshot.index(CSINodes).sync().installed

    def _is_incomplete(self, driver: "_Driver", node: str) -> bool:
        """Return whether *driver* is on *node*, but not on all spot nodes, and does not say that pods must wait for it.

        Since 1.37, the scheduler rejects nodes without a driver that says so, unless the volume is part of the pod. An
        older API server does not store what it says, so only files of newer clusters have it there: their plans are by
        the rules of that scheduler.
        """
        flags = self._installed.get(driver.name)
        if flags is None or not flags[self._snapshot.nodes.row[node]] or flags[self._rows].all():
            return False
        known = self._snapshot.of("CSIDriver").get(driver.name)
        waits = isinstance(known, CSIDriver) and known.spec.prevent_pod_scheduling_if_missing
        return driver.inline or not waits

    def _drivers(self, cls: PodClass) -> tuple["_Driver", ...]:
        """Return the CSI drivers of the volumes of the class, by name."""
        if (drivers := self._drivers_of.get(cls)) is None:
            drivers = self._drivers_of[cls] = tuple(sorted({*_own_drivers(cls), *self._drivers_of_claims(cls)}))
        return drivers

    def _drivers_of_claims(self, cls: PodClass) -> Iterator["_Driver"]:
        """Yield the drivers of bound volumes. In-tree volumes belong to the CSI drivers to which they are migrated."""
        for claim in cls.claims:
            found = find_claim(self._snapshot, cls.namespace, claim.name)
            volume = find_volume(self._snapshot, found.spec.volume_name) if found is not None else None
            if volume is None:
                continue
            plugin = plugin_of(volume.spec)
            driver = volume.spec.csi.driver if volume.spec.csi is not None else DRIVERS[plugin] if plugin else ""
            if driver:
                yield _Driver(driver, volume.metadata.name, inline=False)


class _Driver(NamedTuple):
    """The CSI driver of a volume of a pod."""

    name: str
    volume: str
    inline: bool  #: whether the volume is part of the pod, and no PersistentVolume


def _own_drivers(cls: PodClass) -> Iterator[_Driver]:
    """Yield the drivers of the volumes that are part of the pod, such as those with secrets."""
    for volume in cls.spec.volumes:
        if volume.csi is not None and volume.csi.driver:
            yield _Driver(volume.csi.driver, volume.name, inline=True)
