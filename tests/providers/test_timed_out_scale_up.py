"""A scale-up by two that times out when one machine runs: Cluster Autoscaler reverts the whole increase.

Newer releases (kubernetes/autoscaler#9132) call ``NodeGroupDecreaseTargetSize`` with the full increase, regardless of
registered machines, and log a warning if it fails.
"""

import contextlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Final

import pytest

from rescheduler.providers.base import CloudProvider
from rescheduler.providers.externalgrpc import wire
from tests.providers import cherry, cloudpools, pools, stackpoints
from tests.providers.clocks import StepClock
from tests.providers.externalgrpcs import offered
from tests.providers.shelf import Caller


@dataclass(frozen=True)
class ScaleUpScene:
    """One old machine runs. Of two requested machines, one runs and one does not."""

    provider: CloudProvider
    clock: StepClock
    group: str
    target: Callable[[], int]
    running: Callable[[], int]


@contextlib.contextmanager
def cherryservers() -> Iterator[ScaleUpScene]:
    clock = StepClock()
    with cherry.serving(clock, provisioning=1e6) as server, cherry.providing(server, clock) as provider:
        cherry.add(server, provisioning=0.0)
        cherry.add(server, provisioning=0.0)
        cherry.add(server)

        def servers(*, running: bool) -> int:
            return sum(item.runs(clock.now()) or not running for item in server.cloud.servers())

        yield ScaleUpScene(provider, clock, cherry.POOL, lambda: servers(running=False), lambda: servers(running=True))


@contextlib.contextmanager
def stackpoint() -> Iterator[ScaleUpScene]:
    clock = StepClock()
    specs = "0:10:t2.medium:od"
    with (
        stackpoints.serving(clock, building=1e6, asks=False) as server,
        stackpoints.providing(server, clock, specs) as provider,
    ):
        for building in (0.0, 0.0, 1e6):
            server.cloud.add(group_name=stackpoints.FIRST, building=building)

        def nodes(*, running: bool) -> int:
            alive = (node for node in server.cloud.nodes() if node.deleted_at is None)
            return sum(node.state(clock.now()) == "running" or not running for node in alive)

        yield ScaleUpScene(
            provider, clock, stackpoints.FIRST, lambda: nodes(running=False), lambda: nodes(running=True)
        )


@contextlib.contextmanager
def cloudpool() -> Iterator[ScaleUpScene]:
    document = cloudpools.document(requestDelay="0s", launchDelay="0s", bootDelay="0s")
    with pools.pool(cloudpools.settings(pool=document, desired_size=2)) as world:
        world.server.pool.set_config({**world.server.pool.config(), "requestDelay": "1000h"})
        world.clock.advance(10)
        world.provider.increase_size(cloudpools.GROUP, 1, deadline=pools.LATER)
        yield ScaleUpScene(
            world.provider,
            world.clock,
            cloudpools.GROUP,
            lambda: world.desired,
            lambda: world.states().count("RUNNING"),
        )


SCENES: Final = {"cherryservers": cherryservers, "stackpoint": stackpoint, "cloudpool": cloudpool}


@pytest.mark.parametrize("name", SCENES)
def test_pending_machines_are_canceled_and_the_rest_is_reported(name: str) -> None:
    with SCENES[name]() as scene:
        assert (scene.target(), scene.running()) == (3, 2)
        with offered(scene.provider, scene.clock) as address:
            request = wire.NodeGroupDecreaseTargetSizeRequest(id=scene.group, delta=-2)
            code, message = Caller(address).failure("NodeGroupDecreaseTargetSize", request)
        assert (scene.target(), scene.running()) == (2, 2)
        assert code == "FAILED_PRECONDITION"
        assert message.endswith(": 1 is less than the 2 machines that are running or required; 1 of 2 were canceled")
