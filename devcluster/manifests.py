"""Builders of the manifests that tests and the demo apply, as plain dicts.

`**spec` of the workload builders are further fields of the PodSpec under their API names:
`deployment("web", 3, nodeSelector={…}, tolerations=[…])`. Quantities are strings as in Kubernetes.
"""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from devcluster.components import KWOK_NODE

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
    """Return a Node that kwok keeps Ready.

    *allocatable* extends or overrides the defaults of 4 CPUs, 16Gi and 110 pods. *images* are the images on the node,
    100 MB each. If *ready* is false, kwok does not manage the node and it stays NotReady. *spec* are fields of the
    NodeSpec, such as providerID or unschedulable.
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


def custom_kind(
    kind: str, group: str, version: str = "v1", *, namespaced: bool = True, labels: Mapping[str, str] | None = None
) -> Json:
    """Return a CustomResourceDefinition of *kind*, with a status, that accepts every field."""
    plural = f"{kind.lower()}s"
    schema = {"type": "object", "x-kubernetes-preserve-unknown-fields": True}
    served = {"name": version, "served": True, "storage": True, "subresources": {"status": {}}}
    return {
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {"name": f"{plural}.{group}", "labels": dict(labels or {})},
        "spec": {
            "group": group,
            "scope": "Namespaced" if namespaced else "Cluster",
            "names": {"kind": kind, "plural": plural, "singular": kind.lower(), "listKind": f"{kind}List"},
            "versions": [{**served, "schema": {"openAPIV3Schema": schema}}],
        },
    }


def on_demand(name: str, *, labels: Mapping[str, str] | None = None, **fields: Any) -> Json:
    """Return a node with the daemon's default label of on-demand nodes; *fields* as for `node`."""
    return node(name, labels={ON_DEMAND: "true", **(labels or {})}, **fields)


def spot(name: str, *, labels: Mapping[str, str] | None = None, **fields: Any) -> Json:
    """Return a node with the daemon's default label of spot nodes; *fields* as for `node`."""
    return node(name, labels={SPOT: "true", **(labels or {})}, **fields)


def mixed_nodes(on_demand_nodes: int, spot_nodes: int, **fields: Any) -> list[Json]:
    """Return nodes on-demand-1 … and spot-1 …, spread over three zones; *fields* as for `node`."""

    def zone(number: int) -> dict[str, str]:
        return {"topology.kubernetes.io/zone": ZONES[number % len(ZONES)]}

    return [
        *(on_demand(f"on-demand-{n + 1}", labels=zone(n), **fields) for n in range(on_demand_nodes)),
        *(spot(f"spot-{n + 1}", labels=zone(n), **fields) for n in range(spot_nodes)),
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
    """Return a bare pod, which no controller would recreate; *mirror* marks it as the mirror of a static pod.

    `nodeName="n1"` binds the pod; a mirror pod requires it.
    """
    template = _template({"app": name, **(labels or {})}, annotations, cpu, memory, spec)
    if mirror:
        template["metadata"]["annotations"]["kubernetes.io/config.mirror"] = "static"
    template["metadata"].update(name=name, namespace=namespace)
    return {"apiVersion": "v1", "kind": "Pod", **template}


def deployment(name: str, replicas: int = 1, **fields: Any) -> Json:
    """Return a Deployment with pods labeled `app: NAME`; *fields* as for `pod`."""
    return _workload("apps/v1", "Deployment", name, {"replicas": replicas}, fields)


def statefulset(name: str, replicas: int = 1, **fields: Any) -> Json:
    """Return a StatefulSet that starts its pods in parallel; *fields* as for `pod`."""
    own = {"replicas": replicas, "serviceName": name, "podManagementPolicy": "Parallel"}
    return _workload("apps/v1", "StatefulSet", name, own, fields)


def daemonset(name: str, **fields: Any) -> Json:
    """Return a DaemonSet; *fields* as for `pod`."""
    return _workload("apps/v1", "DaemonSet", name, {}, fields)


def job(name: str, completions: int = 1, **fields: Any) -> Json:
    """Return a Job that runs all pods in parallel; *fields* as for `pod`.

    The pods succeed immediately unless they have the annotation `stages.COMPLETE_AFTER`.
    """
    workload = _workload("batch/v1", "Job", name, {"completions": completions, "parallelism": completions}, fields)
    del workload["spec"]["selector"]  # the Job controller generates the selector
    workload["spec"]["template"]["spec"].setdefault("restartPolicy", "Never")
    return workload


def pdb(
    name: str,
    *,
    namespace: str = "default",
    app: str | None = None,
    min_available: int | str | None = None,
    max_unavailable: int | str | None = None,
) -> Json:
    """Return a PodDisruptionBudget for the pods labeled `app: APP` (default: *name*)."""
    spec: Json = {"selector": {"matchLabels": {"app": app or name}}}
    if min_available is not None:
        spec["minAvailable"] = min_available
    if max_unavailable is not None:
        spec["maxUnavailable"] = max_unavailable
    metadata = {"name": name, "namespace": namespace}
    return {"apiVersion": "policy/v1", "kind": "PodDisruptionBudget", "metadata": metadata, "spec": spec}


def namespace(name: str, *, labels: Mapping[str, str] | None = None) -> Json:
    return {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name, "labels": dict(labels or {})}}


def _workload(version: str, kind: str, name: str, own: Mapping[str, Any], fields: Mapping[str, Any]) -> Json:
    workload = pod(name, **fields)
    metadata = {"name": workload["metadata"].pop("name"), "namespace": workload["metadata"].pop("namespace")}
    template = {"metadata": workload["metadata"], "spec": workload["spec"]}
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
