"""Tests of the largest share of a controller's replicas on one pool of spot nodes."""

from typing import Any

import pytest
import yaml

from predicates.objects import Pod
from rescheduler.errors import UsageError
from rescheduler.planning.money.prices import PriceList
from rescheduler.planning.outcome import Plan, Reason, Rejected, Verdict
from rescheduler.planning.planner import Planner
from rescheduler.planning.policy import Policy
from rescheduler.planning.pool_shares import MAX_SHARE, Limit, ignored_annotation, parse_share
from rescheduler.planning.what_if.levers import rank_levers
from tests.planning.builders import CIRCUMSTANCES, ON_DEMAND, Manifest, node, pod, short, snapshot, summary

TYPE = "node.kubernetes.io/instance-type"
HALF = Policy(max_share_per_spot_pool=50)


def spot(name: str, zone: str = "a", cpu: str = "8") -> Manifest:
    return node(name, zone=zone, cpu=cpu, labels={TYPE: "m5.large"})


def deployment_pod(name: str, on: str, template: str, **fields: Any) -> Manifest:
    """Return a pod of the ReplicaSet ``web-TEMPLATE`` of the Deployment ``web``."""
    built = pod(name, on, labels={"app": "web", "pod-template-hash": template}, **fields)
    owner = {"kind": "ReplicaSet", "name": f"web-{template}", "uid": f"uid-of-web-{template}", "controller": True}
    built["metadata"]["ownerReferences"] = [owner]
    return built


#: The pods of od-1 cannot go to od-2.
FULL = [{"key": "example.com/full", "effect": "NoSchedule"}]
OD = (node("od-1", ON_DEMAND), node("od-2", ON_DEMAND, taints=FULL))
ONE_POOL = (*OD, spot("spot-1"))
TWO_POOLS = (*ONE_POOL, spot("spot-2", "b"))
LIMITED = {MAX_SHARE: "50%"}

