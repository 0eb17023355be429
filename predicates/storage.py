"""Lookups and rules about claims, volumes, storage classes and provisioning that the volume plugins share.

Sources: ``component-helpers/storage/volume`` (``helpers.go``, ``pv_helpers.go``), ``storage/ephemeral``.
"""

from collections.abc import Iterable, Iterator
from functools import lru_cache
from typing import Final, cast

import numpy as np
from msgspec.structs import replace

from predicates.framework import Codes, Rejections
from predicates.node_selectors import node_selector_mask, valid_term
from predicates.nodes import Flags, Numbers, Rows
from predicates.objects import (
    Claim,
    CSIDriver,
    CSIStorageCapacity,
    LabelSelector,
    NodeSelector,
    NodeSelectorTerm,
    PersistentVolume,
    PersistentVolumeClaim,
    PersistentVolumeClaimStatus,
    PodClass,
    Requirement,
    StorageClass,
)
from predicates.quantity import ZERO, Quantity, parse
from predicates.selectors import compile_selector
from predicates.snapshot import Snapshot

BIND_COMPLETED: Final = "pv.kubernetes.io/bind-completed"
SELECTED_NODE: Final = "volume.kubernetes.io/selected-node"
BETA_CLASS: Final = "volume.beta.kubernetes.io/storage-class"
NO_PROVISIONER: Final = "kubernetes.io/no-provisioner"
WAIT_FOR_FIRST_CONSUMER: Final = "WaitForFirstConsumer"

EVERY_NODE: Final = None  #: instead of a NodeSelector: no restriction
NO_NODE: Final = NodeSelector()


def claim_key(namespace: str, name: str) -> str:
    """Return the key of a claim in the snapshot."""
    return f"{namespace}/{name}" if namespace else name


def find_claim(snapshot: Snapshot, namespace: str, name: str) -> PersistentVolumeClaim | None:
    """Return a PersistentVolumeClaim, or None if it does not exist."""
    return cast("PersistentVolumeClaim | None", snapshot.of("PersistentVolumeClaim").get(claim_key(namespace, name)))


def claim_of(snapshot: Snapshot, namespace: str, reference: Claim) -> PersistentVolumeClaim | None:
    """Return the claim of a pod, or None if it does not exist. A renewed one is like the present claim, but unbound."""
    found = find_claim(snapshot, namespace, reference.name)
    if found is None or not reference.renewed:
        return found
    known = found.metadata.annotations
    kept = {name: text for name, text in known.items() if name not in (BIND_COMPLETED, SELECTED_NODE)}
    return replace(
        found,
        metadata=replace(found.metadata, annotations=kept, deletion_timestamp=None),
        spec=replace(found.spec, volume_name=""),
        status=PersistentVolumeClaimStatus(phase="Pending"),
    )


def find_volume(snapshot: Snapshot, name: str) -> PersistentVolume | None:
    """Return a PersistentVolume, or None if it does not exist."""
    return cast("PersistentVolume | None", snapshot.of("PersistentVolume").get(name))


def find_storage_class(snapshot: Snapshot, name: str) -> StorageClass | None:
    """Return a StorageClass, or None if it does not exist."""
    return cast("StorageClass | None", snapshot.of("StorageClass").get(name))


def all_volumes(snapshot: Snapshot) -> Iterable[PersistentVolume]:
    """Return all PersistentVolumes."""
    return cast("Iterable[PersistentVolume]", snapshot.of("PersistentVolume").values())


def not_found(resource: str, name: str) -> str:
    """Return the API error for an object that does not exist."""
    return f'{resource} "{name}" not found'


def claim_not_found(name: str) -> str:
    """Return the API error for a PersistentVolumeClaim that does not exist."""
    return not_found("persistentvolumeclaim", name)


def not_owned(namespace: str, claim: Claim) -> str:
    """Return the scheduler's error for a generic ephemeral volume whose claim has a different owner."""
    pod = f"{namespace}/{claim.pod}"
    return f"PVC {namespace}/{claim.name} was not created for pod {pod} (pod is not owner)"


def storage_class_name(obj: PersistentVolumeClaim | PersistentVolume) -> str:
    """Return the name of the storage class, or "" for none. The beta annotation takes precedence."""
    if (beta := obj.metadata.annotations.get(BETA_CLASS)) is not None:
        return beta
    return obj.spec.storage_class_name or ""


def fully_bound(claim: PersistentVolumeClaim) -> bool:
    """Return whether the claim names its volume and the volume controller has completed the binding."""
    return claim.spec.volume_name != "" and BIND_COMPLETED in claim.metadata.annotations


def requested_size(claim: PersistentVolumeClaim) -> Quantity:
    """Return the storage size that *claim* requests."""
    return parse(claim.spec.resources.requests.get("storage", 0))


def capacity(volume: PersistentVolume) -> Quantity:
    """Return the size of the volume, or 0 if it is not known."""
    size = volume.spec.capacity.get("storage")
    return ZERO if size is None else parse(size)


def reject_all(reason: str, snapshot: Snapshot, rows: Rows) -> Rejections:
    """Return a PreFilter rejection, which applies to all nodes."""
    return Rejections(np.ones(len(snapshot.nodes.alive[rows]), np.int64), lambda _: (reason,), prefilter=True)


def filter_error(plugin: str, error: str) -> str:
    """Return the scheduler's message for a filter plugin that fails with *error* (``RunFilterPlugins``)."""
    return f'running "{plugin}" filter plugin: {error}'


