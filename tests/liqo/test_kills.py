"""The node manager under failures and kills at any moment, drawn at random: nothing is lost, doubled or overdrawn."""

import itertools
import secrets
from collections.abc import Callable, Mapping, Sequence
from contextlib import closing
from typing import Any
from unittest.mock import patch

from hypothesis import given, settings
from hypothesis import strategies as st
from prometheus_client import CollectorRegistry

from rescheduler.backends.base import Accepted, Deleted, Refusal, Refused
from rescheduler.clock import Clock
from rescheduler.errors import ReschedulerError, Retryable
from rescheduler.liqo.database import MEMORY
from rescheduler.liqo.nodemanager.amounts import Amounts, plus
from rescheduler.liqo.nodemanager.machines import Record
from rescheduler.liqo.nodemanager.metrics import Metrics
from rescheduler.liqo.nodemanager.resources import Node, ResourceSlice, Seen
from rescheduler.liqo.nodemanager.service import Ports, Service
from rescheduler.liqo.nodemanager.store import Store
from rescheduler.liqo.nodemanager.upkeep import Patience, Upkeep
from tests.backends.clocks import StepClock
from tests.liqo.builders import cluster, group
from tests.liqo.liqos import MemoryCatalog, MemoryLiqo, Pace

MINIMUM, MAXIMUM = 1, 6
CLUSTERS = {"rome": 3, "milan": 2}  #: and how many nodes they have room for
GROUP = "STANDARD"


class Killed(BaseException):
    """SIGKILL: nothing of the process is left but what is on disk and in the cluster."""


class Fate:
    """What befalls the next calls to the world; when it is used up, all is well."""

    def __init__(self) -> None:
        self.coming: list[str] = []

    def around(self, deed: Callable[[], Any]) -> Any:
        fate = self.coming.pop(0) if self.coming else "well"
        if fate == "killed before":
            raise Killed
        if fate == "fails":
            raise Retryable("no answer, and nothing done")
        done = deed()
        if fate == "killed after":
            raise Killed
        if fate == "lost":
            raise Retryable("no answer, but it was done")
        return done


class PerilousLiqo(MemoryLiqo):
    def __init__(self, fate: Fate, clock: Clock, pace: Pace, peers: Sequence[str]) -> None:
        super().__init__(clock, pace, peers)
        self._fate = fate

    def look(self) -> Seen:
        found: Seen = self._fate.around(super().look)
        return found

    def make_slice(self, namespace: str, manifest: Mapping[str, Any]) -> None:
        deed = super().make_slice
        self._fate.around(lambda: deed(namespace, manifest))

    def delete_slice(self, piece: ResourceSlice) -> None:
        deed = super().delete_slice
        self._fate.around(lambda: deed(piece))

    def mark_node(self, node: Node, provider_id: str, labels: Mapping[str, str]) -> None:
        deed = super().mark_node
        self._fate.around(lambda: deed(node, provider_id, labels))


class PerilousStore(Store):
    def __init__(self, fate: Fate) -> None:
        super().__init__(MEMORY)
        self._fate = fate

    def save(self, *records: Record) -> None:
        deed = super().save
        self._fate.around(lambda: deed(*records))


