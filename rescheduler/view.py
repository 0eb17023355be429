"""The cluster through the eyes of planning: one snapshot, one planner over it, kept from round to round.

For one thread. What is returned holds until the next call.
"""

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import replace
from datetime import datetime, timedelta
from typing import Final, Protocol

from predicates.objects import Node, OwnerReference, Pod
from predicates.snapshot import DRAIN_TAINT, Snapshot
from rescheduler.clock import Clock
from rescheduler.draining.intent import ANNOTATION, Intent, Step, is_marked, read
from rescheduler.errors import Forbidden, ReschedulerError
from rescheduler.planning.candidates import removal, why_not_target
from rescheduler.planning.controllers import Controller, ControllerState
from rescheduler.planning.cooldowns import Cooldown
from rescheduler.planning.debts import Replicas, count_replicas
from rescheduler.planning.drainability import belongs_to_node, instant
from rescheduler.planning.freshness import Fresh, lag
from rescheduler.planning.jobs import job_blockers
from rescheduler.planning.node_info import NodeInfo, NodeInfos, label_of, node_infos
from rescheduler.planning.original import Kept, kept_by_guards
from rescheduler.planning.outcome import Blocker, Plan, Planning, Reason, Rejected, Verdict
from rescheduler.planning.planner import Planner
from rescheduler.planning.policy import Circumstances, Policy

#: A new pod that the scheduler has not looked at yet is waited for, but not for longer than this.
SETTLING: Final = timedelta(minutes=1)

#: A watch that brought neither an event nor a bookmark for so many seconds may have lost its connection.
STALE_SECONDS: Final = 150.0

#: What blocks a node whose kubelet has ended with its machine.
_WITHOUT_KUBELET: Final = frozenset({Reason.NODE_NOT_READY, Reason.POD_TERMINATING, Reason.POD_STUCK_TERMINATING})

#: Errors and kinds that one line names.
_ERRORS_TOLD: Final = 3
_KINDS_TOLD: Final = 3


class State(Protocol):
    """The watched cluster."""

    @property
    def synced(self) -> bool: ...

    @property
    def missing(self) -> tuple[str, ...]: ...

    @property
    def errors(self) -> Mapping[str, ReschedulerError]: ...

    def ages(self) -> Mapping[str, float]: ...

    def snapshot(self) -> Snapshot: ...


def unfit(state: State) -> str:
    """Why nothing can be decided from what was read of the cluster; "" where it can. For any thread."""
    errors = state.errors
    if not state.synced:
        return "; ".join((f"not read yet: {', '.join(state.missing)}", *_told(errors.values())))
    if errors:
        return f"{', '.join(sorted(errors))} cannot be read at present: {'; '.join(_told(errors.values()))}"
    return ""


