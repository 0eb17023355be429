"""Decodes objects from the JSON of the API server or of ``kubectl get -o json``.

Pods are decoded in two steps. First, the raw bytes of the fields that determine the pod class are extracted and used
as its key. Only the first pod of each class is decoded completely. So the cost of a list of 150,000 pods is one scan
of its bytes and one decode for each of some thousand classes, and pods of a class share one object.
"""

import contextlib
import json
import re
from collections.abc import Callable, Hashable, Iterable, Mapping
from operator import attrgetter
from typing import Any, Final, NamedTuple

import msgspec
from msgspec import Raw
from msgspec.structs import astuple

from predicates import objects as api
from predicates.conditions import conditions
from predicates.nulls import without_nulls
from predicates.objects import HostPort, Object, OwnerReference, Pod, PodClass, PodObject, PodSpec, Wire
from predicates.quantity import QuantityError
from predicates.requests import RESIZE_PENDING, load, nonzero, parsed, requests
from predicates.unreadable import Unreadable, pod_node_name

#: Prefixes of the pod annotations that are read; all others are dropped.
POD_ANNOTATIONS: Final = (
    "autoscaling.cast.ai/removal-disabled",
    "cluster-autoscaler.kubernetes.io/",
    "karpenter.sh/",
    "batch.kubernetes.io/job-index-failure-count",
    "controller.kubernetes.io/pod-deletion-cost",
    "descheduler.alpha.kubernetes.io/prefer-no-eviction",
    "kubernetes.io/config.mirror",
    "spot-rescheduler/",
)

KINDS: Final[Mapping[str, type[Object]]] = {
    kind.__name__: kind
    for kind in (
        api.Node,
        api.Pod,
        api.Namespace,
        api.PersistentVolume,
        api.PersistentVolumeClaim,
        api.StorageClass,
        api.CSINode,
        api.CSIDriver,
        api.CSIStorageCapacity,
        api.VolumeAttachment,
        api.PodDisruptionBudget,
        api.ResourceClaim,
        api.DeviceClass,
    )
}

_ABSENT: Final = Raw(b"")
_TERMINATING: Final = Raw(b"true")
_LAST_TRANSITION: Final[Callable[[api.Condition], str | None]] = attrgetter("last_transition_time")
_END: Final = Raw(b"]")  #: a separator: no JSON value starts like this

_METADATA: Final = re.compile(r'"metadata"\s*:\s*')

#: The quantities of each kind that filters parse later. They are validated on decoding, so errors name the object.
_AMOUNTS: Final[Mapping[str, Callable[[Any], Mapping[str, api.QuantityText | None]]]] = {
    "Node": lambda obj: obj.status.allocatable,
    "PersistentVolume": lambda obj: obj.spec.capacity,
    "PersistentVolumeClaim": lambda obj: obj.spec.resources.requests,
    "CSIStorageCapacity": lambda obj: {"capacity": obj.capacity, "maximumVolumeSize": obj.maximum_volume_size},
}


class WireError(ValueError):
    """An object cannot be decoded. The message names the object, the field and what was expected."""

    def __init__(self, unreadable: Unreadable) -> None:
        super().__init__(unreadable.why)
        self.unreadable = unreadable


# The fields of a pod that determine its class, as raw bytes. They are validated when the first pod is decoded.


class _ContainerKey(Wire, frozen=True):
    name: Raw = _ABSENT
    image: Raw = _ABSENT
    resources: Raw = _ABSENT
    ports: Raw = _ABSENT
    restart_policy: Raw = _ABSENT
    restart_policy_rules: Raw = _ABSENT


class _VolumeKey(Wire, frozen=True):
    """A volume. The last four fields identify volumes of types that nothing reads, which do not affect the class."""

    name: Raw = _ABSENT
    persistent_volume_claim: Raw = _ABSENT
    ephemeral: Raw = _ABSENT
    gce_persistent_disk: Raw = _ABSENT
    aws_elastic_block_store: Raw = _ABSENT
    azure_disk: Raw = _ABSENT
    cinder: Raw = _ABSENT
    portworx_volume: Raw = _ABSENT
    rbd: Raw = _ABSENT
    iscsi: Raw = _ABSENT
    csi: Raw = _ABSENT
    empty_dir: Raw = _ABSENT
    host_path: Raw = _ABSENT
    projected: api.Empty | None = None
    config_map: api.Empty | None = None
    secret: api.Empty | None = None
    downward_api: api.Empty | None = msgspec.field(default=None, name="downwardAPI")


