"""Pod classes: the properties that equally scheduled pods share, and the keys by which equal pods are found."""

from collections.abc import Iterable, Mapping
from typing import Final, NamedTuple, TypeAlias

import msgspec
from msgspec import Raw
from msgspec.structs import astuple, replace

from predicates.objects import (
    Claim,
    Condition,
    Container,
    Empty,
    HostPort,
    Load,
    PodClass,
    PodObject,
    PodSpec,
    Volume,
    Wire,
)
from predicates.requests import RESIZE_PENDING, loads, new_load

# Labels that the API server adds to a pod when it binds the pod to a node.
#
# The admission plugin PodTopologyLabels copies them from the node and overwrites labels of the same name. A recreated
# pod therefore does not have them until it is bound, and then gets those of its new node.

#: The labels that the plugin copies (``defaultConfig`` of ``plugin/pkg/admission/podtopologylabels``), sorted.
BOUND_LABELS: Final = ("topology.kubernetes.io/region", "topology.kubernetes.io/zone")

#: Names and values, in the order of :data:`BOUND_LABELS`.
LabelPairs: TypeAlias = tuple[tuple[str, str], ...]


def bound_labels(labels: Mapping[str, str]) -> LabelPairs:
    """Return the *labels* of a node or of a bound pod that the API server copies from nodes to pods."""
    return tuple([(key, labels[key]) for key in BOUND_LABELS if key in labels])


def own_labels(labels: Mapping[str, str]) -> Mapping[str, str]:
    """Return the *labels* of a bound pod without the labels that the API server added."""
    return {key: value for key, value in labels.items() if key not in BOUND_LABELS}


def as_bound(pod: PodClass, labels: LabelPairs) -> PodClass:
    """Return the class of pods that also have *labels* and are otherwise equal to those of *pod*."""
    return msgspec.structs.replace(pod, labels={**pod.labels, **dict(labels)})


class PodAmounts(NamedTuple):
    """The amounts computed from the resources in spec and status. Many classes share them."""

    new: Load  #: of a new pod
    loads: tuple[Load, ...]  #: by rule, see :func:`predicates.requests.loads`


def pod_amounts(pod: PodObject) -> PodAmounts:
    """Return the amounts of *pod*. They depend only on :func:`resource_fields`."""
    return PodAmounts(new_load(pod.spec), loads(pod))


def resource_fields(pod: PodObject) -> bytes:
    """Return all fields of the pod that :mod:`predicates.requests` reads, as a cache key."""
    spec, status = pod.spec, pod.status
    requested = _requested(spec.containers), _requested(spec.init_containers), spec.resources, spec.overhead
    reported = status.container_statuses, status.init_container_statuses, status.resources, status.allocated_resources
    resizes = [condition.reason for condition in status.conditions if condition.type == RESIZE_PENDING]
    return msgspec.json.encode((requested, reported, resizes))


def _requested(containers: Iterable[Container]) -> list[tuple[object, ...]]:
    return [(container.name, container.resources, container.restart_policy) for container in containers]


