"""The settings of the program as frozen values. The flags of ``cli`` set them; they are validated once."""

import enum
import ipaddress
import re
from dataclasses import dataclass, field
from datetime import timedelta
from pathlib import Path
from typing import Final

from predicates.scheduler import ConfiguredProfile, Scheduler, UnknownPlugin
from predicates.texts import is_name, quoted
from predicates.versions import RELEASED, nearest, parse_minor
from rescheduler.errors import UsageError

JSON: Final = "application/json"

MEMORY_NAME: Final = "spot-rescheduler-memory"
SAVINGS_NAME: Final = "spot-rescheduler-savings"
#: The image of placeholders.
PAUSE_IMAGE: Final = "registry.k8s.io/pause:3.10"
#: The Lease by which the replicas of an installation elect their leader.
LEASE: Final = "k8s-spot-rescheduler"
#: The Lease that processes hold while they order machines of the same pool.
POOL_LEASE: Final = "spot-rescheduler-pool"
#: The ConfigMap with what drains of the proxy owe.
PROXY_MEMORY_NAME: Final = "cloudpool-proxy-memory"

_PORT: Final = re.compile("[0-9]{1,9}")
_LARGEST_PORT: Final = 65535
_HOST: Final = re.compile("[a-z0-9_]([-a-z0-9_]*[a-z0-9_])?([.][a-z0-9_]([-a-z0-9_]*[a-z0-9_])?)*")


def object_name(text: str) -> str:
    """Return *text* if it is a valid name of a Kubernetes object (a DNS subdomain). Raises UsageError."""
    if not is_name(text):
        raise UsageError(f"name {quoted(text)}: expected lower-case letters, digits, '-' and '.', as in {LEASE}")
    return text


@dataclass(frozen=True, slots=True)
class ApiServerConnection:
    """The API server and the credentials."""

    kubeconfig: str | None = None
    context: str | None = None
    in_cluster: bool | None = None  #: None: the ServiceAccount in a pod, otherwise a kubeconfig


@dataclass(frozen=True, slots=True)
class PoolLeaseName:
    """The Lease that processes hold while they order machines of the same pool."""

    namespace: str = "kube-system"
    name: str = POOL_LEASE


@dataclass(frozen=True, slots=True)
class NamedInstallation:
    """What the command line tells about an installation; None: it is found in the cluster."""

    namespace: str | None = None
    lease_name: str | None = None


@dataclass(frozen=True, slots=True)
class Scheduling:
    """What is known about the cluster's kube-scheduler from the command line."""

    minor: int | None = None  #: of its version 1.x; None: that of the API server
    profiles: tuple[ConfiguredProfile, ...] = ()  #: of its configuration file; empty: the default profile
    unknown: tuple[UnknownPlugin, ...] = ()  #: plugins and extenders whose rules are not known
    assumed: frozenset[str] = frozenset()  #: the other plugins of the file whose rules are not known: they never reject
    notes: tuple[str, ...] = ()  #: what is not as in the configuration file

    def scheduler(self, server: str) -> Scheduler:
        """Return the scheduler's rules; *server* is the version of the API server, such as ``v1.36.3``, or ""."""
        minor = parse_minor(server) if self.minor is None else self.minor
        version = RELEASED if minor is None else nearest(minor)
        return Scheduler(version, tuple(profile.of(version) for profile in self.profiles))

    def assumption(self, server: str) -> str | None:
        """Return a sentence if the version is unknown, or not one of the known ones; otherwise None."""
        minor = parse_minor(server) if self.minor is None else self.minor
        used = self.scheduler(server).version
        if minor is None:
            return f"the version of kube-scheduler is not known; the rules of {used} apply (--scheduler-version)"
        if minor == used.minor:
            return None
        known = "newest" if minor > used.minor else "oldest"
        return f"kube-scheduler 1.{minor} is not known; the rules of {used} apply, the {known} known version"


def scheduler_minor(text: str) -> int:
    """Return the minor version in ``1.36`` or ``v1.36.3``. Raises UsageError."""
    if (minor := parse_minor(text)) is None:
        raise UsageError(f"version {text!r}: expected a version of kube-scheduler, such as {RELEASED}")
    return minor


class LogFormat(enum.StrEnum):
    TEXT = "text"
    JSON = "json"


@dataclass(frozen=True, slots=True)
class Logging:
    verbosity: int = 0  #: 0 to 4 as in glog; 2 is recommended for operators
    format: LogFormat = LogFormat.TEXT


@dataclass(frozen=True, slots=True)
class ListenAddress:
    """The address to listen on. An empty host means all interfaces; port 0 means any free port."""

    host: str
    port: int

    @classmethod
    def parse(cls, text: str) -> "ListenAddress":
        """Parse ``host:port``, ``:port`` or ``[v6]:port``. Raises :class:`~rescheduler.errors.UsageError`."""
        host, colon, port = text.rpartition(":")
        bare = host.removeprefix("[").removesuffix("]")
        bracketed = bare != host
        if not colon or not _PORT.fullmatch(port) or int(port) > _LARGEST_PORT or (":" in bare) != bracketed:
            raise UsageError(f"address {text!r}: expected host:port, such as localhost:9235 or 0.0.0.0:9235")
        return cls(bare, int(port))

    @property
    def loopback(self) -> bool:
        """Whether the address can be reached from this machine only."""
        try:
            return ipaddress.ip_address(self.host).is_loopback
        except ValueError:
            return self.host == "localhost"

    @property
    def every_interface(self) -> bool:
        """Whether the address stands for all addresses of this machine."""
        return self.host in {"", "0.0.0.0", "::"}  # noqa: S104 - it is compared, not used

    def __str__(self) -> str:
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"


