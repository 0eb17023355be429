"""Node groups: which clusters they may use, the amounts of resources that they request, and their prices."""

import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from decimal import Decimal
from typing import Final, TypeAlias

from predicates.quantity import parse
from rescheduler.errors import UsageError
from rescheduler.liqo.messages import ADDED_RESOURCES, VIRTUAL_NODE_LABELS, VIRTUAL_NODE_TAINT
from rescheduler.liqo.node_manager.resources import DEFAULT_CLASS, GROUP_LABEL
from rescheduler.providers.base import NodeTaint

# Amounts of resources: Kubernetes quantities by resource name, in cores, bytes or units.

ExactAmounts: TypeAlias = Mapping[str, Decimal]

_BINARY: Final = {"Gi": 2**30, "Mi": 2**20}


def amounts(quantities: Mapping[str, str]) -> dict[str, Decimal]:
    """Parse quantities. Raises ``predicates.quantity.QuantityError``, and its base ValueError for negative ones."""
    parsed = {}
    for name, text in quantities.items():
        quantity = parse(text)
        if quantity.mantissa < 0:
            raise ValueError(f"{name}: expected 0 or more, got {text!r}")
        parsed[name] = Decimal(quantity.mantissa).scaleb(quantity.power)
    return parsed


def quantities(amounts: ExactAmounts) -> dict[str, str]:
    """Format amounts as quantities: as integers, in Gi or Mi if divisible, or as thousandths with the suffix ``m``."""
    return {name: _text(amount) for name, amount in amounts.items()}


def subtract(amounts: ExactAmounts, other: ExactAmounts) -> dict[str, Decimal]:
    """Return *amounts* minus *other*; no amount is below 0."""
    return {name: max(Decimal(0), amount - other.get(name, Decimal(0))) for name, amount in amounts.items()}


def plus(amounts: ExactAmounts, other: ExactAmounts) -> dict[str, Decimal]:
    return {name: amounts.get(name, Decimal(0)) + other.get(name, Decimal(0)) for name in amounts.keys() | other.keys()}


def limit_to(amounts: ExactAmounts, other: ExactAmounts) -> dict[str, Decimal]:
    """Return the smaller amount of each resource of *amounts*. Resources that *other* lacks are not limited."""
    return {name: min(amount, other.get(name, amount)) for name, amount in amounts.items()}


