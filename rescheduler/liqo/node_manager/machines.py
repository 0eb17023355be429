"""Machines as derived from records, slices, VirtualNodes and Nodes. No I/O."""

import datetime as dt
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

import msgspec
from msgspec.structs import replace

from rescheduler.liqo.messages import SCHEME
from rescheduler.liqo.node_manager.groups import ExactAmounts, amounts
from rescheduler.liqo.node_manager.resources import (
    CLASS_DISABLED,
    GROUP_LABEL,
    LiqoNode,
    LiqoObjects,
    ResourceSlice,
    VirtualNode,
)
from rescheduler.providers.base import InstanceError, InstanceState

#: Error codes.
OUT_OF_RESOURCES: Final = "OUT_OF_RESOURCES"  #: the cluster denied the requested amount
DENIED: Final = "DENIED"  #: the cluster denied the slice for another reason
TIMED_OUT: Final = "NOT_READY_IN_TIME"
NO_PEERING: Final = "NO_PEERING"
REFUSED: Final = "REFUSED"  #: the local API server rejected the slice


class MachineRecord(msgspec.Struct, frozen=True, kw_only=True):
    """The stored state of a machine, from its reservation on."""

    name: str
    group: str
    cluster: str
    resources: dict[str, str]
    since: dt.datetime
    ordered: bool = False  #: its slice was created
    ran: bool = False  #: its Node has been Ready
    error: str = ""  #: a code; empty: none
    message: str = ""
    failed_at: dt.datetime | None = None
    removed_at: dt.datetime | None = None

    def without_error(self) -> "MachineRecord":
        """Return the record without the error, from which the machine has recovered."""
        return replace(self, error="", message="", failed_at=None)


@dataclass(frozen=True, slots=True)
class VirtualMachine:
    """A member of a group, from its reservation until all of its objects are gone."""

    name: str
    group: str
    cluster: str
    state: InstanceState
    since: dt.datetime
    provider_id: str
    held: ExactAmounts
    error: InstanceError | None = None
    slice: ResourceSlice | None = None
    virtual_node: VirtualNode | None = None
    node: LiqoNode | None = None
    record: MachineRecord | None = None

    @property
    def counts(self) -> bool:
        """Whether the machine counts towards its group's size."""
        return self.state is not InstanceState.DELETING

    @property
    def recovered(self) -> bool:
        """Whether the recorded error is a denial of the slice, which has been granted since."""
        record = self.record
        return record is not None and record.error in {OUT_OF_RESOURCES, DENIED} and self.virtual_node is not None

    @property
    def unmarked(self) -> bool:
        """Whether the machine's Node is Ready but has no provider ID or group labels yet."""
        return self.node is not None and self.node.ready and not _marked(self.node)


@dataclass(frozen=True, slots=True)
class MachinesView:
    """All machines at one time, by name."""

    machines: Mapping[str, VirtualMachine] = field(default_factory=dict)

    def members(self, group: str) -> Sequence[VirtualMachine]:
        return [machine for machine in self.machines.values() if machine.group == group]

    def size(self, group: str) -> int:
        return sum(machine.counts for machine in self.members(group))

    def healthy_size(self, group: str) -> int:
        """Count the group's machines without errors. Failed machines are about to be given back."""
        return sum(machine.counts and machine.error is None for machine in self.members(group))

    def find(self, node: str) -> VirtualMachine | None:
        """Return the machine with this name or provider ID (set by us or by newer releases of Liqo)."""
        machine = self.machines.get(node.removeprefix(SCHEME))
        if machine is not None:
            return machine
        return next((candidate for candidate in self.machines.values() if candidate.provider_id == node), None)

    def of_cluster(self, cluster: str) -> Sequence[VirtualMachine]:
        return [machine for machine in self.machines.values() if machine.cluster == cluster]


@dataclass(frozen=True, slots=True)
class ClusterReading:
    """The records, the state of the cluster, and the machines derived from the two."""

    records: Sequence[MachineRecord]
    objects: LiqoObjects
    view: MachinesView

    @property
    def used(self) -> frozenset[str]:
        """The clusters with a slice, of any owner, or with a reservation."""
        return self.objects.lenders.union(machine.cluster for machine in self.view.machines.values())


def record_of(machine: VirtualMachine) -> MachineRecord:
    """Return a record for a machine that has none because the database is new."""
    wanted = machine.slice.spec.resources if machine.slice else {}
    return MachineRecord(
        name=machine.name,
        group=machine.group,
        cluster=machine.cluster,
        resources={name: str(amount) for name, amount in wanted.items()},
        since=machine.since,
        ordered=True,
        ran=machine.state is InstanceState.RUNNING,
    )


