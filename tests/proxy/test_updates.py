"""The arithmetic of a pool's size, against the reference cloudpool with its cache and its mind of its own.

Nodes are a snapshot, and draining a node succeeds at once: what is held here is which machines go, and how the pool's
numbers end. `test_service` has the drains.
"""

import contextlib
import json
import threading
from collections.abc import Callable, Iterator, Sequence
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from deploy.local.cloudpool.faults import Fault
from deploy.local.cloudpool.server import Server
from deploy.local.cloudpool.settings import Settings
from rescheduler.backends.base import CloudProvider, Deleted, Failed, NodeRef
from rescheduler.backends.cloudpool.deletion import Ending
from rescheduler.backends.cloudpool.pool import Pool
from rescheduler.backends.cloudpool.provider import CloudpoolProvider
from rescheduler.backends.none import NoProvider
from rescheduler.drainer import Ordered
from rescheduler.draining.state import Drain, Failure, Limits, Phase, Why
from rescheduler.planning.outcome import Plan
from rescheduler.proxy.answers import UpdateFailed
from rescheduler.proxy.removal import Way, Ways
from rescheduler.proxy.updates import PoolUpdates
from rescheduler.proxy.victims import Choice, Victims
from tests.backends.clocks import StepClock
from tests.backends.cloudpools import node_of, section, serving, settings
from tests.planning.builders import NOW, Manifest, pod, snapshot
from tests.proxy.test_victims import node

LIMITS = Limits(eviction=1.0, grace=1.0)


def _finished(ordered: Ordered) -> Drain:
    """Drains end with the ends of their machines here."""
    raise AssertionError(ordered)


class World:
    """A pool, its Nodes, and what was done to both."""

    def __init__(self, server: Server, clock: StepClock, pool: Pool, objects: Sequence[Manifest]) -> None:
        self.server, self.clock, self.pool = server, clock, pool
        self._objects = list(objects)
        self._joined: list[NodeRef] = []
        self.tainted: list[str] = []
        self.drained: list[str] = []
        self.blind = ""
        self.owing = ""
        self.owing_after: dict[str, str] = {}  # what is owed once the drain of a node has failed
        self.going: list[str] = []
        self.broken: dict[str, Failure] = {}
        self.emptied: list[str] = []
        server.pool.pods_on = lambda node: [] if node in self.emptied else [f"default/of-{node}"]
        providers = [CloudpoolProvider([pool], ending) for ending in Ending]
        self.replacing = providers[1]
        shrink, replace, dispose = (Way(self._drains(one), _finished, one) for one in providers)
        ways = Ways(
            shrink=shrink,
            replace=replace,
            dispose=dispose,
            keep=Way(self._drains(None), _finished, NoProvider()),
        )
        self.stop = threading.Event()
        self.updates = PoolUpdates(pool, self, ways, 600.0, self.stop)

    def join(self) -> None:
        """All machines that run have a Node from here on."""
        machines = [one for one in self.server.pool.machines() if one.state(self.clock.now()) == "RUNNING"]
        self._joined = [node_of(one) for one in machines]
        self._objects += [node(one.name) for one in self._joined]
        for one in machines:
            self.server.pool.save(one, joined=True)

    # -- what updates need of the cluster

    def unfit(self) -> str:
        return self.blind

    def owed(self) -> str:
        return self.owing

    def refs(self) -> list[NodeRef]:
        return self._joined

    def leaving(self) -> frozenset[str]:
        return frozenset(self.going)

    def choose(self, nodes: Sequence[str], most: int) -> Choice:
        return Victims(snapshot(self._objects), NOW).choose(nodes, most)

    def taint(self, nodes: Sequence[str]) -> None:
        assert not self.drained or self.broken  # but for who takes the place of one that failed
        self.tainted += nodes

    def release(self, nodes: Sequence[str]) -> None:
        self.tainted = [one for one in self.tainted if one not in nodes]

    def _drains(self, provider: CloudProvider | None) -> Callable[[Plan], Drain | None]:
        def drain(plan: Plan) -> Drain | None:
            if plan.node in self.broken:
                self.owing = self.owing_after.get(plan.node, "")
                return Drain(plan.node, LIMITS, Phase.DONE, failure=self.broken[plan.node], released=True)
            ref = next(one for one in self._joined if one.name == plan.node)
            self.emptied.append(plan.node)
            if provider is not None:
                group = provider.groups(deadline=0.0)[0].id
                outcome = provider.delete_nodes(group, [ref], deadline=self.clock.monotonic() + 600)[ref.name]
                if isinstance(outcome, Failed):
                    failure = Failure(Why.PROVIDER, outcome.error)
                    return Drain(plan.node, LIMITS, Phase.DONE, failure=failure, released=True)
                assert isinstance(outcome, Deleted)
            self.drained.append(plan.node)
            return Drain(plan.node, LIMITS, Phase.DONE, released=True)

        return drain

    # -- what came of it

    def running(self) -> list[str]:
        now = self.clock.now()
        return [one.name for one in self.server.pool.machines() if one.state(now) == "RUNNING"]

    @property
    def desired(self) -> int:
        return int(self.server.pool.size()["desiredSize"])

    def undrained(self) -> list[str]:
        """Nodes whose machines were ended with pods on them."""
        return [ended.machine for ended in self.server.pool.terminations if ended.pods]

    def alive(self) -> list[str]:
        """The ids of the machines that cost money."""
        now = self.clock.now()
        return [one.id(now) for one in self.server.pool.machines() if one.allocated(now)]

    def statuses(self) -> list[Any]:
        """The membership statuses that the pool was told."""
        told = [one for one in self.server.face.requests if one.path == "/pool/membershipStatus"]
        return [json.loads(one.body)["membershipStatus"] for one in told]

    def sizes(self) -> list[int]:
        """The numbers that the pool was told."""
        sent = [one for one in self.server.face.requests if (one.method, one.path) == ("POST", "/pool/size")]
        return [json.loads(one.body)["desiredSize"] for one in sent]

    def wait(self, seconds: float) -> None:
        self.clock.advance(seconds)
        self.server.pool.advance()


