"""Who brings a pod back decides whether it may go: a table of the kinds of owners that clusters have.

The operators are played by small programs (:mod:`tests.cluster.operators`); ReplicaSets, StatefulSets, Deployments and
Jobs are real. Each kind has its own on-demand node, so that each verdict stands alone.
"""

import json
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import Any, Final

from devcluster.api import Json
from devcluster.manifests import deployment, job, pod, statefulset
from devcluster.plane import ControlPlane
from devcluster.stages import COMPLETE_AFTER, NEVER
from tests import forking
from tests.cluster.bad_days import FLAGS
from tests.cluster.daemon import Daemon
from tests.cluster.observer import Observer, ready
from tests.cluster.operators import BY_HAND, PODS, Operators, PlayedOwner, reference
from tests.cluster.test_memory import memory
from tests.cluster.waiting import repeating

SAFE: Final = "cluster-autoscaler.kubernetes.io/safe-to-evict"
DAEMONSET_POD: Final = "cluster-autoscaler.kubernetes.io/daemonset-pod"
ANY_SCHEDULER: Final = "--scheduler-name=*"


def owner(kind: str, app: str, **fields: Any) -> PlayedOwner:
    return PlayedOwner(kind, app, "", **fields)


def runs(kind: str, app: str, **fields: Any) -> PlayedOwner:
    """Return an owner whose pods run to completion."""
    return owner(kind, app, restart="Never", **fields)


#: Owners of pods, and the reason of the node on which one of them runs; "" if the node has no pod to move.
VERDICTS: Final[list[tuple[PlayedOwner, str]]] = [
    (runs("argoproj.io/v1alpha1/Workflow", "step"), "runs-to-completion"),
    (runs("tekton.dev/v1/TaskRun", "task"), "runs-to-completion"),
    (runs("actions.github.com/v1alpha1/EphemeralRunner", "runner"), "runs-to-completion"),
    (runs("sparkoperator.k8s.io/v1beta2/SparkApplication", "driver"), "runs-to-completion"),
    (runs("v1/Pod", "executor"), "runs-to-completion"),
    (runs("kubevirt.io/v1/VirtualMachineInstance", "machine"), "runs-to-completion"),
    (runs("ray.io/v1/RayCluster", "worker"), "runs-to-completion"),
    (runs("batch.volcano.sh/v1alpha1/Job", "gang", annotations={COMPLETE_AFTER: NEVER}), "runs-to-completion"),
    (owner("pipelines.example.com/v1/Build", "build", restart="OnFailure"), "runs-to-completion"),
    (owner("agones.dev/v1/GameServer", "game", annotations={SAFE: "false"}), "not-safe-to-evict"),
    (owner("apps.kruise.io/v1alpha1/DaemonSet", "agent"), ""),
    (owner("datadoghq.com/v1alpha1/ExtendedDaemonSetReplicaSet", "monitor"), ""),
    (owner("nodes.example.com/v1/PerNode", "helper", annotations={DAEMONSET_POD: "true"}), ""),
]


def test_pods_that_run_to_completion_keep_their_node_and_pods_of_nodes_do_not(
    cluster: ControlPlane, observer: Observer
) -> None:
    """Also a bare pod, and an instance manager that its operator created for the node."""
    rows = [(replace(row, node=f"on-demand-{n}"), reason) for n, (row, reason) in enumerate(VERDICTS, 1)]
    bare, bound, undefined = (f"on-demand-{len(rows) + n}" for n in (1, 2, 3))
    observer.nodes(len(rows) + 3, 2)
    homes = {"bare": bare, "gone": undefined}
    longhorn = PlayedOwner("longhorn.io/v1beta2/InstanceManager", "manager", bound, plays=False)
    with Operators(cluster, [*(row for row, _ in rows), longhorn], homes) as operators:
        driver = pod("executor", restartPolicy="Never", labels={"app": "executor"}, nodeName="spot-1")
        operators.uids["executor"] = cluster.apply([driver])[0]["metadata"]["uid"]
        manager = pod("manager", restartPolicy="Never", nodeName=bound)
        manager["metadata"]["ownerReferences"] = [reference(longhorn, operators.uids["manager"])]
        gone = pod("gone", restartPolicy="Never", schedulerName=BY_HAND)
        gone["metadata"]["ownerReferences"] = [
            {"apiVersion": "gone.example.com/v1", "kind": "Gone", "name": "x", "uid": "1", "controller": True}
        ]
        cluster.apply([pod("bare", schedulerName=BY_HAND), manager, gone])
        observer.eventually(lambda: _is_bound(cluster, len(rows) + 4), "all pods bound")
        expected = {row.node: reason for row, reason in rows}
        expected |= {bare: "no-controller", bound: "", undefined: "runs-to-completion"}
        observer.open_spot()
        assert verdicts(cluster) == expected
        with Daemon(cluster, *FLAGS, ANY_SCHEDULER):
            observer.eventually(lambda: observer.messages(undefined, "DrainBlocked"), "a blocked node")
            observer.stays(lambda: (observer.evictions(), observer.markings()), ([], []), seconds=3)


