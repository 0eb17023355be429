"""A scene on the real control plane, with the daemon as a process and kwok's kubelets."""

import contextlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from threading import Event
from typing import Final

import msgspec

from devcluster.api import Json
from devcluster.audit import AuditEvent
from devcluster.manifests import ON_DEMAND, mixed_nodes, spot
from devcluster.plane import ControlPlane
from devcluster.stages import READY_ON, START_AFTER, TERMINATE_AFTER
from rescheduler.clock import SystemClock
from rescheduler.housekeeping.command_reads import dump_cluster
from rescheduler.settings import ApiServerConnection
from rescheduler.simulation.autoscaler import RULES
from rescheduler.simulation.daemon import RESTART_SECONDS
from rescheduler.simulation.machines import JOIN_SECONDS
from rescheduler.simulation.times import seconds_since
from tests.agreement.judging import LONGEST_DRAIN, is_open
from tests.agreement.scenes import FLAGS, AgreementScene, PlacedWorkload, SceneEvent
from tests.cluster.daemon import SOFT, Daemon
from tests.cluster.observer import Observer
from tests.cluster.waiting import repeating

_INTERRUPTED: Final = {"key": "aws-node-termination-handler/spot-itn", "value": "test", "effect": "NoSchedule"}
_CLOCK: Final = SystemClock()


def real(scene: AgreementScene, plane: ControlPlane) -> tuple[list[Json], list[AuditEvent]]:
    """Run *scene* on the empty *plane*. Return the objects before the daemon started, and its audit log."""
    observer = Observer(plane)
    _prepare(scene, plane, observer)
    dumped = dump_cluster(ApiServerConnection(kubeconfig=str(plane.kubeconfig)), lambda _: None)
    items = [msgspec.json.decode(item) for item in dumped]
    observer = Observer(plane)  # its audit log begins here
    RealScene(scene, plane, observer).run()
    return items, [event for event in observer.audit.events() if event.kind in ("nodes", "pods/eviction")]


def _prepare(scene: AgreementScene, plane: ControlPlane, observer: Observer) -> None:
    """Create nodes and objects, and start the workloads on their nodes."""
    nodes = mixed_nodes(sum(name.startswith("on-demand") for name in scene.nodes), scene.spot)
    for node in nodes:
        if ON_DEMAND in node["metadata"]["labels"]:
            node["spec"]["taints"] = [{"key": ON_DEMAND, "value": "true", "effect": SOFT}]
    plane.apply([*nodes, *scene.objects])
    observer.nodes_ready(len(nodes))
    pods = 0
    for placed in scene.placed:
        for name in observer.node_names():
            observer.cordon(name, off=name in placed.nodes)
        observer.eventually(lambda placed=placed: _only(plane, placed.nodes), "the cordons")
        plane.apply([_with_times(scene, placed)])
        pods += placed.pods
        observer.running(pods)
    observer.open_all()


def _only(plane: ControlPlane, names: Sequence[str]) -> bool:
    """Return whether only the nodes *names* accept pods."""
    open_nodes = [
        node["metadata"]["name"]
        for node in plane.api.items("/api/v1/nodes")
        if all(taint["effect"] == SOFT for taint in node["spec"].get("taints", ()))
    ]
    return sorted(open_nodes) == sorted(names)


def _with_times(scene: AgreementScene, placed: PlacedWorkload) -> Json:
    """Return the workload with the times of the scene, as kwok reads them."""
    template = placed.workload["spec"]["template"]
    times = {START_AFTER: f"{scene.start:g}s", TERMINATE_AFTER: f"{scene.end:g}s"}
    if template["metadata"]["labels"]["app"] == scene.stuck:
        times[READY_ON] = "on-demand"
    metadata = {**template["metadata"], "annotations": {**template["metadata"]["annotations"], **times}}
    spec = {**placed.workload["spec"], "template": {**template, "metadata": metadata}}
    return {**placed.workload, "spec": spec}


