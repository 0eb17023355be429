"""The table of `tests.providers.conformance` with the real Karpenter: `make karpenter`. See `real_karpenter`."""

import contextlib
import logging
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

import pytest

from devcluster.api import Json
from devcluster.faults.injected import InjectedError, InjectedFault, Reset
from devcluster.faults.proxy import FaultProxy, before_api_server, redirected
from devcluster.faults.rules import FaultRule
from devcluster.manifests import deployment
from devcluster.plane import ControlPlane
from rescheduler.clock import SystemClock
from rescheduler.execution.machine_objects import MachineObjects
from rescheduler.kube.client import Client
from rescheduler.kube.connection import Kubeconfig
from rescheduler.providers.base import CloudProvider, NodeRef, Refusal
from rescheduler.providers.karpenter import KarpenterProvider
from tests.cluster import real_karpenter
from tests.cluster.observer import Observer
from tests.cluster.real_karpenter import NEVER, NODECLAIMS, SECONDS, TYPES, node_pool
from tests.providers.conformance import CHECKS
from tests.providers.worlds import World, reasons

program, karpenter = real_karpenter.program, real_karpenter.karpenter

log = logging.getLogger(__name__)

POOL: Final = "on-demand"
#: Karpenter brings a NodePool with static capacity to its number of nodes by itself, so there are never more of them.
_NEEDS_MORE_THAN_THE_MINIMUM: Final = frozenset(
    {
        "deletions stop at the minimum",
        "forecast refusals are correct",
        "concurrent deletions of many nodes respect the minimum",
    }
)


class FastClock(SystemClock):
    """A clock of which a minute takes three seconds, so that waits of ten minutes end."""

    _FACTOR: Final = 20.0

    def monotonic(self) -> float:
        return super().monotonic() * self._FACTOR

    def wait(self, seconds: float, until: threading.Event) -> bool:
        return super().wait(seconds / self._FACTOR, until)


class RealKarpenterWorld:
    """World of the conformance table: nodes that Karpenter has launched, behind a proxy that fails requests."""

    group = POOL

    def __init__(self, plane: ControlPlane, proxy: FaultProxy, folder: Path) -> None:
        self._plane, self._proxy, self.clock = plane, proxy, FastClock()
        kubeconfig = plane.token_kubeconfig("table", plane.token)
        self._kubeconfig = redirected(kubeconfig, proxy, folder / "table.kubeconfig")
        self.provider: CloudProvider = self._open()

    def _open(self) -> CloudProvider:
        provider = KarpenterProvider(self.clock)
        provider.use_cluster(MachineObjects(Client(Kubeconfig(str(self._kubeconfig)), self.clock)))
        return provider

    def restart(self) -> None:
        self.provider.close()
        self.provider = self._open()

    def claims(self, *, ending: bool = False) -> list[Json]:
        """Return the NodeClaims of the NodePool, with *ending* also those that are being deleted."""
        items: list[Json] = self._plane.api.items(NODECLAIMS, labelSelector=f"karpenter.sh/nodepool={POOL}")
        return [each for each in items if ending or "deletionTimestamp" not in each["metadata"]]

    def nodes(self) -> list[NodeRef]:
        found = [(each["status"], each["metadata"]["labels"]) for each in self.claims()]
        return [NodeRef(status["nodeName"], status["providerID"], labels) for status, labels in found]

    def foreign(self) -> NodeRef:
        return NodeRef("elsewhere", "aws:///eu-north-1a/i-1", {"eks.amazonaws.com/nodegroup": "base"})

    def placeholder(self) -> None:
        """Return None: Cluster Autoscaler does not use this provider."""

    def runs(self, node: NodeRef) -> bool:
        return any(each["status"]["providerID"] == node.provider_id for each in self.claims(ending=True))

    def target(self) -> int:
        return len(self.claims())

    def _inject(self, fault: InjectedFault, times: int) -> None:
        self._proxy.forget()
        self._proxy.rules.add(FaultRule("delete nodeclaims", fault, times=times))

    def fail_deletions(self, times: int) -> None:
        self._inject(InjectedError(429), times)

    def lose_answers(self, times: int) -> None:
        self._inject(Reset(arrived=True), times)

    def lose_orders(self, times: int) -> None:
        self._inject(Reset(arrived=False), times)

    def go_down(self) -> None:
        self._proxy.forget()
        self._proxy.rules.add(FaultRule("", InjectedError(503), occurrence=None))


