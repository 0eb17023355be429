"""Which nodes may be given up, by the rules of kubeaware-cloudpool-proxy, on the scheduler's own predicates.

Pods may go to any node that is Ready, schedulable and not of the control plane; pods of kube-system stay and die with
their node. Everything here is a question to one snapshot, which is left as it was found.
"""

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Final

from predicates.filters import Filters, Targets
from predicates.nodes import CPU, MEMORY
from predicates.objects import Node, Pod
from predicates.plugins import DEFAULT
from predicates.snapshot import Snapshot, Trial
from rescheduler.planning.budgets import Budgets, RemainingDisruptions
from rescheduler.planning.candidates import CONTROL_PLANE, is_deletion_candidate, node_blockers, why_not_target
from rescheduler.planning.drainability import (
    SAFE_LOCAL_VOLUMES,
    SAFE_TO_EVICT,
    Context,
    Fate,
    belongs_to_node,
    fate,
)
from rescheduler.planning.outcome import Blocker, Placement, Plan, PodRef, Reason, Rejected, Verdict
from rescheduler.planning.packing import QUESTIONS_PER_SECOND, Effort, Room, Sizes, Stuck, pack
from rescheduler.planning.policy import Circumstances, Policy
from rescheduler.planning.unreadable import UnreadableObjects

#: Opt-outs of pods count as everywhere; local storage and kube-system have rules of their own here. Pods of other
#: schedulers may be evicted: no option of the proxy could allow that.
_POLICY: Final = Policy(skip_nodes_with_local_storage=False, skip_nodes_with_system_pods=False, scheduler_names=())
_SYSTEM: Final = "kube-system"
#: What counts of a node itself; the control plane is found here, and what is not Ready may have no pod to move.
_OF_NODES: Final = frozenset(
    {
        Reason.SCALE_DOWN_DISABLED,
        Reason.DO_NOT_DISRUPT_NODE,
        Reason.NODE_DELETING,
        Reason.BEING_DRAINED,
        Reason.HOSTS_LEADER,
        Reason.OTHER_INSTALLATION,
    }
)
_EFFORT: Final = QUESTIONS_PER_SECOND  #: a second of looking for places above first-fit


@dataclass(frozen=True, slots=True)
class Choice:
    """Victims in the order in which they are to be drained, and why the others are none."""

    plans: tuple[Plan, ...]
    rejected: tuple[Rejected, ...]


@dataclass(frozen=True, slots=True)
class _Candidate:
    node: str
    row: int
    movers: tuple[Pod, ...]
    share: float  #: of the node's cpu and memory that is requested, both added


