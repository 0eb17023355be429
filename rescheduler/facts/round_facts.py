"""What one round knows, as one value: the objects of the cluster, and what the process knows besides.

The daemon, its status page, the commands and the proxy plan with the same facts, because all of them get theirs from
:class:`FactsReader`. Values that depend on all nodes or pods are kept from facts to facts.
"""

from collections import Counter
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from functools import cached_property
from typing import TypeAlias

from predicates.objects import Namespace, Node, OwnerReference, Pod
from predicates.snapshot import Snapshot
from rescheduler.draining.actions import ANNOTATION, Intent, Step, is_marked, read
from rescheduler.planning.debts import OpenDebt
from rescheduler.planning.forms import utc
from rescheduler.planning.kept import NODES_AND_PODS, ClusterPart, Kept
from rescheduler.planning.last_look import is_closed
from rescheduler.planning.memory import Memory
from rescheduler.planning.money.prices import NodeFacts, PriceList, kind, node_facts
from rescheduler.planning.movements import OwnerWait, blockers_by_node
from rescheduler.planning.node_info import (
    LabelFindings,
    NodeInfos,
    OwnPods,
    is_on_demand,
    label_findings,
    label_of,
    node_infos,
)
from rescheduler.planning.outcome import Blocker, Reason
from rescheduler.planning.policy import Circumstances, Destination, LeaderFacts, Policy
from rescheduler.planning.pools import is_labeled, pool_of
from rescheduler.planning.room.placeholders import Placeholder, of_installation
from rescheduler.planning.room.placeholders import read as read_placeholder
from rescheduler.planning.rules.candidates import (
    budgets_in_use,
    groups,
    mates,
    never_removed,
    removal,
    shared_machines,
    static_capacity,
    why_going,
    why_not_target,
)
from rescheduler.planning.rules.interruptions import is_reported

#: Numbers of pods, by label (as in the flag) and node.
PodCounts: TypeAlias = Mapping[str, Mapping[str, int]]


@dataclass(frozen=True, slots=True, kw_only=True)
class Known:
    """What a process knows besides the objects of the cluster and the policy."""

    holder: str = ""  #: our identity in the annotation on drained nodes
    identity: str = ""  #: the installation whose marks and placeholders are ours
    beside: bool = False  #: the daemon of the installation is another process: what it drains is left to it
    leader: LeaderFacts = field(default_factory=LeaderFacts)
    memory: Memory = field(default_factory=Memory)  #: empty if it is not known
    checked: Mapping[str, tuple[Blocker, ...]] = field(default_factory=dict)  #: of nodes that were read more closely
    prices: PriceList = field(default_factory=PriceList)  #: for the drain order


