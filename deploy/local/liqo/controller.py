"""The controller: looks at slices, VirtualNodes and Nodes again and again, and does the next thing for each."""

import http
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from deploy.local.api import Api, Json
from deploy.local.errors import ApiError
from deploy.local.liqo import objects
from deploy.local.standin.rounds import Rounds
from rescheduler.clock import Clock

SLICES: Final = "/apis/authentication.liqo.io/v1beta1/resourceslices"
VIRTUAL_NODES: Final = "/apis/offloading.liqo.io/v1beta1/virtualnodes"


@dataclass
class Policy:
    """How the other clusters behave; it may change while the controller runs."""

    denying: Mapping[str, str] = field(default_factory=dict)  #: clusters, and the condition with which they say no
    silent: frozenset[str] = frozenset()  #: clusters that do not answer


class Controller:
    """One thread. Objects that somebody else changed meanwhile are looked at again."""

    def __init__(self, api: Api, clock: Clock, policy: Policy | None = None) -> None:
        self.policy = policy or Policy()
        self._api = api
        self._rounds = Rounds("liqo", self.step, clock, (ApiError, OSError))

    def start(self) -> None:
        self._rounds.start()

    def close(self) -> None:
        self._rounds.close()

    def step(self) -> None:
        virtual = {_key(one): one for one in self._api.items(VIRTUAL_NODES)}
        nodes = {one["metadata"]["name"]: one for one in self._api.items("/api/v1/nodes")}
        for piece in self._api.items(SLICES):
            self._unless_changed(self._slice, {"kind": "ResourceSlice", **piece}, _key(piece) in virtual)
        for one in virtual.values():
            self._unless_changed(self._virtual_node, one, nodes.get(one["metadata"]["name"]))

    def _unless_changed(self, act: Any, one: Json, other: Any) -> None:
        try:
            act(one, other)
        except ApiError as error:
            if error.status not in {http.HTTPStatus.NOT_FOUND, http.HTTPStatus.CONFLICT}:
                raise

    def _slice(self, piece: Json, has_virtual_node: bool) -> None:  # noqa: FBT001 - as _unless_changed passes it
        cluster = piece["spec"].get("providerClusterID", "")
        if "deletionTimestamp" in piece["metadata"] or cluster in self.policy.silent:
            return
        status = piece.get("status", {})
        wanted = {"Authentication": "Accepted", "Resources": "Accepted"}
        if denied := self.policy.denying.get(cluster):
            wanted = {denied: "Denied"}
        if {one["type"]: one["status"] for one in status.get("conditions", ())} != wanted:
            found: Json = {"conditions": objects.conditions(**wanted)}
            if not denied:
                found["resources"] = piece["spec"].get("resources", {})
            self._api.patch(f"{_path(SLICES, piece)}/status", {"status": found})
            return
        wants_node = piece["metadata"].get("annotations", {}).get("liqo.io/create-virtual-node", "false") != "false"
        if not denied and wants_node and not has_virtual_node:
            owned = objects.virtual_node({"apiVersion": "authentication.liqo.io/v1beta1", **piece})
            self._api.post(_folder(VIRTUAL_NODES, piece), owned)

    def _virtual_node(self, virtual: Json, node: Json | None) -> None:
        if "deletionTimestamp" in virtual["metadata"]:
            self._leave(virtual, node)
        elif node is None:
            self._tell(virtual, VirtualKubelet="Running", Node="Creating")
            self._api.apply([objects.node(virtual)])
        elif _ready(node):
            self._tell(virtual, VirtualKubelet="Running", Node="Running")

    def _leave(self, virtual: Json, node: Json | None) -> None:
        """Drained, then deleted, then let go."""
        path = _path(VIRTUAL_NODES, virtual)
        if node is None:
            self._api.patch(path, {"metadata": {"finalizers": None}})
            return
        name = node["metadata"]["name"]
        self._tell(virtual, VirtualKubelet="Running", Node="Draining")
        self._api.patch(f"/api/v1/nodes/{name}", {"spec": {"unschedulable": True}})
        if not self._drained(name):
            return
        self._tell(virtual, VirtualKubelet="Deleting", Node="Deleting")
        self._api.delete(f"/api/v1/nodes/{name}")

    def _drained(self, node: str) -> bool:
        """Whether no pod is left that an eviction could move; budgets are waited for without limit."""
        pods = self._api.items("/api/v1/pods", fieldSelector=f"spec.nodeName={node}")
        left = [one for one in pods if not _of_daemon_set(one)]
        for pod in left:
            metadata = {key: pod["metadata"][key] for key in ("name", "namespace")}
            path = f"/api/v1/namespaces/{metadata['namespace']}/pods/{metadata['name']}/eviction"
            try:
                self._api.post(path, {"apiVersion": "policy/v1", "kind": "Eviction", "metadata": metadata})
            except ApiError as error:
                if error.status not in {http.HTTPStatus.NOT_FOUND, http.HTTPStatus.TOO_MANY_REQUESTS}:
                    raise
        return not left

    def _tell(self, virtual: Json, **status: str) -> None:
        told = {one["type"]: one["status"] for one in virtual.get("status", {}).get("conditions", ())}
        if told != status:
            body = {"status": {"conditions": objects.conditions(**status)}}
            self._api.patch(f"{_path(VIRTUAL_NODES, virtual)}/status", body)


def _key(one: Json) -> tuple[str, str]:
    return one["metadata"]["namespace"], one["metadata"]["name"]


def _folder(collection: str, one: Json) -> str:
    root, _, plural = collection.rpartition("/")
    return f"{root}/namespaces/{one['metadata']['namespace']}/{plural}"


def _path(collection: str, one: Json) -> str:
    return f"{_folder(collection, one)}/{one['metadata']['name']}"


def _ready(node: Json) -> bool:
    conditions = node.get("status", {}).get("conditions", ())
    return any((one["type"], one["status"]) == ("Ready", "True") for one in conditions)


def _of_daemon_set(pod: Json) -> bool:
    return any(one["kind"] == "DaemonSet" for one in pod["metadata"].get("ownerReferences", ()))
