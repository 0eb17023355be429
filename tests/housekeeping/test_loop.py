"""Rounds on an in-memory cluster with frozen time: hours pass without waiting."""

import datetime as dt
import itertools
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from datetime import timedelta
from typing import Any
from unittest.mock import ANY

import pytest

from rescheduler.draining.events import EvictionAccepted, EvictionFailed, EvictionRefused
from rescheduler.draining.state import Why
from rescheduler.errors import Forbidden, Retryable
from rescheduler.execution.cluster_view import ClusterView
from rescheduler.housekeeping.loop import RoundOutcome
from rescheduler.observe.events import (
    CoolingDown,
    DrainEnded,
    DrainStarted,
    ErrorKind,
    Held,
    LeadershipChanged,
    Observed,
    Planned,
    RoundEnded,
    Surveyed,
    Trouble,
    Waiting,
    WatchAges,
)
from rescheduler.planning.memory import Memory
from rescheduler.planning.outcome import Planning, Reason, TakenRoom
from rescheduler.providers.base import Deleted, NodeGroup, NodeRef
from rescheduler.settings import Timing
from tests.housekeeping.world import START, LoopWorld, ScriptedProvider, world
from tests.planning.builders import ON_DEMAND, Manifest, node, pod

TWO_NODES = (
    node("od-1", ON_DEMAND),
    node("od-2", ON_DEMAND),
    node("spot-1", cpu="16"),
    pod("web-1", "od-1"),
    pod("db-1", "od-2"),
    pod("db-2", "od-2"),
)
FORBIDDEN = EvictionFailed("", "evict pod default/web-1: not allowed (403)", retryable=False)
MINUTE = 60.0


def drains(here: LoopWorld) -> list[tuple[float, str]]:
    return [(at, event.node.name) for at, event in here.reported if isinstance(event, DrainStarted)]


def test_the_emptiest_node_is_drained_first_and_the_next_after_the_delay() -> None:
    with world(*TWO_NODES) as here:
        here.stop_at(20 * MINUTE)
        here.loop().run()
        (first, second) = drains(here)
        ended = here.times(DrainEnded)
        assert first == (0, "od-1")
        assert second[1] == "od-2"
        assert ended[0] + 600 <= second[0] <= ended[0] + 610
        assert [event.failure for event in here.of(DrainEnded)] == [None, None]
        assert here.marked == []
        assert here.cluster.pods_on["od-1"] == here.cluster.pods_on["od-2"] == {}


def test_a_node_deleted_during_planning_is_not_drained(monkeypatch: pytest.MonkeyPatch) -> None:
    with world(*TWO_NODES) as here:
        loop = here.loop()
        judge = ClusterView.first_plan

        def slow(self: ClusterView, *, take_empty: Callable[[str], bool]) -> Planning:
            planning = judge(self, take_empty=take_empty)
            here.cluster.delete("Node", "od-1")
            return planning

        monkeypatch.setattr(ClusterView, "first_plan", slow)
        assert loop.round() is RoundOutcome.HELD
        assert (here.of(Trouble), [list(event.nodes) for event in here.of(Planned)]) == ([], [["od-1"]])


def test_the_first_round_that_could_read_the_cluster_is_announced_once() -> None:
    with world(*TWO_NODES) as here:
        here.synced, here.missing = False, ("Pod",)
        here.at(5, lambda: setattr(here, "synced", True))
        here.stop_at(MINUTE)
        announced: list[float] = []
        here.loop(dry_run=True).run(after_first=lambda: announced.append(here.now))
        assert [5 <= at < 10 for at in announced] == [True]


class Part(ScriptedProvider):
    """A provider that does not own the machine of od-1."""

    def group_for(self, node: NodeRef, *, deadline: float) -> NodeGroup | None:
        return None if node.name == "od-1" else super().group_for(node, deadline=deadline)


