"""What creates spot nodes, and how many more: NodePools of Karpenter, MachineSets, groups of Cluster Autoscaler. Pure.

A NodePool creates nodes of each type that its requirements allow, as far as a node shows what such a node is like. A
MachineSet or MachineDeployment without nodes tells the capacity of its nodes by annotations for Cluster Autoscaler
(``cloudprovider/clusterapi/clusterapi_utils.go`` there). They include what the kubelet and the system reserve: the
largest share that a node reserves is left out.
"""

import operator
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Final

from predicates.objects import (
    AutoscalerGroups,
    MachineSet,
    Node,
    NodePool,
    NodeSpec,
    NodeStatus,
    ObjectMeta,
    Requirement,
    Taint,
)
from predicates.objects.pods import CAPACITY_TYPE, NODE_POOL
from predicates.selectors import OPERATORS, is_allowed
from predicates.snapshot import Snapshot
from rescheduler.planning.money.prices import INSTANCE_TYPE_LABELS, ZONE_LABELS, instance_type, zone_of
from rescheduler.planning.node_labels import NodeLabels
from rescheduler.planning.node_pools import SPOT, in_order, values
from rescheduler.planning.placement.added_nodes import GrowthLimits, left_of, millis, taken_by
from rescheduler.planning.rules.candidates import is_in_group

_CAPACITY: Final = "capacity.cluster-autoscaler.kubernetes.io/"

#: By resource: the annotations, each with the unit of a number.
_AMOUNTS: Final = {
    "cpu": ((f"{_CAPACITY}cpu", ""), ("machine.openshift.io/vCPU", "")),
    "memory": ((f"{_CAPACITY}memory", ""), ("machine.openshift.io/memoryMb", "Mi")),
    "gpu": ((f"{_CAPACITY}gpu-count", ""), ("machine.openshift.io/GPU", "")),
    "pods": ((f"{_CAPACITY}maxPods", ""),),
}
_PODS: Final = 110_000  #: if no annotation says another number, as in Cluster Autoscaler
GPU: Final = "nvidia.com/gpu"  #: likewise

#: The annotation with the largest number of nodes, of both APIs, ends so.
_MOST: Final = "/cluster-api-autoscaler-node-group-max-size"

#: Cluster API copies labels of Machines with these keys to their Nodes.
_COPIED: Final = ("node-role.kubernetes.io/", "node-restriction.kubernetes.io/", "node.cluster.x-k8s.io/")

#: Labels of machines that those of different types may have in common.
OF_MACHINES: Final = (
    *("kubernetes.io/arch", "kubernetes.io/os", "topology.kubernetes.io/region"),
    *("beta.kubernetes.io/arch", "beta.kubernetes.io/os", "failure-domain.beta.kubernetes.io/region"),
)

#: Labels whose keys begin so say what a machine of a type is like, whoever creates it.
_OF_TYPE: Final = (
    *(*INSTANCE_TYPE_LABELS, *ZONE_LABELS, *OF_MACHINES, "feature.node.kubernetes.io/", "nvidia.com/"),
    *("karpenter.k8s.aws/", "karpenter.azure.com/", "karpenter.k8s.gcp/"),
)

#: Labels whose keys end so name the zone of a node, those of volume drivers, too; and those that have its ID.
_ZONE_KEYS, _ZONE_ID_KEYS = "/zone", "/zone-id"

#: How Karpenter compares the integer values of a label and of a requirement.
_COMPARISONS: Final = {"Gt": operator.gt, "Gte": operator.ge, "Lt": operator.lt, "Lte": operator.le}

#: Annotations of nodes about their MachineSets.
_OWNER: Final = "cluster.x-k8s.io/owner-name"
_CLUSTER_NAMESPACE: Final = "cluster.x-k8s.io/cluster-namespace"
_MACHINE: Final = "machine.openshift.io/machine"


@dataclass(frozen=True, slots=True)
class SpotSource:
    """What creates spot nodes, and what it may still add."""

    name: str  #: of ``add-spot N group=NAME``
    templates: Sequence[Node] = ()  #: the new nodes, without names, one for each type and zone
    members: Sequence[Node] = ()  #: its spot nodes
    left: Mapping[str, int] = field(default_factory=dict)  #: in thousandths, by resource; ``nodes`` is their number

    def takes(self, node: Node) -> GrowthLimits:
        """Return the limits for new nodes like *node*."""
        return {f"{self.name} {resource}": limit for resource, limit in taken_by(node, self.left).items()}


def spot_sources(snapshot: Snapshot, spot: Sequence[Node], label: NodeLabels) -> Iterator[SpotSource]:
    """Yield all sources of nodes with the *label* of the *spot* nodes, NodePools in the order of Karpenter.

    A NodePool with a fixed number of nodes creates none for pods: it is none of them.
    """
    for source in (*_of_pools(snapshot, spot), *_of_machine_sets(snapshot, spot), *_of_groups(snapshot, spot)):
        templates = [node for node in source.templates if label.matches(node.metadata.labels)]
        if source.members or len(templates) == len(source.templates):
            yield replace(source, templates=templates)


