"""Size changes of a pool, against the reference cloudpool with its cache and its own decisions.

Nodes are a snapshot, and drains succeed at once: these tests check which machines are terminated, and the final
numbers of the pool. `test_service` tests the drains.
"""

import contextlib
import json
import threading
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from datetime import timedelta
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from devcluster.cloudpool.server import CloudpoolServer
from devcluster.cloudpool.settings import CloudpoolSettings
from devcluster.standin.faults import Fault
from rescheduler.cloudpool.matching import Membership
from rescheduler.cloudpool.pool import CloudPool, Ending
from rescheduler.cloudpool.provider import CloudpoolProvider
from rescheduler.cloudpool.proxy.messages import UpdateFailed
from rescheduler.cloudpool.proxy.removal import RemovalMethod, RemovalMethods
from rescheduler.cloudpool.proxy.updates import PoolUpdates
from rescheduler.draining.state import Drain, Failure, Limits, Phase, Why
from rescheduler.errors import Forbidden, Retryable
from rescheduler.execution.drainer import PendingRemoval
from rescheduler.housekeeping.synced_memory import SyncedMemory
from rescheduler.planning.memory import load
from rescheduler.planning.outcome import Plan, Planning
from rescheduler.planning.waits import Waits
from rescheduler.providers.base import CloudProvider, Deleted, Failed, NodeRef
from rescheduler.providers.none import NoProvider
from tests.housekeeping.config_map import InMemoryConfigMap
from tests.planning.builders import Manifest, pod, snapshot
from tests.providers.clocks import StepClock
from tests.providers.cloudpools import node_of, section, serving, settings
from tests.proxy.planning import choose
from tests.proxy.test_victims import node

LIMITS = Limits(eviction=1.0, grace=1.0)


def _finished(ordered: PendingRemoval) -> Drain:
    """Fail, because drains in these tests end when the machine is terminated."""
    raise AssertionError(ordered)


class PoolWorld:
    """A pool, its Nodes, and the record of changes."""

    def __init__(self, server: CloudpoolServer, clock: StepClock, pool: CloudPool, objects: Sequence[Manifest]) -> None:
        self.server, self.clock, self.pool = server, clock, pool
        self._objects = list(objects)
        self._joined: list[NodeRef] = []
        self.joining: list[NodeRef] = []  #: Nodes that only a consistent read shows
        self.tainted: list[str] = []
        self.drained: list[str] = []
        self.blind = ""
        self.owing = ""
        self.owing_after: dict[str, str] = {}  # debts by node after a failed drain
        self.going: list[str] = []
        self.broken: dict[str, Failure] = {}
        self.emptied: list[str] = []
        server.pool.pods_on = lambda node: [] if node in self.emptied else [f"default/of-{node}"]
        providers = [CloudpoolProvider([pool], ending) for ending in Ending]
        self.replacing = providers[1]
        shrink, replace, dispose = (
            RemovalMethod(self._drains(provider), _finished, provider) for provider in providers
        )
        methods = RemovalMethods(
            shrink=shrink,
            replace=replace,
            dispose=dispose,
            keep=RemovalMethod(self._drains(None), _finished, NoProvider()),
        )
        self.stop = threading.Event()
        self.store = InMemoryConfigMap("cloudpool-proxy-memory", elected=False)
        self.ledgers: list[SyncedMemory] = []  #: of the processes; the last one refreshes its own in sweeps
        self._methods = methods
        self.updates = self.restarted()

    def join(self) -> None:
        """Add a Node for every machine that runs now or is started later."""
        machines = [machine for machine in self.server.pool.machines() if machine.state(self.clock.now()) == "RUNNING"]
        self._joined = [node_of(machine) for machine in machines]
        self._objects += [node(member.name) for member in self._joined]
        for machine in machines:
            self.server.pool.save(machine, joined=True)

    # -- the cluster as used by updates

    def why_unusable(self) -> str:
        return self.blind

    def owed(self) -> str:
        return self.owing

    def refs(self) -> list[NodeRef]:
        return self._joined

    def refs_now(self) -> list[NodeRef]:
        return [*self._joined, *self.joining]

    def leaving(self) -> frozenset[str]:
        return frozenset(self.going)

    def choose(self, nodes: Sequence[str], limit: int) -> Planning:
        return choose(snapshot(self._objects), nodes, limit)

    def taint(self, nodes: Sequence[str]) -> None:
        assert not self.drained or self.broken  # except for the replacement of a failed victim
        self.tainted += nodes

    def release(self, nodes: Sequence[str]) -> None:
        self.tainted = [name for name in self.tainted if name not in nodes]

    def _drains(self, provider: CloudProvider | None) -> Callable[[Plan], Drain | None]:
        def drain(plan: Plan) -> Drain | None:
            if plan.node in self.broken:
                self.owing = self.owing_after.get(plan.node, "")
                return Drain(plan.node, LIMITS, Phase.DONE, failure=self.broken[plan.node], released=True)
            ref = next(candidate for candidate in self._joined if candidate.name == plan.node)
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

    # -- results

    def running(self) -> list[str]:
        now = self.clock.now()
        return [machine.name for machine in self.server.pool.machines() if machine.state(now) == "RUNNING"]

    @property
    def desired(self) -> int:
        return int(self.server.pool.size()["desiredSize"])

    def undrained(self) -> list[str]:
        """Return the nodes whose machines were terminated with pods on them."""
        return [ended.machine for ended in self.server.pool.terminations if ended.pods]

    def alive(self) -> list[str]:
        """Return the ids of the allocated machines."""
        now = self.clock.now()
        return [machine.id(now) for machine in self.server.pool.machines() if machine.allocated(now)]

    def restarted(self) -> PoolUpdates:
        """Return the updates of a new process."""
        return PoolUpdates(self.pool, self, self._methods, 600.0, self._ledger(), self.stop)

    def _ledger(self) -> SyncedMemory:
        ledger = SyncedMemory(self.store, Waits(), self.clock, lambda _: None, lambda: True)
        ledger.refresh()
        self.ledgers.append(ledger)
        return ledger

    def statuses(self) -> list[Any]:
        """Return the membership statuses that were sent to the pool."""
        requests = [request for request in self.server.faulty_app.requests if request.path == "/pool/membershipStatus"]
        return [json.loads(sent_request.body)["membershipStatus"] for sent_request in requests]

    def sizes(self) -> list[int]:
        """Return the sizes that were sent to the pool."""
        sent = [
            request
            for request in self.server.faulty_app.requests
            if (request.method, request.path) == ("POST", "/pool/size")
        ]
        return [json.loads(sent_request.body)["desiredSize"] for sent_request in sent]

    def wait(self, seconds: float) -> None:
        self.clock.advance(seconds)
        self.server.pool.advance()


