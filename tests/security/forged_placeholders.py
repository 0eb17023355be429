"""What the owner of a stolen token may try in the namespace of placeholders: fields that the daemon never sets."""

import json
from collections.abc import Sequence
from dataclasses import replace
from datetime import UTC, datetime
from typing import Any, Final

from devcluster.api import Json
from devcluster.plane import INSTALLATION
from rescheduler.planning.policy import SPOT_LABEL
from rescheduler.planning.room.manifests import PlaceholderTerms, label_keys_of, manifest
from rescheduler.settings import LEASE, PAUSE_IMAGE, RoomSettings
from tests.planning import builders
from tests.planning.builders import ZONE
from tests.security.thief import DEBUGGER, OWNER, Try, apply, merge

ROOM: Final = "/api/v1/namespaces/spot-rescheduler-room"
TERMS: Final = PlaceholderTerms(
    f"{INSTALLATION}/{LEASE}",
    SPOT_LABEL,
    datetime(2026, 1, 1, tzinfo=UTC),
    "u",
    "",
    PAUSE_IMAGE,
    RoomSettings().life_seconds,
)

#: Pods that move: the daemon must be able to create their placeholders.
MOVERS: Final[dict[str, Json]] = {
    "a plain pod": builders.pod("web-1", "n1"),
    "with all that placeholders copy": builders.pod(
        "web-1",
        "n1",
        labels={"app": "web", "eviction": "x"},
        affinity={
            "podAntiAffinity": builders.repels("web", ZONE)["podAntiAffinity"],
            "podAffinity": builders.seeks("db")["podAffinity"],
            "nodeAffinity": {
                "requiredDuringSchedulingIgnoredDuringExecution": {
                    "nodeSelectorTerms": [{"matchExpressions": [{"key": "disk", "operator": "In", "values": ["ssd"]}]}]
                }
            },
        },
        nodeSelector={"disk": "ssd"},
        tolerations=[{"operator": "Exists"}, {"key": "a", "value": "b", "effect": "NoExecute", "tolerationSeconds": 5}],
        topologySpreadConstraints=[
            {
                "maxSkew": 1,
                "topologyKey": ZONE,
                "whenUnsatisfiable": "DoNotSchedule",
                "labelSelector": {"matchLabels": {"app": "web"}},
                "matchLabelKeys": ["eviction"],
            }
        ],
    ),
    "repels within a node": builders.pod("web-1", "n1", affinity=builders.repels("web")),
    "with an extended resource and large pages": builders.pod(
        "web-1",
        "n1",
        containers=[
            {
                "name": "c",
                "image": "i",
                "resources": {"requests": {"cpu": "1", "hugepages-2Mi": "2Mi", "example.org/gpu": "1"}},
            }
        ],
    ),
    "of another scheduler": builders.pod("web-1", "n1", schedulerName="volcano"),
}

REMOVED: Final = object()
POLICY_ON_ROOM: Final = {
    "metadata": "of the metadata, a placeholder has only a name",
    "owner": "the owner of a placeholder is its namespace",
    "spec": "a placeholder has no field of its spec that it does not need",
    "priority": "a placeholder has the PriorityClass spot-rescheduler-room",
    "token": "a placeholder has the ServiceAccount default, and no token",
    "end": "a placeholder ends within a second, and after two days at the latest",
    "container": "a placeholder has one container with the image registry.k8s.io/pause:3.10",
    "security": "a placeholder is not root, and has no capabilities",
    "affinity": "a placeholder has only required affinity, and repels pods of other namespaces within a node at most",
}
_CONTAINER: Final = ("spec", "containers", 0)
_REPELLED: Final = {
    "labelSelector": {},
    "topologyKey": ZONE,
    "namespaces": ["spot-rescheduler-room", "default"],
}


def repelling(term: Json) -> Json:
    return {"requiredDuringSchedulingIgnoredDuringExecution": [term]}


