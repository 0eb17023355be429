"""Cleanup of a cluster between tests, which is faster than a new cluster for each test."""

from collections.abc import Callable
from dataclasses import dataclass
from http.client import HTTPException

from devcluster import etcd
from devcluster.api import Api
from devcluster.errors import ApiError
from devcluster.plane import INSTALLATION, ControlPlane

#: The namespaces of an empty cluster.
_OWN_NAMESPACES = frozenset({"default", "kube-node-lease", "kube-public", "kube-system", INSTALLATION})
#: Ordered so that no object is recreated or kept alive by an object that is deleted later.
_RESOURCES = (
    "/apis/admissionregistration.k8s.io/v1/validatingwebhookconfigurations",
    "/apis/admissionregistration.k8s.io/v1/mutatingwebhookconfigurations",
    "/apis/admissionregistration.k8s.io/v1/validatingadmissionpolicybindings",
    "/apis/admissionregistration.k8s.io/v1/validatingadmissionpolicies",
    "/apis/apps/v1/deployments",
    "/apis/apps/v1/statefulsets",
    "/apis/apps/v1/daemonsets",
    "/apis/apps/v1/replicasets",
    "/apis/batch/v1/cronjobs",
    "/apis/batch/v1/jobs",
    "/api/v1/replicationcontrollers",
    "/apis/policy/v1/poddisruptionbudgets",
    "/api/v1/pods",
    "/api/v1/persistentvolumeclaims",
    "/apis/coordination.k8s.io/v1/leases",
    "/api/v1/limitranges",
    "/api/v1/resourcequotas",
    "/api/v1/configmaps",
    "/api/v1/serviceaccounts",
    "/api/v1/nodes",
    "/api/v1/persistentvolumes",
    "/apis/storage.k8s.io/v1/storageclasses",
    "/apis/storage.k8s.io/v1/csinodes",
    "/apis/storage.k8s.io/v1/csidrivers",
    "/apis/storage.k8s.io/v1/csistoragecapacities",
    "/apis/storage.k8s.io/v1/volumeattachments",
    "/apis/resource.k8s.io/v1/resourceclaims",
    "/apis/resource.k8s.io/v1/deviceclasses",
    "/apis/scheduling.k8s.io/v1/priorityclasses",
)
#: Names of resources in etcd that differ from those in the API.
_STORED_AS = {"nodes": "minions", "replicationcontrollers": "controllers"}


@dataclass(frozen=True, slots=True)
class _Key:
    """The key of an object in etcd."""

    path: str
    resource: str  #: as etcd names it
    namespace: str
    name: str


def empty(plane: ControlPlane) -> None:
    """Delete all objects that tests create, but no RBAC objects outside their namespaces, and wait until all are gone.

    It removes finalizers from pods, because tests use them for pods that never terminate.
    """
    deleted: set[str] = set()
    plane.wait_for(lambda: _wipe(plane, deleted), "an empty cluster")


def _wipe(plane: ControlPlane, deleted: set[str]) -> bool:
    """Delete objects, and return whether there were none. Controllers need some time to react, so repeat it.

    *deleted* are the namespaces deleted so far; this function adds to them.

    The keys in etcd show which resources have objects. A LIST of each resource would take far longer.
    """
    try:
        keys = [_parsed(key) for key in etcd.keys(plane.etcd_port)]
    except (OSError, HTTPException):
        return False  # etcd was stopped and does not respond yet
    left = [key for key in keys if not _belongs_to_plane(key)]
    objects = [(path, key) for path in _RESOURCES for key in left if key.resource == _stored_as(path)]
    if any(key.resource == "pods" for key in left):
        _remove_finalizers(plane.api)
    for path, key in objects:
        plane.api.delete(_path(path, key), gracePeriodSeconds=0, propagationPolicy="Background")
    # Do not wait for these: controllers create new events for the deletions.
    for namespace in {key.namespace for key in keys if key.resource == "events"}:
        plane.api.delete(f"/api/v1/namespaces/{namespace}/events")
    namespaces = [key.name for key in left if key.resource == "namespaces" and key.name not in _OWN_NAMESPACES]
    for name in namespaces:
        _delete_namespace(plane.api, name)
    orphans = [key.path for key in keys if deleted.difference(namespaces).intersection(key.path.split("/")[3:-1])]
    etcd.delete(plane.etcd_port, orphans)
    deleted.update(namespaces)
    return not (objects or namespaces or orphans)


def _delete_namespace(api: Api, name: str) -> None:
    """Delete a namespace without its controller, which waits 5 seconds before it deletes the content."""
    path = f"/api/v1/namespaces/{name}"
    api.delete(path)
    finalized = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}, "spec": {"finalizers": []}}
    _unless_gone(lambda path: api.request("PUT", f"{path}/finalize", finalized), path)


def _parsed(key: str) -> _Key:
    """Parse ``/registry/RESOURCE/NAME`` or ``/registry/RESOURCE/NAMESPACE/NAME``."""
    parts = key.split("/")[2:]
    namespace = parts[1] if len(parts) > 2 else ""  # noqa: PLR2004 - resource, namespace, name
    return _Key(key, parts[0], namespace, parts[-1])


def _stored_as(path: str) -> str:
    plural = path.rpartition("/")[2]
    return _STORED_AS.get(plural, plural)


def _remove_finalizers(api: Api) -> None:
    for item in api.items("/api/v1/pods"):
        if item["metadata"].get("finalizers"):
            path = f"/api/v1/namespaces/{item['metadata']['namespace']}/pods/{item['metadata']['name']}"
            _unless_gone(lambda path: api.patch(path, {"metadata": {"finalizers": None}}), path)


def _belongs_to_plane(key: _Key) -> bool:
    """Return whether the control plane itself creates the object, such as leases of nodes and the API server."""
    match key.resource:
        case "leases":
            return key.namespace == "kube-node-lease" or key.name.startswith("apiserver-")
        case "priorityclasses":
            return key.name.startswith("system-")
        case "configmaps":
            return key.name.startswith(("kube-", "extension-apiserver-"))
        case "serviceaccounts":
            return key.name == "default"
        case "validatingadmissionpolicies" | "validatingadmissionpolicybindings":
            return key.name.startswith("local-")
    return False


def _path(resource: str, key: _Key) -> str:
    root, _, plural = resource.rpartition("/")
    return f"{root}/namespaces/{key.namespace}/{plural}/{key.name}" if key.namespace else f"{resource}/{key.name}"


def _unless_gone(act: Callable[[str], object], path: str) -> None:
    """Call *act* with *path*; ignore NotFound and Conflict, which the next call handles.

    For an object of a namespace that is gone, admission answers with an internal error instead of NotFound.
    """
    try:
        act(path)
    except ApiError as error:
        if error.status not in {404, 409} and "failed to lookup namespace" not in str(error):
            raise
