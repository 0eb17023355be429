"""Ownership of the marks on a node, and resumed removals of earlier processes."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from datetime import timedelta
from typing import Any, Final
from unittest import mock

import msgspec
import pytest

from predicates.objects import Node
from predicates.snapshot import DRAIN_TAINT
from rescheduler.draining import actions
from rescheduler.draining.actions import ANNOTATION, Intent, Step
from rescheduler.draining.state import Why
from rescheduler.errors import ReschedulerError, Retryable
from rescheduler.housekeeping.loop import RoundOutcome
from rescheduler.kube.cluster import NodeEdit
from rescheduler.observe.events import (
    Held,
    InvolvedNode,
    MachineGone,
    Planned,
    RemovalPostponed,
    Sweep,
    Swept,
    Waiting,
)
from rescheduler.planning.controllers import Controller
from rescheduler.planning.debts import Debt, OpenDebt
from rescheduler.planning.outcome import Blocker, Reason, Rejected
from rescheduler.providers.base import (
    Accepted,
    AlreadyGone,
    Deleted,
    DeleteOutcome,
    Failed,
    MayEnd,
    NodeRef,
    any_may_end,
)
from rescheduler.settings import Timing
from tests.housekeeping.world import CLUSTER, IDENTITY, LIMITS, START, LoopWorld, Replacement, ScriptedProvider, world
from tests.planning.builders import ON_DEMAND, SPOT, node, pod

ONE_NODE = (CLUSTER[0], CLUSTER[2], CLUSTER[3])
EMPTY = (CLUSTER[0], CLUSTER[2])
OD = InvolvedNode("od-1", "uid-od-1")
WEB = Controller("default", "ReplicaSet", "web", "uid-of-web")
OWED = Debt(WEB, ready=1, bound=1, owner_uids=("uid-of-web",))
FOREIGN = Intent("them", Step.DRAINING, START, until=START + timedelta(minutes=3), identity="other/lease")
BEFORE = Intent("before", Step.DRAINING, START, ("uid-web-1",), identity=IDENTITY, debts=(OWED,))
ORDERED = Intent("before", Step.REMOVING, START, group="workers", identity=IDENTITY)
PROTECTED = pod("late-1", "od-1", annotations={"cluster-autoscaler.kubernetes.io/safe-to-evict": "false"})
HOUR: Final = 3600.0


def mark(here: LoopWorld, written: Intent) -> None:
    here.mark("od-1", written.dump(), actions.taint(written.holder))


def written_on(here: LoopWorld) -> Intent | None:
    return actions.read(here.node("od-1"))


def blockers(here: LoopWorld) -> tuple[Blocker, ...]:
    [verdict] = [verdict for verdict in here.of(Planned)[-1].planning.verdicts if verdict.node == "od-1"]
    assert isinstance(verdict, Rejected)
    return verdict.blockers


class TestAnotherInstallation:
    @pytest.mark.parametrize(("step", "does"), [(Step.DRAINING, "drains it"), (Step.REMOVING, "removes its machine")])
    def test_marks_of_another_installation_are_kept_and_block_the_node(self, step: Step, does: str) -> None:
        with world(*CLUSTER) as here:
            theirs = replace(FOREIGN, step=step, group="workers")
            mark(here, theirs)
            assert here.loop(provider=ScriptedProvider([Deleted()])).round() is RoundOutcome.DRAINED
            detail = f"installation other/lease {does} (holder them)"
            assert blockers(here)[-1] == Blocker(Reason.OTHER_INSTALLATION, detail)
            assert {name for _, name in here.writes} == {"od-2", "db-1", "db-2"}
            assert (written_on(here), here.of(Swept)) == (theirs, [])

    def test_a_drain_of_another_installation_is_rolled_back_an_hour_after_its_mark_expired(self) -> None:
        with world(*EMPTY) as here:
            mark(here, FOREIGN)
            loop = here.loop()
            here.pass_time(HOUR + 180)
            loop.round()
            overdue = "it did not renew its mark, which was valid until 2026-01-01T12:03:00Z"
            detail = f"installation other/lease drains it (holder them); {overdue}"
            assert (here.writes, blockers(here)[0].detail) == ([], detail)
            here.pass_time(1)
            assert loop.round() is RoundOutcome.HELD
            assert here.writes == [("untaint", "od-1")]
            assert here.of(Swept) == [Swept(OD, "them", Sweep.ROLLED_BACK)]
            assert (here.memory.debts, here.memory.drained_at) == ((), None)

    def test_a_removal_by_another_installation_is_only_reported(self) -> None:
        with world(*EMPTY) as here:
            mark(here, replace(FOREIGN, step=Step.REMOVING, group="workers"))
            here.pass_time(24 * HOUR)
            assert here.loop(provider=ScriptedProvider([Deleted()])).round() is RoundOutcome.IDLE
            assert (here.writes, here.of(Swept)) == ([], [])
            assert "it did not renew its mark" in blockers(here)[-1].detail

    def test_a_mark_of_another_installation_in_place_of_ours_is_kept(self) -> None:
        with world(*ONE_NODE) as here:
            here.replacements["web"] = Replacement.UNREADY
            over = NodeEdit(annotate={ANNOTATION: FOREIGN.dump()})
            here.at(30, lambda: here.edit_node("od-1", "uid-od-1", over))
            here.loop().round()
            assert (here.failures, written_on(here)) == ([Why.MARK_LOST], FOREIGN)
            assert here.now < 90

    def test_debts_are_kept_when_ours_is_lost(self) -> None:
        with world(*ONE_NODE) as here:
            here.replacements["web"] = Replacement.UNREADY
            here.at(30, lambda: here.edit_node("od-1", "uid-od-1", NodeEdit(annotate={ANNOTATION: FOREIGN.dump()})))
            here.loop().round()
            assert [owed.debt for owed in here.memory.debts] == [OWED]


class TestOurs:
    def test_a_manually_removed_taint_ends_the_drain(self) -> None:
        with world(*CLUSTER[:3], pod("web-1", "od-1"), pod("web-2", "od-1")) as here:
            here.replacements["web"] = Replacement.UNREADY
            here.at(30, lambda: here.edit_node("od-1", "uid-od-1", NodeEdit(untaint=(DRAIN_TAINT.key,))))
            here.loop().round()
            assert (here.failures, here.marked) == ([Why.MARK_LOST], [])
            assert [name for kind, name in here.writes if kind == "evict"] == ["web-1"]
            assert here.now < 31

    def test_a_mark_of_another_step_is_not_edited(self) -> None:
        """Neither a renewal nor the end of the drain overwrites the other mark."""
        with world(*ONE_NODE) as here:
            here.replacements["web"] = Replacement.UNREADY

            def move_on() -> None:
                written = written_on(here)
                assert written is not None
                further = replace(written, step=Step.REMOVING, group="workers")
                here.edit_node("od-1", "uid-od-1", NodeEdit(annotate={ANNOTATION: further.dump()}))

            here.at(30, move_on)
            here.loop().round()
            remaining = written_on(here)
            assert (here.failures, remaining and remaining.step) == ([Why.MARK_LOST], Step.REMOVING)

    def test_our_marks_are_renewed_each_minute(self) -> None:
        with world(*ONE_NODE) as here:
            here.replacements["web"] = Replacement.UNREADY
            here.at(200, lambda: here.recover("web"))
            here.loop().round()
            assert here.failures == [None]
            assert [round(at) for at, _ in here.intents] == [0, 0, 3, 60, 120, 181]
            begun = Intent("me", Step.DRAINING, START, ("uid-web-1",), identity=IDENTITY)
            written = {replace(each, until=None, debts=(), evicted=None, due=None) for _, each in here.intents}
            assert written == {begun}
            evicted, due = here.intents[-1][1].evicted, here.intents[-1][1].due
            assert evicted is not None
            assert due == evicted + timedelta(seconds=600)
            ahead = {written.until - timedelta(seconds=at) for at, written in here.intents if written.until}
            assert ahead == {START + timedelta(minutes=3)}

    def test_renewals_keep_the_time_of_the_first_removal_request(self) -> None:
        """After a restart, the provider receives the time of the first request."""
        with world(*EMPTY) as here:
            here.loop(provider=ScriptedProvider([Accepted("booked")]), limits=replace(LIMITS, removal=150)).round()
            removals = [written for _, written in here.intents if written.step is Step.REMOVING]
            assert len(removals) == 3
            assert len({written.since for written in removals}) == 1

    def test_resuming_a_drain_takes_the_whole_round(self) -> None:
        with world(*CLUSTER) as here:
            mark(here, BEFORE)
            loop = here.loop(Timing(node_drain_delay=timedelta()))
            assert loop.round() is RoundOutcome.HELD
            assert here.drained == ["od-1"]
            assert loop.round() is RoundOutcome.DRAINED
            assert here.drained == ["od-1", "od-2"]

    def test_drains_wait_for_debts_of_an_earlier_process(self) -> None:
        with world(*EMPTY) as here:
            mark(here, BEFORE)
            here.controllers["web"] = {"refusal": "exceeded quota"}
            here.at(100, lambda: here.add(pod("web-2", "spot-1")))
            loop = here.loop()
            assert loop.round() is RoundOutcome.HELD
            assert (here.failures, [owed.debt for owed in here.memory.debts]) == ([Why.REPLACEMENT_REFUSED], [OWED])
            assert loop.round() is RoundOutcome.HELD
            assert [held.waiting for held in here.of(Held)] == [Waiting.CLEANING_UP, Waiting.LANDING_PENDING]

    def test_debts_of_rolled_back_drains_are_stored_before_the_node_is_released(self) -> None:
        with world(*EMPTY) as here:
            mark(here, replace(BEFORE, holder="me"))
            known: list[tuple[OpenDebt, ...]] = []
            here.on_release = lambda: known.append(here.memory.debts)
            here.loop().round()
            assert known == [(OpenDebt("od-1", START, OWED),)]
            assert (here.of(Swept), here.marked) == ([Swept(OD, "me", Sweep.ROLLED_BACK)], [])
            assert (here.memory.debts, here.memory.drained_at) == (known[0], START)

    def test_marks_of_version_0_1_0_count_as_ours(self) -> None:
        with world(*ONE_NODE) as here:
            here.mark("od-1", '{"holder":"old","step":"draining","since":"2026-01-01T11:59:00Z","pods":["uid-web-1"]}')
            here.loop().round()
            assert [swept.done for swept in here.of(Swept)] == [Sweep.RESUMED]
            assert (here.failures, here.marked) == ([None], [])


def changed(here: LoopWorld, labels: dict[str, str] | None = None, **spec: Any) -> None:
    node = here.node("od-1")
    metadata = node.metadata if labels is None else msgspec.structs.replace(node.metadata, labels=labels)
    node = msgspec.structs.replace(node, metadata=metadata, spec=msgspec.structs.replace(node.spec, **spec))
    here.cluster.upsert("Node", node)


def marked_again(here: LoopWorld, holder: str) -> None:
    """Replace the mark by that of another *holder* of this installation, or remove it. Our taint stays."""
    node = here.node("od-1")
    written = actions.read(node)
    assert written is not None
    notes = {actions.ANNOTATION: replace(written, holder=holder).dump()} if holder else {}
    metadata = msgspec.structs.replace(node.metadata, annotations=notes)
    here.cluster.upsert("Node", msgspec.structs.replace(node, metadata=metadata))


def test_no_order_leaves_for_another_node_of_the_same_name() -> None:
    """The node was deleted and has joined again, with our mark and taint; its machine may be in use."""

    def joins_again(here: LoopWorld) -> None:
        node = here.node("od-1")
        metadata = msgspec.structs.replace(node.metadata, uid="uid-of-another")
        here.cluster.upsert("Node", msgspec.structs.replace(node, metadata=metadata))

    with world(*EMPTY) as here:
        pool = ScriptedProvider([Deleted()])
        pool.before_order = lambda: joins_again(here)
        here.loop(provider=pool).round()
        assert (pool.orders, ("delete", "od-1") in here.writes) == ([], False)


def test_pods_of_an_owner_that_only_the_mark_names_pay_its_debt_before_an_order() -> None:
    """After a restart, the state of the Deployment does not name the ReplicaSet of its replacement pods."""
    shop = Controller("default", "Deployment", "shop", "uid-of-shop")
    for uids, orders in ((("uid-of-web",), ["od-1"]), ((), [])):
        with world(*EMPTY, pod("web-2", "spot-1")) as here:
            mark(here, replace(ORDERED, debts=(Debt(shop, ready=1, bound=1, owner_uids=uids),)))
            pool = ScriptedProvider([Deleted()])
            here.loop(provider=pool).round()
            assert [ordered.name for ordered in pool.orders] == orders


#: What happens between the intent and the request that would end the machine, and why the drain fails.
OVERTAKEN: dict[str, tuple[Callable[[LoopWorld], object], Why]] = {
    "another process has marked the node": (lambda here: marked_again(here, "them"), Why.MARK_LOST),
    "the mark is removed": (lambda here: marked_again(here, ""), Why.MARK_LOST),
    "a pod that may not move": (lambda here: here.add(PROTECTED), Why.PLAN_CHANGED),
    "the taint is removed": (lambda here: changed(here, taints=()), Why.MARK_LOST),
    "the node becomes a spot node": (lambda here: changed(here, labels={SPOT: ""}), Why.NOT_ON_DEMAND),
    "the machine is another one": (lambda here: changed(here, provider_id="pool://2"), Why.NOT_ON_DEMAND),
}


@pytest.mark.parametrize("change", OVERTAKEN)
def test_no_order_leaves_if_the_node_has_changed_since_the_intent(change: str) -> None:
    happens, expected = OVERTAKEN[change]
    with world(*EMPTY) as here:
        pool = ScriptedProvider([Deleted()])
        pool.before_order = lambda: happens(here)
        here.loop(provider=pool).round()
        assert (pool.orders, here.failures) == ([], [expected])
        assert ("delete", "od-1") not in here.writes


@pytest.mark.parametrize("before", [BEFORE, ORDERED], ids=["a drain", "a removal"])
@pytest.mark.parametrize("labels", [{SPOT: ""}, {}], ids=["a spot node", "neither"])
def test_a_node_that_is_not_on_demand_any_more_is_reopened_by_the_next_process(
    before: Intent, labels: dict[str, str]
) -> None:
    with world(*ONE_NODE) as here:
        mark(here, before)
        changed(here, labels=labels)
        pool = ScriptedProvider([Deleted()])
        loop = here.loop(provider=pool)
        for _ in range(3):
            loop.round()
            here.pass_time(60)
        assert (here.marked, pool.orders) == ([], [])
        assert ("evict", "web-1") not in here.writes


class Answering(ScriptedProvider):
    """A provider that answers with an error if it was not told whether the machine may end."""

    def delete_nodes(
        self, group: str, nodes: Sequence[NodeRef], *, deadline: float, may_end: MayEnd = any_may_end
    ) -> Mapping[str, DeleteOutcome]:
        try:
            return super().delete_nodes(group, nodes, deadline=deadline, may_end=may_end)
        except ReschedulerError as error:
            return {node.name: Failed(str(error), retryable=True) for node in nodes}


@pytest.mark.parametrize("provider", [ScriptedProvider, Answering])
def test_a_read_that_fails_after_an_order_removes_no_marks(provider: type[ScriptedProvider]) -> None:
    """The order may still take effect: the machine would end without a mark."""

    def busy(*_: object) -> Any:
        raise Retryable("list pods: busy (503)")

    with world(*EMPTY) as here:
        mark(here, ORDERED)
        listed, pool = here.pods, provider([Deleted()])
        loop = here.loop(provider=pool)
        pool.before_order = lambda: setattr(here, "pods", busy)
        loop.round()
        assert (pool.orders, here.failures, written_on(here) is not None) == ([], [], True)
        pool.before_order = lambda: setattr(here, "pods", listed)
        here.pass_time(10)
        loop.round()
        assert ([order.ordered_at for order in pool.orders], here.writes[-1]) == ([START], ("delete", "od-1"))


class TestRemoval:
    def test_a_new_protected_pod_prevents_the_removal(self) -> None:
        with world(*EMPTY, PROTECTED) as here:
            mark(here, ORDERED)
            pool = ScriptedProvider([Deleted()], pending=("od-1",))
            loop = here.loop(provider=pool)
            assert loop.round() is RoundOutcome.IDLE
            assert (here.writes, pool.orders) == ([("taint", "od-1")], [])
            [postponed] = here.of(RemovalPostponed)
            assert (postponed.node, postponed.failure.why) == (OD, Why.PLAN_CHANGED)
            assert "not-safe-to-evict: pod default/late-1" in postponed.failure.detail
            written = written_on(here)
            assert written is not None
            assert (written.holder, written.step, written.since) == ("me", Step.REMOVING, START)

            here.cluster.delete("Pod", "default/late-1")
            here.pass_time(10)
            pool.pending = ()
            assert loop.round() is RoundOutcome.HELD
            assert [order.ordered_at for order in pool.orders] == [START]
            assert (here.of(MachineGone), here.writes[-1]) == ([MachineGone(OD)], ("delete", "od-1"))

    @pytest.mark.parametrize("later", [False, True], ids=["unknown to the provider", "forgotten by the provider"])
    def test_the_node_is_reopened_if_no_order_can_take_effect(self, later: bool) -> None:
        with world(*EMPTY, PROTECTED) as here:
            mark(here, ORDERED)
            pool = ScriptedProvider([Deleted()], pending=("od-1",) if later else ())
            loop = here.loop(provider=pool)
            if later:
                assert loop.round() is RoundOutcome.IDLE
                assert here.marked == ["od-1"]
                pool.pending = ()
                here.pass_time(10)
            assert loop.round() is RoundOutcome.HELD
            assert (here.marked, pool.orders, here.failures) == ([], [], [Why.PLAN_CHANGED])

    def test_other_new_pods_are_evicted_by_the_usual_rules(self) -> None:
        with world(*ONE_NODE) as here:
            mark(here, ORDERED)
            pool = ScriptedProvider([Deleted()])
            assert here.loop(provider=pool).round() is RoundOutcome.HELD
            taint = ("taint", "od-1")
            assert here.writes == [taint, taint, ("evict", "web-1"), taint, ("delete", "od-1")]
            assert {written.step for _, written in here.intents} == {Step.REMOVING}
            assert here.memory.drained_at == here.clock.now()
            assert here.memory.movements.by_uid["default/uid-of-web"].moves[0].pods == 1

    def test_a_manually_removed_taint_is_added_again_before_planning(self) -> None:
        with world(*EMPTY) as here:
            here.mark("od-1", ORDERED.dump())
            pool = ScriptedProvider([Deleted()])
            here.on_taint = lambda: here.writes.append(("orders", str(len(pool.orders))))
            here.loop(provider=pool).round()
            assert here.writes[:2] == [("taint", "od-1"), ("orders", "0")]
            assert here.now >= 5  # pods that were being bound are visible by then

    def test_debts_of_a_removal_are_kept_and_hold_drains(self) -> None:
        with world(*EMPTY, CLUSTER[1], pod("db-1", "od-2")) as here:
            mark(here, replace(ORDERED, debts=(OWED,)))
            here.controllers["web"] = {"refusal": "exceeded quota"}
            pool = ScriptedProvider([Deleted()], pending=("od-1",))
            loop = here.loop(provider=pool)
            assert loop.round() is RoundOutcome.HELD
            assert (pool.orders, len(here.of(RemovalPostponed))) == ([], 1)
            pool.pending = ()
            assert loop.round() is RoundOutcome.HELD
            assert [held.waiting for held in here.of(Held)] == [Waiting.LANDING_PENDING] * 2
            here.add(pod("web-2", "spot-1"))
            here.pass_time(10)
            assert loop.round() is RoundOutcome.HELD
            assert here.of(MachineGone) == [MachineGone(OD)]

    @pytest.mark.parametrize(
        ("ready", "orders"),
        [
            pytest.param("True", 2, id="while the Node is Ready"),
            pytest.param("Unknown", 1, id="a kubelet that is gone"),
        ],
    )
    def test_a_machine_unknown_to_the_provider_is_gone_after_one_or_two_checks(self, ready: str, orders: int) -> None:
        with world(node("od-1", ON_DEMAND, ready=ready), EMPTY[1]) as here:
            mark(here, ORDERED)
            pool = ScriptedProvider([AlreadyGone()])
            loop = here.loop(provider=pool)
            for _ in range(orders):
                assert here.of(MachineGone) == []
                loop.round()
                here.pass_time(10)
            assert (here.of(MachineGone), len(pool.orders)) == ([MachineGone(OD)], orders)

    def test_a_machine_that_the_provider_lists_again_is_not_gone(self) -> None:
        """The machine must be missing in two consecutive checks."""
        with world(*EMPTY) as here:
            mark(here, ORDERED)
            loop = here.loop(
                provider=ScriptedProvider([AlreadyGone(), Accepted("booked"), AlreadyGone(), AlreadyGone()])
            )
            for _ in range(3):
                loop.round()
                here.pass_time(80)
            assert here.of(MachineGone) == []
            loop.round()
            assert here.of(MachineGone) == [MachineGone(OD)]


class TestMarksThatTheWatchDoesNotShow:
    def test_the_drain_of_an_earlier_process_is_resumed_before_another_begins(self) -> None:
        with world(*CLUSTER) as here:
            before = here.node("od-2")
            left = replace(BEFORE, pods=("uid-db-1",), debts=())
            here.mark("od-2", left.dump(), actions.taint("before"))
            here.hide_change("od-2", before)
            loop = here.loop()
            assert loop.round() is RoundOutcome.HELD
            assert here.writes[0] == ("taint", "od-2")
            assert "od-1" not in {name for _, name in here.writes}

    @pytest.mark.parametrize("applied", [True, False])
    def test_a_mark_whose_response_was_lost_is_removed_before_another_drain_begins(self, *, applied: bool) -> None:
        with world(*CLUSTER) as here:
            before, write = here.node("od-1"), here.edit_node

            def no_response(name: str, uid: str, edit: NodeEdit) -> None:
                if applied and edit.taint:
                    write(name, uid, edit)
                    here.hide_change("od-1", before)
                raise Retryable("no response")

            with mock.patch.object(here, "edit_node", no_response):
                loop = here.loop()
                assert loop.round() is RoundOutcome.FAILED
            here.writes.clear()
            loop.round()
            assert (here.writes[0] == ("untaint", "od-1")) is applied
            assert ("taint", "od-2") in here.writes or applied

    def test_no_drain_begins_while_the_marked_node_cannot_be_read(self) -> None:
        with world(*CLUSTER) as here:
            before = here.node("od-2")
            here.mark("od-2", BEFORE.dump(), actions.taint("before"))
            here.hide_change("od-2", before)
            loop = here.loop()
            with mock.patch.object(here, "node", side_effect=Retryable("no response")):
                assert loop.round() is RoundOutcome.BROKEN
            assert here.writes == []
            assert loop.round() is RoundOutcome.HELD
            assert here.writes[0] == ("taint", "od-2")

    def test_a_node_is_not_forgotten_if_another_one_cannot_be_read(self) -> None:
        nodes = (*(node(name, ON_DEMAND) for name in ("od-1", "od-2", "od-3")), node("spot-1", cpu="16"))
        with world(*nodes, pod("web-1", "od-1"), pod("shop-1", "od-2"), pod("db-1", "od-3", cpu="0.5")) as here:
            for name in ("od-1", "od-2"):
                before = here.node(name)
                left = replace(BEFORE, pods=(f"uid-{name}",), debts=())
                here.mark(name, left.dump(), actions.taint("before"))
                here.hide_change(name, before)
            loop, read = here.loop(), here.node

            def unreadable(name: str, uid: str | None = None) -> Node:
                if name == "od-2":
                    raise Retryable("no response")
                return read(name, uid)

            with mock.patch.object(here, "node", unreadable):
                assert loop.round() is RoundOutcome.BROKEN
            assert loop.round() is RoundOutcome.HELD
            assert here.drained == ["od-1", "od-2"]
