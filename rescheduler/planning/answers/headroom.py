"""Room that plans leave for the pods of lost spot nodes: ``--fallback-headroom``. Pure.

Free amounts are summed up over all nodes that remain after a plan and take pods, whatever their labels, without those
of pools that lost nodes a short while ago. The room of expendable pods counts as free, because the scheduler preempts
them. Whether each pod would also fit on one node, by all rules, is what the certificate says
(:mod:`rescheduler.planning.answers.survival`).
"""

from collections import Counter
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Final

import numpy as np
import numpy.typing as npt

from predicates.nodes import CPU, MEMORY, MISSING, PODS, Numbers
from predicates.objects import PodClass
from predicates.snapshot import Snapshot
from rescheduler.planning.answers.losses import places
from rescheduler.planning.answers.lost_pods import NodePods
from rescheduler.planning.forms import count, cpu, memory
from rescheduler.planning.outcome import Blocker, Placement, Plan, Reason
from rescheduler.planning.planning_round import CommonGround, PlanningRound
from rescheduler.planning.policy import FallbackHeadroom
from rescheduler.planning.pools import spot_pools

_WHOLE: Final = 100


@dataclass(frozen=True, slots=True)
class FallbackRoom:
    """What is free for lost pods, and what these request: a row for each loss, with the columns of the node table."""

    losses: tuple[str, ...]  #: the pools that are lost, one at a time; only "" if a share of all spot nodes counts
    loss_of: npt.NDArray[np.intp]  #: by row of the node table: its loss, or MISSING if it is no spot node
    by_node: Numbers  #: by row of the node table: the part of *free* that is on the node
    free: Numbers
    requested: Numbers
    percent: int  #: of *requested* is to be kept free

    @property
    def needed(self) -> Numbers:
        """The amounts to keep."""
        return -(-self.requested * self.percent // _WHOLE)

    @property
    def share(self) -> float | None:
        """What is free for what is requested, as a factor: the least of CPU and memory; None if nothing is."""
        columns = [CPU, MEMORY]
        free, requested = self.free[:, columns], self.requested[:, columns]
        shares = free[requested > 0] / requested[requested > 0]
        return float(shares.min()) if len(shares) else None

    def moved(self, node: int | None, placed: Iterable[tuple[PodClass, int]], snapshot: Snapshot) -> "FallbackRoom":
        """Return the room after the node in row *node* is gone, and its pods are *placed* on other rows.

        If *node* is None, the node stays; what its pods leave there is not counted.
        """
        free, requested = self.free - (0 if node is None else self.by_node[node]), self.requested.copy()
        for pod, row in placed:
            vector, loss = snapshot.vector(pod.requests), int(self.loss_of[row])
            free -= vector
            if loss != MISSING:
                requested[loss] += vector
                if self.losses[loss]:
                    free[loss] += vector  # what is on the pool itself is no room for its pods
        return replace(self, free=free, requested=requested)


class Headroom:
    """The room for the pods of lost spot nodes. That of the present state is kept while nothing changes."""

    def __init__(self, node_pods: NodePods) -> None:
        self._node_pods = node_pods
        self._present: tuple[tuple[CommonGround, int, FallbackHeadroom], FallbackRoom] | None = None

    def objection(self, shared: PlanningRound, plans: Sequence[Plan]) -> Blocker | None:
        """Return a blocker if *plans* leave less than ``--fallback-headroom``, or None.

        What is short now and does not get shorter is no objection. The trial of *shared* must be open, in which pending
        pods have taken their room.
        """
        if not (kept := shared.policy.fallback_headroom):
            return None
        states = self._node_pods.gone_with(plans, shared)
        return next(filter(None, (self._too_little(shared, plans, kept, gone) for gone in states)), None)

    def _too_little(
        self, shared: PlanningRound, plans: Sequence[Plan], kept: FallbackHeadroom, gone: frozenset[str]
    ) -> Blocker | None:
        after = self.after(shared, plans, kept, gone)
        now = self.after(shared, (), kept, gone)
        margin = after.free - after.needed
        worse = (margin < 0) & (margin < now.free - now.needed)
        if not worse.any():
            return None
        shares = np.where(worse, after.free / np.maximum(after.needed, 1), np.inf)
        loss, column = divmod(int(shares.argmin()), shares.shape[1])
        return _too_little(kept, after, loss, column, shared.snapshot)

    def after(
        self, shared: PlanningRound, plans: Iterable[Plan], kept: FallbackHeadroom, gone: Collection[str] = ()
    ) -> FallbackRoom:
        """Return the room that *kept* is about after *plans* were carried out, without the nodes *gone*.

        The trial is as in :meth:`objection`.
        """
        snapshot, rows = shared.snapshot, shared.snapshot.nodes.row
        moves = [
            (rows[plan.node] if plan.empties else None, [_placed(each, shared) for each in plan.placements])
            for plan in plans
        ]
        for _, placed in moves:
            for pod, _ in placed:
                snapshot.vector(pod.requests)  # adds the columns of its resources before any vector is used
        room = self._now(shared, kept)
        for name in gone:
            room = room.moved(rows[name], [], snapshot)
        for node, placed in moves:
            room = room.moved(node, placed, snapshot)
        return room

    def _now(self, shared: PlanningRound, kept: FallbackHeadroom) -> FallbackRoom:
        known, width = self._present, len(shared.snapshot.nodes.resources)
        valid_for = shared.ground, self._node_pods.edits(shared), kept
        if known is None or known[0] != valid_for or known[1].free.shape[1] != width:
            self._present = known = valid_for, self._measured(shared, kept)
        return known[1]

    def _measured(self, shared: PlanningRound, kept: FallbackHeadroom) -> FallbackRoom:
        snapshot, table = shared.snapshot, shared.snapshot.nodes
        usable = np.flatnonzero(places(shared)).tolist()
        yielding = {row: self._node_pods.of(table.names[row], shared).expendable for row in usable}
        losses, loss_of = _losses(shared, kept)
        lost: list[Counter[PodClass]] = [Counter() for _ in losses]
        for row in shared.groups.spot_rows.tolist():
            lost[int(loss_of[row])].update(pod.cls for pod in self._node_pods.of(table.names[row], shared).pods)
        for classes in (*yielding.values(), *lost):
            for pod in classes:
                snapshot.vector(pod.requests)  # adds the columns of its resources before any vector is used
        by_node = np.zeros_like(table.free)
        for row, pods in yielding.items():
            by_node[row] = np.maximum(table.free[row] + _sum(Counter(pods), snapshot), 0)
        requested = np.array([_sum(classes, snapshot) for classes in lost], np.int64)
        free = np.array([by_node[(loss_of != number) | (name == "")].sum(axis=0) for number, name in enumerate(losses)])
        return FallbackRoom(losses, loss_of, by_node, free, requested, _WHOLE if kept.largest_pool else kept.percent)


def _losses(shared: PlanningRound, kept: FallbackHeadroom) -> tuple[tuple[str, ...], npt.NDArray[np.intp]]:
    """Return the losses, and by row the one that takes the node away."""
    table, spot_rows = shared.snapshot.nodes, shared.groups.spot_rows
    if kept.largest_pool and len(spot_rows):
        pools = spot_pools(table, spot_rows, shared.policy.spot_pool_labels)
        return pools.names, pools.ids
    loss_of = np.full(len(table), MISSING, np.intp)
    loss_of[spot_rows] = 0
    return ("",), loss_of


def _placed(placement: Placement, shared: PlanningRound) -> tuple[PodClass, int]:
    snapshot = shared.snapshot
    return shared.replacements.of(snapshot.pods[str(placement.pod)]).cls, snapshot.nodes.row[placement.node]


def _sum(classes: Counter[PodClass], snapshot: Snapshot) -> Numbers:
    width = len(snapshot.nodes.resources)
    return sum((number * snapshot.vector(pod.requests) for pod, number in classes.items()), np.zeros(width, np.int64))


def _too_little(kept: FallbackHeadroom, room: FallbackRoom, loss: int, column: int, snapshot: Snapshot) -> Blocker:
    resource = next(name for name, number in snapshot.nodes.resources.items() if number == column)
    free, needed = (_amount(resource, column, int(each[loss, column])) for each in (room.free, room.needed))
    pool = room.losses[loss]
    where = f"outside of pool {pool}" if pool else "for the pods of lost spot nodes"
    what = f"what the pods of pool {pool} request" if pool else f"{kept} of what the pods on spot nodes request"
    detail = (
        f"after its drain, {free} would be free {where}, and {needed} is to be kept free: {what} "
        f"(--fallback-headroom={kept})"
    )
    return Blocker(Reason.FALLBACK_HEADROOM, detail)


def _amount(resource: str, column: int, amount: int) -> str:
    known = {PODS: lambda: count(amount, "pod"), CPU: lambda: f"{cpu(amount)} vCPU", MEMORY: lambda: memory(amount)}
    return known[column]() if column in known else f"{amount:,} {resource}"
