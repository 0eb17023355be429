"""What plans depend on besides the objects of the cluster, and the circumstances that follow from it.

The daemon, the commands and the proxy plan in the same circumstances, because all of them get theirs from here.
"""

from collections import Counter
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import TYPE_CHECKING

from predicates.snapshot import Snapshot
from rescheduler.planning.debts import OpenDebt
from rescheduler.planning.money.prices import PriceList, kind
from rescheduler.planning.movements import OwnerWait, blockers_by_node
from rescheduler.planning.outcome import Blocker
from rescheduler.planning.policy import Circumstances, Destination, LeaderFacts, Policy
from rescheduler.planning.rules.candidates import budgets_in_use, groups, never_removed, static_capacity

if TYPE_CHECKING:
    from rescheduler.planning.memory import Memory


@dataclass(frozen=True, slots=True, kw_only=True)
class RoundFacts:
    """What is known in one round besides the objects of the cluster and the policy."""

    now: datetime
    holder: str = ""  #: our identity in the annotation on drained nodes
    leader: LeaderFacts = field(default_factory=LeaderFacts)
    memory: "Memory | None" = None  #: None if it is not known
    ordered: frozenset[str] = frozenset()  #: nodes with a mark that their machines may have been ordered away
    foreign: Mapping[str, tuple[Blocker, ...]] = field(default_factory=dict)  #: of nodes that others drain
    checked: Mapping[str, tuple[Blocker, ...]] = field(default_factory=dict)  #: of nodes that were read more closely
    prices: PriceList = field(default_factory=PriceList)


class FactsReader:
    """Derives circumstances from facts. What depends on all nodes or pods is computed once per change."""

    def __init__(self, policy: Policy) -> None:
        self._policy = policy
        self._counted: tuple[object, Mapping[str, int]] = None, {}  # what it depends on, pods by namespace
        self._set_aside: tuple[object, Mapping[str, tuple[Blocker, ...]]] = None, {}  # likewise, by node
        self._grown: tuple[object, Mapping[str, tuple[str, int]]] = None, {}  # likewise, by node

    def circumstances(self, snapshot: Snapshot, facts: RoundFacts) -> Circumstances:
        """Return the circumstances of plans for *snapshot*."""
        now, memory, leader = facts.now, facts.memory, facts.leader
        waits = {} if memory is None else memory.not_recovered.active(now)
        pooled = budgets_in_use(snapshot, now) if leader.ends_machines else never_removed(snapshot, now)
        static, aside = static_capacity(snapshot), self._aside(snapshot, waits, () if memory is None else memory.unpaid)
        return Circumstances(
            now,
            cooling={} if memory is None else memory.cooldowns.active(now),
            holder=facts.holder,
            own=leader.own,
            ordered=facts.ordered.union(leader.ended),
            ending=frozenset(leader.ending),
            vetoes={**pooled, **static, **aside, **facts.checked, **facts.foreign},
            prices=facts.prices,
            last={} if memory is None else self._last(snapshot, memory, now),
            settling={} if memory is None else memory.pools.settling(now),
            rested={}
            if memory is None
            else memory.leftovers.resting(now, timedelta(seconds=self._policy.leftover_rest)),
            refused={} if memory is None else memory.refusals.learned(now),
            growth=self._growth(snapshot, leader.growth),
            left_pending=frozenset(leader.left_pending),
        )

    def _last(self, snapshot: Snapshot, memory: "Memory", now: datetime) -> Mapping[str, int]:
        """Return the namespaces whose nodes come last in the drain order; see :meth:`Movements.restless`."""
        limit = memory.settings.moves_per_pod or 0
        return memory.movements.restless(now, limit, lambda: self._count_by_namespace(snapshot))

    def _count_by_namespace(self, snapshot: Snapshot) -> Mapping[str, int]:
        key = snapshot, snapshot.revision, snapshot.unplaced
        if self._counted[0] != key:
            self._counted = key, Counter(pod.namespace for pod in snapshot.pods.values())
        return self._counted[1]

    def _aside(
        self, snapshot: Snapshot, waits: Mapping[str, OwnerWait], ledger: tuple[OpenDebt, ...]
    ) -> Mapping[str, tuple[Blocker, ...]]:
        """Return the nodes that are kept because pods did not run in time; the same object while nothing changes."""
        if not (waits or ledger):
            return {}
        key = snapshot, snapshot.revision, snapshot.unplaced, dict(waits), ledger
        if self._set_aside[0] != key:
            nodes = self._drained_nodes(snapshot)
            self._set_aside = key, blockers_by_node(snapshot.pods.values(), waits, ledger, nodes.__contains__)
        return self._set_aside[1]

    def _growth(self, snapshot: Snapshot, by_sample: Mapping[str, tuple[str, int]]) -> Mapping[str, tuple[str, int]]:
        """Return, by on-demand node, its group and how many more nodes the group may get: none if it is not known."""
        if not by_sample:
            return {}
        key = snapshot, snapshot.revision, dict(by_sample)
        if self._grown[0] != key:
            kinds = {node.name: kind(node) for node in snapshot.nodes}
            by_kind = {kinds[name]: size for name, size in by_sample.items() if name in kinds}
            nodes = self._drained_nodes(snapshot)
            self._grown = key, {name: by_kind.get(kinds[name], ("", 0)) for name in nodes}
        return self._grown[1]

    def _drained_nodes(self, snapshot: Snapshot) -> Collection[str]:
        """Return the nodes that may be drained: the on-demand nodes, or all if pods may go to any node."""
        to_spot = self._policy.destination is Destination.SPOT
        return frozenset(groups(snapshot, self._policy).on_demand) if to_spot else snapshot.nodes.row