@dataclass(frozen=True, kw_only=True, eq=False)
class RoundFacts:
    """What is known at one moment. Valid until the snapshot changes."""

    now: datetime  #: the time of the snapshot, as far as it is known here
    snapshot: Snapshot
    policy: Policy
    known: Known
    kept: "KeptFacts" = field(repr=False)

    @cached_property
    def circumstances(self) -> Circumstances:
        """The circumstances of plans."""
        snapshot, known, now, kept = self.snapshot, self.known, self.now, self.kept
        memory, leader = known.memory, known.leader
        pooled = budgets_in_use(snapshot, now) if leader.ends_machines else never_removed(snapshot, now)
        aside = kept.set_aside.of(snapshot, memory.not_recovered.active(now), memory.unpaid)
        others = _drained_by_others(self.marks, known.identity, now, beside=known.beside)
        return Circumstances(
            now,
            cooling=memory.cooldowns.active(now),
            holder=known.holder,
            own=leader.own,
            ordered=_removing(self.marks).union(leader.ended),
            ending=frozenset(leader.ending),
            vetoes=_joined(pooled, static_capacity(snapshot), kept.shared.of(snapshot), aside, known.checked, others),
            prices=known.prices,
            history=memory.history(now),
            last=self._restless(memory),
            settling=memory.pools.settling(now),
            rested=memory.leftovers.resting(now, timedelta(seconds=self.policy.leftover_rest)),
            refused=memory.refusals.learned(now),
            growth=kept.growth.of(snapshot, leader.growth) if leader.growth else {},
            left_pending=frozenset(leader.left_pending),
        )

    def _restless(self, memory: Memory) -> Mapping[str, int]:
        """Return the namespaces whose nodes come last in the drain order; see :meth:`Movements.restless`."""
        limit = memory.settings.moves_per_pod or 0
        return memory.movements.restless(self.now, limit, lambda: self.kept.by_namespace.of(self.snapshot))

    # Nodes

    def mates(self, name: str) -> tuple[str, ...]:
        """Return the other nodes of the machine of node *name*."""
        return self.kept.mates.of(self.snapshot).get(name, ())

    def node(self, name: str) -> Node | None:
        table = self.snapshot.nodes
        row = table.row.get(name)
        return None if row is None else table.nodes[row]

    @property
    def nodes(self) -> Mapping[str, Node]:
        """All nodes by name, as the same object while nothing changes."""
        return self.kept.nodes.of(self.snapshot)

    @property
    def node_infos(self) -> NodeInfos:
        """The on-demand and the spot nodes, as the same object while nothing changes."""
        return self.kept.infos.of(self.snapshot)

    @property
    def spot_nodes(self) -> list[Node]:
        """The spot nodes, as the same object while nothing changes."""
        return self.kept.spot.of(self.snapshot)

    def is_spot(self, node: str) -> bool:
        """Return whether *node* exists and is a spot node."""
        known = self.node(node)
        return known is not None and label_of(known, self.policy) == self.policy.spot_label

    def is_on_demand(self, node: Node) -> bool:
        return is_on_demand(node, self.policy)

    @property
    def label_findings(self) -> LabelFindings:
        """Possible mistakes in the node labels of the flags."""
        return self.kept.findings.of(self.snapshot)

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

    def is_target(self, node: str) -> bool:
        """Return whether *node* is a spot node that accepts pods."""
        return self.is_spot(node) and not self.lost([node])

    def going(self, node: Node) -> str:
        """Return why *node* is about to go, or ""."""
        return why_going(node, self.known.leader.ending)

    # Marks of drains

    @property
    def marks(self) -> Mapping[str, Intent]:
        """The readable marks of drains, by node."""
        return self.kept.intents.of(self.snapshot)

    @property
    def marked(self) -> list[Node]:
        """The nodes with our taint or our annotation, sorted by name."""
        return self.kept.marked.of(self.snapshot)

    @property
    def still_reported(self) -> list[Node]:
        """The nodes without our marks that still have our condition of a drain, of any installation."""
        return self.kept.reported.of(self.snapshot)

    def is_ours(self, node: str) -> bool:
        """Return whether *node* has the drain taint and an annotation of this process."""
        known = self.node(node)
        if known is None or not is_closed(known):
            return False
        written = read(known)
        return written is not None and (written.holder, written.identity) == (self.known.holder, self.known.identity)

    # Pools of spot nodes

    def pool(self, node: str) -> str:
        """Return the pool of the spot node *node*, or "" if there is no such node."""
        known = self.node(node)
        return "" if known is None else pool_of(known.metadata.labels, self.policy.spot_pool_labels)

    def is_labeled(self, pool: str) -> bool:
        """Return whether the nodes of *pool* have all labels that name pools."""
        return is_labeled(pool, self.policy.spot_pool_labels)

    @property
    def pool_sizes(self) -> Mapping[str, int]:
        """The number of spot nodes of each pool."""
        return self.kept.pools.of(self.snapshot)

    # What nodes cost

    def priced(self, name: str) -> NodeFacts | None:
        """Return the facts that determine the price of the node *name*, or None if the node does not exist."""
        return None if self.node(name) is None else node_facts(self.snapshot, name, spot=self.is_spot(name))

    def priced_on_demand(self, names: Iterable[str]) -> dict[str, NodeFacts]:
        """Return the facts that determine the prices of the on-demand nodes among *names* that exist."""
        known, table = self.kept.priced.of(self.snapshot), self.snapshot.nodes.row
        existing = [name for name in names if name in table]
        for name in existing:
            if name not in known:
                known[name] = node_facts(self.snapshot, name, spot=False)
        return {name: known[name] for name in existing}

    # Pods

    def pods_of(self, node: str) -> Collection[Pod]:
        """Return the pods on *node* that have not finished."""
        return tuple(self.snapshot.pods_on[node].values())

    def owned_by(self, owners: Collection[tuple[str, str]]) -> dict[tuple[str, str], list[Pod]]:
        """Return the pods of each of *owners*, which are controllers by namespace and UID."""
        return {owner: [*self.snapshot.owned_by(owner)] for owner in owners}

    def siblings(self, namespaces: Collection[str]) -> frozenset[tuple[str, OwnerReference]]:
        """Return the ReplicaSets that own pods in *namespaces*, each with its namespace.

        They may include other ReplicaSets of the same Deployment.
        """
        owned = ((pod.namespace, pod.owner) for pod in self.snapshot.owned_in(namespaces))
        return frozenset((namespace, owner) for namespace, owner in owned if owner and owner.kind == "ReplicaSet")

    @property
    def pod_counts(self) -> PodCounts:
        """The number of pods on each Ready node, without DaemonSet and mirror pods."""
        return self.kept.counts.of(self.snapshot)

    def namespace_uid(self, name: str) -> str:
        """Return the UID of a namespace, or "" if it does not exist."""
        namespace = self.snapshot.of("Namespace").get(name)
        return namespace.metadata.uid if isinstance(namespace, Namespace) else ""

    def placeholders(self, node: str = "") -> list[Placeholder]:
        """Return the placeholders of this installation, for the pods of *node* or of all nodes, by name."""
        ours = of_installation(map(read_placeholder, self.snapshot.placeholders.values()), self.known.identity)
        return [placeholder for placeholder in ours if node in ("", placeholder.for_node)]


