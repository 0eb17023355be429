"""Controllers with one replica, and replicas that stay on on-demand nodes."""

from collections import Counter
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rescheduler.planning.outcome import Plan, Rejected
from rescheduler.planning.planner import Planner
from rescheduler.planning.policy import Policy
from rescheduler.planning.rules.minimum import MIN_ON_DEMAND_REPLICAS, floor_of
from tests.planning.builders import CIRCUMSTANCES, ON_DEMAND, Manifest, node, pod, short, snapshot, summary

KEPT = "min-on-demand-replicas"

#: value, replicas → replicas that stay
FLOORS: dict[str, tuple[str, int, int | None]] = {
    "a number": ("2", 5, 2),
    "more than there are": ("9", 5, 9),
    "none": ("0", 5, 0),
    "half of an even number": ("50%", 4, 2),
    "half of an odd number": ("50%", 5, 3),
    "one percent": ("1%", 5, 1),
    "zero percent": ("0%", 5, 0),
    "all": ("100%", 5, 5),
    "spaces around it": (" 2 ", 5, 2),
    "more than all": ("101%", 5, None),
    "a negative number": ("-1", 5, None),
    "a fraction": ("0.5", 5, None),
    "a word": ("all", 5, None),
    "nothing": ("", 5, None),
}


@pytest.mark.parametrize(("value", "total", "floor"), FLOORS.values(), ids=FLOORS)
def test_the_annotation_determines_how_many_replicas_stay(value: str, total: int, floor: int | None) -> None:
    assert floor_of(value, total) == floor


def web(on: dict[str, int], value: str | None, **fields: Any) -> list[Manifest]:
    """Return pods of one controller; *on* is the number of pods by node."""
    annotations = {} if value is None else {MIN_ON_DEMAND_REPLICAS: value}
    places = [name for name, pods in on.items() for _ in range(pods)]
    return [pod(f"web-{n}", place, annotations=annotations, **fields) for n, place in enumerate(places)]


NODES = [node("od-1", ON_DEMAND), node("od-2", ON_DEMAND, cpu="8"), node("s", cpu="16")]

#: pods by node, annotation → whether od-1 can be drained by itself
SINGLE_NODES: dict[str, tuple[dict[str, int], str | None, bool]] = {
    "no annotation": ({"od-1": 2}, None, True),
    "enough stay": ({"od-1": 1, "od-2": 2}, "2", True),
    "too few stay": ({"od-1": 2, "od-2": 2}, "3", False),
    "replicas on spot nodes do not count": ({"od-1": 1, "od-2": 1, "s": 3}, "2", False),
    "a percentage counts all replicas": ({"od-1": 1, "od-2": 1, "s": 2}, "25%", True),
    "a percentage that is too high": ({"od-1": 1, "od-2": 1, "s": 2}, "50%", False),
    "fewer than that are there already": ({"od-1": 1, "s": 3}, "2", False),
    "pending replicas do not count as on on-demand nodes": ({"od-1": 1, "": 1}, "1", False),
    "unreadable": ({"od-1": 1, "od-2": 5}, "some", False),
}


@pytest.mark.parametrize(("on", "value", "drainable"), SINGLE_NODES.values(), ids=SINGLE_NODES)
def test_a_single_node_is_drained_only_if_enough_replicas_stay(
    on: dict[str, int], value: str | None, drainable: bool
) -> None:
    verdict = Planner(snapshot([*NODES, *web(on, value)]), Policy()).plan_node("od-1", CIRCUMSTANCES)
    assert isinstance(verdict, Plan) is drainable
    if isinstance(verdict, Rejected):
        assert {str(blocker.reason) for blocker in verdict.blockers} == {KEPT}


def test_a_plan_counts_the_replicas_that_its_earlier_drains_move() -> None:
    """Either node could be drained, but not both."""
    pods = [*web({"od-1": 1, "od-2": 2}, "1"), pod("other", "od-2")]
    planner = Planner(snapshot([*NODES, *pods]), Policy())
    assert [isinstance(verdict, Plan) for verdict in planner.plan_each(CIRCUMSTANCES).verdicts] == [True, True]
    planned = summary(planner.plan_all(CIRCUMSTANCES))
    assert sorted(map(type, planned.values()), key=str) == sorted([dict, list], key=str)
    assert [KEPT] in planned.values()


def test_the_details_name_the_numbers_and_the_pods_beyond() -> None:
    cluster = snapshot([*NODES, *web({"od-1": 2, "od-2": 1}, "2")])
    verdict = Planner(cluster, Policy()).plan_node("od-1", CIRCUMSTANCES)
    assert isinstance(verdict, Rejected)
    detail = (
        f"{MIN_ON_DEMAND_REPLICAS}: 2 keeps 2 of 3 replicas on on-demand nodes; "
        "3 are there, and 2 would move with this node"
    )
    assert [(blocker.pod, blocker.detail) for blocker in verdict.blockers] == [("default/web-1", detail)]