#: Field of a placeholder → what a thief sets, and which rule rejects it.
FORGED: Final[dict[str, tuple[tuple[str | int, ...], Any, str]]] = {
    "critical": (("spec", "priorityClassName"), "system-node-critical", "priority"),
    "critical for the cluster": (("spec", "priorityClassName"), "system-cluster-critical", "priority"),
    "of another class": (("spec", "priorityClassName"), "high", "priority"),
    "without a class": (("spec", "priorityClassName"), REMOVED, "priority"),
    "on a node": (("spec", "nodeName"), "n1", "spec"),
    "another image": ((*_CONTAINER, "image"), "evil.example/miner:1", "container"),
    "another tag": ((*_CONTAINER, "image"), "registry.k8s.io/pause:3.1", "container"),
    "a command": ((*_CONTAINER, "command"), ["sh"], "container"),
    "arguments": ((*_CONTAINER, "args"), ["x"], "container"),
    "an environment": ((*_CONTAINER, "env"), [{"name": "A", "value": "b"}], "container"),
    "an environment of Secrets": ((*_CONTAINER, "envFrom"), [{"secretRef": {"name": "s"}}], "container"),
    "ports": ((*_CONTAINER, "ports"), [{"containerPort": 80}], "container"),
    "host ports": ((*_CONTAINER, "ports"), [{"containerPort": 80, "hostPort": 80}], "container"),
    "a hook": ((*_CONTAINER, "lifecycle"), {"preStop": {"exec": {"command": ["sleep", "9"]}}}, "container"),
    "a probe": (
        (*_CONTAINER, "livenessProbe"),
        {"httpGet": {"path": "/", "port": 80, "host": "10.0.0.1"}},
        "container",
    ),
    "standard input": ((*_CONTAINER, "stdin"), True, "container"),
    "a folder": ((*_CONTAINER, "workingDir"), "/x", "container"),
    "claims of devices": ((*_CONTAINER, "resources", "claims"), [{"name": "d"}], "container"),
    "two containers": (("spec", "containers", 1), {"name": "second", "image": PAUSE_IMAGE}, "container"),
    "an init container": (("spec", "initContainers"), [{"name": "i", "image": PAUSE_IMAGE}], "spec"),
    "a token": (("spec", "automountServiceAccountToken"), True, "token"),
    "a token by default": (("spec", "automountServiceAccountToken"), REMOVED, "token"),
    "the network of the host": (("spec", "hostNetwork"), True, "spec"),
    "the processes of the host": (("spec", "hostPID"), True, "spec"),
    "the memory of the host": (("spec", "hostIPC"), True, "spec"),
    "a user namespace of its own": (("spec", "hostUsers"), False, "spec"),
    "a folder of the host": (("spec", "volumes"), [{"name": "v", "hostPath": {"path": "/"}}], "spec"),
    "a Secret": (("spec", "volumes"), [{"name": "v", "secret": {"secretName": "s"}}], "spec"),
    "a projected token": (
        ("spec", "volumes"),
        [{"name": "v", "projected": {"sources": [{"serviceAccountToken": {"path": "t"}}]}}],
        "spec",
    ),
    "a claim of a volume": (("spec", "volumes"), [{"name": "v", "persistentVolumeClaim": {"claimName": "c"}}], "spec"),
    "gates": (("spec", "schedulingGates"), [{"name": "a.b/c"}], "spec"),
    "readiness gates": (("spec", "readinessGates"), [{"conditionType": "a.b/c"}], "spec"),
    "a name in DNS": (("spec", "hostname"), "web", "spec"),
    "names of hosts": (("spec", "hostAliases"), [{"ip": "10.0.0.1", "hostnames": ["x"]}], "spec"),
    "servers of DNS": (("spec", "dnsConfig"), {"nameservers": ["10.0.0.1"]}, "spec"),
    "shared processes": (("spec", "shareProcessNamespace"), True, "spec"),
    "claims of devices for the pod": (
        ("spec", "resourceClaims"),
        [{"name": "d", "resourceClaimName": "d"}],
        "spec",
    ),
    "a long end": (("spec", "terminationGracePeriodSeconds"), 2**31, "end"),
    "the usual end": (("spec", "terminationGracePeriodSeconds"), REMOVED, "end"),
    "no end": (("spec", "activeDeadlineSeconds"), REMOVED, "end"),
    "a late end": (("spec", "activeDeadlineSeconds"), 172801, "end"),
    "root": (("spec", "securityContext", "runAsNonRoot"), REMOVED, "security"),
    "a system call filter": (
        ("spec", "securityContext", "seccompProfile"),
        {"type": "Localhost", "localhostProfile": "x"},
        "security",
    ),
    "kernel parameters": (
        ("spec", "securityContext", "sysctls"),
        [{"name": "net.ipv4.ip_unprivileged_port_start", "value": "0"}],
        "security",
    ),
    "groups": (("spec", "securityContext", "supplementalGroups"), [0], "security"),
    "a writable root": ((*_CONTAINER, "securityContext", "readOnlyRootFilesystem"), False, "security"),
    "no context": (
        (*_CONTAINER, "securityContext", "capabilities"),
        {"drop": ["ALL"], "add": ["NET_BIND_SERVICE"]},
        "security",
    ),
    "a finalizer": (("metadata", "finalizers"), ["a.b/x"], "metadata"),
    "a generated name": (("metadata", "generateName"), "room-", "metadata"),
    "another name": (("metadata", "name"), "web", "metadata"),
    "no label": (("metadata", "labels"), {"app": "web"}, "metadata"),
    "an annotation": (("metadata", "annotations", "k8s.v1.cni.cncf.io/networks"), "host", "metadata"),
    "a mirror": (("metadata", "annotations", "kubernetes.io/config.mirror"), "x", "metadata"),
    "not safe to evict": (
        ("metadata", "annotations", "cluster-autoscaler.kubernetes.io/safe-to-evict"),
        "false",
        "metadata",
    ),
    "no owner": (("metadata", "ownerReferences"), [], "owner"),
    "another owner": (("metadata", "ownerReferences", 0, "kind"), "ConfigMap", "owner"),
    "another namespace as owner": (("metadata", "ownerReferences", 0, "name"), "default", "owner"),
    "an owner that waits": (("metadata", "ownerReferences", 0, "blockOwnerDeletion"), True, "owner"),
    "two owners": (("metadata", "ownerReferences", 1), OWNER, "owner"),
    "not controlled": (("metadata", "ownerReferences", 0, "controller"), REMOVED, "owner"),
    "repels all pods of a zone": (("spec", "affinity", "podAntiAffinity"), repelling(_REPELLED), "affinity"),
    "repels all pods of all namespaces of a zone": (
        ("spec", "affinity", "podAntiAffinity"),
        repelling({"labelSelector": {}, "topologyKey": ZONE, "namespaceSelector": {}}),
        "affinity",
    ),
    "prefers": (
        ("spec", "affinity", "podAffinity"),
        {"preferredDuringSchedulingIgnoredDuringExecution": [{"weight": 1, "podAffinityTerm": _REPELLED}]},
        "affinity",
    ),
}


