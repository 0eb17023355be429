"""Which nodes are on-demand and which are spot, and which on-demand nodes may be drained."""

import re
from collections import Counter, defaultdict
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from itertools import chain
from types import MappingProxyType
from typing import Final

import numpy as np
import numpy.typing as npt

from predicates.local_results import Targets
from predicates.nodes import CPU, Flags
from predicates.objects import AutoscalerGroup, AutoscalerGroups, Node, NodePool, Pod
from predicates.objects.api import CONTROL_PLANE_LABELS
from predicates.objects.pods import DO_NOT_DISRUPT, INITIALIZED, NODE_POOL
from predicates.snapshot import DRAIN_TAINT, Snapshot
from predicates.texts import quoted, shown
from rescheduler.planning.forms import count, instant, shortened, utc
from rescheduler.planning.node_labels import KOPS_GROUP, NodeLabel, NodeLabels
from rescheduler.planning.outcome import Blocker, Reason
from rescheduler.planning.policy import Circumstances, Destination, Now, Policy
from rescheduler.planning.pools import pool_of
from rescheduler.planning.rules.declared import NodeContext, declared_in, node_results, node_rule, timed_node_rule
from rescheduler.planning.rules.disruption_budgets import allowed_at_once, why_not_removed
from rescheduler.planning.rules.interruptions import signals_on, start_up_taint
from rescheduler.planning.rules.lifts import removing_from_node
from rescheduler.planning.rules.pod_traits import DO_NOT_DRAIN, REMOVAL_DISABLED, SYSTEM, node_opt_out

SCALE_DOWN_DISABLED: Final = "cluster-autoscaler.kubernetes.io/scale-down-disabled"

#: Taints of nodes that are being drained or have not joined the cluster yet. Such nodes are not targets.
_NO_TARGETS: Final = ("karpenter.sh/unregistered", DRAIN_TAINT.key)

#: The annotation of nodes that an installation keeps cordoned until their machine is built; its value is the
#: installation.
UNFINISHED: Final = "spot-rescheduler/cordoned-until-built"

#: Cluster Autoscaler's soft taint on underused nodes. It removes them only after ``--scale-down-unneeded-time``, and
#: removes the taint when pods are scheduled to the node.
DELETION_CANDIDATE: Final = "DeletionCandidateOfClusterAutoscaler"

#: The prefix of every cloudpool proxy's name in the value of the drain taint.
PROXIES: Final = "cloudpool-proxy."


@dataclass(frozen=True, slots=True)
class Groups:
    """The on-demand nodes, and the spot nodes that may accept their pods.

    On-demand nodes are sorted by requested CPU, least first; other orders are in
    :mod:`rescheduler.planning.planning_round`.
    Spot nodes are sorted by requested CPU, most first, so that free capacity is not fragmented; nodes that Cluster
    Autoscaler considers underused come last.
    """

    on_demand: tuple[str, ...]
    spot: Targets
    spot_rows: npt.NDArray[np.intp]  #: all spot nodes sorted by name, including those that accept no pods at present
    #: Nodes that would be targets if their pools were trusted, by pool.
    settling: Mapping[str, npt.NDArray[np.intp]] = field(default_factory=dict)
    settling_until: Mapping[str, datetime] = field(default_factory=dict)  #: the same pools
    control_plane: frozenset[str] = frozenset()  #: if pods may go to any node: the nodes of the control plane

    @property
    def spot_nodes(self) -> int:
        """Return the number of all spot nodes, including those that accept no pods at present."""
        return len(self.spot_rows)


