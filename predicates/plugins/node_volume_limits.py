"""NodeVolumeLimits: the node must not exceed the volume limits in its CSINode (``nodevolumelimits/csi.go``).

The alpha feature gate VolumeLimitScaling is off, so ``preventPodSchedulingIfMissing`` of a CSIDriver has no effect.
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
from predicates.objects import PodClass
from predicates.snapshot import Snapshot
from predicates.storage import filter_error

NAME: Final = "NodeVolumeLimits"
REASON: Final = "node(s) exceed max volume count"

#: Codes. From ``_PLACED_POD_ERROR`` on: errors about the volumes of pods on the node.
_EXCEEDED, _POD_ERROR, _POD_ERROR_WITHOUT_CSI, _PLACED_POD_ERROR = 1, 2, 3, 4


def _pre_filter(pod: PodClass) -> PodClass | None:
    if pod.claims or any(plugin_of(volume) for volume in pod.disks):
        return pod
    return None


def _filter(pod: PodClass, snapshot: Snapshot, rows: Rows) -> Rejections | None:
    attachments = snapshot.index(Attachments).sync()
    requested = attachments.requested(pod)
    if not (requested.volumes or requested.error or requested.error_without_csi):
        return None
    nodes = snapshot.index(CSINodes).sync()
    reasons = {_EXCEEDED: REASON}
    codes: Codes
    if requested.error or requested.error_without_csi:
        codes = np.where(
            nodes.present[rows],
            _POD_ERROR if requested.error else 0,
            _POD_ERROR_WITHOUT_CSI if requested.error_without_csi else 0,
        )
        reasons |= {_POD_ERROR: _reason(requested.error), _POD_ERROR_WITHOUT_CSI: _reason(requested.error_without_csi)}
    else:
        codes = _exceeded(requested.volumes, nodes, attachments, rows).astype(np.int64)
        if attachments.unresolved:
            reasons |= _add_placed_pod_errors(codes, attachments, nodes.limited, rows)
    if not codes.any():
        return None
    return Rejections(codes, lambda code: (reasons[code],))


def _reason(error: VolumeError | None) -> str:
    if error is None:
        return ""
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


def _add_placed_pod_errors(codes: Codes, attachments: Attachments, limited: Flags, rows: Rows) -> dict[int, str]:
    """Mark nodes that have limits and a pod with unresolvable volumes: there, the scheduler's plugin fails."""
    messages = sorted({next(iter(errors)) for errors in attachments.unresolved.values()})
    numbers = {message: number for number, message in enumerate(messages, _PLACED_POD_ERROR)}
    failing: Codes = np.zeros(len(limited), np.int64)
    for row, errors in attachments.unresolved.items():
        if limited[row]:
            failing[row] = numbers[next(iter(errors))]
    np.copyto(codes, failing[rows], where=failing[rows] != 0)
    return {number: filter_error(NAME, message) for message, number in numbers.items()}


PLUGIN: Final = Plugin(NAME, Scope.PODS, _pre_filter, _filter)