@contextlib.contextmanager
def world(served: Settings | None = None, objects: Sequence[Manifest] = (), **keys: Any) -> Iterator[World]:
    clock = StepClock()
    with serving(served or settings(pool_update=3600), clock) as server:
        pool = Pool(section(server.url, **{"settleTime": "60s", "maxSize": 99} | keys), Path(), clock)
        made = World(server, clock, pool, objects)
        clock.advance(300)
        made.join()
        try:
            yield made
        finally:
            pool.close()


BLOCKED = [pod(f"a-{n}", f"pool-{n}", owner=None) for n in (1, 2, 3)]


def test_growing_and_standing_still_are_forwarded() -> None:
    for size in (3, 4):
        with world() as made:
            assert made.updates.set_size(size) == ""
            assert (made.sizes(), made.drained) == ([size], [])


def test_shrinking_takes_victims_and_ends_at_the_size_asked_for() -> None:
    with world() as made:
        assert made.updates.set_size(1) == ""
        assert (made.drained, made.running(), made.desired) == (["pool-1", "pool-2"], ["pool-3"], 1)
        assert made.sizes() == []  # the terminations lowered it


def test_the_kubernetes_side_is_not_asked_for_growing() -> None:
    with world() as made:
        made.blind = "the API server is away"
        assert made.updates.set_size(5) == ""
        with pytest.raises(UpdateFailed, match="the API server is away") as caught:
            made.updates.set_size(2)
        assert caught.value.status == 503


def test_machines_that_have_not_joined_go_before_any_node_does() -> None:
    """The defect of the original: three of five machines had joined, and a size of 4 was forwarded blindly."""
    with world(objects=BLOCKED) as made:
        made.server.pool.set_config({"name": "pool", "requestDelay": "1h"})
        made.server.pool.set_size(5)
        assert made.updates.set_size(4) == ""
        assert (made.drained, made.running(), made.desired) == ([], ["pool-1", "pool-2", "pool-3"], 4)
        assert made.updates.set_size(3) == ""
        assert (made.drained, len(made.running()), made.desired) == ([], 3, 3)


def test_a_pool_that_wants_more_than_it_has_stops_growing_first() -> None:
    """The defect of the original: one victim, and the pool grew on towards 9."""
    with world(settings(pool_update=3600)) as made:
        made.server.pool.cloud_down = True
        made.server.pool.set_size(10)
        made.server.pool.cloud_down = False
        assert made.updates.set_size(2) == ""
        made.wait(7200)
        assert (made.sizes()[0], made.drained, len(made.running()), made.desired) == (3, ["pool-1"], 2, 2)


