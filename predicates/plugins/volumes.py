"""The filter plugins of volumes: VolumeRestrictions, NodeVolumeLimits, VolumeBinding and VolumeZone. One module
for each kind of plugin: plugins do not import each other.
"""

from collections import Counter
from collections.abc import Iterable, Iterator
from typing import Final, NamedTuple

import numpy as np

from predicates.csi import (
    BETA_REGION,
    BETA_ZONE,
    REGION,
    ZONE,
    ZONES_DELIMITER,
    CSIVolume,
    UnresolvedVolumes,
    plugin_of,
)
from predicates.framework import Codes, Plugin, Reasons, Rejections, Scope
from predicates.indexes.attachments import Attachments, CSINodes
from predicates.indexes.claims import BoundVolume, PodClaims, PodClaimsIndex, PodDisks, disks_of, selected_node
from predicates.indexes.unbound_volumes import UnboundVolumes, assumed_conflicts
from predicates.nodes import MISSING, Flags, Ids, NodeTable, Rows
from predicates.objects import CSIDriver, PersistentVolume, PersistentVolumeClaim, PodClass
from predicates.selectors import compile_selector
from predicates.snapshot import Snapshot
from predicates.storage import (
    BIND_CONFLICT,
    NOT_ENOUGH_SPACE,
    WAIT_FOR_FIRST_CONSUMER,
    claim_key,
    claim_not_found,
    filter_error,
    find_claim,
    find_storage_class,
    find_volume,
    not_found,
    provisioning_codes,
    reject_all,
    selected_rows,
    storage_class_name,
)
from predicates.versions import VersionRule

# VolumeRestrictions: disks that pods on a node cannot share, and claims that only one pod can use.
#
# Source: ``volumerestrictions/volume_restrictions.go``. A ReadWriteOncePod claim that is in use on any node rejects all
# nodes, so the scope is the cluster.

DISK_CONFLICT: Final = "node(s) had no available disk"
CLAIM_IN_USE: Final = (
    "node(s) unavailable due to PersistentVolumeClaim with ReadWriteOncePod access mode already in-use by another pod"
)
_REASONS: Final = {1: DISK_CONFLICT, 2: CLAIM_IN_USE}


def _pre_filter(pod: PodClass) -> PodClass | None:
    return pod if pod.claims or pod.disks else None


def _filter(pod: PodClass, snapshot: Snapshot, rows: Rows) -> Rejections | None:
    used = snapshot.index(PodDisks)
    exclusive = []
    for claim in pod.claims:
        if claim.ephemeral:
            continue
        pvc = find_claim(snapshot, pod.namespace, claim.name)
        if pvc is None:
            return reject_all(claim_not_found(claim.name), snapshot, rows)
        if "ReadWriteOncePod" in pvc.spec.access_modes:
            exclusive.append(claim_key(pod.namespace, claim.name))
    conflicts = [] if not pod.disks else list(_conflicts(pod, used))
    in_use = any(key in used.claims for key in exclusive)
    if not conflicts and not in_use:
        return None
    codes = np.full(len(snapshot.nodes), 2 if in_use else 0)
    codes[conflicts] = 1
    return Rejections(codes[rows], lambda code: (_REASONS[code],))


def _conflicts(pod: PodClass, used: PodDisks) -> Iterator[int]:
    for disk in disks_of(pod):
        yield from used.conflicts(disk)


VOLUME_RESTRICTIONS: Final = Plugin("VolumeRestrictions", Scope.CLUSTER, _pre_filter, _filter)


# NodeVolumeLimits: the node must have the drivers of the pod's volumes, and must not exceed their limits.
#
# Source: ``nodevolumelimits/csi.go``. Both are read from the node's CSINode. A driver must be installed only if its
# CSIDriver has ``preventPodSchedulingIfMissing: true``, and only since 1.37.

NAME: Final = "NodeVolumeLimits"
REASON: Final = "node(s) exceed max volume count"
NOT_INSTALLED: Final = "CSI driver is not installed on the node"


