"""Choose the nodes to remove, by the rules of kubeaware-cloudpool-proxy and with the scheduler's own predicates."""

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Final

from predicates.filters import Filters, Targets
from predicates.nodes import CPU, MEMORY
from predicates.objects import Node, Pod
from predicates.snapshot import Snapshot, Trial
from rescheduler.planning.budgets import Budgets, RemainingDisruptions
from rescheduler.planning.outcome import Blocker, Placement, Plan, PodRef, Reason, Rejected, Verdict
from rescheduler.planning.placement.packing import EVALUATIONS_PER_SECOND, Effort, Room, Sizes, Stuck, pack
from rescheduler.planning.policy import Circumstances, Now, Policy, Surging
from rescheduler.planning.rules.candidates import (
    CONTROL_PLANE,
    groups,
    is_deletion_candidate,
    is_unfinished,
    node_blockers,
    why_not_target,
)
from rescheduler.planning.rules.declared import Facts, Fate, PodRules, pod_rules
from rescheduler.planning.rules.gangs import Gangs
from rescheduler.planning.rules.minimum import OwnerCounts, RemainingReplicas
from rescheduler.planning.rules.pins import UnreadableObjects
from rescheduler.planning.rules.pod_rules import NOT_RECREATED, RULES, SAFE_TO_EVICT
from rescheduler.planning.rules.pod_traits import SAFE_LOCAL_VOLUMES, belongs_to_node, expendable_volumes
from rescheduler.planning.verdicts import resource_claims

# The rules of kubeaware-cloudpool-proxy for the pods and nodes of a removal, in addition to the daemon's rules.

#: Pod opt-outs apply as in the daemon; local storage and kube-system have rules of their own here. Pods of other
#: schedulers may be evicted, because the proxy has no option to allow it.
#: No pod is expendable: the original moves them all.
POLICY: Final = Policy(
    skip_nodes_with_local_storage=False,
    skip_nodes_with_system_pods=False,
    scheduler_names=(),
    expendable_pods_priority_cutoff=-(2**31),
    surge=Surging.OFF,
)
_SYSTEM: Final = "kube-system"
#: The only node rules of the daemon that do not apply here: :mod:`rescheduler.cloudpool.proxy.victims` has checks of
#: its own.
_OWN_CHECKS: Final = frozenset({Reason.CONTROL_PLANE, Reason.NODE_NOT_READY})


def pod_fate(pod: Pod, rules: PodRules) -> Fate | Blocker:
    """Return what happens to *pod* when its node is removed, or the blocker of the removal."""
    if stays(pod):
        return Fate.STAYS
    opinion = _local_storage(pod) or rules.fate(pod)
    if isinstance(opinion, Blocker) and opinion.reason is Reason.NO_CONTROLLER:
        # The rule's own detail names a flag that only the daemon has.
        return replace(opinion, detail=f'{NOT_RECREATED}; {SAFE_TO_EVICT}: "true" allows eviction')
    return opinion


def stays(pod: Pod) -> bool:
    """Return whether *pod* belongs to the node or to the system, so that it neither moves nor blocks."""
    return pod.namespace == _SYSTEM or belongs_to_node(pod)


def _local_storage(pod: Pod) -> Blocker | None:
    """Return a blocker for hostPath and emptyDir volumes of any medium, unless an annotation allows their loss."""
    if pod.deletion_timestamp is not None or pod.annotations.get(SAFE_TO_EVICT) == "true":
        return None
    expendable = expendable_volumes(pod)
    local = [
        volume.name
        for volume in pod.cls.spec.volumes
        if (volume.host_path is not None or volume.empty_dir is not None) and volume.name not in expendable
    ]
    if not local:
        return None
    detail = f"local storage {', '.join(local)} would be lost; {SAFE_LOCAL_VOLUMES} allows eviction"
    return Blocker(Reason.LOCAL_STORAGE, detail, pod.key)


def control_plane_nodes(snapshot: Snapshot) -> Iterator[str]:
    """Yield the names of control-plane nodes, recognized by label or by an API server pod."""
    for node in snapshot.nodes:
        if any(label in node.metadata.labels for label in CONTROL_PLANE):
            yield node.name
            continue
        for pod in snapshot.pods_on[node.name].values():
            labeled = pod.cls.labels.get("component") == "kube-apiserver"
            if pod.namespace == _SYSTEM and (labeled or pod.name == f"kube-apiserver-{node.name}"):
                yield node.name
                break


def removal_blockers(node: Node, circumstances: Circumstances) -> Iterator[Blocker]:
    """Yield the blockers of the removal of *node*, except for control plane, readiness and pods."""
    blockers = node_blockers(node, POLICY, circumstances)
    return (blocker for blocker in blockers if blocker.reason not in _OWN_CHECKS or is_unfinished(node))


# Choose the nodes to remove, by the rules of kubeaware-cloudpool-proxy and with the scheduler's own predicates.
#
# Pods may move to any node that is Ready, schedulable and not part of the control plane. Pods of kube-system are not
# moved; they terminate with their node. All rules apply to one snapshot, which is not changed.