class Victims:
    """Judges nodes of *snapshot* at the moment *now*, for the proxy that is named *holder* in its marks.

    *own* is the node that the proxy runs on; *vetoes* are further reasons against nodes.
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
        self._filters = Filters(snapshot, DEFAULT)
        self._budgets = Budgets(snapshot)
        self._left_out = UnreadableObjects(snapshot.unreadable)
        self._masters = frozenset(_masters(snapshot))

    @property
    def control_plane(self) -> Collection[str]:
        """Nodes by label, or because an API server runs there."""
        return self._masters

    def judge(self, node: str, evicted: Collection[str] = ()) -> Verdict:
        """Whether *node* alone can be given up, as things are.

        *evicted* are the UIDs of pods that the drain which asks has evicted: they are waited for, however late.
        """
        choice = self.choose([node], 1, evicted)
        return choice.plans[0] if choice.plans else choice.rejected[0]

    def follow(self, node: str, due: Sequence[Pod], evicted: Collection[str]) -> Verdict:
        """Whether the pods left on *node*, which is being drained, fit beside the replacement pods of *due*.

        Budgets are left to the eviction API, which refuses for the moment what they do not allow.
        """
        candidate = self._examined(node, self._context(evicted), budgets=False)
        if isinstance(candidate, Rejected):
            return candidate
        left = tuple(pod for pod in candidate.movers if pod.uid not in evicted)
        self._filters.refresh(pod.cls for pod in (*left, *due))
        plans = self._together([replace(candidate, movers=left)], due)
        return Rejected(node, (plans,)) if isinstance(plans, Blocker) else plans[0]

    def choose(self, nodes: Collection[str], most: int, evicted: Collection[str] = ()) -> Choice:
        """At most *most* of *nodes*, as far as they exist.

        Fewest pods to move first, then the smaller share of requests, then the name.
        All victims' pods fit the nodes that remain, together. Budgets are judged victim by victim, for a victim is
        drained only when the pods of the one before are back.
        """
        context = self._context(evicted)
        examined = [self._examined(name, context) for name in sorted(nodes) if name in self._snapshot.nodes.row]
        rejected = [one for one in examined if isinstance(one, Rejected)]
        candidates = sorted(
            (one for one in examined if isinstance(one, _Candidate)),
            key=lambda one: (len(one.movers), one.share, one.node),
        )
        self._filters.refresh(pod.cls for one in candidates for pod in one.movers)
        chosen: list[_Candidate] = []
        plans: tuple[Plan, ...] = ()
        for one in candidates:
            if len(chosen) == most:
                break
            found = self._together([*chosen, one])
            if isinstance(found, Blocker):
                rejected.append(Rejected(one.node, (found,)))
            else:
                chosen, plans = [*chosen, one], found
        return Choice(plans, tuple(rejected))

    def _context(self, evicted: Collection[str]) -> Context:
        return Context(_POLICY, self._now, self._budgets.guards, evicted, waits_for_terminating=True)

    def _examined(self, name: str, context: Context, *, budgets: bool = True) -> _Candidate | Rejected:
        """What the rules, and the *budgets*, allow for a node and its pods; the room is asked later."""
        row = self._snapshot.nodes.row[name]
        node = self._snapshot.nodes.nodes[row]
        assert node is not None
        blockers = list(self._node_blockers(node))
        movers: list[Pod] = []
        for pod in self._snapshot.pods_on[name].values():
            opinion = _fate(pod, context)
            if isinstance(opinion, Blocker):
                blockers.append(opinion)
            elif opinion is Fate.MOVES:
                movers.append(pod)
        movers.sort(key=lambda pod: pod.key)
        blockers += self._left_out.blockers(name, movers)
        blockers += RemainingDisruptions(self._budgets).reserve(movers) if budgets else []
        if movers and node.condition("Ready") != "True":
            blockers.append(Blocker(Reason.NODE_NOT_READY, "it is not Ready: its kubelet cannot terminate pods"))
        return Rejected(name, tuple(blockers)) if blockers else _Candidate(name, row, tuple(movers), self._share(row))

    def _node_blockers(self, node: Node) -> Iterator[Blocker]:
        if node.name in self._masters:
            yield Blocker(Reason.CONTROL_PLANE, "it belongs to the control plane")
        found = node_blockers(node, _POLICY, self._circumstances)
        yield from (one for one in found if one.reason in _OF_NODES)

    def _together(self, victims: Sequence[_Candidate], due: Sequence[Pod] = ()) -> tuple[Plan, ...] | Blocker:
        """Plans for all *victims*, or why the last one cannot go beside the others and the pods that are *due*."""
        going = {one.node for one in victims}
        rows = [row for name, row in self._targets() if name not in going]
        if not rows:
            return Blocker(Reason.NO_ROOM, "no other node that is Ready and schedulable remains")
        targets = Targets(rows)
        room = Room(self._snapshot, self._filters, targets, Sizes(self._snapshot, targets), "nodes")
        with self._snapshot.trial() as trial:
            movers = [pod for one in victims for pod in self._emptied(one, trial)]
            placed = pack(room, trial, (*due, *movers), Effort(_EFFORT))
        if isinstance(placed, Stuck):
            return Blocker(Reason.NO_ROOM, placed.why, placed.pod.key)
        names = self._snapshot.nodes.names
        landing = {pod.key: names[row] for pod, row in placed}
        return tuple(self._plan(one, landing) for one in victims)

    def _emptied(self, victim: _Candidate, trial: Trial) -> Sequence[Pod]:
        for pod in victim.movers:
            trial.evict(pod)
        trial.drain(victim.row)
        return victim.movers

    def _plan(self, victim: _Candidate, landing: dict[str, str]) -> Plan:
        placements = (
            Placement(_ref(pod), landing[pod.key], pod.cls.spec.termination_grace_period_seconds, pod.owner)
            for pod in victim.movers
        )
        leaving = (
            _ref(pod)
            for pod in self._snapshot.pods_on[victim.node].values()
            if pod.deletion_timestamp is not None and not _stays(pod)
        )
        return Plan(victim.node, tuple(placements), tuple(sorted(leaving, key=str)))

    def _targets(self) -> list[tuple[str, int]]:
        """Nodes that take pods, fullest first, so that room stays in one piece; underused ones after all others."""
        taking = [
            one
            for one in self._snapshot.nodes
            if one.name not in self._masters
            and one.condition("Ready") == "True"
            and why_not_target(one) is None
            and one.name not in self._left_out.nodes
        ]
        table = self._snapshot.nodes
        ordered = sorted(
            (is_deletion_candidate(one), -int(table.requested[table.row[one.name], CPU]), one.name) for one in taking
        )
        return [(name, table.row[name]) for *_, name in ordered]

    def _share(self, row: int) -> float:
        table = self._snapshot.nodes
        return sum(
            float(table.allocatable[row, column] - table.free[row, column])
            / max(1.0, float(table.allocatable[row, column]))
            for column in (CPU, MEMORY)
        )


def _fate(pod: Pod, context: Context) -> Fate | Blocker:
    if _stays(pod):
        return Fate.STAYS
    opinion = _local_storage(pod) or fate(pod, context)
    if isinstance(opinion, Blocker) and opinion.reason is Reason.NO_CONTROLLER:
        # The rule tells of a flag that the daemon has, and the proxy has not.
        return replace(opinion, detail=f'no controller would recreate it; {SAFE_TO_EVICT}: "true" allows eviction')
    return opinion


def _stays(pod: Pod) -> bool:
    """It belongs to the node, or to the system: it neither moves nor blocks."""
    return pod.namespace == _SYSTEM or belongs_to_node(pod)


def _local_storage(pod: Pod) -> Blocker | None:
    """Any hostPath and any emptyDir, whatever its medium, unless the owner says that it may be lost."""
    if pod.deletion_timestamp is not None or pod.annotations.get(SAFE_TO_EVICT) == "true":
        return None
    allowed = pod.annotations.get(SAFE_LOCAL_VOLUMES, "").split(",")
    local = [
        one.name
        for one in pod.cls.spec.volumes
        if (one.host_path is not None or one.empty_dir is not None) and one.name not in allowed
    ]
    if not local:
        return None
    detail = f"local storage {', '.join(local)} would be lost; {SAFE_LOCAL_VOLUMES} allows eviction"
    return Blocker(Reason.LOCAL_STORAGE, detail, pod.key)


def _masters(snapshot: Snapshot) -> Iterator[str]:
    for node in snapshot.nodes:
        if any(label in node.metadata.labels for label in CONTROL_PLANE):
            yield node.name
            continue
        for pod in snapshot.pods_on[node.name].values():
            labelled = pod.cls.labels.get("component") == "kube-apiserver"
            if pod.namespace == _SYSTEM and (labelled or pod.name == f"kube-apiserver-{node.name}"):
                yield node.name
                break


def _ref(pod: Pod) -> PodRef:
    return PodRef(pod.namespace, pod.name, pod.uid)
