"""What happens to the cluster and to the daemon in a course."""

from typing import Final

from rescheduler.planning.pauses import PAUSED
from rescheduler.settings import LEASE
from rescheduler.simulation.happenings import Happening
from rescheduler.simulation.store import Json, key_of
from rescheduler.simulation.transport import Network
from rescheduler.simulation.world import World
from tests.simulation.worlds import LARGE, workload

#: Annotations of a Node that forbid its drain.
OPT_OUTS: Final = (
    "spot-rescheduler/do-not-drain",
    "karpenter.sh/do-not-disrupt",
    "cluster-autoscaler.kubernetes.io/scale-down-disabled",
)

#: The annotation of a pod that forbids its eviction.
DO_NOT_EVICT: Final = "spot-rescheduler/do-not-evict"


class Acts:
    """Lets the events of a course happen in *world*."""

    def __init__(self, world: World) -> None:
        self._world = world
        self._store = world.store
        self.failing: list[int] = []  #: the codes with which the next requests fail; 0: no response

    def happen(self, entry: Json) -> None:
        """Do what *entry* says."""
        world = self._world
        match entry:
            case {"kill": number}:
                world.daemons[number % len(world.daemons)].kill()
            case {"freeze": number, "seconds": seconds}:
                world.daemons[number % len(world.daemons)].freeze(seconds)
            case {"join": name}:
                like = self._store.get("nodes", name)
                if like is not None:
                    world.machines.join({**like, "metadata": {**like["metadata"], "annotations": {}}})
            case {"back": number}:
                self._move_back(number)
            case {"lose pods": number}:
                self.lose_pods(list(self._store.all("pods")), number)
            case {"opt out": key, "for": seconds}:
                for item in self.on_demand()[::2]:
                    self.annotate("nodes", item, key, seconds)
            case {"keep pods": number, "for": seconds}:
                for pod in list(self._store.all("pods"))[:: max(len(self._store.tables["pods"]) // number, 1)]:
                    self.annotate("pods", pod, DO_NOT_EVICT, seconds)
            case {"renew": number}:
                self._renew(number)
            case {"same name": number}:
                if nodes := self.on_demand():
                    self.replace(nodes[number % len(nodes)])
            case {"watches silent": seconds}:
                world.network.silent_until = world.engine.now + seconds
            case {"forbidden": plural, "for": seconds}:
                world.network.forbidden[plural] = world.engine.now + seconds
            case {"slow requests": delay, "for": seconds}:
                self._slow_down(delay, seconds)
            case {"requests fail": code, "number": number}:
                self.failing += [code] * number
            case {"pause": seconds}:
                named = (each for each in self._store.all("leases") if each["metadata"]["name"] == LEASE)
                if (lease := next(named, None)) is not None:
                    self.annotate("leases", lease, PAUSED, seconds)
            case {"scheduler away": seconds}:
                world.scheduling.pause(paused=True)
                world.engine.after(seconds, lambda: world.scheduling.pause(paused=False))
            case {"outranked": number, "for": seconds}:
                self.outrank(number, seconds)
            case _:
                Happening(0, {"at": "0s", **entry}, "course").happen(world)

    def _slow_down(self, delay: float, seconds: float) -> None:
        """Let each request take *delay* seconds more at most, for *seconds*."""
        network, latency = self._world.network, Network().latency
        network.latency = lambda source: latency(source) + source.uniform(0.0, delay)

        def end() -> None:
            network.latency = latency

        self._world.engine.after(seconds, end)

    # The cluster

    def on_demand(self) -> list[Json]:
        return [item for item in self._store.all("nodes") if self._world.is_on_demand(item)]

    def _move_back(self, number: int) -> None:
        """Add an on-demand node, and let *number* pods be created again while no spot node takes pods."""
        self._world.machines.join(LARGE, 5.0)

        def cordon(*, closed: bool) -> None:
            for item in self._store.all("nodes"):
                if self._world.is_spot(item):
                    self.edit("nodes", item, {"spec": {"unschedulable": closed or None}})

        def begin() -> None:
            cordon(closed=True)
            self.lose_pods(list(self._store.all("pods")), number)
            self._world.engine.after(10.0, lambda: cordon(closed=False))

        self._world.engine.after(6.0, begin)

    def lose_pods(self, pods: list[Json], number: int) -> None:
        """Delete *number* of *pods*, as a user does."""
        alive = [pod for pod in pods if not pod["metadata"].get("deletionTimestamp")]
        for pod in alive[:: max(len(alive) // number, 1)][:number]:
            self._world.server.deletion.delete_pod(pod)

    def _renew(self, number: int) -> None:
        """Replace *number* of the Deployments by others, whose pods have not moved yet."""
        found = list(self._store.all("deployments"))
        for item in found[:: max(len(found) // number, 1)][:number]:
            meta = {"name": f"renewed-{self._store.revision}", "namespace": item["metadata"]["namespace"]}
            self._store.delete("deployments", key_of(item))
            self._store.create("deployments", {**item, "metadata": meta, "status": {}})

    def outrank(self, number: int, seconds: float) -> None:
        """Let pods that preempt others run for *seconds*."""
        item = workload("Deployment", f"urgent-{self._store.revision}", number, "1500m")
        item["spec"]["template"]["spec"]["priorityClassName"] = "high"
        created = self._store.create("deployments", item)
        self._world.engine.after(seconds, lambda: self.edit("deployments", created, {"spec": {"replicas": 0}}))

    def edit(self, plural: str, item: Json, change: Json) -> None:
        """Change *item* if it still exists."""
        current = self._store.get(plural, key_of(item))
        if current is not None and current["metadata"]["uid"] == item["metadata"]["uid"]:
            self._store.patch(plural, key_of(item), change)

    def annotate(self, plural: str, item: Json, key: str, seconds: float) -> None:
        """Let *item* have the annotation *key* for *seconds*."""
        self.edit(plural, item, {"metadata": {"annotations": {key: "true"}}})
        change = {"metadata": {"annotations": {key: None}}}
        self._world.engine.after(seconds, lambda: self.edit(plural, item, change))

    def replace(self, old: Json) -> None:
        """Delete a Node. Soon, another machine has a Node of the same name."""
        meta = {name: old["metadata"][name] for name in ("name", "labels")}
        new = {**old, "metadata": meta, "spec": {"providerID": f"{old['spec']['providerID']}-again"}}
        self._world.machines.end(old, "cloud")
        self._store.delete("nodes", meta["name"])
        self._world.engine.after(5.0, lambda: self._store.create("nodes", new))

    def silence(self, name: str, seconds: float) -> None:
        """Let the kubelet of node *name* not report for *seconds*."""
        self._world.kubelets.stop(name, delete=False)
        self._world.engine.after(seconds, lambda: self._world.kubelets.revive(name))
