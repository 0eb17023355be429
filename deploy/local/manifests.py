"""Builders of the manifests that tests and the demo apply: plain dicts, small, every field open to change.

`**spec` of the workload builders is whatever else belongs into the PodSpec, under the API's own names:
`deployment("web", 3, nodeSelector={…}, tolerations=[…])`. Quantities are Kubernetes' strings.
"""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from deploy.local.components import KWOK_NODE

Json = dict[str, Any]

ON_DEMAND = "node-role.kubernetes.io/worker"  #: the daemon's default label of on-demand nodes
SPOT = "node-role.kubernetes.io/spot-worker"  #: the daemon's default label of spot nodes
ZONES = ("zone-a", "zone-b", "zone-c")
IMAGE = "pause:3.10"


def node(
    name: str,
    *,
    labels: Mapping[str, str] | None = None,
    annotations: Mapping[str, str] | None = None,
    taints: Sequence[Mapping[str, str]] = (),
    allocatable: Mapping[str, str] | None = None,
    images: Iterable[str] = (),
    ready: bool = True,
    **spec: Any,
) -> Json:
    """A Node that kwok keeps Ready.

    *allocatable* adds to or overrides 4 CPUs, 16Gi and 110 pods. *images* are names the node has pulled, 100 MB
    each. One that is not *ready* is left alone by kwok and stays NotReady. *spec* takes providerID,
    unschedulable and the like.
    """
    resources = {"cpu": "4", "memory": "16Gi", "pods": "110", **(allocatable or {})}
    status: Json = {
        "allocatable": resources,
        "capacity": resources,
        "images": [{"names": [image], "sizeBytes": 100_000_000} for image in images],
    }
    if not ready:
        status["conditions"] = [{"type": "Ready", "status": "False", "reason": "KubeletNotReady"}]
    return {
        "apiVersion": "v1",
        "kind": "Node",
        "metadata": {
            "name": name,
            "labels": {"kubernetes.io/hostname": name, "kubernetes.io/os": "linux", **(labels or {})},
            "annotations": {**({KWOK_NODE: "fake"} if ready else {}), **(annotations or {})},
        },
        "spec": {"taints": list(taints), **spec},
        "status": status,
    }


def on_demand(name: str, *, labels: Mapping[str, str] | None = None, **rest: Any) -> Json:
    """A node with the daemon's default label of on-demand nodes; *rest* as for `node`."""
    return node(name, labels={ON_DEMAND: "true", **(labels or {})}, **rest)


def spot(name: str, *, labels: Mapping[str, str] | None = None, **rest: Any) -> Json:
    """A node with the daemon's default label of spot nodes; *rest* as for `node`."""
    return node(name, labels={SPOT: "true", **(labels or {})}, **rest)


def mixed_nodes(on_demand_nodes: int, spot_nodes: int, **rest: Any) -> list[Json]:
    """on-demand-1 …, spot-1 …, spread over three zones; *rest* as for `node`, the same for all."""

    def zone(number: int) -> dict[str, str]:
        return {"topology.kubernetes.io/zone": ZONES[number % len(ZONES)]}

    return [
        *(on_demand(f"on-demand-{n + 1}", labels=zone(n), **rest) for n in range(on_demand_nodes)),
        *(spot(f"spot-{n + 1}", labels=zone(n), **rest) for n in range(spot_nodes)),
    ]


def pod(
    name: str,
    *,
    namespace: str = "default",
    labels: Mapping[str, str] | None = None,
    annotations: Mapping[str, str] | None = None,
    cpu: str = "100m",
    memory: str = "64Mi",
    mirror: bool = False,
    **spec: Any,
) -> Json:
    """A bare pod, which no controller makes again; *mirror* marks it as a static pod's mirror.

    `nodeName="n1"` binds it at once; a mirror pod needs that.
    """
    template = _template({"app": name, **(labels or {})}, annotations, cpu, memory, spec)
    if mirror:
        template["metadata"]["annotations"]["kubernetes.io/config.mirror"] = "static"
    template["metadata"].update(name=name, namespace=namespace)
    return {"apiVersion": "v1", "kind": "Pod", **template}


def deployment(name: str, replicas: int = 1, **rest: Any) -> Json:
    """A Deployment with pods labelled `app: NAME`; *rest* as for `pod`."""
    return _workload("apps/v1", "Deployment", name, {"replicas": replicas}, rest)


def statefulset(name: str, replicas: int = 1, **rest: Any) -> Json:
    """A StatefulSet that starts its pods in parallel; *rest* as for `pod`."""
    own = {"replicas": replicas, "serviceName": name, "podManagementPolicy": "Parallel"}
    return _workload("apps/v1", "StatefulSet", name, own, rest)


def daemonset(name: str, **rest: Any) -> Json:
    """A DaemonSet; *rest* as for `pod`."""
    return _workload("apps/v1", "DaemonSet", name, {}, rest)


def job(name: str, completions: int = 1, **rest: Any) -> Json:
    """A Job, all pods at once. They succeed at once, too, unless `stages.COMPLETE_AFTER` says when.

    *rest* as for `pod`.
    """
    made = _workload("batch/v1", "Job", name, {"completions": completions, "parallelism": completions}, rest)
    del made["spec"]["selector"]  # the Job controller makes a Job's own
    made["spec"]["template"]["spec"].setdefault("restartPolicy", "Never")
    return made


def pdb(
    name: str,
    *,
    namespace: str = "default",
    app: str | None = None,
    min_available: int | str | None = None,
    max_unavailable: int | str | None = None,
) -> Json:
    """A PodDisruptionBudget over the pods labelled `app: APP` (default: its own name)."""
    spec: Json = {"selector": {"matchLabels": {"app": app or name}}}
    if min_available is not None:
        spec["minAvailable"] = min_available
    if max_unavailable is not None:
        spec["maxUnavailable"] = max_unavailable
    metadata = {"name": name, "namespace": namespace}
    return {"apiVersion": "policy/v1", "kind": "PodDisruptionBudget", "metadata": metadata, "spec": spec}


def namespace(name: str, *, labels: Mapping[str, str] | None = None) -> Json:
    return {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name, "labels": dict(labels or {})}}


def _workload(version: str, kind: str, name: str, own: Mapping[str, Any], rest: Mapping[str, Any]) -> Json:
    made = pod(name, **rest)
    metadata = {"name": made["metadata"].pop("name"), "namespace": made["metadata"].pop("namespace")}
    template = {"metadata": made["metadata"], "spec": made["spec"]}
    spec = {**own, "selector": {"matchLabels": {"app": name}}, "template": template}
    return {"apiVersion": version, "kind": kind, "metadata": metadata, "spec": spec}


def _template(
    labels: Mapping[str, str],
    annotations: Mapping[str, str] | None,
    cpu: str,
    memory: str,
    spec: Mapping[str, Any],
) -> Json:
    requests = {"cpu": cpu, "memory": memory}
    container = {"name": "main", "image": IMAGE, "resources": {"requests": requests}}
    return {
        "metadata": {"labels": dict(labels), "annotations": dict(annotations or {})},
        "spec": {"containers": [container], **spec},
    }
