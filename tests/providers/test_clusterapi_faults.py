"""Random faults, kills and other clients around removals of Machines, against the rules of the controllers.

What must hold: no Machine goes without a mark, unless another client lowered the replicas; replicas never fall below
the minimum by our requests, and are lowered once for each order; and no mark of ours stays.
"""

import json
import os
import random
from typing import Any, TypeVar

import msgspec
import pytest

from rescheduler import errors
from rescheduler.errors import AuthError, RateLimited, Withheld
from rescheduler.net.http_errors import Missing, NoResponse, Unsent
from rescheduler.providers.base import ClusterObjects, NodeRef, ObjectVersion, Unserved
from rescheduler.providers.clusterapi import ClusterApiFile, ClusterApiProvider
from rescheduler.providers.clusterapi.machines import REMOVED
from rescheduler.providers.clusterapi.objects import CLUSTER_API, OPENSHIFT, MachineApi
from tests.providers.clocks import StepClock
from tests.providers.clusterapis import POOL, SPACE, MachineCluster, node_of
from tests.providers.worlds import went

T = TypeVar("T", bound=msgspec.Struct)

#: Faults in each of 8 courses; `CLUSTERAPI_FAULTS=10000` is a longer run.
FAULTS = int(os.environ.get("CLUSTERAPI_FAULTS", "800")) // 8
MINIMUM = 2


class FaultyObjects(ClusterObjects):
    """The objects of a cluster, with faults: of what is sent, of what is answered, and requests that arrive late."""

    def __init__(self, cluster: MachineCluster, chance: random.Random, clock: StepClock) -> None:
        self.cluster, self._chance, self._clock = cluster, chance, clock
        self._late: list[tuple[float, str, str, Any]] = []
        self.faults, self.orders, self.lowest = 0, list[str](), 10**6
        self.likely = 0.3
        self.unmarked = 0  #: Machines that may go without a mark of ours

    def all(self, path: str, shape: type[T], *, seconds: float) -> list[T]:  # noqa: ARG002
        self.arrive()
        if self._chance.random() < self.likely / 10:
            self.unmarked += foreign(self.cluster, self._chance)
        kind = path.rpartition("/")[2]
        if kind not in self.cluster.objects or self.cluster.api.group not in path:
            raise Unserved(path)
        if self._fails(0.1):
            raise self._chance.choice([errors.BackendUnavailable("list"), AuthError("list"), RateLimited("list")])
        return msgspec.json.decode(json.dumps(self.cluster.listed(kind)), type=list[shape])  # type: ignore[valid-type]

    def patch(self, version: ObjectVersion, change: Any, *, seconds: float) -> None:  # noqa: ARG002
        kind, _, name = version.path.rpartition("/")
        kind = kind.rpartition("/")[2]
        preconditions = {"uid": version.uid, "resourceVersion": version.resource_version}
        body = {**change, "metadata": {**change.get("metadata", {}), **preconditions}}
        if self._fails():
            match self._chance.randrange(6):
                case 0:
                    raise Unsent("not sent")
                case 1:
                    raise AuthError("forbidden")
                case 2:
                    raise RateLimited("too many")
                case 3:
                    arrives = self._clock.monotonic() + self._chance.uniform(0, 55)
                    self._late.append((arrives, kind, name, body))
                    raise NoResponse("it arrives later")
                case 4:
                    raise NoResponse("lost")
                case _:
                    self._apply(kind, name, body)
                    raise NoResponse("the answer is lost")
        code, text = self._apply(kind, name, body)
        if code != 200:
            raise (Missing if code == 404 else Unsent)(text)

    def delete(self, version: ObjectVersion, *, seconds: float) -> None:  # noqa: ARG002
        raise AssertionError("a Machine is deleted by its controller")

    def arrive(self) -> None:
        """Let requests arrive that were delayed until now."""
        now = self._clock.monotonic()
        due = [each for each in self._late if each[0] <= now]
        self._late = [each for each in self._late if each[0] > now]
        for _, kind, name, body in due:
            self._apply(kind, name, body)

    def _apply(self, kind: str, name: str, body: Any) -> tuple[int, str]:
        body = json.loads(json.dumps(body))
        code, text = self.cluster.patch(kind, name, body)
        if code == 200 and "spec" in body:
            self.orders.append(body["metadata"]["annotations"][REMOVED].rpartition(" ")[0])
            self.lowest = min(self.lowest, body["spec"]["replicas"])
        return code, text

    def _fails(self, share: float = 1.0) -> bool:
        fails = self._chance.random() < self.likely * share
        self.faults += fails
        return fails


