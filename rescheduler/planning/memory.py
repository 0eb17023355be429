"""The state that must survive restarts and leader changes, as one value, and its stored form."""

from collections import Counter, defaultdict
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Annotated, Any, Final

import msgspec

from rescheduler.errors import InputError
from rescheduler.planning.debts import Debt, OpenDebt, begun
from rescheduler.planning.forms import (
    LIMIT,
    and_more,
    count,
    merged_value,
    mine_first,
    pack,
    packed_within,
    shortened,
    unpack,
    utc,
)
from rescheduler.planning.money.move_costs import MoveHistory
from rescheduler.planning.movements import LeftoverMoves, Movements, NotRecovered
from rescheduler.planning.owner_records import OwnerRecords
from rescheduler.planning.policy import LeaderFacts
from rescheduler.planning.pools import PoolLosses
from rescheduler.planning.refusals import KubeletRefusals
from rescheduler.planning.room.increase import SpotOrders
from rescheduler.planning.waits import Cooldowns, Moment, Pause, Waits

#: Version of the stored form. It is incremented when older versions of this program cannot use the new form.
VERSION: Final = 1

#: The summary lists at most this many debts.
_NAMED: Final = 20

#: Maximum size of an entry in bytes, as JSON.
ENTRY_LIMIT: Final = 1024

#: The largest part of the stored form that the entries of one namespace may take.
_SHARE: Final = 10

#: UIDs of owners of pods that a debt keeps, the last ones in order. The state of the controller contains the others.
_OWNER_UIDS: Final = 8

#: The kinds of entries; a metric label.
ENTRY_KINDS: Final = ("cooldown", "moves", "leftover", "not-recovered", "pool", "refusal", "owner", "debt")


class StoredSettings(msgspec.Struct, frozen=True, omit_defaults=True):
    """The flags of the daemon without which its waits cannot be told from its memory."""

    node_drain_delay: float | None = None  #: in seconds; None: not stored
    landing_timeout: float | None = None  #: in seconds
    drain_windows: tuple[str, ...] = ()  #: as given
    moves_per_pod: float | None = None  #: the limit in a day; 0: none


class Reactivation(msgspec.Struct, frozen=True):
    """A change that takes a proxy two requests: a machine of its pool becomes active, and the pool larger by one."""

    machine: str
    evictable: bool
    size: int  #: the desired size of the pool before


