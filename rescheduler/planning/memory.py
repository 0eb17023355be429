"""The state that must survive restarts and leader changes, as one value, and its stored form."""

from collections.abc import Collection, Iterable
from datetime import datetime
from typing import Annotated, Final, TypeAlias

import msgspec

from rescheduler.errors import InputError
from rescheduler.planning.compression import LIMIT, pack, packed_within, unpack
from rescheduler.planning.cooldowns import Cooldowns
from rescheduler.planning.debts import Debt
from rescheduler.planning.movements import Movements
from rescheduler.planning.room.increase import SpotOrders
from rescheduler.planning.timestamps import utc
from rescheduler.planning.units import count
from rescheduler.planning.waits import Moment, Pause, Waits

#: Version of the stored form. It is incremented when older versions of this program cannot use the new form.
VERSION: Final = 1

#: The summary lists at most this many debts.
_NAMED: Final = 20


class OpenDebt(msgspec.Struct, frozen=True):
    """A debt of an earlier drain."""

    node: str  #: the drained node
    since: Moment
    debt: Debt


def owing(before: tuple[OpenDebt, ...], node: str, debts: Iterable[Debt], now: datetime) -> tuple[OpenDebt, ...]:
    """Return the open debts *before*, but with *debts* as the debts of *node*. New debts are open from *now* on."""
    known = {owed.debt.controller: owed.since for owed in before if owed.node == node}
    others = tuple(owed for owed in before if owed.node != node)
    return others + tuple(OpenDebt(node, known.get(debt.controller, now), debt) for debt in debts)


class Memory(msgspec.Struct, frozen=True, omit_defaults=True, kw_only=True):
    """The state that must survive restarts and leader changes. Times are wall-clock times in UTC."""

    drained_at: Moment | None = None  #: end of the last drain that started the drain delay
    cooldowns: Cooldowns = Cooldowns()
    failure: Pause = Pause()  #: after drains whose replacement pods were not running in time
    room: Pause = Pause()  #: of orders of spot room, after orders for which no spot nodes were added
    returned: Pause = Pause()  #: after drains most of whose pods returned to on-demand nodes
    debts: tuple[OpenDebt, ...] = ()
    movements: Movements = Movements()
    spot_orders: SpotOrders = SpotOrders()  #: from the cloud provider

    def waived(self, controllers: Collection[str]) -> "Memory":
        """Return the same memory without debts to *controllers*, given as ``namespace/Kind/name``."""
        remaining_debts = tuple(owed for owed in self.debts if str(owed.debt.controller) not in controllers)
        return msgspec.structs.replace(self, debts=remaining_debts)

    def merged(self, remote: "Memory", base: "Memory") -> "Memory":
        """Return the same memory with the debts that *remote* added to *base*, and the later end of the last drain."""
        existing = {*base.debts, *self.debts}
        ends = [memory.drained_at for memory in (self, remote) if memory.drained_at is not None]
        return msgspec.structs.replace(
            self,
            debts=self.debts + tuple(owed for owed in remote.debts if owed not in existing),
            spot_orders=self.spot_orders.merged(remote.spot_orders, base.spot_orders),
            drained_at=max(ends, default=None),
        )

    def current(self, now: datetime, waits: Waits) -> "Memory":
        """Return the same memory without expired entries."""
        movements, spot_orders = self.movements.current(now, waits.returned), self.spot_orders.current(now)
        return msgspec.structs.replace(self, movements=movements, spot_orders=spot_orders)

    def bounded(self, now: datetime, waits: Waits) -> "Memory":
        """Limit all waits to *waits*. The stored ones may come from a wrong clock or other flags."""
        return msgspec.structs.replace(
            self,
            drained_at=None if self.drained_at is None else min(self.drained_at, now),
            cooldowns=self.cooldowns.bounded(now, waits.cooldown),
            failure=self.failure.bounded(now, waits.pause),
            returned=self.returned.bounded(now, waits.pause),
            room=self.room.bounded(now, waits.room),
            movements=self.movements.bounded(now, waits.returned),
            spot_orders=self.spot_orders.bounded(now),
        )

    def summary(self, now: datetime) -> str:
        """Return a few lines for a person who reads the ConfigMap."""
        lines = [
            f"replacement pods are owed to {count(len(self.debts), 'controller')}; no drain begins before they run"
        ]
        lines += [
            f"  {owed.debt.controller}: {owed.debt.bound} pods, {owed.debt.ready} of them Ready, "
            f"since {_text(owed.since)} by the drain of {owed.node}"
            for owed in self.debts[:_NAMED]
        ]
        lines += [f"  … and {len(self.debts) - _NAMED} more"] if len(self.debts) > _NAMED else []
        waiting = sum(moves.until is not None and moves.until > now for moves in self.movements.by_uid.values())
        lines += [
            f"last drain: {_text(self.drained_at)}",
            f"pause after failed landings until: {_text(self.failure.active(now))}",
            f"pause after returned pods until: {_text(self.returned.active(now))}",
            f"nodes cooling down: {len(self.cooldowns.active(now))}",
            f"controllers moved in the last 24 h: {len(self.movements.by_uid)}, of which {waiting} wait",
        ]
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
    """Encode *memory* as gzip-compressed JSON in at most *limit* bytes. Equal memories give equal bytes.

    If the result is too large, the oldest cooldowns and moves are dropped, then the oldest debts.
    """
    entries = _by_age(memory)
    return packed_within(
        limit, len(entries), lambda drop: _packed(_without_entries(memory, entries[:drop]) if drop else memory)
    )


def _packed(memory: Memory) -> bytes:
    return pack(_ENCODER.encode(_Document(VERSION, memory)))


_Entry: TypeAlias = tuple[bool, datetime, str, str]


def _by_age(memory: Memory) -> list[_Entry]:
    """Return the entries that may be dropped: other entries before debts, then by the time that they last applied."""
    cooldowns: Iterable[_Entry] = (
        (False, cooldown.until, "cooldown", node) for node, cooldown in memory.cooldowns.by_node.items()
    )
    moves: Iterable[_Entry] = (
        (False, max(moves.last, moves.until or moves.last), "moves", uid)
        for uid, moves in memory.movements.by_uid.items()
    )
    debts: Iterable[_Entry] = ((True, owed.since, "debt", str(index)) for index, owed in enumerate(memory.debts))
    return sorted([*cooldowns, *moves, *debts])


def _without_entries(memory: Memory, entries: Iterable[_Entry]) -> Memory:
    dropped = {(kind, key) for _, _, kind, key in entries}
    nodes, moves = memory.cooldowns.by_node, memory.movements.by_uid
    return msgspec.structs.replace(
        memory,
        cooldowns=Cooldowns({node: nodes[node] for node in nodes if ("cooldown", node) not in dropped}),
        movements=Movements({uid: moves[uid] for uid in moves if ("moves", uid) not in dropped}),
        debts=tuple(owed for index, owed in enumerate(memory.debts) if ("debt", str(index)) not in dropped),
    )


def _text(moment: datetime | None) -> str:
    return "none" if moment is None else utc(moment)
