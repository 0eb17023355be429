"""The disruption controller, which writes the status of PodDisruptionBudgets. Source:
``kubernetes/pkg/controller/disruption/disruption.go``.
"""

from typing import Final

from rescheduler.simulation.api import ApiServer
from rescheduler.simulation.eviction import is_ready, matches
from rescheduler.simulation.reconciling import Reconciler, active, share
from rescheduler.simulation.store import PLURALS, Json, StoredChange, controller_of, key_of
from rescheduler.simulation.times import seconds_since

#: How long a pod counts as evicted before its deletion is seen (``DeletionTimeout``).
_DELETION_SECONDS: Final = 120.0

_SCALED: Final = frozenset({"Deployment", "ReplicaSet", "StatefulSet", "ReplicationController"})


class SimulatedBudgets(Reconciler):
    plural = "poddisruptionbudgets"

    def __init__(self, server: ApiServer) -> None:
        super().__init__(server)
        self.store.listen("pods", self._pod_changed)
        for plural in ("replicasets", "deployments", "statefulsets"):
            self.store.listen(plural, self._scaled)
        self._in_namespace: dict[str, dict[str, None]] = {}
        self.store.listen(self.plural, self._budget_changed)

    def learn(self) -> None:
        """Note the budgets that exist."""
        for budget in self.store.all(self.plural):
            self._in_namespace.setdefault(budget["metadata"]["namespace"], {})[key_of(budget)] = None

    def _budget_changed(self, change: StoredChange) -> None:
        keys = self._in_namespace.setdefault(change.after.object["metadata"]["namespace"], {})
        if change.type == "DELETED":
            keys.pop(key_of(change.after.object), None)
        else:
            keys[key_of(change.after.object)] = None

    def _pod_changed(self, change: StoredChange) -> None:
        for key in self._in_namespace.get(change.after.object["metadata"]["namespace"], ()):
            budget = self.store.get(self.plural, key)
            if budget is not None and matches(budget, change.after.object):
                self.enqueue(key)

    def _scaled(self, change: StoredChange) -> None:
        if change.before is None or change.before["spec"].get("replicas") != change.after.object["spec"].get(
            "replicas"
        ):
            for key in self._in_namespace.get(change.after.object["metadata"]["namespace"], ()):
                self.enqueue(key)

    def reconcile(self, item: Json) -> None:
        status = item.get("status") or {}
        found = (pod for pod in self._pods(item["metadata"]["namespace"]) if matches(item, pod))
        pods = [pod for pod in found if pod["status"].get("phase") not in ("Succeeded", "Failed")]
        expected, wanted = self._expected(item["spec"], pods)
        disrupted = self._disrupted(status.get("disruptedPods") or {}, pods)
        healthy = sum(
            is_ready(pod) and not pod["metadata"].get("deletionTimestamp") and pod["metadata"]["name"] not in disrupted
            for pod in pods
        )
        allowed = max(healthy - wanted, 0) if expected else 0
        self.store.replace(
            self.plural,
            item,
            {
                **item,
                "status": {
                    "currentHealthy": healthy,
                    "desiredHealthy": wanted,
                    "disruptionsAllowed": allowed,
                    "expectedPods": expected,
                    "observedGeneration": item["metadata"].get("generation", 1),
                    **({"disruptedPods": disrupted} if disrupted else {}),
                },
            },
        )

    def _pods(self, namespace: str) -> list[Json]:
        prefix = f"{namespace}/"
        return [stored.object for key, stored in self.store.tables["pods"].items() if key.startswith(prefix)]

    def _expected(self, spec: Json, pods: list[Json]) -> tuple[int, int]:
        """Return the numbers of expected and of desired healthy pods."""
        least = spec.get("minAvailable")
        if isinstance(least, int):
            return len(pods), least
        expected = self._scales(pods)
        if least is not None:
            return expected, share(least, expected, up=True)
        most = share(spec.get("maxUnavailable", 0), expected, up=True)
        return expected, max(expected - most, 0)

    def _scales(self, pods: list[Json]) -> int:
        """Return the sum of what the controllers of *pods* want."""
        wanted: dict[str, int] = {}
        for pod in pods:
            owner = controller_of(pod)
            if owner is None or owner["kind"] not in _SCALED:
                continue
            found = self.store.get(PLURALS[owner["kind"]], f"{pod['metadata']['namespace']}/{owner['name']}")
            above = None if found is None else controller_of(found)
            if above is not None and above["kind"] == "Deployment":
                found = self.store.get("deployments", f"{pod['metadata']['namespace']}/{above['name']}") or found
            if found is not None:
                wanted[found["metadata"]["uid"]] = found["spec"].get("replicas", 1)
        return sum(wanted.values()) if wanted else len(pods)

    def _disrupted(self, before: dict[str, str], pods: list[Json]) -> dict[str, str]:
        """Return which pods were evicted, but whose deletion is not visible yet."""
        alive = {pod["metadata"]["name"] for pod in active(pods)}
        now = self.engine.time
        return {name: at for name, at in before.items() if name in alive and seconds_since(at, now) < _DELETION_SECONDS}
