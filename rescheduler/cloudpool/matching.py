"""Match the machines of a pool to Nodes, by the messages of the REST API; a node without a certain match has none."""

import datetime as dt
import enum
import re
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass

import msgspec

from predicates.indexes.domains import HOSTNAME
from rescheduler.providers.base import NodeRef, with_rivals

# The messages of the cloudpool REST API, version 5, decoded leniently, as the API requires of clients.
#
# A pool may omit every field except a machine's id and state, or set it to null, and may add fields; times may have any
# ISO 8601 format or be missing. Protection is decoded strictly: an invalid value protects the machine.


class MachineState(enum.StrEnum):
    REQUESTED = "REQUESTED"  #: requested, not allocated yet
    REJECTED = "REJECTED"  #: rejected by the cloud
    PENDING = "PENDING"  #: being launched
    RUNNING = "RUNNING"  #: launched; its boot may not be complete
    TERMINATING = "TERMINATING"
    TERMINATED = "TERMINATED"


ALLOCATED = frozenset({MachineState.REQUESTED, MachineState.PENDING, MachineState.RUNNING})
#: States in which a machine is being terminated, is terminated, or never existed.
GONE = frozenset({MachineState.REJECTED, MachineState.TERMINATING, MachineState.TERMINATED})


@dataclass(frozen=True, slots=True)
class Membership:
    """A membership status: `evictable` false protects a machine; `active` machines count towards the pool's size."""

    active: bool = True
    evictable: bool = True


class _PoolMessage(msgspec.Struct, rename="camel", frozen=True, kw_only=True):
    pass


class Machine(_PoolMessage, frozen=True, kw_only=True):
    id: str
    machine_state: str  #: a MachineState; an unknown one is neither allocated nor gone
    membership_status: object = None
    service_state: object = None
    cloud_provider: object = None  #: "AWS-EC2", "AWS-SPOT", "GCE", "Azure", "OpenStack", …
    region: object = None
    machine_size: object = None
    request_time: object = None
    launch_time: object = None
    public_ips: object = None
    private_ips: object = None
    metadata: object = None  #: the cloud's own description of the machine

    @property
    def membership(self) -> Membership:
        """The membership status; absent and null mean true, as in the reference server, and non-booleans false."""
        status = {} if self.membership_status is None else self.membership_status
        if not isinstance(status, dict):
            return Membership(active=False, evictable=False)
        return Membership(
            active=_is_true_or_absent(status.get("active")), evictable=_is_true_or_absent(status.get("evictable"))
        )

    @property
    def allocated(self) -> bool:
        return self.machine_state in ALLOCATED

    @property
    def gone(self) -> bool:
        return self.machine_state in GONE

    @property
    def active(self) -> bool:
        """Whether the machine counts towards the pool's desired size."""
        return self.allocated and self.membership.active

    @property
    def disposable(self) -> bool:
        """Whether the pool terminates the machine on its own at its next resize."""
        return self.allocated and self.membership.evictable and not self.membership.active


class MachinePool(_PoolMessage, frozen=True, kw_only=True):
    machines: list[Machine]
    timestamp: object = None  #: when the pool listed the machines; responses may be cached


class PoolSize(_PoolMessage, frozen=True, kw_only=True):
    desired_size: int
    allocated: int | None = None
    active: int | None = None
    timestamp: object = None


class ErrorMessage(_PoolMessage, frozen=True, kw_only=True):
    """The body of every error that the pool itself reports."""

    message: str
    detail: str | None = None


_FIRST_YEAR = 1971


def _is_true_or_absent(value: object) -> bool:
    return value is None or value is True


def moment(value: object) -> dt.datetime | None:
    """Parse a time of the API, in UTC unless it has a zone; `None` if it is not a valid ISO 8601 time.

    Programs write an unset time as a date in the year 1 or 1970, so these also give `None`, as do times that datetime
    cannot represent.
    """
    if not isinstance(value, str):
        return None
    try:
        parsed = dt.datetime.fromisoformat(value)
    except ValueError:
        return None
    if not _FIRST_YEAR < parsed.year < dt.MAXYEAR:
        return None
    return parsed.replace(tzinfo=parsed.tzinfo or dt.UTC).astimezone(dt.UTC)


# Identify the cloud instance behind a machine's id and behind a Node's provider ID.

_AWS_INSTANCE = re.compile(r"i-[0-9a-f]{8,}")
_AWS_SPOT_REQUEST = re.compile(r"sir-[0-9a-z]+")
_GCE_PATH = re.compile(r"projects/([^/]+)/zones/([^/]+)/instances/([^/]+)")
#: Clouds whose provider IDs are globally unique; other schemes may be set on the node itself.
CLOUDS = frozenset({"aws", "azure", "gce", "openstack"})

_UUID = re.compile(r"[0-9a-f]{8}-?[0-9a-f]{4}-?[0-9a-f]{4}-?[0-9a-f]{4}-?[0-9a-f]{12}")


