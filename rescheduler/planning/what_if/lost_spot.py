"""The simultaneous loss of spot nodes, and their pods that would not fit on the remaining nodes."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from msgspec.structs import replace

from predicates.filters import Filters
from predicates.local_results import Targets
from predicates.objects import Pod
from predicates.snapshot import Snapshot
from rescheduler.errors import UsageError
from rescheduler.planning.controller_names import ControllerName, controller_of
from rescheduler.planning.money.prices import zone_of
from rescheduler.planning.outcome import Plan
from rescheduler.planning.placement.packing import EVALUATIONS_PER_SECOND, Effort, Packing, pack
from rescheduler.planning.placement.spot_room import Placed, Room, Sizes, Stuck, shortage
from rescheduler.planning.policy import Policy
from rescheduler.planning.rules.candidates import groups, why_not_target
from rescheduler.planning.rules.pod_rules import NOT_RECREATED
from rescheduler.planning.rules.pod_traits import belongs_to_node


@dataclass(frozen=True, slots=True)
class LoseSpot:
    """Lose spot nodes: all of a *zone*, a *percent* of them, or one *node*.

    A zone is named completely, or by the end of its name if no zone has that name: ``b`` for ``eu-west-1b``. A
    percentage is rounded up to whole nodes, which are spread evenly over the spot nodes sorted by name.
    """

    zone: str = ""
    percent: int = 0
    node: str = ""


@dataclass(frozen=True, slots=True)
class UnplacedPod:
    """A pod that no remaining node accepts."""

    pod: str  #: ``namespace/name``
    controller: ControllerName
    priority: int
    why: str


def lost_nodes(snapshot: Snapshot, policy: Policy, loss: LoseSpot) -> list[str]:
    """Return the names of the spot nodes that *loss* selects. Raises UsageError if there are none."""
    table = snapshot.nodes
    spot = [table.names[row] for row in groups(snapshot, policy).spot_rows]
    if loss.node:
        if loss.node not in spot:
            raise UsageError(f"lose-spot: there is no spot node {loss.node}")
        return [loss.node]
    if loss.zone:
        zones = {name: zone_of(node) for name in spot if (node := table.nodes[table.row[name]]) is not None}
        names = [name for name in spot if zones[name] == loss.zone]
        names = names or [name for name in spot if zones[name].endswith(loss.zone)]
        if not names:
            zone_names = ", ".join(sorted({zone for zone in zones.values() if zone})) or "none"
            raise UsageError(f"lose-spot: no spot node is in zone {loss.zone}; zones of the spot nodes: {zone_names}")
        return names
    if not spot:
        raise UsageError(f"lose-spot: no node has the label {policy.spot_label} (--spot-node-label)")
    count, total = -(-len(spot) * loss.percent // 100), len(spot)
    return [name for index, name in enumerate(spot) if (index + 1) * count // total > index * count // total]


def carry_out(snapshot: Snapshot, plans: Iterable[Plan]) -> None:
    """Apply *plans* to *snapshot*: move their pods to the targets, and remove their nodes."""
    for plan in plans:
        for placement in plan.placements:
            pod = snapshot.pods[str(placement.pod)]
            snapshot.upsert("Pod", _recreated(snapshot, pod, placement.node))
        for pod in list(snapshot.pods_on[plan.node].values()):
            snapshot.delete("Pod", pod.key)
        snapshot.delete("Node", plan.node)


def lose(snapshot: Snapshot, policy: Policy, names: Sequence[str]) -> list[UnplacedPod]:
    """Remove the nodes *names* from *snapshot* and place their pods on the remaining nodes, where that is possible.

    Pods of the highest priority come first, then the largest. Spot nodes are tried before on-demand nodes. Pods
    that do not fit stay pending in the snapshot; return them, highest priority first.
    """
    displaced: list[Pod] = []
    for name in names:
        pods = list(snapshot.pods_on[name].values())
        displaced += (pod for pod in pods if not belongs_to_node(pod) and not pod.cls.terminating)
        for pod in pods:
            snapshot.delete("Pod", pod.key)
        snapshot.delete("Node", name)
    alone = [pod for pod in displaced if pod.owner is None]
    placed, left = _placed(snapshot, policy, [pod for pod in displaced if pod.owner is not None])
    for pod, row in placed:
        snapshot.upsert("Pod", _recreated(snapshot, pod, snapshot.nodes.names[row]))
    for pod, _ in left:
        snapshot.upsert("Pod", _recreated(snapshot, pod, ""))
    unplaced = [*((pod, NOT_RECREATED) for pod in alone), *left]
    result = [UnplacedPod(pod.key, controller_of(pod), pod.cls.spec.priority or 0, why) for pod, why in unplaced]
    return sorted(result, key=lambda pod: (-pod.priority, pod.controller, pod.pod))


def _recreated(snapshot: Snapshot, pod: Pod, node: str) -> Pod:
    """Return *pod* as its controller would recreate it, bound to *node*, or unbound if *node* is ""."""
    return replace(snapshot.bound_to(pod, node), load=pod.cls.requests, older_loads=())


def _placed(snapshot: Snapshot, policy: Policy, pods: Sequence[Pod]) -> tuple[Placed, list[tuple[Pod, str]]]:
    """Return the placed pods with their rows, and the pods that do not fit, each with the reason."""
    room = _room(snapshot, policy)
    ordered = sorted(pods, key=lambda pod: (-(pod.cls.spec.priority or 0), -room.sizes.of(pod.cls), pod.key))
    with snapshot.trial() as trial:
        packing = Packing(room, trial)
        left = packing.first_fit(ordered)
        placed, why = packing.placed, [(pod, shortage(room, pod.cls)) for pod in left]
    if left:
        with snapshot.trial() as trial:
            result = pack(room, trial, ordered, Effort(int(policy.planning_timeout * EVALUATIONS_PER_SECOND)))
        if not isinstance(result, Stuck):
            return result, []
    return placed, why


def _room(snapshot: Snapshot, policy: Policy) -> Room:
    node_groups, table = groups(snapshot, policy), snapshot.nodes
    on_demand = (table.nodes[table.row[name]] for name in node_groups.on_demand)
    rows = [table.row[node.name] for node in on_demand if node is not None and why_not_target(node) is None]
    targets = Targets([*node_groups.spot.rows.tolist(), *rows])
    return Room(snapshot, Filters(snapshot), targets, Sizes(snapshot, targets), "remaining nodes")
