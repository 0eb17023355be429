"""Pods in protobuf: the bytes of the scheduling fields are the key of the pod's class.

Works as the JSON side does (:mod:`predicates.wire`): only the first pod of a class is read whole.
"""

from collections.abc import Callable, Hashable, Iterable

from predicates.objects import OwnerReference, Pod, PodObject
from predicates.wire import POD_ANNOTATIONS, Interner
from rescheduler.kube import schema
from rescheduler.kube.proto_structs import moment

#: Volumes that nothing reads; the API server gives some of them a name of their own in every pod.
_BORING = ("projected", "configMap", "secret", "downwardAPI")


class PodReader:
    """Reads pods into one interner. Used by one thread."""

    def __init__(self, interner: Interner, whole: Callable[[schema.Pod], PodObject]) -> None:
        self._interner = interner
        self._whole = whole

    def read(self, raw: bytes) -> Pod:
        """One pod. Raises protobuf's DecodeError, or ValueError for a quantity that is none."""
        seen = schema.PodKey.FromString(raw)
        meta, spec, status = seen.metadata, seen.spec, seen.status
        key = _class_key(meta, spec)
        cls = self._interner.pod_class(key, lambda: self._pod(raw))
        taken = cls.requests
        if (given := _load_key(status)) is not None:
            taken = self._interner.load(cls, (key, given), lambda: self._pod(raw))
        ready, unschedulable_since = _conditions(status.conditions)
        return Pod(
            namespace=cls.namespace,
            name=meta.name,
            uid=meta.uid,
            node_name=self._interner.string(spec.nodeName),
            cls=cls,
            load=taken,
            owner=next((_owner(one) for one in meta.ownerReferences if one.controller), None),
            annotations={k: v for k, v in meta.annotations.items() if k.startswith(POD_ANNOTATIONS)},
            phase=self._interner.string(status.phase),
            deletion_timestamp=moment(meta.deletionTimestamp),
            creation_timestamp=moment(meta.creationTimestamp),
            start_time=moment(status.startTime),
            ready=ready,
            unschedulable_since=unschedulable_since,
        )

    def _pod(self, raw: bytes) -> PodObject:
        return self._whole(schema.Pod.FromString(raw))


def _owner(given: schema.OwnerReference) -> OwnerReference:
    return OwnerReference(
        kind=given.kind, name=given.name, uid=given.uid, api_version=given.apiVersion, controller=True
    )


def _class_key(meta: schema.MetaKey, spec: schema.SpecKey) -> Hashable:
    volumes = tuple(
        one.SerializeToString() for one in spec.volumes if not any(one.volumeSource.HasField(kind) for kind in _BORING)
    )
    # A generic ephemeral volume's claim is called after the pod, and so is what lacks a resource claim.
    named = bool(spec.resourceClaims) or any(one.volumeSource.HasField("ephemeral") for one in spec.volumes)
    return (
        meta.namespace,
        tuple(meta.labels),
        bool(meta.deletionTimestamp.seconds),
        meta.name if named else None,
        volumes,
        tuple(map(_container_key, spec.containers)),
        tuple(map(_container_key, spec.initContainers)),
        tuple(spec.nodeSelector),
        spec.affinity,
        tuple(spec.tolerations),
        tuple(spec.topologySpreadConstraints),
        tuple(spec.overhead),
        spec.resources,
        tuple(spec.schedulingGates),
        tuple(spec.resourceClaims),
        spec.priority if spec.HasField("priority") else None,
        spec.schedulerName,
        spec.terminationGracePeriodSeconds if spec.HasField("terminationGracePeriodSeconds") else None,
        spec.hostNetwork,
        spec.hostUsers if spec.HasField("hostUsers") else None,
        spec.restartPolicy,
        spec.os,
    )


def _container_key(one: schema.ContainerKey) -> Hashable:
    return (
        one.name,
        one.image,
        one.resources,
        tuple(one.ports),
        one.restartPolicy,
        tuple(one.restartPolicyRules),
    )


def _load_key(status: schema.StatusKey) -> Hashable | None:
    """The bytes that decide what the pod takes beside its class; None where the status says nothing."""
    statuses = tuple(
        (one.name, one.resources, tuple(one.allocatedResources))
        for many in (status.containerStatuses, status.initContainerStatuses)
        for one in many
        if one.HasField("resources")
    )
    if not statuses and not status.HasField("resources"):
        return None
    resize = next((one.reason for one in status.conditions if one.type == "PodResizePending"), None)
    return statuses, status.resources, tuple(status.allocatedResources), resize


def _conditions(conditions: Iterable[schema.PodCondition]) -> tuple[bool, str | None]:
    """Whether nothing says that the pod is not ready, and since when the scheduler finds no place for it."""
    ready, since = True, None
    for one in conditions:
        if one.type == "Ready":
            ready = one.status == "True"
        elif one.type == "PodScheduled" and one.status == "False" and one.reason == "Unschedulable":
            since = moment(one.lastTransitionTime) or ""
    return ready, since