def view(records: Iterable[MachineRecord], objects: LiqoObjects, now: dt.datetime) -> MachinesView:
    """Derive the machines. If the records and the cluster's state differ, the cluster's state takes precedence.

    A record whose slice was created and no longer exists belongs to a machine that is gone.
    """
    written = {record.name: record for record in records}
    names = dict.fromkeys([*written, *objects.slices, *_orphans(objects)])
    derived = (_machine(name, written.get(name), objects, now) for name in names)
    machines = {machine.name: machine for machine in derived if machine is not None}
    return MachinesView(dict(sorted(machines.items(), key=lambda pair: (pair[1].since, pair[0]))))


def _orphans(objects: LiqoObjects) -> list[str]:
    """Return the names of our Nodes, including those without a slice and a record."""
    return [name for name, node in objects.nodes.items() if node.metadata.labels.get(GROUP_LABEL)]


def _machine(name: str, record: MachineRecord | None, objects: LiqoObjects, now: dt.datetime) -> VirtualMachine | None:
    resource_slice, virtual, node = objects.slices.get(name), objects.virtual_nodes.get(name), objects.nodes.get(name)
    group = _group(resource_slice, node, record)
    parts = (resource_slice, virtual, node)
    reserved = record is not None and not record.ordered and record.removed_at is None
    if not group or not (reserved or any(parts)):
        return None
    return VirtualMachine(
        name=name,
        group=group,
        cluster=resource_slice.cluster if resource_slice else record.cluster if record else "",
        state=_state(resource_slice, virtual, node, record),
        since=_since(resource_slice, record, now),
        provider_id=(node.spec.provider_id if node else "") or SCHEME + name,
        held=_held(resource_slice, record),
        error=_error(resource_slice, virtual, record),
        slice=resource_slice,
        virtual_node=virtual,
        node=node,
        record=record,
    )


def _group(resource_slice: ResourceSlice | None, node: LiqoNode | None, record: MachineRecord | None) -> str:
    if resource_slice is not None:
        return resource_slice.metadata.labels.get(GROUP_LABEL, "")
    if record is not None:
        return record.group
    return node.metadata.labels.get(GROUP_LABEL, "") if node else ""


def _state(
    resource_slice: ResourceSlice | None,
    virtual: VirtualNode | None,
    node: LiqoNode | None,
    record: MachineRecord | None,
) -> InstanceState:
    """Return the state. A machine is running once its Node has our marks, whether the Node is Ready or not.

    The machine stays running while Liqo recreates its Node.
    """
    if resource_slice is None and record is not None and not record.ordered and record.removed_at is None:
        return InstanceState.CREATING
    if resource_slice is None or resource_slice.metadata.deletion_timestamp or (virtual is not None and virtual.ending):
        return InstanceState.DELETING
    if node is not None and node.metadata.deletion_timestamp:
        return InstanceState.DELETING
    ran = record is not None and record.ran
    return InstanceState.RUNNING if ran or (node and _marked(node)) else InstanceState.CREATING


def _marked(node: LiqoNode) -> bool:
    """Return whether the Node has a provider ID, set by us or by Liqo, and our labels."""
    return bool(node.spec.provider_id) and GROUP_LABEL in node.metadata.labels


def _since(resource_slice: ResourceSlice | None, record: MachineRecord | None, now: dt.datetime) -> dt.datetime:
    if record is not None:
        return record.since
    text = resource_slice.metadata.creation_timestamp if resource_slice else ""
    return dt.datetime.fromisoformat(text) if text else now


def _held(resource_slice: ResourceSlice | None, record: MachineRecord | None) -> ExactAmounts:
    """Return the resources of its cluster that the machine uses."""
    if resource_slice is None:
        return amounts(record.resources) if record else {}
    return amounts(
        {name: str(text) for name, text in (resource_slice.status.resources or resource_slice.spec.resources).items()}
    )


def _error(
    resource_slice: ResourceSlice | None, virtual: VirtualNode | None, record: MachineRecord | None
) -> InstanceError | None:
    """Return the error. A denial after the creation of the VirtualNode does not affect that node."""
    if resource_slice is not None and virtual is None and (denied := resource_slice.denied):
        words = " ".join(f"{denied.reason}: {denied.message}".strip(": ").split())
        message = f"cluster {resource_slice.cluster} denied it ({denied.type}){': ' if words else ''}{words}"
        lacking = denied.type == "Resources" and denied.reason != CLASS_DISABLED
        return _instance_error(OUT_OF_RESOURCES if lacking else DENIED, message)
    return _instance_error(record.error, record.message) if record is not None and record.error else None


def _instance_error(code: str, message: str) -> InstanceError:
    return InstanceError(code, message, out_of_resources=code == OUT_OF_RESOURCES)
