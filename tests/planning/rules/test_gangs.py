"""Groups of pods that run and are lost together: a drain moves all of their pods, or leaves their minimum, or stays."""

from typing import Any

import pytest

from rescheduler.planning.outcome import Plan, Rejected
from rescheduler.planning.planner import Planner
from rescheduler.planning.policy import Policy
from rescheduler.planning.rules.gangs import Gangs, gangs_of
from tests.planning.builders import CIRCUMSTANCES, ON_DEMAND, ZONE, Manifest, node, pod, short, snapshot, summary

GANG = "gang-member"
SAFE = "cluster-autoscaler.kubernetes.io/safe-to-evict"
NODES = [node("od", ON_DEMAND, cpu="16"), node("od-2", ON_DEMAND), node("s", cpu="16")]
IN_SPEC: dict[str, Any] = {"schedulingGroup": {"podGroupName": "g"}}
COSCHEDULING: dict[str, Any] = {"labels": {"scheduling.x-k8s.io/pod-group": "g"}}
OLDER: dict[str, Any] = {"labels": {"pod-group.scheduling.sigs.k8s.io": "g"}}
VOLCANO: dict[str, Any] = {"annotations": {"scheduling.k8s.io/group-name": "g"}}
LWS: dict[str, Any] = {
    "labels": {"leaderworkerset.sigs.k8s.io/name": "g", "leaderworkerset.sigs.k8s.io/group-index": "0"},
    "annotations": {"leaderworkerset.sigs.k8s.io/size": "2"},
}

#: Volcano starts the leader of a replica alone, so the minimum is 1. But the replica ends with each of its pods.
LWS_BY_VOLCANO = {"labels": LWS["labels"], "annotations": LWS["annotations"] | VOLCANO["annotations"]}
VOLCANO_TOO: dict[str, Any] = {"annotations": {"scheduling.volcano.sh/group-name": "g"}}
INVALID: dict[str, Any] = {"annotations": {"scheduling.k8s.io/group-name": "G!"}}
OF_1_35: dict[str, Any] = {"workloadRef": {"name": "w", "podGroup": "g"}}
RACK = {"topology": [{"key": "rack"}]}


def group(version: str = "scheduling.k8s.io/v1beta1", **spec: Any) -> Manifest:
    """Return a PodGroup."""
    meta = {"name": "g", "namespace": "default"}
    return {"apiVersion": version, "kind": "PodGroup", "metadata": meta, "spec": spec}


def core(minimum: int, mode: Any = None, version: str = "v1beta1", **spec: Any) -> Manifest:
    """Return a PodGroup of Kubernetes."""
    policy = {"schedulingPolicy": {"gang": {"minCount": minimum}} if minimum else {"basic": {}}}
    return group(f"scheduling.k8s.io/{version}", **policy, **({"disruptionMode": mode} if mode else {}), **spec)


def composite(mode: str = "single", *, gang: bool = False, name: str = "c", **spec: Any) -> Manifest:
    """Return a CompositePodGroup."""
    policy = {"gang": {"minGroupCount": 1}} if gang else {"basic": {}}
    meta = {"name": name, "namespace": "default"}
    fields = {"schedulingPolicy": policy, "disruptionMode": {mode: {}}, **spec}
    return {"apiVersion": "scheduling.k8s.io/v1beta1", "kind": "CompositePodGroup", "metadata": meta, "spec": fields}


CHILD: dict[str, Any] = {"parentCompositePodGroupName": "c"}


def workload(minimum: int, name: str = "g", version: str = "scheduling.k8s.io/v1alpha1") -> Manifest:
    """Return a Workload of Kubernetes 1.35 with two groups."""
    policy = {"gang": {"minCount": minimum}} if minimum else {"basic": {}}
    groups = [{"name": "other", "policy": {"gang": {"minCount": 9}}}, {"name": name, "policy": policy}]
    meta = {"name": "w", "namespace": "default"}
    return {"apiVersion": version, "kind": "Workload", "metadata": meta, "spec": {"podGroups": groups}}


