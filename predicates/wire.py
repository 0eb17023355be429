"""Decodes objects from the JSON of the API server or of ``kubectl get -o json``."""

import contextlib
import json
import re
from collections.abc import Callable, Hashable, Iterable, Mapping
from functools import cache
from typing import Any, Final, NamedTuple, TypeVar

import msgspec
from msgspec import Raw, inspect

from predicates import objects as api
from predicates.objects import Object, OwnerReference, Pod, PodClass, PodObject, Unreadable, pod_node_name
from predicates.pod_classes import (
    BOUND_PREFIX,
    RAW_PODS,
    LabelPairs,
    PodAmounts,
    class_key,
    own_key,
    pod_amounts,
    pod_class,
    resource_fields,
    restarts,
    sets_node_name,
    split_labels,
)
from predicates.quantity import QuantityError
from predicates.requests import RESIZE_PENDING, parsed
from predicates.texts import shown


def conditions(pod_conditions: Iterable[api.Condition]) -> tuple[bool, str | None, str | None, str | None, bool]:
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


# Removes nulls from JSON as Go decodes them: a null field is unset; a null list item or map value is a zero value.


def without_nulls(value: Any, kind: type[msgspec.Struct]) -> Any:
    """Return *value* (decoded JSON for the struct *kind*) without nulls and unknown fields."""
    return _normalize(value, _type_info(kind))


@cache
def _type_info(kind: type[msgspec.Struct]) -> inspect.Type:
    return inspect.type_info(kind)


def _normalize(value: Any, info: inspect.Type) -> Any:
    info = _matching_type(info, value)
    if isinstance(info, inspect.StructType) and isinstance(value, dict):
        known = {field.encode_name: field.type for field in info.fields}
        return {
            name: _normalize(field, known[name]) for name, field in value.items() if name in known and field is not None
        }
    if isinstance(info, inspect.DictType) and isinstance(value, dict):
        return {key: _normalize_item(item, info.value_type) for key, item in value.items()}
    if isinstance(info, inspect.VarTupleType) and isinstance(value, list):
        return [_normalize_item(item, info.item_type) for item in value]
    return value


def _normalize_item(value: Any, info: inspect.Type) -> Any:
    return _zero_value(info) if value is None else _normalize(value, info)


def _zero_value(info: inspect.Type) -> Any:
    """Return the zero value of the type; 0 for a quantity, which can be text or a number."""
    kinds = info.types if isinstance(info, inspect.UnionType) else (info,)
    for kind, zero in ((inspect.IntType, 0), (inspect.StrType, ""), (inspect.StructType, {})):
        if any(isinstance(candidate, kind) for candidate in kinds):
            return zero
    return None


def _matching_type(info: inspect.Type, value: Any) -> inspect.Type:
    """Return the type in a union that has the same structure as *value*."""
    if not isinstance(info, inspect.UnionType):
        return info
    parts = (inspect.StructType, inspect.DictType) if isinstance(value, dict) else (inspect.VarTupleType,)
    return next((member for member in info.types if isinstance(member, parts)), info)


# Pods are decoded in two steps. First, the raw bytes of the fields that determine the pod class are extracted and used
# as its key. Only the first pod of each class is decoded completely. So the cost of a list of 150,000 pods is one scan
# of its bytes and one decode for each of a few thousand classes, and pods of a class share one object.

#: Prefixes of the pod annotations that are read; all others are dropped.
POD_ANNOTATIONS: Final = (
    "autoscaling.cast.ai/removal-disabled",
    "cluster-autoscaler.kubernetes.io/",
    "karpenter.sh/",
    "batch.kubernetes.io/job-index-failure-count",
    "controller.kubernetes.io/pod-deletion-cost",
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
        api.ReplicaSet,
        api.ReplicationController,
        api.StatefulSet,
        api.Deployment,
        api.Job,
        api.ControllerRevision,
        api.PriorityClass,
        api.RuntimeClass,
        api.LimitRange,
        api.ResourceQuota,
        api.VerticalPodAutoscaler,
    )
}

#: The kinds of items in a snapshot file. Groups of pods are not read like other kinds: see ``kube/pod_groups.py``.
FILE_KINDS: Final[Mapping[str, type[Object]]] = {
    **KINDS,
    "PodGroup": api.PodGroup,
    "Workload": api.GangWorkload,
    "LeaderWorkerSet": api.LeaderWorkerSet,
    "NodePool": api.NodePool,
    "CapacityBuffer": api.CapacityBuffer,
    "PodTemplate": api.PodTemplateObject,
    "AutoscalerGroups": api.AutoscalerGroups,
    "ServerVersion": api.ServerVersion,
}

_NO_ANNOTATIONS: Final[Mapping[str, str]] = {}

_METADATA: Final = re.compile(r'"metadata"\s*:\s*')

#: The quantities of each kind that filters parse later. They are validated on decoding, so errors name the object.
_AMOUNTS: Final[Mapping[str, Callable[[Any], Mapping[str, api.QuantityText | None]]]] = {
    "Node": lambda obj: obj.status.allocatable,
    "PersistentVolume": lambda obj: obj.spec.capacity,
    "PersistentVolumeClaim": lambda obj: obj.spec.resources.requests,
    "CSIStorageCapacity": lambda obj: {"capacity": obj.capacity, "maximumVolumeSize": obj.maximum_volume_size},
}


class WireError(ValueError):
    """An object cannot be decoded. The message names the object, the field and the expected value."""

    def __init__(self, unreadable: Unreadable) -> None:
        super().__init__(unreadable.why)
        self.unreadable = unreadable


