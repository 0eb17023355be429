"""Node groups: which clusters they may use, which resources they request, and the properties of their Nodes."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final

from rescheduler.liqo_services.node_manager.amounts import Amounts, amounts, quantities
from rescheduler.liqo_services.node_manager.resources import DEFAULT_CLASS, GROUP_LABEL
from rescheduler.providers.base import NodeTaint
from rescheduler.providers.liqo.virtual_nodes import ADDED_RESOURCES, VIRTUAL_NODE_LABELS, VIRTUAL_NODE_TAINT

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
    def needed(self) -> Amounts:
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

    def resources_to_request(self, available: Amounts) -> dict[str, str]:
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
