"""Cluster Autoscaler's calls to the service process, from a Go program with the types of k8s.io/api.

Covers the stand-ins of all systems, both generations of the protocol (and the oldest form of the old one), plain text
and mutual TLS. The caller checks each response; these tests check its report and the resulting machines.
"""

import contextlib
import json
import shutil
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from devcluster import build
from devcluster.cloudpool.server import CloudpoolServer
from devcluster.stackpoint.cloud import StackpointNode
from rescheduler.clock import SystemClock
from rescheduler.providers.base import NodeRef
from tests.providers import cherry, cloudpools, pki, stackpoints
from tests.providers.served import CLIENT_FILES, SERVER_FILES, Played, Service, play, services

CLOCK = SystemClock()
FOREVER = 100_000.0  #: seconds; requested machines are never completed
NODES = 7  #: each run deletes one


@dataclass(frozen=True)
class ServedSystem:
    """A stand-in with a group of running machines, and the flags to serve it."""

    flags: Sequence[str]
    environ: Mapping[str, str]
    group: str
    nodes: Callable[[], Sequence[NodeRef]]  #: Nodes of the group's running machines
    foreign: NodeRef
    machines: Callable[[], Sequence[str]]  #: provider IDs of the group's running and pending machines
    template: bool
    prices: bool


@contextlib.contextmanager
def cloudpool(folder: Path) -> Iterator[ServedSystem]:
    """Run a cloudpool whose first machines start immediately; machines requested later never start."""
    settings = cloudpools.settings(pool=cloudpools.document(), desired_size=NODES, refresh_interval=0)
    with CloudpoolServer(settings, folder, CLOCK).running() as server:
        server.pool.set_config({"name": "pool", "requestDelay": f"{FOREVER}s"})
        pool = {
            "id": "od",
            "backend": {"url": server.url, "timeout": "4s"},
            "minSize": 1,
            "maxSize": NODES + 1,
            "refreshInterval": "0s",
            "cacheAge": "0s",
            "pollInterval": "200ms",
            "settleTime": "2s",
            "template": {"labels": {"pool": "od"}, "capacity": {"cpu": "4", "memory": "16Gi", "pods": "110"}},
        }
        (folder / "cloudpool.json").write_text(json.dumps({"pools": [pool]}))

        def allocated(states: set[str]) -> list[Any]:
            return [machine for machine in server.pool.machines() if machine.state(CLOCK.now()) in states]

        yield ServedSystem(
            ("--cloud-provider=cloudpool", "--cloud-config=cloudpool.json"),
            {},
            "od",
            lambda: [cloudpools.node_of(machine) for machine in allocated({"RUNNING"})],
            NodeRef("elsewhere", "aws:///eu-north-1a/i-00000000000000000"),
            lambda: [machine.provider_id for machine in allocated({"RUNNING", "PENDING", "REQUESTED"})],
            template=True,
            prices=False,
        )


@contextlib.contextmanager
def cherryservers(folder: Path) -> Iterator[ServedSystem]:
    with cherry.serving(CLOCK, deploying=FOREVER, terminating=1.0) as server:
        for _ in range(NODES):
            cherry.add(server, deploying=0.0)
        foreign = cherry.node_of(cherry.add(server, name="another-pool", deploying=0.0))
        keys = {"cluster-name": cherry.CLUSTER, "project-id": cherry.PROJECT, "os": cherry.ORDER["image"]}
        keys |= {name: cherry.ORDER[name] for name in ("plan", "region")}
        (folder / "cherry.ini").write_text("[global]\n" + "".join(f"{key} = {keys[key]}\n" for key in keys))

        def pool() -> list[Any]:
            return [item for item in server.cloud.servers() if item.tags.get("k8s-nodepool") == cherry.POOL]

        yield ServedSystem(
            ("--cloud-provider=cherryservers", "--cloud-config=cherry.ini", f"--nodes=1:{NODES + 1}:{cherry.POOL}"),
            {**cherry.ENVIRONMENT, "CHERRY_API_URL": server.url},
            cherry.POOL,
            lambda: [cherry.node_of(server) for server in pool() if server.runs(CLOCK.now())],
            foreign,
            lambda: [f"cherryservers://{server.id}" for server in pool() if server.state(CLOCK.now()) == "active"],
            template=True,
            prices=True,
        )


