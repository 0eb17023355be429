"""Controllers that keep the pods of a node from being evicted: those that would not recreate them, Jobs that the
evictions could fail, and those that move one pod at a time while another one is not Ready.

The daemon reads the controllers of a node right before its drain. Commands judge those in their snapshot, by the same
functions.
"""

from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property

from predicates.objects import Deployment, Job, Node, ObjectMeta, OwnerReference, Pod, StatefulSet, Workload
from predicates.snapshot import Snapshot
from rescheduler.planning.controllers import Controller, ControllerReading, ControllerState, job_facts
from rescheduler.planning.debts import count_replicas
from rescheduler.planning.outcome import Blocker, Reason
from rescheduler.planning.policy import Policy
from rescheduler.planning.rules.minimum import OwnerKey
from rescheduler.planning.rules.pod_rules import NOT_RECREATED
from rescheduler.planning.rules.pod_traits import (
    SAFE_TO_EVICT,
    is_built_in,
    is_job,
    is_stateful,
    job_blockers,
    keeps_its_identity,
    named_controller,
)


@dataclass(frozen=True, slots=True)
class Others:
    """The pods beside those of the node."""

    of: Callable[[ControllerState], Sequence[Pod]]  #: all pods of a controller, on any node
    node: Callable[[str], Node | None]


def controller_blockers(
    reading: ControllerReading, movers: Sequence[Pod], others: Others, policy: Policy
) -> Iterator[Blocker]:
    """Yield why *movers*, all from one node, must not be evicted because of their controllers."""
    states = [state for _, state in sorted(reading.states.items())]
    yield from _not_recreated(reading, movers, policy)
    yield from job_blockers(states, movers, policy.move_jobs)
    for state in filter(lambda state: state.ordered, states):
        pods = [pod for pod in movers if pod.owner is not None and (pod.namespace, pod.owner.uid) in state.owners]
        blockers = (_while_not_ready(state, pod, others) for pod in pods)
        yield from [blocker for blocker in blockers if blocker is not None][:1]


def all_pods(states: Iterable[ControllerState], snapshot: Snapshot) -> dict[ControllerState, list[Pod]]:
    """Return the pods of *snapshot* that belong to each controller in *states*."""
    return {state: [pod for owner in state.owners for pod in snapshot.owned_by(owner)] for state in states}


def with_order(states: Mapping[Controller, ControllerState], snapshot: Snapshot) -> dict[Controller, ControllerState]:
    """Return *states*, in which custom controllers replace pods that keep their identity one at a time."""
    owned = all_pods((state for state in states.values() if not state.controller.built_in), snapshot)
    return {
        controller: replace(state, one_at_a_time=True) if any(map(keeps_its_identity, owned.get(state, ()))) else state
        for controller, state in states.items()
    }


def may_be_lost(pod: Pod, policy: Policy) -> bool:
    """Return whether *pod* may be evicted although no controller replaces it."""
    return policy.delete_non_replicated_pods or pod.annotations.get(SAFE_TO_EVICT) == "true"


def _not_recreated(reading: ControllerReading, movers: Sequence[Pod], policy: Policy) -> Iterator[Blocker]:
    """Yield a blocker for each pod whose controller is gone, finished or being deleted."""
    for pod in movers:
        controller = reading.topmost.get((pod.namespace, pod.owner.uid)) if pod.owner is not None else None
        state = None if controller is None else reading.states[controller]
        if state is None or (state.recreates and state.wanted != 0) or may_be_lost(pod, policy):
            continue
        why = (
            "wants no pods"
            if state.recreates
            else "has finished"
            if state.finished
            else "is being deleted"
            if state.deleting
            else "was deleted"
        )
        yield Blocker(Reason.NO_CONTROLLER, f"{NOT_RECREATED}: {state.controller} {why}", pod.key)


def _while_not_ready(state: ControllerState, mover: Pod, others: Others) -> Blocker | None:
    """Return a blocker if other pods of the controller of *mover* are not Ready: it may create no pod before that."""
    pods = [pod for pod in others.of(state) if pod.key != mover.key]
    replicas = count_replicas(pods, [state], node_of=others.node).get(state.controller)
    missing = (state.wanted or 1) - 1 - (replicas.ready if replicas is not None else 0)
    if missing <= 0:
        return None
    unready = replicas.unready if replicas is not None else ()
    named = min((pod.key for pod in pods if pod.uid in unready), default="")
    detail = f"pods of {state.controller} are moved only while all other replicas are Ready: {missing} not Ready"
    return Blocker(Reason.REPLICAS_NOT_READY, f"{detail} ({named})" if named else detail, mover.key)


# The controllers of a snapshot.