@contextlib.contextmanager
def world(
    served: CloudpoolSettings | None = None, objects: Sequence[Manifest] = (), **keys: Any
) -> Iterator[PoolWorld]:
    clock = StepClock()
    with serving(served or settings(pool_update=3600), clock) as server:
        pool = CloudPool(section(server.url, **{"settleTime": "60s", "maxSize": 99} | keys), Path(), clock)
        env = PoolWorld(server, clock, pool, objects)
        clock.advance(300)
        env.join()
        try:
            yield env
        finally:
            pool.close()


BLOCKED = [pod(f"a-{n}", f"pool-{n}", owner=None) for n in (1, 2, 3)]


def test_larger_and_equal_sizes_are_forwarded() -> None:
    for size in (3, 4):
        with world() as env:
            assert env.updates.set_size(size) == ""
            assert (env.sizes(), env.drained) == ([size], [])


def test_shrinking_removes_victims_and_reaches_the_requested_size() -> None:
    with world() as env:
        assert env.updates.set_size(1) == ""
        assert (env.drained, env.running(), env.desired) == (["pool-1", "pool-2"], ["pool-3"], 1)
        assert env.sizes() == []  # the terminations lowered the size


def test_growing_does_not_use_the_api_server() -> None:
    with world() as env:
        env.blind = "the API server is away"
        assert env.updates.set_size(5) == ""
        with pytest.raises(UpdateFailed, match="the API server is away") as caught:
            env.updates.set_size(2)
        assert caught.value.status == 503


def test_machines_that_have_not_joined_are_removed_before_nodes() -> None:
    """Defect of the original: when three of five machines had joined, it forwarded a size of 4 without a drain."""
    with world(objects=BLOCKED) as env:
        env.server.pool.set_config({"name": "pool", "requestDelay": "1h"})
        env.server.pool.set_size(5)
        assert env.updates.set_size(4) == ""
        assert (env.drained, env.running(), env.desired) == ([], ["pool-1", "pool-2", "pool-3"], 4)
        assert env.updates.set_size(3) == ""
        assert (env.drained, len(env.running()), env.desired) == ([], 3, 3)


def test_a_pool_below_its_desired_size_stops_growing_first() -> None:
    """Defect of the original: it removed one victim, and the pool continued to grow to 9."""
    with world(settings(pool_update=3600)) as env:
        env.server.pool.cloud_down = True
        env.server.pool.set_size(10)
        env.server.pool.cloud_down = False
        assert env.updates.set_size(2) == ""
        env.wait(7200)
        assert (env.sizes()[0], env.drained, len(env.running()), env.desired) == (3, ["pool-1"], 2, 2)