def groups(
    snapshot: Snapshot,
    policy: Policy,
    avoided: Collection[str] = (),
    settling: Mapping[str, datetime] = MappingProxyType({}),
) -> Groups:
    """Split the nodes of *snapshot* by the policy's labels. A node that matches both is a spot node.

    *avoided* are names of nodes that are not used as targets. The nodes of pools in *settling* are none until then.
    """
    spot_rows = _labeled(snapshot, policy.spot_label)
    if policy.destination is Destination.OTHERS:
        return _of_workers(snapshot, policy, avoided, spot_rows)
    is_spot = set(spot_rows)
    on_demand = [row for row in _labeled(snapshot, policy.on_demand_label) if row not in is_spot]
    cpu, names = snapshot.nodes.requested[:, CPU], snapshot.nodes.names
    first = sorted((int(cpu[row]), names[row]) for row in on_demand)
    spot_nodes = ((node, row) for row in spot_rows if (node := snapshot.nodes.nodes[row]))
    starting = starting_taints(snapshot, policy)
    nodes = [(node, row) for node, row in spot_nodes if takes_pods(node, avoided, starting)]
    by_pool: defaultdict[str, list[int]] = defaultdict(list)
    for node, row in nodes if settling else ():
        by_pool[pool_of(node.metadata.labels, policy.spot_pool_labels)].append(int(row))
    untrusted = {pool: by_pool[pool] for pool in sorted(by_pool.keys() & settling.keys())}
    if untrusted:
        excluded = set(chain(*untrusted.values()))
        nodes = [(node, row) for node, row in nodes if row not in excluded]
    machines = (node for row in on_demand if (node := snapshot.nodes.nodes[row]) is not None)
    known = {kind for kind in map(machine_kind, machines) if kind}
    if known and policy.require_known_architecture:
        nodes = [(node, row) for node, row in nodes if machine_kind(node) in known]
    return Groups(
        on_demand=tuple(name for _, name in first),
        spot=_targets(snapshot, nodes, known),
        spot_rows=np.array(sorted(spot_rows, key=lambda row: names[row]), np.intp),
        settling={pool: np.array(rows, np.intp) for pool, rows in untrusted.items()},
        settling_until={pool: settling[pool] for pool in untrusted},
    )


#: Labels of a node with its architecture, and with the build of Windows, on which images depend as well.
_ARCHITECTURE: Final = "kubernetes.io/arch"
_WINDOWS_BUILD: Final = "node.kubernetes.io/windows-build"


def machine_kind(node: Node) -> str:
    """Return what images are built for: the architecture, such as ``arm64``, and the build of Windows, or ""."""
    labels = node.metadata.labels
    architecture = labels.get(_ARCHITECTURE) or node.status.node_info.architecture
    build = labels.get(_WINDOWS_BUILD)
    return shown(f"{architecture}, Windows build {build}" if build else architecture)


def _targets(snapshot: Snapshot, nodes: Iterable[tuple[Node, int]], known: Collection[str] = ()) -> Targets:
    """Return *nodes*, each with its row, as targets, those first that are preferred.

    Nodes of a kind of machine that is not *known*, if any is, come last.
    """
    cpu = snapshot.nodes.requested[:, CPU]
    targets = sorted(
        (
            bool(known) and machine_kind(node) not in known,
            is_deletion_candidate(node),
            -int(cpu[row]),
            node.name,
            int(row),
        )
        for node, row in nodes
    )
    return Targets([row for *_, row in targets])


def _of_workers(
    snapshot: Snapshot, policy: Policy, avoided: Collection[str], spot_rows: npt.NDArray[np.intp]
) -> Groups:
    """Return the groups of a policy whose pods may go to any node: those of the round before nodes are selected."""
    masters = frozenset(control_plane_nodes(snapshot))
    table = snapshot.nodes
    workers = [(node, table.row[node.name]) for node in table if node.name not in masters]
    starting = starting_taints(snapshot, policy)
    usable = [
        each for each in workers if each[0].condition("Ready") == "True" and takes_pods(each[0], avoided, starting)
    ]
    spot = np.array(sorted(spot_rows, key=lambda row: table.names[row]), np.intp)
    return Groups((), _targets(snapshot, usable), spot, control_plane=masters)


def control_plane_nodes(snapshot: Snapshot) -> Iterator[str]:
    """Yield the names of control-plane nodes, recognized by label or by an API server pod."""
    for node in snapshot.nodes:
        pods = snapshot.pods_on[node.name].values()
        if control_plane_label(node) or any(_is_api_server(pod) for pod in pods):
            yield node.name


def _is_api_server(pod: Pod) -> bool:
    if pod.namespace != SYSTEM:
        return False
    return pod.cls.labels.get("component") == "kube-apiserver" or pod.name == f"kube-apiserver-{pod.node_name}"


