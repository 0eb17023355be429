"""What is read of the cluster, and where the API serves it."""

from dataclasses import dataclass
from typing import Final


@dataclass(frozen=True, slots=True)
class Resource:
    """A kind's collection over all namespaces, or over the one that is in the *path*.

    Without an *optional* one the daemon still works: where it is not served or not permitted, it counts as
    empty, once with a warning. Without any other there is no truthful plan.
    """

    kind: str
    path: str
    optional: bool = False
    selector: str = ""  #: of labels; objects without them are as good as absent

    @property
    def plural(self) -> str:
        """The name in permissions and messages: ``pods``."""
        return self.path.rpartition("/")[2]

    @property
    def query(self) -> dict[str, str]:
        """What lists and watches add to the path."""
        return {"labelSelector": self.selector} if self.selector else {}


#: In the order in which changes are taken into the snapshot: what others refer to comes first.
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
