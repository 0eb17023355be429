"""Pods that a rolling update of their Deployment moves instead of an eviction."""

import json
from pathlib import Path
from typing import Any

import pytest

from rescheduler.cli import main
from rescheduler.cli.output import as_json
from rescheduler.cli.plan_page import page
from rescheduler.planning.money.prices import PriceList
from rescheduler.planning.outcome import Plan, Rejected, Verdict
from rescheduler.planning.planner import Planner
from rescheduler.planning.policy import Policy, Surging
from rescheduler.planning.what_if.comparison import surge_lever, with_lever
from rescheduler.planning.what_if.overview import NO_LEVERS, overview
from tests.planning.builders import (
    CIRCUMSTANCES,
    NOW,
    ON_DEMAND,
    SYSTEM_POD,
    Manifest,
    budget,
    node,
    pod,
    repels,
    snapshot,
)

SURGE = "spot-rescheduler/surge"
BLOCKED = Policy(surge=Surging.BLOCKED)
ASKS = {SURGE: "true"}


def deployment(name: str = "web", replicas: int = 1, **fields: Any) -> Manifest:
    """Return a Deployment whose pods all run. *fields* are ``annotations``, ``status`` and fields of the spec."""
    meta = {"name": name, "namespace": "default", "uid": f"uid-deployment-{name}", "generation": 3}
    meta |= {"annotations": fields.pop("annotations", {})}
    status = {"observedGeneration": 3, "replicas": replicas, "updatedReplicas": replicas, "availableReplicas": replicas}
    status |= fields.pop("status", {})
    return {
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "metadata": meta,
        "spec": {"replicas": replicas} | fields,
        "status": status,
    }


def owned(name: str, on: str = "od-1", **fields: Any) -> Manifest:
    """Return a pod of the current ReplicaSet of the Deployment whose name starts *name*."""
    app = name.split("-", maxsplit=1)[0]
    manifest = pod(name, on, **{"cpu": "500m"} | fields)
    manifest["metadata"]["labels"] |= {"pod-template-hash": "5d6f"}
    owner = {"apiVersion": "apps/v1", "kind": "ReplicaSet", "name": f"{app}-5d6f", "uid": f"uid-{app}-5d6f"}
    manifest["metadata"]["ownerReferences"] = [owner | {"controller": True}]
    return manifest


def never(app: str = "web", pods: int = 1) -> Manifest:
    """Return a budget that can never allow an eviction."""
    return budget(f"{app}-budget", app, allowed=0, desired=pods, healthy=pods, expected=pods, minAvailable=pods)


def nodes(*spot: str) -> list[Manifest]:
    return [node("od-1", ON_DEMAND), *(node(name) for name in spot or ("spot-1",))]


def verdict(*objects: Manifest, policy: Policy = BLOCKED, on: str = "od-1") -> Verdict:
    return Planner(snapshot(objects), policy).plan_node(on, CIRCUMSTANCES)


def surges(result: Verdict) -> list[tuple[str, int, list[str]]]:
    assert isinstance(result, Plan), result
    return [(str(each), each.restarts, [pod.name for pod in each.pods]) for each in result.surges]


def why(result: Verdict) -> list[tuple[str, str]]:
    assert isinstance(result, Rejected), result
    return [(str(blocker.reason), blocker.detail) for blocker in result.blockers]


# Which pods are moved by a rolling update


def test_a_pod_that_a_budget_never_lets_go_is_moved_by_a_rolling_update() -> None:
    result = verdict(*nodes(), deployment(), owned("web-1"), never())

    assert surges(result) == [("default/web", 1, ["web-1"])]
    assert isinstance(result, Plan)
    assert [placement.node for placement in result.placements] == ["spot-1"]


def test_a_single_replica_is_moved_by_a_rolling_update_where_evictions_are_forbidden() -> None:
    policy = Policy(surge=Surging.BLOCKED, skip_single_replicas=True)

    assert surges(verdict(*nodes(), deployment(), owned("web-1"), policy=policy)) == [("default/web", 1, ["web-1"])]


