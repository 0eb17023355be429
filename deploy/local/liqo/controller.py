"""The controller: looks at slices, VirtualNodes and Nodes again and again, and does the next thing for each."""

import http
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from deploy.local.api import Api, Json
from deploy.local.errors import ApiError
from deploy.local.liqo import objects
from deploy.local.liqo.peerings import Peerings
from deploy.local.standin.rounds import Rounds
from rescheduler.clock import Clock

SLICES: Final = "/apis/authentication.liqo.io/v1beta1/resourceslices"
VIRTUAL_NODES: Final = "/apis/offloading.liqo.io/v1beta1/virtualnodes"
_FIRST_PAUSE: Final = 0.005  #: seconds after a refused eviction; each further one in a row doubles it
_LONGEST_PAUSE: Final = 1000.0


@dataclass
class Policy:
    """How the other clusters behave; it may change while the controller runs."""

    denying: Mapping[str, str] = field(default_factory=dict)  #: clusters, and the condition with which they say no
    silent: frozenset[str] = frozenset()  #: clusters that do not answer slices
    unreachable: frozenset[str] = frozenset()  #: clusters whose API server does not answer
    classes: frozenset[str] = frozenset({"", "default"})  #: of slices that somebody grants
    adding: Mapping[str, str] = field(default_factory=lambda: dict(objects.DEFAULT_RESOURCES))


