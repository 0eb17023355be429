"""Small programs that play operators on the local control plane: they create the pods that their owners want.

One thread serves all owners of a test. It is also the scheduler of pods whose scheduler is BY_HAND, so that a test can
bind them to a node without setting `spec.nodeName` itself.
"""

import itertools
import secrets
import threading
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from functools import partial
from typing import Any, Final, Self

import httpx2

from devcluster.api import Json
from devcluster.errors import ApiError
from devcluster.manifests import pod
from devcluster.plane import ControlPlane
from rescheduler.clock import SystemClock

BY_HAND: Final = "by-hand"
PODS: Final = "/api/v1/namespaces/default/pods"

#: Where an owner says how many pods it wants.
SCALE_PATHS: Final = {"replicas": ".spec.replicas", "instances": ".spec.instances"}


@dataclass(frozen=True)
class PlayedOwner:
    """An owner of pods that is not built in, and how its operator behaves."""

    kind: str  #: ``apiVersion/kind``
    app: str  #: name of the owner, and prefix of the names of its pods
    node: str  #: where its first pods are bound
    wanted: int = 1
    ordinal: bool = False  #: pods are named by ordinals, and not by random suffixes
    delay: float = 0.0  #: seconds until the operator creates a missing pod
    plays: bool = True  #: whether the operator creates pods at all
    restart: str = "Always"
    number: str = "replicas"  #: the field of the spec with the number of pods, or ``pods``
    scale: bool = False  #: whether the kind has a scale subresource
    annotations: Mapping[str, str] = field(default_factory=dict)

    @property
    def group(self) -> str:
        return self.kind.rpartition("/")[0].rpartition("/")[0]

    @property
    def version(self) -> str:
        return self.kind.rpartition("/")[0].rpartition("/")[2]

    @property
    def short(self) -> str:
        return self.kind.rpartition("/")[2]

    @property
    def plural(self) -> str:
        return f"{self.short.lower()}s"

    @property
    def path(self) -> str:
        if not self.group:
            return f"{PODS}/{self.app}"
        return f"/apis/{self.group}/{self.version}/namespaces/default/{self.plural}/{self.app}"

    @property
    def manifest(self) -> Json:
        meta = {"name": self.app, "namespace": "default"}
        spec: Json = {self.number: [{}] * self.wanted if self.number == "pods" else self.wanted}
        spec = spec if self.restart == "Always" else {}  # an owner of pods that run to completion counts no replicas
        return {"apiVersion": self.kind.rpartition("/")[0], "kind": self.short, "metadata": meta, "spec": spec}


def definition(owner: PlayedOwner) -> Json:
    """Return the CustomResourceDefinition of the owner's kind."""
    version: Json = {
        "name": owner.version,
        "served": True,
        "storage": True,
        "schema": {"openAPIV3Schema": {"type": "object", "x-kubernetes-preserve-unknown-fields": True}},
    }
    if owner.scale:
        integer: Json = {"type": "object", "properties": {owner.number: {"type": "integer"}}}
        integer["x-kubernetes-preserve-unknown-fields"] = True
        properties = {"spec": integer, "status": {"type": "object", "properties": {"replicas": {"type": "integer"}}}}
        version["schema"]["openAPIV3Schema"]["properties"] = properties
        paths = {"specReplicasPath": SCALE_PATHS[owner.number], "statusReplicasPath": ".status.replicas"}
        version["subresources"] = {"scale": paths}
    names = {"plural": owner.plural, "singular": owner.short.lower(), "kind": owner.short}
    spec = {"group": owner.group, "names": names, "scope": "Namespaced", "versions": [version]}
    meta: Json = {"name": f"{owner.plural}.{owner.group}"}
    meta["annotations"] = {"api-approved.kubernetes.io": "unapproved"} if owner.group.endswith("k8s.io") else {}
    return {
        "apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition", "metadata": meta, "spec": spec
    }  # fmt: skip


