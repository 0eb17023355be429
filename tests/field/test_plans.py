"""Failures of this job that were reported in public: the input, the right value, and where it was reported."""

from dataclasses import dataclass, replace
from typing import Any

import pytest

from rescheduler.planning.planner import Planner
from rescheduler.planning.policy import MoveJobs, Policy
from tests.planning.builders import (
    CIRCUMSTANCES,
    HOST,
    ON_DEMAND,
    SPOT,
    ZONE,
    Manifest,
    budget,
    node,
    pod,
    repels,
    seeks,
    short,
    snapshot,
)
from tests.predicates.volumes import attachment

EVERYTHING: dict[str, Any] = {"tolerations": [{"operator": "Exists"}]}
ANY_NO_SCHEDULE: dict[str, Any] = {"tolerations": [{"operator": "Exists", "effect": "NoSchedule"}]}
DEFAULT = Policy()


@dataclass(frozen=True)
class Case:
    """A cluster, and the verdict on its on-demand node ``od``: the reasons why it stays, or where its pods go."""

    objects: list[Manifest]
    right: Any
    source: str
    policy: Policy = DEFAULT


def cluster(*objects: Manifest, **spot: Any) -> list[Manifest]:
    """Return the objects with an on-demand node and two spot nodes, which have the fields *spot*."""
    return [node("od", ON_DEMAND), *(node(name, SPOT, **spot) for name in ("s-1", "s-2")), *objects]


def controller(kind: str, app: str, *, uid: str = "", owned: bool = False, **fields: Any) -> Manifest:
    """Return a controller of the pods of *app*, with these fields of the pod template's spec."""
    strategy, status = fields.pop("updateStrategy", None), fields.pop("status", {})
    amounts = {"requests": fields.pop("requests", {"cpu": "1"}), "limits": fields.pop("limits", {})}
    containers = [{"name": "main", "image": "app:1", "resources": amounts}]
    spec: Manifest = {"template": {"metadata": {"labels": {"app": app}}, "spec": {"containers": containers} | fields}}
    if strategy:
        spec["updateStrategy"] = strategy
    meta: Manifest = {"name": app, "namespace": "default", "uid": uid or f"uid-of-{app}"}
    if owned:
        meta["ownerReferences"] = [{"kind": "Deployment", "name": app, "uid": "d", "controller": True}]
    return {"kind": kind, "metadata": meta, "spec": spec, "status": status}


def claim(name: str, volume: str) -> Manifest:
    spec = {"volumeName": volume, "accessModes": ["ReadWriteOnce"]}
    meta = {"name": name, "namespace": "default", "annotations": {"pv.kubernetes.io/bind-completed": "yes"}}
    bound = {"metadata": meta, "spec": spec, "status": {"phase": "Bound"}}
    return {"kind": "PersistentVolumeClaim", **bound}


def volume(name: str, of: str, **spec: Any) -> Manifest:
    source = {"claimRef": {"namespace": "default", "name": of}, "accessModes": ["ReadWriteOnce"]} | spec
    return {"kind": "PersistentVolume", "metadata": {"name": name}, "spec": source, "status": {"phase": "Bound"}}


def uses(name: str) -> dict[str, Any]:
    return {"volumes": [{"name": "data", "persistentVolumeClaim": {"claimName": name}}]}


def scratch(name: str, zone: str, *, mode: str = "WaitForFirstConsumer") -> list[Manifest]:
    """Return a pod with a generic ephemeral volume, and its claim, volume in *zone* and storage class."""
    template = {"spec": {"storageClassName": "fast", "accessModes": ["ReadWriteOnce"]}}
    volumes = [{"name": "scratch", "ephemeral": {"volumeClaimTemplate": template}}]
    bound = claim(f"{name}-scratch", "pv")
    bound["metadata"]["ownerReferences"] = [{"kind": "Pod", "name": name, "uid": f"uid-{name}", "controller": True}]
    bound["metadata"]["annotations"]["volume.kubernetes.io/selected-node"] = "od"
    bound["spec"] |= {"storageClassName": "fast", "resources": {"requests": {"storage": "10Gi"}}}
    here = {
        "required": {"nodeSelectorTerms": [{"matchExpressions": [{"key": ZONE, "operator": "In", "values": [zone]}]}]}
    }
    kind = {"kind": "StorageClass", "metadata": {"name": "fast"}, "provisioner": "disk.csi", "volumeBindingMode": mode}
    source = volume("pv", f"{name}-scratch", csi={"driver": "disk.csi", "volumeHandle": "v"}, nodeAffinity=here)
    return [pod(name, "od", volumes=volumes), bound, source, kind]


def only_in(zone: str, objects: list[Manifest]) -> list[Manifest]:
    """Return *objects* with a storage class whose volumes are created in *zone* only."""
    topologies = [{"matchLabelExpressions": [{"key": ZONE, "values": [zone]}]}]
    return [each | ({"allowedTopologies": topologies} if each["kind"] == "StorageClass" else {}) for each in objects]


def on_host(name: str) -> Manifest:
    match = [{"key": HOST, "operator": "In", "values": [name]}]
    return {"required": {"nodeSelectorTerms": [{"matchExpressions": match}]}}


def db_pod(name: str, **fields: Any) -> Manifest:
    """Return a pod of the first revision of the StatefulSet ``db``."""
    labels = {"app": "db", "controller-revision-hash": "db-1"}
    return pod(name, "od", owner="apps/v1/StatefulSet", labels=labels, **fields)


EPHEMERAL = "kubernetes documentation: generic ephemeral volumes"
PARTITION: dict[str, Any] = {"updateStrategy": {"rollingUpdate": {"partition": 1}}}


def stateful(*, ordinals: int = 0, **fields: Any) -> Manifest:
    """Return the StatefulSet ``db``, whose pods are of the revision ``db-1`` unless the fields tell otherwise."""
    replicas = fields.pop("replicas", 1)
    made = controller("StatefulSet", "db", **revisions("db-1", "db-1") | fields)
    made["spec"] |= {"ordinals": {"start": ordinals}, "replicas": replicas}
    return made


def revision(name: str, **template: Any) -> Manifest:
    """Return a revision of the StatefulSet ``db`` with these fields of the pod template's spec."""
    spec = {"containers": [container("main", "1")]} | template
    data = {"spec": {"template": {"metadata": {"creationTimestamp": None}, "spec": spec, "$patch": "replace"}}}
    return {"kind": "ControllerRevision", "metadata": {"name": name, "namespace": "default"}, "data": data}


def container(name: str, cpu: str = "1") -> Manifest:
    return {"name": name, "image": "app:1", "resources": {"requests": {"cpu": cpu}}}


def runtime_class(**fields: Any) -> Manifest:
    return {"kind": "RuntimeClass", "metadata": {"name": "kata"}, "handler": "kata", **fields}


def priority_class(name: str, value: int, **fields: Any) -> Manifest:
    return {"kind": "PriorityClass", "metadata": {"name": name}, "value": value, **fields}


def job(**fields: Any) -> Manifest:
    made = controller("Job", "j")
    made["spec"] |= fields
    return made


def owned_by_another(made: Manifest) -> Manifest:
    """Return the pod *made* with an owner that has another UID."""
    [owner] = made["metadata"]["ownerReferences"]
    return made | {"metadata": made["metadata"] | {"ownerReferences": [owner | {"uid": "other"}]}}


def job_pod(name: str, **fields: Any) -> Manifest:
    return pod(name, "od", owner="batch/v1/Job", **fields)


def fails_on(action: str, **rule: Any) -> dict[str, Any]:
    """Return the field of a Job that takes *action* for failures that match *rule*."""
    return {"podFailurePolicy": {"rules": [{"action": action, **rule}]}}


