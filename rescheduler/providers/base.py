"""The protocol of cloud providers: systems that own machines. Its verbs follow Cluster Autoscaler's externalgrpc.

How a caller removes the machine of a node:

1. Call :meth:`CloudProvider.group_for`. `None` means that no group of this provider owns the machine: do not delete
   the emptied Node. Otherwise call :meth:`CloudProvider.refusals` before pods are evicted, so that no pod moves for
   a machine that the provider would refuse to delete.
2. When all pods have left the node, write the intent, the group and the time to the Node.
3. Call :meth:`CloudProvider.delete_nodes` and act on the outcome:

   ==================  =====================================================================================
   Deleted             the machine is being deleted or is gone: delete the Node (with its UID as precondition)
   AlreadyGone         the same
   Accepted            the order may still take effect: keep taint and intent, do not roll back, and retry with
                       the same node until the outcome changes or the system forgets the order
   Refused             nothing was ordered: roll back; a retry alone does not change the outcome
   Failed              the machine keeps running and no order is pending: roll back and cool down; `retryable`
                       states whether a retry can succeed
   ==================  =====================================================================================

   Immediately before each request that could end a machine, also before each repetition, the provider calls *may_end*.
   It raises Withheld if the machine may not end now, and any other ReschedulerError if that cannot be determined at
   present. The provider then sends nothing. If no earlier order may still take effect, the outcome is Refused.

4. After a restart or a change of leader, repeat the call with ``NodeRef.ordered_at`` set to the time of the intent,
   and with the group named in the intent: `group_for` cannot find the group of a machine that is gone.

If ``delete_nodes`` raises, nothing was ordered for any node of the call. All verbs are thread-safe. Deadlines are
``monotonic()`` seconds of the clock that the provider was loaded with.

The values and errors of the verbs are defined in separate modules and can all be imported from here.
"""

# ruff: noqa: ARG002 -- optional verbs keep the protocol's signature although they ignore its arguments

import datetime as dt
from collections.abc import Callable, Mapping, Sequence
from decimal import Decimal
from typing import Protocol, TypeAlias

from rescheduler.providers.delete_outcomes import (
    ON_CONTROL_PLANE,
    Accepted,
    AlreadyGone,
    Deleted,
    DeleteOutcome,
    DeleteResult,
    Failed,
    Refusal,
    Refused,
    below_minimum,
)
from rescheduler.providers.node_groups import (
    GroupFlags,
    GroupOptions,
    Instance,
    InstanceError,
    InstanceState,
    NodeGroup,
    NodeTaint,
    NodeTemplate,
)
from rescheduler.providers.node_ref import CONTROL_PLANE_LABELS, NodeRef, with_rivals
from rescheduler.providers.verb_errors import (
    AboveMaximum,
    BelowMinimum,
    NotInGroup,
    NotSupported,
    UnknownGroup,
    error_of,
)

__all__ = [
    "CONTROL_PLANE_LABELS",
    "ON_CONTROL_PLANE",
    "AboveMaximum",
    "Accepted",
    "AlreadyGone",
    "BelowMinimum",
    "CloudProvider",
    "DeleteOutcome",
    "DeleteResult",
    "Deleted",
    "Failed",
    "GroupFlags",
    "GroupOptions",
    "Instance",
    "InstanceError",
    "InstanceState",
    "MayEnd",
    "NodeGroup",
    "NodeRef",
    "NodeTaint",
    "NodeTemplate",
    "NotInGroup",
    "NotSupported",
    "Refusal",
    "Refused",
    "UnknownGroup",
    "any_may_end",
    "below_minimum",
    "error_of",
    "with_rivals",
]


#: Raises Withheld if the machine of a node may not end now; see the top of this module.
MayEnd: TypeAlias = Callable[[NodeRef], None]


def any_may_end(_: NodeRef) -> None:
    """Allow every order: for machines that no Node represents, and for callers that decided themselves."""


class CloudProvider(Protocol):
    """A system that owns machines. Implementations subclass it; verbs with a body are optional.

    Every verb may raise BackendUnavailable, RateLimited, AuthError and DeadlineExceeded; those with a group
    argument also UnknownGroup. No verb exceeds its deadline by more than the time to close a connection.
    """

    name: str

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

    def close(self) -> None:
        """Close connections and cancel all waits. The provider must not be used afterwards."""
        ...

    def refusals(self, group: str, nodes: Sequence[NodeRef], *, deadline: float) -> Mapping[str, Refused]:
        """Return the nodes that `delete_nodes` would refuse if called with all *nodes*; nothing is ordered."""
        return {}

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
