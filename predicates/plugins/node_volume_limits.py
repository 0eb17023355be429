"""NodeVolumeLimits: a node attaches as many CSI volumes as its CSINode says (``nodevolumelimits/csi.go``).

The alpha gate VolumeLimitScaling is off: ``preventPodSchedulingIfMissing`` of a CSIDriver says nothing.
"""

from collections import Counter
from collections.abc import Iterable
from typing import Final

import numpy as np

from predicates.csi_translation import CSIVolume, plugin_of
from predicates.framework import Codes, Plugin, Rejections, Scope
from predicates.indexes.attachments import Attachments, VolumeError
from predicates.indexes.csi_nodes import CSINodes
from predicates.nodes import Flags, Rows
from predicates.objects import PodClass
from predicates.snapshot import Snapshot
from predicates.storage import failed

NAME: Final = "NodeVolumeLimits"
REASON: Final = "node(s) exceed max volume count"

#: Codes: the first three, and from there on what keeps the volumes of pods on the node from being told.
_EXCEEDED, _BROKEN, _BROKEN_WITHOUT_CSI, _SPOILED = 1, 2, 3, 4


def _pre_filter(pod: PodClass) -> PodClass | None:
    if pod.claims or any(plugin_of(one) for one in pod.disks):
        return pod
    return None


def _filter(pod: PodClass, snapshot: Snapshot, rows: Rows) -> Rejections | None:
    attachments = snapshot.index(Attachments).sync()
    wanted = attachments.wanted(pod)
    if not (wanted.volumes or wanted.error or wanted.error_without_csi):
        return None
    nodes = snapshot.index(CSINodes).sync()
    texts = {_EXCEEDED: REASON}
    codes: Codes
    if wanted.error or wanted.error_without_csi:
        codes = np.where(
            nodes.present[rows],
            _BROKEN if wanted.error else 0,
            _BROKEN_WITHOUT_CSI if wanted.error_without_csi else 0,
        )
        texts |= {_BROKEN: _worded(wanted.error), _BROKEN_WITHOUT_CSI: _worded(wanted.error_without_csi)}
    else:
        codes = _exceeded(wanted.volumes, nodes, attachments, rows).astype(np.int64)
        if attachments.spoiled:
            texts |= _spoil(codes, attachments, nodes.limited, rows)
    if not codes.any():
        return None
    return Rejections(codes, lambda code: (texts[code],))


def _worded(error: VolumeError | None) -> str:
    if error is None:
        return ""
    return failed(NAME, error.text) if error.fatal else error.text


def _exceeded(volumes: Iterable[CSIVolume], nodes: CSINodes, attachments: Attachments, rows: Rows) -> Flags:
    """Where a driver would get more volumes than it may; those that pods of the node use already come for free."""
    exceeded: Flags = np.zeros(len(nodes.present[rows]), np.bool_)
    for driver, number in Counter(one.driver for one in volumes).items():
        if (limits := nodes.limits.get(driver)) is None:
            continue
        # Subtracted, not added up: the limit of a driver without one is the largest number there is.
        count = attachments.counts.get(driver)
        room = limits[rows] if count is None else limits[rows] - count[rows]
        used = [attachments.pods[one] for one in volumes if one.driver == driver and one in attachments.pods]
        if not used:
            exceeded |= room < number
            continue
        more = np.full(len(nodes.present), number)
        for there in used:
            more[list(there)] -= 1
        exceeded |= (more[rows] > 0) & (room < more[rows])
    return exceeded


def _spoil(codes: Codes, attachments: Attachments, limited: Flags, rows: Rows) -> dict[int, str]:
    """Mark the nodes whose pods' volumes cannot be told; the scheduler gives up on those, if they have limits."""
    texts = sorted({next(iter(errors)) for errors in attachments.spoiled.values()})
    numbers = {text: number for number, text in enumerate(texts, _SPOILED)}
    spoiled: Codes = np.zeros(len(limited), np.int64)
    for row, errors in attachments.spoiled.items():
        if limited[row]:
            spoiled[row] = numbers[next(iter(errors))]
    np.copyto(codes, spoiled[rows], where=spoiled[rows] != 0)
    return {number: failed(NAME, text) for text, number in numbers.items()}


PLUGIN: Final = Plugin(NAME, Scope.PODS, _pre_filter, _filter)
