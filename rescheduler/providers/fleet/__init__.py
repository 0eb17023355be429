"""The common parts of providers whose API lists, creates and deletes individual machines.

Most of these systems have no target size: the size is the number of machines that are neither being deleted nor
deleted. So deleting a machine is a single idempotent order, and no size can be lowered twice. Of a system that lowers a
target size with each order, `SystemView.targets` has the targets, and orders are not `PollIntervals.idempotent`.

This module has the interface that each system implements. The rest of the package is shared by all systems.
"""

import datetime as dt
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final, Protocol

from rescheduler.providers.base import (
    Instance,
    InstanceError,
    InstanceState,
    NodeGroup,
    NodeRef,
    ObjectVersion,
    Refused,
)


@dataclass(frozen=True, slots=True)
class SystemMachine:
    """A machine as the system reports it."""

    key: str  #: the system's own ID
    id: str  #: the ``spec.providerID`` of its Node, if known
    group: str  #: empty if the machine is in no group
    state: InstanceState
    handle: int = 0  #: its ID in the API's paths, if that is not the key
    object: ObjectVersion | None = None  #: its object, if the system is the API of the cluster itself
    gone: bool = False  #: deleted, but still listed
    names: frozenset[str] = frozenset()  #: possible names of its Node, in lower case
    addresses: frozenset[str] = frozenset()  #: private addresses
    error: InstanceError | None = None
    spot: bool | None = None
    terminates_at: dt.datetime | None = None
    protected: Refused | None = None  #: why it must never be deleted, according to the list

    @property
    def alive(self) -> bool:
        return not self.gone and self.state is not InstanceState.DELETING

    @property
    def failed(self) -> bool:
        """Whether the machine will never run. A running machine is healthy even if the system reports an error."""
        return self.error is not None and self.state is not InstanceState.RUNNING

    @property
    def instance(self) -> Instance:
        return Instance(self.id, self.state, self.error, self.spot, self.terminates_at)


@dataclass(frozen=True, slots=True)
class SystemView:
    """The groups of a system and all of their machines at one time."""

    groups: Sequence[NodeGroup]
    machines: Sequence[SystemMachine]
    targets: Mapping[str, int] = field(default_factory=dict)  #: the target sizes of groups, if the system has them

    def members(self, group: str) -> Sequence[SystemMachine]:
        return [machine for machine in self.machines if machine.group == group and not machine.gone]


@dataclass(frozen=True, slots=True)
class PollIntervals:
    """Intervals in seconds."""

    refresh: float  #: how long a view is cached
    poll: float  #: between two polls while machines are being deleted
    settle: float  #: how long an order may take to show an effect
    idempotent: bool = True  #: a second deletion of a machine does no harm


#: For machines that are objects of a Kubernetes API, whose lists are consistent. An API server may work on a request
#: for a minute without responding.
OBJECT_PACE: Final = PollIntervals(refresh=5.0, poll=2.0, settle=60.0)

#: The size of a group without a limit: the largest that the external gRPC protocol can express.
UNLIMITED: Final = 2**31 - 1


class MachineSystem(Protocol):
    """A system's API. Verbs raise the errors of `providers.base` and `net.http_errors`."""

    name: str
    deletion_is_certain: bool  #: a deletion in progress counts as success: it cannot fail

    def read(self, *, deadline: float) -> SystemView: ...

    def key_of(self, node: NodeRef) -> str | None:
        """Return the key of the Node's machine; "" if the Node has no ID, `None` if its ID is of another system."""
        ...

    def is_control_plane(self, node: NodeRef) -> bool:
        """Return whether the node belongs to the control plane, according to the system."""
        ...

    def contradiction(self, node: NodeRef, machine: SystemMachine) -> str:
        """Return how the Node contradicts its match with *machine* or the group; "" if it does not."""
        ...

    def exists(self, key: str, *, deadline: float) -> bool | None:
        """Return whether the machine exists anywhere in the system; `None` if the system cannot tell.

        Raises AuthError also for machines of other accounts.
        """
        ...

    def deletion_refusal(self, machine: SystemMachine, *, deadline: float) -> Refused | None:
        """Return why the system currently forbids deleting the machine; `None` if it does not."""
        ...

    def delete(self, machine: SystemMachine, *, deadline: float) -> None:
        """Order the deletion of the machine. Raises Missing if it does not exist."""
        ...

    def create(self, group: NodeGroup, count: int, created: Callable[[str], None], *, deadline: float) -> None:
        """Request *count* machines and call *created* with the key of each. Those created before an error are kept."""
        ...

    def close(self) -> None: ...