def coscheduled(minimum: int, version: str = "scheduling.x-k8s.io/v1alpha1") -> Manifest:
    return group(version, minMember=minimum)


def volcano(minimum: int) -> Manifest:
    return group("scheduling.volcano.sh/v1beta1", minMember=minimum)


def lws(policy: str) -> Manifest:
    """Return a LeaderWorkerSet."""
    meta, spec = {"name": "g", "namespace": "default"}, {"leaderWorkerTemplate": {"restartPolicy": policy, "size": 2}}
    return {"apiVersion": "leaderworkerset.x-k8s.io/v1", "kind": "LeaderWorkerSet", "metadata": meta, "spec": spec}


def members(on: dict[str, int], fields: dict[str, Any], cpu: str = "1") -> list[Manifest]:
    """Return pods of a group; *on* is their number by node."""
    places = [name for name, pods in on.items() for _ in range(pods)]
    return [pod(f"m-{n}", place, cpu=cpu, **dict(fields)) for n, place in enumerate(places)]


def kueue(**annotations: str) -> dict[str, Any]:
    keys = {f"kueue.x-k8s.io/pod-group-{name.replace('_', '-')}": value for name, value in annotations.items()}
    return {"labels": {"kueue.x-k8s.io/pod-group-name": "g"}, "annotations": keys}


def koordinator(**annotations: str) -> dict[str, Any]:
    keys = {f"gang.scheduling.koordinator.sh/{name.replace('_', '-')}": value for name, value in annotations.items()}
    return {"annotations": keys}


def named(name: str) -> dict[str, Any]:
    """Return the fields of a pod whose group has no object."""
    key = "pod-group.scheduling.sigs.k8s.io"
    return {"labels": {f"{key}/name": name, f"{key}/min-available": "2"}}


OLDEST: dict[str, Any] = named("g")