def test_a_size_between_the_actual_and_the_desired_size_is_forwarded() -> None:
    with world(settings(pool_update=3600)) as env:
        env.server.pool.cloud_down = True
        env.server.pool.set_size(10)
        env.server.pool.cloud_down = False
        assert env.updates.set_size(5) == ""
        assert (env.sizes(), env.drained, env.desired) == ([5], [], 5)


def test_a_view_from_before_the_call_is_ignored() -> None:
    """A machine was attached in the meantime: with a size from the stale view, the pool would choose a victim."""
    with world() as env:
        machine = env.server.pool.machines()[2].id(env.clock.now())
        env.server.pool.detach(machine, decrement=True)
        env.clock.advance(30)
        assert len(env.server.pool.pool()["machines"]) == 2
        env.server.pool.attach(machine)
        assert env.updates.set_size(2) == ""
        assert (len(env.drained), len(env.running()), env.desired, env.sizes()) == (1, 2, 2, [])


def test_a_stop_ends_the_wait_for_a_newer_view() -> None:
    with world() as env:
        env.server.pool.pool()
        env.stop.set()
        before = env.clock.now()
        with pytest.raises(UpdateFailed, match="the pool's responses are older than") as caught:
            env.updates.set_size(2)
        assert (caught.value.status, env.clock.now() - before < timedelta(seconds=3)) == (504, True)
        assert (env.drained, env.desired) == ([], 3)


def test_masters_in_the_pool_count_and_are_kept() -> None:
    master = pod("kube-system/kube-apiserver-pool-1", "pool-1", owner="Node")
    with world(objects=[master]) as env:
        response = env.updates.set_size(1)
        assert (env.drained, env.running(), env.desired) == (["pool-2"], ["pool-1", "pool-3"], 2)
        assert response.startswith("1 of 2 machines were removed: ")
        assert "node pool-1: it belongs to the control plane" in response


def test_an_update_fails_if_no_node_can_be_removed() -> None:
    with world(objects=BLOCKED) as env:
        with pytest.raises(UpdateFailed) as caught:
            env.updates.set_size(1)
        assert caught.value.status == 500
        assert [f"node pool-{n}: pod default/a-{n}: " in caught.value.detail for n in (1, 2, 3)] == [True] * 3
        assert (env.running(), env.desired, env.sizes()) == (["pool-1", "pool-2", "pool-3"], 3, [])


def test_protected_and_inactive_machines_are_not_victims() -> None:
    with world(settings(refresh_interval=0, pool_update=3600)) as env:
        ids = [machine.id(env.clock.now()) for machine in env.server.pool.machines()]
        env.server.pool.set_membership(ids[0], active=True, evictable=False)
        response = env.updates.set_size(1)
        assert response == ""
        assert (env.drained, env.running()) == (["pool-2", "pool-3"], ["pool-1"])


def test_a_failed_victim_is_released_and_others_continue() -> None:
    with world() as env:
        env.broken["pool-1"] = Failure(Why.API_ERROR, "not now")
        response = env.updates.set_size(1)
        assert response == "1 of 2 machines were removed: node pool-1: api-error: not now"
        assert (env.drained, env.tainted, env.running(), env.desired) == (
            ["pool-2"],
            ["pool-2"],
            ["pool-1", "pool-3"],
            2,
        )


#: Failures after which another node is tried, because their cause may not affect it.
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
def test_another_node_replaces_one_that_cannot_be_drained(why: Why) -> None:
    with world() as env:
        env.broken["pool-1"] = Failure(why, "why")
        if why in OF_THE_NODE:
            assert env.updates.set_size(2) == ""
            assert (env.drained, env.tainted, env.desired) == (["pool-2"], ["pool-2"], 2)
        else:
            with pytest.raises(UpdateFailed, match=f"^node pool-1: {why}: why$"):
                env.updates.set_size(2)
            assert (env.drained, env.tainted, env.desired) == ([], [], 3)


OWED = "replacement pods are not running yet: default/Deployment/web lacks 1 since the drain of pool-1"


def test_no_drain_starts_while_an_earlier_drain_has_debts() -> None:
    with world() as env:
        env.owing = OWED
        machine = env.server.pool.machines()[0].id(env.clock.now())
        updates: list[Callable[[], str]] = [
            lambda: env.updates.set_size(2),
            lambda: env.updates.terminate(machine, decrement=True),
            lambda: env.updates.dispose(machine),
            lambda: env.updates.detach(machine, decrement=True),
        ]
        for update in updates:
            with pytest.raises(UpdateFailed, match=f"^{OWED}$") as caught:
                update()
            assert caught.value.status == 503
        assert (env.drained, env.tainted, env.desired) == ([], [], 3)
        assert env.updates.set_size(4) == ""
        env.owing = ""
        assert env.updates.set_size(3) == ""