def test_an_empty_node_without_a_provider_does_not_delay_others_and_is_offered_again() -> None:
    """A provider with a cache does not list a new machine at first."""
    with world(*(manifest for manifest in TWO_NODES if manifest["metadata"]["name"] != "web-1")) as here:
        here.stop_at(2.5 * 3600)
        here.loop(Timing(housekeeping_interval=timedelta(seconds=30)), provider=Part([Deleted()])).run()
        assert [name for _, name in drains(here)] == ["od-1", "od-2", *["od-1"] * 7]
        again = [at for at, name in drains(here) if name == "od-1"]
        pauses = [after - before for before, after in itertools.pairwise(again)]
        assert 600 <= pauses[0] < 700  # the drain of the other node delays the next drain
        expected = [120, 240, 480, 960, 1920, 3600]
        assert [most <= pause < most + 100 for pause, most in zip(pauses[1:], expected, strict=True)] == [True] * 6
        assert [node.name for node in here.cluster.nodes] == ["od-1", "spot-1"]
        assert here.marked == []


class Notified(ScriptedProvider):
    """A cloud that reclaims nodes or does not respond."""

    ends: tuple[str, ...] = ()
    silent = False

    def refresh(self, *, deadline: float) -> None:
        assert deadline == ANY
        if self.silent:
            raise Retryable("silence")

    def notices(self, nodes: Sequence[NodeRef], *, deadline: float) -> Mapping[str, dt.datetime]:
        assert (deadline, {node_ref.name for node_ref in nodes} <= {"spot-1", "spot-2"}) == (ANY, True)
        return {node_ref.name: START + timedelta(seconds=90) for node_ref in nodes if node_ref.name in self.ends}


LARGER_SPOT = (*TWO_NODES, node("spot-2", cpu="8"))


@pytest.mark.parametrize(("ends", "goes_to"), [((), {"spot-1"}), (("spot-2",), {"spot-1"}), (("spot-1",), {"spot-2"})])
def test_no_plan_uses_a_node_that_is_about_to_be_reclaimed(ends: tuple[str, ...], goes_to: set[str]) -> None:
    with world(*LARGER_SPOT, pod("much", "spot-1", cpu="4")) as here:
        provider = Notified([Deleted()])
        provider.ends = ends
        here.loop(provider=provider).round()
        (started,) = here.of(DrainStarted)
        assert started.plan is not None
        assert {item.node for item in started.plan.placements} == goes_to
        assert here.of(Trouble) == []


def test_a_drain_knows_the_notices_about_nodes_that_its_first_plan_does_not_use() -> None:
    """Another pod takes the room of the first plan after the taint."""
    small = (node("spot-1", cpu="4"), node("spot-2", cpu="4"))
    with world(
        node("od-1", ON_DEMAND), *small, pod("web-1", "od-1", cpu="1"), pod("shop-1", "spot-1", cpu="2")
    ) as here:
        provider = Notified([Deleted()])
        provider.ends = ("spot-2",)
        here.on_taint = lambda: here.add(pod("other", "spot-1", cpu="2"))
        here.loop(provider=provider).round()
        assert (here.drained, here.failures, provider.orders) == (["od-1"], [Why.PLAN_CHANGED], [])


def test_a_provider_that_does_not_respond_is_not_a_verdict_about_the_node() -> None:
    """No node cools down. Drains continue when the provider responds again."""
    with world(*LARGER_SPOT) as here:
        provider = Notified([Deleted()])
        provider.silent = True
        loop = here.loop(provider=provider)
        for _ in range(5):
            assert loop.round() is RoundOutcome.BROKEN
        assert {event.waiting for event in here.of(Held)} == {Waiting.PROVIDER_SILENT}
        assert {event.kind for event in here.of(Trouble)} == {ErrorKind.PROVIDER}
        assert (here.of(DrainStarted), here.of(CoolingDown), here.writes) == ([], [], [])
        provider.silent = False
        assert loop.round() is RoundOutcome.DRAINED


def test_nothing_is_drained_while_all_spot_nodes_are_about_to_be_reclaimed() -> None:
    with world(*LARGER_SPOT) as here:
        provider = Notified([Deleted()])
        provider.ends = ("spot-1", "spot-2")
        loop = here.loop(provider=provider)
        assert loop.round() is RoundOutcome.IDLE
        assert (here.of(DrainStarted), here.marked) == ([], [])
        (verdict, *_) = here.of(Planned)[-1].planning.verdicts
        assert "2 more nodes cannot be used: being removed" in str(verdict)
        provider.ends = ()
        assert loop.round() is RoundOutcome.DRAINED


