"""Builders of small clusters, as snapshots."""

import datetime as dt
from collections.abc import Iterable
from typing import Any, Final

import msgspec

from predicates.snapshot import Snapshot
from predicates.wire import Decoder, Interner
from rescheduler.planning.outcome import Plan, Planning, Rejected
from rescheduler.planning.policy import Circumstances, Policy

NOW = dt.datetime(2026, 1, 1, 12, tzinfo=dt.UTC)
CIRCUMSTANCES = Circumstances(NOW)

ON_DEMAND = "node-role.kubernetes.io/worker"
SPOT = "node-role.kubernetes.io/spot-worker"
HOST = "kubernetes.io/hostname"
ZONE = "topology.kubernetes.io/zone"

Manifest = dict[str, Any]


def node(name: str, role: str = SPOT, *, cpu: str = "4", zone: str = "a", pods: int = 110, **fields: Any) -> Manifest:
    """Return a Ready node.

    *fields* accepts ``labels``, ``annotations``, ``created``, ``taints``, ``unschedulable``, ``ready`` and additional
    ``conditions``.
    """
    labels = {role: "", HOST: name, ZONE: zone} | fields.get("labels", {})
    meta = {"name": name, "uid": f"uid-{name}", "labels": labels, "annotations": fields.get("annotations", {})}
    if created := fields.get("created"):
        meta["creationTimestamp"] = created
    return {
        "apiVersion": "v1",
        "kind": "Node",
        "metadata": meta,
        "spec": {"taints": fields.get("taints", []), "unschedulable": fields.get("unschedulable", False)},
        "status": {
            "allocatable": {"cpu": cpu, "memory": "16Gi", "pods": str(pods)},
            "conditions": [{"type": "Ready", "status": fields.get("ready", "True")}, *fields.get("conditions", [])],
        },
    }


def pod(name: str, on: str = "", *, cpu: str = "1", owner: str | None = "ReplicaSet", **fields: Any) -> Manifest:
    """Return a running pod with a controller, in the namespace ``default`` unless the name contains another.

    *fields* accepts ``labels``, ``annotations``, ``status``, ``created``, ``generation``, ``deleted`` (the
    deletionTimestamp; True means that half a minute is left), ``assigned`` (a client set its node) and any field of the
    spec. *owner* is a kind, or ``apiVersion/kind``.
    """
    namespace, _, short = name.rpartition("/")
    meta: Manifest = {
        "name": short,
        "namespace": namespace or "default",
        "uid": f"uid-{short}",
        "labels": fields.pop("labels", {"app": short.split("-")[0]}),
        "annotations": fields.pop("annotations", {}),
    }
    if owner:
        version, _, kind = owner.rpartition("/")
        app = short.split("-")[0]
        reference = {"kind": kind, "name": app, "uid": f"uid-of-{app}", "controller": True}
        meta["ownerReferences"] = [reference | ({"apiVersion": version} if version else {})]
    if fields.pop("assigned", False):
        meta["managedFields"] = [{"manager": "operator", "fieldsV1": {"f:spec": {"f:nodeName": {}}}}]
    if created := fields.pop("created", None):
        meta["creationTimestamp"] = created
    if generation := fields.pop("generation", None):
        meta["generation"] = generation
    if deleted := fields.pop("deleted", None):
        meta["deletionTimestamp"] = "2026-01-01T12:00:30Z" if deleted is True else deleted
    status = {"phase": "Running" if on else "Pending", "conditions": [{"type": "Ready", "status": "True"}]}
    status |= fields.pop("status", {})
    containers = [{"name": "main", "image": "app:1", "resources": {"requests": {"cpu": cpu}}}]
    spec = {"nodeName": on, "containers": containers} | fields
    return {"apiVersion": "v1", "kind": "Pod", "metadata": meta, "spec": spec, "status": status}


#: The pod of a DaemonSet in kube-system, without which a file looks incomplete. Its node is in no file.
SYSTEM_POD: Final = pod("kube-system/proxy-0", "unlisted", owner="DaemonSet")


def budget(name: str, app: str, *, allowed: int, **fields: Any) -> Manifest:
    """Return a PodDisruptionBudget.

    *fields* accepts ``healthy``, ``desired``, ``expected``, ``policy`` (for unhealthy pods), ``selector`` (default: by
    *app*), ``conditions``, ``meta`` and fields of the spec.
    """
    spec: Manifest = {"selector": fields.get("selector", {"matchLabels": {"app": app}})}
    spec |= {name: fields[name] for name in ("minAvailable", "maxUnavailable") if name in fields}
    if "policy" in fields:
        spec["unhealthyPodEvictionPolicy"] = fields["policy"]
    status = {
        "disruptionsAllowed": allowed,
        "currentHealthy": fields.get("healthy", 1),
        "desiredHealthy": fields.get("desired", 1),
        "expectedPods": fields.get("expected", 0),
        "conditions": fields.get("conditions", []),
    }
    meta = fields.get("meta", {}) | {"name": name, "namespace": fields.get("namespace", "default")}
    return {"apiVersion": "policy/v1", "kind": "PodDisruptionBudget", "metadata": meta, "spec": spec, "status": status}


def repels(app: str, key: str = HOST) -> Manifest:
    """Return anti-affinity to pods of *app*."""
    term = {"topologyKey": key, "labelSelector": {"matchLabels": {"app": app}}}
    return {"podAntiAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [term]}}


def seeks(app: str, key: str = HOST) -> Manifest:
    """Return affinity to pods of *app*."""
    term = {"topologyKey": key, "labelSelector": {"matchLabels": {"app": app}}}
    return {"podAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [term]}}


def snapshot(objects: Iterable[Manifest]) -> Snapshot:
    result, decoder = Snapshot(), Decoder(Interner())
    for manifest in objects:
        result.upsert(manifest["kind"], decoder.decode(manifest["kind"], msgspec.json.encode(manifest)))
    return result


def summary(planning: Planning) -> dict[str, Any]:
    """Return the placements by node for plans, and the reasons by node for rejections."""
    return {verdict.node: short(verdict) for verdict in planning.verdicts}


def short(verdict: Plan | Rejected) -> Any:
    if isinstance(verdict, Plan):
        return {placement.pod.name: placement.node for placement in verdict.placements}
    return [str(blocker.reason) for blocker in verdict.blockers]


def policy(**fields: Any) -> Policy:
    return Policy(**fields)