def pod_class(pod: PodObject, amounts: PodAmounts) -> PodClass:
    """Return the class of *pod*, with the *amounts* from :func:`pod_amounts`."""
    spec = msgspec.structs.replace(pod.spec, node_name="")
    return PodClass(
        namespace=pod.metadata.namespace,
        labels=own_labels(pod.metadata.labels) if pod.spec.node_name else pod.metadata.labels,
        requests=amounts.new.amounts,
        defaults=amounts.new.defaults,
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


def _claims(pod_name: str, spec: PodSpec) -> tuple[Claim, ...]:
    """Return the claims that the pod's volumes refer to, in volume order."""
    claims = []
    for volume in spec.volumes:
        if volume.persistent_volume_claim is not None:
            claims.append(Claim(volume.persistent_volume_claim.claim_name, ephemeral=False))
        elif volume.ephemeral is not None:
            claims.append(Claim(f"{pod_name}-{volume.name}", ephemeral=True, pod=pod_name))
    return tuple(claims)


def _names_disk(volume: Volume) -> bool:
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


# The fields of a pod that determine its class, as raw bytes, and the cache keys made from them.
#
# The bytes are validated when the first pod of the class is decoded.

_ABSENT: Final = Raw(b"")
_TERMINATING: Final = Raw(b"true")
_END: Final = Raw(b"]")  #: a separator: no JSON value starts like this


class _RawObject(Wire, frozen=True, omit_defaults=True):
    """Part of a pod. Fields that no code reads are left out."""


class RawContainer(_RawObject, frozen=True):
    """A container, without fields that cannot affect scheduling."""

    name: Raw = _ABSENT
    image: Raw = _ABSENT
    resources: Raw = _ABSENT
    ports: Raw = _ABSENT
    restart_policy: Raw = _ABSENT
    restart_policy_rules: Raw = _ABSENT
    security_context: Raw = _ABSENT
    volume_mounts: Raw = _ABSENT  #: only those with options determine the class: see :func:`class_key`


class RawVolume(_RawObject, frozen=True):
    """A volume. The last four fields identify volumes of types that no code reads, which do not affect the class."""

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
    image: Raw = _ABSENT
    projected: Empty | None = None
    config_map: Empty | None = None
    secret: Empty | None = None
    downward_api: Empty | None = msgspec.field(default=None, name="downwardAPI")


class RawSpec(_RawObject, frozen=True):
    node_name: str = ""
    containers: list[RawContainer] = []
    init_containers: list[RawContainer] = []
    volumes: list[RawVolume] = []
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
    active_deadline_seconds: Raw = _ABSENT
    priority_class_name: Raw = _ABSENT
    runtime_class_name: Raw = _ABSENT
    eviction_responders: Raw = _ABSENT
    scheduling_group: Raw = _ABSENT
    workload_ref: Raw = _ABSENT
    security_context: Raw = _ABSENT
    host_pid: Raw = msgspec.field(default=_ABSENT, name="hostPID")
    host_ipc: Raw = msgspec.field(default=_ABSENT, name="hostIPC")


class RawMeta(_RawObject, frozen=True):
    name: str = ""
    namespace: Raw = _ABSENT
    uid: str = ""
    generation: int = 0
    labels: Raw = _ABSENT
    annotations: dict[str, str] = {}
    owner_references: Raw = _ABSENT
    managed_fields: Raw = _ABSENT
    creation_timestamp: str | None = None
    deletion_timestamp: str | None = None


class RawContainerStatus(_RawObject, frozen=True):
    name: Raw = _ABSENT
    resources: Raw = _ABSENT
    allocated_resources: Raw = _ABSENT
    restart_count: int = 0


class RawStatus(_RawObject, frozen=True):
    phase: str = ""
    nominated_node_name: str = ""
    conditions: list[Condition] = []
    container_statuses: list[RawContainerStatus] = []
    init_container_statuses: list[RawContainerStatus] = []
    resources: Raw = _ABSENT
    allocated_resources: Raw = _ABSENT
    start_time: str | None = None


class RawPod(_RawObject, frozen=True):
    metadata: RawMeta
    spec: RawSpec = RawSpec()
    status: RawStatus = RawStatus()


#: Created on import: concurrent first use of a msgspec type can crash the process.
RAW_PODS: Final = msgspec.json.Decoder(RawPod)
_LABELS: Final = msgspec.json.Decoder(dict[str, str])

#: In the managed fields of a pod: the field ``spec.nodeName``. Each field is a key with this prefix.
_NODE_NAME: Final = b'"f:nodeName"'
_SETS_NODE_NAME: Final = Raw(b'[{"fieldsV1":{"f:spec":{"f:nodeName":{}}}}]')

#: Raw volume mounts without this text have no options.
_MOUNT_OPTIONS: Final = b'"bindMountOptions"'

_ON_FAILURE: Final = b'"OnFailure"'

#: Raw labels without this text contain none that the API server added.
BOUND_PREFIX: Final = b"topology.kubernetes.io"


#: The types of the conditions that :func:`predicates.wire.conditions` and :mod:`predicates.requests` read.
READ_CONDITIONS: Final = frozenset({"Ready", "PodScheduled", RESIZE_PENDING, "DisruptionTarget"})


def reduced(pod: bytes) -> bytes:
    """Return the JSON of *pod* without the fields that no code reads. Raises msgspec.MsgspecError."""
    fields = RAW_PODS.decode(pod)
    if fields.metadata.managed_fields is not _ABSENT:
        managed = _SETS_NODE_NAME if sets_node_name(fields.metadata) else _ABSENT
        fields = replace(fields, metadata=replace(fields.metadata, managed_fields=managed))
    for containers in (fields.spec.containers, fields.spec.init_containers):
        for index, container in enumerate(containers):
            if container.volume_mounts is not _ABSENT and not _has_options(container):
                containers[index] = replace(container, volume_mounts=_ABSENT)
    conditions = fields.status.conditions
    conditions[:] = [condition for condition in conditions if condition.type in READ_CONDITIONS]
    return msgspec.json.encode(fields)


def sets_node_name(meta: RawMeta) -> bool:
    """Return whether a client manages the field ``spec.nodeName``: it created the pod for this node.

    The binding of a pod by a scheduler writes the field without managing it (``pkg/registry/core/pod/storage``).
    """
    return meta.managed_fields is not _ABSENT and _NODE_NAME in bytes(meta.managed_fields)


def split_labels(raw: bytes) -> tuple[bytes, LabelPairs]:
    """Split the *raw* labels of a bound pod into its own labels and the labels that the API server added."""
    try:
        labels = _LABELS.decode(raw)
    except msgspec.ValidationError:  # Reported when the whole pod is decoded.
        return raw, ()
    added, own = bound_labels(labels), own_labels(labels)
    if not added:
        return raw, ()
    return (msgspec.json.encode(own) if own else b""), added


def class_key(meta: RawMeta, labels: bytes, spec: RawSpec) -> bytes:
    """Return the key of the class, which has these raw *labels*.

    Parts are separated by NUL, which cannot occur in JSON.
    """
    terminating = _ABSENT if meta.deletion_timestamp is None else _TERMINATING
    parts: list[Raw | bytes] = [meta.namespace, labels, terminating]
    parts += astuple(spec)[4:]
    needs_name = spec.resource_claims is not _ABSENT
    for volume in spec.volumes:
        if volume.projected is volume.config_map is volume.secret is volume.downward_api is None:
            parts += astuple(volume)[:-4]
            needs_name = needs_name or volume.ephemeral is not _ABSENT
    for containers in (spec.containers, spec.init_containers):
        parts.append(_END)
        for container in containers:
            fields: tuple[Raw, ...] = astuple(container)
            # The names of mounted volumes differ between equal pods.
            parts += fields if _has_options(container) else fields[:-1]
    if needs_name:
        # The name of a generic ephemeral volume's claim contains the pod name, and so do reasons about resource claims.
        parts += (_END, msgspec.json.encode(meta.name))
    return b"\0".join(parts)


def _has_options(container: RawContainer) -> bool:
    return container.volume_mounts is not _ABSENT and _MOUNT_OPTIONS in bytes(container.volume_mounts)


def restarts(spec: RawSpec, status: RawStatus) -> int:
    """Return the restarts of the pod's containers that count as failures of a Job."""
    if bytes(spec.restart_policy) != _ON_FAILURE:
        return 0
    return sum(container.restart_count for container in (*status.init_container_statuses, *status.container_statuses))


def own_key(meta: RawMeta, status: RawStatus, resize: str | None) -> bytes:
    """Return the key of the pod's owner and of the resources in its status. Parts are separated as in the class key."""
    parts: list[Raw | bytes] = [meta.owner_references, status.resources, status.allocated_resources]
    for container in status.container_statuses:
        parts += (container.name, container.resources, container.allocated_resources)
    if status.init_container_statuses:
        parts.append(_END)
        for container in status.init_container_statuses:
            parts += (container.name, container.resources, container.allocated_resources)
    if resize is not None:
        parts += (_END, msgspec.json.encode(resize))
    return b"\0".join(parts)
