"""``python -m tests.cluster.pool_losses``: delete a pool of spot nodes after the daemon drained what it may.

Random clusters, each once with ``--survive=pool`` and once without. An autoscaler removes the nodes that the daemon has
emptied; it adds none. When the daemon has stopped, all nodes of one pool are deleted with their pods.
"""

import sys
from collections.abc import Callable
from dataclasses import dataclass, field
from itertools import count
from random import Random
from typing import Any, Final, TypeVar

import click

from devcluster import build, cleaning
from devcluster.api import Json
from devcluster.manifests import ZONES, deployment, on_demand, spot, statefulset
from devcluster.plane import ControlPlane
from devcluster.signals import exit_on_sigterm
from rescheduler.clock import SystemClock, pause
from tests.cluster.bad_days import FLAGS
from tests.cluster.daemon import SOFT, Daemon
from tests.cluster.observer import Observer, ready

HOST: Final = "kubernetes.io/hostname"
ZONE: Final = "topology.kubernetes.io/zone"
TYPE: Final = "node.kubernetes.io/instance-type"
SURVIVE: Final = "--survive=pool"
_REQUIRED: Final = "requiredDuringSchedulingIgnoredDuringExecution"

_Seen = TypeVar("_Seen")

#: Of each node, in millicores.
_CPU: Final = 4000

#: The daemon has stopped when nothing has changed for so many seconds.
_STILL: Final = 6.0
#: All pods of a lost pool must run again within so many seconds.
_AGAIN: Final = 60.0
#: Pods that the scheduler could not place stay without a place if nothing has changed for so many seconds.
_NO_PLACE: Final = 10.0


@dataclass(frozen=True, slots=True)
class Loss:
    """What happened in one scene."""

    seed: int
    drained: int  #: on-demand nodes
    left: int  #: the others
    lost: int  #: pods of the lost pool
    homeless: int  #: pods that did not run again in time
    seconds: float  #: until all ran again, or until it was clear that some do not

    def __str__(self) -> str:
        nodes = f"{self.drained} of {self.drained + self.left} nodes drained"
        pods = f"{self.lost} pods lost, {self.homeless} without a place"
        return f"seed {self.seed}: {nodes}; {pods}, after {self.seconds:.1f} s"


@dataclass(slots=True)
class Outcomes:
    """The scenes with the same flags."""

    flags: tuple[str, ...]
    losses: list[Loss] = field(default_factory=list)

    @property
    def name(self) -> str:
        """The flags as text."""
        return " ".join(self.flags) or "without the flag"

    @property
    def homeless(self) -> int:
        """The number of pods that did not run again in time."""
        return sum(loss.homeless for loss in self.losses)

    def __str__(self) -> str:
        losses = self.losses
        drained, left = sum(loss.drained for loss in losses), sum(loss.left for loss in losses)
        broken = sum(bool(loss.homeless) for loss in losses)
        return (
            f"{self.name}: {len(losses)} scenes, {drained} of {drained + left} "
            f"on-demand nodes drained; {sum(loss.lost for loss in losses)} pods lost, {self.homeless} without a place, "
            f"in {broken} scenes; the others ran again within {max((loss.seconds for loss in losses), default=0):.1f} s"
        )


def nodes(rng: Random) -> list[Json]:
    """Return pools of one or two cordoned spot nodes each, and a few more on-demand nodes."""
    spots: list[Json] = []
    numbers = count(1)
    for zone, kind in rng.sample([(zone, kind) for zone in ZONES for kind in ("small", "large")], rng.randint(2, 4)):
        labels = {ZONE: zone, TYPE: kind}
        spots += [spot(f"spot-{next(numbers)}", labels=labels, unschedulable=True) for _ in range(rng.randint(1, 2))]
    soft = {"key": "example.com/on-demand", "value": "true", "effect": SOFT}
    names = [f"on-demand-{number}" for number in range(1, len(spots) + 3)]
    return [*(on_demand(name, labels={ZONE: rng.choice(ZONES)}, taints=[soft]) for name in names), *spots]


def workloads(rng: Random, spot_nodes: int) -> list[Json]:
    """Return controllers whose pods fit the spot nodes, but not many fewer of them."""
    left = int(rng.uniform(0.75, 0.95) * _CPU * spot_nodes)
    made: list[Json] = []
    for number in count(1):
        cpu, replicas = rng.randrange(200, 700, 10), rng.randint(1, 4)
        if (left := left - cpu * replicas) < 0:
            return made
        make = rng.choice([deployment, deployment, statefulset])
        made.append(make(f"app{number}", replicas, cpu=f"{cpu}m", **_rules(f"app{number}", rng)))
    raise AssertionError


