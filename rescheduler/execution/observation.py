"""The watched cluster as one drain observes it, and the pods that the drain accounts for."""

from collections import defaultdict
from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import replace

from predicates.objects import Node, Pod
from rescheduler.draining.events import ControllersRead, NodeGone, Seen
from rescheduler.draining.state import Drain
from rescheduler.execution.cluster_view import ClusterView
from rescheduler.execution.context import ControllerReading
from rescheduler.planning.controllers import Controller, ControllerState
from rescheduler.planning.debts import Debt, Replicas
from rescheduler.planning.last_look import OrderTerms
from rescheduler.planning.outcome import Blocker, Reason


class Observation:
    """The watched state of one node that is being drained. For one thread."""

    def __init__(self, view: ClusterView, node: Node) -> None:
        self._view = view
        self._node = node
        self._earlier: frozenset[str] | None = None  # UIDs of the pods that are not replacement pods of this drain

    @property
    def node_exists(self) -> bool:
        """Whether the watched state contains this node, and not another one with the same name."""
        node = self._view.node(self._node.name)
        return node is not None and node.metadata.uid == self._node.metadata.uid

    def event(self, drain: Drain) -> Seen | NodeGone:
        """Return the watched state at the current time."""
        name = self._node.name
        if not self.node_exists:
            return NodeGone(f"node {name} is gone")
        return Seen(
            present=self._view.pods_on(name),
            replicas=self._replicas(drain, drain.states),
            tainted=self._view.is_ours(name),
            lost=self._view.lost(drain.targets),
            stale=bool(self._view.stale()),
            removed_by=self._view.removed_by(name),
            placeholders=self._view.placeholders_for(name),
            preempted=self._preempted(drain),
        )

    def controllers_read(self, drain: Drain, reading: ControllerReading, pods: Mapping[str, Pod]) -> ControllersRead:
        """Return the event for a read of controllers. Jobs are checked again, because more pods may have been bound.

        *pods* are the pods of the drain's plans, by UID.
        """
        waiting = [pods[victim.pod.uid] for victim in drain.waiting if victim.pod.uid in pods]
        states = self._view.with_order(reading.states)
        return ControllersRead(
            states,
            reading.topmost,
            self._replicas(drain, {**drain.states, **states}),
            (*self._view.job_blockers(states.values(), waiting), *self._larger(drain, states, pods)),
            frozenset(pod.uid for pod in waiting if self._view.may_be_lost(pod)),
        )

    def order_terms(self, drain: Drain) -> OrderTerms:
        """Return what the order for the machine is compared with."""
        debts = tuple(debt for controller, debt in drain.debts.items() if drain.has_taken_from(controller))
        return replace(
            self._view.order_terms(self._node.name),
            debts=debts,
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
        for pod in self._view.pods().values():
            controller = owners.get((pod.namespace, pod.owner.uid)) if pod.owner is not None else None
            if controller is None or pod.uid in self._earlier:
                continue
            if why := self._view.larger(pod, evicted_of[controller]):
                yield Blocker(Reason.NO_ROOM, f"replacement pod of {controller}: {why}", pod.key)

    def _preempted(self, drain: Drain) -> tuple[Debt, ...]:
        """Return what is owed to the controllers of pods that make room for replacement pods of *drain*.

        A preempted pod does not tell for which pod it makes room: it is attributed to the drain while a replacement pod
        with a higher priority is not bound yet.
        """
        preempted = [pod for pod in self._view.pods().values() if pod.preempted and pod.node_name != self._node.name]
        if not preempted or self._earlier is None:
            return ()
        waiting = [pod for pod in self._new_pods(drain) if not pod.node_name]
        highest = max((pod.cls.spec.priority or 0 for pod in waiting), default=None)
        lost: defaultdict[Controller, list[Pod]] = defaultdict(list)
        for pod in preempted:
            if pod.owner is not None and highest is not None and (pod.cls.spec.priority or 0) < highest:
                owner = Controller(pod.namespace, pod.owner.kind, pod.owner.name, pod.owner.uid)
                lost[owner].append(pod)
        others = self._view.pods().values()
        return tuple(_debt_for(owner, pods, others) for owner, pods in sorted(lost.items()) if _is_built_in(pods[0]))

    def _new_pods(self, drain: Drain) -> list[Pod]:
        """Return the replacement pods of *drain*, once the earlier pods of its controllers are known."""
        states = (drain.states[controller] for controller in drain.debts.keys() & drain.states.keys())
        owners = {uid for state in states for uid in state.owner_uids}
        pods = (pod for pod in self._view.pods().values() if pod.owner is not None and pod.owner.uid in owners)
        return [pod for pod in pods if pod.uid not in (self._earlier or ())]

    def landed(self, drain: Drain) -> frozenset[str]:
        """Return the nodes of the replacement pods. The first call must be made before the first eviction."""
        owners = {owner for controller in drain.debts for owner in drain.states[controller].owners}
        pods = [pod for owned in self._view.owned_by(owners).values() for pod in owned]
        if self._earlier is None:
            self._earlier = frozenset(pod.uid for pod in pods)
        nodes = {pod.node_name for pod in pods if pod.uid not in self._earlier}
        return frozenset(nodes - {"", self._node.name})

    def _replicas(self, drain: Drain, states: Mapping[Controller, ControllerState]) -> dict[Controller, Replicas]:
        return self._view.replicas(states.values(), self._node.name, staying(drain), evicted(drain))


def _is_built_in(pod: Pod) -> bool:
    return pod.owner is not None and pod.owner.api_version in ("", "v1", "apps/v1", "batch/v1")


def _debt_for(owner: Controller, preempted: list[Pod], pods: Iterable[Pod]) -> Debt:
    """Return the debt to *owner* for its *preempted* pods, in addition to its other *pods*."""
    uids = {pod.uid for pod in preempted}
    left = [
        pod
        for pod in pods
        if pod.owner is not None
        and (pod.namespace, pod.owner.uid) == (owner.namespace, owner.uid)
        and pod.uid not in uids
        and pod.deletion_timestamp is None
    ]
    bound, ready = (sum(map(bool, each)) for each in ((p.node_name for p in left), (p.ready for p in left)))
    return Debt(owner, ready + len(preempted), bound + len(preempted), owner_uids=(owner.uid,))


def staying(drain: Drain) -> frozenset[str]:
    """Return the UIDs of the pods that still have to be evicted."""
    requested = (victim for victim in drain.victims.values() if not victim.accepted)
    return frozenset(victim.pod.uid for victim in (*drain.waiting, *requested))


def evicted(drain: Drain) -> frozenset[str]:
    """Return the UIDs of the pods that this drain has evicted."""
    return frozenset(pod.uid for pod in drain.evicted)


def leaving(drain: Drain) -> frozenset[str]:
    """Return the UIDs of the pods that this drain has evicted, or that an earlier process may have evicted."""
    return evicted(drain) | frozenset(drain.intended)


def evicted_for_good(drain: Drain) -> Collection[str]:
    """Return :func:`leaving` without the pods that still have to be evicted."""
    return leaving(drain) - staying(drain)
