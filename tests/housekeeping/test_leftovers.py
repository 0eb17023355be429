"""The daemon moves leftovers: first what makes room on the nodes that stay, then the node; and what stops it."""

import contextlib
from collections.abc import Iterator, Sequence
from datetime import timedelta
from typing import Any, Final

import pytest

from rescheduler.draining.actions import Intent, Step, read
from rescheduler.draining.events import EvictionRefused
from rescheduler.draining.state import Why
from rescheduler.housekeeping.loop import RoundOutcome
from rescheduler.observe.events import DrainEnded, DrainStarted
from rescheduler.planning.movements import LeftoverMoves
from rescheduler.planning.outcome import DrainKind
from rescheduler.planning.policy import Leftovers
from rescheduler.providers.base import Deleted
from rescheduler.settings import Timing
from tests.housekeeping.world import IDENTITY, START, LoopWorld, Replacement, ScriptedProvider, world
from tests.planning.builders import Manifest, node, pod
from tests.planning.test_leftovers import FULL, PIN, ROOMY

QUICK: Final = Timing(node_drain_delay=timedelta(0))


@contextlib.contextmanager
def cluster(objects: Sequence[Manifest]) -> Iterator[LoopWorld]:
    """Let the replacements of leftovers run on the other on-demand node, and all others on the spot node."""
    renamed = [node("spot-1", cpu="8") if each["metadata"]["name"] == "s" else each for each in objects]
    with world(*renamed) as here:
        here.leftovers = Leftovers.MOVE
        for leftover in ("b", "c"):
            here.replacements[leftover] = Replacement.RETURNING
        yield here


def places(here: LoopWorld) -> dict[str, str]:
    return {pod.name.removesuffix("-again"): pod.node_name for pod in here.cluster.pods.values()}


def steps(here: LoopWorld) -> list[tuple[str, DrainKind]]:
    return [(event.node.name, event.plan.kind) for event in here.of(DrainStarted) if event.plan is not None]


def test_a_node_is_emptied_and_its_machine_ends() -> None:
    provider = ScriptedProvider([Deleted()])
    with cluster(ROOMY) as here:
        assert here.loop(QUICK, provider=provider).round() is RoundOutcome.DRAINED
        assert steps(here) == [("od-2", DrainKind.LEFTOVERS)]
        assert places(here) == {"a-1": "od-1", "b-1": "od-1", "c-1": "od-1"}
        assert ("delete", "od-2") in here.writes
        assert (here.failures, here.marked) == ([None], [])


def test_by_default_nothing_is_moved() -> None:
    with cluster(ROOMY) as here:
        here.leftovers = Leftovers.PLAN
        assert here.loop(QUICK).round() is RoundOutcome.IDLE
        assert (steps(here), here.writes) == ([], [])


def test_room_is_made_first_and_the_node_is_emptied_in_the_next_round() -> None:
    provider = ScriptedProvider([Deleted()])
    with cluster(FULL) as here:
        loop = here.loop(QUICK, provider=provider)
        assert loop.round() is RoundOutcome.DRAINED
        assert steps(here) == [("od-2", DrainKind.MAKES_ROOM)]
        assert places(here)["d-2"] == "spot-1"
        assert here.marked == []
        assert provider.orders == []
        assert loop.round() is RoundOutcome.DRAINED
        assert steps(here)[1:] == [("od-1", DrainKind.LEFTOVERS)]
        assert places(here) == {"a-1": "spot-1", "b-1": "od-2", "c-1": "od-2", "d-1": "od-2", "d-2": "spot-1"}
        assert ("delete", "od-1") in here.writes
        assert here.failures == [None, None]


def template(name: str, cpu: str = "1", **spec: Any) -> Manifest:
    containers = [{"name": "main", "image": "app:1", "resources": {"requests": {"cpu": cpu}}}]
    labels = {"app": name, "pod-template-hash": "1"}
    return {
        "apiVersion": "apps/v1",
        "kind": "ReplicaSet",
        "metadata": {"name": name, "namespace": "default", "uid": f"uid-of-{name}"},
        "spec": {"template": {"metadata": {"labels": labels}, "spec": {"containers": containers, **spec}}},
    }


