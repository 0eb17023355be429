"""Signals on a Node that its machine will soon be removed, and bursts of lost spot nodes.

Two termination handlers have no signal of their own. Spot Ocean only cordons the nodes that it drains (on Azure, it
reads ``PreemptScheduled``). Since GKE 1.20 the kubelet shuts the node down, which makes the node not Ready.
"""

import enum
from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Final, Literal

from predicates.objects import Node
from predicates.snapshot import DRAIN_TAINT
from rescheduler.planning.pools import POOL_LABELS, pool_of


@dataclass(frozen=True, slots=True)
class Signal:
    """A taint key, a prefix of taint keys (ending with a slash), or a condition type whose status is True."""

    source: str
    key: str
    kind: Literal["taint", "condition"] = "taint"
    #: Whether a tool removes the node on purpose; otherwise the cloud reclaims it, or it is failing.
    deliberate: bool = False

    def __str__(self) -> str:
        return f"{self.kind} {self.key.removesuffix('/')} of {self.source}"


#: Taints that all spot machines of a cloud have, such as ``kubernetes.azure.com/scalesetpriority``, are not signals.
TAINTS: Final = (
    # spot-itn, rebalance-recommendation, scheduled-maintenance, asg-lifecycle-termination
    Signal("AWS Node Termination Handler", "aws-node-termination-handler/"),
    Signal("GKE's termination handler", "cloud.google.com/impending-node-termination"),
    Signal("AKS node auto-drain", "remediator.kubernetes.azure.com/unschedulable"),
    Signal("AKS node auto-drain", "remediator.aks.microsoft.com/unschedulable"),  # its older name
    Signal("the Azure cloud provider", "cloudprovider.azure.microsoft.com/draining"),
    Signal("AKS Node Termination Handler", "aks-node-termination-handler/"),  # preempt, terminate, redeploy …
    Signal("the cloud provider", "node.cloudprovider.kubernetes.io/shutdown"),
    Signal("an operator or the cloud provider", "node.kubernetes.io/out-of-service"),
    # Karpenter uses the same taint for interruption and consolidation.
    Signal("Karpenter", "karpenter.sh/disrupted", deliberate=True),
    Signal("Karpenter", "karpenter.sh/disruption", deliberate=True),  # before 1.0
    Signal("Cluster Autoscaler", "ToBeDeletedByClusterAutoscaler", deliberate=True),
    Signal("kubeaware-cloudpool-proxy", "node-about-to-be-drained", deliberate=True),
)

#: The condition of a node that is being drained (KEP-5683), and the reason by which ours are known.
DRAIN_CONDITION: Final = "DrainInProgress"
OUR_REASON: Final = "SpotRescheduler"

CONDITIONS: Final = (
    # Set by AKS's node-problem-detector: scheduled events of the virtual machine. The first covers all events.
    *(
        Signal("AKS", name, "condition")
        for name in (
            "VMEventScheduled",
            "PreemptScheduled",
            "TerminateScheduled",
            "RedeployScheduled",
            "RebootScheduled",
        )
    ),
    # The conditions of the node's lifecycle, since Kubernetes 1.37 (KEP-5683).
    Signal("an administrator", DRAIN_CONDITION, "condition", deliberate=True),
    Signal("an administrator", "Drained", "condition", deliberate=True),
    Signal("an administrator", "MaintenancePlanned", "condition"),
    Signal("an administrator", "MaintenanceInProgress", "condition", deliberate=True),
    Signal("the kubelet", "GracefulNodeShutdownInProgress", "condition"),
)

#: Taints of nodes whose agents have not started yet: the part after the last slash of their keys ends like this.
#: Examples: ``node.cilium.io/agent-not-ready``, ``ebs.csi.aws.com/agent-not-ready``,
#: ``nvidia.com/gpu-operator-not-ready``.
_STARTING_SUFFIX: Final = "not-ready"

#: Cluster Autoscaler's prefixes for start-up taints, of which the second one is its older name; that of the Node
#: Readiness Controller; and the taint of Cluster API.
_STARTING_PREFIXES: Final = (
    "startup-taint.cluster-autoscaler.kubernetes.io/",
    "ignore-taint.cluster-autoscaler.kubernetes.io/",
    "readiness.k8s.io/",
    "node.cluster.x-k8s.io/uninitialized",
)

