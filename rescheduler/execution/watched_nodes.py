"""The nodes of the watched cluster, whether the watched state can be used, and the other inputs of planning."""

from collections import Counter
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import replace
from datetime import datetime
from typing import Final, Generic, Protocol, TypeAlias, TypeVar

from predicates.objects import Node, OwnerReference, Pod
from predicates.snapshot import Snapshot
from rescheduler.draining.actions import ANNOTATION, Intent, Step, is_marked, read
from rescheduler.errors import Forbidden, ReschedulerError
from rescheduler.planning.forms import shortened, utc
from rescheduler.planning.money.prices import NodeFacts, node_facts
from rescheduler.planning.node_info import LabelFindings, NodeInfos, OwnPods, label_findings, label_of, node_infos
from rescheduler.planning.outcome import Blocker, Reason
from rescheduler.planning.policy import Circumstances, Policy
from rescheduler.planning.pools import is_labeled, pool_of
from rescheduler.planning.rules.interruptions import is_reported

# Whether the watched state of the cluster can be used for decisions.

#: A watch without an event or a bookmark for this many seconds may have lost its connection.
STALE_SECONDS: Final = 150.0

#: Maximum number of errors and of kinds in a message.
_MAX_ERRORS: Final = 3
_MAX_KINDS: Final = 3


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

    def take_departed(self) -> tuple[Node, ...]:
        """Return the last states of nodes that were deleted since the last call."""
        ...


def stale(ages: Mapping[str, float]) -> str:
    """Return a message about the watches that are too old for decisions, or "". *ages* are in seconds, by kind."""
    silent = sorted((-age, kind) for kind, age in ages.items() if age > STALE_SECONDS)
    texts = [f"{kind}: no event or bookmark for {-age:.0f} s" for age, kind in silent]
    return shortened(texts, _MAX_KINDS, before=", ")


def why_unusable(state: State) -> str:
    """Return why the watched state cannot be used for decisions, or "". Thread-safe."""
    errors = state.errors
    if not state.synced:
        return "; ".join((f"not read yet: {', '.join(state.missing)}", *_messages(errors.values())))
    if errors:
        return f"{', '.join(sorted(errors))} cannot be read at present: {'; '.join(_messages(errors.values()))}"
    return ""


def _messages(errors: Collection[ReschedulerError]) -> list[str]:
    """Return the first messages of *errors*. Missing permissions come first: they need to be granted."""
    by_weight = sorted(errors, key=lambda error: not isinstance(error, Forbidden))
    return list(dict.fromkeys(map(str, by_weight)))[:_MAX_ERRORS]


# Inputs of planning in addition to pods and nodes: marks of drains, cooldowns and vetoes.


def while_draining(circumstances: Circumstances, node: str, *, has_pods: bool) -> Circumstances:
    """Return *circumstances* for *node*, which is being drained: its own cooldown and vetoes do not count.

    *has_pods* says whether pods that do not end with the node are still on it.
    """
    empty = node in circumstances.ordered and not has_pods
    return replace(
        circumstances,
        cooling={name: until for name, until in circumstances.cooling.items() if name != node},
        vetoes={name: blockers for name, blockers in circumstances.vetoes.items() if name != node},
        ordered=circumstances.ordered - {node},
        emptied=frozenset({node} if empty else ()),
    )


def intents(nodes: Iterable[Node]) -> dict[str, Intent]:
    """Return the intents in the annotations of *nodes*, by node. Unreadable ones are left out."""
    annotated = (node for node in nodes if ANNOTATION in node.metadata.annotations)
    written = ((node.name, read(node)) for node in annotated)
    return {name: intent for name, intent in written if intent is not None}


def vetoes_of_others(written: Mapping[str, Intent], identity: str, now: datetime) -> dict[str, tuple[Blocker, ...]]:
    """Return blockers for the nodes that other installations drain. *identity* is this installation's."""
    foreign = {name: intent for name, intent in written.items() if intent.identity not in ("", identity)}
    return {name: (Blocker(Reason.OTHER_INSTALLATION, _drained_by(intent, now)),) for name, intent in foreign.items()}


def drained_by_daemon(written: Mapping[str, Intent], identity: str) -> dict[str, tuple[Blocker, ...]]:
    """Return blockers for the nodes that the daemon *identity* drains: for those who plan beside it."""
    own = {name: intent for name, intent in written.items() if intent.identity == identity != ""}
    return {
        name: (Blocker(Reason.BEING_DRAINED, f"the daemon drains it ({intent.step} since {utc(intent.since)})"),)
        for name, intent in own.items()
        if intent.step is not Step.REMOVING
    }