def _node_volume_limits_pre_filter(pod: PodClass) -> PodClass | None:
    if pod.claims or any(plugin_of(volume) for volume in pod.disks):
        return pod
    return None


def _node_volume_limits_filter(pod: PodClass, snapshot: Snapshot, rows: Rows) -> Rejections | None:
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


def _reason(error: UnresolvedVolumes) -> str:
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
    if not snapshot.scheduler.version.has(VersionRule.DRIVER_REQUIRED):
        return
    for name in sorted({volume.driver for volume in volumes}):
        driver = snapshot.of("CSIDriver").get(name)
        if isinstance(driver, CSIDriver) and driver.spec.prevent_pod_scheduling_if_missing:
            installed = nodes.installed.get(name)
            missing: Flags = np.ones(len(codes), np.bool_) if installed is None else ~installed[rows]
            codes[missing] = _code(f"{name} {NOT_INSTALLED}", reasons)


NODE_VOLUME_LIMITS: Final = Plugin(NAME, Scope.PODS, _node_volume_limits_pre_filter, _node_volume_limits_filter)


# VolumeBinding: the node must have access to bound volumes, and to matching volumes for unbound claims.
#
# Source: ``volumebinding/volume_binding.go``, ``binder.go``. The scheduler's plugin is split in two here: ``PLUGIN``
# evaluates the pod by itself, and ``ASSUMED`` the volumes that placements in the trial may have taken. The scheduler
# remembers the latter from one binding to the next (``AssumePodVolumes``).

VOLUME_BINDING_NAME: Final = "VolumeBinding"

_NODE_CONFLICT, _NO_VOLUME = 1, 8
#: Codes from here on identify errors with which the scheduler's plugin fails for the node.
_ERROR: Final = 16
_VOLUME_BINDING_REASONS: Final = {
    _NODE_CONFLICT: "node(s) didn't match PersistentVolume's node affinity",
    BIND_CONFLICT: "node(s) didn't find available persistent volumes to bind",
    NOT_ENOUGH_SPACE: "node(s) did not have enough free storage",
    _NO_VOLUME: "node(s) unavailable due to one or more pvc(s) bound to non-existent pv(s)",
}


def _volume_binding_pre_filter(pod: PodClass) -> PodClass | None:
    return pod if pod.claims else None


class _Evaluation(NamedTuple):
    """The rows to evaluate, and their codes and errors so far."""

    snapshot: Snapshot
    rows: Rows
    codes: Codes
    errors: list[str]

    def fail(self, mask: Flags, error: str) -> None:
        """Set the code of the rows in *mask* to a new error."""
        self.errors.append(filter_error(VOLUME_BINDING_NAME, error))
        self.codes[mask] = _ERROR + len(self.errors) - 1


def _volume_binding_filter(pod: PodClass, snapshot: Snapshot, rows: Rows) -> Rejections | None:
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
        return tuple(reason for bit, reason in _VOLUME_BINDING_REASONS.items() if code & bit)

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
    return Rejections(codes, lambda code: (_VOLUME_BINDING_REASONS[code],)) if codes.any() else None


VOLUME_BINDING: Final = Plugin(VOLUME_BINDING_NAME, Scope.NODE, _volume_binding_pre_filter, _volume_binding_filter)
ASSUMED: Final = Plugin(VOLUME_BINDING_NAME, Scope.CLUSTER, _volume_binding_pre_filter, _filter_assumed)


# VolumeZone: the node must match the zone and region labels of bound volumes (``volumezone/volume_zone.go``).

VOLUME_ZONE_REASON: Final = "node(s) had no available volume zone"

_KEYS: Final = (BETA_ZONE, BETA_REGION, ZONE, REGION)
_GA: Final = {BETA_ZONE: ZONE, BETA_REGION: REGION}


class _VolumeTopology(NamedTuple):
    """A label that the node must have with one of these values (``pvTopology``)."""

    key: str
    values: frozenset[str]


