"""The actions that are due for each machine, as values. No I/O."""

import datetime as dt
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TypeAlias

from rescheduler.liqo.node_manager.machines import TIMED_OUT, MachineRecord, MachinesView, VirtualMachine
from rescheduler.liqo.node_manager.resources import Tenancy
from rescheduler.providers.base import InstanceState


@dataclass(frozen=True, slots=True)
class MachineTimeouts:
    """The time within which a machine must run, and how long a failed machine is listed before it is given back."""

    provision: dt.timedelta = dt.timedelta(minutes=15)
    shown: dt.timedelta = dt.timedelta(minutes=1)


@dataclass(frozen=True, slots=True)
class CreateSlice:
    """Create the slice of a reservation."""

    record: MachineRecord
    namespace: str


@dataclass(frozen=True, slots=True)
class EstablishPeering:
    """Establish the peering that a reservation waits for."""

    cluster: str


@dataclass(frozen=True, slots=True)
class MarkNode:
    """Set the provider ID and group labels of a Ready Node."""

    machine: VirtualMachine


@dataclass(frozen=True, slots=True)
class CreateRecord:
    """Create the missing record of a machine because the database is new; its provision time starts now."""

    machine: VirtualMachine


@dataclass(frozen=True, slots=True)
class RecordFailure:
    """Record the failure of a machine, which is listed with its error for a while."""

    machine: VirtualMachine
    code: str
    message: str


@dataclass(frozen=True, slots=True)
class ClearError:
    """Clear the error of a machine whose denied slice was granted later."""

    record: MachineRecord


@dataclass(frozen=True, slots=True)
class GiveBack:
    """Give back a failed machine whose error has been listed for long enough."""

    machine: VirtualMachine


@dataclass(frozen=True, slots=True)
class RecordRunning:
    """Record that a machine is running, and reset the failures of its cluster."""

    machine: VirtualMachine


@dataclass(frozen=True, slots=True)
class RecordRemoval:
    """Record that all objects of a machine are gone."""

    record: MachineRecord


DueAction: TypeAlias = (
    CreateSlice
    | EstablishPeering
    | MarkNode
    | CreateRecord
    | RecordFailure
    | ClearError
    | GiveBack
    | RecordRunning
    | RecordRemoval
)


def due(
    view: MachinesView,
    records: Sequence[MachineRecord],
    peerings: Mapping[str, Tenancy],
    now: dt.datetime,
    timeouts: MachineTimeouts,
) -> Iterator[DueAction]:
    """Yield the actions that are due, according to one read of the cluster."""
    for machine in view.machines.values():
        yield from _due(machine, peerings, now, timeouts)
    for record in records:
        if record.name not in view.machines:
            yield RecordRemoval(record)


def _due(
    machine: VirtualMachine, peerings: Mapping[str, Tenancy], now: dt.datetime, timeouts: MachineTimeouts
) -> Iterator[DueAction]:
    record = machine.record
    if machine.state is InstanceState.DELETING:
        return
    if machine.unmarked:
        yield MarkNode(machine)
    elif machine.state is InstanceState.RUNNING:
        if record is None or not record.ran or record.error:
            yield RecordRunning(machine)
    elif record is None:
        yield CreateRecord(machine)
    elif record.failed_at is not None:
        if machine.recovered:
            yield ClearError(record)
        elif now >= record.failed_at + timeouts.shown:
            yield GiveBack(machine)
    else:
        yield from _due_to_come(machine, record, peerings, timed_out=now >= record.since + timeouts.provision)


def _due_to_come(
    machine: VirtualMachine, record: MachineRecord, peerings: Mapping[str, Tenancy], *, timed_out: bool
) -> Iterator[DueAction]:
    if machine.error is not None:
        yield RecordFailure(machine, machine.error.code, machine.error.message)
    elif timed_out:
        yield RecordFailure(machine, TIMED_OUT, f"no Node was Ready in time: {_progress_text(machine)}")
    elif machine.slice is None:
        tenancy = peerings.get(machine.cluster)
        if tenancy is None:
            yield EstablishPeering(machine.cluster)
        elif not tenancy.obstacle:
            yield CreateSlice(record, tenancy.namespace)


def _progress_text(machine: VirtualMachine) -> str:
    if machine.slice is None:
        return f"no slice could be requested from cluster {machine.cluster}"
    if machine.virtual_node is None:
        return f"cluster {machine.cluster} has not accepted its slice"
    return "its Node is not Ready" if machine.node else "Liqo has created no Node for it"
