"""Liqo's custom resources and the virtual Nodes, as far as we read them.

Source: Liqo's API types, ``authentication.liqo.io/v1beta1`` and ``offloading.liqo.io/v1beta1``.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

import msgspec

#: Of slices and Nodes: the group of ours that they are of.
GROUP_LABEL: Final = "spot-rescheduler/node-group"
#: Of slices, VirtualNodes, Nodes and tenant namespaces: whose they are.
CLUSTER_LABEL: Final = "liqo.io/remote-cluster-id"
TENANT_LABEL: Final = "liqo.io/tenant-namespace"
VIRTUAL_NODE_LABEL: Final = "liqo.io/type"
#: Of slices: ``true`` on the original, which is replicated to its provider, and ``false`` on the replica there.
REPLICATION_LABEL: Final = "liqo.io/replication"

#: The class of slices that Liqo's own provider grants.
DEFAULT_CLASS: Final = "default"

ACCEPTED: Final = "Accepted"
DENIED: Final = "Denied"
DRAINING: Final = "Draining"
DELETING: Final = "Deleting"


class Shape(msgspec.Struct, rename="camel", frozen=True, kw_only=True):
    """Fields that we do not read are skipped."""


class Meta(Shape, frozen=True, kw_only=True):
    name: str
    namespace: str = ""
    uid: str = ""
    resource_version: str = ""
    creation_timestamp: str = ""
    deletion_timestamp: str | None = None
    labels: dict[str, str] = msgspec.field(default_factory=dict)
    annotations: dict[str, str] = msgspec.field(default_factory=dict)


class Condition(Shape, frozen=True, kw_only=True):
    type: str
    status: str
    reason: str = ""
    message: str = ""


class SliceSpec(Shape, frozen=True, kw_only=True):
    resources: dict[str, str | int | float] = msgspec.field(default_factory=dict)
    provider: str = msgspec.field(default="", name="providerClusterID")


class SliceStatus(Shape, frozen=True, kw_only=True):
    conditions: list[Condition] = msgspec.field(default_factory=list)
    resources: dict[str, str | int | float] = msgspec.field(default_factory=dict)


class ResourceSlice(Shape, frozen=True, kw_only=True):
    metadata: Meta
    spec: SliceSpec = SliceSpec()
    status: SliceStatus = SliceStatus()

    @property
    def cluster(self) -> str:
        return self.spec.provider or self.metadata.labels.get(CLUSTER_LABEL, "")

    @property
    def local(self) -> bool:
        """Whether it is asked of another cluster, not by one of us: a replica has all labels of its original."""
        return self.metadata.labels.get(REPLICATION_LABEL) == "true"

    @property
    def denied(self) -> Condition | None:
        return next((one for one in self.status.conditions if one.status == DENIED), None)


class VirtualNodeStatus(Shape, frozen=True, kw_only=True):
    conditions: list[Condition] = msgspec.field(default_factory=list)


class VirtualNode(Shape, frozen=True, kw_only=True):
    metadata: Meta
    status: VirtualNodeStatus = VirtualNodeStatus()

    @property
    def ending(self) -> bool:
        leaving = any(one.status in {DRAINING, DELETING} for one in self.status.conditions)
        return leaving or self.metadata.deletion_timestamp is not None


class NodeSpec(Shape, frozen=True, kw_only=True):
    provider_id: str = msgspec.field(default="", name="providerID")


class NodeStatus(Shape, frozen=True, kw_only=True):
    conditions: list[Condition] = msgspec.field(default_factory=list)


class Node(Shape, frozen=True, kw_only=True):
    metadata: Meta
    spec: NodeSpec = NodeSpec()
    status: NodeStatus = NodeStatus()

    @property
    def ready(self) -> bool:
        return any((one.type, one.status) == ("Ready", "True") for one in self.status.conditions)


@dataclass(frozen=True, slots=True)
class Seen:
    """One look at the cluster, by name."""

    slices: Mapping[str, ResourceSlice] = field(default_factory=dict)  #: local ones, of groups
    virtual_nodes: Mapping[str, VirtualNode] = field(default_factory=dict)
    nodes: Mapping[str, Node] = field(default_factory=dict)  #: virtual ones
    lenders: frozenset[str] = frozenset()  #: clusters that any local slice is of, ours or somebody else's


def seen(slices: Sequence[ResourceSlice], virtual_nodes: Sequence[VirtualNode], nodes: Sequence[Node]) -> Seen:
    """Slices of others may bear one name in two namespaces; ours have names of their own."""
    local = [one for one in slices if one.local]
    return Seen(
        slices={one.metadata.name: one for one in local if GROUP_LABEL in one.metadata.labels},
        virtual_nodes={one.metadata.name: one for one in virtual_nodes},
        nodes={one.metadata.name: one for one in nodes},
        lenders=frozenset(one.cluster for one in local),
    )


def slice_manifest(
    name: str, cluster: str, resources: Mapping[str, str], labels: Mapping[str, str], slice_class: str = DEFAULT_CLASS
) -> dict[str, Any]:
    """The ResourceSlice that makes Liqo ask *cluster* for *resources* and make a VirtualNode of what it grants."""
    return {
        "apiVersion": "authentication.liqo.io/v1beta1",
        "kind": "ResourceSlice",
        "metadata": {
            "name": name,
            "labels": {
                CLUSTER_LABEL: cluster,
                "liqo.io/remoteID": cluster,
                REPLICATION_LABEL: "true",
                **labels,
            },
            "annotations": {"liqo.io/create-virtual-node": "true"},
        },
        "spec": {"class": slice_class, "providerClusterID": cluster, "resources": dict(resources)},
    }
