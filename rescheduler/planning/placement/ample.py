"""A proof that pods find a place in whatever order, and wherever, the scheduler places the others. Pure.

A node rejects a pod for its resources only if the other pods have taken too much of one resource there. All of them
together can take no more than they request. If rejecting the pod on every node would take more than that, the pod finds
a place. So whole pools are judged with a few sums, and no pod is placed.

For a node n and a resource d, let ``slack`` be what can be taken of d on n before the pod no longer fits, plus 1, and
``others`` what all other pods request of d. The node is closed by at least the share ``min over d (slack / others)``
of all that can be taken, and for D resources the shares of the closed nodes sum up to at most D. If the shares of all
nodes sum up to more than D, one node is left.

Pods that may not be beside others, that must be in the domain of others, or that are spread over domains, are judged
with the sums of the domains where they may be. Everything else is not provable.
"""

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from typing import Final

import numpy as np
import numpy.typing as npt

from predicates.filters import Filters, LocalResult
from predicates.indexes.domains import HOSTNAME, DomainCounts, Domains
from predicates.nodes import Flags, Numbers
from predicates.objects import PodClass
from predicates.plugins.nodes import NODE_PORTS
from predicates.plugins.pods import INTER_POD_AFFINITY, POD_TOPOLOGY_SPREAD, Ties, ties_of
from predicates.snapshot import Snapshot

Shares = npt.NDArray[np.float64]
Rows = npt.NDArray[np.intp]

#: Floating-point sums are compared with this margin.
_MARGIN: Final = 1e-6

_FIT: Final = "NodeResourcesFit"
_KNOWN: Final = (NODE_PORTS, INTER_POD_AFFINITY, POD_TOPOLOGY_SPREAD)


@dataclass(frozen=True, slots=True)
class Loss:
    """The nodes that are lost together, and what their pods request."""

    rows: Rows  #: of the lost nodes
    lost: frozenset[int]  #: the same
    pending: int  #: number of pods that were pending before
    with_ports: int  #: number of lost and pending pods with host ports


@dataclass(slots=True)
class _Shape:
    """The shares of all nodes for the pods that every node judges alike, as if nothing was lost."""

    shares: Shares  #: by row; 0 where the pod is not accepted
    resources: int  #: D: how many resources can reject the pod
    total: float
    largest: float
    by_domain: dict[Domains, Shares] = field(default_factory=dict)


