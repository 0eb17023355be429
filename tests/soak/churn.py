"""``make soak MINUTES=n SEED=s``: two replicas on a cluster under churn and faults, judged by the invariants."""

import contextlib
import sys
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from random import Random
from threading import Event
from typing import Final

import click

from devcluster.cloudpool.cluster import Cluster
from devcluster.cloudpool.server import CloudpoolServer
from devcluster.cloudpool.settings import CloudpoolSettings
from devcluster.faults.proxy import FaultProxy, before_cloudpool
from devcluster.manifests import ON_DEMAND
from devcluster.plane import ControlPlane
from devcluster.signals import exit_on_sigterm
from rescheduler.clock import SystemClock
from rescheduler.net.config_files import Duration
from tests.cluster.attacks import Tenant, client
from tests.cluster.daemon import SOFT
from tests.cluster.machines import cloud_flags
from tests.cluster.replicas import NAMESPACE, ReplicatedInstallation, installed
from tests.cluster.takeovers import rendered
from tests.invariants.rules import Rules
from tests.invariants.scenes import STAYING
from tests.invariants.watchdog import Watchdog
from tests.providers.cloudpools import document
from tests.soak.journal import Journal
from tests.soak.machines import POOL, ChangingNodes
from tests.soak.replicas import Replica, replicas
from tests.soak.results import Results, write_report
from tests.soak.trouble import RandomTrouble
from tests.soak.workloads import TEAMS, Workloads

LANDING_SECONDS: Final = 30
MOVES: Final = 100
MINIMUM: Final = 1
FLAGS: Final = (
    "--housekeeping-interval=500ms",
    "--node-drain-delay=1s",
    "--pod-eviction-timeout=10s",
    "--max-graceful-termination=5s",
    "--shorten-grace-periods",
    "--pending-patience=10s",
    f"--landing-timeout={LANDING_SECONDS}s",
    "--failure-pause=2s",
    "--failure-pause-max=10s",
    "--node-cooldown=5s",
    "--node-cooldown-max=20s",
    "--return-wait=0",
    "--return-wait-max=0",
    "--spot-settle=10s",
    "--spot-pool-cooldown=10s",
    f"--max-moves-per-pod-per-day={MOVES}",
    f"--min-on-demand-nodes={MINIMUM}",
    "--listen-address=127.0.0.1:0",
    "-v=3",
)

#: With leftovers: nodes have prices, and go in the order of what a move is worth.
REST_SECONDS: Final = 60.0
LEFTOVERS: Final = (
    "--leftovers=move",
    f"--leftover-rest={REST_SECONDS:g}s",
    "--drain-order=worth",
    "--min-worth=1",
    "--price-per-vcpu=0.03",
    "--price-per-gib=0.004",
    "--spot-price-per-vcpu=0.01",
    "--spot-price-per-gib=0.001",
)

#: Replicas are paused for up to 18 s and act on old state when they continue; watches are silent for up to 6 s.
RULES: Final = Rules(
    landing_timeout=LANDING_SECONDS,
    staying=STAYING,
    first_runs=True,
    minimum=MINIMUM,
    moves_per_pod_and_day=MOVES,
    leftover_rest=REST_SECONDS,
    namespace=NAMESPACE,
    lag=30.0,
    look=25.0,
    slack=60.0,
    leftover=60.0,
    abandoned=120.0,
)

STEP_SECONDS: Final = 0.5
PAUSE_SECONDS: Final = 1.5  #: average time between two actions
CALM_SECONDS: Final = 25.0  #: time without actions at the end
ON_DEMAND_NODES: Final = 4
SPOT_NODES: Final = 5
WORKLOADS: Final = 10
PINNED: Final = 0.35  #: share of the workloads that must not run on spot nodes, with leftovers


@dataclass(slots=True)
class Soak:
    """The parts of one run."""

    plane: ControlPlane
    journal: Journal
    fleet: ChangingNodes
    trouble: RandomTrouble
    replicas: list[Replica]
    seconds: float
    rng: Random
    next_action: float = 20.0
    clock: SystemClock = field(default_factory=SystemClock)

    def run(self) -> None:
        start = self.clock.monotonic()
        calm = False
        while (now := self.clock.monotonic() - start) < self.seconds:
            self.trouble.due(now)
            if now >= self.seconds - CALM_SECONDS and not calm:
                calm = True
                self.trouble.calm()
                self.journal.note("calm: all disturbances have ended")
            if not calm and now >= self.next_action:
                self.next_action = now + self.rng.expovariate(1 / PAUSE_SECONDS)
                self.trouble.act()
            for done in self.fleet.step():
                self.journal.note(done)
            for replica in self.replicas:
                replica.measure(now)
            self.clock.wait(STEP_SECONDS, Event())