def test_room_is_made_in_the_first_round_although_its_checks_read_pod_templates() -> None:
    """A plan for the node alone would have no room for its leftover yet."""
    with cluster(FULL) as here:
        here.templates = [template("a", "3"), template("b", **PIN), template("c", **PIN), template("d")]
        assert here.loop(QUICK).round() is RoundOutcome.DRAINED
        assert steps(here) == [("od-2", DrainKind.MAKES_ROOM)]


@pytest.mark.parametrize(("grown", "gives"), [("b", ["od-1"]), ("d", [])], ids=["a leftover", "what is given"])
def test_a_plan_that_makes_room_is_made_again_with_templates_that_request_more(grown: str, gives: list[str]) -> None:
    """The next pods have no place. If the leftover of od-1 has none, od-1 can still make room for that of od-2."""
    with cluster(FULL) as here:
        here.templates = [template(grown, "9", **(PIN if grown == "b" else {}))]
        here.loop(QUICK).round()
        assert steps(here) == [(node, DrainKind.MAKES_ROOM) for node in gives]


def test_a_node_gives_no_more_pods_for_hours_if_something_else_takes_the_room() -> None:
    """Each time a new pod is bound before the leftover is moved."""
    with cluster([*FULL, pod("e-1", "od-2", cpu="0")]) as here:
        loop = here.loop(QUICK)
        assert loop.round() is RoundOutcome.DRAINED
        here.add(pod("f-1", "od-2", owner=None))
        for _ in range(6):
            here.pass_time(15 * 60)
            assert loop.round() is RoundOutcome.IDLE
        assert steps(here) == [("od-2", DrainKind.MAKES_ROOM)]
        cooldown = here.memory.cooldowns.by_node["od-2"]
        assert (cooldown.failures, cooldown.reason) == (0, "cooling-down")
        here.pass_time(60 * 60)
        loop.round()
        assert steps(here)[1:] == [("od-2", DrainKind.MAKES_ROOM)]


def test_a_node_whose_room_was_used_may_give_again() -> None:
    with cluster(FULL) as here:
        loop = here.loop(QUICK, provider=ScriptedProvider([Deleted()]))
        loop.round()
        assert here.memory.cooldowns.by_node.keys() == {"od-2"}
        loop.round()
        assert here.memory.cooldowns.by_node == {}


def test_the_ledger_of_savings_counts_no_node_that_stays() -> None:
    from tests.planning.test_leftovers import PRICES  # noqa: PLC0415

    with cluster(FULL) as here:
        here.loop(QUICK, provider=ScriptedProvider([Deleted()]), prices=PRICES).round()
        assert here.savings_map.stored is None or b"od-2" not in here.savings_map.stored.content


def test_the_drain_delay_is_kept_between_both() -> None:
    with cluster(FULL) as here:
        loop = here.loop()
        loop.round()
        assert loop.round() is RoundOutcome.HELD
        assert len(steps(here)) == 1


@pytest.mark.parametrize("fate", [Replacement.UNREADY, Replacement.UNSCHEDULABLE, Replacement.REFUSED])
def test_the_node_is_not_emptied_if_what_made_room_does_not_run_again(fate: Replacement) -> None:
    with cluster(FULL) as here:
        here.replacements["d"] = fate
        loop = here.loop(QUICK)
        assert loop.round() is RoundOutcome.FAILED
        assert steps(here) == [("od-2", DrainKind.MAKES_ROOM)]
        for _ in range(5):
            loop.round()
            here.pass_time(10)
        assert len(steps(here)) == 1
        assert here.marked == []
        assert places(here)["a-1"] == "od-1"


