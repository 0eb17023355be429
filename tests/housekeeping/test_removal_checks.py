"""Checks of machines whose termination was requested, but is not confirmed."""

from collections.abc import Callable
from datetime import timedelta
from typing import Final

import msgspec
import pytest

from rescheduler.draining import actions
from rescheduler.draining.actions import Intent, Step
from rescheduler.draining.state import Why
from rescheduler.observe.events import DrainEnded, OrderWithheld, RemovalPostponed
from rescheduler.planning.outcome import Reason
from rescheduler.providers.base import Accepted, Deleted
from rescheduler.settings import Timing
from tests.housekeeping.world import START, LoopWorld, Replacement, ScriptedProvider, blockers, world
from tests.planning.builders import ON_DEMAND, SPOT, Manifest, node, pod


def test_many_machines_that_do_not_terminate_do_not_delay_other_drains() -> None:
    """All fifty checks together take longer than the longest interval between two checks of a machine."""
    stuck = [f"od-{number:02}" for number in range(50)]
    nodes = [*(node(name, ON_DEMAND) for name in (*stuck, "od-a", "od-b")), node("spot-1")]
    with world(*nodes, pod("web-1", "od-a"), pod("db-1", "od-b")) as here:
        for name in stuck:
            here.mark(name, Intent("before", Step.REMOVING, START, group="workers").dump(), actions.taint("before"))
        provider = ScriptedProvider([Accepted("booked")], gone=("od-a", "od-b"))
        here.stop_at(600)
        here.loop(Timing(node_drain_delay=timedelta()), provider=provider).run()
        assert [event.node.name for event in here.of(DrainEnded) if event.removed] == ["od-a", "od-b"]
        assert here.times(DrainEnded, "od-b")[0] < 120


def test_a_node_is_not_reopened_while_its_machine_may_end() -> None:
    """Also if a pod that tolerates the taint came late, and its replacement has no place."""
    with world(node("od-1", ON_DEMAND), node("spot-1", cpu="16"), pod("web-1", "od-1")) as here:
        provider = ScriptedProvider([Accepted("the machine ends in some minutes")])
        loop = here.loop(provider=provider)
        loop.round()
        provider.pending = ["od-1"]
        here.add(pod("late-1", "od-1"))
        here.replacements["late"] = Replacement.UNSCHEDULABLE
        here.pass_time(60)
        loop.round()
        assert here.node("od-1").spec.taints
        assert [owed.debt.controller.name for owed in here.memory.debts] == ["late"]


def test_a_check_that_evicts_nothing_starts_no_delay_and_no_debt_again() -> None:
    with world(node("od-1", ON_DEMAND), node("spot-1", cpu="16"), pod("web-1", "od-1")) as here:
        provider = ScriptedProvider([Accepted("the machine ends some time")])
        loop = here.loop(provider=provider)
        loop.round()
        drained_at, provider.pending = here.memory.drained_at, ["od-1"]
        moved = here.cluster.pods["default/web-1-again"]
        here.cluster.upsert("Pod", msgspec.structs.replace(moved, ready=False))
        since = []
        for _ in range(3):
            here.pass_time(60)
            loop.round()
            since += [owed.since for owed in here.memory.debts]
        assert len(here.of(RemovalPostponed)) > 1
        assert (here.memory.drained_at, len(set(since))) == (drained_at, 1)


MACHINE: Final = "cloud:///zone-a/i-1"


def of_machine(manifest: Manifest, provider_id: str = MACHINE) -> Manifest:
    return manifest | {"spec": {**manifest.get("spec", {}), "providerID": provider_id}}


#: What the kubelet of the machine of od-1 registers under another name, and whether the machine must not end then.
MATES: Final[dict[str, tuple[list[Manifest], str]]] = {
    "with a pod": ([of_machine(node("renamed", ready="Unknown")), pod("app", "renamed")], "on which 1 pod must move"),
    "a spot node with a pod": ([of_machine(node("renamed", SPOT)), pod("app", "renamed")], "on which 1 pod must move"),
    "an on-demand node with a pod": (
        [of_machine(node("renamed", ON_DEMAND)), pod("app", "renamed")],
        "on which 1 pod must move first: default/app",
    ),
    "that accepts pods": ([of_machine(node("renamed"))], "which accepts pods"),
    "that is not Ready and has no pods": ([of_machine(node("renamed", ready="Unknown"))], ""),
    "with a pod of a DaemonSet, that is not Ready": (
        [of_machine(node("renamed", ready="Unknown")), pod("agent", "renamed", owner="DaemonSet")],
        "",
    ),
    "of another machine": ([of_machine(node("renamed"), "cloud:///zone-b/i-1"), pod("app", "renamed")], ""),
    "without a provider ID": ([of_machine(node("renamed"), ""), pod("app", "renamed")], ""),
}