class _RejectedError(Exception):
    """Raised if PreFilter rejects the pod; the message is the reason."""


def _volume_zone_pre_filter(pod: PodClass) -> PodClass | None:
    return pod if pod.claims else None


def _volume_zone_filter(pod: PodClass, snapshot: Snapshot, rows: Rows) -> Rejections | None:
    try:
        topologies = [topology for volume in _volumes(pod, snapshot) for topology in _topologies(volume)]
    except _RejectedError as rejection:
        return reject_all(str(rejection), snapshot, rows)
    if not topologies:
        return None
    table = snapshot.nodes
    rejected = ~_matches(topologies[0], table, rows)
    for topology in topologies[1:]:
        rejected |= ~_matches(topology, table, rows)
    if not rejected.any():
        return None
    # A node without any of these labels is accepted: the cluster may not have zones.
    labeled: Flags = np.zeros(len(rejected), np.bool_)
    for key in _KEYS:
        labeled |= table.label(key).ids[rows] != MISSING
    rejected &= labeled
    return Rejections(rejected.astype(np.int64), lambda _: (VOLUME_ZONE_REASON,))


def _volumes(pod: PodClass, snapshot: Snapshot) -> Iterator[PersistentVolume]:
    """Yield the bound volumes of the pod's claims, except ephemeral ones. Raises _RejectedError."""
    for reference in pod.claims:
        if reference.ephemeral:
            continue
        if not reference.name:
            raise _RejectedError("PersistentVolumeClaim had no name")
        claim = find_claim(snapshot, pod.namespace, reference.name)
        if claim is None:
            raise _RejectedError(claim_not_found(reference.name))
        if not (name := claim.spec.volume_name):
            _volume_zone_check_unbound(storage_class_name(claim), snapshot)
            continue
        volume = find_volume(snapshot, name)
        if volume is None:
            raise _RejectedError(not_found("persistentvolume", name))
        yield volume


def _volume_zone_check_unbound(storage_class: str, snapshot: Snapshot) -> None:
    """Raise _RejectedError unless a claim without a volume waits for its first consumer."""
    if not storage_class:
        raise _RejectedError("PersistentVolumeClaim had no pv name and storageClass name")
    obj = find_storage_class(snapshot, storage_class)
    if obj is None:
        raise _RejectedError(not_found("storageclass.storage.k8s.io", storage_class))
    if obj.volume_binding_mode is None:
        raise _RejectedError(f'VolumeBindingMode not set for StorageClass "{storage_class}"')
    if obj.volume_binding_mode != WAIT_FOR_FIRST_CONSUMER:
        raise _RejectedError("PersistentVolume had no name")


def _topologies(volume: PersistentVolume) -> Iterator[_VolumeTopology]:
    for key in _KEYS:
        if (label := volume.metadata.labels.get(key)) is not None:
            values = frozenset(part.strip() for part in label.split(ZONES_DELIMITER))
            if "" not in values:  # A label with an empty zone is invalid, and ignored.
                yield _VolumeTopology(key, values)


def _matches(topology: _VolumeTopology, table: NodeTable, rows: Rows) -> Flags:
    """Return which of *rows* have one of the label's values. If a beta label is missing, the GA label is used."""
    column = table.label(topology.key)
    matched = _one_of(column.ids[rows], column.number, topology.values)
    if (ga := _GA.get(topology.key)) is not None:
        ga_column = table.label(ga)
        matched |= (column.ids[rows] == MISSING) & _one_of(ga_column.ids[rows], ga_column.number, topology.values)
    return matched


def _one_of(ids: Ids, number: dict[str, int], values: frozenset[str]) -> Flags:
    # One entry per value; the last one is for nodes without the label (MISSING is -1).
    matches: Flags = np.zeros(len(number) + 1, np.bool_)
    matches[[number[value] for value in values if value in number]] = True
    return matches[ids]


VOLUME_ZONE: Final = Plugin("VolumeZone", Scope.NODE, _volume_zone_pre_filter, _volume_zone_filter)
