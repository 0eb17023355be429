"""Machines: what the records, the slices, the VirtualNodes and the Nodes say together. No I/O."""

import datetime as dt
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

import msgspec
from msgspec.structs import replace

from rescheduler.backends.base import InstanceError, InstanceState
from rescheduler.backends.liqo.messages import SCHEME
from rescheduler.liqo.nodemanager.amounts import Amounts, amounts
from rescheduler.liqo.nodemanager.resources import GROUP_LABEL, Node, ResourceSlice, Seen, VirtualNode

#: Codes of errors.
OUT_OF_RESOURCES: Final = "OUT_OF_RESOURCES"  #: the cluster denied the amount
DENIED: Final = "DENIED"  #: the cluster denied us
TIMED_OUT: Final = "NOT_READY_IN_TIME"
NO_PEERING: Final = "NO_PEERING"
REFUSED: Final = "REFUSED"  #: our own API server did not take the slice


class Record(msgspec.Struct, frozen=True, kw_only=True):
    """What we wrote down of a machine when it was reserved, and what became of it since."""

    name: str
    group: str
    cluster: str
    resources: dict[str, str]
    since: dt.datetime
    ordered: bool = False  #: its slice was made
    ran: bool = False  #: its Node was Ready once
    error: str = ""  #: a code; empty: none
    message: str = ""
    failed_at: dt.datetime | None = None
    removed_at: dt.datetime | None = None

    def without_error(self) -> "Record":
        """Of a machine that has recovered from what it failed with."""
        return replace(self, error="", message="", failed_at=None)


@dataclass(frozen=True, slots=True)
class Machine:
    """One member of a group, from its reservation until the last of its objects is gone."""

    name: str
    group: str
    cluster: str
    state: InstanceState
    since: dt.datetime
    provider_id: str
    held: Amounts
    error: InstanceError | None = None
    slice: ResourceSlice | None = None
    virtual_node: VirtualNode | None = None
    node: Node | None = None
    record: Record | None = None

    @property
    def counts(self) -> bool:
        """Whether it is part of its group's size."""
        return self.state is not InstanceState.DELETING

    @property
    def recovered(self) -> bool:
        """Whether what it is known to have failed with, a denial, is over."""
        record = self.record
        return record is not None and record.error in {OUT_OF_RESOURCES, DENIED} and self.virtual_node is not None

    @property
    def unmarked(self) -> bool:
        """Whether its Node is Ready and does not bear a provider ID and its group's labels yet."""
        return self.node is not None and self.node.ready and not _marked(self.node)


@dataclass(frozen=True, slots=True)
class View:
    """All machines by name, at one moment."""

    machines: Mapping[str, Machine] = field(default_factory=dict)

    def members(self, group: str) -> Sequence[Machine]:
        return [one for one in self.machines.values() if one.group == group]

    def size(self, group: str) -> int:
        return sum(one.counts for one in self.members(group))

    def sound(self, group: str) -> int:
        """Of a group's size, those that are not about to be given back for having failed."""
        return sum(one.counts and one.error is None for one in self.members(group))

    def of_cluster(self, cluster: str) -> Sequence[Machine]:
        return [one for one in self.machines.values() if one.cluster == cluster]


@dataclass(frozen=True, slots=True)
class Look:
    """What is written, what there is, and what both together mean."""

    records: Sequence[Record]
    seen: Seen
    view: View

    @property
    def used(self) -> frozenset[str]:
        """Clusters that there is a slice of, ours or somebody else's, or one is to come."""
        return self.seen.lenders.union(one.cluster for one in self.view.machines.values())


def view(records: Iterable[Record], seen: Seen, now: dt.datetime) -> View:
    """Records say what was asked for, the cluster says what there is; where both speak, the cluster is right.

    A record whose slice was made and is there no more tells of a machine that has gone.
    """
    written = {one.name: one for one in records}
    names = dict.fromkeys([*written, *seen.slices, *_orphans(seen)])
    made = (_machine(name, written.get(name), seen, now) for name in names)
    found = {one.name: one for one in made if one is not None}
    return View(dict(sorted(found.items(), key=lambda pair: (pair[1].since, pair[0]))))


