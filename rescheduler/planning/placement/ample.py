"""A proof that pods find a place in whatever order, and wherever, the scheduler places the others. Pure.

A node rejects a pod for its resources only if the other pods have taken too much of one resource there. All of them
together can take no more than they request. If rejecting the pod on every node would take more than that, the pod finds
a place. So whole pools are judged with a few sums, and no pod is placed.

For a node n and a resource d, let ``slack`` be what can be taken of d on n before the pod no longer fits, plus 1, and
``others`` what all other pods request of d. To close n by d takes the part ``slack / others`` of it, and the parts of
all nodes that are closed by d sum up to at most 1. So with weights of the resources that sum up to 1, the shares
``min over d (weight * slack / others)`` of all closed nodes sum up to at most 1, by whichever resource each is closed.
If the shares of all nodes sum up to more than 1, one node is left. The sum is even smaller, because another pod is on
one node, where it counts for one resource only: it is at most the sum of ``max over d (weight * request / others)`` of
all other pods. Each choice of weights gives a proof; the more of a resource is free beside what is requested of it, the
less it may weigh.

Pods that may not be beside others, that must be in the domain of others, or that are spread over domains, are judged
with the sums of the domains where they may be. Everything else is not provable.
"""

from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import chain
from operator import itemgetter
from typing import Final

import numpy as np
import numpy.typing as npt

from predicates.filters import Filters
from predicates.indexes.domains import HOSTNAME, DomainCounts, Domains
from predicates.indexes.topology import TopologyIndex
from predicates.local_results import LocalResult
from predicates.nodes import Flags, Numbers
from predicates.objects import Amounts, PodClass
from predicates.plugins.nodes import NODE_PORTS
from predicates.plugins.pods import INTER_POD_AFFINITY, POD_TOPOLOGY_SPREAD, Ties, ties_of
from predicates.snapshot import Snapshot

Shares = npt.NDArray[np.float64]
Rows = npt.NDArray[np.intp]

#: Floating-point sums are compared with this margin.
_MARGIN: Final = 1e-6

#: What the other pods can close is summed up by loss and request for at most this many of them.
_MOST_KINDS: Final = 1_000_000

#: Sums by pool and domain are used for at most this many domains of all pools.
_MOST_CELLS: Final = 20_000

_FIT: Final = "NodeResourcesFit"
_KNOWN: Final = (NODE_PORTS, INTER_POD_AFFINITY, POD_TOPOLOGY_SPREAD)


@dataclass(frozen=True, slots=True)
class Loss:
    """The nodes that are lost together, and what their pods request."""

    number: int  #: of the loss among all that are judged
    rows: Rows  #: of the lost nodes
    pending: int  #: number of pods that were pending before
    with_ports: int  #: number of lost and pending pods with host ports
    lost: frozenset[int] = field(init=False)  #: the same as *rows*

    def __post_init__(self) -> None:
        object.__setattr__(self, "lost", frozenset(self.rows.tolist()))


@dataclass(frozen=True, slots=True)
class Requested:
    """What the pods of each loss request, with the pending pods."""

    most: Numbers  #: at least what the pods of any loss request together, as a row of the node table
    kinds: Numbers  #: the different requests of a pod, as rows of the node table
    pods: Shares | None  #: by loss and kind: the number of pods; None if there are too many


def requested_by(
    losses: Iterable[Mapping[PodClass, int]], pending: Mapping[PodClass, int], snapshot: Snapshot
) -> Requested:
    """Return what the pods of each of *losses* request, with the *pending* ones. Both are counted by class."""
    kind_of: dict[PodClass, int] = {}
    kinds: dict[Amounts, int] = {}
    by_loss: list[Counter[int]] = []
    for loss in losses:
        counts: Counter[int] = Counter()
        for pod, number in chain(loss.items(), pending.items()):
            if (kind := kind_of.get(pod)) is None:
                kind = kind_of[pod] = kinds.setdefault(pod.requests, len(kinds))
            counts[kind] += number
        by_loss.append(counts)
    for amounts in kinds:
        snapshot.vector(amounts)  # adds the columns of its resources before any vector is used
    width = len(snapshot.nodes.resources)
    vectors = np.array([snapshot.vector(amounts) for amounts in kinds], np.int64).reshape(-1, width)
    sums = [np.array([*counts.values()], np.int64) @ vectors[[*counts]] for counts in by_loss if counts]
    most = np.max(sums, axis=0, initial=0) if sums else np.zeros(width, np.int64)
    if len(by_loss) * len(kinds) > _MOST_KINDS:
        return Requested(most, vectors, None)
    pods = np.zeros((len(by_loss), len(kinds)))
    for number, counts in enumerate(by_loss):
        pods[number, [*counts]] = [*counts.values()]
    return Requested(most, vectors, pods)