def test_a_crash_while_room_is_made_reopens_the_node_and_what_it_owes_is_kept() -> None:
    """The next daemon plans from what it sees then."""
    with cluster(FULL) as here:
        here.replacements["d"] = Replacement.UNREADY
        crash = KeyboardInterrupt()

        def kill() -> None:
            raise crash

        here.on_evicted = kill
        with pytest.raises(KeyboardInterrupt):
            here.loop(QUICK, holder="before").round()
        assert here.marked == ["od-2"]
        written = read(here.node("od-2"))
        assert written is not None
        assert (written.kind, written.pods) == (DrainKind.MAKES_ROOM, ("uid-d-2",))
        here.on_evicted = lambda: None
        loop = here.loop(QUICK)
        assert loop.round() is RoundOutcome.HELD
        assert here.marked == []
        assert [owed.debt.controller.name for owed in here.memory.debts] == ["d"]
        assert loop.round() is RoundOutcome.HELD
        assert len(steps(here)) == 1
        here.recover("d")
        assert loop.round() is RoundOutcome.DRAINED
        assert steps(here)[1:] == [("od-1", DrainKind.LEFTOVERS)]


def test_a_crash_while_leftovers_move_is_resumed_for_the_same_purpose() -> None:
    with cluster(ROOMY) as here:
        mark = Intent("before", Step.DRAINING, START, ("uid-c-1",), identity=IDENTITY, kind=DrainKind.LEFTOVERS)
        here.mark("od-2", mark.dump())
        here.loop(QUICK, provider=ScriptedProvider([Deleted()])).round()
        assert places(here)["c-1"] == "od-1"
        assert ("delete", "od-2") in here.writes
        assert here.failures == [None]


def test_a_drain_to_spot_nodes_is_not_resumed_with_leftovers() -> None:
    with cluster(ROOMY) as here:
        here.mark("od-2", Intent("before", Step.DRAINING, START, ("uid-c-1",), identity=IDENTITY).dump())
        here.loop(QUICK).round()
        assert (here.failures, here.marked, places(here)["c-1"]) == ([Why.PLAN_CHANGED], [], "od-2")


def test_what_moved_rests_for_a_day_also_with_another_daemon() -> None:
    """After the leftover of od-2 has moved to od-1, another node joins, to which both would fit."""
    with cluster(ROOMY) as here:
        here.loop(QUICK, provider=ScriptedProvider([Deleted()])).round()
        assert here.memory.leftovers.by_owner.keys() == {"default/uid-of-c"}
        here.add(node("od-3", "node-role.kubernetes.io/worker"))
        here.add(pod("e-1", "od-3", annotations={"cluster-autoscaler.kubernetes.io/safe-to-evict": "false"}))
        for hours, drained in ((1, 1), (22, 1), (2, 2)):
            here.pass_time(hours * 3600)
            here.loop(QUICK, holder=f"after {hours}", provider=ScriptedProvider([Deleted()])).round()
            assert len(steps(here)) == drained


def test_leftovers_that_land_as_planned_do_not_count_as_returned() -> None:
    with cluster([*ROOMY, pod("c-2", "od-2", **PIN)]) as here:
        loop = here.loop(QUICK, provider=ScriptedProvider([Deleted()]))
        loop.round()
        [ended] = here.of(DrainEnded)
        assert (ended.returned, ended.kind) == (0, DrainKind.LEFTOVERS)
        assert here.memory.returned.until is None


# Rest after a drain that failed


TWO: Final = [*ROOMY, pod("f-1", "od-2", cpu="0", **PIN), pod("g-1", "od-1", cpu="0"), pod("g-2", "od-1", cpu="0")]
OWNERS: Final = {name: f"default/uid-of-{name}" for name in ("c", "f")}


def resting(here: LoopWorld) -> set[str]:
    owners = here.memory.leftovers.resting(here.clock.now(), timedelta(hours=24))
    return {name for name, owner in OWNERS.items() if owner in owners}


@pytest.fixture
def two() -> Iterator[LoopWorld]:
    """Return a cluster in which od-2 has the leftovers c-1 and f-1, whose place is od-1."""
    with cluster(TWO) as here:
        here.replacements["f"] = Replacement.RETURNING
        yield here


def test_what_a_refused_drain_did_not_move_does_not_rest(two: LoopWorld) -> None:
    two.tries["default/f-1"] = EvictionRefused("", "no")
    two.loop(QUICK).round()
    assert (two.failures, resting(two)) == ([Why.EVICTION_REFUSED], set())


