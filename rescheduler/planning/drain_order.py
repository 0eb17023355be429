"""The order in which on-demand nodes are considered for a drain.

The order decides which nodes come first. It does not change which nodes may be drained, or how many.
"""

from collections.abc import Iterable, Mapping
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from typing import Final, TypeAlias

from predicates.snapshot import Snapshot
from rescheduler.planning.money.prices import NodeFacts, PriceList, node_facts
from rescheduler.planning.policy import Circumstances, DrainOrder, Policy
from rescheduler.planning.timestamps import instant

_Key: TypeAlias = tuple[object, ...]

#: Stands in for a missing creation time: such nodes count as the newest.
_NEWEST: Final = datetime.max.replace(tzinfo=UTC)


def in_drain_order(
    names: Iterable[str], snapshot: Snapshot, policy: Policy, circumstances: Circumstances
) -> tuple[str, ...]:
    """Return the nodes *names*, which are sorted by requested CPU and name, in the order of *policy*.

    Nodes that have reached the maximum age come first. Nodes that are equal in the order of *policy* remain sorted by
    requested CPU and name. Nodes with pods of the namespaces `last` of *circumstances* come last.
    """
    names = _in_order_of_policy(names, snapshot, policy, circumstances)
    if circumstances.last:
        return tuple(sorted(names, key=lambda name: _last(name, snapshot, circumstances.last)))
    return tuple(names)


def _in_order_of_policy(
    names: Iterable[str], snapshot: Snapshot, policy: Policy, circumstances: Circumstances
) -> Iterable[str]:
    if policy.drain_order is DrainOrder.LEAST_REQUESTED and not policy.max_node_age:
        return names
    nodes = [node_facts(snapshot, name, spot=False) for name in names]
    ordered = sorted(nodes, key=lambda node: _key(node, policy, circumstances.prices))
    return [node.name for node in sorted(ordered, key=lambda node: not _expired(node, policy, circumstances.now))]


def _last(node: str, snapshot: Snapshot, numbers: Mapping[str, int]) -> int:
    return max((numbers.get(pod.namespace, 0) for pod in snapshot.pods_on[node].values()), default=0)


def next_expiry(names: Iterable[str], snapshot: Snapshot, policy: Policy, now: datetime) -> datetime | None:
    """Return when the next of the nodes *names* reaches the maximum age, or None if none will."""
    if not policy.max_node_age:
        return None
    created = (instant(node_facts(snapshot, name, spot=False).created) for name in names)
    expiries = (moment + timedelta(seconds=policy.max_node_age) for moment in created if moment is not None)
    return min((moment for moment in expiries if moment > now), default=None)


def _key(node: NodeFacts, policy: Policy, prices: PriceList) -> _Key:
    match policy.drain_order:
        case DrainOrder.COST:
            return _by_cost(node, prices)
        case DrainOrder.AGE:
            return (_created(node),)
        case DrainOrder.LEAST_REQUESTED:
            return ()


def _by_cost(node: NodeFacts, prices: PriceList) -> _Key:
    """Sort by price, the most expensive node first, then nodes without a price by vCPU and memory, largest first."""
    price = prices.per_hour(node)
    return price is None, -(price if price is not None else Decimal(0)), -node.cpu, -node.memory


def _created(node: NodeFacts) -> datetime:
    return instant(node.created) or _NEWEST


def _expired(node: NodeFacts, policy: Policy, now: datetime) -> bool:
    """Return whether *node* has reached ``--max-node-age``. A node without a creation time has not."""
    created = instant(node.created)
    if not policy.max_node_age or created is None:
        return False
    return (now - created).total_seconds() >= policy.max_node_age