def _rules(app: str, rng: Random) -> dict[str, Any]:
    """Return scheduling rules among the pods of *app*; most have none."""
    own = {"labelSelector": {"matchLabels": {"app": app}}}
    kind = rng.random()
    if kind < 0.2:
        return {"affinity": {"podAntiAffinity": {_REQUIRED: [{**own, "topologyKey": HOST}]}}}
    if kind < 0.3:
        spread = {"maxSkew": 2, "topologyKey": HOST, "whenUnsatisfiable": "DoNotSchedule"}
        return {"topologySpreadConstraints": [{**own, **spread}]}
    return {}


class Scene:
    """On-demand nodes whose pods fit the spot nodes."""

    def __init__(self, cluster: ControlPlane, seed: int) -> None:
        rng = Random(f"losses/{seed}")
        self._cluster, self._observer, self._seed = cluster, Observer(cluster), seed
        made = nodes(rng)
        pools: dict[tuple[str, str], list[str]] = {}
        for node in made:
            labels = node["metadata"]["labels"]
            if TYPE in labels:
                pools.setdefault((labels[ZONE], labels[TYPE]), []).append(node["metadata"]["name"])
        self._lost = pools[rng.choice(sorted(pools))]
        cluster.apply(made)
        self._observer.nodes_ready(len(made))
        apps = workloads(rng, sum(map(len, pools.values())))
        self._pods = sum(app["spec"]["replicas"] for app in apps)
        cluster.apply(apps)
        self._observer.running(self._pods)
        self._observer.open_spot()
        self._before = len(self._on_demand())

    def run(self, *flags: str) -> Loss:
        """Let the daemon drain with *flags* until it stops, then delete the pool."""
        with Daemon(self._cluster, *FLAGS, *flags) as daemon:
            self._observer.eventually(lambda: bool(daemon.logged("planned ")), "the first plan")
            self._wait_until_still(self._drains, _STILL)
        self._observer.running(self._pods)
        left, lost = len(self._on_demand()), self._lose_pool()
        clock = SystemClock()
        begun = clock.monotonic()

        def decided(homeless: frozenset[str]) -> bool:
            return not homeless or clock.monotonic() > begun + _AGAIN

        self._wait_until_still(self._homeless, _AGAIN if flags else _NO_PLACE, until=decided)
        seconds = clock.monotonic() - begun
        return Loss(self._seed, self._before - left, left, lost, len(self._homeless()), seconds)

    def _on_demand(self) -> list[str]:
        return [name for name in self._observer.node_names() if name.startswith("on-demand")]

    def _drains(self) -> object:
        """Delete the on-demand nodes without pods, as an autoscaler does. Return what a drain changes."""
        marked, left = self._observer.marks(), self._on_demand()
        places = self._observer.places()
        for name in left:
            if name not in marked and name not in places:
                self._cluster.api.delete(f"/api/v1/nodes/{name}")
        return marked, left, places

    def _homeless(self) -> frozenset[str]:
        """Return the pods that do not run; those that are not created yet by number."""
        pods = self._observer.pods()
        waiting = {pod["metadata"]["uid"] for pod in pods} - {pod["metadata"]["uid"] for pod in ready(pods)}
        return frozenset(waiting) | {f"missing {number}" for number in range(self._pods - len(pods))}

    def _lose_pool(self) -> int:
        """Delete the spot nodes of the pool and their pods. Return how many pods they had."""
        lost = [pod for name in self._lost for pod in self._observer.bound_to(name)]
        for name in self._lost:
            self._cluster.api.delete(f"/api/v1/nodes/{name}")
        for pod in lost:
            name = pod["metadata"]["name"]  # without a kubelet, only a deletion without grace ends
            self._cluster.api.delete(f"/api/v1/namespaces/default/pods/{name}", gracePeriodSeconds=0)
        return len(lost)

    def _wait_until_still(
        self, value: Callable[[], _Seen], seconds: float, *, until: Callable[[_Seen], bool] = lambda _: False
    ) -> None:
        """Wait until *value* has been the same for so many *seconds*, or *until* is true for it."""
        clock = SystemClock()
        seen, since = value(), clock.monotonic()
        while clock.monotonic() < since + seconds and not until(seen):
            pause(0.2)
            if (now := value()) != seen:
                seen, since = now, clock.monotonic()


@click.command()
@click.option("--scenes", default=30, show_default=True)
@click.option("--seed", default=1, show_default=True, help="The first seed; each scene has its own.")
def main(scenes: int, seed: int) -> None:
    """Delete a pool of spot nodes in random clusters, after drains with --survive=pool and without."""
    exit_on_sigterm()
    build.binaries()
    outcomes = [Outcomes((SURVIVE,)), Outcomes(())]
    with ControlPlane() as cluster:
        for number in range(seed, seed + scenes):
            for outcome in outcomes:
                outcome.losses.append(Scene(cluster, number).run(*outcome.flags))
                click.echo(f"{outcome.name}: {outcome.losses[-1]}")
                cleaning.empty(cluster)
    for outcome in outcomes:
        click.echo(str(outcome))
    sys.exit(bool(outcomes[0].homeless))


if __name__ == "__main__":
    main()
