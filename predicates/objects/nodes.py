"""Nodes, as in the API."""

import msgspec

from predicates.objects.meta import Int64, ObjectMeta, QuantityText, Wire


class Taint(Wire, frozen=True):
    key: str = ""
    effect: str = ""
    value: str = ""
    time_added: str | None = None


class Condition(Wire, frozen=True):
    type: str = ""
    status: str = ""
    reason: str = ""
    last_transition_time: str | None = None


class ContainerImage(Wire, frozen=True):
    names: tuple[str, ...] = ()
    size_bytes: Int64 = 0


class NodeAddress(Wire, frozen=True):
    type: str = ""
    address: str = ""


class NodeSpec(Wire, frozen=True):
    taints: tuple[Taint, ...] = ()
    unschedulable: bool = False
    provider_id: str = msgspec.field(default="", name="providerID")


class NodeSystemInfo(Wire, frozen=True):
    kubelet_version: str = ""


class NodeStatus(Wire, frozen=True):
    allocatable: dict[str, QuantityText] = {}
    conditions: tuple[Condition, ...] = ()
    images: tuple[ContainerImage, ...] = ()
    addresses: tuple[NodeAddress, ...] = ()
    declared_features: tuple[str, ...] = ()
    node_info: NodeSystemInfo = NodeSystemInfo()


class Node(Wire, frozen=True):
    metadata: ObjectMeta
    spec: NodeSpec = NodeSpec()
    status: NodeStatus = NodeStatus()

    @property
    def name(self) -> str:
        return self.metadata.name

    def condition(self, kind: str) -> str:
        """Return the status (True, False, Unknown) of the condition of type *kind*, or "" if the node has none."""
        return next((c.status for c in self.status.conditions if c.type == kind), "")
