"""Pending pods take their room in every plan, as the scheduler would give it to them."""

from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest

from rescheduler.planning.outcome import Plan, Planning, Rejected, TakenRoom
from rescheduler.planning.planner import Planner
from rescheduler.planning.policy import Policy
from rescheduler.planning.what_if.added_spot import AddSpot
from rescheduler.planning.what_if.comparison import what_if
from tests.planning.builders import CIRCUMSTANCES, ON_DEMAND, SPOT, node, pod, repels, seeks, snapshot

Manifest = dict[str, Any]

#: A node whose only pod needs 3 of the 8 CPU of the only spot node.
OD, SPOT_8 = node("od", ON_DEMAND), node("s", cpu="8")
MOVES = pod("app-1", "od", cpu="3")
NOMINATED: Manifest = {"status": {"nominatedNodeName": "s"}}


def pending(name: str, cpu: str = "6", **fields: Any) -> Manifest:
    return pod(name, cpu=cpu, **fields)


def planned(*objects: Manifest, policy: Policy | None = None) -> Planning:
    return Planner(snapshot([OD, SPOT_8, MOVES, *objects]), policy or Policy()).plan_each(CIRCUMSTANCES)


@pytest.mark.parametrize(
    "waiting",
    [
        [pending("p")],
        [pending("p", **NOMINATED)],
        [pending("p-1", "2"), pending("q-2", "2"), pending("r-3", "2")],
        [pending("p", priority=-5)],  # not expendable
        [pending("p", owner=None)],
        [pending("q", priority=100, affinity=repels("p")), pending("p", "1")],
        [pending("p", "3", affinity=seeks("q")), pending("q", "3")],
        [pending("p", nodeSelector={SPOT: ""})],
        [pending("p", "100m"), pending("q", "200", **NOMINATED)],  # room is made for it: whatever was promised, is kept
    ],
    ids=[
        "a pod", "a nominated pod", "three small pods", "a low priority", "no controller", "one of two, by priority",
        "one needs the other", "only spot nodes", "a nominated pod that does not fit yet",
    ],
)  # fmt: skip
def test_pending_pods_take_their_room_first(waiting: list[Manifest]) -> None:
    planning = planned(*waiting)
    [verdict] = planning.rejected
    assert {blocker.reason for blocker in verdict.blockers} - {"pending-pod"} == {"no-room-on-spot"}
    assert planning.pending.pods


HOST = "kubernetes.io/hostname"


@pytest.mark.parametrize(
    ("waiting", "blocked"),
    [
        ([pending("p", "1", nodeSelector={HOST: "od"})], ["od"]),
        ([pending("p", "1", nodeSelector={ON_DEMAND: ""})], ["od-2"]),
        ([pending(name, "1", nodeSelector={ON_DEMAND: ""}) for name in "pqrst"], ["od", "od-2"]),
        ([pending("p", "7", **NOMINATED), pending("q", "2")], ["od-2"]),
        ([pending("p", "1", nodeSelector={HOST: "od"}, priority=-20)], []),
        ([pending("p", "1", nodeSelector={HOST: "od"}, schedulerName="nobody")], []),
        ([pending("p", "1")], []),
    ],
    ids=[
        "only this node", "only on-demand nodes: the one that is drained last", "some for each", "spot nodes are full",
        "expendable", "no scheduler is known for it", "a spot node",
    ],
)  # fmt: skip
def test_a_node_to_which_a_pending_pod_goes_stays(waiting: list[Manifest], blocked: list[str]) -> None:
    later = [node("od-2", ON_DEMAND, cpu="8"), pod("app-2", "od-2", cpu="4")]
    planning = planned(*later, *waiting)
    kept = {verdict.node: {blocker.reason for blocker in verdict.blockers} for verdict in planning.rejected}
    assert sorted(name for name, reasons in kept.items() if "pending-pod" in reasons) == blocked


@pytest.mark.parametrize(
    "waiting",
    [
        [pending("p", "9")],
        [pending("p", schedulerName="nobody")],
        [pending("p", schedulingGates=[{"name": "quota"}])],
        [pending("p", priority=-11)],
        [pending("p", deleted=True)],
        [pending("p", nodeSelector={"disk": "none"})],
        [pending("p", resourceClaims=[{"name": "gpu"}])],
        [pending(f"p-{number}", "9") for number in range(50)],
        [pending("p", affinity=seeks("nobody"))],
        [pending("p", status={"nominatedNodeName": "gone"}, nodeSelector={"disk": "none"})],
    ],
    ids=[
        "too large", "unknown scheduler", "gated", "expendable", "deleted", "no node of its kind", "devices", "many",
        "needs a pod that does not exist", "nominated to a node that is gone",
    ],
)  # fmt: skip
def test_pods_that_nothing_will_place_take_none(waiting: list[Manifest]) -> None:
    planning = planned(*waiting)
    assert planning.plans
    assert planning.pending == TakenRoom()
    assert not str(planning.pending)


