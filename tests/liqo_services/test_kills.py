"""The node manager under random failures and kills: no machine is lost or duplicated, and no cluster overcommitted."""

import itertools
import secrets
from collections.abc import Callable, Mapping, Sequence
from contextlib import closing
from typing import Any
from unittest.mock import patch

from hypothesis import given, settings
from hypothesis import strategies as st
from prometheus_client import CollectorRegistry

from rescheduler.clock import Clock
from rescheduler.errors import ReschedulerError, Retryable
from rescheduler.liqo.database import MEMORY
from rescheduler.liqo.node_manager.due_actions import MachineTimeouts
from rescheduler.liqo.node_manager.groups import ExactAmounts, plus
from rescheduler.liqo.node_manager.machines import MachineRecord
from rescheduler.liqo.node_manager.resources import LiqoNode, LiqoObjects, ResourceSlice
from rescheduler.liqo.node_manager.service import NodeManagerService, Ports
from rescheduler.liqo.node_manager.store import NodeManagerStore
from rescheduler.liqo.node_manager.upkeep import NodeManagerMetrics, Upkeep
from rescheduler.providers.base import Accepted, Deleted, Refusal, Refused
from tests.liqo_services.builders import cluster, group
from tests.liqo_services.liqos import LiqoPace, MemoryCatalog, MemoryLiqo
from tests.providers.clocks import StepClock

MINIMUM, MAXIMUM = 1, 6
CLUSTERS = {"rome": 3, "milan": 2}  #: cluster → capacity in nodes
GROUP = "STANDARD"


class Killed(BaseException):
    """SIGKILL: only the state on disk and in the cluster remains."""


class ScriptedResults:
    """Results of the next external calls; later calls succeed."""

    def __init__(self) -> None:
        self.coming: list[str] = []

    def around(self, action: Callable[[], Any]) -> Any:
        outcome = self.coming.pop(0) if self.coming else "well"
        if outcome == "killed before":
            raise Killed
        if outcome == "fails":
            raise Retryable("no answer, not performed")
        done = action()
        if outcome == "killed after":
            raise Killed
        if outcome == "lost":
            raise Retryable("no answer, performed")
        return done


class FaultyLiqo(MemoryLiqo):
    def __init__(self, results: ScriptedResults, clock: Clock, pace: LiqoPace, peers: Sequence[str]) -> None:
        super().__init__(clock, pace, peers)
        self._results = results

    def read(self) -> LiqoObjects:
        objects: LiqoObjects = self._results.around(super().read)
        return objects

    def make_slice(self, namespace: str, manifest: Mapping[str, Any]) -> None:
        action = super().make_slice
        self._results.around(lambda: action(namespace, manifest))

    def delete_slice(self, piece: ResourceSlice) -> None:
        action = super().delete_slice
        self._results.around(lambda: action(piece))

    def mark_node(self, node: LiqoNode, provider_id: str, labels: Mapping[str, str]) -> None:
        action = super().mark_node
        self._results.around(lambda: action(node, provider_id, labels))


class FaultyStore(NodeManagerStore):
    def __init__(self, results: ScriptedResults) -> None:
        super().__init__(MEMORY)
        self._results = results

    def save(self, *records: MachineRecord) -> None:
        action = super().save
        self._results.around(lambda: action(*records))