def why_not_target(node: Node) -> str | None:
    """Return why *node* is not a target for any pod, or None if it is one.

    The scheduler itself only checks taints. We also exclude nodes that will be removed soon, because their pods would
    have to move again.
    """
    if node.metadata.deletion_timestamp is not None:
        return "it is being deleted"
    if node.spec.unschedulable:
        return "it is cordoned"
    if signals := signals_on(node):
        return f"it will be removed soon ({signals[0]})"
    for taint in node.spec.taints:
        if taint.key in _NO_TARGETS:
            return f"it may be removed soon (taint {taint.key})"
    # A node without the condition (possible in a handwritten snapshot file) counts as Ready, as in the scheduler.
    return "it is not Ready" if node.condition("Ready") not in ("True", "") else None


def why_going(node: Node, ending: Collection[str]) -> str:
    """Return why *node* is about to go, or "". *ending* are the nodes that the provider has announced to reclaim."""
    return why_not_target(node) or ("the provider will reclaim it soon" if node.name in ending else "")


def is_deletion_candidate(node: Node) -> bool:
    """Return whether Cluster Autoscaler considers *node* underused. Such a node is used after all other targets."""
    return any(taint.key == DELETION_CANDIDATE for taint in node.spec.taints)


#: The known reason codes. A stored cooldown may contain a code that a newer version added.
_REASONS: Final = frozenset(map(str, Reason))


@node_rule(
    Reason.SCALE_DOWN_DISABLED,
    Reason.DO_NOT_DISRUPT_NODE,
    lifted_by={
        Reason.SCALE_DOWN_DISABLED: removing_from_node(SCALE_DOWN_DISABLED),
        Reason.DO_NOT_DISRUPT_NODE: removing_from_node(DO_NOT_DISRUPT),
    },
)
def _annotated(node: Node, _: NodeContext) -> Blocker | None:
    if node.metadata.annotations.get(SCALE_DOWN_DISABLED) == "true":
        return Blocker(Reason.SCALE_DOWN_DISABLED, f'it has the annotation {SCALE_DOWN_DISABLED}: "true"')
    if node.metadata.annotations.get(DO_NOT_DISRUPT) == "true":
        return Blocker(Reason.DO_NOT_DISRUPT_NODE, f'it has the annotation {DO_NOT_DISRUPT}: "true"')
    return None


@timed_node_rule(
    Reason.DO_NOT_DRAIN,
    Reason.REMOVAL_DISABLED,
    lifted_by={
        Reason.DO_NOT_DRAIN: removing_from_node(DO_NOT_DRAIN),
        Reason.REMOVAL_DISABLED: removing_from_node(REMOVAL_DISABLED, "annotation or label"),
    },
)
def _opted_out(node: Node, _: NodeContext, now: Now) -> Blocker | None:
    return node_opt_out(node, instant(node.metadata.creation_timestamp), now.reached)


def control_plane_label(node: Node) -> str:
    """Return the label that marks *node* as part of the control plane, or "" if it has none."""
    return next((key for key in CONTROL_PLANE_LABELS if key in node.metadata.labels), "")


@node_rule(Reason.CONTROL_PLANE)
def _control_plane(node: Node, facts: NodeContext) -> Blocker | None:
    if facts.control_plane:
        return Blocker(Reason.CONTROL_PLANE, "it belongs to the control plane")
    if facts.policy.allow_control_plane or not (label := control_plane_label(node)):
        return None
    return Blocker(
        Reason.CONTROL_PLANE, f"it has the label {label}; --allow-control-plane allows draining it, but not removing it"
    )


@node_rule(Reason.HOSTS_LEADER)
def _hosts_this_process(_: Node, facts: NodeContext) -> Blocker | None:
    if not facts.own:
        return None
    return Blocker(
        Reason.HOSTS_LEADER, "this program runs there: the drain would evict it, or terminate it with the machine"
    )


def removal(node: Node) -> Blocker | None:
    """Return a blocker if another tool is removing *node*, else None."""
    if node.metadata.deletion_timestamp is not None:
        return Blocker(Reason.NODE_DELETING, f"its deletion was requested at {node.metadata.deletion_timestamp}")
    signal = next((signal for signal in signals_on(node) if signal.deliberate), None)
    return Blocker(Reason.BEING_DRAINED, f"another tool is removing it ({signal})") if signal else None