class _SpecKey(Wire, frozen=True):
    node_name: str = ""
    containers: list[_ContainerKey] = []
    init_containers: list[_ContainerKey] = []
    volumes: list[_VolumeKey] = []
    node_selector: Raw = _ABSENT
    affinity: Raw = _ABSENT
    tolerations: Raw = _ABSENT
    topology_spread_constraints: Raw = _ABSENT
    overhead: Raw = _ABSENT
    resources: Raw = _ABSENT
    scheduling_gates: Raw = _ABSENT
    resource_claims: Raw = _ABSENT
    priority: Raw = _ABSENT
    scheduler_name: Raw = _ABSENT
    termination_grace_period_seconds: Raw = _ABSENT
    host_network: Raw = _ABSENT
    host_users: Raw = _ABSENT
    restart_policy: Raw = _ABSENT
    os: Raw = _ABSENT


class _MetaKey(Wire, frozen=True):
    name: str = ""
    namespace: Raw = _ABSENT
    uid: str = ""
    labels: Raw = _ABSENT
    annotations: dict[str, str] = {}
    owner_references: Raw = _ABSENT
    creation_timestamp: str | None = None
    deletion_timestamp: str | None = None


class _ContainerStatusKey(Wire, frozen=True):
    name: Raw = _ABSENT
    resources: Raw = _ABSENT
    allocated_resources: Raw = _ABSENT


class _StatusKey(Wire, frozen=True):
    phase: str = ""
    conditions: list[api.Condition] = []
    container_statuses: list[_ContainerStatusKey] = []
    init_container_statuses: list[_ContainerStatusKey] = []
    resources: Raw = _ABSENT
    allocated_resources: Raw = _ABSENT
    start_time: str | None = None


class _PodKey(Wire, frozen=True):
    metadata: _MetaKey
    spec: _SpecKey = _SpecKey()
    status: _StatusKey = _StatusKey()


#: Created on import: concurrent first use of a msgspec type can crash the process.
_DECODERS: Final = {name: msgspec.json.Decoder(kind) for name, kind in KINDS.items() if name != "Pod"}
_POD_KEYS: Final = msgspec.json.Decoder(_PodKey)
_PODS: Final = msgspec.json.Decoder(PodObject)


class Shared(NamedTuple):
    """The parts of a pod that are shared with other pods."""

    cls: PodClass
    load: api.Amounts  #: as :attr:`Pod.load`; the same object as ``cls.requests`` if they are equal
    owner: OwnerReference | None  #: the owner with ``controller: true``


class _PodAmounts(NamedTuple):
    """The amounts computed from the resources in spec and status. Many classes share them."""

    requests: api.Amounts
    nonzero: tuple[int, int]
    load: api.Amounts


class Interner:
    """The pod classes decoded so far. One per Snapshot.

    Classes are kept for the lifetime of the interner, unless :meth:`forget` drops them.
    """

    def __init__(self) -> None:
        self._classes: dict[Hashable, PodClass] = {}
        self._shared: dict[Hashable, Shared] = {}
        self._amounts: dict[bytes, _PodAmounts] = {}
        self._strings: dict[str, str] = {}

    def shared(self, key: Hashable, own: Hashable, decode: Callable[[], PodObject]) -> Shared:
        """Return the shared parts of a pod.

        *key* identifies the class; *own* identifies owners and resources in the status. *decode* returns the complete
        pod; it is called if this combination is new.
        """
        if (shared := self._shared.get((key, own))) is None:
            shared = self._shared[key, own] = self._intern(key, decode())
        return shared

    def _intern(self, key: Hashable, pod: PodObject) -> Shared:
        fields = _resource_fields(pod)
        if (amounts := self._amounts.get(fields)) is None:
            amounts = self._amounts[fields] = _PodAmounts(requests(pod.spec), nonzero(pod.spec), load(pod))
        if (cls := self._classes.get(key)) is None:
            cls = self._classes[key] = _pod_class(pod, amounts)
        pod_load = cls.requests if amounts.load == cls.requests else amounts.load
        controller = next((owner for owner in pod.metadata.owner_references if owner.controller), None)
        return Shared(cls, pod_load, controller)

    def string(self, text: str) -> str:
        """Return the interned copy of *text*; used for node names and phases."""
        return self._strings.setdefault(text, text)

    def forget(self, used: set[PodClass]) -> None:
        """Drop all classes except those in *used*."""
        self._classes = {key: pod for key, pod in self._classes.items() if pod in used}
        self._shared = {}
        self._amounts = {}
        self._strings = {}

    def __len__(self) -> int:
        return len(self._classes)


