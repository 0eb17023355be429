"""Replacement pods that a kubelet refuses: the drain stops at the first one, and the next plans avoid such nodes."""

from datetime import timedelta
from typing import Any

import msgspec
import pytest

from rescheduler.draining.actions import Intent, Step, taint
from rescheduler.draining.state import Why
from rescheduler.observe.events import DrainEnded, DrainStarted, Planned
from rescheduler.planning.controllers import Controller
from rescheduler.planning.debts import Debt
from rescheduler.planning.outcome import Reason
from rescheduler.settings import Timing
from tests.housekeeping.world import IDENTITY, START, LoopWorld, Replacement, blockers, world
from tests.planning.builders import HOST, ON_DEMAND, Manifest, node, pod

QUICK = Timing(node_drain_delay=timedelta(), max_moves_per_pod_per_day=0.0)
POOL = "node.kubernetes.io/instance-type"
OWNERS = (
    *("apps/v1/ReplicaSet", "apps/v1/StatefulSet", "batch/v1/Job"),
    *("v1/ReplicationController", "argoproj.io/v1alpha1/Rollout"),
)


def pods(owner: str = "ReplicaSet", **fields: Any) -> list[Manifest]:
    return [pod(f"web-{number}", "od-1", owner=owner, **fields) for number in (1, 2, 3)]


def evictions(here: LoopWorld) -> list[str]:
    return [name for kind, name in here.writes if kind == "evict"]


def refused_once(here: LoopWorld) -> None:
    """Drain a node whose first replacement pod is refused. After that, the pod runs on the on-demand node again."""
    here.replacements["web"] = Replacement.NOT_ADMITTED
    here.loop(QUICK).round()
    assert here.failures == [Why.KUBELET_REFUSED]
    waiting = here.cluster.pods[f"default/{evictions(here)[0]}-again"]
    running = {"node_name": "od-1", "phase": "Running", "ready": True, "ready_since": here.time()}
    here.cluster.upsert("Pod", msgspec.structs.replace(waiting, **running))
    del here.replacements["web"]


def later(here: LoopWorld, **time: float) -> None:
    """Let a restarted daemon make two rounds after some time: the first counts the pods that an earlier drain moved."""
    here.pass_time(timedelta(**time).total_seconds())
    for _ in range(2):
        here.loop(QUICK).round()
        here.pass_time(15)


@pytest.mark.parametrize("owner", OWNERS)
def test_the_drain_stops_at_the_first_refused_pod_and_names_it(owner: str) -> None:
    with world(node("od-1", ON_DEMAND), node("spot-1", cpu="16"), *pods(owner)) as here:
        refused_once(here)
        [ended] = here.of(DrainEnded)
        assert ended.failure is not None
        kind = owner.rpartition("/")[2]
        assert ended.failure.detail == (
            f"replacement pod default/web-1-again of default/{kind}/web: the kubelet of spot-1 refused it: "
            "SysctlForbidden: forbidden sysctl"
        )
        assert (evictions(here), here.marked) == (["web-1"], [])


@pytest.mark.parametrize("owner", OWNERS)
def test_the_next_plans_do_not_choose_such_nodes_for_a_day(owner: str) -> None:
    with world(node("od-1", ON_DEMAND), node("spot-1", cpu="16"), *pods(owner)) as here:
        refused_once(here)
        later(here, minutes=10)
        assert {blocker.reason for blocker in blockers(here, "od-1")} == {Reason.REFUSED_BEFORE}
        assert "1 node(s) are of a kind that refused such a pod (spot-1 at 2026-01-01T12:" in str(
            blockers(here, "od-1")
        )
        later(here, hours=23)
        assert evictions(here) == ["web-1"]
        later(here, hours=1)
        assert here.failures == [Why.KUBELET_REFUSED, None]


