"""The results of planning: a plan for a node, or all reasons why it is not drained; and where its pods landed."""

import enum
from collections import Counter, defaultdict
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Final, Self, TypeAlias

import msgspec

from predicates.objects import OwnerReference, Pod
from rescheduler.planning.forms import count, cpu, memory, shortened


class Severity(enum.StrEnum):
    """What a reason says about the cluster, the worst first."""

    ERROR = "error"  #: pods do not run, or would not run again if their node failed: to repair, also without a drain
    WARNING = "warning"  #: the node stays until somebody changes the workload, the spot nodes or a setting
    INFO = "info"  #: it ends by itself, or somebody has asked for it by an annotation, a label or a setting


_ERROR, _INFO = Severity.ERROR, Severity.INFO


class Reason(enum.StrEnum):
    """The reason code for not draining a node, used in metrics, events and ``plan -o json``, and its severity.

    Details are separate text.
    """

    severity: Severity

    def __new__(cls, code: str, severity: Severity = Severity.WARNING) -> Self:
        reason = str.__new__(cls, code)
        reason._value_ = code
        reason.severity = severity
        return reason

    # About the node itself.
    SCALE_DOWN_DISABLED = "scale-down-disabled", _INFO
    DO_NOT_DISRUPT_NODE = "node-do-not-disrupt", _INFO
    CONTROL_PLANE = "control-plane", _INFO
    COOLING_DOWN = "cooling-down", _INFO
    MIN_ON_DEMAND_NODES = "min-on-demand-nodes", _INFO
    NODE_NOT_READY = "node-not-ready", _ERROR
    NODE_DELETING = "node-being-deleted", _INFO
    BEING_DRAINED = "being-drained-by-another", _INFO
    HOSTS_LEADER = "hosts-the-leader", _INFO
    OTHER_INSTALLATION = "other-installation", _INFO
    EVICTION_REFUSED = "eviction-refused"
    UNREADABLE_OBJECT = "unreadable-object", _ERROR
    BELOW_MINIMUM = "below-minimum", _INFO  # the minimum size of the provider's group
    STATIC_CAPACITY = "static-capacity", _INFO  # Karpenter would buy the node again
    NEVER_REMOVED = "never-removed", _INFO  # by Karpenter, now or at all
    NOT_WORTH_IT = "not-worth-it", _INFO  # what it saves, for the moves of its pods
    DISRUPTION_BUDGET = "disruption-budget", _INFO  # of its NodePool: as many nodes as it allows are being disrupted
    PROVIDER_REFUSED = "provider-refused"
    SHARED_MACHINE = "shared-machine"  # with another Node
    DO_NOT_DRAIN = "do-not-drain", _INFO
    NOT_ON_DEMAND = "not-on-demand", _INFO  # any more, during its drain
    REMOVAL_DISABLED = "removal-disabled", _INFO  # also for pods
    PENDING_POD = "pending-pod", _INFO  # goes to the node, because no other accepts it
    CAPACITY_BUFFER = "capacity-buffer", _INFO  # has room on the node, because no other has it
    # About a pod on the node.
    NOT_SAFE_TO_EVICT = "not-safe-to-evict", _INFO
    DO_NOT_DISRUPT = "do-not-disrupt", _INFO
    NO_CONTROLLER = "no-controller", _ERROR
    RUNS_TO_COMPLETION = "runs-to-completion"
    CUSTOM_CONTROLLER = "custom-controller"
    LOCAL_STORAGE = "local-storage"
    KUBE_SYSTEM = "kube-system-pod"
    LIQO_COMPONENT = "liqo-component", _INFO
    BUDGET = "pod-disruption-budget"
    MANY_BUDGETS = "several-budgets"
    NO_ROOM = "no-room-on-spot"
    SPOT_POOL_SETTLING = "spot-pool-settling", _INFO
    NO_SPOT_CAPACITY = "no-spot-capacity"  # placeholders did not run on spot nodes in time
    PINNED = "pinned-to-on-demand"
    KUBELET = "kubelet-refuses", _ERROR  # a pod that the scheduler would place
    REFUSED_BEFORE = "kubelet-refused", _ERROR  # likewise, as a drain has shown
    RESOURCE_CLAIM = "resource-claim"
    BUDGET_TOO_SLOW = "budget-too-slow"
    JOB_WOULD_FAIL = "job-would-fail"
    GRACE_PERIOD = "grace-period"
    OTHER_SCHEDULER = "other-scheduler"
    MOVED_RECENTLY = "moved-recently"
    NOT_RECOVERED = "not-recovered", _ERROR
    POD_TERMINATING = "pod-terminating", _INFO
    POD_STUCK_TERMINATING = "pod-stuck-terminating", _ERROR
    REPLICAS_NOT_READY = "replicas-not-ready", _ERROR
    NAMESPACE_EXCLUDED = "namespace-excluded", _INFO
    DO_NOT_EVICT = "do-not-evict", _INFO
    PREFER_NO_EVICTION = "prefer-no-eviction", _INFO
    EVICTION_RESPONDER = "eviction-responder", _INFO
    RESTRICT_SCALE_DOWN = "restrict-scale-down", _INFO
    NODE_NAME_IN_TEMPLATE = "node-name-in-template", _ERROR
    SHARED_VOLUME = "shared-volume"
    VOLUME_ATTACHMENT = "volume-attachment", _ERROR
    QUOTA_EXCEEDED = "quota-exceeded", _ERROR
    ADMISSION_REJECTS = "admission-rejects-replacement", _ERROR
    SINGLE_REPLICA = "single-replica", _INFO
    MIN_ON_DEMAND_REPLICAS = "min-on-demand-replicas", _INFO
    GANG_MEMBER = "gang-member"
    NO_SURGE = "no-surge"
    # About the plan.
    FRAGILE = "fragile-plan"
    RETURNS_TO_ON_DEMAND = "returns-to-on-demand"
    RETURNS_TO_DRAINED = "returns-to-drained-node"
    SPOT_POOL_SHARE = "spot-pool-share"
    CANNOT_MOVE_IN_STEPS = "cannot-move-in-steps"
    WOULD_NOT_SURVIVE = "would-not-survive", _INFO  # the loss of a pool of spot nodes
    FALLBACK_HEADROOM = "fallback-headroom", _INFO  # room for the pods of lost spot nodes
    TIMEOUT = "planning-timeout", _INFO


