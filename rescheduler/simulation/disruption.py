"""The disruption controller, which writes the status of PodDisruptionBudgets. Source:
``kubernetes/pkg/controller/disruption/disruption.go``.
"""

from collections import defaultdict
from typing import Final

from rescheduler.simulation.api import ApiServer
from rescheduler.simulation.eviction import is_ready, matches
from rescheduler.simulation.reconciling import Reconciler, active, finished, share
from rescheduler.simulation.store import PLURALS, Json, StoredChange, controller_of, key_of
from rescheduler.simulation.times import seconds_since

#: How long a pod counts as evicted before its deletion is seen (``DeletionTimeout``).
_DELETION_SECONDS: Final = 120.0

_SCALED: Final = frozenset({"Deployment", "ReplicaSet", "StatefulSet", "ReplicationController"})


class SimulatedBudgets(Reconciler):
    plural = "poddisruptionbudgets"

    def __init__(self, server: ApiServer) -> None:
        super().__init__(server)
        #: Keys of budgets by namespace and one label that their pods have; those whose selectors name none: "".
        self._by_label: defaultdict[tuple[str, str], dict[str, None]] = defaultdict(dict)
        self._selected: defaultdict[str, dict[str, None]] = defaultdict(dict)  # keys of pods, by budget
        for budget in self.store.all(self.plural):
            self._by_label[_label(budget)][key_of(budget)] = None
        for pod in self.store.all("pods"):
            for key in self._budgets_of(pod["metadata"]["namespace"], pod):
                self._selected[key][key_of(pod)] = None
        self.store.listen("pods", self._pod_changed)
        for plural in ("replicasets", "deployments", "statefulsets"):
            self.store.listen(plural, self._scaled)
        self.store.listen(self.plural, self._budget_changed)

    def _budget_changed(self, change: StoredChange) -> None:
        budget, key = change.after.object, key_of(change.after.object)
        if change.before is not None and change.type != "DELETED" and change.before["spec"] == budget["spec"]:
            return
        if change.before is not None:
            self._by_label[_label(change.before)].pop(key, None)
        self._selected.pop(key, None)
        if change.type != "DELETED":
            self._by_label[_label(budget)][key] = None
            self._selected[key] = {key_of(pod): None for pod in self.store.all("pods") if matches(budget, pod)}

    def _budgets_of(self, namespace: str, template: Json) -> list[str]:
        """Return the keys of the budgets of pods with the labels of *template* in *namespace*."""
        labels = (template.get("metadata") or {}).get("labels") or {}
        pod = {"metadata": {"namespace": namespace, "labels": labels}}
        texts = ("", *(f"{name}={value}" for name, value in labels.items()))
        keys = [key for text in texts for key in self._by_label.get((namespace, text), ())]
        return [key for key in keys if (found := self.store.get(self.plural, key)) and matches(found, pod)]

    def _pod_changed(self, change: StoredChange) -> None:
        pod, namespace = change.after.object, change.after.object["metadata"]["namespace"]
        before = [] if change.before is None else self._budgets_of(namespace, change.before)
        after = [] if change.type == "DELETED" else self._budgets_of(namespace, pod)
        for key in before:
            if key not in after:
                self._selected[key].pop(key_of(pod), None)
        for key in after:
            self._selected[key][key_of(pod)] = None
        for key in dict.fromkeys((*before, *after)):
            self.enqueue(key)

    def _scaled(self, change: StoredChange) -> None:
        item, before = change.after.object, change.before
        if before is None or before["spec"].get("replicas") != item["spec"].get("replicas"):
            for key in self._budgets_of(item["metadata"]["namespace"], item["spec"].get("template") or {}):
                self.enqueue(key)

    def reconcile(self, item: Json) -> None:
        status = item.get("status") or {}
        found = [self.store.tables["pods"][key].object for key in sorted(self._selected[key_of(item)])]
        pods = [pod for pod in found if not finished(pod)]
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
        named = [(pod["metadata"]["namespace"], owner) for pod in pods if (owner := controller_of(pod)) is not None]
        owners = {(namespace, owner["kind"], owner["name"]) for namespace, owner in named if owner["kind"] in _SCALED}
        wanted: dict[str, int] = {}
        for namespace, kind, name in owners:
            found = self.store.get(PLURALS[kind], f"{namespace}/{name}")
            above = None if found is None else controller_of(found)
            if above is not None and above["kind"] == "Deployment":
                found = self.store.get("deployments", f"{namespace}/{above['name']}") or found
            if found is not None:
                wanted[found["metadata"]["uid"]] = found["spec"].get("replicas", 1)
        return sum(wanted.values()) if wanted else len(pods)

    def _disrupted(self, before: dict[str, str], pods: list[Json]) -> dict[str, str]:
        """Return which pods were evicted, but whose deletion is not visible yet."""
        alive = {pod["metadata"]["name"] for pod in active(pods)}
        now = self.engine.time
        return {name: at for name, at in before.items() if name in alive and seconds_since(at, now) < _DELETION_SECONDS}


def _label(budget: Json) -> tuple[str, str]:
    """Return the namespace of *budget*, and one label that all its pods have, or ""."""
    labels = (budget["spec"].get("selector") or {}).get("matchLabels") or {}
    return budget["metadata"]["namespace"], next((f"{name}={value}" for name, value in labels.items()), "")