def removing(written: Mapping[str, Intent]) -> frozenset[str]:
    """Return the nodes for which machine termination may have been requested."""
    return frozenset(name for name, intent in written.items() if intent.step is Step.REMOVING)


def _drained_by(intent: Intent, now: datetime) -> str:
    """Describe who drains a node and, if the mark was not renewed, when the mark expired."""
    activity = "removes its machine" if intent.step is Step.REMOVING else "drains it"
    text = f"installation {intent.identity} {activity} (holder {intent.holder})"
    if intent.until is None or not intent.lapsed(now):
        return text
    return f"{text}; it did not renew its mark, which was valid until {utc(intent.until)}"


# The nodes of the watched cluster. Values that depend on all nodes are computed once per change.
#
# Changes of pod annotations and pod status do not count, because nothing here depends on them. Only the annotation of
# mirror pods is read here, and it cannot be changed.

_T = TypeVar("_T")

#: Numbers of pods, by label (as in the flag) and node.
PodCounts: TypeAlias = Mapping[str, Mapping[str, int]]


class OncePerChange(Generic[_T]):
    """A value that is computed from a snapshot, and recomputed only after a change of nodes or of the pods on them."""

    def __init__(self, compute: Callable[[Snapshot], _T]) -> None:
        self._compute = compute
        self._known: tuple[Snapshot, object, _T] | None = None

    def of(self, snapshot: Snapshot) -> _T:
        """Return the value for the current *snapshot*."""
        known, version = self._known, (snapshot.revision, snapshot.unplaced)
        if known is None or known[0] is not snapshot or known[1] != version:
            known = self._known = snapshot, version, self._compute(snapshot)
        return known[2]