def _is_bound(cluster: ControlPlane, count: int) -> bool:
    return sum("nodeName" in item["spec"] for item in cluster.api.items(PODS)) == count


def verdicts(cluster: ControlPlane) -> dict[str, str]:
    """Return the first reason of each on-demand node in a plan of the live cluster; "" if it has no pods to move."""
    flags = (f"--kubeconfig={cluster.kubeconfig}", "--independent", ANY_SCHEDULER, "-o", "json")
    nodes = json.loads(forking.run("plan", *flags, check=True).stdout)["nodes"]
    moved = {node["node"]: len(node["placements"]) for node in nodes}
    assert [name for name, pods in moved.items() if pods] == []
    return {node["node"]: "".join(blocker["reason"] for blocker in node["blockers"][:1]) for node in nodes}


def by_hand(manifest: Json) -> Json:
    manifest["spec"]["template"]["spec"]["schedulerName"] = BY_HAND
    return manifest


def rollout_set(uid: str) -> Json:
    """Return the ReplicaSet of a Rollout."""
    manifest = by_hand(deployment("canary", 2)) | {"kind": "ReplicaSet"}
    version, kind = "argoproj.io/v1alpha1", "Rollout"
    rollout = {"apiVersion": version, "kind": kind, "name": "rollout", "uid": uid, "controller": True}
    manifest["metadata"]["ownerReferences"] = [rollout]
    return manifest


def on_delete() -> Json:
    manifest = by_hand(statefulset("elastic", 2))
    manifest["spec"]["updateStrategy"] = {"type": "OnDelete"}
    return manifest


#: Owners whose pods move, each on its own node. The operator of Strimzi is slow.
MOVED: Final = [
    owner("apps.kruise.io/v1alpha1/CloneSet", "clone", wanted=2, scale=True),
    owner("apps.kruise.io/v1beta1/StatefulSet", "advanced", wanted=2, ordinal=True, scale=True),
    owner("core.strimzi.io/v1beta2/StrimziPodSet", "kafka", wanted=2, ordinal=True, delay=18.0, number="pods"),
    owner("postgresql.cnpg.io/v1/Cluster", "pg", wanted=2, ordinal=True, number="instances", scale=True),
    owner("ray.io/v1/RayService", "head"),
    owner("agones.dev/v1/Fleet", "lobby", wanted=2),
    runs("argoproj.io/v1alpha1/CronWorkflow", "retry", annotations={SAFE: "true"}),
]

#: Workloads of built-in controllers that operators own, by app; all on one node each.
BUILT_IN: Final[dict[str, Callable[[], Json]]] = {
    "zalando": lambda: by_hand(statefulset("zalando", 2)),
    "elastic": on_delete,
    "knative": lambda: by_hand(deployment("knative", 2)),
    "jobset": lambda: by_hand(job("jobset", 1, annotations={COMPLETE_AFTER: NEVER})),
}