class Memory(msgspec.Struct, frozen=True, omit_defaults=True, kw_only=True):
    """The state that must survive restarts and leader changes. Times are wall-clock times in UTC."""

    drained_at: Moment | None = None  #: end of the last drain that started the drain delay
    drained_node: str = ""  #: the node of that drain; "" if it is not known
    cooldowns: Cooldowns = Cooldowns()
    not_recovered: NotRecovered = NotRecovered()  #: owners whose pods were not running in time after drains
    room: Pause = Pause()  #: of orders of spot room, after orders for which no spot nodes were added
    returned: Pause = Pause()  #: after drains most of whose pods returned to on-demand nodes
    debts: tuple[OpenDebt, ...] = ()
    settled: tuple[OpenDebt, ...] = ()  #: paid debts of drains whose nodes were still there
    movements: Movements = Movements()
    leftovers: LeftoverMoves = LeftoverMoves()
    owners: OwnerRecords = OwnerRecords()  #: whose pods were moved
    spot_orders: SpotOrders = SpotOrders()  #: from the cloud provider
    pools: PoolLosses = PoolLosses()  #: of spot nodes
    refusals: KubeletRefusals = KubeletRefusals()  #: of kubelets
    settings: StoredSettings = StoredSettings()  #: of the daemon that wrote the memory last
    leader: LeaderFacts = LeaderFacts()  #: what this daemon knew when it last planned all nodes
    reactivation: Reactivation | None = None  #: which a proxy has begun

    def waived(self, names: Collection[str]) -> "Memory":
        """Return the same memory without debts to owners in *names*, which do not wait any more either.

        What kubelets have refused of them is tried again.

        *names* are owners (``namespace/Kind/name``) and namespaces, each with all its owners.
        """
        debts, settled = (
            tuple(owed for owed in ledger if not owed.debt.controller.is_named(names))
            for ledger in (self.debts, self.settled)
        )
        return msgspec.structs.replace(
            self,
            debts=debts,
            settled=settled,
            not_recovered=self.not_recovered.released(names),
            refusals=self.refusals.released(names),
        )

    def next_end(self, now: datetime, delay: timedelta) -> datetime | None:
        """Return when the next of the waits ends, or None. *delay* is the drain delay."""
        ends = [None if self.drained_at is None else self.drained_at + delay, self.returned.until, self.room.until]
        ends += [each.until for each in self.cooldowns.by_node.values()]
        ends += [each.until for each in self.not_recovered.by_name.values()]
        ends += self.pools.settling(now).values()
        return min((end for end in ends if end is not None and end > now), default=None)

    def of_drains_of(self, node: str) -> tuple[Debt, ...]:
        """Return what earlier drains of *node* owe, and what of it is settled while the node is there."""
        return tuple(owed.debt for owed in (*self.debts, *self.settled) if owed.node == node)

    @property
    def unpaid(self) -> tuple[OpenDebt, ...]:
        """What is owed, including the settled debts whose pods do not run any more: they keep the nodes they left."""
        return (*self.debts, *(owed for owed in self.settled if owed.lacking))

    def history(self, now: datetime) -> MoveHistory:
        """Return what the costs of moves depend on."""
        return MoveHistory(self.owners.in_a_week(now), self.owners.ready(), self.pools.hazards(now))

    def merged(self, remote: "Memory", base: "Memory") -> "Memory":
        """Return the memory with what *remote* changed since *base*: less is remembered of neither.

        Of what both have noted, the later counts. What *remote* owes no more stays owed: that is checked again.
        """
        existing, settled = {*base.debts, *self.debts}, {*base.settled, *self.settled}
        ends = [(memory.drained_at, memory.drained_node) for memory in (self, remote) if memory.drained_at is not None]
        drained_at, drained_node = max(ends, default=(None, ""))
        return msgspec.structs.replace(
            self,
            debts=self.debts + tuple(owed for owed in remote.debts if owed not in existing),
            settled=self.settled + tuple(owed for owed in remote.settled if owed not in settled),
            spot_orders=self.spot_orders.merged(remote.spot_orders, base.spot_orders),
            drained_at=drained_at,
            drained_node=drained_node,
            room=merged_value(self.room, remote.room, base.room, Pause.or_longer),
            returned=merged_value(self.returned, remote.returned, base.returned, Pause.or_longer),
            cooldowns=self.cooldowns.merged(remote.cooldowns, base.cooldowns),
            not_recovered=self.not_recovered.merged(remote.not_recovered, base.not_recovered),
            movements=self.movements.merged(remote.movements, base.movements),
            leftovers=self.leftovers.merged(remote.leftovers, base.leftovers),
            owners=self.owners.merged(remote.owners, base.owners),
            pools=self.pools.merged(remote.pools, base.pools),
            refusals=self.refusals.merged(remote.refusals, base.refusals),
            settings=merged_value(self.settings, remote.settings, base.settings, mine_first),
            leader=merged_value(self.leader, remote.leader, base.leader, mine_first),
            reactivation=merged_value(self.reactivation, remote.reactivation, base.reactivation, mine_first),
        )

    def current(self, now: datetime, waits: Waits) -> "Memory":
        """Return the same memory without expired entries."""
        return msgspec.structs.replace(
            self,
            movements=self.movements.current(now, waits.returned),
            leftovers=self.leftovers.bounded(now),
            owners=self.owners.bounded(now),
            not_recovered=self.not_recovered.current(now, waits.recovery),
            spot_orders=self.spot_orders.current(now),
            pools=self.pools.current(now),
            refusals=self.refusals.current(now),
        )

    def bounded(self, now: datetime, waits: Waits) -> "Memory":
        """Limit all waits to *waits*. The stored ones may come from a wrong clock or other flags."""
        return msgspec.structs.replace(
            self,
            drained_at=None if self.drained_at is None else min(self.drained_at, now),
            debts=begun(self.debts, now),
            settled=begun(self.settled, now),
            cooldowns=self.cooldowns.bounded(now, waits.cooldown),
            not_recovered=self.not_recovered.bounded(now, waits.recovery),
            returned=self.returned.bounded(now, waits.pause),
            room=self.room.bounded(now, waits.room),
            movements=self.movements.bounded(now, waits.returned),
            leftovers=self.leftovers.bounded(now),
            owners=self.owners.bounded(now),
            spot_orders=self.spot_orders.bounded(now),
            pools=self.pools.bounded(now, waits.pool),
            refusals=self.refusals.bounded(now),
        )

    def summary(self, now: datetime) -> str:
        """Return a few lines for a person who reads the ConfigMap."""
        lines = [f"replacement pods are owed to {count(len(self.debts), 'controller')}"]
        lines += [
            f"  {owed.debt.controller}: must have {count(owed.debt.bound, 'pod')} again, {owed.debt.ready} of them "
            f"Ready, since {_text(owed.since)} by the drain of {owed.node}"
            for owed in self.debts[:_NAMED]
        ]
        lines += filter(None, [and_more(len(self.debts) - _NAMED, before="  … ")])
        active = sorted(self.not_recovered.active(now))
        aside = shortened(active, _NAMED, before=", ")
        moved = self.movements.controllers
        waiting = sum(moves.until is not None and moves.until > now for moves in moved.values())
        lines += [
            f"last drain: {_text(self.drained_at)}{f' of {self.drained_node}' if self.drained_node else ''}",
            f"owners and namespaces that wait, because their pods did not run in time: {aside or 'none'}",
            f"pause after returned pods until: {_text(self.returned.active(now))}",
            f"nodes cooling down: {len(self.cooldowns.active(now))}",
            f"controllers moved in the last 24 h: {len(moved)}, of which {waiting} wait",
        ]
        if settling := sorted(self.pools.settling(now)):
            lines.append(f"spot pools that are not trusted: {shortened(settling, _NAMED, before=', ')}")
        if refused := self.refusals.current(now).by_key.values():
            owners = sorted({f"{refusal.owner} ({refusal.node})" for refusal in refused})
            lines.append(f"owners whose pods a kubelet refused: {shortened(owners, _NAMED, before=', ')}")
        if (until := self.room.active(now)) is not None:
            lines.append(f"no order of spot room until: {_text(until)}")
        if (order := self.spot_orders.open) is not None:
            text = f"{order.count} nodes of group {order.group} for node {order.node}"
            lines.append(f"spot nodes ordered at {_text(order.at)}: {text}")
        return "\n".join(lines) + "\n"


