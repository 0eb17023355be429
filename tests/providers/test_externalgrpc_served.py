"""``provider serve`` with a slow cloudpool: callers get responses in time, and no request is executed twice."""

import json
import signal
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import grpc
import pytest
from grpc_health.v1 import health_pb2
from tenacity import Retrying, retry_if_exception_type, stop_after_attempt

from devcluster.cloudpool.server import CloudpoolServer
from devcluster.standin.faults import Fault
from rescheduler.clock import SystemClock
from rescheduler.providers.externalgrpc import codec, wire
from tests.cluster.waiting import eventually
from tests.providers.cloudpools import GROUP, node_of, settings
from tests.providers.served import Service
from tests.providers.shelf import Caller

CLOCK = SystemClock()


class ServedWorld:
    def __init__(self, server: CloudpoolServer, service: Service) -> None:
        self.server, self.service = server, service
        self.call = Caller(service.address)
        self.request = wire.NodeGroupNodesRequest(id=GROUP)

    def instances(self) -> set[str]:
        """Return the instances that are not ending."""
        instances = self.call("NodeGroupNodes", self.request, timeout=60).instances
        return {
            instance.id
            for instance in instances
            if instance.status.instanceState != wire.InstanceStatus.instanceDeleting
        }

    def target(self) -> int:
        return int(self.call("NodeGroupTargetSize", wire.NodeGroupTargetSizeRequest(id=GROUP), timeout=60).targetSize)

    def asked(self, path: str) -> int:
        """Return the number of requests to the pool."""
        return [request.path for request in self.server.faulty_app.requests].count(path)


@pytest.fixture
def world(tmp_path: Path) -> Iterator[ServedWorld]:
    with CloudpoolServer(settings(refresh_interval=0.1), tmp_path, CLOCK).running() as server:
        pool = {
            "id": GROUP,
            "backend": {"url": server.url, "timeout": "60s"},
            "maxSize": 5,
            "refreshInterval": "0s",
            "cacheAge": "0s",
            "pollInterval": "200ms",
        }
        (tmp_path / "pool.json").write_text(json.dumps({"pools": [pool]}))
        with Service(tmp_path, "--cloud-provider=cloudpool", "--cloud-config=pool.json") as service:
            world = ServedWorld(server, service)
            with world.call.channel:
                yield world


def test_a_slow_read_fails_before_the_callers_deadline(world: ServedWorld) -> None:
    """The message shows that the service responds before the caller's own timer expires."""
    world.server.faulty_app.inject(Fault(method="GET", path="/pool", kind="hang", times=50))
    code, message = world.call.failure_in_time("NodeGroupNodes", world.request, 5, "on-demand")
    assert code == "DEADLINE_EXCEEDED"
    assert "on-demand" in message
    world.server.faulty_app.forget()
    assert len(world.instances()) == 3


def test_a_slow_order_continues_and_is_not_repeated(world: ServedWorld) -> None:
    """The first response is OK although the pool has not responded, because the machine may terminate at any moment."""
    victim = world.server.pool.machines()[0]
    world.server.faulty_app.inject(Fault(path="/pool/terminate", kind="hang", acted=True))
    request = wire.NodeGroupDeleteNodesRequest(id=GROUP, nodes=[codec.node_message(node_of(victim))])
    # A busy machine may delay the response beyond the timeout, so try up to five times.
    asked = Retrying(retry=retry_if_exception_type(grpc.RpcError), stop=stop_after_attempt(5), reraise=True)
    asked(world.call, "NodeGroupDeleteNodes", request, timeout=15)
    eventually(lambda: victim.provider_id not in world.instances())
    world.call("NodeGroupDeleteNodes", request, timeout=60)
    assert (world.target(), world.asked("/pool/terminate")) == (2, 1)


def test_sigterm_completes_running_calls_and_refuses_new_ones(world: ServedWorld) -> None:
    looks = world.asked("/pool")
    slow = Fault(method="GET", path="/pool", status=200, body=json.dumps(world.server.pool.pool()), delay=3)
    world.server.faulty_app.inject(slow)
    with ThreadPoolExecutor(1) as threads:
        under_way = threads.submit(world.instances)
        eventually(lambda: world.asked("/pool") > looks)
        assert not under_way.done()
        world.service.process.send_signal(signal.SIGTERM)
        eventually(lambda: any("SIGTERM" in line for line in world.service.lines))
        late = Caller(world.service.address)
        with late.channel:
            eventually(lambda: refused(late))
        assert len(under_way.result(timeout=60)) == 3
    assert world.service.process.wait(60) == 0


def refused(caller: Caller) -> bool:
    """Return whether calls are refused because the service is stopping."""
    try:
        response = caller.raw("Check", b"", timeout=60, service="grpc.health.v1.Health")
    except grpc.RpcError as error:
        return bool(error.code() is grpc.StatusCode.UNAVAILABLE)
    return bool(health_pb2.HealthCheckResponse.FromString(response).status != health_pb2.HealthCheckResponse.SERVING)
