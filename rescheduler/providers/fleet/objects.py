"""Fleets whose machines are objects of a Kubernetes API: Karpenter's NodeClaims, and Machines of Cluster API.

Such an object has a finalizer until its machine is gone. So its end confirms that the machine is gone.
"""

from rescheduler.clock import Clock
from rescheduler.errors import DeadlineExceeded, Permanent
from rescheduler.providers.base import ClusterObjects, NodeRef, Refusal, Refused
from rescheduler.providers.fleet import OBJECT_PACE, MachineSystem, SystemMachine
from rescheduler.providers.fleet.provider import FleetProvider


class ObjectSystem(MachineSystem):
    """What such systems share."""

    deletion_is_certain = False  #: the controller waits for pods and volumes, and for its cloud
    kind: str  #: of the objects, such as NodeClaim
    manager: str  #: who ends the machines
    group_kind: str  #: of the objects that are groups
    selected: str = ""  #: which of the objects are read, by the configuration; "": all

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self.objects: ClusterObjects | None = None

    def is_control_plane(self, node: NodeRef) -> bool:  # noqa: ARG002 -- only the labels tell
        return False

    def contradiction(self, node: NodeRef, machine: SystemMachine) -> str:
        if node.placeholder or node.name in machine.names:
            return ""
        if not machine.names:
            return f"its {self.kind} has no node yet"
        return f"its {self.kind} belongs to node {', '.join(machine.names)}"

    def exists(self, key: str, *, deadline: float) -> bool | None:  # noqa: ARG002
        """Return None: other machines have provider IDs, too."""
        return None

    def deletion_refusal(self, machine: SystemMachine, *, deadline: float) -> Refused | None:  # noqa: ARG002
        return None

    def close(self) -> None:
        """Do nothing: the connections are those of the cluster's client."""

    def connected(self) -> ClusterObjects:
        if self.objects is None:
            raise Permanent(f"{self.name}: the cluster whose nodes are drained is not known")
        return self.objects

    def seconds(self, deadline: float) -> float:
        """Return the seconds until *deadline*. Raises DeadlineExceeded."""
        seconds = deadline - self._clock.monotonic()
        if seconds <= 0:
            raise DeadlineExceeded(f"{self.name}: timed out")
        return seconds


class ObjectProvider(FleetProvider):
    """The provider of such a system."""

    def __init__(self, system: ObjectSystem, clock: Clock) -> None:
        self._objects = system
        super().__init__(system, clock, OBJECT_PACE)

    def use_cluster(self, objects: ClusterObjects) -> None:
        self._objects.objects = objects

    def has_instance(self, node: NodeRef, *, deadline: float) -> bool | None:
        """Return whether the machine exists and stays; `None` if there is no object.

        A machine whose object is being deleted ends, however long its manager waits for pods and volumes.
        """
        machine = self.machine(node, deadline=deadline)
        return None if machine is None else machine.alive

    def refusal_without_group(self, node: NodeRef, *, deadline: float) -> Refused | None:
        """Return why the node is not drained: the manager removes no machine of which it has no object."""
        if node.on_control_plane:
            return None
        system, machine = self._objects, self.machine(node, deadline=deadline)
        if machine is None or machine.object is None:
            which = f" with {system.selected}, as --cloud-config says" if system.selected else ""
            return Refused(Refusal.NOT_IN_GROUP, f"it has no {system.kind}{which}: {system.manager} does not manage it")
        name = machine.object.path.rpartition("/")[2]
        doubt = system.contradiction(node, machine) or f"{system.kind} {name} belongs to no {system.group_kind}"
        return machine.protected or Refused(Refusal.NOT_IN_GROUP, doubt)
