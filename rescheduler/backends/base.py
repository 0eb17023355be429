"""The protocol of every system that owns machines, in the verbs of Cluster Autoscaler's externalgrpc.

The life of a victim, for whoever drains nodes:

1. :meth:`CloudProvider.group_for` is ``None``: nobody here owns the machine; leave the emptied Node alone.
   Otherwise ask :meth:`CloudProvider.refusals`, lest pods move for a machine that is not given away.
2. All pods are gone from the node; the intent, the group and the time are written on the Node.
3. :meth:`CloudProvider.delete_nodes`, then by outcome:

   ==================  =====================================================================================
   Deleted             seen to be going or gone: delete the Node object (with its UID as precondition)
   AlreadyGone         the same
   Accepted            the order may be at work: keep taint and intent, roll nothing back, ask again later
                       with the same node; the answer becomes another one or the system forgets the order
   Refused             nothing was ordered: roll back; asking again changes nothing by itself
   Failed              the machine runs on and nothing is at work: roll back, cool down; `retryable` or not
   ==================  =====================================================================================

4. After a restart or a change of leader: the same call, with ``NodeRef.ordered_at`` = the time of the intent and
   the group that the intent names, for `group_for` no longer knows a machine that is gone.

An exception from ``delete_nodes`` means that nothing was ordered for any node of the call. All verbs may be
called from several threads. A deadline is a moment of ``monotonic()`` of the clock that the provider was
loaded with.
"""

# ruff: noqa: ARG002 -- optional verbs have the signature of the protocol and use nothing of it

import datetime as dt
import enum
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from decimal import Decimal
from typing import Protocol, TypeAlias

from rescheduler import errors
from rescheduler.errors import ConfigError as ConfigError  # noqa: PLC0414 - of the provider protocol

#: Kubernetes sets the first on control-plane nodes; the second is its name before 1.24.
CONTROL_PLANE_LABELS = ("node-role.kubernetes.io/control-plane", "node-role.kubernetes.io/master")


class BackendUnavailable(errors.Retryable):
    """The system cannot be reached or cannot answer; nothing is known about what it did. (UNAVAILABLE)"""


class RateLimited(errors.Retryable):
    """The system asks for patience: `retry_after` in seconds, if it says. (RESOURCE_EXHAUSTED)"""


class DeadlineExceeded(errors.Retryable):
    """The caller's deadline passed first. (DEADLINE_EXCEEDED)"""


class AuthError(errors.Unauthorized):
    """The system refused our credentials. (UNAUTHENTICATED)"""


class NotSupported(errors.Permanent):
    """The system has no such verb; a caller does without. (UNIMPLEMENTED)"""


class UnknownGroup(errors.NotFound):
    """No group of that id. (NOT_FOUND)"""


class BelowMinimum(errors.Permanent):
    """The group would become smaller than its minimum, or lose machines that run. (FAILED_PRECONDITION)"""


class AboveMaximum(errors.Permanent):
    """The group would become larger than its maximum. (FAILED_PRECONDITION)"""


class NotInGroup(errors.Permanent):
    """The node is no member of the group, or it is not certain that it is. (INVALID_ARGUMENT)"""


@dataclass(frozen=True, slots=True)
class GroupFlags:
    """What Cluster Autoscaler's users tell of groups on the command line."""

    nodes: tuple[str, ...] = ()  #: one text for each ``--nodes``; its form is the system's own
    cluster_name: str = ""  #: ``--cluster-name``


@dataclass(frozen=True, slots=True)
class NodeRef:
    """What a caller knows about a Node; providers match it by provider ID, own label, address, then name."""

    name: str
    provider_id: str = ""  #: spec.providerID
    labels: Mapping[str, str] = field(default_factory=dict)
    annotations: Mapping[str, str] = field(default_factory=dict)
    internal_ips: tuple[str, ...] = ()  #: status.addresses of type InternalIP
    control_plane: bool = False  #: known to the caller by other signs than the labels
    #: When an earlier process may have given the order to delete (the intent's time). Providers then look at
    #: a state observed after it before they order anything, and take the machine's absence for its end.
    ordered_at: dt.datetime | None = None
    #: Other Nodes of the cluster that share a sign with it: a machine that may as well be theirs is nobody's.
    rivals: tuple["NodeRef", ...] = ()

    @property
    def placeholder(self) -> bool:
        """Cluster Autoscaler's stand-in for an instance without a Node: both names are the instance's id."""
        return bool(self.provider_id) and self.name == self.provider_id

    @property
    def template(self) -> bool:
        """Cluster Autoscaler's idea of a group's next node, for prices: no machine is behind it.

        Its name is made in cluster-autoscaler/simulator/node_info_utils.go; the labels are the template's.
        """
        return self.name.startswith("template-node-for-")

    @property
    def on_control_plane(self) -> bool:
        return self.control_plane or any(label in self.labels for label in CONTROL_PLANE_LABELS)


