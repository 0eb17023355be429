"""The nodes for which a volume can be provisioned: allowed topologies of storage classes, and storage capacity.

Source: ``checkVolumeProvisions`` and ``hasEnoughCapacity`` of ``volumebinding/binder.go``.
"""

from collections.abc import Iterator
from typing import Final, cast

import numpy as np

from predicates.framework import Codes
from predicates.nodes import Numbers, Rows
from predicates.objects import CSIDriver, CSIStorageCapacity, PersistentVolumeClaim, StorageClass
from predicates.quantity import parse
from predicates.snapshot import Snapshot
from predicates.storage import (
    NO_PROVISIONER,
    allowed_topologies_selector,
    find_storage_class,
    requested_size,
    selected_rows,
    storage_class_name,
    to_node_selector,
)

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
