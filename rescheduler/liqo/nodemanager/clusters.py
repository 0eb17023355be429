"""Clusters that share resources, as discovery lists them."""

import re
from dataclasses import dataclass, field
from decimal import Decimal
from typing import Final

import msgspec

from rescheduler.liqo.nodemanager.amounts import Amounts, amounts

#: Liqo's own rule for cluster IDs; they become names of objects and values of labels.
CLUSTER_ID: Final = re.compile(r"[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?")


class Listed(msgspec.Struct, rename="camel", frozen=True, kw_only=True):
    """An entry of discovery's list. Keys that we do not know are others' affair."""

    name: str
    kubeconfig: str = ""
    resources: dict[str, str] = msgspec.field(default_factory=dict)
    labels: dict[str, str] = msgspec.field(default_factory=dict)
    has_nat: bool = False
    price: float | None = None
    free: dict[str, str] | None = None

    def __repr__(self) -> str:
        return f"Listed({self.name})"


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


def remote_cluster(listed: Listed) -> RemoteCluster:
    """Raises ValueError with what is wrong and where."""
    if not CLUSTER_ID.fullmatch(listed.name):
        raise ValueError(f"name {listed.name[:70]!r}: expected a cluster ID: at most 63 of a-z, 0-9 and -")
    if listed.price is not None and not 0 <= listed.price < float("inf"):
        raise ValueError(f"cluster {listed.name}: price: expected 0 or more, got {listed.price}")
    try:
        shared = amounts(listed.resources)
        free = None if listed.free is None else amounts(listed.free)
    except ValueError as error:
        raise ValueError(f"cluster {listed.name}: resources: {error}") from error
    return RemoteCluster(
        listed.name,
        shared,
        free,
        listed.labels,
        None if listed.price is None else Decimal(str(listed.price)),
        listed.has_nat,
        listed.kubeconfig,
    )