@dataclass(slots=True)
class _Shape:
    """The shares of all nodes for the pods that every node judges alike, as if nothing was lost."""

    shares: Shares  #: by row; 0 where the pod is not accepted
    closed_by: Shares  #: by loss: the most to which the shares of closed nodes sum up; at most 1
    closed: float  #: the same for the worst loss
    total: float
    largest: float
    most_lost: float  #: the sum of the shares of the pool with the most
    by_domain: dict[Domains, Shares] = field(default_factory=dict)
    by_pool: dict[Domains, Shares] = field(default_factory=dict)  #: the same by pool, nodes without one at the end


class Provable:
    """What decides about the pods of each class. It is kept while no other terms or classes can decide about them."""

    def __init__(self) -> None:
        self._by_class: dict[PodClass, tuple[LocalResult, Ties | None] | None] = {}
        self._valid_for: object = None

    def of(self, pod: PodClass, snapshot: Snapshot, filters: Filters) -> tuple[LocalResult, Ties | None] | None:
        """Return the result of each node by itself, and the ties, None if none matter; None: nothing is provable."""
        valid_for = filters, snapshot.epoch, snapshot.generation, snapshot.index(TopologyIndex).term_count
        if valid_for != self._valid_for:
            self._valid_for = valid_for
            self._by_class.clear()
        if pod not in self._by_class:
            self._by_class[pod] = _judged(pod, snapshot, filters)
        return self._by_class[pod]


def _judged(pod: PodClass, snapshot: Snapshot, filters: Filters) -> tuple[LocalResult, Ties | None] | None:
    plugins = filters.plugins_of(pod)
    if any(plugin.name != _FIT and plugin not in _KNOWN for plugin in plugins):
        return None
    if (ties := ties_of(pod, snapshot)) is None:
        return None
    return filters.local(pod), ties if ties.beside or ties.apart or ties.spread or pod.ports else None


