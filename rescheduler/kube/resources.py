"""The resources that are read from the cluster, and their API paths."""

from dataclasses import dataclass
from typing import Final


@dataclass(frozen=True, slots=True)
class Resource:
    """The collection of a kind in all namespaces, or in the namespace in *path*.

    An *optional* resource that the API server does not serve (404) counts as empty, with one warning. All others,
    and optional ones that are served, must be readable before decisions are made: a missing permission does not mean
    that there are no objects.
    """

    kind: str
    path: str
    optional: bool = False
    selector: str = ""  #: label selector
    fields: str = ""  #: field selector

    @property
    def plural(self) -> str:
        """The resource name in permissions and messages, for example ``pods``."""
        return self.path.rpartition("/")[2]

    @property
    def api_version(self) -> str:
        """The value of ``apiVersion`` of the objects, for example ``apps/v1``."""
        return self.path.removeprefix("/apis/").removeprefix("/api/").rpartition("/")[0]

    @property
    def query(self) -> dict[str, str]:
        """The query parameters of lists and watches."""
        selectors = {"labelSelector": self.selector, "fieldSelector": self.fields}
        return {name: text for name, text in selectors.items() if text}


#: In the order in which changes are applied to the snapshot: referenced kinds come first.
RESOURCES: Final[tuple[Resource, ...]] = (
    Resource("Namespace", "/api/v1/namespaces"),
    Resource("Node", "/api/v1/nodes"),
    Resource("StorageClass", "/apis/storage.k8s.io/v1/storageclasses"),
    Resource("PersistentVolume", "/api/v1/persistentvolumes"),
    Resource("PersistentVolumeClaim", "/api/v1/persistentvolumeclaims"),
    Resource("CSINode", "/apis/storage.k8s.io/v1/csinodes", optional=True),
    Resource("CSIDriver", "/apis/storage.k8s.io/v1/csidrivers", optional=True),
    Resource("CSIStorageCapacity", "/apis/storage.k8s.io/v1/csistoragecapacities", optional=True),
    Resource("VolumeAttachment", "/apis/storage.k8s.io/v1/volumeattachments", optional=True),
    Resource("ResourceClaim", "/apis/resource.k8s.io/v1/resourceclaims", optional=True),
    Resource("DeviceClass", "/apis/resource.k8s.io/v1/deviceclasses", optional=True),
    Resource("PodDisruptionBudget", "/apis/policy/v1/poddisruptionbudgets"),
    Resource("Pod", "/api/v1/pods"),
)

#: Kinds from which replacement pods are derived. Commands read all of them, the daemon reads those of a candidate.
TEMPLATES: Final[tuple[Resource, ...]] = (
    Resource("ReplicaSet", "/apis/apps/v1/replicasets", optional=True),
    Resource("StatefulSet", "/apis/apps/v1/statefulsets", optional=True),
    Resource("ReplicationController", "/api/v1/replicationcontrollers", optional=True),
    Resource("Job", "/apis/batch/v1/jobs", optional=True),
    Resource("LimitRange", "/api/v1/limitranges", optional=True),
    Resource("ResourceQuota", "/api/v1/resourcequotas", optional=True),
    Resource("VerticalPodAutoscaler", "/apis/autoscaling.k8s.io/v1/verticalpodautoscalers", optional=True),
)

#: Everything that commands read.
ALL_RESOURCES: Final = (*TEMPLATES, *RESOURCES)
