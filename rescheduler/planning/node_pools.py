"""Who manages the drained nodes, and what Karpenter does with their NodePools: sentences for readers of a plan. Pure.

Karpenter tries NodePools in the order of their weight, and those of one weight from the last name to the first. In a
NodePool that allows both capacity types, spot comes first (``pkg/utils/nodepool/nodepool.go``, OrderByWeight;
``pkg/controllers/provisioning/scheduling/nodeclaim.go``).
"""

from collections.abc import Collection, Iterable, Iterator, Sequence
from typing import Final

from predicates.node_selectors import tolerated
from predicates.objects import NodePool, Pod
from predicates.objects.pods import CAPACITY_TYPE, NODE_POOL
from predicates.snapshot import Snapshot
from predicates.texts import quoted
from rescheduler.planning.forms import count
from rescheduler.planning.outcome import Plan
from rescheduler.planning.placement.added_nodes import left_of

#: The value of the label with the capacity type of spot nodes.
SPOT: Final = "spot"


def buying_again(snapshot: Snapshot, plans: Sequence[Plan]) -> Iterator[str]:
    """Yield a sentence for each NodePool that would add on-demand nodes for pods of *plans* that are pending again.

    These are the NodePools of drained nodes without spot capacity, if no NodePool with spot capacity that comes before
    them accepts these pods, or only one that has reached its limits.
    """
    pools = {pool.metadata.name: pool for pool in snapshot.of("NodePool").values() if isinstance(pool, NodePool)}
    spot = [pool for pool in pools.values() if pool.spec.replicas is None and SPOT in values(pool, CAPACITY_TYPE)]
    moved: dict[str, list[Pod]] = {}
    for plan in plans:
        if (name := _pool_of(snapshot, plan.node)) in pools:
            moved.setdefault(name, []).extend(_pods(snapshot, plan))
    for name, pods in sorted(moved.items()):
        pool = pools[name]
        if pool.spec.replicas is not None or pool in spot:
            continue
        before = [each for each in spot if _order(each) > _order(pool)]
        open_pools = [each for each in before if not _is_full(snapshot, each)]
        left = [pod for pod in pods if not any(_accepts(each, pod) for each in open_pools)]
        if left:
            full = f" ({', '.join(quoted(each.metadata.name) for each in before if each not in open_pools)} is full)"
            yield (
                f"for {count(len(left), 'moved pod')}, NodePool {quoted(name)} (weight {_weight(pool)}) would add "
                "on-demand nodes again when they are pending: no NodePool with spot capacity that comes before it "
                f"takes them{full if len(open_pools) < len(before) else ''}"
            )


def _pool_of(snapshot: Snapshot, node: str) -> str:
    row = snapshot.nodes.row.get(node)
    found = None if row is None else snapshot.nodes.nodes[row]
    return "" if found is None else found.metadata.labels.get(NODE_POOL, "")


def _pods(snapshot: Snapshot, plan: Plan) -> Iterator[Pod]:
    for placement in plan.placements:
        if (pod := snapshot.pods.get(str(placement.pod))) is not None:
            yield pod


def _order(pool: NodePool) -> tuple[int, str]:
    return _weight(pool), pool.metadata.name


def in_order(pools: Iterable[NodePool]) -> list[NodePool]:
    """Return *pools* in the order in which Karpenter tries them."""
    return sorted(pools, key=_order, reverse=True)


def _weight(pool: NodePool) -> int:
    return pool.spec.weight or 0


def values(pool: NodePool, key: str) -> Collection[str]:
    """Return the values of the label *key* that nodes of *pool* can have; spot is one if nothing is said about it."""
    labels, requirements = pool.spec.template.metadata.labels, pool.spec.template.spec.requirements
    if key in labels:
        return (labels[key],)
    values = next((each.values for each in requirements if each.key == key and each.operator == "In"), None)
    if values is not None:
        return values
    excluded = {value for each in requirements if each.key == key and each.operator == "NotIn" for value in each.values}
    return {SPOT, "on-demand"} - excluded if key == CAPACITY_TYPE else ()


def _accepts(pool: NodePool, pod: Pod) -> bool:
    """Return whether a new spot node of *pool* may accept *pod*, by its taints and the pod's node selector."""
    spec = pod.cls.spec
    hard = (taint for taint in pool.spec.template.spec.taints if taint.effect in ("NoSchedule", "NoExecute"))
    if not all(tolerated(taint, spec.tolerations) for taint in hard):
        return False
    asked = {**spec.node_selector}
    if asked.pop(CAPACITY_TYPE, SPOT) != SPOT or asked.pop(NODE_POOL, pool.metadata.name) != pool.metadata.name:
        return False
    return all(not (possible := values(pool, key)) or value in possible for key, value in asked.items())


def _is_full(snapshot: Snapshot, pool: NodePool) -> bool:
    """Return whether the nodes of *pool* have reached one of its limits."""
    return any(left <= 0 for left in left_of(pool, snapshot).values())