def test_without_a_delay_the_next_round_drains() -> None:
    with world(*TWO_NODES) as here:
        here.stop_at(30)
        here.loop(Timing(node_drain_delay=timedelta())).run()
        assert [name for _, name in drains(here)] == ["od-1", "od-2"]
        assert drains(here)[1][0] <= here.times(DrainEnded)[0] + 10


def test_during_the_delay_all_nodes_are_planned_once_a_minute() -> None:
    with world(*TWO_NODES) as here:
        here.stop_at(5 * MINUTE)
        here.loop().run()
        judged = [at for at, event in here.reported if isinstance(event, Planned) and event.complete]
        assert len(judged) == 5
        assert {event.waiting for event in here.of(Held)} == {Waiting.DRAIN_DELAY}


def test_rounds_follow_each_other_at_the_interval() -> None:
    """The interval is the same with and without a drain. Rounds of a dry run are not left out."""
    with world(node("od-1", ON_DEMAND), node("spot-1")) as here:
        here.stop_at(899)
        here.loop(dry_run=True).run()
        assert len(here.of(RoundEnded)) == 90
    with world(node("od-1", ON_DEMAND), node("spot-1")) as here:
        here.stop_at(3599)
        here.loop(Timing(housekeeping_interval=timedelta(minutes=1)), dry_run=True).run()
        assert len(here.of(RoundEnded)) == 60


def test_after_a_failed_drain_the_next_node_is_drained_at_once() -> None:
    """k8s-spot-rescheduler#55: it retried the same node again and again, with the full delay each time."""
    with world(*TWO_NODES) as here:
        here.answers["default/web-1"] = [FORBIDDEN]
        here.stop_at(MINUTE)
        here.loop().run()
        assert [name for _, name in drains(here)] == ["od-1", "od-2"]
        assert drains(here)[1][0] <= here.times(DrainEnded)[0] + 2
        assert here.marked == []


def test_the_cooldown_of_a_node_doubles_with_each_failure() -> None:
    with world(*TWO_NODES[:1], *TWO_NODES[2:4]) as here:
        here.answers["default/web-1"] = [FORBIDDEN]
        here.stop_at(7 * 3600)
        here.loop(Timing(housekeeping_interval=timedelta(seconds=25))).run()
        times = here.times(DrainStarted, "od-1")
        pauses = [round((later - earlier) / MINUTE) for earlier, later in itertools.pairwise(times)]
        assert pauses == [5, 10, 20, 40, 80, 120, 120]
        first = here.of(CoolingDown)[0]
        assert (first.node.name, first.failures) == ("od-1", 1)
        assert dt.timedelta(minutes=5) <= first.until - START < dt.timedelta(minutes=5, seconds=5)


def test_a_success_resets_the_cooldown() -> None:
    with world(*TWO_NODES[:1], *TWO_NODES[2:4]) as here:
        here.answers["default/web-1"] = [FORBIDDEN, FORBIDDEN, EvictionAccepted("")]
        loop = here.loop(Timing(node_drain_delay=timedelta()))
        here.stop_at(20 * MINUTE)
        loop.run()
        assert [event.failures for event in here.of(CoolingDown)] == [1, 2]
        here.add(pod("new-1", "od-1"))
        here.answers["default/new-1"] = [FORBIDDEN]
        here.stopping = False
        here.stop_at(here.now + MINUTE)
        loop.run()
        assert [event.failures for event in here.of(CoolingDown)] == [1, 2, 1]


def test_cooldowns_are_reported() -> None:
    with world(*TWO_NODES[:1], *TWO_NODES[2:4]) as here:
        here.answers["default/web-1"] = [FORBIDDEN]
        here.stop_at(MINUTE)
        here.loop().run()
        assert list(here.of(Observed)[0].cooling) == []
        assert list(here.of(Observed)[-1].cooling) == ["od-1"]


def test_a_node_that_is_gone_is_dropped() -> None:
    with world(*TWO_NODES[:1], *TWO_NODES[2:4]) as here:
        here.answers["default/web-1"] = [FORBIDDEN]
        loop = here.loop()
        loop.round()
        here.cluster.delete("Node", "od-1")
        loop.round()
        assert here.of(Observed)[-1].cooling == {}