def with_rivals(nodes: Sequence[NodeRef]) -> list[NodeRef]:
    """*nodes*, and those of their rivals that are not among them: all whose claims count."""
    known = {node.name for node in nodes}
    others = {rival.name: rival for node in nodes for rival in node.rivals if rival.name not in known}
    return [*nodes, *others.values()]


@dataclass(frozen=True, slots=True)
class NodeGroup:
    """Machines that are alike and scale together; sizes in machines, both ends included."""

    id: str
    min_size: int
    max_size: int
    debug: str = ""  #: one line for people


class InstanceState(enum.StrEnum):
    UNKNOWN = "unknown"
    RUNNING = "running"
    CREATING = "creating"
    DELETING = "deleting"


@dataclass(frozen=True, slots=True)
class InstanceError:
    code: str
    message: str
    out_of_resources: bool = False  #: no stock or no quota; otherwise some other error


@dataclass(frozen=True, slots=True)
class Instance:
    """A machine; `id` is its Node's `spec.providerID`, also before it joins, as far as that is known."""

    id: str
    state: InstanceState
    error: InstanceError | None = None
    spot: bool | None = None  #: None: the system does not say
    terminates_at: dt.datetime | None = None  #: the notice of an interruption, if there is one


@dataclass(frozen=True, slots=True)
class Taint:
    key: str
    value: str
    effect: str


@dataclass(frozen=True, slots=True)
class NodeTemplate:
    """What the next Node of a group will look like; amounts are Kubernetes quantities as strings."""

    labels: Mapping[str, str]
    taints: tuple[Taint, ...]
    capacity: Mapping[str, str]
    allocatable: Mapping[str, str]


@dataclass(frozen=True, slots=True)
class GroupOptions:
    """Cluster Autoscaler's options of one group; `None` keeps its default."""

    utilization_threshold: float | None = None
    gpu_utilization_threshold: float | None = None
    unneeded_time: dt.timedelta | None = None
    unready_time: dt.timedelta | None = None
    max_provision_time: dt.timedelta | None = None
    zero_or_max_scaling: bool | None = None
    ignore_daemonsets_utilization: bool | None = None
    max_startup_time: dt.timedelta | None = None
    non_atomic_scale_up: bool | None = None


class Refusal(enum.StrEnum):
    """Why a machine is not given away; also a label of metrics."""

    BELOW_MINIMUM = "below-minimum"
    NOT_IN_GROUP = "not-in-group"
    AMBIGUOUS = "ambiguous"  #: several machines, or several nodes for one machine: touched is none
    CONTROL_PLANE = "control-plane"
    PROTECTED = "protected"  #: the system itself forbids it


@dataclass(frozen=True, slots=True)
class Deleted:
    """The order did it, and the system was seen to agree."""

    detail: str = ""
    unshrunk: str = ""  #: why the target size was not lowered by the machine, so that another one comes; "": it was


@dataclass(frozen=True, slots=True)
class AlreadyGone:
    """There was nothing left to order."""

    detail: str = ""
    unshrunk: str = ""  #: see `Deleted`


@dataclass(frozen=True, slots=True)
class Accepted:
    """Ordered, or perhaps ordered; its end was not seen before the deadline."""

    detail: str = ""


@dataclass(frozen=True, slots=True)
class Refused:
    reason: Refusal
    detail: str


@dataclass(frozen=True, slots=True)
class Failed:
    """It is certain that the machine runs on and that no order is at work."""

    error: str
    retryable: bool


DeleteOutcome: TypeAlias = Deleted | AlreadyGone | Accepted | Refused | Failed