class Ample:
    """Proofs for the current state of *snapshot*, in which the nodes *usable* accept pods.

    *most* is at least what the pods of any loss that is judged request together, as a row of the node table.
    """

    def __init__(self, snapshot: Snapshot, filters: Filters, usable: Flags, most: Numbers) -> None:
        self._snapshot = snapshot
        self._filters = filters
        self._usable = usable
        self._most = most
        self._shapes: dict[LocalResult, _Shape] = {}
        self._classes: dict[PodClass, tuple[_Shape, Ties | None] | None] = {}

    def fits(self, pod: PodClass, loss: Loss) -> bool:
        """Return whether it is proved that a pod of the class finds a place after *loss*."""
        if pod not in self._classes:
            self._classes[pod] = self._judge(pod)
        if (known := self._classes[pod]) is None:
            return False
        shape, ties = known
        if ties is None:
            return shape.total - float(shape.shares[loss.rows].sum()) > shape.resources + _MARGIN
        return self._fits_with_ties(pod, shape, ties, loss)

    def leaves_one(self, pod: PodClass, feasible: Flags) -> bool:
        """Return whether the other pods cannot take the room of a pod of the class on all *feasible* nodes."""
        shape = self._shape(pod)
        return float(shape.shares[feasible].sum()) > shape.resources + _MARGIN

    def _judge(self, pod: PodClass) -> tuple[_Shape, Ties | None] | None:
        """Return the shape and the ties of a class, None instead of ties that do not matter; None: not provable."""
        shape, plugins = self._shape(pod), self._filters.plugins_of(pod)
        if any(plugin.name != _FIT and plugin not in _KNOWN for plugin in plugins):
            return None
        if (ties := ties_of(pod, self._snapshot)) is None:
            return None
        shape = self._shape(pod)
        return shape, ties if ties.beside or ties.apart or ties.spread or pod.ports else None

    def _shape(self, pod: PodClass) -> _Shape:
        local = self._filters.local(pod)
        if (shape := self._shapes.get(local)) is None:
            shape = self._shapes[local] = self._new_shape(pod, np.flatnonzero(local.mask & self._usable))
        return shape

    def _new_shape(self, pod: PodClass, rows: Rows) -> _Shape:
        snapshot = self._snapshot
        profile = snapshot.scheduler.profile(pod.spec.scheduler_name)
        request = snapshot.vector(profile.checked(pod.requests))
        others = self._most - request
        columns = np.flatnonzero((request > 0) & (others > 0))
        shares = np.zeros(len(snapshot.nodes), np.float64)
        if len(columns):
            slack = snapshot.nodes.free[np.ix_(rows, columns)] - request[columns] + 1
            shares[rows] = (slack / others[columns]).min(axis=1)
        else:
            shares[rows] = 1
        return _Shape(shares, len(columns), float(shares.sum()), float(shares.max(initial=0)))

    def _fits_with_ties(self, pod: PodClass, shape: _Shape, ties: Ties, loss: Loss) -> bool:
        """Return whether a pod finds a place in each domain that the scheduler may leave to it."""
        blocked, siblings = _kept_apart(ties.apart, loss)
        if blocked is None:
            return False
        siblings += loss.with_ports if pod.ports else 0
        reserve = shape.resources + siblings * shape.largest + _MARGIN
        gone = np.concatenate((loss.rows, np.fromiter(blocked, np.intp, len(blocked))))
        if not ties.beside and not ties.spread:
            return shape.total - float(shape.shares[gone].sum()) > reserve
        if len(ties.beside) + len(ties.spread) > 1 or loss.pending:
            return False
        counts = (*ties.beside, *ties.spread)[0]
        counts.current()  # brings the domains up to date
        sums = self._by_domain(shape, counts.domains, gone)
        domains = self._beside(counts, loss) if ties.beside else self._spread(ties, counts, loss)
        enough = (sums[domains] > reserve).all() if ties.spread else sums[domains].sum() > reserve
        return bool(len(domains)) and bool(enough)

    def _by_domain(self, shape: _Shape, domains: Domains, gone: Rows) -> Shares:
        if domains not in shape.by_domain:
            shape.by_domain[domains] = np.bincount(domains.slots, shape.shares, domains.size + 1).astype(np.float64)
        sums = shape.by_domain[domains]
        return sums - np.bincount(domains.slots[gone], shape.shares[gone], domains.size + 1)

    def _beside(self, counts: DomainCounts, loss: Loss) -> Rows:
        """Return the domains with a pod that stays; none if all of them are lost."""
        slots = counts.domains.counted
        found = {int(slots[row]) for row in counts.counter.rows if row not in loss.lost}
        return np.array(sorted(found - {counts.domains.size}), np.intp)

    def _spread(self, ties: Ties, counts: DomainCounts, loss: Loss) -> Rows:
        """Return the domains of the nodes that stay; none if there are too few. The emptiest accepts the pod."""
        domains = counts.domains
        stays = self._snapshot.nodes.alive.copy()
        stays[loss.rows] = False
        number = np.bincount(domains.counted[stays], minlength=domains.size + 1)[: domains.size]
        found = np.flatnonzero(number)
        return found if len(found) >= ties.min_domains else found[:0]


def _kept_apart(apart: Collection[DomainCounts], loss: Loss) -> tuple[Mapping[int, None] | None, int]:
    """Return the nodes with pods that the class may not be beside, and the most nodes that lost ones may close.

    None if the domains are not single nodes.
    """
    blocked: dict[int, None] = {}
    siblings = 0
    for counts in apart:
        rows = counts.counter.rows
        if not rows and not loss.pending:
            continue
        if counts.domains.topology.key != HOSTNAME:
            return None, 0
        for row, number in rows.items():
            if row in loss.lost:
                siblings += number
            else:
                blocked[row] = None
        siblings += loss.pending
    return blocked, siblings
