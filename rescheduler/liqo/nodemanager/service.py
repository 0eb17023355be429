"""What the node manager does when it is asked: groups, sizes, machines made and given back."""

import logging
import secrets
import threading
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Final

from msgspec.structs import replace

from rescheduler.backends.base import (
    AboveMaximum,
    Accepted,
    AlreadyGone,
    Deleted,
    DeleteOutcome,
    InstanceState,
    Refusal,
    Refused,
    UnknownGroup,
)
from rescheduler.backends.liqo.messages import SCHEME
from rescheduler.clock import Clock
from rescheduler.errors import Conflict, NotFound, ReschedulerError, Retryable, UsageError
from rescheduler.liqo.nodemanager.catalog import Catalog
from rescheduler.liqo.nodemanager.choice import Offer, Shortage, choose
from rescheduler.liqo.nodemanager.cluster import Liqo
from rescheduler.liqo.nodemanager.foreign_clusters import Tenancy
from rescheduler.liqo.nodemanager.groups import Group
from rescheduler.liqo.nodemanager.machines import Look, Machine, Record, View, view
from rescheduler.liqo.nodemanager.offers import offers
from rescheduler.liqo.nodemanager.resources import GROUP_LABEL, slice_manifest
from rescheduler.liqo.nodemanager.store import Store

_PATIENCE: Final = 30.0  #: seconds for the change before ours to come to its end
_LONGEST_NAME: Final = 63  #: the name of a slice is that of a Node and a label's value

log = logging.getLogger(__name__)


class NoCapacity(Retryable):
    """No cluster has at present what a group's nodes need."""


@dataclass(frozen=True, slots=True)
class Ports:
    """What the service stands on."""

    liqo: Liqo
    catalog: Catalog
    store: Store
    clock: Clock