def test_two_budgets_that_select_a_pod_do_not_keep_it() -> None:
    budgets = (budget("a", "web", allowed=1), budget("b", "web", allowed=1))

    assert surges(verdict(*nodes(), deployment(), owned("web-1"), *budgets)) == [("default/web", 1, ["web-1"])]


def test_a_budget_that_allows_evictions_later_is_waited_for() -> None:
    waits = budget("web-budget", "web", allowed=0, desired=1, healthy=1, expected=2, minAvailable=1)

    assert [reason for reason, _ in why(verdict(*nodes(), deployment(), owned("web-1"), waits))] == [
        "pod-disruption-budget"
    ]


@pytest.mark.parametrize("where", ["template", "deployment"])
def test_a_workload_that_asks_for_it_is_rolled_out_by_default(where: str) -> None:
    on_pod, on_deployment = (ASKS, {}) if where == "template" else ({}, ASKS)
    objects = (deployment(annotations=on_deployment), owned("web-1", annotations=on_pod))

    assert surges(verdict(*nodes(), *objects, policy=Policy())) == [("default/web", 1, ["web-1"])]
    assert surges(verdict(*nodes(), *objects, never(), policy=Policy())) == [("default/web", 1, ["web-1"])]


def test_nothing_changes_for_workloads_that_do_not_ask_for_it() -> None:
    objects = (deployment(), owned("web-1"))

    assert surges(verdict(*nodes(), *objects, policy=Policy())) == []
    [(reason, detail)] = why(verdict(*nodes(), *objects, never(), policy=Policy()))
    assert reason == "pod-disruption-budget"
    assert "rolling update" not in detail


def test_off_means_off() -> None:
    policy = Policy(surge=Surging.OFF)
    objects = (deployment(annotations=ASKS), owned("web-1", annotations=ASKS))

    assert surges(verdict(*nodes(), *objects, policy=policy)) == []
    assert [reason for reason, _ in why(verdict(*nodes(), *objects, never(), policy=policy))] == [
        "pod-disruption-budget"
    ]


@pytest.mark.parametrize("template", [{SURGE: "false"}, {}])
def test_an_owner_can_forbid_it(template: dict[str, str]) -> None:
    of_deployment = {} if template else {SURGE: "false"}
    objects = (deployment(annotations=of_deployment), owned("web-1", annotations=template), never())

    assert [reason for reason, _ in why(verdict(*nodes(), *objects))] == ["pod-disruption-budget"]


def test_the_template_counts_before_the_deployment() -> None:
    objects = (deployment(annotations={SURGE: "false"}), owned("web-1", annotations=ASKS), never())

    assert surges(verdict(*nodes(), *objects)) == [("default/web", 1, ["web-1"])]


def test_an_opt_out_of_evictions_is_one_of_rolling_updates() -> None:
    annotations = ASKS | {"cluster-autoscaler.kubernetes.io/safe-to-evict": "false"}

    assert ("not-safe-to-evict", 'it has the annotation cluster-autoscaler.kubernetes.io/safe-to-evict: "false"') in (
        why(verdict(*nodes(), deployment(), owned("web-1", annotations=annotations), never()))
    )


def test_a_pod_on_another_node_that_opts_out_is_not_restarted() -> None:
    elsewhere = owned("web-2", "spot-1", annotations={"karpenter.sh/do-not-disrupt": "true"})
    result = verdict(*nodes(), deployment(replicas=2), owned("web-1"), elsewhere, never(pods=2))

    assert (
        "would also replace pod default/web-2: it has the annotation karpenter.sh/do-not-disrupt" in why(result)[0][1]
    )


# Deployments that cannot be rolled out without downtime