_EFFORT: Final = EVALUATIONS_PER_SECOND  #: searches for one second beyond first-fit


@dataclass(frozen=True, slots=True)
class Choice:
    """The victims in drain order, and the blockers of the rejected nodes."""

    plans: tuple[Plan, ...]
    rejected: tuple[Rejected, ...]


@dataclass(frozen=True, slots=True)
class _RemovableNode:
    node: str
    row: int
    movers: tuple[Pod, ...]
    share: float  #: the sum of the requested fractions of the node's cpu and memory


class Victims:
    """Applies the rules to *snapshot* at the time *now*, for the proxy whose marks have the holder *holder*.

    *own* is the node on which the proxy runs; *vetoes* are further blockers by node.
    """

    def __init__(
        self,
        snapshot: Snapshot,
        now: datetime,
        holder: str = "",
        own: str = "",
        vetoes: Mapping[str, tuple[Blocker, ...]] | None = None,
    ) -> None:
        self._snapshot = snapshot
        self._now = now
        self._circumstances = Circumstances(now, holder=holder, own=own, vetoes=vetoes or {})
        self._filters = Filters(snapshot)
        self._budgets = Budgets(snapshot)
        self._gangs = Gangs(snapshot)
        self._left_out = UnreadableObjects(snapshot.unreadable)
        self._masters = frozenset(control_plane_nodes(snapshot))
        names = snapshot.nodes.names
        self._spot = frozenset(names[row] for row in groups(snapshot, POLICY).spot_rows)
        self._counts = OwnerCounts(snapshot, self._spot)

    @property
    def control_plane(self) -> Collection[str]:
        """The control-plane nodes, recognized by label or by an API server pod."""
        return self._masters

    def judge(self, node: str, evicted: Collection[str] = ()) -> Verdict:
        """Return a plan that removes only *node*, or its blockers.

        *evicted* are the UIDs of pods that this drain has evicted. The drain waits for them, however long it takes.
        """
        choice = self.choose([node], 1, evicted)
        return choice.plans[0] if choice.plans else choice.rejected[0]

    def follow(self, node: str, due: Sequence[Pod], evicted: Collection[str]) -> Verdict:
        """Return a plan for the pods left on *node*, which is being drained, and the replacement pods of *due*.

        Budgets are not checked: the eviction API rejects evictions that violate them.
        """
        candidate = self._examined(node, self._rules(evicted), budgets=False)
        if isinstance(candidate, Rejected):
            return candidate
        left = tuple(pod for pod in candidate.movers if pod.uid not in evicted)
        gone = [pod for pod in self._snapshot.pods_on[node].values() if pod.uid in evicted]
        if blockers := self._too_few_replicas(node, left, self._moved(gone)):
            return Rejected(node, tuple(blockers))
        self._filters.refresh(pod.cls for pod in (*left, *due))
        plans = self._plan_together([replace(candidate, movers=left)], due)
        return Rejected(node, (plans,)) if isinstance(plans, Blocker) else plans[0]

    def choose(self, nodes: Collection[str], limit: int, evicted: Collection[str] = ()) -> Choice:
        """Choose at most *limit* of *nodes*; unknown names are ignored.

        The order is: fewest pods to move, smallest share of requests, name. All victims' pods must fit on the remaining
        nodes together. Budgets are checked per victim, because a victim is drained only after the pods of the previous
        one are running again.
        """
        rules = self._rules(evicted)
        examined = [self._examined(name, rules) for name in sorted(nodes) if name in self._snapshot.nodes.row]
        rejected = [verdict for verdict in examined if isinstance(verdict, Rejected)]
        candidates = sorted(
            (verdict for verdict in examined if isinstance(verdict, _RemovableNode)),
            key=lambda candidate: (len(candidate.movers), candidate.share, candidate.node),
        )
        self._filters.refresh(pod.cls for candidate in candidates for pod in candidate.movers)
        chosen: list[_RemovableNode] = []
        plans: tuple[Plan, ...] = ()
        for candidate in candidates:
            if len(chosen) == limit:
                break
            moved = self._moved(pod for victim in chosen if victim.node not in self._spot for pod in victim.movers)
            if blockers := self._too_few_replicas(candidate.node, candidate.movers, moved):
                rejected.append(Rejected(candidate.node, tuple(blockers)))
                continue
            together = self._plan_together([*chosen, candidate])
            if isinstance(together, Blocker):
                rejected.append(Rejected(candidate.node, (together,)))
            else:
                chosen, plans = [*chosen, candidate], together
        return Choice(plans, tuple(rejected))

    def _moved(self, pods: Iterable[Pod]) -> RemainingReplicas:
        """Return the replicas that may leave on-demand nodes after *pods* have left them."""
        remaining = RemainingReplicas(self._counts)
        remaining.take(remaining.groups([pod for pod in pods if not pod.cls.terminating]))
        return remaining

    def _too_few_replicas(self, node: str, movers: Sequence[Pod], remaining: RemainingReplicas) -> list[Blocker]:
        """Return the blockers of controllers that keep replicas on on-demand nodes, if *movers* leave *node*.

        Pods leave on-demand nodes if they may move to a spot node.
        """
        if node in self._spot or not any(name in self._spot for name, _ in self._targets()):
            return []
        return remaining.blockers(remaining.groups(movers))

    def _rules(self, evicted: Collection[str]) -> PodRules:
        facts = Facts(POLICY, self._budgets.guards, evicted, gangs=self._gangs, waits_for_terminating=True)
        return pod_rules(RULES, facts, Now(self._now))

    def _examined(self, name: str, rules: PodRules, *, budgets: bool = True) -> _RemovableNode | Rejected:
        """Apply the rules, and with *budgets* also the budgets, to a node and its pods. Room is checked later."""
        row = self._snapshot.nodes.row[name]
        node = self._snapshot.nodes.nodes[row]
        assert node is not None
        blockers = list(self._node_blockers(node))
        movers: list[Pod] = []
        for pod in self._snapshot.pods_on[name].values():
            opinion = pod_fate(pod, rules)
            if isinstance(opinion, Blocker):
                blockers.append(opinion)
            elif opinion is Fate.MOVES:
                movers.append(pod)
        movers.sort(key=lambda pod: pod.key)
        blockers += self._left_out.blockers(name, movers)
        blockers += resource_claims(movers)
        if budgets:
            blockers += RemainingDisruptions(self._budgets).lacking(movers)
            blockers += self._too_few_replicas(name, movers, self._moved(()))
        if movers and node.condition("Ready") != "True":
            blockers.append(Blocker(Reason.NODE_NOT_READY, "it is not Ready: its kubelet cannot terminate pods"))
        return (
            Rejected(name, tuple(blockers)) if blockers else _RemovableNode(name, row, tuple(movers), self._share(row))
        )

    def _node_blockers(self, node: Node) -> Iterator[Blocker]:
        if node.name in self._masters:
            yield Blocker(Reason.CONTROL_PLANE, "it belongs to the control plane")
        yield from removal_blockers(node, self._circumstances)

    def _plan_together(self, victims: Sequence[_RemovableNode], due: Sequence[Pod] = ()) -> tuple[Plan, ...] | Blocker:
        """Return plans for all *victims*, or why the last one cannot be added to the others and the *due* pods."""
        going = {victim.node for victim in victims}
        rows = [row for name, row in self._targets() if name not in going]
        if not rows:
            return Blocker(Reason.NO_ROOM, "no other node that is Ready and schedulable remains")
        targets = Targets(rows)
        room = Room(self._snapshot, self._filters, targets, Sizes(self._snapshot, targets), "nodes")
        with self._snapshot.trial() as trial:
            movers = [pod for victim in victims for pod in self._emptied(victim, trial)]
            placed = pack(room, trial, (*due, *movers), Effort(_EFFORT))
        if isinstance(placed, Stuck):
            return Blocker(Reason.NO_ROOM, placed.why, placed.pod.key)
        names = self._snapshot.nodes.names
        landing = {pod.key: names[row] for pod, row in placed}
        return tuple(self._plan(victim, landing) for victim in victims)

    def _emptied(self, victim: _RemovableNode, trial: Trial) -> Sequence[Pod]:
        for pod in victim.movers:
            trial.evict(pod)
        trial.drain(victim.row)
        return victim.movers

    def _plan(self, victim: _RemovableNode, landing: dict[str, str]) -> Plan:
        placements = (
            Placement(_ref(pod), landing[pod.key], pod.cls.spec.termination_grace_period_seconds, pod.owner)
            for pod in victim.movers
        )
        leaving = (
            _ref(pod)
            for pod in self._snapshot.pods_on[victim.node].values()
            if pod.deletion_timestamp is not None and not stays(pod)
        )
        return Plan(victim.node, tuple(placements), tuple(sorted(leaving, key=str)))

    def _targets(self) -> list[tuple[str, int]]:
        """Return the target nodes, fullest first to keep free room contiguous; candidates of other tools come last."""
        targets = [
            node
            for node in self._snapshot.nodes
            if node.name not in self._masters
            and node.condition("Ready") == "True"
            and why_not_target(node) is None
            and node.name not in self._left_out.nodes
        ]
        table = self._snapshot.nodes
        ordered = sorted(
            (is_deletion_candidate(node), -int(table.requested[table.row[node.name], CPU]), node.name)
            for node in targets
        )
        return [(name, table.row[name]) for *_, name in ordered]

    def _share(self, row: int) -> float:
        table = self._snapshot.nodes
        return sum(
            float(table.allocatable[row, column] - table.free[row, column])
            / max(1.0, float(table.allocatable[row, column]))
            for column in (CPU, MEMORY)
        )


def _ref(pod: Pod) -> PodRef:
    return PodRef(pod.namespace, pod.name, pod.uid)