def test_a_wish_between_what_there_is_and_what_is_wanted_is_forwarded() -> None:
    with world(settings(pool_update=3600)) as made:
        made.server.pool.cloud_down = True
        made.server.pool.set_size(10)
        made.server.pool.cloud_down = False
        assert made.updates.set_size(5) == ""
        assert (made.sizes(), made.drained, made.desired) == ([5], [], 5)


def test_a_view_from_before_the_call_is_not_believed() -> None:
    """A machine was attached since: by what the pool shows from its cache, it would choose a victim of its own."""
    with world() as made:
        machine = made.server.pool.machines()[2].id(made.clock.now())
        made.server.pool.detach(machine, decrement=True)
        made.clock.advance(30)
        assert len(made.server.pool.pool()["machines"]) == 2
        made.server.pool.attach(machine)
        assert made.updates.set_size(2) == ""
        assert (len(made.drained), len(made.running()), made.desired, made.sizes()) == (1, 2, 2, [])


def test_told_to_stop_a_younger_view_is_waited_for_no_longer() -> None:
    with world() as made:
        made.server.pool.pool()
        made.stop.set()
        before = made.clock.now()
        with pytest.raises(UpdateFailed, match="the pool's answers are older than") as caught:
            made.updates.set_size(2)
        assert (caught.value.status, made.clock.now() - before < timedelta(seconds=3)) == (504, True)
        assert (made.drained, made.desired) == ([], 3)


def test_masters_in_the_pool_count_and_stay() -> None:
    master = pod("kube-system/kube-apiserver-pool-1", "pool-1", owner="Node")
    with world(objects=[master]) as made:
        said = made.updates.set_size(1)
        assert (made.drained, made.running(), made.desired) == (["pool-2"], ["pool-1", "pool-3"], 2)
        assert said.startswith("1 of 2 machines were removed: ")
        assert "node pool-1: it belongs to the control plane" in said


def test_nobody_may_go() -> None:
    with world(objects=BLOCKED) as made:
        with pytest.raises(UpdateFailed) as caught:
            made.updates.set_size(1)
        assert caught.value.status == 500
        assert [f"node pool-{n}: pod default/a-{n}: " in caught.value.detail for n in (1, 2, 3)] == [True] * 3
        assert (made.running(), made.desired, made.sizes()) == (["pool-1", "pool-2", "pool-3"], 3, [])


def test_the_protected_and_the_inactive_are_no_victims() -> None:
    with world(settings(refresh_interval=0, pool_update=3600)) as made:
        ids = [one.id(made.clock.now()) for one in made.server.pool.machines()]
        made.server.pool.set_membership(ids[0], active=True, evictable=False)
        said = made.updates.set_size(1)
        assert said == ""
        assert (made.drained, made.running()) == (["pool-2", "pool-3"], ["pool-1"])


def test_a_victim_that_fails_is_released_and_the_others_go_on() -> None:
    with world() as made:
        made.broken["pool-1"] = Failure(Why.API_ERROR, "not now")
        said = made.updates.set_size(1)
        assert said == "1 of 2 machines were removed: node pool-1: api-error: not now"
        assert (made.drained, made.tainted, made.running(), made.desired) == (
            ["pool-2"],
            ["pool-2"],
            ["pool-1", "pool-3"],
            2,
        )


#: Failures after which another node is tried: it need not have what stood in the way of the first one.
OF_THE_NODE = {
    Why.PLAN_CHANGED,
    Why.PODS_RETURN,
    Why.EVICTION_REFUSED,
    Why.EVICTION_TIMEOUT,
    Why.EVICTION_FAILED,
    Why.TERMINATION_TIMEOUT,
    Why.TARGET_LOST,
}


@pytest.mark.parametrize("why", Why)
def test_another_node_goes_in_place_of_one_that_cannot_be_emptied(why: Why) -> None:
    with world() as made:
        made.broken["pool-1"] = Failure(why, "why")
        if why in OF_THE_NODE:
            assert made.updates.set_size(2) == ""
            assert (made.drained, made.tainted, made.desired) == (["pool-2"], ["pool-2"], 2)
        else:
            with pytest.raises(UpdateFailed, match=f"^node pool-1: {why}: why$"):
                made.updates.set_size(2)
            assert (made.drained, made.tainted, made.desired) == ([], [], 3)


