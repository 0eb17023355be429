"""A CSI driver's attacher, and the part of kubelets that waits for volumes, on the local control plane."""

import threading
from typing import Any, Final, Self

from devcluster.api import Json
from devcluster.errors import ApiError
from devcluster.plane import ControlPlane
from devcluster.stages import NEVER, START_AFTER
from rescheduler.clock import SystemClock

DRIVER: Final = "disk.example.com"
ATTACHMENTS: Final = "/apis/storage.k8s.io/v1/volumeattachments"
STRATEGIC: Final = "application/strategic-merge-patch+json"
_FINALIZER: Final = "external-attacher/disk-example-com"
_MANAGED: Final = "volumes.kubernetes.io/controller-managed-attach-detach"

#: kwok does not start such pods: they start once their volumes are attached.
WAITING: Final = {START_AFTER: NEVER}


def disk(name: str, *modes: str, **spec: Any) -> list[Json]:
    """Return a claim *name* in the namespace `default` that is bound to a volume `disk-NAME` of the driver."""
    shared = {"accessModes": list(modes) or ["ReadWriteOnce"], "storageClassName": ""}
    source = {"csi": {"driver": DRIVER, "volumeHandle": name}, "capacity": {"storage": "1Gi"}}
    reference = {"apiVersion": "v1", "kind": "PersistentVolumeClaim", "namespace": "default", "name": name}
    volume = {**shared, **source, "claimRef": reference, "persistentVolumeReclaimPolicy": "Retain", **spec}
    requests = {"resources": {"requests": {"storage": "1Gi"}}, "volumeName": f"disk-{name}"}
    return [
        {"apiVersion": "v1", "kind": "PersistentVolume", "metadata": {"name": f"disk-{name}"}, "spec": volume},
        {
            "apiVersion": "v1",
            "kind": "PersistentVolumeClaim",
            "metadata": {"name": name, "namespace": "default"},
            "spec": {**shared, **requests},
        },
    ]


def mounts(name: str) -> dict[str, Any]:
    """Return the fields of a PodSpec that uses the claim *name*."""
    return {"volumes": [{"name": "data", "persistentVolumeClaim": {"claimName": name}}]}


class Attacher:
    """The driver's external-attacher, which answers within *detach_seconds*, and the kubelets of all nodes.

    The attach-detach controller of kube-controller-manager decides what is attached and detached, and when.
    """

    def __init__(self, plane: ControlPlane, detach_seconds: float = 0.0) -> None:
        self._api = plane.api
        self.detach_seconds = detach_seconds
        self._clock = SystemClock()
        self._asked: dict[str, float] = {}  # when the detach of an attachment was first seen
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._run, name="attacher", daemon=True)
        self.most_attached = 0  #: the largest number of nodes to which one volume was attached at the same time
        plane.apply(
            [
                {
                    "apiVersion": "storage.k8s.io/v1",
                    "kind": "CSIDriver",
                    "metadata": {"name": DRIVER},
                    "spec": {"attachRequired": True},
                }
            ]
        )
        for node in self._api.items("/api/v1/nodes"):
            self._api.patch(
                f"/api/v1/nodes/{node['metadata']['name']}", {"metadata": {"annotations": {_MANAGED: "true"}}}
            )

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.detach_seconds = 0.0  # so that the control plane can be emptied
        self._ended.set()
        self._thread.join()
        for item in self._api.items(ATTACHMENTS):
            self._without_finalizer(item)

    def attached(self) -> dict[str, str]:
        """Return the node of each attached volume."""
        return {
            item["spec"]["source"]["persistentVolumeName"]: item["spec"]["nodeName"]
            for item in self._api.items(ATTACHMENTS)
            if item.get("status", {}).get("attached")
        }

    def _run(self) -> None:
        while not self._ended.wait(0.1):
            try:
                self._attach_and_detach()
                self._start_pods()
            except ApiError as error:  # the object was changed or deleted since it was read
                if error.status not in {404, 409, 422}:
                    raise

    def _attach_and_detach(self) -> None:
        for item in self._api.items(ATTACHMENTS):
            path, now = f"{ATTACHMENTS}/{item['metadata']['name']}", self._clock.monotonic()
            if "deletionTimestamp" in item["metadata"]:
                if now >= self._asked.setdefault(item["metadata"]["uid"], now) + self.detach_seconds:
                    self._without_finalizer(item)
            elif not item.get("status", {}).get("attached"):
                self._api.patch(path, {"metadata": {"finalizers": [_FINALIZER]}})
                self._api.patch(f"{path}/status", {"status": {"attached": True}})

    def _without_finalizer(self, item: Json) -> None:
        self._api.patch(f"{ATTACHMENTS}/{item['metadata']['name']}", {"metadata": {"finalizers": None}})

    def _start_pods(self) -> None:
        attached = {
            (item["spec"]["source"]["persistentVolumeName"], item["spec"]["nodeName"])
            for item in self._api.items(ATTACHMENTS)
            if item.get("status", {}).get("attached")
        }
        nodes = [volume for volume, _ in attached]
        self.most_attached = max(self.most_attached, *(nodes.count(volume) for volume in nodes), 0)
        for pod in self._api.items("/api/v1/pods"):
            node, meta = pod["spec"].get("nodeName", ""), pod["metadata"]
            waiting = pod["status"]["phase"] == "Pending" and "deletionTimestamp" not in meta
            if waiting and node and START_AFTER in meta.get("annotations", {}) and _volumes(pod) <= _on(node, attached):
                ready = {"phase": "Running", "conditions": [{"type": "Ready", "status": "True"}]}
                path = f"/api/v1/namespaces/{meta['namespace']}/pods/{meta['name']}/status"
                self._api.patch(path, {"status": ready}, STRATEGIC)


def _volumes(pod: Json) -> set[str]:
    claims = (volume.get("persistentVolumeClaim") for volume in pod["spec"].get("volumes", ()))
    return {f"disk-{claim['claimName']}" for claim in claims if claim}


def _on(node: str, attached: set[tuple[str, str]]) -> set[str]:
    return {volume for volume, where in attached if where == node}