@pytest.mark.parametrize("reason", ["OutOfcpu", "OutOfmemory: no room", "OutOfpods", "OutOfnvidia.com/gpu"])
def test_a_node_that_was_full_is_avoided_for_some_minutes_and_not_its_pool(
    reason: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Pods of which the scheduler does not know have an end, and other nodes of the pool do not have them."""
    monkeypatch.setattr(LoopWorld.refuse, "__defaults__", (reason,))
    spot = node("spot-1", cpu="16", labels={POOL: "a", HOST: "spot-1"})
    with world(node("od-1", ON_DEMAND), spot, *pods()) as here:
        refused_once(here)
        later(here, minutes=5)
        assert {blocker.reason for blocker in blockers(here, "od-1")} == {Reason.REFUSED_BEFORE}
        assert f"{reason}; only this node, until 2026-01-01T12:1" in str(blockers(here, "od-1"))
        here.add(node("spot-2", cpu="16", labels={POOL: "a", HOST: "spot-2"}))
        here.cluster.delete("Node", "spot-1")
        here.loop(QUICK).round()
        assert {blocker.reason for blocker in blockers(here, "od-1")} == {Reason.MOVED_RECENTLY}  # its pods came back
    with world(node("od-1", ON_DEMAND), spot, *pods()) as here:
        refused_once(here)
        later(here, minutes=11)
        assert {blocker.reason for blocker in blockers(here, "od-1")} == {Reason.MOVED_RECENTLY}
        later(here, hours=1)
        assert here.failures == [Why.KUBELET_REFUSED, None]


@pytest.mark.parametrize(("cpu", "reasons"), [("64", []), ("16", [Reason.FRAGILE])], ids=["prefers it", "may not"])
def test_the_next_plan_uses_another_kind_of_node(cpu: str, reasons: list[Reason]) -> None:
    """The scheduler knows nothing of the refusal. It prefers the other node if that is much larger."""
    other = node("spot-2", cpu=cpu, labels={POOL: "large"})
    spot = node("spot-1", cpu="16", labels={POOL: "small"})
    with world(node("od-1", ON_DEMAND), spot, other, *pods()[:1]) as here:
        refused_once(here)
        later(here, minutes=10)
        later(here, minutes=10)
        plans = [event.plan for event in here.of(DrainStarted)[1:]]
        assert [each.node for plan in plans for each in plan.placements] == ["spot-2"] * (not reasons)
        assert [
            each.reason for verdict in here.of(Planned)[-1].planning.rejected for each in verdict.blockers
        ] == reasons


def test_a_new_template_may_be_tried_on_the_same_nodes() -> None:
    with world(node("od-1", ON_DEMAND), node("spot-1", cpu="16"), *pods()) as here:
        refused_once(here)
        for key in list(here.cluster.pods):
            here.cluster.delete("Pod", key)
        here.add(*pods(containers=[{"name": "main", "image": "app:2", "resources": {"requests": {"cpu": "1"}}}]))
        later(here, minutes=10)
        assert here.failures == [Why.KUBELET_REFUSED, None]


def test_other_owners_may_use_the_same_nodes() -> None:
    with world(node("od-1", ON_DEMAND), node("spot-1", cpu="16"), *pods()[:1]) as here:
        refused_once(here)
        moved = here.cluster.pods["default/web-1-again"]
        here.add(node("od-2", ON_DEMAND), pod("api-1", "od-1"))
        here.cluster.upsert("Pod", msgspec.structs.replace(moved, node_name="od-2"))
        later(here, minutes=10)
        assert here.failures == [Why.KUBELET_REFUSED, None]


def test_a_refusal_after_other_pods_have_moved_stops_the_drain() -> None:
    with world(node("od-1", ON_DEMAND), node("spot-1", cpu="16"), *pods(), pod("api-1", "od-1")) as here:
        here.on_evicted = lambda: here.replacements.update(web=Replacement.NOT_ADMITTED)
        here.loop(QUICK).round()
        assert (evictions(here), here.failures) == (["api-1", "web-1"], [Why.KUBELET_REFUSED])
        assert [owed.debt.controller.name for owed in here.memory.debts] == ["web"]


def test_an_owner_that_creates_pods_without_end_loses_one_pod() -> None:
    with world(node("od-1", ON_DEMAND), node("spot-1", cpu="16"), *pods()) as here:
        here.replacements["web"] = Replacement.NOT_ADMITTED

        def again() -> None:
            for created in [each for each in here.cluster.pods.values() if not each.node_name]:
                here.cluster.upsert("Pod", msgspec.structs.replace(created, node_name="spot-1"))
                here.refuse(created.key)
            here.at(here.now + 1, again)

        here.at(1, again)
        here.loop(QUICK).round()
        later(here, minutes=20)
        assert (evictions(here), here.failures) == (["web-1"], [Why.KUBELET_REFUSED])
        assert len(here.memory.refusals.by_key) == 1


@pytest.mark.parametrize(
    ("created", "stopped"),
    [("2026-01-01T11:59:50Z", Why.KUBELET_REFUSED), ("2026-01-01T11:58:00Z", None)],
    ids=["by the drain", "before the drain"],
)
def test_a_resumed_drain_learns_of_pods_that_were_refused_before_the_kill(created: str, stopped: Why | None) -> None:
    failed = {"phase": "Failed", "reason": "OutOfcpu", "message": "Pod was rejected"}
    refused, moved = pod("web-0", "spot-1", created=created, status=failed), pod("web-1", "spot-1", created=created)
    left = pod("web-2", "od-1", created="2026-01-01T10:00:00Z")
    owed = Debt(Controller("default", "ReplicaSet", "web", "uid-of-web"), 2, 2, owner_uids=("uid-of-web",))
    since = START - timedelta(seconds=20)
    before = Intent("before", Step.DRAINING, since, ("uid-gone", "uid-web-2"), identity=IDENTITY, debts=(owed,))
    with world(node("od-1", ON_DEMAND), node("spot-1", cpu="16"), refused, moved, left) as here:
        here.mark("od-1", before.dump(), taint("before"))
        here.loop().round()
        assert here.failures == [stopped]
        assert ("web-2" in evictions(here)) is (stopped is None)
        assert [each.reason for each in here.memory.refusals.by_key.values()] == ["OutOfcpu: Pod was rejected"] * (
            stopped is not None
        )