OWED = "replacement pods do not run yet: default/Deployment/web lacks 1 since the drain of pool-1"


def test_nothing_is_drained_while_an_earlier_drain_owes_pods() -> None:
    with world() as made:
        made.owing = OWED
        machine = made.server.pool.machines()[0].id(made.clock.now())
        updates: list[Callable[[], str]] = [
            lambda: made.updates.set_size(2),
            lambda: made.updates.terminate(machine, decrement=True),
            lambda: made.updates.dispose(machine),
            lambda: made.updates.detach(machine, decrement=True),
        ]
        for update in updates:
            with pytest.raises(UpdateFailed, match=f"^{OWED}$") as caught:
                update()
            assert caught.value.status == 503
        assert (made.drained, made.tainted, made.desired) == ([], [], 3)
        assert made.updates.set_size(4) == ""
        made.owing = ""
        assert made.updates.set_size(3) == ""


@pytest.mark.parametrize("why", [Why.REPLACEMENT_REFUSED, Why.EVICTION_TIMEOUT])
def test_a_drain_that_fails_and_owes_pods_is_the_last_one(why: Why) -> None:
    """Neither the next victim nor another node in place of the failed one loses pods, too."""
    with world() as made:
        made.broken["pool-1"] = Failure(why, "why")
        made.owing_after["pool-1"] = OWED
        with pytest.raises(UpdateFailed) as caught:
            made.updates.set_size(1)
        assert caught.value.detail.startswith(f"node pool-1: {why}: why; node pool-2: {OWED}")
        assert (made.drained, made.tainted, made.desired) == ([], [], 3)


def test_each_node_is_tried_once_and_who_stays_is_told() -> None:
    with world(objects=BLOCKED[2:]) as made:
        made.broken = {f"pool-{n}": Failure(Why.EVICTION_TIMEOUT, f"why {n}") for n in (1, 2)}
        with pytest.raises(UpdateFailed) as caught:
            made.updates.set_size(2)
        told = caught.value.detail
        assert told.startswith(
            "node pool-1: eviction-timeout: why 1; node pool-2: eviction-timeout: why 2; node pool-3: "
        )
        assert [told.count(f"node pool-{n}: ") for n in (1, 2, 3)] == [1, 1, 1]
        assert (caught.value.status, made.drained, made.tainted, made.desired) == (504, [], [], 3)


STATUSES = {
    Why.EVICTION_TIMEOUT: 504,
    Why.TERMINATION_TIMEOUT: 504,
    Why.REPLACEMENT_NOT_BOUND: 504,
    Why.LANDING_TIMEOUT: 504,
    Why.PROVIDER: 502,
    Why.API_ERROR: 503,
}


@pytest.mark.parametrize("why", Why)
def test_a_failure_tells_whose_it_is(why: Why) -> None:
    with world(settings(desired_size=2)) as made:
        made.broken = {f"pool-{n}": Failure(why, "why") for n in (1, 2)}
        machine = made.server.pool.machines()[0].id(made.clock.now())
        updates: list[Callable[[], str]] = [
            lambda: made.updates.set_size(1),
            lambda: made.updates.terminate(machine, decrement=True),
        ]
        for update in updates:
            with pytest.raises(UpdateFailed) as caught:
                update()
            assert caught.value.status == STATUSES.get(why, 500)
        assert (made.tainted, made.desired) == ([], 2)


@pytest.mark.parametrize(("fault", "status"), [({"status": 500}, 502), ({"status": 404, "body": ""}, 502)])
def test_a_pool_that_cannot_be_asked(fault: dict[str, Any], status: int) -> None:
    with world(backend={"attempts": 1}) as made:
        made.server.face.inject(Fault(path="/pool", method="GET", times=9, **fault))
        updates: list[Callable[[], str]] = [
            lambda: made.updates.set_size(1),
            lambda: made.updates.terminate("x", decrement=True),
        ]
        for update in updates:
            with pytest.raises(UpdateFailed) as caught:
                update()
            assert caught.value.status == status


