"""What is read of the cluster, and where the API serves it."""

from dataclasses import dataclass
from typing import Final


@dataclass(frozen=True, slots=True)
class Resource:
    """A kind's collection over all namespaces, or over the one that is in the *path*.

    An *optional* one that the API server does not serve (404) counts as empty, with one warning. Any other must be
    readable before anything is decided, and so must an optional one that is served: a missing right is no "empty".
    """

    kind: str
    path: str
    optional: bool = False
    selector: str = ""  #: of labels; objects without them are as good as absent
    fields: str = ""  #: a selector of fields

    @property
    def plural(self) -> str:
        """The name in permissions and messages: ``pods``."""
        return self.path.rpartition("/")[2]

    @property
    def query(self) -> dict[str, str]:
        """What lists and watches add to the path."""
        selectors = {"labelSelector": self.selector, "fieldSelector": self.fields}
        return {name: text for name, text in selectors.items() if text}


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