class Operators:
    """The operators of *owners*. The pods of other workloads with the scheduler BY_HAND are bound to *homes* by app."""

    def __init__(
        self, plane: ControlPlane, owners: Iterable[PlayedOwner], homes: Mapping[str, str] | None = None
    ) -> None:
        self.opened = False  #: whether pods are bound to spot nodes instead of their first node
        self._plane = plane
        self._owners = {owner.app: owner for owner in owners}
        self._homes = {**{owner.app: owner.node for owner in self._owners.values()}, **(homes or {})}
        self.uids: dict[str, str] = {}  #: of the owners by name
        self._missing: dict[str, float] = {}
        self._clock = SystemClock()
        self._targets = itertools.cycle(("spot-1", "spot-2"))
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._run, name="operators")

    def __enter__(self) -> Self:
        self._define()
        for owner in self._owners.values():
            if owner.group:
                self.uids[owner.app] = self._plane.apply([owner.manifest])[0]["metadata"]["uid"]
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._ended.set()
        self._thread.join()

    def _define(self) -> None:
        kinds = {owner.kind: owner for owner in self._owners.values() if owner.group}
        self._plane.apply(definition(owner) for owner in kinds.values())
        for owner in kinds.values():
            self._plane.wait_for(partial(self._is_served, owner), f"{owner.kind} served")

    def _is_served(self, owner: PlayedOwner) -> bool:
        try:
            served = self._plane.api.get(f"/apis/{owner.group}/{owner.version}")["resources"]
        except ApiError:
            return False
        return any(resource["kind"] == owner.short for resource in served)

    def _run(self) -> None:
        while not self._ended.wait(0.3):
            try:
                self._serve(self._plane.api.items(PODS))
            except (ApiError, httpx2.TransportError):
                continue

    def _serve(self, pods: list[Json]) -> None:
        for item in pods:
            if item["spec"].get("schedulerName") == BY_HAND and not item["spec"].get("nodeName"):
                self._bind(item)
        for app, owner in self._owners.items():
            live = [item for item in pods if _is_live(item) and app in _owners_of(item)]
            if len(live) >= owner.wanted or app not in self.uids or not owner.plays:
                self._missing.pop(app, None)
            else:
                since = self._missing.setdefault(app, self._clock.monotonic())
                if self._clock.monotonic() >= since + (owner.delay if self.opened else 0):
                    self._create(owner, live)

    def _bind(self, item: Json) -> None:
        meta = item["metadata"]
        home = self._homes.get(meta["labels"].get("app", ""), "")
        target = next(self._targets) if self.opened or not home else home
        binding = {"apiVersion": "v1", "kind": "Binding", "metadata": {"name": meta["name"]}}
        self._plane.api.post(f"{PODS}/{meta['name']}/binding", binding | {"target": {"kind": "Node", "name": target}})

    def _create(self, owner: PlayedOwner, live: list[Json]) -> None:
        taken = {item["metadata"]["name"] for item in live}
        names = (f"{owner.app}-{number}" for number in itertools.count())
        name = next(name for name in names if name not in taken) if owner.ordinal else f"{owner.app}-{_suffix()}"
        manifest = pod(name, labels={"app": owner.app}, annotations=owner.annotations, restartPolicy=owner.restart)
        manifest["metadata"]["labels"] = {"app": owner.app}
        manifest["metadata"]["ownerReferences"] = [reference(owner, self.uids[owner.app])]
        if not self.opened:
            manifest["spec"]["schedulerName"] = BY_HAND
        self._plane.api.post(PODS, manifest)


def reference(owner: PlayedOwner, uid: str) -> Json:
    """Return the reference of a pod to *owner*."""
    version = owner.kind.rpartition("/")[0]
    return {"apiVersion": version, "kind": owner.short, "name": owner.app, "uid": uid, "controller": True}


def _owners_of(item: Json) -> set[str]:
    return {owner["name"] for owner in item["metadata"].get("ownerReferences", ())}


def _is_live(item: Json) -> bool:
    phase: Any = item["status"].get("phase")
    return "deletionTimestamp" not in item["metadata"] and phase not in ("Succeeded", "Failed")


def _suffix() -> str:
    return "".join(secrets.choice("bcdfghjklmnpqrstvwxz") for _ in range(5))
