"""The simulated cluster: its objects, all that acts on them, and the replicas of the daemon."""

import datetime as dt
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from functools import partial
from typing import Final

from predicates.scheduler import Scheduler
from rescheduler.clock import Clock
from rescheduler.observe.events import Event
from rescheduler.planning.pools import pool_of
from rescheduler.providers.base import CloudProvider
from rescheduler.providers.none import NoProvider
from rescheduler.simulation import autoscaler
from rescheduler.simulation.api import ApiServer
from rescheduler.simulation.autoscaler import SimulatedAutoscaler
from rescheduler.simulation.completing import completed
from rescheduler.simulation.daemon import DaemonSettings, Replica
from rescheduler.simulation.disruption import SimulatedBudgets
from rescheduler.simulation.engine import Engine
from rescheduler.simulation.kubelet import Kubelets, PodCollector, PodTimes
from rescheduler.simulation.machines import Machines, PoolFaults, SimulatedPool, SpotMarket
from rescheduler.simulation.more_workloads import CronJobs, DaemonSets, Jobs, SimulatedOwners
from rescheduler.simulation.reconciling import Reconciler
from rescheduler.simulation.scheduling import SimulatedScheduling
from rescheduler.simulation.store import KINDS, PLURALS, Json, ServedKind, Store, controller_of
from rescheduler.simulation.transport import Network
from rescheduler.simulation.workloads import ReplicaSets, SimulatedDeployments, StatefulSets

#: Namespaces that the daemon and the cluster need.
_NAMESPACES: Final = ("default", "kube-system", "kube-node-lease", "spot-rescheduler-room")


@dataclass(frozen=True, slots=True)
class WorldSettings:
    """How the cluster behaves."""

    start: dt.datetime
    seed: int = 1
    spot_losses: float = 0.0  #: per node and day
    removes_machines: bool = True  #: the daemon's provider ends machines; if not, it has none
    replicas: int = 1
    times: PodTimes = field(default_factory=PodTimes)
    pool: PoolFaults = field(default_factory=PoolFaults)
    least: int = 0  #: on-demand machines that the pool keeps
    autoscaler: str = ""  #: ``cluster-autoscaler``, ``karpenter``, or "" for none
    most_nodes: int = 1000  #: the autoscaler adds no more
    rules: Scheduler = field(default_factory=Scheduler)
    pool_losses: Mapping[str, float] = field(
        default_factory=dict
    )  #: as *spot_losses*, for the spot pools that it names