class Decoder:
    """Decodes single objects. Decoding pods is not thread-safe; other kinds are."""

    def __init__(self, interner: Interner) -> None:
        self._interner = interner

    def decode(self, kind: str, raw: bytes | Raw | memoryview) -> Object:
        """Decode an object of *kind* (a key of :data:`KINDS`). Raises :class:`WireError`."""
        try:
            try:
                return self._decode(kind, raw)
            except msgspec.ValidationError:
                # The cause can be nulls where the API writes none. They are rare, so they are removed only now.
                return self._decode(kind, self._without_nulls(kind, raw))
        except (msgspec.MsgspecError, QuantityError, UnicodeDecodeError, RecursionError) as error:
            raise WireError(unreadable(kind, raw, str(error))) from error

    def _without_nulls(self, kind: str, raw: bytes | Raw | memoryview) -> bytes:
        struct = PodObject if kind == "Pod" else KINDS[kind]
        return msgspec.json.encode(without_nulls(msgspec.json.decode(raw), struct))

    def _decode(self, kind: str, raw: bytes | Raw | memoryview) -> Object:
        if kind == "Pod":
            return self._pod(raw)
        obj = _DECODERS[kind].decode(raw)
        if (amounts := _AMOUNTS.get(kind)) is not None:
            parsed(amounts(obj))
        return obj

    def _pod(self, raw: bytes | Raw | memoryview) -> Pod:
        fields = _POD_KEYS.decode(raw)
        meta, spec, status = fields.metadata, fields.spec, fields.status
        ready, ready_since, unschedulable_since, resize = conditions(status.conditions, _LAST_TRANSITION)
        own = _own_key(meta, status, resize)
        cls, pod_load, owner = self._interner.shared(_class_key(meta, spec), own, lambda: _PODS.decode(raw))
        return Pod(
            namespace=cls.namespace,
            name=meta.name,
            uid=meta.uid,
            node_name=self._interner.string(spec.node_name),
            cls=cls,
            load=pod_load,
            owner=owner,
            annotations={k: v for k, v in meta.annotations.items() if k.startswith(POD_ANNOTATIONS)},
            phase=self._interner.string(status.phase),
            deletion_timestamp=meta.deletion_timestamp,
            creation_timestamp=meta.creation_timestamp,
            start_time=status.start_time,
            ready=ready,
            ready_since=ready_since,
            unschedulable_since=unschedulable_since,
        )


def unreadable(kind: str, raw: bytes | Raw | memoryview, why: str) -> Unreadable:
    """Return a record of the object *raw* of *kind* that cannot be decoded for the reason *why*."""
    name = name_of(raw)
    return Unreadable(
        kind, name, f"{kind} {name}: {' '.join(why.split())}", pod_node_name(raw) if kind == "Pod" else None
    )


def name_of(raw: bytes | Raw | memoryview) -> str:
    """Return ``namespace/name`` of an object that cannot be decoded, or ``without a name`` if unknown."""
    text = bytes(raw).decode(errors="replace")
    if (start := _METADATA.search(text)) is not None:
        with contextlib.suppress(ValueError, RecursionError, AttributeError):
            meta, _ = json.JSONDecoder().raw_decode(text, start.end())
            named = "/".join(str(part) for part in (meta.get("namespace"), meta.get("name")) if part)
            return named or "without a name"
    return "without a name"


