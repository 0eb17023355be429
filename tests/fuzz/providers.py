"""``provider serve`` as a process in front of a stand-in of each cloud."""

import contextlib
import secrets
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import grpc

from devcluster.cherry.app import application as cherry_face
from devcluster.cherry.cloud import CherryCloud as Cherry
from devcluster.cherry.cloud import CherryCloudSettings
from devcluster.cloudpool.server import CloudpoolServer
from devcluster.cloudpool.settings import CloudpoolSettings
from devcluster.stackpoint.app import application as stackpoint_face
from devcluster.stackpoint.cloud import StackpointCloud as Stackpoint
from devcluster.stackpoint.cloud import StackpointCloudSettings
from devcluster.standin.server import StandinServer
from rescheduler.clock import SystemClock
from rescheduler.providers.externalgrpc import wire
from rescheduler.providers.externalgrpc.channel import SERVICE
from tests.fuzz.process import Watched, watched
from tests.providers import cherry, stackpoints
from tests.providers.cloudpools import document

MINIMUM: Final = 2
MACHINES: Final = 4
_MOST: Final = 6
_TIMEOUT: Final = 60.0


@dataclass
class FuzzedCloud:
    """A cloud, and the names that are visible to a caller."""

    name: str
    process: Watched
    port: int
    group: str
    ids: Callable[[], Sequence[str]]  #: provider IDs of the group's machines
    alive: Callable[[], int]
    furnish: Callable[[], None]  #: restore the group to MACHINES

    @property
    def address(self) -> str:
        return f"127.0.0.1:{self.port}"

    def restore(self, channel: grpc.Channel) -> list[str]:
        """Check that the service responds normally, and restore the cloud."""
        problems = []
        if (alive := self.alive()) < MINIMUM:
            problems.append(f"{alive} machines are left, the minimum is {MINIMUM}")
        self.furnish()
        try:
            response = channel.unary_unary(f"/{SERVICE}/NodeGroups")(b"", timeout=_TIMEOUT)
            groups = [group.id for group in wire.NodeGroupsResponse.FromString(response).nodeGroups]
            if groups != [self.group]:
                problems.append(f"NodeGroups: {groups}")
        except grpc.RpcError as error:
            problems.append(f"NodeGroups: {error}")
        return problems


@contextlib.contextmanager
def cherryservers(folder: Path) -> Iterator[FuzzedCloud]:
    token, bootstrap = f"secret-{secrets.token_hex(8)}", secrets.token_hex(8)
    clock = SystemClock()
    cloud = Cherry(CherryCloudSettings(token=token, terminating=0.2, deploying=0.2), clock)
    with StandinServer[Cherry](cloud, cherry_face(cloud, per_second=None), path="/v1").running() as server:

        def members() -> Sequence[str]:
            now = clock.now()
            return [f"cherryservers://{server.id}" for server in cloud.servers(cherry.PROJECT) if server.runs(now)]

        def furnish() -> None:
            for _ in range(MACHINES - len(members())):
                cherry.add(server, deploying=0)

        furnish()
        order = "\n".join(
            f"{key} = {value}"
            for key, value in (
                ("region", cherry.ORDER["region"]),
                ("plan", cherry.ORDER["plan"]),
                ("os", cherry.ORDER["image"]),
            )
        )
        file = folder / "cloud-config"
        init = "cloudinit = am9pbiB7ey5Cb290c3RyYXBUb2tlblNlY3JldH19"  # join {{.BootstrapTokenSecret}}
        file.write_text(f"[global]\ncluster-name = {cherry.CLUSTER}\nproject-id = {cherry.PROJECT}\n{order}\n{init}\n")
        environment = {"CHERRY_AUTH_TOKEN": token, "BOOTSTRAP_TOKEN_ID": "abcdef", "CHERRY_API_URL": server.url}
        environment["BOOTSTRAP_TOKEN_SECRET"] = bootstrap
        flags = ("--cloud-provider=cherryservers", f"--cloud-config={file}", f"--nodes={MINIMUM}:{_MOST}:{cherry.POOL}")
        with _served(flags, environment, [token, bootstrap]) as process:
            yield FuzzedCloud(
                "cherryservers", process, _port(process), cherry.POOL, members, lambda: len(members()), furnish
            )


@contextlib.contextmanager
def stackpoint(folder: Path) -> Iterator[FuzzedCloud]:
    token = f"secret-{secrets.token_hex(8)}"
    clock = SystemClock()
    cloud = Stackpoint(StackpointCloudSettings(token=token, deleting=0.2, building=0.1), clock)
    with StandinServer[Stackpoint](cloud, stackpoint_face(cloud)).running() as server:

        def members() -> Sequence[str]:
            nodes = [node for node in cloud.nodes() if node.group_name == stackpoints.FIRST and node.deleted_at is None]
            return [f"spc://{node.instance_id}" for node in nodes]

        def furnish() -> None:
            for _ in range(MACHINES - len(members())):
                cloud.add(group_name=stackpoints.FIRST, building=0)

        furnish()
        file = folder / "spc.yaml"
        file.write_text("refreshInterval: 100ms\npollInterval: 100ms\nsettleTime: 1s\ntimeout: 5s\n")
        spec = f"{MINIMUM}:{_MOST}:t2.medium:{stackpoints.FIRST.removeprefix('autoscaling-')}"
        flags = ("--cloud-provider=spc", f"--cloud-config={file}", f"--nodes={spec}")
        environment = stackpoints.environment(server.url) | {"CLUSTER_API_TOKEN": token}
        with _served(flags, environment, [token]) as process:
            yield FuzzedCloud(
                "stackpoint", process, _port(process), stackpoints.FIRST, members, lambda: len(members()), furnish
            )


@contextlib.contextmanager
def cloudpool(folder: Path, *listening: str) -> Iterator[FuzzedCloud]:
    """Start the service; *listening* are flags of its listeners."""
    password = f"secret-{secrets.token_hex(8)}"
    clock = SystemClock()
    (folder / "password").write_text(password)
    values: dict[str, object] = {"desired_size": MACHINES, "username": "us", "password_file": "password"}
    of = CloudpoolSettings(pool=document(), refresh_interval=0, pool_update=1, **values)  # type: ignore[arg-type]
    with CloudpoolServer(of, folder, clock).running() as server:

        def members() -> Sequence[str]:
            now = clock.now()
            return [
                machine.provider_id for machine in server.pool.machines() if machine.allocated(now) and machine.member
            ]

        file = folder / "cloudpool.yaml"
        backend = f"{{url: '{server.url}', username: us, passwordFile: password, timeout: 5s}}"
        sizes = f"minSize: {MINIMUM}, maxSize: {_MOST}"
        file.write_text(f"pools: [{{id: pool, backend: {backend}, {sizes}, orderTimeout: 5s, settleTime: 1s}}]")
        flags = ("--cloud-provider=cloudpool", f"--cloud-config={file}", *listening)
        with _served(flags, {}, [password]) as process:
            yield FuzzedCloud(
                "cloudpool",
                process,
                _port(process),
                "pool",
                members,
                lambda: len(members()),
                lambda: server.pool.set_size(MACHINES),
            )


@contextlib.contextmanager
def _served(flags: Sequence[str], environment: Mapping[str, str], known: Sequence[str]) -> Iterator[Watched]:
    with watched(("provider", "serve", *flags, "--address=127.0.0.1:0", "-v=4"), environment, known) as process:
        yield process


def _port(process: Watched) -> int:
    return int(process.wait_for(r" on 127\.0\.0\.1:(\d+), (?:plain text|mutual TLS)")[1])
