"""What has to be done without being asked: slices that are missing, Nodes to mark, failures to give back."""

import datetime as dt
import logging
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TypeAlias

from msgspec.structs import replace

from rescheduler.backends.base import InstanceState
from rescheduler.errors import Conflict, ReschedulerError, Retryable
from rescheduler.liqo.nodemanager.foreign_clusters import Tenancy
from rescheduler.liqo.nodemanager.groups import Group
from rescheduler.liqo.nodemanager.machines import REFUSED, TIMED_OUT, Machine, Record, View
from rescheduler.liqo.nodemanager.metrics import Metrics
from rescheduler.liqo.nodemanager.service import Ports, Service, record_of

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Patience:
    """How long a machine may take to run, and for how long one that failed is shown before it is given back."""

    provision: dt.timedelta = dt.timedelta(minutes=15)
    shown: dt.timedelta = dt.timedelta(minutes=1)


@dataclass(frozen=True, slots=True)
class Order:
    """A reservation whose slice can be made now."""

    record: Record
    namespace: str


@dataclass(frozen=True, slots=True)
class Peer:
    """A reservation that waits for a peering."""

    cluster: str


@dataclass(frozen=True, slots=True)
class Mark:
    """A Node that is Ready and does not bear its provider ID, Liqo's or ours, and its group's labels yet."""

    machine: Machine


@dataclass(frozen=True, slots=True)
class Adopt:
    """A machine that nothing is written of, as the database is a new one: its time begins now."""

    machine: Machine


@dataclass(frozen=True, slots=True)
class Note:
    """A machine has failed; it stays listed with its error for a while."""

    machine: Machine
    code: str
    message: str


@dataclass(frozen=True, slots=True)
class Recover:
    """The slice of a machine was granted after it had been denied."""

    record: Record


@dataclass(frozen=True, slots=True)
class GiveBack:
    """The error of a failed machine was shown long enough."""

    machine: Machine


@dataclass(frozen=True, slots=True)
class Settle:
    """A machine runs: its cluster does what it promises."""

    machine: Machine


@dataclass(frozen=True, slots=True)
class Close:
    """All that there was of a machine has gone."""

    record: Record


Action: TypeAlias = Order | Peer | Mark | Adopt | Note | Recover | GiveBack | Settle | Close


def due(
    found: View, records: Sequence[Record], peerings: Mapping[str, Tenancy], now: dt.datetime, patience: Patience
) -> Iterator[Action]:
    """What is to be done, decided on one look."""
    for machine in found.machines.values():
        yield from _due(machine, peerings, now, patience)
    for record in records:
        if record.name not in found.machines:
            yield Close(record)


def _due(machine: Machine, peerings: Mapping[str, Tenancy], now: dt.datetime, patience: Patience) -> Iterator[Action]:
    record = machine.record
    if machine.state is InstanceState.DELETING:
        return
    if machine.unmarked:
        yield Mark(machine)
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


def _due_to_come(machine: Machine, record: Record, peerings: Mapping[str, Tenancy], *, late: bool) -> Iterator[Action]:
    if machine.error is not None:
        yield Note(machine, machine.error.code, machine.error.message)
    elif late:
        yield Note(machine, TIMED_OUT, f"no Node was Ready in time: {_stuck(machine)}")
    elif machine.slice is None:
        tenancy = peerings.get(machine.cluster)
        if tenancy is None:
            yield Peer(machine.cluster)
        elif not tenancy.obstacle:
            yield Order(record, tenancy.namespace)


def _stuck(machine: Machine) -> str:
    if machine.slice is None:
        return f"no slice could be asked of cluster {machine.cluster}"
    if machine.virtual_node is None:
        return f"cluster {machine.cluster} has not accepted its slice"
    return "its Node is not Ready" if machine.node else "Liqo has made no Node of it"


@dataclass(frozen=True, slots=True)
class Clusters:
    """What a step leaves to do with clusters."""

    awaited: frozenset[str]  #: there is no peering yet, and a reservation waits for it
    used: frozenset[str]  #: as of `Look.used`


class Upkeep:
    """Does what is due; any number of steps does no more than one."""

    def __init__(self, ports: Ports, service: Service, patience: Patience, metrics: Metrics) -> None:
        self._ports, self._service, self._patience, self._metrics = ports, service, patience, metrics

    def step(self) -> Clusters:
        """One look, and what follows from it."""
        store, now = self._ports.store, self._ports.clock.now()
        with self._service.changing():
            look = self._service.look()
            waiting = any(not one.ordered for one in look.records)
            peerings = self._ports.liqo.peerings() if waiting else {}
            actions = list(due(look.view, look.records, peerings, now, self._patience))
            for action in actions:
                try:
                    self._do(action, now)
                except Conflict as error:
                    log.debug("looked at again: %s", error)
                except ReschedulerError as error:
                    log.warning("%s", error)
            store.forget(now)
        self._metrics.seen(self._service.groups(), look.view)
        return Clusters(
            awaited=frozenset(one.cluster for one in actions if isinstance(one, Peer)),
            used=look.used,
        )

    def failed(self, cluster: str, code: str, message: str) -> None:
        """What waits for a peering with *cluster* waits in vain."""
        now = self._ports.clock.now()
        with self._service.changing():
            self._ports.store.failed(cluster, now)
            for record in self._ports.store.records():
                if record.cluster == cluster and not record.ordered and record.failed_at is None:
                    self._note(record, code, message, now)

    def _do(self, action: Action, now: dt.datetime) -> None:
        store = self._ports.store
        match action:
            case Order(record, namespace):
                self._order(record, namespace, now)
            case Mark(machine) if machine.node is not None:
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
                log.info("group %s: machine %s was granted after all", record.group, record.name)
            case GiveBack(machine):
                self._service.give_back(machine)
            case Close(record):
                store.save(replace(record, removed_at=now))
                log.info("group %s: machine %s has gone", record.group, record.name)

    def _order(self, record: Record, namespace: str, now: dt.datetime) -> None:
        try:
            self._service.order(record, namespace)
        except Retryable:
            raise
        except ReschedulerError as error:
            # That our own API server does not take it says nothing about the cluster.
            self._note(record, REFUSED, str(error), now)

    def _note(self, record: Record, code: str, message: str, now: dt.datetime) -> None:
        log.warning("group %s: machine %s: %s: %s", record.group, record.name, code, message)
        self._ports.store.save(replace(record, error=code, message=message, failed_at=now))
        self._metrics.failed(record.group, code)

    def _group(self, machine: Machine) -> Group:
        return self._service.groups().get(machine.group) or Group(machine.group)
