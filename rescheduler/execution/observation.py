"""The watched cluster as one drain observes it, and its plan from a consistent read. Separate from the
execution, because it only reads.
"""

from collections import defaultdict
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any, Final

from predicates.objects import Node, Pod
from rescheduler.clock import Clock
from rescheduler.draining.actions import LookAgain, PlanAgain
from rescheduler.draining.events import (
    ControllersRead,
    Looked,
    NodeGone,
    NodeSeen,
    NotDone,
    Outcome,
    PlannedAgain,
    Preemption,
    RefusedPod,
)
from rescheduler.draining.state import Drain, targets
from rescheduler.execution.cluster_view import ClusterView
from rescheduler.execution.context import StepReading
from rescheduler.execution.running_pods import RunningPods
from rescheduler.planning.controllers import Controller, ControllerReading, ControllerState
from rescheduler.planning.debts import Debt, Replicas
from rescheduler.planning.forms import instant
from rescheduler.planning.last_look import Fresh, OrderTerms, lag
from rescheduler.planning.outcome import Blocker, DrainKind, Plan, PodRef, Reason, Verdict
from rescheduler.planning.refusals import KubeletRefusal, refusing_nodes
from rescheduler.planning.rules.owners import may_be_lost, with_order
from rescheduler.planning.rules.pod_traits import belongs_to_node, job_blockers, named_controller, yields_room
from rescheduler.planning.rules.volumes import attachments, waits_for_detach

# The watched cluster as one drain observes it, and the pods that the drain accounts for.


