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
from rescheduler.errors import ConfigError, DeadlineExceeded, Permanent
from rescheduler.providers.base import (
    BelowMinimum,
    CloudProvider,
    ClusterObjects,
    NodeGroup,
    NodeRef,
    NodeTemplate,
    NotSupported,
    Refusal,
    Refused,
)
from rescheduler.providers.fleet import PollIntervals, SystemMachine, SystemView
from rescheduler.providers.fleet.provider import FleetProvider
from rescheduler.providers.karpenter.claims import NODE_CLAIMS, NODE_POOLS, NodeClaim, view_of

#: Lists of the API server are consistent. An API server may work on a request for a minute without responding.
_PACE: Final = PollIntervals(refresh=5.0, poll=2.0, settle=60.0)

_NOT_ORDERED: Final = "karpenter: Karpenter adds nodes for pending pods, not on request"


def load(config: Path | None, clock: Clock) -> CloudProvider:
    if config is not None:
        raise ConfigError(f"--cloud-config {config}: the cloud provider 'karpenter' has nothing to configure")
    return KarpenterProvider(clock)


class KarpenterSystem:
    """Karpenter as a fleet. A machine's key is its provider ID."""

    name = "karpenter"
    deletion_is_certain = False  #: Karpenter waits for pods and volumes, and for its cloud

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self.objects: ClusterObjects | None = None

    def read(self, *, deadline: float) -> SystemView:
        objects = self._connected()
        pools = objects.all(NODE_POOLS, NodePool, seconds=self._seconds(deadline))
        return view_of(pools, objects.all(NODE_CLAIMS, NodeClaim, seconds=self._seconds(deadline)))

    def key_of(self, node: NodeRef) -> str | None:
        """Return the provider ID: Karpenter finds the Node of a NodeClaim by nothing else."""
        return node.provider_id or None

    def is_control_plane(self, node: NodeRef) -> bool:  # noqa: ARG002 -- only the labels tell
        return False

    def contradiction(self, node: NodeRef, machine: SystemMachine) -> str:
        if node.placeholder or node.name in machine.names:
            return ""
        if not machine.names:
            return "its NodeClaim has no node yet"
        return f"its NodeClaim belongs to node {', '.join(machine.names)}"

    def exists(self, key: str, *, deadline: float) -> bool | None:  # noqa: ARG002
        """Return None: other machines than Karpenter's have provider IDs, too."""
        return None

    def deletion_refusal(self, machine: SystemMachine, *, deadline: float) -> Refused | None:  # noqa: ARG002
        return None

    def delete(self, machine: SystemMachine, *, deadline: float) -> None:
        assert machine.object is not None
        self._connected().delete(machine.object, seconds=self._seconds(deadline))

    def create(self, group: NodeGroup, count: int, created: Callable[[str], None], *, deadline: float) -> None:  # noqa: ARG002
        raise NotSupported(_NOT_ORDERED)

    def close(self) -> None:
        """Do nothing: the connections are those of the cluster's client."""

    def _connected(self) -> ClusterObjects:
        if self.objects is None:
            raise Permanent("karpenter: the cluster whose nodes are drained is not known")
        return self.objects

    def _seconds(self, deadline: float) -> float:
        """Return the seconds until *deadline*. Raises DeadlineExceeded."""
        seconds = deadline - self._clock.monotonic()
        if seconds <= 0:
            raise DeadlineExceeded("karpenter: timed out")
        return seconds


class KarpenterProvider(FleetProvider):
    """The provider of Karpenter's nodes: each NodePool is a group."""

    def __init__(self, clock: Clock) -> None:
        self._karpenter = KarpenterSystem(clock)
        super().__init__(self._karpenter, clock, _PACE)

    def use_cluster(self, objects: ClusterObjects) -> None:
        self._karpenter.objects = objects

    def has_instance(self, node: NodeRef, *, deadline: float) -> bool | None:
        """Return whether the machine exists and stays; `None` if there is no NodeClaim.

        A machine whose NodeClaim is being deleted ends, however long Karpenter waits for pods and volumes.
        """
        machine = self.machine(node, deadline=deadline)
        return None if machine is None else machine.alive

    def refusal_without_group(self, node: NodeRef, *, deadline: float) -> Refused | None:
        """Return why the node is not drained: Karpenter removes no machine of which it has no NodeClaim."""
        if node.on_control_plane:
            return None
        machine = self.machine(node, deadline=deadline)
        if machine is None or machine.object is None:
            return Refused(Refusal.NOT_IN_GROUP, "it has no NodeClaim: Karpenter does not manage it")
        name = machine.object.path.rpartition("/")[2]
        doubt = self._karpenter.contradiction(node, machine) or f"NodeClaim {name} belongs to no NodePool"
        return machine.protected or Refused(Refusal.NOT_IN_GROUP, doubt)

    def decrease_target_size(self, group: str, delta: int, *, deadline: float) -> None:
        """Raise BelowMinimum: no machine was ordered. Those that Karpenter launches are for pods."""
        self._positive(-delta)
        self.group(group, deadline=deadline)
        raise BelowMinimum(_NOT_ORDERED)

    def template(self, group: str, *, deadline: float) -> NodeTemplate:
        name = self.group(group, deadline=deadline).id
        raise NotSupported(f"karpenter: NodePool {name} has no template: Karpenter chooses the instance type")
