"""Comparison of the cost of new spot nodes with the cost of the on-demand nodes that they free."""

from collections.abc import Collection, Iterable
from dataclasses import dataclass
from decimal import Decimal

from rescheduler.planning.money.prices import NodeFacts, PriceList


@dataclass(frozen=True, slots=True)
class Worth:
    """The nodes that an order frees and those that it adds."""

    freed_cpu: int  #: allocatable, in millicores
    added_cpu: int
    freed_money: Decimal | None = None  #: per hour; None if a price is not known
    added_money: Decimal | None = None

    @property
    def pays(self) -> bool:
        """Return whether more is freed than added.

        Without prices, the numbers of vCPU are compared. They may be equal, because spot capacity costs less.
        """
        if self.freed_money is not None and self.added_money is not None:
            return self.freed_money > self.added_money
        return 0 < self.added_cpu <= self.freed_cpu

    def __str__(self) -> str:
        if self.freed_money is not None and self.added_money is not None:
            return f"frees {self.freed_money:.4f} and adds {self.added_money:.4f} per hour"
        return f"frees {self.freed_cpu / 1000:g} vCPU and adds {self.added_cpu / 1000:g}"


def worth(freed: Collection[NodeFacts], added: Collection[NodeFacts], prices: PriceList) -> Worth:
    """Compare the nodes *freed* with the nodes *added*: by money if all prices are known."""
    return Worth(
        sum(node.cpu for node in freed), sum(node.cpu for node in added), _sum(freed, prices), _sum(added, prices)
    )


def _sum(nodes: Iterable[NodeFacts], prices: PriceList) -> Decimal | None:
    total = Decimal(0)
    for node in nodes:
        price = prices.per_hour(node)
        if price is None:
            return None
        total += price
    return total
