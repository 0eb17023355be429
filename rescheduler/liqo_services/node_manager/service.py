"""The requests to the node manager: groups, sizes, and machines to create or give back."""

import datetime as dt
import logging
import secrets
import threading
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Final

from msgspec.structs import replace

from rescheduler.clock import Clock
from rescheduler.errors import Conflict, NotFound, ReschedulerError, Retryable, UsageError
from rescheduler.liqo_services.node_manager.catalog import Catalog
from rescheduler.liqo_services.node_manager.choice import Offer, Pick, Shortage, choose
from rescheduler.liqo_services.node_manager.cluster import LiqoCluster
from rescheduler.liqo_services.node_manager.foreign_clusters import Tenancy
from rescheduler.liqo_services.node_manager.groups import VirtualNodeGroup
from rescheduler.liqo_services.node_manager.machines import (
    ClusterReading,
    MachineRecord,
    MachinesView,
    VirtualMachine,
    record_of,
    view,
)
from rescheduler.liqo_services.node_manager.offers import offers
from rescheduler.liqo_services.node_manager.resources import GROUP_LABEL, slice_manifest
from rescheduler.liqo_services.node_manager.store import NodeManagerStore
from rescheduler.providers.base import (
    AboveMaximum,
    Accepted,
    AlreadyGone,
    Deleted,
    DeleteOutcome,
    Refusal,
    Refused,
    UnknownGroup,
    below_minimum,
)
from rescheduler.providers.liqo.messages import SCHEME

_PATIENCE: Final = 30.0  #: seconds to wait for another change to complete
_LONGEST_NAME: Final = 63  #: a slice's name is also a Node's name and a label value

log = logging.getLogger(__name__)


class NoCapacity(Retryable):
    """No cluster can currently provide the resources of a group's nodes."""


@dataclass(frozen=True, slots=True)
class Ports:
    """The dependencies of the service."""

    liqo: LiqoCluster
    catalog: Catalog
    store: NodeManagerStore
    clock: Clock