def _of_pools(snapshot: Snapshot, spot: Sequence[Node]) -> Iterator[SpotSource]:
    """Yield NodePools. Their nodes are of the types and in the zones that a node shows and the requirements allow."""
    present = sorted({zone_of(node) for node in snapshot.nodes} - {""})
    for pool in in_order(each for each in snapshot.of("NodePool").values() if isinstance(each, NodePool)):
        if pool.spec.replicas is not None or SPOT not in values(pool, CAPACITY_TYPE):
            continue
        members = [node for node in spot if node.metadata.labels.get(NODE_POOL) == pool.metadata.name]
        own = {key: value for key, value in common_labels(members).items() if not is_of_machine(key)}
        known = {instance_type(node): node for node in [*snapshot.nodes, *spot, *members]}
        zones = sorted(values(pool, ZONE_LABELS[0])) or present or [""]
        kinds = ((known[kind], zone) for kind in sorted(known.keys() - {""}) for zone in zones)
        made = (_pooled(pool, own, like, in_zone(like, zone, snapshot.nodes)) for like, zone in kinds)
        templates = [node for node in made if node is not None]
        yield SpotSource(pool.metadata.name, templates, members, left_of(pool, snapshot))


def _pooled(pool: NodePool, own: Mapping[str, str], like: Node, of_like: Mapping[str, str]) -> Node | None:
    """Return the node that *pool* creates of the type of the node *like*; None if it does not create it.

    *own* are the labels that its nodes have in common, besides those that follow from the machine; *of_like* are those
    of *like* in the zone of the new node. Labels that do not follow from the machine have their only value.
    """
    spec, template = pool.spec.template.spec, pool.spec.template.metadata
    labels = {**own, **{key: value for key, value in of_like.items() if is_of_machine(key)}}
    single = (each for each in spec.requirements if each.operator == "In" and len(each.values) == 1)
    labels |= {each.key: each.values[0] for each in single if not is_of_machine(each.key)}
    labels |= {**template.labels, NODE_POOL: pool.metadata.name, CAPACITY_TYPE: SPOT}
    if not all(_allows(each, labels.get(each.key)) for each in spec.requirements):
        return None
    status = NodeStatus(allocatable=like.status.allocatable, capacity=like.status.capacity, images=like.status.images)
    return Node(metadata=ObjectMeta(labels=labels), spec=NodeSpec(taints=spec.taints), status=status)


def is_of_machine(key: str) -> bool:
    """Return whether the label follows from the type of a machine, or from its zone."""
    return key.startswith(_OF_TYPE) or key.endswith((_ZONE_KEYS, _ZONE_ID_KEYS))


def _allows(requirement: Requirement, value: str | None) -> bool:
    listed, compares = requirement.values, _COMPARISONS.get(requirement.operator)
    if compares is None:
        return requirement.operator in OPERATORS and is_allowed(requirement.operator, value, listed)
    numbers = [value or "", *(listed[:1] or [""])]
    return all(map(str.isdecimal, numbers)) and compares(*map(int, numbers))


def _of_machine_sets(snapshot: Snapshot, spot: Sequence[Node]) -> Iterator[SpotSource]:
    """Yield MachineDeployments and MachineSets. Those that have nodes create more like these."""
    for kind, each in _machine_sets(snapshot):
        meta = each.metadata
        most = next((text for key, text in meta.annotations.items() if key.endswith(_MOST)), "")
        size = 1 if each.spec.replicas is None else each.spec.replicas
        left = {"nodes": 1000 * (int(most) - size)} if most.isdecimal() else {}
        members = [node for node in spot if _is_made_by(kind, each, node, snapshot)]
        template = None if members else _template_of(snapshot, each)
        if members or template is not None:
            yield SpotSource(f"{meta.namespace}/{meta.name}", [template] if template else [], members, left)


def _machine_sets(snapshot: Snapshot) -> Iterator[tuple[str, MachineSet]]:
    """Yield what no other one controls, with its kind."""
    for kind in ("MachineDeployment", "MachineSet"):
        sets = (each for _, each in sorted(snapshot.of(kind).items()) if isinstance(each, MachineSet))
        yield from ((kind, each) for each in sets if each.metadata.controller is None)


def _is_made_by(kind: str, each: MachineSet, node: Node, snapshot: Snapshot) -> bool:
    """Return whether *each*, a MachineSet or MachineDeployment, has made *node*, by the annotations of the node.

    A MachineSet that is not known is taken for one of the MachineDeployment with which its name begins.
    """
    annotations, meta = node.metadata.annotations, each.metadata
    namespace, _, machine = annotations.get(_MACHINE, "").rpartition("/")
    if (namespace or annotations.get(_CLUSTER_NAMESPACE, meta.namespace)) != meta.namespace:
        return False
    owner = annotations.get(_OWNER, "") or machine.rpartition("-")[0]
    if kind == "MachineSet":
        return owner == meta.name
    known = snapshot.of("MachineSet").get(f"{meta.namespace}/{owner}")
    if not isinstance(known, MachineSet):
        return owner.rpartition("-")[0] == meta.name
    return known.metadata.controller is not None and known.metadata.controller.name == meta.name


