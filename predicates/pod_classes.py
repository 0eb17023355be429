"""Pod classes: the properties that equally scheduled pods share, and the keys by which equal pods are found."""

from collections.abc import Callable, Iterable, Mapping
from typing import Final, NamedTuple, TypeAlias

import msgspec
from msgspec import Raw
from msgspec.structs import astuple

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
)
from predicates.requests import RESIZE_PENDING, loads, new_load
from predicates.texts import one_line

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


class _RawObject(msgspec.Struct, gc=False, rename="camel", kw_only=True, omit_defaults=True):
    """Part of a pod. Fields that no code reads are left out. Mutable: see :func:`split`."""


class RawContainer(_RawObject):
    """A container, without fields that cannot affect scheduling."""

    name: Raw = _ABSENT
    image: Raw = _ABSENT
    resources: Raw = _ABSENT
    ports: Raw = _ABSENT
    restart_policy: Raw = _ABSENT
    restart_policy_rules: Raw = _ABSENT
    security_context: Raw = _ABSENT
    volume_mounts: Raw = _ABSENT  #: only those with options determine the class: see :func:`class_key`


class RawProjected(_RawObject):
    sources: Raw = _ABSENT  #: only those with a certificate are kept: see :func:`split`


class RawVolume(_RawObject):
    """A volume. The last four fields identify volumes of types that do not affect the class, but for certificates."""

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
    projected: RawProjected | None = None
    config_map: Empty | None = None
    secret: Empty | None = None
    downward_api: Empty | None = msgspec.field(default=None, name="downwardAPI")


class RawSpec(_RawObject):
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
    preemption_policy: Raw = _ABSENT
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


class RawMeta(_RawObject):
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


class RawRunning(_RawObject):
    started_at: str | None = None


class RawContainerState(_RawObject):
    running: RawRunning | None = None


class RawContainerStatus(_RawObject):
    name: Raw = _ABSENT
    resources: Raw = _ABSENT
    allocated_resources: Raw = _ABSENT
    restart_count: int = 0
    state: RawContainerState | None = None


class RawStatus(_RawObject):
    phase: str = ""
    nominated_node_name: str = ""
    conditions: list[Condition] = []
    container_statuses: list[RawContainerStatus] = []
    init_container_statuses: list[RawContainerStatus] = []
    resources: Raw = _ABSENT
    allocated_resources: Raw = _ABSENT
    start_time: str | None = None


class RawPod(_RawObject):
    metadata: RawMeta
    spec: RawSpec = msgspec.field(default_factory=RawSpec)
    status: RawStatus = msgspec.field(default_factory=RawStatus)


class _FailedStatus(_RawObject):
    reason: str = ""
    message: str = ""
    container_statuses: list[Raw] = []


class _FailedPod(_RawObject):
    status: _FailedStatus


#: Created on import: concurrent first use of a msgspec type can crash the process.
RAW_PODS: Final = msgspec.json.Decoder(RawPod)
_FAILED_PODS: Final = msgspec.json.Decoder(_FailedPod)
_LABELS: Final = msgspec.json.Decoder(dict[str, str])

#: In the managed fields of a pod: the field ``spec.nodeName``. Each field is a key with this prefix.
_NODE_NAME: Final = b'"f:nodeName"'

#: Raw volume mounts without these texts have no options.
_MOUNT_OPTIONS: Final = b'"bindMountOptions"'
_RECURSIVE: Final = b'"recursiveReadOnly"'

#: Raw sources of a projected volume without this text have no certificate.
_CERTIFICATE: Final = b'"podCertificate"'

_ON_FAILURE: Final = b'"OnFailure"'

#: Reasons of failed pods that do not tell which pods a node runs, but what happened to the node or the pod.
_ENDED: Final = frozenset(
    {"Evicted", "Preempting", "Terminated", "NodeShutdown", "Shutdown", "DeadlineExceeded", "NodeLost"}
)

#: Raw labels without this text contain none that the API server added.
BOUND_PREFIX: Final = b"topology.kubernetes.io"


def conditions(pod_conditions: Iterable[Condition]) -> tuple[bool, str | None, str | None, str | None, bool]:
    """Return (ready, ready since, unschedulable since, resize reason, preempted) of a pod.

    ``ready`` is False only if there is a Ready condition that is not True. The times are the last transitions of the
    Ready condition and of PodScheduled with reason Unschedulable, or None. The resize reason is that of
    PodResizePending, or None. ``preempted`` is whether DisruptionTarget has the reason PreemptionByScheduler
    (``pkg/scheduler/framework/preemption/executor.go``).
    """
    ready, ready_since, unschedulable_since, resize, preempted = True, None, None, None, False
    for condition in pod_conditions:
        kind = condition.type
        if kind == "Ready":
            ready = condition.status == "True"
            ready_since = condition.last_transition_time if ready else None
        elif kind == "PodScheduled":
            if condition.status == "False" and condition.reason == "Unschedulable":
                unschedulable_since = condition.last_transition_time or ""
        elif kind == RESIZE_PENDING and resize is None:
            resize = condition.reason
        elif kind == "DisruptionTarget":
            preempted = condition.status == "True" and condition.reason == "PreemptionByScheduler"
    return ready, ready_since, unschedulable_since, resize, preempted


