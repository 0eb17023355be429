"""Prices of nodes per hour: from a list by instance type, or from a price per vCPU and GiB."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from decimal import Decimal
from typing import Final, TypeAlias

from predicates.nodes import CPU, MEMORY
from predicates.objects import Node
from predicates.requests import allocatable
from predicates.snapshot import Snapshot

#: Hours per month in all monthly amounts, as cloud providers count them.
HOURS_PER_MONTH: Final = 730

#: Labels that carry the instance type and the zone, the current name first.
_INSTANCE_TYPE: Final = ("node.kubernetes.io/instance-type", "beta.kubernetes.io/instance-type")
_ZONE: Final = ("topology.kubernetes.io/zone", "failure-domain.beta.kubernetes.io/zone")

_GIB: Final = 1 << 30

#: Instance type, zone ("" for all zones), and whether it is spot capacity.
PriceKey: TypeAlias = tuple[str, str, bool]


@dataclass(frozen=True, slots=True)
class NodeFacts:
    """The properties of a node that determine its price, or that pages show."""

    name: str
    spot: bool
    instance_type: str  #: "" if no label states it
    zone: str  #: "" if no label states it
    cpu: int  #: allocatable, in millicores
    memory: int  #: allocatable, in bytes
    requested_cpu: int  #: by its pods, in millicores
    requested_memory: int  #: by its pods, in bytes
    created: str | None  #: API timestamp


@dataclass(frozen=True, slots=True)
class PriceList:
    """Prices per hour in one currency. The first source with a price for a node applies."""

    by_type: Mapping[PriceKey, Decimal] = field(default_factory=dict)
    by_node: Mapping[str, Decimal] = field(default_factory=dict)  #: prices of the cloud provider, by node name
    per_vcpu: Decimal | None = None  #: of on-demand capacity
    per_gib: Decimal | None = None  #: of on-demand capacity
    spot_per_vcpu: Decimal | None = None
    spot_per_gib: Decimal | None = None
    currency: str = ""  #: as the user gave it, "" if not given

    @property
    def empty(self) -> bool:
        """Return whether no node has a price."""
        resources = (self.per_vcpu, self.per_gib, self.spot_per_vcpu, self.spot_per_gib)
        return not self.by_type and not self.by_node and all(price is None for price in resources)

    def per_hour(self, node: NodeFacts) -> Decimal | None:
        """Return the price of *node* per hour, or None if it is not known."""
        for zone in (node.zone, ""):
            if (price := self.by_type.get((node.instance_type, zone, node.spot))) is not None:
                return price
        if (price := self.by_node.get(node.name)) is not None:
            return price
        return self._by_resources(node)

    def _by_resources(self, node: NodeFacts) -> Decimal | None:
        per_vcpu, per_gib = (self.spot_per_vcpu, self.spot_per_gib) if node.spot else (self.per_vcpu, self.per_gib)
        if per_vcpu is None and per_gib is None:
            return None
        return Decimal(node.cpu) / 1000 * (per_vcpu or 0) + Decimal(node.memory) / _GIB * (per_gib or 0)


def node_facts(snapshot: Snapshot, name: str, *, spot: bool) -> NodeFacts:
    """Return the facts of the node *name*, which must be in *snapshot*."""
    table = snapshot.nodes
    row = table.row[name]
    node = table.nodes[row]
    assert node is not None
    return NodeFacts(
        name=name,
        spot=spot,
        instance_type=instance_type(node),
        zone=zone_of(node),
        cpu=int(table.allocatable[row, CPU]),
        memory=int(table.allocatable[row, MEMORY]),
        requested_cpu=int(table.allocatable[row, CPU] - table.free[row, CPU]),
        requested_memory=int(table.allocatable[row, MEMORY] - table.free[row, MEMORY]),
        created=node.metadata.creation_timestamp,
    )


def template_facts(template: Node) -> NodeFacts:
    """Return the facts of a new spot node like *template*, which is not in a snapshot."""
    amounts = allocatable(template.status.allocatable)
    return NodeFacts(
        name=template.name,
        spot=True,
        instance_type=instance_type(template),
        zone=zone_of(template),
        cpu=amounts.get("cpu", 0),
        memory=amounts.get("memory", 0),
        requested_cpu=0,
        requested_memory=0,
        created=None,
    )


def zone_of(node: Node) -> str:
    """Return the zone of *node*, or "" if no label states it."""
    return _label(node, _ZONE)


def instance_type(node: Node) -> str:
    """Return the instance type of *node*, or "" if no label states it."""
    return _label(node, _INSTANCE_TYPE)


def cost_on(node: NodeFacts, cpu: int, memory: int, prices: PriceList) -> Decimal | None:
    """Return the price per hour of a pod's share of *node*, or None if the price of the node is not known.

    *cpu* (millicores) and *memory* (bytes) are the pod's requests. The larger of their two shares of the node counts.
    """
    price = prices.per_hour(node)
    if price is None:
        return None
    shares = [Decimal(asked) / total for asked, total in ((cpu, node.cpu), (memory, node.memory)) if total > 0]
    return price * min(max(shares, default=Decimal(0)), Decimal(1))


def _label(node: Node, keys: tuple[str, ...]) -> str:
    return next((node.metadata.labels[key] for key in keys if key in node.metadata.labels), "")