class _Document(msgspec.Struct):
    version: Annotated[int, msgspec.Meta(ge=1)]
    memory: Memory


#: Created once, at import: see :mod:`rescheduler.decoding`.
_DECODER: Final = msgspec.json.Decoder(_Document)
_ENCODER: Final = msgspec.json.Encoder(order="deterministic")


def load(content: bytes) -> Memory:
    """Decode the output of :func:`dump`. Fields that newer versions added are ignored.

    Raises InputError with the reason if *content* is not valid.
    """
    try:
        return _DECODER.decode(unpack(content)).memory
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
        raise InputError(f"expected the memory as JSON: {error}") from error


def dump(memory: Memory, limit: int = LIMIT) -> bytes:
    """Return the stored form of *memory*; see :func:`fitted`."""
    return fitted(memory, limit).content


@dataclass(frozen=True, slots=True)
class Fitted:
    """A memory within the limits, and what was dropped for that."""

    content: bytes  #: the stored form
    memory: Memory
    dropped: Mapping[str, int] = field(default_factory=dict)  #: numbers of entries by kind (:data:`ENTRY_KINDS`)
    detail: str = ""  #: which limits, and the namespaces concerned


@dataclass(frozen=True, slots=True)
class _Entry:
    """An entry that may be dropped."""

    at: datetime  #: when it last applied
    kind: str
    key: str
    namespace: str  #: "" if it is not known
    raw: bytes