@dataclass(frozen=True, slots=True)
class Identity:
    """An instance: its cloud and its normalized ID there."""

    cloud: str
    instance: str


def of_provider_id(provider_id: str) -> Identity | None:
    """Return the instance of a Node's ``spec.providerID``; `None` if there is none.

    The formats are those of the cloud controllers: ``aws:///<zone>/i-…``, ``gce://<project>/<zone>/<name>``,
    ``azure:///subscriptions/…`` in any case, ``openstack:///<uuid>`` with or without a region.
    """
    scheme, _, rest = provider_id.partition("://")
    last = rest.rsplit("/", 1)[-1]
    if not last:
        return None
    match scheme:
        case "aws":
            return Identity("aws", last)
        case "azure":
            return Identity("azure", "/" + rest.strip("/").lower())
        case "openstack":
            return Identity("openstack", last.lower().replace("-", ""))
    return Identity(scheme, rest)


def machine_identity(machine: Machine) -> Identity | None:
    """Return the instance of a machine; `None` for placeholders and for ids without one."""
    number = machine.id.lower()
    if _AWS_SPOT_REQUEST.fullmatch(machine.id):
        instance = _spot_instance(machine.metadata)
        return Identity("aws", instance) if instance else None
    if _AWS_INSTANCE.fullmatch(machine.id):
        return Identity("aws", machine.id)
    if gce := _GCE_PATH.search(machine.id):
        return Identity("gce", "/".join(gce.groups()))
    if number.startswith("/subscriptions/"):
        return Identity("azure", number.rstrip("/"))
    if _UUID.fullmatch(number):
        return Identity("openstack", number.replace("-", ""))
    return of_provider_id(machine.id)


def provider_id(machine: Machine) -> str:
    """Return the ``spec.providerID`` of the machine's Node; the machine's own id if it is unknown."""
    identity = machine_identity(machine)
    match identity:
        case Identity("aws", instance):
            return f"aws:///{zone(machine)}/{instance}"
        case Identity("azure", _):
            return f"azure://{machine.id.removeprefix('azure://')}"
        case Identity("openstack", _):
            return machine.id if "://" in machine.id else f"openstack:///{machine.id}"
        case Identity(cloud, instance):
            return f"{cloud}://{instance}"
    return machine.id


def zone(machine: Machine) -> str:
    """Return the availability zone from the EC2 metadata, otherwise the machine's region."""
    for holder in _holders(machine.metadata):
        placement = _lookup(holder, "placement")
        name = _lookup(placement, "availabilityzone") if isinstance(placement, Mapping) else None
        if isinstance(name, str) and name:
            return name
    return machine.region if isinstance(machine.region, str) else ""


def names(machine: Machine) -> frozenset[str]:
    """Return the possible names of the machine's Node, in lower case as Node names are."""
    names: set[object] = {machine.id, machine.id.rstrip("/").rsplit("/", 1)[-1]}
    for holder in _holders(machine.metadata):
        names |= {_lookup(holder, key) for key in ("name", "hostname", "privatednsname")}
    return frozenset(name.lower() for name in names if isinstance(name, str) and name)


def addresses(machine: Machine) -> frozenset[str]:
    """Return the machine's private addresses."""
    if not isinstance(machine.private_ips, list):
        return frozenset()
    return frozenset(address for address in machine.private_ips if isinstance(address, str) and address)


def _spot_instance(metadata: object) -> str | None:
    """Return a spot request's instance from ``{"request": …, "instance": {"instanceId": "i-…"}}``."""
    for holder in _holders(metadata):
        instance = _lookup(holder, "instanceid")
        if isinstance(instance, str) and _AWS_INSTANCE.fullmatch(instance):
            return instance
    return None


def _holders(metadata: object) -> list[Mapping[str, object]]:
    """Return the parts of a cloud's metadata to search: a spot request's instance, the request, then all metadata."""
    if not isinstance(metadata, Mapping):
        return []
    inner = [_lookup(metadata, key) for key in ("instance", "request")]
    return [holder for holder in (*inner, metadata) if isinstance(holder, Mapping)]


def _lookup(holder: Mapping[str, object], key: str) -> object:
    """Look up *key*, ignoring case and underscores: SDKs write `instanceId` or `InstanceId`."""
    for name, value in holder.items():
        if isinstance(name, str) and name.lower().replace("_", "") == key:
            return value
    return None


# Provider IDs decide if both sides have comparable ones; a spot request has the one of its instance, from the metadata.
# If one side has none, an internal address decides, then a name, but only among allocated machines that no stronger
# evidence assigns to another node. A machine that two nodes claim by the same evidence matches neither.


@dataclass(frozen=True, slots=True)
class Matching:
    """The result of a match. A node in neither `machines` nor `ambiguous` has no machine in the pool."""

    machines: Mapping[str, Machine]  #: node name → its machine
    ambiguous: Mapping[str, str]  #: node name → why its machine is uncertain
    claimed: Mapping[int, tuple[str, ...]]  #: position of a machine → nodes that claim it, also uncertain ones


