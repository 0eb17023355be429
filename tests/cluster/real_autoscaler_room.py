"""Tests of room on spot nodes with the real Cluster Autoscaler, which manages both groups: `make autoscaler`.

The spot nodes are interrupted, the pods fall back to on-demand nodes, and later the cloud has spot capacity again.
"""

import contextlib
import functools
import json
import logging
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Any

import pytest
import yaml

from devcluster.api import Json
from devcluster.cloudpool.cluster import Cluster
from devcluster.cloudpool.pool import ReferencePool
from devcluster.cloudpool.server import CloudpoolServer
from devcluster.manifests import ON_DEMAND, SPOT, deployment
from devcluster.plane import ControlPlane
from tests.cluster import real_autoscaler
from tests.cluster.daemon import NO_DELAY, SOFT, Daemon
from tests.cluster.observer import Observer
from tests.cluster.real_autoscaler import CLOCK, System, allocated, driven, joined
from tests.cluster.rendering import DEPLOY
from tests.providers import cloudpools

program, folder = real_autoscaler.program, real_autoscaler.folder

log = logging.getLogger(__name__)

ROOM = "spot-rescheduler-room"
PODS = 6
#: Two nodes have room for all pods; Cluster Autoscaler tries a group without capacity again soon.
CPU = "1200m"
BACKOFF_FLAGS = (
    "--initial-node-group-backoff-duration=2s",
    "--max-node-group-backoff-duration=4s",
    "--max-node-provision-time=10s",
)
CAPACITY: dict[bool, str] = {True: "200ms", False: "1h"}  #: how long a machine takes to launch
SECONDS = 400.0
WATCHED = 600.0  #: how long nothing may happen, in seconds


@dataclass(frozen=True)
class AutoscaledGroups:
    """An on-demand and a spot group behind one service."""

    on_demand: System
    spot: System
    spot_server: CloudpoolServer

    @property
    def spot_pool(self) -> ReferencePool:
        return self.spot_server.pool

    def allow_spot(self, *, allowed: bool) -> None:
        """Set whether new machines of the spot group launch."""
        self.spot_pool.set_config({**self.spot_pool.config(), "launchDelay": CAPACITY[allowed]})

    def size_requests(self) -> int:
        """Return how often a size of the spot group was requested. A termination changes the size without a request."""
        return sum((each.method, each.path) == ("POST", "/pool/size") for each in self.spot_server.faulty_app.requests)


@contextlib.contextmanager
def two_groups(plane: ControlPlane, place: Path) -> Iterator[AutoscaledGroups]:
    """Run an on-demand group without machines and a spot group with two machines."""
    kinds: dict[str, tuple[int, dict[str, Any]]] = {
        "od": (0, {"labels": {ON_DEMAND: ""}, "taints": [{"key": ON_DEMAND, "value": "true", "effect": SOFT}]}),
        "spot": (2, {"labels": {SPOT: ""}, "network": "10.78"}),
    }
    flags = ("--cloud-provider=cloudpool", "--cloud-config=cloudpool.json")
    entries, systems, servers = [], [], []
    with contextlib.ExitStack() as stack:
        for name, (size, more) in kinds.items():
            (place / name).mkdir()
            document = cloudpools.document(name=name, requestDelay="200ms", launchDelay=CAPACITY[True], **more)
            settings = cloudpools.settings(pool=document, desired_size=size, refresh_interval=0.2, pool_update=1)
            server = stack.enter_context(CloudpoolServer(settings, place / name, CLOCK).running())
            stack.enter_context(joined(Cluster(str(plane.kubeconfig), server.pool, CLOCK)))
            template = {"labels": more["labels"], "capacity": {"cpu": "4", "memory": "16Gi", "pods": "110"}}
            times = {"refreshInterval": "500ms", "cacheAge": "1s", "pollInterval": "500ms"}
            backend = {"url": server.url, "timeout": "4s"}
            entries.append({"id": name, "backend": backend, "minSize": 0, "maxSize": 4, "template": template, **times})
            systems.append(System(flags, more["labels"], functools.partial(allocated, server.pool)))
            servers.append(server)
        (place / "cloudpool.json").write_text(json.dumps({"pools": entries}))
        yield AutoscaledGroups(systems[0], systems[1], servers[1])


class InterruptionStory:
    """A scenario: pods run on spot nodes, are interrupted, and fall back to on-demand nodes."""

    def __init__(self, plane: ControlPlane, observer: Observer, groups: AutoscaledGroups) -> None:
        self.plane, self.observer, self.groups = plane, observer, groups
        observer.eventually(lambda: len(observer.node_names()) == 2, "the spot nodes")
        plane.apply([deployment("web", PODS, cpu=CPU)])
        observer.running(PODS)

    def interrupt(self) -> None:
        """End the spot machines, and wait until Cluster Autoscaler has added on-demand nodes for the pods."""
        self.groups.allow_spot(allowed=False)
        for machine in self.groups.spot_pool.machines():
            self.groups.spot_pool.terminate(machine.id(CLOCK.now()), decrement=True)
        self.observer.eventually(
            lambda: self.observer.kinds() == {"od": PODS}, "the pods on on-demand nodes", seconds=SECONDS
        )
        self.observer.running(PODS)

    def placeholders(self) -> list[Json]:
        return self.plane.api.items(f"/api/v1/namespaces/{ROOM}/pods")

    def created(self) -> list[str]:
        """Return the names of all placeholders that were created."""
        events = self.observer.audit.events()
        created_events = [each for each in events if each.accepted and (each.kind, each.verb) == ("pods", "create")]
        return [each.name for each in created_events if each.namespace == ROOM]

    def gave_up(self) -> bool:
        """Return whether an Event states that no spot nodes came."""
        return any("NoSpotCapacity" in self.observer.events(name) for name in self.observer.node_names())

    def slowest_binding(self) -> float:
        """Return the longest time in seconds from the creation of a pod of *web* until it was bound."""
        waits = []
        for pod in self.observer.pods("web"):
            bound = next(each for each in pod["status"]["conditions"] if each["type"] == "PodScheduled")
            created = datetime.fromisoformat(pod["metadata"]["creationTimestamp"])
            waits.append((datetime.fromisoformat(bound["lastTransitionTime"]) - created).total_seconds())
        return max(waits)


