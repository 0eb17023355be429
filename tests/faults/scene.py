"""A small cluster for one run: one cloudpool machine with pods to drain, and two spot nodes."""

import contextlib
import itertools
import ssl
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any, Final

from devcluster.api import Json
from devcluster.audit import AuditLog
from devcluster.cloudpool.cluster import Cluster
from devcluster.cloudpool.server import CloudpoolServer
from devcluster.cloudpool.settings import CloudpoolSettings
from devcluster.faults.exchange import ProxiedRequest
from devcluster.faults.proxy import FaultProxy, before_cloudpool
from devcluster.manifests import deployment, pdb, spot
from rescheduler.clock import SystemClock
from rescheduler.net.config_files import Duration
from rescheduler.settings import LEASE
from tests.cluster.observer import ready
from tests.faults.sites import KEY, Site, clean
from tests.providers.cloudpools import document

WEB: Final = "web"  #: two pods with a budget
WORKER: Final = "worker"  #: one pod without a budget
PODS: Final = {WEB: 2, WORKER: 1}


class Scene:
    """The cluster of one run, and its state as seen from outside."""

    def __init__(
        self, at: Site, server: CloudpoolServer, pool_proxy: FaultProxy, name: str, may_be_missing: int
    ) -> None:
        self.site, self.server, self.pool, self.pool_proxy, self.name = at, server, server.pool, pool_proxy, name
        self.plane, self.proxy = at.plane, at.proxy
        self.audit = AuditLog(at.plane.layout.audit_log)
        self.may_be_missing = may_be_missing
        self.wanted: dict[str, int] = dict(PODS)
        self.web_annotations: dict[str, str] = {}  #: of its template
        self.machine = ""  #: id of the machine of the node to drain
        self.relabeled = False  #: whether the node to drain has the label of spot nodes
        self.ordered_relabeled = 0  #: requests to terminate its machine in that time
        self.ordered_with_pods: list[str] = []  #: pods still on the node when its machine's termination was requested
        self.kubeconfig = at.write_kubeconfig()
        self.clock_offset.write_text("0")
        self._logs = itertools.count(1)

    # -- programs

    @property
    def log(self) -> Path:
        """Return a new file for the log of the next process."""
        return self.site.folder / f"{self.name}-{next(self._logs)}.log"

    @property
    def clock_offset(self) -> Path:
        """The file with the offset of the programs' wall clock in seconds."""
        return self.site.folder / "clock-offset"

    @property
    def trusted(self) -> ssl.SSLContext:
        """TLS settings for clients of the API server's proxy."""
        return ssl.create_default_context(cafile=self.plane.ca)

    def release_lease(self) -> None:
        """Take the Lease from its holder, so that the next daemon does not wait for its expiry after a kill."""
        path = f"/apis/coordination.k8s.io/v1/namespaces/{self.site.name}/leases/{LEASE}"
        self.plane.api.patch(path, {"spec": {"holderIdentity": ""}})

    # -- state

    def pods(self) -> list[Json]:
        """Return the pods that have not terminated."""
        pods = self.plane.api.items(f"/api/v1/namespaces/{self.site.name}/pods")
        return [pod for pod in pods if pod["status"]["phase"] not in ("Succeeded", "Failed")]

    def nodes(self) -> dict[str, Json]:
        selector = f"{KEY}={self.site.name}"
        return {
            node["metadata"]["name"]: node for node in self.plane.api.items("/api/v1/nodes", labelSelector=selector)
        }

    @property
    def node(self) -> str:
        """The node to drain."""
        return f"{self.name}-1"

    def machines(self) -> list[str]:
        """Return the nodes of the running machines."""
        now = SystemClock().now()
        return sorted(machine.name for machine in self.pool.machines() if machine.allocated(now))

    def lacking(self) -> dict[str, int]:
        """Return the number of missing Ready pods of each Deployment that misses any."""
        counts = Counter(pod["metadata"]["labels"]["app"] for pod in ready(self.pods()))
        return {app: count - counts[app] for app, count in self.wanted.items() if counts[app] < count}

    def rolling_out(self) -> list[str]:
        """Return the Deployments whose pods are not all of the current template and available, or that has too many."""
        found = []
        for item in self.plane.api.items(f"/apis/apps/v1/namespaces/{self.site.name}/deployments"):
            meta, status = item["metadata"], item["status"]
            numbers = {status.get(name, 0) for name in ("replicas", "updatedReplicas", "availableReplicas")}
            if numbers != {item["spec"]["replicas"]} or status.get("observedGeneration") != meta["generation"]:
                found.append(meta["name"])
        return found

    def add_late_pod(self) -> None:
        """Add a pod of another Deployment; the scheduler places it on the node to drain if it fits."""
        hostname = {"key": "kubernetes.io/hostname", "operator": "In", "values": [self.node]}
        term = {"weight": 100, "preference": {"matchExpressions": [hostname]}}
        prefers = {"nodeAffinity": {"preferredDuringSchedulingIgnoredDuringExecution": [term]}}
        self.plane.apply([self._deployment("late", 1, affinity=prefers)])
        self.wanted["late"] = 1

    def edit_templates(self) -> None:
        """Edit the template of each Deployment, which rolls out."""
        template = {"metadata": {"annotations": {"version": "2"}}}
        for app in PODS:
            path = f"/apis/apps/v1/namespaces/{self.site.name}/deployments/{app}"
            self.plane.api.patch(path, {"spec": {"template": template}})

    def relabel(self, *, spot: bool) -> None:
        """Label the node to drain as a spot node, or as an on-demand node again. Nothing happens if it is gone."""
        if self.node not in self.nodes():
            return
        name = self.site.name
        labels = {f"{KEY}-spot": name if spot else None, f"{KEY}-on-demand": None if spot else name}
        self.plane.api.patch(f"/api/v1/nodes/{self.node}", {"metadata": {"labels": labels}})
        self.relabeled = spot

    @property
    def web(self) -> Json:
        """The manifest of the Deployment WEB."""
        return self._deployment(WEB, PODS[WEB], annotations=self.web_annotations)

    def web_now(self) -> tuple[Json, set[str]]:
        """Return the template of WEB, and the UIDs of its pods."""
        stored: Json = self.plane.api.get(self.plane.api.path(self.web))["spec"]["template"]
        mine = (pod["metadata"] for pod in self.pods() if pod["metadata"]["labels"]["app"] == WEB)
        return stored, {meta["uid"] for meta in mine if "deletionTimestamp" not in meta}

    def _deployment(self, app: str, replicas: int, **spec: Any) -> Json:
        return deployment(app, replicas, namespace=self.site.name, nodeSelector=self.site.labels, **spec)

    # -- setup

    def build(self, before_pods: Callable[["Scene"], None]) -> None:
        """Start the pods on the node to drain, then open the spot nodes."""
        name, wait = self.site.name, self.plane.wait_for
        spots = [f"{self.name}-spot-{number}" for number in (1, 2)]
        labels = {**self.site.labels, f"{KEY}-spot": name}
        self.plane.apply(spot(node, labels=labels, unschedulable=True) for node in spots)
        wait(lambda: {*self.nodes()} == {self.node, *spots}, "the nodes of the scene")
        self.machine = self.pool.machines()[0].id(SystemClock().now())
        before_pods(self)
        self.plane.apply([pdb(WEB, namespace=name, max_unavailable=self.may_be_missing)])
        self.plane.apply([self.web, self._deployment(WORKER, PODS[WORKER])])
        wait(lambda: not self.lacking(), "the pods of the scene")
        for node in spots:
            self.plane.api.patch(f"/api/v1/nodes/{node}", {"spec": {"unschedulable": None}})
        wait(lambda: not any(map(unusable, self.nodes().values())), "nodes of the scene that take pods")
        wait(lambda: self._budget_allows() == self.may_be_missing, "the budget of the scene")

    def _budget_allows(self) -> int:
        path = f"/apis/policy/v1/namespaces/{self.site.name}/poddisruptionbudgets/{WEB}"
        allowed: int = self.plane.api.get(path).get("status", {}).get("disruptionsAllowed", 0)
        return allowed

    def watch_order(self, request: ProxiedRequest) -> None:
        """Record the pods that are still on the node when the machine's termination is requested."""
        if request.call.resource == "/pool/terminate":
            self.ordered_relabeled += self.relabeled
            self.ordered_with_pods += [
                pod["metadata"]["name"] for pod in self.pods() if pod["spec"].get("nodeName") == self.node
            ]