class Observation:
    """The watched state of one node that is being drained. For one thread."""

    def __init__(self, view: ClusterView, node: Node, clock: Clock) -> None:
        self._view = view
        self._clock = clock
        self._running = RunningPods(view, clock)
        self._node = node
        self._earlier: frozenset[str] | None = None  # UIDs of the pods that are not replacement pods of this drain
        self._bound: frozenset[str] = frozenset()  # UIDs of the replacement pods that were bound at the last call
        self._before: frozenset[str] = frozenset()  # UIDs of the pods that were preempted before the first eviction
        self._preempted: dict[str, Pod] = {}  # by UID: the pods that replacement pods of this drain have preempted
        self._owed: dict[Controller, Debt] = {}  # to the controllers of these pods
        self._mates: tuple[str, ...] = ()  # the other Nodes of the machine

    @property
    def node_exists(self) -> bool:
        """Whether the watched state contains this node, and not another one with the same name."""
        node = self._view.facts.node(self._node.name)
        return node is not None and node.metadata.uid == self._node.metadata.uid

    def event(self, drain: Drain) -> NodeSeen | NodeGone:
        """Return the watched state at the current time."""
        name = self._node.name
        if not self.node_exists:
            return NodeGone(f"node {name} is gone")
        self._note_resumed(drain)
        facts, pods = self._view.facts, self._view.facts.pods_of(name)
        self._mates = facts.mates(name)
        return NodeSeen(
            present=frozenset(pod.uid for pod in pods),
            replicas=self._replicas(drain, drain.states),
            tainted=facts.is_ours(name),
            lost=facts.lost(drain.targets),
            stale=bool(self._view.stale()),
            removed_by=facts.removed_by(name),
            placeholders={each.for_pod_uid: each.ref for each in facts.placeholders(name)},
            terminating=frozenset(pod.uid for pod in pods if pod.deletion_timestamp is not None),
            preemption=self._preemption(drain),
            refused=self._refused(drain),
            detaching=self._detaching(drain),
        )

    def controllers_read(self, drain: Drain, reading: ControllerReading, pods: Mapping[str, Pod]) -> ControllersRead:
        """Return the event for a read of controllers. Jobs are checked again, because more pods may have been bound.

        *pods* are the pods of the drain's plans, by UID.
        """
        waiting = [pods[victim.pod.uid] for victim in drain.waiting if victim.pod.uid in pods]
        states, policy = with_order(reading.states, self._view.snapshot), self._view.facts.policy
        return ControllersRead(
            states,
            reading.topmost,
            self._replicas(drain, {**drain.states, **states}),
            (*job_blockers(states.values(), waiting, policy.move_jobs), *self._larger(drain, states, pods)),
            frozenset(pod.uid for pod in waiting if may_be_lost(pod, policy)),
        )

    def order_terms(self, drain: Drain) -> OrderTerms:
        """Return what the order for the machine is compared with."""
        states = [drain.states[controller] for controller in drain.debts if controller in drain.states]
        self._mates = self._view.facts.mates(self._node.name)
        terms = self._running.order_terms(self._node.name, states)
        return replace(
            terms,
            in_use=drain.resumed or bool(drain.debts or drain.evicted),
            debts=(*drain.debts.values(), *terms.debts),
            preempted=lambda: tuple(self._owed.values()),
            mates=lambda: self._mates,
            evicted=evicted(drain),
            ready=drain.limits.landing > 0,
        )

    def _larger(
        self, drain: Drain, states: Mapping[Controller, ControllerState], pods: Mapping[str, Pod]
    ) -> Iterator[Blocker]:
        """Yield a blocker for the remaining pods if a replacement pod asks for more than it was planned with."""
        if not drain.waiting or self._earlier is None:
            return
        evicted_of: defaultdict[Controller, list[Pod]] = defaultdict(list)
        for ref in drain.evicted:
            if ref.uid in pods and ref.uid in drain.controllers:
                evicted_of[drain.controllers[ref.uid]].append(pods[ref.uid])
        owners = {owner: known for known in evicted_of if known in states for owner in states[known].owners}
        for pod, controller in self._owned(owners):
            if pod.uid in self._earlier:
                continue
            if why := self._view.planner.larger(pod, evicted_of[controller]):
                yield Blocker(Reason.NO_ROOM, f"replacement pod of {controller}: {why}", pod.key)

    def _preemption(self, drain: Drain) -> Preemption | None:
        """Return the pods that replacement pods of *drain* have preempted, and what is owed to their controllers.

        A preempted pod does not tell for which pod it makes room. It is attributed to the drain if a replacement pod
        with a higher priority waits, or was bound to its node since the last call. A pod that is being deleted on the
        node where a waiting replacement pod is nominated counts, too. So does a pod of which an Event tells, from the
        time before a resumption: its owner is not known any more if it is gone.
        """
        if self._earlier is None:
            return None
        replacements = self._new_pods(drain)
        moved = [pod for pod in replacements if pod.uid not in self._bound]
        self._bound |= {pod.uid for pod in moved if pod.node_name}
        for pod in self._victims(moved):
            self._preempted[pod.uid] = pod
            if pod.owner is not None and not belongs_to_node(pod):
                owner = named_controller(pod.namespace, pod.owner)
                lost = [each for each in self._preempted.values() if each.owner == pod.owner]
                own = owner.namespace, owner.uid
                self._owed.setdefault(owner, _debt_for(owner, lost, self._view.facts.owned_by({own})[own]))
        uids = {pod.uid for pod in replacements}
        told = {pod.key for pod in drain.preempted if pod.by in uids}
        keys = told | {pod.key for pod in self._preempted.values()}
        return Preemption(tuple(sorted(keys)), tuple(self._owed.values())) if keys else None

    def _refused(self, drain: Drain) -> RefusedPod | None:
        """Return a replacement pod of *drain* that the kubelet of its node has refused, or None."""
        if self._earlier is None:
            return None
        owners = self._owners(drain)
        for uid, pod in self._view.snapshot.refused.items():
            owner = owners.get((pod.namespace, pod.owner.uid)) if pod.owner is not None else None
            if owner is not None and drain.has_taken_from(owner) and uid not in self._earlier:
                return RefusedPod(pod.key, self._refusal(pod, owner))
        return None

    def _refusal(self, pod: Pod, owner: Controller) -> KubeletRefusal:
        """Return what the refusal of *pod*, which *owner* has created, tells about its node."""
        facts, digest = self._view.facts, self._view.planner.digest_of(pod)
        node = facts.node(pod.node_name)
        nodes = refusing_nodes({} if node is None else node.metadata.labels, facts.policy, pod.refused)
        return KubeletRefusal(owner, digest, nodes, pod.node_name, pod.refused, self._clock.now())

    def _owners(self, drain: Drain) -> dict[tuple[str, str], Controller]:
        """Return the controllers of *drain* that are known, by what their pods name as their controller."""
        known = drain.debts.keys() & drain.states.keys()
        return {owner: controller for controller in known for owner in drain.states[controller].owners}

    def _victims(self, moved: list[Pod]) -> list[Pod]:
        """Return the pods that one of *moved* preempts, and that are not known yet."""
        nominated = {pod.nominated_node_name for pod in moved if pod.nominated_node_name}
        facts = self._view.facts
        leaving = {pod.uid: pod for node in nominated for pod in facts.pods_of(node) if pod.deletion_timestamp}
        others = {**leaving, **facts.snapshot.preempted}.values()
        return [
            pod
            for pod in others
            if pod.node_name != self._node.name
            and not yields_room(pod.cls, facts.policy)
            and pod.uid not in self._preempted
            and pod.uid not in self._before
            and any(_makes_room_for(pod, each) for each in moved)
        ]

    def _detaching(self, drain: Drain) -> dict[Controller, str]:
        """Return which replacement pods are bound, but wait until a volume is detached from another node."""
        known = drain.owed.keys() & drain.states.keys()  # a resumed rolling update is followed before they are read
        unpaid = [controller for controller in sorted(known) if drain.shortfall(controller).bound <= 0]
        if not unpaid or self._earlier is None:
            return {}
        owners = {owner: controller for controller in unpaid for owner in drain.states[controller].owners}
        waiting: dict[Controller, str] = {}
        snapshot = self._view.snapshot
        for pod, controller in self._owned(owners):
            if not pod.cls.claims or controller in waiting or pod.uid in self._earlier or not pod.node_name:
                continue
            starting = pod.phase == "Pending" or not pod.ready  # before a kubelet reports on it, it counts as Ready
            if starting and (why := waits_for_detach(pod, snapshot, attachments(snapshot))):
                waiting[controller] = why
        return waiting

    def _new_pods(self, drain: Drain) -> list[Pod]:
        """Return the replacement pods of *drain*, once the earlier pods of its controllers are known."""
        return [pod for pod, _ in self._owned(self._owners(drain)) if pod.uid not in (self._earlier or ())]

    def _owned(self, owners: Mapping[tuple[str, str], Controller]) -> Iterator[tuple[Pod, Controller]]:
        """Yield the pods of *owners*, each with its controller."""
        for owner, pods in self._view.facts.owned_by(owners.keys()).items():
            for pod in pods:
                yield pod, owners[owner]

    def _note_resumed(self, drain: Drain) -> None:
        """Note the earlier pods of a resumed drain: those that are older than the drain.

        Pods that were preempted before the earlier process ended can then still be attributed to the drain, but not to
        replacement pods that are created later.
        """
        if self._earlier is not None or not drain.resumed or drain.since is None or drain.debts.keys() - drain.states:
            return
        began = drain.since.replace(microsecond=0)  # timestamps of pods have no fractions
        owners = {owner for controller in drain.debts for owner in drain.states[controller].owners}
        pods = [pod for owned in self._view.facts.owned_by(owners).values() for pod in owned]
        pods += self._view.snapshot.refused.values()
        self._earlier = frozenset(pod.uid for pod in pods if (instant(pod.creation_timestamp) or began) < began)
        self._preemption(drain)
        self._before = frozenset(self._view.snapshot.preempted)

    def landed(self, drain: Drain) -> frozenset[str]:
        """Return the nodes of the replacement pods. The first call must be made before the first eviction."""
        owners = {owner for controller in drain.debts for owner in drain.states[controller].owners}
        pods = [pod for owned in self._view.facts.owned_by(owners).values() for pod in owned]
        if self._earlier is None:
            self._earlier = frozenset((*(pod.uid for pod in pods), *self._view.snapshot.refused))
            self._before = frozenset(self._view.snapshot.preempted)
        nodes = {pod.node_name for pod in pods if pod.uid not in self._earlier}
        return frozenset(nodes - {"", self._node.name})

    def _replicas(self, drain: Drain, states: Mapping[Controller, ControllerState]) -> dict[Controller, Replicas]:
        """Count the pods. Those on a node that stays count like all others: they do not have to leave it."""
        name = self._node.name
        left = name if drain.purpose.kind is not DrainKind.MAKES_ROOM else ""
        return self._running.replicas(states.values(), left, staying(drain), evicted(drain), {name})