class World:
    """A cluster with the objects *items*, in which nothing has happened yet."""

    def __init__(
        self,
        items: Iterable[Json],
        settings: WorldSettings,
        daemon: DaemonSettings,
        report: Callable[[str, Event], None] = lambda _, __: None,
    ) -> None:
        self.settings = settings
        self._policy = daemon.policy
        self.engine = Engine(settings.start, settings.seed)
        self.store = Store(self.engine)
        self.server = ApiServer(self.store, str(settings.rules.version))
        self.network = Network()
        self.scheduling = SimulatedScheduling(self.server, settings.rules)
        self.kubelets = Kubelets(self.server, settings.times)
        PodCollector(self.server)
        self._load(items)
        kinds = (ReplicaSets, SimulatedDeployments, StatefulSets, DaemonSets, Jobs, CronJobs, SimulatedBudgets)
        self.controllers: list[Reconciler] = [kind(self.server) for kind in kinds]
        for controller in self.controllers:
            controller.enqueue_all()
        SimulatedOwners(self.server)
        self.machines = Machines(self.store, self.kubelets)
        self.market = SpotMarket(self.machines, self.is_spot, self._pool_of, settings.spot_losses, settings.pool_losses)
        self.market.start()
        if settings.autoscaler:
            SimulatedAutoscaler(self.machines, autoscaler.RULES[settings.autoscaler], settings.most_nodes)
        self.daemons = [
            Replica(
                self.engine,
                self.server,
                self.network,
                self._provider,
                daemon,
                f"spot-rescheduler-{number}",
                partial(report, f"spot-rescheduler-{number}"),
            )
            for number in range(settings.replicas)
        ]

    def is_spot(self, node: Json) -> bool:
        return self._policy.spot_label.matches(node["metadata"].get("labels") or {})

    def _pool_of(self, node: Json) -> str:
        return pool_of(node["metadata"].get("labels") or {}, self._policy.spot_pool_labels)

    def is_on_demand(self, node: Json) -> bool:
        return self._policy.on_demand_label.matches(node["metadata"].get("labels") or {})

    def start_daemons(self) -> None:
        for replica in self.daemons:
            replica.start()

    def run(self, seconds: float) -> None:
        """Let *seconds* pass. Raises the error that ended a thread of the daemon."""
        self.engine.run(seconds)

    def close(self) -> None:
        """End all processes."""
        for replica in self.daemons:
            replica.stopped = True
            replica.kill()
        self.engine.run(0.001)

    def _provider(self, clock: Clock) -> CloudProvider:
        if not self.settings.removes_machines:
            return NoProvider()
        return SimulatedPool(self.machines, clock, self.is_on_demand, self.settings.pool, self.settings.least)

    # The objects

    def _load(self, items: Iterable[Json]) -> None:
        """Add the objects of a dump, and what it lacks."""
        known: defaultdict[str, list[Json]] = defaultdict(list)
        for item in completed(items):
            if (plural := PLURALS.get(item.get("kind", ""))) is not None:
                known[plural].append(item)
        names = {item["metadata"]["name"] for item in known["namespaces"]}
        spaces = {item["metadata"].get("namespace", "") for listed in known.values() for item in listed}
        for name in sorted({*_NAMESPACES, *spaces} - names - {""}):
            labels = {"kubernetes.io/metadata.name": name}
            known["namespaces"].append({"metadata": {"name": name, "labels": labels}})
        for plural in KINDS:
            for item in known[plural]:
                self.store.create(plural, _cleaned(plural, item))
        self._add_owners()

    def _add_owners(self) -> None:
        """Create the owners of pods that the dump does not contain, from one of their pods."""
        pods: defaultdict[tuple[str, str, str, str, str], list[Json]] = defaultdict(list)
        for pod in self.store.all("pods"):
            if (owner := controller_of(pod)) is not None:
                key = owner["apiVersion"], owner["kind"], pod["metadata"]["namespace"], owner["name"], owner["uid"]
                pods[key].append(pod)
        for (api_version, kind, namespace, name, uid), owned in sorted(pods.items(), key=lambda item: item[0]):
            plural = PLURALS.get(kind) or self._custom(api_version, kind)
            if plural != "nodes" and self.store.get(plural, f"{namespace}/{name}") is None:
                meta = {"name": name, "namespace": namespace, "uid": uid}
                self.store.create(plural, {"metadata": meta, "spec": _spec_for(owned)})

    def _custom(self, api_version: str, kind: str) -> str:
        """Serve a kind that is not built in. Return its plural."""
        group, _, version = api_version.rpartition("/")
        plural = f"{kind.lower()}s"
        served = ServedKind(plural, kind, group or "simulated.example.com", version)
        self.server.custom[plural] = served
        return plural


def _spec_for(pods: list[Json]) -> Json:
    """Return the spec of an owner of *pods*, with a template like the first of them."""
    labels = dict(pods[0]["metadata"].get("labels") or {})
    spec = {name: value for name, value in pods[0]["spec"].items() if name not in ("nodeName", "affinity", "priority")}
    template = {"metadata": {"labels": labels}, "spec": spec}
    return {"replicas": len(pods), "selector": {"matchLabels": labels}, "template": template}


def _cleaned(plural: str, item: Json) -> Json:
    """Return an object of a dump as it is stored, without what an earlier daemon or API server wrote."""
    meta = {name: value for name, value in item["metadata"].items() if name not in ("resourceVersion", "managedFields")}
    item = {**item, "metadata": meta}
    if plural == "pods":
        item["status"] = {"phase": "Running", **(item.get("status") or {})}
    if plural == "poddisruptionbudgets":
        item["status"] = {**(item.get("status") or {}), "observedGeneration": meta.get("generation", 1)}
    return item