_EXACT: Final = {signal.key: signal for signal in TAINTS if not signal.key.endswith("/")}
_PREFIXES: Final = tuple(signal for signal in TAINTS if signal.key.endswith("/"))
_CONDITIONS: Final = {signal.key: signal for signal in CONDITIONS}


def signals_on(node: Node) -> list[Signal]:
    """Return all signals on *node*."""
    signals = [signal for taint in node.spec.taints if (signal := signal_of_taint(taint.key)) is not None]
    # Filter by status first: most conditions are False.
    true = (condition for condition in node.status.conditions if condition.status == "True")
    names = [condition.type for condition in true if condition.reason != OUR_REASON]
    return signals + [_CONDITIONS[name] for name in names if name in _CONDITIONS]


def is_reported(node: Node) -> bool:
    """Return whether *node* has a condition of this program, of any installation, that it is being drained."""
    return any(each.type == DRAIN_CONDITION and each.reason == OUR_REASON for each in node.status.conditions)


def start_up_taint(node: Node, others: Collection[str] = ()) -> str:
    """Return the key of a taint that *node* only has until its agents have started, or "" if there is none.

    *others* are keys of further such taints (``--startup-taint``).
    """
    keys = (taint.key for taint in node.spec.taints if taint.effect != "PreferNoSchedule")
    return next((key for key in keys if is_start_up_taint(key, others)), "")


def is_start_up_taint(key: str, others: Collection[str] = ()) -> bool:
    """Return whether a taint with this *key* is one of :func:`start_up_taint`."""
    if key in others or key.startswith(_STARTING_PREFIXES):
        return True
    # Taints of node.kubernetes.io describe a node that is not Ready, which is told as such.
    return key.endswith(_STARTING_SUFFIX) and "/" in key and not key.startswith("node.kubernetes.io/")


def signal_of_taint(key: str) -> Signal | None:
    """Return the interruption signal of a taint with this *key*, or None if it is not a signal."""
    return _EXACT.get(key) or next((signal for signal in _PREFIXES if key.startswith(signal.key)), None)


# Detect bursts of lost spot nodes. After a burst more losses are likely, so drains wait for a while.

#: A burst is the loss of at least FEWEST spot nodes, and of at least one in ONE_IN, within WINDOW.
FEWEST: Final = 2
ONE_IN: Final = 10
WINDOW: Final = timedelta(minutes=5)

#: A node that is not Ready for this long is lost for its pool. Kubernetes evicts the pods of a node after this time.
NOT_READY: Final = timedelta(minutes=5)


class SpotState(enum.Enum):
    """The state of a spot node."""

    USABLE = enum.auto()
    WITHDRAWN = enum.auto()  #: removed on purpose by a tool, or cordoned by a person: not counted as lost
    LOST = enum.auto()  #: not Ready, or about to be interrupted


def state_of(node: Node) -> SpotState:
    """Return the state of a spot node.

    A deliberate removal takes precedence over an interruption, because it explains the interruption (for example the
    shutdown of the machine). An interruption takes precedence over a cordon, because termination handlers cordon the
    nodes that they drain.
    """
    signals = signals_on(node)
    if any(signal.deliberate for signal in signals) or any(taint.key == DRAIN_TAINT.key for taint in node.spec.taints):
        return SpotState.WITHDRAWN
    if signals:
        return SpotState.LOST
    if node.spec.unschedulable or node.metadata.deletion_timestamp is not None:
        return SpotState.WITHDRAWN
    return SpotState.USABLE if node.condition("Ready") in ("True", "") else SpotState.LOST


