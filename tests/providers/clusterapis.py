"""Cluster API in memory: its controllers by the rules of their sources, and its part of an API server for tests.

The rules are those of `syncReplicas` and `machineset_deletion_order.go`, and of OpenShift's `delete_policy.go`; see
:mod:`rescheduler.providers.clusterapi.machines`. `make clusterapi` runs the real controllers.
"""

import contextlib
import itertools
import json
import threading
from collections.abc import Iterator
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, Final

from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse
from starlette.routing import Route

from devcluster.api import Json
from devcluster.standin.faults import Fault
from devcluster.standin.server import StandinServer
from rescheduler.clock import Clock
from rescheduler.execution.machine_objects import MachineObjects
from rescheduler.kube.client import Client
from rescheduler.kube.connection import Kubeconfig
from rescheduler.providers.base import CloudProvider, NodeRef
from rescheduler.providers.clusterapi import ClusterApiFile, ClusterApiProvider
from rescheduler.providers.clusterapi.objects import CLUSTER_API, OPENSHIFT, MachineApi
from tests.kube.conftest import kubeconfig
from tests.providers.clocks import StepClock
from tests.providers.failing import FailingDeletions

SPACE: Final = "fleet"
POOL: Final = "on-demand"
GROUP: Final = f"MachineDeployment/{SPACE}/{POOL}"