def count_fitting(available: ExactAmounts, needed: ExactAmounts) -> int:
    """Return how many times *needed* fits into *available*. Amounts of 0 always fit."""
    fits = [int(available.get(name, Decimal(0)) // amount) for name, amount in needed.items() if amount > 0]
    return min(fits, default=0)


def describe_shortages(available: ExactAmounts, needed: ExactAmounts) -> list[str]:
    """Return the insufficient resources, such as ``cpu 1 of 2``."""
    return [
        f"{name} {_text(available.get(name, Decimal(0)))} of {_text(amount)}"
        for name, amount in needed.items()
        if available.get(name, Decimal(0)) < amount
    ]


def _text(amount: Decimal) -> str:
    if amount != int(amount):
        return f"{int(amount * 1000)}m"
    for suffix, unit in _BINARY.items():
        if amount >= unit and amount % unit == 0:
            return f"{int(amount // unit)}{suffix}"
    return str(int(amount))


GPU: Final = "nvidia.com/gpu"


@dataclass(frozen=True, slots=True)
class VirtualNodeGroup:
    """A group. Sizes are in virtual nodes and inclusive; *cost* is per node and hour, in any currency."""

    id: str
    min_size: int = 0
    max_size: int = 1
    least: Mapping[str, str] = field(default_factory=lambda: {"cpu": "2", "memory": "2Gi", "pods": "110"})
    most: Mapping[str, str] = field(default_factory=dict)  #: requested if the cluster has enough
    selector: Mapping[str, str] = field(default_factory=dict)  #: required labels of a cluster
    labels: Mapping[str, str] = field(default_factory=dict)  #: set on the Nodes, in addition to Liqo's
    taints: tuple[NodeTaint, ...] = ()  #: taints of the template, as on the clusters' VirtualNodes
    cost: float = 1.0
    added: Mapping[str, str] = field(default_factory=lambda: dict(ADDED_RESOURCES))  #: granted without a request
    slice_class: str = DEFAULT_CLASS  #: selects the controller that grants the slices

    @property
    def needed(self) -> ExactAmounts:
        return amounts(self.least)

    @property
    def template_resources(self) -> dict[str, str]:
        """The resources of every Node: the requested ones, and the ones that the clusters add."""
        return {**self.added, **self.least}

    @property
    def node_labels(self) -> dict[str, str]:
        """The labels that we set on a Node."""
        return {**self.labels, GROUP_LABEL: self.id}

    @property
    def template_labels(self) -> dict[str, str]:
        return {**VIRTUAL_NODE_LABELS, **self.node_labels}

    @property
    def template_taints(self) -> tuple[NodeTaint, ...]:
        return (VIRTUAL_NODE_TAINT, *self.taints)

    def resources_to_request(self, available: ExactAmounts) -> dict[str, str]:
        """Return the resources to request from a cluster that has *available*: from `least` up to `most`."""
        least = self.needed
        additional = {
            name: text if available.get(name, amount) >= amount else quantities({name: available[name]})[name]
            for (name, text), amount in zip(self.most.items(), amounts(self.most).values(), strict=True)
            if available.get(name, amount) > least.get(name, 0)
        }
        return {**self.least, **additional}


#: The groups that are used if none are configured.
DEFAULT_GROUPS: Final = (
    VirtualNodeGroup(
        "STANDARD",
        max_size=3,
        least={"cpu": "2", "memory": "2Gi", "pods": "110"},
        most={"memory": "3Gi"},
        selector={"hasGPU": "false"},
        labels={"provider": "liqo"},
        cost=1.0,
    ),
    VirtualNodeGroup(
        "GPU",
        max_size=1,
        least={"cpu": "3500m", "memory": "4Gi", "pods": "110", GPU: "1"},
        most={"memory": "8Gi", GPU: "4"},
        selector={"hasGPU": "true"},
        labels={"provider": "liqo"},
        cost=25.0,
    ),
)


# Prices of virtual nodes and pods.

#: Matches Cluster Autoscaler's names of nodes that do not exist yet.
_TEMPLATE: Final = re.compile(r"(?:template-node-)?for-(?P<group>.+?)(?:-\d+)?(?:-upcoming-\d+)?")


def node_price(group: VirtualNodeGroup, hours: float) -> float:
    return group.cost * hours


def group_of_template(name: str, groups: Mapping[str, VirtualNodeGroup]) -> VirtualNodeGroup | None:
    """Return the group called *name*, or the group whose template node Cluster Autoscaler named *name*."""
    if name in groups:
        return groups[name]
    match = _TEMPLATE.fullmatch(name)
    return groups.get(match["group"]) if match else None


def pod_price(groups: Sequence[VirtualNodeGroup], requests: ExactAmounts, hours: float) -> float:
    """Return the price of a pod's share of a node, in the cheapest group that has all of its resources.

    The share is the largest share of any resource. A pod without requests counts as a full node. Raises UsageError if
    no group has all of the resources.
    """
    prices = [
        float(share) * node_price(group, hours)
        for group in groups
        if (share := _share(amounts(group.template_resources), requests)) is not None
    ]
    finite = [price for price in prices if math.isfinite(price)]
    if not finite:
        raise UsageError("no group has all the resources that the pod requests")
    return min(finite)


def _share(node: ExactAmounts, requests: ExactAmounts) -> Decimal | None:
    wanted = {name: amount for name, amount in requests.items() if amount > 0}
    if not requests:
        return Decimal(1)
    if any(not node.get(name) for name in wanted):
        return None
    return max((amount / node[name] for name, amount in wanted.items()), default=Decimal(0))
