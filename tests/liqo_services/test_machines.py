"""State of a machine, derived from records, slices, VirtualNodes and Nodes."""

import datetime as dt

import pytest

from rescheduler.liqo.node_manager.machines import MachineRecord, VirtualMachine, view
from rescheduler.liqo.node_manager.resources import (
    GROUP_LABEL,
    LiqoNode,
    LiqoNodeSpec,
    LiqoNodeStatus,
    LiqoObjects,
    ResourceCondition,
    ResourceMeta,
    ResourceSlice,
    SliceSpec,
    SliceStatus,
    VirtualNode,
    VirtualNodeStatus,
    index_objects,
)

NOW = dt.datetime(2024, 5, 1, 12, tzinfo=dt.UTC)
DELETED_AT = "2024-05-01T11:59:00Z"


def meta(**fields: object) -> ResourceMeta:
    return ResourceMeta(name="m", creation_timestamp="2024-05-01T11:00:00Z", **fields)  # type: ignore[arg-type]


def piece(*conditions: ResourceCondition, deleted: str | None = None, group: str = "G") -> ResourceSlice:
    return ResourceSlice(
        metadata=meta(deletion_timestamp=deleted, labels={GROUP_LABEL: group} if group else {}),
        spec=SliceSpec(resources={"cpu": 2}, provider="rome"),
        status=SliceStatus(conditions=list(conditions)),
    )


def virtual(*conditions: ResourceCondition, deleted: str | None = None) -> VirtualNode:
    return VirtualNode(metadata=meta(deletion_timestamp=deleted), status=VirtualNodeStatus(conditions=list(conditions)))


def node(provider_id: str = "", ready: str = "True", deleted: str | None = None, group: str = "") -> LiqoNode:
    return LiqoNode(
        metadata=meta(deletion_timestamp=deleted, labels={GROUP_LABEL: group} if group else {}),
        spec=LiqoNodeSpec(provider_id=provider_id),
        status=LiqoNodeStatus(conditions=[ResourceCondition(type="Ready", status=ready)]),
    )


def machine(record: MachineRecord | None = None, **parts: object) -> VirtualMachine | None:
    objects = LiqoObjects(**{kind: {"m": part} for kind, part in parts.items()})  # type: ignore[arg-type]
    return view([record] if record else [], objects, NOW).machines.get("m")


RESERVED = MachineRecord(name="m", group="G", cluster="rome", resources={"cpu": "2"}, since=NOW)
ORDERED = MachineRecord(name="m", group="G", cluster="rome", resources={"cpu": "2"}, since=NOW, ordered=True)
DENIED = ResourceCondition(type="Resources", status="Denied")
RUNNING = ResourceCondition(type="Node", status="Running")

STATES = {
    "reserved": ("creating", RESERVED, {}),
    "requested": ("creating", ORDERED, {"slices": piece()}),
    "requested, by a process that stored no record": ("creating", None, {"slices": piece()}),
    "accepted": ("creating", None, {"slices": piece(), "virtual_nodes": virtual()}),
    "its Node exists": ("creating", None, {"slices": piece(), "virtual_nodes": virtual(RUNNING), "nodes": node()}),
    "it has a provider ID, and no labels": (
        "creating",
        None,
        {"slices": piece(), "virtual_nodes": virtual(RUNNING), "nodes": node("liqo://m")},
    ),
    "marked": (
        "running",
        None,
        {"slices": piece(), "virtual_nodes": virtual(RUNNING), "nodes": node("liqo://m", group="G")},
    ),
    "marked, and not Ready": ("running", None, {"slices": piece(), "nodes": node("liqo://m", "Unknown", group="G")}),
    "its slice is being deleted": ("deleting", None, {"slices": piece(deleted=DELETED_AT), "nodes": node("liqo://m")}),
    "its VirtualNode is being deleted": (
        "deleting",
        None,
        {"slices": piece(), "virtual_nodes": virtual(deleted=DELETED_AT), "nodes": node("liqo://m")},
    ),
    "Liqo drains it": (
        "deleting",
        None,
        {
            "slices": piece(),
            "virtual_nodes": virtual(ResourceCondition(type="Node", status="Draining")),
            "nodes": node("liqo://m"),
        },
    ),
    "its kubelet is terminating": (
        "deleting",
        None,
        {"slices": piece(), "virtual_nodes": virtual(ResourceCondition(type="VirtualKubelet", status="Deleting"))},
    ),
    "its Node is being deleted": ("deleting", None, {"slices": piece(), "nodes": node("liqo://m", deleted=DELETED_AT)}),
    "only its VirtualNode is left": ("deleting", ORDERED, {"virtual_nodes": virtual(deleted=DELETED_AT)}),
    "only its Node is left": ("deleting", ORDERED, {"nodes": node("liqo://m")}),
    "only its Node is left, without a record": ("deleting", None, {"nodes": node("liqo://m", group="G")}),
}


