"""The protocol of cloud providers: systems that own machines. Its verbs follow Cluster Autoscaler's externalgrpc
service.
"""

import datetime as dt
import enum
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field
from decimal import Decimal
from typing import ClassVar, Final, Protocol, TypeAlias, TypeVar

import msgspec

from predicates.objects.api import CONTROL_PLANE_LABELS
from rescheduler import errors

T = TypeVar("T", bound=msgspec.Struct)

# The fields of a Node by which a cloud provider identifies its machine.

#: Cluster Autoscaler's names of templates begin with it.
TEMPLATE_PREFIX = "template-node-for-"


@dataclass(frozen=True, slots=True)
class NodeRef:
    """A caller's description of a Node. Providers match it by provider ID, their own label, address, then name."""

    name: str
    provider_id: str = ""  #: spec.providerID
    labels: Mapping[str, str] = field(default_factory=dict)
    annotations: Mapping[str, str] = field(default_factory=dict)
    internal_ips: tuple[str, ...] = ()  #: status.addresses of type InternalIP
    control_plane: bool = False  #: the caller recognized a control-plane node by something other than labels
    #: The intent's time, if an earlier process may have ordered the deletion. Providers then order nothing before
    #: they have a state observed after this time, and treat a missing machine as deleted.
    ordered_at: dt.datetime | None = None
    #: Other Nodes of the cluster with the same provider ID, address or name. A machine that could also belong to one
    #: of them is not matched.
    rivals: tuple["NodeRef", ...] = ()

    @property
    def placeholder(self) -> bool:
        """Whether this is Cluster Autoscaler's placeholder for an instance without a Node: name and ID are equal."""
        return bool(self.provider_id) and self.name == self.provider_id

    @property
    def template(self) -> bool:
        """Whether this is Cluster Autoscaler's template of a group's next node, used for prices: it has no machine.

        cluster-autoscaler/simulator/node_info_utils.go generates the name; the Node has the labels of the template.
        """
        return self.name.startswith(TEMPLATE_PREFIX)

    @property
    def on_control_plane(self) -> bool:
        return self.control_plane or any(label in self.labels for label in CONTROL_PLANE_LABELS)


def with_rivals(nodes: Sequence[NodeRef]) -> list[NodeRef]:
    """Return *nodes*, followed by their rivals that are not among *nodes*."""
    known = {node.name for node in nodes}
    others = {rival.name: rival for node in nodes for rival in node.rivals if rival.name not in known}
    return [*nodes, *others.values()]


# What a provider says. Its errors begin with its name, because commands print them as they are.


def without_name(provider: str, text: object) -> str:
    """Return *text* without the name of *provider* at its beginning."""
    whole = str(text)
    name = next((start for start in (f"{provider}: ", f"{provider} ") if whole.startswith(start)), "")
    return whole.removeprefix(name)


def said(provider: str, text: object) -> str:
    """Return *text* with the name of *provider* at its beginning, once."""
    return f"{provider}: {without_name(provider, text)}"


# Node groups of a cloud provider: their size limits, machines, templates and options.


@dataclass(frozen=True, slots=True)
class GroupFlags:
    """The node group flags of Cluster Autoscaler's command line."""

    nodes: tuple[str, ...] = ()  #: the values of ``--nodes``; their format depends on the system
    cluster_name: str = ""  #: ``--cluster-name``


@dataclass(frozen=True, slots=True)
class NodeGroup:
    """A set of identical machines that scale together; both size limits are inclusive."""

    id: str
    min_size: int
    max_size: int
    debug: str = ""  #: a one-line description for people


class InstanceState(enum.StrEnum):
    UNKNOWN = "unknown"
    RUNNING = "running"
    CREATING = "creating"
    DELETING = "deleting"


#: Cluster Autoscaler's numbers of states, in its gRPC protocol and in the routes of Liqo's autoscaler.
STATE_NUMBERS: Final = {
    InstanceState.UNKNOWN: 0,
    InstanceState.RUNNING: 1,
    InstanceState.CREATING: 2,
    InstanceState.DELETING: 3,
}
STATES_BY_NUMBER: Final = {number: state for state, number in STATE_NUMBERS.items()}


@dataclass(frozen=True, slots=True)
class InstanceError:
    code: str
    message: str
    out_of_resources: bool = False  #: a lack of stock or quota


@dataclass(frozen=True, slots=True)
class Instance:
    """A machine; `id` is its Node's `spec.providerID`, set before the node joins if it is known."""

    id: str
    state: InstanceState
    error: InstanceError | None = None
    spot: bool | None = None  #: None: unknown
    terminates_at: dt.datetime | None = None  #: when the system will terminate it, if announced


@dataclass(frozen=True, slots=True)
class NodeTaint:
    key: str
    value: str
    effect: str


