"""Invariant 4: at most one drain at a time, and no write by a replica that does not hold the Lease."""

from collections.abc import Iterator

from tests.invariants.history import SentWrite, seconds
from tests.invariants.judging import JudgedMoment
from tests.invariants.leases import LeaseTimes
from tests.invariants.moments import HistoryMoment, Wrote, ours
from tests.invariants.objects import SeenNode
from tests.invariants.rules import Violation

#: Resources that only the leader writes. All replicas write Events and compete for the Lease.
_LEADERS_KINDS = frozenset({"nodes", "pods/eviction", "configmaps"})


class OneLeader:
    def check(self, moment: HistoryMoment, scene: JudgedMoment) -> Iterator[Violation]:
        if not isinstance(moment, Wrote) or not isinstance(moment.revision.object, SeenNode):
            return
        drain = scene.now.drains.get(moment.revision.object.metadata.name)
        if drain is None or drain.number != moment.revision.number or drain.removing or drain.restored:
            return
        for other in scene.now.drains.values():
            unseen = other.restored and moment.at - other.began <= seconds(scene.rules.lag)
            ended = other.draining_ended is not None or other.removing
            if other is not drain and not ended and not unseen:
                what = f"the drain of node {drain.node} started while node {other.node} was being drained"
                yield Violation(4, moment.at, f"{what} since {other.began:%H:%M:%S.%f}")

    def end(self, scene: JudgedMoment) -> Iterator[Violation]:
        leases = LeaseTimes.of(scene.history.writes)
        for write in ours(scene.history.writes, scene.rules):
            if write.accepted and not write.dry_run and write.kind in _LEADERS_KINDS:
                yield from _foreign(write, leases, scene.rules.takeover)


def _foreign(write: SentWrite, leases: LeaseTimes, tolerance: float) -> Iterator[Violation]:
    """Yield a violation if the writer never held the Lease from *tolerance* seconds before the request to its end.

    A bound token contains the replica's pod; a mark contains the full holder identity.
    """
    holders = leases.holders_between(write.received - seconds(tolerance), write.handled)
    if None in holders:
        return
    known = {holder for holder in holders if holder}
    request = f"{write.verb} {write.kind} {write.name} at {write.received:%H:%M:%S.%f}"
    if write.pod and write.pod not in {holder.partition("_")[0] for holder in known}:
        yield Violation(
            4, write.handled, f"{request} was by {write.pod} while the Lease was held by {_reported(known)}"
        )
    elif write.mark_holder and write.mark_holder not in known:
        yield Violation(
            4, write.handled, f"{request} was by {write.mark_holder} while the Lease was held by {_reported(known)}"
        )


def _reported(holders: set[str]) -> str:
    return ", ".join(sorted(holders)) or "no replica"
