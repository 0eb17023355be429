"""Machines that join are like those that left, and an autoscaler adds those on which pods may run."""

import pytest

from rescheduler.settings import MakeRoom, RoomSettings, Running
from rescheduler.simulation.store import Json
from rescheduler.simulation.world import WorldSettings
from tests.simulation.worlds import START, Scene, node, workload

SPOT = "node-role.kubernetes.io/spot-worker"
POOL: Json = {"key": "pool", "value": "spot", "effect": "NoSchedule"}


def spot(name: str, **labels: str) -> Json:
    item = node(name, spot=True, **labels)
    item["spec"]["taints"] = [POOL]
    return item


def affinity(**terms: list[Json]) -> Json:
    return {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": [terms]}}}


@pytest.mark.parametrize("with_notice", [True, False])
def test_the_machine_that_replaces_a_lost_one_has_the_taints_of_its_pool(*, with_notice: bool) -> None:
    here = Scene([node("od-1"), spot("spot-1")]).run(1)
    here.world.market.interrupt("spot-1", with_notice=with_notice)
    here.run(2 * 3600)
    [new] = [each for each in here.world.store.all("nodes") if each["metadata"]["name"].startswith("spot-1-new")]
    assert new["spec"]["taints"] == [POOL]
    assert not new["spec"].get("unschedulable")
    here.world.close()


@pytest.mark.parametrize(
    ("spec", "expected"),
    [
        ({"nodeSelector": {SPOT: ""}}, []),
        ({"nodeSelector": {SPOT: ""}, "tolerations": [{"key": "pool", "operator": "Exists"}]}, ["spot"]),
        ({"affinity": affinity(matchExpressions=[{"key": SPOT, "operator": "DoesNotExist"}])}, ["od"]),
        (
            {
                "affinity": affinity(matchExpressions=[{"key": SPOT, "operator": "Exists"}]),
                "tolerations": [{"key": "pool", "operator": "Exists"}],
            },
            ["spot"],
        ),
        ({"affinity": affinity(matchExpressions=[{"key": "generation", "operator": "Gt", "values": ["5"]}])}, ["od"]),
        ({"affinity": affinity(matchExpressions=[{"key": "generation", "operator": "Lt", "values": ["5"]}])}, []),
        ({"affinity": affinity()}, []),
    ],
)
def test_an_autoscaler_adds_a_machine_on_which_the_pod_may_run(spec: Json, expected: list[str]) -> None:
    here = Scene(
        [node("od-1", cpu="1", generation="6"), spot("spot-1", generation="4")],
        WorldSettings(START, removes_machines=False, autoscaler="cluster-autoscaler"),
    )
    for name in ("od-1", "spot-1"):
        here.world.store.patch("nodes", name, {"spec": {"unschedulable": True}})
    item = workload("Deployment", "web", 1)
    item["spec"]["template"]["spec"] |= spec
    here.world.store.create("deployments", item)
    here.run(300)
    added = [name.partition("-")[0] for name in here.nodes if "-new-" in name]
    assert added == expected
    here.world.close()


def test_daemon_sets_follow_node_affinity() -> None:
    item = workload("DaemonSet", "agent", 0)
    item["spec"]["template"]["spec"]["affinity"] = affinity(matchExpressions=[{"key": SPOT, "operator": "Exists"}])
    here = Scene([node("od-1"), node("spot-1", spot=True), node("spot-2", spot=True), item]).run(60)
    assert sorted(pod["spec"]["nodeName"] for pod in here.pods(app="agent")) == ["spot-1", "spot-2"]
    here.world.close()


def test_placeholders_are_scheduled_and_an_autoscaler_makes_room_for_them() -> None:
    room = {"metadata": {"name": "spot-rescheduler-room", "labels": {"kubernetes.io/metadata.name": "x"}}}
    priority: Json = {"kind": "PriorityClass", "metadata": {"name": "spot-rescheduler-room"}, "value": -5}
    here = Scene(
        [node("od-1"), node("spot-1", spot=True, cpu="2"), {"kind": "Namespace", **room}, priority],
        WorldSettings(START, removes_machines=False, autoscaler="cluster-autoscaler"),
        running=Running(room=RoomSettings(MakeRoom.PLACEHOLDERS)),
    )
    here.world.store.patch("nodes", "od-1", {"spec": {"unschedulable": True}})
    here.world.store.create("deployments", workload("Deployment", "filler", 1, "1500m"))
    here.run(30)
    here.world.store.patch("nodes", "od-1", {"spec": {"unschedulable": None}})
    here.world.store.create("deployments", workload("Deployment", "web", 2, "800m"))
    here.begin().run(900)
    assert [(drain.node.name, drain.failure) for drain in here.drains] == [("od-1", None)]
    assert {pod["spec"]["nodeName"].partition("-new")[0] for pod in here.pods(app="web")} == {"spot-1"}
    assert len([name for name in here.nodes if "-new-" in name]) == 1
    here.world.close()
