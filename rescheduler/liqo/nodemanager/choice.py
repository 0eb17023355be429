"""Which cluster the next virtual nodes come from."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from decimal import Decimal
from typing import TypeAlias

from rescheduler.liqo.nodemanager.amounts import Amounts, amounts, less, missing, times
from rescheduler.liqo.nodemanager.clusters import RemoteCluster
from rescheduler.liqo.nodemanager.groups import Group


@dataclass(frozen=True, slots=True)
class Offer:
    """A cluster, and what is known of it here."""

    cluster: RemoteCluster
    available: Amounts  #: for new slices
    failures: int = 0  #: in a row
    obstacle: str = ""  #: why it is not asked at present

    def barred(self, obstacle: str) -> "Offer":
        """The cluster, not to be asked."""
        return replace(self, obstacle=obstacle)


@dataclass(frozen=True, slots=True)
class Pick:
    cluster: RemoteCluster
    resources: dict[str, str]  #: to ask for


@dataclass(frozen=True, slots=True)
class Shortage:
    """Not as many as were wanted can be had; why, cluster by cluster."""

    found: int
    reasons: tuple[str, ...]

    def __str__(self) -> str:
        return "; ".join(self.reasons) or "discovery knows no cluster"


Choice: TypeAlias = tuple[Pick, ...] | Shortage


def choose(group: Group, count: int, offers: Sequence[Offer]) -> Choice:
    """*count* slices, all or none: each from the cheapest cluster, then the one with most room, then the steadiest.

    A cluster without a price comes after all that name theirs. Several slices may come from one cluster. More than
    the least is asked for only where that costs nobody a place.
    """
    picks = _picks(group, count, offers, generous=True)
    return picks if isinstance(picks, tuple) else _picks(group, count, offers, generous=False)


def _picks(group: Group, count: int, offers: Sequence[Offer], *, generous: bool) -> Choice:
    picks: list[Pick] = []
    left = {offer.cluster.name: offer for offer in offers if not _obstacle(group, offer)}
    while len(picks) < count:
        fitting = [one for one in left.values() if times(one.available, group.needed)]
        if not fitting:
            return Shortage(len(picks), tuple(_reasons(group, offers, left)))
        best = min(fitting, key=lambda one: _rank(group, one))
        resources = group.asked(best.available) if generous else dict(group.least)
        picks.append(Pick(best.cluster, resources))
        left[best.cluster.name] = replace(best, available=less(best.available, amounts(resources)))
    return tuple(picks)


def _rank(group: Group, offer: Offer) -> tuple[bool, Decimal, int, int, str]:
    price = offer.cluster.price
    room = times(offer.available, group.needed)
    return (price is None, price or Decimal(0), -room, offer.failures, offer.cluster.name)


def _obstacle(group: Group, offer: Offer) -> str:
    labels = offer.cluster.labels
    for key, value in group.selector.items():
        if labels.get(key) != value:
            return f"its label {key} is {labels.get(key)!r}, {value!r} is expected"
    return offer.obstacle


def _reasons(group: Group, offers: Sequence[Offer], left: dict[str, Offer]) -> list[str]:
    found = []
    for offer in offers:
        name = offer.cluster.name
        short = (
            _obstacle(group, offer) or f"too little is free: {', '.join(missing(left[name].available, group.needed))}"
        )
        found.append(f"{name}: {short}")
    return found