class Peril:
    """A node manager, and the world that it is killed in. The store is the disk: it outlives the process."""

    def __init__(self) -> None:
        self.fate, self.clock = Fate(), StepClock()
        pace = Pace(accepting=3, starting=3, draining=5)
        self.liqo = PerilousLiqo(self.fate, self.clock, pace, list(CLUSTERS))
        self.store = PerilousStore(self.fate)
        catalog = MemoryCatalog([cluster(name, nodes) for name, nodes in CLUSTERS.items()])
        self.ports = Ports(self.liqo, catalog, self.store, self.clock)
        self.start()

    def start(self) -> None:
        groups = (group(GROUP, min_size=MINIMUM, max_size=MAXIMUM),)
        self.service = Service(self.ports, groups, peers=False)
        self.upkeep = Upkeep(self.ports, self.service, Patience(), Metrics(CollectorRegistry()))

    def size(self) -> int:
        return self.service.view().size(GROUP)

    def sound(self) -> int:
        """How many have not failed; those that have are given back soon and keep no minimum."""
        return sum(one.counts and one.error is None for one in self.service.view().members(GROUP))

    def does(self, fates: Sequence[str], deed: Callable[[], object]) -> object:
        """What came of *deed*; a process that is killed is started again."""
        self.fate.coming = list(fates)
        try:
            return deed()
        except ReschedulerError as error:
            return error
        except Killed as killed:
            self.start()
            return killed
        finally:
            self.fate.coming = []

    def check(self) -> None:
        found = self.service.view()
        assert found.size(GROUP) <= MAXIMUM
        for one in self.ports.catalog.clusters():
            held: Amounts = {}
            for machine in found.of_cluster(one.name):
                held = plus(held, machine.held)
            assert all(amount <= one.shared[name] for name, amount in held.items()), one.name

    def close(self) -> None:
        self.store.close()

    def settle(self) -> None:
        """All is well for long enough."""
        self.liqo.denied.clear()
        for _ in range(40):
            self.clock.advance(60)
            self.upkeep.step()


def increase(world: Peril, fates: Sequence[str], number: int) -> None:
    before, count = world.size(), 1 + number % 3
    done = world.does(fates, lambda: world.service.increase(GROUP, count))
    after = world.size()
    if isinstance(done, list):
        assert (len(done), after) == (count, before + count)
    elif isinstance(done, Killed) or fates:
        assert after in {before, before + count}
    else:
        assert after == before


def remove(world: Peril, fates: Sequence[str], number: int) -> None:
    machines = list(world.service.view().machines.values())
    if not machines:
        return
    machine = machines[number % len(machines)]
    size, sound = world.size(), world.sound()
    done = world.does(fates, lambda: world.service.remove(GROUP, machine.name))
    after = world.size()
    match done:
        case Accepted() | Deleted():
            assert after == size - machine.counts
        case Refused(reason):
            assert (reason, after) == (Refusal.BELOW_MINIMUM, size)
            assert sound <= MINIMUM
            assert machine.error is None
        case _:
            assert size - 1 <= after <= size
    assert world.sound() >= min(sound, MINIMUM)


def step(world: Peril, fates: Sequence[str], number: int) -> None:
    world.clock.advance(number % 5)
    world.does(fates, lambda: world.upkeep.step())  # noqa: PLW0108 -- the upkeep of then


def deny(world: Peril, _: Sequence[str], number: int) -> None:
    name = list(CLUSTERS)[number % 2]
    if world.liqo.denied.pop(name, None) is None:
        world.liqo.denied[name] = "Resources"


FATES = st.lists(st.sampled_from(["well", "well", "fails", "lost", "killed before", "killed after"]), max_size=5)
DEEDS = st.tuples(st.sampled_from([increase, remove, step, step, deny]), FATES, st.integers(0, 30))


@settings(deadline=None, max_examples=300)
@given(deeds=st.lists(DEEDS, max_size=25))
def test_whatever_happens(deeds: list[tuple[Callable[..., None], list[str], int]]) -> None:
    # Names by number: an example that fails does so again when it is run again.
    numbers = itertools.count()
    with patch.object(secrets, "token_hex", lambda _: f"{next(numbers):08x}"), closing(Peril()) as world:
        for deed, fates, number in deeds:
            deed(world, fates, number)
            world.check()
        world.settle()
        found = world.service.view().members(GROUP)
        assert [one.state.value for one in found] == ["running"] * len(found)
        assert sorted(one.name for one in found) == world.liqo.remaining()
        assert {one.name for one in world.store.records()} == {one.name for one in found}
        assert all(one.provider_id == f"liqo://{one.name}" for one in found)