class KilledNodeManager:
    """A node manager that is killed, and its environment. The store is the disk and survives the process."""

    def __init__(self) -> None:
        self.results, self.clock = ScriptedResults(), StepClock()
        pace = LiqoPace(accepting=3, starting=3, draining=5)
        self.liqo = FaultyLiqo(self.results, self.clock, pace, list(CLUSTERS))
        self.store = FaultyStore(self.results)
        catalog = MemoryCatalog([cluster(name, nodes) for name, nodes in CLUSTERS.items()])
        self.ports = Ports(self.liqo, catalog, self.store, self.clock)
        self.start()

    def start(self) -> None:
        groups = (group(GROUP, min_size=MINIMUM, max_size=MAXIMUM),)
        self.service = NodeManagerService(self.ports, groups, peers=False)
        self.upkeep = Upkeep(self.ports, self.service, MachineTimeouts(), NodeManagerMetrics(CollectorRegistry()))

    def size(self) -> int:
        return self.service.view().size(GROUP)

    def healthy(self) -> int:
        """Return the number of machines that have not failed; failed ones are released soon and do not count."""
        return sum(machine.counts and machine.error is None for machine in self.service.view().members(GROUP))

    def perform(self, results: Sequence[str], action: Callable[[], object]) -> object:
        """Run *action* and return its result; restart a killed process."""
        self.results.coming = list(results)
        try:
            return action()
        except ReschedulerError as error:
            return error
        except Killed as killed:
            self.start()
            return killed
        finally:
            self.results.coming = []

    def check(self) -> None:
        view = self.service.view()
        assert view.size(GROUP) <= MAXIMUM
        for sharing in self.ports.catalog.clusters():
            held: ExactAmounts = {}
            for machine in view.of_cluster(sharing.name):
                held = plus(held, machine.held)
            assert all(amount <= sharing.shared[name] for name, amount in held.items()), sharing.name

    def close(self) -> None:
        self.store.close()

    def settle(self) -> None:
        """Let all calls succeed until the state is stable."""
        self.liqo.denied.clear()
        for _ in range(40):
            self.clock.advance(60)
            self.upkeep.step()


def increase(world: KilledNodeManager, results: Sequence[str], number: int) -> None:
    before, count = world.size(), 1 + number % 3
    done = world.perform(results, lambda: world.service.increase(GROUP, count))
    after = world.size()
    if isinstance(done, list):
        assert (len(done), after) == (count, before + count)
    elif isinstance(done, Killed) or results:
        assert after in {before, before + count}
    else:
        assert after == before


def remove(world: KilledNodeManager, results: Sequence[str], number: int) -> None:
    machines = list(world.service.view().machines.values())
    if not machines:
        return
    machine = machines[number % len(machines)]
    size, healthy_size = world.size(), world.healthy()
    done = world.perform(results, lambda: world.service.remove(GROUP, machine.name))
    after = world.size()
    match done:
        case Accepted() | Deleted():
            assert after == size - machine.counts
        case Refused(reason):
            assert (reason, after) == (Refusal.BELOW_MINIMUM, size)
            assert healthy_size <= MINIMUM
            assert machine.error is None
        case _:
            assert size - 1 <= after <= size
    assert world.healthy() >= min(healthy_size, MINIMUM)


def step(world: KilledNodeManager, results: Sequence[str], number: int) -> None:
    world.clock.advance(number % 5)
    world.perform(results, lambda: world.upkeep.step())  # noqa: PLW0108 -- the upkeep of then


def deny(world: KilledNodeManager, _: Sequence[str], number: int) -> None:
    name = list(CLUSTERS)[number % 2]
    if world.liqo.denied.pop(name, None) is None:
        world.liqo.denied[name] = "Resources"


FATES = st.lists(st.sampled_from(["well", "well", "fails", "lost", "killed before", "killed after"]), max_size=5)
ACTIONS = st.tuples(st.sampled_from([increase, remove, step, step, deny]), FATES, st.integers(0, 30))


@settings(deadline=None, max_examples=300)
@given(actions=st.lists(ACTIONS, max_size=25))
def test_random_failures_and_kills_lose_or_duplicate_no_machine(
    actions: list[tuple[Callable[..., None], list[str], int]],
) -> None:
    # Names are numbered, so that a failing example is reproducible.
    numbers = itertools.count()
    with patch.object(secrets, "token_hex", lambda _: f"{next(numbers):08x}"), closing(KilledNodeManager()) as world:
        for action, results, number in actions:
            action(world, results, number)
            world.check()
        world.settle()
        machines = world.service.view().members(GROUP)
        assert [machine.state.value for machine in machines] == ["running"] * len(machines)
        assert sorted(machine.name for machine in machines) == world.liqo.remaining()
        assert {machine.name for machine in world.store.records()} == {machine.name for machine in machines}
        assert all(machine.provider_id == f"liqo://{machine.name}" for machine in machines)
