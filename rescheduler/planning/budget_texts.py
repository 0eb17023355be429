"""Why a PodDisruptionBudget allows too few evictions, and whom to ask for a change.

Some budgets never allow an eviction, so waiting does not help: their arithmetic leaves none, or the disruption
controller cannot count their pods (``pkg/controller/disruption/disruption.go``, ``getExpectedPodCount``).
"""

from dataclasses import dataclass
from typing import Final

from predicates.objects import PodDisruptionBudget

#: The condition type and reason of a budget whose pods the disruption controller cannot count.
DISRUPTION_ALLOWED: Final = "DisruptionAllowed"
SYNC_FAILED: Final = "SyncFailed"

_HELM_RELEASE: Final = "meta.helm.sh/release-name"
_MANAGED_BY: Final = "app.kubernetes.io/managed-by"


@dataclass(frozen=True, slots=True)
class _Operator:
    """An operator that creates budgets and restores them after an edit, and its setting for them."""

    name: str
    setting: str
    group: str = ""  #: the API group of the budget's controller
    label: str = ""  #: or a label that all of its budgets have, as key or key=value


#: The settings are those of the operators' own API references.
_OPERATORS: Final = (
    _Operator("CloudNativePG", "spec.enablePDB: false", "postgresql.cnpg.io", "cnpg.io/cluster"),
    _Operator("Zalando's Postgres operator", "enable_pod_disruption_budget", "acid.zalan.do", "application=spilo"),
    _Operator("Strimzi", "template.podDisruptionBudget.maxUnavailable", "kafka.strimzi.io", "strimzi.io/cluster"),
    _Operator("ECK", "spec.podDisruptionBudget", "elasticsearch.k8s.elastic.co"),
    _Operator("Rook", "spec.disruptionManagement.managePodBudgets", "ceph.rook.io"),
    _Operator("Longhorn", "its setting node-drain-policy", "longhorn.io", "longhorn.io/component"),
)


def sync_failure(budget: PodDisruptionBudget) -> str | None:
    """Return the message of the disruption controller if it cannot compute *budget*, else None."""
    condition = next((each for each in budget.status.conditions if each.type == DISRUPTION_ALLOWED), None)
    if condition is None or condition.status != "False" or condition.reason != SYNC_FAILED:
        return None
    return condition.message or "it gives no message"


def needs_scale(budget: PodDisruptionBudget) -> bool:
    """Return whether the controllers of the budget's pods must have a ``scale`` subresource, as for percentages."""
    return budget.spec.max_unavailable is not None or isinstance(budget.spec.min_available, str)


def rule_text(budget: PodDisruptionBudget) -> str:
    """Return the field that limits evictions, such as ``minAvailable 1``; "it" if there is none."""
    spec = budget.spec
    if spec.max_unavailable is not None:
        return f"maxUnavailable {spec.max_unavailable}"
    return "it" if spec.min_available is None else f"minAvailable {spec.min_available}"


def why_never(key: str, budget: PodDisruptionBudget) -> str | None:
    """Return why the budget *key* allows no eviction however long one waits, or None if that may change by itself."""
    status = budget.status
    if (message := sync_failure(budget)) is not None:
        waiting, lever = "", ""
        if needs_scale(budget):
            waiting, lever = ", and waiting does not help", "; an integer minAvailable works without it"
        return (
            f"PodDisruptionBudget {key} allows no eviction{waiting}: the disruption controller cannot compute it "
            f"({SYNC_FAILED}: {message}){lever}{_managed_by(budget)}"
        )
    if status.expected_pods and status.desired_healthy >= status.expected_pods:
        return (
            f"PodDisruptionBudget {key} can never allow an eviction: {rule_text(budget)} requires "
            f"{status.desired_healthy} of {status.expected_pods} pods{_managed_by(budget)}"
        )
    return None


def _managed_by(budget: PodDisruptionBudget) -> str:
    """Return who would restore the budget after an edit, as the end of a sentence; "" if nobody is known to."""
    meta = budget.metadata
    owner = next((owner for owner in meta.owner_references if owner.controller), None)
    owner = owner or next(iter(meta.owner_references), None)
    group = owner.api_version.partition("/")[0] if owner is not None else ""
    operator = next((each for each in _OPERATORS if _manages(each, group, meta.labels)), None)
    named = f"{owner.kind} {owner.name}" if owner is not None else ""
    if operator is not None:
        of = f" of {named}" if named else ""
        return f"; {operator.name} manages it: change {operator.setting}{of}"
    if named:
        return f"; it belongs to {named}, whose operator may restore it after an edit"
    if release := meta.annotations.get(_HELM_RELEASE, ""):
        return f"; it belongs to the Helm release {release}"
    if manager := meta.labels.get(_MANAGED_BY, ""):
        return f"; it is managed by {manager}"
    return ""


def _manages(operator: _Operator, group: str, labels: dict[str, str]) -> bool:
    key, _, value = operator.label.partition("=")
    return group == operator.group or (bool(key) and key in labels and value in ("", labels[key]))
