"""Clusters that share resources, as discovery lists them."""

from dataclasses import dataclass, field
from decimal import Decimal

import msgspec

from rescheduler.liqo_services.discovery import checks
from rescheduler.liqo_services.discovery.messages import Quantities
from rescheduler.liqo_services.node_manager.amounts import Amounts, amounts


class DiscoveredCluster(msgspec.Struct, rename="camel", frozen=True, kw_only=True):
    """An entry of discovery's list, Liqo's or ours. Unknown keys are ignored."""

    name: str
    kubeconfig: str = ""
    resources: Quantities = {}
    labels: dict[str, str] = {}
    has_nat: bool = False
    price: float | None = None
    free: Quantities | None = None

    def __repr__(self) -> str:
        return f"Entry({self.name})"


@dataclass(frozen=True, slots=True)
class RemoteCluster:
    """A cluster: `shared` contains the resources that it shares with us, `free` those that are free now, if known."""

    name: str  #: Liqo's cluster ID
    shared: Amounts
    free: Amounts | None = None
    labels: dict[str, str] = field(default_factory=dict)
    price: Decimal | None = None  #: per hour
    has_nat: bool = False  #: the cluster is not reachable from outside, so the gateway server must be on our side
    kubeconfig: str = field(default="", repr=False)


def remote_cluster(entry: DiscoveredCluster) -> RemoteCluster:
    """Convert an entry. Raises UsageError that names the key and the expected value."""
    name = checks.cluster_id(entry.name)
    price = None if entry.price is None else Decimal(str(checks.price(entry.price)))
    shared = amounts(checks.quantities(entry.resources, f"cluster {name}: resources"))
    free = None if entry.free is None else amounts(checks.quantities(entry.free, f"cluster {name}: free"))
    return RemoteCluster(name, shared, free, entry.labels, price, entry.has_nat, entry.kubeconfig)