#: case: objects, policy, whether od-1 can be drained
CASES: dict[str, tuple[list[Manifest], Policy, bool]] = {
    "no limit": ([*ONE_POOL, pod("web-1", "od-1"), pod("web-2", "od-1")], Policy(), True),
    "both on the only pool": ([*ONE_POOL, pod("web-1", "od-1"), pod("web-2", "od-1")], HALF, False),
    "one on each pool": ([*TWO_POOLS, pod("web-1", "od-1"), pod("web-2", "od-1")], HALF, True),
    "the other pool has no room": (
        [*ONE_POOL, spot("spot-2", "b", cpu="1"), pod("web-1", "od-1", cpu="2"), pod("web-2", "od-1", cpu="2")],
        HALF,
        False,
    ),
    "replicas that stay on the pool count": ([*ONE_POOL, pod("web-1", "od-1"), pod("web-2", "spot-1")], HALF, False),
    "replicas that stay on another pool": ([*TWO_POOLS, pod("web-1", "od-1"), pod("web-2", "spot-2")], HALF, True),
    "replicas on on-demand nodes count in the total": (
        [*ONE_POOL, pod("web-1", "od-1"), pod("web-2", "od-2")],
        HALF,
        True,
    ),
    "pending replicas count in the total": ([*ONE_POOL, pod("web-1", "od-1"), pod("web-2")], HALF, True),
    "replicas that are being deleted do not": (
        [*ONE_POOL, pod("web-1", "od-1"), pod("web-2", "od-2", deleted=True), pod("web-3", "spot-1")],
        HALF,
        False,
    ),
    "a single replica": ([*ONE_POOL, pod("web-1", "od-1")], Policy(max_share_per_spot_pool=1), True),
    "one replica is always allowed": (
        [*ONE_POOL, pod("web-1", "od-1"), pod("web-2", "od-2"), pod("web-3", "od-2")],
        Policy(max_share_per_spot_pool=1),
        True,
    ),
    "the share is rounded down": (
        [*ONE_POOL, pod("web-1", "od-1"), pod("web-2", "od-1"), pod("web-3", "od-2", cpu="3")],
        Policy(max_share_per_spot_pool=66),
        False,
    ),
    "exactly the share": (
        [*ONE_POOL, pod("web-1", "od-1"), pod("web-2", "od-1"), pod("web-3", "od-2", cpu="3")],
        Policy(max_share_per_spot_pool=67),
        True,
    ),
    "a pool that has too many already gets none": (
        [*TWO_POOLS, pod("web-1", "od-1"), pod("web-2", "spot-1"), pod("web-3", "spot-1", cpu="7")],
        HALF,
        True,
    ),
    "other controllers do not count": (
        [*ONE_POOL, pod("web-1", "od-1"), pod("db-1", "od-1"), pod("web-2", "od-2"), pod("db-2", "od-2")],
        HALF,
        True,
    ),
    "controllers of that name in other namespaces do not count": (
        [*ONE_POOL, pod("web-1", "od-1"), pod("shop/web-1", "od-1"), pod("web-2", "od-2"), pod("shop/web-2", "od-2")],
        HALF,
        True,
    ),
    "two ReplicaSets of a Deployment count together": (
        [*ONE_POOL, deployment_pod("web-1", "od-1", "new"), deployment_pod("web-2", "spot-1", "old")],
        HALF,
        False,
    ),
    "a StatefulSet": (
        [
            *ONE_POOL,
            pod("db-0", "od-1", owner="apps/v1/StatefulSet"),
            pod("db-1", "spot-1", owner="apps/v1/StatefulSet"),
        ],
        HALF,
        False,
    ),
    "the annotation": (
        [*ONE_POOL, pod("web-1", "od-1", annotations=LIMITED), pod("web-2", "spot-1", annotations=LIMITED)],
        Policy(),
        False,
    ),
    "the annotation of one of two pods": (
        [*ONE_POOL, pod("web-1", "od-1", annotations=LIMITED), pod("web-2", "od-1")],
        Policy(),
        False,
    ),
    "the annotation allows more than the flag": (
        [*ONE_POOL, pod("web-1", "od-1", annotations={MAX_SHARE: "100%"}), pod("web-2", "spot-1")],
        HALF,
        True,
    ),
    "the strictest annotation holds": (
        [*ONE_POOL, pod("web-1", "od-1", annotations={MAX_SHARE: "90%"}), pod("web-2", "od-1", annotations=LIMITED)],
        Policy(),
        False,
    ),
    "the annotation of another controller": (
        [*ONE_POOL, pod("web-1", "od-1"), pod("web-2", "spot-1"), pod("db-1", "od-1", annotations=LIMITED)],
        Policy(),
        True,
    ),
    "an annotation that cannot be read, without the flag": (
        [*ONE_POOL, pod("web-1", "od-1", annotations={MAX_SHARE: "half"}), pod("web-2", "spot-1")],
        Policy(),
        True,
    ),
    "an annotation that cannot be read, with the flag": (
        [*ONE_POOL, pod("web-1", "od-1", annotations={MAX_SHARE: "half"}), pod("web-2", "spot-1")],
        HALF,
        False,
    ),
    "pools by another label": (
        [*TWO_POOLS, pod("web-1", "od-1"), pod("web-2", "spot-1")],
        Policy(max_share_per_spot_pool=50, spot_pool_labels=(TYPE,)),
        False,
    ),
    "pods without a controller": (
        [*ONE_POOL, pod("web-1", "od-1", owner=None), pod("web-2", "spot-1", owner=None)],
        Policy(max_share_per_spot_pool=1, delete_non_replicated_pods=True),
        True,
    ),
}


@pytest.mark.parametrize(("objects", "policy", "drainable"), CASES.values(), ids=CASES)
def test_the_share_of_a_controller_on_a_pool_is_limited(
    objects: list[Manifest], policy: Policy, *, drainable: bool
) -> None:
    """One node, all nodes each by itself, and the search for the first one agree."""
    planner = Planner(snapshot(objects), policy)
    verdicts: list[Verdict] = [
        planner.plan_node("od-1", CIRCUMSTANCES),
        planner.look_again("od-1", CIRCUMSTANCES),
        next(each for each in planner.plan_each(CIRCUMSTANCES).verdicts if each.node == "od-1"),
        next(
            each
            for each in planner.first_plan(CIRCUMSTANCES, take_empty=lambda _: False).verdicts
            if each.node == "od-1"
        ),
    ]
    assert [isinstance(verdict, Plan) for verdict in verdicts] == [drainable] * 4
    if not drainable:
        assert {
            str(blocker) for verdict in verdicts if isinstance(verdict, Rejected) for blocker in verdict.blockers
        } == {str(blocker) for blocker in _rejected(verdicts[0]).blockers}
        assert short(_rejected(verdicts[0])) == [Reason.SPOT_POOL_SHARE]