LIMITS = {"type": "RollingUpdate"}
#: No pod is unavailable meanwhile, whatever the number of replicas.
ALL = LIMITS | {"rollingUpdate": {"maxSurge": 1, "maxUnavailable": 0}}
OBSTACLES: dict[str, tuple[int, dict[str, Any], str]] = {
    "Recreate": (1, {"strategy": {"type": "Recreate"}}, "is Recreate"),
    "paused": (1, {"paused": True}, "is paused"),
    "one unavailable": (
        1,
        {"strategy": LIMITS | {"rollingUpdate": {"maxSurge": 1, "maxUnavailable": 1}}},
        "maxSurge 1 and maxUnavailable 1",
    ),
    "no surge": (
        1,
        {"strategy": LIMITS | {"rollingUpdate": {"maxSurge": 0, "maxUnavailable": 1}}},
        "maxSurge 0 and maxUnavailable 1",
    ),
    "no surge, nothing unavailable": (
        1,
        {"strategy": LIMITS | {"rollingUpdate": {"maxSurge": "0%", "maxUnavailable": "0%"}}},
        "maxSurge 0 and maxUnavailable 1",
    ),
    "a percentage that rounds to one": (
        2,
        {"strategy": LIMITS | {"rollingUpdate": {"maxSurge": "50%", "maxUnavailable": "50%"}}},
        "maxSurge 1 and maxUnavailable 1",
    ),
    "25 % of four": (4, {"strategy": LIMITS}, "maxSurge 1 and maxUnavailable 1"),
    "25 % of five": (
        5,
        {"strategy": LIMITS | {"rollingUpdate": {"maxSurge": "25%"}}},
        "for 5 replicas, Deployment default/web has maxSurge 2 and maxUnavailable 1",
    ),
    "one limit of four": (
        4,
        {"strategy": LIMITS | {"rollingUpdate": {"maxSurge": 4}}},
        "maxSurge 4 and maxUnavailable 1",
    ),
    "34 % of three": (
        3,
        {"strategy": LIMITS | {"rollingUpdate": {"maxSurge": "1%", "maxUnavailable": "34%"}}},
        "maxSurge 1 and maxUnavailable 1",
    ),
    "not observed": (1, {"status": {"observedGeneration": 2}}, "is rolling out"),
    "old pods": (1, {"status": {"replicas": 2}}, "is rolling out"),
    "not available": (1, {"status": {"availableReplicas": 0}}, "not all of its pods are available"),
}
POSSIBLE: dict[str, tuple[int, dict[str, Any]]] = {
    "the default of the API": (1, {}),
    "a strategy without limits": (1, {"strategy": LIMITS}),
    "25 % of one": (1, {"strategy": LIMITS | {"rollingUpdate": {"maxSurge": "25%", "maxUnavailable": "25%"}}}),
    "25 % of three": (3, {"strategy": LIMITS | {"rollingUpdate": {"maxSurge": "25%", "maxUnavailable": "25%"}}}),
    "one limit of three": (3, {"strategy": LIMITS | {"rollingUpdate": {"maxSurge": 1}}}),
    "33 % of three": (3, {"strategy": LIMITS | {"rollingUpdate": {"maxSurge": "1%", "maxUnavailable": "33%"}}}),
    "25 % of five, none unavailable": (
        5,
        {"strategy": LIMITS | {"rollingUpdate": {"maxSurge": "25%", "maxUnavailable": 0}}},
    ),
    "all at once": (3, {"strategy": LIMITS | {"rollingUpdate": {"maxSurge": "100%", "maxUnavailable": "0%"}}}),
    "more than all": (1, {"strategy": LIMITS | {"rollingUpdate": {"maxSurge": "500%", "maxUnavailable": 0}}}),
    "without a history": (1, {"revisionHistoryLimit": 0, "minReadySeconds": 300, "progressDeadlineSeconds": 301}),
    "numbers": (2, {"strategy": LIMITS | {"rollingUpdate": {"maxSurge": 2, "maxUnavailable": 0}}}),
}