def _makes_room_for(victim: Pod, pod: Pod) -> bool:
    """Return whether *victim* may have been preempted for *pod*, by their priorities and the node of *pod*."""
    node = pod.node_name or pod.nominated_node_name
    return (victim.cls.spec.priority or 0) < (pod.cls.spec.priority or 0) and node in ("", victim.node_name)


def _debt_for(owner: Controller, preempted: list[Pod], pods: Iterable[Pod]) -> Debt:
    """Return the debt to *owner* for its *preempted* pods, in addition to its other *pods*."""
    uids = {pod.uid for pod in preempted}
    left = [pod for pod in pods if pod.uid not in uids and pod.deletion_timestamp is None]
    bound, ready = (sum(map(bool, each)) for each in ((p.node_name for p in left), (p.ready for p in left)))
    return Debt(owner, ready + len(preempted), bound + len(preempted), owner_uids=(owner.uid,))


def staying(drain: Drain) -> frozenset[str]:
    """Return the UIDs of the pods that still have to be evicted, or that a roll-out in progress replaces."""
    requested = (victim for victim in drain.victims.values() if not victim.accepted)
    replaced = drain.rollout.mark.pods if drain.rollout is not None else ()
    return frozenset((*(victim.pod.uid for victim in (*drain.waiting, *requested)), *replaced))