class View:
    def __init__(
        self,
        state: State,
        policy: Policy,
        clock: Clock,
        holder: str,
        own_node: str = "",
        cooling: Callable[[], Mapping[str, Cooldown]] = dict,
        identity: str = "",
    ) -> None:
        """*own_node*: the one that we run on.

        *cooling*: the nodes that are left alone now. *identity* is that of our installation; marks that name another
        one are not ours.
        """
        self.vetoes: Mapping[str, tuple[Blocker, ...]] = {}  #: what forbids drains beside the watched state
        self.removed: frozenset[str] = frozenset()  #: nodes whose machines end or are gone, by the provider's account
        self.ending: frozenset[str] = frozenset()  #: nodes that the cloud takes away soon, as far as it was asked
        self._state = state
        self._policy = policy
        self._clock = clock
        self._holder = holder
        self._own_node = own_node
        self._cooling = cooling
        self._identity = identity
        self._made: Planner | None = None

    def unfit(self) -> str:
        """See :func:`unfit`."""
        return unfit(self._state)

    def ages(self) -> Mapping[str, float]:
        """By kind, seconds since an event, a bookmark or a list last came in."""
        return self._state.ages()

    def stale(self) -> str:
        """Which watches have been silent for so long that nothing may be decided by them; "" where none has."""
        silent = sorted((-age, kind) for kind, age in self.ages().items() if age > STALE_SECONDS)
        told = [f"{kind}: no event or bookmark for {-age:.0f} s" for age, kind in silent[:_KINDS_TOLD]]
        more = [f"and {len(silent) - _KINDS_TOLD} more"] if len(silent) > _KINDS_TOLD else []
        return ", ".join(told + more)

    def first_plan(self, *, take_empty: Callable[[str], bool]) -> Planning:
        """Verdicts up to the first node that can be emptied, or is empty and by *take_empty* to be taken."""
        return self._planner.first_plan(self._circumstances(), take_empty=take_empty)

    def plan_each(self) -> Planning:
        """A verdict for each on-demand node by itself."""
        return self._planner.plan_each(self._circumstances())

    def plan_node(self, node: str, evicted: Collection[str] = ()) -> Verdict:
        """A verdict for a node that we drain; *evicted*: UIDs of pods that this drain has evicted."""
        circumstances = self._draining(node)
        verdict = self._planner.look_again(node, circumstances, evicted)
        if isinstance(verdict, Rejected) and self._machine_went(verdict):
            return verdict if self._planner.must_move(node, circumstances) else Plan(node, ())
        return verdict

    def _machine_went(self, rejected: Rejected) -> bool:
        """Whether a removal that may have been ordered is all that blocks the node: its kubelet has ended."""
        reasons = {blocker.reason for blocker in rejected.blockers}
        ordered = rejected.node in self._circumstances().ordered
        return ordered and Reason.NODE_NOT_READY in reasons and reasons <= _WITHOUT_KUBELET

    def follow(self, node: str, due: Sequence[Pod], evicted: Collection[str] = ()) -> Verdict:
        """Whether the pods left on a node that we drain still fit, beside the replacement pods of *due*."""
        return self._planner.follow(node, self._draining(node), due, evicted)

    def _draining(self, node: str) -> Circumstances:
        """What counts for a node that is being drained already: its own cool-down and the vetoes do not."""
        circumstances = self._circumstances()
        cooling = {name: until for name, until in circumstances.cooling.items() if name != node}
        vetoes = {name: blockers for name, blockers in circumstances.vetoes.items() if name != node}
        empty = node in circumstances.ordered and all(map(belongs_to_node, self.pods_of(node)))
        return replace(
            circumstances,
            cooling=cooling,
            vetoes=vetoes,
            ordered=circumstances.ordered - {node},
            emptied=frozenset({node} if empty else ()),
        )

    def waiting(self, patience: timedelta) -> list[Pod]:
        """Pods that wait for a place which drains could take from them; none after *patience*."""
        if not patience:
            return []
        stuck = self._planner.waiting(self._circumstances(), patience)
        now, known = self._clock.now(), {pod.key for pod in stuck}
        young = now - min(patience, SETTLING)
        settling = [
            pod
            for pod in self._state.snapshot().pods_on[""].values()
            if pod.unschedulable_since is None
            and pod.deletion_timestamp is None
            and not pod.cls.spec.scheduling_gates
            and (instant(pod.creation_timestamp) or young) > young
            and pod.key not in known
        ]
        return stuck + sorted(settling, key=lambda pod: pod.key)

    def node(self, name: str) -> Node | None:
        table = self._state.snapshot().nodes
        row = table.row.get(name)
        return None if row is None else table.nodes[row]

    def nodes(self) -> dict[str, Node]:
        return {node.name: node for node in self._state.snapshot().nodes}

    def marked(self) -> list[Node]:
        """Nodes that carry our taint or our annotation, by name."""
        return sorted(filter(is_marked, self._state.snapshot().nodes), key=lambda node: node.name)

    def pods_on(self, node: str) -> frozenset[str]:
        """UIDs of the pods on *node* that have not ended."""
        return frozenset(pod.uid for pod in self._state.snapshot().pods_on[node].values())

    def pods_of(self, node: str) -> Collection[Pod]:
        """The pods on *node* that have not ended."""
        return self._state.snapshot().pods_on[node].values()

    def is_ours(self, node: str) -> bool:
        """Whether *node* carries the taint of a drain, and an annotation of this very process."""
        known = self.node(node)
        if known is None or all(taint.key != DRAIN_TAINT.key for taint in known.spec.taints):
            return False
        written = read(known)
        return written is not None and (written.holder, written.identity) == (self._holder, self._identity)

    def joined(self, node: str) -> str:
        """That another tool removes *node*, and how that is known; "" where none does."""
        known = self.node(node)
        blocker = removal(known) if known is not None else None
        return blocker.detail if blocker is not None else ""

    def lost(self, targets: Iterable[str]) -> str:
        """Which of *targets* takes no pods any more, and why; "" while all do."""
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
    ) -> dict[Controller, Replicas]:
        """The pods of each controller at this moment; see :func:`~rescheduler.planning.debts.count_replicas`."""
        return count_replicas(self._state.snapshot().pods.values(), states, node, staying, evicted)

    def job_blockers(self, states: Iterable[ControllerState], pods: Iterable[Pod]) -> tuple[Blocker, ...]:
        """Why *pods*, which would move from one node, must stay for Jobs among *states*."""
        return job_blockers(states, pods, self._policy.move_jobs)

    def siblings(self, namespaces: Collection[str]) -> frozenset[tuple[str, OwnerReference]]:
        """Namespace and ReplicaSet of all pods in *namespaces* that have one: they may be a Deployment's other ones."""
        return frozenset(
            (pod.namespace, pod.owner)
            for pod in self._state.snapshot().pods.values()
            if pod.namespace in namespaces and pod.owner is not None and pod.owner.kind == "ReplicaSet"
        )

    def lag(self, fresh: Fresh, node: str) -> str:
        """What the watched state lacks of what was read consistently, with *node* marked; "" where it lacks nothing."""
        if not self.is_ours(node):
            return f"the taint and the annotation of node {node} are not watched yet"
        return lag(fresh, self._state.snapshot())

    def pods(self) -> dict[str, Pod]:
        """All pods that have not ended, by key."""
        return self._state.snapshot().pods

    def is_spot(self, node: str) -> bool:
        """Whether *node* is there and is spot."""
        found = self.node(node)
        return found is not None and label_of(found, self._policy) == self._policy.spot_label

    def node_infos(self) -> NodeInfos:
        """The on-demand and the spot nodes as they are now."""
        return node_infos(self._state.snapshot(), self._policy)

    def by_label(self, infos: NodeInfos) -> dict[str, Mapping[str, NodeInfo]]:
        """The maps of *infos* by the label string of the flag."""
        return {str(self._policy.on_demand_label): infos.on_demand, str(self._policy.spot_label): infos.spot}

    def is_on_demand(self, node: Node) -> bool:
        return label_of(node, self._policy) == self._policy.on_demand_label

    def kept_by_guards(self, limit: timedelta) -> Kept:
        """How many nodes stay that k8s-spot-rescheduler would drain, by guard: what is known after *limit*."""
        deadline = self._clock.monotonic() + limit.total_seconds()
        return kept_by_guards(
            self._state.snapshot(), self._policy, self._circumstances(), lambda: self._clock.monotonic() > deadline
        )

    @property
    def _planner(self) -> Planner:
        snapshot = self._state.snapshot()
        if self._made is None:
            self._made = Planner(snapshot, self._policy)
        return self._made

    def _circumstances(self) -> Circumstances:
        now = self._clock.now()
        intents = self._intents()
        ordered = self.removed | {name for name, written in intents.items() if written.step is Step.REMOVING}
        vetoes = {**self.vetoes, **self._of_others(intents)}
        return Circumstances(now, self._cooling(), self._holder, self._own_node, ordered, self.ending, vetoes)

    def _intents(self) -> dict[str, Intent]:
        """What the annotations of nodes say, as far as they can be read."""
        noted = (node for node in self._state.snapshot().nodes if ANNOTATION in node.metadata.annotations)
        intents = ((node.name, read(node)) for node in noted)
        return {name: written for name, written in intents if written is not None}

    def _of_others(self, intents: Mapping[str, Intent]) -> dict[str, tuple[Blocker, ...]]:
        """Nodes that another installation of this program drains."""
        now = self._clock.now()
        others = {name: written for name, written in intents.items() if written.identity not in ("", self._identity)}
        return {name: (Blocker(Reason.OTHER_INSTALLATION, _drained_by(other, now)),) for name, other in others.items()}


def _drained_by(other: Intent, now: datetime) -> str:
    """Who drains a node; of a mark that was not renewed, also since when."""
    does = "removes its machine" if other.step is Step.REMOVING else "drains it"
    text = f"installation {other.identity} {does} (holder {other.holder})"
    if other.until is None or not other.lapsed(now):
        return text
    return f"{text}; it did not renew its mark, which was valid until {other.until:%Y-%m-%dT%H:%M:%SZ}"


def _told(errors: Collection[ReschedulerError]) -> list[str]:
    """The first errors, missing rights before all others: they do not go away by themselves."""
    by_weight = sorted(errors, key=lambda error: not isinstance(error, Forbidden))
    return list(dict.fromkeys(map(str, by_weight)))[:_ERRORS_TOLD]
