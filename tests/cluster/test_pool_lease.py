"""Processes that order machines of one pool at the same moment: the minimum holds, by a Lease of the cluster."""

import json
from collections.abc import Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from pathlib import Path
from threading import Barrier
from typing import Any, Final

import httpx2
import msgspec
import pytest

from devcluster.cloudpool.server import CloudpoolServer
from devcluster.cloudpool.settings import CloudpoolSettings
from devcluster.plane import ControlPlane
from devcluster.standin.faults import Fault
from rescheduler.clock import SystemClock
from rescheduler.net.config_files import Duration
from rescheduler.providers.base import DeleteOutcome, NodeRef, Refusal, Refused
from tests.acceptance.program import LoggedProgram
from tests.cluster.bad_days import FLAGS
from tests.cluster.daemon import LEASES, Daemon
from tests.cluster.machines import machines
from tests.cluster.observer import Observer
from tests.providers.cloudpools import document, node_of
from tests.providers.externalgrpcs import connected
from tests.providers.served import Service, services

CLOCK: Final = SystemClock()
POOL: Final = "workers"
LEASE: Final = f"{LEASES}/spot-rescheduler-pool"


@pytest.fixture
def pool(tmp_path: Path) -> Iterator[CloudpoolServer]:
    """A pool of two machines whose desired size is read slowly, so that both processes read it before either orders."""
    settings = CloudpoolSettings(
        pool=document(),
        desired_size=2,
        refresh_interval=Duration(0.1),
        pool_update=Duration(0.1),
        second_termination="ok",
    )
    with CloudpoolServer(settings, tmp_path, CLOCK).running() as server:
        yield server


def slow_sizes(server: CloudpoolServer) -> None:
    server.faulty_app.inject(Fault(method="GET", path="/pool/size", kind="late", delay=1.0, times=100))


@contextmanager
def two_services(
    server: CloudpoolServer, folder: Path, *flags: str, environ: Mapping[str, str] | None = None
) -> Iterator[list[Any]]:
    """Start two services for the pool, with a minimum of one, and connect to both."""
    section = {"id": POOL, "backend": {"url": server.url}, "minSize": 1, "settleTime": "2s"}
    paces = {"pollInterval": "200ms", "refreshInterval": "100ms", "cacheAge": "1s"}
    (folder / "cloud.json").write_text(msgspec.json.encode({"pools": [section | paces]}).decode())
    named = ("--cloud-provider=cloudpool", "--cloud-config=cloud.json", "-v=2", *flags)
    first, second = Service(folder, *named, environ=environ), Service(folder, *named, environ=environ)
    with services(first, second), ExitStack() as clients:
        yield [clients.enter_context(connected(each.address, CLOCK)) for each in (first, second)]


def in_cluster(cluster: ControlPlane) -> tuple[str, ...]:
    return f"--kubeconfig={cluster.kubeconfig}", "--namespace=default"


def at_once(providers: list[Any], server: CloudpoolServer, seconds: float = 30.0) -> list[DeleteOutcome]:
    """Delete one machine through each of *providers* at the same moment."""
    nodes: list[NodeRef] = [node_of(machine) for machine in server.pool.machines()]
    barrier = Barrier(len(providers))

    def delete(provider: Any, node: NodeRef) -> DeleteOutcome:
        barrier.wait()
        outcomes: Mapping[str, DeleteOutcome] = provider.delete_nodes(
            POOL, [node], deadline=CLOCK.monotonic() + seconds
        )
        return outcomes[node.name]

    with ThreadPoolExecutor(len(providers)) as threads:
        return list(threads.map(delete, providers, nodes))


def left(server: CloudpoolServer) -> int:
    return sum(machine.allocated(CLOCK.now()) for machine in server.pool.machines())


def test_two_services_keep_the_minimum(cluster: ControlPlane, pool: CloudpoolServer, tmp_path: Path) -> None:
    with two_services(pool, tmp_path, *in_cluster(cluster)) as providers:
        slow_sizes(pool)
        outcomes = at_once(providers, pool)
        assert left(pool) == 1
    refused = [outcome for outcome in outcomes if isinstance(outcome, Refused)]
    assert [outcome.reason for outcome in refused] == [Refusal.BELOW_MINIMUM]
    assert not cluster.api.get(LEASE)["spec"].get("holderIdentity")


def test_two_services_keep_the_minimum_with_the_default_kubeconfig(
    cluster: ControlPlane, pool: CloudpoolServer, tmp_path: Path
) -> None:
    """As --help of --kubeconfig says."""
    environ = {"KUBECONFIG": str(cluster.kubeconfig)}
    with two_services(pool, tmp_path, "--namespace=default", environ=environ) as providers:
        slow_sizes(pool)
        at_once(providers, pool)
        assert left(pool) == 1
    assert not cluster.api.get(LEASE)["spec"].get("holderIdentity")


#: Kubeconfigs that nobody named: none, one of a cluster that is gone, one that is not readable.
NO_CLUSTER: Final = {
    "none": "",
    "gone": json.dumps(
        {
            "apiVersion": "v1",
            "kind": "Config",
            "clusters": [{"name": "x", "cluster": {"server": "http://127.0.0.1:9"}}],
            "contexts": [{"name": "x", "context": {"cluster": "x"}}],
            "current-context": "x",
        }
    ),
    "unreadable": "{",
}


