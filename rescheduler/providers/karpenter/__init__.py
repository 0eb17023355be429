"""The cloud provider for the nodes of Karpenter: it deletes their NodeClaims, and Karpenter ends the machines.

A NodeClaim has a finalizer: Karpenter deletes the Node, evicts what still runs there, waits until volumes are detached,
ends the instance, and then lets the NodeClaim go. So a NodeClaim that is gone confirms that its machine is. Disruption
budgets and ``consolidateAfter`` limit what Karpenter does by itself, not a deletion. It is imported by name when it is
selected.
"""

from collections.abc import Callable
from pathlib import Path
from typing import Final

from predicates.objects import NodePool
from rescheduler.clock import Clock
from rescheduler.providers.base import BelowMinimum, CloudProvider, NodeGroup, NodeRef, NodeTemplate, NotSupported
from rescheduler.providers.fleet import SystemMachine, SystemView
from rescheduler.providers.fleet.objects import ObjectProvider, ObjectSystem
from rescheduler.providers.karpenter.claims import NODE_CLAIMS, NODE_POOLS, NodeClaim, view_of

_NOT_ORDERED: Final = "karpenter: Karpenter adds nodes for pending pods, not on request"


def load(config: Path | None, clock: Clock) -> CloudProvider:  # noqa: ARG001 - it has no file
    return KarpenterProvider(clock)


class KarpenterSystem(ObjectSystem):
    """Karpenter as a fleet. A machine's key is its provider ID."""

    name = "karpenter"
    kind, manager, group_kind = "NodeClaim", "Karpenter", "NodePool"

    def read(self, *, deadline: float) -> SystemView:
        objects = self.connected()
        pools = objects.all(NODE_POOLS, NodePool, seconds=self.seconds(deadline))
        return view_of(pools, objects.all(NODE_CLAIMS, NodeClaim, seconds=self.seconds(deadline)))

    def key_of(self, node: NodeRef) -> str | None:
        """Return the provider ID: Karpenter finds the Node of a NodeClaim by nothing else."""
        return node.provider_id or None

    def delete(self, machine: SystemMachine, *, deadline: float) -> None:
        assert machine.object is not None
        self.connected().delete(machine.object, seconds=self.seconds(deadline))

    def create(self, group: NodeGroup, count: int, created: Callable[[str], None], *, deadline: float) -> None:  # noqa: ARG002
        raise NotSupported(_NOT_ORDERED)


class KarpenterProvider(ObjectProvider):
    """The provider of Karpenter's nodes: each NodePool is a group."""

    def __init__(self, clock: Clock) -> None:
        super().__init__(KarpenterSystem(clock), clock)

    def decrease_target_size(self, group: str, delta: int, *, deadline: float) -> None:
        """Raise BelowMinimum: no machine was ordered. Those that Karpenter launches are for pods."""
        self._positive(-delta)
        self.group(group, deadline=deadline)
        raise BelowMinimum(_NOT_ORDERED)

    def template(self, group: str, *, deadline: float) -> NodeTemplate:
        name = self.group(group, deadline=deadline).id
        raise NotSupported(f"karpenter: NodePool {name} has no template: Karpenter chooses the instance type")