def replicas(number: int, **fields: Any) -> list[Manifest]:
    return [owned(f"web-{each}", **fields) for each in range(1, number + 1)]


@pytest.mark.parametrize(("number", "fields", "text"), OBSTACLES.values(), ids=OBSTACLES)
def test_a_deployment_that_cannot_roll_out_without_downtime_stays(
    number: int, fields: dict[str, Any], text: str
) -> None:
    result = verdict(*nodes(), deployment("web", number, **fields), *replicas(number), never(pods=number))

    assert {reason for reason, _ in why(result)} == {"pod-disruption-budget"}
    assert all("; a rolling update cannot move it either: " in detail and text in detail for _, detail in why(result))


@pytest.mark.parametrize(("number", "fields"), POSSIBLE.values(), ids=POSSIBLE)
def test_a_deployment_that_keeps_all_pods_available_rolls_out(number: int, fields: dict[str, Any]) -> None:
    result = verdict(*nodes(), deployment("web", number, **fields), *replicas(number), never(pods=number))

    assert surges(result) == [("default/web", number, [f"web-{each}" for each in range(1, number + 1)])]


def claim(name: str, *modes: str) -> Manifest:
    meta = {"name": name, "namespace": "default", "annotations": {"pv.kubernetes.io/bind-completed": "yes"}}
    return {"kind": "PersistentVolumeClaim", "metadata": meta, "spec": {"accessModes": modes, "volumeName": "pv"}}


@pytest.mark.parametrize(
    ("modes", "moves"),
    [(["ReadWriteOnce"], False), (["ReadWriteOncePod"], False), (["ReadWriteOnce", "ReadWriteMany"], True)],
)
def test_a_volume_that_two_nodes_cannot_attach_keeps_the_pod(modes: list[str], moves: bool) -> None:
    volumes = [{"name": "data", "persistentVolumeClaim": {"claimName": "data"}}]
    volume = {"kind": "PersistentVolume", "metadata": {"name": "pv"}, "spec": {"accessModes": modes}}
    objects = (*nodes(), deployment(), owned("web-1", volumes=volumes), never(), claim("data", *modes), volume)

    if moves:
        assert surges(verdict(*objects)) == [("default/web", 1, ["web-1"])]
    else:
        text = f"its PersistentVolumeClaim data is {modes[0]}: two nodes cannot attach its volume"
        [(_, detail)] = why(verdict(*objects))
        assert detail.endswith(text)


def stateful() -> Manifest:
    return pod("web-1", "od-1", owner="apps/v1/StatefulSet", annotations=ASKS)


def of_rollout() -> Manifest:
    manifest = owned("web-1", annotations=ASKS)
    labels = manifest["metadata"]["labels"]
    labels["rollouts-pod-template-hash"] = labels.pop("pod-template-hash")
    return manifest


OTHERS = {
    "a StatefulSet": (stateful(), "a StatefulSet ends each pod before it creates the new one"),
    "a bare pod": (pod("web-1", "od-1", owner=None, annotations=ASKS), "it has no controller"),
    "a bare ReplicaSet": (pod("web-1", "od-1", annotations=ASKS), "ReplicaSet default/web is not a Deployment"),
    "Argo Rollouts": (of_rollout(), "Argo Rollouts restarts pods (spec.restartAt) by evicting them"),
    "an unknown Deployment": (owned("api-1", annotations=ASKS), "Deployment default/api is not known"),
    "a toleration of our taint": (
        owned("web-1", annotations=ASKS, tolerations=[{"operator": "Exists"}]),
        "it tolerates the taint",
    ),
    "a floor": (
        owned("web-1", annotations=ASKS | {"spot-rescheduler/min-on-demand-replicas": "1"}),
        "spot-rescheduler/min-on-demand-replicas keeps some on on-demand nodes",
    ),
}


