"""InterPodAffinity: required terms of the pod, and anti-affinity of placed pods (``interpodaffinity/filtering.go``)."""

from collections.abc import Iterable, Mapping, Sequence
from typing import Final, TypeAlias

import numpy as np
import numpy.typing as npt

from predicates.framework import Plugin, Rejections, RejectsRow, Scope
from predicates.indexes.counts import DomainCounts
from predicates.indexes.domains import Domains, Topology
from predicates.indexes.terms import affinity_terms
from predicates.indexes.topology import Kind, TopologyIndex
from predicates.nodes import Rows
from predicates.objects import PodClass
from predicates.snapshot import Snapshot

UNATTRACTED: Final = "node(s) didn't match pod affinity rules"
REPELLING: Final = "node(s) didn't match pod anti-affinity rules"
REPELLED: Final = "node(s) didn't satisfy existing pods anti-affinity rules"

_UNATTRACTED, _REPELLING, _REPELLED = 1, 2, 3
_REASONS: Final = {_UNATTRACTED: (UNATTRACTED,), _REPELLING: (REPELLING,), _REPELLED: (REPELLED,)}

_Codes: TypeAlias = npt.NDArray[np.int8]
#: Counts over the same domains are put together before rows are looked at.
_Grouped: TypeAlias = Mapping[Domains, Sequence[DomainCounts]]


class _Neighbours:
    """What a class has to do with other pods: whom it seeks, whom it shuns, and who shuns it."""

    __slots__ = ("apart", "error", "own", "repelled", "seen", "shunned", "sought")

    def __init__(self, index: TopologyIndex, pod: PodClass) -> None:
        terms = affinity_terms(pod)
        self.error = f"parsing pod: {terms.error}" if terms.error else ""
        scopes = frozenset(one.resolved(index.namespaces) for one in terms.affinity)
        keys = dict.fromkeys(one.topology_key for one in terms.affinity)
        #: A pod is sought that all the terms mean, in the domains of each.
        self.sought = [index.counts(Kind(scopes, terminating=True), Topology(key)) for key in keys]
        self.own = all(scope.matches(pod) for scope in scopes)  #: the pod is such a one itself
        self.shunned = _grouped(
            index.counts(
                Kind(frozenset((one.resolved(index.namespaces),)), terminating=True), Topology(one.topology_key)
            )
            for one in terms.anti_affinity
        )
        self.repelled: _Grouped = {}
        self.apart: list[DomainCounts] = []  #: both of these together
        self.seen = -1  #: how many terms of placed pods there were when ``repelled`` was found


def _grouped(counts: Iterable[DomainCounts]) -> _Grouped:
    groups: dict[Domains, list[DomainCounts]] = {}
    for one in counts:
        groups.setdefault(one.domains, []).append(one)
    return groups


def _pre_filter(pod: PodClass) -> PodClass:
    return pod


def _filter(pod: PodClass, snapshot: Snapshot, rows: Rows) -> Rejections | None:
    found = _neighbours(pod, snapshot.index(TopologyIndex))
    if found.error:
        reasons = (found.error,)
        return Rejections(np.ones(len(snapshot.nodes.alive[rows]), np.int64), lambda _: reasons, prefilter=True)
    codes = _unattracted(found, rows) if found.sought else None
    if found.shunned:
        codes = _where_any(found.shunned, _REPELLING, rows, codes)
    if found.repelled:
        codes = _where_any(found.repelled, _REPELLED, rows, codes)
    return None if codes is None else Rejections(codes.astype(np.int64), _REASONS.__getitem__)


def _rejects_row(pod: PodClass, snapshot: Snapshot) -> RejectsRow:
    index = snapshot.index(TopologyIndex)

    def refuses(row: int) -> bool:
        found = _neighbours(pod, index)
        if found.error or (found.sought and not _attracted(found, row)):
            return True
        for one in found.apart:  # noqa: SIM110 - asked of every pod: a generator costs more than most answers
            if one.counter.rows and one.near(row):
                return True
        return False

    return refuses


def _neighbours(pod: PodClass, index: TopologyIndex) -> _Neighbours:
    found = index.current(_Neighbours)[pod]
    if found.seen != index.terms:
        found.repelled, found.seen = _grouped(index.repelling(pod)), index.terms
        found.apart = [one for groups in (found.shunned, found.repelled) for some in groups.values() for one in some]
    return found


def _unattracted(found: _Neighbours, rows: Rows) -> _Codes | None:
    """Refuses rows that lack a topology label, or have no sought pod in one of their domains.

    While no sought pod stands in any domain, a pod that is of the sought kind itself may be the first.
    """
    counts = [one.current() for one in found.sought]
    first = _may_be_first(found)
    codes: _Codes | None = None
    for one, some in zip(found.sought, counts, strict=True):
        verdicts: _Codes = np.zeros(len(some), np.int8) if first else (some == 0).view(np.int8)
        verdicts[-1] = not one.domains.complete
        if verdicts.any():
            codes = _first(codes, one.domains.pick(verdicts * np.int8(_UNATTRACTED), rows))
    return codes


def _attracted(found: _Neighbours, row: int) -> bool:
    """The same of one row."""
    near = [one.near(row) for one in found.sought]
    return None not in near and (all(near) or _may_be_first(found))


def _may_be_first(found: _Neighbours) -> bool:
    return found.own and not any(one.current()[:-1].any() for one in found.sought)


def _where_any(grouped: _Grouped, code: int, rows: Rows, codes: _Codes | None) -> _Codes | None:
    """*codes*, and *code* for rows that nothing refused yet and where any of the counted pods share a domain."""
    for domains, members in grouped.items():
        shared = None
        for one in members:
            if one.counter.rows:
                here = one.current() > 0
                shared = here if shared is None else shared | here
        if shared is None:
            continue
        shared[-1] = False
        if shared.any():
            codes = _first(codes, domains.pick(shared.view(np.int8) * np.int8(code), rows))
    return codes


def _first(codes: _Codes | None, more: _Codes) -> _Codes:
    """Of two refusals the scheduler names the first."""
    return more if codes is None else np.where(codes, codes, more)


PLUGIN: Final = Plugin("InterPodAffinity", Scope.CLUSTER, _pre_filter, _filter, _rejects_row)
