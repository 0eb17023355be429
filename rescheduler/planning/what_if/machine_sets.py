"""The nodes that MachineSets would add, by the annotations that tell Cluster Autoscaler their capacity.

Cluster API and OpenShift have annotations of their own (``cloudprovider/clusterapi/clusterapi_utils.go`` of Cluster
Autoscaler). They include what the kubelet and the system reserve: the largest share that a node reserves is left out.
"""

from collections.abc import Iterable, Iterator
from typing import Final

from predicates.objects import MachineSet, Node, NodeStatus, ObjectMeta, QuantityText
from predicates.quantity import QuantityError, parse
from predicates.snapshot import Snapshot
from rescheduler.planning.money.prices import INSTANCE_TYPE_LABELS, ZONE_LABELS

_CAPACITY: Final = "capacity.cluster-autoscaler.kubernetes.io/"

#: By resource: the annotations, each with the unit of a number.
_AMOUNTS: Final = {
    "cpu": ((f"{_CAPACITY}cpu", ""), ("machine.openshift.io/vCPU", "")),
    "memory": ((f"{_CAPACITY}memory", ""), ("machine.openshift.io/memoryMb", "Mi")),
}
_PODS: Final = "110"  #: if no annotation says another number, as in Cluster Autoscaler


def nodes_of_machine_sets(snapshot: Snapshot) -> Iterator[Node]:
    """Yield a node without a name for each MachineSet whose instance type and capacity are known."""
    sets = [each for _, each in sorted(snapshot.of("MachineSet").items()) if isinstance(each, MachineSet)]
    kept = {name: _share(snapshot.nodes, name) for name in _AMOUNTS} if sets else {}
    for each in sets:
        labels, capacity = _labels(each), _capacity(each)
        if labels.get(INSTANCE_TYPE_LABELS[0]) and capacity.keys() >= _AMOUNTS.keys():
            left = {name: f"{int(capacity[name] * kept[name])}m" for name in _AMOUNTS}
            pods = each.metadata.annotations.get(f"{_CAPACITY}maxPods", _PODS)
            sizes: dict[str, QuantityText] = {**left, "pods": pods if pods.isdecimal() else _PODS}
            yield Node(metadata=ObjectMeta(labels=labels), status=NodeStatus(allocatable=sizes))


def _labels(each: MachineSet) -> dict[str, str]:
    spec = each.spec.template.spec
    listed = each.metadata.annotations.get(f"{_CAPACITY}labels", "").split(",")
    stated = {key: value for key, found, value in (text.strip().partition("=") for text in listed) if found}
    machine, zone = spec.provider_spec.value.instance_type, spec.provider_spec.value.placement.availability_zone
    of_machine = {INSTANCE_TYPE_LABELS[0]: machine, ZONE_LABELS[0]: zone}
    return {key: value for key, value in of_machine.items() if value} | stated | spec.metadata.labels


def _capacity(each: MachineSet) -> dict[str, int]:
    """Return the amounts that the annotations state, in thousandths."""
    annotations, found = each.metadata.annotations, dict[str, int]()
    for name, keys in _AMOUNTS.items():
        if amount := _millis(next((f"{annotations[key]}{unit}" for key, unit in keys if key in annotations), "0")):
            found[name] = amount
    return found


def _share(nodes: Iterable[Node], name: str) -> float:
    """Return the smallest share of the capacity of a node that pods may use; 1 if no node states both amounts."""
    amounts = ((node.status.allocatable.get(name, "0"), node.status.capacity.get(name, "0")) for node in nodes)
    pairs = ((_millis(left), _millis(capacity)) for left, capacity in amounts)
    return min((left / capacity for left, capacity in pairs if 0 < left <= capacity), default=1.0)


def _millis(text: QuantityText) -> int:
    """Return an amount in thousandths; 0 if it is not valid, or negative."""
    try:
        return max(0, parse(text).millis)
    except QuantityError:
        return 0
