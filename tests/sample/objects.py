"""Kubernetes objects of the sample cluster, with the fields that an EKS cluster would have and planning reads."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

from rescheduler.housekeeping.node_writes import SOFT_TAINT
from tests.bench.shapes import Json, suffix, uid

REGION: Final = "eu-west-1"
ZONES: Final = ("eu-west-1a", "eu-west-1b", "eu-west-1c")
ZONE: Final = "topology.kubernetes.io/zone"
ON_DEMAND: Final = "node-role.kubernetes.io/worker"
SPOT: Final = "node-role.kubernetes.io/spot-worker"

#: The soft taint that ``--manage-soft-taint`` adds to on-demand nodes.
_PREFER_SPOT: Final[Json] = {"key": SOFT_TAINT.key, "effect": SOFT_TAINT.effect}

#: By instance type: vCPU and GiB of the machine, and allocatable millicores and MiB.
MACHINES: Final[Mapping[str, tuple[int, int, int, int]]] = {
    "m5.xlarge": (4, 16, 3920, 14_768),
    "m5.2xlarge": (8, 32, 7910, 30_624),
    "m5a.2xlarge": (8, 32, 7910, 30_624),
    "r5.2xlarge": (8, 64, 7910, 62_496),
    "c5.4xlarge": (16, 32, 15890, 28_640),
}


@dataclass(frozen=True, slots=True)
class SampleMachine:
    """A node of the sample."""

    number: int
    instance_type: str
    spot: bool
    created: str
    labels: Mapping[str, str] = field(default_factory=dict)
    annotations: Mapping[str, str] = field(default_factory=dict)

    @property
    def zone(self) -> str:
        return ZONES[self.number % len(ZONES)]

    @property
    def name(self) -> str:
        """Return the name that EKS gives: the private address, and the region's domain."""
        block = 32 * (self.number % len(ZONES)) + (16 if self.spot else 0)
        return f"ip-10-0-{block + self.number * 7 % 16}-{11 + self.number * 37 % 240}.{REGION}.compute.internal"


@dataclass(frozen=True, slots=True, eq=False)
class SampleWorkload:
    """A controller and its pods. *kind* is Deployment, StatefulSet, DaemonSet, or "" for pods without one."""

    namespace: str
    name: str
    kind: str = "Deployment"
    cpu: int = 250  #: millicores
    memory: int = 512  #: MiB
    annotations: Mapping[str, str] = field(default_factory=dict)
    spec: Mapping[str, object] = field(default_factory=dict)
    disrupted: int | None = None  #: evictions that its PodDisruptionBudget allows now; None: it has no budget

    @property
    def labels(self) -> Json:
        return {"app.kubernetes.io/name": self.name}

    @property
    def template_hash(self) -> str:
        return uid(f"{self.namespace}/{self.name}").replace("-", "")[:10]


def node(machine: SampleMachine) -> Json:
    vcpu, gib, cpu, memory = MACHINES[machine.instance_type]
    labels = {
        "kubernetes.io/arch": "amd64",
        "kubernetes.io/hostname": machine.name,
        "kubernetes.io/os": "linux",
        "node.kubernetes.io/instance-type": machine.instance_type,
        "eks.amazonaws.com/capacityType": "SPOT" if machine.spot else "ON_DEMAND",
        SPOT if machine.spot else ON_DEMAND: "",
        "topology.kubernetes.io/region": REGION,
        ZONE: machine.zone,
        **machine.labels,
    }
    return {
        "apiVersion": "v1",
        "kind": "Node",
        "metadata": _meta("", machine.name, machine.created, labels) | {"annotations": dict(machine.annotations)},
        "spec": {
            "providerID": f"aws:///{machine.zone}/i-{uid(machine.name).replace('-', '')[:17]}",
            "taints": [] if machine.spot else [_PREFER_SPOT],
        },
        "status": {
            "allocatable": {"cpu": f"{cpu}m", "memory": f"{memory}Mi", "pods": "58"},
            "capacity": {"cpu": str(vcpu), "memory": f"{gib}Gi", "pods": "58"},
            "conditions": [{"type": "Ready", "status": "True", "reason": "KubeletReady"}],
        },
    }