class Owners:
    """The controllers of the pods in *snapshot*. Valid until it changes.

    What the snapshot does not contain is not judged: a file may lack it, and custom controllers are not read.
    """

    def __init__(self, snapshot: Snapshot, policy: Policy) -> None:
        self._snapshot = snapshot
        self._policy = policy
        self._others = Others(self._pods_of, self._node)
        #: What :meth:`_state` returned, by namespace and owner. A reference can name another kind with the same UID.
        self._states: dict[tuple[str, OwnerReference], ControllerState | None] = {}

    def blockers(self, movers: Sequence[Pod]) -> Iterator[Blocker]:
        """Yield why *movers*, all from one node, must not be evicted because of their controllers."""
        return controller_blockers(self.reading(movers), movers, self._others, self._policy)

    def concern(self, pod: Pod) -> bool:
        """Return whether the controller of *pod* may keep it, or some of its pods, from being evicted."""
        state = self._known_state(pod)
        return state is not None and (
            not state.recreates or state.wanted == 0 or state.ordered or state.job is not None
        )

    def reading(self, pods: Iterable[Pod]) -> ControllerReading:
        """Return the topmost controllers of *pods* that are known."""
        states: dict[Controller, ControllerState] = {}
        topmost: dict[OwnerKey, Controller] = {}
        for pod in pods:
            if pod.owner is not None and (state := self._known_state(pod)) is not None:
                topmost[pod.namespace, pod.owner.uid] = state.controller
                same = states.setdefault(state.controller, state)
                if same is not state:  # of another ReplicaSet of the Deployment
                    states[state.controller] = replace(state, owner_uids=state.owner_uids | same.owner_uids)
        return ControllerReading(states, topmost)

    def _known_state(self, pod: Pod) -> ControllerState | None:
        if pod.owner is None:
            return None
        key = pod.namespace, pod.owner
        if key not in self._states:
            self._states[key] = self._state(pod)
        return self._states[key]

    def _state(self, pod: Pod) -> ControllerState | None:
        """Return the state of the topmost controller of *pod*, or None if it is not known."""
        assert pod.owner is not None
        found = self._snapshot.of(pod.owner.kind).get(f"{pod.namespace}/{pod.owner.name}")
        found = found if is_built_in(pod.owner) else None
        if found is None and not (is_stateful(pod.owner) or keeps_its_identity(pod)):
            return None
        own = named_controller(pod.namespace, pod.owner)
        match found:
            case Job() as job:
                return self._of_job(_state_of(own, job.metadata, own.uid), job)
            case StatefulSet():
                return _state_of(own, found.metadata, own.uid, found.spec.replicas)
            case Workload():
                return self._of_replica_set(own, found)
        # How many pods it wants is not known, so those that there are count.
        wanted = len(self._owned.get((pod.namespace, own.uid), ()))
        return ControllerState(own, frozenset({own.uid}), wanted, one_at_a_time=True)

    def _of_replica_set(self, own: Controller, found: Workload) -> ControllerState | None:
        """Return the state of the Deployment of a ReplicaSet, or that of the ReplicaSet itself if it has no owner."""
        above = next((each for each in found.metadata.owner_references if each.controller), None)
        if above is None:
            return _state_of(own, found.metadata, own.uid, found.spec.replicas)
        deployment = self._snapshot.of("Deployment").get(f"{own.namespace}/{above.name}")
        if above.kind != "Deployment" or not is_built_in(above) or not isinstance(deployment, Deployment):
            return None
        topmost = named_controller(own.namespace, above)
        return _state_of(topmost, deployment.metadata, own.uid, deployment.spec.replicas)

    def _of_job(self, state: ControllerState, job: Job) -> ControllerState:
        counts_restarts = job.spec.template.spec.restart_policy == "OnFailure"
        restarted = sum(pod.restarts for pod in self._pods_of(state)) if counts_restarts else 0
        return replace(state, job=job_facts(job.spec, job.status, restarted))

    def _node(self, name: str) -> Node | None:
        table = self._snapshot.nodes
        return None if (row := table.row.get(name)) is None else table.nodes[row]

    def _pods_of(self, state: ControllerState) -> Sequence[Pod]:
        return [pod for owner in state.owners for pod in self._owned.get(owner, ())]

    @cached_property
    def _owned(self) -> Mapping[OwnerKey, Sequence[Pod]]:
        """The pods of Jobs, and of controllers that move one pod at a time."""
        owned: defaultdict[OwnerKey, list[Pod]] = defaultdict(list)
        for pod in self._snapshot.pods.values():
            if pod.owner is not None and (is_stateful(pod.owner) or is_job(pod.owner) or not is_built_in(pod.owner)):
                owned[pod.namespace, pod.owner.uid].append(pod)
        return owned


def pod_status(snapshot: Snapshot) -> Mapping[str, tuple[bool, int]]:
    """Return what the verdicts of :class:`Owners` depend on and changes with the status of pods only, by pod."""
    changed = (pod for pod in snapshot.pods.values() if not pod.ready or pod.restarts or pod.phase == "Pending")
    return {pod.key: (pod.ready, pod.restarts) for pod in changed}


def _state_of(controller: Controller, meta: ObjectMeta, owner: str, wanted: int | None = None) -> ControllerState:
    """Return the state of *controller* from the object *meta* with its name; its pods name *owner* (a UID)."""
    exists = not (meta.uid and controller.uid) or meta.uid == controller.uid
    deleting = meta.deletion_timestamp is not None
    return ControllerState(controller, frozenset({owner}), wanted, exists=exists, deleting=exists and deleting)