#: pods by node, fields of the pods, other objects → whether the node drains
CASES: dict[str, tuple[dict[str, int], dict[str, Any], list[Manifest], bool]] = {
    "disrupted as a whole, on two nodes": ({"od": 1, "s": 1}, IN_SPEC, [core(1, {"all": {}})], False),
    "disrupted as a whole, on one node": ({"od": 2}, IN_SPEC, [core(2, {"all": {}})], True),
    "disrupted one by one, above the minimum": ({"od": 1, "s": 2}, IN_SPEC, [core(2, {"single": {}})], True),
    "disrupted one by one, on two on-demand nodes": ({"od": 1, "od-2": 1}, IN_SPEC, [core(2, {"single": {}})], False),
    "the mode of 1.36, as a whole": ({"od": 1, "s": 2}, IN_SPEC, [core(2, "PodGroup", "v1alpha2")], False),
    "the mode of 1.36, one by one": ({"od": 1, "s": 2}, IN_SPEC, [core(2, "Pod", "v1alpha2")], True),
    "no mode, at the minimum": ({"od": 1, "s": 1}, IN_SPEC, [core(2)], False),
    "no gang": ({"od": 1, "s": 1}, IN_SPEC, [core(0)], True),
    "no gang, but disrupted as a whole": ({"od": 1, "s": 1}, IN_SPEC, [core(0, {"all": {}})], False),
    "two of three leave, two must stay": ({"od": 2, "s": 1}, IN_SPEC, [core(2)], False),
    "fewer than the minimum run": ({"od": 2}, IN_SPEC, [core(3)], False),
    "one topology domain": ({"od": 2}, IN_SPEC, [core(2, schedulingConstraints=RACK)], False),
    "constraints without topology": ({"od": 2}, IN_SPEC, [core(2, schedulingConstraints={})], True),
    "the object is missing": ({"od": 2}, IN_SPEC, [], False),
    "only a group of that name in another API": ({"od": 2}, IN_SPEC, [coscheduled(1)], False),
    "groups of that name in two APIs": ({"od": 1, "s": 1}, IN_SPEC, [coscheduled(5), core(1)], True),
    "a child of one disrupted as a whole": ({"od": 1, "s": 1}, IN_SPEC, [core(1, **CHILD), composite("all")], False),
    "such a child, on one node": ({"od": 2}, IN_SPEC, [core(1, **CHILD), composite("all")], True),
    "a child of a group that is not": ({"od": 1, "s": 1}, IN_SPEC, [core(1, **CHILD), composite()], True),
    "a child of a gang": ({"od": 1, "s": 1}, IN_SPEC, [core(1, **CHILD), composite(gang=True)], False),
    "a child of a gang, on one node": ({"od": 2}, IN_SPEC, [core(1, **CHILD), composite(gang=True)], True),
    "a grandchild of a group that is disrupted as a whole": (
        {"od": 1, "s": 1}, IN_SPEC,
        [core(1, **CHILD), composite(parentCompositePodGroupName="r"), composite("all", name="r")], False,
    ),
    "groups that contain each other": (
        {"od": 1, "s": 1}, IN_SPEC,
        [core(1, **CHILD), composite(parentCompositePodGroupName="r"), composite(name="r", **CHILD)], True,
    ),
    "a child of a group in one topology domain": (
        {"od": 2}, IN_SPEC, [core(1, **CHILD), composite(schedulingConstraints=RACK)], False,
    ),
    "the group of the group is missing": ({"od": 2}, IN_SPEC, [core(1, **CHILD)], False),
    "a group of a Workload, at the minimum": ({"od": 1, "s": 1}, OF_1_35, [workload(2)], False),
    "a group of a Workload, above the minimum": ({"od": 1, "s": 2}, OF_1_35, [workload(2)], True),
    "a group of a Workload, on one node": ({"od": 2}, OF_1_35, [workload(2)], True),
    "a group of a Workload, fewer than the minimum run": ({"od": 2}, OF_1_35, [workload(3)], False),
    "a group of a Workload, no gang": ({"od": 1, "s": 1}, OF_1_35, [workload(0)], True),
    "the Workload is missing": ({"od": 2}, OF_1_35, [], False),
    "the Workload has no such group": ({"od": 2}, OF_1_35, [workload(2, "h")], False),
    "only a Workload of that name of Kueue": ({"od": 2}, OF_1_35, [workload(2, "g", "kueue.x-k8s.io/v1beta1")], False),
    "a Workload and a PodGroup of that name": ({"od": 1, "s": 1}, OF_1_35, [workload(2), core(1)], False),
    "coscheduling, above the minimum": ({"od": 1, "s": 3}, COSCHEDULING, [coscheduled(3)], True),
    "coscheduling, at the minimum": ({"od": 1, "s": 2}, COSCHEDULING, [coscheduled(3)], False),
    "coscheduling, all on one node": ({"od": 3}, COSCHEDULING, [coscheduled(3)], True),
    "coscheduling without its object": ({"od": 1, "s": 2}, COSCHEDULING, [], False),
    "coscheduling without its object, on one node": ({"od": 2}, COSCHEDULING, [], True),
    "older coscheduling": ({"od": 1, "s": 1}, OLDER, [coscheduled(2, "scheduling.sigs.k8s.io/v1alpha1")], False),
    "older coscheduling, above": ({"od": 1, "s": 2}, OLDER, [coscheduled(2, "scheduling.sigs.k8s.io/v1alpha1")], True),
    "the oldest form": ({"od": 1, "s": 1}, OLDEST, [], False),
    "the oldest form, above the minimum": ({"od": 1, "s": 2}, OLDEST, [], True),
    "Volcano, at the minimum": ({"od": 1, "s": 1}, VOLCANO, [volcano(2)], False),
    "Volcano, above": ({"od": 1, "s": 1}, VOLCANO, [volcano(1)], True),
    "Volcano's other annotation": ({"od": 1, "s": 1}, VOLCANO_TOO, [], False),
    "Koordinator": ({"od": 1, "s": 1}, koordinator(name="g", min_available="2"), [], False),
    "Koordinator, above the minimum": ({"od": 1, "s": 2}, koordinator(name="g", min_available="2"), [], True),
    "Kueue": ({"od": 1, "s": 1}, kueue(total_count="2"), [], False),
    "Kueue, on one node": ({"od": 2}, kueue(total_count="2"), [], True),
    "Kueue, pods that serve": ({"od": 1, "s": 1}, kueue(total_count="2", serving="true"), [], True),
    "Kueue, a total that is no number": ({"od": 1, "s": 1}, kueue(total_count="two"), [], False),
    "a replica of a LeaderWorkerSet": ({"od": 1, "s": 1}, LWS, [], False),
    "a replica of a LeaderWorkerSet, on one node": ({"od": 2}, LWS, [lws("RecreateGroupOnPodRestart")], True),
    "a LeaderWorkerSet whose pods restart one by one": ({"od": 1, "s": 1}, LWS, [lws("None")], True),
    "a name that no object can have": ({"od": 1, "s": 1}, INVALID, [], True),
    "a name that no object can have, and another group": (
        {"od": 1, "s": 1}, INVALID | COSCHEDULING, [coscheduled(2)], False,
    ),
    "a name that is only a label": ({"od": 1, "s": 1}, named("G_1"), [], False),
    "a name that is only a label, above the minimum": ({"od": 1, "s": 2}, named("G_1"), [], True),
    "a LeaderWorkerSet that Volcano schedules": ({"od": 1, "s": 1}, LWS_BY_VOLCANO, [volcano(1)], False),
    "a LeaderWorkerSet that Volcano schedules, on one node": ({"od": 2}, LWS_BY_VOLCANO, [volcano(1)], True),
    "two groups, of which one would be broken up": ({"od": 1, "s": 1}, IN_SPEC | VOLCANO, [core(1), volcano(2)], False),
    "two groups above their minimum": ({"od": 1, "s": 2}, IN_SPEC | VOLCANO, [core(1), volcano(2)], True),
    "no group": ({"od": 1, "s": 1}, {}, [core(2)], True),
}  # fmt: skip


