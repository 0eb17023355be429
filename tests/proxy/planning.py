"""Plans by the policy of the proxy."""

from collections.abc import Collection, Iterable
from typing import Any

from predicates.snapshot import Snapshot
from rescheduler.cloudpool.proxy.config import DrainSection
from rescheduler.cloudpool.proxy.service import policy
from rescheduler.planning.answers.removals import plan_removals
from rescheduler.planning.outcome import Planning, Verdict
from rescheduler.planning.planner import Planner
from rescheduler.planning.policy import Circumstances
from tests.planning.builders import NOW

POLICY = policy(DrainSection())


def choose(cluster: Snapshot, nodes: Iterable[str], limit: int, **circumstances: Any) -> Planning:
    """Return the plans for at most *limit* of *nodes*, and why others stay."""
    return plan_removals(nodes, limit, Planner(cluster, POLICY).round(Circumstances(NOW, **circumstances)))


def judge(cluster: Snapshot, node: str, evicted: Collection[str] = (), **circumstances: Any) -> Verdict:
    """Return the verdict on *node* during its drain, which must be that on its removal alone if no pod is *evicted*."""
    verdict = Planner(cluster, POLICY).look_again(node, Circumstances(NOW, **circumstances), evicted)
    if not evicted:
        planning = choose(cluster, [node], 1, **circumstances)
        [alone] = planning.verdicts
        assert type(alone) is type(verdict), (alone, verdict)
        assert getattr(alone, "blockers", ()) == getattr(verdict, "blockers", ())
    return verdict