def _rejected(verdict: Verdict) -> Rejected:
    assert isinstance(verdict, Rejected)
    return verdict


def detail(objects: list[Manifest], policy: Policy = HALF) -> str:
    [blocker] = _rejected(Planner(snapshot(objects), policy).plan_node("od-1", CIRCUMSTANCES)).blockers
    return blocker.text


def test_the_text_names_the_replicas_the_pool_and_the_rule() -> None:
    nodes = [*ONE_POOL, node("od-3", ON_DEMAND, zone="b", taints=FULL)]
    assert detail([*nodes, pod("web-1", "od-1"), pod("web-2", "spot-1")]) == (
        "pod default/web-1: 2 of 2 replicas of ReplicaSet default/web would be on spot pool a/m5.large; "
        "--max-share-per-spot-pool=50% allows 1; its pod template would keep it with topologySpreadConstraints: "
        "[{maxSkew: 1, topologyKey: topology.kubernetes.io/zone, whenUnsatisfiable: DoNotSchedule, "
        'labelSelector: {matchLabels: {app: "web"}}}]'
    )


def test_the_text_says_if_no_constraint_helps() -> None:
    assert detail([*ONE_POOL, pod("web-1", "od-1"), pod("web-2", "spot-1")]).endswith(
        "add spot nodes of another zone or instance type"
    )


def test_the_text_names_an_annotation_that_is_ignored() -> None:
    objects = [*ONE_POOL, pod("web-1", "od-1", annotations={MAX_SHARE: "half"}), pod("web-2", "spot-1")]
    ignored = f"the annotation {MAX_SHARE}: 'half' is ignored, expected a percentage from 1% to 100%"
    assert f"--max-share-per-spot-pool=50% allows 1 ({ignored})" in detail(objects)
    cluster = snapshot(objects)
    assert [ignored_annotation(cluster.pods[f"default/web-{number}"]) for number in (1, 2)] == [ignored, ""]


def test_plans_in_sequence_count_the_replicas_of_earlier_plans() -> None:
    """Each of the nodes can be drained by itself."""
    replicas = [pod("web-1", "od-1"), pod("web-2", "od-2")]
    planner = Planner(snapshot([*ONE_POOL, *replicas]), HALF)
    assert summary(planner.plan_each(CIRCUMSTANCES)) == {"od-1": {"web-1": "spot-1"}, "od-2": {"web-2": "spot-1"}}
    assert summary(planner.plan_all(CIRCUMSTANCES)) == {"od-1": {"web-1": "spot-1"}, "od-2": [Reason.SPOT_POOL_SHARE]}
    both = Planner(snapshot([*TWO_POOLS, *replicas]), HALF).plan_all(CIRCUMSTANCES)
    assert len(both.plans) == 2


def test_plans_after_a_rejected_one_count_the_replicas_of_each_other() -> None:
    """The second replica of web is one too many on the only pool; so is the third of the four of db."""
    names = "web-1", "web-2", "db-1", "db-2", "db-3"
    objects = [node(f"od-{name}", ON_DEMAND, taints=FULL) for name in (*names, "stays")]
    objects += [pod(name, f"od-{name}", cpu="100m" if name in names[:2] else "200m") for name in names]
    objects += [spot("spot-1"), pod("db-4", "od-stays"), pod("alone", "od-stays", owner=None)]
    planning = Planner(snapshot(objects), HALF).plan_all(CIRCUMSTANCES)
    assert [plan.node for plan in planning.plans] == ["od-web-1", "od-db-1", "od-db-2"]
    assert summary(planning)["od-db-3"] == [Reason.SPOT_POOL_SHARE]


