"""Pods in protobuf: the bytes of the scheduling fields are the key of the pod's class.

Works as the JSON side does (:mod:`predicates.wire`): only the first pod of a class is read whole.
"""

from collections.abc import Callable, Hashable

from predicates.conditions import conditions
from predicates.objects import Pod, PodObject
from predicates.wire import POD_ANNOTATIONS, Interner
from rescheduler.kube import schema
from rescheduler.kube.proto_structs import moment


class PodReader:
    """Reads pods into one interner. Used by one thread."""

    def __init__(self, interner: Interner, whole: Callable[[schema.Pod], PodObject]) -> None:
        self._interner = interner
        self._whole = whole

    def read(self, raw: bytes) -> Pod:
        """One pod. Raises protobuf's DecodeError, or ValueError for a quantity that is none."""
        seen = schema.PodKey.FromString(raw)
        meta, node_name = seen.metadata, seen.spec.nodeName
        status = schema.StatusKey.FromString(seen.status)
        ready, ready_since, unschedulable_since, resize = conditions(status.conditions, _since)
        given = schema.LoadKey.FromString(seen.status)
        given.DiscardUnknownFields()
        cls, taken, owner = self._interner.shared(
            _class_key(meta, seen.spec),
            (tuple(meta.ownerReferences), given.SerializeToString(), resize),
            lambda: self._whole(schema.Pod.FromString(raw)),
        )
        return Pod(
            namespace=cls.namespace,
            name=meta.name,
            uid=meta.uid,
            node_name=self._interner.string(node_name),
            cls=cls,
            load=taken,
            owner=owner,
            annotations={k: v for k, v in meta.annotations.items() if k.startswith(POD_ANNOTATIONS)},
            phase=self._interner.string(status.phase),
            deletion_timestamp=moment(meta.deletionTimestamp),
            creation_timestamp=moment(meta.creationTimestamp),
            start_time=moment(status.startTime),
            ready=ready,
            ready_since=ready_since,
            unschedulable_since=unschedulable_since,
        )


def _class_key(meta: schema.MetaKey, spec: schema.SpecKey) -> Hashable:
    """All that decides the class. Takes what does not out of *spec*, and what is left in one piece."""
    spec.DiscardUnknownFields()
    volumes = [one for one in spec.volumes if one.volumeSource.WhichOneof("unread") is None]
    # A generic ephemeral volume's claim is called after the pod, and so is what lacks a resource claim.
    named = bool(spec.resourceClaims) or any(one.volumeSource.HasField("ephemeral") for one in volumes)
    read = tuple(one.SerializeToString() for one in volumes) if volumes else ()
    spec.ClearField("volumes")
    spec.ClearField("nodeName")
    return (
        meta.namespace,
        tuple(meta.labels),
        meta.deletionTimestamp.seconds > 0,
        meta.name if named else None,
        read,
        spec.SerializeToString(),
    )


def _since(condition: schema.PodCondition) -> str | None:
    return moment(condition.lastTransitionTime)
