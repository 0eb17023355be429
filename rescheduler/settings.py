"""What a user may set, as frozen values: checked once, then passed down. The flags of ``cli`` fill them."""

import enum
import ipaddress
import re
from dataclasses import dataclass, field
from datetime import timedelta
from pathlib import Path
from typing import Final

from rescheduler.errors import UsageError

PROTOBUF: Final = "application/vnd.kubernetes.protobuf"
JSON: Final = "application/json"

MEMORY_NAME: Final = "spot-rescheduler-memory"
#: The Lease by which the replicas of an installation elect their leader.
LEASE: Final = "k8s-spot-rescheduler"

_LABEL: Final = "[a-z0-9]([-a-z0-9]*[a-z0-9])?"
_SUBDOMAIN: Final = re.compile(rf"{_LABEL}(\.{_LABEL})*")
_LONGEST_NAME: Final = 253
_PORT: Final = re.compile("[0-9]{1,9}")
_LARGEST_PORT: Final = 65535


def object_name(text: str) -> str:
    """*text*, if a Kubernetes object may have it as its name (a DNS subdomain). Raises UsageError."""
    if len(text) > _LONGEST_NAME or not _SUBDOMAIN.fullmatch(text):
        raise UsageError(f"name {text!r}: expected lower-case letters, digits, '-' and '.', as in {LEASE}")
    return text


@dataclass(frozen=True, slots=True)
class Connection:
    """Which API server, as whom, and in which encoding its objects are read."""

    kubeconfig: str | None = None
    context: str | None = None
    in_cluster: bool | None = None  #: None: the ServiceAccount where there is one, a kubeconfig elsewhere
    content_type: str = PROTOBUF


class LogFormat(enum.StrEnum):
    TEXT = "text"
    JSON = "json"


@dataclass(frozen=True, slots=True)
class Logging:
    verbosity: int = 0  #: 0 to 4, glog's levels; 2 is what an operator wants
    format: LogFormat = LogFormat.TEXT


@dataclass(frozen=True, slots=True)
class Address:
    """Where to listen. An empty host is every interface; port 0 is any free one."""

    host: str
    port: int

    @classmethod
    def parse(cls, text: str) -> "Address":
        """``host:port``, ``:port`` or ``[v6]:port``. Raises :class:`~rescheduler.errors.UsageError`."""
        host, colon, port = text.rpartition(":")
        bare = host.removeprefix("[").removesuffix("]")
        bracketed = bare != host
        if not colon or not _PORT.fullmatch(port) or int(port) > _LARGEST_PORT or (":" in bare) != bracketed:
            raise UsageError(f"address {text!r}: expected host:port, such as localhost:9235 or 0.0.0.0:9235")
        return cls(bare, int(port))

    @property
    def loopback(self) -> bool:
        """Whether only this machine reaches it."""
        try:
            return ipaddress.ip_address(self.host).is_loopback
        except ValueError:
            return self.host == "localhost"

    def __str__(self) -> str:
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"


@dataclass(frozen=True, slots=True)
class Timing:
    """How patient the daemon is. The defaults are k8s-spot-rescheduler's."""

    housekeeping_interval: timedelta = timedelta(seconds=10)
    node_drain_delay: timedelta = timedelta(minutes=10)  #: after a drain; zero: none
    pod_eviction_timeout: timedelta = timedelta(minutes=2)  #: for the API server to accept all evictions
    max_graceful_termination: timedelta = timedelta(minutes=2)  #: at most, of a pod's own grace period
    pending_patience: timedelta = timedelta(minutes=10)  #: a pod pending for longer does not hold drains back
    landing_timeout: timedelta = timedelta(minutes=10)  #: for replacement pods to run, from the last eviction
    failure_pause: timedelta = timedelta(minutes=10)  #: of all drains, after the first that landed badly
    failure_pause_max: timedelta = timedelta(hours=4)
    node_cooldown: timedelta = timedelta(minutes=5)  #: of a node, after its first failed drain
    node_cooldown_max: timedelta = timedelta(hours=2)
    return_wait: timedelta = timedelta(minutes=10)  #: of a controller, after the first return of its pods
    return_wait_max: timedelta = timedelta(hours=24)
    max_moves_per_pod_per_day: float = 3.0  #: on average over a controller's replicas; 0: no limit
    spot_settle: timedelta = timedelta(minutes=10)  #: after a burst of lost spot nodes; zero: none


@dataclass(frozen=True, slots=True)
class Provider:
    """The system that emptied nodes are handed to."""

    name: str = "none"
    config: Path | None = None
    nodes: tuple[str, ...] = ()  #: ``--nodes``, in the system's own form
    cluster_name: str = ""


@dataclass(frozen=True, slots=True)
class Running:
    """How ``rescheduler run`` runs, beside the policy of planning."""

    namespace: str = "kube-system"  #: of the Lease, of the memory and of our own pod
    memory_name: str = MEMORY_NAME  #: of the ConfigMap that keeps the memory
    lease_name: str = LEASE
    pod_name: str = ""  #: the pod that we run in; "" where that is not known
    node_name: str = ""  #: the node that we run on; "" where that is not known
    listen: Address = Address("localhost", 9235)
    dry_run: bool = False
    once: bool = False
    leader_elect: bool = True
    manage_soft_taint: bool = False
    timing: Timing = field(default_factory=Timing)
    provider: Provider = field(default_factory=Provider)

    @property
    def identity(self) -> str:
        """Of the installation: the same for all its replicas, and another one for every other installation."""
        return f"{self.namespace}/{self.lease_name}"
