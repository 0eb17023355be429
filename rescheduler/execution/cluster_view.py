"""The watched cluster with a planner that is reused from round to round.

Not thread-safe. Results are valid until the next call.
"""

import math
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import replace
from datetime import datetime, timedelta
from typing import Final

from predicates.objects import Node, Object, Pod, ResourceQuota
from predicates.scheduler import DEFAULT_NAME
from predicates.snapshot import Snapshot, key_of
from rescheduler.clock import Clock
from rescheduler.draining.actions import read
from rescheduler.execution.watched_nodes import (
    State,
    WatchedNodes,
    removing,
    stale,
    vetoes_of_others,
    while_draining,
    why_unusable,
)
from rescheduler.planning.admission import CLASSES
from rescheduler.planning.controllers import Controller, ControllerReading, ControllerState
from rescheduler.planning.debts import Replicas, count_replicas
from rescheduler.planning.facts import FactsReader, RoundFacts
from rescheduler.planning.forms import instant
from rescheduler.planning.last_look import Fresh, OrderTerms, ReadLeases, is_closed, lag
from rescheduler.planning.memory import Memory
from rescheduler.planning.money.prices import PriceList
from rescheduler.planning.outcome import TO_SPOT, Blocker, Plan, Planning, PodRef, Purpose, Reason, Rejected, Verdict
from rescheduler.planning.planner import Planner
from rescheduler.planning.policy import Circumstances, Destination, LeaderFacts, Policy
from rescheduler.planning.refusals import KubeletRefusal, node_kind
from rescheduler.planning.replacements import ADMISSION, DERIVED_FROM
from rescheduler.planning.room.placeholders import Placeholder, of_installation
from rescheduler.planning.room.placeholders import read as read_placeholder
from rescheduler.planning.rules.candidates import removal, why_not_target
from rescheduler.planning.rules.minimum import keeping
from rescheduler.planning.rules.owners import Others, all_pods, controller_blockers, may_be_lost
from rescheduler.planning.rules.pod_traits import ends_with_node, job_blockers, keeps_its_identity, yields_room
from rescheduler.planning.rules.volumes import attachments, waits_for_detach
from rescheduler.planning.what_if.comparison import levers_of
from rescheduler.planning.what_if.overview import PLAN_COMMAND, Overview, overview

#: How long drains wait for a new pod that the scheduler has not processed yet.
SETTLING: Final = timedelta(minutes=1)

#: How long plans use templates and limits that are not watched, while nothing can be drained.
KNOWN: Final = timedelta(minutes=10)

#: The share of the planning time-out that is used for planning. The rest is a reserve: a step may take longer.
_PLANNED_SHARE: Final = 0.9

#: For how many seconds it is known which pods have a place if their nodes go.
_PROVED_SECONDS: Final = 2.0

#: The blockers of a node whose machine is terminated, and with it the kubelet.
_WITHOUT_KUBELET: Final = frozenset({Reason.NODE_NOT_READY, Reason.POD_TERMINATING, Reason.POD_STUCK_TERMINATING})