def error_of(node: str, outcome: DeleteOutcome) -> errors.ReschedulerError | None:
    """The outcome as an error, for faces without a result per node; `None` where the node goes or is gone."""
    match outcome:
        case Refused(Refusal.BELOW_MINIMUM, detail):
            return BelowMinimum(f"node {node}: {detail}")
        case Refused(Refusal.NOT_IN_GROUP | Refusal.AMBIGUOUS, detail):
            return NotInGroup(f"node {node}: {detail}")
        case Refused(_, detail) | Failed(detail, retryable=False):
            return errors.Permanent(f"node {node}: {detail}")
        case Failed(detail):
            return BackendUnavailable(f"node {node}: {detail}")
        case Accepted(detail):
            return DeadlineExceeded(f"node {node}: {detail}")
    return None


class CloudProvider(Protocol):
    """A system that owns machines. Subclass it: verbs with a body here are optional.

    Every verb may raise BackendUnavailable, RateLimited, AuthError and DeadlineExceeded; those that take a
    group also UnknownGroup. No verb outlives its deadline by more than closing a connection takes.
    """

    name: str

    def refresh(self, *, deadline: float) -> None:
        """Look at the system anew, at most as often as it likes; call it before each round.

        A failure leaves the old view in place and does not delay the next attempt.
        """
        ...

    def groups(self, *, deadline: float) -> Sequence[NodeGroup]:
        """All groups, in a steady order."""
        ...

    def group_for(self, node: NodeRef, *, deadline: float) -> NodeGroup | None:
        """The group that surely owns the node's machine; `None` for all others and for the control plane."""
        ...

    def target_size(self, group: str, *, deadline: float) -> int:
        """The size that the system works towards."""
        ...

    def instances(self, group: str, *, deadline: float) -> Sequence[Instance]:
        """The machines that there are, those that come and go included."""
        ...

    def delete_nodes(self, group: str, nodes: Sequence[NodeRef], *, deadline: float) -> Mapping[str, DeleteOutcome]:
        """Give machines away and shrink the target by as many; one outcome a node, keyed by name, in order.

        Idempotent: a node whose order was given, by this process or at `ordered_at`, is not ordered a second
        time while that order may be at work, and the target is not lowered twice. What would go below the
        minimum is refused node by node, after the nodes before it have been counted.
        """
        ...

    def increase_size(self, group: str, delta: int, *, deadline: float) -> None:
        """Raise the target by *delta* > 0; AboveMaximum. The machines come later, see `instances`."""
        ...

    def decrease_target_size(self, group: str, delta: int, *, deadline: float) -> None:
        """Lower the target by -*delta* > 0, giving up only what does not run yet.

        Where that is less than asked for, it is given up, and BelowMinimum says how much. Cluster Autoscaler takes
        the whole increase back when a scale-up has timed out, also where a part of it runs.
        """
        ...

    def close(self) -> None:
        """Free connections and end waits; the provider is not used afterwards."""
        ...

    def refusals(self, group: str, nodes: Sequence[NodeRef], *, deadline: float) -> Mapping[str, Refused]:
        """What `delete_nodes` would refuse if it were asked for all *nodes* at once; it orders nothing."""
        return {}

    def notices(self, nodes: Sequence[NodeRef], *, deadline: float) -> Mapping[str, dt.datetime]:
        """Of *nodes*, by name, those whose machines the system will end by itself, and when: what spot is told."""
        return {}

    def building(self, nodes: Sequence[NodeRef], *, deadline: float) -> frozenset[str]:
        """Of *nodes*, by name, those that have joined while their machine is still being built: not fit for pods."""
        return frozenset()

    def template(self, group: str, *, deadline: float) -> NodeTemplate:
        raise NotSupported(f"{self.name} knows no template of group {group}")

    def options(self, group: str, *, deadline: float) -> GroupOptions | None:
        """`None`: the defaults of whoever asks."""
        return None

    def has_instance(self, node: NodeRef, *, deadline: float) -> bool | None:
        """Whether the node's machine exists; `None` where that cannot be told."""
        return None

    def instance_for(self, node: NodeRef, *, deadline: float) -> str | None:
        """The id under which `instances` lists the node's machine; `None` where that cannot be told."""
        return None

    def node_price(self, node: NodeRef, start: dt.datetime, end: dt.datetime, *, deadline: float) -> float:
        raise NotSupported(f"{self.name} knows no prices")

    def pod_price(
        self, requests: Mapping[str, Decimal], start: dt.datetime, end: dt.datetime, *, deadline: float
    ) -> float:
        """The price of a pod's share; *requests* in cores, bytes and pieces."""
        raise NotSupported(f"{self.name} knows no prices")

    def gpu_label(self) -> str:
        return ""

    def gpu_types(self) -> frozenset[str]:
        return frozenset()
