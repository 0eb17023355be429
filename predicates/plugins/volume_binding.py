"""VolumeBinding: the node must have access to bound volumes, and to matching volumes for unbound claims.

Source: ``volumebinding/volume_binding.go``, ``binder.go``. The scheduler's plugin is split in two here: ``PLUGIN``
evaluates the pod by itself, and ``ASSUMED`` the volumes that placements in the trial may have taken. The scheduler
remembers the latter from one binding to the next (``AssumePodVolumes``).
"""

from collections.abc import Iterable, Iterator
from typing import Final, NamedTuple

import numpy as np

from predicates.framework import Codes, Plugin, Reasons, Rejections, Scope
from predicates.indexes.csi_nodes import CSINodes
from predicates.indexes.pod_claims import BoundVolume, PodClaims, PodClaimsIndex, selected_node
from predicates.indexes.unbound_volumes import UnboundVolumes
from predicates.nodes import Flags, Rows
from predicates.objects import PersistentVolumeClaim, PodClass
from predicates.provisioning import BIND_CONFLICT, NOT_ENOUGH_SPACE, provisioning_codes
from predicates.reservations import assumed_conflicts
from predicates.selectors import compile_selector
from predicates.snapshot import Snapshot
from predicates.storage import claim_key, filter_error, reject_all, selected_rows

NAME: Final = "VolumeBinding"

_NODE_CONFLICT, _NO_VOLUME = 1, 8
#: Codes from here on identify errors with which the scheduler's plugin fails for the node.
_ERROR: Final = 16
_REASONS: Final = {
    _NODE_CONFLICT: "node(s) didn't match PersistentVolume's node affinity",
    BIND_CONFLICT: "node(s) didn't find available persistent volumes to bind",
    NOT_ENOUGH_SPACE: "node(s) did not have enough free storage",
    _NO_VOLUME: "node(s) unavailable due to one or more pvc(s) bound to non-existent pv(s)",
}


def _pre_filter(pod: PodClass) -> PodClass | None:
    return pod if pod.claims else None


class _Evaluation(NamedTuple):
    """The rows to evaluate, and their codes and errors so far."""

    snapshot: Snapshot
    rows: Rows
    codes: Codes
    errors: list[str]

    def fail(self, mask: Flags, error: str) -> None:
        """Set the code of the rows in *mask* to a new error."""
        self.errors.append(filter_error(NAME, error))
        self.codes[mask] = _ERROR + len(self.errors) - 1


def _filter(pod: PodClass, snapshot: Snapshot, rows: Rows) -> Rejections | None:
    claims = snapshot.index(PodClaimsIndex).of(pod)
    if claims.rejection is not None:
        return reject_all(claims.rejection, snapshot, rows)
    evaluation = _Evaluation(snapshot, rows, np.zeros(len(snapshot.nodes.alive[rows]), np.int64), [])
    _check_bound(claims.bound, evaluation)
    if claims.to_provision or claims.to_match:
        _check_unbound(claims, evaluation)
    if not evaluation.codes.any():
        return None

    def reasons(code: int) -> Reasons:
        if code >= _ERROR:
            return (evaluation.errors[code - _ERROR],)
        return tuple(reason for bit, reason in _REASONS.items() if code & bit)

    return Rejections(evaluation.codes, reasons)


# Bound claims


def _check_bound(volumes: Iterable[BoundVolume | None], evaluation: _Evaluation) -> None:
    """Check bound volumes. The first volume that a node cannot access determines its code."""
    undecided: Flags = np.ones(len(evaluation.codes), np.bool_)
    for volume in volumes:
        if volume is None:
            evaluation.codes[undecided] = _NO_VOLUME
            return
        accessible = selected_rows(volume.nodes, evaluation.snapshot, evaluation.rows)
        if volume.plugin is not None:
            migrated = evaluation.snapshot.index(CSINodes).sync().migrated.get(volume.plugin)
            if migrated is not None and (on_csi := migrated[evaluation.rows]).any():
                if volume.csi_error is not None:
                    evaluation.fail(undecided & on_csi, volume.csi_error)
                    undecided &= ~on_csi
                else:
                    csi_accessible = selected_rows(volume.csi_nodes, evaluation.snapshot, evaluation.rows)
                    accessible = np.where(on_csi, csi_accessible, accessible)
        evaluation.codes[undecided & ~accessible] = _NODE_CONFLICT
        undecided &= accessible


# Unbound claims, which wait for their first consumer


def _check_unbound(claims: PodClaims, evaluation: _Evaluation) -> None:
    undecided = evaluation.codes < _ERROR
    for claim in claims.to_provision:
        not_selected: Flags = np.ones(len(evaluation.snapshot.nodes), np.bool_)
        if (row := evaluation.snapshot.nodes.row.get(selected_node(claim) or "")) is not None:
            not_selected[row] = False
        evaluation.codes[undecided & not_selected[evaluation.rows]] |= BIND_CONFLICT
        undecided &= ~not_selected[evaluation.rows]
    for claim in claims.to_match:
        if claim.spec.selector is not None and (error := compile_selector(claim.spec.selector).error):
            name = claim_key(claim.metadata.namespace, claim.metadata.name)
            evaluation.fail(undecided, f"error creating internal label selector for claim: {name}: {error}")
            return
    none: Flags = np.zeros(len(evaluation.codes), np.bool_)
    bindable = {index: flags[evaluation.rows] for index, flags in _bindable(claims.to_match, evaluation.snapshot)}
    for index, claim in enumerate((*claims.to_provision, *claims.to_match), -len(claims.to_provision)):
        to_provision = undecided & ~bindable.get(index, none)
        if to_provision.any():
            codes = np.where(to_provision, provisioning_codes(claim, evaluation.snapshot, evaluation.rows), 0)
            np.bitwise_or(evaluation.codes, codes, out=evaluation.codes)
            undecided &= codes == 0


def _bindable(claims: tuple[PersistentVolumeClaim, ...], snapshot: Snapshot) -> Iterator[tuple[int, Flags]]:
    """Yield the positions of *claims*, each with the rows on which the claim can be bound to an existing volume."""
    for volumes, requests in snapshot.index(UnboundVolumes).requests(claims):
        yield from zip(requests, volumes.bindable(tuple(requests.values())), strict=True)


def _filter_assumed(pod: PodClass, snapshot: Snapshot, rows: Rows) -> Rejections | None:
    """Reject rows where placements in the trial may have taken the volumes."""
    claims = snapshot.index(PodClaimsIndex).of(pod)
    if not snapshot.assumed_claims or not claims.to_match:
        return None
    codes = np.where(assumed_conflicts(claims.to_match, snapshot), BIND_CONFLICT, 0)[rows]
    return Rejections(codes, lambda code: (_REASONS[code],)) if codes.any() else None


PLUGIN: Final = Plugin(NAME, Scope.NODE, _pre_filter, _filter)
ASSUMED: Final = Plugin(NAME, Scope.CLUSTER, _pre_filter, _filter_assumed)
