"""How many pods of controllers run, and whether they stay: what is owed is counted against this.

A pod whose node is about to go counts only if another place is proved for it. Not thread-safe.
"""

import math
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Final

from predicates.objects import Node, Pod
from rescheduler.clock import Clock
from rescheduler.execution.cluster_view import ClusterView
from rescheduler.planning.controllers import Controller, ControllerState
from rescheduler.planning.debts import Replicas, count_replicas, counts_for, ready_for
from rescheduler.planning.last_look import OrderTerms, ReadLeases
from rescheduler.planning.policy import Destination
from rescheduler.planning.rules.minimum import keeping
from rescheduler.planning.rules.pod_traits import ends_with_node

#: By how many seconds a sum of floats may be later than a sum of times.
_ROUNDED_OFF: Final = 1e-6

#: For how many seconds it is known which pods have a place if their nodes go.
_PROVED_SECONDS: Final = 2.0


@dataclass(frozen=True, slots=True)
class _Counted:
    """The pods of a controller, as they were counted."""

    pods: tuple[Pod, ...]
    hosts: frozenset[str]
    uids: frozenset[str]
    inputs: object  #: what else the count depends on, but the time
    at: float  #: in monotonic seconds
    until: float  #: when the same pods count otherwise
    replicas: Replicas | None  #: None if none counts

    def holds(self, inputs: object, now: float) -> bool:
        """Return whether the count is still that of the same pods."""
        return self.inputs == inputs and self.at <= now < self.until


@dataclass(frozen=True, slots=True)
class _Counts:
    """The result of a count."""

    inputs: object
    at: float  #: in monotonic seconds
    until: float  #: when a pod counts otherwise if nothing else changes
    replicas: dict[Controller, Replicas]