def fitted(memory: Memory, limit: int = LIMIT) -> Fitted:
    """Encode *memory* as gzip-compressed JSON in at most *limit* bytes. Equal memories give equal bytes.

    Entries of more than ENTRY_LIMIT bytes are dropped, then the oldest of each namespace that takes more than its share
    of the limit. If the result is still too large, the oldest cooldowns, waits and moves are dropped, then the oldest
    debts.
    """
    debts, settled = tuple(map(_shortened, memory.debts)), tuple(map(_shortened, memory.settled))
    memory = msgspec.structs.replace(memory, debts=debts, settled=settled)
    entries = sorted(_entries(memory), key=lambda entry: (entry.kind == "debt", entry.at, entry.kind, entry.key))
    large = [entry for entry in entries if len(entry.raw) > ENTRY_LIMIT]
    excess = [entry for own in _by_namespace(entries).values() for entry in _excess(own)]
    unfit = {*large, *excess}
    remaining = [entry for entry in entries if entry not in unfit]
    oldest, content = _fewest(limit, remaining, lambda dropped: _packed(_without_entries(memory, {*unfit, *dropped})))
    causes = {f"larger than {ENTRY_LIMIT} bytes": large, "more than a tenth of the store": excess, "full": oldest}
    details = [f"{why}: {_described(dropped)}" for why, dropped in causes.items() if dropped]
    all_dropped = {*unfit, *oldest}
    kinds = Counter(entry.kind for entry in all_dropped)
    return Fitted(content, _without_entries(memory, all_dropped), kinds, "; ".join(details))


def _fewest(limit: int, entries: list[_Entry], packed: Callable[[list[_Entry]], bytes]) -> tuple[list[_Entry], bytes]:
    """Return the first of *entries* that must be dropped for a small result of *packed*, and this result."""
    tried: dict[bytes, int] = {}

    def without(dropped: int) -> bytes:
        content = packed(entries[:dropped])
        tried.setdefault(content, dropped)
        return content

    content = packed_within(limit, len(entries), without)
    return entries[: tried[content]], content


def _packed(memory: Memory) -> bytes:
    return pack(_ENCODER.encode(_Document(VERSION, memory)))


def _shortened(owed: OpenDebt) -> OpenDebt:
    """Return *owed* with few UIDs of owners, and without controllers above its own that would make it too large."""
    uids, above = owed.debt.owner_uids[-_OWNER_UIDS:], owed.debt.above
    while above and len(_ENCODER.encode((uids, above))) > ENTRY_LIMIT // 2:
        above = above[:-1]
    if (uids, above) == (owed.debt.owner_uids, owed.debt.above):
        return owed
    return msgspec.structs.replace(owed, debt=msgspec.structs.replace(owed.debt, owner_uids=uids, above=above))


