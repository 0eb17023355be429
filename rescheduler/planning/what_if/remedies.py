"""How to try a lever, and how to make its change in the cluster: the texts of ``--what-if``, and patches. Pure."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, Final

import msgspec

from predicates.objects import NodeSelector, Pod, PodDisruptionBudget, Toleration
from predicates.snapshot import Snapshot
from rescheduler.planning.budgets import Budgets, sync_failure
from rescheduler.planning.controllers import controller_of
from rescheduler.planning.outcome import Reason
from rescheduler.planning.policy import Policy
from rescheduler.planning.rules.lifts import GRACE
from rescheduler.planning.what_if.lifting import OF_PODS, Obstacle, lifted
from rescheduler.planning.what_if.unpinning import Unpinning

#: Kinds whose pods come from ``spec.template``, which can be edited.
_TEMPLATED: Final = frozenset(
    {"Deployment", "StatefulSet", "ReplicaSet", "DaemonSet", "ReplicationController", "Rollout", "CloneSet"}
)

#: Tolerations that admission adds to every pod.
_ADDED: Final = ("node.kubernetes.io/not-ready", "node.kubernetes.io/unreachable")

_REQUIRED: Final = "requiredDuringSchedulingIgnoredDuringExecution"


def change_for(obstacle: Obstacle, snapshot: Snapshot, needed: int = 1) -> str:
    """Return the text of ``--what-if`` that removes *obstacle*.

    *needed* is the number of evictions that a PodDisruptionBudget would have to allow.
    """
    owner = obstacle.controller
    if owner.kind == "PodDisruptionBudget":
        return _budget_change(f"{owner.namespace}/{owner.name}", snapshot, needed)
    if owner.kind == "Node" and not owner.namespace:
        return f"allow node/{owner.name} {obstacle.reason}"
    if obstacle.reason is Reason.PINNED:
        return f"unpin {owner.path}"
    return f"allow {owner.path} {obstacle.reason}"


def _budget_change(key: str, snapshot: Snapshot, needed: int) -> str:
    budget = snapshot.of("PodDisruptionBudget")[key]
    assert isinstance(budget, PodDisruptionBudget)
    healthy, expected = budget.status.current_healthy, budget.status.expected_pods
    if not expected:
        budgets = Budgets(snapshot)
        expected = sum(key in budgets.of(pod) for pod in snapshot.pods.values())
    if sync_failure(budget) is not None:  # maxUnavailable and percentages cannot be computed
        return f"budget {key} minAvailable={max(healthy - needed, 0)}"
    return f"budget {key} maxUnavailable={max(needed + expected - healthy, needed)}"


def patches_for(
    obstacle: Obstacle, change: str, snapshot: Snapshot, policy: Policy, unpinning: Unpinning
) -> Iterator[tuple[Sequence[str], Mapping[str, Any]]]:
    """Yield what ``kubectl patch`` gets to remove *obstacle* in the cluster: its arguments, and the merge patch.

    *change* is the text of :func:`change_for`. Pods whose controllers have no template that can be edited are patched
    themselves. A change that a running pod cannot get yields nothing.
    """
    owner = obstacle.controller
    if owner.kind == "PodDisruptionBudget":
        field, _, value = change.rpartition(" ")[2].partition("=")
        other = "minAvailable" if field == "maxUnavailable" else "maxUnavailable"
        yield ("-n", owner.namespace, "poddisruptionbudget", owner.name), {"spec": {field: int(value), other: None}}
    elif owner.kind == "Node" and not owner.namespace:
        keys = [key.strip(",") for key in obstacle.description.split() if "/" in key]
        yield ("node", owner.name), {"metadata": {"annotations": dict.fromkeys(keys), "labels": dict.fromkeys(keys)}}
    else:
        yield from _of_workload(obstacle, _pods_of(obstacle, snapshot), policy, unpinning)


def _pods_of(obstacle: Obstacle, snapshot: Snapshot) -> list[Pod]:
    return [pod for _, pod in sorted(snapshot.pods.items()) if controller_of(pod) == obstacle.controller]


def _of_workload(
    obstacle: Obstacle, pods: Sequence[Pod], policy: Policy, unpinning: Unpinning
) -> Iterator[tuple[Sequence[str], Mapping[str, Any]]]:
    owner = obstacle.controller
    edits = [(pod, edit) for pod in pods if (edit := _edit(pod, obstacle.reason, policy, unpinning))]
    if owner.kind in _TEMPLATED:
        for _, edit in edits[:1]:
            yield ("-n", owner.namespace, owner.kind.lower(), owner.name), {"spec": {"template": edit}}
        return
    for pod, edit in edits:
        if "metadata" in edit:
            yield ("-n", pod.namespace, "pod", pod.name), {"metadata": edit["metadata"]}


def _edit(pod: Pod, reason: Reason, policy: Policy, unpinning: Unpinning) -> dict[str, Any]:
    """Return the difference between *pod* and the pod without the obstacle, as a merge patch of its template."""
    if reason is Reason.PINNED:
        unpinned = unpinning.of(pod.cls)
        return {"spec": _spec_edit(pod, unpinned.cls.spec)} if unpinned is not None else {}
    if reason not in OF_PODS or reason is Reason.SPOT_POOL_SHARE:  # the lever shows constraints to add, not a limit
        return {}
    after = lifted(pod, reason, policy)
    metadata = {
        name: edit
        for name, edit in (
            ("annotations", _changed(pod.annotations, after.annotations)),
            ("labels", _changed(pod.cls.labels, after.cls.labels)),
        )
        if edit
    }
    old, new = pod.cls.spec, after.cls.spec
    spec: dict[str, Any] = {"schedulerName": new.scheduler_name} if new.scheduler_name != old.scheduler_name else {}
    if new.termination_grace_period_seconds != old.termination_grace_period_seconds:
        spec[GRACE] = new.termination_grace_period_seconds
    return {name: edit for name, edit in (("metadata", metadata), ("spec", spec)) if edit}


def _spec_edit(pod: Pod, after: Any) -> dict[str, Any]:
    before, edit = pod.cls.spec, dict[str, Any]()
    if selector := _changed(before.node_selector, after.node_selector):
        edit["nodeSelector"] = selector
    if after.tolerations != before.tolerations:
        edit["tolerations"] = [_as_json(item) for item in after.tolerations if not _is_added(item)]
    if after.affinity != before.affinity:
        required = after.affinity.node_affinity.required
        edit["affinity"] = {"nodeAffinity": {_REQUIRED: None if required is None else _selector_as_json(required)}}
    return edit


def _changed(before: Mapping[str, str], after: Mapping[str, str]) -> dict[str, str | None]:
    keys: Iterable[str] = sorted({*before, *after})
    return {key: after.get(key) for key in keys if before.get(key) != after.get(key)}


def _is_added(toleration: Toleration) -> bool:
    return toleration.key in _ADDED and toleration.effect == "NoExecute"


def _selector_as_json(required: NodeSelector) -> dict[str, Any]:
    form: dict[str, Any] = msgspec.to_builtins(required)
    terms = [{name: rules for name, rules in term.items() if rules} for term in form["nodeSelectorTerms"]]
    return {"nodeSelectorTerms": terms}


def _as_json(item: Toleration) -> dict[str, str]:
    fields = {"key": item.key, "operator": item.operator, "value": item.value, "effect": item.effect}
    return {name: value for name, value in fields.items() if value}