@dataclass(frozen=True, slots=True)
class NodeTemplate:
    """The expected Node of a group's next machine; amounts are Kubernetes quantities."""

    labels: Mapping[str, str]
    taints: tuple[NodeTaint, ...]
    capacity: Mapping[str, str]
    allocatable: Mapping[str, str]


@dataclass(frozen=True, slots=True)
class GroupOptions:
    """Cluster Autoscaler's per-group options; `None` means its default."""

    utilization_threshold: float | None = None
    gpu_utilization_threshold: float | None = None
    unneeded_time: dt.timedelta | None = None
    unready_time: dt.timedelta | None = None
    max_provision_time: dt.timedelta | None = None
    zero_or_max_scaling: bool | None = None
    ignore_daemonsets_utilization: bool | None = None
    max_startup_time: dt.timedelta | None = None
    non_atomic_scale_up: bool | None = None


# The outcomes of deleting a machine. :mod:`rescheduler.providers.base` describes how a caller acts on each.


class Refusal(enum.StrEnum):
    """Why the system refuses to delete a machine; also a metric label."""

    BELOW_MINIMUM = "below-minimum"
    NOT_IN_GROUP = "not-in-group"
    AMBIGUOUS = "ambiguous"  #: several machines match the node, or several nodes match the machine
    CONTROL_PLANE = "control-plane"
    PROTECTED = "protected"  #: the system itself protects the machine
    WITHHELD = "withheld"  #: the caller does not allow the order any more; it was not sent


class DeleteResult(enum.StrEnum):
    """The kind of a `DeleteOutcome`; also a metric label."""

    DELETED = "deleted"
    ALREADY_GONE = "alreadygone"
    ACCEPTED = "accepted"
    REFUSED = "refused"
    FAILED = "failed"


@dataclass(frozen=True, slots=True)
class Deleted:
    """The machine was deleted by this order, and the system confirmed it."""

    result: ClassVar[DeleteResult] = DeleteResult.DELETED
    detail: str = ""
    unshrunk: str = ""  #: why the target size was not lowered, so that a new machine is launched; "": it was lowered


@dataclass(frozen=True, slots=True)
class AlreadyGone:
    """The machine was already deleted."""

    result: ClassVar[DeleteResult] = DeleteResult.ALREADY_GONE
    detail: str = ""
    unshrunk: str = ""  #: see `Deleted`


@dataclass(frozen=True, slots=True)
class Accepted:
    """The deletion was ordered, or may have been; it was not confirmed before the deadline."""

    result: ClassVar[DeleteResult] = DeleteResult.ACCEPTED
    detail: str = ""


@dataclass(frozen=True, slots=True)
class Refused:
    result: ClassVar[DeleteResult] = DeleteResult.REFUSED
    reason: Refusal
    detail: str

    def __str__(self) -> str:
        return f"{self.reason}: {self.detail}"


ON_CONTROL_PLANE: Final = Refused(Refusal.CONTROL_PLANE, "the node belongs to the control plane")


def below_minimum(group: str, minimum: int, left: int) -> Refused | None:
    """Return a refusal if *left*, the number of machines left, is below the *minimum* of *group*."""
    if left >= minimum:
        return None
    return Refused(Refusal.BELOW_MINIMUM, f"group {group} must keep {minimum}, {left} would be left")


@dataclass(frozen=True, slots=True)
class Failed:
    """The machine keeps running and no order is pending; both are certain."""

    result: ClassVar[DeleteResult] = DeleteResult.FAILED
    error: str
    retryable: bool


DeleteOutcome: TypeAlias = Deleted | AlreadyGone | Accepted | Refused | Failed


# The errors that the verbs of a cloud provider raise, with their gRPC status.


class NotSupported(errors.Permanent):
    """The system does not implement the verb; callers must work without it. (UNIMPLEMENTED)"""


class Unserved(errors.Permanent):
    """The API server does not serve a collection of objects."""


class UnknownGroup(errors.NotFound):
    """The group does not exist. (NOT_FOUND)"""


class BelowMinimum(errors.Permanent):
    """The group would fall below its minimum size, or lose running machines. (FAILED_PRECONDITION)"""


class AboveMaximum(errors.Permanent):
    """The group would exceed its maximum size. (FAILED_PRECONDITION)"""


class NotInGroup(errors.Permanent):
    """The node is not a member of the group, or its membership is uncertain. (INVALID_ARGUMENT)"""