@pytest.mark.parametrize(("on", "fields", "objects", "drains"), CASES.values(), ids=CASES)
def test_a_drain_does_not_break_up_a_group(
    on: dict[str, int], fields: dict[str, Any], objects: list[Manifest], drains: bool
) -> None:
    cluster = snapshot([*NODES, *objects, *members(on, fields)])
    verdict = Planner(cluster, Policy()).plan_node("od", CIRCUMSTANCES)
    assert isinstance(verdict, Plan) is drains
    if isinstance(verdict, Rejected):
        assert {str(blocker.reason) for blocker in verdict.blockers} == {GANG}


def test_the_detail_names_the_group_and_its_minimum() -> None:
    cluster = snapshot([*NODES, core(2, {"all": {}}), *members({"od": 1, "od-2": 1, "s": 1}, IN_SPEC)])
    verdict = Planner(cluster, Policy()).plan_node("od", CIRCUMSTANCES)
    assert isinstance(verdict, Rejected)
    detail = (
        "it belongs to PodGroup default/g (minimum 2, disrupted only as a whole): 1 of its 3 pods would move, the "
        "others run on od-2 and 1 more node"
    )
    assert [(blocker.pod, blocker.detail) for blocker in verdict.blockers] == [("default/m-0", detail)]


def test_a_child_does_not_move_without_the_other_children() -> None:
    """Both children are above their minimum, but may only be disrupted together."""
    sibling = core(1, **CHILD)
    sibling["metadata"]["name"] = "h"
    other = pod("n-0", "s", schedulingGroup={"podGroupName": "h"})
    cluster = snapshot([*NODES, core(1, **CHILD), sibling, composite("all"), *members({"od": 1}, IN_SPEC), other])
    verdict = Planner(cluster, Policy()).plan_node("od", CIRCUMSTANCES)
    assert isinstance(verdict, Rejected)
    detail = (
        "it belongs to CompositePodGroup default/c (minimum 0, disrupted only as a whole): 1 of its 2 pods would move, "
        "the others run on s"
    )
    assert [blocker.detail for blocker in verdict.blockers] == [detail]