class SpotWatch:
    """Tracks the spot nodes from one round to the next. Losses before the first call are not known."""

    def __init__(self, settle: timedelta, pool_labels: Sequence[str] = POOL_LABELS) -> None:
        """Set *settle*, the time that drains wait after a burst; zero disables the wait.

        The values of the *pool_labels* are the pool of a node.
        """
        self._settle = settle
        self._pool_labels = pool_labels
        self._usable: frozenset[str] = frozenset()  #: UIDs at the last call
        self._lost: dict[str, datetime] = {}  #: when the loss was observed, by UID, within the window
        self._until: datetime | None = None
        self._states: tuple[Iterable[Node], dict[str, SpotState]] = (), {}
        self._pools: dict[str, str] = {}  #: the pool of each spot node by UID, at the last call
        self._running: dict[str, datetime | None] = {}  #: by UID: since when it is not Ready; None: it is
        self._counted: frozenset[str] = frozenset()  #: UIDs of the nodes whose loss was counted for their pool
        self._losses: Counter[str] = Counter()  #: by pool, since they were last taken

    def forget(self) -> None:
        """Forget the nodes, because another replica watches them: what happens until the next call is not known."""
        self._usable, self._running, self._pools, self._states = frozenset(), {}, {}, ((), {})
        self._losses.clear()

    def update(
        self, nodes: Iterable[Node], now: datetime, departed: Iterable[Node] = (), existing: Collection[str] = ()
    ) -> datetime | None:
        """Record the state of all spot *nodes* at *now*. Return the time until which drains wait, or None.

        A node that was usable at the last call and is lost or gone now counts as lost now. So all losses between two
        calls count together, regardless of the time between them. If *nodes* is the object of the last call, its nodes
        must not have changed. *departed* are the last states of deleted nodes: they tell whether a tool removed a node
        that is gone. *existing* are the UIDs of all nodes: one of them may only have lost its spot label.
        """
        if nodes is not self._states[0]:
            self._states = nodes, {node.metadata.uid: state_of(node) for node in nodes}
            self._pools |= {node.metadata.uid: pool_of(node.metadata.labels, self._pool_labels) for node in nodes}
        withdrawn = {node.metadata.uid for node in departed if state_of(node) is SpotState.WITHDRAWN}
        relabeled = self._running.keys() & set(existing) - self._states[1].keys()
        states = dict.fromkeys(withdrawn | relabeled, SpotState.WITHDRAWN) | self._states[1]
        self._count_by_pool(nodes, states, now)
        previously_usable = self._usable
        self._usable = frozenset(uid for uid, state in states.items() if state is SpotState.USABLE)
        self._lost = {uid: at for uid, at in self._lost.items() if now - at <= WINDOW}
        newly_lost = {
            uid for uid in previously_usable - self._lost.keys() if states.get(uid, SpotState.LOST) is SpotState.LOST
        }
        self._lost |= dict.fromkeys(newly_lost, now)
        if newly_lost and self._is_burst(len(previously_usable | self._lost.keys())):
            self._until = now + self._settle
        return self._until if self._until is not None and now < self._until else None

    def notified(self, nodes: Iterable[Node]) -> None:
        """Count *nodes* as lost for their pools: the cloud will reclaim their machines."""
        self._count(node.metadata.uid for node in nodes if node.metadata.uid in self._running)

    def take_losses(self) -> Counter[str]:
        """Return the number of lost nodes by pool since the last call.

        Unlike for a burst, a node that is not Ready counts only after NOT_READY, or when it is gone: its kubelet may
        return. No machine counts twice.
        """
        losses, self._losses = self._losses, Counter()
        return losses

    def _count_by_pool(self, nodes: Iterable[Node], states: Mapping[str, SpotState], now: datetime) -> None:
        before, self._running = self._running, {}
        lost = [uid for uid in before if states.get(uid) is None]
        for node in nodes:
            uid = node.metadata.uid
            if states[uid] is SpotState.USABLE:
                self._running[uid] = None
            elif states[uid] is SpotState.LOST and uid in before:
                since = before[uid] or now
                if signals_on(node) or now - since >= NOT_READY:
                    lost.append(uid)
                else:
                    self._running[uid] = since
        self._count(lost)
        self._counted &= self._states[1].keys()
        self._pools = {uid: pool for uid, pool in self._pools.items() if uid in self._states[1]}

    def _count(self, lost: Iterable[str]) -> None:
        uncounted = [uid for uid in lost if uid not in self._counted]
        self._losses.update(self._pools[uid] for uid in uncounted)
        self._counted |= set(uncounted)

    def _is_burst(self, nodes: int) -> bool:
        return len(self._lost) >= FEWEST and ONE_IN * len(self._lost) >= nodes