class Table:
    """Makes the world of each row: nodes are launched only if fewer than the row needs are left."""

    def __init__(self, observer: Observer, proxy: FaultProxy, folder: Path) -> None:
        self._observer, self._proxy, self._folder = observer, proxy, folder

    @contextlib.contextmanager
    def make(self, machines: int, minimum: int) -> Iterator[World]:
        assert minimum == 0
        self._proxy.forget()
        world = RealKarpenterWorld(self._observer.plane, self._proxy, self._folder)
        try:
            self._have(world, machines)
            yield world
        finally:
            self._proxy.forget()
            world.provider.close()

    def _have(self, world: RealKarpenterWorld, machines: int) -> None:
        plane = self._observer.plane
        for surplus in world.claims()[machines:]:
            plane.api.delete(f"{NODECLAIMS}/{surplus['metadata']['name']}")
        one_each = deployment("filler", machines, cpu="3")
        if len(world.claims()) < machines:
            plane.apply([one_each])
        self._observer.eventually(lambda: self._are_ready(world, machines), f"{machines} nodes", seconds=SECONDS)
        plane.api.delete(plane.api.path(one_each))
        self._observer.eventually(lambda: not self._observer.pods("filler"), "nodes without pods")

    def _are_ready(self, world: RealKarpenterWorld, machines: int) -> bool:
        claims = world.claims(ending=True)
        ready = [each for each in claims if _condition(each, "Initialized")]
        return len(ready) == len(claims) == machines


def _condition(claim: Json, kind: str) -> bool:
    conditions: list[Any] = claim.get("status", {}).get("conditions", ())
    return any((each["type"], each["status"]) == (kind, "True") for each in conditions)


@pytest.mark.cluster
def test_the_real_karpenter_passes_each_check(
    cluster: ControlPlane, observer: Observer, karpenter: None, tmp_path: Path
) -> None:
    pool = node_pool(POOL, "WhenEmpty")
    pool["spec"]["disruption"] |= NEVER
    cluster.apply([pool])
    failed = {}
    with before_api_server(cluster) as proxy:
        table = Table(observer, proxy, tmp_path)
        for fact, check in CHECKS.items():
            if fact in _NEEDS_MORE_THAN_THE_MINIMUM:
                continue
            log.info("%s", fact)
            with contextlib.suppress(pytest.skip.Exception):
                try:
                    check(table.make)
                except AssertionError as error:
                    failed[fact] = str(error)
    assert failed == {}
    assert len(CHECKS) - len(_NEEDS_MORE_THAN_THE_MINIMUM) > 20


@pytest.mark.cluster
def test_static_capacity_of_the_real_karpenter_keeps_its_number(
    cluster: ControlPlane, observer: Observer, karpenter: None, tmp_path: Path
) -> None:
    """Its nodes are refused: one that somebody deletes is launched again."""
    pool = node_pool(POOL, "WhenEmpty")
    del pool["spec"]["weight"], pool["spec"]["disruption"]
    named = {"key": "node.kubernetes.io/instance-type", "operator": "In", "values": [TYPES[0]["name"]]}
    pool["spec"]["template"]["spec"]["requirements"].append(named)  # which the kwok provider needs here
    cluster.apply([pool | {"spec": pool["spec"] | {"replicas": 2}}])
    with before_api_server(cluster) as proxy:
        world = RealKarpenterWorld(cluster, proxy, tmp_path)

        def settled(number: int) -> bool:
            claims = world.claims(ending=True)
            return len(claims) == number and all(_condition(each, "Initialized") for each in claims)

        observer.eventually(lambda: settled(2), "the nodes of the NodePool", seconds=SECONDS)
        nodes = world.nodes()
        assert reasons(world, *nodes) == [Refusal.BELOW_MINIMUM] * 2
        foretold = world.provider.refusals(POOL, nodes, deadline=world.clock.monotonic() + 60)
        assert set(foretold) == {node.name for node in nodes}
        first = world.claims()[0]["metadata"]["name"]
        cluster.api.delete(f"{NODECLAIMS}/{first}")
        observer.eventually(
            lambda: settled(2) and first not in {each["metadata"]["name"] for each in world.claims()},
            "the node that Karpenter launches in its place",
            seconds=SECONDS,
        )