def test_the_scheduler_of_pending_pods_may_be_named() -> None:
    waiting = pending("p", schedulerName="batch")
    assert not planned(waiting, policy=Policy(scheduler_names=("default-scheduler", "batch"))).plans
    assert not planned(waiting, policy=Policy(profiles=("batch",))).plans
    assert planned(waiting, policy=Policy(scheduler_names=())).plans


def test_pods_that_fit_only_on_demand_nodes_take_no_spot_room() -> None:
    selector = {"nodeSelector": {ON_DEMAND: ""}}
    planning = planned(node("od-2", ON_DEMAND), pending("p", "3", **selector))
    assert {plan.node for plan in planning.plans} >= {"od"}
    assert planning.pending == TakenRoom()


def test_higher_priorities_and_older_pods_come_first() -> None:
    young = pending("a", "5", created="2026-01-01T11:00:00Z")
    old = pending("b", "4", created="2026-01-01T10:00:00Z")
    high = pending("c", "3", created="2026-01-01T11:30:00Z", priority=7)
    assert planned(young, old, high).pending == TakenRoom(2, 7000)  # c, b; a does not fit beside them
    assert planned(young, old).pending == TakenRoom(1, 4000)


def test_a_nominated_pod_is_ahead_of_others_of_its_priority_but_not_of_higher_ones() -> None:
    nominated = pending("n", "6", created="2026-01-01T11:59:00Z", **NOMINATED)
    old = pending("b", "4", created="2026-01-01T10:00:00Z")
    assert planned(nominated, old).pending == TakenRoom(1, 6000)
    assert planned(nominated, old | {"spec": old["spec"] | {"priority": 5}}).pending == TakenRoom(2, 10_000)


def test_the_room_is_told_in_one_sentence() -> None:
    three = [pending(f"p-{number}", "1500m") for number in range(3)]
    assert str(planned(*three).pending) == "3 pending pods keep 4.5 vCPU of the spot nodes"
    assert str(planned(three[0]).pending) == "1 pending pod keeps 1.5 vCPU of the spot nodes"
    assert str(TakenRoom(2, 0, 3 << 30)) == "2 pending pods keep 3 GiB of memory of the spot nodes"


@pytest.mark.parametrize("which", ["plan_each", "first_plan", "plan_all"])
def test_every_plan_counts_them(which: str) -> None:
    cluster = snapshot([OD, SPOT_8, MOVES, pending("p")])
    before = cluster.nodes.free.copy(), cluster.revision
    planning: Planning = getattr(Planner(cluster, Policy()), which)(CIRCUMSTANCES)
    assert not planning.plans
    assert planning.pending == TakenRoom(1, 6000)
    assert (cluster.nodes.free == before[0]).all()


def test_plans_of_one_node_count_them() -> None:
    planner = Planner(snapshot([OD, SPOT_8, MOVES, pending("p")]), Policy())
    assert isinstance(planner.plan_node("od", CIRCUMSTANCES), Rejected)
    assert isinstance(planner.look_again("od", CIRCUMSTANCES), Rejected)
    assert isinstance(planner.follow("od", CIRCUMSTANCES, ()), Rejected)


def test_replacement_pods_of_the_drain_itself_are_not_counted_twice() -> None:
    evicted = pod("app-0", "od", cpu="3")
    cluster = snapshot([OD, SPOT_8, MOVES, evicted, pending("app-9", "3")])
    planner = Planner(cluster, Policy())
    due = [cluster.pods["default/app-0"]]
    assert isinstance(planner.follow("od", CIRCUMSTANCES, due, {due[0].uid}), Plan)
    cluster = snapshot([OD, SPOT_8, MOVES, evicted, pending("app-9", "3"), pending("app-8", "3")])
    assert isinstance(Planner(cluster, Policy()).follow("od", CIRCUMSTANCES, due, {due[0].uid}), Rejected)
    other = snapshot([OD, SPOT_8, MOVES, evicted, pending("team-b/app-9", "3")])
    assert isinstance(Planner(other, Policy()).follow("od", CIRCUMSTANCES, due, {due[0].uid}), Rejected)


def test_forecasts_are_made_beside_them() -> None:
    tight = snapshot([OD, node("s-1", cpu="4"), node("s-2", cpu="4"), MOVES, pending("p", "2")])
    (plan,) = Planner(tight, Policy()).plan_each(CIRCUMSTANCES).plans
    assert [placement.node for placement in (*plan.placements, *plan.forecast)] == ["s-2", "s-2"]


