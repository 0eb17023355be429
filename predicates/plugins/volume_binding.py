"""VolumeBinding: bound volumes must be in reach of the node, and claims that wait for one must find it from there.

Source: ``volumebinding/volume_binding.go``, ``binder.go``. Two plugins make up the scheduler's one: what can be
said of any pod by itself, and what a trial's own placements have taken already. The scheduler keeps the latter in
mind from binding to binding (``AssumePodVolumes``).
"""

from collections.abc import Iterable, Iterator
from typing import Final, NamedTuple

import numpy as np

from predicates.framework import Codes, Plugin, Reasons, Rejections, Scope
from predicates.indexes.csi_nodes import CSINodes
from predicates.indexes.pod_claims import BoundVolume, ClaimsOfPods, PodClaims, selected_node
from predicates.indexes.shelves import Shelves
from predicates.nodes import Flags, Rows
from predicates.objects import PersistentVolumeClaim, PodClass
from predicates.provisioning import BIND_CONFLICT, NOT_ENOUGH_SPACE, provisioning_codes
from predicates.reservations import taken
from predicates.selectors import compile_selector
from predicates.snapshot import Snapshot
from predicates.storage import claim_key, failed, reached, rejected

NAME: Final = "VolumeBinding"

_NODE_CONFLICT, _NO_VOLUME = 1, 8
#: From here on the code is the number of an error: the scheduler cannot judge the node.
_ERROR: Final = 16
_REASONS: Final = {
    _NODE_CONFLICT: "node(s) didn't match PersistentVolume's node affinity",
    BIND_CONFLICT: "node(s) didn't find available persistent volumes to bind",
    NOT_ENOUGH_SPACE: "node(s) did not have enough free storage",
    _NO_VOLUME: "node(s) unavailable due to one or more pvc(s) bound to non-existent pv(s)",
}


def _pre_filter(pod: PodClass) -> PodClass | None:
    return pod if pod.claims else None


class _Asked(NamedTuple):
    """One question: about which rows, and the errors met so far."""

    snapshot: Snapshot
    rows: Rows
    codes: Codes
    errors: list[str]

    def fail(self, where: Flags, error: str) -> None:
        self.errors.append(failed(NAME, error))
        self.codes[where] = _ERROR + len(self.errors) - 1


def _filter(pod: PodClass, snapshot: Snapshot, rows: Rows) -> Rejections | None:
    claims = snapshot.index(ClaimsOfPods).of(pod)
    if claims.rejection is not None:
        return rejected(claims.rejection, snapshot, rows)
    asked = _Asked(snapshot, rows, np.zeros(len(snapshot.nodes.alive[rows]), np.int64), [])
    _check_bound(claims.bound, asked)
    if claims.selected or claims.waiting:
        _check_waiting(claims, asked)
    if not asked.codes.any():
        return None

    def reasons(code: int) -> Reasons:
        if code >= _ERROR:
            return (asked.errors[code - _ERROR],)
        return tuple(reason for bit, reason in _REASONS.items() if code & bit)

    return Rejections(asked.codes, reasons)


# Bound claims


def _check_bound(volumes: Iterable[BoundVolume | None], asked: _Asked) -> None:
    """The first volume that a node fails by decides."""
    left: Flags = np.ones(len(asked.codes), np.bool_)
    for one in volumes:
        if one is None:
            asked.codes[left] = _NO_VOLUME
            return
        reach = reached(one.nodes, asked.snapshot, asked.rows)
        if one.plugin is not None:
            migrated = asked.snapshot.index(CSINodes).sync().migrated.get(one.plugin)
            if migrated is not None and (there := migrated[asked.rows]).any():
                if one.csi_error is not None:
                    asked.fail(left & there, one.csi_error)
                    left &= ~there
                else:
                    reach = np.where(there, reached(one.csi_nodes, asked.snapshot, asked.rows), reach)
        asked.codes[left & ~reach] = _NODE_CONFLICT
        left &= reach


# Claims that wait for their first consumer


def _check_waiting(claims: PodClaims, asked: _Asked) -> None:
    left = asked.codes < _ERROR
    for one in claims.selected:
        elsewhere: Flags = np.ones(len(asked.snapshot.nodes), np.bool_)
        if (row := asked.snapshot.nodes.row.get(selected_node(one) or "")) is not None:
            elsewhere[row] = False
        asked.codes[left & elsewhere[asked.rows]] |= BIND_CONFLICT
        left &= ~elsewhere[asked.rows]
    for one in claims.waiting:
        if one.spec.selector is not None and (error := compile_selector(one.spec.selector).error):
            name = claim_key(one.metadata.namespace, one.metadata.name)
            asked.fail(left, f"error creating internal label selector for claim: {name}: {error}")
            return
    none: Flags = np.zeros(len(asked.codes), np.bool_)
    found = {index: flags[asked.rows] for index, flags in _bindable(claims.waiting, asked.snapshot)}
    for index, one in enumerate((*claims.selected, *claims.waiting), -len(claims.selected)):
        lacking = left & ~found.get(index, none)
        if lacking.any():
            codes = np.where(lacking, provisioning_codes(one, asked.snapshot, asked.rows), 0)
            np.bitwise_or(asked.codes, codes, out=asked.codes)
            left &= codes == 0


def _bindable(claims: tuple[PersistentVolumeClaim, ...], snapshot: Snapshot) -> Iterator[tuple[int, Flags]]:
    """For each claim, by its place among *claims*, the rows from where it finds a volume that is there already."""
    for shelf, wishes in snapshot.index(Shelves).wishes(claims):
        yield from zip(wishes, shelf.bindable(tuple(wishes.values())), strict=True)


def _filter_assumed(pod: PodClass, snapshot: Snapshot, rows: Rows) -> Rejections | None:
    """What the trial's own placements have taken."""
    claims = snapshot.index(ClaimsOfPods).of(pod)
    if not snapshot.assumed_claims or not claims.waiting:
        return None
    codes = np.where(taken(claims.waiting, snapshot), BIND_CONFLICT, 0)[rows]
    return Rejections(codes, lambda code: (_REASONS[code],)) if codes.any() else None


PLUGIN: Final = Plugin(NAME, Scope.NODE, _pre_filter, _filter)
TAKEN: Final = Plugin(NAME, Scope.CLUSTER, _pre_filter, _filter_assumed)