class PodRef(msgspec.Struct, frozen=True, gc=False):
    """A pod at the time of planning. A pod with the same name and another UID is a different pod."""

    namespace: str
    name: str
    uid: str

    @classmethod
    def of(cls, pod: Pod) -> "PodRef":
        """Return the reference to *pod*."""
        return cls(pod.namespace, pod.name, pod.uid)

    def __str__(self) -> str:
        return f"{self.namespace}/{self.name}"


class Placement(msgspec.Struct, frozen=True, gc=False):
    """A pod and the node where it is expected to run."""

    pod: PodRef
    node: str  #: the target node; the pod fits there together with all earlier placements
    grace_period: int | None = None  #: the pod's own, in seconds; None means the API's default of 30
    owner: OwnerReference | None = None  #: the pod's controller
    responders: bool = False  #: its eviction is the task of other components (``spec.evictionResponders``)
    requestable: bool = True  #: whether an EvictionRequest can name it: it is in no PodGroup
    together: str = ""  #: pods with the same text are evicted in one step: they share a volume


class Surge(msgspec.Struct, frozen=True):
    """A Deployment whose pods on a node are moved by a rolling update, which replaces all of its pods."""

    namespace: str
    name: str
    uid: str
    restarts: int  #: all pods that are replaced, on all nodes
    pods: tuple[PodRef, ...]  #: those on the drained node

    def __str__(self) -> str:
        return f"{self.namespace}/{self.name}"

    @property
    def text(self) -> str:
        """The Deployment and the number of its pods: ``web/api, 1 replica``."""
        return f"{self}, {self.restarts} replica{'' if self.restarts == 1 else 's'}"

    def form(self) -> dict[str, object]:
        """Return the object for JSON."""
        return {"deployment": str(self), "restarts": self.restarts, "pods": [str(pod) for pod in self.pods]}


