"""The total requests of the pods of candidate nodes, compared with the free resources of the targets."""

from collections.abc import Iterable, Sequence

import numpy as np

from predicates.nodes import Numbers
from rescheduler.planning.placement.selection import Candidate, SelectedNode
from rescheduler.planning.placement.spot_room import Room


class Loads:
    """The requests of the pods of each of *candidates*, and the free amounts on all targets of *room* together."""

    def __init__(self, room: Room, candidates: Iterable[Candidate]) -> None:
        self._room = room
        self._free: Numbers = np.maximum(room.snapshot.nodes.free[room.targets.rows], 0).sum(axis=0)
        self._by_node = {candidate.node: self._load(candidate) for candidate in candidates}

    def share(self, candidate: Candidate) -> float:
        """Return the candidate's largest share of any resource, relative to the free amount on all targets together."""
        return float((self._by_node[candidate.node] / np.maximum(self._free, 1)).max())

    def bound(self, candidates: Sequence[Candidate], limit: int, placed: Iterable[SelectedNode] = ()) -> int:
        """Return the fractional upper bound: how many of *candidates* fit if each resource could be split freely.

        The targets also have to accept the pods of the *placed* nodes. At most *limit* of the candidates with
        ``counts`` can be drained.
        """
        if not candidates:
            return 0
        free = self._free - sum((self._by_node[victim.candidate.node] for victim in placed), start=np.int64(0))
        limit += sum(not candidate.counts for candidate in candidates)
        loads = np.sort(np.array([self._by_node[candidate.node] for candidate in candidates]), axis=0).cumsum(axis=0)
        return min(limit, int((loads <= free).sum(axis=0).min()))

    def _load(self, candidate: Candidate) -> Numbers:
        snapshot = self._room.snapshot
        profile_of = snapshot.scheduler.profile
        vectors = [
            snapshot.vector(profile_of(pod.cls.spec.scheduler_name).checked(pod.cls.requests))
            for pod in candidate.incoming
        ]
        width = len(self._room.snapshot.nodes.resources)
        return np.sum(vectors, axis=0) if vectors else np.zeros(width, np.int64)