def stayed(here: LoopWorld) -> set[str]:
    return {name for name in OWNERS if f"default/{name}-1" in here.cluster.pods}


@pytest.mark.parametrize(
    "fate", [Replacement.UNREADY, Replacement.UNSCHEDULABLE, Replacement.REFUSED, Replacement.LATE, Replacement.UNBOUND]
)
def test_after_a_failure_only_what_moved_rests(two: LoopWorld, fate: Replacement) -> None:
    """The replacement of the first pod does not run, so the other one stays."""
    two.replacements |= dict.fromkeys(OWNERS, fate)
    two.loop(QUICK).round()
    assert len(two.failures) == len(stayed(two)) == 1
    assert resting(two) == OWNERS.keys() - stayed(two)


@pytest.mark.parametrize("name", OWNERS)
def test_after_a_time_out_only_what_moved_rests(two: LoopWorld, name: str) -> None:
    two.answers[f"default/{name}-1"] = [EvictionRefused("", "its budget")]
    two.loop(QUICK).round()
    assert two.failures == [Why.EVICTION_TIMEOUT]
    assert name in stayed(two)
    assert resting(two) == OWNERS.keys() - stayed(two)


@pytest.mark.parametrize("moves", [0, 1])
def test_after_a_stop_only_what_moved_rests(two: LoopWorld, moves: int) -> None:
    def stop() -> None:
        two.stopping = True

    two.on_taint, two.on_evicted = (two.on_taint, stop) if moves else (stop, two.on_evicted)
    two.loop(QUICK).round()
    assert (two.failures, len(stayed(two))) == ([Why.STOPPED], 2 - moves)
    assert resting(two) == OWNERS.keys() - stayed(two)


@pytest.mark.parametrize("moves", [0, 1])
def test_after_a_crash_all_rest_until_the_next_daemon_knows_what_moved(
    two: LoopWorld, moves: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    two.replacements |= dict.fromkeys(OWNERS, Replacement.UNREADY)
    crash = KeyboardInterrupt()

    def kill(*_: object, **__: object) -> None:
        raise crash

    with monkeypatch.context() as killed:
        killed.setattr(two, "on_evicted" if moves else "evict", kill)
        with pytest.raises(KeyboardInterrupt):
            two.loop(QUICK, holder="before").round()
    assert len(stayed(two)) == 2 - moves
    assert resting(two) == OWNERS.keys()
    two.pass_time(3600)
    two.loop(QUICK).round()
    assert two.marked == []
    assert resting(two) == OWNERS.keys() - stayed(two)


def test_the_next_drain_counts_what_a_drain_that_never_ended_has_moved() -> None:
    """The process was killed, and the node is gone with its mark."""
    started = LeftoverMoves().beginning({"1": "a/x", "2": "a/y"}, START)
    began, ended = START + timedelta(hours=1), START + timedelta(hours=2)
    later = started.beginning({"2": "a/y", "3": "a/z"}, began).ended({"2"}, ended)
    assert later == LeftoverMoves({"a/x": began, "a/z": ended}, {"a/x": START, "a/z": began})


def test_the_pods_of_a_drain_that_never_ended_do_not_rest_for_ever() -> None:
    known, rest = LeftoverMoves().beginning({"1": "a/x"}, START), timedelta(hours=1)
    days = [known.resting(START + timedelta(days=1, minutes=minutes), rest).keys() for minutes in (0, 59, 60)]
    assert days == [{"a/x"}, {"a/x"}, set()]
    assert known.bounded(START + timedelta(days=32)) == LeftoverMoves()


def test_a_pod_that_moves_late_in_a_drain_rests_as_long_as_others() -> None:
    """Its drain began 50 minutes before."""
    moved = START + timedelta(minutes=50)
    known = LeftoverMoves().beginning({"1": "a/x"}, START).ended((), moved)
    resting = [known.resting(moved + timedelta(minutes=minutes), timedelta(hours=1)) for minutes in (0, 59, 60)]
    assert resting == [{"a/x": START}, {"a/x": START}, {}]
