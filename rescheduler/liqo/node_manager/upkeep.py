"""Periodic work: create missing slices, mark Nodes, give back failed machines, establish and end peerings.
Separate from the composition root, so that tests can run its steps one by one.
"""

import datetime as dt
import logging
import threading
from collections import Counter as Counted
from collections.abc import Callable, Collection, Iterable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Final

from msgspec.structs import replace
from prometheus_client import CollectorRegistry, Counter, Gauge

from rescheduler.errors import Conflict, ReschedulerError, Retryable
from rescheduler.liqo.node_manager.catalog import RemoteCluster
from rescheduler.liqo.node_manager.due_actions import (
    ClearError,
    CreateRecord,
    CreateSlice,
    DueAction,
    EstablishPeering,
    GiveBack,
    MachineTimeouts,
    MarkNode,
    RecordFailure,
    RecordRemoval,
    RecordRunning,
    due,
)
from rescheduler.liqo.node_manager.groups import VirtualNodeGroup
from rescheduler.liqo.node_manager.liqoctl import Liqoctl
from rescheduler.liqo.node_manager.machines import (
    NO_PEERING,
    REFUSED,
    MachineRecord,
    MachinesView,
    VirtualMachine,
    record_of,
)
from rescheduler.liqo.node_manager.service import NodeManagerService, Ports
from rescheduler.providers.base import InstanceState

# The node manager's metrics for Prometheus.


class NodeManagerMetrics:
    def __init__(self, registry: CollectorRegistry) -> None:
        self._machines = Gauge(
            "spot_rescheduler_liqo_machines",
            "Virtual nodes by group and state, reservations included.",
            ["group", "state"],
            registry=registry,
        )
        self._failures = Counter(
            "spot_rescheduler_liqo_failures_total",
            "Virtual nodes that failed to start, by group and code.",
            ["group", "code"],
            registry=registry,
        )

    def update(self, groups: Iterable[str], view: MachinesView) -> None:
        """Set the gauge for each state of each group, including zeros."""
        counted = Counted((machine.group, machine.state) for machine in view.machines.values())
        for group in {*groups, *(group for group, _ in counted)}:
            for state in InstanceState:
                self._machines.labels(group, state.value).set(counted[group, state])

    def failed(self, group: str, code: str) -> None:
        self._failures.labels(group, code).inc()


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

    def _do(self, action: DueAction, now: dt.datetime) -> None:
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


# Establish missing peerings and end unused ones, one at a time, in the background.

#: How long it may take until Liqo's resources show the result of liqoctl.
_SETTLING: Final = dt.timedelta(minutes=2)


class Peering:
    """Calls liqoctl in a separate thread. Work in progress is tracked by cluster, so nothing is started twice."""

    def __init__(
        self,
        ports: Ports,
        liqoctl: Liqoctl,
        upkeep: Upkeep,
        service: NodeManagerService,
        unpeer_after: dt.timedelta | None = None,
    ) -> None:
        """Create the worker. Our peerings are ended once they have had no slices for *unpeer_after*."""
        self._ports, self._liqoctl, self._upkeep, self._service = ports, liqoctl, upkeep, service
        self._unpeer_after = unpeer_after
        self._lock = threading.Lock()
        self._busy: set[str] = set()
        self._made: dict[str, dt.datetime] = {}
        self._unused: dict[str, dt.datetime] = {}
        self._closed = False
        self._thread = ThreadPoolExecutor(1, "liqoctl")

    def establish(self, clusters: Collection[str]) -> None:
        """Start peering with each of *clusters*, unless that is already in progress."""
        now = self._ports.clock.now()
        for name in clusters:
            if now >= self._made.get(name, now - _SETTLING) + _SETTLING:
                self._begin(name, self._establish)

    def release(self, used: Collection[str]) -> None:
        """End our peerings with clusters that have been absent from *used* for long enough."""
        if self._unpeer_after is None:
            return
        now = self._ports.clock.now()
        idle = set(self._ports.store.peerings()) - set(used)
        self._unused = {name: self._unused.get(name, now) for name in idle}
        for name, since in self._unused.items():
            if now >= since + self._unpeer_after:
                self._begin(name, self._release)

    def idle(self) -> bool:
        with self._lock:
            return not self._busy

    def close(self) -> None:
        """Stop the work in progress, which is repeated after the next start."""
        self._closed = True
        self._liqoctl.close()
        self._thread.shutdown(cancel_futures=True)

    def _begin(self, name: str, act: Callable[[RemoteCluster], None]) -> None:
        with self._lock:
            if name in self._busy:
                return
            self._busy.add(name)
        self._thread.submit(self._run, name, act)

    def _run(self, name: str, act: Callable[[RemoteCluster], None]) -> None:
        try:
            listed = {cluster.name: cluster for cluster in self._ports.catalog.clusters()}
            if name in listed:
                act(listed[name])
            else:
                log.warning("cluster %s: discovery no longer lists it", name)
        except ReschedulerError as error:
            log.warning("%s", error)
        except Exception:
            log.exception("cluster %s", name)
        finally:
            with self._lock:
                self._busy.discard(name)
            self._service.woken.set()

    def _establish(self, cluster: RemoteCluster) -> None:
        log.info("cluster %s: peering", cluster.name)
        # Record the peering first: from here on, this node manager is responsible for ending it.
        self._ports.store.peered(cluster.name)
        try:
            self._liqoctl.peer(cluster)
        except Retryable as error:
            if not self._closed:
                log.warning("%s", error)
                self._upkeep.failed(cluster.name, NO_PEERING, str(error))
            return
        self._made[cluster.name] = self._ports.clock.now()
        log.info("cluster %s: peered", cluster.name)

    def _release(self, cluster: RemoteCluster) -> None:
        with self._service.without_requests_to(cluster.name):
            log.info("cluster %s: no slices are left, ending the peering", cluster.name)
            self._liqoctl.unpeer(cluster)
            self._ports.store.unpeered(cluster.name)
            self._made.pop(cluster.name, None)
        log.info("cluster %s: the peering has ended", cluster.name)
        self._unused.pop(cluster.name, None)
