"""Periodic work: create missing slices, mark Nodes, give back failed machines."""

import datetime as dt
import logging
from dataclasses import dataclass

from msgspec.structs import replace

from rescheduler.errors import Conflict, ReschedulerError, Retryable
from rescheduler.liqo_services.node_manager.due_actions import (
    Action,
    ClearError,
    CreateRecord,
    CreateSlice,
    EstablishPeering,
    GiveBack,
    MachineTimeouts,
    MarkNode,
    RecordFailure,
    RecordRemoval,
    RecordRunning,
    due,
)
from rescheduler.liqo_services.node_manager.groups import VirtualNodeGroup
from rescheduler.liqo_services.node_manager.machines import REFUSED, MachineRecord, VirtualMachine, record_of
from rescheduler.liqo_services.node_manager.metrics import NodeManagerMetrics
from rescheduler.liqo_services.node_manager.service import NodeManagerService, Ports

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Clusters:
    """The clusters whose peerings are needed after a step."""

    awaited: frozenset[str]  #: clusters for which reservations wait for a peering
    used: frozenset[str]  #: see `ClusterReading.used`


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
            reading = self._service.read()
            waiting = any(not record.ordered for record in reading.records)
            peerings = self._ports.liqo.peerings() if waiting else {}
            actions = list(due(reading.view, reading.records, peerings, now, self._patience))
            for action in actions:
                try:
                    self._do(action, now)
                except Conflict as error:
                    log.debug("retried in the next step: %s", error)
                except ReschedulerError as error:
                    log.warning("%s", error)
            store.forget(now)
        self._metrics.update(self._service.groups(), reading.view)
        return Clusters(
            awaited=frozenset(action.cluster for action in actions if isinstance(action, EstablishPeering)),
            used=reading.used,
        )

    def failed(self, cluster: str, code: str, message: str) -> None:
        """Record that peering with *cluster* failed, for the cluster and for the reservations that wait for it."""
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
            case CreateRecord(machine):
                store.save(replace(record_of(machine), since=now))
            case RecordRunning(machine):
                store.save(replace(machine.record or record_of(machine), ran=True, ordered=True).without_error())
                store.succeeded(machine.cluster)
            case RecordFailure(machine, code, message) if machine.record is not None:
                store.failed(machine.cluster, now)
                self._note(machine.record, code, message, now)
            case ClearError(record):
                store.save(record.without_error())
                log.info("group %s: the slice of machine %s was granted after a denial", record.group, record.name)
            case GiveBack(machine):
                self._service.give_back(machine)
            case RecordRemoval(record):
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
