"""Periodic work: create missing slices, mark Nodes, give back failed machines."""

import datetime as dt
import logging
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TypeAlias

from msgspec.structs import replace

from rescheduler.errors import Conflict, ReschedulerError, Retryable
from rescheduler.liqo_services.node_manager.foreign_clusters import Tenancy
from rescheduler.liqo_services.node_manager.groups import VirtualNodeGroup
from rescheduler.liqo_services.node_manager.machines import (
    REFUSED,
    TIMED_OUT,
    MachineRecord,
    MachinesView,
    VirtualMachine,
)
from rescheduler.liqo_services.node_manager.metrics import NodeManagerMetrics
from rescheduler.liqo_services.node_manager.service import NodeManagerService, Ports, record_of
from rescheduler.providers.base import InstanceState

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class MachineTimeouts:
    """The time until a machine must run, and how long a failed one is listed before it is given back."""

    provision: dt.timedelta = dt.timedelta(minutes=15)
    shown: dt.timedelta = dt.timedelta(minutes=1)


@dataclass(frozen=True, slots=True)
class CreateSlice:
    """Create the slice of a reservation."""

    record: MachineRecord
    namespace: str


@dataclass(frozen=True, slots=True)
class Peer:
    """Establish the peering that a reservation waits for."""

    cluster: str


@dataclass(frozen=True, slots=True)
class MarkNode:
    """Set the provider ID and group labels of a Ready Node."""

    machine: VirtualMachine


@dataclass(frozen=True, slots=True)
class Adopt:
    """Record a machine that is in no record because the database is new; its provision time starts now."""

    machine: VirtualMachine


@dataclass(frozen=True, slots=True)
class Note:
    """Record the failure of a machine, which stays listed with its error for a while."""

    machine: VirtualMachine
    code: str
    message: str


@dataclass(frozen=True, slots=True)
class Recover:
    """Clear the error of a machine whose denied slice was granted later."""

    record: MachineRecord


@dataclass(frozen=True, slots=True)
class GiveBack:
    """Give back a failed machine after its error was listed long enough."""

    machine: VirtualMachine


@dataclass(frozen=True, slots=True)
class Settle:
    """Record that a machine runs, and reset its cluster's failures."""

    machine: VirtualMachine


@dataclass(frozen=True, slots=True)
class Close:
    """Record that all objects of a machine are gone."""

    record: MachineRecord


Action: TypeAlias = CreateSlice | Peer | MarkNode | Adopt | Note | Recover | GiveBack | Settle | Close


def due(
    view: MachinesView,
    records: Sequence[MachineRecord],
    peerings: Mapping[str, Tenancy],
    now: dt.datetime,
    patience: MachineTimeouts,
) -> Iterator[Action]:
    """Yield the actions that are due, according to one read of the cluster."""
    for machine in view.machines.values():
        yield from _due(machine, peerings, now, patience)
    for record in records:
        if record.name not in view.machines:
            yield Close(record)


def _due(
    machine: VirtualMachine, peerings: Mapping[str, Tenancy], now: dt.datetime, patience: MachineTimeouts
) -> Iterator[Action]:
    record = machine.record
    if machine.state is InstanceState.DELETING:
        return
    if machine.unmarked:
        yield MarkNode(machine)
    elif machine.state is InstanceState.RUNNING:
        if record is None or not record.ran or record.error:
            yield Settle(machine)
    elif record is None:
        yield Adopt(machine)
    elif record.failed_at is not None:
        if machine.recovered:
            yield Recover(record)
        elif now >= record.failed_at + patience.shown:
            yield GiveBack(machine)
    else:
        yield from _due_to_come(machine, record, peerings, late=now >= record.since + patience.provision)


def _due_to_come(
    machine: VirtualMachine, record: MachineRecord, peerings: Mapping[str, Tenancy], *, late: bool
) -> Iterator[Action]:
    if machine.error is not None:
        yield Note(machine, machine.error.code, machine.error.message)
    elif late:
        yield Note(machine, TIMED_OUT, f"no Node was Ready in time: {_stuck(machine)}")
    elif machine.slice is None:
        tenancy = peerings.get(machine.cluster)
        if tenancy is None:
            yield Peer(machine.cluster)
        elif not tenancy.obstacle:
            yield CreateSlice(record, tenancy.namespace)


