"""Two processes for one group of machines: deletions of one count for the other one's minimum."""

import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager
from typing import Any, Final

import pytest

from devcluster.standin.faults import Fault
from rescheduler.clock import SystemClock
from rescheduler.providers.base import Refusal, Refused
from tests.providers.cherry import PROJECT, cherry_world
from tests.providers.cloudpools import cloudpool_world
from tests.providers.stackpoints import ROOT, first_generation, second_generation
from tests.providers.worlds import delete, went

World = Callable[[int, int], AbstractContextManager[Any]]

#: Worlds, each with the path of its list of machines.
SYSTEMS: Final[dict[str, tuple[World, str]]] = {
    "cherryservers": (cherry_world, f"/v1/projects/{PROJECT}/servers"),
    "stackpoint, first generation": (first_generation, f"{ROOT}/nodes"),
    "stackpoint, second generation": (second_generation, f"{ROOT}/nodes"),
    "cloudpool": (cloudpool_world, "/pool"),
}


@pytest.mark.parametrize(("make", "path"), SYSTEMS.values(), ids=SYSTEMS)
def test_a_deletion_by_another_process_counts_for_the_minimum(make: World, path: str) -> None:
    with make(3, 2) as world:
        mine, others, _ = world.nodes()
        slow = world.provider
        world.restart()
        world.server.faulty_app.inject(Fault(method="GET", path=path, kind="late", delay=4.0))
        before = len(world.server.faulty_app.requests)
        deadline = world.clock.monotonic() + 600
        with ThreadPoolExecutor(1) as thread:
            call = thread.submit(slow.delete_nodes, world.group, [mine], deadline=deadline)
            while len(world.server.faulty_app.requests) == before:
                SystemClock().wait(0.01, threading.Event())
            [gone] = delete(world, others)
            assert not call.done(), "the other process was too slow for this test"
            [outcome] = call.result().values()
        assert went(gone)
        assert isinstance(outcome, Refused)
        assert outcome.reason is Refusal.BELOW_MINIMUM
        assert ([world.runs(mine), world.runs(others)], world.target()) == ([True, False], 2)