class Service:
    """Reads look at the cluster anew; changes exclude each other, and each is decided on a look of its own."""

    def __init__(self, ports: Ports, groups: Sequence[Group], *, peers: bool) -> None:
        """*peers*: peerings that are missing can be made."""
        self._liqo, self._catalog, self._store, self._clock = ports.liqo, ports.catalog, ports.store, ports.clock
        self._configured = {group.id: group for group in groups}
        self._peers = peers
        self._changing = threading.Lock()
        self._spared: set[str] = set()
        self.woken = threading.Event()  #: there is something to do for upkeep

    # -- what there is

    def groups(self) -> Mapping[str, Group]:
        """The configured ones first; of two with one id the configured one counts."""
        return {**self._configured, **{one.id: one for one in self._store.groups() if one.id not in self._configured}}

    def group(self, name: str) -> Group:
        groups = self.groups()
        if name not in groups:
            raise UnknownGroup(f"no group {name!r}; the groups are {', '.join(groups) or 'none'}")
        return groups[name]

    def look(self) -> Look:
        # Records first: one that says "ordered" speaks of a slice that the look must find.
        records = self._store.records()
        seen = self._liqo.look()
        return Look(records, seen, view(records, seen, self._clock.now()))

    def view(self) -> View:
        return self.look().view

    def group_of(self, node: str) -> Group | None:
        """The group of the machine with the name or provider ID *node*; `None` where it is not ours."""
        machine = _find(self.view(), node)
        return self.groups().get(machine.group) if machine and machine.counts else None

    # -- machines that are wanted

    def increase(self, name: str, count: int) -> Sequence[str]:
        """Reserve *count* machines, all or none, and ask for their slices; their names. AboveMaximum, NoCapacity."""
        if count < 1:
            raise UsageError(f"count: expected 1 or more, got {count}")
        with self.changing():
            group, found = self.group(name), self.view()
            wanted = found.size(name) + count
            if wanted > group.max_size:
                raise AboveMaximum(f"group {name}: {wanted} is above its maximum {group.max_size}")
            peerings = self._liqo.peerings()
            choice = choose(group, count, self._offers(found, peerings))
            if isinstance(choice, Shortage):
                missing = count - choice.found
                raise NoCapacity(f"group {name}: no cluster for {missing} of {count}: {choice}")
            now = self._clock.now()
            records = [
                Record(
                    name=_name(one.cluster.name),
                    group=name,
                    cluster=one.cluster.name,
                    resources=one.resources,
                    since=now,
                )
                for one in choice
            ]
            self._store.save(*records)
            for record in records:
                self._order_soon(record, peerings)
        self.woken.set()
        return [record.name for record in records]

    def order(self, record: Record, namespace: str) -> None:
        """Make the slice of a reservation; a change must be under way."""
        group = self.groups().get(record.group) or Group(record.group)
        labels = {GROUP_LABEL: record.group}
        manifest = slice_manifest(record.name, record.cluster, record.resources, labels, group.slice_class)
        self._liqo.make_slice(namespace, manifest)
        self._store.save(replace(record, ordered=True))
        log.info("group %s: slice %s asked of cluster %s", record.group, record.name, record.cluster)

    def _offers(self, found: View, peerings: Mapping[str, Tenancy]) -> Sequence[Offer]:
        failures, now = self._store.failures(), self._clock.now()
        made = offers(self._catalog.clusters(), found, peerings, failures, now, peers=self._peers)
        return [one if one.cluster.name not in self._spared else one.barred("its peering is ending") for one in made]

    def _order_soon(self, record: Record, peerings: Mapping[str, Tenancy]) -> None:
        """Now, or by upkeep where there is no peering yet or it does not work now."""
        if (tenancy := peerings.get(record.cluster)) is None:
            return
        try:
            self.order(record, tenancy.namespace)
        except ReschedulerError as error:
            log.warning("slice %s is asked for again: %s", record.name, error)

    # -- machines that are not wanted

    def remove(self, name: str, node: str) -> DeleteOutcome:
        """Give a machine back. The end of it is seen when it is not listed any more; asking twice does no harm."""
        with self.changing():
            group, found = self.group(name), self.view()
            machine = _find(found, node)
            if machine is None:
                return self._of_absent(name, node.removeprefix(SCHEME))
            if machine.group != name:
                return Refused(Refusal.NOT_IN_GROUP, f"{machine.name} is of group {machine.group}")
            if not machine.counts:
                return Accepted("it is leaving: Liqo drains it")
            left = found.sound(name) - 1
            if left < group.min_size and machine.error is None:
                return Refused(Refusal.BELOW_MINIMUM, f"group {name} must keep {group.min_size}, {left} would be left")
            return self.give_back(machine)

    def give_back(self, machine: Machine) -> DeleteOutcome:
        """Delete the slice, or the reservation where there is none; a change must be under way."""
        now = self._clock.now()
        record = machine.record or record_of(machine)
        if machine.slice is None:
            self._store.save(replace(record, removed_at=now))
            return Deleted("it was reserved only")
        try:
            self._liqo.delete_slice(machine.slice)
        except NotFound:
            return Accepted("its slice has gone")
        log.info("group %s: slice %s given back to cluster %s", machine.group, machine.name, machine.cluster)
        self._store.save(replace(record, ordered=True))
        self.woken.set()
        return Accepted("its slice is being deleted; Liqo drains it")

    def _of_absent(self, group: str, name: str) -> DeleteOutcome:
        record = self._store.record(name)
        if record is not None and record.group == group:
            return AlreadyGone("it has gone")
        return Refused(Refusal.NOT_IN_GROUP, f"no machine of group {group} is called {name!r}")

    # -- groups that come and go

    def create_group(self, group: Group) -> None:
        """Conflict where there is one of that id."""
        with self.changing():
            if group.id in self.groups():
                raise Conflict(f"group {group.id}: there is one already")
            self._store.save_group(group)

    def destroy_group(self, name: str) -> None:
        """Conflict where it has machines, or is the configuration's."""
        with self.changing():
            self.group(name)
            if name in self._configured:
                raise Conflict(f"group {name}: it is defined in the configuration; take it out there")
            if members := self.view().members(name):
                raise Conflict(f"group {name}: it has {len(members)} machines")
            self._store.delete_group(name)

    @contextmanager
    def sparing(self, cluster: str) -> Iterator[None]:
        """In the block nothing is asked of *cluster*. Conflict where there is a slice of it, or one is to come."""
        with self.changing():
            if cluster in self.look().used:
                raise Conflict(f"cluster {cluster}: it is used again")
            self._spared.add(cluster)
        try:
            yield
        finally:
            self._spared.discard(cluster)

    @contextmanager
    def changing(self) -> Iterator[None]:
        """One change at a time."""
        if not self._changing.acquire(timeout=_PATIENCE):
            raise Retryable("another change is under way")
        try:
            yield
        finally:
            self._changing.release()


def record_of(machine: Machine) -> Record:
    """For a machine that was found in the cluster and is in no record: the database is a new one."""
    wanted = machine.slice.spec.resources if machine.slice else {}
    return Record(
        name=machine.name,
        group=machine.group,
        cluster=machine.cluster,
        resources={name: str(amount) for name, amount in wanted.items()},
        since=machine.since,
        ordered=True,
        ran=machine.state is InstanceState.RUNNING,
    )


def _find(found: View, node: str) -> Machine | None:
    """By name, or by provider ID: Liqo's own, which newer releases can set, or ours."""
    machine = found.machines.get(node.removeprefix(SCHEME))
    if machine is not None:
        return machine
    return next((one for one in found.machines.values() if one.provider_id == node), None)


def _name(cluster: str) -> str:
    """A name for a slice and its Node, which nothing else has."""
    tail = secrets.token_hex(4)
    return f"{cluster[: _LONGEST_NAME - len(tail) - 1].rstrip('-')}-{tail}"
