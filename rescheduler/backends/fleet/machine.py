"""What a system has to tell and to do; the rest of this package is the same for all of them."""

import datetime as dt
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Protocol

from rescheduler.backends.base import Instance, InstanceError, InstanceState, NodeGroup, NodeRef, Refused


@dataclass(frozen=True, slots=True)
class Machine:
    """A machine as the system tells of it."""

    key: str  #: the system's own id
    id: str  #: the ``spec.providerID`` that its Node has or will have, as far as that is known
    group: str  #: empty: of no group
    state: InstanceState
    handle: int = 0  #: what the API's paths call it, where that is not the key
    gone: bool = False  #: listed, and ended
    names: frozenset[str] = frozenset()  #: under which its Node may be registered, in lower case
    addresses: frozenset[str] = frozenset()  #: private ones
    error: InstanceError | None = None
    spot: bool | None = None
    terminates_at: dt.datetime | None = None
    protected: Refused | None = None  #: why it must never be ended, by what the list says

    @property
    def alive(self) -> bool:
        return not self.gone and self.state is not InstanceState.DELETING

    @property
    def failed(self) -> bool:
        """It will never run. One that runs is of use, whatever else the system says of it."""
        return self.error is not None and self.state is not InstanceState.RUNNING

    @property
    def instance(self) -> Instance:
        return Instance(self.id, self.state, self.error, self.spot, self.terminates_at)


@dataclass(frozen=True, slots=True)
class View:
    """One look at the system: its groups and the machines of all of them."""

    groups: Sequence[NodeGroup]
    machines: Sequence[Machine]

    def members(self, group: str) -> Sequence[Machine]:
        return [machine for machine in self.machines if machine.group == group and not machine.gone]


@dataclass(frozen=True, slots=True)
class Pace:
    """In seconds."""

    refresh: float  #: for how long one look serves
    poll: float  #: between two looks while machines are ending
    settle: float  #: how long an order may be at work without being seen


class System(Protocol):
    """A system's API. Verbs raise the errors of `backends.base` and `backends.http`."""

    name: str
    going_is_enough: bool  #: a machine that is seen ending never comes back

    def look(self, *, deadline: float) -> View: ...

    def key_of(self, node: NodeRef) -> str | None:
        """The key that the Node bears; empty: it bears no id at all; `None`: it bears that of another system."""
        ...

    def controls(self, node: NodeRef) -> bool:
        """Whether the node is of the control plane by the system's own signs."""
        ...

    def doubts(self, node: NodeRef, machine: Machine) -> str:
        """What speaks against the machine being the node's and of its group, by signs of the Node; or nothing."""
        ...

    def exists(self, key: str, *, deadline: float) -> bool | None:
        """Whether there is such a machine anywhere in the system; `None` where that cannot be asked."""
        ...

    def forbids(self, machine: Machine, *, deadline: float) -> Refused | None:
        """The system's own word on whether the machine may be ended now."""
        ...

    def end(self, machine: Machine, *, deadline: float) -> None:
        """Order the machine away; Missing if there is no such (any more)."""
        ...

    def create(self, group: NodeGroup, count: int, made: Callable[[str], None], *, deadline: float) -> None:
        """Ask for *count* machines and tell *made* the key of each; whatever was made before an error stays."""
        ...

    def close(self) -> None: ...