def test_pods_of_owners_that_bring_them_back_are_moved(cluster: ControlPlane, observer: Observer) -> None:
    rows = [replace(row, node=f"on-demand-{n}") for n, row in enumerate(MOVED, 1)]
    homes = {app: f"on-demand-{len(rows) + n + 1}" for n, app in enumerate([*BUILT_IN, "canary"])}
    nodes = [*(row.node for row in rows), *homes.values()]
    observer.nodes(len(nodes), 2)
    rollout = PlayedOwner("argoproj.io/v1alpha1/Rollout", "rollout", "", wanted=2, plays=False)
    with Operators(cluster, [*rows, rollout], homes) as operators:
        cluster.apply([manifest() for manifest in BUILT_IN.values()])
        cluster.apply([rollout_set(operators.uids["rollout"])])
        pods = sum(row.wanted for row in rows) + 9
        observer.running(pods)
        operators.opened = True
        observer.open_spot()
        with Daemon(cluster, *FLAGS, "--landing-timeout=60s", ANY_SCHEDULER):
            for _ in nodes:  # each drain may take a minute on a busy machine
                observer.eventually(
                    lambda: observer.kinds() == {"spot": pods} or len(observer.markings()) > len(nodes),
                    "all pods on spot nodes",
                    seconds=300,
                )
            observer.wait_unmarked()
            observer.running(pods)
        assert sorted(marking.node for marking in observer.markings()) == sorted(nodes)
        assert {node for node in nodes if "DrainFailed" in observer.events(node)} == set()
        assert memory(cluster).debts == ()


GROUP: Final = PlayedOwner("leaderworkerset.x-k8s.io/v1/LeaderWorkerSet", "group", "", plays=False)
SETS: Final = "/apis/apps/v1/namespaces/default/statefulsets"


def leaders(uid: str) -> Json:
    """Return the StatefulSet of the leaders of a LeaderWorkerSet."""
    manifest = by_hand(statefulset("group", 1))
    manifest["metadata"]["ownerReferences"] = [reference(GROUP, uid)]
    return manifest


def workers(leader: Json) -> Json:
    """Return the StatefulSet of the workers, which their leader owns."""
    manifest = by_hand(statefulset("group-0", 2))
    uid = leader["metadata"]["uid"]
    owned = {"apiVersion": "v1", "kind": "Pod", "name": "group-0", "uid": uid, "controller": True}
    manifest["metadata"]["ownerReferences"] = [owned]
    return manifest


def play_group(cluster: ControlPlane) -> None:
    """Recreate the whole group when one of its pods is lost, as its operator does."""
    pods = {item["metadata"]["name"]: item for item in cluster.api.items(PODS)}
    leader, sets = pods.get("group-0"), {item["metadata"]["name"]: item for item in cluster.api.items(SETS)}
    if leader is None or "deletionTimestamp" in leader["metadata"]:
        return
    if "group-0" not in sets:
        if ready([leader]):
            cluster.apply([workers(leader)])
    elif any("deletionTimestamp" in pods[name]["metadata"] for name in ("group-0-0", "group-0-1") if name in pods):
        cluster.api.delete(f"{PODS}/group-0", propagationPolicy="Background")


def test_a_group_that_its_operator_recreates_is_followed(cluster: ControlPlane, observer: Observer) -> None:
    """The node is drained only when leader and workers run again. The StatefulSet of the workers is another one."""
    observer.nodes(1, 2)
    homes = {"group": "on-demand-1", "group-0": "on-demand-1"}
    with Operators(cluster, [GROUP], homes) as operators:
        cluster.apply([leaders(operators.uids["group"])])
        with repeating(partial(play_group, cluster)):
            observer.running(3)
            operators.opened = True
            observer.open_spot()
            with Daemon(cluster, *FLAGS, "--landing-timeout=120s", ANY_SCHEDULER):
                observer.eventually(
                    lambda: "NodeDrained" in observer.events("on-demand-1"),
                    "the node drained",
                    seconds=300,
                    never=lambda: "NodeDrained" in observer.events("on-demand-1") and len(ready(observer.pods())) < 3,
                )
    assert observer.kinds() == {"spot": 3}
    assert memory(cluster).debts == ()