class RunningPods:
    """Counts the pods of controllers in the watched cluster. What has not changed since the last call is not counted.

    A drain asks at each change of the cluster, and each change concerns few controllers.
    """

    def __init__(self, view: ClusterView, clock: Clock) -> None:
        self._view = view
        self._clock = clock
        #: Which nodes are lost, and which ones pods have left; when that was simulated; the pods without a place then;
        #: what else this follows from.
        self._lost: tuple[object, float, frozenset[str], object] = None, -math.inf, frozenset(), None
        self._counted: dict[Controller, _Counted] = {}  # at the last call
        self._last: _Counts | None = None  # unless a pod was in doubt

    def order_terms(self, node: str, states: Iterable[ControllerState] = ()) -> OrderTerms:
        """Return today's settings for the removal of *node*, and the other on-demand nodes that keep pods.

        The debts are those of earlier drains of *node*, also the settled ones. *states* are of the controllers whose
        pods have moved. If pods may go to any node, the pool defines which nodes it has.
        """
        facts = self._view.facts
        policy, debts = facts.policy, facts.known.memory.of_drains_of(node)
        moved = {owner for state in states for owner in state.owners}
        moved |= {(debt.controller.namespace, uid) for debt in debts for uid in debt.owner_uids}
        terms = OrderTerms(
            debts=debts,
            stays=lambda pod: ends_with_node(pod, policy),
            with_other_places=self._with_other_places(moved, node),
            proved_at=self._clock.monotonic(),
            became_ready=self._view.became_ready,
        )
        if policy.destination is Destination.OTHERS:
            return terms
        kept = keeping(facts.snapshot, facts.node_infos.on_demand, self._view.circumstances)
        return replace(terms, policy=policy, keeping=kept)

    def replicas(
        self,
        states: Iterable[ControllerState],
        node: str = "",
        staying: Collection[str] = (),
        evicted: Collection[str] = (),
        left: Collection[str] = (),
        read_leases: ReadLeases | None = None,
    ) -> dict[Controller, Replicas]:
        """Count the pods of each controller; see :func:`~rescheduler.planning.debts.count_replicas`.

        If the node of a pod is about to go, the nodes that pods have *left* are no other places for it. *read_leases*
        reads the Leases of Nodes: a pod does not stay if the kubelet of its node is dead. Pods have been Ready until
        the time of the watched state: what happened since is not known.
        """
        states, facts, now = list(states), self._view.facts, self._view.watched_at
        left, nodes = frozenset({*left, node} - {""}), facts.nodes
        terms = states, node, frozenset(staying), frozenset(evicted), left, facts.known.leader.ending
        inputs, last = (facts.snapshot.changes, *terms), self._last
        if last is not None and read_leases is None and last.at <= now < last.until and last.inputs == inputs:
            return dict(last.replicas)
        owned = facts.owned_by({owner for state in states for owner in state.owners})
        known = {state.controller: self._known(state, owned) for state in states}
        times = ready_for(facts.now, now, self._view.became_ready)
        hosts = frozenset[str]().union(*(each.hosts for each in known.values())) - left
        signs = {name: sign for name in hosts if name in nodes and (sign := facts.going(nodes[name]))}
        leases = {} if read_leases is None else read_leases(hosts)

        def at_risk(pod: Pod, node: Node) -> str:
            if node.name in leases and (dead := leases[node.name].expired(self._clock.now())):
                return f"node {node.name} of pod {pod.key}: {dead}"
            if (sign := signs.get(node.name)) is None or pod.key not in self._without_place(frozenset(signs), left):
                return ""
            return f"node {node.name} of pod {pod.key}: {sign}; no other node has room for the pod"

        def counted(state: ControllerState, before: _Counted) -> _Counted:
            terms = node, before.uids & frozenset(staying), before.uids & frozenset(evicted)
            doubtful = not before.hosts.isdisjoint(signs) or not before.hosts.isdisjoint(leases)
            inputs = (*terms, state.min_ready_seconds, tuple(map(nodes.get, before.hosts)), doubtful)
            if before.holds(inputs, now) and not doubtful:
                return before
            found = count_replicas(before.pods, [state], *terms, times, nodes.get, at_risk).get(state.controller)
            rest = counts_for(before.pods, state.min_ready_seconds, times)
            until = math.inf if rest is None else now + rest.total_seconds() - _ROUNDED_OFF
            return replace(before, inputs=inputs, at=now, until=until, replicas=found)

        self._counted = {state.controller: counted(state, known[state.controller]) for state in states}
        found = {each: known.replicas for each, known in self._counted.items() if known.replicas is not None}
        until = min((known.until for known in self._counted.values()), default=math.inf)
        self._last = None if signs or leases else _Counts(inputs, now, until, found)
        return dict(found)

    def _known(self, state: ControllerState, owned: Mapping[tuple[str, str], list[Pod]]) -> _Counted:
        """Return the last count of the pods that *state* has now; one without inputs if its pods have changed."""
        pods, before = tuple(pod for owner in state.owners for pod in owned[owner]), self._counted.get(state.controller)
        if before is not None and before.pods == pods:
            return before
        uids = frozenset(pod.uid for pod in pods)
        return _Counted(pods, _hosts({("", ""): pods}), uids, None, 0.0, math.inf, None)

    def _with_other_places(self, owners: Collection[tuple[str, str]], left: str) -> frozenset[str]:
        """Return the nodes with pods of *owners* that are about to go, and whose pods all have another place then.

        The node that the pods have *left* is none.
        """
        facts = self._view.facts
        hosts = _hosts(facts.owned_by(owners)) - {left}
        going = frozenset(name for name in hosts if (node := facts.node(name)) is not None and facts.going(node))
        without = self._without_place(going, frozenset({left})) if going else frozenset[str]()
        return frozenset(name for name in going if not any(pod.key in without for pod in facts.pods_of(name)))

    def _without_place(self, going: frozenset[str], left: frozenset[str]) -> frozenset[str]:
        """Return the pods (``namespace/name``) that have no place if the nodes *going* are lost together.

        The nodes that pods have *left* are no places: their machines may end.
        """
        now, (nodes, proved_at, homeless, inputs) = self._clock.monotonic(), self._lost
        if nodes == (going, left) and now < proved_at + _PROVED_SECONDS:
            return homeless
        ground = self._view.planner.round(self._view.circumstances).ground
        pods = (self._view.snapshot.pods_on[name].items() for name in sorted(going))
        current = ground, [{key: (pod.cls, pod.loads) for key, pod in each} for each in pods]
        if nodes != (going, left) or inputs != current:
            loss = self._view.planner.loss(self._view.circumstances, going, gone=left)
            homeless = frozenset(pod for each in loss.homeless for pod in each.pods)
            if not loss.judged:
                homeless = frozenset(pod.key for name in going for pod in self._view.facts.pods_of(name))
        self._lost = (going, left), now, homeless, current
        return homeless


def _hosts(owned: Mapping[tuple[str, str], Iterable[Pod]]) -> frozenset[str]:
    """Return the nodes with the pods of these owners."""
    return frozenset(pod.node_name for pods in owned.values() for pod in pods if pod.node_name)