def restarted(times: int) -> dict[str, Any]:
    """Return the status of a pod whose container was restarted."""
    return {"status": {"containerStatuses": [{"name": "main", "restartCount": times}]}}


def enforcing(level: str, version: str = "latest", *, mode: str = "enforce") -> Manifest:
    """Return the namespace of the pods, with the labels of Pod Security admission."""
    prefix = "pod-security.kubernetes.io"
    labels = {f"{prefix}/{mode}": level, f"{prefix}/{mode}-version": version}
    return {"kind": "Namespace", "metadata": {"name": "default", "labels": labels}}


def secured(name: str = "main", **context: Any) -> Manifest:
    """Return a container that the level restricted allows, except for *context*."""
    allowed = {
        "allowPrivilegeEscalation": False,
        "capabilities": {"drop": ["ALL"]},
        "runAsNonRoot": True,
        "seccompProfile": {"type": "RuntimeDefault"},
    }
    return container(name) | {"securityContext": allowed | context}


def deleting(made: Manifest, **meta: Any) -> Manifest:
    return made | {"metadata": made["metadata"] | {"deletionTimestamp": "2026-01-01T12:00:00Z"} | meta}


def with_keys(affinity: Manifest, **keys: list[str]) -> Manifest:
    """Return *affinity* with label keys in its required terms."""
    name = "requiredDuringSchedulingIgnoredDuringExecution"
    return {kind: {name: [term | keys for term in terms[name]]} for kind, terms in affinity.items()}


def node_pool(startup_taint: str) -> Manifest:
    template = {"spec": {"startupTaints": [{"key": startup_taint, "effect": "NoSchedule"}]}}
    return {"kind": "NodePool", "metadata": {"name": "default"}, "spec": {"template": template}}


def deployment(app: str) -> Manifest:
    return {"kind": "Deployment", "metadata": {"name": app, "namespace": "default", "uid": "d"}}


def recommendation(app: str, cpu: str, *, kind: str = "StatefulSet", of: str = "", **policy: Any) -> Manifest:
    return {
        "kind": "VerticalPodAutoscaler",
        "metadata": {"name": app, "namespace": "default"},
        "spec": {
            "targetRef": {"apiVersion": of, "kind": kind, "name": app},
            "resourcePolicy": {"containerPolicies": [{"containerName": "*", **policy}] if policy else []},
        },
        "status": {"recommendation": {"containerRecommendations": [{"containerName": "main", "target": {"cpu": cpu}}]}},
    }


def full_quota(**spec: Any) -> Manifest:
    hard = {"pods": "1"}
    meta = {"name": "team", "namespace": "default"}
    return {
        "kind": "ResourceQuota",
        "metadata": meta,
        "spec": {"hard": hard, **spec},
        "status": {"used": {"pods": "1"}},
    }


def revisions(running: str, update: str) -> dict[str, Any]:
    return {"status": {"currentRevision": running, "updateRevision": update}}


def limits(**item: Any) -> Manifest:
    meta = {"name": "limits", "namespace": "default"}
    return {"kind": "LimitRange", "metadata": meta, "spec": {"limits": [{"type": "Container"} | item]}}


def disk(**spec: Any) -> list[Manifest]:
    """Return the claim ``data`` and its volume, which attaches to one node."""
    return [claim("data", "pv"), volume("pv", "data", csi={"driver": "disk.csi", "volumeHandle": "v"}, **spec)]


def tainted(key: str) -> dict[str, Any]:
    return {"taints": [{"key": key, "effect": "NoSchedule"}]}


ON_DELETE: dict[str, Any] = {"updateStrategy": {"type": "OnDelete"}, **revisions("db-1", "db-2")}
SPOT_TOLERATION: dict[str, Any] = {"key": "spot", "operator": "Exists"}
INJECTED: dict[str, Any] = {"key": "node.kubernetes.io/unreachable", "operator": "Exists", "effect": "NoExecute"}
OF_HIGH: dict[str, Any] = {
    "scopeSelector": {"matchExpressions": [{"scopeName": "PriorityClass", "operator": "In", "values": ["high"]}]}
}
REVISIONS = "kubernetes documentation: ControllerRevisions of StatefulSets"
RUNTIMES = "kubernetes/enhancements#688"
PRIORITIES = "kubernetes documentation: pod priority and preemption"
STEPS = "tektoncd/pipeline#6543"
TOLERANT = "cilium/tetragon#3484, tigera/operator#2537"
LOCAL_VOLUME = "kubernetes/autoscaler#6417"
MULTI_ATTACH = "kubernetes/kubernetes#131152, #103305"
STARTING = "kubernetes/autoscaler#7268, kubernetes-sigs/karpenter#685"
LIFECYCLE = "kubernetes/enhancements#5683"
RESPONDERS = "kubernetes/enhancements#4563"
EXPENDABLE = "kubernetes/autoscaler, FAQ: expendable pods"
#: The policy of ``plan``, which reads no controllers before a drain.
PLAN = Policy(judge_controllers=True)
NOT_READY = {"conditions": [{"type": "Ready", "status": "False"}]}
ORDERED = "kubernetes documentation: pod management policies of a StatefulSet"
STATEFUL = "gardener/etcd-druid#879, elastic/cloud-on-k8s#1173"
NODE_NAME = "kubernetes/kubernetes#117843"
LIMIT_RANGES = "kubernetes documentation: limit ranges"
AUTOSCALED = "kubernetes/autoscaler, VerticalPodAutoscaler"
JOBS = "kubernetes/enhancements#3939"
FAILING_JOBS = "kubernetes/enhancements#3329, kubernetes documentation: pod failure policies"
MANAGED_JOBS = "kubernetes/enhancements#4368"
DISRUPTED: dict[str, Any] = {"onPodConditions": [{"type": "DisruptionTarget", "status": "True"}]}
POD_SECURITY = "kubernetes/enhancements#2579, kubernetes documentation: Pod Security admission"
LABEL_KEYS = "kubernetes/enhancements#3633"
REQUEUED = "kubernetes/kubernetes, interpodaffinity/plugin.go: isSchedulableAfterAssignedPodChange"
RECREATED = "kubernetes documentation: garbage collection, owners and dependents"
RESIZED = "kubernetes-sigs/karpenter#829, #3037"