@dataclass(frozen=True, slots=True)
class Blocker:
    """A reason that prevents a drain, with details."""

    reason: Reason
    detail: str
    pod: str | None = None  #: ``namespace/name``, or None if the node itself is blocked

    @property
    def text(self) -> str:
        """The detail, together with the pod if there is one."""
        return f"pod {self.pod}: {self.detail}" if self.pod else self.detail

    def __str__(self) -> str:
        return f"{self.reason}: {self.text}"


#: Reasons that mean that another tool is removing the node.
_REMOVALS: Final = frozenset({Reason.NODE_DELETING, Reason.BEING_DRAINED})


def is_removal(blockers: Iterable[Blocker]) -> bool:
    """Return whether another tool is removing the node, and nothing else blocks the drain."""
    return {blocker.reason for blocker in blockers} <= _REMOVALS


@dataclass(frozen=True, slots=True)
class Landing:
    """The numbers of pods that would land on spot and other nodes according to the scheduler's scoring."""

    spot: int
    on_demand: int  #: that should not
    leftovers: int = 0  #: pods that must not run on spot nodes, on on-demand nodes that stay


#: A text names at most this many preempted pods.
_NAMED: Final = 3


class DrainKind(enum.StrEnum):
    """What becomes of a node whose pods a plan moves, and where they go. The values are stored with its mark."""

    TO_SPOT = ""  #: it is emptied, and all its pods go to spot nodes
    LEFTOVERS = "leftovers"  #: it is emptied; pods that must not run on spot nodes go to on-demand nodes that stay
    MAKES_ROOM = "makes-room"  #: it stays: some of its pods go to spot nodes, to make room for such pods


@dataclass(frozen=True, slots=True)
class Purpose:
    """What a drain is for. It is stored with its mark, so that another process goes on for the same purpose."""

    kind: DrainKind = DrainKind.TO_SPOT
    only: frozenset[str] = frozenset()  #: UIDs of the pods that leave a node which stays


TO_SPOT: Final = Purpose()


