"""Where a volume that is still to be made could be made: the class's topologies, and the room that drivers report.

Source: ``checkVolumeProvisions`` and ``hasEnoughCapacity`` of ``volumebinding/binder.go``.
"""

from typing import Final, cast

import numpy as np

from predicates.framework import Codes
from predicates.nodes import Rows
from predicates.objects import CSIDriver, CSIStorageCapacity, PersistentVolumeClaim, StorageClass
from predicates.quantity import parse
from predicates.snapshot import Snapshot
from predicates.storage import NO_PROVISIONER, allowed_nodes, class_name, find_class, nodes_selected, reached, requested

BIND_CONFLICT: Final = 2
NOT_ENOUGH_SPACE: Final = 4


def provisioning_codes(claim: PersistentVolumeClaim, snapshot: Snapshot, rows: Rows) -> Codes:
    """For each of *rows* 0 where a volume can be made for the claim, or else what it fails by."""
    of = find_class(snapshot, class_name(claim))
    if of is None or of.provisioner in ("", NO_PROVISIONER):
        return np.full(len(snapshot.nodes.alive[rows]), BIND_CONFLICT)
    codes = np.where(reached(allowed_nodes(of), snapshot, rows), 0, BIND_CONFLICT)
    if "storage" in claim.spec.resources.requests and _reports_capacity(of, snapshot):
        room = np.zeros(len(codes), np.bool_)
        for one in cast("dict[str, CSIStorageCapacity]", snapshot.of("CSIStorageCapacity")).values():
            if one.storage_class_name == of.metadata.name and _suffices(one, requested(claim).units):
                room |= reached(nodes_selected(one.node_topology), snapshot, rows)
        codes[(codes == 0) & ~room] = NOT_ENOUGH_SPACE
    return codes


def _reports_capacity(of: StorageClass, snapshot: Snapshot) -> bool:
    driver = cast("CSIDriver | None", snapshot.of("CSIDriver").get(of.provisioner))
    return driver is not None and driver.spec.storage_capacity


def _suffices(one: CSIStorageCapacity, size: int) -> bool:
    limit = one.capacity if one.maximum_volume_size is None else one.maximum_volume_size
    return limit is not None and parse(limit).units >= size