class WatchedNodes:
    """The nodes as planning and draining query them. Not thread-safe. Results are valid until the next call."""

    def __init__(self, state: State, policy: Policy) -> None:
        self._state = state
        self._policy = policy
        self._current: Snapshot | None = None
        self._nodes = OncePerChange(lambda snapshot: {node.name: node for node in snapshot.nodes})
        self._marked = OncePerChange(
            lambda snapshot: sorted(filter(is_marked, snapshot.nodes), key=lambda node: node.name)
        )
        self._reported = OncePerChange(
            lambda snapshot: [node for node in snapshot.nodes if is_reported(node) and not is_marked(node)]
        )
        self._intents = OncePerChange(lambda snapshot: intents(snapshot.nodes))
        self._infos = OncePerChange(lambda snapshot: node_infos(snapshot, policy))
        self._spot = OncePerChange(lambda snapshot: [info.node for info in self._infos.of(snapshot).spot.values()])
        self._findings = OncePerChange(lambda snapshot: label_findings(snapshot, policy, self._infos.of(snapshot)))
        self._pools = OncePerChange(
            lambda snapshot: Counter(
                pool_of(node.metadata.labels, policy.spot_pool_labels) for node in self._spot.of(snapshot)
            )
        )
        self._own_pods = OwnPods()
        self._counts = OncePerChange(self._pod_counts)
        self._siblings = OncePerChange(_replica_sets)
        self._facts = OncePerChange[dict[str, NodeFacts]](lambda _: {})

    def advance(self) -> Snapshot:
        """Apply the watched changes. Between two calls, nothing that is asked here changes."""
        self._current = self._state.snapshot()
        return self._current

    @property
    def snapshot(self) -> Snapshot:
        """The state of the cluster at the last call of :meth:`advance`."""
        return self.advance() if self._current is None else self._current

    @property
    def revision(self) -> int:
        """A number that grows with each change of nodes or of the pods placed on them."""
        return self.snapshot.revision

    @property
    def changes(self) -> int:
        """A number that grows with each change that :meth:`advance` applies of objects that planning counts."""
        return self.snapshot.changes

    def node(self, name: str) -> Node | None:
        table = self.snapshot.nodes
        row = table.row.get(name)
        return None if row is None else table.nodes[row]

    def nodes(self) -> Mapping[str, Node]:
        """Return all nodes by name, as the same object while nothing changes."""
        return self._nodes.of(self.snapshot)

    def marked(self) -> list[Node]:
        """Return the nodes with our taint or our annotation, sorted by name."""
        return self._marked.of(self.snapshot)

    def still_reported(self) -> list[Node]:
        """Return the nodes without our marks that still have our condition of a drain, of any installation."""
        return self._reported.of(self.snapshot)

    def written(self) -> Mapping[str, Intent]:
        """Return the readable marks of drains, by node."""
        return self._intents.of(self.snapshot)

    def pods_on(self, node: str) -> frozenset[str]:
        """Return the UIDs of the pods on *node* that have not finished."""
        return frozenset(pod.uid for pod in self.snapshot.pods_on[node].values())

    def pods_of(self, node: str) -> Collection[Pod]:
        """Return the pods on *node* that have not finished."""
        return tuple(self.snapshot.pods_on[node].values())

    def owned_by(self, owners: Collection[tuple[str, str]]) -> dict[tuple[str, str], list[Pod]]:
        """Return the pods of each of *owners*, which are controllers by namespace and UID."""
        snapshot = self.snapshot
        return {owner: [*snapshot.owned_by(owner)] for owner in owners}

    def siblings(self, namespaces: Collection[str]) -> frozenset[tuple[str, OwnerReference]]:
        """Return the ReplicaSets that own pods in *namespaces*, each with its namespace.

        They may include other ReplicaSets of the same Deployment.
        """
        known = self._siblings.of(self.snapshot)
        return frozenset().union(*(known.get(namespace, ()) for namespace in namespaces))

    def facts(self, name: str) -> NodeFacts | None:
        """Return the facts that determine the price of the node *name*, or None if the node does not exist."""
        if self.node(name) is None:
            return None
        return node_facts(self.snapshot, name, spot=self.is_spot(name))

    def facts_of(self, names: Iterable[str]) -> dict[str, NodeFacts]:
        """Return the facts of the on-demand nodes among *names* that exist."""
        snapshot = self.snapshot
        known = self._facts.of(snapshot)
        existing = [name for name in names if name in snapshot.nodes.row]
        for name in existing:
            if name not in known:
                known[name] = node_facts(snapshot, name, spot=False)
        return {name: known[name] for name in existing}

    def is_spot(self, node: str) -> bool:
        """Return whether *node* exists and is a spot node."""
        known = self.node(node)
        return known is not None and label_of(known, self._policy) == self._policy.spot_label

    def is_on_demand(self, node: Node) -> bool:
        return label_of(node, self._policy) == self._policy.on_demand_label

    def node_infos(self) -> NodeInfos:
        """Return the on-demand and the spot nodes, as the same object while nothing changes."""
        return self._infos.of(self.snapshot)

    def spot_nodes(self) -> list[Node]:
        """Return the spot nodes, as the same object while nothing changes."""
        return self._spot.of(self.snapshot)

    def take_departed(self) -> tuple[Node, ...]:
        """Return the last states of nodes that were deleted since the last call, as far as they are known."""
        return self._state.take_departed()

    def pool(self, node: str) -> str:
        """Return the pool of the spot node *node*, or "" if there is no such node."""
        known = self.node(node)
        return "" if known is None else pool_of(known.metadata.labels, self._policy.spot_pool_labels)

    def is_labeled(self, pool: str) -> bool:
        """Return whether the nodes of *pool* have all labels that name pools."""
        return is_labeled(pool, self._policy.spot_pool_labels)

    def pool_sizes(self) -> Mapping[str, int]:
        """Return the number of spot nodes of each pool."""
        return self._pools.of(self.snapshot)

    def pod_counts(self) -> PodCounts:
        """Return the number of pods on each Ready node, without DaemonSet and mirror pods."""
        return self._counts.of(self.snapshot)

    def _pod_counts(self, snapshot: Snapshot) -> PodCounts:
        infos, policy = self._infos.of(snapshot), self._policy
        return {
            str(label): {name: self._own_pods.on(info, snapshot) for name, info in nodes.items() if info.ready}
            for label, nodes in ((policy.on_demand_label, infos.on_demand), (policy.spot_label, infos.spot))
        }

    def label_findings(self) -> LabelFindings:
        """Return possible mistakes in the node labels of the flags."""
        return self._findings.of(self.snapshot)


def _replica_sets(snapshot: Snapshot) -> dict[str, set[tuple[str, OwnerReference]]]:
    """Return the ReplicaSets that own pods, each with its namespace, by namespace."""
    known: dict[str, set[tuple[str, OwnerReference]]] = {}
    for pod in snapshot.pods.values():
        if pod.owner is not None and pod.owner.kind == "ReplicaSet":
            known.setdefault(pod.namespace, set()).add((pod.namespace, pod.owner))
    return known