def csi_node(machine: SampleMachine) -> Json:
    driver = {"name": "ebs.csi.aws.com", "nodeID": machine.name, "topologyKeys": [ZONE], "allocatable": {"count": 25}}
    return {
        "apiVersion": "storage.k8s.io/v1",
        "kind": "CSINode",
        "metadata": {"name": machine.name},
        "spec": {"drivers": [driver]},
    }


def pod(workload: SampleWorkload, number: int, machine: SampleMachine, created: str) -> Json:
    """Return pod *number* of a workload, running on *machine*."""
    name, owner, labels = _identity(workload, number, machine)
    meta = _meta(workload.namespace, name, created, labels) | {"annotations": dict(workload.annotations)}
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": meta | ({"ownerReferences": [owner]} if owner else {}),
        "spec": {"nodeName": machine.name, **_spec_of(workload, name)},
        "status": {
            "phase": "Running",
            "startTime": created,
            "conditions": [{"type": "Ready", "status": "True", "lastTransitionTime": created}],
        },
    }


def _identity(workload: SampleWorkload, number: int, machine: SampleMachine) -> tuple[str, Json | None, Json]:
    """Return the name, the owner and the labels of a pod."""
    base, labels = workload.name, dict(workload.labels)
    letters = suffix(int(uid(f"{workload.namespace}/{base}/{number}/{machine.name}")[:6], 16))
    match workload.kind:
        case "Deployment":
            controller = f"{base}-{workload.template_hash}"
            labels["pod-template-hash"] = workload.template_hash
            return f"{controller}-{letters}", _owner(workload, "ReplicaSet", controller), labels
        case "StatefulSet":
            labels["controller-revision-hash"] = _revision(workload)
            return f"{base}-{number}", _owner(workload, workload.kind, base), labels
        case "DaemonSet":
            return f"{base}-{letters}", _owner(workload, workload.kind, base), labels
    return f"{base}-{letters}", None, labels


def _revision(workload: SampleWorkload) -> str:
    return f"{workload.name}-{workload.template_hash}"


def _owner(workload: SampleWorkload, kind: str, name: str) -> Json:
    owner = uid(f"{kind}/{workload.namespace}/{name}")
    return {"apiVersion": "apps/v1", "kind": kind, "name": name, "uid": owner, "controller": True}


def _spec_of(workload: SampleWorkload, pod_name: str) -> Json:
    requests = {"cpu": f"{workload.cpu}m", "memory": f"{workload.memory}Mi"}
    image = f"registry.example.com/{workload.namespace}/{workload.name}:v1"
    spec: Json = {
        "containers": [{"name": workload.name, "image": image, "resources": {"requests": requests}}],
        "schedulerName": "default-scheduler",
        "terminationGracePeriodSeconds": 30,
        **workload.spec,
    }
    if workload.kind == "DaemonSet":
        spec["tolerations"] = [{"operator": "Exists"}]
    if workload.kind == "StatefulSet":
        spec["volumes"] = [{"name": "data", "persistentVolumeClaim": {"claimName": f"data-{pod_name}"}}]
    return spec


def volume(workload: SampleWorkload, number: int, machine: SampleMachine) -> Sequence[Json]:
    """Return the claim of a StatefulSet's pod and its volume, which can be used in the zone of *machine* only."""
    claim = f"data-{workload.name}-{number}"
    name = f"pvc-{uid(f'{workload.namespace}/{claim}')}"
    term = {"matchExpressions": [{"key": ZONE, "operator": "In", "values": [machine.zone]}]}
    shared: Json = {"accessModes": ["ReadWriteOnce"], "storageClassName": "gp3"}
    return (
        {
            "apiVersion": "v1",
            "kind": "PersistentVolumeClaim",
            "metadata": {
                "name": claim,
                "namespace": workload.namespace,
                "uid": uid(claim),
                "annotations": {"pv.kubernetes.io/bind-completed": "yes"},
            },
            "spec": {**shared, "volumeName": name, "resources": {"requests": {"storage": "100Gi"}}},
            "status": {"phase": "Bound"},
        },
        {
            "apiVersion": "v1",
            "kind": "PersistentVolume",
            "metadata": {"name": name, "uid": uid(name)},
            "spec": {
                **shared,
                "capacity": {"storage": "100Gi"},
                "claimRef": {"kind": "PersistentVolumeClaim", "namespace": workload.namespace, "name": claim},
                "csi": {"driver": "ebs.csi.aws.com", "volumeHandle": f"vol-{uid(name).replace('-', '')[:17]}"},
                "nodeAffinity": {"required": {"nodeSelectorTerms": [term]}},
            },
            "status": {"phase": "Bound"},
        },
    )


