"""A Cherry Servers stand-in over HTTP for tests, with a controllable clock."""

import contextlib
from collections.abc import Iterator, Mapping
from typing import Any

from devcluster.cherry.app import application
from devcluster.cherry.cloud import CherryCloud, CherryCloudSettings, ServerState
from devcluster.standin.faults import Fault
from devcluster.standin.server import StandinServer
from rescheduler.clock import Clock
from rescheduler.net.config_files import Duration, Endpoint
from rescheduler.providers.base import CloudProvider, NodeGroup, NodeRef
from rescheduler.providers.cherryservers import CherryProvider, config
from tests.providers.clocks import StepClock
from tests.providers.failing import FailingDeletions

PROJECT, CLUSTER, POOL = 10001, "cluster1", "pool1"
TOKEN = "cherry-secret-token"
ORDER = {"plan": "e5_1620v4", "region": "eu_nord_1", "image": "ubuntu_24_04"}
ENVIRONMENT = {
    "CHERRY_AUTH_TOKEN": TOKEN,
    "BOOTSTRAP_TOKEN_ID": "abcdef",
    "BOOTSTRAP_TOKEN_SECRET": "0123456789abcdef",
}


def definition(**changes: Any) -> config.Definition:
    values: dict[str, Any] = {
        "cluster_name": CLUSTER,
        "project_id": PROJECT,
        "api_server_endpoint": "10.0.0.1:6443",
        "region": ORDER["region"],
        "plan": ORDER["plan"],
        "os": ORDER["image"],
        "cloudinit": "join {{.BootstrapTokenID}}.{{.BootstrapTokenSecret}} {{.APIServerEndpoint}} {{.NodeGroup}}",
    }
    return config.Definition(**(values | changes))


@contextlib.contextmanager
def serving(clock: Clock, *, per_second: int | None = None, **settings: Any) -> Iterator[StandinServer[CherryCloud]]:
    cloud = CherryCloud(CherryCloudSettings(token=TOKEN, **settings), clock)
    with StandinServer(cloud, application(cloud, per_second=per_second), path="/v1").running() as server:
        yield server


@contextlib.contextmanager
def providing(
    server: StandinServer[CherryCloud],
    clock: StepClock,
    *pools: config.CherryPool,
    environ: Mapping[str, str] = ENVIRONMENT,
    label: str = "",
) -> Iterator[CherryProvider]:
    endpoint = Endpoint(url=server.url, timeout=Duration(60))
    provider = CherryProvider(config.CherrySettings(pools or (pool(),), endpoint, label), environ, clock)
    try:
        yield provider
    finally:
        provider.close()


def pool(name: str = POOL, minimum: int = 0, maximum: int = 10, **changes: Any) -> config.CherryPool:
    return config.CherryPool(NodeGroup(name, minimum, maximum), definition(**changes))


def add(server: StandinServer[CherryCloud], name: str = POOL, cluster: str = CLUSTER, **fields: Any) -> ServerState:
    """Add a server to a pool; without a name, to no pool."""
    project = fields.pop("project", PROJECT)
    tags = {"k8s-cluster": cluster} | ({"k8s-nodepool": name} if name else {})
    created = server.cloud.create(project, {**ORDER, "tags": tags}, **fields)
    server.cloud.change(created.id, hostname=fields.get("hostname", f"server-{created.id}"))
    return server.cloud.server(created.id) or created


def node_of(server: ServerState, **changes: Any) -> NodeRef:
    """Return the Node of the server as the daemon sees it."""
    values: dict[str, Any] = {
        "provider_id": f"cherryservers://{server.id}",
        "internal_ips": (server.private_ip,),
    } | changes
    return NodeRef(server.hostname, **values)


class CherryWorld(FailingDeletions):
    """World of the conformance table (see `conformance`)."""

    group = POOL

    def __init__(
        self, server: StandinServer[CherryCloud], clock: StepClock, minimum: int, stack: contextlib.ExitStack
    ) -> None:
        self.server, self.clock = server, clock
        self._minimum, self._stack = minimum, stack
        self.provider: CloudProvider = self._open()

    def _open(self) -> CloudProvider:
        return self._stack.enter_context(providing(self.server, self.clock, pool(minimum=self._minimum)))

    def restart(self) -> None:
        self.provider = self._open()

    def nodes(self) -> list[NodeRef]:
        now = self.clock.now()
        return [node_of(server) for server in self._pool() if server.runs(now)]

    def foreign(self) -> NodeRef:
        return node_of(add(self.server, name="pool-of-others"))

    def placeholder(self) -> NodeRef:
        node = self.nodes()[0]
        return NodeRef(node.provider_id, node.provider_id)

    def runs(self, node: NodeRef) -> bool:
        number = int(node.provider_id.rsplit("/", 1)[-1])
        state = self.server.cloud.server(number)
        return state is not None and state.runs(self.clock.now())

    def target(self) -> int:
        now = self.clock.now()
        return sum(server.state(now) != "terminating" for server in self._pool())

    def _pool(self) -> list[ServerState]:
        return [server for server in self.server.cloud.servers(PROJECT) if server.tags.get("k8s-nodepool") == POOL]

    def _inject(self, **fault: Any) -> None:
        path = f"/v1/servers/{self._pool()[0].id}"
        self.server.faulty_app.inject(Fault(method="DELETE", path=path, **fault))

    def go_down(self) -> None:
        for path in (f"/v1/projects/{PROJECT}/servers", "/v1/plans"):
            self.server.faulty_app.inject(Fault(method="GET", path=path, status=503, times=1000))
        self.fail_deletions(1000)


@contextlib.contextmanager
def cherry_world(machines: int, minimum: int) -> Iterator[CherryWorld]:
    clock = StepClock()
    with contextlib.ExitStack() as stack:
        server = stack.enter_context(serving(clock, terminating=5.0))
        for _ in range(machines):
            add(server)
        yield CherryWorld(server, clock, minimum, stack)
