"""Shared by the tests of VolumeBinding: reasons, storage classes, and evaluation of the plugin."""

from typing import Any, Final

from predicates.plugins import volumes
from predicates.snapshot import Snapshot
from tests.conformance.builders import storage_class
from tests.conformance.generate.world import Json
from tests.predicates.asking import reasons

AFFINITY: Final = "node(s) didn't match PersistentVolume's node affinity"
NONE: Final = "node(s) didn't find available persistent volumes to bind"
SPACE: Final = "node(s) did not have enough free storage"
GONE: Final = "node(s) unavailable due to one or more pvc(s) bound to non-existent pv(s)"
LOCAL: Final = storage_class("local", provisioner="kubernetes.io/no-provisioner")
PROVISIONED: Final = storage_class("made")


def on(table: Snapshot, pod: str = "p") -> dict[str, str]:
    """Return the reason of VolumeBinding by node for the pod *pod*."""
    return reasons(volumes.VOLUME_BINDING, table.pods[f"default/{pod}"].cls, table)


def spec(obj: Json, **fields: Any) -> Json:
    """Return *obj* with changed fields in its spec."""
    return {**obj, "spec": {**obj["spec"], **fields}}