def joins_during_the_drain(here: LoopWorld, mate: list[Manifest], _: ScriptedProvider) -> None:
    here.on_evicted = lambda: here.add(*mate)


def joins_while_the_moved_pods_start(here: LoopWorld, mate: list[Manifest], _: ScriptedProvider) -> None:
    here.replacements["web"] = Replacement.UNREADY
    here.at(8, lambda: here.add(*mate))
    here.at(20, lambda: here.recover("web"))


def joins_after_an_order(here: LoopWorld, mate: list[Manifest], provider: ScriptedProvider) -> None:
    """It had no effect, and is repeated."""
    provider.answers.insert(0, Accepted("booked"))
    provider.on_order = lambda: here.add(*mate)


@pytest.mark.parametrize("joins", [joins_during_the_drain, joins_while_the_moved_pods_start, joins_after_an_order])
@pytest.mark.parametrize("mate", MATES)
def test_a_machine_stays_while_another_node_of_it_has_pods(
    mate: str, joins: Callable[[LoopWorld, list[Manifest], ScriptedProvider], None]
) -> None:
    others, why = MATES[mate]
    cluster = of_machine(node("od-1", ON_DEMAND)), node("spot-1", cpu="16"), pod("web-1", "od-1")
    with world(*cluster) as here:
        provider = ScriptedProvider([Deleted()])
        joins(here, others, provider)
        here.loop(provider=provider).round()
        [ended] = here.of(DrainEnded)
        if not why:
            assert ended.removed
            return
        assert len(provider.orders) == (joins is joins_after_an_order)
        assert ended.failure is not None
        assert ended.failure.why is Why.PLAN_CHANGED
        assert "its machine is also that of node renamed (spec.providerID is the same)" in ended.failure.detail
        assert why in ended.failure.detail
        assert [withheld.why for withheld in here.of(OrderWithheld)] == [ended.failure.detail]


@pytest.mark.parametrize("again", [False, True])
def test_a_resumed_removal_stops_for_another_node_of_the_machine(*, again: bool) -> None:
    """It joined after an earlier process has ordered the end of the machine, or before this one asks again."""
    mate, _ = MATES["with a pod"]
    with world(of_machine(node("od-1", ON_DEMAND)), node("spot-1", cpu="16")) as here:
        here.mark("od-1", Intent("before", Step.REMOVING, START, group="workers").dump(), actions.taint("before"))
        provider = ScriptedProvider([Accepted("booked"), Deleted()])
        loop = here.loop(provider=provider)
        if again:
            loop.round()
            assert len(provider.orders) == 1
            here.pass_time(60)
        here.add(*mate)
        loop.round()
        assert len(provider.orders) == again
        assert not here.node("od-1").spec.taints
        assert "node renamed" in here.of(DrainEnded)[-1].failure.detail


@pytest.mark.parametrize("with_provider", [True, False])
@pytest.mark.parametrize("labels", [ON_DEMAND, SPOT, "example.com/other"])
def test_no_node_of_a_shared_machine_is_drained(labels: str, *, with_provider: bool) -> None:
    mate = of_machine(node("renamed", labels, ready="Unknown"))
    with world(of_machine(node("od-1", ON_DEMAND)), mate, node("spot-1", cpu="16"), pod("web-1", "od-1")) as here:
        here.loop(provider=ScriptedProvider([Deleted()]) if with_provider else None).round()
        assert here.drained == []
        [blocker] = blockers(here, "od-1")
        assert blocker.reason is Reason.SHARED_MACHINE
        assert blocker.detail == "its machine would end for node renamed, too: spec.providerID is the same"
