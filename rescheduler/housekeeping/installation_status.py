"""The state of an installation as stored in the cluster: its Lease, its memory and its marks on nodes."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any

from predicates.objects import Node
from rescheduler.clock import Clock
from rescheduler.draining import intent
from rescheduler.errors import InputError
from rescheduler.housekeeping.synced_memory import loaded
from rescheduler.kube.client import Client
from rescheduler.kube.lease_object import LeaseObject
from rescheduler.kube.memory import MemoryStore, Stored, UnreadableMemory
from rescheduler.kube.pausing import LeaseStore
from rescheduler.kube.resources import RESOURCES
from rescheduler.kube.state import read_cluster
from rescheduler.observe.events import Waiting
from rescheduler.planning.cooldowns import Cooldown
from rescheduler.planning.memory import Memory, OpenDebt
from rescheduler.planning.pauses import ManualPause, manual_pause
from rescheduler.planning.timestamps import utc


@dataclass(frozen=True, slots=True)
class Installation:
    """Where an installation stores its state."""

    namespace: str
    lease_name: str
    memory_name: str
    node_drain_delay: timedelta = timedelta(minutes=10)
    landing_timeout: timedelta = timedelta(minutes=10)

    @property
    def identity(self) -> str:
        return f"{self.namespace}/{self.lease_name}"


@dataclass(frozen=True, slots=True)
class InstallationStatus:
    """The state of an installation at one moment."""

    at: datetime
    installation: Installation
    lease: LeaseObject | None = None  #: None if it does not exist
    memory: Memory | None = None  #: None if it does not exist or cannot be read
    memory_trouble: str = ""  #: why the memory cannot be read, or ""
    drains: Mapping[str, intent.Intent | None] | None = None  #: by node; None: the mark cannot be read

    @property
    def leader(self) -> str:
        """The holder of the Lease, or ""."""
        return (self.lease.spec.holder_identity or "") if self.lease is not None else ""

    @property
    def pause(self) -> ManualPause | None:
        return manual_pause(self.lease.annotations, self.at) if self.lease is not None else None

    def waiting(self) -> tuple[Waiting, str] | None:
        """Return why no drain may start, with a message, or None. Only reasons in the stored state are known."""
        if self.pause is not None:
            return Waiting.PAUSED, self.pause.text
        if self.memory_trouble:
            return Waiting.MEMORY_UNREADABLE, self.memory_trouble
        return _waiting(self.memory, self.installation, self.at) if self.memory is not None else None

    def as_json(self) -> dict[str, Any]:
        """Return the state as JSON values. Times are in UTC."""
        memory, waiting, pause = self.memory or Memory(), self.waiting(), self.pause
        return {
            "installation": self.installation.identity,
            "leader": self.leader or None,
            "leaseRenewed": self.lease.spec.renew_time if self.lease is not None else None,
            "paused": None
            if pause is None
            else {"until": _time(pause.until), "reason": pause.reason or None, "unreadable": pause.unreadable or None},
            "waiting": None if waiting is None else {"reason": waiting[0].value, "detail": waiting[1]},
            "draining": [_drain(node, mark) for node, mark in sorted((self.drains or {}).items())],
            "coolingDown": [
                _cooldown(node, cooldown) for node, cooldown in sorted(memory.cooldowns.active(self.at).items())
            ],
            "owed": [_owed(owed) for owed in memory.debts],
            "notRecovered": [
                {"name": name, "until": _time(wait.until), "failures": wait.failures}
                for name, wait in sorted(memory.not_recovered.active(self.at).items())
            ],
            "lastDrain": _time(memory.drained_at),
        }


def read_status(client: Client, clock: Clock, installation: Installation) -> InstallationStatus:
    """Read the state of *installation*. Raises ReschedulerError if a request fails."""
    lease = LeaseStore(client, installation.namespace, installation.lease_name).read()
    memory, trouble = _memory(MemoryStore(client, installation.namespace, installation.memory_name))
    only_nodes = tuple(resource for resource in RESOURCES if resource.kind == "Node")
    nodes = read_cluster(client, clock, resources=only_nodes).nodes
    return InstallationStatus(clock.now(), installation, lease, memory, trouble, _marks(nodes, installation.identity))


def _memory(store: MemoryStore) -> tuple[Memory | None, str]:
    match store.read():
        case Stored(content=content):
            try:
                return loaded(store, content), ""
            except InputError as error:
                return None, str(error)
        case UnreadableMemory(why):
            return None, why
        case _:
            return None, ""


def _marks(nodes: Iterable[Node], identity: str) -> dict[str, intent.Intent | None]:
    """Return the marks on *nodes* that may belong to the installation *identity*, by node."""
    marked = {node.name: intent.read(node) for node in nodes if intent.is_marked(node)}
    return {name: mark for name, mark in marked.items() if mark is None or mark.identity in ("", identity)}


def _waiting(memory: Memory, installation: Installation, now: datetime) -> tuple[Waiting, str] | None:
    delay = installation.node_drain_delay
    young = [owed for owed in memory.debts if now < owed.since + installation.landing_timeout]
    if young:
        owed = ", ".join(sorted({str(owed.debt.controller) for owed in young}))
        return Waiting.LANDING_PENDING, f"replacement pods are owed to {owed}"
    if memory.drained_at is not None and now < memory.drained_at + delay:
        return Waiting.DRAIN_DELAY, f"the drain delay runs until {_time(memory.drained_at + delay)}"
    if (until := memory.returned.active(now)) is not None:
        return Waiting.RETURNED_PODS, f"evicted pods returned to on-demand nodes; drains wait until {_time(until)}"
    return None


def _drain(node: str, mark: intent.Intent | None) -> dict[str, Any]:
    if mark is None:
        return {"node": node, "step": None, "since": None, "holder": None}
    return {"node": node, "step": mark.step.value, "since": _time(mark.since), "holder": mark.holder}


def _cooldown(node: str, cooldown: Cooldown) -> dict[str, Any]:
    return {
        "node": node,
        "until": _time(cooldown.until),
        "failures": cooldown.failures,
        "reason": cooldown.reason or "cooling-down",
        "detail": cooldown.detail,
    }


def _owed(owed: OpenDebt) -> dict[str, Any]:
    return {
        "controller": str(owed.debt.controller),
        "pods": owed.debt.bound,
        "ready": owed.debt.ready,
        "node": owed.node,
        "since": _time(owed.since),
    }


def _time(moment: datetime | None) -> str | None:
    return None if moment is None else utc(moment)
