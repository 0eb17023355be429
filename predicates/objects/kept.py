"""Pods as we keep them: what schedules alike shares one :class:`PodClass`."""

from collections.abc import Mapping
from typing import Final, TypeAlias

import msgspec

from predicates.objects.devices import DeviceClass, ResourceClaim
from predicates.objects.meta import Amounts, OwnerReference
from predicates.objects.nodes import Node
from predicates.objects.pods import PodAffinity, PodAffinityTerm, PodSpec, Volume
from predicates.objects.storage import (
    CSIDriver,
    CSINode,
    CSIStorageCapacity,
    Namespace,
    PersistentVolume,
    PersistentVolumeClaim,
    PodDisruptionBudget,
    StorageClass,
    VolumeAttachment,
)

#: Phases of pods that take no room any more.
FINISHED: Final = ("Succeeded", "Failed")


class HostPort(msgspec.Struct, frozen=True, gc=False):
    protocol: str
    ip: str
    port: int


class Claim(msgspec.Struct, frozen=True, gc=False):
    """A PersistentVolumeClaim that a pod uses, in the pod's namespace."""

    name: str
    ephemeral: bool  #: made for this very pod from a template in its spec
    pod: str = ""  #: the name of that pod; "" unless ephemeral


class PodClass(msgspec.Struct, frozen=True, eq=False, kw_only=True):
    """What the scheduler may know of a pod before it has a node. Pods that schedule alike share one object.

    Classes are interned (:class:`predicates.wire.Interner`) and compare by identity, so a dict keyed by class
    costs nothing to look up, and work done for a class is done once for all its pods.
    """

    namespace: str
    labels: Mapping[str, str]
    requests: Amounts  #: cpu in thousandths, everything else in units; sorted; zeros left out
    nonzero: tuple[int, int]  #: cpu (thousandths) and memory with the scheduler's scoring defaults filled in
    spec: PodSpec  #: of one pod of the class; ``nodeName`` is blank unless the class is pinned
    ports: tuple[HostPort, ...] = ()
    claims: tuple[Claim, ...] = ()
    disks: tuple[Volume, ...] = ()  #: the volumes that name a disk in the pod itself, in their order
    terminating: bool = False  #: being deleted: topology spread does not count it, pod affinity does
    name: str = ""  #: the pod's, where the verdict names it (resource claims): a class of its own

    @property
    def affinity_terms(self) -> tuple[PodAffinityTerm, ...]:
        return _required(self.spec.affinity.pod_affinity if self.spec.affinity else None)

    @property
    def anti_affinity_terms(self) -> tuple[PodAffinityTerm, ...]:
        return _required(self.spec.affinity.pod_anti_affinity if self.spec.affinity else None)


def _required(affinity: PodAffinity | None) -> tuple[PodAffinityTerm, ...]:
    return affinity.required if affinity else ()


class Pod(msgspec.Struct, frozen=True, eq=True, kw_only=True):
    """One pod, without what nobody reads."""

    namespace: str
    name: str
    uid: str
    node_name: str  #: "" while it has no node
    cls: PodClass
    load: Amounts  #: what it takes on its node; other than ``cls.requests`` only around an in-place resize
    owner: OwnerReference | None = None  #: the owner with ``controller: true``
    annotations: Mapping[str, str] = {}
    phase: str = ""
    deletion_timestamp: str | None = None
    creation_timestamp: str | None = None
    start_time: str | None = None
    ready: bool = True  #: False where its Ready condition says anything but True
    ready_since: str | None = None  #: when its Ready condition became True; None where it is not, or unknown
    unschedulable_since: str | None = None  #: when the scheduler first said ``Unschedulable``

    @property
    def key(self) -> str:
        """``namespace/name``"""
        return f"{self.namespace}/{self.name}"

    @property
    def finished(self) -> bool:
        """It has ended and takes no room: neither the scheduler nor a drain counts it."""
        return self.phase in FINISHED


Object: TypeAlias = (
    Node
    | Pod
    | Namespace
    | PersistentVolume
    | PersistentVolumeClaim
    | StorageClass
    | CSINode
    | CSIDriver
    | CSIStorageCapacity
    | VolumeAttachment
    | PodDisruptionBudget
    | ResourceClaim
    | DeviceClass
)
