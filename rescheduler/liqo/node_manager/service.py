"""The requests to the node manager: groups, sizes, and machines to create on chosen clusters or to give back."""

import datetime as dt
import logging
import secrets
import threading
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from decimal import Decimal
from typing import Final, TypeAlias

from msgspec.structs import replace as structs_replace

from rescheduler.clock import Clock
from rescheduler.durations import Backoff
from rescheduler.errors import Conflict, NotFound, ReschedulerError, Retryable, UsageError
from rescheduler.liqo.messages import SCHEME
from rescheduler.liqo.node_manager.catalog import Catalog, RemoteCluster
from rescheduler.liqo.node_manager.cluster import LiqoCluster
from rescheduler.liqo.node_manager.groups import (
    ExactAmounts,
    VirtualNodeGroup,
    amounts,
    count_fitting,
    describe_shortages,
    limit_to,
    plus,
    subtract,
)
from rescheduler.liqo.node_manager.machines import (
    ClusterReading,
    MachineRecord,
    MachinesView,
    VirtualMachine,
    record_of,
    view,
)
from rescheduler.liqo.node_manager.resources import GROUP_LABEL, Tenancy, slice_manifest
from rescheduler.liqo.node_manager.store import Failures, NodeManagerStore
from rescheduler.providers.base import (
    AboveMaximum,
    Accepted,
    AlreadyGone,
    Deleted,
    DeleteOutcome,
    InstanceState,
    Refusal,
    Refused,
    UnknownGroup,
    below_minimum,
)

# Choose the clusters that provide the next virtual nodes.


@dataclass(frozen=True, slots=True)
class Offer:
    """A cluster and its current state."""

    cluster: RemoteCluster
    available: ExactAmounts  #: resources available for new slices
    failures: int = 0  #: consecutive failures
    obstacle: str = ""  #: why the cluster is currently not used


@dataclass(frozen=True, slots=True)
class Pick:
    cluster: RemoteCluster
    resources: dict[str, str]  #: resources to request


@dataclass(frozen=True, slots=True)
class Shortage:
    """A shortage: how many of the requested slices are available, and the reason for each cluster."""

    available: int
    reasons: tuple[str, ...]

    def __str__(self) -> str:
        return "; ".join(self.reasons) or "discovery lists no cluster"


Choice: TypeAlias = tuple[Pick, ...] | Shortage


def choose(group: VirtualNodeGroup, count: int, offers: Sequence[Offer]) -> Choice:
    """Choose *count* slices, all or none, by lowest price, then most free room, then fewest failures.

    Clusters without a price come last. One cluster may provide several slices. More than the minimum is requested
    only if that does not reduce the number of slices.
    """
    picks = _picks(group, count, offers, generous=True)
    return picks if isinstance(picks, tuple) else _picks(group, count, offers, generous=False)


def _picks(group: VirtualNodeGroup, count: int, offers: Sequence[Offer], *, generous: bool) -> Choice:
    picks: list[Pick] = []
    left = {offer.cluster.name: offer for offer in offers if not _obstacle(group, offer)}
    while len(picks) < count:
        fitting = [offer for offer in left.values() if count_fitting(offer.available, group.needed)]
        if not fitting:
            return Shortage(len(picks), tuple(_reasons(group, offers, left)))
        best = min(fitting, key=lambda offer: _rank(group, offer))
        resources = group.resources_to_request(best.available) if generous else dict(group.least)
        picks.append(Pick(best.cluster, resources))
        left[best.cluster.name] = replace(best, available=subtract(best.available, amounts(resources)))
    return tuple(picks)


def _rank(group: VirtualNodeGroup, offer: Offer) -> tuple[bool, Decimal, int, int, str]:
    price = offer.cluster.price
    room = count_fitting(offer.available, group.needed)
    return (price is None, price or Decimal(0), -room, offer.failures, offer.cluster.name)


def _obstacle(group: VirtualNodeGroup, offer: Offer) -> str:
    labels = offer.cluster.labels
    for key, value in group.selector.items():
        if labels.get(key) != value:
            return f"its label {key} is {labels.get(key)!r}, expected {value!r}"
    return offer.obstacle


def _reasons(group: VirtualNodeGroup, offers: Sequence[Offer], left: dict[str, Offer]) -> list[str]:
    reasons = []
    for offer in offers:
        name = offer.cluster.name
        reason = _obstacle(group, offer)
        if not reason:
            reason = f"insufficient resources: {', '.join(describe_shortages(left[name].available, group.needed))}"
        reasons.append(f"{name}: {reason}")
    return reasons


# The current offers of clusters: their shared resources minus our slices, and their failures.

#: How long a cluster is not used after consecutive failures.
BACKOFF: Final = Backoff(dt.timedelta(minutes=1), dt.timedelta(minutes=30))


def offers(
    clusters: Sequence[RemoteCluster],
    view: MachinesView,
    peerings: Mapping[str, Tenancy],
    failures: Mapping[str, Failures],
    now: dt.datetime,
    *,
    peers: bool,
) -> Sequence[Offer]:
    """Return the offers. *peers* states whether missing peerings can be established."""
    current = []
    for cluster in clusters:
        failed = failures.get(cluster.name)
        obstacle = _backoff_reason(failed, now) or _peering_obstacle(cluster, peerings, peers=peers)
        room = available(cluster, view.of_cluster(cluster.name))
        current.append(Offer(cluster, room, failed.count if failed else 0, obstacle))
    return current


def available(cluster: RemoteCluster, machines: Sequence[VirtualMachine]) -> ExactAmounts:
    """Return the resources that *cluster* has left for new slices.

    This is the smaller of its shared resources minus our slices, and its reported free resources minus our slices that
    it may not have counted yet.
    """
    held: ExactAmounts = {}
    coming: ExactAmounts = {}
    for machine in machines:
        held = plus(held, machine.held)
        if machine.state is InstanceState.CREATING:
            coming = plus(coming, machine.held)
    unheld = subtract(cluster.shared, held)
    return unheld if cluster.free is None else limit_to(unheld, subtract(cluster.free, coming))


def _backoff_reason(failed: Failures | None, now: dt.datetime) -> str:
    if failed is None or now >= (until := failed.last + BACKOFF.after(failed.count)):
        return ""
    return f"it failed {failed.count} times in a row and is not used until {until.isoformat(timespec='seconds')}"


def _peering_obstacle(cluster: RemoteCluster, peerings: Mapping[str, Tenancy], *, peers: bool) -> str:
    if (tenancy := peerings.get(cluster.name)) is not None:
        return tenancy.obstacle
    if not peers:
        return "there is no peering with it, and no --liqoctl to establish one"
    return "" if cluster.kubeconfig else "there is no peering with it, and no kubeconfig to establish one"


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
        self._store.save(structs_replace(record, ordered=True))
        log.info("group %s: slice %s requested from cluster %s", record.group, record.name, record.cluster)

    def _offers(self, view: MachinesView, peerings: Mapping[str, Tenancy]) -> Sequence[Offer]:
        failures, now = self._store.failures(), self._clock.now()
        listed = offers(self._catalog.clusters(), view, peerings, failures, now, peers=self._peers)
        return [
            replace(offer, obstacle="its peering is being ended") if offer.cluster.name in self._excluded else offer
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
            self._store.save(structs_replace(record, removed_at=now))
            return Deleted("it was only reserved")
        try:
            self._liqo.delete_slice(machine.slice)
        except NotFound:
            return Accepted("its slice is gone")
        log.info("group %s: slice %s given back to cluster %s", machine.group, machine.name, machine.cluster)
        self._store.save(structs_replace(record, ordered=True))
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