def placeholder(mover: Json, namespace_uid: str, path: Sequence[str | int] = (), value: Any = None) -> Json:
    """Return the daemon's placeholder for the pod *mover*, with *value* in the field *path*."""
    [pod] = builders.snapshot([mover]).pods.values()
    made: Json = manifest(pod, replace(TERMS, namespace_uid=namespace_uid), (), label_keys_of([pod.cls]))
    made = json.loads(json.dumps(made))
    place: Any = made
    for step in path[:-1]:
        place = place[step]
    if value is REMOVED:
        del place[path[-1]]
    elif isinstance(place, list) and path[-1] == len(place):
        place.append(value)
    elif path:
        place[path[-1]] = value
    return made


def creating(made: Json) -> Try:
    return Try("POST", f"{ROOM}/pods", made)


#: What the role does not permit for a placeholder that exists.
ON_PLACEHOLDER: Final[dict[str, Try]] = {
    "change it": merge(f"{ROOM}/pods/room-1", metadata={"labels": {"a": "b"}}),
    "change it, server-side apply": apply(
        f"{ROOM}/pods/room-1", "Pod", metadata={"name": "room-1", "finalizers": ["a.b/x"]}
    ),
    "bind it": Try("POST", f"{ROOM}/pods/room-1/binding", {"metadata": {"name": "room-1"}, "target": {"name": "n1"}}),
    "bind it by name": Try("POST", f"{ROOM}/bindings", {"metadata": {"name": "room-1"}, "target": {"name": "n1"}}),
    "add a container": merge(f"{ROOM}/pods/room-1/ephemeralcontainers", spec={"ephemeralContainers": DEBUGGER}),
    "resize it": merge(f"{ROOM}/pods/room-1/resize", spec={}),
    "change its status": merge(f"{ROOM}/pods/room-1/status", status={"phase": "Failed"}),
    "run a command": Try("POST", f"{ROOM}/pods/room-1/exec?command=id"),
    "delete all": Try("DELETE", f"{ROOM}/pods"),
    "raise the quota": merge(f"{ROOM}/resourcequotas/spot-rescheduler-room", spec={"hard": {"pods": "5000"}}),
    "change the PriorityClass": merge("/apis/scheduling.k8s.io/v1/priorityclasses/spot-rescheduler-room", value=9),
    "change the namespace": merge(ROOM, metadata={"labels": {"pod-security.kubernetes.io/enforce": "privileged"}}),
}