@pytest.mark.parametrize(("state", "record", "parts"), STATES.values(), ids=STATES)
def test_the_state_of_a_machine_follows_from_its_parts(
    state: str, record: MachineRecord | None, parts: dict[str, object]
) -> None:
    machine_ = machine(record, **parts)
    assert machine_ is not None
    assert (machine_.state.value, machine_.group, machine_.provider_id) == (state, "G", "liqo://m")


def test_foreign_objects_are_not_machines() -> None:
    assert machine(None, slices=piece(group="")) is None
    assert machine(None, nodes=node("liqo://m")) is None
    assert machine(None, virtual_nodes=virtual()) is None
    assert machine(ORDERED) is None


def test_a_cluster_that_switched_the_class_off_is_not_out_of_resources() -> None:
    """Liqo v1.3, with ``authentication.defaultResourceSliceClassEnabled: false``."""
    off = ResourceCondition(type="Resources", status="Denied", reason="DefaultResourceSliceClassDisabled")
    denied = machine(None, slices=piece(off))
    assert denied is not None
    assert denied.error is not None
    assert (denied.error.code, denied.error.out_of_resources) == ("DENIED", False)
    assert denied.error.message == "cluster rome denied it (Resources): DefaultResourceSliceClassDisabled"


def test_a_denial_of_a_slice_with_a_virtual_node_is_not_an_error() -> None:
    denied = machine(None, slices=piece(DENIED))
    assert denied is not None
    assert denied.error is not None
    assert (denied.error.code, denied.error.message) == ("OUT_OF_RESOURCES", "cluster rome denied it (Resources)")
    running = machine(None, slices=piece(DENIED), virtual_nodes=virtual(RUNNING), nodes=node("liqo://m", group="G"))
    assert running is not None
    assert (running.error, running.state.value) == (None, "running")


def test_a_provider_id_of_liqo_is_kept() -> None:
    machine_ = machine(None, slices=piece(), nodes=node("own://1", group="G"))
    assert machine_ is not None
    assert (machine_.provider_id, machine_.state.value) == ("own://1", "running")


def test_granted_resources_take_precedence_over_requested_ones() -> None:
    granted = ResourceSlice(
        metadata=meta(labels={GROUP_LABEL: "G"}),
        spec=SliceSpec(resources={"cpu": 2}, provider="rome"),
        status=SliceStatus(resources={"cpu": "3"}),
    )
    machine_ = machine(None, slices=granted)
    assert machine_ is not None
    assert {name: str(amount) for name, amount in machine_.held.items()} == {"cpu": "3"}


def test_a_replica_of_a_consumers_slice_is_not_a_machine() -> None:
    """The replica has all labels of the original slice, including those of the consumer's node manager."""
    labels = {GROUP_LABEL: "G", "liqo.io/remote-cluster-id": "oslo", "liqo.io/replicated": "true"}
    slices = [
        ResourceSlice(metadata=ResourceMeta(name=name, labels={**labels, "liqo.io/replication": replication}))
        for name, replication in {"theirs": "false", "ours": "true"}.items()
    ]
    assert [*index_objects(slices, [], []).slices] == ["ours"]
    assert index_objects(slices[:1], [], []) == LiqoObjects()


def test_a_denial_ends_once_the_slice_has_a_virtual_node() -> None:
    failed = MachineRecord(
        name="m", group="G", cluster="rome", resources={}, since=NOW, ordered=True, error="DENIED", failed_at=NOW
    )
    denied = machine(failed, slices=piece(DENIED))
    granted = machine(failed, slices=piece(), virtual_nodes=virtual())
    assert denied is not None
    assert granted is not None
    assert (denied.recovered, granted.recovered) == (False, True)
    assert failed.without_error() == MachineRecord(
        name="m", group="G", cluster="rome", resources={}, since=NOW, ordered=True
    )
