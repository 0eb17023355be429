"""Further failures that were reported in public: the verdict on a node, and its source."""

from dataclasses import replace
from typing import Any

import pytest

from rescheduler.planning.outcome import Plan
from rescheduler.planning.planner import Planner
from rescheduler.planning.policy import Policy
from tests.field.test_plans import (
    ON_DELETE,
    PLAN,
    Case,
    cluster,
    controller,
    db_pod,
    deployment,
    disk,
    job_pod,
    stateful,
    uses,
)
from tests.planning.builders import CIRCUMSTANCES, HOST, ON_DEMAND, ZONE, Manifest, node, pod, seeks, short, snapshot

MUTUAL = "aws/karpenter-provider-aws#8914"
PAUSE = "pusher/k8s-spot-rescheduler#73"
GRACE = "rabbitmq/cluster-operator#419, kubernetes/autoscaler#147, kubernetes/kubernetes#94435"


def grace(seconds: int) -> dict[str, Any]:
    return {"terminationGracePeriodSeconds": seconds}


def beside(*apps: str, key: str = ZONE) -> dict[str, Any]:
    """Return the affinity of a pod that must be in a domain with a pod of each of *apps*."""
    name = "requiredDuringSchedulingIgnoredDuringExecution"
    return {"affinity": {"podAffinity": {name: [seeks(app, key)["podAffinity"][name][0] for app in apps]}}}


def pair(*, key: str = ZONE, owner: str = "apps/v1/ReplicaSet", number: int = 1) -> list[Manifest]:
    """Return pods of two workloads of which each must be in a domain with the other."""
    return [
        pod(f"{app}-{n}", "od", owner=owner, **beside(other, key=key))
        for n in range(1, number + 1)
        for app, other in ("ab", "ba")
    ]


def across(app: str, namespace: str) -> dict[str, Any]:
    """Return the affinity of a pod that must be in a zone with a pod of *app* of another namespace."""
    affinity = beside(app)
    [term] = affinity["affinity"]["podAffinity"]["requiredDuringSchedulingIgnoredDuringExecution"]
    term["namespaces"] = [namespace]
    return affinity


def ring(*, key: str = ZONE) -> list[Manifest]:
    return [pod(f"{app}-1", "od", **beside(other, key=key)) for app, other in ("ab", "bc", "ca")]


def zonal_disk(zone: str) -> list[Manifest]:
    """Return a pod with a volume of *zone* that must be in a zone with ``b``, and its claim and volume."""
    nodes = {
        "required": {"nodeSelectorTerms": [{"matchExpressions": [{"key": ZONE, "operator": "In", "values": [zone]}]}]}
    }
    return [
        pod("a-0", "od", owner="apps/v1/StatefulSet", **beside("b"), **uses("data")),
        *disk(nodeAffinity=nodes),
    ]


def paused(priority: int | None, *, here: int = 0, **web: Any) -> list[Manifest]:
    """Return two spot nodes that are full of pods of this priority, and a pod that has to move."""
    low = {} if priority is None else {"priority": priority}
    return cluster(
        *(pod(f"ops/pause-{n}", f"s-{n}", cpu="4", owner="apps/v1/ReplicaSet", **low) for n in (1, 2)),
        pod("a-1", "od", cpu="2", priority=here, **web),
    )


