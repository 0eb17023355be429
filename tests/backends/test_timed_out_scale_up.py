"""A scale-up of two that times out when one machine runs: Cluster Autoscaler takes the whole increase back.

Newer ones (kubernetes/autoscaler#9132) call ``NodeGroupDecreaseTargetSize`` with all that they had asked for, whatever
has registered, and warn where that fails.
"""

import contextlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Final

import pytest

from rescheduler.backends.base import CloudProvider
from rescheduler.backends.externalgrpc import wire
from tests.backends import cherry, cloudpools, pools, stackpoints
from tests.backends.clocks import StepClock
from tests.backends.externalgrpcs import offered
from tests.backends.shelf import Caller


@dataclass(frozen=True)
class Scene:
    """One machine runs since before; of two that were asked for one runs and one does not."""

    provider: CloudProvider
    clock: StepClock
    group: str
    target: Callable[[], int]
    running: Callable[[], int]


@contextlib.contextmanager
def cherryservers() -> Iterator[Scene]:
    clock = StepClock()
    with cherry.serving(clock, provisioning=1e6) as server, cherry.providing(server, clock) as provider:
        cherry.add(server, provisioning=0.0)
        cherry.add(server, provisioning=0.0)
        cherry.add(server)

        def servers(*, running: bool) -> int:
            return sum(one.runs(clock.now()) or not running for one in server.cloud.servers())

        yield Scene(provider, clock, cherry.POOL, lambda: servers(running=False), lambda: servers(running=True))


@contextlib.contextmanager
def stackpoint() -> Iterator[Scene]:
    clock = StepClock()
    specs = "0:10:t2.medium:od"
    with (
        stackpoints.serving(clock, building=1e6, asks=False) as server,
        stackpoints.providing(server, clock, specs) as provider,
    ):
        for building in (0.0, 0.0, 1e6):
            server.cloud.add(group_name=stackpoints.FIRST, building=building)

        def nodes(*, running: bool) -> int:
            alive = (one for one in server.cloud.nodes() if one.deleted_at is None)
            return sum(one.state(clock.now()) == "running" or not running for one in alive)

        yield Scene(provider, clock, stackpoints.FIRST, lambda: nodes(running=False), lambda: nodes(running=True))


@contextlib.contextmanager
def cloudpool() -> Iterator[Scene]:
    document = cloudpools.document(requestDelay="0s", launchDelay="0s", bootDelay="0s")
    with pools.pool(cloudpools.settings(pool=document, desired_size=2)) as world:
        world.server.pool.set_config({**world.server.pool.config(), "requestDelay": "1000h"})
        world.clock.advance(10)
        world.provider.increase_size(cloudpools.GROUP, 1, deadline=pools.LATER)
        yield Scene(
            world.provider,
            world.clock,
            cloudpools.GROUP,
            lambda: world.desired,
            lambda: world.states().count("RUNNING"),
        )


SCENES: Final = {"cherryservers": cherryservers, "stackpoint": stackpoint, "cloudpool": cloudpool}


@pytest.mark.parametrize("name", SCENES)
def test_what_does_not_run_is_given_up_and_the_caller_is_told_of_the_rest(name: str) -> None:
    with SCENES[name]() as scene:
        assert (scene.target(), scene.running()) == (3, 2)
        with offered(scene.provider, scene.clock) as address:
            request = wire.NodeGroupDecreaseTargetSizeRequest(id=scene.group, delta=-2)
            code, words = Caller(address).failure("NodeGroupDecreaseTargetSize", request)
        assert (scene.target(), scene.running()) == (2, 2)
        assert code == "FAILED_PRECONDITION"
        assert words.endswith(": 1 is below 2, which run or must be; 1 of 2 are given up")