@dataclass(frozen=True, slots=True)
class Plan:
    """A plan to drain *node*: all its pods may be evicted and fit on spot nodes together.

    The order of the placements matters: each is valid after the ones before it.
    """

    node: str
    placements: tuple[Placement, ...]
    leaving: tuple[PodRef, ...] = ()  #: pods that are already being deleted: the drain waits for them
    robust: bool | None = None  #: None if the plan was not simulated
    landing: Landing | None = None
    #: The pods only fit if they are evicted one at a time in this order, each after the previous one runs again.
    one_by_one: bool = False
    forecast: tuple[Placement, ...] = ()  #: where the scheduler's scoring places the pods, in order of arrival
    surges: tuple[Surge, ...] = ()  #: Deployments that roll out instead of an eviction of their pods, in this order
    preempts: tuple[PodRef, ...] = ()  #: pods that yield their room on spot nodes: the scheduler preempts them
    kind: DrainKind = DrainKind.TO_SPOT
    leftovers: frozenset[str] = frozenset()  #: UIDs of the pods that go to on-demand nodes
    first: tuple["Plan", ...] = ()  #: what makes room on the nodes that stay, before this node is drained

    @property
    def with_leftovers(self) -> str:
        """How pages mark a plan that moves pods to on-demand nodes that stay, and what makes room for them, or ""."""
        if self.kind is not DrainKind.LEFTOVERS:
            return ""
        first = "".join(
            f", after {count(len(each.placements), 'pod')} of {each.node} went to spot" for each in self.first
        )
        return f" with leftovers ({count(len(self.leftovers), 'pod')} to on-demand nodes that stay{first})"

    def leftovers_form(self, makes_room: str) -> dict[str, object]:
        """Return the leftovers, and under the key *makes_room* what is moved to spot nodes first, for JSON."""
        first = [
            {"node": each.node, "placements": [{"pod": str(item.pod), "node": item.node} for item in each.placements]}
            for each in self.first
        ]
        pods = [str(item.pod) for item in self.placements if item.pod.uid in self.leftovers]
        return {"leftovers": pods, makes_room: first}

    @property
    def purpose(self) -> Purpose:
        """What the drain is for."""
        only = frozenset(each.pod.uid for each in self.placements)
        return Purpose(self.kind, frozenset() if self.empties else only)

    @property
    def empties(self) -> bool:
        """Whether the node is empty afterwards, and its machine may end."""
        return self.kind is not DrainKind.MAKES_ROOM

    @property
    def moves(self) -> tuple[Placement, ...]:
        """All placements, also of the pods that make room first."""
        return (*(placement for each in self.first for placement in each.placements), *self.placements)

    @property
    def next(self) -> "Plan":
        """The plan that is carried out now: the first that makes room, or this one."""
        return self.first[0] if self.first else self

    @property
    def preempted_text(self) -> str:
        """The pods that yield their room: ``a/pause-1, a/pause-2, a/pause-3 and 3 more``."""
        return shortened(list(map(str, self.preempts)), _NAMED)

    def objection(self, *, allow_fragile: bool, allow_returning: bool) -> Reason | None:
        """Return why the daemon would not carry out the plan, by its simulations, or None."""
        if self.robust is False and not allow_fragile:
            return Reason.FRAGILE
        back = 0 if self.landing is None else self.landing.on_demand
        return Reason.RETURNS_TO_ON_DEMAND if 2 * back > len(self.placements) and not allow_returning else None

    @property
    def with_surge(self) -> str:
        """How pages mark a plan that is not possible without rolling updates; "" for others."""
        return f" with surge ({'; '.join(surge.text for surge in self.surges)}, no downtime)" if self.surges else ""


_ABOUT_ROOM: Final = frozenset({Reason.NO_ROOM, Reason.NO_SPOT_CAPACITY})


@dataclass(frozen=True, slots=True)
class Rejected:
    """The reasons why *node* is not drained. There is always at least one blocker."""

    node: str
    blockers: tuple[Blocker, ...]

    @property
    def reason(self) -> Reason:
        """The reason of the first blocker."""
        return self.blockers[0].reason

    @property
    def lacks_only_room(self) -> bool:
        """Whether nothing but room on spot nodes stands in the way."""
        return {blocker.reason for blocker in self.blockers} <= _ABOUT_ROOM


Verdict: TypeAlias = Plan | Rejected


@dataclass(frozen=True, slots=True)
class TakenRoom:
    """The room of the spot nodes that pending pods take, and CapacityBuffers keep, before any pod is moved."""

    pods: int = 0
    cpu: int = 0  #: requests of both, in millicores
    memory: int = 0  #: requests of both, in bytes
    buffered: int = 0  #: pods that are not there, and for which CapacityBuffers keep room

    def __str__(self) -> str:
        """Return a sentence without a full stop, or "" if no room is taken."""
        pods = count(self.pods, "pending pod") if self.pods else ""
        buffers = f"CapacityBuffers for {count(self.buffered, 'pod')}" if self.buffered else ""
        if not (pods or buffers):
            return ""
        amount = f"{cpu(self.cpu)} vCPU" if self.cpu or not self.memory else f"{memory(self.memory)} of memory"
        verb = "keeps" if self.pods == 1 and not buffers else "keep"
        return f"{' and '.join(filter(None, [pods, buffers]))} {verb} {amount} of the spot nodes"