@node_rule(Reason.NODE_DELETING, Reason.BEING_DRAINED)
def _leaving(node: Node, facts: NodeContext) -> Blocker | None:
    if (removed := removal(node)) is not None:
        return removed
    if facts.ordered:
        return Blocker(Reason.BEING_DRAINED, "machine termination requested, not yet confirmed")
    for taint in node.spec.taints:
        if taint.key == DRAIN_TAINT.key and taint.value.startswith(PROXIES) and taint.value != facts.holder:
            return Blocker(Reason.BEING_DRAINED, f"a cloudpool proxy is draining it (taint {taint.key}={taint.value})")
    return None


def is_unfinished(node: Node) -> bool:
    """Return whether an installation keeps *node* cordoned until its machine is built."""
    return UNFINISHED in node.metadata.annotations


@node_rule(Reason.NODE_NOT_READY)
def _not_ready(node: Node, facts: NodeContext) -> Blocker | None:
    if is_unfinished(node):
        return Blocker(Reason.NODE_NOT_READY, f"its machine is still being built (annotation {UNFINISHED})")
    status = node.condition("Ready")
    if status in ("True", "") or facts.emptied:
        return None
    return Blocker(Reason.NODE_NOT_READY, f"its condition Ready is {shown(status)}: its kubelet cannot terminate pods")


@timed_node_rule(Reason.COOLING_DOWN, Reason.EVICTION_REFUSED, Reason.PROVIDER_REFUSED)
def _cooling(_: Node, facts: NodeContext, now: Now) -> Blocker | None:
    cooldown = facts.cooldown
    if cooldown is None or now.reached(cooldown.until):
        return None
    next_attempt = f"no new attempt before {utc(cooldown.until)}"
    if cooldown.reason in _REASONS:
        return Blocker(Reason(cooldown.reason), f"{cooldown.detail}; {next_attempt}")
    return Blocker(Reason.COOLING_DOWN, f"its last drain failed; {next_attempt}")


def mates(nodes: Iterable[Node]) -> dict[str, tuple[str, ...]]:
    """Return, by node, the other *nodes* of the same machine: they have the same provider ID.

    A kubelet that registers again under another name leaves its old Node behind.
    """
    by_machine: defaultdict[str, list[str]] = defaultdict(list)
    for node in nodes:
        if node.spec.provider_id:
            by_machine[node.spec.provider_id].append(node.name)
    shared = (sorted(names) for names in by_machine.values() if len(names) > 1)
    return {name: tuple(other for other in names if other != name) for names in shared for name in names}


def shared_machines(by_node: Mapping[str, Sequence[str]]) -> dict[str, tuple[Blocker, ...]]:
    """Return a blocker for each node that has mates, *by_node*: they would lose their machine with their pods."""
    return {
        name: (Blocker(Reason.SHARED_MACHINE, f"its machine would end for {_named(others)}, too: {SAME_MACHINE}"),)
        for name, others in by_node.items()
    }


#: How two Nodes are known to be of one machine.
SAME_MACHINE: Final = "spec.providerID is the same"


def _named(names: Sequence[str]) -> str:
    return f"node{'s' if len(names) > 1 else ''} {shortened(names, _MATES, before=', ')}"


#: A text names at most this many other Nodes of a machine.
_MATES: Final = 3


def is_pooled(snapshot: Snapshot) -> bool:
    """Return whether a node belongs to a NodePool of Karpenter."""
    return bool((snapshot.nodes.label(NODE_POOL).ids >= 0).any())


def static_capacity(snapshot: Snapshot) -> dict[str, tuple[Blocker, ...]]:
    """Return a blocker for each node of a NodePool that keeps a number of nodes, whatever runs on them.

    A pool that has more nodes than that is about to remove some itself, and buys none again. The groups of Cluster
    Autoscaler that are at their minimum follow.
    """
    groups = groups_at_minimum(snapshot, ())
    kept = {
        pool.metadata.name: pool.spec.replicas
        for pool in snapshot.of("NodePool").values()
        if isinstance(pool, NodePool) and pool.spec.replicas is not None
    }
    if not kept:
        return groups
    pools = {node.name: pool for node in snapshot.nodes if (pool := node.metadata.labels.get(NODE_POOL, "")) in kept}
    size, blockers = Counter(pools.values()), {}
    for pool, replicas in kept.items():
        text = f"NodePool {quoted(pool)} keeps {count(replicas, 'node')} (spec.replicas)"
        blockers[pool] = (Blocker(Reason.STATIC_CAPACITY, f"it would be bought again: {text}"),)
    return groups | {name: blockers[pool] for name, pool in pools.items() if size[pool] <= kept[pool]}