def _entries(memory: Memory) -> Iterator[_Entry]:
    def entry(at: datetime, kind: str, key: str, namespace: str, value: Any) -> _Entry:
        return _Entry(at, kind, key, namespace, _ENCODER.encode([key, value]))

    for node, cooldown in memory.cooldowns.by_node.items():
        yield entry(cooldown.until, "cooldown", node, "", cooldown)
    for uid, moves in memory.movements.by_uid.items():
        yield entry(max(moves.last, moves.until or moves.last), "moves", uid, moves.namespace, moves)
    for key, at in memory.leftovers.by_owner.items():
        yield entry(at, "leftover", key, key.partition("/")[0], (memory.leftovers.since(key), at))
    for name, wait in memory.not_recovered.by_name.items():
        yield entry(wait.until, "not-recovered", name, name.partition("/")[0], wait)
    for pool, record in memory.pools.by_pool.items():
        yield entry(record.last or record.at, "pool", pool, "", record)
    for key, refusal in memory.refusals.by_key.items():
        yield entry(refusal.at, "refusal", key, refusal.owner.namespace, refusal)
    for name, owner in memory.owners.by_name.items():
        yield entry(owner.last, "owner", name, name.partition("/")[0], owner)
    for key, owed in _numbered(memory).items():
        yield entry(owed.since, "debt", key, owed.debt.controller.namespace, owed)


def _numbered(memory: Memory) -> dict[str, OpenDebt]:
    """Return the debts by the keys of their entries."""
    ledgers = {"": memory.debts, "settled-": memory.settled}
    return {f"{kind}{index}": owed for kind, ledger in ledgers.items() for index, owed in enumerate(ledger)}


def _by_namespace(entries: Iterable[_Entry]) -> dict[str, list[_Entry]]:
    by_namespace: defaultdict[str, list[_Entry]] = defaultdict(list)
    for entry in entries:
        if entry.namespace and len(entry.raw) <= ENTRY_LIMIT:
            by_namespace[entry.namespace].append(entry)
    return by_namespace


def _excess(entries: list[_Entry]) -> list[_Entry]:
    """Return the oldest of one namespace's sorted *entries*, without which the others do not exceed its share."""
    share = LIMIT // _SHARE
    if sum(len(entry.raw) for entry in entries) <= share:
        return []
    return _fewest(share, entries, lambda dropped: pack(b"".join(entry.raw for entry in entries[len(dropped) :])))[0]


def _described(entries: Collection[_Entry]) -> str:
    namespaces = sorted({entry.namespace for entry in entries if entry.namespace})
    named = ", ".join(namespaces[:3]) + (", …" if len(namespaces) > 3 else "")  # noqa: PLR2004
    return count(len(entries), "record") + (f" of namespace {named}" if named else "")


def _without_entries(memory: Memory, entries: Collection[_Entry]) -> Memory:
    dropped = {(entry.kind, entry.key) for entry in entries}
    if not dropped:
        return memory
    nodes, moves, waits = memory.cooldowns.by_node, memory.movements.by_uid, memory.not_recovered.by_name
    pools, refusals, owners = memory.pools.by_pool, memory.refusals.by_key, memory.owners.by_name
    return msgspec.structs.replace(
        memory,
        cooldowns=Cooldowns({node: nodes[node] for node in nodes if ("cooldown", node) not in dropped}),
        movements=Movements({uid: moves[uid] for uid in moves if ("moves", uid) not in dropped}),
        leftovers=memory.leftovers.without({key for kind, key in dropped if kind == "leftover"}),
        not_recovered=NotRecovered({name: waits[name] for name in waits if ("not-recovered", name) not in dropped}),
        pools=PoolLosses({pool: pools[pool] for pool in pools if ("pool", pool) not in dropped}),
        refusals=KubeletRefusals({key: refusals[key] for key in refusals if ("refusal", key) not in dropped}),
        owners=OwnerRecords({name: owners[name] for name in owners if ("owner", name) not in dropped}),
        debts=tuple(owed for index, owed in enumerate(memory.debts) if ("debt", f"{index}") not in dropped),
        settled=tuple(owed for index, owed in enumerate(memory.settled) if ("debt", f"settled-{index}") not in dropped),
    )


def _text(moment: datetime | None) -> str:
    return "none" if moment is None else utc(moment)
