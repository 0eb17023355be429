"""NodeVolumeLimits: the node must have the drivers of the pod's volumes, and must not exceed their limits.

Source: ``nodevolumelimits/csi.go``. Both are read from the node's CSINode. A driver must be installed only if its
CSIDriver has ``preventPodSchedulingIfMissing: true``, and only since 1.37.
"""

from collections import Counter
from collections.abc import Iterable
from typing import Final

import numpy as np

from predicates.csi_translation import CSIVolume, plugin_of
from predicates.csi_volumes import VolumeError
from predicates.framework import Codes, Plugin, Rejections, Scope
from predicates.indexes.attachments import Attachments
from predicates.indexes.csi_nodes import CSINodes
from predicates.nodes import Flags, Rows
from predicates.objects import CSIDriver, PodClass
from predicates.snapshot import Snapshot
from predicates.storage import filter_error
from predicates.versions import Rule

NAME: Final = "NodeVolumeLimits"
REASON: Final = "node(s) exceed max volume count"
NOT_INSTALLED: Final = "CSI driver is not installed on the node"


def _pre_filter(pod: PodClass) -> PodClass | None:
    if pod.claims or any(plugin_of(volume) for volume in pod.disks):
        return pod
    return None


def _filter(pod: PodClass, snapshot: Snapshot, rows: Rows) -> Rejections | None:
    attachments, nodes = snapshot.index(Attachments).sync(), snapshot.index(CSINodes).sync()
    reasons: dict[str, int] = {"": 0}
    sets = nodes.migrated_set[rows]
    codes: Codes = np.zeros(len(sets), np.int64)
    for migrated, number in nodes.migrated_sets.items():
        requested = attachments.requested(pod, migrated)
        if not (requested.volumes or requested.error) or not (selected := sets == number).any():
            continue
        if requested.error:
            codes[selected] = _code(_reason(requested.error), reasons)
            continue
        found = _exceeded(requested.volumes, nodes, attachments, rows) * _code(REASON, reasons)
        _add_placed_pod_errors(found, attachments, nodes.limited, rows, reasons)
        _add_missing_drivers(found, requested.volumes, nodes, snapshot, rows, reasons)
        np.copyto(codes, found, where=selected)
    if not codes.any():
        return None
    texts = list(reasons)
    return Rejections(codes, lambda code: (texts[code],))


def _code(reason: str, reasons: dict[str, int]) -> int:
    """Return the number of *reason* in *reasons*, which may be a new one."""
    return reasons.setdefault(reason, len(reasons))


def _reason(error: VolumeError) -> str:
    return filter_error(NAME, error.text) if error.fatal else error.text


def _exceeded(new_volumes: Iterable[CSIVolume], nodes: CSINodes, attachments: Attachments, rows: Rows) -> Flags:
    """Return which of *rows* would exceed the limit of a driver. Volumes in use on a node are not counted again.

    ``currentVolumeCount + newVolumeCount > maxVolumeLimit``
    """
    exceeded: Flags = np.zeros(len(nodes.present[rows]), np.bool_)
    for driver, number in Counter(volume.driver for volume in new_volumes).items():
        if (limits := nodes.limits.get(driver)) is None:
            continue
        # Subtracted instead of added: no limit is the largest 64-bit integer, and a sum would overflow.
        current = attachments.counts.get(driver)
        remaining = limits[rows] if current is None else limits[rows] - current[rows]
        driver_volumes = (volume for volume in new_volumes if volume.driver == driver)
        users = [attachments.users[volume] for volume in driver_volumes if volume in attachments.users]
        if not users:
            exceeded |= remaining < number
            continue
        new_count = np.full(len(nodes.present), number)
        for rows_with_volume in users:
            new_count[list(rows_with_volume)] -= 1
        exceeded |= (new_count[rows] > 0) & (remaining < new_count[rows])
    return exceeded


def _add_placed_pod_errors(
    codes: Codes, attachments: Attachments, limited: Flags, rows: Rows, reasons: dict[str, int]
) -> None:
    """Mark nodes that have limits and a pod with unresolvable volumes: there, the scheduler's plugin fails."""
    if not attachments.unresolved:
        return
    failing: Codes = np.zeros(len(limited), np.int64)
    for row, errors in attachments.unresolved.items():
        if limited[row]:
            failing[row] = _code(filter_error(NAME, next(iter(errors))), reasons)
    np.copyto(codes, failing[rows], where=failing[rows] != 0)


def _add_missing_drivers(
    codes: Codes,
    volumes: Iterable[CSIVolume],
    nodes: CSINodes,
    snapshot: Snapshot,
    rows: Rows,
    reasons: dict[str, int],
) -> None:
    """Mark nodes without a driver that must be installed (``checkCSIDriverOnNode``).

    If several are missing, the scheduler reports any of them; here it is the last by name.
    """
    if not snapshot.scheduler.version.has(Rule.DRIVER_REQUIRED):
        return
    for name in sorted({volume.driver for volume in volumes}):
        driver = snapshot.of("CSIDriver").get(name)
        if isinstance(driver, CSIDriver) and driver.spec.prevent_pod_scheduling_if_missing:
            installed = nodes.installed.get(name)
            missing: Flags = np.ones(len(codes), np.bool_) if installed is None else ~installed[rows]
            codes[missing] = _code(f"{name} {NOT_INSTALLED}", reasons)


PLUGIN: Final = Plugin(NAME, Scope.PODS, _pre_filter, _filter)
