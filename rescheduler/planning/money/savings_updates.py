"""Updates of the ledger of savings: savings begin and end with the nodes of the cluster. Pure."""

from collections.abc import Iterable
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Final

import msgspec

from rescheduler.planning.money.savings import KEPT, LONGEST, Ending, Receipt, SavingsLedger, counted, midnight, summed

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


def _close(ledger: SavingsLedger, uids: Iterable[str], at: datetime, ending: Ending) -> SavingsLedger:
    """End savings *at* a time, but not before they began, or before the time up to which they were counted."""
    closed = frozenset(uids)
    if not closed:
        return ledger
    receipts = tuple(
        _with_end(receipt, at, ending) if receipt.uid in closed else receipt for receipt in ledger.receipts
    )
    return msgspec.structs.replace(ledger, receipts=receipts)


def _with_end(receipt: Receipt, at: datetime, ending: Ending) -> Receipt:
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