def test_the_detail_names_the_group_of_a_workload_and_its_minimum() -> None:
    cluster = snapshot([*NODES, workload(2), *members({"od": 1, "s": 1}, OF_1_35)])
    verdict = Planner(cluster, Policy()).plan_node("od", CIRCUMSTANCES)
    assert isinstance(verdict, Rejected)
    detail = "it belongs to group of Workload default/w/g (minimum 2): 1 of its 2 pods would move, the others run on s"
    assert [blocker.detail for blocker in verdict.blockers] == [detail]


def test_each_replica_of_a_group_in_a_workload_has_the_minimum() -> None:
    first, second = (OF_1_35["workloadRef"] | {"podGroupReplicaKey": key} for key in "ab")
    pods = [*members({"od": 1, "s": 1}, {"workloadRef": first}), pod("n-0", "s", workloadRef=second)]
    verdict = Planner(snapshot([*NODES, workload(2), *pods]), Policy()).plan_node("od", CIRCUMSTANCES)
    assert isinstance(verdict, Rejected)
    assert "group of Workload default/w/g/a (minimum 2): 1 of its 2 pods" in verdict.blockers[0].detail


def test_a_group_moves_only_if_all_of_its_pods_fit() -> None:
    cluster = snapshot([*NODES, core(2), *members({"od": 3}, IN_SPEC, cpu="6")])
    verdict = Planner(cluster, Policy()).plan_node("od", CIRCUMSTANCES)
    assert short(verdict) == ["no-room-on-spot", GANG]
    first = Planner(cluster, Policy()).look_again("od", CIRCUMSTANCES)
    assert short(first) == ["no-room-on-spot", GANG]


def test_pods_beyond_the_minimum_move_one_by_one() -> None:
    """There is no room for the pod, but its group does not need it."""
    full = pod("full", "s", cpu="16")
    cluster = snapshot([*NODES, full, core(1), *members({"od": 1, "od-2": 2}, IN_SPEC)])
    assert short(Planner(cluster, Policy()).plan_node("od", CIRCUMSTANCES)) == ["no-room-on-spot"]


@pytest.mark.parametrize("fields", [IN_SPEC, COSCHEDULING, VOLCANO, LWS])
def test_the_owner_of_a_pod_may_allow_its_eviction(fields: dict[str, Any]) -> None:
    allowed = fields | {"annotations": fields.get("annotations", {}) | {SAFE: "true"}}
    cluster = snapshot([*NODES, core(2), *members({"od": 1, "s": 1}, allowed)])
    assert isinstance(Planner(cluster, Policy()).plan_node("od", CIRCUMSTANCES), Plan)


def test_a_drain_that_has_begun_moves_the_rest_of_a_group() -> None:
    """One pod of the group was evicted, and its replacement runs on the spot node."""
    nodes = [node("od", ON_DEMAND), node("s")]
    cluster = snapshot([*nodes, core(2, {"all": {}}), *members({"od": 2}, IN_SPEC)])
    assert isinstance(Planner(cluster, Policy()).look_again("od", CIRCUMSTANCES), Plan)
    planner = Planner(snapshot([*nodes, core(2, {"all": {}}), *members({"od": 1, "s": 1}, IN_SPEC)]), Policy())
    assert isinstance(planner.look_again("od", CIRCUMSTANCES, ["uid-m-9"]), Plan)
    assert isinstance(planner.follow("od", CIRCUMSTANCES, [], ["uid-m-9"]), Plan)
    assert short(planner.look_again("od", CIRCUMSTANCES)) == [GANG]


