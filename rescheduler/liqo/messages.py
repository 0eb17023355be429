"""The JSON messages between a node manager and its clients, and the properties of all virtual nodes."""

import datetime as dt
from typing import Annotated, Final, TypeAlias

import msgspec

from rescheduler.providers.base import InstanceState, NodeTaint

# The JSON messages between a node manager and its clients; unknown keys are ignored.
#
# The first half is the protocol of Liqo's cluster autoscaler (node-manager ``types/``, discovery ``types/``): GET
# requests with a query, and minimal responses. The second half contains the additions of our node manager under
# ``/v1``;
# clients detect it by ``GET /version`` (other node managers return an empty response).
# ====================================================  =========================================================
# ``GET /version``                                      :class:`Version`
# ``GET /v1/fleet``                                     :class:`Fleet`: a consistent view of everything
# ``POST /v1/groups/{id}/machines``                     :class:`Order` → 202 and :class:`Ordered`; 409 above the maximum
# ``DELETE /v1/groups/{id}/machines/{name}``            202 ordered, or already in progress; 404 no such machine;
#                                                       409 refused (minimum, protected)
# ``GET /v1/groups/{id}/template``                      :class:`MachineTemplate`
# ``GET /v1/machines/{name}/price?start=…&end=…``       :class:`MachinePrice`; times as in RFC 3339
# ``POST /v1/podprice``                                 :class:`PodShare` → :class:`MachinePrice`
# ====================================================  =========================================================
#
# Errors are a status and ``{"error": "one line"}``.

#: The prefix of a virtual node's name in its Node's ``spec.providerID``.
SCHEME: Final = "liqo://"
#: The entry of :attr:`Version.routes` if the second half is served.
V1: Final = "v1"

NonNegative: TypeAlias = Annotated[int, msgspec.Meta(ge=0)]
Positive: TypeAlias = Annotated[int, msgspec.Meta(ge=1)]


class Message(msgspec.Struct, rename="camel", frozen=True, kw_only=True):
    """The base of all messages."""


class Group(Message, frozen=True, kw_only=True):
    """An entry of ``/nodegroup``, and the response of ``/nodegroup/ownership`` (an empty id: no group)."""

    id: str
    max_size: int
    min_size: int


class Size(Message, frozen=True, kw_only=True):
    """The response of ``/nodegroup/current-size``."""

    current_size: int


class NodeState(msgspec.Struct, frozen=True, kw_only=True, rename="pascal"):
    """The state of a node; `instance_state` is Cluster Autoscaler's: 0 unknown, 1 running, 2 creating, 3 deleting."""

    instance_state: int = 1
    instance_error_info: str = ""


class GroupNode(Message, frozen=True, kw_only=True):
    """An entry of ``/nodegroup/nodes``; the key of the state really is two dashes."""

    id: str  #: the Node's name
    state: NodeState = msgspec.field(default=NodeState(), name="--")


class ResourceRange(Message, frozen=True, kw_only=True):
    """Quantities by resource."""

    min: dict[str, str | int | float] = {}
    max: dict[str, str | int | float] = {}


class GroupTemplate(Message, frozen=True, kw_only=True):
    """The response of ``/nodegroup/template``; `cost` is per hour."""

    nodegroup_id: str = ""
    resources: ResourceRange = ResourceRange()
    labels: dict[str, str] = {}
    cost: float = 0


class Version(Message, frozen=True, kw_only=True):
    server: str = ""
    version: str = ""
    routes: tuple[str, ...] = ()


class MachineError(Message, frozen=True, kw_only=True):
    code: str
    message: str
    out_of_resources: bool = False


class FleetGroup(Message, frozen=True, kw_only=True):
    id: str
    min_size: NonNegative
    max_size: NonNegative
    debug: str = ""  #: a one-line description for people


class FleetMachine(Message, frozen=True, kw_only=True):
    """A virtual node, from its reservation until its Node is deleted."""

    name: str  #: of its ResourceSlice, VirtualNode and Node
    group: str = ""  #: empty: a virtual node that was not created by the node manager
    state: InstanceState = InstanceState.UNKNOWN
    error: MachineError | None = None
    provider_id: str = ""  #: of its Node; empty: ``liqo://`` and the name
    protected: str = ""  #: why it must not be deleted; empty: it may be


class Fleet(Message, frozen=True, kw_only=True):
    """All groups and virtual nodes; a group's size is the number of its machines that are not being deleted."""

    groups: tuple[FleetGroup, ...]
    machines: tuple[FleetMachine, ...]


class Order(Message, frozen=True, kw_only=True, forbid_unknown_fields=True):
    count: Positive


class Ordered(Message, frozen=True, kw_only=True):
    names: tuple[str, ...]


class TemplateTaint(Message, frozen=True, kw_only=True):
    key: str
    effect: str
    value: str = ""


class MachineTemplate(Message, frozen=True, kw_only=True):
    """The expected Node of a group's next machine; amounts are quantities."""

    labels: dict[str, str] = {}
    taints: tuple[TemplateTaint, ...] = ()
    capacity: dict[str, str] = {}
    allocatable: dict[str, str] = {}


class PodShare(Message, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A pod's requests in cores, bytes and units, and the period."""

    requests: dict[str, float]
    start: Annotated[dt.datetime, msgspec.Meta(tz=True)]
    end: Annotated[dt.datetime, msgspec.Meta(tz=True)]


class MachinePrice(Message, frozen=True, kw_only=True):
    price: float


# Properties common to all virtual nodes of Liqo (``cmd/virtual-kubelet`` and the chart's values, v1.0 to v1.3).
#
# A template has only the properties of every Node. ``type=virtual-kubelet``, which v1.3 added, is for the labels of a
# group: these are set on the Nodes of earlier versions too.

#: Set by Liqo's virtual kubelet on each of its Nodes, independent of the provider's architecture.
VIRTUAL_NODE_LABELS: Final = {
    "liqo.io/type": "virtual-node",
    "kubernetes.io/role": "agent",
    "kubernetes.io/os": "linux",
    "kubernetes.io/arch": "amd64",
    "node.kubernetes.io/exclude-from-external-load-balancers": "true",
}
VIRTUAL_NODE_TAINT: Final = NodeTaint("virtual-node.liqo.io/not-allowed", "true", "NoExecute")
#: Resources granted by default in addition to cpu, memory and pods (``offloading.defaultNodeResources``).
ADDED_RESOURCES: Final = {"ephemeral-storage": "20Gi"}