@pytest.mark.parametrize("why", [Why.REPLACEMENT_REFUSED, Why.EVICTION_TIMEOUT])
def test_no_drain_follows_a_failed_drain_with_debts(why: Why) -> None:
    """Neither the next victim nor a replacement for the failed one is drained."""
    with world() as env:
        env.broken["pool-1"] = Failure(why, "why")
        env.owing_after["pool-1"] = OWED
        with pytest.raises(UpdateFailed) as caught:
            env.updates.set_size(1)
        assert caught.value.detail.startswith(f"node pool-1: {why}: why; node pool-2: {OWED}")
        assert (env.drained, env.tainted, env.desired) == ([], [], 3)


def test_each_node_is_tried_once_and_kept_nodes_are_reported() -> None:
    with world(objects=BLOCKED[2:]) as env:
        env.broken = {f"pool-{n}": Failure(Why.EVICTION_TIMEOUT, f"why {n}") for n in (1, 2)}
        with pytest.raises(UpdateFailed) as caught:
            env.updates.set_size(2)
        detail = caught.value.detail
        assert detail.startswith(
            "node pool-1: eviction-timeout: why 1; node pool-2: eviction-timeout: why 2; node pool-3: "
        )
        assert [detail.count(f"node pool-{n}: ") for n in (1, 2, 3)] == [1, 1, 1]
        assert (caught.value.status, env.drained, env.tainted, env.desired) == (504, [], [], 3)


STATUSES = {
    Why.EVICTION_TIMEOUT: 504,
    Why.TERMINATION_TIMEOUT: 504,
    Why.REPLACEMENT_NOT_BOUND: 504,
    Why.LANDING_TIMEOUT: 504,
    Why.PROVIDER: 502,
    Why.API_ERROR: 503,
}


@pytest.mark.parametrize("why", Why)
def test_the_status_of_a_failure_shows_its_origin(why: Why) -> None:
    with world(settings(desired_size=2)) as env:
        env.broken = {f"pool-{n}": Failure(why, "why") for n in (1, 2)}
        machine = env.server.pool.machines()[0].id(env.clock.now())
        updates: list[Callable[[], str]] = [
            lambda: env.updates.set_size(1),
            lambda: env.updates.terminate(machine, decrement=True),
        ]
        for update in updates:
            with pytest.raises(UpdateFailed) as caught:
                update()
            assert caught.value.status == STATUSES.get(why, 500)
        assert (env.tainted, env.desired) == ([], 2)


@pytest.mark.parametrize(("fault", "status"), [({"status": 500}, 502), ({"status": 404, "body": ""}, 502)])
def test_an_unavailable_pool_is_an_error(fault: dict[str, Any], status: int) -> None:
    with world(backend={"attempts": 1}) as env:
        env.server.faulty_app.inject(Fault(path="/pool", method="GET", times=9, **fault))
        updates: list[Callable[[], str]] = [
            lambda: env.updates.set_size(1),
            lambda: env.updates.terminate("x", decrement=True),
        ]
        for update in updates:
            with pytest.raises(UpdateFailed) as caught:
                update()
            assert caught.value.status == status


@pytest.mark.parametrize("decrement", [True, False])
def test_a_requested_machine_is_terminated_without_a_drain(decrement: bool) -> None:
    with world() as env:
        env.server.pool.set_config({"name": "pool", "requestDelay": "1h"})
        env.server.pool.set_size(4)
        env.wait(30)
        machine = env.server.pool.machines()[3]
        assert env.updates.terminate(machine.id(env.clock.now()), decrement=decrement) == ""
        assert machine.id(env.clock.now()) not in env.alive()
        assert (len(env.running()), env.desired, env.drained) == (3, 3 if decrement else 4, [])


@pytest.mark.parametrize("update", ["a size", "a termination"])
def test_a_machine_that_joins_before_the_request_is_kept(update: str) -> None:
    """Its Node is not in the watched state yet, and pods may run on it."""
    with world(objects=BLOCKED) as env:
        env.server.pool.set_config({"name": "pool", "launchDelay": "1h"})
        env.server.pool.set_size(4)
        env.wait(120)
        machine = env.server.pool.machines()[3]
        env.joining = [node_of(machine)]
        updates = {
            "a size": partial(env.updates.set_size, 3),
            "a termination": partial(env.updates.terminate, machine.id(env.clock.now()), decrement=True),
        }
        with pytest.raises(UpdateFailed, match="it may have joined the cluster as a node in the meantime"):
            updates[update]()
        assert machine.id(env.clock.now()) in env.alive()
        env.joining = []
        assert env.updates.set_size(3) == ""
        assert machine.id(env.clock.now()) not in env.alive()


def test_a_machine_that_may_be_about_to_register_is_kept() -> None:
    with world() as env:
        env._joined = env._joined[1:]
        machine = env.server.pool.machines()[0].id(env.clock.now())
        with pytest.raises(UpdateFailed, match="it may be about to register") as caught:
            env.updates.terminate(machine, decrement=True)
        assert (caught.value.status, env.running()) == (500, ["pool-1", "pool-2", "pool-3"])