CASES: dict[str, Case] = {
    "two replicas that seek each other by hostname": Case(
        cluster(*(pod(f"a-{n}", "od", affinity=seeks("a")) for n in (1, 2))), ["cannot-move-in-steps"], STEPS
    ),
    "pods of two Deployments of a group that seek each other by hostname": Case(
        cluster(
            *(
                pod(
                    f"{app}-1",
                    "od",
                    labels={"app": "group"},
                    owner="apps/v1/ReplicaSet",
                    affinity=seeks("group"),
                )
                for app in "ab"
            )
        ),
        ["cannot-move-in-steps"],
        STEPS,
    ),
    "replicas that seek each other by zone, with spot in another zone": Case(
        cluster(*(pod(f"a-{n}", "od", affinity=seeks("a", ZONE)) for n in (1, 2)), zone="b"),
        ["cannot-move-in-steps"],
        STEPS,
    ),
    "replicas that seek each other by zone, with spot in the same zone": Case(
        cluster(*(pod(f"a-{n}", "od", affinity=seeks("a", ZONE)) for n in (1, 2))), {"a-1": "s-1", "a-2": "s-1"}, STEPS
    ),
    "one of three pods tolerates everything": Case(
        cluster(*(pod(f"a-{n}", "od") for n in (1, 2)), pod("operator", "od", **EVERYTHING), cpu="2"),
        ["returns-to-drained-node"],
        TOLERANT,
    ),
    "a pod of a StatefulSet that tolerates every NoSchedule taint": Case(
        cluster(pod("operator-0", "od", owner="apps/v1/StatefulSet", **ANY_NO_SCHEDULE), cpu="2"),
        ["returns-to-drained-node"],
        TOLERANT,
    ),
    "a pod that tolerates everything, and selects spot nodes": Case(
        cluster(pod("operator", "od", nodeSelector={SPOT: ""}, **EVERYTHING)), {"operator": "s-1"}, TOLERANT
    ),
    "nodeName in the template": Case(
        cluster(pod("a-1", "od"), controller("ReplicaSet", "a", nodeName="od")), ["node-name-in-template"], NODE_NAME
    ),
    "nodeName of another node in the template of a ReplicationController": Case(
        cluster(
            pod("a-1", "od", owner="v1/ReplicationController"), controller("ReplicationController", "a", nodeName="x")
        ),
        ["node-name-in-template"],
        NODE_NAME,
    ),
    "OnDelete with a template that fits no spot node": Case(
        cluster(
            db_pod("db-0"),
            stateful(requests={"cpu": "32"}, **ON_DELETE),
        ),
        ["no-room-on-spot"],
        STATEFUL,
    ),
    "OnDelete with a template that selects no spot node": Case(
        cluster(
            db_pod("db-0"),
            stateful(nodeSelector={"disk": "none"}, **ON_DELETE),
        ),
        ["pinned-to-on-demand"],
        STATEFUL,
    ),
    "an ordinal from the partition on": Case(
        cluster(
            db_pod("db-1"),
            stateful(requests={"cpu": "32"}, **PARTITION, **revisions("db-1", "db-2")),
        ),
        ["no-room-on-spot"],
        STATEFUL,
    ),
    "an ordinal below the partition keeps its revision": Case(
        cluster(
            db_pod("db-0"),
            stateful(requests={"cpu": "32"}, **PARTITION, **revisions("db-1", "db-2")),
        ),
        {"db-0": "s-1"},
        STATEFUL,
    ),
    "a pod of the old ReplicaSet of a paused roll-out": Case(
        cluster(
            pod("a-1", "od", owner="apps/v1/ReplicaSet"),
            controller("ReplicaSet", "a", owned=True),
            controller("ReplicaSet", "new", owned=True, requests={"cpu": "32"}),
        ),
        {"a-1": "s-1"},
        "kubernetes documentation: pausing a roll-out of a Deployment",
    ),
    "a recommendation that is larger than any spot node": Case(
        cluster(
            pod("db-0", "od", owner="apps/v1/StatefulSet", annotations={"vpaUpdates": "Pod resources updated"}),
            controller("StatefulSet", "db"),
            recommendation("db", "6"),
        ),
        ["no-room-on-spot"],
        "kubernetes/autoscaler, VerticalPodAutoscaler",
    ),
    "a recommendation for the pods of an operator, whose template is not known": Case(
        cluster(pod("a-x", "od", owner="apps.kruise.io/v1alpha1/CloneSet"), recommendation("a", "6", kind="CloneSet")),
        ["no-room-on-spot"],
        "kubernetes/autoscaler, controller_fetcher.go: targets with a scale subresource",
    ),
    "a recommendation for another object of the operator": Case(
        cluster(pod("a-x", "od", owner="apps.kruise.io/v1alpha1/CloneSet"), recommendation("b", "6", kind="CloneSet")),
        {"a-x": "s-1"},
        "kubernetes/autoscaler, controller_fetcher.go: targets with a scale subresource",
    ),
    "a recommendation for an object of another API group with the same kind and name": Case(
        cluster(pod("a-x", "od", owner="apps.kruise.io/v1beta1/StatefulSet"), recommendation("a", "6", of="apps/v1")),
        {"a-x": "s-1"},
        "kubernetes/autoscaler, controller_fetcher.go: targets with a scale subresource",
    ),
    "a recommendation for the operator's own object, in another version of its API": Case(
        cluster(
            pod("a-x", "od", owner="apps.kruise.io/v1beta1/StatefulSet"),
            recommendation("a", "6", of="apps.kruise.io/v1alpha1"),
        ),
        ["no-room-on-spot"],
        "kubernetes/autoscaler, controller_fetcher.go: targets with a scale subresource",
    ),
    "a TaskManager of Flink, which names a Deployment as its owner": Case(
        cluster(pod("a-1", "od", owner="apps/v1/Deployment", restartPolicy="Never")),
        ["runs-to-completion"],
        "apache/flink, Fabric8FlinkKubeClient.createTaskManagerPod",
    ),
    "the default request of a LimitRange": Case(
        cluster(
            db_pod("db-0", cpu="1"),
            stateful(requests={}, **ON_DELETE),
            limits(defaultRequest={"cpu": "8"}),
        ),
        ["no-room-on-spot"],
        RESIZED,
    ),
    "a quota without room for the replacement": Case(
        cluster(pod("a-1", "od"), full_quota()), ["quota-exceeded"], "kubernetes documentation: resource quotas"
    ),
    "a quota of another scope": Case(
        cluster(pod("a-1", "od"), full_quota(scopes=["BestEffort"])),
        {"a-1": "s-1"},
        "kubernetes documentation: resource quotas",
    ),
    "a generic ephemeral volume: the new pod gets a new one": Case(
        cluster(*scratch("a-1", "a")), {"a-1": "s-1"}, EPHEMERAL
    ),
    "a generic ephemeral volume in a zone without spot nodes": Case(
        cluster(*scratch("a-1", "elsewhere")), {"a-1": "s-1"}, EPHEMERAL
    ),
    "two pods with generic ephemeral volumes": Case(
        cluster(*scratch("a-1", "elsewhere"), *scratch("a-2", "a")), {"a-1": "s-1", "a-2": "s-1"}, EPHEMERAL
    ),
    "a generic ephemeral volume that can only be created in a zone without spot nodes": Case(
        cluster(*only_in("elsewhere", scratch("a-1", "a"))), ["no-room-on-spot"], EPHEMERAL
    ),
    "a generic ephemeral volume of a class that does not wait for the pod": Case(
        cluster(*scratch("a-1", "a", mode="Immediate")), ["no-room-on-spot"], EPHEMERAL
    ),
    "a generic ephemeral volume of which a node attaches no more": Case(
        cluster(
            *scratch("a-1", "a"),
            *(
                {
                    "kind": "CSINode",
                    "metadata": {"name": name},
                    "spec": {"drivers": [{"name": "disk.csi", "nodeID": name, "allocatable": {"count": room}}]},
                }
                for name, room in (("s-1", 0), ("s-2", 1))
            ),
        ),
        {"a-1": "s-2"},
        EPHEMERAL,
    ),
    "two pods that share a ReadWriteOnce claim": Case(
        cluster(
            *(pod(f"a-{n}", "od", **uses("data")) for n in (1, 2)),
            claim("data", "pv"),
            volume("pv", "data", csi={"driver": "disk.csi", "volumeHandle": "v"}),
        ),
        ["shared-volume", "shared-volume"],
        MULTI_ATTACH,
    ),
    "a pod that shares a ReadWriteOnce claim with one that stays": Case(
        cluster(
            node("od-2", ON_DEMAND),
            pod("a-1", "od", **uses("data")),
            pod("b-1", "od-2", **uses("data")),
            claim("data", "pv"),
            volume("pv", "data", csi={"driver": "disk.csi", "volumeHandle": "v"}),
        ),
        ["shared-volume"],
        MULTI_ATTACH,
    ),
    **{
        f"a start-up taint: {key}": Case(cluster(pod("a-1", "od"), **tainted(key)), ["no-room-on-spot"], STARTING)
        for key in (
            "node.cilium.io/agent-not-ready",
            "ebs.csi.aws.com/agent-not-ready",
            "efs.csi.aws.com/agent-not-ready",
            "nvidia.com/gpu-operator-not-ready",
            "startup-taint.cluster-autoscaler.kubernetes.io/network",
            "ignore-taint.cluster-autoscaler.kubernetes.io/network",
        )
    },
    "a start-up taint that is named by a flag": Case(
        cluster(pod("a-1", "od"), **tainted("example.com/warming-up")),
        ["no-room-on-spot"],
        STARTING,
        Policy(startup_taints=("example.com/warming-up",)),
    ),
    "a taint that lasts": Case(
        cluster(pod("a-1", "od"), **tainted("example.com/gpu")), ["pinned-to-on-demand"], STARTING
    ),
    "a budget that cannot be computed": Case(
        cluster(
            pod("kafka-0", "od", owner="core.strimzi.io/v1/StrimziPodSet"),
            budget(
                "kafka",
                "kafka",
                allowed=0,
                maxUnavailable=1,
                conditions=[{"type": "DisruptionAllowed", "status": "False", "reason": "SyncFailed"}],
            ),
        ),
        ["pod-disruption-budget"],
        "strimzi/strimzi-kafka-operator#12310, ray-project/kuberay#2662",
    ),
    "minAvailable: 1 of 1": Case(
        cluster(pod("a-1", "od"), budget("a", "a", allowed=0, minAvailable=1, healthy=1, desired=1, expected=1)),
        ["pod-disruption-budget"],
        "kubernetes documentation: specifying a disruption budget",
    ),
    "an expendable pod": Case(cluster(pod("a-1", "od", priority=-100)), {}, EXPENDABLE),
    "an expendable pod beside another one": Case(
        cluster(pod("a-1", "od", priority=-11, cpu="3"), pod("b-1", "od")), {"b-1": "s-1"}, EXPENDABLE
    ),
    "a pod whose priority is the cutoff": Case(cluster(pod("a-1", "od", priority=-10)), {"a-1": "s-1"}, EXPENDABLE),
    "a bound local volume": Case(
        cluster(
            pod("db-0", "od", owner="apps/v1/StatefulSet", **uses("data")),
            claim("data", "pv"),
            volume("pv", "data", local={"path": "/mnt"}, nodeAffinity=on_host("od")),
        ),
        ["pinned-to-on-demand"],
        LOCAL_VOLUME,
    ),
    "a pod of a service mesh": Case(
        cluster(pod("a-1", "od", volumes=[{"name": "workload-socket", "emptyDir": {}}])),
        ["local-storage"],
        "istio/istio, injected volumes",
    ),
    "a pod of a service mesh, if its volumes never matter": Case(
        cluster(pod("a-1", "od", volumes=[{"name": "workload-socket", "emptyDir": {}}])),
        {"a-1": "s-1"},
        "istio/istio, injected volumes",
        Policy(ignore_local_volumes=("workload-socket",)),
    ),
    **{
        f"spot nodes with the condition {name}": Case(
            cluster(pod("a-1", "od"), conditions=[{"type": name, "status": "True"}]), ["no-room-on-spot"], LIFECYCLE
        )
        for name in (
            "DrainInProgress",
            "Drained",
            "MaintenancePlanned",
            "MaintenanceInProgress",
            "GracefulNodeShutdownInProgress",
        )
    },
    "a component that handles evictions": Case(
        cluster(pod("a-1", "od", evictionResponders=[{"name": "acme.io/migrator", "priority": 10000}])),
        ["eviction-responder"],
        RESPONDERS,
    ),
    "the eviction API as the only responder": Case(
        cluster(pod("a-1", "od", evictionResponders=[{"name": "imperative-eviction.k8s.io/evictor", "priority": 100}])),
        {"a-1": "s-1"},
        RESPONDERS,
    ),
    "a pod that an operator creates for each node": Case(
        cluster(pod("a-1", "od", owner="apps.kruise.io/v1alpha1/DaemonSet")), {}, "kubernetes/autoscaler#4825"
    ),
    "a pod that seeks another one of its node, which seeks nobody": Case(
        cluster(pod("web-1", "od", affinity=seeks("cache")), pod("cache-1", "od")),
        {"cache-1": "s-1", "web-1": "s-1"},
        STEPS,
    ),
    "a pod that seeks a pod of a DaemonSet of its node": Case(
        cluster(pod("web-1", "od", affinity=seeks("agent")), pod("agent-1", "od", owner="DaemonSet")),
        ["no-room-on-spot"],
        STEPS,
    ),
    "a pod that tolerates every NoExecute taint": Case(
        cluster(pod("a-1", "od", tolerations=[{"operator": "Exists", "effect": "NoExecute"}])), {"a-1": "s-1"}, TOLERANT
    ),
    "only the new template tolerates everything": Case(
        cluster(pod("a-1", "od"), controller("ReplicaSet", "a", **EVERYTHING), cpu="2"),
        ["returns-to-drained-node"],
        TOLERANT,
    ),
    "nodeName in the new template of a StatefulSet, OnDelete": Case(
        cluster(
            db_pod("db-0"),
            stateful(nodeName="od", **ON_DELETE),
        ),
        ["node-name-in-template"],
        NODE_NAME,
    ),
    "nodeName in the template of a Job": Case(
        cluster(pod("a-1", "od", owner="batch/v1/Job"), controller("Job", "a", nodeName="od")),
        ["node-name-in-template"],
        NODE_NAME,
    ),
    "a LimitRange that is newer than the pod, with a lower maximum": Case(
        cluster(pod("a-1", "od"), controller("ReplicaSet", "a", owned=True), limits(max={"cpu": "500m"})),
        ["admission-rejects-replacement"],
        LIMIT_RANGES,
    ),
    "a LimitRange that is newer than the pod, with a higher minimum": Case(
        cluster(pod("a-1", "od"), controller("ReplicaSet", "a", owned=True), limits(min={"cpu": "2"})),
        ["admission-rejects-replacement"],
        LIMIT_RANGES,
    ),
    "a LimitRange whose maximum is met": Case(
        cluster(pod("a-1", "od"), controller("ReplicaSet", "a", owned=True), limits(max={"cpu": "2"})),
        {"a-1": "s-1"},
        LIMIT_RANGES,
    ),
    "a quota of requests": Case(
        cluster(
            pod("a-1", "od"),
            full_quota(hard={"requests.cpu": "1"}) | {"status": {"used": {"requests.cpu": "1"}}},
        ),
        ["quota-exceeded"],
        "kubernetes documentation: resource quotas",
    ),
    "a pending pod shares a ReadWriteOnce claim": Case(
        cluster(pod("a-1", "od", **uses("data")), pod("b-1", cpu="64", **uses("data")), *disk()),
        ["shared-volume"],
        MULTI_ATTACH,
    ),
    "a pod that is being deleted shares a ReadWriteOnce claim": Case(
        cluster(pod("a-1", "od", **uses("data")), pod("b-1", "s-2", deleted=True, **uses("data")), *disk()),
        {"a-1": "s-2"},
        MULTI_ATTACH,
    ),
    "a finished pod shares a ReadWriteOnce claim": Case(
        cluster(
            pod("a-1", "od", **uses("data")),
            pod("j-1", "s-1", owner="batch/v1/Job", status={"phase": "Succeeded"}, **uses("data")),
            *disk(),
        ),
        {"a-1": "s-1"},
        MULTI_ATTACH,
    ),
    "an expendable pod, which stays, shares a ReadWriteOnce claim": Case(
        cluster(pod("a-1", "od", priority=-100, **uses("data")), pod("b-1", "od", **uses("data")), *disk()),
        ["shared-volume"],
        MULTI_ATTACH,
    ),
    "two pods that share a ReadWriteOnce claim of an NFS export, which is not attached": Case(
        cluster(
            *(pod(f"a-{n}", "od", **uses("data")) for n in (1, 2)),
            claim("data", "pv"),
            volume("pv", "data", nfs={"server": "nfs", "path": "/"}),
        ),
        {"a-1": "s-1", "a-2": "s-1"},
        "kubernetes, pkg/volume/nfs: no attachable plugin",
    ),
    "a scheduling gate in the template, which was removed from the running pod": Case(
        cluster(db_pod("db-0"), stateful(schedulingGates=[{"name": "example.com/ready"}])),
        ["no-room-on-spot"],
        "kubernetes documentation: pod scheduling readiness",
    ),
    "a ReadWriteOncePod claim": Case(
        cluster(pod("a-1", "od", **uses("data")), *disk(accessModes=["ReadWriteOncePod"])), {"a-1": "s-1"}, MULTI_ATTACH
    ),
    "a volume that is still attached to another node": Case(
        cluster(pod("a-1", "od", **uses("data")), *disk(), attachment("a", "gone", "pv", "disk.csi")),
        ["volume-attachment"],
        MULTI_ATTACH,
    ),
    "a start-up taint with the effect NoExecute": Case(
        cluster(pod("a-1", "od"), taints=[{"key": "node.cilium.io/agent-not-ready", "effect": "NoExecute"}]),
        ["no-room-on-spot"],
        STARTING,
    ),
    "a start-up taint that the scheduler only prefers to avoid": Case(
        cluster(pod("a-1", "od"), taints=[{"key": "node.cilium.io/agent-not-ready", "effect": "PreferNoSchedule"}]),
        {"a-1": "s-1"},
        STARTING,
    ),
    "maxUnavailable: 0": Case(
        cluster(pod("a-1", "od"), budget("a", "a", allowed=0, maxUnavailable=0, healthy=3, desired=3, expected=3)),
        ["pod-disruption-budget"],
        "kubernetes documentation: specifying a disruption budget",
    ),
    "an expendable pod below another cutoff": Case(
        cluster(pod("a-1", "od", priority=-100)),
        {"a-1": "s-1"},
        EXPENDABLE,
        Policy(expendable_pods_priority_cutoff=-1000),
    ),
    "a volume of a path on the node": Case(
        cluster(
            pod("db-0", "od", owner="apps/v1/StatefulSet", **uses("data")),
            claim("data", "pv"),
            volume("pv", "data", hostPath={"path": "/mnt"}, nodeAffinity=on_host("od")),
        ),
        ["pinned-to-on-demand"],
        LOCAL_VOLUME,
    ),
    "a local volume of a spot node": Case(
        cluster(
            pod("db-0", "od", owner="apps/v1/StatefulSet", **uses("data")),
            claim("data", "pv"),
            volume("pv", "data", local={"path": "/mnt"}, nodeAffinity=on_host("s-2")),
        ),
        {"db-0": "s-2"},
        LOCAL_VOLUME,
    ),
    "a pod of a service mesh with a volume of its own": Case(
        cluster(pod("a-1", "od", volumes=[{"name": name, "emptyDir": {}} for name in ("workload-socket", "cache")])),
        ["local-storage"],
        "istio/istio, injected volumes",
        Policy(ignore_local_volumes=("workload-socket",)),
    ),
    "spot nodes whose maintenance is over": Case(
        cluster(pod("a-1", "od"), conditions=[{"type": "MaintenanceInProgress", "status": "False"}]),
        {"a-1": "s-1"},
        LIFECYCLE,
    ),
    "a responder besides the eviction API": Case(
        cluster(
            pod(
                "a-1",
                "od",
                evictionResponders=[
                    {"name": "imperative-eviction.k8s.io/evictor", "priority": 100},
                    {"name": "acme.io/migrator", "priority": 200},
                ],
            )
        ),
        ["eviction-responder"],
        RESPONDERS,
    ),
    "another pod of the StatefulSet is not Ready": Case(
        cluster(db_pod("db-1"), pod("db-0", "s-1", owner="apps/v1/StatefulSet", status=NOT_READY)),
        ["replicas-not-ready"],
        ORDERED,
        PLAN,
    ),
    "another pod of the StatefulSet is not Ready, on the same node": Case(
        cluster(db_pod("db-1"), pod("db-0", "od", owner="apps/v1/StatefulSet", status=NOT_READY)),
        ["replicas-not-ready"],
        ORDERED,
        PLAN,
    ),
    "another pod of the StatefulSet is pending": Case(
        cluster(db_pod("db-1"), pod("db-2", "", cpu="64", owner="apps/v1/StatefulSet")),
        ["replicas-not-ready"],
        ORDERED,
        PLAN,
    ),
    "the only pod of the StatefulSet that is not Ready is the one that moves": Case(
        cluster(db_pod("db-1", status=NOT_READY), pod("db-0", "s-1", owner="apps/v1/StatefulSet")),
        {"db-1": "s-1"},
        ORDERED,
        PLAN,
    ),
    "a pod of another controller of the same name is not Ready": Case(
        cluster(
            db_pod("db-1"),
            owned_by_another(pod("db-0", "s-1", owner="acme.io/v1/StatefulSet", status=NOT_READY)),
            pod("team/db-0", "s-1", owner="apps/v1/StatefulSet", status=NOT_READY),
        ),
        {"db-1": "s-1"},
        ORDERED,
        PLAN,
    ),
    "a pod of a Deployment beside one that is not Ready": Case(
        cluster(pod("a-1", "od"), pod("a-2", "s-1", status=NOT_READY)), {"a-1": "s-1"}, ORDERED, PLAN
    ),
    "an ordinal from the partition on, and ordinals that start at 5": Case(
        cluster(db_pod("db-6"), stateful(requests={"cpu": "32"}, ordinals=5, **PARTITION, **revisions("db-1", "db-2"))),
        ["no-room-on-spot"],
        STATEFUL,
    ),
    "an ordinal below the partition, and ordinals that start at 5": Case(
        cluster(db_pod("db-5"), stateful(requests={"cpu": "32"}, ordinals=5, **PARTITION, **revisions("db-1", "db-2"))),
        {"db-5": "s-1"},
        STATEFUL,
    ),
    "a recommendation that is larger than maxAllowed": Case(
        cluster(db_pod("db-0"), stateful(), recommendation("db", "6", maxAllowed={"cpu": "2"})),
        {"db-0": "s-1"},
        AUTOSCALED,
    ),
    "a recommendation that is smaller than minAllowed": Case(
        cluster(db_pod("db-0"), stateful(), recommendation("db", "1", minAllowed={"cpu": "6"})),
        ["no-room-on-spot"],
        AUTOSCALED,
    ),
    "a recommendation whose limit is larger than the maximum of a LimitRange": Case(
        cluster(db_pod("db-0"), stateful(), recommendation("db", "6"), limits(max={"cpu": "2"})),
        {"db-0": "s-1"},
        AUTOSCALED,
    ),
    "a recommendation doubles the limit, for which a quota has no room": Case(
        cluster(
            db_pod("db-0"),
            stateful(limits={"cpu": "2"}),
            recommendation("db", "2"),
            full_quota(hard={"limits.cpu": "3"}) | {"status": {"used": {"limits.cpu": "2"}}},
        ),
        ["quota-exceeded"],
        AUTOSCALED,
    ),
    "a quota of limits, and a LimitRange that sets the limit": Case(
        cluster(
            db_pod("db-0"),
            stateful(**ON_DELETE),
            limits(default={"cpu": "2"}),
            full_quota(hard={"limits.cpu": "4"}) | {"status": {"used": {"limits.cpu": "2"}}},
        ),
        {"db-0": "s-1"},
        LIMIT_RANGES,
    ),
    "a pod that was resized to less as a whole": Case(
        cluster(
            pod("a-1", "od", resources={"requests": {"cpu": "1"}}, generation=2),
            controller("ReplicaSet", "a", owned=True, resources={"requests": {"cpu": "6"}}),
        ),
        ["no-room-on-spot"],
        RESIZED,
    ),
    "a pod that was resized to more as a whole": Case(
        cluster(
            pod("a-1", "od", resources={"requests": {"cpu": "6"}}, generation=2),
            controller("ReplicaSet", "a", owned=True, resources={"requests": {"cpu": "1"}}),
        ),
        {"a-1": "s-1"},
        RESIZED,
    ),
    "a full quota, and a Job that replaces pods that are gone": Case(
        cluster(pod("j-1", "od", owner="batch/v1/Job"), job(podReplacementPolicy="Failed"), full_quota()),
        {"j-1": "s-1"},
        JOBS,
    ),
    "a Job that another controller manages": Case(
        cluster(job_pod("j-1"), job(managedBy="kueue.x-k8s.io/multikueue", **fails_on("Ignore", **DISRUPTED))),
        ["job-would-fail"],
        MANAGED_JOBS,
        PLAN,
    ),
    "a Job that another controller manages, and all Jobs are moved": Case(
        cluster(job_pod("j-1"), job(managedBy="kueue.x-k8s.io/multikueue")),
        {"j-1": "s-1"},
        MANAGED_JOBS,
        Policy(judge_controllers=True, move_jobs=MoveJobs.ALWAYS),
    ),
    "a Job whose field names the built-in controller": Case(
        cluster(job_pod("j-1"), job(managedBy="kubernetes.io/job-controller")), {"j-1": "s-1"}, MANAGED_JOBS, PLAN
    ),
    "a full quota, and a Job with a podFailurePolicy": Case(
        cluster(pod("j-1", "od", owner="batch/v1/Job"), job(podFailurePolicy={"rules": []}), full_quota()),
        {"j-1": "s-1"},
        JOBS,
    ),
    "a full quota, and a Job that replaces pods while they terminate": Case(
        cluster(pod("j-1", "od", owner="batch/v1/Job"), job(podReplacementPolicy="TerminatingOrFailed"), full_quota()),
        ["quota-exceeded"],
        JOBS,
    ),
    "the new template has no toleration of the spot nodes any more": Case(
        cluster(
            db_pod("db-0", tolerations=[SPOT_TOLERATION, INJECTED]),
            stateful(**ON_DELETE),
            revision("db-1", tolerations=[SPOT_TOLERATION]),
            **tainted("spot"),
        ),
        ["pinned-to-on-demand"],
        REVISIONS,
    ),
    "admission added the toleration of the spot nodes": Case(
        cluster(
            db_pod("db-0", tolerations=[SPOT_TOLERATION, INJECTED]),
            stateful(**ON_DELETE),
            revision("db-1", tolerations=[INJECTED]),
            **tainted("spot"),
        ),
        {"db-0": "s-1"},
        REVISIONS,
    ),
    "the new template has no local volume any more": Case(
        cluster(
            db_pod("db-0", **uses("data")),
            *disk(nodeAffinity=on_host("od")),
            stateful(**ON_DELETE),
            revision("db-1", **uses("data")),
        ),
        {"db-0": "s-1"},
        REVISIONS,
    ),
    "the new template has no node selector and no sidecar any more": Case(
        cluster(
            db_pod("db-0", nodeSelector={"disk": "none"}, containers=[container("main", "1"), container("side", "8")]),
            stateful(**ON_DELETE),
            revision("db-1", nodeSelector={"disk": "none"}, containers=[container("main"), container("side", "8")]),
        ),
        {"db-0": "s-1"},
        REVISIONS,
    ),
    "resized in place, below the partition": Case(
        cluster(
            db_pod("db-0", cpu="1", generation=2),
            stateful(**PARTITION, **revisions("db-1", "db-2")),
            revision("db-1", containers=[container("main", "8")]),
        ),
        ["no-room-on-spot"],
        REVISIONS,
    ),
    "a pod of a revision in between, below the partition": Case(
        cluster(
            db_pod("db-0"),
            stateful(**PARTITION, **revisions("db-0", "db-2")),
            revision("db-0", containers=[container("main", "8")]),
            revision("db-1", containers=[container("main", "1")]),
        ),
        ["no-room-on-spot"],
        REVISIONS,
    ),
    "nodeName in the template of the revision below the partition": Case(
        cluster(db_pod("db-0"), stateful(**PARTITION, **revisions("db-1", "db-2")), revision("db-1", nodeName="od")),
        ["node-name-in-template"],
        NODE_NAME,
    ),
    "a revision of another controller with other data": Case(
        cluster(db_pod("db-0"), stateful(**ON_DELETE), revision("db-1") | {"data": {"spec": {"template": "a text"}}}),
        {"db-0": "s-1"},
        REVISIONS,
    ),
    "the overhead of the RuntimeClass has grown since": Case(
        cluster(
            pod("a-1", "od", runtimeClassName="kata", overhead={"cpu": "100m"}),
            controller("ReplicaSet", "a", owned=True, runtimeClassName="kata"),
            runtime_class(overhead={"podFixed": {"cpu": "4"}}),
        ),
        ["no-room-on-spot"],
        RUNTIMES,
    ),
    "the RuntimeClass selects other nodes since, the pod's owner is an operator": Case(
        cluster(
            pod("a-1", "od", owner="acme.io/v1/Database", runtimeClassName="kata"),
            runtime_class(scheduling={"nodeSelector": {"runtime": "kata"}}),
        ),
        ["pinned-to-on-demand"],
        RUNTIMES,
    ),
    "the new template has no RuntimeClass": Case(
        cluster(
            db_pod("db-0", runtimeClassName="kata", overhead={"cpu": "8"}),
            stateful(**ON_DELETE),
            runtime_class(overhead={"podFixed": {"cpu": "8"}}),
        ),
        {"db-0": "s-1"},
        RUNTIMES,
    ),
    "the RuntimeClass of the template was deleted": Case(
        cluster(
            pod("a-1", "od", runtimeClassName="gone"),
            controller("ReplicaSet", "a", owned=True, runtimeClassName="gone"),
            runtime_class(),
        ),
        ["admission-rejects-replacement"],
        RUNTIMES,
    ),
    "the PriorityClass of the template was deleted": Case(
        cluster(
            pod("a-1", "od", priorityClassName="gone", priority=5),
            controller("ReplicaSet", "a", owned=True, priorityClassName="gone"),
            priority_class("high", 1000),
        ),
        ["admission-rejects-replacement"],
        PRIORITIES,
    ),
    "a quota of the default PriorityClass, which the template does not name": Case(
        cluster(
            db_pod("db-0", priorityClassName="high", priority=1000),
            stateful(**ON_DELETE),
            priority_class("high", 1000, globalDefault=True),
            full_quota(**OF_HIGH) | {"status": {"used": {"pods": "3"}}},
        ),
        ["quota-exceeded"],
        PRIORITIES,
    ),
    "a quota of the default PriorityClass of today, which the pod does not have": Case(
        cluster(
            db_pod("db-0", priorityClassName="low", priority=5),
            stateful(),
            *(
                priority_class(name, value, globalDefault=name == "high")
                for name, value in (("low", 5), ("high", 1000))
            ),
            full_quota(**OF_HIGH) | {"status": {"used": {"pods": "3"}}},
        ),
        ["quota-exceeded"],
        PRIORITIES,
    ),
    "a Job that tolerates no failure": Case(
        cluster(job_pod("j-1"), job(backoffLimit=0)), ["job-would-fail"], FAILING_JOBS, PLAN
    ),
    "a Job that tolerates a failure": Case(
        cluster(job_pod("j-1"), job(backoffLimit=1)), {"j-1": "s-1"}, FAILING_JOBS, PLAN
    ),
    "two pods of a Job that tolerates one more failure": Case(
        cluster(job_pod("j-1"), job_pod("j-2"), job(backoffLimit=1)), ["job-would-fail"], FAILING_JOBS, PLAN
    ),
    "a Job with as many failures as it tolerates, one of them not counted yet": Case(
        cluster(
            job_pod("j-1"),
            job(backoffLimit=2) | {"status": {"failed": 1, "uncountedTerminatedPods": {"failed": ["uid"]}}},
        ),
        ["job-would-fail"],
        FAILING_JOBS,
        PLAN,
    ),
    "a Job whose pods' containers were restarted as often as it tolerates": Case(
        cluster(
            job_pod("j-1", restartPolicy="OnFailure", **restarted(4)),
            pod("j-2", "s-2", owner="batch/v1/Job", restartPolicy="OnFailure", **restarted(2)),
            job(template={"spec": {"containers": [container("main")], "restartPolicy": "OnFailure"}}),
        ),
        ["job-would-fail"],
        FAILING_JOBS,
        PLAN,
    ),
    "a Job whose restarts do not count, because its pods are replaced": Case(
        cluster(job_pod("j-1", restartPolicy="Never", **restarted(9)), job()), {"j-1": "s-1"}, FAILING_JOBS, PLAN
    ),
    "a Job that tolerates no failure, and ignores disruptions": Case(
        cluster(job_pod("j-1"), job(backoffLimit=0, **fails_on("Ignore", **DISRUPTED))),
        {"j-1": "s-1"},
        FAILING_JOBS,
        PLAN,
    ),
    "a Job that fails if a container ends by SIGTERM": Case(
        cluster(job_pod("j-1"), job(**fails_on("FailJob", onExitCodes={"operator": "In", "values": [42, 143]}))),
        ["job-would-fail"],
        FAILING_JOBS,
        PLAN,
    ),
    "an index of a Job that tolerates no more failures": Case(
        cluster(
            job_pod("j-1", annotations={"batch.kubernetes.io/job-index-failure-count": "1"}),
            job(completionMode="Indexed", backoffLimitPerIndex=1, backoffLimit=100),
        ),
        ["job-would-fail"],
        FAILING_JOBS,
        PLAN,
    ),
    "a Job that tolerates no failure, and --move-jobs=always": Case(
        cluster(job_pod("j-1"), job(backoffLimit=0)),
        {"j-1": "s-1"},
        FAILING_JOBS,
        replace(PLAN, move_jobs=MoveJobs.ALWAYS),
    ),
    "a Job that tolerates no failure, and a custom resource of the same kind": Case(
        cluster(pod("j-1", "od", owner="batch.volcano.sh/v1/Job"), job(backoffLimit=0)),
        {"j-1": "s-1"},
        FAILING_JOBS,
        PLAN,
    ),
    "a Job that was deleted, and created again with the same name": Case(
        cluster(job_pod("j-1"), job() | {"metadata": {"name": "j", "namespace": "default", "uid": "other"}}),
        ["no-controller"],
        RECREATED,
        PLAN,
    ),
    "a Job that is being deleted with its pods": Case(
        cluster(job_pod("j-1"), deleting(job())), ["no-controller"], RECREATED, PLAN
    ),
    "a Deployment that is being deleted with its pods": Case(
        cluster(pod("a-1", "od"), controller("ReplicaSet", "a", owned=True), deleting(deployment("a"))),
        ["no-controller"],
        RECREATED,
        PLAN,
    ),
    "a ReplicaSet that is being deleted, which its Deployment creates again": Case(
        cluster(pod("a-1", "od"), deleting(controller("ReplicaSet", "a", owned=True)), deployment("a")),
        {"a-1": "s-1"},
        RECREATED,
        PLAN,
    ),
    "a bare ReplicaSet that is being deleted": Case(
        cluster(pod("a-1", "od"), deleting(controller("ReplicaSet", "a"))), ["no-controller"], RECREATED, PLAN
    ),
    "a ReplicationController that is being deleted, and a pod that may be lost": Case(
        cluster(
            pod(
                "a-1",
                "od",
                owner="v1/ReplicationController",
                annotations={"cluster-autoscaler.kubernetes.io/safe-to-evict": "true"},
            ),
            deleting(controller("ReplicationController", "a")),
        ),
        {"a-1": "s-1"},
        RECREATED,
        PLAN,
    ),
    "a StatefulSet that lacks a pod": Case(
        cluster(db_pod("db-1"), pod("db-0", "s-1", owner="apps/v1/StatefulSet"), stateful(replicas=3)),
        ["replicas-not-ready"],
        ORDERED,
        PLAN,
    ),
    "a StatefulSet with a pod on a node that is not Ready": Case(
        cluster(
            db_pod("db-1"),
            pod("db-0", "lost", owner="apps/v1/StatefulSet"),
            node("lost", SPOT, ready="Unknown"),
            stateful(replicas=2),
        ),
        ["replicas-not-ready"],
        ORDERED,
        PLAN,
    ),
    "another pod of an operator's set of brokers is not Ready": Case(
        cluster(
            pod("kafka-1", "od", owner="core.strimzi.io/v1/StrimziPodSet"),
            pod("kafka-0", "s-1", owner="core.strimzi.io/v1/StrimziPodSet", status=NOT_READY),
        ),
        ["replicas-not-ready"],
        "strimzi/strimzi-kafka-operator: pods are rolled one at a time",
        PLAN,
    ),
    "a namespace that enforces the level restricted since the pod was created": Case(
        cluster(pod("a-1", "od"), controller("ReplicaSet", "a", owned=True), enforcing("restricted")),
        ["admission-rejects-replacement"],
        POD_SECURITY,
    ),
    "a pod that the level restricted allows": Case(
        cluster(pod("a-1", "od", containers=[secured()]), enforcing("restricted")), {"a-1": "s-1"}, POD_SECURITY
    ),
    "a pod whose own security context makes it allowed": Case(
        cluster(
            pod(
                "a-1",
                "od",
                securityContext={"runAsNonRoot": True, "seccompProfile": {"type": "Localhost"}},
                containers=[secured(runAsNonRoot=None, seccompProfile=None)],
            ),
            enforcing("restricted"),
        ),
        {"a-1": "s-1"},
        POD_SECURITY,
    ),
    "an init container that adds a capability": Case(
        cluster(
            pod(
                "a-1",
                "od",
                containers=[secured()],
                initContainers=[secured("init", capabilities={"drop": ["ALL"], "add": ["NET_ADMIN"]})],
            ),
            enforcing("restricted"),
        ),
        ["admission-rejects-replacement"],
        POD_SECURITY,
    ),
    "a volume of a type that the level restricted forbids": Case(
        cluster(
            pod(
                "a-1", "od", containers=[secured()], volumes=[{"name": "share", "nfs": {"server": "nfs", "path": "/"}}]
            ),
            enforcing("restricted"),
        ),
        ["admission-rejects-replacement"],
        POD_SECURITY,
    ),
    "volumes of types that the level restricted allows": Case(
        cluster(
            pod(
                "a-1",
                "od",
                containers=[secured()],
                volumes=[{"name": "c", "configMap": {"name": "c"}}, {"name": "d", "downwardAPI": {}}],
            ),
            enforcing("restricted"),
        ),
        {"a-1": "s-1"},
        POD_SECURITY,
    ),
    "a host port in a namespace that enforces the level baseline": Case(
        cluster(
            pod("a-1", "od", containers=[container("main") | {"ports": [{"containerPort": 80, "hostPort": 80}]}]),
            enforcing("baseline"),
        ),
        ["admission-rejects-replacement"],
        POD_SECURITY,
    ),
    "a pod that the level baseline allows": Case(
        cluster(pod("a-1", "od"), enforcing("baseline")), {"a-1": "s-1"}, POD_SECURITY
    ),
    "a pod of an operator that uses the processes of its node": Case(
        cluster(pod("a-1", "od", owner="acme.io/v1/Agent", hostPID=True), enforcing("baseline")),
        ["admission-rejects-replacement"],
        POD_SECURITY,
    ),
    "a sysctl that an older version of the level does not allow": Case(
        cluster(
            pod("a-1", "od", securityContext={"sysctls": [{"name": "net.ipv4.tcp_rmem", "value": "1"}]}),
            enforcing("baseline", "v1.31"),
        ),
        ["admission-rejects-replacement"],
        POD_SECURITY,
    ),
    "a sysctl that the version of the level allows": Case(
        cluster(
            pod("a-1", "od", securityContext={"sysctls": [{"name": "net.ipv4.tcp_rmem", "value": "1"}]}),
            enforcing("baseline", "v1.32"),
        ),
        {"a-1": "s-1"},
        POD_SECURITY,
    ),
    "a namespace that only warns of pods that are not restricted": Case(
        cluster(pod("a-1", "od"), enforcing("restricted", mode="warn")), {"a-1": "s-1"}, POD_SECURITY
    ),
    "a level that does not exist counts as restricted": Case(
        cluster(pod("a-1", "od"), enforcing("strict")), ["admission-rejects-replacement"], POD_SECURITY
    ),
    "a template that is not allowed, and a webhook that made the running pod allowed": Case(
        cluster(
            pod("a-1", "od", containers=[secured()]),
            controller("ReplicaSet", "a", owned=True),
            enforcing("restricted"),
        ),
        {"a-1": "s-1"},
        POD_SECURITY,
    ),
    "a new template of a StatefulSet with OnDelete that is not allowed": Case(
        cluster(db_pod("db-0", containers=[secured()]), stateful(**ON_DELETE), enforcing("restricted")),
        ["admission-rejects-replacement"],
        POD_SECURITY,
    ),
    "a new template of a StatefulSet with OnDelete that is allowed": Case(
        cluster(
            db_pod("db-0"),
            stateful(**ON_DELETE, containers=[secured()]),
            enforcing("restricted"),
        ),
        {"db-0": "s-1"},
        POD_SECURITY,
    ),
    "affinity to pods of the same revision, and a new template that all replacements have": Case(
        cluster(
            db_pod("db-0", affinity=seeks("db", ZONE)),
            pod(
                "other-0",
                "s-2",
                cpu="4",
                owner="apps/v1/StatefulSet",
                labels={"app": "db", "controller-revision-hash": "db-1"},
            ),
            stateful(
                **ON_DELETE,
                affinity=with_keys(seeks("db"), matchLabelKeys=["controller-revision-hash"]),
            ),
        ),
        {"db-0": "s-1"},
        LABEL_KEYS,
    ),
    "anti-affinity to pods of other revisions": Case(
        cluster(
            db_pod("db-0"),
            *(
                pod(
                    f"x{n}-0",
                    f"s-{n}",
                    owner="apps/v1/StatefulSet",
                    labels={"app": "db", "controller-revision-hash": old},
                )
                for n, old in ((1, "db-1"), (2, "db-2"))
            ),
            stateful(
                **ON_DELETE,
                affinity=with_keys(repels("db"), mismatchLabelKeys=["controller-revision-hash"]),
            ),
        ),
        {"db-0": "s-2"},
        LABEL_KEYS,
    ),
    "a start-up taint of a NodePool of Karpenter": Case(
        cluster(pod("a-1", "od"), node_pool("example.com/warming-up"), **tainted("example.com/warming-up")),
        ["no-room-on-spot"],
        STARTING,
    ),
    "a taint of the Node Readiness Controller": Case(
        cluster(pod("a-1", "od"), **tainted("readiness.k8s.io/network-unavailable")),
        ["no-room-on-spot"],
        "kubernetes-sigs/node-readiness-controller",
    ),
    "a taint of a node that Cluster API has not initialized": Case(
        cluster(pod("a-1", "od"), **tainted("node.cluster.x-k8s.io/uninitialized")),
        ["no-room-on-spot"],
        "kubernetes-sigs/cluster-api#7174",
    ),
    "a namespace that is being deleted": Case(
        cluster(pod("a-1", "od"), deleting(enforcing("privileged"))),
        ["admission-rejects-replacement"],
        "kubernetes documentation: NamespaceLifecycle",
    ),
    "a new template of another scheduler": Case(
        cluster(db_pod("db-0"), stateful(**ON_DELETE, schedulerName="volcano")),
        ["other-scheduler"],
        STATEFUL,
    ),
    "a new template with devices": Case(
        cluster(
            db_pod("db-0"),
            stateful(**ON_DELETE, resourceClaims=[{"name": "gpu", "resourceClaimTemplateName": "gpu"}]),
        ),
        ["resource-claim"],
        STATEFUL,
    ),
    "a single replica of a Deployment that seeks itself by hostname": Case(
        cluster(pod("a-1", "od", owner="apps/v1/ReplicaSet", affinity=seeks("a"))),
        ["cannot-move-in-steps"],
        REQUEUED,
    ),
    "a single replica that seeks itself by zone, with spot in another zone": Case(
        cluster(pod("a-1", "od", owner="apps/v1/ReplicaSet", affinity=seeks("a", ZONE)), zone="b"),
        ["cannot-move-in-steps"],
        REQUEUED,
    ),
    "a single replica that seeks itself by zone, with spot in the same zone": Case(
        cluster(pod("a-1", "od", owner="apps/v1/ReplicaSet", affinity=seeks("a", ZONE))), {"a-1": "s-1"}, REQUEUED
    ),
    "a single pod of a StatefulSet that seeks itself by hostname": Case(
        cluster(pod("a-0", "od", owner="apps/v1/StatefulSet", affinity=seeks("a"))), {"a-0": "s-1"}, REQUEUED
    ),
    "a replica that seeks itself by hostname, with a sibling on a spot node": Case(
        cluster(
            *(pod(f"a-{n}", on, owner="apps/v1/ReplicaSet", affinity=seeks("a")) for n, on in ((1, "od"), (2, "s-2")))
        ),
        {"a-1": "s-2"},
        REQUEUED,
    ),
    "a Windows pod needs fewer fields": Case(
        cluster(
            pod(
                "a-1",
                "od",
                os={"name": "windows"},
                containers=[container("main") | {"securityContext": {"runAsNonRoot": True}}],
            ),
            enforcing("restricted"),
        ),
        {"a-1": "s-1"},
        POD_SECURITY,
    ),
}


@pytest.mark.parametrize("case", CASES.values(), ids=CASES)
def test_the_verdict_is_the_right_one(case: Case) -> None:
    assert case.source
    planner = Planner(snapshot(case.objects), case.policy)
    assert short(planner.plan_node("od", CIRCUMSTANCES)) == case.right
    [found] = [each for each in planner.plan_all(CIRCUMSTANCES).verdicts if each.node == "od"]
    assert short(found) == case.right, "all nodes in sequence"
