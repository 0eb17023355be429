"""Measurement of the drains beside six hostile tenants: `python -m tests.cluster.six_tenants`.

The daemon drains nodes of one namespace on the local control plane, first alone, then while each of six other
namespaces has another kind of many and replaces one of its objects every second. It prints the drains in the time of
both, and the CPU time of the daemon.
"""

from collections.abc import Iterator
from threading import Event
from typing import Final, NamedTuple

import click

from devcluster import build, cleaning
from devcluster.errors import ApiError
from devcluster.manifests import SPOT, deployment, namespace
from devcluster.plane import ControlPlane
from rescheduler.clock import SystemClock
from tests.bench.tenants import KINDS, Kind, namespace_of
from tests.cluster.daemon import NO_DELAY, Daemon, prefers
from tests.cluster.observer import Observer
from tests.cluster.waiting import repeating

SHOP: Final = "shop"
SHARE: Final = 0.8

#: Pods of tenants run on spot nodes, so that they keep none of the nodes to drain. Those whose terms would repel the
#: pods of everybody run nowhere.
NOWHERE: Final = "example.com/none"
SPOT_NODES: Final = 4
FLAGS: Final = (NO_DELAY, "--node-cooldown=1s", "--shorten-grace-periods")

#: What each tenant has.
TENANTS: Final = (
    "pending, 50 own terms",
    "pending, terms over all namespaces",
    "pending affinity",
    "budgets",
    "limit ranges and quotas",
    "pending classes",
)


class Measured(NamedTuple):
    """The drains in *seconds*, and the CPU seconds of the daemon."""

    drains: int
    seconds: float
    cpu: float

    @property
    def rate(self) -> float:
        return self.drains / self.seconds


@click.command()
@click.option("--nodes", default=8, show_default=True, help="Nodes to drain.")
@click.option("--number", default=200, show_default=True, help="Objects of each tenant.")
@click.option("--seconds", default=90.0, show_default=True, help="The longest time of each part.")
def main(nodes: int, number: int, seconds: float) -> None:
    """Print the drains in a time, without and with six tenants. The exit status is 1 if more than a fifth is lost."""
    build.binaries()
    with ControlPlane() as plane:
        alone = measured(plane, nodes, 0, seconds)
        click.echo(f"alone: {alone}")
        cleaning.empty(plane)
        beside = measured(plane, nodes, number, seconds)
        click.echo(f"with six tenants: {beside}")
    share = beside.rate / alone.rate
    click.echo(f"share of the drains: {share:.0%}")
    if share < SHARE:
        raise click.ClickException("more than a fifth of the drains is lost")


def measured(plane: ControlPlane, nodes: int, number: int, seconds: float) -> Measured:
    """Drain *nodes* nodes beside tenants with this *number* of objects, none if it is 0."""
    observer = Observer(plane)
    observer.nodes(nodes, SPOT_NODES)
    names = [f"on-demand-{each}" for each in range(1, nodes + 1)]
    plane.apply([namespace(SHOP)])
    for app, node in enumerate(names):
        plane.apply([deployment(f"web{app}", 1, namespace=SHOP, cpu="700m", affinity=prefers(node))])
    for app in range(nodes):
        observer.running(1, f"web{app}")
    tenants = [Tenant(plane, KINDS[kind], namespace_of(kind), number) for kind in TENANTS] if number else []
    observer.open_spot()

    def change() -> None:
        for tenant in tenants:
            tenant.change()

    with repeating(change), Daemon(plane, *FLAGS, fresh=True) as daemon:
        clock, never, drains = SystemClock(), Event(), 0
        started = clock.monotonic()
        while drains < nodes and clock.monotonic() - started < seconds:
            clock.wait(0.2, never)
            drains = sum("NodeDrained" in observer.events(name) for name in names)
        return Measured(drains, clock.monotonic() - started, daemon.cpu_seconds())


class Tenant:
    """A namespace with many objects, one of which is replaced at a time."""

    def __init__(self, plane: ControlPlane, kind: Kind, name: str, number: int) -> None:
        self._plane, self._kind, self._name, self._next = plane, kind, name, number
        self._oldest = 0
        plane.apply([namespace(name)])
        plane.apply(self._objects(number))

    def _objects(self, number: int) -> Iterator[dict[str, object]]:
        for each in range(number):
            yield self._object(each)

    def _object(self, number: int) -> dict[str, object]:
        made = self._kind.make(self._name, number)
        for field in ("uid", "ownerReferences"):
            made["metadata"].pop(field, None)
        made.pop("status", None)
        if made["kind"] == "Pod":
            made["spec"]["nodeSelector"] = {NOWHERE if "namespaceSelector" in str(made) else SPOT: ""}
        return made

    def change(self) -> None:
        """Replace the oldest object by another one."""
        old = self._object(self._oldest)
        try:
            self._plane.api.delete(self._plane.api.path(old), gracePeriodSeconds=0)
            self._plane.apply([self._object(self._next)])
        except ApiError:
            return
        self._oldest, self._next = self._oldest + 1, self._next + 1


if __name__ == "__main__":
    main()