@dataclass(frozen=True, slots=True)
class PageHosts:
    """The hosts by which the pages may be addressed, in addition to the address that they listen on."""

    allowed: tuple[str, ...] = ()  #: names and IP addresses
    namespace: str = ""  #: its Services may lead to the pages; "" if it is not known


OWN_ADDRESS: Final = PageHosts()


def host_name(text: str) -> str:
    """Return a host as it is compared: a name in lower case, or an IP address. Raises UsageError."""
    bare = text.strip().lower().removeprefix("[").removesuffix("]").rstrip(".")
    try:
        return str(ipaddress.ip_address(bare))
    except ValueError:
        if _HOST.fullmatch(bare) is None:
            raise UsageError(
                f"host {text!r}: expected a name or an IP address, without a port, such as rescheduler.example.com"
            ) from None
    return bare


@dataclass(frozen=True, slots=True)
class Timing:
    """Intervals, timeouts and waits of the daemon. The defaults are those of k8s-spot-rescheduler where it has them."""

    housekeeping_interval: timedelta = timedelta(seconds=10)
    node_drain_delay: timedelta = timedelta(minutes=10)  #: after a drain; zero: none
    pod_eviction_timeout: timedelta = timedelta(minutes=2)  #: for the API server to accept all evictions
    #: how long pods of a namespace that the scheduler leaves pending where they fit take room, or delay drains
    pending_patience: timedelta = timedelta(minutes=10)
    wait_for_pending_pods: bool = False  #: pods that are pending delay drains
    landing_timeout: timedelta = timedelta(minutes=10)  #: for replacement pods to run, from the last eviction
    failure_pause: timedelta = timedelta(minutes=10)  #: of an owner, after its first landing failure
    failure_pause_max: timedelta = timedelta(hours=24)
    node_cooldown: timedelta = timedelta(minutes=5)  #: of a node, after its first failed drain
    node_cooldown_max: timedelta = timedelta(hours=2)
    return_wait: timedelta = timedelta(minutes=10)  #: of a controller, after the first return of its pods
    return_wait_max: timedelta = timedelta(hours=24)
    max_moves_per_pod_per_day: float = 3.0  #: on average over a controller's replicas; 0: no limit
    spot_settle: timedelta = timedelta(minutes=10)  #: after a burst of lost spot nodes; zero: none
    spot_pool_cooldown: timedelta = timedelta(minutes=10)  #: of a pool that lost nodes, at first; zero: none


@dataclass(frozen=True, slots=True)
class Provider:
    """The provider that removes the machines of drained nodes."""

    name: str = "none"
    config: Path | None = None
    nodes: tuple[str, ...] = ()  #: ``--nodes``, in the format of the provider
    cluster_name: str = ""


class MakeRoom(enum.StrEnum):
    """How room is made for nodes whose pods do not fit on the spot nodes."""

    OFF = "off"
    PLACEHOLDERS = "placeholders"
    PROVIDER = "provider"


@dataclass(frozen=True, slots=True)
class RoomSettings:
    """How, and how much, room on spot nodes is ordered."""

    mode: MakeRoom = MakeRoom.OFF
    most: int = 50  #: maximum number of placeholders at a time
    timeout: timedelta = timedelta(minutes=15)  #: for placeholders to run
    image: str = PAUSE_IMAGE
    per_hour: int = 10  #: maximum number of spot nodes requested from the cloud provider

    @property
    def wanted(self) -> bool:
        """Whether placeholders are created."""
        return self.mode is MakeRoom.PLACEHOLDERS

    @property
    def life_seconds(self) -> int:
        """The seconds after which the kubelet ends a leftover placeholder: longer than an order and its drain."""
        return int((2 * self.timeout + timedelta(hours=2)).total_seconds())


@dataclass(frozen=True, slots=True)
class Running:
    """The settings of ``rescheduler run``, except the planning policy."""

    namespace: str = "kube-system"  #: of the Lease, the memory and our own pod
    memory_name: str = MEMORY_NAME  #: name of the ConfigMap that stores the memory
    savings_name: str = SAVINGS_NAME  #: name of the ConfigMap that stores the ledger of savings
    lease_name: str = LEASE
    pool_lease: str = POOL_LEASE  #: held while a machine is ordered away
    pod_name: str = ""  #: the pod of this process; "" if unknown
    node_name: str = ""  #: the node of this process; "" if unknown
    listen: ListenAddress = ListenAddress("localhost", 9235)
    allowed_hosts: tuple[str, ...] = ()  #: see `PageHosts`
    dry_run: bool = False
    once: bool = False
    leader_elect: bool = True
    plan_command: str = "rescheduler plan"  #: the command line that plans as this daemon does, for the status page
    manage_soft_taint: bool = False
    predict: str = "template"  #: or ``dry-run``: how replacement pods are predicted
    migrating_webhooks: str = "block"  #: or ``wait``: for pods that admission webhooks move by themselves
    report_node_conditions: bool = False  #: whether drained nodes have the condition DrainInProgress
    timing: Timing = field(default_factory=Timing)
    provider: Provider = field(default_factory=Provider)
    room: RoomSettings = field(default_factory=RoomSettings)
    scheduling: Scheduling = field(default_factory=Scheduling)

    @property
    def identity(self) -> str:
        """The identity of the installation: the same for all its replicas, and different for other installations."""
        return f"{self.namespace}/{self.lease_name}"