def test_pods_wait_for_those_that_wait_for_another_group() -> None:
    """The pod ``m-0`` is in both groups, of which ``l-0`` and ``n-0`` have one each."""
    pods = [pod("l-0", "s", **IN_SPEC), pod("m-0", "s", **IN_SPEC, **COSCHEDULING), pod("n-0", "s", **COSCHEDULING)]
    cluster = snapshot([*NODES, core(2), coscheduled(2), *pods])
    lost = [cluster.pods[f"default/{name}"] for name in ("n-0", "m-0", "l-0")]
    for stuck, waiting in ((0, ["default/m-0", "default/l-0"]), (2, ["default/m-0", "default/n-0"]), (3, [])):
        found = Gangs(cluster).stuck_with(lost[stuck : stuck + 1], lost)
        assert [each.key for each, _ in found] == waiting


#: a change elsewhere after which the node, which did not drain, drains
CHANGES: dict[str, tuple[dict[str, Any], list[Manifest], list[Manifest]]] = {
    "the minimum is lower": (IN_SPEC, [core(2)], [core(1)]),
    "the object is created": (IN_SPEC, [], [core(1)]),
    "the Workload is created": (OF_1_35, [], [workload(1)]),
    "another pod of the group runs": (
        VOLCANO,
        [volcano(2)],
        [pod("m-2", "s", **VOLCANO)],
    ),
    "another pod gets the annotation": (
        VOLCANO,
        [volcano(2), pod("m-2", "s")],
        [pod("m-2", "s", **VOLCANO)],
    ),
    "the other pods leave the group": (VOLCANO, [], [pod("m-1", "s")]),
}


@pytest.mark.parametrize(("fields", "before", "after"), CHANGES.values(), ids=CHANGES)
def test_a_change_of_the_group_is_noticed_in_the_next_round(
    fields: dict[str, Any], before: list[Manifest], after: list[Manifest]
) -> None:
    cluster = snapshot([*NODES, *before, *members({"od": 1, "s": 1}, fields)])
    planner = Planner(cluster, Policy())
    assert summary(planner.plan_each(CIRCUMSTANCES))["od"] == [GANG]
    for manifest in after:
        changed = snapshot([manifest])
        for kind in ("PodGroup", "Workload"):
            for obj in changed.of(kind).values():
                cluster.upsert(kind, obj)
        for each in changed.pods.values():
            cluster.upsert("Pod", each)
    assert summary(planner.plan_each(CIRCUMSTANCES))["od"] == {"m-0": "s"}


def test_pods_that_are_being_deleted_and_pending_pods_do_not_count_as_running() -> None:
    others = [pod("m-8", "s", deleted=True, **IN_SPEC), pod("m-9", **IN_SPEC)]
    cluster = snapshot([*NODES, core(2), *members({"od": 1, "s": 1}, IN_SPEC), *others])
    assert short(Planner(cluster, Policy()).plan_node("od", CIRCUMSTANCES)) == [GANG]


def test_replicas_of_a_leader_worker_set_are_groups_of_their_own() -> None:
    other = LWS | {"labels": LWS["labels"] | {"leaderworkerset.sigs.k8s.io/group-index": "1"}}
    pods = [*members({"od": 2}, LWS), pod("n-0", "s", **other), pod("n-1", "s", **other)]
    cluster = snapshot([*NODES, *pods])
    assert gangs_of(cluster.pods["default/m-0"]) != gangs_of(cluster.pods["default/n-0"])
    assert isinstance(Planner(cluster, Policy()).plan_node("od", CIRCUMSTANCES), Plan)


def test_labels_that_the_api_server_adds_to_bound_pods_do_not_hide_their_group() -> None:
    """Pods that differ only in these labels share a class, under which their group is counted."""
    pods = [
        pod(f"m-{number}", on, labels=COSCHEDULING["labels"] | {ZONE: zone})
        for number, (on, zone) in enumerate((("od", "a"), ("s", "b")))
    ]
    verdict = Planner(snapshot([*NODES, *pods]), Policy()).plan_node("od", CIRCUMSTANCES)
    assert isinstance(verdict, Rejected)
    assert "1 of its 2 pods would move, the others run on s" in verdict.blockers[0].detail
