"""The nodes that the bound volumes of a pod can be attached to, as node selector terms."""

from collections.abc import Iterator
from typing import Final

from predicates.csi_translation import BETA_REGION, BETA_ZONE, REGION, ZONE, ZONES_DELIMITER
from predicates.objects import NodeSelectorTerm, PersistentVolume, Pod, Requirement
from predicates.snapshot import Snapshot
from predicates.storage import find_claim, find_volume

#: Labels of volumes, each with the label of nodes that must have the same value.
_ZONES: Final = {ZONE: ZONE, REGION: REGION, BETA_ZONE: ZONE, BETA_REGION: REGION}


def volume_terms(snapshot: Snapshot, pod: Pod) -> list[tuple[NodeSelectorTerm, ...]]:
    """Return the alternative terms of each restriction on nodes. A node must match one alternative of each."""
    return [terms for volume in _volumes(snapshot, pod) for terms in _terms_of(volume)]


def _volumes(snapshot: Snapshot, pod: Pod) -> Iterator[PersistentVolume]:
    for reference in pod.cls.claims:
        claim = find_claim(snapshot, pod.namespace, reference.name)
        if claim is not None and claim.spec.volume_name:
            volume = find_volume(snapshot, claim.spec.volume_name)
            if volume is not None:
                yield volume


def _terms_of(volume: PersistentVolume) -> Iterator[tuple[NodeSelectorTerm, ...]]:
    affinity = volume.spec.node_affinity
    if affinity is not None and affinity.required is not None:
        yield affinity.required.node_selector_terms
    rules = [
        Requirement(key=node_label, operator="In", values=tuple(text.split(ZONES_DELIMITER)))
        for label, node_label in _ZONES.items()
        if (text := volume.metadata.labels.get(label))
    ]
    if rules:
        yield (NodeSelectorTerm(match_expressions=tuple(rules)),)
