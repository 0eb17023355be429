"""A scene in the simulated cluster."""

import datetime as dt
from collections.abc import Sequence

import msgspec

from devcluster.audit import AuditEvent, AuditObject, AuditUser
from devcluster.manifests import Json
from rescheduler.cli.simulate import command, settings_of
from rescheduler.simulation.daemon import DaemonSettings
from rescheduler.simulation.engine import Process
from rescheduler.simulation.kubelet import PodTimes
from rescheduler.simulation.requests import ApiRequest, Target
from rescheduler.simulation.run import as_of
from rescheduler.simulation.world import World, WorldSettings
from tests.agreement.judging import LONGEST_DRAIN, is_open
from tests.agreement.scenes import FLAGS, AgreementScene, SceneEvent
from tests.cluster.observer import AGENT

_VERBS = {"POST": "create", "PATCH": "patch", "PUT": "update", "DELETE": "delete"}
_SETTLE = 20.0


def simulated(scene: AgreementScene, items: Sequence[Json], seed: int = 1) -> list[AuditEvent]:
    """Run *scene* in a cluster with the objects *items*. Return its audit log."""
    return SimulatedScene(scene, items, seed).run()


def daemon_settings(scene: AgreementScene) -> DaemonSettings:
    """Return the settings of the daemon, as the command line makes them of the scene's flags."""
    machines = f"--machines={scene.autoscaler or 'kept'}"
    return settings_of(command.make_context("simulate", [machines, *FLAGS, *scene.flags]))


class SimulatedScene:
    """A world, its audit log, and the events that follow from it."""

    def __init__(self, scene: AgreementScene, items: Sequence[Json], seed: int) -> None:
        self._scene = scene
        self._audit: list[AuditEvent] = []
        self._evicted = 0
        start = as_of(items)
        settings = WorldSettings(
            start,
            seed,
            removes_machines=False,
            replicas=scene.replicas,
            times=PodTimes(start=lambda _: scene.start, end=lambda _: scene.end),
            autoscaler=scene.autoscaler,
        )
        self._began = start
        self.world = World(items, settings, daemon_settings(scene))
        self.world.kubelets.start_seconds = self._start_seconds
        self.world.network.audit.append(self._sent)

    def run(self) -> list[AuditEvent]:
        self.world.run(_SETTLE)
        self.world.start_daemons()
        self.world.run(self._scene.seconds)
        end = self.world.engine.now + LONGEST_DRAIN
        while is_open(self._audit) and self.world.engine.now < end:
            self.world.run(1.0)
        self.world.close()
        return self._audit

    def _start_seconds(self, pod: Json) -> float | None:
        stuck = (pod["metadata"].get("labels") or {}).get("app") == self._scene.stuck
        return float("inf") if stuck and pod["spec"]["nodeName"].startswith("spot-") else None

    def _sent(
        self, process: Process, request: ApiRequest, target: Target | None, received: float, code: int, body: bytes
    ) -> None:
        if request.method == "GET" or target is None or target.plural not in ("nodes", "pods"):
            return
        answer = msgspec.json.decode(body) if target.plural == "nodes" else None
        dry_run = "?dryRun=All" if request.dry_run else ""
        event = msgspec.convert(
            {
                "verb": _VERBS[request.method],
                "user": AuditUser(process.name),
                "requestReceivedTimestamp": self._at(received),
                "stageTimestamp": self._at(self.world.engine.now),
                "requestURI": f"{request.path}{dry_run}",
                "userAgent": AGENT,
                "objectRef": AuditObject(
                    resource=target.plural,
                    subresource=target.subresource,
                    namespace=target.namespace,
                    name=target.name,
                ),
                "responseStatus": {"code": code},
                "responseObject": answer,
            },
            AuditEvent,
        )
        self._audit.append(event)
        if event.kind == "pods/eviction" and event.accepted and not event.dry_run:
            self._evicted += 1
            for due in self._scene.events:
                if due.evictions == self._evicted:
                    self.world.engine.after(due.seconds, lambda due=due: self._happen(due))  # type: ignore[misc]

    def _at(self, seconds: float) -> dt.datetime:
        return self._began + dt.timedelta(seconds=seconds)

    def _happen(self, event: SceneEvent) -> None:
        match event.verb:
            case "delete":
                self.world.store.delete("nodes", event.node)
            case "interrupt":
                self.world.market.interrupt(event.node)
            case "kill":
                self.world.daemons[0].kill()
