"""An autoscaler: it adds machines for pods that the scheduler cannot place, and removes nodes that are empty.

Cluster Autoscaler: looks every 10 s, adds a machine for pods that have been unschedulable for 15 s, and removes nodes
that have been empty for 10 minutes. Karpenter: the same within seconds, and removes nodes that have been empty for one
minute. Neither moves pods here.
"""

from dataclasses import dataclass
from typing import Final

from predicates.objects.pods import DO_NOT_DISRUPT
from predicates.quantity import parse
from rescheduler.planning.rules.candidates import SCALE_DOWN_DISABLED
from rescheduler.simulation.admission import requests
from rescheduler.simulation.machines import Machines, lasting_taints
from rescheduler.simulation.more_workloads import tolerates_all
from rescheduler.simulation.reconciling import finished
from rescheduler.simulation.selectors import accepts
from rescheduler.simulation.store import Json, StoredChange, controller_of
from rescheduler.simulation.times import seconds_since

_DISABLED: Final = (SCALE_DOWN_DISABLED, DO_NOT_DISRUPT)


@dataclass(frozen=True, slots=True)
class AutoscalerRules:
    """How an autoscaler acts; all in seconds."""

    every: float
    pending: float  #: a pod is unschedulable for this long before a machine is added
    empty: float  #: a node is empty for this long before its machine ends
    add_wait: float  #: no further machine is added for this long


RULES: Final = {
    "cluster-autoscaler": AutoscalerRules(every=10.0, pending=15.0, empty=600.0, add_wait=120.0),
    "karpenter": AutoscalerRules(every=2.0, pending=2.0, empty=60.0, add_wait=60.0),
}


class SimulatedAutoscaler:
    """The autoscaler of a cluster. New machines are like the nodes that existed when it started."""

    def __init__(self, machines: Machines, rules: AutoscalerRules, most: int = 1000) -> None:
        self._machines = machines
        self._store = machines.store
        self._engine = machines.store.engine
        self._rules = rules
        self._most = most
        self._templates = sorted(self._store.all("nodes"), key=lambda node: str(node["metadata"]["name"]))
        self._random = self._engine.random("autoscaler")
        self._added = float("-inf")
        self._empty: dict[str, float] = {}  # by name of the node: since when
        self._changed = dict.fromkeys(self._store.tables["nodes"])  # nodes with changes since the last look
        self._store.listen("nodes", self._node_changed)
        self._store.listen("pods", self._pod_changed)
        self._engine.every(rules.every, self._look)

    def _look(self) -> None:
        self._remove()
        if self._engine.now < self._added + self._rules.add_wait or len(self._store.tables["nodes"]) >= self._most:
            return
        for pod in self._store.pods_of(""):
            if self._waits(pod) and (like := self._template_for(pod)) is not None:
                self._added = self._engine.now
                self._machines.join(like)
                return

    def _waits(self, pod: Json) -> bool:
        conditions = pod.get("status", {}).get("conditions") or ()
        found = next(
            (each for each in conditions if each["type"] == "PodScheduled" and each["status"] == "False"), None
        )
        if found is None or pod.get("status", {}).get("nominatedNodeName"):
            return False
        return seconds_since(found["lastTransitionTime"], self._engine.time) >= self._rules.pending

    def _template_for(self, pod: Json) -> Json | None:
        """Return a node whose like has room for *pod*, chosen at random among those that fit."""
        asked = requests(pod)
        tolerations = pod["spec"].get("tolerations") or ()
        fitting = [
            node
            for node in self._templates
            if _holds(node["status"]["allocatable"], asked)
            and accepts(pod["spec"], node)
            and tolerates_all(tolerations, lasting_taints(node))
        ]
        return self._random.choice(fitting) if fitting else None

    def _remove(self) -> None:
        """End the machines of nodes that have been empty for long enough."""
        changed, self._changed = self._changed, {}
        for name in (*self._empty, *(each for each in changed if each not in self._empty)):
            node = self._store.get("nodes", name)
            if node is None or node["spec"].get("providerID", "") in self._machines.ended or self._is_used(node):
                self._empty.pop(name, None)
            elif self._engine.now - self._empty.setdefault(name, self._engine.now) >= self._rules.empty:
                self._machines.end(node, "autoscaler")

    def _pod_changed(self, change: StoredChange) -> None:
        if name := change.after.object["spec"].get("nodeName"):
            self._changed[name] = None

    def _node_changed(self, change: StoredChange) -> None:
        name = change.after.object["metadata"]["name"]
        self._changed[name] = None
        if change.type == "DELETED":
            self._empty.pop(name, None)

    def _is_used(self, node: Json) -> bool:
        """Return whether *node* must not be removed, or has pods that do not end with it."""
        annotations = node["metadata"].get("annotations") or {}
        return any(annotations.get(key) == "true" for key in _DISABLED) or self._pods(node["metadata"]["name"])

    def _pods(self, node: str) -> bool:
        """Return whether *node* has pods that do not end with it."""
        return any(
            not finished(pod) and (controller_of(pod) or {}).get("kind") != "DaemonSet"
            for pod in self._store.pods_of(node)
        )


def _holds(room: Json, asked: dict[str, int]) -> bool:
    return all(name in room and parse(room[name]).millis >= amount for name, amount in asked.items())