def own_claims(pod: PodClass) -> Iterable[str]:
    """Return the keys of the pod's claims, except those of ephemeral volumes."""
    return (claim_key(pod.namespace, claim.name) for claim in pod.claims if not claim.ephemeral)


def volume_affinity(volume: PersistentVolume) -> NodeSelector | None:
    """Return the selector of the nodes that can access the volume."""
    return ignoring_fields(volume.spec.node_affinity.required if volume.spec.node_affinity else None)


@lru_cache(maxsize=4096)
def ignoring_fields(selector: NodeSelector | None) -> NodeSelector | None:
    """Return *selector* without ``matchFields``, as it is evaluated for volumes.

    ``CheckNodeAffinity`` evaluates the selector for a node without a name, so fields do not restrict the nodes.
    """
    if selector is None:
        return EVERY_NODE
    terms = [replace(term, match_fields=()) for term in selector.node_selector_terms if valid_term(term)]
    if any(not term.match_expressions for term in terms):
        return EVERY_NODE
    return NodeSelector(node_selector_terms=tuple(terms))


def allowed_topologies_selector(storage_class: StorageClass) -> NodeSelector | None:
    """Return the selector of the nodes for which the class can provision volumes (``allowedTopologies``)."""
    if not storage_class.allowed_topologies:
        return EVERY_NODE
    return NodeSelector(
        node_selector_terms=tuple(
            NodeSelectorTerm(
                match_expressions=tuple(
                    Requirement(key=label.key, operator="In", values=label.values)
                    for label in term.match_label_expressions
                )
            )
            for term in storage_class.allowed_topologies
        )
    )


def to_node_selector(selector: LabelSelector | None) -> NodeSelector | None:
    """Convert a label selector to a node selector. None, or an invalid selector, selects no node."""
    compiled = compile_selector(selector)
    if compiled.everything:
        return EVERY_NODE
    if compiled.nothing or selector is None:
        return NO_NODE
    equal = (Requirement(key=key, operator="In", values=(value,)) for key, value in selector.match_labels.items())
    term = NodeSelectorTerm(match_expressions=(*equal, *selector.match_expressions))
    return NodeSelector(node_selector_terms=(term,))


def selected_rows(selector: NodeSelector | None, snapshot: Snapshot, rows: Rows) -> Flags:
    """Return which of *rows* the selector selects, as a new array."""
    if selector is EVERY_NODE:
        return np.ones(len(snapshot.nodes.alive[rows]), np.bool_)
    return node_selector_mask(selector, snapshot, rows)


# The nodes for which a volume can be provisioned: allowed topologies of storage classes, and storage capacity.
#
# Source: ``checkVolumeProvisions`` and ``hasEnoughCapacity`` of ``volumebinding/binder.go``.

BIND_CONFLICT: Final = 2
NOT_ENOUGH_SPACE: Final = 4


def provisioning_codes(claim: PersistentVolumeClaim, snapshot: Snapshot, rows: Rows) -> Codes:
    """Return, for each of *rows*, 0 if a volume can be provisioned for the claim, otherwise the code of the reason."""
    storage_class = find_storage_class(snapshot, storage_class_name(claim))
    if storage_class is None or storage_class.provisioner in ("", NO_PROVISIONER):
        return np.full(len(snapshot.nodes.alive[rows]), BIND_CONFLICT)
    codes = np.where(selected_rows(allowed_topologies_selector(storage_class), snapshot, rows), 0, BIND_CONFLICT)
    if "storage" in claim.spec.resources.requests and _reports_capacity(storage_class, snapshot):
        has_capacity = np.zeros(len(codes), np.bool_)
        for capacity in _sufficient(claim, storage_class, snapshot):
            has_capacity |= selected_rows(to_node_selector(capacity.node_topology), snapshot, rows)
        codes[(codes == 0) & ~has_capacity] = NOT_ENOUGH_SPACE
    return codes


def free_storage(claim: PersistentVolumeClaim, snapshot: Snapshot, rows: Rows) -> Numbers | None:
    """Return, for each of *rows*, the free bytes of a storage pool that suffices for the claim; 0 if there is none.

    None if the driver reports no capacities. The scheduler may use any pool that suffices; here it is the first.
    """
    storage_class = find_storage_class(snapshot, storage_class_name(claim))
    if storage_class is None or "storage" not in claim.spec.resources.requests:
        return None
    if not _reports_capacity(storage_class, snapshot):
        return None
    free = np.zeros(len(snapshot.nodes.alive[rows]), np.int64)
    for capacity in _sufficient(claim, storage_class, snapshot):
        units = 0 if capacity.capacity is None else parse(capacity.capacity).units
        free[(free == 0) & selected_rows(to_node_selector(capacity.node_topology), snapshot, rows)] = units
    return free


def _sufficient(
    claim: PersistentVolumeClaim, storage_class: StorageClass, snapshot: Snapshot
) -> Iterator[CSIStorageCapacity]:
    size = requested_size(claim).units
    for capacity in cast("dict[str, CSIStorageCapacity]", snapshot.of("CSIStorageCapacity")).values():
        if capacity.storage_class_name == storage_class.metadata.name and _suffices(capacity, size):
            yield capacity


def _reports_capacity(storage_class: StorageClass, snapshot: Snapshot) -> bool:
    driver = cast("CSIDriver | None", snapshot.of("CSIDriver").get(storage_class.provisioner))
    return driver is not None and driver.spec.storage_capacity


def _suffices(capacity: CSIStorageCapacity, size: int) -> bool:
    limit = capacity.capacity if capacity.maximum_volume_size is None else capacity.maximum_volume_size
    return limit is not None and parse(limit).units >= size