class KeptFacts:
    """What depends on all nodes or pods, and is computed once per change."""

    def __init__(self, policy: Policy) -> None:
        self._policy = policy
        self._own_pods = OwnPods()
        self.nodes = Kept(lambda snapshot: {node.name: node for node in snapshot.nodes}, ClusterPart.NODES)
        self.marked = Kept(
            lambda snapshot: sorted(filter(is_marked, snapshot.nodes), key=lambda node: node.name), ClusterPart.NODES
        )
        self.reported = Kept(
            lambda snapshot: [node for node in snapshot.nodes if is_reported(node) and not is_marked(node)],
            ClusterPart.NODES,
        )
        self.intents = Kept(lambda snapshot: _intents(snapshot.nodes), ClusterPart.NODES)
        self.infos = Kept(lambda snapshot: node_infos(snapshot, policy), *NODES_AND_PODS)
        self.spot = Kept(lambda snapshot: [info.node for info in self._infos(snapshot).spot.values()], *NODES_AND_PODS)
        self.findings = Kept(lambda snapshot: label_findings(snapshot, policy, self._infos(snapshot)), *NODES_AND_PODS)
        self.pools = Kept(self._pool_sizes, ClusterPart.NODES)
        self.counts = Kept(self._pod_counts, *NODES_AND_PODS)
        self.priced = Kept[[], dict[str, NodeFacts]](lambda _: {}, *NODES_AND_PODS)
        self.by_namespace = Kept(
            lambda snapshot: Counter(pod.namespace for pod in snapshot.pods.values()), *NODES_AND_PODS
        )
        self.set_aside = Kept(self._set_aside, *NODES_AND_PODS)
        self.growth = Kept(self._growth, ClusterPart.NODES)
        self.mates = Kept(lambda snapshot: mates(snapshot.nodes), ClusterPart.NODES)
        self.shared = Kept(lambda snapshot: shared_machines(self.mates.of(snapshot)), ClusterPart.NODES)

    def _infos(self, snapshot: Snapshot) -> NodeInfos:
        return self.infos.of(snapshot)

    def _pool_sizes(self, snapshot: Snapshot) -> Mapping[str, int]:
        keys = self._policy.spot_pool_labels
        return Counter(pool_of(node.metadata.labels, keys) for node in self.spot.of(snapshot))

    def _pod_counts(self, snapshot: Snapshot) -> PodCounts:
        infos, policy = self.infos.of(snapshot), self._policy
        return {
            str(label): {name: self._own_pods.on(info, snapshot) for name, info in nodes.items() if info.ready}
            for label, nodes in ((policy.on_demand_label, infos.on_demand), (policy.spot_label, infos.spot))
        }

    def _set_aside(
        self, snapshot: Snapshot, waits: Mapping[str, OwnerWait], ledger: tuple[OpenDebt, ...]
    ) -> Mapping[str, tuple[Blocker, ...]]:
        """Return the nodes that are kept because pods did not run in time."""
        if not (waits or ledger):
            return {}
        nodes = self._drained_nodes(snapshot)
        return blockers_by_node(snapshot.pods.values(), waits, ledger, nodes.__contains__)

    def _growth(self, snapshot: Snapshot, by_sample: Mapping[str, tuple[str, int]]) -> Mapping[str, tuple[str, int]]:
        """Return, by on-demand node, its group and how many more nodes the group may get: none if it is not known."""
        kinds = {node.name: kind(node) for node in snapshot.nodes}
        by_kind = {kinds[name]: size for name, size in by_sample.items() if name in kinds}
        return {name: by_kind.get(kinds[name], ("", 0)) for name in self._drained_nodes(snapshot)}

    def _drained_nodes(self, snapshot: Snapshot) -> Collection[str]:
        """Return the nodes that may be drained: the on-demand nodes, or all if pods may go to any node."""
        to_spot = self._policy.destination is Destination.SPOT
        return frozenset(groups(snapshot, self._policy).on_demand) if to_spot else snapshot.nodes.row


