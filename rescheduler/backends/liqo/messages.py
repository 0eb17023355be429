"""What travels between a node manager and its clients, as JSON; keys that are not known are left alone.

The first half is what Liqo's cluster autoscaler has always spoken (node-manager ``types/``, discovery ``types/``): GET
requests with a query, answers that say little. The second half is what our node manager offers beside it, under
``/v1``; a client learns from ``GET /version`` whether it is there (other node managers answer that with nothing).

====================================================  =========================================================
``GET /version``                                      :class:`Version`
``GET /v1/fleet``                                     :class:`Fleet`: one consistent look at everything
``POST /v1/groups/{id}/machines``                     :class:`Order` → 202 and :class:`Ordered`; 409 above the maximum
``DELETE /v1/groups/{id}/machines/{name}``            202 ordered, or already under way; 404 there is no such machine;
                                                      409 refused (minimum, protected)
``GET /v1/groups/{id}/template``                      :class:`Template`
``GET /v1/machines/{name}/price?start=…&end=…``       :class:`Price`; times as in RFC 3339
``POST /v1/podprice``                                 :class:`PodShare` → :class:`Price`
====================================================  =========================================================

Errors are a status and ``{"error": "one line"}``.
"""

import datetime as dt
from typing import Annotated, Final, TypeAlias

import msgspec

from rescheduler.backends.base import InstanceState

#: Before the name of a virtual node in its Node's ``spec.providerID``.
SCHEME: Final = "liqo://"
#: What :attr:`Version.routes` has where the second half is served.
V1: Final = "v1"

Count: TypeAlias = Annotated[int, msgspec.Meta(ge=0)]
Positive: TypeAlias = Annotated[int, msgspec.Meta(ge=1)]


class Message(msgspec.Struct, rename="camel", frozen=True, kw_only=True):
    """The root of all messages."""


class Group(Message, frozen=True, kw_only=True):
    """``/nodegroup`` (a list of them), ``/nodegroup/ownership`` (an empty id: of no group)."""

    id: str
    max_size: int
    min_size: int


class Size(Message, frozen=True, kw_only=True):
    """``/nodegroup/current-size``."""

    current_size: int


class NodeState(msgspec.Struct, frozen=True, kw_only=True, rename="pascal"):
    """`instance_state` is Cluster Autoscaler's: 0 unknown, 1 running, 2 creating, 3 deleting."""

    instance_state: int = 1
    instance_error_info: str = ""


class Node(Message, frozen=True, kw_only=True):
    """``/nodegroup/nodes`` (a list of them); the name of the key of the state really is two dashes."""

    id: str  #: the Node's name
    state: NodeState = msgspec.field(default=NodeState(), name="--")


class Amounts(Message, frozen=True, kw_only=True):
    """By resource, as quantities."""

    min: dict[str, str | int | float] = {}
    max: dict[str, str | int | float] = {}


class GroupTemplate(Message, frozen=True, kw_only=True):
    """``/nodegroup/template``; `cost` is of an hour."""

    nodegroup_id: str = ""
    resources: Amounts = Amounts()
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
    min_size: Count
    max_size: Count
    debug: str = ""  #: one line for people


class FleetMachine(Message, frozen=True, kw_only=True):
    """A virtual node, from its reservation on until its Node is gone."""

    name: str  #: of its ResourceSlice, VirtualNode and Node
    group: str = ""  #: empty: a virtual node that somebody else has made
    state: InstanceState = InstanceState.UNKNOWN
    error: MachineError | None = None
    provider_id: str = ""  #: of its Node; empty: ``liqo://`` and the name
    protected: str = ""  #: why it must not be deleted, if so


class Fleet(Message, frozen=True, kw_only=True):
    """All groups and all virtual nodes; the size of a group is the number of its machines that are not deleting."""

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


class Template(Message, frozen=True, kw_only=True):
    """What the next Node of a group will look like; amounts are quantities."""

    labels: dict[str, str] = {}
    taints: tuple[TemplateTaint, ...] = ()
    capacity: dict[str, str] = {}
    allocatable: dict[str, str] = {}


class PodShare(Message, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What a pod requests, in cores, bytes and pieces, and for how long."""

    requests: dict[str, float]
    start: Annotated[dt.datetime, msgspec.Meta(tz=True)]
    end: Annotated[dt.datetime, msgspec.Meta(tz=True)]


class Price(Message, frozen=True, kw_only=True):
    price: float
