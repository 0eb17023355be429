"""What drains act with, and what an action answers."""

from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass
from datetime import timedelta
from typing import Final, Protocol

from predicates.objects import Node, OwnerReference
from rescheduler.backends.base import CloudProvider
from rescheduler.clock import Clock
from rescheduler.draining.messages import Event
from rescheduler.kube.eviction import Outcome
from rescheduler.kube.node_edit import NodeEdit
from rescheduler.observe import events
from rescheduler.planning.controllers import Controller, ControllerState
from rescheduler.planning.freshness import Fresh

#: A request to the provider may take so long; what takes longer is asked again.
PROVIDER_SECONDS: Final = 30.0


@dataclass(frozen=True, slots=True)
class Read:
    """The controllers of pods, as the API server has them."""

    states: Mapping[Controller, ControllerState]
    topmost: Mapping[tuple[str, str], Controller]  #: namespace and UID of a pod's controller → its topmost one


@dataclass(frozen=True, slots=True)
class Answer:
    event: Event | Fresh | Read | None
    told: tuple[events.Event, ...] = ()  #: for those who listen


class Cluster(Protocol):
    """The writes of :class:`rescheduler.kube.cluster.Cluster`, which says what they mean and raise."""

    def edit_node(self, name: str, uid: str, edit: NodeEdit) -> None: ...

    def delete_node(self, name: str, uid: str) -> None: ...

    def node(self, name: str) -> Node: ...

    def read_fresh(self, node: str, targets: Collection[str], namespaces: Collection[str]) -> Fresh: ...

    def evict(
        self, namespace: str, name: str, uid: str, grace_seconds: int | None = None, *, dry_run: bool = False
    ) -> Outcome: ...


class Controllers(Protocol):
    """See :class:`rescheduler.kube.controllers.ControllerReader`."""

    def read(
        self,
        owners: Collection[tuple[str, OwnerReference]],
        controllers: Collection[Controller] = (),
        siblings: Collection[tuple[str, OwnerReference]] = (),
        *,
        words: bool = False,
    ) -> Read:
        """The topmost controllers of *owners*, and *controllers*; ReplicaSets among *siblings* may be theirs.

        Raises ReschedulerError: Forbidden where a right is missing.
        """
        ...


@dataclass(frozen=True, slots=True)
class Access:
    """What all drains act with."""

    cluster: Cluster
    provider: CloudProvider
    clock: Clock
    holder: str  #: our name on nodes
    controllers: Controllers
    identity: str = ""  #: of the installation: namespace and Lease; "" for a proxy
    #: The lease on our node annotation: we renew the annotation before it expires, or our process has ended.
    promise: timedelta | None = timedelta(minutes=3)
    leads: Callable[[], bool] = lambda: True  #: asked at the moment a machine is ordered
    provider_seconds: float = PROVIDER_SECONDS  #: within which the provider must have answered