NO_ROOM_TAKEN: Final = TakenRoom()


def in_steps(plans: Iterable[Plan]) -> tuple[Plan, ...]:
    """Return *plans* in the order in which they are carried out, each after what makes room for it."""
    return tuple(step for plan in plans for step in (*plan.first, plan))


def counted_on(plans: Collection[Plan]) -> frozenset[str]:
    """Return the nodes that give pods to make room for *plans*, and those that take leftovers."""
    taking = (each.node for plan in plans for each in plan.placements if each.pod.uid in plan.leftovers)
    return frozenset((*taking, *(plan.node for plan in plans if not plan.empties)))


@dataclass(frozen=True, slots=True)
class Planning:
    """One verdict for each on-demand node, in drain order."""

    verdicts: tuple[Verdict, ...]
    on_demand_nodes: int
    spot_nodes: int
    timed_out: bool = False  #: the search ran out of time
    upper_bound: int | None = None  #: no plan can free more nodes than this; None if it was not computed
    pending: TakenRoom = NO_ROOM_TAKEN
    #: All plans in sequence, if ``--survive`` or ``--fallback-headroom`` rejects some of them; otherwise empty.
    possible: tuple[Plan, ...] = ()

    @property
    def plans(self) -> tuple[Plan, ...]:
        """Return the verdicts that are plans."""
        return tuple(verdict for verdict in self.verdicts if isinstance(verdict, Plan))

    @property
    def steps(self) -> tuple[Plan, ...]:
        """Return the plans in the order in which they are carried out, each after what makes room for it."""
        return in_steps(self.plans)

    @property
    def moved_pods(self) -> int:
        """Return the number of pods that the plans move, also of those that make room."""
        return sum(len(plan.moves) for plan in self.plans)

    @property
    def empty(self) -> int:
        """Return the number of plans that move no pods."""
        return sum(1 for plan in self.plans if not plan.placements)

    @property
    def rejected(self) -> tuple[Rejected, ...]:
        """Return the verdicts that are rejections."""
        return tuple(verdict for verdict in self.verdicts if isinstance(verdict, Rejected))

    def with_plans(
        self, plans: Collection[Plan], because: Mapping[str, Blocker], rejected: Iterable[Rejected] = ()
    ) -> "Planning":
        """Return the planning with *plans* in place of its own, and further nodes that are *rejected*.

        *because* are further reasons why nodes are rejected, by their names.
        """
        if tuple(plans) == self.plans and not because:
            return self
        planned = {plan.node for plan in plans}
        left = (verdict for verdict in self.rejected if verdict.node not in planned)
        others = [
            replace(each, blockers=(because[each.node], *each.blockers)) if each.node in because else each
            for each in left
        ]
        return replace(self, verdicts=(*plans, *rejected, *others), upper_bound=None)


# Where the replacement pods of a drain landed, compared with its forecast.
#
# A plan is only a forecast: the scheduler decides. If too many pods return to on-demand nodes, drains move pods without
# freeing nodes, so further drains are delayed.


class LandingOutcome(enum.StrEnum):
    """The outcome of the forecast for one pod; used as a metric label."""

    AS_FORECAST = "as-forecast"  #: on the forecast node
    OTHER_SPOT = "other-spot"
    RETURNED = "on-demand"  #: on a node that is not spot, although it was not forecast to return
    FORESEEN_RETURN = "on-demand-as-forecast"
    MISSING = "missing"  #: no replacement pod exists


@dataclass(frozen=True, slots=True)
class Expected:
    """The forecast of one drain, recorded while its pods still run."""

    node: str
    #: A controller (namespace and UID) → the nodes that were forecast for its pods.
    nodes: Mapping[tuple[str, str], tuple[str, ...]]
    existing: frozenset[str]  #: UIDs of all pods with a controller before the drain; any other pod is a replacement


