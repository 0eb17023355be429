"""The objects of Cluster API and of OpenShift's Machine API, as they are read."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

import msgspec

from predicates.objects.api import Condition, ObjectMeta, VersionedMeta, VersionedStatus, Wire
from rescheduler.providers.base import NodeRef, ObjectVersion


@dataclass(frozen=True, slots=True)
class MachineApi:
    """An API group with Machines and MachineSets."""

    group: str
    versions: tuple[str, ...]  #: newest first
    marks: tuple[str, ...]  #: annotations of a Machine that goes first, of all versions of the controller
    has_clusters: bool  #: and MachineDeployments

    def key(self, meta: ObjectMeta) -> str:
        return f"{self.group}/{meta.namespace}/{meta.name}"

    def key_of(self, node: NodeRef) -> str:
        """Return the key of the Machine that the annotations of *node* name, or ""."""
        name = node.annotations.get(f"{self.group}/machine", "")
        namespace = node.annotations.get(f"{self.group}/cluster-namespace")
        return f"{self.group}/{namespace}/{name}" if name and namespace else f"{self.group}/{name}" if name else ""


CLUSTER_API: Final = MachineApi(
    "cluster.x-k8s.io",
    ("v1beta2", "v1beta1"),
    ("cluster.x-k8s.io/delete-machine",),
    has_clusters=True,
)
OPENSHIFT: Final = MachineApi(
    "machine.openshift.io",
    ("v1beta1",),
    ("machine.openshift.io/delete-machine", "machine.openshift.io/cluster-api-delete-machine"),
    has_clusters=False,
)
APIS: Final = (CLUSTER_API, OPENSHIFT)


class NodeReference(Wire, frozen=True):
    name: str = ""


class MachineSpec(Wire, frozen=True):
    cluster_name: str = ""
    provider_id: str | None = msgspec.field(default=None, name="providerID")


class MachineStatus(Wire, frozen=True):
    node_ref: NodeReference | None = None
    error_reason: str | None = None
    error_message: str | None = None
    failure_reason: str | None = None
    failure_message: str | None = None
    conditions: tuple[Condition, ...] = ()


class CapiMachine(Wire, frozen=True):
    """A Machine of either API."""

    metadata: ObjectMeta
    spec: MachineSpec = MachineSpec()
    status: MachineStatus = MachineStatus()


class ScaledSpec(Wire, frozen=True):
    replicas: int | None = None
    cluster_name: str = ""
    paused: bool | None = None
    delete_policy: str = ""  #: of OpenShift


class ScaledStatus(VersionedStatus, frozen=True):
    authoritative_api: str = msgspec.field(default="", name="authoritativeAPI")


class Scaled(Wire, frozen=True):
    """A MachineSet or a MachineDeployment."""

    metadata: VersionedMeta
    spec: ScaledSpec = ScaledSpec()
    status: ScaledStatus = ScaledStatus()


class TopologyDeployment(Wire, frozen=True):
    name: str = ""
    replicas: int | None = None


class Workers(Wire, frozen=True):
    machine_deployments: tuple[TopologyDeployment, ...] = ()


class ClusterTopology(Wire, frozen=True):
    workers: Workers = Workers()


class ClusterSpec(Wire, frozen=True):
    paused: bool | None = None
    topology: ClusterTopology = ClusterTopology()


class Cluster(Wire, frozen=True):
    metadata: ObjectMeta
    spec: ClusterSpec = ClusterSpec()


@dataclass(frozen=True, slots=True)
class ApiObjects:
    """All objects of an API; *version* is the one that is served."""

    api: MachineApi
    version: str
    machines: Sequence[CapiMachine]
    sets: Sequence[Scaled]
    deployments: Sequence[Scaled] = ()
    clusters: Sequence[Cluster] = ()

    def object(self, kind: str, meta: ObjectMeta) -> ObjectVersion:
        path = f"/apis/{self.api.group}/{self.version}/namespaces/{meta.namespace}/{kind}/{meta.name}"
        return ObjectVersion(path, meta.uid, meta.resource_version)