@pytest.mark.parametrize(("asking", "text"), OTHERS.values(), ids=OTHERS)
def test_a_pod_that_asks_for_what_is_not_possible_keeps_its_node(asking: Manifest, text: str) -> None:
    policy = Policy(delete_non_replicated_pods=True)
    details = [
        detail for reason, detail in why(verdict(*nodes(), deployment(), asking, policy=policy)) if reason == "no-surge"
    ]

    assert len(details) == 1
    assert text in details[0]


# How many pods are restarted


def test_a_deployment_with_too_many_replicas_is_not_rolled_out_to_move_few() -> None:
    elsewhere = [owned(f"web-{each}", "spot-1") for each in range(2, 5)]
    result = verdict(*nodes(), deployment(replicas=4), owned("web-1"), *elsewhere, never(pods=4))

    [(reason, detail)] = why(result)
    assert reason == "pod-disruption-budget"
    assert "a rolling update restarts 4 pods to move 1 of them, and --surge-max-replicas is 3" in detail


def test_most_of_its_pods_on_the_node_are_reason_enough() -> None:
    here = [owned(f"web-{each}") for each in range(1, 4)]
    result = verdict(*nodes(), deployment(replicas=4, strategy=ALL), *here, owned("web-4", "spot-1"), never(pods=4))

    assert surges(result) == [("default/web", 4, ["web-1", "web-2", "web-3"])]


def test_a_workload_that_asks_but_has_too_many_replicas_is_evicted() -> None:
    elsewhere = [owned(f"web-{each}", "spot-1", annotations=ASKS) for each in range(2, 5)]
    pods = (owned("web-1", annotations=ASKS), *elsewhere)

    assert surges(verdict(*nodes(), deployment(replicas=4), *pods, policy=Policy())) == []


# Planned with the old pod in place


def test_restarted_pods_of_other_nodes_need_room_as_well() -> None:
    pods = (owned("web-1", cpu="1"), owned("web-2", "spot-1", cpu="1"))
    objects = (deployment(replicas=2), *pods, never(pods=2))

    assert [reason for reason, _ in why(verdict(node("od-1", ON_DEMAND), node("spot-1", cpu="2500m"), *objects))] == [
        "no-room-on-spot"
    ]
    result = verdict(node("od-1", ON_DEMAND), node("spot-1", cpu="3"), *objects)
    assert surges(result) == [("default/web", 2, ["web-1"])]
    assert isinstance(result, Plan)
    assert [str(placement.pod) for placement in result.placements] == ["default/web-1"]


def test_the_new_pod_must_fit_while_the_old_one_still_counts() -> None:
    apart = repels("web", "topology.kubernetes.io/zone")
    objects = (deployment(), owned("web-1", affinity=apart), never())

    same_zone = verdict(node("od-1", ON_DEMAND, zone="a"), node("spot-1", zone="a"), *objects)
    assert [reason for reason, _ in why(same_zone)] == ["no-room-on-spot"]
    other_zone = verdict(node("od-1", ON_DEMAND, zone="a"), node("spot-1", zone="b"), *objects)
    assert surges(other_zone) == [("default/web", 1, ["web-1"])]


def test_the_old_pod_counts_for_topology_spread() -> None:
    """Without it, the new pod would fit its zone: the skew is 2 with both, and 1 is allowed."""
    spread = {"maxSkew": 1, "topologyKey": "topology.kubernetes.io/zone", "whenUnsatisfiable": "DoNotSchedule"}
    constraints = [spread | {"labelSelector": {"matchLabels": {"app": "web"}}}]
    objects = (deployment(), owned("web-1", topologySpreadConstraints=constraints), never())
    full = node("spot-2", zone="b", cpu="100m")

    only_its_zone = verdict(node("od-1", ON_DEMAND, zone="a"), node("spot-1", zone="a"), full, *objects)
    assert [reason for reason, _ in why(only_its_zone)] == ["no-room-on-spot"]
    both = verdict(node("od-1", ON_DEMAND, zone="a"), node("spot-1", zone="a"), node("spot-2", zone="b"), *objects)
    assert isinstance(both, Plan)
    assert [placement.node for placement in both.placements] == ["spot-2"]