def unschedulable(name: str, since: float = 0, cpu: str = "1") -> dict[str, object]:
    moment = f"{START + timedelta(seconds=since):%Y-%m-%dT%H:%M:%SZ}"
    condition = {"type": "PodScheduled", "status": "False", "reason": "Unschedulable", "lastTransitionTime": moment}
    return pod(name, cpu=cpu, status={"conditions": [condition]})


def new(name: str, **spec: Any) -> Manifest:
    """A pod that the scheduler has not processed yet."""
    created = pod(name, **spec)
    created["metadata"]["creationTimestamp"] = f"{START:%Y-%m-%dT%H:%M:%SZ}"
    return created


ROOM_FOR_ONE = (node("od-1", ON_DEMAND), node("spot-1", cpu="8"), pod("web-1", "od-1", cpu="3"))


@pytest.mark.parametrize(
    "waits",
    [
        pytest.param(new("waits-1", cpu="6"), id="new"),
        pytest.param(unschedulable("waits-1", cpu="6"), id="unschedulable until now"),
        pytest.param(pod("waits-1", cpu="6", status={"nominatedNodeName": "spot-1"}), id="nominated"),
    ],
)
def test_pending_pods_keep_their_room_and_stop_no_drain(waits: Manifest) -> None:
    with world(*ROOM_FOR_ONE, node("od-2", ON_DEMAND), pod("db-1", "od-2"), pod("db-2", "od-2"), waits) as here:
        loop = here.loop(Timing(node_drain_delay=timedelta()))
        assert loop.round() is RoundOutcome.DRAINED
        assert [name for _, name in drains(here)] == ["od-2"]
        assert loop.round() is RoundOutcome.IDLE
        assert here.of(Planned)[-1].planning.pending == TakenRoom(1, 6000)
        assert not here.of(Held)
        here.cluster.delete("Pod", "default/waits-1")
        assert loop.round() is RoundOutcome.DRAINED


def test_pods_that_the_scheduler_leaves_pending_take_room_for_ten_minutes() -> None:
    """Something that the plugins do not know keeps them: a namespace must not hold the spot nodes back for ever."""
    with world(*ROOM_FOR_ONE, new("waits-1", cpu="6")) as here:
        here.stop_at(20 * MINUTE)
        here.loop().run()
        ((at, _),) = drains(here)
        assert 11 * MINUTE < at <= 11 * MINUTE + 20


def test_pods_that_are_created_again_before_they_are_old_take_room_for_ten_minutes() -> None:
    with world(*ROOM_FOR_ONE) as here:

        def again() -> None:
            here.cluster.delete("Pod", "default/waits-1")
            here.add(pod("waits-1", cpu="6", created=here.time()))
            here.at(here.now + 50, again)

        again()
        here.stop_at(30 * MINUTE)
        here.loop().run()
        ((at, _),) = drains(here)
        assert 11 * MINUTE <= at <= 11 * MINUTE + 30


@pytest.mark.parametrize(
    "waits",
    [
        pytest.param(unschedulable("huge-1", cpu="64"), id="a pod that fits on no spot node"),
        pytest.param(new("nobodys-1", cpu="6", schedulerName="nobody"), id="a pod of an unknown scheduler"),
        pytest.param(pod("gated-1", cpu="6", schedulingGates=[{"name": "x"}]), id="a pod with a scheduling gate"),
    ],
)
def test_pods_that_nothing_will_place_take_no_room(waits: Manifest) -> None:
    with world(*ROOM_FOR_ONE, waits) as here:
        assert here.loop().round() is RoundOutcome.DRAINED


WAITING = Timing(wait_for_pending_pods=True)


def test_with_compat_pending_pods_that_fit_on_spot_delay_drains_for_ten_minutes() -> None:
    with world(*TWO_NODES, unschedulable("waits-1")) as here:
        here.stop_at(11 * MINUTE)
        here.loop(WAITING).run()
        assert here.of(Held)[0].waiting is Waiting.PENDING_PODS
        assert "default/waits-1" in here.of(Held)[0].detail
        assert 10 * MINUTE < drains(here)[0][0] <= 10 * MINUTE + 10


