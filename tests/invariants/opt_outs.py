"""Reasons in a pod why it must not be evicted, implemented from the documentation and not from the daemon's code."""

import re
from datetime import datetime, timedelta
from itertools import chain
from typing import Final

from tests.invariants.objects import SeenPod, SeenWorkload
from tests.invariants.replay import Replay
from tests.invariants.rules import Rules

SAFE_TO_EVICT: Final = "cluster-autoscaler.kubernetes.io/safe-to-evict"
SAFE_LOCAL_VOLUMES: Final = "cluster-autoscaler.kubernetes.io/safe-to-evict-local-volumes"
DO_NOT_DISRUPT: Final = "karpenter.sh/do-not-disrupt"

#: Annotations and labels that forbid an eviction if their value is "true".
FORBIDDING_ANNOTATIONS: Final = (
    "spot-rescheduler/do-not-evict",
    "descheduler.alpha.kubernetes.io/prefer-no-eviction",
    "autoscaling.cast.ai/removal-disabled",
)
FORBIDDING_LABELS: Final = ("spotinst.io/restrict-scale-down", "autoscaling.cast.ai/removal-disabled")

_LONGEST: Final = 64  #: a longer value is no duration
_GO_PART: Final = re.compile(r"(\d+(?:\.\d+)?)(ms|h|m|s)")
_UNITS: Final = {"h": 3600.0, "m": 60.0, "s": 1.0, "ms": 0.001}


def forbidden(pod: SeenPod, at: datetime, now: Replay, rules: Rules) -> str:
    """Return why *pod* must not be evicted at *at*, or ""."""
    annotations = pod.metadata.annotations
    if pod.of_the_node:
        return "it belongs to its node (mirror pod or DaemonSet)"
    if annotations.get(SAFE_TO_EVICT) in ("false", "on-completion"):
        return f"it has {SAFE_TO_EVICT}: {annotations[SAFE_TO_EVICT]}"
    if opt_out := _opted_out(pod, at):
        return f"it has {opt_out}: {annotations.get(opt_out, 'true')}"
    if rules.scheduler_names and pod.spec.scheduler_name not in rules.scheduler_names:
        return f"it has the scheduler {pod.spec.scheduler_name}"
    if job := _fails_job(pod, now):
        return job
    return "" if annotations.get(SAFE_TO_EVICT) == "true" else _unguarded(pod, now, rules)


def _unguarded(pod: SeenPod, now: Replay, rules: Rules) -> str:
    """Return a blocker that `safe-to-evict: "true"` would override, or ""."""
    if pod.controller is None and not rules.delete_non_replicated_pods:
        return "it has no controller"
    budgets = any(budget.covers(pod) for budget in now.budgets.values())
    if pod.metadata.namespace == "kube-system" and rules.skip_system_pods and not budgets:
        return "it is in kube-system without a budget"
    allowed = pod.metadata.annotations.get(SAFE_LOCAL_VOLUMES, "").split(",")
    local = [volume.name for volume in pod.spec.volumes if _is_local(volume) and volume.name not in allowed]
    return f"its local volume {local[0]} would be lost" if local and rules.skip_local_storage else ""


def _opted_out(pod: SeenPod, at: datetime) -> str:
    """Return the annotation or label that forbids the eviction, or ""."""
    if _is_protected(pod, at):
        return DO_NOT_DISRUPT
    annotated = (key for key in FORBIDDING_ANNOTATIONS if pod.metadata.annotations.get(key) == "true")
    labeled = (key for key in FORBIDDING_LABELS if pod.metadata.labels.get(key) == "true")
    return next(chain(annotated, labeled), "")


def _is_local(volume: object) -> bool:
    path, directory = getattr(volume, "host_path", None), getattr(volume, "empty_dir", None)
    return path is not None or (directory is not None and directory.medium != "Memory")


def _is_protected(pod: SeenPod, at: datetime) -> bool:
    value = pod.metadata.annotations.get(DO_NOT_DISRUPT)
    if value is None or value == "true":
        return value == "true"
    if len(value) > _LONGEST:
        return False
    parts, created = _GO_PART.findall(value), pod.metadata.creation_timestamp
    if created is None or "".join(number + unit for number, unit in parts) != value:
        return False
    return at < created + timedelta(seconds=sum(float(number) * _UNITS[unit] for number, unit in parts))


def _fails_job(pod: SeenPod, now: Replay) -> str:
    """Return a reason if the eviction would fail the pod's Job; a pod failure policy may ignore evictions."""
    owner = pod.controller
    job: SeenWorkload | None = now.workloads.get(owner.uid) if owner is not None and owner.kind == "Job" else None
    if job is None or job.spec.pod_failure_policy is not None or job.spec.backoff_limit_per_index is not None:
        return ""
    limit = 6 if job.spec.backoff_limit is None else job.spec.backoff_limit
    return (
        f"its Job fails with it (backoffLimit {limit}, {job.status.failed} failures)"
        if (job.status.failed >= limit)
        else ""
    )