def _stuck(machine: VirtualMachine) -> str:
    if machine.slice is None:
        return f"no slice could be requested from cluster {machine.cluster}"
    if machine.virtual_node is None:
        return f"cluster {machine.cluster} has not accepted its slice"
    return "its Node is not Ready" if machine.node else "Liqo has created no Node for it"


@dataclass(frozen=True, slots=True)
class Clusters:
    """The clusters that concern peerings after a step."""

    awaited: frozenset[str]  #: reservations wait for a peering with them
    used: frozenset[str]  #: as of `Look.used`


class Upkeep:
    """Performs the due actions; steps are idempotent."""

    def __init__(
        self, ports: Ports, service: NodeManagerService, patience: MachineTimeouts, metrics: NodeManagerMetrics
    ) -> None:
        self._ports, self._service, self._patience, self._metrics = ports, service, patience, metrics

    def step(self) -> Clusters:
        """Read the cluster and perform the actions that are due."""
        store, now = self._ports.store, self._ports.clock.now()
        with self._service.changing():
            look = self._service.look()
            waiting = any(not record.ordered for record in look.records)
            peerings = self._ports.liqo.peerings() if waiting else {}
            actions = list(due(look.view, look.records, peerings, now, self._patience))
            for action in actions:
                try:
                    self._do(action, now)
                except Conflict as error:
                    log.debug("retried in the next step: %s", error)
                except ReschedulerError as error:
                    log.warning("%s", error)
            store.forget(now)
        self._metrics.seen(self._service.groups(), look.view)
        return Clusters(
            awaited=frozenset(action.cluster for action in actions if isinstance(action, Peer)),
            used=look.used,
        )

    def failed(self, cluster: str, code: str, message: str) -> None:
        """Record that the peering with *cluster* failed, for it and for the reservations that wait for it."""
        now = self._ports.clock.now()
        with self._service.changing():
            self._ports.store.failed(cluster, now)
            for record in self._ports.store.records():
                if record.cluster == cluster and not record.ordered and record.failed_at is None:
                    self._note(record, code, message, now)

    def _do(self, action: Action, now: dt.datetime) -> None:
        store = self._ports.store
        match action:
            case CreateSlice(record, namespace):
                self._order(record, namespace, now)
            case MarkNode(machine) if machine.node is not None:
                labels = self._group(machine).node_labels
                self._ports.liqo.mark_node(machine.node, machine.provider_id, labels)
                log.info("group %s: node %s is Ready", machine.group, machine.name)
            case Adopt(machine):
                store.save(replace(record_of(machine), since=now))
            case Settle(machine):
                store.save(replace(machine.record or record_of(machine), ran=True, ordered=True).without_error())
                store.succeeded(machine.cluster)
            case Note(machine, code, message) if machine.record is not None:
                store.failed(machine.cluster, now)
                self._note(machine.record, code, message, now)
            case Recover(record):
                store.save(record.without_error())
                log.info("group %s: the slice of machine %s was granted after a denial", record.group, record.name)
            case GiveBack(machine):
                self._service.give_back(machine)
            case Close(record):
                store.save(replace(record, removed_at=now))
                log.info("group %s: machine %s is gone", record.group, record.name)

    def _order(self, record: MachineRecord, namespace: str, now: dt.datetime) -> None:
        try:
            self._service.order(record, namespace)
        except Retryable:
            raise
        except ReschedulerError as error:
            # A rejection by the local API server does not count as the cluster's failure.
            self._note(record, REFUSED, str(error), now)

    def _note(self, record: MachineRecord, code: str, message: str, now: dt.datetime) -> None:
        log.warning("group %s: machine %s: %s: %s", record.group, record.name, code, message)
        self._ports.store.save(replace(record, error=code, message=message, failed_at=now))
        self._metrics.failed(record.group, code)

    def _group(self, machine: VirtualMachine) -> VirtualNodeGroup:
        return self._service.groups().get(machine.group) or VirtualNodeGroup(machine.group)