class MachineCluster:
    """The objects of an API, and its controllers, which act at each request unless *stopped*.

    A deleted Machine is gone *seconds* later. *ended* are the Machines that the controllers deleted, with their marks.
    """

    def __init__(self, clock: Clock, api: MachineApi = CLUSTER_API, seconds: float = 15.0) -> None:
        self.api, self._clock, self._seconds = api, clock, seconds
        self.version = api.versions[0]
        self._lock = threading.RLock()
        self._numbers = itertools.count(1)
        self._gone_at: dict[str, float] = {}
        kinds = ("clusters", "machinedeployments") if api.has_clusters else ()
        self.objects: dict[str, dict[str, Json]] = {kind: {} for kind in (*kinds, "machinesets", "machines")}
        self.ended: list[tuple[str, dict[str, str]]] = []
        self.stopped = self.down = False

    def add(self, kind: str, name: str, spec: Json, owner: Json | None = None, **meta: Any) -> Json:
        number = next(self._numbers)
        named = {"name": name, "namespace": SPACE, "uid": f"uid-{number}", "resourceVersion": str(number)}
        kinds = {"machinedeployments": "MachineDeployment", "machinesets": "MachineSet"}
        owners = []
        if owner is not None:
            plural = next(each for each, own in self.objects.items() if owner["metadata"]["name"] in own)
            owners = [{"kind": kinds[plural], "controller": True, "apiVersion": "x/v1", **_reference(owner)}]
        common = {"labels": {}, "annotations": {}, "ownerReferences": owners, "generation": 1}
        item = {"metadata": {**named, **common, **meta}, "spec": spec, "status": {"observedGeneration": 1}}
        self.objects[kind][name] = item
        return item

    def add_group(self, name: str, replicas: int, minimum: int | None = None) -> Json:
        """Add what is scaled, with running Machines."""
        limits = {} if minimum is None else {"min-size": str(minimum), "max-size": "10"}
        prefix = f"{self.api.group}/cluster-api-autoscaler-node-group-"
        notes = {f"{prefix}{key}": text for key, text in limits.items()}
        spec = {"replicas": replicas, "clusterName": "c"}
        if not self.api.has_clusters:
            scaled = self.add("machinesets", name, spec, annotations=notes)
        else:
            if not self.objects["clusters"]:
                self.add("clusters", "c", {})
            scaled = self.add("machinedeployments", name, spec, annotations=notes)
            self.add_set(scaled, f"{name}-1", replicas)
        self.act()
        return scaled

    def add_set(self, deployment: Json, name: str, replicas: int, revision: int = 1) -> Json:
        notes = {"machinedeployment.clusters.x-k8s.io/revision": str(revision)}
        return self.add("machinesets", name, {"replicas": replicas, "clusterName": "c"}, deployment, annotations=notes)

    def item(self, kind: str, name: str) -> Json:
        """Return the object itself."""
        return self.objects[kind][name]

    @property
    def machines(self) -> list[Json]:
        return [*self.objects["machines"].values()]

    def alive(self) -> list[Json]:
        return [each for each in self.machines if "deletionTimestamp" not in each["metadata"]]

    def change(self, kind: str, name: str, change: Json) -> Json:
        """Change an object as another client does."""
        with self._lock:
            item = self.objects[kind][name]
            before = json.dumps(item["spec"])
            _merge(item, change)
            item["metadata"]["resourceVersion"] = str(next(self._numbers))
            item["metadata"]["generation"] += before != json.dumps(item["spec"])
            return item

    def scale(self, name: str, delta: int) -> None:
        kind = "machinedeployments" if self.api.has_clusters else "machinesets"
        self.change(kind, name, {"spec": {"replicas": self.item(kind, name)["spec"]["replicas"] + delta}})

    def patch(self, kind: str, name: str, change: Json) -> tuple[int, str]:
        """Return the code and the message of the response."""
        with self._lock:
            if (item := self.objects[kind].get(name)) is None:
                return 404, f'{kind} "{name}" not found'
            meta = change["metadata"]
            if any(meta.pop(key) != item["metadata"][key] for key in ("uid", "resourceVersion")):
                return 409, "the object has been modified"
            self.change(kind, name, change)
            return 200, ""

    def listed(self, kind: str) -> list[Json]:
        with self._lock:
            self.act()
            return json.loads(json.dumps([*self.objects[kind].values()]))  # type: ignore[no-any-return]

    def act(self) -> None:
        """Do what the controllers do, and let the Machines go whose deletion has ended."""
        with self._lock:
            now = self._clock.monotonic()
            for name in [name for name, gone in self._gone_at.items() if gone <= now]:
                self._gone_at.pop(name)
                self.objects["machines"].pop(name, None)
            if self.stopped:
                return
            for each in self.objects.get("machinedeployments", {}).values():
                each["status"]["observedGeneration"] = each["metadata"]["generation"]
                own = [one for one in self.objects["machinesets"].values() if _owned(one, each)]
                newest = max(own, key=lambda one: one["metadata"]["annotations"][_REVISION])
                wanted = each["spec"]["replicas"] - sum(one["spec"]["replicas"] for one in own if one is not newest)
                if newest["spec"]["replicas"] != wanted:
                    self.change("machinesets", newest["metadata"]["name"], {"spec": {"replicas": max(0, wanted)}})
            for each in [*self.objects["machinesets"].values()]:
                each["status"]["observedGeneration"] = each["metadata"]["generation"]
                self._sync(each)

    def delete(self, name: str) -> None:
        """Delete a Machine as another client does."""
        meta = self.objects["machines"][name]["metadata"]
        if "deletionTimestamp" not in meta:
            meta["deletionTimestamp"] = self._clock.now().isoformat()
            meta["resourceVersion"] = str(next(self._numbers))
            self._gone_at[name] = self._clock.monotonic() + self._seconds

    def _sync(self, owner: Json) -> None:
        own = [each for each in self.machines if _owned(each, owner)]
        if not self.api.has_clusters:  # OpenShift does not count those that are being deleted
            own = [each for each in own if "deletionTimestamp" not in each["metadata"]]
        for _ in range(owner["spec"]["replicas"] - len(own)):
            number = next(self._numbers)
            machine = self.add("machines", f"{owner['metadata']['name']}-{number}", {"clusterName": "c"}, owner)
            machine["spec"]["providerID"] = f"kwok://node-{number}"
            machine["status"] = {"nodeRef": {"name": f"node-{number}"}}
        own.sort(key=self._priority, reverse=True)
        for each in own[: max(0, len(own) - owner["spec"]["replicas"])]:
            if "deletionTimestamp" not in each["metadata"]:
                self.ended.append((each["metadata"]["name"], dict(each["metadata"]["annotations"])))
                self.delete(each["metadata"]["name"])

    def _priority(self, machine: Json) -> tuple[int, bool, str]:
        """Return the priority of a deletion. Between equals, one that is not marked goes first: the worst case."""
        meta = machine["metadata"]
        marks = [meta["annotations"][name] for name in self.api.marks if name in meta["annotations"]]
        marked = any(marks) if self.api is OPENSHIFT else bool(marks)
        failed = "errorReason" in machine["status"]
        if self.version == "v1beta1" and self.api is CLUSTER_API:  # before 1.9
            failed = "nodeRef" not in machine["status"] or any(
                each["type"] in ("NodeHealthy", "HealthCheckSucceeded") and each["status"] == "False"
                for each in machine["status"].get("conditions", ())
            )
        priority = 4 if "deletionTimestamp" in meta else 3 if marked else 1
        return max(priority, 3 * failed), not marked, meta["name"]

    def close(self) -> None:
        """Do nothing: the protocol of stand-ins."""


_REVISION: Final = "machinedeployment.clusters.x-k8s.io/revision"


def _reference(owner: Json) -> Json:
    return {key: owner["metadata"][key] for key in ("name", "uid")}


def _owned(item: Json, owner: Json) -> bool:
    return any(each["uid"] == owner["metadata"]["uid"] for each in item["metadata"]["ownerReferences"])


def _merge(item: Json, change: Json) -> None:
    """Merge as RFC 7386 says."""
    for key, value in change.items():
        if isinstance(value, dict):
            _merge(item.setdefault(key, {}), value)
        elif value is None:
            item.pop(key, None)
        else:
            item[key] = value