class FactsReader:
    """Makes facts of one cluster, one after the other, for one policy."""

    def __init__(self, policy: Policy) -> None:
        self._policy = policy
        self._kept = KeptFacts(policy)

    def facts(self, snapshot: Snapshot, known: Known, now: datetime) -> RoundFacts:
        """Return what is known *now*."""
        return RoundFacts(now=now, snapshot=snapshot, policy=self._policy, known=known, kept=self._kept)


def _joined(*found: Mapping[str, tuple[Blocker, ...]]) -> Mapping[str, tuple[Blocker, ...]]:
    """Return all blockers of each node: no one hides another."""
    joined: dict[str, tuple[Blocker, ...]] = {}
    for blockers in found:
        for node, more in blockers.items():
            joined[node] = tuple(dict.fromkeys((*joined.get(node, ()), *more)))
    return joined


# The marks of drains on the nodes, and what they say to those who plan.


def _intents(nodes: Iterable[Node]) -> dict[str, Intent]:
    """Return the intents in the annotations of *nodes*, by node. Unreadable ones are left out."""
    annotated = (node for node in nodes if ANNOTATION in node.metadata.annotations)
    written = ((node.name, read(node)) for node in annotated)
    return {name: intent for name, intent in written if intent is not None}


def _removing(written: Mapping[str, Intent]) -> frozenset[str]:
    """Return the nodes for which machine termination may have been requested."""
    return frozenset(name for name, intent in written.items() if intent.step is Step.REMOVING)


def _drained_by_others(
    written: Mapping[str, Intent], identity: str, now: datetime, *, beside: bool = False
) -> dict[str, tuple[Blocker, ...]]:
    """Return blockers for the nodes that other processes drain. *identity* is that of an installation.

    Its own drains count only for those who plan *beside* it, until the machine is ordered away.
    """
    found: dict[str, tuple[Blocker, ...]] = {}
    for name, intent in written.items():
        if intent.identity not in ("", identity):
            found[name] = (Blocker(Reason.OTHER_INSTALLATION, _drained_by(intent, now)),)
        elif beside and intent.identity and intent.step is not Step.REMOVING:
            detail = f"the daemon drains it ({intent.step} since {utc(intent.since)})"
            found[name] = (Blocker(Reason.BEING_DRAINED, detail),)
    return found


def _drained_by(intent: Intent, now: datetime) -> str:
    """Describe who drains a node and, if the mark was not renewed, when the mark expired."""
    activity = "removes its machine" if intent.step is Step.REMOVING else "drains it"
    text = f"installation {intent.identity} {activity} (holder {intent.holder})"
    if intent.until is None or not intent.lapsed(now):
        return text
    return f"{text}; it did not renew its mark, which was valid until {utc(intent.until)}"