def test_a_changed_plan_counts_them() -> None:
    cluster = snapshot([OD, SPOT_8, MOVES, pending("p", "8")])
    result = what_if(cluster, Policy(), CIRCUMSTANCES, [AddSpot(1, like="s")])
    assert result.planning.plans
    assert result.planning.pending == TakenRoom(1, 8000)


def test_a_round_is_planned_again_if_what_decides_about_them_changes() -> None:
    cluster = snapshot([OD, SPOT_8, MOVES, pending("p", "20")])
    planner = Planner(cluster, Policy())
    assert planner.plan_each(CIRCUMSTANCES).plans
    waiting = cluster.pods["default/p"]
    cluster.upsert("Pod", snapshot([pending("p", **NOMINATED)]).pods["default/p"])
    assert cluster.pods["default/p"] != waiting
    assert not planner.plan_each(CIRCUMSTANCES).plans
    ignored = replace(CIRCUMSTANCES, left_pending=frozenset({"default"}))
    assert not planner.plan_each(ignored).plans  # the scheduler still makes room for it
    cluster.upsert("Pod", snapshot([pending("p")]).pods["default/p"])
    assert not planner.plan_each(CIRCUMSTANCES).plans
    assert planner.plan_each(ignored).plans


def test_pods_that_the_scheduler_leaves_pending_where_they_fit_are_found() -> None:
    objects = [
        pending("old", "1", created="2026-01-01T11:58:00Z"),
        pending("new", "1", created="2026-01-01T11:59:30Z"),
        pending("full", "20", created="2026-01-01T11:58:00Z"),
        pending("nominated", "1", created="2026-01-01T11:58:00Z", **NOMINATED),
        pending("unknown", "1"),
    ]
    planner = Planner(snapshot([OD, SPOT_8, *objects]), Policy())
    assert [each.name for each in planner.left_pending(CIRCUMSTANCES)] == ["old"]
    ignored = replace(CIRCUMSTANCES, left_pending=frozenset({"default"}))
    assert [each.name for each in planner.left_pending(ignored)] == ["full", "old"]
    later = replace(CIRCUMSTANCES, now=CIRCUMSTANCES.now + timedelta(minutes=1))
    assert [each.name for each in planner.left_pending(later)] == ["new", "old"]


def test_each_pod_is_explained_as_if_it_alone_were_created_now() -> None:
    for waiting in (pending("p"), pending("p", **NOMINATED)):
        cluster = snapshot([OD, SPOT_8, MOVES, waiting])
        explanations = Planner(cluster, Policy()).explain(cluster.pods["default/app-1"], CIRCUMSTANCES)
        assert explanations.feasible == ["s"]


def test_classes_beyond_a_namespaces_share_take_no_room() -> None:
    crowd = [pending(f"x-{number}", f"{9000 + number}m") for number in range(600)]
    other = pending("team-b/p", "6")
    assert planned(*crowd, other).pending == TakenRoom(1, 6000)


# CapacityBuffers


def buffer(name: str = "spare", replicas: int = 1, cpu: str = "6", **fields: Any) -> Manifest:
    """Return a CapacityBuffer that is ready, with its template. *fields* accepts ``status`` and fields of the pods."""
    status = {"replicas": replicas, "conditions": [{"type": "ReadyForProvisioning", "status": "True"}]}
    status |= fields.pop("status", {})
    spec = {"containers": [{"name": "main", "resources": {"requests": {"cpu": cpu}}}], **fields}
    meta = {"name": name, "namespace": "default"}
    return {
        "apiVersion": "autoscaling.x-k8s.io/v1beta1", "kind": "CapacityBuffer", "metadata": meta,
        "spec": {"podTemplateRef": {"name": "chunk"}}, "status": status, "template": {"spec": spec},
    }  # fmt: skip


def reasons(planning: Planning) -> dict[str, set[str]]:
    return {verdict.node: {blocker.reason for blocker in verdict.blockers} for verdict in planning.rejected}


@pytest.mark.parametrize(
    "kept",
    [
        [buffer()],
        [buffer(replicas=6, cpu="1")],
        [buffer("a", cpu="3"), buffer("b", cpu="3")],
        [buffer(priority=-1000)],  # expendable pods take no room, but the room of a buffer is kept for others
        [buffer(replicas=500, cpu="1")],  # what fits counts
        [buffer(cpu="2"), pending("p", "4")],
        [buffer(status={"provisioningStrategy": "buffer.x-k8s.io/active-capacity"})],
    ],
    ids=[
        "one pod", "six pods", "two buffers", "a low priority", "more than fit", "beside a pending pod", "the strategy",
    ],
)  # fmt: skip
def test_the_room_of_capacity_buffers_is_not_given_away(kept: list[Manifest]) -> None:
    planning = planned(*kept)
    assert reasons(planning)["od"] >= {"no-room-on-spot"}
    assert planning.pending.buffered