def nodes_of_machine_sets(snapshot: Snapshot) -> Iterator[Node]:
    """Yield a node without a name for each MachineSet whose instance type and capacity are known."""
    templates = (_template_of(snapshot, each) for _, each in _machine_sets(snapshot))
    yield from (node for node in templates if node is not None and instance_type(node))


def _template_of(snapshot: Snapshot, each: MachineSet) -> Node | None:
    """Return a node as the annotations describe it, with the labels and taints of its Machines; None without these."""
    notes, spec = each.metadata.annotations, each.spec.template.spec
    stated = (
        (name, next((f"{notes[key]}{unit}" for key, unit in keys if key in notes), "0"))
        for name, keys in _AMOUNTS.items()
    )
    capacity = {name: amount for name, text in stated if (amount := millis(text, 0)) > 0}
    if not capacity.keys() >= {"cpu", "memory"}:
        return None
    pods, gpus = capacity.pop("pods", _PODS), capacity.pop("gpu", 0)
    free = {name: int(amount * _share(snapshot.nodes, name)) for name, amount in capacity.items()}
    sizes = free | {"pods": pods} | ({notes.get(f"{_CAPACITY}gpu-type", GPU): gpus} if gpus else {})
    taints = spec.taints or tuple(_taints(notes.get(f"{_CAPACITY}taints", "")))
    status = NodeStatus(allocatable={name: f"{amount}m" for name, amount in sizes.items()})
    return Node(metadata=ObjectMeta(labels=_labels(each)), spec=NodeSpec(taints=taints), status=status)


def _labels(each: MachineSet) -> dict[str, str]:
    spec, template = each.spec.template.spec, each.spec.template
    listed = each.metadata.annotations.get(f"{_CAPACITY}labels", "").split(",")
    stated = {key: value for key, found, value in (text.strip().partition("=") for text in listed) if found}
    machine, zone = spec.provider_spec.value.instance_type, spec.provider_spec.value.placement.availability_zone
    of_machine = {INSTANCE_TYPE_LABELS[0]: machine, ZONE_LABELS[0]: zone or spec.failure_domain}
    copied = {key: value for key, value in template.metadata.labels.items() if key.startswith(_COPIED)}
    return {key: value for key, value in of_machine.items() if value} | copied | stated | spec.metadata.labels


def _taints(text: str) -> Iterator[Taint]:
    """Yield the taints of an annotation such as ``key=value:NoSchedule,…``."""
    for each in filter(None, text.split(",")):
        pair, _, effect = each.strip().rpartition(":")
        key, _, value = pair.partition("=")
        yield Taint(key=key, value=value, effect=effect)


def _share(nodes: Iterable[Node], name: str) -> float:
    """Return the smallest share of the capacity of a node that pods may use; 1 if no node states both amounts."""
    amounts = ((node.status.allocatable.get(name, "0"), node.status.capacity.get(name, "0")) for node in nodes)
    pairs = ((millis(left, 0), millis(capacity, 0)) for left, capacity in amounts)
    return min((left / capacity for left, capacity in pairs if 0 < left <= capacity), default=1.0)


def _of_groups(snapshot: Snapshot, spot: Sequence[Node]) -> Iterator[SpotSource]:
    """Yield the groups of Cluster Autoscaler that have spot nodes, and those whose template the provider tells."""
    known = [each for each in snapshot.of("AutoscalerGroups").values() if isinstance(each, AutoscalerGroups)]
    for group in (group for each in known for group in each.groups):
        members = [node for node in spot if is_in_group(node, group)]
        left = {} if group.maximum is None else {"nodes": 1000 * (group.maximum - group.target)}
        if members or group.template is not None:
            yield SpotSource(group.name, [group.template] if group.template else [], members, left)


def in_zone(node: Node, zone: str, nodes: Iterable[Node]) -> dict[str, str]:
    """Return the labels of *node* for one in *zone*; "" is the same zone.

    A label with the ID of the zone is that of the first of *nodes* in this zone, and left out if there is none.
    """
    labels, before = node.metadata.labels, zone_of(node)
    if not zone or not before or zone == before:
        return dict(labels)
    there = next((each.metadata.labels for each in nodes if zone_of(each) == zone), {})
    moved = {key: zone for key, value in labels.items() if key.endswith(_ZONE_KEYS) and value == before}
    ids = {key: there.get(key, "") for key in labels if key.endswith(_ZONE_ID_KEYS)}
    return {key: value for key, value in (labels | moved | ids).items() if value or key not in ids}


def common_labels(nodes: Iterable[Node]) -> dict[str, str]:
    """Return the labels that all *nodes* have."""
    shared = [set(node.metadata.labels.items()) for node in nodes]
    return dict(sorted(set.intersection(*shared))) if shared else {}
