"""Pools that lose spot nodes, on an in-memory cluster: which plans wait, for how long, and what is remembered."""

import datetime as dt
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import timedelta
from typing import Any

import msgspec
import pytest

from predicates.objects import Taint
from rescheduler.housekeeping.loop import Loop, RoundOutcome
from rescheduler.observe.events import DrainStarted, Observed
from rescheduler.planning.outcome import Reason
from rescheduler.providers.base import NodeRef
from rescheduler.settings import Timing
from tests.housekeeping.world import START, LoopWorld, ScriptedProvider, blockers, world
from tests.planning.builders import ON_DEMAND, Manifest, node, pod

TYPE = "node.kubernetes.io/instance-type"
A, B = "a/m5.large", "b/m5.large"
NO_DELAY = Timing(node_drain_delay=timedelta(), spot_settle=timedelta())
ITN = Taint(key="aws-node-termination-handler/spot-itn", effect="NoSchedule")
REMOVED = Taint(key="ToBeDeletedByClusterAutoscaler", effect="NoSchedule")


def spot(name: str, zone: str = "a", cpu: str = "4", **labels: str) -> Manifest:
    return node(name, zone=zone, cpu=cpu, labels={TYPE: "m5.large"} | labels)


#: Two on-demand nodes, two spot nodes of pool A, and one of pool B with room for one pod.
CLUSTER = (
    node("od-1", ON_DEMAND),
    node("od-2", ON_DEMAND),
    spot("spot-1"),
    spot("spot-2"),
    spot("spot-3", "b", cpu="1"),
    pod("web-1", "od-1"),
    pod("db-1", "od-2"),
    pod("db-2", "od-2"),
)


def taint(here: LoopWorld, name: str, *taints: Taint) -> None:
    known = here.node(name)
    here.cluster.upsert("Node", msgspec.structs.replace(known, spec=msgspec.structs.replace(known.spec, taints=taints)))


def targets(here: LoopWorld) -> list[set[str]]:
    """Return the targets of each drain."""
    return [{item.node for item in event.plan.placements} for event in here.of(DrainStarted)]


def started(here: LoopWorld, timing: Timing = NO_DELAY, **settings: Any) -> Loop:
    """Return a loop that has seen the cluster once, in a round outside of the drain window of nobody."""
    loop = here.loop(timing, **settings)
    here.paused = "the test is not ready"
    assert loop.round() is RoundOutcome.HELD
    here.paused = ""
    return loop


def test_the_room_of_a_pool_that_lost_a_node_does_not_count() -> None:
    with world(*CLUSTER) as here:
        loop = started(here)
        here.cluster.delete("Node", "spot-2")
        assert loop.round() is RoundOutcome.DRAINED  # web-1 fits on the other pool
        assert targets(here) == [{"spot-3"}]
        here.pass_time(10)
        assert loop.round() is RoundOutcome.IDLE
        [blocker, *_] = blockers(here, "od-2")
        assert blocker.reason is Reason.SPOT_POOL_SETTLING
        assert "pools that lost nodes are not trusted: 1 node of a/m5.large until 2026-01-01T12:10:" in blocker.detail
        here.pass_time(600)
        assert loop.round() is RoundOutcome.DRAINED
        assert targets(here)[1] == {"spot-1"}


def test_pods_that_no_node_of_the_pool_accepts_have_no_room() -> None:
    with world(*CLUSTER, node("od-3", ON_DEMAND), pod("large-1", "od-3", cpu="9")) as here:
        loop = started(here)
        here.cluster.delete("Node", "spot-2")
        loop.round()
        here.pass_time(10)
        loop.round()
        [blocker] = blockers(here, "od-3")
        assert blocker.reason is Reason.NO_ROOM
        assert "are not trusted: 1 node of a/m5.large" in blocker.detail


@pytest.mark.parametrize("cause", ["gone", "a notice", "a notice of the provider"])
def test_every_cause_of_a_loss_counts(cause: str) -> None:
    with world(*CLUSTER) as here:
        provider = Notices([])
        loop = started(here, provider=provider)
        if cause == "gone":
            here.cluster.delete("Node", "spot-2")
        elif cause == "a notice":
            taint(here, "spot-2", ITN)
        else:
            provider.ends = ("spot-2",)
        loop.round()
        assert targets(here) == [{"spot-3"}]
        assert (here.memory.pools.by_pool[A].losses, set(here.memory.pools.settling(here.clock.now()))) == (1, {A})
        here.pass_time(10)
        loop.round()
        states = {state.name: state for state in here.of(Observed)[-1].pools}
        assert (states[A].losses, states[B].losses, states[B].settling) == (1, 0, None)
        assert states[A].settling is not None
        assert [dict(event.lost) for event in here.of(Observed) if event.lost] == [{A: 1}]