@pytest.mark.parametrize(
    "free",
    [
        buffer(cpu="5"),
        buffer(replicas=0),
        buffer(status={"conditions": []}),
        buffer(status={"conditions": [{"type": "ReadyForProvisioning", "status": "False"}]}),
        buffer(status={"provisioningStrategy": "buffer.gke.io/standby-capacity"}),
        buffer(cpu="9"),
        buffer(cpu="many"),
        buffer(nodeSelector={"no": "node"}),
        buffer(schedulerName="nobody"),
        {**buffer(), "template": None},
    ],
    ids=[
        "there is room for both", "of no pods", "no controller has accepted it", "not accepted", "of stopped nodes",
        "larger than any node", "no amount", "no node accepts it", "no scheduler is known", "no template",
    ],
)  # fmt: skip
def test_buffers_that_take_nothing_from_a_plan(free: Manifest) -> None:
    assert [plan.node for plan in planned(free).plans] == ["od"]


def test_a_node_with_the_only_room_for_a_buffer_stays() -> None:
    """An autoscaler would add a node as soon as it is gone."""
    keeps = buffer(cpu="1", nodeSelector={ON_DEMAND: ""})
    [verdict] = planned(keeps).rejected
    [blocker] = verdict.blockers
    assert blocker.reason == "capacity-buffer"
    assert blocker.detail == (
        "CapacityBuffer default/spare keeps room free there, and no spot node has room for it: an autoscaler would add "
        "a node"
    )
    later = [node("od-2", ON_DEMAND, cpu="8"), pod("app-2", "od-2", cpu="4")]
    assert reasons(planned(*later, keeps)).keys() == {"od-2"}  # the room is on the node that is drained last


def owned_by(kind: str, name: str) -> Manifest:
    return {"ownerReferences": [{"kind": kind, "name": name, "controller": True}]}


WORKLOAD: Manifest = {"template": {"spec": {"containers": [{"name": "main", "resources": {"requests": {"cpu": "6"}}}]}}}


@pytest.mark.parametrize(
    ("spec", "objects"),
    [
        (
            {"podTemplateRef": {"name": "chunk"}},
            [{"kind": "PodTemplate", "metadata": {"name": "chunk", "namespace": "default"}, **WORKLOAD}],
        ),
        (
            {"scalableRef": {"kind": "StatefulSet", "name": "db"}},
            [{"kind": "StatefulSet", "metadata": {"name": "db", "namespace": "default"}, "spec": WORKLOAD}],
        ),
        (
            {"scalableRef": {"kind": "Deployment", "name": "web"}},
            [
                {"kind": "ReplicaSet", "spec": spec, "metadata": {
                    "name": f"web-{day}", "namespace": "default", "creationTimestamp": f"2025-01-{day}T00:00:00Z",
                    **owned_by("Deployment", "web"),
                }}
                for day, spec in (("01", {}), ("02", WORKLOAD))
            ],
        ),
        ({"scalableRef": {"kind": "Deployment", "name": "other"}}, None),
        ({"scalableRef": {"kind": "Node", "name": "od"}}, None),
        ({}, None),
    ],
    ids=["PodTemplate", "StatefulSet", "the newest ReplicaSet", "no ReplicaSet", "another kind", "neither"],
)  # fmt: skip
def test_the_template_of_a_buffer_in_a_file_of_kubectl(spec: Manifest, objects: list[Manifest] | None) -> None:
    planning = planned({**buffer(), "template": None, "spec": spec}, *(objects or ()))
    assert planning.pending.buffered == (objects is not None)


def test_what_keeps_room_is_told_in_one_sentence() -> None:
    assert (
        str(planned(buffer(replicas=2, cpu="1")).pending) == "CapacityBuffers for 2 pods keep 2 vCPU of the spot nodes"
    )
    both = planned(buffer(cpu="1"), pending("p", "1500m")).pending
    assert str(both) == "1 pending pod and CapacityBuffers for 1 pod keep 2.5 vCPU of the spot nodes"


def test_a_drain_that_has_begun_may_use_the_room_of_buffers() -> None:
    """Pods that come during the drain take the room of buffers, which is what the buffers are for."""
    planner = Planner(snapshot([OD, SPOT_8, MOVES, pod("burst-1", "s", cpu="3"), buffer(cpu="5")]), Policy())
    assert isinstance(planner.plan_node("od", CIRCUMSTANCES), Rejected)
    assert isinstance(planner.follow("od", CIRCUMSTANCES, []), Plan)


def test_a_namespace_keeps_room_for_about_500_pods_at_most() -> None:
    crowd = [buffer(f"b-{number}", 400, "1m") for number in range(3)]
    large = node("large", cpu="64", pods=2000)
    assert 400 < Planner(snapshot([large, *crowd]), Policy()).pending(CIRCUMSTANCES).buffered <= 500