@pytest.fixture
def room(cluster: ControlPlane) -> Iterator[None]:
    """The namespace and the PriorityClass of the component; the daemon has all rights."""
    component = DEPLOY / "components" / "make-room"
    objects = [
        each
        for file in ("namespace.yaml", "priority-class.yaml")
        for each in yaml.safe_load_all((component / file).read_text())
    ]
    cluster.apply(objects)
    cluster.wait_for(lambda: cluster.api.items(f"/api/v1/namespaces/{ROOM}/serviceaccounts"), "the ServiceAccount")
    yield
    for each in objects:
        cluster.api.delete(cluster.api.path(each))


#: How room is made, and the flags of Cluster Autoscaler: it removes idle nodes soon, or not during the test.
MODES = {
    "placeholders": ("placeholders", "--scale-down-unneeded-time=3s"),
    "provider": ("provider", "--scale-down-unneeded-time=1h"),
}


@pytest.mark.cluster
@pytest.mark.parametrize(("mode", "pace"), MODES.values(), ids=MODES)
def test_pods_return_to_spot_nodes_after_an_interruption(
    mode: str, pace: str, program: Path, cluster: ControlPlane, observer: Observer, folder: Path, room: None
) -> None:
    """Without --make-room nothing moves: Cluster Autoscaler, with its default expander, keeps no idle spot node."""
    with two_groups(cluster, folder) as groups:
        story = InterruptionStory(cluster, observer, groups)
        with driven(program, cluster, folder, groups.spot, pace, *BACKOFF_FLAGS):
            story.interrupt()
            groups.allow_spot(allowed=True)
            flags = (NO_DELAY, "--cloud-provider=externalgrpc", f"--cloud-config={folder / 'client.yaml'}")
            before = observer.uids("web")
            with Daemon(cluster, *flags):
                observer.stays(lambda: (observer.uids("web") == before, observer.kinds()), (True, {"od": PODS}), 60)
            with Daemon(cluster, *flags, f"--make-room={mode}"):
                observer.eventually(lambda: observer.kinds() == {"spot": PODS}, "the pods on spot", seconds=SECONDS)
                observer.eventually(lambda: groups.on_demand.machines() == 0, "no on-demand machine", seconds=SECONDS)
                observer.running(PODS)
                observer.eventually(lambda: not story.placeholders(), "no placeholder")
                observer.wait_unmarked()
        log.info("%s: the slowest binding took %.0f s", mode, story.slowest_binding())
        assert story.slowest_binding() < 5
        assert {name.partition("-")[0] for name in observer.node_names()} == {"spot"}


@pytest.mark.cluster
@pytest.mark.parametrize("mode", MODES)
def test_nothing_moves_or_flaps_while_there_is_no_spot_capacity(
    mode: str, program: Path, cluster: ControlPlane, observer: Observer, folder: Path, room: None
) -> None:
    """One order is tried and given up; within the next ten minutes there is no other one."""
    with two_groups(cluster, folder) as groups:
        story = InterruptionStory(cluster, observer, groups)
        with driven(program, cluster, folder, groups.spot, "--scale-down-unneeded-time=1h", *BACKOFF_FLAGS):
            story.interrupt()
            before, machines, requested = observer.uids("web"), groups.on_demand.machines(), groups.size_requests()
            flags = ("--cloud-provider=externalgrpc", f"--cloud-config={folder / 'client.yaml'}", "--room-timeout=30s")
            with Daemon(cluster, NO_DELAY, f"--make-room={mode}", *flags):
                observer.eventually(lambda: story.created() or groups.size_requests() > requested, "the order")
                observer.eventually(lambda: not story.placeholders() and story.gave_up(), "its end")
                observer.eventually(lambda: groups.spot.machines() == 0, "no spot machine", seconds=SECONDS)
                created, requests = len(story.created()), groups.size_requests()
                observer.stays(story.placeholders, [], seconds=WATCHED)
        assert (len(story.created()), groups.size_requests()) == (created, requests)
        assert created == (PODS // 2 if mode == "placeholders" else 0)
        assert (observer.evictions(), observer.markings(), observer.uids("web")) == ([], [], before)
        assert (observer.kinds(), groups.on_demand.machines()) == ({"od": PODS}, machines)
        assert groups.spot.machines() == 0
