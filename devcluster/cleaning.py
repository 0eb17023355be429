"""Cleanup of a cluster between tests, which is faster than a new cluster for each test."""

from collections.abc import Callable

from devcluster.api import Api, Json
from devcluster.errors import ApiError

#: The namespaces of an empty cluster.
_OWN_NAMESPACES = frozenset({"default", "kube-node-lease", "kube-public", "kube-system"})
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
_EVENTS = "/api/v1/events"


def wipe(api: Api) -> bool:
    """Delete all objects that tests create, but no RBAC objects outside their namespaces; return whether all are gone.

    Controllers need some time to react, so call it until it returns true. It removes finalizers from pods, because
    tests use them for pods that never terminate.
    """
    left = sum(_wipe(api, resource) for resource in _RESOURCES)
    _wipe(api, _EVENTS)  # do not wait for these: controllers create new events for the deletions
    namespaces = [item for item in api.items("/api/v1/namespaces") if _name(item) not in _OWN_NAMESPACES]
    for item in namespaces:
        _unless_gone(api.delete, f"/api/v1/namespaces/{_name(item)}")
    return not left and not namespaces


def _wipe(api: Api, resource: str) -> int:
    """Delete all objects of a resource and return their number."""
    items = [item for item in api.items(resource) if not _belongs_to_plane(resource, item)]
    for item in items:
        if item["metadata"].get("finalizers") and resource == "/api/v1/pods":
            _unless_gone(lambda path: api.patch(path, {"metadata": {"finalizers": None}}), _path(resource, item))
    for item in items:
        if "deletionTimestamp" not in item["metadata"] or resource == "/api/v1/pods":
            api.delete(_path(resource, item), gracePeriodSeconds=0, propagationPolicy="Background")
    return len(items)


def _belongs_to_plane(resource: str, item: Json) -> bool:
    """Return whether the control plane itself creates the object, such as leases of nodes and the API server."""
    match resource.rpartition("/")[2]:
        case "leases":
            return item["metadata"]["namespace"] == "kube-node-lease" or _name(item).startswith("apiserver-")
        case "priorityclasses":
            return _name(item).startswith("system-")
        case "configmaps":
            return _name(item).startswith(("kube-", "extension-apiserver-"))
        case "serviceaccounts":
            return _name(item) == "default"
        case "validatingadmissionpolicies" | "validatingadmissionpolicybindings":
            return _name(item).startswith("local-")
    return False


def _path(resource: str, item: Json) -> str:
    root, _, plural = resource.rpartition("/")
    namespace = item["metadata"].get("namespace")
    return f"{root}/namespaces/{namespace}/{plural}/{_name(item)}" if namespace else f"{resource}/{_name(item)}"


def _name(item: Json) -> str:
    name: str = item["metadata"]["name"]
    return name


def _unless_gone(act: Callable[[str], object], path: str) -> None:
    """Call *act* with *path*; ignore NotFound and Conflict, which the next call of `wipe` handles."""
    try:
        act(path)
    except ApiError as error:
        if error.status not in {404, 409}:
            raise