@dataclass(frozen=True, slots=True)
class _Evidence:
    """A property that a node and its machine must share."""

    name: str
    of_node: Callable[[NodeRef], Iterable[str]]
    of_machine: Callable[[Machine], Iterable[str]]


class MachineIndex:
    """The machines of a pool, indexed for repeated matches."""

    def __init__(self, machines: Sequence[Machine]) -> None:
        self._machines = machines
        self._indexes = [_index(machines, evidence.of_machine) for evidence in _EVIDENCE]

    def match(self, nodes: Sequence[NodeRef]) -> Matching:
        """Match *nodes* and their rivals to the machines; the order of the nodes does not matter."""
        candidates, how = _candidates(self._machines, self._indexes, with_rivals(nodes))
        return _decide(self._machines, nodes, candidates, how)


def _decide(
    machines: Sequence[Machine], nodes: Sequence[NodeRef], candidates: Mapping[str, set[int]], how: Mapping[str, str]
) -> Matching:
    repeated = {name for name, count in Counter(node.name for node in nodes).items() if count > 1}
    claims: defaultdict[int, list[str]] = defaultdict(list)
    for name, indexes in sorted(candidates.items()):
        for index in indexes:
            claims[index].append(name)
    matched: dict[str, Machine] = {}
    ambiguous: dict[str, str] = {}
    for node in nodes:
        indexes = candidates[node.name]
        if node.name in repeated:
            ambiguous[node.name] = "the node is listed twice"
        elif len(indexes) > 1:
            ids = sorted(machines[index].id for index in indexes)
            ambiguous[node.name] = f"several machines have its {how[node.name]}: {', '.join(ids)}"
        elif any(len(claims[index]) > 1 for index in indexes):
            ids = sorted(machines[index].id for index in indexes)
            others = sorted({name for index in indexes for name in claims[index]} - {node.name})
            what = f"the {how[node.name]} of machine {', '.join(ids)}"
            ambiguous[node.name] = f"other nodes also have {what}: {', '.join(others)}"
        elif indexes:
            matched[node.name] = machines[next(iter(indexes))]
    return Matching(matched, ambiguous, {index: tuple(names) for index, names in claims.items()})


def _candidates(
    machines: Sequence[Machine], indexes: Sequence[Mapping[str, list[int]]], nodes: Sequence[NodeRef]
) -> tuple[dict[str, set[int]], dict[str, str]]:
    """Return the machines of each node by its strongest evidence, and the name of that evidence."""
    candidates: dict[str, set[int]] = {node.name: set() for node in nodes}
    how: dict[str, str] = {}
    for evidence, index in zip(_EVIDENCE, indexes, strict=True):
        taken = {claimed for claims in candidates.values() for claimed in claims}
        for node in nodes:
            if candidates[node.name]:
                continue
            hits = {hit for key in evidence.of_node(node) for hit in index.get(key, ()) if hit not in taken}
            if evidence is not _PROVIDER_ID:
                hits = {hit for hit in hits if machines[hit].allocated and not _differ(node, machines[hit])}
            if hits:
                candidates[node.name], how[node.name] = hits, evidence.name
    return candidates, how


def _index(machines: Sequence[Machine], keys: Callable[[Machine], Iterable[str]]) -> dict[str, list[int]]:
    index: dict[str, list[int]] = {}
    for position, machine in enumerate(machines):
        for key in keys(machine):
            index.setdefault(key, []).append(position)
    return index


def _differ(node: NodeRef, machine: Machine) -> bool:
    """Return whether the two provider IDs denote different instances, which overrides addresses and names."""
    of_node, of_machine = of_provider_id(node.provider_id), machine_identity(machine)
    if of_node is None or of_machine is None or of_node == of_machine:
        return False
    return of_node.cloud in CLOUDS or of_node.cloud == of_machine.cloud


def _node_ids(node: NodeRef) -> list[str]:
    """Return the Node's instance and its raw provider ID, which for placeholders is the machine's id."""
    known = of_provider_id(node.provider_id)
    bare = [node.provider_id] if node.provider_id else []
    return [f"{known.cloud}://{known.instance}", *bare] if known else bare


def _machine_ids(machine: Machine) -> set[str]:
    known = machine_identity(machine)
    return {machine.id} | ({f"{known.cloud}://{known.instance}"} if known else set())


def _node_names(node: NodeRef) -> set[str]:
    return {node.name.lower(), node.labels.get(HOSTNAME, node.name).lower()}


_PROVIDER_ID = _Evidence("provider ID", _node_ids, _machine_ids)
_EVIDENCE = (
    _PROVIDER_ID,
    _Evidence("internal address", lambda node: set(node.internal_ips), addresses),
    _Evidence("name", _node_names, names),
)
