"""Choose the clusters that provide the next virtual nodes."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from decimal import Decimal
from typing import TypeAlias

from rescheduler.liqo_services.node_manager.amounts import Amounts, amounts, count_fitting, describe_shortages, subtract
from rescheduler.liqo_services.node_manager.clusters import RemoteCluster
from rescheduler.liqo_services.node_manager.groups import VirtualNodeGroup


@dataclass(frozen=True, slots=True)
class Offer:
    """A cluster and its current state."""

    cluster: RemoteCluster
    available: Amounts  #: resources available for new slices
    failures: int = 0  #: consecutive failures
    obstacle: str = ""  #: why the cluster is currently not used

    def with_obstacle(self, obstacle: str) -> "Offer":
        """Return the offer with *obstacle*, so that the cluster is not used."""
        return replace(self, obstacle=obstacle)


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
