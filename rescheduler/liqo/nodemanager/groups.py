"""Node groups: which clusters they may use, how much a node of theirs asks for, and what its Node looks like."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final

from rescheduler.backends.base import Taint
from rescheduler.backends.liqo.virtual_nodes import ADDED_RESOURCES, VIRTUAL_NODE_LABELS, VIRTUAL_NODE_TAINT
from rescheduler.liqo.nodemanager.amounts import Amounts, amounts, quantities
from rescheduler.liqo.nodemanager.resources import DEFAULT_CLASS, GROUP_LABEL

GPU: Final = "nvidia.com/gpu"


@dataclass(frozen=True, slots=True)
class Group:
    """Sizes in virtual nodes, both ends included; *cost* a node and hour, in whatever currency."""

    id: str
    min_size: int = 0
    max_size: int = 1
    least: Mapping[str, str] = field(default_factory=lambda: {"cpu": "2", "memory": "2Gi", "pods": "110"})
    most: Mapping[str, str] = field(default_factory=dict)  #: what a node asks for where a cluster has so much
    selector: Mapping[str, str] = field(default_factory=dict)  #: labels that a cluster must have
    labels: Mapping[str, str] = field(default_factory=dict)  #: put on the Nodes, beside those of Liqo
    taints: tuple[Taint, ...] = ()  #: of the template: those that the clusters' VirtualNodes carry
    cost: float = 1.0
    added: Mapping[str, str] = field(default_factory=lambda: dict(ADDED_RESOURCES))  #: that clusters grant unasked
    slice_class: str = DEFAULT_CLASS  #: says which controller of a cluster grants the slices

    @property
    def needed(self) -> Amounts:
        return amounts(self.least)

    @property
    def template_resources(self) -> dict[str, str]:
        """What every Node has: what was asked for, and what the clusters add to that."""
        return {**self.added, **self.least}

    @property
    def node_labels(self) -> dict[str, str]:
        """What we put on a Node."""
        return {**self.labels, GROUP_LABEL: self.id}

    @property
    def template_labels(self) -> dict[str, str]:
        return {**VIRTUAL_NODE_LABELS, **self.node_labels}

    @property
    def template_taints(self) -> tuple[Taint, ...]:
        return (VIRTUAL_NODE_TAINT, *self.taints)

    def asked(self, available: Amounts) -> dict[str, str]:
        """What to ask of a cluster that has *available*: as much as there is up to `most`, `least` at least."""
        least = self.needed
        more = {
            name: text if available.get(name, amount) >= amount else quantities({name: available[name]})[name]
            for (name, text), amount in zip(self.most.items(), amounts(self.most).values(), strict=True)
            if available.get(name, amount) > least.get(name, 0)
        }
        return {**self.least, **more}


#: The groups of a node manager that is told none.
DEFAULT_GROUPS: Final = (
    Group(
        "STANDARD",
        max_size=3,
        least={"cpu": "2", "memory": "2Gi", "pods": "110"},
        most={"memory": "3Gi"},
        selector={"hasGPU": "false"},
        labels={"provider": "liqo"},
        cost=1.0,
    ),
    Group(
        "GPU",
        max_size=1,
        least={"cpu": "3500m", "memory": "4Gi", "pods": "110", GPU: "1"},
        most={"memory": "8Gi", GPU: "4"},
        selector={"hasGPU": "true"},
        labels={"provider": "liqo"},
        cost=25.0,
    ),
)
