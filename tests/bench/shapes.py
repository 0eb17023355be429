"""Objects with the noise that real ones carry, and a fast way to write many pods that are nearly alike."""

import hashlib
import json
import re
from dataclasses import dataclass
from typing import Any, Final, TypeAlias

Json: TypeAlias = dict[str, Any]

ZONES: Final = ("eu-1a", "eu-1b", "eu-1c")
ZONE: Final = "topology.kubernetes.io/zone"
HOSTNAME: Final = "kubernetes.io/hostname"
NAMESPACES: Final = ("kube-system", *(f"team-{i}" for i in range(40)))
DAEMONS: Final = ("kube-proxy", "node-exporter")
BATCH: Final = {"key": "dedicated", "value": "batch", "effect": "NoSchedule"}
_LETTERS: Final = "bcdfghjklmnpqrstvwxz2456789"
_SINCE: Final = "2024-03-01T09:00:00Z"


@dataclass(frozen=True, slots=True)
class App:
    """A Deployment's current ReplicaSet. ``kind`` is "", "apart", "spread" or "together"; cpu in m, memory in Mi."""

    name: str
    namespace: str
    kind: str
    replicas: int
    tolerant: bool
    cpu: int
    memory: int

    @property
    def hash(self) -> str:
        return hashlib.sha256(self.name.encode()).hexdigest()[:10]

    @property
    def labels(self) -> Json:
        return {"app.kubernetes.io/name": self.name, "app.kubernetes.io/managed-by": "Helm"}


def suffix(number: int) -> str:
    """Five letters as the API server gives to generated names."""
    letters = ""
    for _ in range(5):
        number, letter = divmod(number, len(_LETTERS))
        letters += _LETTERS[letter]
    return letters


def uid(of: str) -> str:
    text = hashlib.sha256(of.encode()).hexdigest()
    return f"{text[:8]}-{text[8:12]}-{text[12:16]}-{text[16:20]}-{text[20:32]}"


def node(name: str, zone: str, *, spot: bool, tainted: bool, number: int) -> Json:
    address = f"10.{number >> 16 & 255}.{number >> 8 & 255}.{number & 255}"
    return {
        "apiVersion": "v1",
        "kind": "Node",
        "metadata": {
            "annotations": {
                "csi.volume.kubernetes.io/nodeid": f'{{"ebs.csi.aws.com":"i-{number:017x}"}}',
                "node.alpha.kubernetes.io/ttl": "300",
                "volumes.kubernetes.io/controller-managed-attach-detach": "true",
            },
            "creationTimestamp": _SINCE,
            "labels": _node_labels(name, zone, spot=spot),
            "name": name,
            "resourceVersion": str(10_000_000 + number),
            "uid": uid(name),
        },
        "spec": {
            "podCIDR": f"{address}/24",
            "podCIDRs": [f"{address}/24"],
            "providerID": f"aws:///{zone}/i-{number:017x}",
            **({"taints": [BATCH]} if tainted else {}),
        },
        "status": _node_status(name, address, number),
    }


def _node_labels(name: str, zone: str, *, spot: bool) -> Json:
    role = "node-role.kubernetes.io/spot-worker" if spot else "node-role.kubernetes.io/worker"
    return {
        "beta.kubernetes.io/arch": "amd64",
        "beta.kubernetes.io/os": "linux",
        "kubernetes.io/arch": "amd64",
        HOSTNAME: name,
        "kubernetes.io/os": "linux",
        "node.kubernetes.io/instance-type": "m5.4xlarge",
        role: "true",
        "topology.kubernetes.io/region": "eu-1",
        ZONE: zone,
    }


def _node_status(name: str, address: str, number: int) -> Json:
    amounts = {"cpu": "16", "ephemeral-storage": "104845292Ki", "hugepages-1Gi": "0", "hugepages-2Mi": "0"}
    return {
        "addresses": [{"address": address, "type": "InternalIP"}, {"address": name, "type": "Hostname"}],
        "allocatable": {**amounts, "cpu": "15890m", "memory": "60922Mi", "pods": "110"},
        "capacity": {**amounts, "memory": "64458Mi", "pods": "110"},
        "conditions": [
            condition("MemoryPressure", "False", "KubeletHasSufficientMemory"),
            condition("DiskPressure", "False", "KubeletHasNoDiskPressure"),
            condition("PIDPressure", "False", "KubeletHasSufficientPID"),
            condition("Ready", "True", "KubeletReady"),
        ],
        "daemonEndpoints": {"kubeletEndpoint": {"Port": 10250}},
        "images": [
            {"names": [f"registry.example.com/image-{i}:v{number % 7}"], "sizeBytes": 50_000_000 + i} for i in range(10)
        ],
        "nodeInfo": {
            "architecture": "amd64",
            "bootID": uid(f"boot {name}"),
            "containerRuntimeVersion": "containerd://2.1.1",
            "kernelVersion": "6.1.0-21-cloud-amd64",
            "kubeletVersion": "v1.36.3",
            "machineID": uid(f"machine {name}").replace("-", ""),
            "operatingSystem": "linux",
            "osImage": "Debian GNU/Linux 12 (bookworm)",
            "systemUUID": uid(f"system {name}"),
        },
    }