@pytest.mark.parametrize(
    ("waits", "timing"),
    [
        pytest.param(unschedulable("huge-1", cpu="64"), WAITING, id="a pod that fits on no spot node"),
        pytest.param(unschedulable("waits-1"), replace(WAITING, pending_patience=timedelta()), id="no patience"),
        pytest.param(unschedulable("old-1", since=-601), WAITING, id="a pod that has been pending for long"),
        pytest.param(new("nobodys-1", schedulerName="nobody"), WAITING, id="a new pod of an unknown scheduler"),
        pytest.param(pod("gated-1", schedulingGates=[{"name": "x"}]), WAITING, id="a pod with a scheduling gate"),
    ],
)
def test_with_compat_pending_pods_that_do_not_delay_drains(waits: Manifest, timing: Timing) -> None:
    with world(*TWO_NODES, waits) as here:
        assert here.loop(timing).round() is RoundOutcome.DRAINED


def test_with_compat_drains_wait_up_to_a_minute_for_new_pods() -> None:
    """Evicted pods may not be rescheduled yet, so a plan could use the room that they need."""
    with world(*TWO_NODES, new("new-1")) as here:
        here.stop_at(2 * MINUTE)
        here.loop(WAITING).run()
        assert here.of(Held)[0].waiting is Waiting.PENDING_PODS
        assert MINUTE <= drains(here)[0][0] <= MINUTE + 10


def test_a_replica_that_does_not_lead_only_watches() -> None:
    with world(*TWO_NODES) as here:
        here.leading = False
        here.at(MINUTE, lambda: setattr(here, "leading", True))
        here.stop_at(2 * MINUTE)
        here.loop().run()
        assert [event.leading for event in here.of(LeadershipChanged)] == [False, True]
        assert here.of(Held)[0] == Held(Waiting.NOT_LEADING, "this replica does not hold the Lease yet")
        assert MINUTE <= drains(here)[0][0] <= MINUTE + 2


def test_a_replica_that_does_not_lead_plans_once_a_minute_and_writes_nothing() -> None:
    with world(*TWO_NODES) as here:
        here.leading, here.rival = False, "other-pod"
        here.stop_at(2 * MINUTE + 1)
        here.loop().run()
        assert [at for at, event in here.reported if isinstance(event, Surveyed)] == [0.0, MINUTE, 2 * MINUTE]
        verdicts = {verdict.node: len(verdict.placements) for verdict in here.of(Surveyed)[0].planned.planning.plans}
        assert verdicts == {"od-1": 1, "od-2": 2}
        assert set(here.of(Held)) == {Held(Waiting.NOT_LEADING, "another replica leads: other-pod", "other-pod")}
        assert (here.writes, here.config_map.stored, here.of(Planned), here.of(DrainStarted)) == ([], None, [], [])


def test_a_replica_that_does_not_lead_looks_again_soon_whatever_the_interval() -> None:
    with world(*TWO_NODES) as here:
        here.leading, here.rival = False, "first"
        here.at(MINUTE, lambda: setattr(here, "rival", "second"))
        here.stop_at(MINUTE + 11)
        here.loop(timing=Timing(housekeeping_interval=timedelta(minutes=30))).run()
        holders = {held.leader: round(at) for at, held in here.reported if isinstance(held, Held)}
        assert MINUTE <= holders["second"] <= MINUTE + 11


def test_a_replica_that_does_not_lead_reads_the_stored_cooldowns_and_keeps_nothing() -> None:
    with world(*TWO_NODES) as here:
        here.answers["default/web-1"] = [FORBIDDEN]
        assert here.loop().round() is RoundOutcome.FAILED
        stored, here.leading = here.config_map.stored, False
        here.writes.clear()
        loop = here.loop(holder="other")
        assert loop.round() is RoundOutcome.UNFIT
        [survey] = here.of(Surveyed)
        assert {verdict.node: verdict.reason for verdict in survey.planned.planning.rejected} == {
            "od-1": Reason.COOLING_DOWN
        }
        assert (here.config_map.stored, here.writes) == (stored, [])


def test_a_replica_that_does_not_lead_plans_nothing_from_a_state_that_it_cannot_read() -> None:
    with world(*TWO_NODES) as here:
        here.leading, here.synced, here.missing = False, False, ("Pod",)
        assert here.loop().round() is RoundOutcome.UNFIT
        assert here.of(Surveyed) == []