def for_node(name: str, *more: str, key: str = "metadata.name") -> dict[str, Any]:
    """Return the affinity of a pod for the node with this name, or one of several."""
    fields = [{"key": key, "operator": "In", "values": [name, *more]}]
    terms = {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": [{"matchFields": fields}]}}
    return {"affinity": {"nodeAffinity": terms}, "restartPolicy": "OnFailure", "tolerations": [{"operator": "Exists"}]}


OF_S3: dict[str, Any] = {"labels": {"s3.csi.aws.com/volume-name": "s3-pv"}}
MOUNT = "awslabs/mountpoint-s3-csi-driver#566"


def wants(number: int, made: Manifest) -> Manifest:
    return made | {"spec": made["spec"] | {"replicas": number}}


CASES: dict[str, Case] = {
    "a pod that mounts a bucket for its node": Case(
        cluster(pod("a-1", "od"), pod("mount-s3/mp-1", "od", owner=None, **for_node("od"))), {"a-1": "s-1"}, MOUNT
    ),
    "in another namespace, with the labels of the driver": Case(
        cluster(pod("a-1", "od"), pod("mounts/mp-1", "od", owner=None, **for_node("od"), **OF_S3)),
        {"a-1": "s-1"},
        MOUNT,
    ),
    "by the label of the host": Case(
        cluster(pod("a-1", "od"), pod("mount-s3/mp-1", "od", owner=None, nodeSelector={HOST: "od"})),
        {"a-1": "s-1"},
        MOUNT,
    ),
    "created for its node, without the scheduler": Case(
        cluster(pod("a-1", "od"), pod("kube-system/juicefs-od-pvc", "od", owner=None, assigned=True)),
        {"a-1": "s-1"},
        "juicedata/juicefs-csi-driver: mount pods",
    ),
    "of the user, created for its node": Case(
        cluster(pod("a-1", "od", owner=None, assigned=True)), ["no-controller"], MOUNT
    ),
    "of a CSINode": Case(
        cluster(pod("mounts/mp-1", "od", owner="storage.k8s.io/v1/CSINode", **for_node("od"))), {}, MOUNT
    ),
    "without its workload": Case(cluster(pod("mount-s3/mp-1", "od", owner=None, **for_node("od"))), {}, MOUNT),
    "of the user, for one node": Case(
        cluster(pod("a-1", "od", owner=None, **for_node("od"))), ["no-controller", "pinned-to-on-demand"], MOUNT
    ),
    "of a driver, for two nodes": Case(
        cluster(pod("a-1", "od", owner=None, **for_node("od", "s-1"), **OF_S3)),
        ["no-controller", "pinned-to-on-demand"],
        MOUNT,
    ),
    "of a driver, for any node": Case(cluster(pod("a-1", "od", owner=None, **OF_S3)), ["no-controller"], MOUNT),
    "of a ReplicaSet, for one node": Case(
        cluster(pod("mount-s3/a-1", "od", owner="apps/v1/ReplicaSet", **for_node("od") | {"restartPolicy": "Always"})),
        ["pinned-to-on-demand"],
        MOUNT,
    ),
    "a ReplicaSet that wants no pods": Case(
        cluster(pod("a-1", "od"), wants(0, controller("ReplicaSet", "a"))),
        ["no-controller"],
        "kubernetes: kubectl scale",
    ),
    "an old ReplicaSet of a Deployment that wants pods": Case(
        cluster(
            pod("a-1", "od", owner="apps/v1/ReplicaSet"),
            wants(0, controller("ReplicaSet", "a", owned=True)),
            deployment("a"),
        ),
        {"a-1": "s-1"},
        "kubernetes: rolling updates",
    ),
    **{
        f"pause pods of priority {priority} on spot": Case(paused(priority), {"a-1": "s-1"}, PAUSE)
        for priority in (-1, -10, -11)
    },
    "pause pods of the same priority": Case(paused(0), ["no-room-on-spot"], PAUSE),
    "pause pods without a priority": Case(paused(None), ["no-room-on-spot"], PAUSE),
    "a cutoff above the pause pods": Case(
        paused(0, here=100), {"a-1": "s-1"}, PAUSE, replace(PLAN, expendable_pods_priority_cutoff=1)
    ),
    "pods of a lower priority that do not yield": Case(paused(0, here=100), ["no-room-on-spot"], PAUSE),
    "a pod of a lower priority than the pause pods": Case(paused(-1, here=-2), ["no-room-on-spot"], PAUSE),
    "a pod that preempts nothing": Case(paused(-1, preemptionPolicy="Never"), ["no-room-on-spot"], PAUSE),
    "a pause pod beside room": Case(
        cluster(pod("pause-1", "s-1", cpu="4", priority=-1), pod("a-1", "od", cpu="2")), {"a-1": "s-2"}, PAUSE
    ),
    "pause pods for two pods": Case([*paused(-1), pod("b-1", "od", cpu="3")], {"a-1": "s-2", "b-1": "s-1"}, PAUSE),
    "pause pods that would not suffice": Case([*paused(-1), pod("b-1", "od", cpu="9")], ["no-room-on-spot"] * 2, PAUSE),
    "two workloads that must share a zone": Case(cluster(*pair()), {"a-1": "s-1", "b-1": "s-1"}, MUTUAL),
    "two StatefulSets that must share a zone": Case(
        cluster(*pair(owner="apps/v1/StatefulSet")), {"a-1": "s-1", "b-1": "s-1"}, MUTUAL
    ),
    "two of each": Case(cluster(*pair(number=2)), {"a-1": "s-1", "a-2": "s-1", "b-1": "s-1", "b-2": "s-1"}, MUTUAL),
    "a ring of three": Case(cluster(*ring()), {"a-1": "s-1", "b-1": "s-1", "c-1": "s-1"}, MUTUAL),
    "two workloads of two namespaces": Case(
        cluster(pod("x/a-1", "od", **across("b", "y")), pod("y/b-1", "od", **across("a", "x"))),
        {"a-1": "s-1", "b-1": "s-1"},
        MUTUAL,
    ),
    "two workloads of two namespaces, of which each looks in its own": Case(
        cluster(pod("x/a-1", "od", **beside("b")), pod("y/b-1", "od", **beside("a"))), ["no-room-on-spot"] * 2, MUTUAL
    ),
    "the other workload is on another on-demand node": Case(
        cluster(node("od-2", ON_DEMAND), pod("a-1", "od", **beside("b")), pod("b-1", "od-2", **beside("a"))),
        {"a-1": "s-1"},
        MUTUAL,
    ),
    "a ring of three by hostname": Case(cluster(*ring(key=HOST)), ["no-room-on-spot"] * 3, MUTUAL),
    "two workloads that must share a node": Case(cluster(*pair(key=HOST)), ["no-room-on-spot"] * 2, MUTUAL),
    "two workloads that must share a zone, with spot in another zone": Case(
        cluster(*pair(), zone="b"), ["no-room-on-spot"] * 2, MUTUAL
    ),
    "with spot in two zones": Case(
        [node("od", ON_DEMAND), node("s-0", zone="b"), node("s-1"), *pair()], {"a-1": "s-1", "b-1": "s-1"}, MUTUAL
    ),
    "with a volume of the zone": Case(
        [node("od", ON_DEMAND), node("s-0", zone="b"), node("s-1"), *zonal_disk("a"), pod("b-1", "od", **beside("a"))],
        {"a-0": "s-1", "b-1": "s-1"},
        MUTUAL,
    ),
    "with a volume of a zone without spot": Case(
        [node("od", ON_DEMAND), node("s-0", zone="b"), *zonal_disk("a"), pod("b-1", "od", **beside("a"))],
        ["no-room-on-spot"] * 2,
        MUTUAL,
    ),
    "with a third pod that does not fit": Case(
        cluster(*pair(), pod("c-1", "od", cpu="9")), ["no-room-on-spot"], MUTUAL
    ),
    "with room for one of them": Case(
        [node("od", ON_DEMAND), node("s-1", cpu="1"), *pair()], ["no-room-on-spot"] * 2, MUTUAL
    ),
    "with another pod that keeps the node": Case(
        cluster(*pair(), pod("c-1", "od", owner=None)), ["no-controller"], MUTUAL
    ),
    **{
        f"a grace period of {seconds} s, of a {owner}": Case(
            cluster(pod("a-0", "od", owner=owner, **grace(seconds))), ["grace-period"], GRACE
        )
        for seconds, owner in (
            (604800, "apps/v1/StatefulSet"),
            (3600, "apps/v1/ReplicaSet"),
            (1800, "core.strimzi.io/v1/StrimziPodSet"),
        )
    },
    "a grace period of two minutes": Case(cluster(pod("a-1", "od", **grace(120))), {"a-1": "s-1"}, GRACE),
    "a long grace period of a DaemonSet's pod": Case(
        cluster(pod("a-1", "od", owner="apps/v1/DaemonSet", **grace(3600))), {}, GRACE
    ),
    "a long grace period of the new template only": Case(
        cluster(db_pod("db-0"), stateful(**ON_DELETE, **grace(3600))), {"db-0": "s-1"}, GRACE
    ),
    "a long grace period of the running pod only": Case(
        cluster(db_pod("db-0", **grace(3600)), stateful(**ON_DELETE)), ["grace-period"], GRACE
    ),
    "a long grace period of one of two pods": Case(
        cluster(pod("a-1", "od"), pod("b-1", "od", **grace(600))), ["grace-period"], GRACE
    ),
    "a long grace period of a pod that is already being deleted": Case(
        cluster(pod("a-1", "od", deleted=True, **grace(3600))), ["pod-terminating"], GRACE
    ),
    "a long grace period of a Job's pod": Case(
        cluster(job_pod("j-1", restartPolicy="OnFailure", **grace(3600))), ["grace-period"], GRACE
    ),
}


@pytest.mark.parametrize("case", CASES.values(), ids=CASES)
def test_the_verdict_is_the_right_one(case: Case) -> None:
    planner = Planner(snapshot(case.objects), PLAN if case.policy == Policy() else case.policy)
    assert short(planner.plan_node("od", CIRCUMSTANCES)) == case.right
    [found] = [each for each in planner.plan_all(CIRCUMSTANCES).verdicts if each.node == "od"]
    assert short(found) == case.right, "all nodes in sequence"


def test_a_drain_follows_pods_that_must_share_a_zone() -> None:
    """One has been evicted, and its replacement is not bound yet: it goes beside the one that has not moved."""
    planner = Planner(snapshot(cluster(*pair())), PLAN)
    [verdict] = planner.first_plan(CIRCUMSTANCES).verdicts
    assert isinstance(verdict, Plan)
    assert (short(verdict), verdict.robust) == ({"a-1": "s-1", "b-1": "s-1"}, True)
    first = verdict.placements[0].pod
    gone = planner.filters.snapshot.pods[str(first)]
    assert short(planner.follow("od", CIRCUMSTANCES, [gone], [gone.uid])) == {"a-1": "s-1", "b-1": "s-1"}


def test_pods_that_yield_their_room_are_told_and_only_as_many_as_necessary() -> None:
    small = [pod(f"ops/pause-{n}", "s-1", cpu="1", priority=-n, owner="apps/v1/ReplicaSet") for n in (1, 2, 3, 4)]
    planner = Planner(snapshot([node("od", ON_DEMAND), node("s-1"), *small, pod("a-1", "od", cpu="2")]), PLAN)
    [verdict] = planner.first_plan(CIRCUMSTANCES).verdicts
    assert isinstance(verdict, Plan)
    assert (short(verdict), verdict.robust) == ({"a-1": "s-1"}, True)
    assert [str(each) for each in verdict.preempts] == ["ops/pause-3", "ops/pause-4"]
    gone = planner.filters.snapshot.pods["default/a-1"]
    assert short(planner.follow("od", CIRCUMSTANCES, [gone], [gone.uid])) == {"a-1": "s-1"}