def test_a_host_port_needs_a_second_node() -> None:
    ports = [
        {"name": "main", "ports": [{"containerPort": 80, "hostPort": 80}], "resources": {"requests": {"cpu": "1"}}}
    ]
    taken = pod("lb-1", "spot-1", containers=ports)
    objects = (deployment(), owned("web-1", containers=ports), never(), taken)

    assert [reason for reason, _ in why(verdict(*nodes(), *objects))] == ["no-room-on-spot"]
    assert surges(verdict(*nodes("spot-1", "spot-2"), *objects)) == [("default/web", 1, ["web-1"])]


def quota(hard: int, used: int) -> Manifest:
    meta = {"name": "team", "namespace": "default"}
    amounts = {"hard": {"pods": str(hard)}, "used": {"pods": str(used)}}
    return {"kind": "ResourceQuota", "metadata": meta, "spec": {"hard": amounts["hard"]}, "status": amounts}


def test_a_quota_must_allow_one_pod_more() -> None:
    objects = (deployment(), owned("web-1"), never())

    [(reason, detail)] = why(verdict(*nodes(), *objects, quota(1, 1)))
    assert reason == "quota-exceeded"
    assert "a rolling update keeps the old pod until the new one runs" in detail
    assert surges(verdict(*nodes(), *objects, quota(2, 1))) == [("default/web", 1, ["web-1"])]


def test_other_pods_of_the_node_are_evicted_in_the_same_plan() -> None:
    result = verdict(*nodes(), deployment(), owned("web-1"), pod("api-1", "od-1"), never())

    assert surges(result) == [("default/web", 1, ["web-1"])]
    assert isinstance(result, Plan)
    assert sorted(placement.pod.name for placement in result.placements) == ["api-1", "web-1"]


# Plans of all nodes


def test_a_plan_of_all_nodes_moves_a_deployment_from_each_of_its_nodes() -> None:
    cluster = snapshot(
        [
            *(node(f"od-{number}", ON_DEMAND) for number in (1, 2)),
            *(node(f"spot-{number}", cpu="8") for number in (1, 2)),
            deployment(replicas=2),
            owned("web-1", "od-1"),
            owned("web-2", "od-2"),
            never(pods=2),
        ]
    )
    planner = Planner(cluster, BLOCKED)

    assert [plan.node for plan in planner.plan_all(CIRCUMSTANCES).plans] == ["od-1", "od-2"]
    first = planner.first_plan(CIRCUMSTANCES)
    assert [(plan.node, plan.robust, plan.surges[0].restarts) for plan in first.plans] == [("od-1", True, 2)]


def test_a_round_forgets_what_other_nodes_said_before() -> None:
    """A verdict depends on the pods of other nodes that a rolling update would replace."""
    cluster = snapshot([*nodes(), deployment(replicas=2), owned("web-1"), owned("web-2", "spot-1"), never(pods=2)])
    planner = Planner(cluster, BLOCKED)
    assert len(planner.first_plan(CIRCUMSTANCES).plans) == 1

    edited = owned("web-2", "spot-1", annotations={"karpenter.sh/do-not-disrupt": "true"})
    cluster.upsert("Pod", snapshot([edited]).pods["default/web-2"])

    assert not planner.first_plan(CIRCUMSTANCES).plans


def test_explain_says_which_rolling_update_moves_a_pod() -> None:
    cluster = snapshot([*nodes(), deployment(), owned("web-1"), never()])
    pod_of = cluster.pods["default/web-1"]

    moved = Planner(cluster, BLOCKED).explain(pod_of, CIRCUMSTANCES)
    assert (moved.blockers, str(moved.surge), moved.feasible) == ((), "default/web", ["spot-1"])
    kept = Planner(cluster, Policy()).explain(pod_of, CIRCUMSTANCES)
    assert ([str(each.reason) for each in kept.blockers], kept.surge) == (["pod-disruption-budget"], None)


