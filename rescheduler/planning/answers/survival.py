"""The certificate: whether the pods of a lost pool of spot nodes would run again on what remains. Pure.

It is made for the state after a plan: :mod:`rescheduler.planning.answers.losses` takes each pool away in a trial of
it. Plans that break a certificate that held before are objected to.
"""

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Final, TypeAlias

from predicates.csi import ZONE
from predicates.objects import Pod
from rescheduler.planning.answers.headroom import Headroom
from rescheduler.planning.answers.losses import Losses, PoolLoss
from rescheduler.planning.answers.lost_pods import NodePods
from rescheduler.planning.forms import count, cpu, memory
from rescheduler.planning.outcome import Blocker, Plan, Reason
from rescheduler.planning.placement.ample import Rows
from rescheduler.planning.placement.packing import Effort
from rescheduler.planning.placement.search import Selection
from rescheduler.planning.planning_round import CommonGround, PlanningRound
from rescheduler.planning.policy import FOREVER, Policy, Survive
from rescheduler.planning.pools import spot_pools
from rescheduler.planning.question import drained, lose, opened

#: At most so many seconds of simulation for a certificate, at the assumed speed. Proofs are not limited.
SIMULATION: Final = 10.0


@dataclass(frozen=True, slots=True)
class Certificate:
    """The results of losing each pool, by name."""

    survive: Survive
    pools: tuple[PoolLoss, ...]

    @property
    def holds(self) -> bool:
        """Return whether the loss of any one pool is survived. Without pools nothing can be lost."""
        return all(pool.survived for pool in self.pools)

    @property
    def worst(self) -> tuple[PoolLoss, ...]:
        """Return the pools whose loss is not survived, those with the most homeless pods first."""
        lost = (pool for pool in self.pools if not pool.survived)
        return tuple(sorted(lost, key=lambda pool: (-pool.homeless_pods, pool.pool)))

    def broken_by(self, after: "Certificate") -> tuple[PoolLoss, ...]:
        """Return the pools of *after* whose loss is not survived, although it is in this certificate.

        A pool without pods is survived, and so is one that is not in this certificate.
        """
        failing = {pool.pool for pool in self.worst}
        return tuple(pool for pool in after.worst if pool.pool not in failing)


class Survival:
    """The certificates of one snapshot. That of the present state is kept while the ground of planning is the same."""

    def __init__(self) -> None:
        self._node_pods = NodePods()
        self.headroom = Headroom(self._node_pods)
        self._valid_for: tuple[CommonGround, int, Survive] | None = None
        self._present: dict[frozenset[str], Certificate] = {}  #: without these nodes
        self._broken = ""  #: the pool of the last objection: it is likely to be broken by other plans as well

    def certificate(
        self,
        shared: PlanningRound,
        survive: Survive,
        plans: Iterable[Plan] = (),
        decisive: Sequence[str] = (),
        *,
        gone: Collection[str] = (),
        seconds: float = SIMULATION,
    ) -> Certificate:
        """Return the certificate of the state after *plans* were carried out, and without the nodes *gone*.

        If there are *decisive* pools, it has only these, up to the first one that is not survived. *seconds* limit the
        simulation, at its assumed speed.

        The trial of *shared* must be open, in which pending pods have taken their room. Here they look for it together
        with the pods of the lost pool.
        """
        if survive is Survive.OFF:
            return Certificate(survive, ())
        pools, effort = pools_by_name(shared, survive), shared.forecaster.effort(seconds)
        return Certificate(survive, self._losses(shared, pools, effort, plans, gone, decisive))

    def loss(self, shared: PlanningRound, rows: Rows, plans: Iterable[Plan], gone: Collection[str] = ()) -> PoolLoss:
        """Return the result of losing the nodes in *rows* together after *plans*. The rest is as for a certificate."""
        (result,) = self._losses(shared, {"": rows}, shared.forecaster.effort(SIMULATION), plans, gone)
        return result

    def displaced(self, shared: PlanningRound, nodes: Iterable[str]) -> list[Pod]:
        """Return the pods of *nodes* that must run again, as their controllers create them."""
        return [pod for node in nodes for pod in self._node_pods.of(node, shared).pods]

    def _losses(
        self,
        shared: PlanningRound,
        pools: Mapping[str, Rows],
        effort: Effort,
        plans: Iterable[Plan],
        gone: Iterable[str],
        decisive: Sequence[str] = (),
    ) -> tuple[PoolLoss, ...]:
        """Return the results of losing each of *pools* after *plans*, one at a time."""
        plans = tuple(plans)
        with opened(shared, effort) as attempt:
            for cls, row in shared.pending.placements:
                attempt.trial.unplace(cls, row)
            for node in gone:
                lose(node, attempt)
            moved = drained(plans, attempt, lost=True)
            preempted = {pod.uid for plan in plans for pod in plan.preempts}
            return Losses(shared, attempt.trial, moved, preempted, self._node_pods, pools, effort).run(decisive)

    def basis(self, shared: PlanningRound) -> object:
        """Return what objections depend on besides the ground and the plans, for comparisons."""
        if not self.may_object(shared.policy):
            return None
        return self._node_pods.departing(shared).nodes, self._node_pods.edits(shared)

    def valid_until(self, shared: PlanningRound) -> datetime:
        """Return until when objections stay the same if nothing else changes."""
        departing = self._node_pods.departing(shared) if self.may_object(shared.policy) else None
        return FOREVER if departing is None else departing.until or FOREVER

    @staticmethod
    def may_object(policy: Policy) -> bool:
        """Return whether *policy* keeps a certificate or headroom, so that plans may be objected to."""
        return policy.survive is not Survive.OFF or bool(policy.fallback_headroom)

    def against(self, shared: PlanningRound, plans: Sequence[Plan]) -> Blocker | None:
        """Return a blocker if *plans* leave too little room or break the certificate, or None."""
        return self.headroom.objection(shared, plans) or self.objection(shared, plans)

    def objection(self, shared: PlanningRound, plans: Sequence[Plan]) -> Blocker | None:
        """Return a blocker if *plans* break the certificate of the policy, as far as it holds now, or None."""
        if (survive := shared.policy.survive) is Survive.OFF:
            return None
        states = self._node_pods.gone_with(plans, shared)
        return next(filter(None, (self._broken_by(shared, survive, plans, gone) for gone in states)), None)

    def _broken_by(
        self, shared: PlanningRound, survive: Survive, plans: Sequence[Plan], gone: frozenset[str]
    ) -> Blocker | None:
        now = self._now(shared, survive, gone)
        decisive = sorted((each.pool for each in now.pools if each.survived), key=lambda pool: pool != self._broken)
        if not decisive:
            return None
        broken = now.broken_by(self.certificate(shared, survive, plans, decisive, gone=gone))
        if not broken:
            return None
        self._broken = broken[0].pool
        return _would_not_survive(broken[0], survive, len(gone))

    def _now(self, shared: PlanningRound, survive: Survive, gone: frozenset[str]) -> Certificate:
        valid_for = shared.ground, self._node_pods.edits(shared), survive
        if self._valid_for != valid_for:
            self._valid_for = valid_for
            self._present.clear()
        if (known := self._present.get(gone)) is None:
            known = self._present[gone] = self.certificate(shared, survive, gone=gone)
        return known


