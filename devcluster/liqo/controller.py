"""The controller, which periodically reconciles slices, VirtualNodes and Nodes."""

import http
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Any, Final

from devcluster.api import Api, Json
from devcluster.errors import ApiError
from devcluster.liqo import objects
from devcluster.liqo.peerings import Peerings
from devcluster.standin.rounds import PeriodicTask
from rescheduler.clock import Clock
from rescheduler.durations import Backoff, Pauses

SLICES: Final = "/apis/authentication.liqo.io/v1beta1/resourceslices"
VIRTUAL_NODES: Final = "/apis/offloading.liqo.io/v1beta1/virtualnodes"
#: The pauses between attempts to evict the pods of a node.
_EVICTIONS: Final = Backoff(timedelta(milliseconds=5), timedelta(seconds=1000))


@dataclass
class LiqoPolicy:
    """The behavior of the other clusters; it may be changed while the controller runs."""

    denying: Mapping[str, str] = field(default_factory=dict)  #: clusters, and the condition that they set to Denied
    adding: Mapping[str, str] = field(default_factory=lambda: dict(objects.DEFAULT_RESOURCES))


class LiqoController:
    """A single-threaded controller. Objects that were changed concurrently are retried in the next step."""

    def __init__(self, api: Api, clock: Clock, policy: LiqoPolicy | None = None) -> None:
        self.policy = policy or LiqoPolicy()
        self._api, self._clock = api, clock
        self._peerings = Peerings(api)
        self._pauses = Pauses(_EVICTIONS)  # pauses by node after rejected evictions
        self._task = PeriodicTask("liqo", self.step, clock, (ApiError, OSError))

    @property
    def peers(self) -> Collection[str]:
        """The clusters whose kubeconfig Secrets the controller has seen."""
        return self._peerings.peers

    def start(self) -> None:
        self._task.start()

    def close(self) -> None:
        self._task.close()

    def step(self) -> None:
        virtual = {_key(each): each for each in self._api.items(VIRTUAL_NODES)}
        nodes = {each["metadata"]["name"]: each for each in self._api.items("/api/v1/nodes")}
        self._peerings.step(virtual.values())
        for resource_slice in self._api.items(SLICES):
            self._unless_changed(self._slice, {**_KIND, **resource_slice}, _key(resource_slice) in virtual)
        for each in virtual.values():
            self._unless_changed(self._virtual_node, each, nodes.get(each["metadata"]["name"]))

    def _unless_changed(self, act: Any, item: Json, other: Any) -> None:
        try:
            act(item, other)
        except ApiError as error:
            if error.status not in {http.HTTPStatus.NOT_FOUND, http.HTTPStatus.CONFLICT}:
                raise

    def _slice(self, resource_slice: Json, has_virtual_node: bool) -> None:  # noqa: FBT001 - as _unless_changed passes it
        labels = resource_slice["metadata"].get("labels", {})
        if labels.get("liqo.io/replicated") == "true":
            self._respond(resource_slice, resource_slice["spec"]["consumerClusterID"])
        elif labels.get(objects.REPLICATION_LABEL) == "true" and "liqo.io/remoteID" in labels:
            self._local_slice(resource_slice, labels["liqo.io/remoteID"], has_virtual_node=has_virtual_node)

    def _local_slice(self, resource_slice: Json, provider: str, *, has_virtual_node: bool) -> None:
        """Do the next step: sign the request, add the replication finalizer, respond, or create the VirtualNode."""
        replicates = provider in self._peerings.peers
        finalizers = resource_slice["metadata"].get("finalizers", [])
        if "deletionTimestamp" in resource_slice["metadata"]:
            if replicates and objects.REPLICATOR_FINALIZER in finalizers:
                self._finalize(resource_slice, objects.without(finalizers, objects.REPLICATOR_FINALIZER))
            return
        if "csr" not in resource_slice["spec"]:
            signed = {"consumerClusterID": objects.HOME, "providerClusterID": provider, "csr": "Y3Ny"}
            self._api.patch(_path(SLICES, resource_slice), {"spec": signed})
        if not replicates:
            return
        if objects.REPLICATOR_FINALIZER not in finalizers:
            self._finalize(resource_slice, [*finalizers, objects.REPLICATOR_FINALIZER])
        elif (
            not self._respond(resource_slice, provider)
            and _is_accepted(resource_slice)
            and not has_virtual_node
            and _wants_node(resource_slice)
        ):
            self._api.post(_folder(VIRTUAL_NODES, resource_slice), objects.virtual_node(resource_slice))

    def _finalize(self, resource_slice: Json, finalizers: list[str]) -> None:
        version = resource_slice["metadata"]["resourceVersion"]
        metadata = {"finalizers": finalizers or None, "resourceVersion": version}
        self._api.patch(_path(SLICES, resource_slice), {"metadata": metadata})

    def _respond(self, resource_slice: Json, cluster: str) -> bool:
        """Set the provider's response in the slice's status; return whether it changed. *cluster* is the peer."""
        wanted = {"Authentication": "Accepted", "Resources": "Accepted"}
        if denied := self.policy.denying.get(cluster):
            wanted[denied] = "Denied"
        status = resource_slice.get("status", {})
        if {each["type"]: each["status"] for each in status.get("conditions", ())} == wanted:
            return False
        new_status: Json = {"conditions": objects.slice_conditions(wanted)}
        if wanted["Resources"] == "Accepted":
            new_status["resources"] = objects.granted(resource_slice["spec"].get("resources", {}), self.policy.adding)
            new_status["nodeLabels"] = {"liqo.io/provider": "kwok"}
        self._api.patch(f"{_path(SLICES, resource_slice)}/status", {"status": new_status})
        return True

    def _virtual_node(self, virtual: Json, node: Json | None) -> None:
        if "deletionTimestamp" in virtual["metadata"]:
            self._leave(virtual, node)
        elif node is None:
            self._set_status(virtual, VirtualKubelet="Running", Node="Creating")
            self._api.apply([objects.virtual_kubelet(virtual), objects.node(virtual)])
        elif _ready(node):
            self._set_status(virtual, VirtualKubelet="Running", Node="Running")

    def _leave(self, virtual: Json, node: Json | None) -> None:
        """Do the next step of the deletion: drain the Node, delete it, or remove the finalizer."""
        if node is None:
            self._api.patch(_path(VIRTUAL_NODES, virtual), {"metadata": {"finalizers": None}})
            return
        name = node["metadata"]["name"]
        self._set_status(virtual, VirtualKubelet="Running", Node="Draining")
        self._api.patch(f"/api/v1/nodes/{name}", {"spec": {"unschedulable": True}})
        if not self._drained(name):
            return
        self._set_status(virtual, VirtualKubelet="Deleting", Node="Deleting")
        self._api.delete(self._api.path(objects.virtual_kubelet(virtual)), propagationPolicy="Background")
        self._api.delete(f"/api/v1/nodes/{name}")

    def _drained(self, node: str) -> bool:
        """Evict the pods of *node* and return whether none is left.

        A rejected eviction ends the attempt. The next attempt starts after a pause, which doubles each time.
        """
        if self._pauses.active(node, self._clock.monotonic()):
            return False
        pods = self._api.items("/api/v1/pods", fieldSelector=f"spec.nodeName={node}")
        remaining = [each for each in pods if not _of_daemon_set(each)]
        try:
            for pod in remaining:
                self._evict(pod)
        except ApiError as error:
            if error.status != http.HTTPStatus.TOO_MANY_REQUESTS:
                raise
            self._pauses.failed(node, self._clock.monotonic())
            return False
        self._pauses.succeeded(node)
        return not remaining

    def _evict(self, pod: Json) -> None:
        metadata = {key: pod["metadata"][key] for key in ("name", "namespace")}
        path = f"/api/v1/namespaces/{metadata['namespace']}/pods/{metadata['name']}/eviction"
        try:
            self._api.post(path, {"apiVersion": "policy/v1", "kind": "Eviction", "metadata": metadata})
        except ApiError as error:
            if error.status != http.HTTPStatus.NOT_FOUND:
                raise

    def _set_status(self, virtual: Json, **status: str) -> None:
        current = {each["type"]: each["status"] for each in virtual.get("status", {}).get("conditions", ())}
        if current != status:
            body = {"status": {"conditions": objects.conditions(status)}}
            self._api.patch(f"{_path(VIRTUAL_NODES, virtual)}/status", body)