@dataclass
class Notices(ScriptedProvider):
    """A cloud that tells which machines it will reclaim."""

    ends: tuple[str, ...] = ()

    def notices(self, nodes: Sequence[NodeRef], *, deadline: float) -> Mapping[str, dt.datetime]:  # noqa: ARG002
        return {each.name: START + timedelta(seconds=90) for each in nodes if each.name in self.ends}


@pytest.mark.parametrize("seen", [True, False], ids=["seen", "between two rounds"])
def test_a_node_that_an_autoscaler_removes_is_no_loss(seen: bool) -> None:
    with world(*CLUSTER) as here:
        loop = started(here)
        taint(here, "spot-2", REMOVED)
        if seen:
            here.paused = "not yet"
            loop.round()
            here.paused = ""
        here.departed = [here.node("spot-2")]
        here.cluster.delete("Node", "spot-2")
        assert loop.round() is RoundOutcome.DRAINED
        assert here.memory.pools.by_pool == {}
        assert [dict(event.lost) for event in here.of(Observed) if event.lost] == []


def test_nodes_without_the_labels_are_counted_and_trusted() -> None:
    with world(node("od-1", ON_DEMAND), node("spot-1"), node("spot-2"), pod("web-1", "od-1")) as here:
        loop = started(here)
        here.cluster.delete("Node", "spot-2")
        assert loop.round() is RoundOutcome.DRAINED
        assert here.memory.pools.by_pool["a/no-instance-type"].losses == 1
        assert here.memory.pools.settling(here.clock.now()) == {}


def test_without_a_cooldown_pools_are_trusted() -> None:
    with world(*CLUSTER) as here:
        loop = started(here, Timing(node_drain_delay=timedelta(), spot_pool_cooldown=timedelta()))
        here.cluster.delete("Node", "spot-3")
        here.cluster.delete("Node", "spot-2")
        here.pass_time(601)
        loop.round()
        here.pass_time(601)  # --spot-settle still holds for bursts
        assert loop.round() is RoundOutcome.DRAINED
        assert here.memory.pools.by_pool[A].losses == 1


@pytest.mark.parametrize("how", ["a restart", "another leader"])
def test_the_memory_of_losses_survives(how: str) -> None:
    with world(*CLUSTER) as here:
        loop = started(here)
        here.cluster.delete("Node", "spot-2")
        loop.round()
        if how == "another leader":
            here.leading = False
            loop.round()
            here.leading = True
        else:
            loop = here.loop(NO_DELAY, holder="another")
        here.pass_time(10)
        loop.round()
        assert blockers(here, "od-2")[0].reason is Reason.SPOT_POOL_SETTLING
        assert here.memory.pools.by_pool[A].losses == 1


def test_a_second_loss_doubles_the_wait() -> None:
    with world(*CLUSTER, spot("spot-4")) as here:
        loop = started(here)
        here.cluster.delete("Node", "spot-2")
        loop.round()
        here.pass_time(3600)
        here.cluster.delete("Node", "spot-4")
        loop.round()
        until = here.memory.pools.settling(here.clock.now())[A]
        assert until == here.memory.pools.by_pool[A].last + timedelta(minutes=20)  # type: ignore[operator]


def test_hours_of_nodes_are_stored_once_an_hour() -> None:
    """The ConfigMap is not written in each round."""
    with world(*CLUSTER[:5]) as here:
        loop = here.loop(NO_DELAY)
        versions = set()
        for _ in range(2 * 360 + 1):
            loop.round()
            assert here.config_map.stored is not None
            versions.add(here.config_map.stored.version)
            here.pass_time(10)
        assert len(versions) == 3  # when it was created, and twice
        assert here.memory.pools.by_pool[A].node_hours == pytest.approx(4, rel=0.1)
        assert here.memory.pools.by_pool[B].node_hours == pytest.approx(2, rel=0.1)
