"""Pools of spot nodes: the nodes of one zone and instance type, which a cloud usually reclaims together. Pure."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Final

import numpy as np
import numpy.typing as npt

from predicates.nodes import MISSING, NodeTable
from rescheduler.planning.money.prices import INSTANCE_TYPE_LABELS, ZONE_LABELS

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


def _value(labels: Mapping[str, str], key: str) -> str:
    return next((labels[name] for name in (key, *_OLDER.get(key, ())) if labels.get(name)), "")