def error_of(node: str, outcome: DeleteOutcome) -> errors.ReschedulerError | None:
    """Convert *outcome* to an error, for callers that return one result for all nodes; `None` for a success."""
    match outcome:
        case Refused(Refusal.BELOW_MINIMUM, detail):
            return BelowMinimum(f"node {node}: {detail}")
        case Refused(Refusal.NOT_IN_GROUP | Refusal.AMBIGUOUS, detail):
            return NotInGroup(f"node {node}: {detail}")
        case Refused(_, detail) | Failed(detail, retryable=False):
            return errors.Permanent(f"node {node}: {detail}")
        case Failed(detail):
            return errors.BackendUnavailable(f"node {node}: {detail}")
        case Accepted(detail):
            return errors.DeadlineExceeded(f"node {node}: {detail}")
    return None


# How a caller removes the machine of a node:
#
# 1. Call :meth:`CloudProvider.group_for`. `None` means that no group of this provider owns the machine: do not delete
#    the emptied Node. Otherwise call :meth:`CloudProvider.refusals` before pods are evicted, so that no pod moves for
#    a machine that the provider would refuse to delete.
# 2. When all pods have left the node, write the intent, the group and the time to the Node.
# 3. Call :meth:`CloudProvider.delete_nodes` and act on the outcome:
#
#    ==================  =====================================================================================
#    Deleted             the machine is being deleted or is gone: delete the Node (with its UID as precondition)
#    AlreadyGone         the same
#    Accepted            the order may still take effect: keep taint and intent, do not roll back, and retry with
#                        the same node until the outcome changes or the system forgets the order
#    Refused             nothing was ordered: roll back; a retry alone does not change the outcome
#    Failed              the machine keeps running and no order is pending: roll back and cool down; `retryable`
#                        states whether a retry can succeed
#    ==================  =====================================================================================
#
#    Immediately before each request that could end a machine, also before each repetition, the provider calls
#    *may_end*.
#    It raises Withheld if the machine may not end now, and any other ReschedulerError if that cannot be determined at
#    present. The provider then sends nothing. If no earlier order may still take effect, the outcome is Refused.
#
# 4. After a restart or a change of leader, repeat the call with ``NodeRef.ordered_at`` set to the time of the intent,
#    and with the group named in the intent: `group_for` cannot find the group of a machine that is gone.
#
# If ``delete_nodes`` raises, nothing was ordered for any node of the call. All verbs are thread-safe. Deadlines are
# ``monotonic()`` seconds of the clock that the provider was loaded with.
#
# The values and errors of the verbs are defined in separate modules and can all be imported from here.

# ruff: noqa: ARG002 -- optional verbs keep the protocol's signature although they ignore its arguments


#: Raises Withheld if the machine of a node may not end now; see the top of this module. It may call
#: :meth:`CloudProvider.notices`.
MayEnd: TypeAlias = Callable[[NodeRef], None]


def any_may_end(_: NodeRef) -> None:
    """Allow every order: for machines that no Node represents, and for callers that decided themselves."""


class Turns(Protocol):
    """Turns of the processes that change the same system. Each change is based on the results of the earlier ones.

    All methods raise NoTurn, which names the cause.
    """

    def check(self) -> None:
        """Raise NoTurn if this process cannot have a turn at all, for example because of a missing permission."""
        ...

    def hold(
        self, seconds: float, settle: float, in_doubt: Callable[[], bool]
    ) -> AbstractContextManager[Callable[[], None]]:
        """Have a turn during the block. Wait for it for at most *seconds*.

        The block calls the function that it is given right before each request. It raises NoTurn if the turn is lost.
        If *in_doubt* returns true at the end, or if the process is killed, an order may take effect for *settle*
        seconds: other processes get no turn during this time.
        """
        ...


class Alone:
    """The turns of a process that knows no other one."""

    def check(self) -> None:
        """Do nothing."""

    def hold(self, *_: object) -> AbstractContextManager[Callable[[], None]]:
        return nullcontext(lambda: None)


# Machines that are objects of a Kubernetes API: Karpenter's NodeClaims, and Machines of Cluster API.


@dataclass(frozen=True, slots=True)
class ObjectVersion:
    """An object of the API, as it was read: the preconditions of its change or deletion."""

    path: str
    uid: str
    resource_version: str


class ClusterObjects(Protocol):
    """Reads and changes objects. Thread-safe. *seconds* limits the wait for each response."""

    def all(self, path: str, shape: type[T], *, seconds: float) -> list[T]:
        """Return all objects of the collection at *path*, as *shape*. Raises the errors of `CloudProvider`.

        Raises Unserved if the API server does not serve the collection.
        """
        ...

    def patch(self, version: ObjectVersion, change: Mapping[str, object], *, seconds: float) -> None:
        """Merge *change* into an object, unless it has changed since it was read. Raises the errors of `delete`."""
        ...

    def delete(self, version: ObjectVersion, *, seconds: float) -> None:
        """Request the deletion of an object, unless it has changed since it was read.

        Raises the errors of `net.http_errors` that `order_life.result_of` tells apart.
        """
        ...


