"""Debts of earlier drains block drains until they are paid, expire or are waived, also after restarts."""

from dataclasses import replace
from datetime import timedelta
from itertools import pairwise
from typing import Any

import pytest

from rescheduler.draining.events import EvictionFailed, EvictionRefused
from rescheduler.draining.state import Why
from rescheduler.errors import InputError, Retryable
from rescheduler.housekeeping.loop import RoundOutcome
from rescheduler.observe.events import (
    CoolingDown,
    DebtEnded,
    DrainEnded,
    ErrorKind,
    Held,
    OwedChanged,
    OwnerSetAside,
    Planned,
    Trouble,
    Waiting,
)
from rescheduler.planning.controllers import Controller
from rescheduler.planning.debts import Debt, OpenDebt
from rescheduler.planning.memory import Memory, dump
from rescheduler.planning.outcome import Reason
from rescheduler.settings import Timing
from tests.field.test_plans import claim, uses, volume
from tests.housekeeping.world import CLUSTER, START, Replacement, blockers, world
from tests.planning.builders import ON_DEMAND, node, pod
from tests.predicates.volumes import attachment

WEB = Controller("default", "ReplicaSet", "web", "uid-of-web")
OWED = Debt(WEB, ready=1, bound=1, owner_uids=("uid-of-web",))
LACKS_ONE_POD = (
    "replacement pods are not running yet: default/ReplicaSet/web lacks 1 since the drain of od-1; "
    "rescheduler resume --waive NAMESPACE/KIND/NAME waives a debt"
)
LANDING_TIMEOUT = Timing().landing_timeout
MINUTE = timedelta(minutes=1)
FORBIDDEN = EvictionFailed("", "evict pod default/web-1: webhook says no (403)", retryable=False)
#: No other wait may hide the wait for replacement pods.
IMPATIENT = Timing(node_drain_delay=timedelta(), pending_patience=timedelta())


@pytest.mark.parametrize(
    ("replacement", "why"),
    [
        (Replacement.REFUSED, Why.REPLACEMENT_REFUSED),
        (Replacement.LATE, Why.REPLACEMENT_NOT_CREATED),
        (Replacement.UNSCHEDULABLE, Why.REPLACEMENT_UNSCHEDULABLE),
        (Replacement.UNBOUND, Why.REPLACEMENT_NOT_BOUND),
        (Replacement.UNREADY, Why.LANDING_TIMEOUT),
    ],
)
def test_no_drain_starts_before_the_replacement_pods_of_a_failed_drain_run(replacement: Replacement, why: Why) -> None:
    with world(*CLUSTER) as here:
        here.replacements["web"] = replacement
        loop = here.loop(IMPATIENT)
        assert loop.round() is RoundOutcome.FAILED
        assert (here.failures, here.marked) == ([why], [])
        [owed] = here.memory.debts
        while here.clock.now() < owed.since + LANDING_TIMEOUT:
            assert loop.round() is RoundOutcome.HELD
            assert here.of(OwedChanged)[-1] == OwedChanged(1)
            here.pass_time(30)
        held = {(event.waiting, event.detail) for event in here.of(Held)}
        assert held <= {(Waiting.LANDING_PENDING, LACKS_ONE_POD)}
        assert loop.round() is RoundOutcome.DRAINED
        assert here.drained == ["od-1", "od-2"]
        here.add(pod("web-2", "spot-1"))
        loop.round()
        assert (here.memory.debts, here.of(OwedChanged)[-1]) == ((), OwedChanged(0))