def rolled_out(workload: SampleWorkload, pods: int, created: str) -> Sequence[Json]:
    """Return the Deployment of *pods* pods that all run, and its ReplicaSet. Its strategy is the API's default."""
    name = f"{workload.name}-{workload.template_hash}"
    above = _owner(workload, "Deployment", workload.name)
    hashed = workload.labels | {"pod-template-hash": workload.template_hash}
    counts = {"observedGeneration": 1, "replicas": pods, "readyReplicas": pods, "availableReplicas": pods}
    strategy = {"type": "RollingUpdate", "rollingUpdate": {"maxSurge": "25%", "maxUnavailable": "25%"}}

    def meta(name: str, kind: str, labels: Json) -> Json:
        of = _meta(workload.namespace, name, created, labels) | {"generation": 1}
        return of | {"uid": _owner(workload, kind, name)["uid"]}

    def spec(labels: Json) -> Json:
        annotated = {"labels": labels, "annotations": dict(workload.annotations)}
        template = {"metadata": annotated, "spec": _spec_of(workload, name)}
        return {"replicas": pods, "selector": {"matchLabels": labels}, "template": template}

    return (
        {
            "apiVersion": "apps/v1",
            "kind": "Deployment",
            "metadata": meta(workload.name, "Deployment", workload.labels),
            "spec": spec(workload.labels) | {"strategy": strategy, "progressDeadlineSeconds": 600},
            "status": counts | {"updatedReplicas": pods},
        },
        {
            "apiVersion": "apps/v1",
            "kind": "ReplicaSet",
            "metadata": meta(name, "ReplicaSet", hashed) | {"ownerReferences": [above]},
            "spec": spec(hashed),
            "status": counts,
        },
    )


def stateful(workload: SampleWorkload, pods: int, created: str) -> Json:
    """Return the StatefulSet of *pods* pods that all run, each with a claim of its own."""
    meta = _meta(workload.namespace, workload.name, created, workload.labels) | {"generation": 1}
    spec = {key: value for key, value in _spec_of(workload, "").items() if key != "volumes"}
    claims: Json = {"accessModes": ["ReadWriteOnce"], "storageClassName": "gp3"}
    revision = _revision(workload)
    return {
        "apiVersion": "apps/v1",
        "kind": "StatefulSet",
        "metadata": meta | {"uid": _owner(workload, workload.kind, workload.name)["uid"]},
        "spec": {
            "replicas": pods,
            "serviceName": workload.name,
            "selector": {"matchLabels": workload.labels},
            "template": {"metadata": {"labels": workload.labels}, "spec": spec},
            "volumeClaimTemplates": [{"metadata": {"name": "data"}, "spec": claims}],
        },
        "status": {"replicas": pods, "currentRevision": revision, "updateRevision": revision},
    }


def storage_class() -> Json:
    return {
        "apiVersion": "storage.k8s.io/v1",
        "kind": "StorageClass",
        "metadata": {"name": "gp3"},
        "provisioner": "ebs.csi.aws.com",
        "volumeBindingMode": "WaitForFirstConsumer",
    }


def budget(workload: SampleWorkload, pods: int) -> Json:
    """Return the PodDisruptionBudget of a workload with *pods* healthy pods."""
    allowed = workload.disrupted or 0
    return {
        "apiVersion": "policy/v1",
        "kind": "PodDisruptionBudget",
        "metadata": {"name": workload.name, "namespace": workload.namespace},
        "spec": {"maxUnavailable": allowed, "selector": {"matchLabels": workload.labels}},
        "status": {
            "currentHealthy": pods,
            "desiredHealthy": pods - allowed,
            "disruptionsAllowed": allowed,
            "expectedPods": pods,
        },
    }


def namespace(name: str) -> Json:
    labels = {"kubernetes.io/metadata.name": name}
    return {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name, "labels": labels}}


def _meta(space: str, name: str, created: str, labels: Json) -> Json:
    meta: Json = {"name": name, "uid": uid(f"{space}/{name}"), "creationTimestamp": created, "labels": labels}
    return meta | ({"namespace": space} if space else {})