def evicted(drain: Drain) -> frozenset[str]:
    """Return the UIDs of the pods that this drain has evicted."""
    return frozenset(pod.uid for pod in drain.evicted)


def leaving(drain: Drain) -> frozenset[str]:
    """Return the UIDs of the pods that this drain has evicted, or that an earlier process may have evicted."""
    return evicted(drain) | frozenset(drain.intended)


def evicted_for_good(drain: Drain) -> Collection[str]:
    """Return :func:`leaving` without the pods that still have to be evicted."""
    return leaving(drain) - staying(drain)


# Plan a node from a consistent read, once the watched state has caught up with that read.
#
# The read is made after the node was tainted, so the first plan contains every pod that was bound before the taint. It
# is repeated before each step, so a step relies on nothing that is older than the step.

#: Seconds within which the watched state must catch up with a consistent read; otherwise the read is repeated.
CATCH_UP_SECONDS: Final = 3.0

#: Maximum number of consistent reads for one plan.
READS: Final = 5


@dataclass(frozen=True, slots=True)
class _Reading:
    """A consistent read that the watched state has not caught up with yet."""

    fresh: Fresh
    step: StepReading | None  #: with the controllers, if it was made for a step
    at: float  #: monotonic seconds


class FreshPlanning:
    """The actions :class:`LookAgain` and :class:`PlanAgain` after their consistent read. Not thread-safe.

    The state machine has at most one of these actions in flight.
    """

    def __init__(
        self,
        node: Node,
        view: ClusterView,
        observation: Observation,
        clock: Clock,
        read: Callable[[LookAgain | PlanAgain], None],
    ) -> None:
        """Create the planning of *node*. *read* requests a consistent read."""
        self._observation = observation
        self.pods: dict[str, Pod] = {}  #: all pods of the plans, by UID
        self._node = node
        self._view = view
        self._clock = clock
        self._read = read
        self._action: LookAgain | PlanAgain = LookAgain()
        self._reading: _Reading | None = None  # None during a read
        self._reads = 0  # since the state machine requested the action

    def begin(self, action: LookAgain | PlanAgain) -> None:
        """Request the read for *action*."""
        self._reads = 0
        self._read_again(action)

    def store(self, read: Fresh | StepReading) -> None:
        """Store a read."""
        fresh, step = (read.fresh, read) if isinstance(read, StepReading) else (read, None)
        self._reading = _Reading(fresh, step, self._clock.monotonic())

    def event(self, drain: Drain) -> Looked | PlannedAgain | NotDone[Any] | None:
        """Return the plan or a failure. None while the watched state lags behind the read, or during a read."""
        reading, name = self._reading, self._node.name
        if reading is None:
            return None
        if not self._observation.node_exists:
            return self._failed(f"node {name} is gone", node_gone=True)
        behind = self._lag(reading.fresh)
        if not behind:
            return self._planned(reading, drain)
        if self._clock.monotonic() < reading.at + CATCH_UP_SECONDS:
            return None
        if self._reads >= READS:
            return self._failed(f"the watched state lags behind the API server: {behind}")
        self._read_again(self._action)
        return None

    def _lag(self, fresh: Fresh) -> str:
        """Return the first difference by which the watched state lags behind the consistent read *fresh*, or ""."""
        if not self._view.facts.is_ours(self._node.name):
            return f"the watch has not reported the taint and the annotation of node {self._node.name} yet"
        return lag(fresh, self._view.snapshot)

    def _planned(self, reading: _Reading, drain: Drain) -> Looked | PlannedAgain | NotDone[Any] | None:
        """Plan the node. If target nodes of the plan were not read, read again and return None."""
        verdict = self._verdict(drain)
        needed = self._needed(verdict, drain)
        if unread := needed - reading.fresh.asked:
            if self._reads >= READS:
                return self._failed(f"the plan changes with each read: node {min(unread)} was not read")
            self._read_again(replace(self._action, targets=self._action.targets | needed))
            return None
        self._reading = None
        if reading.step is None:
            self.pods |= {pod.uid: pod for pod in self._view.facts.pods_of(self._node.name)}
            return Looked(verdict)
        read = self._observation.controllers_read(drain, reading.step.controllers, self.pods)
        return PlannedAgain(verdict, read, reading.step.ending)

    def _verdict(self, drain: Drain) -> Verdict:
        if isinstance(self._action, LookAgain):
            return self._view.plan_node(self._node.name, leaving(drain), drain.purpose)
        step = {victim.pod.uid for victim in drain.step}
        due = self._known(self._action.due)
        return self._view.follow(self._node.name, due, evicted_for_good(drain), step, drain.purpose)

    def _needed(self, verdict: Verdict, drain: Drain) -> frozenset[str]:
        """Return the target nodes that must have been read: of all pods, or of the pods in the step."""
        if not isinstance(verdict, Plan):
            return frozenset()
        if isinstance(self._action, LookAgain):
            return targets(verdict)
        step = {victim.pod.uid for victim in drain.step}
        return frozenset(placement.node for placement in verdict.placements if placement.pod.uid in step)

    def _known(self, refs: Iterable[PodRef]) -> list[Pod]:
        return [self.pods[ref.uid] for ref in refs if ref.uid in self.pods]

    def _failed(self, why: str, *, node_gone: bool = False) -> NotDone[Any]:
        self._reading = None
        action, gone = type(self._action), Outcome.GONE
        if action is PlanAgain:
            gone = Outcome.UNKNOWN  # the watched state shows soon that the node is gone
        return NotDone(action, why, gone if node_gone else Outcome.FAILED)

    def _read_again(self, action: LookAgain | PlanAgain) -> None:
        self._action, self._reading = action, None
        self._reads += 1
        self._read(action)