@pytest.mark.parametrize("home", NO_CLUSTER)
def test_without_a_cluster_a_service_says_once_that_nothing_is_coordinated(
    home: str, pool: CloudpoolServer, tmp_path: Path
) -> None:
    if NO_CLUSTER[home]:
        (tmp_path / ".kube").mkdir()
        (tmp_path / ".kube" / "config").write_text(NO_CLUSTER[home])
    section = {"id": POOL, "backend": {"url": pool.url}, "minSize": 1, "settleTime": "2s", "cacheAge": "0s"}
    (tmp_path / "cloud.json").write_text(msgspec.json.encode({"pools": [section]}).decode())
    service = Service(tmp_path, "--cloud-provider=cloudpool", "--cloud-config=cloud.json", "-v=2")
    with service, connected(service.address, CLOCK) as provider:
        at_once([provider], pool)
        assert left(pool) == 1
        assert len([line for line in service.lines if "nothing coordinates this process" in line]) == 1


def test_a_cluster_that_was_named_must_answer(pool: CloudpoolServer, tmp_path: Path) -> None:
    (tmp_path / "gone").write_text(NO_CLUSTER["gone"])
    section = {"id": POOL, "backend": {"url": pool.url}, "minSize": 1, "settleTime": "2s"}
    (tmp_path / "cloud.json").write_text(msgspec.json.encode({"pools": [section]}).decode())
    named = ("--cloud-provider=cloudpool", "--cloud-config=cloud.json", "-v=2", f"--kubeconfig={tmp_path}/gone")
    with Service(tmp_path, *named) as service, connected(service.address, CLOCK) as provider:
        at_once([provider], pool, seconds=8.0)
        assert left(pool) == 2
        assert [line for line in service.lines if "no machine is ordered until the Lease can be held" in line]


def test_without_a_cluster_two_services_can_go_below_the_minimum(pool: CloudpoolServer, tmp_path: Path) -> None:
    """The documented limit, which shows that the other tests are sharp."""
    with two_services(pool, tmp_path) as providers:
        slow_sizes(pool)
        at_once(providers, pool)
        assert left(pool) == 0


def test_the_daemon_and_a_service_keep_the_minimum(cluster: ControlPlane, observer: Observer, tmp_path: Path) -> None:
    """The service is asked for the other machine while the order of the daemon is on its way to the pool."""
    with machines(observer, tmp_path, 2, 1) as pool:
        config = tmp_path / "cloud.json"
        sections = msgspec.json.decode(config.read_bytes())
        sections["pools"][0] |= {"minSize": 1}
        config.write_bytes(msgspec.json.encode(sections))
        pool.fill(web=2, api=3)
        observer.running(5)
        pool.faulty_app.inject(Fault(path="/pool/terminate", status=200, body="{}", acted=True, delay=1.5))
        observer.open_all()
        with (
            Service(
                tmp_path, "--cloud-provider=cloudpool", "--cloud-config=cloud.json", *in_cluster(cluster)
            ) as service,
            connected(service.address, CLOCK) as provider,
            Daemon(cluster, *FLAGS, *pool.flags),
        ):
            observer.eventually(pool.orders, "the order of the daemon")
            [other] = [machine for machine in pool.server.pool.machines() if machine.name == "od-2"]
            outcome = provider.delete_nodes("od", [node_of(other)], deadline=CLOCK.monotonic() + 90)["od-2"]
            assert isinstance(outcome, Refused), outcome
            assert outcome.reason is Refusal.BELOW_MINIMUM
            observer.stays(pool.ordered, ["od-1"])


def test_the_proxy_and_a_service_keep_the_minimum(cluster: ControlPlane, observer: Observer, tmp_path: Path) -> None:
    """The service is asked for the other machine when the proxy is about to order its own."""
    with machines(observer, tmp_path, 2, 1) as pool:
        observer.open_all()
        (first, other) = sorted(pool.server.pool.machines(), key=lambda machine: machine.name)
        paces = {"pollInterval": "200ms", "settleTime": "2s"}
        document = {
            "apiServer": {"auth": {"kubeConfigPath": str(cluster.kubeconfig)}},
            "backend": {"url": pool.server.url, **paces},
            "minSize": 1,
        }
        (tmp_path / "proxy.json").write_text(msgspec.json.encode(document).decode())
        section = {"id": "od", "backend": {"url": pool.server.url}, "minSize": 1, **paces}
        (tmp_path / "cloud.json").write_text(msgspec.json.encode({"pools": [section]}).decode())
        own = in_cluster(cluster)
        options = ("--host=127.0.0.1", "--port=0", "--listen-address=127.0.0.1:0", "--namespace=default", "-v=3")
        with (
            Service(tmp_path, "--cloud-provider=cloudpool", "--cloud-config=cloud.json", *own) as service,
            connected(service.address, CLOCK) as provider,
            LoggedProgram(tmp_path / "proxy.log", "proxy", f"--config-file={tmp_path}/proxy.json", *options) as proxy,
            ThreadPoolExecutor(1) as client,
        ):
            observer.eventually(lambda: proxy.logged("forwarding port "), "the proxy to listen")
            port = proxy.logged("forwarding port ")[0]["message"].partition("forwarding port ")[2].split()[0]
            body = {"machineId": first.id(CLOCK.now()), "decrementDesiredSize": True}
            slow_sizes(pool.server)
            url = f"http://127.0.0.1:{port}/pool/terminate"
            answer = client.submit(httpx2.post, url, json=body, timeout=120, trust_env=False)
            observer.eventually(lambda: "removing" in observer.marks().get("od-1", ""), "the intent of the proxy")
            outcome = provider.delete_nodes("od", [node_of(other)], deadline=CLOCK.monotonic() + 60)["od-2"]
            answered = answer.result().status_code
            assert left(pool.server) == 1, (outcome, answered)
            assert isinstance(outcome, Refused) is (answered == httpx2.codes.OK), (outcome, answered)
