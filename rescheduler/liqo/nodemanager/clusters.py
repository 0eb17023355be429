"""Clusters that share resources, as discovery lists them."""

from dataclasses import dataclass, field
from decimal import Decimal

import msgspec

from rescheduler.liqo.discovery import checks
from rescheduler.liqo.discovery.messages import Quantities
from rescheduler.liqo.nodemanager.amounts import Amounts, amounts


class Entry(msgspec.Struct, rename="camel", frozen=True, kw_only=True):
    """Of discovery's list, the seed's or ours. Keys that we do not know are others' affair."""

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
    """`shared` is all that the cluster lends us, `free` what it has left now, where that is known."""

    name: str  #: Liqo's cluster ID
    shared: Amounts
    free: Amounts | None = None
    labels: dict[str, str] = field(default_factory=dict)
    price: Decimal | None = None  #: an hour
    has_nat: bool = False  #: it cannot be reached from outside: the gateway must stand on our side
    kubeconfig: str = field(default="", repr=False)


def remote_cluster(entry: Entry) -> RemoteCluster:
    """Raises UsageError with what is wrong and where."""
    name = checks.cluster_id(entry.name)
    price = None if entry.price is None else Decimal(str(checks.price(entry.price)))
    shared = amounts(checks.quantities(entry.resources, f"cluster {name}: resources"))
    free = None if entry.free is None else amounts(checks.quantities(entry.free, f"cluster {name}: free"))
    return RemoteCluster(name, shared, free, entry.labels, price, entry.has_nat, entry.kubeconfig)
