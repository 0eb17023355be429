"""The ledger of savings: what on-demand nodes would have cost if they had not been drained and removed.

A drained node is *emptied* until its Node is gone. Then a saving is *open*: it counts while the cluster has fewer
on-demand nodes than before, and for at most :data:`LONGEST`. docs/money.md defines this for users, and
:mod:`rescheduler.planning.money.savings_updates` implements it.
"""

from collections.abc import Iterable, Mapping
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from typing import Final, Literal, TypeAlias

import msgspec

from rescheduler.planning.waits import Moment

#: A saving ends this long after its machine was removed. By then, the cluster might have shrunk without the drain.
LONGEST: Final = timedelta(days=30)

#: Days for which daily sums and receipts are kept.
KEPT: Final = timedelta(days=400)

_HOUR: Final = Decimal(3600)
_CENT: Final = Decimal("0.000001")  #: the unit to which amounts of money are rounded

#: The reason why a saving ended: the number of on-demand nodes rose again, or LONGEST has passed.
Ending: TypeAlias = Literal["", "replaced", "expired"]


class Receipt(msgspec.Struct, frozen=True, omit_defaults=True, kw_only=True):
    """A drained node, and its savings since its machine was removed. Prices are per hour."""

    node: str
    uid: str
    instance_type: str = ""
    zone: str = ""
    cpu: int = 0  #: allocatable, in millicores
    memory: int = 0  #: allocatable, in bytes
    drained_at: Moment
    nodes_before: int  #: number of on-demand nodes at the drain, with this one
    price: Decimal | None = None  #: of the node; None if it is not known
    spot_cost: Decimal | None = None  #: of the moved pods on spot nodes; None if it is not known
    currency: str = ""
    gone_at: Moment | None = None  #: when the Node was observed to be gone; None if it still exists
    ended_at: Moment | None = None
    ending: Ending = ""
    counted: Moment | None = None  #: the daily sums contain this saving up to this time

    @property
    def is_open(self) -> bool:
        """Return whether the saving counts at present."""
        return self.gone_at is not None and self.ended_at is None

    @property
    def money_per_hour(self) -> Decimal | None:
        """Return the price of the node minus the cost of its pods on spot nodes, at least 0. None if not known."""
        if self.price is None or self.spot_cost is None:
            return None
        return max(self.price - self.spot_cost, Decimal(0))

    def until(self, now: datetime) -> datetime:
        """Return the time when the saving ended, or *now* if it continues. Only for machines that are gone."""
        assert self.gone_at is not None
        return min(now, self.ended_at or now, self.gone_at + LONGEST)


class Savings(msgspec.Struct, frozen=True, omit_defaults=True):
    """The savings in a period. The seconds count the time in which the removed nodes did not run."""

    node_seconds: int = 0
    cpu_seconds: int = 0  #: in millicores
    memory_seconds: int = 0  #: in MiB
    money: dict[str, Decimal] = msgspec.field(default_factory=dict)  #: by currency

    @property
    def node_hours(self) -> float:
        return self.node_seconds / 3600

    def plus(self, other: "Savings") -> "Savings":
        currencies = sorted({*self.money, *other.money})
        zero = Decimal(0)
        return Savings(
            self.node_seconds + other.node_seconds,
            self.cpu_seconds + other.cpu_seconds,
            self.memory_seconds + other.memory_seconds,
            {name: self.money.get(name, zero) + other.money.get(name, zero) for name in currencies},
        )


class SavingsLedger(msgspec.Struct, frozen=True, omit_defaults=True, kw_only=True):
    """All receipts, and the sums by day (UTC)."""

    receipts: tuple[Receipt, ...] = ()
    #: Savings count while the on-demand nodes and the open savings are together at most this many.
    level: int = 0
    days: dict[date, Savings] = msgspec.field(default_factory=dict)
    earlier: Savings = Savings()  #: the sum of all days before those

    def recorded(self, receipt: Receipt) -> "SavingsLedger":
        """Return the ledger with a drained node. A node that is already in the ledger is not added again."""
        if any(known.uid == receipt.uid for known in self.receipts):
            return self
        return msgspec.structs.replace(self, receipts=(*self.receipts, receipt))

    def total(self, now: datetime) -> Savings:
        """Return the total savings up to *now*."""
        return summed([self.earlier, *self.by_day(now).values()])

    def by_day(self, now: datetime) -> dict[date, Savings]:
        """Return the sums by day up to *now*, including open savings."""
        return counted(self, now).days


def counted(ledger: SavingsLedger, until: datetime) -> SavingsLedger:
    """Add the savings up to *until* to the daily sums; savings that have ended count up to their end."""
    days, ends = dict(ledger.days), {}
    for receipt in ledger.receipts:
        if receipt.gone_at is None:
            continue
        begin, end = receipt.counted or receipt.gone_at, receipt.ended_at or receipt.until(until)
        if begin < end:
            ends[receipt.uid] = end
        for day, share in shares(receipt, begin, end).items():
            days[day] = days.get(day, Savings()).plus(share)
    if not ends:
        return ledger
    receipts = tuple(
        msgspec.structs.replace(receipt, counted=ends[receipt.uid]) if receipt.uid in ends else receipt
        for receipt in ledger.receipts
    )
    return msgspec.structs.replace(ledger, receipts=receipts, days=days)


def shares(receipt: Receipt, begin: datetime, end: datetime) -> Mapping[date, Savings]:
    """Return the savings of *receipt* from *begin* to *end*, by day."""
    by_day = {}
    while begin < end:
        today = midnight(begin)
        stop = min(end, today + timedelta(days=1))
        by_day[today.date()] = saved(receipt, stop - begin)
        begin = stop
    return by_day


def saved(receipt: Receipt, duration: timedelta) -> Savings:
    """Return the savings of *receipt* in *duration*."""
    seconds = max(round(duration.total_seconds()), 0)
    per_hour = receipt.money_per_hour
    money = {} if per_hour is None else {receipt.currency: (per_hour * seconds / _HOUR).quantize(_CENT)}
    return Savings(seconds, seconds * receipt.cpu, seconds * (receipt.memory >> 20), money)


def midnight(moment: datetime) -> datetime:
    """Return the start of the day (UTC) of *moment*."""
    return moment.astimezone(UTC).replace(hour=0, minute=0, second=0, microsecond=0)


def summed(savings: Iterable[Savings]) -> Savings:
    """Return the sum of *savings*."""
    total = Savings()
    for saving in savings:
        total = total.plus(saving)
    return total