#: Prefixes of the pod annotations that are read; all others are dropped.
POD_ANNOTATIONS: Final = (
    "autoscaling.cast.ai/removal-disabled",
    "cluster-autoscaler.kubernetes.io/",
    "karpenter.sh/disruption-cost",
    "karpenter.sh/do-not-",
    "controller.kubernetes.io/pod-deletion-cost",
    "batch.kubernetes.io/job-index-failure-count",
    "descheduler.alpha.kubernetes.io/prefer-no-eviction",
    "gang.scheduling.koordinator.sh/",
    "kueue.x-k8s.io/pod-group-",
    "leaderworkerset.sigs.k8s.io/size",
    "scheduling.k8s.io/group-name",
    "scheduling.volcano.sh/group-name",
    "kubernetes.io/config.mirror",
    "spot-rescheduler/",
    "vpaUpdates",
)

#: Shared by pods without annotations that are read.
NO_ANNOTATIONS: Final[Mapping[str, str]] = {}


def pod_annotations(annotations: Mapping[str, str]) -> Mapping[str, str]:
    """Return the pod *annotations* that are read. Pods without any share one empty mapping."""
    read = {key: value for key, value in annotations.items() if key.startswith(POD_ANNOTATIONS)}
    return read or NO_ANNOTATIONS


def _sets_node_name(meta: RawMeta) -> bool:
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


def class_key(text: bytes) -> bytes:
    """Return the key of the class of the pods with this shared *text*. It leaves out owners and the status.

    Parts are separated by NUL, which cannot occur in JSON.
    """
    pod = RAW_PODS.decode(text)
    meta, spec = pod.metadata, pod.spec
    terminating = _ABSENT if meta.deletion_timestamp is None else _TERMINATING
    parts: list[Raw | bytes] = [meta.namespace, meta.labels, terminating]
    parts += astuple(spec)[4:]
    for volume in filter(_is_read, spec.volumes):
        parts += astuple(volume)[:-4]
        if volume.projected is not None:
            parts.append(volume.projected.sources)
    for containers in (spec.containers, spec.init_containers):
        parts.append(_END)
        for container in containers:
            parts += astuple(container)
    if _needs_name(spec):
        parts += (_END, msgspec.json.encode(meta.name))
    return b"\0".join(parts)


def _is_read(volume: RawVolume) -> bool:
    """Return whether *volume* is not of a type that no code reads."""
    if volume.projected is not None:
        return volume.projected.sources is not _ABSENT
    return volume.config_map is volume.secret is volume.downward_api is None


def _has_options(container: RawContainer) -> bool:
    if container.volume_mounts is _ABSENT:
        return False
    mounts = bytes(container.volume_mounts)
    return _MOUNT_OPTIONS in mounts or _RECURSIVE in mounts


# A pod is split into the fields of its own and the JSON of the others, which equal pods share. So the cost of a list of
# 150,000 pods is one scan of its bytes and one decode for each of a few thousand texts.

#: Stands for the name of any node in a shared text.
_BOUND: Final = "-"
#: Stands for any time of deletion in a shared text.
_DELETED: Final = ""
#: The start of the name of the volume that the API server adds for the ServiceAccount's token. Random letters follow.
_TOKEN: Final = b'"kube-api-access-'
_ANY_TOKEN: Final = Raw(_TOKEN + b'"')

#: Splits the raw labels of a bound pod, as :func:`split_labels` does.
LabelSplitter: TypeAlias = Callable[[bytes], tuple[bytes, LabelPairs]]


class Own(msgspec.Struct, frozen=True, gc=False, array_like=True):
    """The fields of a :class:`Pod` that differ between equal pods."""

    name: str
    uid: str
    node_name: str
    added_labels: LabelPairs
    annotations: Mapping[str, str]
    phase: str
    deletion_timestamp: str | None
    creation_timestamp: str | None
    start_time: str | None
    ready: bool
    ready_since: str | None
    unschedulable_since: str | None
    nominated_node_name: str
    restarts: int  #: 0 unless they count as failures of a Job
    preempted: bool
    refused: str
    assigned: bool
    generation: int


