"""Pools of spot nodes: the nodes of one zone and instance type, which a cloud usually reclaims together. Pure."""

import math
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from functools import cached_property
from typing import Annotated, Any, Final, TypeAlias

import msgspec
import numpy as np
import numpy.typing as npt

from predicates.nodes import MISSING, NodeTable
from rescheduler.durations import Backoff
from rescheduler.planning.forms import merged_entries, utc
from rescheduler.planning.money.prices import INSTANCE_TYPE_LABELS, ZONE_LABELS
from rescheduler.planning.waits import Count, Moment, Pause

#: The labels whose values name a pool by default.
POOL_LABELS: Final = (ZONE_LABELS[0], INSTANCE_TYPE_LABELS[0])

#: Older names of labels, by the current name.
_OLDER: Final = {labels[0]: labels[1:] for labels in (ZONE_LABELS, INSTANCE_TYPE_LABELS)}


def pool_of(labels: Mapping[str, str], keys: Sequence[str]) -> str:
    """Return the pool of a node with these *labels*: the values of *keys*, as in ``eu-north-1a/m5.large``.

    A label that the node does not have, or whose value is empty, is written as ``no-`` and the name of the label, as in
    ``no-zone/m5.large``. So nodes without the labels have a pool of their own.
    """
    return "/".join(_value(labels, key) or _absent(key) for key in keys)


def is_labeled(pool: str, keys: Sequence[str]) -> bool:
    """Return whether the nodes of *pool* have all labels *keys*. Otherwise nothing tells what its nodes share."""
    return all(value != _absent(key) for value, key in zip(pool.split("/"), keys, strict=False))


@dataclass(frozen=True)
class Pools:
    """The pools of the spot nodes of a snapshot. Valid until nodes change."""

    names: tuple[str, ...]  #: sorted
    ids: npt.NDArray[np.intp]  #: by row of the NodeTable: the index of its pool in *names*, or MISSING if not spot

    def of_row(self, row: int) -> str:
        """Return the pool of the node in *row*, or "" if it is not a spot node."""
        number = int(self.ids[row])
        return self.names[number] if number != MISSING else ""

    @cached_property
    def rows(self) -> tuple[npt.NDArray[np.intp], ...]:
        """The rows of each pool, in the order of *names*."""
        return tuple(np.flatnonzero(self.ids == number) for number in range(len(self.names)))

    def rows_of(self, pool: str) -> npt.NDArray[np.intp]:
        """Return the rows of the nodes of *pool*; empty if there is no such pool."""
        return self.rows[self.names.index(pool)] if pool in self.names else np.zeros(0, np.intp)


def spot_pools(nodes: NodeTable, spot_rows: Iterable[int], keys: Sequence[str] = POOL_LABELS) -> Pools:
    """Group the spot nodes in *spot_rows* of *nodes* by the values of the labels *keys*."""
    by_row = {int(row): pool_of(node.metadata.labels, keys) for row in spot_rows if (node := nodes.nodes[row])}
    names = tuple(sorted(set(by_row.values())))
    number = {name: index for index, name in enumerate(names)}
    ids = np.full(len(nodes), MISSING, np.intp)
    for row, name in by_row.items():
        ids[row] = number[name]
    return Pools(names, ids)


def _absent(key: str) -> str:
    return f"no-{key.rpartition('/')[2]}"


def label_name(labels: Mapping[str, str], key: str) -> str:
    """Return the name under which a node with these *labels* has the label *key*: it may be an older one."""
    return next((name for name in (key, *_OLDER.get(key, ())) if labels.get(name)), key)


def _value(labels: Mapping[str, str], key: str) -> str:
    return labels.get(label_name(labels, key), "")


# Losses of spot nodes by pool: how often a pool loses nodes, and until when it is not trusted.

#: After this time a loss, and an hour that a node ran, count half in the rate of losses.
HALF_LIFE: Final = timedelta(hours=24)

#: A loss that follows another one of its pool within this time belongs to the same event: the wait does not double.
SAME_EVENT: Final = timedelta(minutes=10)

#: The largest number of pools that the memory, metrics and pages name.
MOST_POOLS: Final = 100

#: Pools with less than this many decayed losses are forgotten when they have no nodes any more.
_FORGOTTEN: Final = 1 / 64