#: Created on import: concurrent first use of a msgspec type can crash the process.
_DECODERS: Final = {name: msgspec.json.Decoder(kind) for name, kind in FILE_KINDS.items() if name != "Pod"}
_PODS: Final = msgspec.json.Decoder(PodObject)


_Raw = TypeVar("_Raw", bound=Hashable)


class Shared(NamedTuple):
    """The parts of a pod that are shared with other pods."""

    cls: PodClass
    loads: tuple[api.Load, ...]  #: as :attr:`Pod.loads`
    owner: OwnerReference | None  #: as :attr:`Pod.owner`
    owner_fault: str  #: as :attr:`Pod.owner_fault`


class Interner:
    """The pod classes decoded so far. One per Snapshot.

    Classes are kept for the lifetime of the interner, unless :meth:`forget` drops them.
    """

    def __init__(self) -> None:
        self._classes: dict[Hashable, PodClass] = {}
        self._shared: dict[Hashable, Shared] = {}
        self._amounts: dict[bytes, PodAmounts] = {}
        self._strings: dict[str, str] = {}
        self._labels: dict[Hashable, tuple[Any, LabelPairs]] = {}

    def shared(self, key: Hashable, own: Hashable, decode: Callable[[], PodObject]) -> Shared:
        """Return the shared parts of a pod.

        *key* identifies the class; *own* identifies owners and resources in the status. *decode* returns the complete
        pod; it is called if this combination is new.
        """
        if (shared := self._shared.get((key, own))) is None:
            shared = self._shared[key, own] = self._intern(key, decode())
        return shared

    def _intern(self, key: Hashable, pod: PodObject) -> Shared:
        fields = resource_fields(pod)
        if (amounts := self._amounts.get(fields)) is None:
            amounts = self._amounts[fields] = pod_amounts(pod)
        if (cls := self._classes.get(key)) is None:
            cls = self._classes[key] = pod_class(pod, amounts)
        loads = amounts.loads if any(load != amounts.new for load in amounts.loads) else ()
        controller = next((owner for owner in pod.metadata.owner_references if owner.controller), None)
        fault = "" if controller is None else controller.fault
        return Shared(cls, loads, None if fault else controller, fault)

    def string(self, text: str) -> str:
        """Return the interned copy of *text*; used for node names and phases."""
        return self._strings.setdefault(text, text)

    def labels(self, raw: _Raw, split: Callable[[_Raw], tuple[_Raw, LabelPairs]]) -> tuple[_Raw, LabelPairs]:
        """Split the *raw* labels of a bound pod into its own labels and the labels that the API server added.

        *split* computes the result; it is called if these labels are new.
        """
        if (labels := self._labels.get(raw)) is None:
            labels = self._labels[raw] = split(raw)
        return labels

    def forget(self, used: set[PodClass]) -> None:
        """Drop all classes except those in *used*, and the parts that their pods share."""
        self._classes = {key: pod for key, pod in self._classes.items() if pod in used}
        self._shared = {key: shared for key, shared in self._shared.items() if shared.cls in used}
        self._amounts = {}
        self._strings = {}
        self._labels = {}

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
        struct = PodObject if kind == "Pod" else FILE_KINDS[kind]
        return msgspec.json.encode(without_nulls(msgspec.json.decode(raw), struct))

    def _decode(self, kind: str, raw: bytes | Raw | memoryview) -> Object:
        if kind == "Pod":
            return self._pod(raw)
        obj = _DECODERS[kind].decode(raw)
        if (amounts := _AMOUNTS.get(kind)) is not None:
            parsed(amounts(obj))
        return obj

    def _pod(self, raw: bytes | Raw | memoryview) -> Pod:
        fields = RAW_PODS.decode(raw)
        meta, spec, status = fields.metadata, fields.spec, fields.status
        ready, ready_since, unschedulable_since, resize, preempted = conditions(status.conditions)
        own = own_key(meta, status, resize)
        labels: bytes = bytes(meta.labels)
        added: LabelPairs = ()
        if spec.node_name and BOUND_PREFIX in labels:
            labels, added = self._interner.labels(labels, split_labels)
        key = class_key(meta, labels, spec)
        cls, loads, owner, owner_fault = self._interner.shared(key, own, lambda: _PODS.decode(raw))
        return Pod(
            namespace=cls.namespace,
            name=meta.name,
            uid=meta.uid,
            node_name=self._interner.string(spec.node_name),
            cls=cls,
            added_labels=added,
            loads=loads,
            owner=owner,
            owner_fault=owner_fault,
            annotations=pod_annotations(meta.annotations),
            phase=self._interner.string(status.phase),
            deletion_timestamp=meta.deletion_timestamp,
            creation_timestamp=meta.creation_timestamp,
            start_time=status.start_time,
            ready=ready,
            ready_since=ready_since,
            unschedulable_since=unschedulable_since,
            nominated_node_name="" if spec.node_name else status.nominated_node_name,
            restarts=restarts(spec, status),
            preempted=preempted,
            assigned=sets_node_name(meta),
            generation=meta.generation,
        )


def pod_annotations(annotations: Mapping[str, str]) -> Mapping[str, str]:
    """Return the pod *annotations* that are read. Pods without any share one empty mapping."""
    read = {key: value for key, value in annotations.items() if key.startswith(POD_ANNOTATIONS)}
    return read or _NO_ANNOTATIONS


def unreadable(kind: str, raw: bytes | Raw | memoryview, error: str) -> Unreadable:
    """Return a record of the object *raw* of *kind* that cannot be decoded because of *error*."""
    name = name_of(raw)
    return Unreadable(
        kind, name, f"{kind} {name}: {shown(' '.join(error.split()))}", pod_node_name(raw) if kind == "Pod" else None
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
