"""VolumeZone: a bound volume's zone and region labels must be those of the node (``volumezone/volume_zone.go``)."""

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
    class_name,
    find_claim,
    find_class,
    find_volume,
    no_such,
    no_such_claim,
    rejected,
)

REASON: Final = "node(s) had no available volume zone"

_KEYS: Final = (BETA_ZONE, BETA_REGION, ZONE, REGION)
_GA: Final = {BETA_ZONE: ZONE, BETA_REGION: REGION}


class _Topology(NamedTuple):
    """A label that the node must carry with one of these values."""

    key: str
    values: frozenset[str]


class _RejectedError(Exception):
    """The pod is refused before any node is looked at; the message is the reason."""


def _pre_filter(pod: PodClass) -> PodClass | None:
    return pod if pod.claims else None


def _filter(pod: PodClass, snapshot: Snapshot, rows: Rows) -> Rejections | None:
    try:
        wanted = [one for volume in _volumes(pod, snapshot) for one in _topologies(volume)]
    except _RejectedError as rejection:
        return rejected(str(rejection), snapshot, rows)
    if not wanted:
        return None
    table = snapshot.nodes
    refused = ~_matched(wanted[0], table, rows)
    for one in wanted[1:]:
        refused |= ~_matched(one, table, rows)
    if not refused.any():
        return None
    # A node without any such label is taken for one of a cluster that has no zones.
    labelled: Flags = np.zeros(len(refused), np.bool_)
    for key in _KEYS:
        labelled |= table.label(key).ids[rows] != MISSING
    refused &= labelled
    return Rejections(refused.astype(np.int64), lambda _: (REASON,))


def _volumes(pod: PodClass, snapshot: Snapshot) -> Iterator[PersistentVolume]:
    """The bound volumes of the pod's claims, those of ephemeral volumes left out. Raises _RejectedError."""
    for one in pod.claims:
        if one.ephemeral:
            continue
        if not one.name:
            raise _RejectedError("PersistentVolumeClaim had no name")
        claim = find_claim(snapshot, pod.namespace, one.name)
        if claim is None:
            raise _RejectedError(no_such_claim(one.name))
        if not (name := claim.spec.volume_name):
            _check_unbound(class_name(claim), snapshot)
            continue
        volume = find_volume(snapshot, name)
        if volume is None:
            raise _RejectedError(no_such("persistentvolume", name))
        yield volume


def _check_unbound(class_of_claim: str, snapshot: Snapshot) -> None:
    """A claim without a volume may only wait for its first consumer."""
    if not class_of_claim:
        raise _RejectedError("PersistentVolumeClaim had no pv name and storageClass name")
    found = find_class(snapshot, class_of_claim)
    if found is None:
        raise _RejectedError(no_such("storageclass.storage.k8s.io", class_of_claim))
    if found.volume_binding_mode is None:
        raise _RejectedError(f'VolumeBindingMode not set for StorageClass "{class_of_claim}"')
    if found.volume_binding_mode != WAIT_FOR_FIRST_CONSUMER:
        raise _RejectedError("PersistentVolume had no name")


def _topologies(volume: PersistentVolume) -> Iterator[_Topology]:
    for key in _KEYS:
        if (label := volume.metadata.labels.get(key)) is not None:
            values = frozenset(part.strip() for part in label.split(ZONES_DELIMITER))
            if "" not in values:  # A label with an empty zone cannot be read, and is passed over.
                yield _Topology(key, values)


def _matched(one: _Topology, table: NodeTable, rows: Rows) -> Flags:
    """Where the node's label has one of the values; the GA label stands in for a beta label that is not there."""
    column = table.label(one.key)
    matched = _among(column.ids[rows], column.number, one.values)
    if (ga := _GA.get(one.key)) is not None:
        other = table.label(ga)
        matched |= (column.ids[rows] == MISSING) & _among(other.ids[rows], other.number, one.values)
    return matched


def _among(ids: Ids, number: dict[str, int], values: frozenset[str]) -> Flags:
    # One entry a value, and a last one for nodes without the label: MISSING is -1.
    verdicts: Flags = np.zeros(len(number) + 1, np.bool_)
    verdicts[[number[value] for value in values if value in number]] = True
    return verdicts[ids]


PLUGIN: Final = Plugin("VolumeZone", Scope.NODE, _pre_filter, _filter)