class RealScene:
    """The daemons, and the events that follow from the audit log."""

    def __init__(self, scene: AgreementScene, plane: ControlPlane, observer: Observer) -> None:
        self._scene, self._plane, self._observer = scene, plane, observer
        self._began = _CLOCK.monotonic()
        self._due: list[tuple[float, SceneEvent]] = []  # by the monotonic clock
        self._seen = 0  # evictions
        self._daemons: list[Daemon] = []

    def run(self) -> None:
        """Run until the scene's time is over."""
        with contextlib.ExitStack() as running:
            if self._scene.autoscaler:
                running.enter_context(StandInAutoscaler(self._plane, self._scene.autoscaler).running())
            for number in range(self._scene.replicas):
                self._start(running, number)
            self._observer.eventually(lambda: self._daemons[0].logged(""), "the start of the daemon")
            self._began = _CLOCK.monotonic()
            while self._goes_on():
                self._look(running)
                _CLOCK.wait(0.05, Event())

    def _goes_on(self) -> bool:
        over = _CLOCK.monotonic() - self._began - self._scene.seconds
        return over < 0 or (over < LONGEST_DRAIN and is_open(self._observer.audit.events()))

    def _start(self, running: contextlib.ExitStack, number: int) -> None:
        daemon = Daemon(
            self._plane, "--housekeeping-interval=1s", *FLAGS, *self._scene.flags, f"--pod-name=replica-{number}"
        )
        self._daemons.append(running.enter_context(daemon))

    def _look(self, running: contextlib.ExitStack) -> None:
        """Note which events are due, and carry them out."""
        evictions, now = len(self._observer.evictions()), _CLOCK.monotonic()
        for event in self._scene.events:
            if self._seen < event.evictions <= evictions:
                self._due.append((now + event.seconds, event))
        self._seen = evictions
        for at, event in list(self._due):
            if at <= now:
                self._due.remove((at, event))
                self._happen(event, running)

    def _happen(self, event: SceneEvent, running: contextlib.ExitStack) -> None:
        path = f"/api/v1/nodes/{event.node}"
        match event.verb:
            case "delete":
                self._plane.api.delete(path)
            case "interrupt":
                taints = self._plane.api.get(path)["spec"].get("taints", [])
                self._plane.api.patch(path, {"spec": {"unschedulable": True, "taints": [*taints, _INTERRUPTED]}})
            case "kill":
                self._daemons[-1].kill(keep_lease=True)
                self._due.append((_CLOCK.monotonic() + RESTART_SECONDS, replace(event, verb="start")))
            case "start":
                self._start(running, 0)


@dataclass
class StandInAutoscaler:
    """Adds a spot node for pods that are unschedulable, by the rules and times of the simulated autoscaler."""

    plane: ControlPlane
    name: str
    added: int = 0
    _joins: list[float] = field(default_factory=list)
    _waits_until: float = 0.0

    def running(self) -> contextlib.AbstractContextManager[None]:
        return self._running()

    @contextlib.contextmanager
    def _running(self) -> Iterator[None]:
        with repeating(self._look, every=RULES[self.name].every), repeating(self._join, every=0.5):
            yield

    def _look(self) -> None:
        rules, now = RULES[self.name], _CLOCK.monotonic()
        if now >= self._waits_until and any(map(self._waits, self.plane.api.items("/api/v1/pods"))):
            self._joins.append(now + JOIN_SECONDS)
            self._waits_until = now + rules.add_wait

    def _waits(self, pod: Json) -> bool:
        """Return whether *pod* has been unschedulable for long enough."""
        since = [
            each["lastTransitionTime"]
            for each in pod["status"].get("conditions", ())
            if (each["type"], each["status"]) == ("PodScheduled", "False")
        ]
        return bool(since) and seconds_since(since[0], _CLOCK.now()) >= RULES[self.name].pending

    def _join(self) -> None:
        for at in [at for at in self._joins if at <= _CLOCK.monotonic()]:
            self._joins.remove(at)
            self.added += 1
            self.plane.apply([spot(f"grown-{self.added}", labels={"topology.kubernetes.io/zone": "zone-a"})])
