"""Raw JSON of the API server, or of ``kubectl get -o json``, as objects of :mod:`predicates.objects`.

Pods are read in two steps. First only the bytes of each scheduling field are looked at: they are the key of
the pod's class. Only the first pod of a class is decoded whole. So a list of 150,000 pods costs a pass over
its bytes and one decode for each of its some thousand classes, and equal pods share what they have in common.
"""

import contextlib
import json
import re
from collections.abc import Callable, Hashable, Mapping
from typing import Any, Final

import msgspec
from msgspec import Raw

from predicates import objects as api
from predicates.nulls import without_nulls
from predicates.objects import HostPort, Object, Pod, PodClass, PodObject, PodSpec, Wire
from predicates.quantity import QuantityError
from predicates.requests import load, nonzero, parsed, requests

#: Annotations of pods that anybody reads; the others are dropped.
POD_ANNOTATIONS: Final = (
    "cluster-autoscaler.kubernetes.io/",
    "karpenter.sh/",
    "controller.kubernetes.io/pod-deletion-cost",
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
_METADATA: Final = re.compile(r'"metadata"\s*:\s*')

#: The amounts that the filters read later: whoever decodes the object is told of a broken one, with its name.
_AMOUNTS: Final[Mapping[str, Callable[[Any], Mapping[str, api.QuantityText | None]]]] = {
    "Node": lambda one: one.status.allocatable,
    "PersistentVolume": lambda one: one.spec.capacity,
    "PersistentVolumeClaim": lambda one: one.spec.resources.requests,
    "CSIStorageCapacity": lambda one: {"capacity": one.capacity, "maximumVolumeSize": one.maximum_volume_size},
}


class WireError(ValueError):
    """An object that cannot be read; the message names the object, the field and what was expected."""


# The fields of a pod that decide its class, as bytes.


class _ContainerKey(Wire, frozen=True):
    name: str = ""
    image: str = ""
    resources: Raw = _ABSENT
    ports: Raw = _ABSENT
    restart_policy: Raw = _ABSENT
    restart_policy_rules: Raw = _ABSENT


class _VolumeKey(api.Volume, frozen=True):
    """A volume; those of a boring kind (nothing reads them) are told by one of the last four fields."""

    projected: api.Empty | None = None
    config_map: api.Empty | None = None
    secret: api.Empty | None = None
    downward_api: api.Empty | None = msgspec.field(default=None, name="downwardAPI")

    @property
    def boring(self) -> bool:
        return not (self.projected is self.config_map is self.secret is self.downward_api is None)


class _SpecKey(Wire, frozen=True):
    node_name: str = ""
    containers: tuple[_ContainerKey, ...] = ()
    init_containers: tuple[_ContainerKey, ...] = ()
    volumes: tuple[_VolumeKey, ...] = ()
    node_selector: Raw = _ABSENT
    affinity: Raw = _ABSENT
    tolerations: Raw = _ABSENT
    topology_spread_constraints: Raw = _ABSENT
    overhead: Raw = _ABSENT
    resources: Raw = _ABSENT
    scheduling_gates: Raw = _ABSENT
    resource_claims: Raw = _ABSENT
    priority: api.Int32 | None = None
    scheduler_name: str = ""
    termination_grace_period_seconds: api.Int64 | None = None
    host_network: bool = False
    host_users: bool | None = None
    restart_policy: str = ""
    os: Raw = _ABSENT


class _MetaKey(Wire, frozen=True):
    name: str = ""
    namespace: str = ""
    uid: str = ""
    labels: Raw = _ABSENT
    annotations: dict[str, str] = {}
    owner_references: tuple[api.OwnerReference, ...] = ()
    creation_timestamp: str | None = None
    deletion_timestamp: str | None = None


class _ContainerStatusKey(Wire, frozen=True):
    name: str = ""
    resources: Raw = _ABSENT
    allocated_resources: Raw = _ABSENT


class _StatusKey(Wire, frozen=True):
    phase: str = ""
    conditions: tuple[api.Condition, ...] = ()
    container_statuses: tuple[_ContainerStatusKey, ...] = ()
    init_container_statuses: tuple[_ContainerStatusKey, ...] = ()
    resources: Raw = _ABSENT
    allocated_resources: Raw = _ABSENT
    start_time: str | None = None


class _PodKey(Wire, frozen=True):
    metadata: _MetaKey
    spec: _SpecKey = _SpecKey()
    status: _StatusKey = _StatusKey()


class Interner:
    """The classes of pods seen so far, and what their pods take. One a Snapshot.

    Classes are kept as long as the interner lives; :meth:`forget` drops those that no pod uses any more.
    """

    def __init__(self) -> None:
        self._classes: dict[Hashable, PodClass] = {}
        self._loads: dict[Hashable, api.Amounts] = {}
        self._strings: dict[str, str] = {}

    def pod_class(self, key: Hashable, read: Callable[[], PodObject]) -> PodClass:
        """The class under *key*; *read* gives one whole pod of it and is called only where the key is new."""
        if (found := self._classes.get(key)) is None:
            found = self._classes[key] = _pod_class(read())
        return found

    def load(self, cls: PodClass, key: Hashable, read: Callable[[], PodObject]) -> api.Amounts:
        """What a pod of *cls* takes on its node, under *key*, which must tell the class and the status's resources.

        ``cls.requests`` itself where it takes what it requests, which is nearly always.
        """
        if (found := self._loads.get(key)) is None:
            found = load(read())
            found = self._loads[key] = cls.requests if found == cls.requests else found
        return found

    def string(self, text: str) -> str:
        """*text*, or the equal string seen before: node names and kinds are kept once."""
        return self._strings.setdefault(text, text)

    def forget(self, used: set[PodClass]) -> None:
        """Drop all classes but *used*."""
        self._classes = {key: one for key, one in self._classes.items() if one in used}
        self._loads = {}
        self._strings = {}

    def __len__(self) -> int:
        return len(self._classes)


class Decoder:
    """Decodes single objects. Not thread-safe for pods: one decoder a thread, or one thread for pods."""

    def __init__(self, interner: Interner) -> None:
        self._interner = interner
        self._decoders = {name: msgspec.json.Decoder(kind) for name, kind in KINDS.items() if name != "Pod"}
        self._pod_keys = msgspec.json.Decoder(_PodKey)
        self._pods = msgspec.json.Decoder(PodObject)

    def decode(self, kind: str, raw: bytes | Raw | memoryview) -> Object:
        """One object of *kind* (a key of :data:`KINDS`). Raises :class:`WireError`."""
        try:
            try:
                return self._decode(kind, raw)
            except msgspec.ValidationError:
                # Nulls where the API writes none are rare enough for a second try without them.
                return self._decode(kind, self._without_nulls(kind, raw))
        except (msgspec.MsgspecError, QuantityError, UnicodeDecodeError, RecursionError) as error:
            raise WireError(f"{kind} {name_of(raw)}: {error}") from error

    def _without_nulls(self, kind: str, raw: bytes | Raw | memoryview) -> bytes:
        whole = PodObject if kind == "Pod" else KINDS[kind]
        return msgspec.json.encode(without_nulls(msgspec.json.decode(raw), whole))

    def _decode(self, kind: str, raw: bytes | Raw | memoryview) -> Object:
        if kind == "Pod":
            return self._pod(raw)
        one = self._decoders[kind].decode(raw)
        if (amounts := _AMOUNTS.get(kind)) is not None:
            parsed(amounts(one))
        return one

    def _pod(self, raw: bytes | Raw | memoryview) -> Pod:
        seen = self._pod_keys.decode(raw)
        meta, spec, status = seen.metadata, seen.spec, seen.status
        key = _class_key(meta, spec)
        cls = self._interner.pod_class(key, lambda: self._pods.decode(raw))
        given = _load_key(status)
        taken = (
            cls.requests if given is None else self._interner.load(cls, (key, given), lambda: self._pods.decode(raw))
        )
        return _kept(meta, spec.node_name, status, cls, taken, self._interner)


def name_of(raw: bytes | Raw | memoryview) -> str:
    """``namespace/name`` of an object that could not be decoded, as far as it can be told."""
    text = bytes(raw).decode(errors="replace")
    if (start := _METADATA.search(text)) is not None:
        with contextlib.suppress(ValueError, RecursionError, AttributeError):
            meta, _ = json.JSONDecoder().raw_decode(text, start.end())
            named = "/".join(str(part) for part in (meta.get("namespace"), meta.get("name")) if part)
            return named or "without a name"
    return "without a name"


def _class_key(meta: _MetaKey, spec: _SpecKey) -> Hashable:
    volumes = tuple(one for one in spec.volumes if not one.boring)
    return (
        meta.namespace,
        bytes(meta.labels),
        meta.deletion_timestamp is not None,
        # A generic ephemeral volume's claim is called after the pod, and so is what lacks a resource claim.
        meta.name if any(one.ephemeral for one in volumes) or bytes(spec.resource_claims) else None,
        volumes,
        tuple(map(_container_key, spec.containers)),
        tuple(map(_container_key, spec.init_containers)),
        bytes(spec.node_selector),
        bytes(spec.affinity),
        bytes(spec.tolerations),
        bytes(spec.topology_spread_constraints),
        bytes(spec.overhead),
        bytes(spec.resources),
        bytes(spec.scheduling_gates),
        bytes(spec.resource_claims),
        spec.priority,
        spec.scheduler_name,
        spec.termination_grace_period_seconds,
        spec.host_network,
        spec.host_users,
        spec.restart_policy,
        bytes(spec.os),
    )


def _container_key(one: _ContainerKey) -> Hashable:
    return (
        one.name,
        one.image,
        bytes(one.resources),
        bytes(one.ports),
        bytes(one.restart_policy),
        bytes(one.restart_policy_rules),
    )


def _load_key(status: _StatusKey) -> Hashable | None:
    """The bytes that decide what the pod takes beside its class; None where the status says nothing."""
    statuses = tuple(
        (one.name, bytes(one.resources), bytes(one.allocated_resources))
        for one in (*status.container_statuses, *status.init_container_statuses)
    )
    if status.resources == _ABSENT and not any(resources for _, resources, _ in statuses):
        return None
    resize = next((c.reason for c in status.conditions if c.type == "PodResizePending"), None)
    return statuses, bytes(status.resources), bytes(status.allocated_resources), resize


def _kept(
    meta: _MetaKey, node_name: str, status: _StatusKey, cls: PodClass, taken: api.Amounts, interner: Interner
) -> Pod:
    ready, unschedulable_since = _conditions(status.conditions)
    return Pod(
        namespace=cls.namespace,
        name=meta.name,
        uid=meta.uid,
        node_name=interner.string(node_name),
        cls=cls,
        load=taken,
        owner=next((one for one in meta.owner_references if one.controller), None),
        annotations={k: v for k, v in meta.annotations.items() if k.startswith(POD_ANNOTATIONS)},
        phase=interner.string(status.phase),
        deletion_timestamp=meta.deletion_timestamp,
        creation_timestamp=meta.creation_timestamp,
        start_time=status.start_time,
        ready=ready,
        unschedulable_since=unschedulable_since,
    )


def _conditions(conditions: tuple[api.Condition, ...]) -> tuple[bool, str | None]:
    ready, since = True, None
    for one in conditions:
        if one.type == "Ready":
            ready = one.status == "True"
        elif one.type == "PodScheduled" and one.status == "False" and one.reason == "Unschedulable":
            since = one.last_transition_time or ""
    return ready, since


def _pod_class(pod: PodObject) -> PodClass:
    spec = msgspec.structs.replace(pod.spec, node_name="")
    return PodClass(
        namespace=pod.metadata.namespace,
        labels=pod.metadata.labels,
        requests=requests(spec),
        nonzero=nonzero(spec),
        spec=spec,
        ports=_host_ports(spec),
        claims=_claims(pod.metadata.name, spec),
        disks=tuple(filter(_names_disk, spec.volumes)),
        terminating=pod.metadata.deletion_timestamp is not None,
        name=pod.metadata.name if spec.resource_claims else "",
    )


def _host_ports(spec: PodSpec) -> tuple[HostPort, ...]:
    """The ports taken on the node, of containers and of sidecars (``schedutil.GetHostPorts``)."""
    sidecars = (one for one in spec.init_containers if one.restart_policy == "Always")
    ports = (port for one in (*spec.containers, *sidecars) for port in one.ports if port.host_port > 0)
    taken = (HostPort(port.protocol or "TCP", port.host_ip or "0.0.0.0", port.host_port) for port in ports)  # noqa: S104
    return tuple(dict.fromkeys(taken))


def _claims(pod_name: str, spec: PodSpec) -> tuple[api.Claim, ...]:
    """The claims that the pod's volumes stand for, in the order of the volumes."""
    claims = []
    for one in spec.volumes:
        if one.persistent_volume_claim is not None:
            claims.append(api.Claim(one.persistent_volume_claim.claim_name, ephemeral=False))
        elif one.ephemeral is not None:
            claims.append(api.Claim(f"{pod_name}-{one.name}", ephemeral=True, pod=pod_name))
    return tuple(claims)


def _names_disk(one: api.Volume) -> bool:
    sources = (
        one.gce_persistent_disk,
        one.aws_elastic_block_store,
        one.azure_disk,
        one.cinder,
        one.portworx_volume,
        one.rbd,
        one.iscsi,
    )
    claims = one.persistent_volume_claim is not None or one.ephemeral is not None
    return not claims and any(source is not None for source in sources)
