"""Tests of the NodeInfo maps of on-demand and spot nodes."""

from typing import Any

from rescheduler.planning.node_info import NodeInfos, OwnPods, node_infos
from rescheduler.planning.node_labels import NodeLabels
from rescheduler.planning.policy import Policy
from rescheduler.planning.rules.pod_traits import MIRROR
from tests.planning.builders import ON_DEMAND, SPOT, node, pod, snapshot

OTHER = "node-role.kubernetes.io/other"


def infos(*objects: Any, policy: Policy | None = None) -> NodeInfos:
    return node_infos(snapshot(list(objects)), policy or Policy())


def test_nodes_are_sorted_by_label_and_spot_wins() -> None:
    both = node("both", labels={ON_DEMAND: ""})
    maps = infos(node("od", ON_DEMAND), node("s", SPOT), both, node("other", OTHER))
    assert (list(maps.on_demand), list(maps.spot)) == (["od"], ["both", "s"])


def test_labels_with_values_select_nodes() -> None:
    policy = Policy(on_demand_label=NodeLabels.parse("kind=a"), spot_label=NodeLabels.parse("kind=b"))
    nodes = [node(name, OTHER, labels={"kind": kind}) for name, kind in (("x", "a"), ("y", "b"), ("z", "c"))]
    maps = infos(*nodes, policy=policy)
    assert (list(maps.on_demand), list(maps.spot)) == (["x"], ["y"])


def test_requested_and_free_amounts_add_up_to_the_allocatable_amounts() -> None:
    pods = [pod("a", "od", cpu="500m"), pod("d", "od", cpu="250m", owner="DaemonSet"), pod("p", cpu="1")]
    info = infos(node("od", ON_DEMAND), *pods).on_demand["od"]
    assert sorted(each.key for each in info.pods) == ["default/a", "default/d"]
    assert (info.requested["cpu"], info.requested["pods"]) == (750, 2)
    assert {name: info.requested[name] + info.free[name] for name in info.free} == info.allocatable
    assert (info.name, info.ready) == ("od", True)


def test_own_pods_follow_each_change() -> None:
    daemon_pod, mirror = pod("d", "od", owner="DaemonSet"), pod("m", "od", annotations={MIRROR: ""})
    state, own = snapshot([node("od", ON_DEMAND), daemon_pod, mirror, pod("a", "od")]), OwnPods()
    later = snapshot([node("od", ON_DEMAND), pod("b", "od")])

    def counted() -> int:
        return own.on(node_infos(state, Policy()).on_demand["od"], state)

    assert counted() == 1
    state.upsert("Pod", later.pods["default/b"])
    assert counted() == 2
    state.delete("Pod", "default/a")
    assert counted() == 1
    state.delete("Node", "od")
    state.delete("Pod", "default/b")
    state.upsert("Node", *later.nodes)
    assert counted() == 0
    assert own.on(node_infos(later, Policy()).on_demand["od"], later) == 1


def test_a_node_with_unknown_status_is_not_ready() -> None:
    assert not infos(node("od", ON_DEMAND, ready="Unknown")).on_demand["od"].ready
