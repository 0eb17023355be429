"""Raw JSON of the API server, or of ``kubectl get -o json``, as objects of :mod:`predicates.objects`.

Pods are read in two steps. First the bytes of each field that pods share are looked at: they are the key of the
pod's class. Only the first pod of a class is decoded whole. So a list of 150,000 pods costs a pass over its bytes
and one decode for each of its some thousand classes, and equal pods share what they have in common.
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
from predicates.unreadable import Unreadable, node_of

#: Annotations of pods that anybody reads; the others are dropped.
POD_ANNOTATIONS: Final = (
    "cluster-autoscaler.kubernetes.io/",
    "karpenter.sh/",
    "batch.kubernetes.io/job-index-failure-count",
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
_TERMINATING: Final = Raw(b"true")
_LAST_TRANSITION: Final[Callable[[api.Condition], str | None]] = attrgetter("last_transition_time")
_END: Final = Raw(b"]")  #: no part begins so

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

    def __init__(self, unreadable: Unreadable) -> None:
        super().__init__(unreadable.why)
        self.unreadable = unreadable


# The fields of a pod that it shares with others, as bytes: they are checked where they are first met.


class _ContainerKey(Wire, frozen=True):
    name: Raw = _ABSENT
    image: Raw = _ABSENT
    resources: Raw = _ABSENT
    ports: Raw = _ABSENT
    restart_policy: Raw = _ABSENT
    restart_policy_rules: Raw = _ABSENT


class _VolumeKey(Wire, frozen=True):
    """A volume; those of a boring kind (nothing reads them) are told by one of the last four fields."""

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


#: Made here, as no two threads may have msgspec meet a struct at once.
_DECODERS: Final = {name: msgspec.json.Decoder(kind) for name, kind in KINDS.items() if name != "Pod"}
_POD_KEYS: Final = msgspec.json.Decoder(_PodKey)
_PODS: Final = msgspec.json.Decoder(PodObject)


class Shared(NamedTuple):
    """What a pod has in common with others."""

    cls: PodClass
    load: api.Amounts  #: what it takes on its node: ``cls.requests`` itself where it is that, which is nearly always
    owner: OwnerReference | None  #: the one with ``controller: true``


class _Amounts(NamedTuple):
    """What follows from the resources that a pod asks for and was given. Many classes have them in common."""

    requests: api.Amounts
    nonzero: tuple[int, int]
    load: api.Amounts


class Interner:
    """The classes of pods seen so far, and what their pods take. One a Snapshot.

    Classes are kept as long as the interner lives; :meth:`forget` drops those that no pod uses any more.
    """

    def __init__(self) -> None:
        self._classes: dict[Hashable, PodClass] = {}
        self._shared: dict[Hashable, Shared] = {}
        self._amounts: dict[bytes, _Amounts] = {}
        self._strings: dict[str, str] = {}

    def shared(self, key: Hashable, own: Hashable, read: Callable[[], PodObject]) -> Shared:
        """What the pod shares, by the *key* of its class and by its *own* owners and resources in its status.

        *read* gives the whole pod; it is called, once, where these two have not been met together before.
        """
        if (found := self._shared.get((key, own))) is None:
            found = self._shared[key, own] = self._met(key, read())
        return found

    def _met(self, key: Hashable, pod: PodObject) -> Shared:
        said = _resources_said(pod)
        if (amounts := self._amounts.get(said)) is None:
            amounts = self._amounts[said] = _Amounts(requests(pod.spec), nonzero(pod.spec), load(pod))
        if (cls := self._classes.get(key)) is None:
            cls = self._classes[key] = _pod_class(pod, amounts)
        taken = cls.requests if amounts.load == cls.requests else amounts.load
        return Shared(cls, taken, next((one for one in pod.metadata.owner_references if one.controller), None))

    def string(self, text: str) -> str:
        """*text*, or the equal string seen before: node names and kinds are kept once."""
        return self._strings.setdefault(text, text)

    def forget(self, used: set[PodClass]) -> None:
        """Drop all classes but *used*."""
        self._classes = {key: one for key, one in self._classes.items() if one in used}
        self._shared = {}
        self._amounts = {}
        self._strings = {}

    def __len__(self) -> int:
        return len(self._classes)


class Decoder:
    """Decodes single objects. Not thread-safe for pods: one decoder a thread, or one thread for pods."""

    def __init__(self, interner: Interner) -> None:
        self._interner = interner

    def decode(self, kind: str, raw: bytes | Raw | memoryview) -> Object:
        """One object of *kind* (a key of :data:`KINDS`). Raises :class:`WireError`."""
        try:
            try:
                return self._decode(kind, raw)
            except msgspec.ValidationError:
                # Nulls where the API writes none are rare enough for a second try without them.
                return self._decode(kind, self._without_nulls(kind, raw))
        except (msgspec.MsgspecError, QuantityError, UnicodeDecodeError, RecursionError) as error:
            raise WireError(unreadable(kind, raw, str(error))) from error

    def _without_nulls(self, kind: str, raw: bytes | Raw | memoryview) -> bytes:
        whole = PodObject if kind == "Pod" else KINDS[kind]
        return msgspec.json.encode(without_nulls(msgspec.json.decode(raw), whole))

    def _decode(self, kind: str, raw: bytes | Raw | memoryview) -> Object:
        if kind == "Pod":
            return self._pod(raw)
        one = _DECODERS[kind].decode(raw)
        if (amounts := _AMOUNTS.get(kind)) is not None:
            parsed(amounts(one))
        return one

    def _pod(self, raw: bytes | Raw | memoryview) -> Pod:
        seen = _POD_KEYS.decode(raw)
        meta, spec, status = seen.metadata, seen.spec, seen.status
        ready, ready_since, unschedulable_since, resize = conditions(status.conditions, _LAST_TRANSITION)
        own = _own_key(meta, status, resize)
        cls, taken, owner = self._interner.shared(_class_key(meta, spec), own, lambda: _PODS.decode(raw))
        return Pod(
            namespace=cls.namespace,
            name=meta.name,
            uid=meta.uid,
            node_name=self._interner.string(spec.node_name),
            cls=cls,
            load=taken,
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
    """The object *raw* of *kind*, which cannot be decoded because of *why*."""
    name = name_of(raw)
    return Unreadable(kind, name, f"{kind} {name}: {' '.join(why.split())}", node_of(raw) if kind == "Pod" else None)


def name_of(raw: bytes | Raw | memoryview) -> str:
    """``namespace/name`` of an object that could not be decoded, as far as it can be told."""
    text = bytes(raw).decode(errors="replace")
    if (start := _METADATA.search(text)) is not None:
        with contextlib.suppress(ValueError, RecursionError, AttributeError):
            meta, _ = json.JSONDecoder().raw_decode(text, start.end())
            named = "/".join(str(part) for part in (meta.get("namespace"), meta.get("name")) if part)
            return named or "without a name"
    return "without a name"


def _class_key(meta: _MetaKey, spec: _SpecKey) -> bytes:
    """All that decides the class. A NUL divides the parts: JSON holds none."""
    terminating = _ABSENT if meta.deletion_timestamp is None else _TERMINATING
    parts: list[Raw | bytes] = [meta.namespace, meta.labels, terminating]
    parts += astuple(spec)[4:]
    named = spec.resource_claims is not _ABSENT
    for volume in spec.volumes:
        if volume.projected is volume.config_map is volume.secret is volume.downward_api is None:
            parts += astuple(volume)[:-4]
            named = named or volume.ephemeral is not _ABSENT
    parts.append(_END)
    for container in spec.containers:
        parts += astuple(container)
    parts.append(_END)
    for container in spec.init_containers:
        parts += astuple(container)
    if named:
        # A generic ephemeral volume's claim is called after the pod, and so is what lacks a resource claim.
        parts += (_END, msgspec.json.encode(meta.name))
    return b"\0".join(parts)


def _own_key(meta: _MetaKey, status: _StatusKey, resize: str | None) -> bytes:
    """What decides the pod's owner, and how much it takes beside its class. Parts as those of the class's key."""
    parts: list[Raw | bytes] = [meta.owner_references, status.resources, status.allocated_resources]
    for one in status.container_statuses:
        parts += astuple(one)
    if status.init_container_statuses:
        parts.append(_END)
        for one in status.init_container_statuses:
            parts += astuple(one)
    if resize is not None:
        parts += (_END, msgspec.json.encode(resize))
    return b"\0".join(parts)


def _resources_said(pod: PodObject) -> bytes:
    """All that :mod:`predicates.requests` reads of the pod."""
    spec, status = pod.spec, pod.status
    asked = _asked(spec.containers), _asked(spec.init_containers), spec.resources, spec.overhead
    given = status.container_statuses, status.init_container_statuses, status.resources, status.allocated_resources
    resizes = [one.reason for one in status.conditions if one.type == RESIZE_PENDING]
    return msgspec.json.encode((asked, given, resizes))


def _asked(containers: Iterable[api.Container]) -> list[tuple[object, ...]]:
    return [(one.name, one.resources, one.restart_policy) for one in containers]


def _pod_class(pod: PodObject, amounts: _Amounts) -> PodClass:
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