def never_removed(snapshot: Snapshot, now: datetime) -> dict[str, tuple[Blocker, ...]]:
    """Return a blocker for each node of a NodePool whose empty nodes Karpenter does not remove at *now*."""
    pools = {pool.metadata.name: pool for pool in snapshot.of("NodePool").values() if isinstance(pool, NodePool)}
    kept = {name: why for name, pool in pools.items() if (why := why_not_removed(pool, now))}
    if not kept:
        return {}
    blockers = {
        pool: (Blocker(Reason.NEVER_REMOVED, f"Karpenter removes no empty node of NodePool {quoted(pool)}: {why}"),)
        for pool, why in kept.items()
    }
    labeled = ((node.name, node.metadata.labels.get(NODE_POOL, "")) for node in snapshot.nodes)
    return {name: blockers[pool] for name, pool in labeled if pool in blockers}


def budgets_in_use(snapshot: Snapshot, now: datetime) -> dict[str, tuple[Blocker, ...]]:
    """Return a blocker for each node of a NodePool of which as many nodes are disrupted as its budgets allow at a time.

    Karpenter counts nodes that are being removed and those that are not Ready, of all that it has initialized, as in
    its ``pkg/controllers/disruption/helpers.go`` (NodePoolStatsFromNodes).
    """
    pools = [pool for pool in snapshot.of("NodePool").values() if isinstance(pool, NodePool)]
    blockers: dict[str, tuple[Blocker, ...]] = {}
    for pool in pools:
        name = pool.metadata.name
        nodes = [
            node for node in snapshot.nodes if node.metadata.labels.get(NODE_POOL) == name and _is_initialized(node)
        ]
        disrupted = sum(removal(node) is not None or node.condition("Ready") not in ("True", "") for node in nodes)
        allowed = allowed_at_once(pool, len(nodes), now) if disrupted else None
        if allowed is not None and disrupted >= allowed:
            text = f"{count(allowed, 'node')} at a time, and {disrupted} are being removed or not Ready"
            detail = f"the disruption budget of NodePool {quoted(name)} allows {text}"
            blockers |= dict.fromkeys((node.name for node in nodes), (Blocker(Reason.DISRUPTION_BUDGET, detail),))
    return blockers


def _is_initialized(node: Node) -> bool:
    return node.metadata.labels.get(INITIALIZED) == "true"


def groups_at_minimum(snapshot: Snapshot, freed: Sequence[str]) -> dict[str, tuple[Blocker, ...]]:
    """Return a blocker for each node whose group of Cluster Autoscaler would be below its minimum without it.

    *freed* are the nodes that are removed before, in order: as many of them as the minimum allows get no blocker.
    """
    known = [each for each in snapshot.of("AutoscalerGroups").values() if isinstance(each, AutoscalerGroups)]
    blockers: dict[str, tuple[Blocker, ...]] = {}
    for group in (group for each in known for group in each.groups):
        spare = max(0, group.target - group.minimum)
        if group.minimum <= 0 or (spare and len(freed) <= spare):
            continue
        names = {node.name for node in snapshot.nodes if is_in_group(node, group)}
        leaving = [name for name in freed if name in names]
        if spare and len(leaving) <= spare:
            continue
        text = f"group {quoted(group.name)} of Cluster Autoscaler keeps {count(group.minimum, 'node')}, its minimum"
        blocker = Blocker(Reason.STATIC_CAPACITY, f"it would be bought again: {text}")
        blockers |= dict.fromkeys(sorted(names.difference(leaving[:spare])), (blocker,))
    return blockers


_EKS_GROUP: Final = "eks.amazonaws.com/nodegroup"

#: Labels with the name of the group.
_GROUP_LABELS: Final = (
    "autoscaling.k8s.io/nodegroup",
    "cloud.google.com/gke-nodepool",
    "kubernetes.azure.com/agentpool",
    _EKS_GROUP,
    "doks.digitalocean.com/node-pool-id",
    "hcloud/node-group",
)
_EKSCTL_GROUP: Final = "alpha.eksctl.io/nodegroup-name"