def unusable(node: Mapping[str, Any]) -> list[str]:
    """Return why a node accepts no pods; empty if it does."""
    taints = [taint["key"] for taint in node["spec"].get("taints") or () if taint["effect"] != "PreferNoSchedule"]
    conditions = [
        condition["status"] for condition in node["status"].get("conditions", ()) if condition["type"] == "Ready"
    ]
    unready = [] if conditions == ["True"] else ["not Ready"]
    return [*taints, *unready, *(["unschedulable"] if node["spec"].get("unschedulable") else [])]


@contextlib.contextmanager
def scene(
    at: Site, before_pods: Callable[["Scene"], None] = lambda _: None, *, may_be_missing: int = 1
) -> Iterator[Scene]:
    """Create a scene with its pods, and delete it at the end.

    *before_pods* is called when all nodes and no pods exist. *may_be_missing* is the number of WEB pods that the
    budget allows to be missing.
    """
    clock, name = SystemClock(), f"{at.name}-r{next(at.runs)}"
    label = {f"{KEY}-on-demand": at.name}
    settings = CloudpoolSettings(
        pool=document(name=name, labels={**at.labels, **label}),
        desired_size=1,
        refresh_interval=Duration(0.2),
        pool_update=Duration(0.4),
        second_termination="ok",
        nodes_stay=True,
    )
    with contextlib.ExitStack() as stack:
        server = stack.enter_context(CloudpoolServer(settings, at.folder, clock).running())
        cluster = Cluster(str(at.plane.kubeconfig), server.pool, clock)
        cluster.start()
        stack.callback(cluster.close)
        env = Scene(at, server, stack.enter_context(before_cloudpool(server.url)), name, may_be_missing)
        env.pool_proxy.watcher = env.watch_order
        stack.callback(clean, at)
        env.build(before_pods)
        yield env