@pytest.mark.parametrize("decrement", [True, False])
def test_a_machine_that_is_requested_is_terminated_without_more_ado(decrement: bool) -> None:
    with world() as made:
        made.server.pool.set_config({"name": "pool", "requestDelay": "1h"})
        made.server.pool.set_size(4)
        made.wait(30)
        machine = made.server.pool.machines()[3]
        assert made.updates.terminate(machine.id(made.clock.now()), decrement=decrement) == ""
        assert machine.id(made.clock.now()) not in made.alive()
        assert (len(made.running()), made.desired, made.drained) == (3, 3 if decrement else 4, [])


def test_a_machine_that_may_be_about_to_register_stays() -> None:
    with world() as made:
        made._joined = made._joined[1:]
        machine = made.server.pool.machines()[0].id(made.clock.now())
        with pytest.raises(UpdateFailed, match="it may be about to register") as caught:
            made.updates.terminate(machine, decrement=True)
        assert (caught.value.status, made.running()) == (500, ["pool-1", "pool-2", "pool-3"])


def test_a_machine_that_could_be_an_unpaired_node_is_nobodys() -> None:
    with world(objects=BLOCKED) as made:
        made._joined = [NodeRef("stranger"), *made._joined[1:]]
        with pytest.raises(UpdateFailed) as caught:
            made.updates.set_size(1)
        machine = made.server.pool.machines()[0].id(made.clock.now())
        assert f"machine {machine}: it cannot be told which node it is" in caught.value.detail
        assert made.running() == ["pool-1", "pool-2", "pool-3"]


def test_terminated_twice_and_unknown() -> None:
    with world() as made:
        machine = made.server.pool.machines()[0].id(made.clock.now())
        for _ in range(2):
            assert made.updates.terminate(machine, decrement=True) == ""
        made.wait(3600)
        assert made.updates.terminate(machine, decrement=True) == ""
        assert (made.desired, made.drained) == (2, ["pool-1"])
        with pytest.raises(UpdateFailed, match="is no member of the pool") as caught:
            made.updates.terminate("i-0", decrement=True)
        assert caught.value.status == 404


@pytest.mark.parametrize("active", [True, False])
def test_what_protects_a_machine_that_is_made_disposable_is_taken_off_it_when_its_node_is_empty(active: bool) -> None:
    """Blessed, or kept for inspection: its replacement comes when it stops counting, and no size is told."""
    with world(settings(refresh_interval=1, pool_update=20)) as made:
        machine = made.server.pool.machines()[0].id(made.clock.now())
        made.server.pool.set_membership(machine, active=active, evictable=False)
        made.wait(60)
        made.broken["pool-1"] = Failure(Why.EVICTION_TIMEOUT, "why")
        with pytest.raises(UpdateFailed, match="eviction-timeout"):
            made.updates.dispose(machine)
        made.wait(60)
        assert (machine in made.alive(), made.statuses()) == (True, [])
        made.broken.clear()
        assert made.updates.dispose(machine) == ""
        assert made.statuses() == [{"active": False, "evictable": True}]
        made.wait(60)
        assert (machine in made.alive(), made.drained, made.sizes()) == (False, ["pool-1"], [])
        assert (len(made.alive()), made.desired) == (3, 3)
        assert made.updates.dispose(machine) == ""


def test_a_protected_machine_without_a_node_is_disposed_of_only_while_it_is_launched() -> None:
    with world(settings(refresh_interval=1, pool_update=20)) as made:
        made.server.pool.set_config({"name": "pool", "requestDelay": "1h"})
        made.server.pool.set_size(4)
        requested = made.server.pool.machines()[3].id(made.clock.now())
        made.server.pool.set_membership(requested, active=True, evictable=False)
        made.wait(2)
        assert made.updates.dispose(requested) == ""
        assert (requested in made.alive(), made.desired) == (False, 4)
        made._joined = made._joined[1:]
        running = made.server.pool.machines()[0].id(made.clock.now())
        made.server.pool.set_membership(running, active=False, evictable=False)
        made.wait(2)
        with pytest.raises(UpdateFailed, match="it may be about to register"):
            made.updates.dispose(running)
        assert running in made.alive()