def test_nothing_is_decided_while_a_kind_cannot_be_read() -> None:
    with world(*TWO_NODES) as here:
        loop = here.loop()
        here.synced, here.missing = False, ("Pod",)
        assert loop.round() is RoundOutcome.UNFIT
        here.synced = True
        here.errors = {"Node": Retryable("list nodes: no connection")}
        assert loop.round() is RoundOutcome.UNFIT
        assert [event.detail for event in here.of(Held)] == [
            "not read yet: Pod",
            "Node cannot be read at present: list nodes: no connection",
        ]
        assert not any(event.succeeded for event in here.of(RoundEnded))
        here.errors = {}
        assert loop.round() is RoundOutcome.DRAINED


def test_nothing_is_decided_without_the_rights_for_it() -> None:
    with world(*TWO_NODES) as here:
        loop = here.loop()
        here.missing_rights = "may not create pods/eviction"
        assert loop.round() is RoundOutcome.UNFIT
        assert (here.of(Held), here.drained) == ([Held(Waiting.NOT_SYNCED, "may not create pods/eviction")], [])
        here.missing_rights = ""
        assert loop.round() is RoundOutcome.DRAINED


@pytest.mark.parametrize("watching", [True, False])
def test_a_replica_that_does_not_lead_any_more_forgets_what_it_knew_and_did_not_store(watching: bool) -> None:
    """Also if it cannot plan for its status page, because its watches have failed."""
    with world(*TWO_NODES) as here:
        loop = here.loop()
        assert loop.round() is RoundOutcome.DRAINED
        here.history.node_failed("od-2", "uid-od-2")
        here.leading, here.synced = False, watching
        loop.round()
        assert here.history.memory == Memory()
        here.leading = here.synced = True
        loop.round()
        assert "od-2" not in here.memory.cooldowns.by_node


def test_missing_rights_are_reported_before_temporary_errors() -> None:
    with world(*TWO_NODES) as here:
        loop = here.loop()
        here.synced, here.missing = False, ("CSIDriver", "Node")
        here.errors = {
            "Node": Retryable("list nodes: no connection"),
            "CSIDriver": Forbidden("list csidrivers: csidrivers is forbidden (403)"),
        }
        assert loop.round() is RoundOutcome.UNFIT
        missing = "not read yet: CSIDriver, Node"
        errors = "list csidrivers: csidrivers is forbidden (403); list nodes: no connection"
        assert here.of(Held) == [Held(Waiting.NOT_SYNCED, f"{missing}; {errors}")]


def test_a_silent_watch_holds_drains_and_sweeps() -> None:
    with world(*TWO_NODES) as here:
        here.mark("od-2", "left by a dead process")
        loop = here.loop()
        here.watch_ages = {"Node": 3.0, "Pod": 163.2, "CSIDriver": 150.0}
        assert loop.round() is RoundOutcome.UNFIT
        assert here.of(WatchAges)[-1] == WatchAges({"Node": 3.0, "Pod": 163.2, "CSIDriver": 150.0})
        assert here.of(Held) == [Held(Waiting.STALE_WATCH, "Pod: no event or bookmark for 163 s")]
        assert here.writes == []
        here.watch_ages = {"Node": 151, "Pod": 163.2, "CSIDriver": 150.0, "CSINode": 151, "Namespace": 151}
        assert loop.round() is RoundOutcome.UNFIT
        silent = (("Pod", 163), ("CSINode", 151), ("Namespace", 151))
        named = ", ".join(f"{kind}: no event or bookmark for {age} s" for kind, age in silent)
        assert here.of(Held)[-1] == Held(Waiting.STALE_WATCH, f"{named}, and 1 more")
        here.watch_ages = {"Node": 4.0, "Pod": 0.1, "CSIDriver": 0.3}
        assert loop.round() is not RoundOutcome.UNFIT


def test_dry_run_decides_and_changes_nothing() -> None:
    with world(*TWO_NODES) as here:
        here.mark("od-2", "left by a dead process")
        here.stop_at(MINUTE)
        here.loop(dry_run=True).run()
        assert here.writes == []
        planned = here.of(Planned)[-1]
        assert [item.node for item in planned.planning.plans] == ["od-1", "od-2"]
        assert planned.complete