class Controller:
    """One thread. Objects that somebody else changed meanwhile are looked at again."""

    def __init__(self, api: Api, clock: Clock, policy: Policy | None = None) -> None:
        self.policy = policy or Policy()
        self._api, self._clock = api, clock
        self._peerings = Peerings(api)
        self._refusals: dict[str, tuple[int, float]] = {}  #: of a node's evictions: how many, and the next attempt
        self._rounds = Rounds("liqo", self.step, clock, (ApiError, OSError))

    def start(self) -> None:
        self._rounds.start()

    def close(self) -> None:
        self._rounds.close()

    def step(self) -> None:
        virtual = {_key(each): each for each in self._api.items(VIRTUAL_NODES)}
        nodes = {each["metadata"]["name"]: each for each in self._api.items("/api/v1/nodes")}
        self._peerings.step(virtual.values(), self.policy.unreachable)
        for piece in self._api.items(SLICES):
            self._unless_changed(self._slice, {**_KIND, **piece}, _key(piece) in virtual)
        for each in virtual.values():
            self._unless_changed(self._virtual_node, each, nodes.get(each["metadata"]["name"]))

    def _unless_changed(self, act: Any, one: Json, other: Any) -> None:
        try:
            act(one, other)
        except ApiError as error:
            if error.status not in {http.HTTPStatus.NOT_FOUND, http.HTTPStatus.CONFLICT}:
                raise

    def _slice(self, piece: Json, has_virtual_node: bool) -> None:  # noqa: FBT001 - as _unless_changed passes it
        labels = piece["metadata"].get("labels", {})
        if labels.get("liqo.io/replicated") == "true":
            self._answer(piece, piece["spec"]["consumerClusterID"])
        elif labels.get(objects.REPLICATION_LABEL) == "true" and "liqo.io/remoteID" in labels:
            self._local_slice(piece, labels["liqo.io/remoteID"], has_virtual_node=has_virtual_node)

    def _local_slice(self, piece: Json, provider: str, *, has_virtual_node: bool) -> None:
        """Signed for, replicated with a finalizer, answered by the provider, made into a VirtualNode."""
        replicates = provider in self._peerings.peers and provider not in self.policy.unreachable
        finalizers = piece["metadata"].get("finalizers", [])
        if "deletionTimestamp" in piece["metadata"]:
            if replicates and objects.REPLICATOR_FINALIZER in finalizers:
                self._finalize(piece, objects.without(finalizers, objects.REPLICATOR_FINALIZER))
            return
        if "csr" not in piece["spec"]:
            signed = {"consumerClusterID": objects.HOME, "providerClusterID": provider, "csr": "Y3Ny"}
            self._api.patch(_path(SLICES, piece), {"spec": signed})
        if not replicates:
            return
        if objects.REPLICATOR_FINALIZER not in finalizers:
            self._finalize(piece, [*finalizers, objects.REPLICATOR_FINALIZER])
        elif not self._answer(piece, provider) and _is_accepted(piece) and not has_virtual_node and _wants_node(piece):
            self._api.post(_folder(VIRTUAL_NODES, piece), objects.virtual_node(piece))

    def _finalize(self, piece: Json, finalizers: list[str]) -> None:
        version = piece["metadata"]["resourceVersion"]
        metadata = {"finalizers": finalizers or None, "resourceVersion": version}
        self._api.patch(_path(SLICES, piece), {"metadata": metadata})

    def _answer(self, piece: Json, cluster: str) -> bool:
        """What the slice's provider says; whether that is news. *cluster*: at the other end of the peering."""
        if cluster in self.policy.silent:
            return False
        wanted = {"Authentication": "Accepted", "Resources": "Accepted"}
        if denied := self.policy.denying.get(cluster):
            wanted[denied] = "Denied"
        if piece["spec"].get("class", "") not in self.policy.classes:
            del wanted["Resources"]  # another controller of the provider grants them, or nobody
        status = piece.get("status", {})
        if {each["type"]: each["status"] for each in status.get("conditions", ())} == wanted:
            return False
        told: Json = {"conditions": objects.slice_conditions(wanted)}
        if wanted.get("Resources") == "Accepted":
            told["resources"] = objects.granted(piece["spec"].get("resources", {}), self.policy.adding)
            told["nodeLabels"] = {"liqo.io/provider": "kwok"}
        self._api.patch(f"{_path(SLICES, piece)}/status", {"status": told})
        return True

    def _virtual_node(self, virtual: Json, node: Json | None) -> None:
        if "deletionTimestamp" in virtual["metadata"]:
            self._leave(virtual, node)
        elif node is None:
            self._tell(virtual, VirtualKubelet="Running", Node="Creating")
            self._api.apply([objects.virtual_kubelet(virtual), objects.node(virtual)])
        elif _ready(node):
            self._tell(virtual, VirtualKubelet="Running", Node="Running")

    def _leave(self, virtual: Json, node: Json | None) -> None:
        """Drained, then deleted, then let go."""
        if node is None:
            self._api.patch(_path(VIRTUAL_NODES, virtual), {"metadata": {"finalizers": None}})
            return
        name = node["metadata"]["name"]
        self._tell(virtual, VirtualKubelet="Running", Node="Draining")
        self._api.patch(f"/api/v1/nodes/{name}", {"spec": {"unschedulable": True}})
        if not self._drained(name):
            return
        self._tell(virtual, VirtualKubelet="Deleting", Node="Deleting")
        self._api.delete(self._api.path(objects.virtual_kubelet(virtual)), propagationPolicy="Background")
        self._api.delete(f"/api/v1/nodes/{name}")

    def _drained(self, node: str) -> bool:
        """Whether no pod is left that an eviction could move.

        A refused eviction ends the attempt. The next one comes after a pause, which grows with each attempt.
        """
        refusals, again = self._refusals.get(node, (0, 0.0))
        if self._clock.monotonic() < again:
            return False
        pods = self._api.items("/api/v1/pods", fieldSelector=f"spec.nodeName={node}")
        left = [each for each in pods if not _of_daemon_set(each)]
        try:
            for pod in left:
                self._evict(pod)
        except ApiError as error:
            if error.status != http.HTTPStatus.TOO_MANY_REQUESTS:
                raise
            pause = min(_FIRST_PAUSE * 2.0**refusals, _LONGEST_PAUSE)
            self._refusals[node] = (refusals + 1, self._clock.monotonic() + pause)
            return False
        self._refusals.pop(node, None)
        return not left

    def _evict(self, pod: Json) -> None:
        metadata = {key: pod["metadata"][key] for key in ("name", "namespace")}
        path = f"/api/v1/namespaces/{metadata['namespace']}/pods/{metadata['name']}/eviction"
        try:
            self._api.post(path, {"apiVersion": "policy/v1", "kind": "Eviction", "metadata": metadata})
        except ApiError as error:
            if error.status != http.HTTPStatus.NOT_FOUND:
                raise

    def _tell(self, virtual: Json, **status: str) -> None:
        told = {each["type"]: each["status"] for each in virtual.get("status", {}).get("conditions", ())}
        if told != status:
            body = {"status": {"conditions": objects.conditions(status)}}
            self._api.patch(f"{_path(VIRTUAL_NODES, virtual)}/status", body)


_KIND: Final = {"apiVersion": "authentication.liqo.io/v1beta1", "kind": "ResourceSlice"}


def _is_accepted(piece: Json) -> bool:
    said = {each["type"]: each["status"] for each in piece.get("status", {}).get("conditions", ())}
    return said == {"Authentication": "Accepted", "Resources": "Accepted"}


def _wants_node(piece: Json) -> bool:
    wanted: str = piece["metadata"].get("annotations", {}).get("liqo.io/create-virtual-node", "")
    return wanted.lower() not in {"", "false"}


def _key(one: Json) -> tuple[str, str]:
    return one["metadata"]["namespace"], one["metadata"]["name"]


def _folder(collection: str, one: Json) -> str:
    root, _, plural = collection.rpartition("/")
    return f"{root}/namespaces/{one['metadata']['namespace']}/{plural}"


def _path(collection: str, one: Json) -> str:
    return f"{_folder(collection, one)}/{one['metadata']['name']}"


def _ready(node: Json) -> bool:
    conditions = node.get("status", {}).get("conditions", ())
    return any((each["type"], each["status"]) == ("Ready", "True") for each in conditions)


def _of_daemon_set(pod: Json) -> bool:
    return any(each["kind"] == "DaemonSet" for each in pod["metadata"].get("ownerReferences", ()))