def test_the_room_of_a_rejected_plan_is_left_for_other_nodes() -> None:
    objects = [
        *OD,
        spot("spot-1", cpu="2"),
        *(pod(f"web-{number}", "od-1") for number in (1, 2)),
        *(pod(f"db-{number}", "od-2", annotations={MAX_SHARE: "100%"}) for number in (1, 2)),
    ]
    planning = Planner(snapshot(objects), HALF).plan_all(CIRCUMSTANCES)
    assert {verdict.node: short(verdict) for verdict in planning.verdicts}["od-1"] == [Reason.SPOT_POOL_SHARE]
    assert [plan.node for plan in planning.plans] == ["od-2"]


def test_the_search_goes_on_to_the_next_node() -> None:
    objects = [*ONE_POOL, pod("web-1", "od-1"), pod("web-2", "spot-1"), pod("db-1", "od-2", cpu="2")]
    planning = Planner(snapshot(objects), HALF).first_plan(CIRCUMSTANCES)
    assert summary(planning) == {"od-1": [Reason.SPOT_POOL_SHARE], "od-2": {"db-1": "spot-1"}}


def test_kept_verdicts_follow_annotations_and_other_replicas() -> None:
    objects = [*ONE_POOL, pod("web-1", "od-1"), pod("web-2", "spot-1")]
    cluster = snapshot(objects)
    planner = Planner(cluster, Policy())
    first = planner.plan_each(CIRCUMSTANCES)
    assert planner.plan_each(CIRCUMSTANCES) is first
    cluster.upsert("Pod", _pod(pod("web-1", "od-1", annotations=LIMITED)))
    assert summary(planner.plan_each(CIRCUMSTANCES))["od-1"] == [Reason.SPOT_POOL_SHARE]
    assert planner.plan_each(CIRCUMSTANCES) is not first
    cluster.upsert("Pod", _pod(pod("web-3", "od-2")))
    cluster.upsert("Pod", _pod(pod("web-4", "od-2")))
    assert summary(planner.plan_each(CIRCUMSTANCES))["od-1"] == {"web-1": "spot-1"}


def _pod(manifest: Manifest) -> Pod:
    [built] = snapshot([manifest]).pods.values()
    return built


def test_the_constraint_of_the_lever_makes_the_scheduler_keep_the_limit() -> None:
    """Pods that tolerate everything and prefer one zone: without the constraint all of them would go there."""
    prefers: Manifest = {
        "nodeAffinity": {
            "preferredDuringSchedulingIgnoredDuringExecution": [
                {
                    "weight": 100,
                    "preference": {
                        "matchExpressions": [{"key": "topology.kubernetes.io/zone", "operator": "In", "values": ["a"]}]
                    },
                }
            ]
        }
    }

    def objects(**spec: Any) -> list[Manifest]:
        replicas = (pod(f"web-{number}", "od-1", affinity=prefers, **spec) for number in range(4))
        return [*TWO_POOLS, *(each for each in replicas)]

    planner = Planner(snapshot(objects(cpu="500m")), HALF)
    planning = planner.plan_all(CIRCUMSTANCES)
    assert summary(planning)["od-1"] == [Reason.SPOT_POOL_SHARE]
    levers = rank_levers(planning, planner.round(CIRCUMSTANCES), PriceList(), lambda: False).levers
    [lever] = [each for each in levers if each.reason is Reason.SPOT_POOL_SHARE]
    assert (lever.controller, lever.nodes, lever.frees) == ("ReplicaSet default/web", ("od-1",), ("od-1",))
    template = yaml.safe_load(lever.obstacle[lever.obstacle.index("topologySpreadConstraints") :])
    verdict = Planner(snapshot(objects(cpu="500m", **template)), HALF).plan_node("od-1", CIRCUMSTANCES)
    assert isinstance(verdict, Plan)


WRONG = ["50", "0%", "101%", "half", "-1%", "1.5%", "", "50 %", "９%", "1" * 5000 + "%"]


@pytest.mark.parametrize("text", WRONG)
def test_values_that_are_no_percentages_are_errors(text: str) -> None:
    with pytest.raises(UsageError, match="expected a percentage from 1% to 100%"):
        parse_share(text)


def test_percentages() -> None:
    assert [parse_share(text) for text in ("1%", "50%", " 100% ")] == [1, 50, 100]
    assert [Limit(50, "").allowed(total) for total in range(2, 8)] == [1, 1, 2, 2, 3, 3]