def test_only_nodes_with_pods_of_an_owner_that_did_not_recover_wait() -> None:
    """They wait for longer after each failure, and no longer once a drain has moved the owner's pods."""
    with world(*CLUSTER, pod("web-2", "od-2")) as here:
        here.replacements["web"] = Replacement.UNSCHEDULABLE
        loop, tries = here.loop(replace(IMPATIENT, max_moves_per_pod_per_day=0)), []
        for _ in range(24 * 60):
            if loop.round() is RoundOutcome.FAILED:
                tries.append(here.clock.now() - START)
                here.recover("web")  # its debt is paid, and the next attempt fails again
                here.cluster.delete("Pod", "default/web-1-again")
                here.cluster.delete("Pod", "default/web-2-again")
                here.add(pod("web-1", "od-1"))
                here.replacements["web"] = Replacement.UNSCHEDULABLE
            here.pass_time(60)
        gaps = [later - earlier for earlier, later in pairwise(tries)]
        assert [gap // timedelta(minutes=10) for gap in gaps[:5]] == [1, 2, 4, 8, 16]
        reasons = {blocker.reason for blocker in blockers(here, "od-1") + blockers(here, "od-2")}
        assert Reason.NOT_RECOVERED in reasons
        del here.replacements["web"]
        here.pass_time(24 * 3600)
        assert loop.round() is RoundOutcome.DRAINED
        assert here.memory.not_recovered.by_name == {}


def test_a_namespace_waits_after_its_second_owner_and_others_are_drained() -> None:
    nodes = [node(f"od-{n}", ON_DEMAND) for n in (1, 2, 3, 4)]
    pods = [pod("a/x-1", "od-1"), pod("a/y-1", "od-2"), pod("a/z-1", "od-3"), pod("b/web-1", "od-4")]
    pods[3]["spec"]["containers"][0]["resources"]["requests"]["cpu"] = "3"
    with world(*nodes, node("spot-1", cpu="16"), *pods) as here:
        here.replacements["x"] = here.replacements["y"] = Replacement.UNSCHEDULABLE
        loop = here.loop(IMPATIENT)
        outcomes = []
        for _ in range(90):
            outcomes.append(loop.round())
            here.pass_time(20)
            if "od-4" in here.drained:
                break
        assert here.drained == ["od-1", "od-2", "od-4"]
        names = [*dict.fromkeys(event.name for event in here.of(OwnerSetAside))]
        assert names == ["a/ReplicaSet/x", "a", "a/ReplicaSet/y"]
        [blocker] = blockers(here, "od-3")
        assert (blocker.reason, blocker.pod) == (Reason.NOT_RECOVERED, "a/z-1")
        assert "several owners in namespace a did not run in time" in blocker.detail
        here.config_map.waive(["a"])
        loop.round()
        assert here.drained[-1] == "od-3"


def test_all_drains_pause_only_while_pods_of_several_namespaces_are_missing() -> None:
    """Three landing timeouts after the drain of the second one, the cluster is not held responsible any more."""
    other = Debt(Controller("b", "ReplicaSet", "api", "uid-of-api"), ready=1, bound=1)
    late = START - LANDING_TIMEOUT
    with world(*CLUSTER[:3], *CLUSTER[4:]) as here:
        debts = (OpenDebt("od-8", late, OWED), OpenDebt("od-9", late - timedelta(minutes=5), other))
        here.controllers.update({"web": {"wanted": 1}, "api": {"wanted": 1}})
        here.config_map.put(dump(Memory(debts=debts)))
        loop = here.loop(IMPATIENT)
        assert loop.round() is RoundOutcome.HELD
        [held] = here.of(Held)
        assert held.waiting is Waiting.FAILURE_PAUSE
        assert held.detail.startswith("replacement pods of the namespaces b, default did not run in time: ")
        assert "drains wait until they run, or until 2026-01-01T12:15:00Z" in held.detail
        here.pass_time(15 * 60)
        assert loop.round() is RoundOutcome.DRAINED
        assert len(here.memory.debts) == 2


def test_a_debt_of_an_owner_that_tells_nothing_ends_after_three_landing_timeouts() -> None:
    with world(*CLUSTER) as here:
        here.cluster.delete("Pod", "default/web-1")
        here.controller_errors["web"] = InputError("get workflows default/web: not allowed (403)")
        here.config_map.put(dump(Memory(debts=(OpenDebt("od-9", START - 3 * LANDING_TIMEOUT + MINUTE, OWED),))))
        loop = here.loop(IMPATIENT)
        loop.round()
        assert [owed.node for owed in here.memory.debts] == ["od-9"]
        here.pass_time(60)
        loop.round()
        assert not here.memory.debts
        [ended] = here.of(DebtEnded)
        assert ended.text == (
            "default/ReplicaSet/web still lacks 1 replacement pod since the drain of od-9, which is given up: "
            "get workflows default/web: not allowed (403)"
        )


def test_a_paid_debt_does_not_return() -> None:
    with world(*CLUSTER) as here:
        here.config_map.put(dump(Memory(debts=(OpenDebt("od-1", START, OWED),))))
        assert here.loop(IMPATIENT).round() is RoundOutcome.DRAINED
        here.cluster.delete("Pod", "default/web-1-again")
        assert here.loop(IMPATIENT).round() is RoundOutcome.DRAINED


@pytest.mark.parametrize(
    "state",
    [
        pytest.param({"exists": False}, id="deleted"),
        pytest.param({"suspended": True}, id="suspended"),
        pytest.param({"wanted": 0}, id="scaled down"),
        pytest.param({"wanted": None, "finished": True}, id="finished"),
        pytest.param({"wanted": 1, "succeeded": 1}, id="a pod that succeeded meanwhile"),
    ],
)
def test_a_debt_expires(state: dict[str, Any]) -> None:
    with world(*CLUSTER) as here:
        here.cluster.delete("Pod", "default/web-1")
        debt = Debt(WEB, ready=1, bound=1, template="old")
        here.config_map.put(dump(Memory(debts=(OpenDebt("od-1", START, debt),))))
        assert here.loop().round() is RoundOutcome.HELD
        here.controllers["web"] = state
        assert here.loop().round() is RoundOutcome.DRAINED
        assert (here.memory.debts, here.drained) == ((), ["od-2"])


def test_a_roll_out_does_not_end_a_debt() -> None:
    with world(*CLUSTER) as here:
        here.cluster.delete("Pod", "default/web-1")
        here.config_map.put(dump(Memory(debts=(OpenDebt("od-1", START, Debt(WEB, ready=1, bound=1, template="old")),))))
        here.controllers["web"] = {"template": "new", "least_available": 0}
        assert here.loop().round() is RoundOutcome.HELD
        here.add(pod("web-2", "spot-1"))
        assert here.loop().round() is RoundOutcome.DRAINED


def test_a_waived_debt_does_not_hold_drains() -> None:
    with world(*CLUSTER) as here:
        here.cluster.delete("Pod", "default/web-1")
        here.config_map.put(dump(Memory(debts=(OpenDebt("od-1", START, OWED),))))
        assert here.loop().round() is RoundOutcome.HELD
        here.config_map.waive(["default/ReplicaSet/web"])
        assert here.loop().round() is RoundOutcome.DRAINED
        assert here.memory.debts == ()


def test_a_message_names_only_the_first_debts() -> None:
    with world(*CLUSTER[1:3], *CLUSTER[4:]) as here:
        names = ("a", "b", "c", "d")
        owed = [Debt(Controller("default", "ReplicaSet", name, f"uid-of-{name}"), 2, 2) for name in names]
        here.config_map.put(dump(Memory(debts=tuple(OpenDebt("od-9", START, debt) for debt in owed))))
        here.loop().round()
        [held] = here.of(Held)
        each = "; ".join(f"default/ReplicaSet/{name} lacks 2 since the drain of od-9" for name in names[:3])
        assert held.detail.startswith(f"replacement pods are not running yet: {each} and 1 more controllers; ")
        assert here.of(OwedChanged) == [OwedChanged(8)]


def test_pods_of_a_replica_set_with_an_unrelated_name_are_counted_after_a_restart() -> None:
    """Only the debt contains the ReplicaSet: it was read when the node was marked."""
    deployment = Controller("default", "Deployment", "shop", "uid-of-shop")
    with world(*CLUSTER) as here:
        debt = Debt(deployment, ready=1, bound=1, owner_uids=("uid-of-web",))
        here.config_map.put(dump(Memory(debts=(OpenDebt("od-9", START, debt),))))
        assert here.loop().round() is RoundOutcome.DRAINED


def test_an_evicted_pod_that_is_still_watched_does_not_pay_a_debt() -> None:
    with world(*CLUSTER) as here:
        here.endless = {"default/web-1"}
        loop = here.loop(IMPATIENT)
        assert loop.round() is RoundOutcome.FAILED
        assert loop.round() is RoundOutcome.HELD
        assert here.waits == [Waiting.LANDING_PENDING]
        here.cluster.delete("Pod", "default/web-1")
        here.add(pod("web-2", "spot-1"))
        assert loop.round() is RoundOutcome.DRAINED


def test_an_api_server_that_does_not_respond_holds_drains() -> None:
    with world(*CLUSTER) as here:
        here.config_map.put(dump(Memory(debts=(OpenDebt("od-1", START, OWED),))))
        here.controller_errors["web"] = Retryable("get replicasets default/web: busy (503)")
        assert here.loop().round() is RoundOutcome.BROKEN
        assert here.of(Trouble) == [Trouble(ErrorKind.READ, "get replicasets default/web: busy (503)")]
        assert (here.drained, len(here.memory.debts)) == ([], 1)


class TestRecords:
    def test_debts_are_stored_before_the_node_is_released(self) -> None:
        with world(*CLUSTER) as here:
            here.replacements["web"] = Replacement.UNSCHEDULABLE
            known: list[Memory] = []
            here.on_release = lambda: known.append(here.memory)
            here.loop().round()
            assert [memory.debts for memory in known] == [(OpenDebt("od-1", known[0].debts[0].since, OWED),)]

    def test_a_stop_during_a_drain_stores_the_debts_of_evicted_pods(self) -> None:
        """There is no debt, because none of its pods was evicted."""
        with world(*CLUSTER[:4], pod("db-1", "od-1")) as here:
            here.replacements["db"] = Replacement.UNBOUND
            here.stop_at(5)
            here.loop().run()
            assert (here.failures, here.marked) == ([Why.STOPPED], [])
            db = Controller("default", "ReplicaSet", "db", "uid-of-db")
            assert [owed.debt for owed in here.memory.debts] == [Debt(db, 1, 1, owner_uids=("uid-of-db",))]
            here.stopping = False
            here.pass_time(300)
            assert here.loop().round() is RoundOutcome.HELD
            assert here.waits == [Waiting.LANDING_PENDING]

    def test_a_failed_drain_that_evicted_a_pod_starts_the_drain_delay(self) -> None:
        with world(*CLUSTER) as here:
            here.replacements["web"] = Replacement.UNSCHEDULABLE
            loop = here.loop(Timing(pending_patience=timedelta()))
            assert loop.round() is RoundOutcome.FAILED
            here.recover("web")
            assert loop.round() is RoundOutcome.HELD
            assert here.waits == [Waiting.DRAIN_DELAY]

    @pytest.mark.parametrize(
        ("tries", "answers", "reason"),
        [
            pytest.param({"default/web-1": FORBIDDEN}, [], Reason.EVICTION_REFUSED, id="in the dry run"),
            pytest.param({}, [FORBIDDEN], Reason.COOLING_DOWN, id="after the dry run"),
        ],
    )
    def test_a_drain_without_an_eviction_only_cools_down_its_node(
        self, tries: dict[str, Any], answers: list[Any], reason: Reason
    ) -> None:
        with world(*CLUSTER) as here:
            here.tries, here.answers["default/web-1"] = tries, answers
            loop = here.loop()
            assert loop.round() is RoundOutcome.FAILED
            assert here.memory.drained_at is None
            assert [event.failures for event in here.of(CoolingDown)] == [1]
            assert loop.round() is RoundOutcome.DRAINED
            assert here.memory.debts == ()
            [rejected] = here.of(Planned)[-1].planning.rejected
            assert (rejected.node, rejected.reason) == ("od-1", reason)
            assert here.drained == ["od-1", "od-2"]

    def test_a_node_whose_webhook_still_refuses_is_not_tainted_again(self) -> None:
        """Its eviction is tried after each cooldown, each time longer; the drain begins once it is allowed."""
        with world(*CLUSTER[:1], *CLUSTER[2:4]) as here:
            here.tries["default/web-1"] = FORBIDDEN
            loop = here.loop(IMPATIENT)
            for _ in range(120):
                loop.round()
                here.pass_time(60)
            assert here.writes.count(("untaint", "od-1")) == 1
            assert here.memory.cooldowns.by_node["od-1"].failures > 3
            [blocker] = blockers(here, "od-1")
            assert (blocker.reason, "webhook says no" in blocker.detail) == (Reason.EVICTION_REFUSED, True)
            del here.tries["default/web-1"]
            here.pass_time(2 * 3600)
            assert loop.round() is RoundOutcome.DRAINED

    def test_a_budget_that_rejects_the_dry_run_blocks_its_node(self) -> None:
        with world(*CLUSTER) as here:
            here.tries["default/web-1"] = EvictionRefused("", "would violate the budget web", None)
            loop = here.loop()
            assert loop.round() is RoundOutcome.FAILED
            assert ("evict", "web-1") not in here.writes
            assert loop.round() is RoundOutcome.DRAINED
            [rejected] = here.of(Planned)[-1].planning.rejected
            [blocker] = rejected.blockers
            detail = "would violate the budget web; no new attempt before 2026-01-01T12:05:00Z"
            assert (blocker.reason, blocker.detail) == (Reason.EVICTION_REFUSED, detail)


@pytest.mark.parametrize("returning", [(), ("db",), ("web",), ("web", "db")], ids=" ".join)
def test_the_end_of_a_drain_says_how_many_pods_returned(returning: tuple[str, ...]) -> None:
    """``drained, moved 2 pods`` is not said of pods that run on on-demand nodes again."""
    with world(*CLUSTER[:3], pod("web-1", "od-1"), pod("db-1", "od-1"), pod("big-1", "od-2", cpu="3")) as here:
        for name in returning:
            here.replacements[name] = Replacement.RETURNING
        assert here.loop().round() is RoundOutcome.DRAINED
        [ended] = here.of(DrainEnded)
        assert (ended.node.name, len(ended.evicted), ended.returned) == ("od-1", 2, len(returning))


def test_the_failure_names_the_volume_for_which_a_replacement_pod_waits() -> None:
    """Its volume is still attached to the drained node. The pod was not refused: it had until the landing timeout."""
    disk = claim("data", "disk"), volume("disk", "data", csi={"driver": "disk.csi", "volumeHandle": "h"})
    cluster = (*CLUSTER[:3], pod("web-1", "od-1", **uses("data")), *disk, attachment("a", "od-1", "disk", "disk.csi"))
    with world(*cluster) as here:
        here.replacements["web"] = Replacement.UNREADY
        assert here.loop(IMPATIENT).round() is RoundOutcome.FAILED
        [ended] = here.of(DrainEnded)
        assert ended.failure is not None
        assert ended.failure.why is Why.LANDING_TIMEOUT
        waits = "(1 missing); default/web-1-again waits until its volume disk is detached from node od-1"
        assert ended.failure.detail.endswith(waits)