def _orphans(seen: Seen) -> list[str]:
    """Nodes of ours that are left when slice and record have gone."""
    return [name for name, node in seen.nodes.items() if node.metadata.labels.get(GROUP_LABEL)]


def _machine(name: str, record: Record | None, seen: Seen, now: dt.datetime) -> Machine | None:
    piece, virtual, node = seen.slices.get(name), seen.virtual_nodes.get(name), seen.nodes.get(name)
    group = _group(piece, node, record)
    parts = (piece, virtual, node)
    reserved = record is not None and not record.ordered and record.removed_at is None
    if not group or not (reserved or any(parts)):
        return None
    return Machine(
        name=name,
        group=group,
        cluster=piece.cluster if piece else record.cluster if record else "",
        state=_state(piece, virtual, node, record),
        since=_since(piece, record, now),
        provider_id=(node.spec.provider_id if node else "") or SCHEME + name,
        held=_held(piece, record),
        error=_error(piece, virtual, record),
        slice=piece,
        virtual_node=virtual,
        node=node,
        record=record,
    )


def _group(piece: ResourceSlice | None, node: Node | None, record: Record | None) -> str:
    if piece is not None:
        return piece.metadata.labels.get(GROUP_LABEL, "")
    if record is not None:
        return record.group
    return node.metadata.labels.get(GROUP_LABEL, "") if node else ""


def _state(
    piece: ResourceSlice | None, virtual: VirtualNode | None, node: Node | None, record: Record | None
) -> InstanceState:
    """A machine runs from the moment at which its Node bears what we mark it with, be it Ready or not.

    One that ran still does when its Node is made anew.
    """
    if piece is None and record is not None and not record.ordered and record.removed_at is None:
        return InstanceState.CREATING
    if piece is None or piece.metadata.deletion_timestamp or (virtual is not None and virtual.ending):
        return InstanceState.DELETING
    if node is not None and node.metadata.deletion_timestamp:
        return InstanceState.DELETING
    ran = record is not None and record.ran
    return InstanceState.RUNNING if ran or (node and _marked(node)) else InstanceState.CREATING


def _marked(node: Node) -> bool:
    """The provider ID can be Liqo's own; the labels are ours."""
    return bool(node.spec.provider_id) and GROUP_LABEL in node.metadata.labels


def _since(piece: ResourceSlice | None, record: Record | None, now: dt.datetime) -> dt.datetime:
    if record is not None:
        return record.since
    text = piece.metadata.creation_timestamp if piece else ""
    return dt.datetime.fromisoformat(text) if text else now


def _held(piece: ResourceSlice | None, record: Record | None) -> Amounts:
    """What the machine takes of its cluster."""
    if piece is None:
        return amounts(record.resources) if record else {}
    return amounts({name: str(text) for name, text in (piece.status.resources or piece.spec.resources).items()})


def _error(piece: ResourceSlice | None, virtual: VirtualNode | None, record: Record | None) -> InstanceError | None:
    """A slice that was denied after a VirtualNode came of it says nothing about that node."""
    if piece is not None and virtual is None and (denied := piece.denied):
        words = " ".join(f"{denied.reason}: {denied.message}".strip(": ").split())
        message = f"cluster {piece.cluster} denied it ({denied.type}){': ' if words else ''}{words}"
        return _told(OUT_OF_RESOURCES if denied.type == "Resources" else DENIED, message)
    return _told(record.error, record.message) if record is not None and record.error else None


def _told(code: str, message: str) -> InstanceError:
    return InstanceError(code, message, out_of_resources=code == OUT_OF_RESOURCES)