@pytest.mark.parametrize("update", ["terminate", "dispose", "detach", "set_size"])
def test_a_machine_of_two_nodes_is_kept_and_both_are_named(update: str) -> None:
    """A kubelet that registered again under another name left its old Node behind."""
    with world() as env:
        machine = env.server.pool.machines()[0].id(env.clock.now())
        first = env._joined[0]
        env._joined = [*env._joined, replace(first, name="renamed")]
        calls: dict[str, Callable[[], object]] = {
            "terminate": lambda: env.updates.terminate(machine, decrement=True),
            "dispose": lambda: env.updates.dispose(machine),
            "detach": lambda: env.updates.detach(machine, decrement=False),
            "set_size": lambda: env.updates.set_size(0),
        }
        try:
            found = str(calls[update]())
        except UpdateFailed as failure:
            found = failure.detail
        assert first.name in found
        assert "renamed" in found
        assert machine in env.alive()


def test_a_machine_that_may_belong_to_an_unmatched_node_is_kept() -> None:
    with world(objects=BLOCKED) as env:
        env._joined = [NodeRef("stranger"), *env._joined[1:]]
        with pytest.raises(UpdateFailed) as caught:
            env.updates.set_size(1)
        machine = env.server.pool.machines()[0].id(env.clock.now())
        assert f"machine {machine}: its node is unknown" in caught.value.detail
        assert env.running() == ["pool-1", "pool-2", "pool-3"]


def test_a_repeated_termination_succeeds_and_an_unknown_machine_is_an_error() -> None:
    with world() as env:
        machine = env.server.pool.machines()[0].id(env.clock.now())
        for _ in range(2):
            assert env.updates.terminate(machine, decrement=True) == ""
        env.wait(3600)
        assert env.updates.terminate(machine, decrement=True) == ""
        assert (env.desired, env.drained) == (2, ["pool-1"])
        with pytest.raises(UpdateFailed, match="is not a member of the pool") as caught:
            env.updates.terminate("i-0", decrement=True)
        assert caught.value.status == 404


@pytest.mark.parametrize("active", [True, False])
def test_a_disposed_machine_loses_its_protection_when_its_node_is_empty(active: bool) -> None:
    """The replacement is launched when the machine becomes inactive; no size is set."""
    with world(settings(refresh_interval=1, pool_update=20)) as env:
        machine = env.server.pool.machines()[0].id(env.clock.now())
        env.server.pool.set_membership(machine, active=active, evictable=False)
        env.wait(60)
        env.broken["pool-1"] = Failure(Why.EVICTION_TIMEOUT, "why")
        with pytest.raises(UpdateFailed, match="eviction-timeout"):
            env.updates.dispose(machine)
        env.wait(60)
        assert (machine in env.alive(), env.statuses()) == (True, [])
        env.broken.clear()
        assert env.updates.dispose(machine) == ""
        assert env.statuses() == [{"active": False, "evictable": True}]
        env.wait(60)
        assert (machine in env.alive(), env.drained, env.sizes()) == (False, ["pool-1"], [])
        assert (len(env.alive()), env.desired) == (3, 3)
        assert env.updates.dispose(machine) == ""


def test_a_protected_machine_without_a_node_is_disposed_of_only_during_its_launch() -> None:
    with world(settings(refresh_interval=1, pool_update=20)) as env:
        env.server.pool.set_config({"name": "pool", "requestDelay": "1h"})
        env.server.pool.set_size(4)
        requested = env.server.pool.machines()[3].id(env.clock.now())
        env.server.pool.set_membership(requested, active=True, evictable=False)
        env.wait(2)
        assert env.updates.dispose(requested) == ""
        assert (requested in env.alive(), env.desired) == (False, 4)
        env._joined = env._joined[1:]
        running = env.server.pool.machines()[0].id(env.clock.now())
        env.server.pool.set_membership(running, active=False, evictable=False)
        env.wait(2)
        with pytest.raises(UpdateFailed, match="it may be about to register"):
            env.updates.dispose(running)
        assert running in env.alive()


@pytest.mark.parametrize("decrement", [True, False])
def test_a_machine_that_the_pool_will_terminate_is_drained_first(decrement: bool) -> None:
    """Another client made the machine disposable: it no longer counts, so its removal does not lower the size."""
    with world(settings(refresh_interval=1, pool_update=3600)) as env:
        machine = env.server.pool.machines()[0].id(env.clock.now())
        env.server.pool.set_membership(machine, active=False, evictable=True)
        env.clock.advance(1800)
        assert env.updates.terminate(machine, decrement=decrement) == ""
        assert (machine in env.alive(), env.drained, env.desired) == (False, ["pool-1"], 3)