#: Takes plans in sequence. Returns a blocker if they must not be carried out together.
PlansObjection: TypeAlias = Callable[[PlanningRound, Sequence[Plan]], Blocker | None]

#: How often :func:`longest_surviving` continues without a node that breaks the certificate.
_SKIPS: Final = 4


def longest_surviving(
    victims: Selection,
    objection: Callable[[Selection], Blocker | None],
    replayed: Callable[[Selection], Selection | None],
) -> tuple[Selection, Blocker | None]:
    """Return as many of *victims* as were found to have no *objection*, and the objection to the first one left.

    The longest beginning is found by bisection: each drain leaves less room, so that an objection stays. Then the
    search goes on without the victim that was objected to. *replayed* places the pods of fewer victims again.
    """
    kept: Selection = ()
    rest = victims
    first: Blocker | None = None
    for _ in range(_SKIPS):
        if not rest:
            break

        def test(
            number: int, kept: Selection = kept, rest: Selection = rest, first: Blocker | None = first
        ) -> Blocker | None:
            some: Selection | None = (*kept, *rest[:number])
            some = some if first is None or some is None else replayed(some)
            return first if some is None else objection(some)

        number, blocker = longest_beginning(len(rest), test)
        some = (*kept, *rest[:number])
        kept = some if first is None else replayed(some) or kept
        first, rest = first or blocker, rest[number + 1 :]
    return kept, first


def longest_beginning(length: int, test: Callable[[int], Blocker | None]) -> tuple[int, Blocker | None]:
    """Return the largest number up to *length* that *test* does not object to, and the objection to the next one."""
    if (blocker := test(length)) is None:
        return length, None
    low, high = 0, length
    while high - low > 1:
        middle = (low + high) // 2
        if (found := test(middle)) is None:
            low = middle
        else:
            high, blocker = middle, found
    return low, blocker


def _would_not_survive(pool: PoolLoss, survive: Survive, empty: int) -> Blocker:
    removed = f" and the removal of {count(empty, 'on-demand node')} without pods" if empty else ""
    lost = f"after its drain{removed}, the loss of {survive} {pool.pool} ({count(pool.nodes, 'node')})"
    more = f"--survive={survive} leaves the node until the other spot nodes have room, or --survive=off drains it"
    if not pool.homeless:
        detail = f"{lost} could not be judged within the limit of simulated pods, and is survived now; {more}"
        return Blocker(Reason.WOULD_NOT_SURVIVE, detail)
    homeless = f"{count(pool.homeless_pods, 'pod')} without a place, which is not so now"
    needed = pool.needed
    need = f"; they need {cpu(needed.cpu)} vCPU, {memory(needed.memory)}" if needed is not None else ""
    detail = f"{lost} would leave {homeless} ({pool.homeless[0].controller}: {pool.homeless[0].why}){need}; {more}"
    return Blocker(Reason.WOULD_NOT_SURVIVE, detail)


def pools_by_name(shared: PlanningRound, survive: Survive) -> dict[str, Rows]:
    """Return the rows of the spot nodes that are lost together, by name."""
    keys = (ZONE,) if survive is Survive.ZONE else shared.policy.spot_pool_labels
    pools = spot_pools(shared.snapshot.nodes, shared.groups.spot_rows, keys)
    return dict(zip(pools.names, pools.rows, strict=True))
