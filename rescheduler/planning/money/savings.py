"""The ledger of savings: what on-demand nodes would have cost if they had not been drained and removed. Pure.

A drained node is *emptied* until its Node is gone. Then a saving is *open*: it counts while the cluster has fewer
on-demand nodes than before, and for at most :data:`LONGEST`. docs/money.md defines this for users, and
:mod:`rescheduler.planning.money.savings` implements it.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from typing import Annotated, Final, Literal, TypeAlias

import msgspec

from rescheduler.planning.money.worth import net_per_hour
from rescheduler.planning.waits import Moment

#: A saving ends this long after its machine was removed. By then, the cluster might have shrunk without the drain.
LONGEST: Final = timedelta(days=30)

#: Days for which daily sums and receipts are kept.
KEPT: Final = timedelta(days=400)

_HOUR: Final = Decimal(3600)
_CENT: Final = Decimal("0.000001")  #: the unit to which amounts of money are rounded

#: The reason why a saving ended: the number of on-demand nodes rose again, or LONGEST has passed.
SavingEnding: TypeAlias = Literal["", "replaced", "expired"]


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
    committed: Decimal = Decimal(0)  #: the part of the price that commitments pay anyway
    spot_cost: Decimal | None = None  #: of the moved pods on spot nodes; None if it is not known
    currency: str = ""
    #: Of moving its pods, as if so many plain pods were moved; None if it is not known.
    move_cost: Annotated[float, msgspec.Meta(ge=0, le=1e12)] | None = None
    gone_at: Moment | None = None  #: when the Node was observed to be gone; None if it still exists
    ended_at: Moment | None = None
    ending: SavingEnding = ""
    counted: Moment | None = None  #: the daily sums contain this saving up to this time

    @property
    def is_open(self) -> bool:
        """Return whether the saving counts at present."""
        return self.gone_at is not None and self.ended_at is None

    @property
    def money_per_hour(self) -> Decimal | None:
        """Return the price of the node minus the cost of its pods on spot nodes, at least 0. None if not known.

        What a commitment pays anyway is not saved.
        """
        return net_per_hour(self.price, self.committed, self.spot_cost)

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


# Updates of the ledger of savings: savings begin and end with the nodes of the cluster. Pure.

#: A node that still exists this long after its drain does not count: its later removal has another cause.
REMOVAL: Final = timedelta(hours=24)


@dataclass(frozen=True, slots=True)
class LiveNodes:
    """The data about the nodes of the cluster that the ledger needs."""

    uids: frozenset[str]  #: of all nodes
    busy: frozenset[str]  #: UIDs of on-demand nodes with pods that would move; pods being deleted do not count
    on_demand: tuple[tuple[str, datetime | None], ...]  #: instance type and creation time of each on-demand node


def observed(ledger: SavingsLedger, nodes: LiveNodes, now: datetime) -> SavingsLedger:
    """Return *ledger* after an observation of the cluster: begin and end savings, and sum up whole days."""
    ledger = _open_gone(_drop_reused(ledger, nodes, now), nodes, now)
    ledger = _end_by_new_nodes(_expire(ledger, now), nodes, now)
    if not any(receipt.is_open or receipt.gone_at is None for receipt in ledger.receipts):
        ledger = msgspec.structs.replace(ledger, level=0)
    return _forget_old(counted(ledger, midnight(now)), now)


def merged(local: SavingsLedger, remote: SavingsLedger, base: SavingsLedger) -> SavingsLedger:
    """Return *remote* with the drains that *local* added to *base*. Their savings are counted from the start."""
    recorded = {receipt.uid for receipt in base.receipts}
    for receipt in local.receipts:
        if receipt.uid not in recorded:
            remote = remote.recorded(msgspec.structs.replace(receipt, counted=None))
    return msgspec.structs.replace(remote, level=max(local.level, remote.level))


def _drop_reused(ledger: SavingsLedger, nodes: LiveNodes, now: datetime) -> SavingsLedger:
    """Drop drained nodes that run pods again, or that exist for too long after their drain."""
    remaining_receipts = tuple(
        receipt
        for receipt in ledger.receipts
        if receipt.gone_at is not None
        or receipt.uid not in nodes.uids
        or (receipt.uid not in nodes.busy and now - receipt.drained_at < REMOVAL)
    )
    return (
        msgspec.structs.replace(ledger, receipts=remaining_receipts)
        if len(remaining_receipts) < len(ledger.receipts)
        else ledger
    )


def _open_gone(ledger: SavingsLedger, nodes: LiveNodes, now: datetime) -> SavingsLedger:
    """Begin the savings of drained nodes that are gone."""
    gone = {receipt.uid for receipt in ledger.receipts if receipt.gone_at is None and receipt.uid not in nodes.uids}
    if not gone:
        return ledger
    receipts = tuple(
        msgspec.structs.replace(receipt, gone_at=max(now, receipt.drained_at)) if receipt.uid in gone else receipt
        for receipt in ledger.receipts
    )
    before = max(receipt.nodes_before for receipt in receipts if receipt.uid in gone)
    count = len(nodes.on_demand) + sum(receipt.is_open for receipt in receipts)
    return msgspec.structs.replace(ledger, receipts=receipts, level=max(ledger.level, min(before, count)))


def _expire(ledger: SavingsLedger, now: datetime) -> SavingsLedger:
    """End savings after LONGEST. Each also lowers the level, so a node that joins later ends a remaining saving."""
    expired = {
        receipt.uid
        for receipt in ledger.receipts
        if receipt.is_open and receipt.gone_at is not None and now >= receipt.gone_at + LONGEST
    }
    return msgspec.structs.replace(_close(ledger, expired, now, "expired"), level=max(ledger.level - len(expired), 0))


def _end_by_new_nodes(ledger: SavingsLedger, nodes: LiveNodes, now: datetime) -> SavingsLedger:
    """End as many savings as on-demand nodes were added. The oldest ones end first, of the added types if possible."""
    running = [receipt for receipt in ledger.receipts if receipt.is_open]
    excess = len(nodes.on_demand) + len(running) - ledger.level
    if excess <= 0:
        return ledger
    since = min((receipt.drained_at for receipt in running), default=now)
    added = [(kind, created) for kind, created in nodes.on_demand if created is not None and created >= since]
    latest: dict[str, datetime] = {}
    for kind, created in added:
        latest[kind] = max(created, latest.get(kind, created))
    running.sort(
        key=lambda receipt: (latest.get(receipt.instance_type, since) <= receipt.drained_at, _gone_time(receipt))
    )
    age = max(now - max(latest.values(), default=now), timedelta())
    return _close(ledger, {receipt.uid for receipt in running[:excess]}, now - age, "replaced")


def _close(ledger: SavingsLedger, uids: Iterable[str], at: datetime, ending: SavingEnding) -> SavingsLedger:
    """End savings *at* a time, but not before they began, or before the time up to which they were counted."""
    closed = frozenset(uids)
    if not closed:
        return ledger
    receipts = tuple(
        _with_end(receipt, at, ending) if receipt.uid in closed else receipt for receipt in ledger.receipts
    )
    return msgspec.structs.replace(ledger, receipts=receipts)


def _with_end(receipt: Receipt, at: datetime, ending: SavingEnding) -> Receipt:
    gone = _gone_time(receipt)
    return msgspec.structs.replace(
        receipt, ended_at=max(receipt.until(at), receipt.counted or gone, gone), ending=ending
    )


def _forget_old(ledger: SavingsLedger, now: datetime) -> SavingsLedger:
    """Add the days that are older than KEPT to one sum, and drop the receipts that ended before them."""
    first = midnight(now) - KEPT
    old = [day for day in ledger.days if day < first.date()]
    receipts = tuple(receipt for receipt in ledger.receipts if receipt.ended_at is None or receipt.ended_at >= first)
    if not old and len(receipts) == len(ledger.receipts):
        return ledger
    return msgspec.structs.replace(
        ledger,
        receipts=receipts,
        days={day: sums for day, sums in ledger.days.items() if day not in old},
        earlier=summed([ledger.earlier, *(ledger.days[day] for day in old)]),
    )


def _gone_time(receipt: Receipt) -> datetime:
    assert receipt.gone_at is not None
    return receipt.gone_at