def test_the_minimum_does_not_prevent_a_replacement() -> None:
    with world(settings(refresh_interval=1, pool_update=20), minSize=3) as env:
        machine = env.server.pool.machines()[0].id(env.clock.now())
        assert env.replacing.refusals("on-demand+replace", env.refs(), deadline=1e9) == {}
        assert env.updates.terminate(machine, decrement=False) == ""
        env.wait(60)
        assert (machine in env.alive(), len(env.alive()), env.desired) == (False, 3, 3)


def test_a_protected_machine_is_not_terminated() -> None:
    with world(settings(refresh_interval=0)) as env:
        machine = env.server.pool.machines()[0].id(env.clock.now())
        env.server.pool.set_membership(machine, active=True, evictable=False)
        with pytest.raises(UpdateFailed, match="its membership status is not evictable"):
            env.updates.terminate(machine, decrement=True)


@pytest.mark.parametrize("decrement", [True, False])
def test_a_machine_is_drained_before_it_is_detached(decrement: bool) -> None:
    with world() as env:
        machine = env.server.pool.machines()[0]
        assert env.updates.detach(machine.id(env.clock.now()), decrement=decrement) == ""
        assert (env.drained, env.desired) == (["pool-1"], 2 if decrement else 3)
        assert not env.server.pool.machines()[0].member


def test_earlier_terminations_count_and_the_pool_chooses_no_machine() -> None:
    """The result of the order is unknown: with a smaller size, the pool might terminate a machine of its choice."""
    with world(settings(pool_update=60)) as env:
        env.going = ["pool-2"]
        with pytest.raises(
            UpdateFailed, match="node pool-2: machine termination requested, not yet confirmed"
        ) as caught:
            env.updates.set_size(2)
        assert caught.value.status == 504
        env.wait(3600)
        assert (env.drained, env.sizes(), len(env.running())) == ([], [], 3)
        assert env.updates.set_size(1).startswith("1 of 2 machines were removed: node pool-2: ")
        assert (env.drained, env.running()) == (["pool-1"], ["pool-2", "pool-3"])


def test_a_termination_that_may_be_pending_is_not_repeated() -> None:
    with world() as env:
        env.going = ["pool-1"]
        machine = env.server.pool.machines()[0].id(env.clock.now())
        updates: list[Callable[[], str]] = [
            lambda: env.updates.terminate(machine, decrement=True),
            lambda: env.updates.detach(machine, decrement=True),
        ]
        for update in updates:
            with pytest.raises(UpdateFailed, match="machine termination requested") as caught:
                update()
            assert caught.value.status == 504
        assert (env.drained, env.desired) == ([], 3)


def test_a_reactivation_terminates_no_other_machine() -> None:
    with world(settings(pool_update=60)) as env:
        machine = env.server.pool.machines()[0].id(env.clock.now())
        env.server.pool.set_membership(machine, active=False, evictable=False)
        env.wait(600)
        assert (env.updates.is_inactive(machine), env.updates.is_inactive("none"), len(env.running())) == (
            True,
            False,
            4,
        )
        response = env.updates.reactivate(machine, evictable=True)
        assert response == f"machine {machine} is active again; the pool's desired size was raised from 3 to 4"
        env.wait(600)
        assert (env.updates.is_inactive(machine), env.desired, len(env.running())) == (False, 4, 4)


def test_a_reactivation_that_half_fails_terminates_no_machine() -> None:
    with world(settings(pool_update=60)) as env:
        machine = env.server.pool.machines()[0].id(env.clock.now())
        env.server.pool.set_membership(machine, active=False, evictable=False)
        env.wait(600)
        env.join()
        before = set(env.running())
        env.server.faulty_app.inject(Fault(path="/pool/size", method="POST", status=500, times=1000))
        with pytest.raises(UpdateFailed):
            env.updates.reactivate(machine, evictable=True)
        env.wait(600)
        assert env.updates.is_inactive(machine)
        assert (before - set(env.running()), env.undrained()) == (set(), [])


class Killed(BaseException):
    """The process does not get any further."""


def inactive_machine(env: PoolWorld) -> str:
    """Let a machine be inactive, and its replacement join."""
    machine = env.server.pool.machines()[0].id(env.clock.now())
    env.server.pool.set_membership(machine, active=False, evictable=False)
    env.wait(600)
    env.join()
    return machine


def killed_after(writes: int, env: PoolWorld, monkeypatch: pytest.MonkeyPatch, act: Callable[[], object]) -> None:
    """Let *act* end after some of its writes to the pool and to the memory, as if the process were killed."""
    written = 0

    def counted(write: Callable[..., Any]) -> Callable[..., Any]:
        def send(*given: Any, **named: Any) -> Any:
            nonlocal written
            if written == writes:
                raise Killed
            written += 1
            return write(*given, **named)

        return send

    with monkeypatch.context() as patch:
        for holder, name in ((env.pool.client, "set_size"), (env.pool.client, "set_membership"), (env.store, "write")):
            patch.setattr(holder, name, counted(getattr(holder, name)))
        with contextlib.suppress(Killed):
            act()


