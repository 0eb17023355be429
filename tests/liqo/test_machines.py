"""What a machine is, by what the records, slices, VirtualNodes and Nodes say together."""

import datetime as dt

import pytest

from rescheduler.liqo.nodemanager.machines import Machine, Record, view
from rescheduler.liqo.nodemanager.resources import (
    GROUP_LABEL,
    Condition,
    Meta,
    Node,
    NodeSpec,
    NodeStatus,
    ResourceSlice,
    Seen,
    SliceSpec,
    SliceStatus,
    VirtualNode,
    VirtualNodeStatus,
    seen,
)

NOW = dt.datetime(2024, 5, 1, 12, tzinfo=dt.UTC)
GONE = "2024-05-01T11:59:00Z"


def meta(**more: object) -> Meta:
    return Meta(name="m", creation_timestamp="2024-05-01T11:00:00Z", **more)  # type: ignore[arg-type]


def piece(*conditions: Condition, deleted: str | None = None, group: str = "G") -> ResourceSlice:
    return ResourceSlice(
        metadata=meta(deletion_timestamp=deleted, labels={GROUP_LABEL: group} if group else {}),
        spec=SliceSpec(resources={"cpu": 2}, provider="rome"),
        status=SliceStatus(conditions=list(conditions)),
    )


def virtual(*conditions: Condition, deleted: str | None = None) -> VirtualNode:
    return VirtualNode(metadata=meta(deletion_timestamp=deleted), status=VirtualNodeStatus(conditions=list(conditions)))


def node(provider_id: str = "", ready: str = "True", deleted: str | None = None, group: str = "") -> Node:
    return Node(
        metadata=meta(deletion_timestamp=deleted, labels={GROUP_LABEL: group} if group else {}),
        spec=NodeSpec(provider_id=provider_id),
        status=NodeStatus(conditions=[Condition(type="Ready", status=ready)]),
    )


def machine(record: Record | None = None, **parts: object) -> Machine | None:
    seen = Seen(**{kind: {"m": part} for kind, part in parts.items()})  # type: ignore[arg-type]
    return view([record] if record else [], seen, NOW).machines.get("m")


RESERVED = Record(name="m", group="G", cluster="rome", resources={"cpu": "2"}, since=NOW)
ORDERED = Record(name="m", group="G", cluster="rome", resources={"cpu": "2"}, since=NOW, ordered=True)
DENIED = Condition(type="Resources", status="Denied")
RUNNING = Condition(type="Node", status="Running")

STATES = {
    "reserved": ("creating", RESERVED, {}),
    "asked for": ("creating", ORDERED, {"slices": piece()}),
    "asked for, by a process that wrote nothing down": ("creating", None, {"slices": piece()}),
    "accepted": ("creating", None, {"slices": piece(), "virtual_nodes": virtual()}),
    "its Node is there": ("creating", None, {"slices": piece(), "virtual_nodes": virtual(RUNNING), "nodes": node()}),
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
    "its slice is being deleted": ("deleting", None, {"slices": piece(deleted=GONE), "nodes": node("liqo://m")}),
    "its VirtualNode is": (
        "deleting",
        None,
        {"slices": piece(), "virtual_nodes": virtual(deleted=GONE), "nodes": node("liqo://m")},
    ),
    "Liqo drains it": (
        "deleting",
        None,
        {
            "slices": piece(),
            "virtual_nodes": virtual(Condition(type="Node", status="Draining")),
            "nodes": node("liqo://m"),
        },
    ),
    "its kubelet goes": (
        "deleting",
        None,
        {"slices": piece(), "virtual_nodes": virtual(Condition(type="VirtualKubelet", status="Deleting"))},
    ),
    "its Node is being deleted": ("deleting", None, {"slices": piece(), "nodes": node("liqo://m", deleted=GONE)}),
    "only its VirtualNode is left": ("deleting", ORDERED, {"virtual_nodes": virtual(deleted=GONE)}),
    "only its Node is left": ("deleting", ORDERED, {"nodes": node("liqo://m")}),
    "only its Node is left, and nothing is written": ("deleting", None, {"nodes": node("liqo://m", group="G")}),
}


@pytest.mark.parametrize(("state", "record", "parts"), STATES.values(), ids=STATES)
def test_states(state: str, record: Record | None, parts: dict[str, object]) -> None:
    found = machine(record, **parts)
    assert found is not None
    assert (found.state.value, found.group, found.provider_id) == (state, "G", "liqo://m")


def test_what_is_no_machine_of_ours() -> None:
    assert machine(None, slices=piece(group="")) is None
    assert machine(None, nodes=node("liqo://m")) is None
    assert machine(None, virtual_nodes=virtual()) is None
    assert machine(ORDERED) is None


def test_a_denial_of_what_has_a_virtual_node_is_no_error_of_it() -> None:
    denied = machine(None, slices=piece(DENIED))
    assert denied is not None
    assert denied.error is not None
    assert (denied.error.code, denied.error.message) == ("OUT_OF_RESOURCES", "cluster rome denied it (Resources)")
    running = machine(None, slices=piece(DENIED), virtual_nodes=virtual(RUNNING), nodes=node("liqo://m", group="G"))
    assert running is not None
    assert (running.error, running.state.value) == (None, "running")


def test_a_provider_id_of_liqo_is_kept() -> None:
    found = machine(None, slices=piece(), nodes=node("own://1", group="G"))
    assert found is not None
    assert (found.provider_id, found.state.value) == ("own://1", "running")


def test_what_a_cluster_granted_counts_more_than_what_it_was_asked_for() -> None:
    granted = ResourceSlice(
        metadata=meta(labels={GROUP_LABEL: "G"}),
        spec=SliceSpec(resources={"cpu": 2}, provider="rome"),
        status=SliceStatus(resources={"cpu": "3"}),
    )
    found = machine(None, slices=granted)
    assert found is not None
    assert {name: str(amount) for name, amount in found.held.items()} == {"cpu": "3"}


def test_a_replica_of_a_consumers_slice_is_no_machine_of_ours() -> None:
    """It has all labels of its original, those of the consumer's node manager included."""
    labels = {GROUP_LABEL: "G", "liqo.io/remote-cluster-id": "oslo", "liqo.io/replicated": "true"}
    slices = [
        ResourceSlice(metadata=Meta(name=name, labels={**labels, "liqo.io/replication": replication}))
        for name, replication in {"theirs": "false", "ours": "true"}.items()
    ]
    assert [*seen(slices, [], []).slices] == ["ours"]
    assert seen(slices[:1], [], []) == Seen()


def test_a_denial_is_over_once_a_virtual_node_has_come_of_the_slice() -> None:
    failed = Record(
        name="m", group="G", cluster="rome", resources={}, since=NOW, ordered=True, error="DENIED", failed_at=NOW
    )
    denied = machine(failed, slices=piece(DENIED))
    granted = machine(failed, slices=piece(), virtual_nodes=virtual())
    assert denied is not None
    assert granted is not None
    assert (denied.recovered, granted.recovered) == (False, True)
    assert failed.without_error() == Record(name="m", group="G", cluster="rome", resources={}, since=NOW, ordered=True)
