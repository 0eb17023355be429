"""Shared by all families: the cluster under construction, random choices, and basic objects as printed by the API."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from random import Random
from typing import Any, TypeAlias, TypeVar

Json: TypeAlias = dict[str, Any]
T = TypeVar("T")

ZONES = ("a", "b", "c")
APPS = ("web", "db", "cache", "job")
TIERS = ("front", "back", "")
ON_DEMAND = "node-role.kubernetes.io/worker"
SPOT = "node-role.kubernetes.io/spot-worker"
ZONE = "topology.kubernetes.io/zone"
REGION = "topology.kubernetes.io/region"
HOSTNAME = "kubernetes.io/hostname"


@dataclass
class ClusterBuilder:
    """A cluster under construction. All random choices use ``rng``, so the seed determines the cluster."""

    rng: Random
    nodes: list[Json] = field(default_factory=list)
    pods: list[Json] = field(default_factory=list)
    objects: list[Json] = field(default_factory=list)
    namespaces: list[str] = field(default_factory=list)
    serial: int = 0

    def chance(self, probability: float) -> bool:
        """Return True with this probability."""
        return self.rng.random() < probability

    def pick(self, options: Sequence[T]) -> T:
        """Return a random element of *options*."""
        return self.rng.choice(options)

    def some(self, options: Sequence[T], least: int = 0, most: int | None = None) -> list[T]:
        """Return between *least* and *most* distinct elements of *options*, in random order."""
        most = len(options) if most is None else min(most, len(options))
        return self.rng.sample(list(options), self.rng.randint(min(least, most), most))

    def name(self, stem: str) -> str:
        """Return a unique name that starts with *stem*."""
        self.serial += 1
        return f"{stem}-{self.serial}"

    def add(self, kind: str, name: str, namespace: str = "", version: str = "v1", **fields: Any) -> Json:
        """Add and return an object; it replaces an object of the same name from an earlier family."""
        self.objects = [other for other in self.objects if _key(other) != (kind, name, namespace)]
        obj: Json = {"apiVersion": version, "kind": kind, "metadata": {"name": name, "uid": f"uid-{kind}-{name}"}}
        if namespace:
            obj["metadata"]["namespace"] = namespace
            obj["metadata"]["uid"] += f"-{namespace}"
        obj.update(fields)
        self.objects.append(obj)
        return obj

    def node_names(self) -> list[str]:
        return [node["metadata"]["name"] for node in self.nodes]

    def as_list(self) -> Json:
        """Return the cluster as a ``kind: List``."""
        return {
            "apiVersion": "v1",
            "kind": "List",
            "metadata": {"resourceVersion": ""},
            "items": [*self.nodes, *self.objects, *self.pods],
        }


def _key(obj: Json) -> tuple[str, str, str]:
    return obj["kind"], obj["metadata"]["name"], obj["metadata"].get("namespace", "")


def _nothing(_: ClusterBuilder, __: Json) -> None:
    pass


def _no_objects(_: ClusterBuilder) -> None:
    pass


@dataclass(frozen=True)
class Family:
    """Modifications of a cluster that exercise one plugin.

    ``cluster`` adds objects and modifies nodes, ``template`` modifies the pod from which a workload's pods are copied,
    and ``pod`` modifies a single pod, which has a name and possibly a node.
    """

    name: str
    cluster: Callable[[ClusterBuilder], None] = _no_objects
    template: Callable[[ClusterBuilder, Json], None] = _nothing
    pod: Callable[[ClusterBuilder, Json], None] = _nothing


def add_namespaces(world: ClusterBuilder) -> None:
    for name, labels in (
        ("default", {}),
        ("shop", {"team": "red", "env": "prod"}),
        ("data", {"team": "blue"}),
        ("kube-system", {"team": ""}),
    ):
        world.namespaces.append(name)
        namespace = world.add("Namespace", name, status={"phase": "Active"})
        namespace["metadata"]["labels"] = {"kubernetes.io/metadata.name": name, **labels}


def add_nodes(world: ClusterBuilder, scale: int) -> None:
    """Add *scale* times 3 to 14 nodes, at least one spot and one on-demand node; one in twelve has no zone."""
    count = world.rng.randint(3, 14) * scale
    spots = world.rng.randint(1, count - 1)
    for i in range(count):
        spot = i < spots
        world.nodes.append(_node(world, f"spot-{i}" if spot else f"od-{i - spots}", spot))


def _node(world: ClusterBuilder, name: str, spot: bool) -> Json:
    labels = {
        "beta.kubernetes.io/os": "linux",
        "kubernetes.io/arch": "amd64",
        HOSTNAME: name,
        "node.kubernetes.io/instance-type": world.pick(("m5.large", "m5.xlarge")),
        SPOT if spot else ON_DEMAND: "true",
    }
    if not world.chance(0.08):
        labels |= {ZONE: world.pick(ZONES), REGION: "r1"}
    capacity = {
        "cpu": world.pick(("2", "4", "3920m")),
        "ephemeral-storage": "18242267924",
        "hugepages-2Mi": "0",
        "memory": world.pick(("8Gi", "3977916Ki", "16332212Ki")),
        "pods": world.pick(("110", "29")),
    }
    return {
        "apiVersion": "v1",
        "kind": "Node",
        "metadata": {"name": name, "uid": f"uid-{name}", "resourceVersion": "12", "labels": labels, "annotations": {}},
        "spec": {"providerID": f"aws:///eu-1a/i-{name}"},
        "status": {
            "capacity": dict(capacity),
            "allocatable": capacity,
            "conditions": [
                {"type": "MemoryPressure", "status": "False"},
                {"type": "DiskPressure", "status": "False"},
                {"type": "Ready", "status": "True"},
            ],
            "nodeInfo": {"kubeletVersion": "v1.36.3"},
        },
    }


def template(world: ClusterBuilder) -> Json:
    """Return a template pod, with the defaults of the API server and the admission plugins."""
    app = world.pick(APPS)
    labels = {"app": app, "pod-template-hash": f"h{world.rng.randint(0, 3)}"}
    if world.chance(0.5):
        labels["tier"] = world.pick(TIERS)
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"namespace": world.pick(world.namespaces), "labels": labels},
        "spec": {
            "containers": [container("main", small_requests(world))],
            "dnsPolicy": "ClusterFirst",
            "enableServiceLinks": True,
            "priority": 0,
            "restartPolicy": "Always",
            "schedulerName": "default-scheduler",
            "securityContext": {},
            "serviceAccountName": "default",
            "terminationGracePeriodSeconds": 30,
            "tolerations": [default_toleration(cause) for cause in ("not-ready", "unreachable")],
        },
    }


def default_toleration(cause: str) -> Json:
    return {
        "effect": "NoExecute",
        "key": f"node.kubernetes.io/{cause}",
        "operator": "Exists",
        "tolerationSeconds": 300,
    }


def small_requests(world: ClusterBuilder) -> Json:
    if world.chance(0.1):
        return {}
    requests = {"cpu": world.pick(("10m", "100m", "250m", "0.1")), "memory": world.pick(("64Mi", "128Mi", "100M"))}
    return {"requests": requests}


def container(name: str, resources: Json) -> Json:
    return {
        "image": "pause:3.10",
        "imagePullPolicy": "IfNotPresent",
        "name": name,
        "resources": resources,
        "terminationMessagePath": "/dev/termination-log",
        "terminationMessagePolicy": "File",
    }