class Ample:
    """Proofs for the current state of *snapshot*, in which the nodes *usable* accept pods.

    The scheduler may also choose one of the rows *leaving*, whose nodes are about to go: nothing is provable for a
    class that one of them accepts. *pools* are the rows of all pools that are lost, one at a time, and *requested* is
    what the pods of each request.
    """

    def __init__(
        self,
        snapshot: Snapshot,
        filters: Filters,
        usable: Flags,
        leaving: Rows,
        requested: Requested,
        pools: Sequence[Rows],
        provable: Provable,
    ) -> None:
        self._provable = provable
        self._snapshot = snapshot
        self._filters = filters
        self._usable = usable
        self._leaving = leaving
        self._requested = requested
        self._pools = len(pools)
        self._pool_of = np.full(len(snapshot.nodes), len(pools), np.intp)
        for number, rows in enumerate(pools):
            self._pool_of[rows] = number
        self._fewest: dict[Domains, int] = {}
        self._shapes: dict[LocalResult, _Shape] = {}
        self._classes: dict[PodClass, tuple[_Shape, Ties | None] | None] = {}

    def fits_always(self, pod: PodClass, pending: int, with_ports: int) -> bool:
        """Return whether it is proved that a pod of the class finds a place whichever pool is lost.

        *pending* and *with_ports* are at least those of any loss. Sums that differ between the pools are replaced by
        the worst of all, so what is proved here is proved for each pool; the reverse is not true.
        """
        if (known := self._known(pod)) is None:
            return False
        shape, ties = known
        left = shape.total - shape.most_lost
        if ties is None:
            return left > shape.closed + _MARGIN
        blocked, siblings = self._kept_apart_always(ties.apart, pending)
        if blocked is None:
            return False
        siblings += with_ports if pod.ports else 0
        reserve = shape.closed + siblings * shape.largest + _MARGIN
        if not ties.beside and not ties.spread:
            return left - float(shape.shares[blocked].sum()) > reserve
        if len(ties.beside) + len(ties.spread) > 1 or pending:
            return False
        counts = (*ties.beside, *ties.spread)[0]
        counts.current()  # brings the domains up to date
        domains = counts.domains
        if (self._pools + 1) * (domains.size + 1) > _MOST_CELLS:
            return False
        by_pool = self._by_pool(shape, domains)
        sums = by_pool.sum(axis=0) - np.bincount(domains.slots[blocked], shape.shares[blocked], domains.size + 1)
        if ties.spread:
            occupied = np.flatnonzero(np.bincount(domains.counted[self._snapshot.nodes.alive])[: domains.size])
            least = sums[occupied] - by_pool[: self._pools, occupied].max(axis=0, initial=0)
            return self._fewest_domains(domains) >= max(1, ties.min_domains) and bool((least > reserve).all())
        always = self._beside_always(counts)
        most_lost = by_pool[: self._pools, always].sum(axis=1).max(initial=0)
        return bool(len(always)) and bool(sums[always].sum() - most_lost > reserve)

    def _kept_apart_always(self, apart: Collection[DomainCounts], pending: int) -> tuple[Rows | None, int]:
        """Return what :func:`_kept_apart` returns, for the pool with the most siblings, and with its nodes blocked."""
        blocked: dict[int, None] = {}
        siblings = 0
        for counts in apart:
            rows = counts.counter.rows
            if not rows and not pending:
                continue
            if counts.domains.topology.key != HOSTNAME:
                return None, 0
            at = np.fromiter(rows, np.intp, len(rows))
            numbers = np.fromiter(rows.values(), np.float64, len(rows))
            siblings += int(np.bincount(self._pool_of[at], numbers, self._pools + 1)[: self._pools].max(initial=0))
            siblings += pending
            blocked |= dict.fromkeys(rows)
        return np.fromiter(blocked, np.intp, len(blocked)), siblings

    def _by_pool(self, shape: _Shape, domains: Domains) -> Shares:
        """Return the sums of shares by pool and domain."""
        if (known := shape.by_pool.get(domains)) is None:
            width = domains.size + 1
            cells = self._pool_of * width + domains.slots
            sums = np.bincount(cells, shape.shares, (self._pools + 1) * width).astype(np.float64)
            known = shape.by_pool[domains] = sums.reshape(self._pools + 1, width)
        return known

    def _fewest_domains(self, domains: Domains) -> int:
        """Return how many domains have nodes that stay, after the loss of the pool with the most domains."""
        if domains not in self._fewest:
            width, alive = domains.size + 1, self._snapshot.nodes.alive
            cells = (self._pool_of * width + domains.counted)[alive]
            nodes = np.bincount(cells, minlength=(self._pools + 1) * width).reshape(self._pools + 1, width)
            stay = (nodes.sum(axis=0) - nodes)[:, : domains.size] > 0
            self._fewest[domains] = int(stay[: self._pools].sum(axis=1).min(initial=domains.size))
        return self._fewest[domains]

    def _beside_always(self, counts: DomainCounts) -> Rows:
        """Return the domains with pods of two pools, or on other nodes: one of these pods stays."""
        first: dict[int, int] = {}
        always: set[int] = set()
        slots = counts.domains.counted
        for row in counts.counter.rows:
            domain, pool = int(slots[row]), int(self._pool_of[row])
            if pool == self._pools or first.setdefault(domain, pool) != pool:
                always.add(domain)
        return np.array(sorted(always - {counts.domains.size}), np.intp)

    def fits(self, pod: PodClass, loss: Loss) -> bool:
        """Return whether it is proved that a pod of the class finds a place after *loss*."""
        if (known := self._known(pod)) is None:
            return False
        shape, ties = known
        if ties is None:
            left = shape.total - float(shape.shares[loss.rows].sum())
            return left > float(shape.closed_by[loss.number]) + _MARGIN
        return self._fits_with_ties(pod, shape, ties, loss)

    def leaves_one(self, pod: PodClass, feasible: Flags, loss: Loss) -> bool:
        """Return whether the others that wait after *loss* cannot take the room of a pod on all *feasible* nodes."""
        if feasible[self._leaving].any():
            return False  # where the others are may make such a node the best one
        shape = self._shape(pod, self._filters.local(pod))
        return float(shape.shares[feasible].sum()) > float(shape.closed_by[loss.number]) + _MARGIN

    def _known(self, pod: PodClass) -> tuple[_Shape, Ties | None] | None:
        if pod not in self._classes:
            self._classes[pod] = self._judge(pod)
        return self._classes[pod]

    def _judge(self, pod: PodClass) -> tuple[_Shape, Ties | None] | None:
        """Return the shape and the ties of a class, None instead of ties that do not matter; None: not provable."""
        if (found := self._provable.of(pod, self._snapshot, self._filters)) is None:
            return None
        local, ties = found
        shape = self._shape(pod, local)  # brings the result up to date
        return None if local.mask[self._leaving].any() else (shape, ties)

    def _shape(self, pod: PodClass, local: LocalResult) -> _Shape:
        if (shape := self._shapes.get(local)) is None:
            local.update()
            shape = self._shapes[local] = self._new_shape(pod, np.flatnonzero(local.mask & self._usable))
        return shape

    def _new_shape(self, pod: PodClass, rows: Rows) -> _Shape:
        snapshot = self._snapshot
        profile = snapshot.scheduler.profile(pod.spec.scheduler_name)
        request = snapshot.vector(profile.checked(pod.requests))
        others = self._requested.most - request
        columns = np.flatnonzero((request > 0) & (others > 0))
        shares = np.zeros(len(snapshot.nodes), np.float64)
        if len(columns):
            slack = np.maximum(snapshot.nodes.free[np.ix_(rows, columns)] - request[columns] + 1, 0)
            shares[rows], closed_by = self._priced(slack / others[columns], request, others, columns)
        else:
            shares[rows], closed_by = 1, np.zeros(self._pools)
        lost = np.bincount(self._pool_of, shares, self._pools + 1)[: self._pools]
        return _Shape(
            shares,
            closed_by,
            float(closed_by.max(initial=0)),
            float(shares.sum()),
            float(shares.max(initial=0)),
            float(lost.max(initial=0)),
        )

    def _priced(
        self, parts: Shares, request: Numbers, others: Numbers, columns: npt.NDArray[np.intp]
    ) -> tuple[Shares, Shares]:
        """Return the shares of nodes, which *parts* of the others' requests close, and ``closed_by`` of a shape.

        The weights are even, or inverse to what is free of each resource, whichever proves more.
        """
        found = []
        for weights in _weights(parts):
            shares = (parts * weights).min(axis=1)
            closed_by = self._closed_by(request, columns, weights / others[columns])
            found.append((float(shares.sum()) / (float(closed_by.max(initial=0)) + _MARGIN), shares, closed_by))
        _, shares, closed_by = max(found, key=itemgetter(0))
        return shares, closed_by

    def _closed_by(self, request: Numbers, columns: npt.NDArray[np.intp], prices: Shares) -> Shares:
        """Return what all pods but one with this *request* can close, by loss: what is taken of a resource costs."""
        if self._requested.pods is None:
            return np.ones(self._pools)
        cost = (self._requested.kinds[:, columns] * prices).max(axis=1)
        own = float((request[columns] * prices).max())
        closed_by: Shares = np.clip(self._requested.pods @ cost - own, 0, 1)
        return closed_by

    def _fits_with_ties(self, pod: PodClass, shape: _Shape, ties: Ties, loss: Loss) -> bool:
        """Return whether a pod finds a place in each domain that the scheduler may leave to it."""
        blocked, siblings = _kept_apart(ties.apart, loss)
        if blocked is None:
            return False
        siblings += loss.with_ports if pod.ports else 0
        reserve = float(shape.closed_by[loss.number]) + siblings * shape.largest + _MARGIN
        gone = np.concatenate((loss.rows, np.fromiter(blocked, np.intp, len(blocked))))
        if not ties.beside and not ties.spread:
            return shape.total - float(shape.shares[gone].sum()) > reserve
        if len(ties.beside) + len(ties.spread) > 1 or loss.pending:
            return False
        counts = (*ties.beside, *ties.spread)[0]
        counts.current()  # brings the domains up to date
        sums = self._by_domain(shape, counts.domains, gone)
        if ties.beside and len(domains := self._beside(counts, loss)):
            return bool(sums[domains].sum() > reserve)
        if ties.beside and not ties.may_be_first:
            return False
        domains = self._remaining(counts, loss)
        return len(domains) >= max(1, ties.min_domains) and bool((sums[domains] > reserve).all())

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

    def _remaining(self, counts: DomainCounts, loss: Loss) -> Rows:
        """Return the domains of the nodes that stay.

        The emptiest accepts a pod that is spread, and one of them, whichever, a pod that must be beside others of its
        kind if all of those are lost: the domain of the first that is created again.
        """
        domains = counts.domains
        stays = self._snapshot.nodes.alive.copy()
        stays[loss.rows] = False
        return np.flatnonzero(np.bincount(domains.counted[stays], minlength=domains.size + 1)[: domains.size])


def _weights(parts: Shares) -> Iterator[Shares]:
    """Yield weights of the resources, of which *parts* close nodes (rows): even, and inverse to what is free."""
    number = parts.shape[1]
    yield np.full(number, 1 / number)
    free = parts.sum(axis=0)
    if number > 1 and free.all():
        weights: Shares = 1 / free
        yield weights / weights.sum()


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