#: What EKS adds to the name of a managed group for the name of its Auto Scaling group.
_UUID: Final = re.compile(r"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}")


def is_in_group(node: Node, group: AutoscalerGroup) -> bool:
    """Return whether *node* belongs to *group*, by the names that clouds give to groups, their nodes and labels."""
    labels, name = node.metadata.labels, group.name.rpartition("/")[2]
    if any(labels.get(label) == name for label in _GROUP_LABELS):
        return True
    if (eks := labels.get(_EKS_GROUP)) and name.startswith(f"eks-{eks}-"):
        return _UUID.fullmatch(name.removeprefix(f"eks-{eks}-")) is not None
    if (eksctl := labels.get(_EKSCTL_GROUP)) and f"-nodegroup-{eksctl}-NodeGroup-" in name:
        return True
    if (kops := labels.get(KOPS_GROUP)) and name.startswith(f"{kops}."):
        return True
    if name.endswith("-grp"):  # of GCE
        return node.name.startswith(f"{name.removesuffix('-grp')}-")
    return name.endswith("-vmss") and node.name.startswith(name)  # of Azure


#: What vetoes say: facts about a node that no rule computes from the Node. Of its NodePool or group; of the drains
#: before it and of the pods that these moved; of the provider; of other installations and processes; of other Nodes.
VETOES: Final = (
    *(Reason.STATIC_CAPACITY, Reason.NEVER_REMOVED, Reason.DISRUPTION_BUDGET),
    *(Reason.MOVED_RECENTLY, Reason.NOT_RECOVERED, Reason.EVICTION_REFUSED, Reason.UNREADABLE_OBJECT),
    *(Reason.PROVIDER_REFUSED, Reason.BELOW_MINIMUM, Reason.OTHER_INSTALLATION, Reason.BEING_DRAINED),
    Reason.SHARED_MACHINE,
)

#: The rules in the order in which they are applied. All blockers are reported, not only the first.
NODE_RULES: Final = declared_in(globals())


def node_blockers(
    node: Node, policy: Policy, circumstances: Circumstances, *, empty: bool = False, control_plane: bool = False
) -> tuple[Blocker, ...]:
    """Return all blockers of draining *node*. It need not be Ready if it is *empty*: no pod has to leave it."""
    name, now = node.name, Now(circumstances.now, circumstances.deadlines)
    facts = NodeContext(
        policy=policy,
        own=name == circumstances.own,
        holder=circumstances.holder,
        ordered=name in circumstances.ordered,
        emptied=empty or name in circumstances.emptied,
        control_plane=control_plane,
        cooldown=circumstances.cooling.get(name),
    )
    return (*node_results(NODE_RULES, node, facts, now), *circumstances.vetoes.get(name, ()))


def _labeled(snapshot: Snapshot, labels: NodeLabels) -> npt.NDArray[np.intp]:
    alive = snapshot.nodes.alive
    found = np.zeros_like(alive)
    for group in labels.alternatives:
        matches = alive.copy()
        for requirement in group:
            matches &= _nodes_matching(snapshot, requirement)
        found |= matches
    return np.flatnonzero(found)


def _nodes_matching(snapshot: Snapshot, label: NodeLabel) -> Flags:
    column = snapshot.nodes.label(label.key)
    numbers = [column.number[value] for value in label.values if value in column.number]
    matches = np.isin(column.ids, numbers) if label.values else column.ids >= 0
    return ~matches if label.negated else matches


def starting_taints(snapshot: Snapshot, policy: Policy) -> frozenset[str]:
    """Return the keys of start-up taints: those of the policy, and those of Karpenter's NodePools."""
    pools = (pool for pool in snapshot.of("NodePool").values() if isinstance(pool, NodePool))
    return frozenset(
        (*policy.startup_taints, *(each.key for pool in pools for each in pool.spec.template.spec.startup_taints))
    )


def takes_pods(node: Node, avoided: Collection[str], starting: Collection[str]) -> bool:
    """Return whether *node* is a target, none of *avoided*, and has none of the *starting* taints."""
    usable = node.name not in avoided and why_not_target(node) is None
    return usable and not start_up_taint(node, starting)