def application(cluster: MachineCluster) -> Starlette:
    def answer(code: int, body: Any) -> JSONResponse:
        if cluster.down:
            return JSONResponse({"kind": "Status", "message": "the server is starting", "code": 503}, 503)
        return JSONResponse(body, code)

    def items(request: Request) -> JSONResponse:
        kind = request.path_params["kind"]
        if kind not in cluster.objects or request.path_params["version"] != cluster.version:
            return answer(404, {"kind": "Status", "message": "not found", "code": 404})
        return answer(200, {"metadata": {"resourceVersion": "1"}, "items": cluster.listed(kind)})

    async def patch(request: Request) -> JSONResponse:
        assert request.headers["content-type"] == "application/merge-patch+json"
        body = json.loads(await request.body())
        if cluster.down:
            return answer(503, {})
        code, message = cluster.patch(request.path_params["kind"], request.path_params["name"], body)
        return answer(code, {"kind": "Status", "message": message, "code": code})

    base = f"/apis/{cluster.api.group}/{{version}}"
    spaced = f"{base}/namespaces/{SPACE}/{{kind}}"
    return Starlette(
        routes=[
            Route(f"{base}/{{kind}}", items),
            Route(spaced, items),
            Route(f"{spaced}/{{name}}", patch, methods=["PATCH"]),
        ]
    )


def node_of(machine: Json, **changes: Any) -> NodeRef:
    """Return the Node of a Machine as the daemon sees it."""
    name, meta = machine["status"]["nodeRef"]["name"], machine["metadata"]
    notes = {"cluster.x-k8s.io/machine": meta["name"], "cluster.x-k8s.io/cluster-namespace": SPACE}
    return NodeRef(name, **{"provider_id": machine["spec"]["providerID"], "annotations": notes} | changes)


class ClusterApiWorld(FailingDeletions):
    """World of the conformance table (see `conformance`)."""

    def __init__(self, server: StandinServer[MachineCluster], clock: StepClock, folder: Path) -> None:
        self.server, self.clock, self.cluster = server, clock, server.cloud
        self.folder, self.file = folder, ClusterApiFile()
        kind = "MachineDeployment" if self.cluster.api.has_clusters else f"MachineSet.{self.cluster.api.group}"
        self.group = f"{kind}/{SPACE}/{POOL}"
        self.provider: CloudProvider = self._open()

    def _open(self) -> CloudProvider:
        provider = ClusterApiProvider(self.file, self.clock, Path())
        client = Client(Kubeconfig(str(kubeconfig(self.folder, self.server.url))), self.clock)
        provider.use_cluster(MachineObjects(client))
        return provider

    def restart(self) -> None:
        self.provider = self._open()

    def nodes(self) -> list[NodeRef]:
        return [node_of(each) for each in self.cluster.alive() if each["metadata"]["name"].startswith(POOL)]

    def foreign(self) -> NodeRef:
        """Return the Node of a machine that Cluster API does not own."""
        return NodeRef("elsewhere", "aws:///eu-north-1a/i-1", {"eks.amazonaws.com/nodegroup": "base"})

    def placeholder(self) -> None:
        """Return None: Cluster Autoscaler does not use this provider."""

    def runs(self, node: NodeRef) -> bool:
        return any(each["spec"]["providerID"] == node.provider_id for each in self.cluster.listed("machines"))

    def scaled(self) -> Json:
        return self.cluster.item("machinedeployments" if self.cluster.api.has_clusters else "machinesets", POOL)

    def target(self) -> int:
        return self.scaled()["spec"]["replicas"]  # type: ignore[no-any-return]

    def _inject(self, **fault: Any) -> None:
        fault = {"status": 429, **fault}
        self.server.faulty_app.inject(Fault(method="PATCH", path=self.path(), **fault))

    def path(self) -> str:
        """Return the path of what is scaled."""
        kind = "machinedeployments" if self.cluster.api.has_clusters else "machinesets"
        return f"/apis/{self.cluster.api.group}/{self.cluster.version}/namespaces/{SPACE}/{kind}/{POOL}"

    def go_down(self) -> None:
        self.cluster.down = True


@contextlib.contextmanager
def cluster_api_world(machines: int, minimum: int, api: MachineApi = CLUSTER_API) -> Iterator[ClusterApiWorld]:
    clock = StepClock()
    cluster = MachineCluster(clock, api)
    cluster.add_group(POOL, machines, minimum)
    with TemporaryDirectory() as folder, StandinServer(cluster, application(cluster)).running() as server:
        yield ClusterApiWorld(server, clock, Path(folder))


def openshift_world(machines: int, minimum: int) -> contextlib.AbstractContextManager[ClusterApiWorld]:
    return cluster_api_world(machines, minimum, OPENSHIFT)