def split(raw: bytes | Raw | memoryview, labels_of: LabelSplitter) -> tuple[Own, bytes]:
    """Split the JSON of a pod into its own fields, and the JSON of a pod with the fields that equal pods share.

    Fields that no code reads are in neither. Raises msgspec.MsgspecError.
    """
    pod = RAW_PODS.decode(raw)
    meta, spec, status = pod.metadata, pod.spec, pod.status
    added: LabelPairs = ()
    if spec.node_name and BOUND_PREFIX in bytes(meta.labels):
        labels, added = labels_of(bytes(meta.labels))
        meta.labels = Raw(labels) if labels else _ABSENT
    ready, ready_since, unschedulable_since, resize, preempted = conditions(status.conditions)
    restarts, started = _take_restarts(status)
    if ready_since is not None and started > ready_since:
        ready_since = started  # a kubelet may restart a container so fast that the condition stays True
    own = Own(
        meta.name,
        meta.uid,
        spec.node_name,
        added,
        pod_annotations(meta.annotations),
        status.phase,
        meta.deletion_timestamp,
        meta.creation_timestamp,
        status.start_time,
        ready,
        ready_since,
        unschedulable_since,
        "" if spec.node_name else status.nominated_node_name,
        restarts if restarts and bytes(spec.restart_policy) == _ON_FAILURE else 0,
        preempted,
        _refusal(raw) if status.phase == "Failed" else "",
        _sets_node_name(meta),
        meta.generation,
    )
    _blank_meta(meta, named=_needs_name(spec))
    _blank_spec(spec)
    _blank_status(status, resize)
    return own, msgspec.json.encode(pod)


def rejoined(own: Own, text: bytes) -> bytes:
    """Return JSON of the pod that was split into *own* and *text*, with its name, node and phase, for an error."""
    pod = RAW_PODS.decode(text)
    pod.metadata.name, pod.spec.node_name, pod.status.phase = own.name, own.node_name, own.phase
    return msgspec.json.encode(pod)


def _needs_name(spec: RawSpec) -> bool:
    """Return whether the class depends on the pod's name.

    The name of a generic ephemeral volume's claim contains it, and so do reasons about resource claims.
    """
    if spec.resource_claims is not _ABSENT:
        return True
    for volume in spec.volumes:  # noqa: SIM110 - any() takes four times as long, and this is done for each pod
        if volume.ephemeral is not _ABSENT:
            return True
    return False


def _blank_meta(meta: RawMeta, *, named: bool) -> None:
    if not named:
        meta.name = ""
    meta.uid, meta.annotations, meta.generation, meta.managed_fields = "", {}, 0, _ABSENT
    meta.creation_timestamp = None
    if meta.deletion_timestamp is not None:
        meta.deletion_timestamp = _DELETED


def _blank_spec(spec: RawSpec) -> None:
    if spec.node_name:
        spec.node_name = _BOUND
    for volume in spec.volumes:
        if volume.projected is not None:
            if _CERTIFICATE not in bytes(volume.projected.sources):
                volume.projected.sources = _ABSENT
            if bytes(volume.name).startswith(_TOKEN):
                volume.name = _ANY_TOKEN
    for containers in (spec.containers, spec.init_containers):
        for container in containers:
            # The names of mounted volumes differ between equal pods.
            if container.volume_mounts is not _ABSENT and not _has_options(container):
                container.volume_mounts = _ABSENT


def _blank_status(status: RawStatus, resize: str | None) -> None:
    status.phase = status.nominated_node_name = ""
    status.start_time = None
    status.conditions = [] if resize is None else [Condition(type=RESIZE_PENDING, reason=resize)]


def _refusal(raw: bytes | Raw | memoryview) -> str:
    """Return why the kubelet did not admit a pod that has failed, or "".

    No container of such a pod has run (``rejectPod`` in ``pkg/kubelet/kubelet.go``).
    """
    status = _FAILED_PODS.decode(raw).status
    if not status.reason or status.reason in _ENDED or status.container_statuses:
        return ""
    return one_line(f"{status.reason}: {status.message}" if status.message else status.reason)


def _take_restarts(status: RawStatus) -> tuple[int, str]:
    """Return the restarts of all containers and the time of the last start, or "", and remove them from *status*."""
    restarts, started = 0, ""
    for containers in (status.container_statuses, status.init_container_statuses):
        for container in containers:
            if container.restart_count:
                restarts += container.restart_count
                container.restart_count = 0
            if (state := container.state) is not None:
                if state.running is not None and (at := state.running.started_at) is not None and at > started:
                    started = at
                container.state = None
    return restarts, started