@contextlib.contextmanager
def stackpoint(folder: Path) -> Iterator[ServedSystem]:
    with stackpoints.serving(CLOCK, building=FOREVER, deleting=1.0) as server:
        for _ in range(NODES):
            server.cloud.add(group_name=stackpoints.FIRST, building=0.0)
        foreign = stackpoints.node_of(server.cloud.add(building=0.0))
        (folder / "spc.yaml").write_text("pollInterval: 200ms\nrefreshInterval: 1s\nsettleTime: 5s\n")

        def group() -> list[StackpointNode]:
            return [node for node in server.cloud.nodes() if node.group_name == stackpoints.FIRST]

        def known_as(node: StackpointNode) -> str:
            running = node.state(CLOCK.now()) == "running"
            return stackpoints.node_of(node).provider_id if running else f"spc://{node.instance_id}"

        yield ServedSystem(
            ("--cloud-provider=stackpoint", "--cloud-config=spc.yaml", f"--nodes=1:{NODES + 1}:t2.medium:od"),
            stackpoints.environment(server.url),
            stackpoints.FIRST,
            lambda: [stackpoints.node_of(node) for node in group() if node.state(CLOCK.now()) == "running"],
            foreign,
            lambda: [known_as(node) for node in group() if node.deleted_at is None],
            template=True,
            prices=False,
        )


SYSTEMS: dict[str, Callable[[Path], AbstractContextManager[ServedSystem]]] = {
    "cloudpool": cloudpool,
    "cherryservers": cherryservers,
    "stackpoint": stackpoint,
}


#: system, generation, mutual TLS. Every generation calls the cloudpool in all ways; the others have what differs there.
CASES: list[tuple[str, str, bool]] = [
    *(("cloudpool", generation, tls) for generation in ("Old", "New") for tls in (False, True)),
    *((system, "Oldest", False) for system in ("cloudpool", "stackpoint")),
    *(("stackpoint", "New", True), ("cherryservers", "Old", False), ("cherryservers", "New", True)),
]


@dataclass(frozen=True)
class CallerScene:
    """A system and its two services."""

    system: ServedSystem
    folder: Path
    plain: Service
    mutual: Service


@pytest.fixture(scope="module")
def caller(shown: Callable[[], AbstractContextManager[None]]) -> Path:
    """Path of the program. The first build is shown."""
    with shown():
        return build.caller()


@pytest.fixture(scope="module")
def scene(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[CallerScene]:
    """The services outlive each test, so each run continues with the previous state."""
    folder = tmp_path_factory.mktemp("scene")
    pki.make(folder)
    with SYSTEMS[request.param](folder) as system:
        plain = Service(folder, *system.flags, environ=system.environ)
        mutual = Service(folder, *system.flags, *SERVER_FILES, environ=system.environ)
        with services(plain, mutual):
            yield CallerScene(system, folder, plain, mutual)


def life(
    caller: Path, scene: CallerScene, generation: str, *, mutual: bool, files: Mapping[str, str] = CLIENT_FILES
) -> Played:
    """Run a caller of *generation*; the first of the group's nodes is its victim."""
    system, service = scene.system, scene.mutual if mutual else scene.plain
    return play(
        caller,
        scene.folder,
        address=service.address,
        grpc_timeout="5s",
        generation=generation,
        group=system.group,
        nodes=[_node(node) for node in system.nodes()],
        foreign=_node(system.foreign),
        patience="120s",
        **(files if mutual else {}),
    )


def _node(node: NodeRef) -> dict[str, Any]:
    return {"name": node.name, "providerID": node.provider_id, "labels": dict(node.labels)}


@pytest.mark.parametrize(("scene", "generation", "mutual"), CASES, indirect=["scene"])
def test_cluster_autoscaler_can_use_every_response(
    generation: str, mutual: bool, caller: Path, scene: CallerScene
) -> None:
    before = set(scene.system.machines())
    played = life(caller, scene, generation, mutual=mutual)
    assert played.problem == ""
    assert len(played.created) == 2
    assert set(scene.system.machines()) == before - {played.victim}
    assert played.codes("NodeGroupTemplateNodeInfo") == {"OK" if scene.system.template else "Unimplemented"}
    assert played.codes("NodeGroupGetOptions") == {"OK" if generation == "Oldest" else "Unimplemented"}
    assert played.codes("PricingNodePrice") == {"OK" if scene.system.prices else "Unimplemented"}


def test_renewed_certificates_are_used_and_required(caller: Path, tmp_path: Path) -> None:
    """The CA itself is replaced; no process restarts."""
    with cloudpool(tmp_path) as system:
        pki.make(tmp_path)
        service = Service(tmp_path, *system.flags, *SERVER_FILES)
        with services(service):
            scene = CallerScene(system, tmp_path, service, service)
            assert life(caller, scene, "New", mutual=True).problem == ""
            before = {
                name: str(shutil.copy(tmp_path / file, tmp_path / f"old-{file}")) for name, file in CLIENT_FILES.items()
            }
            pki.make(tmp_path)
            assert life(caller, scene, "New", mutual=True).problem == ""
            refused = life(caller, scene, "New", mutual=True, files=before)
    assert refused.calls[-1]["code"] == "Unavailable"
    assert "start: NodeGroupForNode" in refused.problem