def nodes_by_reason(planning: Planning) -> Counter[Reason]:
    """Count the nodes that stay by reason, for plan and status page. A node with several reasons counts for each."""
    return Counter(
        reason for node in planning.rejected for reason in dict.fromkeys(blocker.reason for blocker in node.blockers)
    )


@dataclass(frozen=True, slots=True)
class Landed:
    """Where the replacement pods of one drain landed."""

    node: str
    outcomes: Mapping[LandingOutcome, int]
    returned_from: frozenset[str] = frozenset()  #: the namespaces of the pods that returned

    @property
    def returned(self) -> int:
        """Return how many pods are on nodes that are not spot."""
        return self.outcomes.get(LandingOutcome.RETURNED, 0) + self.outcomes.get(LandingOutcome.FORESEEN_RETURN, 0)

    @property
    def badly(self) -> bool:
        """Return whether more than half of the pods returned to on-demand nodes, and of more than one namespace.

        The pods of one namespace show nothing about those of others: their controllers wait by themselves.
        """
        return 2 * self.returned > sum(self.outcomes.values()) and len(self.returned_from) > 1


def expect(plan: Plan, pods: Collection[Pod]) -> Expected:
    """Return the expected landing of *plan*. *pods* are all pods of the cluster."""
    owners = {pod.uid: (pod.namespace, pod.owner.uid) for pod in pods if pod.owner is not None and pod.owner.uid}
    nodes_by_owner: defaultdict[tuple[str, str], list[str]] = defaultdict(list)
    for placement in plan.forecast or plan.placements:
        if placement.pod.uid in plan.leftovers:
            continue
        if (owner := owners.get(placement.pod.uid)) is not None:
            nodes_by_owner[owner].append(placement.node)
    return Expected(plan.node, {owner: tuple(nodes) for owner, nodes in nodes_by_owner.items()}, frozenset(owners))


def compare(expected: Expected, pods: Iterable[Pod], is_spot: Callable[[str], bool]) -> Landed:
    """Compare *pods*, all pods of the cluster now, with the forecast. Pods of one controller are interchangeable."""
    landed: defaultdict[tuple[str, str], list[str]] = defaultdict(list)
    for pod in pods:
        if pod.owner is not None and pod.node_name and pod.uid not in expected.existing:
            landed[pod.namespace, pod.owner.uid].append(pod.node_name)
    outcomes: Counter[LandingOutcome] = Counter()
    returned_from: set[str] = set()
    for owner, nodes in expected.nodes.items():
        of_owner = Landed(expected.node, _of_controller(nodes, landed.get(owner, []), is_spot))
        outcomes += Counter(of_owner.outcomes)
        if of_owner.returned:
            returned_from.add(owner[0])
    return Landed(expected.node, outcomes, frozenset(returned_from))


def _of_controller(
    expected_nodes: Collection[str], landed: list[str], is_spot: Callable[[str], bool]
) -> Counter[LandingOutcome]:
    forecast, actual = Counter(expected_nodes), Counter(landed[: len(expected_nodes)])
    outcomes: Counter[LandingOutcome] = Counter()
    for node, pods in (forecast & actual).items():
        outcomes[LandingOutcome.AS_FORECAST if is_spot(node) else LandingOutcome.FORESEEN_RETURN] += pods
    foreseen = sum(pods for node, pods in (forecast - actual).items() if not is_spot(node))
    for node, pods in (actual - forecast).items():
        if is_spot(node):
            outcomes[LandingOutcome.OTHER_SPOT] += pods
            continue
        as_foreseen = min(pods, foreseen)
        foreseen -= as_foreseen
        outcomes[LandingOutcome.FORESEEN_RETURN] += as_foreseen
        outcomes[LandingOutcome.RETURNED] += pods - as_foreseen
    outcomes[LandingOutcome.MISSING] += len(expected_nodes) - actual.total()
    return outcomes
