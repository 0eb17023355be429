"""Decode pods in protobuf. The bytes of the scheduling fields are the key of the pod's class.

As for JSON (:mod:`predicates.wire`), only the first pod of a class is decoded completely.
"""

from collections.abc import Callable, Hashable
from typing import Final

from predicates.bound_labels import BOUND_LABELS, LabelPairs, bound_labels
from predicates.conditions import conditions
from predicates.objects import Pod, PodObject
from predicates.pod_keys import BOUND_PREFIX
from predicates.wire import Interner, pod_annotations
from rescheduler.kube import schema
from rescheduler.kube.proto_structs import moment

_NONE: Final[LabelPairs] = ()


class PodReader:
    """A decoder of pods with a shared interner. Used by one thread."""

    def __init__(self, interner: Interner, whole: Callable[[schema.Pod], PodObject]) -> None:
        self._interner = interner
        self._whole = whole

    def read(self, raw: bytes) -> Pod:
        """Decode one pod. Raises protobuf's DecodeError, or ValueError for an invalid quantity."""
        pod = schema.PodKey.FromString(raw)
        meta, node_name = pod.metadata, pod.spec.nodeName
        status = schema.StatusKey.FromString(pod.status)
        ready, ready_since, unschedulable_since, resize = conditions(status.conditions, _transition_time)
        labels, added = tuple(meta.labels), _NONE
        if node_name and BOUND_PREFIX in b"".join(labels):
            labels, added = self._interner.labels(labels, _split_labels)
        load = schema.LoadKey.FromString(pod.status)
        load.DiscardUnknownFields()
        cls, taken, owner = self._interner.shared(
            _class_key(meta, labels, pod.spec),
            (tuple(meta.ownerReferences), load.SerializeToString(), resize),
            lambda: self._whole(schema.Pod.FromString(raw)),
        )
        return Pod(
            namespace=cls.namespace,
            name=meta.name,
            uid=meta.uid,
            node_name=self._interner.string(node_name),
            cls=cls,
            added_labels=added,
            load=taken,
            owner=owner,
            annotations=pod_annotations(meta.annotations),
            phase=self._interner.string(status.phase),
            deletion_timestamp=moment(meta.deletionTimestamp),
            creation_timestamp=moment(meta.creationTimestamp),
            start_time=moment(status.startTime),
            ready=ready,
            ready_since=ready_since,
            unschedulable_since=unschedulable_since,
        )


def _split_labels(raw: tuple[bytes, ...]) -> tuple[tuple[bytes, ...], LabelPairs]:
    """Split the *raw* labels of a bound pod into its own labels and the labels that the API server added."""
    decoded = [(entry, _labels(entry)) for entry in raw]
    own = tuple(entry for entry, label in decoded if label.keys().isdisjoint(BOUND_LABELS))
    return own, bound_labels(_labels(*raw))


def _labels(*entries: bytes) -> dict[str, str]:
    meta = schema.ObjectMeta.FromString(schema.MetaKey(labels=entries).SerializeToString())
    return dict(meta.labels)


def _class_key(meta: schema.MetaKey, labels: tuple[bytes, ...], spec: schema.SpecKey) -> Hashable:
    """Return the key of the pod's class, which has these raw *labels*.

    Removes the fields of *spec* that do not affect scheduling.
    """
    spec.DiscardUnknownFields()
    volumes = [volume for volume in spec.volumes if volume.volumeSource.WhichOneof("unread") is None]
    # The claims of generic ephemeral volumes, and errors about missing resource claims, contain the pod's name.
    named = bool(spec.resourceClaims) or any(volume.volumeSource.HasField("ephemeral") for volume in volumes)
    read = tuple(volume.SerializeToString() for volume in volumes) if volumes else ()
    spec.ClearField("volumes")
    spec.ClearField("nodeName")
    return (
        meta.namespace,
        labels,
        meta.deletionTimestamp.seconds > 0,
        meta.name if named else None,
        read,
        spec.SerializeToString(),
    )


def _transition_time(condition: schema.PodCondition) -> str | None:
    return moment(condition.lastTransitionTime)
