"""VolumeZone: the node must match the zone and region labels of bound volumes (``volumezone/volume_zone.go``)."""

from collections.abc import Iterator
from typing import Final, NamedTuple

import numpy as np

from predicates.csi_translation import BETA_REGION, BETA_ZONE, REGION, ZONE, ZONES_DELIMITER
from predicates.framework import Plugin, Rejections, Scope
from predicates.nodes import MISSING, Flags, Ids, NodeTable, Rows
from predicates.objects import PersistentVolume, PodClass
from predicates.snapshot import Snapshot
from predicates.storage import (
    WAIT_FOR_FIRST_CONSUMER,
    claim_not_found,
    find_claim,
    find_storage_class,
    find_volume,
    not_found,
    reject_all,
    storage_class_name,
)

REASON: Final = "node(s) had no available volume zone"

_KEYS: Final = (BETA_ZONE, BETA_REGION, ZONE, REGION)
_GA: Final = {BETA_ZONE: ZONE, BETA_REGION: REGION}


class _VolumeTopology(NamedTuple):
    """A label that the node must have with one of these values (``pvTopology``)."""

    key: str
    values: frozenset[str]


class _RejectedError(Exception):
    """Raised if PreFilter rejects the pod; the message is the reason."""


def _pre_filter(pod: PodClass) -> PodClass | None:
    return pod if pod.claims else None


def _filter(pod: PodClass, snapshot: Snapshot, rows: Rows) -> Rejections | None:
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
    return Rejections(rejected.astype(np.int64), lambda _: (REASON,))


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
            _check_unbound(storage_class_name(claim), snapshot)
            continue
        volume = find_volume(snapshot, name)
        if volume is None:
            raise _RejectedError(not_found("persistentvolume", name))
        yield volume


def _check_unbound(storage_class: str, snapshot: Snapshot) -> None:
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


PLUGIN: Final = Plugin("VolumeZone", Scope.NODE, _pre_filter, _filter)