def test_an_internal_error_ends_the_round_and_not_the_daemon(monkeypatch: pytest.MonkeyPatch) -> None:
    with world(*TWO_NODES) as here:
        loop = here.loop()
        with monkeypatch.context() as patch:
            patch.setattr(here, "snapshot", lambda: 1 / 0)
            assert loop.round() is RoundOutcome.BROKEN
        assert here.of(Trouble) == [Trouble(ErrorKind.ROUND, "ZeroDivisionError: division by zero")]
        detail = "the round failed: ZeroDivisionError: division by zero"
        assert here.of(Held) == [Held(Waiting.ROUND_FAILED, detail)]
        assert loop.round() is RoundOutcome.DRAINED


class TestOnce:
    def test_once_drains_one_node(self) -> None:
        with world(*TWO_NODES) as here:
            assert here.loop().once(timedelta(minutes=2)) is RoundOutcome.DRAINED
            assert len(drains(here)) == 1

    def test_once_waits_until_the_cluster_is_read(self) -> None:
        with world(*TWO_NODES) as here:
            here.synced = False
            here.at(MINUTE, lambda: setattr(here, "synced", True))
            assert here.loop().once(timedelta(minutes=2)) is RoundOutcome.DRAINED

    def test_once_times_out_if_the_cluster_is_not_read(self) -> None:
        with world(*TWO_NODES) as here:
            here.synced = False
            assert here.loop().once(timedelta(minutes=2)) is RoundOutcome.UNFIT
            assert here.now == pytest.approx(120, abs=2)

    def test_once_waits_for_a_long_interval_only_until_its_limit(self) -> None:
        with world(*TWO_NODES) as here:
            here.leading, here.rival = False, "other-pod"
            loop = here.loop(timing=Timing(housekeeping_interval=timedelta(minutes=30)))
            assert loop.once(timedelta(seconds=123)) is RoundOutcome.UNFIT
            assert here.now == pytest.approx(123, abs=1)

    def test_once_drains_another_node_after_a_failed_drain(self) -> None:
        with world(*TWO_NODES) as here:
            here.answers["default/web-1"] = [FORBIDDEN]
            assert here.loop().once(timedelta(minutes=2)) is RoundOutcome.DRAINED

    def test_once_fails_if_all_drains_fail(self) -> None:
        with world(*TWO_NODES[:1], *TWO_NODES[2:4]) as here:
            here.answers["default/web-1"] = [FORBIDDEN]
            assert here.loop().once(timedelta(minutes=2)) is RoundOutcome.FAILED

    def test_once_fails_if_its_drain_is_stopped(self) -> None:
        with world(*TWO_NODES) as here:
            here.endless = {"default/web-1"}
            here.stop_at(5)
            assert here.loop().once(timedelta(minutes=2)) is RoundOutcome.FAILED

    def test_once_succeeds_without_a_drainable_node(self) -> None:
        with world(node("od-1", ON_DEMAND), node("spot-1")) as here:
            assert here.loop().once(timedelta(minutes=2)) is RoundOutcome.IDLE


def test_a_drain_waits_for_a_budget() -> None:
    refused = EvictionRefused("", "would violate the budget", None)
    with world(*TWO_NODES[:1], *TWO_NODES[2:4]) as here:
        here.answers["default/web-1"] = [refused, refused, refused, EvictionAccepted("")]
        assert here.loop().round() is RoundOutcome.DRAINED
        assert [kind for kind, _ in here.writes] == [
            "taint",
            "taint",
            "evict",
            "evict",
            "taint",
            "evict",
            "evict",
            "untaint",
        ]
        assert 7 <= here.now < 10


def test_only_pods_that_move_are_counted() -> None:
    with world(*TWO_NODES, pod("agent-1", "od-1", owner="DaemonSet")) as here:
        here.loop(dry_run=True).round()
        assert here.of(Observed)[0].pods == {
            "node-role.kubernetes.io/worker": {"od-1": 1, "od-2": 2},
            "node-role.kubernetes.io/spot-worker": {"spot-1": 0},
        }


def test_ready_nodes_are_counted_and_labels_without_nodes_are_reported() -> None:
    with world(node("od-1", ON_DEMAND), node("od-2", ON_DEMAND, ready="False")) as here:
        here.loop(dry_run=True).round()
        [observed, *_] = here.of(Observed)
        assert observed.pods == {
            "node-role.kubernetes.io/worker": {"od-1": 0},
            "node-role.kubernetes.io/spot-worker": {},
        }
        assert observed.unmatched == ("node-role.kubernetes.io/spot-worker",)
