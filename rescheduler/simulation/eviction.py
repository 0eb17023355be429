"""The subresource ``pods/eviction``. Source: ``kubernetes/pkg/registry/core/pod/storage/eviction.go``."""

from typing import Final

from rescheduler.simulation.deletion import SimulatedDeletion
from rescheduler.simulation.requests import ApiRequest, RequestRefused, Target, conflict, not_found
from rescheduler.simulation.selectors import selects
from rescheduler.simulation.store import Json, Store, merged

_TWO: Final = "This pod has more than one PodDisruptionBudget, which the eviction subresource does not support."


def evict(store: Store, deletion: SimulatedDeletion, target: Target, request: ApiRequest) -> Json:
    """Evict a pod if its budgets allow it. Return the Status. Raises Refused."""
    pod = store.get("pods", target.key)
    if pod is None:
        raise not_found(target)
    options = request.body.get("deleteOptions") or {}
    wanted = (options.get("preconditions") or {}).get("uid")
    if wanted not in (None, pod["metadata"]["uid"]):
        raise conflict(target, f"Precondition failed: UID in precondition: {wanted}")
    dry_run = request.dry_run or options.get("dryRun") == ["All"]
    if not _may_ignore_budgets(pod):
        budgets = [budget for budget in store.all("poddisruptionbudgets") if matches(budget, pod)]
        if len(budgets) > 1:
            raise RequestRefused(500, "InternalError", _TWO)
        if budgets and not _is_spare(budgets[0], pod):
            _spend(store, budgets[0], pod, dry_run=dry_run)
    if not dry_run:
        store.patch("pods", target.key, {"status": {"conditions": with_target(pod, "EvictionByEvictionAPI", store)}})
        evicted = store.get("pods", target.key)
        if evicted is not None:
            deletion.delete_pod(evicted, options.get("gracePeriodSeconds"))
    return {"kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Success", "code": 201}


def with_target(pod: Json, reason: str, store: Store) -> list[Json]:
    """Return the conditions of *pod* with the condition DisruptionTarget."""
    others = [each for each in pod.get("status", {}).get("conditions") or () if each["type"] != "DisruptionTarget"]
    ours = {"type": "DisruptionTarget", "status": "True", "reason": reason}
    return [*others, {**ours, "lastTransitionTime": store.engine.timestamp}]


def matches(budget: Json, pod: Json) -> bool:
    """Return whether *budget* is one of *pod*."""
    same = budget["metadata"]["namespace"] == pod["metadata"]["namespace"]
    return same and selects(budget["spec"].get("selector"), pod["metadata"].get("labels") or {})


def is_ready(pod: Json) -> bool:
    conditions = pod.get("status", {}).get("conditions") or ()
    return "True" in [each["status"] for each in conditions if each["type"] == "Ready"]


def _may_ignore_budgets(pod: Json) -> bool:
    phase = pod.get("status", {}).get("phase", "Pending")
    return phase in ("Succeeded", "Failed", "Pending") or bool(pod["metadata"].get("deletionTimestamp"))


def _is_spare(budget: Json, pod: Json) -> bool:
    """Return whether a pod that is not Ready may be evicted without the consent of its budget."""
    if is_ready(pod):
        return False
    status = budget.get("status") or {}
    if budget["spec"].get("unhealthyPodEvictionPolicy") == "AlwaysAllow":
        return True
    wanted = status.get("desiredHealthy", 0)
    return bool(wanted > 0 and status.get("currentHealthy", 0) >= wanted)


def _spend(store: Store, budget: Json, pod: Json, *, dry_run: bool) -> None:
    """Take one disruption from *budget*. Raises Refused (429)."""
    status = budget.get("status") or {}
    if status.get("observedGeneration", 0) < budget["metadata"].get("generation", 0):
        message = (
            "Cannot evict pod as it would violate the pod's disruption budget. "
            f"The disruption budget {budget['metadata']['name']} is still being processed by the server."
        )
        raise _over_budget(message, retry_after=10)
    if status.get("disruptionsAllowed", 0) <= 0:
        cause = (
            f"The disruption budget {budget['metadata']['name']} needs {status.get('desiredHealthy', 0)} healthy pods "
            f"and has {status.get('currentHealthy', 0)} currently"
        )
        raise _over_budget("Cannot evict pod as it would violate the pod's disruption budget.", cause)
    disrupted = {**(status.get("disruptedPods") or {}), pod["metadata"]["name"]: store.engine.timestamp}
    change = {"disruptionsAllowed": status["disruptionsAllowed"] - 1, "disruptedPods": disrupted}
    if not dry_run:
        store.replace("poddisruptionbudgets", budget, merged(budget, {"status": change}))


def _over_budget(message: str, cause: str = "", retry_after: int = 0) -> RequestRefused:
    details: Json = {"causes": [{"reason": "DisruptionBudget", "message": cause or message}]}
    if retry_after:
        details["retryAfterSeconds"] = retry_after
    return RequestRefused(429, "TooManyRequests", message, details)