def _class_key(meta: _MetaKey, spec: _SpecKey) -> bytes:
    """Return the key of the class. Parts are separated by NUL, which cannot occur in JSON."""
    terminating = _ABSENT if meta.deletion_timestamp is None else _TERMINATING
    parts: list[Raw | bytes] = [meta.namespace, meta.labels, terminating]
    parts += astuple(spec)[4:]
    needs_name = spec.resource_claims is not _ABSENT
    for volume in spec.volumes:
        if volume.projected is volume.config_map is volume.secret is volume.downward_api is None:
            parts += astuple(volume)[:-4]
            needs_name = needs_name or volume.ephemeral is not _ABSENT
    parts.append(_END)
    for container in spec.containers:
        parts += astuple(container)
    parts.append(_END)
    for container in spec.init_containers:
        parts += astuple(container)
    if needs_name:
        # The name of a generic ephemeral volume's claim contains the pod name, and so do reasons about resource claims.
        parts += (_END, msgspec.json.encode(meta.name))
    return b"\0".join(parts)


def _own_key(meta: _MetaKey, status: _StatusKey, resize: str | None) -> bytes:
    """Return the key of the pod's owner and of the resources in its status. Parts are separated as in the class key."""
    parts: list[Raw | bytes] = [meta.owner_references, status.resources, status.allocated_resources]
    for container in status.container_statuses:
        parts += astuple(container)
    if status.init_container_statuses:
        parts.append(_END)
        for container in status.init_container_statuses:
            parts += astuple(container)
    if resize is not None:
        parts += (_END, msgspec.json.encode(resize))
    return b"\0".join(parts)


def _resource_fields(pod: PodObject) -> bytes:
    """Return all fields of the pod that :mod:`predicates.requests` reads, as a cache key."""
    spec, status = pod.spec, pod.status
    requested = _requested(spec.containers), _requested(spec.init_containers), spec.resources, spec.overhead
    reported = status.container_statuses, status.init_container_statuses, status.resources, status.allocated_resources
    resizes = [condition.reason for condition in status.conditions if condition.type == RESIZE_PENDING]
    return msgspec.json.encode((requested, reported, resizes))


def _requested(containers: Iterable[api.Container]) -> list[tuple[object, ...]]:
    return [(container.name, container.resources, container.restart_policy) for container in containers]


def _pod_class(pod: PodObject, amounts: _PodAmounts) -> PodClass:
    spec = msgspec.structs.replace(pod.spec, node_name="")
    return PodClass(
        namespace=pod.metadata.namespace,
        labels=pod.metadata.labels,
        requests=amounts.requests,
        nonzero=amounts.nonzero,
        spec=spec,
        ports=_host_ports(spec),
        claims=_claims(pod.metadata.name, spec),
        disks=tuple(filter(_names_disk, spec.volumes)),
        terminating=pod.metadata.deletion_timestamp is not None,
        name=pod.metadata.name if spec.resource_claims else "",
    )


def _host_ports(spec: PodSpec) -> tuple[HostPort, ...]:
    """Return the host ports of containers and sidecars (``schedutil.GetHostPorts``)."""
    sidecars = (container for container in spec.init_containers if container.restart_policy == "Always")
    containers = (*spec.containers, *sidecars)
    ports = (port for container in containers for port in container.ports if port.host_port > 0)
    host_ports = (HostPort(port.protocol or "TCP", port.host_ip or "0.0.0.0", port.host_port) for port in ports)  # noqa: S104
    return tuple(dict.fromkeys(host_ports))


def _claims(pod_name: str, spec: PodSpec) -> tuple[api.Claim, ...]:
    """Return the claims that the pod's volumes refer to, in volume order."""
    claims = []
    for volume in spec.volumes:
        if volume.persistent_volume_claim is not None:
            claims.append(api.Claim(volume.persistent_volume_claim.claim_name, ephemeral=False))
        elif volume.ephemeral is not None:
            claims.append(api.Claim(f"{pod_name}-{volume.name}", ephemeral=True, pod=pod_name))
    return tuple(claims)


def _names_disk(volume: api.Volume) -> bool:
    sources = (
        volume.gce_persistent_disk,
        volume.aws_elastic_block_store,
        volume.azure_disk,
        volume.cinder,
        volume.portworx_volume,
        volume.rbd,
        volume.iscsi,
    )
    is_claim = volume.persistent_volume_claim is not None or volume.ephemeral is not None
    return not is_claim and any(source is not None for source in sources)