class ClusterView(WatchedNodes):
    """The watched cluster as planning and draining query it."""

    def __init__(
        self,
        state: State,
        policy: Policy,
        clock: Clock,
        holder: str,
        own_node: str = "",
        memory: Callable[[], Memory] = Memory,
        identity: str = "",
    ) -> None:
        """Create a view of *state*. *own_node* is the node of this process.

        *memory* returns what is remembered of earlier drains. *identity* is that of this installation; marks with
        another one belong to other installations.
        """
        super().__init__(state, policy)
        self.vetoes: Mapping[
            str, tuple[Blocker, ...]
        ] = {}  #: reasons against drains that do not follow from the watched state
        self.removed: frozenset[str] = frozenset()  #: nodes whose machines are terminating or gone
        self.ending: frozenset[str] = frozenset()  #: nodes that will be reclaimed soon
        self.left_pending: frozenset[str] = frozenset()  #: namespaces whose pending pods take no room
        self.ends_machines = False  #: whether the provider ends the machines of drained nodes; else an autoscaler does
        self.prices = PriceList()  #: for the drain order ``cost``
        self.memory = memory
        #: Returns the groups of on-demand nodes, and how many more nodes they may get; see :class:`LeaderFacts`.
        self.growth: Callable[[], Mapping[str, tuple[str, int]]] = dict
        self.plan_command = PLAN_COMMAND  #: the command line that plans as this process does
        #: Add to the snapshot what is not watched: groups of pods, and Deployments that may roll out.
        self.unwatched: tuple[Callable[[Snapshot], None], ...] = ()
        self._clock = clock
        self._as_of = clock.now()  #: the time of the watched state, as far as it is known here
        self._holder = holder
        self._own_node = own_node
        self._identity = identity
        self._facts_reader = FactsReader(policy)
        #: Which nodes are lost, and which ones pods have left; when that was simulated; the pods without a place then.
        self._lost: tuple[object, float, frozenset[str]] = None, -math.inf, frozenset()
        self._cached_planner: Planner | None = None
        self._planning_end = math.inf
        self._learned_at = math.inf  #: when the last templates were learned; infinite if there are none
        self._spent = 0.0  #: seconds of the next planning time-out that were used before the planning

    def why_unusable(self) -> str:
        """Return why the watched state cannot be used for decisions, or ""; see :func:`why_unusable`."""
        return why_unusable(self._state)

    def ages(self) -> Mapping[str, float]:
        """Return the seconds since the last event, bookmark or list of each kind."""
        return self._state.ages()

    def stale(self) -> str:
        """Return a message about the watches that are too old for decisions, or ""."""
        return stale(self.ages())

    def advance(self) -> Snapshot:
        snapshot = super().advance()
        self._as_of = self._clock.now()
        return snapshot

    def catch_up(self) -> None:
        """Apply the watched changes, for a round. The time this takes counts towards the next planning time-out."""
        start = self._clock.monotonic()
        snapshot = self.advance()
        for refresh in self.unwatched:
            refresh(snapshot)
        self._spent = self._clock.monotonic() - start

    def start_planning(self) -> None:
        """Start the planning time-out, which covers all planning until the next call."""
        self._planning_end = self._clock.monotonic() + _PLANNED_SHARE * self._policy.planning_timeout - self._spent
        self._spent = 0.0

    def first_plan(self, *, take_empty: Callable[[str], bool]) -> Planning:
        """Return verdicts up to the first node that can be drained. *take_empty* decides about nodes without pods."""
        circumstances = self._circumstances()
        return self._planner.first_plan(circumstances, take_empty=take_empty, seconds_left=self._seconds_left)

    def plan_each(self) -> Planning:
        """Return a verdict for each on-demand node, as if it were drained alone."""
        return self._planner.plan_each(self._circumstances(), seconds_left=self._seconds_left)

    def _seconds_left(self) -> float:
        return self._planning_end - self._clock.monotonic()

    def plan_node(self, node: str, evicted: Collection[str] = (), purpose: Purpose = TO_SPOT) -> Verdict:
        """Return a verdict for a node that is being drained. *evicted* are UIDs of its evicted pods."""
        circumstances = self._draining(node)
        verdict = self._planner.look_again(node, circumstances, evicted, purpose)
        if isinstance(verdict, Rejected) and self._machine_is_gone(verdict):
            return verdict if self._planner.must_move(node, circumstances) else Plan(node, ())
        return verdict

    def _machine_is_gone(self, rejected: Rejected) -> bool:
        """Return whether the node is blocked only because its machine was removed and its kubelet stopped."""
        reasons = {blocker.reason for blocker in rejected.blockers}
        ordered = rejected.node in self._circumstances().ordered
        return ordered and Reason.NODE_NOT_READY in reasons and reasons <= _WITHOUT_KUBELET

    def plan_alone(self, node: str, purpose: Purpose = TO_SPOT) -> Verdict:
        """Return a verdict for *node* by itself, with the checks of :meth:`first_plan`."""
        return self._planner.look_again(node, self._circumstances(), purpose=purpose)

    def learn(self, objects: Collection[tuple[str, Object]], namespaces: Collection[str]) -> bool:
        """Add what replacement pods are created from, each with its kind. Return whether any is new or has changed.

        *objects* are controllers with pod templates, older revisions of them, all LimitRanges and
        VerticalPodAutoscalers of *namespaces*, and all classes of priorities and runtimes.
        They are not watched: later plans use them until they are read again, or :meth:`forget_learned`.
        """
        snapshot = self.snapshot
        before = dict(snapshot.versions)
        present = {(kind, key_of(each)) for kind, each in objects}
        for kind in ADMISSION:
            for key in [key for key in snapshot.of(kind) if key.partition("/")[0] in namespaces]:
                if (kind, key) not in present:
                    snapshot.delete(kind, key)
        for kind in CLASSES:
            for key in [key for key in snapshot.of(kind) if (kind, key) not in present]:
                snapshot.delete(kind, key)
        for kind, each in objects:
            snapshot.upsert(kind, each)
        self._learned_at = self._clock.monotonic()
        return dict(snapshot.versions) != before

    def forget_learned(self) -> None:
        """Forget what was learned if nothing was for KNOWN: a node that it keeps is a candidate again, and is read."""
        if self._clock.monotonic() < self._learned_at + KNOWN.total_seconds():
            return
        self._learned_at, snapshot = math.inf, self.snapshot
        for kind in DERIVED_FROM:
            for key in list(snapshot.of(kind)):
                snapshot.delete(kind, key)

    def refused_by(self, quotas: Iterable[ResourceQuota], pods: Sequence[Pod]) -> tuple[Blocker, ...]:
        """Return why *quotas* would refuse replacements of *pods*, which are all the pods that a drain evicts."""
        return self._planner.refused_by(quotas, pods, self._circumstances())

    def planning(self) -> tuple[Planner, Circumstances]:
        """Return the planner for the current state, and the circumstances."""
        return self._planner, self._circumstances()

    def overview(self, prices: PriceList, time_is_up: Callable[[], bool]) -> Overview:
        """Plan all drains in sequence. Return the totals, with the levers that were tried until *time_is_up*."""
        planner, circumstances = self.planning()
        snapshot, planning = self.snapshot, planner.plan_all(circumstances)
        levers = levers_of(planning, planner, snapshot, self._policy, circumstances, prices, time_is_up)
        return overview(
            planning,
            snapshot,
            prices,
            levers.levers,
            levers_complete=levers.complete,
            now=circumstances.now,
            allow_fragile=self._policy.allow_fragile_plans,
            allow_returning=self._policy.allow_returning_plans,
            command=self.plan_command,
        )

    def order_terms(self, node: str, states: Iterable[ControllerState] = ()) -> OrderTerms:
        """Return today's settings for the removal of *node*, and the other on-demand nodes that keep pods.

        The debts are those of earlier drains of *node*, also the settled ones. *states* are of the controllers whose
        pods have moved. If pods may go to any node, the pool defines which nodes it has.
        """
        debts = self.memory().of_drains_of(node)
        moved = {owner for state in states for owner in state.owners}
        moved |= {(debt.controller.namespace, uid) for debt in debts for uid in debt.owner_uids}
        terms = OrderTerms(
            debts=debts,
            stays=self._ends_with_node,
            with_other_places=self._with_other_places(moved, node),
            proved_at=self._clock.monotonic(),
        )
        if self._policy.destination is Destination.OTHERS:
            return terms
        kept = keeping(self.snapshot, self.node_infos().on_demand, self._circumstances())
        return replace(terms, policy=self._policy, keeping=kept)

    def follow(
        self,
        node: str,
        due: Sequence[Pod],
        evicted: Collection[str] = (),
        step: Collection[str] = (),
        purpose: Purpose = TO_SPOT,
    ) -> Verdict:
        """Return whether the remaining pods of a node that is being drained still fit, those of the next *step* first.

        The replacement pods of *due*, which are evicted pods, are placed as well.
        """
        return self._planner.follow(node, self._draining(node), due, evicted, step, purpose)

    def _draining(self, node: str) -> Circumstances:
        """Return the circumstances for a node that is being drained: its own cooldown and vetoes do not count."""
        others = any(not self._ends_with_node(pod) for pod in self.pods_of(node))
        return while_draining(self._circumstances(), node, has_pods=others)

    def _ends_with_node(self, pod: Pod) -> bool:
        return ends_with_node(pod, self._policy)

    def fitting_pending(self) -> list[Pod]:
        """Return the pending pods that fit by the scheduler's rules, by name; see :meth:`Planner.fitting_pending`."""
        if not self.snapshot.pods_on.get(""):
            return []
        return self._planner.fitting_pending(self._circumstances())

    def waiting(self, patience: timedelta) -> list[Pod]:
        """Return pods, pending for at most *patience*, that may need the room that a drain would use.

        Pods of schedulers whose rules are not known are left out: nothing may ever schedule them.
        """
        if not patience:
            return []
        stuck = self._planner.waiting(self._circumstances(), patience)
        now, known = self._clock.now(), {pod.key for pod in stuck}
        oldest = now - min(patience, SETTLING)
        settling = (pod for pod in self.snapshot.pods_on[""].values() if _is_settling(pod, oldest))
        waiting = stuck + sorted((pod for pod in settling if pod.key not in known), key=lambda pod: pod.key)
        names = self._policy.scheduler_names
        return [pod for pod in waiting if not names or (pod.cls.spec.scheduler_name or DEFAULT_NAME) in names]

    def with_order(self, states: Mapping[Controller, ControllerState]) -> dict[Controller, ControllerState]:
        """Return *states*, in which custom controllers replace pods that keep their identity one at a time."""
        owners = {owner for state in states.values() if not state.controller.built_in for owner in state.owners}
        owned = self.owned_by(owners) if owners else {}
        return {
            controller: replace(state, one_at_a_time=True)
            if any(keeps_its_identity(pod) for owner in state.owners for pod in owned.get(owner, ()))
            else state
            for controller, state in states.items()
        }

    def is_ours(self, node: str) -> bool:
        """Return whether *node* has the drain taint and an annotation of this process."""
        known = self.node(node)
        if known is None or not is_closed(known):
            return False
        written = read(known)
        return written is not None and (written.holder, written.identity) == (self._holder, self._identity)

    def placeholders(self) -> list[Placeholder]:
        """Return the placeholders of this installation, by name."""
        pods = self.snapshot.placeholders.values()
        return of_installation(map(read_placeholder, pods), self._identity)

    def placeholders_for(self, node: str) -> dict[str, PodRef]:
        """Return the placeholders for the pods of *node*, by the UID of the pod."""
        return {
            placeholder.for_pod_uid: placeholder.ref
            for placeholder in self.placeholders()
            if placeholder.for_node == node
        }

    def removed_by(self, node: str) -> str:
        """Return the evidence that another tool is removing *node*, or ""."""
        known = self.node(node)
        blocker = removal(known) if known is not None else None
        return blocker.detail if blocker is not None else ""

    def lost(self, targets: Iterable[str]) -> str:
        """Return the first of *targets* that no longer accepts pods, and why, or ""."""
        for name in sorted(targets):
            node = self.node(name)
            why = "it is gone" if node is None else why_not_target(node)
            if why is not None:
                return f"node {name}: {why}"
        return ""

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
        states = list(states)
        left, now = frozenset({*left, node} - {""}), self._as_of
        owned = self.owned_by({owner for state in states for owner in state.owners})
        hosts, nodes = _hosts(owned) - left, self.nodes()
        signs = {name: sign for name in hosts if name in nodes and (sign := self._sign(nodes[name]))}
        leases = {} if read_leases is None else read_leases(hosts)

        def at_risk(pod: Pod, node: Node) -> str:
            if node.name in leases and (dead := leases[node.name].expired(self._clock.now())):
                return f"node {node.name} of pod {pod.key}: {dead}"
            if (sign := signs.get(node.name)) is None or pod.key not in self._without_place(frozenset(signs), left):
                return ""
            return f"node {node.name} of pod {pod.key}: {sign}; no other node has room for the pod"

        pods = (pod for pods in owned.values() for pod in pods)
        return count_replicas(pods, states, node, staying, evicted, now, nodes.get, at_risk)

    def _with_other_places(self, owners: Collection[tuple[str, str]], left: str) -> frozenset[str]:
        """Return the nodes with pods of *owners* that are about to go, and whose pods all have another place then.

        The node that the pods have *left* is none.
        """
        going = self._about_to_go(_hosts(self.owned_by(owners)) - {left})
        without = self._without_place(going, frozenset({left})) if going else frozenset[str]()
        return frozenset(name for name in going if not any(pod.key in without for pod in self.pods_of(name)))

    def _about_to_go(self, names: Iterable[str]) -> frozenset[str]:
        """Return which of the nodes *names* are about to go."""
        return frozenset(name for name in names if (node := self.node(name)) is not None and self._sign(node))

    def _sign(self, node: Node) -> str:
        """Return why *node* is about to go, or ""."""
        return why_not_target(node) or ("the provider will reclaim it soon" if node.name in self.ending else "")

    def _without_place(self, going: frozenset[str], left: frozenset[str]) -> frozenset[str]:
        """Return the pods (``namespace/name``) that have no place if the nodes *going* are lost together.

        The nodes that pods have *left* are no places: their machines may end.
        """
        now = self._clock.monotonic()
        if self._lost[0] != (going, left) or now >= self._lost[1] + _PROVED_SECONDS:
            loss = self._planner.loss(self._circumstances(), going, gone=left)
            homeless = frozenset(pod for each in loss.homeless for pod in each.pods)
            if not loss.judged:
                homeless = frozenset(pod.key for name in going for pod in self.pods_of(name))
            self._lost = (going, left), now, homeless
        return self._lost[2]

    def job_blockers(self, states: Iterable[ControllerState], pods: Iterable[Pod]) -> tuple[Blocker, ...]:
        """Return why *pods* of one node must not be evicted, because of Jobs among *states*."""
        return job_blockers(states, pods, self._policy.move_jobs)

    def all_pods(self, reading: ControllerReading) -> Mapping[ControllerState, Sequence[Pod]]:
        """Return all pods, on any node, of each controller in *reading*."""
        return all_pods(reading.states.values(), self.snapshot)

    def controller_blockers(
        self, reading: ControllerReading, owned: Mapping[ControllerState, Sequence[Pod]], pods: Sequence[Pod]
    ) -> tuple[Blocker, ...]:
        """Return why *pods* of one node must not be evicted, because of their controllers; see :meth:`all_pods`."""
        return tuple(controller_blockers(reading, pods, Others(owned.__getitem__, self.node), self._policy))

    def larger(self, pod: Pod, predecessors: Iterable[Pod]) -> str:
        """Return what the replacement *pod* asks for beyond the plan, or ""; see :meth:`Planner.larger`."""
        return self._planner.larger(pod, predecessors)

    def waits_for_detach(self, pod: Pod) -> str:
        """Return which volume of the bound *pod* is still attached to another node, or ""."""
        snapshot = self.snapshot
        return waits_for_detach(pod, snapshot, attachments(snapshot))

    def may_be_lost(self, pod: Pod) -> bool:
        """Return whether *pod* may be evicted although no controller replaces it."""
        return may_be_lost(pod, self._policy)

    def lag(self, fresh: Fresh, node: str) -> str:
        """Return the first difference by which the watched state lags behind the consistent read *fresh*, or ""."""
        if not self.is_ours(node):
            return f"the watch has not reported the taint and the annotation of node {node} yet"
        return lag(fresh, self.snapshot)

    def pods(self) -> dict[str, Pod]:
        """Return all pods that have not finished, by key, in a copy that later reads of the view do not change."""
        return dict(self.snapshot.pods)

    def preempted(self) -> Mapping[str, Pod]:
        """Return the last pods that the scheduler has preempted, also after they are gone, by UID."""
        return dict(self.snapshot.preempted)

    def refused(self) -> Mapping[str, Pod]:
        """Return the last pods that kubelets have refused, also after they are gone, by UID."""
        return self.snapshot.refused

    def refusal(self, pod: Pod, owner: Controller) -> KubeletRefusal:
        """Return what the refusal of *pod*, which *owner* has created, tells about its node."""
        node = self.node(pod.node_name)
        kind = node_kind({} if node is None else node.metadata.labels, self._policy)
        return KubeletRefusal(owner, self._planner.digest_of(pod), kind, pod.node_name, pod.refused, self._clock.now())

    def yields_room(self, pod: Pod) -> bool:
        """Return whether *pod* gives its room to pods with a higher priority: nothing is owed if it is taken."""
        return yields_room(pod.cls, self._policy)

    @property
    def _planner(self) -> Planner:
        snapshot = self.snapshot
        if self._cached_planner is None:
            self._cached_planner = Planner(snapshot, self._policy)
        return self._cached_planner

    def leader_facts(self) -> LeaderFacts:
        """Return what this process knows that is not in the cluster."""
        return LeaderFacts(
            own=self._own_node,
            ends_machines=self.ends_machines,
            ending=tuple(sorted(self.ending)),
            ended=tuple(sorted(self.removed)),
            growth=self.growth(),
            left_pending=tuple(sorted(self.left_pending)),
        )

    def _circumstances(self) -> Circumstances:
        now, written = self._clock.now(), self.written()
        facts = RoundFacts(
            now=now,
            holder=self._holder,
            leader=self.leader_facts(),
            memory=self.memory(),
            ordered=removing(written),
            foreign=vetoes_of_others(written, self._identity, now),
            checked=self.vetoes,
            prices=self.prices,
        )
        circumstances = self._facts_reader.circumstances(self.snapshot, facts)
        if self._policy.destination is Destination.OTHERS:
            return replace(circumstances, left_pending=self._namespaces_left_pending(circumstances))
        return circumstances

    def _namespaces_left_pending(self, circumstances: Circumstances) -> frozenset[str]:
        """Return the namespaces of the pods that the scheduler leaves pending where they fit: they take no room."""
        pending = self.snapshot.pods_on.get("")
        return frozenset(pod.namespace for pod in self._planner.left_pending(circumstances)) if pending else frozenset()


def _hosts(owned: Mapping[tuple[str, str], Iterable[Pod]]) -> frozenset[str]:
    """Return the nodes with the pods of these owners."""
    return frozenset(pod.node_name for pods in owned.values() for pod in pods if pod.node_name)


def _is_settling(pod: Pod, oldest: datetime) -> bool:
    """Return whether *pod* was created after *oldest* and the scheduler has not processed it yet."""
    waits = pod.unschedulable_since is None and pod.deletion_timestamp is None
    return waits and not pod.cls.spec.scheduling_gates and (instant(pod.creation_timestamp) or oldest) > oldest