class NodeManagerService:
    """The node manager's logic. Every call reads the cluster; changes are serialized."""

    def __init__(self, ports: Ports, groups: Sequence[VirtualNodeGroup], *, peers: bool) -> None:
        """Create the service. *peers* states whether missing peerings can be established."""
        self._liqo, self._catalog, self._store, self._clock = ports.liqo, ports.catalog, ports.store, ports.clock
        self._configured = {group.id: group for group in groups}
        self._peers = peers
        self._changing = threading.Lock()
        self._excluded: set[str] = set()
        self.woken = threading.Event()  #: set when actions of upkeep are due

    # -- state

    def groups(self) -> Mapping[str, VirtualNodeGroup]:
        """Return all groups, the configured ones first; they take precedence over stored ones."""
        stored = {group.id: group for group in self._store.groups() if group.id not in self._configured}
        return {**self._configured, **stored}

    def group(self, name: str) -> VirtualNodeGroup:
        groups = self.groups()
        if name not in groups:
            raise UnknownGroup(f"no group {name!r}; the groups are {', '.join(groups) or 'none'}")
        return groups[name]

    def read(self) -> ClusterReading:
        # Read the records first: the cluster's state must include the slice of each ordered record.
        records = self._store.records()
        objects = self._liqo.read()
        return ClusterReading(records, objects, view(records, objects, self._clock.now()))

    def view(self) -> MachinesView:
        return self.read().view

    def group_of(self, node: str) -> VirtualNodeGroup | None:
        """Return the group of the machine with the name or provider ID *node*; `None` if the machine is not ours."""
        machine = self.view().find(node)
        return self.groups().get(machine.group) if machine and machine.counts else None

    # -- creating machines

    def increase(self, name: str, count: int) -> Sequence[str]:
        """Reserve *count* machines, all or none, and request their slices; return their names.

        Raises AboveMaximum and NoCapacity.
        """
        if count < 1:
            raise UsageError(f"count: expected 1 or more, got {count}")
        with self.changing():
            group, view = self.group(name), self.view()
            wanted = view.size(name) + count
            if wanted > group.max_size:
                raise AboveMaximum(f"group {name}: {wanted} is above its maximum {group.max_size}")
            peerings = self._liqo.peerings()
            choice = choose(group, count, self._offers(view, peerings))
            if isinstance(choice, Shortage):
                missing = count - choice.available
                raise NoCapacity(f"group {name}: no cluster for {missing} of {count}: {choice}")
            now = self._clock.now()
            records = [_reservation(name, pick, now) for pick in choice]
            self._store.save(*records)
            for record in records:
                self._try_order(record, peerings)
        self.woken.set()
        return [record.name for record in records]

    def order(self, record: MachineRecord, namespace: str) -> None:
        """Create the slice of a reservation; the caller must hold `changing`."""
        group = self.groups().get(record.group) or VirtualNodeGroup(record.group)
        labels = {GROUP_LABEL: record.group}
        manifest = slice_manifest(record.name, record.cluster, record.resources, labels, group.slice_class)
        self._liqo.make_slice(namespace, manifest)
        self._store.save(replace(record, ordered=True))
        log.info("group %s: slice %s requested from cluster %s", record.group, record.name, record.cluster)

    def _offers(self, view: MachinesView, peerings: Mapping[str, Tenancy]) -> Sequence[Offer]:
        failures, now = self._store.failures(), self._clock.now()
        listed = offers(self._catalog.clusters(), view, peerings, failures, now, peers=self._peers)
        return [
            offer.with_obstacle("its peering is being ended") if offer.cluster.name in self._excluded else offer
            for offer in listed
        ]

    def _try_order(self, record: MachineRecord, peerings: Mapping[str, Tenancy]) -> None:
        """Order the slice now. If there is no peering yet or the order fails, upkeep does it later."""
        if (tenancy := peerings.get(record.cluster)) is None:
            return
        try:
            self.order(record, tenancy.namespace)
        except ReschedulerError as error:
            log.warning("slice %s will be requested again: %s", record.name, error)

    # -- removing machines

    def remove(self, name: str, node: str) -> DeleteOutcome:
        """Give a machine back. This is idempotent; the machine is gone when it is no longer listed."""
        with self.changing():
            group, view = self.group(name), self.view()
            machine = view.find(node)
            if machine is None:
                return self._of_absent(name, node.removeprefix(SCHEME))
            if machine.group != name:
                return Refused(Refusal.NOT_IN_GROUP, f"{machine.name} belongs to group {machine.group}")
            if not machine.counts:
                return Accepted("it is being deleted: Liqo drains it")
            left = view.healthy_size(name) - 1
            refused = None if machine.error else below_minimum(name, group.min_size, left)
            return refused or self.give_back(machine)

    def give_back(self, machine: VirtualMachine) -> DeleteOutcome:
        """Delete the slice, or the reservation if there is none; the caller must hold `changing`."""
        now = self._clock.now()
        record = machine.record or record_of(machine)
        if machine.slice is None:
            self._store.save(replace(record, removed_at=now))
            return Deleted("it was only reserved")
        try:
            self._liqo.delete_slice(machine.slice)
        except NotFound:
            return Accepted("its slice is gone")
        log.info("group %s: slice %s given back to cluster %s", machine.group, machine.name, machine.cluster)
        self._store.save(replace(record, ordered=True))
        self.woken.set()
        return Accepted("its slice is being deleted; Liqo drains it")

    def _of_absent(self, group: str, name: str) -> DeleteOutcome:
        record = self._store.record(name)
        if record is not None and record.group == group:
            return AlreadyGone("it is gone")
        return Refused(Refusal.NOT_IN_GROUP, f"group {group} has no machine {name!r}")

    # -- creating and deleting groups

    def create_group(self, group: VirtualNodeGroup) -> None:
        """Store a group. Raises Conflict if the ID already exists."""
        with self.changing():
            if group.id in self.groups():
                raise Conflict(f"group {group.id}: it already exists")
            self._store.save_group(group)

    def destroy_group(self, name: str) -> None:
        """Delete a stored group. Raises Conflict if it has machines or is configured."""
        with self.changing():
            self.group(name)
            if name in self._configured:
                raise Conflict(f"group {name}: it is defined in the configuration; remove it there")
            if members := self.view().members(name):
                raise Conflict(f"group {name}: it has {len(members)} machines")
            self._store.delete_group(name)

    @contextmanager
    def without_requests_to(self, cluster: str) -> Iterator[None]:
        """Request nothing from *cluster* while the block runs. Raises Conflict if it has a slice or a reservation."""
        with self.changing():
            if cluster in self.read().used:
                raise Conflict(f"cluster {cluster}: it is in use again")
            self._excluded.add(cluster)
        try:
            yield
        finally:
            self._excluded.discard(cluster)

    @contextmanager
    def changing(self) -> Iterator[None]:
        """Allow one change at a time."""
        if not self._changing.acquire(timeout=_PATIENCE):
            raise Retryable("another change is in progress")
        try:
            yield
        finally:
            self._changing.release()


def _reservation(group: str, pick: Pick, now: dt.datetime) -> MachineRecord:
    cluster = pick.cluster.name
    return MachineRecord(name=_name(cluster), group=group, cluster=cluster, resources=pick.resources, since=now)


def _name(cluster: str) -> str:
    """Return a unique name for a slice and its Node."""
    tail = secrets.token_hex(4)
    return f"{cluster[: _LONGEST_NAME - len(tail) - 1].rstrip('-')}-{tail}"