@pytest.mark.parametrize("repeats", [False, True], ids=["", "the client repeats its request"])
@pytest.mark.parametrize("writes", range(5))
def test_a_kill_during_a_reactivation_terminates_no_machine(
    writes: int, monkeypatch: pytest.MonkeyPatch, *, repeats: bool
) -> None:
    """The next process finishes it as soon as it starts."""
    with world(settings(pool_update=60)) as env:
        machine = inactive_machine(env)
        before = set(env.running())
        killed_after(writes, env, monkeypatch, lambda: env.updates.reactivate(machine, evictable=True))
        env.clock.advance(5)
        updates = env.restarted()
        for _ in range(2):
            updates.finish()
        if repeats and updates.is_inactive(machine):
            updates.reactivate(machine, evictable=True)
        env.wait(600)
        assert (before - set(env.running()), env.undrained()) == (set(), [])
        assert updates.is_inactive(machine) is (writes == 0 and not repeats)
        assert env.desired == (3 if writes == 0 and not repeats else 4)
        env.restarted().finish()
        assert len(env.sizes()) <= 2


@pytest.mark.parametrize("path", ["/pool/size", "/pool/membershipStatus"])
def test_a_reactivation_that_fails_is_finished_or_undone(path: str) -> None:
    with world(settings(pool_update=60)) as env:
        machine = inactive_machine(env)
        before = set(env.running())
        env.server.faulty_app.inject(Fault(path=path, method="POST", status=500, times=1000))
        with pytest.raises(UpdateFailed):
            env.updates.reactivate(machine, evictable=True)
        env.server.faulty_app.forget()
        env.updates.finish()
        if env.updates.is_inactive(machine):
            env.updates.reactivate(machine, evictable=True)
        env.wait(600)
        assert (before - set(env.running()), env.undrained(), env.desired) == (set(), [], 4)


def test_a_repeated_request_does_not_raise_the_size_again_after_a_restart(monkeypatch: pytest.MonkeyPatch) -> None:
    """The client has asked while the machine was inactive, and waits for its turn until the sweep has ended."""
    with world(settings(pool_update=60)) as env:
        machine = inactive_machine(env)
        killed_after(2, env, monkeypatch, lambda: env.updates.reactivate(machine, evictable=True))
        updates = env.restarted()
        updates.finish()
        assert (
            updates.reactivate(machine, evictable=True)
            == f"machine {machine} is active again: an earlier request was completed"
        )
        assert env.desired == 4


def test_nothing_is_begun_that_cannot_be_stored() -> None:
    with world(settings(pool_update=60)) as env:
        machine = inactive_machine(env)
        env.store.refusals = [Forbidden("patch configmap: not allowed (403)")] * 9
        with pytest.raises(
            UpdateFailed, match="cannot be stored in the memory: patch configmap: not allowed"
        ) as caught:
            env.updates.reactivate(machine, evictable=True)
        assert (caught.value.status, env.statuses(), env.sizes()) == (503, [], [])


@pytest.mark.parametrize("restarts", [False, True])
@pytest.mark.parametrize("outcome", ["refused", "lost", "stored without a response"])
def test_a_reactivation_that_was_rejected_is_not_carried_out_later(
    outcome: str, monkeypatch: pytest.MonkeyPatch, *, restarts: bool
) -> None:
    """The client was told that it has not begun, and does not expect that the pool grows."""
    with world(settings(pool_update=60)) as env:
        machine, write, failing = inactive_machine(env), env.store.write, iter([True])

        def fails(content: bytes, summary: str, version: str) -> str:
            if outcome == "refused":
                raise Forbidden("patch configmap: not allowed (403)")
            if outcome == "stored without a response" and next(failing, False):
                write(content, summary, version)
            elif outcome == "stored without a response":
                return write(content, summary, version)
            raise Retryable("patch configmap: no response")

        with monkeypatch.context() as patch:
            patch.setattr(env.store, "write", fails)
            with pytest.raises(UpdateFailed, match="cannot be stored in the memory") as caught:
                env.updates.reactivate(machine, evictable=True)
        assert caught.value.status == 503
        updates = env.restarted() if restarts else env.updates
        for _ in range(2):
            env.wait(600)
            env.ledgers[-1].refresh()
            updates.finish()
        assert (updates.is_inactive(machine), env.desired, env.statuses(), env.sizes()) == (True, 3, [], [])
        updates.reactivate(machine, evictable=True)
        assert (updates.is_inactive(machine), env.desired) == (False, 4)


