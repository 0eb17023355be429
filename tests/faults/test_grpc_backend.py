"""The external gRPC backend with failing connections: it deletes nothing twice, and recovers."""

import contextlib
from collections.abc import Iterator
from typing import Final

import pytest

from devcluster.cloudpool.server import CloudpoolServer
from devcluster.faults.tcp import TcpFault, TcpFaultProxy
from rescheduler.clock import SystemClock
from rescheduler.errors import ReschedulerError
from rescheduler.net.config_files import Duration
from rescheduler.providers.base import AlreadyGone, Deleted, DeleteOutcome, NodeRef
from rescheduler.providers.externalgrpc.provider import ExternalGrpcProvider
from tests.providers.cloudpools import GROUP, node_of, providing, serving, settings
from tests.providers.externalgrpcs import connected, offered

CLOCK = SystemClock()
MACHINES = 3
#: Limits of a call and of an attempt, long enough for slow machines. A call that stalls takes the whole time.
CALL_SECONDS, TRY_SECONDS = 4, 12.0
#: A call whose bytes are slow succeeds at once, in the time that the machine needs.
SLOW_SECONDS: Final = 240
PATIENCE_SECONDS: Final = 300.0

#: Faults of one connection. HTTP/2 settings, some 50 bytes, come first: `after` lets them pass.
FAULTS = {
    "reset at once": TcpFault("reset"),
    "reset later": TcpFault("reset", after=100),
    "stall at once": TcpFault("stall"),
    "stall later": TcpFault("stall", after=100),
    "slow bytes": TcpFault("slow", seconds=0.002),
    "half of the first answer": TcpFault("half"),
    "half of a later answer": TcpFault("half", after=100),
}


@pytest.fixture
def server() -> Iterator[CloudpoolServer]:
    with serving(
        settings(desired_size=MACHINES, second_termination="error", refresh_interval=Duration(0.1)), CLOCK
    ) as pool_server:
        yield pool_server


@contextlib.contextmanager
def before_service(server: CloudpoolServer) -> Iterator[TcpFaultProxy]:
    """A proxy in front of `provider serve` for the pool of *server*."""
    with (
        providing(server, CLOCK, pollInterval="100ms", cacheAge="1s", settleTime="1s") as inner,
        offered(inner, CLOCK) as address,
        TcpFaultProxy(int(address.rpartition(":")[2])) as proxy,
    ):
        yield proxy


@pytest.mark.parametrize("fault", FAULTS)
def test_a_machine_is_deleted_once_despite_failing_connections(server: CloudpoolServer, fault: str) -> None:
    is_slow = FAULTS[fault].kind == "slow"
    timeout = Duration(SLOW_SECONDS if is_slow else CALL_SECONDS)
    with before_service(server) as proxy:
        proxy.inject(*[FAULTS[fault]] * 2)
        with connected(f"127.0.0.1:{proxy.port}", CLOCK, grpc_timeout=timeout, poll_interval=Duration(0.1)) as provider:
            node = node_of(server.pool.machines()[0])
            seconds = SLOW_SECONDS if is_slow else TRY_SECONDS
            outcomes = list(deletions(provider, node, proxy, seconds))
        assert isinstance(outcomes[-1], Deleted | AlreadyGone), outcomes
        assert (proxy.connections > 1) is not is_slow
        now = CLOCK.now()
        running = sorted(machine.number for machine in server.pool.machines() if machine.allocated(now))
        assert running == [machine.number for machine in server.pool.machines()[1:MACHINES]]
        assert server.pool.size()["desiredSize"] == MACHINES - 1


def deletions(
    provider: ExternalGrpcProvider, node: NodeRef, proxy: TcpFaultProxy, seconds: float
) -> Iterator[DeleteOutcome]:
    """Yield the outcomes of deletion attempts until the machine is gone; cut connections after every other attempt."""
    end = CLOCK.monotonic() + PATIENCE_SECONDS
    while CLOCK.monotonic() < end:
        with contextlib.suppress(ReschedulerError):
            outcome = provider.delete_nodes(GROUP, [node], deadline=CLOCK.monotonic() + seconds)[node.name]
            yield outcome
            if isinstance(outcome, Deleted | AlreadyGone):
                return
        proxy.cut()