_KIND: Final = {"apiVersion": "authentication.liqo.io/v1beta1", "kind": "ResourceSlice"}


def _is_accepted(resource_slice: Json) -> bool:
    conditions = {each["type"]: each["status"] for each in resource_slice.get("status", {}).get("conditions", ())}
    return conditions == {"Authentication": "Accepted", "Resources": "Accepted"}


def _wants_node(resource_slice: Json) -> bool:
    wanted: str = resource_slice["metadata"].get("annotations", {}).get("liqo.io/create-virtual-node", "")
    return wanted.lower() not in {"", "false"}


def _key(item: Json) -> tuple[str, str]:
    return item["metadata"]["namespace"], item["metadata"]["name"]


def _folder(collection: str, item: Json) -> str:
    root, _, plural = collection.rpartition("/")
    return f"{root}/namespaces/{item['metadata']['namespace']}/{plural}"


def _path(collection: str, item: Json) -> str:
    return f"{_folder(collection, item)}/{item['metadata']['name']}"


def _ready(node: Json) -> bool:
    conditions = node.get("status", {}).get("conditions", ())
    return any((each["type"], each["status"]) == ("Ready", "True") for each in conditions)


def _of_daemon_set(pod: Json) -> bool:
    return any(each["kind"] == "DaemonSet" for each in pod["metadata"].get("ownerReferences", ()))