@contextlib.contextmanager
def pool(plane: ControlPlane, folder: Path) -> Iterator[tuple[CloudpoolServer, FaultProxy]]:
    """Run the cloudpool of the on-demand nodes, and the proxy through which the daemons use the pool."""
    clock = SystemClock()
    taint = {"key": ON_DEMAND, "value": "true", "effect": SOFT}
    settings = CloudpoolSettings(
        pool=document(name=POOL, labels={ON_DEMAND: "true"}, taints=[taint]),
        desired_size=ON_DEMAND_NODES,
        refresh_interval=Duration(0.2),
        pool_update=Duration(0.4),
        second_termination="ok",
    )
    with CloudpoolServer(settings, folder, clock).running() as server, before_cloudpool(server.url) as proxy:
        cluster = Cluster(str(plane.kubeconfig), server.pool, clock)
        cluster.start()
        try:
            yield server, proxy
        finally:
            cluster.close()


def soak(plane: ControlPlane, minutes: float, seed: int, folder: Path, *, leftovers: bool = False) -> Results:
    """Run the soak on an empty *plane*; write report, picture and logs to *folder*.

    With *leftovers*, some workloads must not run on spot nodes, and move all the same.
    """
    rng, journal = Random(seed), Journal(folder / "actions.log")
    with contextlib.ExitStack() as opened:
        objects = rendered(fenced=True)
        installation = opened.enter_context(installed(ReplicatedInstallation(plane), objects))
        server, proxy = opened.enter_context(pool(plane, folder))
        fleet = ChangingNodes(plane, rng, server.pool)
        for _ in range(SPOT_NODES):
            fleet.add_spot()
        plane.wait_for(lambda: len(fleet.on_demand()) == ON_DEMAND_NODES, "the machines' nodes")
        workloads = Workloads(plane, rng, PINNED if leftovers else 0.0)
        fleet.cordon(closed=True)  # so that all pods start on on-demand nodes
        workloads.start(WORKLOADS)
        plane.wait_for(lambda: _mostly_bound(plane), "pods on on-demand nodes")
        fleet.cordon(closed=False)
        tenant = Tenant(opened.enter_context(client(plane)), plane.api, [])
        watchdog = opened.enter_context(Watchdog(plane, RULES, server))
        flags = (*FLAGS, *(LEFTOVERS if leftovers else ()), *cloud_flags(proxy.url, plane.layout.folder))
        running = opened.enter_context(replicas(installation, ("a", "b"), flags, folder))
        trouble = RandomTrouble(plane, Random(rng.random()), journal, workloads, fleet, running, proxy, tenant)
        Soak(plane, journal, fleet, trouble, running, minutes * 60, Random(rng.random())).run()
        watchdog.stop()
        watchdog.recorded().save(folder / "history.json.gz")
        results = Results(minutes, seed, watchdog.violations, watchdog.report(), running, journal.lines)
    write_report(results, folder)
    return results


def _mostly_bound(plane: ControlPlane) -> bool:
    pods = [pod for team in TEAMS for pod in plane.api.items(f"/api/v1/namespaces/{team}/pods")]
    return sum("nodeName" in pod["spec"] for pod in pods) >= 2 * WORKLOADS


@click.command()
@click.option("--minutes", default=60.0, show_default=True)
@click.option("--seed", default=1, show_default=True)
@click.option("--report", type=click.Path(path_type=Path), help="Folder of the report. Default: a temporary folder.")
@click.option(
    "--leftovers",
    is_flag=True,
    help="Some workloads must not run on spot nodes; such pods move all the same, in the order of worth.",
)
def main(minutes: float, seed: int, report: Path | None, *, leftovers: bool) -> None:
    """Run the soak. Exit code 1: an invariant was violated, there were too few drains, or memory grew."""
    exit_on_sigterm()
    folder = report or Path(tempfile.mkdtemp(prefix="soak-"))
    folder.mkdir(parents=True, exist_ok=True)
    with ControlPlane() as plane:
        results = soak(plane, minutes, seed, folder.absolute(), leftovers=leftovers)
    click.echo(results.table())
    click.echo(f"report: {folder}", err=True)
    for trouble in results.troubles():
        click.echo(trouble, err=True)
    sys.exit(bool(results.troubles()))


if __name__ == "__main__":
    main()
