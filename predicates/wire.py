"""Decodes objects from the JSON of the API server or of ``kubectl get -o json``."""

import contextlib
import hashlib
import json
import re
from collections.abc import Callable, Mapping
from functools import cache
from typing import Any, Final, NamedTuple

import msgspec
from msgspec import Raw, inspect

from predicates import objects as api
from predicates.objects import Object, OwnerReference, Pod, PodClass, PodObject, Unreadable, pod_node_name
from predicates.pod_classes import (
    NO_ANNOTATIONS,
    LabelPairs,
    Own,
    PodAmounts,
    class_key,
    pod_amounts,
    pod_class,
    rejoined,
    resource_fields,
    split,
    split_labels,
)
from predicates.quantity import QuantityError
from predicates.requests import parsed
from predicates.texts import shown

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

#: The kinds of items in a snapshot file. Groups of pods are not read like other kinds: see ``kube/unwatched.py``.
FILE_KINDS: Final[Mapping[str, type[Object]]] = {
    **KINDS,
    "PodGroup": api.PodGroup,
    "CompositePodGroup": api.CompositePodGroup,
    "Workload": api.GangWorkload,
    "LeaderWorkerSet": api.LeaderWorkerSet,
    "NodePool": api.NodePool,
    "MachineSet": api.MachineSet,
    "MachineDeployment": api.MachineSet,
    "CapacityBuffer": api.CapacityBuffer,
    "PodTemplate": api.PodTemplateObject,
    "AutoscalerGroups": api.AutoscalerGroups,
    "ServerVersion": api.ServerVersion,
}

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
        self._classes: dict[bytes, PodClass] = {}
        self._shared: dict[bytes, Shared] = {}
        self._amounts: dict[bytes, PodAmounts] = {}
        self._strings: dict[str, str] = {}
        self._labels: dict[bytes, tuple[bytes, LabelPairs]] = {}

    def shared(self, text: bytes) -> Shared:
        """Return what the pods with this shared *text* (see :func:`split`) have in common. It is decoded if it is new.

        Raises the errors of decoding.
        """
        if (shared := self._shared.get(text)) is None:
            shared = self._shared[text] = self._intern(text)
        return shared

    def _intern(self, text: bytes) -> Shared:
        pod = _PODS.decode(text)
        fields = resource_fields(pod)
        if (amounts := self._amounts.get(fields)) is None:
            amounts = self._amounts[fields] = pod_amounts(pod)
        # Keys are as long as the texts, and looked up once for each text, so only their digests are kept.
        key = hashlib.sha256(class_key(text)).digest()
        if (cls := self._classes.get(key)) is None:
            cls = self._classes[key] = pod_class(pod, amounts)
        loads = amounts.loads if any(load != amounts.new for load in amounts.loads) else ()
        controller = pod.metadata.controller
        fault = "" if controller is None else controller.fault
        return Shared(cls, loads, None if fault else controller, fault)

    def string(self, text: str) -> str:
        """Return the interned copy of *text*; used for node names and phases."""
        return self._strings.setdefault(text, text)

    def labels(self, raw: bytes) -> tuple[bytes, LabelPairs]:
        """Split *raw* labels as :func:`split_labels` does. The result is kept."""
        if (labels := self._labels.get(raw)) is None:
            labels = self._labels[raw] = split_labels(raw)
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


#: Raised for an object that cannot be decoded.
_ERRORS: Final = (msgspec.MsgspecError, QuantityError, UnicodeDecodeError, RecursionError)


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
        except _ERRORS as error:
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
        own, text = split(raw, self._interner.labels)
        return self.joined(own, self._interner.shared(text))

    def shared(self, text: bytes) -> Shared:
        """Return what the pods with this shared *text* have in common. Raises :data:`_ERRORS`."""
        try:
            return self._interner.shared(text)
        except msgspec.ValidationError:
            return self._interner.shared(self._without_nulls("Pod", text))

    def joined(self, own: Own, shared: Shared) -> Pod:
        """Return the pod that was split into *own* and *shared*."""
        return Pod(
            namespace=shared.cls.namespace,
            name=own.name,
            uid=own.uid,
            node_name=self._interner.string(own.node_name),
            cls=shared.cls,
            added_labels=own.added_labels,
            loads=shared.loads,
            owner=shared.owner,
            owner_fault=shared.owner_fault,
            annotations=own.annotations or NO_ANNOTATIONS,
            phase=self._interner.string(own.phase),
            deletion_timestamp=own.deletion_timestamp,
            creation_timestamp=own.creation_timestamp,
            start_time=own.start_time,
            ready=own.ready,
            ready_since=own.ready_since,
            unschedulable_since=own.unschedulable_since,
            nominated_node_name=own.nominated_node_name,
            restarts=own.restarts,
            preempted=own.preempted,
            refused=own.refused,
            assigned=own.assigned,
            generation=own.generation,
        )


class SplitPods:
    """Decodes pods that another process has split. Each shared text is added once, and has a number from then on."""

    def __init__(self, decoder: Decoder) -> None:
        self._decoder = decoder
        self._groups: list[Shared | tuple[bytes, str]] = []  #: by number; the text and the error if it is invalid

    def add(self, text: bytes) -> None:
        """Give *text* the next number."""
        try:
            self._groups.append(self._decoder.shared(text))
        except _ERRORS as error:
            self._groups.append((text, str(error)))

    def pod(self, own: Own, number: int) -> Pod:
        """Return the pod that was split into *own* and the text with this *number*. Raises :class:`WireError`."""
        group = self._groups[number]
        if isinstance(group, Shared):
            return self._decoder.joined(own, group)
        text, error = group
        raise WireError(unreadable("Pod", rejoined(own, text), error))


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