# The lever


def test_plans_tell_what_rolling_updates_would_free() -> None:
    cluster = snapshot([*nodes(), deployment(), owned("web-1"), never()])
    policy = Policy()
    planning = Planner(cluster, policy).plan_all(CIRCUMSTANCES)
    assert not planning.plans

    lever = surge_lever(planning, cluster, policy, CIRCUMSTANCES)
    assert lever is not None
    assert (lever.controller, lever.nodes, lever.frees) == ("Setting --surge=blocked", ("od-1",), ("od-1",))
    assert surge_lever(planning, cluster, BLOCKED, CIRCUMSTANCES) is None
    ranked = with_lever(NO_LEVERS, lever)
    assert ranked.levers == (lever,)


@pytest.mark.parametrize("fields", [{"strategy": {"type": "Recreate"}}, {"status": {"availableReplicas": 0}}])
def test_there_is_no_lever_where_nothing_could_be_freed(fields: dict[str, Any]) -> None:
    cluster = snapshot([*nodes(), deployment("web", 1, **fields), owned("web-1"), never()])
    planning = Planner(cluster, Policy()).plan_all(CIRCUMSTANCES)

    assert surge_lever(planning, cluster, Policy(), CIRCUMSTANCES) is None


def test_a_page_names_the_deployments_that_roll_out() -> None:
    two = [deployment(replicas=2), owned("web-1"), owned("web-2", "spot-1"), never(pods=2)]
    cluster = snapshot([*nodes(), *two])
    planning = Planner(cluster, BLOCKED).plan_all(CIRCUMSTANCES)
    totals = overview(planning, cluster, PriceList())
    text = [line.text for line in page(totals, cluster, NOW)]

    assert "od-1, a: drainable with surge (default/web, 2 replicas, no downtime)" in text
    assert "restarts 2 pods of default/web to move 1" in text
    assert as_json(totals, 0)["nodes"][0]["surges"] == [
        {"deployment": "default/web", "restarts": 2, "pods": ["default/web-1"]}
    ]


#: Commands and options, and what they print of a rolling update.
TOLD: dict[tuple[str, ...], list[str]] = {
    ("plan",): ["--surge=blocked would free 1 more", "--what-if 'surge=blocked'"],
    ("plan", "--what-if", "surge=blocked"): ["nodes that can be drained                0               1"],
    ("plan", "--surge=blocked", "-o", "details"): [
        "drainable with surge (default/web, 2 replicas, no downtime)",
        "restarts 2 pods of default/web to move 1",
    ],
    ("explain", "default/web-1", "--surge=blocked"): [
        "moved by a rolling update of Deployment default/web, which restarts 2 pods, not by an eviction"
    ],
    ("report", "--surge=blocked"): ["can be drained with surge (default/web, 2 replicas, no downtime): 1 pod to move"],
    ("report",): ["--surge=blocked"],
}


@pytest.mark.parametrize("command", TOLD, ids=" ".join)
def test_commands_tell_of_rolling_updates(
    tmp_path: Path, capfdbinary: pytest.CaptureFixture[bytes], monkeypatch: pytest.MonkeyPatch, command: tuple[str, ...]
) -> None:
    monkeypatch.setenv("COLUMNS", "120")
    two = [deployment(replicas=2), owned("web-1"), owned("web-2", "spot-1"), never(pods=2), SYSTEM_POD]
    file = tmp_path / "list.json"
    file.write_text(json.dumps({"apiVersion": "v1", "kind": "List", "items": [*nodes(), *two]}))
    with pytest.raises(SystemExit):
        main([*command, "--snapshot", str(file)])
    out = capfdbinary.readouterr().out.decode()
    assert all(text in out for text in TOLD[command]), out