class CloudProvider(Protocol):
    """A system that owns machines. Implementations subclass it; verbs with a body are optional.

    Every verb may raise BackendUnavailable, RateLimited, AuthError and DeadlineExceeded; those with a group
    argument also UnknownGroup. No verb exceeds its deadline by more than the time to close a connection.
    """

    name: str
    #: The kubeconfig of the cluster in which the machines are objects; None: the cluster whose nodes are drained.
    kubeconfig: str | None = None

    def refresh(self, *, deadline: float) -> None:
        """Read the system's state again if the cached one is too old; call it before each round.

        If it fails, the cached state stays in place and the next call retries at once.
        """
        ...

    def groups(self, *, deadline: float) -> Sequence[NodeGroup]:
        """Return all groups, always in the same order."""
        ...

    def group_for(self, node: NodeRef, *, deadline: float) -> NodeGroup | None:
        """Return the group that owns the node's machine; `None` if that is uncertain, and for control-plane nodes."""
        ...

    def target_size(self, group: str, *, deadline: float) -> int:
        """Return the group's desired number of machines."""
        ...

    def instances(self, group: str, *, deadline: float) -> Sequence[Instance]:
        """Return the group's machines, including those being created or deleted."""
        ...

    def delete_nodes(
        self, group: str, nodes: Sequence[NodeRef], *, deadline: float, may_end: MayEnd = any_may_end
    ) -> Mapping[str, DeleteOutcome]:
        """Delete machines and lower the target size accordingly; return an outcome per node name, in order.

        *may_end* is called immediately before each request that could end a machine.

        Idempotent: while an order for a node may be pending, given by this process or at `ordered_at`, no second
        order is given, and the target size is lowered only once. The minimum is checked node by node, in order;
        nodes that would violate it are refused.
        """
        ...

    def increase_size(self, group: str, delta: int, *, deadline: float) -> None:
        """Raise the target size by *delta* > 0. Machines appear later in `instances`. Raises AboveMaximum."""
        ...

    def decrease_target_size(self, group: str, delta: int, *, deadline: float) -> None:
        """Lower the target size by -*delta* > 0, canceling only machines that are not running yet.

        If there are fewer such machines, all of them are canceled and BelowMinimum states how many. Cluster Autoscaler
        reverts the whole increase when a scale-up has timed out, even if some of its machines are running.
        """
        ...

    def take_turns(self, turns: Turns) -> None:
        """From now on, make each change while having a turn from *turns*, which other processes share."""
        return

    def use_cluster(self, objects: ClusterObjects) -> None:
        """From now on, use *objects* of the cluster of :attr:`kubeconfig`. For machines that are such objects."""
        return

    def close(self) -> None:
        """Close connections and cancel all waits. The provider must not be used afterwards."""
        ...

    def refusals(self, group: str, nodes: Sequence[NodeRef], *, deadline: float) -> Mapping[str, Refused]:
        """Return the nodes that `delete_nodes` would refuse if called with all *nodes*; nothing is ordered."""
        return {}

    def refusal_without_group(self, node: NodeRef, *, deadline: float) -> Refused | None:
        """Return why a node that `group_for` assigns to no group must not be drained.

        `None` means that it may be drained, and that its machine is left to others.
        """
        return None

    def notices(self, nodes: Sequence[NodeRef], *, deadline: float) -> Mapping[str, dt.datetime]:
        """Return, by node name, when the system will terminate machines on its own (for example, spot instances)."""
        return {}

    def building(self, nodes: Sequence[NodeRef], *, deadline: float) -> frozenset[str]:
        """Return the names of nodes that have joined but whose machines are still being set up."""
        return frozenset()

    def template(self, group: str, *, deadline: float) -> NodeTemplate:
        raise NotSupported(f"{self.name} has no template of group {group}")

    def options(self, group: str, *, deadline: float) -> GroupOptions | None:
        """Return the group's options, or `None` if the caller's defaults apply."""
        return None

    def has_instance(self, node: NodeRef, *, deadline: float) -> bool | None:
        """Return whether the node's machine exists; `None` if unknown."""
        return None

    def instance_for(self, node: NodeRef, *, deadline: float) -> str | None:
        """Return the `Instance.id` of the node's machine, or `None` if it is unknown."""
        return None

    def node_price(self, node: NodeRef, start: dt.datetime, end: dt.datetime, *, deadline: float) -> float:
        raise NotSupported(f"{self.name} has no prices")

    def pod_price(
        self, requests: Mapping[str, Decimal], start: dt.datetime, end: dt.datetime, *, deadline: float
    ) -> float:
        """Return the price of a pod's share of a node; *requests* are in cores, bytes or units."""
        raise NotSupported(f"{self.name} has no prices")

    def gpu_label(self) -> str:
        return ""

    def gpu_types(self) -> frozenset[str]:
        return frozenset()