def condition(kind: str, status: str, reason: str = "") -> Json:
    found: Json = {"lastProbeTime": None, "lastTransitionTime": _SINCE, "status": status, "type": kind}
    return {**found, "reason": reason, "message": f"{reason}: nothing else to say"} if reason else found


def namespace(name: str) -> Json:
    return {
        "apiVersion": "v1",
        "kind": "Namespace",
        "metadata": {"creationTimestamp": _SINCE, "labels": {"kubernetes.io/metadata.name": name}, "name": name},
        "spec": {"finalizers": ["kubernetes"]},
        "status": {"phase": "Active"},
    }


def _meta(app: App, name: str) -> Json:
    return {
        "creationTimestamp": _SINCE,
        "labels": app.labels,
        "name": name,
        "namespace": app.namespace,
        "resourceVersion": "20000000",
        "uid": uid(f"{app.namespace}/{name}"),
    }


def replica_set(app: App) -> Json:
    name = f"{app.name}-{app.hash}"
    return {
        "apiVersion": "apps/v1",
        "kind": "ReplicaSet",
        "metadata": _meta(app, name),
        "spec": {"replicas": app.replicas, "selector": {"matchLabels": app.labels}},
        "status": {"availableReplicas": app.replicas, "readyReplicas": app.replicas, "replicas": app.replicas},
    }


def budget(app: App) -> Json:
    return {
        "apiVersion": "policy/v1",
        "kind": "PodDisruptionBudget",
        "metadata": _meta(app, app.name),
        "spec": {"maxUnavailable": "50%", "selector": {"matchLabels": app.labels}},
        "status": {
            "currentHealthy": app.replicas,
            "desiredHealthy": app.replicas - app.replicas // 2,
            "disruptionsAllowed": app.replicas // 2,
            "expectedPods": app.replicas,
        },
    }


def pod(app: App) -> Json:
    """The model of an app's pods; ``@name@``, ``@node@`` … are filled in by :class:`PodText`."""
    owner = {"apiVersion": "apps/v1", "kind": "ReplicaSet", "name": f"{app.name}-{app.hash}"}
    spec: Json = _constraints(app)
    tolerations = [
        {"effect": "NoExecute", "key": f"node.kubernetes.io/{cause}", "operator": "Exists", "tolerationSeconds": 300}
        for cause in ("not-ready", "unreachable")
    ]
    if app.tolerant:
        tolerations.insert(0, {**BATCH, "operator": "Equal"})
    requests = {"cpu": f"{app.cpu}m", "memory": f"{app.memory}Mi"}
    limits = {"memory": f"{app.memory * 2}Mi"}
    labels = {**app.labels, "pod-template-hash": app.hash}
    return _pod(labels, owner, {**spec, "tolerations": tolerations}, {"limits": limits, "requests": requests})


def _constraints(app: App) -> Json:
    selector = {"matchLabels": {"app.kubernetes.io/name": app.name}}

    def required(key: str) -> Json:
        return {"requiredDuringSchedulingIgnoredDuringExecution": [{"labelSelector": selector, "topologyKey": key}]}

    if app.kind == "apart":
        return {"affinity": {"podAntiAffinity": required(HOSTNAME)}}
    if app.kind == "together":
        return {"affinity": {"podAffinity": required(ZONE)}}
    if app.kind == "spread":
        constraint = {"maxSkew": 1, "topologyKey": ZONE, "whenUnsatisfiable": "DoNotSchedule"}
        return {"topologySpreadConstraints": [{**constraint, "labelSelector": selector}]}
    return {}


def daemon_pod(name: str) -> Json:
    owner = {"apiVersion": "apps/v1", "kind": "DaemonSet", "name": name}
    fields = [{"key": "metadata.name", "operator": "In", "values": ["@node@"]}]
    terms = {"nodeSelectorTerms": [{"matchFields": fields}]}
    affinity = {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": terms}}
    spec = {"affinity": affinity, "hostNetwork": True, "tolerations": [{"operator": "Exists"}]}
    resources = {"requests": {"cpu": "50m", "memory": "64Mi"}}
    return _pod({"k8s-app": name, "controller-revision-hash": "6d8f9c7b5"}, owner, spec, resources)


def _pod(labels: Json, owner: Json, spec: Json, resources: Json) -> Json:
    owner = {**owner, "blockOwnerDeletion": True, "controller": True, "uid": uid(owner["name"])}
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {
            "annotations": {"checksum/config": hashlib.sha256(owner["name"].encode()).hexdigest()},
            "creationTimestamp": _SINCE,
            "generateName": f"{owner['name']}-",
            "generation": 1,
            "labels": labels,
            "name": "@name@",
            "namespace": "@namespace@",
            "ownerReferences": [owner],
            "resourceVersion": "@version@",
            "uid": "@uid@",
        },
        "spec": {
            "containers": [_container(resources)],
            "dnsPolicy": "ClusterFirst",
            "enableServiceLinks": True,
            "nodeName": "@node@",
            "preemptionPolicy": "PreemptLowerPriority",
            "priority": 0,
            "restartPolicy": "Always",
            "schedulerName": "default-scheduler",
            "securityContext": {"runAsNonRoot": True, "seccompProfile": {"type": "RuntimeDefault"}},
            "serviceAccount": "default",
            "serviceAccountName": "default",
            "terminationGracePeriodSeconds": 30,
            "volumes": [_config_volume(owner["name"]), _token_volume()],
            **spec,
        },
        "status": _pod_status(resources),
    }


