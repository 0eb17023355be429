"""Small simulated clusters for tests."""

import datetime as dt
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from rescheduler.observe.events import DrainEnded, Event
from rescheduler.planning.policy import Policy
from rescheduler.settings import Provider, Running, Timing
from rescheduler.simulation.daemon import DaemonSettings
from rescheduler.simulation.requests import ApiRequest
from rescheduler.simulation.store import Json
from rescheduler.simulation.world import World, WorldSettings

START = dt.datetime(2026, 11, 20, 12, tzinfo=dt.UTC)


def node(name: str, *, spot: bool = False, cpu: str = "4", **labels: str) -> Json:
    """Return a Node of the default labels."""
    kind = "node-role.kubernetes.io/spot-worker" if spot else "node-role.kubernetes.io/worker"
    return {
        "apiVersion": "v1",
        "kind": "Node",
        "metadata": {"name": name, "labels": {kind: "", "kubernetes.io/hostname": name, **labels}},
        "spec": {"providerID": f"aws:///{name}"},
        "status": {
            "allocatable": {"cpu": cpu, "memory": "16Gi", "pods": "58"},
            "conditions": [{"type": "Ready", "status": "True"}],
        },
    }


#: The machine that joins when pods need an on-demand node.
LARGE: Json = node("od-large", cpu="8")


def template(name: str, cpu: str = "500m") -> Json:
    container = {"name": name, "image": "i", "resources": {"requests": {"cpu": cpu, "memory": "128Mi"}}}
    return {"metadata": {"labels": {"app": name}}, "spec": {"containers": [container]}}


def workload(
    kind: str, name: str, replicas: int, cpu: str = "500m", *, namespace: str = "default", **spec: Any
) -> Json:
    """Return a workload."""
    selector = {"matchLabels": {"app": name}}
    return {
        "apiVersion": "apps/v1",
        "kind": kind,
        "metadata": {"name": name, "namespace": namespace},
        "spec": {"replicas": replicas, "selector": selector, "template": template(name, cpu), **spec},
    }


def budget(name: str, *, namespace: str = "default", **spec: Any) -> Json:
    return {
        "apiVersion": "policy/v1",
        "kind": "PodDisruptionBudget",
        "metadata": {"name": name, "namespace": namespace},
        "spec": {"selector": {"matchLabels": {"app": name}}, **spec},
    }


@dataclass
class Scene:
    """A world whose daemons' events are kept."""

    items: Sequence[Json]
    settings: WorldSettings = field(default_factory=lambda: WorldSettings(START))
    running: Running = field(
        default_factory=lambda: Running(provider=Provider("simulated"), timing=Timing(), manage_soft_taint=True)
    )
    policy: Policy = field(default_factory=Policy)
    reported: list[tuple[float, str, Event]] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.world = World(self.items, self.settings, DaemonSettings(self.policy, self.running), self._report)

    def _report(self, replica: str, event: Event) -> None:
        self.reported.append((self.world.engine.now, replica, event))

    def run(self, seconds: float) -> "Scene":
        self.world.run(seconds)
        return self

    def begin(self, settle: float = 60.0) -> "Scene":
        """Let the cluster settle, then start the daemon."""
        self.world.run(settle)
        self.world.start_daemons()
        return self

    @property
    def drains(self) -> list[DrainEnded]:
        return [event for _, _, event in self.reported if isinstance(event, DrainEnded)]

    @property
    def nodes(self) -> list[str]:
        return sorted(node["metadata"]["name"] for node in self.world.store.all("nodes"))

    def pods(self, **labels: str) -> list[Json]:
        return [
            pod
            for pod in self.world.store.all("pods")
            if all((pod["metadata"].get("labels") or {}).get(key) == value for key, value in labels.items())
        ]

    def ask(self, method: str, path: str, body: Any = None, content_type: str = "", **query: str) -> tuple[int, bytes]:
        """Send a request to the API server."""
        return self.world.server.answer(ApiRequest(method, path, query, body, content_type))