#: The time for which the hazard of a pool is told, and its grades.
HORIZON: Final = timedelta(days=7)
_GRADES: Final = 20

#: The rate of losses is per node-hour, of at least one, so that the first minutes of a pool do not give a huge rate.
_LEAST_HOURS: Final = 1.0

_NONE: Final = Backoff(timedelta(), timedelta())

_Amount: TypeAlias = Annotated[float, msgspec.Meta(ge=0, le=1e12)]


class PoolRecord(msgspec.Struct, frozen=True, omit_defaults=True, kw_only=True):
    """The losses of a pool. The decayed amounts are those at the time *at*."""

    at: Moment
    losses: Count = 0  #: in total, since the pool is known
    recent: _Amount = 0.0  #: losses, decayed
    node_hours: _Amount = 0.0  #: decayed
    last: Moment | None = None  #: the last loss
    wait: Pause = Pause()  #: until when the pool is not trusted

    def decayed(self, now: datetime) -> "PoolRecord":
        """Return the record at the time *now*."""
        factor: float = 0.5 ** (max(now - self.at, timedelta()) / HALF_LIFE)
        return msgspec.structs.replace(self, at=now, recent=self.recent * factor, node_hours=self.node_hours * factor)

    def ran(self, node_hours: float, now: datetime) -> "PoolRecord":
        """Return the record after the nodes of the pool ran for *node_hours* in total, until *now*."""
        before = self.decayed(now)
        return msgspec.structs.replace(before, node_hours=before.node_hours + node_hours)

    def lost(self, nodes: int, now: datetime, wait: Backoff) -> "PoolRecord":
        """Return the record after the pool lost *nodes* at *now*. The wait doubles unless it is the same event."""
        before = self.decayed(now)
        same = self.last is not None and now - self.last <= SAME_EVENT and self.wait.times > 0
        times = self.wait.times if same else self._failures(now, wait) + 1
        return msgspec.structs.replace(
            before,
            losses=min(self.losses + nodes, 10**9),
            recent=before.recent + nodes,
            last=now,
            wait=Pause(times, now + wait.after(times)) if wait.first else Pause(),
        )

    def _failures(self, now: datetime, wait: Backoff) -> int:
        """Return the number of losses in a row that count for the next wait: one less per longest wait without any."""
        if self.last is None or not wait.longest:
            return 0
        return max(0, self.wait.times - (now - self.last) // wait.longest)

    def with_others(self, other: "PoolRecord", base: "PoolRecord | None") -> "PoolRecord":
        """Return the record with what *other* has noted since *base*, which is in both."""
        at = max(self.at, other.at)
        mine, theirs = self.decayed(at), other.decayed(at)
        before = PoolRecord(at=at) if base is None else base.decayed(at)
        return PoolRecord(
            at=at,
            losses=min(max(0, mine.losses + theirs.losses - before.losses), 10**9),
            recent=max(0.0, mine.recent + theirs.recent - before.recent),
            node_hours=max(0.0, mine.node_hours + theirs.node_hours - before.node_hours),
            last=max((each for each in (mine.last, theirs.last) if each is not None), default=None),
            wait=mine.wait.or_longer(theirs.wait),
        )

    @property
    def per_node_hour(self) -> float:
        """Return the decayed rate of losses."""
        return self.recent / max(self.node_hours, _LEAST_HOURS)


@dataclass(frozen=True, slots=True)
class PoolState:
    """A pool as pages and metrics show it."""

    name: str
    nodes: int  #: at present
    losses: int
    per_node_hour: float
    last: datetime | None
    settling: datetime | None  #: until when it is not trusted, or None

    def as_json(self) -> dict[str, Any]:
        """Return what is known from the memory as JSON values."""
        return {
            "pool": self.name,
            "losses": self.losses,
            "lossesPerNodeHour": round(self.per_node_hour, 6),
            "lastLoss": utc(self.last) if self.last else None,
            "settlingUntil": utc(self.settling) if self.settling else None,
        }


class PoolLosses(msgspec.Struct, frozen=True, omit_defaults=True):
    """The losses of all pools."""

    by_pool: dict[str, PoolRecord] = {}

    def observed(
        self,
        node_hours: Mapping[str, float],
        lost: Mapping[str, int],
        now: datetime,
        wait: Backoff,
        trusted: Collection[str] = (),
    ) -> "PoolLosses":
        """Return the records after the nodes of the pools ran for *node_hours*, and pools *lost* nodes at *now*.

        The pools in *trusted* do not wait after a loss.
        """
        records = dict(self.by_pool)
        for pool in sorted(node_hours.keys() | lost.keys()):
            record = records.get(pool, PoolRecord(at=now)).ran(node_hours.get(pool, 0.0), now)
            records[pool] = (
                record.lost(lost[pool], now, _NONE if pool in trusted else wait) if lost.get(pool) else record
            )
        return PoolLosses(records)

    def merged(self, remote: "PoolLosses", base: "PoolLosses") -> "PoolLosses":
        """Return the records with what *remote* changed since *base*."""
        return PoolLosses(merged_entries(self.by_pool, remote.by_pool, base.by_pool, PoolRecord.with_others))

    def settling(self, now: datetime) -> dict[str, datetime]:
        """Return the pools that are not trusted at *now*, and until when."""
        waits = ((pool, record.wait.active(now)) for pool, record in self.by_pool.items())
        return {pool: until for pool, until in waits if until is not None}

    def hazards(self, now: datetime) -> dict[str, float]:
        """Return the probability that a node is lost within :data:`HORIZON`, by pool; only pools with losses.

        It is rounded, so that it changes a few times a day.
        """
        hours = HORIZON / timedelta(hours=1)
        rates = {pool: record.decayed(now).per_node_hour for pool, record in self.by_pool.items() if record.recent}
        rounded = {pool: round((1 - math.exp(-rate * hours)) * _GRADES) / _GRADES for pool, rate in rates.items()}
        return {pool: share for pool, share in rounded.items() if share}

    def current(self, now: datetime, present: Mapping[str, int] | None = None) -> "PoolLosses":
        """Return the records that still matter: at most MOST_POOLS, those with the most recent losses first.

        Pools without nodes are forgotten once they count for nothing; *present* are the numbers of nodes by pool, None
        if they are not known.
        """
        if not self.by_pool:
            return self
        settling = self.settling(now)

        def rank(pool: str) -> tuple[bool, float, float]:
            record = self.by_pool[pool].decayed(now)
            return pool in settling, record.recent, record.node_hours

        def matters(pool: str) -> bool:
            gone = present is not None and not present.get(pool)
            return not gone or pool in settling or self.by_pool[pool].decayed(now).recent >= _FORGOTTEN

        ranked = sorted(filter(matters, self.by_pool), key=rank, reverse=True)[:MOST_POOLS]
        return self if len(ranked) == len(self.by_pool) else PoolLosses({pool: self.by_pool[pool] for pool in ranked})

    def bounded(self, now: datetime, wait: Backoff) -> "PoolLosses":
        """Limit the waits to the longest one, and times to *now*. The stored ones may come from a wrong clock."""
        records = {pool: _bounded(record, now, wait) for pool, record in self.by_pool.items()}
        return self if records == self.by_pool else PoolLosses(records)

    def states(self, present: Mapping[str, int], node_hours: Mapping[str, float], now: datetime) -> list[PoolState]:
        """Return the pools with nodes (their numbers are *present*) and those with losses: the worst ones first.

        *node_hours* were not recorded yet. At most MOST_POOLS are returned.
        """
        settling = self.settling(now)
        states = []
        for pool in present.keys() | self.by_pool.keys():
            record = self.by_pool.get(pool, PoolRecord(at=now)).ran(node_hours.get(pool, 0.0), now)
            states.append(
                PoolState(
                    pool, present.get(pool, 0), record.losses, record.per_node_hour, record.last, settling.get(pool)
                )
            )
        states.sort(key=lambda state: (state.settling is None, -state.per_node_hour, -state.nodes, state.name))
        return states[:MOST_POOLS]


def _bounded(record: PoolRecord, now: datetime, wait: Backoff) -> PoolRecord:
    last = None if record.last is None else min(record.last, now)
    pause = record.wait.bounded(now, wait) if wait.first else Pause()
    return msgspec.structs.replace(record, at=min(record.at, now), last=last, wait=pause)