def _pod_status(resources: Json) -> Json:
    return {
        "conditions": [
            {**condition("", "True"), "type": kind}
            for kind in ("PodReadyToStartContainers", "Initialized", "Ready", "ContainersReady", "PodScheduled")
        ],
        "containerStatuses": [
            {
                "allocatedResources": resources["requests"],
                "containerID": "containerd://@container@",
                "image": "registry.example.com/app:v1.2.3",
                "imageID": f"registry.example.com/app@sha256:{hashlib.sha256(b'app').hexdigest()}",
                "lastState": {},
                "name": "app",
                "ready": True,
                "resources": resources,
                "restartCount": 0,
                "started": True,
                "state": {"running": {"startedAt": _SINCE}},
            }
        ],
        "hostIP": "@ip@",
        "hostIPs": [{"ip": "@ip@"}],
        "phase": "Running",
        "podIP": "@ip@",
        "podIPs": [{"ip": "@ip@"}],
        "qosClass": "Burstable",
        "startTime": _SINCE,
    }


def _container(resources: Json) -> Json:
    probe = {"failureThreshold": 3, "periodSeconds": 10, "successThreshold": 1, "timeoutSeconds": 1}
    return {
        "env": [
            {"name": "LOG_LEVEL", "value": "info"},
            {"name": "POD_NAME", "valueFrom": {"fieldRef": {"apiVersion": "v1", "fieldPath": "metadata.name"}}},
            *({"name": f"FEATURE_{i}", "value": "enabled"} for i in range(6)),
        ],
        "image": "registry.example.com/app:v1.2.3",
        "imagePullPolicy": "IfNotPresent",
        "livenessProbe": {"httpGet": {"path": "/healthz", "port": 8080, "scheme": "HTTP"}, **probe},
        "name": "app",
        "ports": [{"containerPort": 8080, "name": "http", "protocol": "TCP"}],
        "readinessProbe": {"httpGet": {"path": "/readyz", "port": 8080, "scheme": "HTTP"}, **probe},
        "resources": resources,
        "securityContext": {"allowPrivilegeEscalation": False, "capabilities": {"drop": ["ALL"]}},
        "terminationMessagePath": "/dev/termination-log",
        "terminationMessagePolicy": "File",
        "volumeMounts": [
            {"mountPath": "/etc/app", "name": "config"},
            {
                "mountPath": "/var/run/secrets/kubernetes.io/serviceaccount",
                "name": "kube-api-access-@suffix@",
                "readOnly": True,
            },
        ],
    }


def _config_volume(owner: str) -> Json:
    return {"configMap": {"defaultMode": 420, "name": owner}, "name": "config"}


def _token_volume() -> Json:
    authority = [{"key": "ca.crt", "path": "ca.crt"}]
    space = [{"fieldRef": {"apiVersion": "v1", "fieldPath": "metadata.namespace"}, "path": "namespace"}]
    sources = [
        {"serviceAccountToken": {"expirationSeconds": 3607, "path": "token"}},
        {"configMap": {"items": authority, "name": "kube-root-ca.crt"}},
        {"downwardAPI": {"items": space}},
    ]
    return {"name": "kube-api-access-@suffix@", "projected": {"defaultMode": 420, "sources": sources}}


class PodText:
    """A model as JSON text, cut at its blanks: filling them in is a join, not another encoding."""

    def __init__(self, model: Json) -> None:
        self._parts = re.split("@([a-z]+)@", json.dumps(model, separators=(",", ":")))

    def fill(self, name: str, node: str, number: int, namespace: str) -> str:
        ip = f"100.{number >> 16 & 127}.{number >> 8 & 255}.{number & 255}"
        blanks = {
            "name": name,
            "node": node,
            "namespace": namespace,
            "suffix": suffix(number),
            "uid": uid(f"{namespace}/{name}"),
            "container": f"{number:064x}",
            "version": str(30_000_000 + number % 10_000_000),
            "ip": ip,
        }
        parts = list(self._parts)
        parts[1::2] = [blanks[blank] for blank in parts[1::2]]
        return "".join(parts)