@pytest.mark.parametrize("decrement", [True, False])
def test_a_machine_that_the_pool_is_about_to_end_is_drained_first(decrement: bool) -> None:
    """It was made disposable behind our back: it counts no more, so the size is not lowered for it."""
    with world(settings(refresh_interval=1, pool_update=3600)) as made:
        machine = made.server.pool.machines()[0].id(made.clock.now())
        made.server.pool.set_membership(machine, active=False, evictable=True)
        made.clock.advance(1800)
        assert made.updates.terminate(machine, decrement=decrement) == ""
        assert (machine in made.alive(), made.drained, made.desired) == (False, ["pool-1"], 3)


def test_the_minimum_keeps_no_machine_from_being_replaced() -> None:
    with world(settings(refresh_interval=1, pool_update=20), minSize=3) as made:
        machine = made.server.pool.machines()[0].id(made.clock.now())
        assert made.replacing.refusals("on-demand+replace", made.refs(), deadline=1e9) == {}
        assert made.updates.terminate(machine, decrement=False) == ""
        made.wait(60)
        assert (machine in made.alive(), len(made.alive()), made.desired) == (False, 3, 3)


def test_a_machine_that_is_protected_is_not_terminated() -> None:
    with world(settings(refresh_interval=0)) as made:
        machine = made.server.pool.machines()[0].id(made.clock.now())
        made.server.pool.set_membership(machine, active=True, evictable=False)
        with pytest.raises(UpdateFailed, match="it is not evictable"):
            made.updates.terminate(machine, decrement=True)


@pytest.mark.parametrize("decrement", [True, False])
def test_a_machine_is_detached_drained(decrement: bool) -> None:
    with world() as made:
        machine = made.server.pool.machines()[0]
        assert made.updates.detach(machine.id(made.clock.now()), decrement=decrement) == ""
        assert (made.drained, made.desired) == (["pool-1"], 2 if decrement else 3)
        assert not made.server.pool.machines()[0].member


def test_what_was_ordered_away_before_counts_and_the_pool_chooses_nobody() -> None:
    """Nobody knows whether the order came through: told a smaller size, the pool might end a machine of its own."""
    with world(settings(pool_update=60)) as made:
        made.going = ["pool-2"]
        with pytest.raises(
            UpdateFailed, match="node pool-2: machine termination requested, not yet confirmed"
        ) as caught:
            made.updates.set_size(2)
        assert caught.value.status == 504
        made.wait(3600)
        assert (made.drained, made.sizes(), len(made.running())) == ([], [], 3)
        assert made.updates.set_size(1).startswith("1 of 2 machines were removed: node pool-2: ")
        assert (made.drained, made.running()) == (["pool-1"], ["pool-2", "pool-3"])


def test_a_machine_that_may_be_ordered_away_is_not_ordered_again() -> None:
    with world() as made:
        made.going = ["pool-1"]
        machine = made.server.pool.machines()[0].id(made.clock.now())
        updates: list[Callable[[], str]] = [
            lambda: made.updates.terminate(machine, decrement=True),
            lambda: made.updates.detach(machine, decrement=True),
        ]
        for update in updates:
            with pytest.raises(UpdateFailed, match="machine termination requested") as caught:
                update()
            assert caught.value.status == 504
        assert (made.drained, made.desired) == ([], 3)


def test_a_machine_that_counts_again_costs_no_other_one() -> None:
    with world(settings(pool_update=60)) as made:
        machine = made.server.pool.machines()[0].id(made.clock.now())
        made.server.pool.set_membership(machine, active=False, evictable=False)
        made.wait(600)
        assert (made.updates.comes_back(machine), made.updates.comes_back("none"), len(made.running())) == (
            True,
            False,
            4,
        )
        told = made.updates.take_back(machine, evictable=True)
        assert told == f"machine {machine} counts again, and the pool's desired size was raised from 3 to 4"
        made.wait(600)
        assert (made.updates.comes_back(machine), made.desired, len(made.running())) == (False, 4, 4)


def test_no_machine_is_detached_below_the_minimum() -> None:
    with world(minSize=3) as made:
        machine = made.server.pool.machines()[0].id(made.clock.now())
        with pytest.raises(UpdateFailed, match=f"^machine {machine}: the pool must keep 3$") as caught:
            made.updates.detach(machine, decrement=True)
        assert (caught.value.status, made.drained, made.desired) == (500, [], 3)
        assert made.updates.detach(machine, decrement=False) == ""