def two_inactive_machines(env: PoolWorld) -> list[str]:
    """Let two machines be inactive, and their replacements join."""
    machines = [machine.id(env.clock.now()) for machine in env.server.pool.machines()[:2]]
    for machine in machines:
        env.server.pool.set_membership(machine, active=False, evictable=False)
    env.wait(600)
    env.join()
    return machines


def left_open(env: PoolWorld, monkeypatch: pytest.MonkeyPatch, machine: str) -> None:
    """Let a reactivation of *machine* fail after its first request, and let the pool not undo it."""
    status = env.pool.client.set_membership

    def without_undoing(machine: str, wanted: Membership, *, deadline: float) -> None:
        if not wanted.active:
            raise Retryable("no response")
        status(machine, wanted, deadline=deadline)

    with monkeypatch.context() as patch:
        env.server.faulty_app.inject(Fault(path="/pool/size", method="POST", status=500, times=1000))
        patch.setattr(env.pool.client, "set_membership", without_undoing)
        with pytest.raises(UpdateFailed):
            env.updates.reactivate(machine, evictable=True)
    env.server.faulty_app.forget()


@pytest.mark.parametrize("restarts", [False, True])
@pytest.mark.parametrize("same", [False, True], ids=["another machine", "the same machine"])
def test_an_open_reactivation_is_finished_before_the_next_one(
    monkeypatch: pytest.MonkeyPatch, *, same: bool, restarts: bool
) -> None:
    with world(settings(pool_update=60)) as env:
        first, second = two_inactive_machines(env)
        before = set(env.running())
        left_open(env, monkeypatch, first)
        updates = env.restarted() if restarts else env.updates
        updates.reactivate(first if same else second, evictable=True)
        updates.finish()
        env.wait(600)
        assert (before - set(env.running()), env.undrained()) == (set(), [])
        assert (updates.is_inactive(first), updates.is_inactive(second)) == (False, same)
        assert env.desired == (4 if same else 5)


def test_no_reactivation_begins_while_an_open_one_cannot_be_finished(monkeypatch: pytest.MonkeyPatch) -> None:
    with world(settings(pool_update=60)) as env:
        first, second = two_inactive_machines(env)
        before = set(env.running())
        left_open(env, monkeypatch, first)
        env.server.faulty_app.inject(Fault(path="/pool/size", method="POST", status=500, times=1000))
        with pytest.raises(UpdateFailed):
            env.updates.reactivate(second, evictable=True)
        env.server.faulty_app.forget()
        assert env.updates.is_inactive(second)
        env.updates.finish()
        env.wait(600)
        assert (before - set(env.running()), env.undrained(), env.desired) == (set(), [], 4)
        assert (env.updates.is_inactive(first), env.updates.is_inactive(second)) == (False, True)


@pytest.mark.parametrize("lose", [InMemoryConfigMap.delete, InMemoryConfigMap.empty])
@pytest.mark.parametrize("restarts", [False, True])
def test_an_open_reactivation_is_finished_after_its_config_map_was_deleted(
    lose: Callable[[InMemoryConfigMap], None], monkeypatch: pytest.MonkeyPatch, *, restarts: bool
) -> None:
    """A process that is killed later finds it in the ConfigMap again."""
    with world(settings(pool_update=60)) as env:
        first, _ = two_inactive_machines(env)
        before = set(env.running())
        left_open(env, monkeypatch, first)
        lose(env.store)
        env.ledgers[-1].refresh()
        updates = env.restarted() if restarts else env.updates
        updates.finish()
        env.wait(600)
        assert (before - set(env.running()), env.undrained(), env.desired) == (set(), [], 4)
        assert not updates.is_inactive(first)


def test_a_begun_reactivation_of_a_machine_that_is_gone_has_ended(monkeypatch: pytest.MonkeyPatch) -> None:
    with world(settings(pool_update=60)) as env:
        machine = inactive_machine(env)
        killed_after(1, env, monkeypatch, lambda: env.updates.reactivate(machine, evictable=True))
        env.server.pool.set_membership(machine, active=False, evictable=True)
        env.wait(600)
        updates = env.restarted()
        updates.finish()
        assert load(env.store.stored.content if env.store.stored else b"").reactivation is None
        assert (env.sizes(), env.desired) == ([], 3)


def test_no_machine_is_detached_below_the_minimum() -> None:
    with world(minSize=3) as env:
        machine = env.server.pool.machines()[0].id(env.clock.now())
        with pytest.raises(UpdateFailed, match=f"^machine {machine}: the pool must keep 3$") as caught:
            env.updates.detach(machine, decrement=True)
        assert (caught.value.status, env.drained, env.desired) == (500, [], 3)
        assert env.updates.detach(machine, decrement=False) == ""