def test_other_controllers_and_pods_that_are_being_deleted_do_not_count() -> None:
    going = pod("web-9", "od-2", annotations={MIN_ON_DEMAND_REPLICAS: "1"}, deleted=True)
    pods = [*web({"od-1": 1}, "1"), going, pod("other-1", "od-2"), pod("shop/web-1", "od-2")]
    assert short(Planner(snapshot([*NODES, *pods]), Policy()).plan_node("od-1", CIRCUMSTANCES)) == [KEPT]


def test_the_remaining_replicas_are_judged_again_before_each_step() -> None:
    """A drain has evicted web-0; a replica elsewhere was deleted in the meantime, so web-1 must stay."""
    pods = web({"od-1": 2, "od-2": 1}, "1")
    cluster = snapshot([*NODES, *pods])
    planner = Planner(cluster, Policy())
    evicted = cluster.pods["default/web-0"]
    assert isinstance(planner.follow("od-1", CIRCUMSTANCES, [evicted], [evicted.uid]), Plan)
    cluster.delete("Pod", "default/web-2")
    assert short(planner.follow("od-1", CIRCUMSTANCES, [evicted], [evicted.uid])) == [KEPT]


SINGLE: dict[str, tuple[list[Manifest], Any]] = {
    "the only replica": (web({"od-1": 1}, None), ["single-replica"]),
    "two on one node": (web({"od-1": 2}, None), {"web-0": "s", "web-1": "s"}),
    "another one on another node": (web({"od-1": 1, "s": 1}, None), {"web-0": "s"}),
    "another one pending": (web({"od-1": 1, "": 1}, None), {"web-0": "s"}),
    "the other one is being deleted": (
        [*web({"od-1": 1}, None), pod("web-9", "od-2", deleted=True)],
        ["single-replica"],
    ),
    "the same name in another namespace": (
        [*web({"od-1": 1}, None), pod("shop/web-1", "od-2")],
        ["single-replica"],
    ),
    "a StatefulSet": (web({"od-1": 1}, None, owner="StatefulSet"), ["single-replica"]),
    "two controllers, whose pods schedule alike": (
        [pod("a-1", "od-1", labels={}), pod("b-1", "od-1", labels={}), pod("b-2", "od-2", labels={})],
        ["single-replica"],
    ),
    "a DaemonSet": (web({"od-1": 1}, None, owner="DaemonSet"), {}),
}


@pytest.mark.parametrize(("pods", "expected"), SINGLE.values(), ids=SINGLE)
def test_the_only_replica_of_a_controller_stays(pods: list[Manifest], expected: Any) -> None:
    planner = Planner(snapshot([*NODES, *pods]), Policy(skip_single_replicas=True))
    assert short(planner.plan_node("od-1", CIRCUMSTANCES)) == expected


def test_a_drain_that_has_evicted_a_replica_is_not_stopped_by_its_absence() -> None:
    """The replacement of web-0 does not exist yet."""
    cluster = snapshot([*NODES, *web({"od-1": 2}, None)])
    planner = Planner(cluster, Policy(skip_single_replicas=True))
    evicted = cluster.pods["default/web-0"]
    cluster.delete("Pod", evicted.key)
    assert isinstance(planner.follow("od-1", CIRCUMSTANCES, [evicted], [evicted.uid]), Plan)
    assert short(planner.plan_node("od-1", CIRCUMSTANCES)) == ["single-replica"]


VALUES = st.sampled_from([None, "0", "1", "2", "50%", "100%"])
PLACES = st.lists(st.sampled_from(["od-1", "od-2", "od-3", "s"]), max_size=5)


@given(st.lists(st.tuples(PLACES, VALUES), min_size=1, max_size=3))
def test_no_plan_leaves_fewer_replicas_than_the_floor(controllers: list[tuple[list[str], str | None]]) -> None:
    nodes = [node(f"od-{n}", ON_DEMAND) for n in (1, 2, 3)]
    pods = [
        pod(f"c{c}-{n}", place, cpu="100m", annotations={} if value is None else {MIN_ON_DEMAND_REPLICAS: value})
        for c, (places, value) in enumerate(controllers)
        for n, place in enumerate(places)
    ]
    planner = Planner(snapshot([*nodes, node("s", cpu="16"), *pods]), Policy())
    moved = Counter(
        placement.pod.name.partition("-")[0]
        for plan in planner.plan_all(CIRCUMSTANCES).plans
        for placement in plan.placements
    )
    for c, (places, value) in enumerate(controllers):
        floor = floor_of(value, len(places)) if value is not None else 0
        assert floor is not None
        on_demand = sum(place != "s" for place in places)
        assert moved[f"c{c}"] == 0 or on_demand - moved[f"c{c}"] >= floor
