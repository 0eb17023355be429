"""Workloads that are created, changed and broken: Deployments, StatefulSets and Jobs, with and without budgets."""

from dataclasses import dataclass, field
from random import Random
from typing import Any, Final

from devcluster.api import Json
from devcluster.errors import ApiError
from devcluster.manifests import ON_DEMAND, deployment, job, namespace, pdb, statefulset
from devcluster.plane import ControlPlane
from devcluster.stages import COMPLETE_AFTER, NEVER, START_AFTER, TERMINATE_AFTER
from tests.soak.machines import GUARD

TEAMS: Final = ("red", "blue", "green")
HIGH: Final = "soak-high"
PRIORITY: Final[Json] = {
    "apiVersion": "scheduling.k8s.io/v1",
    "kind": "PriorityClass",
    "metadata": {"name": HIGH},
    "value": 1000,
}
SAFE_TO_EVICT: Final = "cluster-autoscaler.kubernetes.io/safe-to-evict"
_STARTS: Final = ("0s", "0s", "1s", "2s", "3s")
_ENDS: Final = ("0s", "0s", "1s", "2s")
_CPUS: Final = ("100m", "200m", "400m", "600m")
MOST_REPLICAS: Final = 6


@dataclass(slots=True)
class Workloads:
    """The running workloads. *pods_left* limits the cluster to a size that two cores can handle.

    This share of the Deployments and StatefulSets must not run on spot nodes: *pinned*.
    """

    plane: ControlPlane
    rng: Random
    pinned: float = 0.0
    deployments: dict[str, Json] = field(default_factory=dict)  #: Deployments and StatefulSets by `namespace/name`
    broken: list[str] = field(default_factory=list)
    created: int = 0

    def start(self, count: int) -> None:
        self.plane.apply([PRIORITY, *map(namespace, TEAMS)])
        for _ in range(count):
            self.add()
        guard = deployment(GUARD, 1, namespace=TEAMS[0], annotations={SAFE_TO_EVICT: "false"})
        self.plane.apply([guard])

    # -- actions; each returns its description

    def add(self) -> str:
        self.created += 1
        rng, team = self.rng, self.rng.choice(TEAMS)
        ordered = rng.random() < 0.2
        name = f"{'set' if ordered else 'app'}{self.created}"
        annotations = {START_AFTER: rng.choice(_STARTS), TERMINATE_AFTER: rng.choice(_ENDS)}
        replicas = rng.randint(1, 3 if ordered else MOST_REPLICAS)
        build = statefulset if ordered else deployment
        fields: dict[str, Any] = {"priorityClassName": HIGH} if rng.random() < 0.3 else {}
        important = " of high priority" if fields else ""
        if self.pinned and rng.random() < self.pinned:
            replicas, fields["nodeSelector"] = min(replicas, 2), {ON_DEMAND: "true"}
        workload = build(name, replicas, namespace=team, cpu=rng.choice(_CPUS), annotations=annotations, **fields)
        objects = [workload]
        if rng.random() < 0.4:
            objects.append(pdb(name, namespace=team, max_unavailable=rng.choice((1, 1, 2))))
        self.plane.apply(objects)
        self.deployments[f"{team}/{name}"] = workload
        place = " on on-demand nodes" if "nodeSelector" in fields else ""
        return f"add {workload['kind']} {team}/{name} with {replicas} replicas{important}{place}"

    def add_job(self) -> str:
        self.created += 1
        team, name, pods = self.rng.choice(TEAMS), f"job{self.created}", self.rng.randint(1, 3)
        annotations = {COMPLETE_AFTER: f"{self.rng.randint(15, 60)}s"}
        limit = self.rng.choice((0, 6))
        obj = job(name, pods, namespace=team, cpu="200m", annotations=annotations)
        obj["spec"] |= {"backoffLimit": limit, "ttlSecondsAfterFinished": 10}
        self.plane.apply([obj])
        return f"add Job {team}/{name} with {pods} pods and backoffLimit {limit}"

    def delete(self) -> str:
        if len(self.deployments) < 6:
            return self.add()
        key = self._any()
        self.plane.api.delete(self._path(key), propagationPolicy="Background")
        team, name = key.split("/")
        self.plane.api.delete(f"/apis/policy/v1/namespaces/{team}/poddisruptionbudgets/{name}")
        del self.deployments[key]
        self._forget(key)
        return f"delete {key}"

    def scale(self) -> str:
        key = self._any()
        replicas = self.rng.randint(0 if self.rng.random() < 0.1 else 1, MOST_REPLICAS)
        self._patch(key, {"spec": {"replicas": replicas}})
        return f"scale {key} to {replicas}"

    def roll_out(self) -> str:
        key = self._any()
        self._template(key, {"soak/roll-out": str(self.rng.random())})
        return f"roll out {key}"

    def edit_on(self, node: str) -> str:
        """Edit the template of a workload with pods on *node*, which may be paused or roll out nothing by itself."""
        pods = self.plane.api.items("/api/v1/pods", fieldSelector=f"spec.nodeName={node}")
        apps = {f"{pod['metadata']['namespace']}/{pod['metadata'].get('labels', {}).get('app')}" for pod in pods}
        if not (keys := sorted(apps & self.deployments.keys())):
            return ""
        key, held = self.rng.choice(keys), self.rng.random() < 0.5
        if self.deployments[key]["kind"] == "Deployment":
            self._patch(key, {"spec": {"paused": held}})
        else:
            strategy = {"type": "OnDelete" if held else "RollingUpdate", "rollingUpdate": None}
            self._patch(key, {"spec": {"updateStrategy": strategy}})
        self._template(key, {"soak/edit": str(self.rng.random())})
        return f"edit the template of {key}, which {'does not roll' if held else 'rolls'} out"

    def orphan(self) -> str:
        """Delete a workload without its pods; return its key."""
        key = self._any()
        self.plane.api.delete(self._path(key), propagationPolicy="Orphan")
        return key

    def adopt(self, key: str) -> None:
        """Create a workload again that was deleted without its pods, unless it was deleted for good."""
        if key in self.deployments:
            self.plane.apply([self.deployments[key]])

    def break_one(self) -> str:
        """Roll out a template whose pods never become Ready."""
        key = self._any()
        self.broken.append(key)
        self._template(key, {START_AFTER: NEVER})
        return f"break {key}: its new pods never become Ready"

    def mend(self) -> str:
        """Repair the workload that has been broken for the longest time."""
        if not self.broken:
            return ""
        key = self.broken[0]
        self._forget(key)
        self._template(key, {START_AFTER: "1s"})
        self.delete_pods(key)
        return f"mend {key}"

    def budget(self) -> str:
        key = self._any()
        team, name = key.split("/")
        if self.rng.random() < 0.3:
            self.plane.api.delete(f"/apis/policy/v1/namespaces/{team}/poddisruptionbudgets/{name}")
            return f"delete the budget of {key}"
        allowed = self.rng.choice((1, 1, 2, 3))
        self.plane.apply([pdb(name, namespace=team, max_unavailable=allowed)])
        return f"set the budget of {key} to {allowed} unavailable"

    def close_budget(self) -> tuple[str, str]:
        """Add a budget that allows no eviction; return its namespace and name."""
        key = self._any()
        team, name = key.split("/")
        self.plane.apply([pdb(name, namespace=team, max_unavailable=0)])
        return team, name

    def calm(self) -> None:
        """Repair all workloads, and let all budgets allow evictions."""
        while self.mend():
            pass

    # -- internals

    def delete_pods(self, key: str) -> None:
        """Delete the pods of a stuck roll-out: a StatefulSet would wait for its unready pods forever."""
        team, name = key.split("/")
        for pod in self.plane.api.items(f"/api/v1/namespaces/{team}/pods", labelSelector=f"app={name}"):
            ready = any(c["type"] == "Ready" and c["status"] == "True" for c in pod["status"].get("conditions", ()))
            if not ready:
                self.plane.api.delete(f"/api/v1/namespaces/{team}/pods/{pod['metadata']['name']}", gracePeriodSeconds=0)

    def _forget(self, key: str) -> None:
        self.broken = [broken for broken in self.broken if broken != key]

    def _any(self) -> str:
        return self.rng.choice(sorted(self.deployments))

    def _path(self, key: str) -> str:
        return self.plane.api.path(self.deployments[key])

    def _template(self, key: str, annotations: dict[str, str]) -> None:
        self._patch(key, {"spec": {"template": {"metadata": {"annotations": annotations}}}})

    def _patch(self, key: str, change: dict[str, Any]) -> None:
        try:
            self.plane.api.patch(self._path(key), change)
        except ApiError as error:
            if error.status != 404:
                raise