def foreign(cluster: MachineCluster, chance: random.Random) -> int:
    """Do what other clients do; return how many Machines may go without a mark of ours by it."""
    running = cluster.alive()
    replicas = cluster.item(_scaled(cluster), POOL)["spec"]["replicas"]
    match chance.randrange(6):
        case 0 if replicas < 12:
            cluster.scale(POOL, 1)
        case 1 if replicas > MINIMUM:
            cluster.scale(POOL, -1)
            return 1
        case 2 if replicas > MINIMUM and running:  # as Cluster Autoscaler does it
            name = chance.choice(running)["metadata"]["name"]
            cluster.change("machines", name, {"metadata": {"annotations": dict.fromkeys(cluster.api.marks, "CA")}})
            cluster.scale(POOL, -1)
            return 1
        case 3 if running:  # as a MachineHealthCheck does it
            cluster.delete(chance.choice(running)["metadata"]["name"])
        case 4:
            cluster.stopped = not cluster.stopped
    return 0


def _scaled(cluster: MachineCluster) -> str:
    return "machinedeployments" if cluster.api.has_clusters else "machinesets"


@pytest.mark.parametrize("api", [CLUSTER_API, OPENSHIFT], ids=["cluster-api", "openshift"])
@pytest.mark.parametrize("seed", range(4))
def test_machines_go_only_by_our_mark_whatever_fails(seed: int, api: MachineApi) -> None:
    chance, clock = random.Random(seed), StepClock()
    cluster = MachineCluster(clock, api)
    cluster.add_group(POOL, 8, MINIMUM)
    objects = FaultyObjects(cluster, chance, clock)
    asked, gone = set[str](), 0
    provider = opened(objects, clock)
    while objects.faults < FAULTS:
        if chance.random() < 0.2:
            provider = opened(objects, clock)  # as after a kill
        if cluster.item(_scaled(cluster), POOL)["spec"]["replicas"] < MINIMUM + 2:
            cluster.scale(POOL, 3)
        if not (running := cluster.alive()):
            clock.advance(30)
            cluster.stopped = False
            cluster.act()
            continue
        machine = chance.choice(running)
        asked.add(machine["metadata"]["name"])
        for _ in range(chance.randrange(1, 4)):
            if chance.random() < 0.3:
                objects.unmarked += foreign(cluster, chance)
            gone += removed(provider, node_of(machine, annotations={}), clock, chance)
            check(cluster, objects, asked)
        clock.advance(chance.choice([0, 1, 20, 90]))
        refresh(provider, clock)
        check(cluster, objects, asked)
    assert gone
    settled(objects, provider, clock)


def opened(objects: FaultyObjects, clock: StepClock) -> ClusterApiProvider:
    provider = ClusterApiProvider(ClusterApiFile(namespace=SPACE), clock, None)  # type: ignore[arg-type]
    provider.use_cluster(objects)
    return provider


def removed(provider: ClusterApiProvider, node: NodeRef, clock: StepClock, chance: random.Random) -> bool:
    """Ask for the removal of *node*; return whether it went."""

    def may_end(_: NodeRef) -> None:
        if chance.random() < 0.1:
            raise Withheld("a pod came back")

    groups = [each.id for each in provider._fleet.system.state.groups.values()]  # type: ignore[attr-defined]
    group = groups[0] if groups else f"MachineDeployment/{SPACE}/{POOL}"
    deadline = clock.monotonic() + chance.choice([3.0, 20.0, 100.0])
    try:
        return went(provider.delete_nodes(group, [node], deadline=deadline, may_end=may_end)[node.name])
    except errors.ReschedulerError:
        return False


def refresh(provider: ClusterApiProvider, clock: StepClock) -> None:
    try:
        provider.refresh(deadline=clock.monotonic() + 30)
    except errors.ReschedulerError:
        return


def check(cluster: MachineCluster, objects: FaultyObjects, asked: set[str]) -> None:
    ours = [name for name, notes in cluster.ended if mark(notes, cluster).startswith("spot-rescheduler ")]
    assert len(cluster.ended) - len(ours) <= objects.unmarked, "a Machine went without a mark"
    assert set(ours) <= asked
    assert objects.lowest >= MINIMUM
    assert len(objects.orders) == len(set(objects.orders)), "replicas were lowered twice for an order"


def settled(objects: FaultyObjects, provider: ClusterApiProvider, clock: StepClock) -> None:
    """Check that no mark of ours stays once requests succeed."""
    objects.likely, objects.cluster.stopped = 0.0, False
    for _ in range(4):
        clock.advance(70)
        refresh(provider, clock)
    assert [each["metadata"]["name"] for each in objects.cluster.alive() if ours(each, objects.cluster)] == []


def ours(machine: Any, cluster: MachineCluster) -> bool:
    return mark(machine["metadata"]["annotations"], cluster).startswith("spot-rescheduler ")


def mark(notes: dict[str, str], cluster: MachineCluster) -> str:
    return next((notes[name] for name in cluster.api.marks if name in notes), "")
