"""What all families share: the cluster under construction, dice, and plain objects as the API would print them."""

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
class World:
    """A cluster under construction. Everything random comes from ``rng``, so a seed is a cluster."""

    rng: Random
    nodes: list[Json] = field(default_factory=list)
    pods: list[Json] = field(default_factory=list)
    objects: list[Json] = field(default_factory=list)
    namespaces: list[str] = field(default_factory=list)
    serial: int = 0

    def chance(self, probability: float) -> bool:
        return self.rng.random() < probability

    def pick(self, options: Sequence[T]) -> T:
        return self.rng.choice(options)

    def some(self, options: Sequence[T], least: int = 0, most: int | None = None) -> list[T]:
        """Between *least* and *most* different ones of *options*, in random order."""
        most = len(options) if most is None else min(most, len(options))
        return self.rng.sample(list(options), self.rng.randint(min(least, most), most))

    def name(self, stem: str) -> str:
        self.serial += 1
        return f"{stem}-{self.serial}"

    def add(self, kind: str, name: str, namespace: str = "", version: str = "v1", **rest: Any) -> Json:
        """A new object of the cluster; what an earlier family made under that name is replaced."""
        self.objects = [one for one in self.objects if _key(one) != (kind, name, namespace)]
        one: Json = {"apiVersion": version, "kind": kind, "metadata": {"name": name, "uid": f"uid-{kind}-{name}"}}
        if namespace:
            one["metadata"]["namespace"] = namespace
            one["metadata"]["uid"] += f"-{namespace}"
        one.update(rest)
        self.objects.append(one)
        return one

    def node_names(self) -> list[str]:
        return [one["metadata"]["name"] for one in self.nodes]

    def as_list(self) -> Json:
        return {
            "apiVersion": "v1",
            "kind": "List",
            "metadata": {"resourceVersion": ""},
            "items": [*self.nodes, *self.objects, *self.pods],
        }


def _key(one: Json) -> tuple[str, str, str]:
    return one["kind"], one["metadata"]["name"], one["metadata"].get("namespace", "")


def _nothing(_: World, __: Json) -> None:
    pass


def _no_objects(_: World) -> None:
    pass


@dataclass(frozen=True)
class Family:
    """What makes one plugin's life hard.

    ``cluster`` adds objects and marks nodes, ``template`` marks the pod that a workload's pods are copied from,
    ``pod`` marks a single pod that has its name and perhaps its node.
    """

    name: str
    cluster: Callable[[World], None] = _no_objects
    template: Callable[[World, Json], None] = _nothing
    pod: Callable[[World, Json], None] = _nothing


def add_namespaces(world: World) -> None:
    for name, labels in (
        ("default", {}),
        ("shop", {"team": "red", "env": "prod"}),
        ("data", {"team": "blue"}),
        ("kube-system", {"team": ""}),
    ):
        world.namespaces.append(name)
        one = world.add("Namespace", name, status={"phase": "Active"})
        one["metadata"]["labels"] = {"kubernetes.io/metadata.name": name, **labels}


def add_nodes(world: World) -> None:
    """Between 3 and 14 nodes, at least one of each kind; one in twelve has no zone."""
    count = world.rng.randint(3, 14)
    spots = world.rng.randint(1, count - 1)
    for i in range(count):
        spot = i < spots
        world.nodes.append(_node(world, f"spot-{i}" if spot else f"od-{i - spots}", spot))


def _node(world: World, name: str, spot: bool) -> Json:
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


def template(world: World) -> Json:
    """A pod as a workload's template, with what the API server and the admission plugins fill in."""
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


def small_requests(world: World) -> Json:
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
