"""PodDisruptionBudgets: the evictions that a plan may still use, why there are too few, and whom to ask for a
change.
"""

from collections import Counter, defaultdict
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from collections.abc import Set as AbstractSet
from copy import copy
from dataclasses import dataclass, field
from typing import Final, TypeAlias

from predicates.objects import LabelSelector, Pod, PodClass, PodDisruptionBudget
from predicates.pod_classes import BOUND_LABELS, LabelPairs
from predicates.selectors import Selector, compile_selector
from predicates.snapshot import Snapshot
from predicates.texts import shown
from predicates.work import NamespaceWork
from rescheduler.planning.forms import shortened
from rescheduler.planning.outcome import Blocker, Reason
from rescheduler.planning.rules.minimum import OwnerKey, RemainingReplicas

#: The reasons for which a budget, or the replicas that stay on on-demand nodes, do not allow evictions.
OF_BUDGETS: Final = (Reason.BUDGET, Reason.MANY_BUDGETS, Reason.BUDGET_TOO_SLOW, Reason.MIN_ON_DEMAND_REPLICAS)

# Why a PodDisruptionBudget allows too few evictions, and whom to ask for a change.
#
# Some budgets never allow an eviction, so waiting does not help: their arithmetic leaves none, or the disruption
# controller cannot count their pods (``pkg/controller/disruption/disruption.go``, ``getExpectedPodCount``).

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


_OUTDATED: Final = "it was changed, and the disruption controller has not computed its status for that yet"


def why_never(key: str, budget: PodDisruptionBudget) -> str | None:
    """Return why the budget *key* allows no eviction however long one waits, or None if that may change by itself."""
    status = budget.status
    if (message := sync_failure(budget)) is not None:
        waiting, lever = "", ""
        if needs_scale(budget):
            waiting, lever = ", and waiting does not help", "; an integer minAvailable works without it"
        return (
            f"PodDisruptionBudget {key} allows no eviction{waiting}: the disruption controller cannot compute it "
            f"({SYNC_FAILED}: {shown(message)}){lever}{_managed_by(budget)}"
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
    owners = [owner for owner in meta.owner_references if not owner.fault]
    owner = next((owner for owner in owners if owner.controller), next(iter(owners), None))
    group = owner.api_version.partition("/")[0] if owner is not None else ""
    operator = next((each for each in _OPERATORS if _manages(each, group, meta.labels)), None)
    named = f"{owner.kind} {owner.name}" if owner is not None else ""
    if operator is not None:
        of = f" of {named}" if named else ""
        return f"; {operator.name} manages it: change {operator.setting}{of}"
    if named:
        return f"; it belongs to {named}, whose operator may restore it after an edit"
    if release := meta.annotations.get(_HELM_RELEASE, ""):
        return f"; it belongs to the Helm release {shown(release)}"
    if manager := meta.labels.get(_MANAGED_BY, ""):
        return f"; it is managed by {manager}"
    return ""


def _manages(operator: _Operator, group: str, labels: dict[str, str]) -> bool:
    key, _, value = operator.label.partition("=")
    return group == operator.group or (bool(key) and key in labels and value in ("", labels[key]))


# PodDisruptionBudgets, and the evictions that a plan may still use.
#
# These rules predict the response of the eviction API (``pkg/registry/core/pod/storage/eviction.go``). They count the
# evictions of a plan themselves, because the API's numbers do not include them (kubernetes/autoscaler#9111).

BudgetPair: TypeAlias = tuple[str, str]

#: Takes a budget's key, its pods on one node and the number of evictions that it allows at a time. Returns a blocker
#: if the pods cannot be evicted in steps.
TooSlow: TypeAlias = Callable[[str, Sequence[Pod], int], Blocker | None]


#: So many budgets are evaluated for any class of pods, without being counted as work of its namespace.
_FEW: Final = 4

#: A message names at most this many budgets.
_NAMED: Final = 5


class Budgets:
    """The budgets of a snapshot, indexed by the classes of pods that they select. Valid for one :meth:`version`."""

    def __init__(self, snapshot: Snapshot) -> None:
        self.built_from = self.selection = self.version(snapshot)
        # Budgets are indexed by the rarest label that their selector requires, so that few selectors are evaluated for
        # each class of pods. Budgets that require no label are indexed by None.
        self._selectors_by_label: defaultdict[tuple[str, BudgetPair | None], list[tuple[str, Selector]]] = defaultdict(
            list
        )
        selectors: list[tuple[str, str, Selector]] = []
        self._budgets = _budgets(snapshot)
        self.allowed: Mapping[str, int] = _allowed(self._budgets)  #: ``status.disruptionsAllowed`` by budget
        for key, budget in self._budgets.items():
            # In policy/v1 an absent selector selects nothing, an empty one everything.
            selectors.append((key, budget.metadata.namespace, compile_selector(budget.spec.selector)))
        common = Counter((namespace, pair) for _, namespace, selector in selectors for pair in selector.pairs)
        for key, namespace, selector in selectors:
            rarest = min(selector.pairs, key=lambda pair: common[namespace, pair], default=None)
            self._selectors_by_label[namespace, rarest].append((key, selector))
        self._work = NamespaceWork(len(snapshot.nodes))
        self._too_many: dict[str, tuple[str, ...]] = {}  #: by namespace that has too many in this round: two of them
        self._select_added = any(_selects_added(selector) for _, _, selector in selectors)
        self._keys_by_class: dict[PodClass | tuple[PodClass, LabelPairs], tuple[str, ...]] = {}

    def renewed(self, snapshot: Snapshot) -> "Budgets":
        """Return the budgets of *snapshot*, with the same :attr:`selection` if no selector has changed.

        *snapshot* must be the one that these budgets were built from.
        """
        budgets = _budgets(snapshot)
        if self.built_from[1] != snapshot.generation or _selectors(budgets) != _selectors(self._budgets):
            return Budgets(snapshot)
        changed = copy(self)
        changed._budgets = budgets  # noqa: SLF001
        changed.built_from, changed.allowed = self.version(snapshot), _allowed(budgets)
        return changed

    def start_round(self) -> None:
        """Limit the work of each namespace anew."""
        self._work.renew()
        self._too_many.clear()

    @staticmethod
    def version(snapshot: Snapshot) -> tuple[int, int]:
        """Return a value that changes whenever the budgets or the classes of pods in *snapshot* change."""
        return snapshot.versions["PodDisruptionBudget"], snapshot.generation

    def of(self, pod: Pod) -> tuple[str, ...]:
        """Return the keys of the budgets that select *pod*. Pods with equal labels share the result."""
        keys = None if self._select_added else self._keys_by_class.get(pod.cls)
        return self.of_class(pod.cls, pod.added_labels) if keys is None else keys

    def selecting(self, pods: Iterable[Pod]) -> list[tuple[Pod, tuple[str, ...]]]:
        """Return those of *pods* that budgets select, each with the keys of these budgets."""
        known = {} if self._select_added else self._keys_by_class
        found = []
        for pod in pods:  # inline, because this is called for all pods on on-demand nodes
            keys = known.get(pod.cls)
            if keys is None:
                keys = self.of(pod)
            if keys:
                found.append((pod, keys))
        return found

    def of_class(self, cls: PodClass, added_labels: LabelPairs) -> tuple[str, ...]:
        """Return the keys of the budgets that select pods of the class whose API server labels are *added_labels*."""
        cache_key = (cls, added_labels) if self._select_added else cls
        if (keys := self._keys_by_class.get(cache_key)) is None:
            keys = tuple(sorted(self._selecting(cls, added_labels)))
            if cls.namespace not in self._too_many:
                self._keys_by_class[cache_key] = keys
        return keys

    def _selecting(self, cls: PodClass, added_labels: LabelPairs) -> Sequence[str]:
        labels = {**cls.labels, **dict(added_labels)} if added_labels else cls.labels
        pairs: tuple[BudgetPair | None, ...] = (None, *labels.items())
        by_label, namespace = self._selectors_by_label, cls.namespace
        if namespace in self._too_many:
            return self._too_many[namespace]
        candidates = [each for pair in pairs for each in by_label.get((namespace, pair), ())]
        if not self._work.take(namespace, sum(selector.units for _, selector in candidates[_FEW:])):
            self._too_many[namespace] = tuple(sorted(key for key, _ in candidates[:2]))
            return self._too_many[namespace]
        return [key for key, selector in candidates if selector.matches(labels)]

    @property
    def given_up(self) -> AbstractSet[str]:
        """The namespaces with too many budgets to judge new classes of pods before the next round."""
        return self._too_many.keys()

    def are_too_many(self, namespace: str, keys: tuple[str, ...]) -> bool:
        """Return whether *keys* are the two budgets that stand for too many in *namespace*."""
        return self._too_many.get(namespace) == keys

    def guards(self, pod: Pod) -> bool:
        """Return whether any budget selects *pod*."""
        return bool(self.of(pod))

    def allowing(self, changes: Mapping[str, int]) -> "Budgets":
        """Return a copy in which the budgets in *changes*, by key, allow the given number of evictions now."""
        changed = copy(self)
        changed.allowed = {**self.allowed, **changes}
        return changed

    def get(self, key: str) -> PodDisruptionBudget:
        """Return the budget with this key (``namespace/name``)."""
        return self._budgets[key]


@dataclass(frozen=True, slots=True)
class Evictions:
    """The requirements of a set of evictions, regardless of what earlier plans have used."""

    by_budget: Mapping[str, list[Pod]]  #: the pods that need an eviction that a budget allows
    by_controller: Mapping[OwnerKey, list[Pod]]  #: the pods whose controllers keep replicas on on-demand nodes
    impossible: tuple[Blocker, ...]  #: the eviction API would reject these pods


@dataclass(slots=True)
class RemainingDisruptions:
    """The evictions that the budgets still allow while a plan is computed.

    Without *too_slow*, all evictions of a plan must be allowed at once. With it, a budget that allows one eviction may
    be used for any number of pods in steps (evict, wait until the replacement pod is Ready, evict the next one), unless
    *too_slow* returns a blocker.
    """

    budgets: Budgets
    too_slow: TooSlow | None = None
    spent: dict[str, int] = field(default_factory=dict)
    replicas: RemainingReplicas | None = None  #: None: no controller keeps replicas on on-demand nodes

    def reserve(self, pods: Iterable[Pod]) -> list[Blocker]:
        """Reserve the evictions of all *pods*, and the replicas that leave on-demand nodes, or reserve nothing.

        Return the blockers, empty if all were reserved.
        """
        return self.take(self.evictions(tuple(pods)))

    def lacking(self, pods: Iterable[Pod]) -> list[Blocker]:
        """Return the blockers that :meth:`reserve` would return, without reserving anything."""
        return self.blockers(self.evictions(tuple(pods)))

    def evictions(self, pods: tuple[Pod, ...], without_budgets: Collection[str] = ()) -> Evictions:
        """Return the requirements of evicting *pods*. The result is the same for all plans on one snapshot.

        Those in *without_budgets* (keys) leave without an eviction, so no budget counts for them.
        """
        by_budget: dict[str, list[Pod]] = {}
        impossible = []
        for pod, keys in self.budgets.selecting(pods):
            # The eviction API ignores budgets for pods that have never run.
            if pod.phase == "Pending" or (without_budgets and pod.key in without_budgets):
                continue
            if len(keys) > 1:
                too_many = self.budgets.are_too_many(pod.namespace, keys)
                impossible.append(_too_many_budgets(pod) if too_many else _several_budgets(pod, keys))
            elif pod.ready or not self._is_free(keys[0]):
                by_budget.setdefault(keys[0], []).append(pod)
        by_controller = self.replicas.groups(pods) if self.replicas is not None else {}
        return Evictions(by_budget, by_controller, tuple(impossible))

    def take(self, evictions: Evictions) -> list[Blocker]:
        """Reserve all *evictions* or none. Return the blockers, empty if all were reserved."""
        blockers = self.blockers(evictions)
        if not blockers:
            self.spend(evictions)
        return blockers

    def spend(self, evictions: Evictions) -> None:
        """Reserve the *evictions*. The caller must have checked that :meth:`blockers` returns no blockers."""
        for key, guarded in evictions.by_budget.items():
            self.spent[key] = self.spent.get(key, 0) + len(guarded)
        if self.replicas is not None:
            self.replicas.take(evictions.by_controller)

    def blockers(self, evictions: Evictions) -> list[Blocker]:
        """Return the blockers that :meth:`take` would return, without reserving anything."""
        blockers = list(evictions.impossible)
        for key, guarded in evictions.by_budget.items():
            allowed, spent = self.budgets.allowed[key], self.spent.get(key, 0)
            if allowed - spent >= len(guarded):
                continue
            if allowed > 0 and self.too_slow is not None:
                blockers += filter(None, [self.too_slow(key, guarded, allowed)])
            else:
                blockers += self._shortage(key, guarded, allowed, spent)
        if self.replicas is not None and evictions.by_controller:
            blockers += self.replicas.blockers(evictions.by_controller)
        return blockers

    def _shortage(self, key: str, pods: list[Pod], allowed: int, spent: int) -> list[Blocker]:
        budget = self.budgets.get(key)
        if not budget.status.has_observed(budget.metadata):
            detail = f"PodDisruptionBudget {key} allows 0 evictions now: {_OUTDATED}"
            return [Blocker(Reason.BUDGET, detail, pod.key) for pod in pods]
        if not allowed and (never := why_never(key, budget)) is not None:
            return [Blocker(Reason.BUDGET, never, pod.key) for pod in pods]
        return _shortage(key, pods, allowed, spent)

    def copy(self) -> "RemainingDisruptions":
        """Return an independent copy, for a tentative reservation."""
        replicas = self.replicas.copy() if self.replicas is not None else None
        return RemainingDisruptions(self.budgets, self.too_slow, dict(self.spent), replicas)

    def _is_free(self, key: str) -> bool:
        """Return whether unready pods may be evicted without using the budget.

        This is the case if ``unhealthyPodEvictionPolicy`` is AlwaysAllow, or while the budget has enough healthy pods.
        """
        budget = self.budgets.get(key)
        if budget.spec.unhealthy_pod_eviction_policy == "AlwaysAllow":
            return True
        return budget.status.current_healthy >= budget.status.desired_healthy > 0


def _budgets(snapshot: Snapshot) -> dict[str, PodDisruptionBudget]:
    budgets = snapshot.of("PodDisruptionBudget").items()
    return {key: budget for key, budget in budgets if isinstance(budget, PodDisruptionBudget)}


def _allowed(budgets: Mapping[str, PodDisruptionBudget]) -> dict[str, int]:
    """Return how many evictions each budget allows. The eviction API waits until this is computed for its spec."""
    return {
        key: budget.status.disruptions_allowed if budget.status.has_observed(budget.metadata) else 0
        for key, budget in budgets.items()
    }


def _selectors(budgets: Mapping[str, PodDisruptionBudget]) -> dict[str, LabelSelector | None]:
    return {key: budget.spec.selector for key, budget in budgets.items()}


def _selects_added(selector: Selector) -> bool:
    """Return whether the result for a pod depends on labels that the API server added."""
    keys = {key for key, _ in selector.pairs} | {key for key, _, _ in selector.tests}
    return not keys.isdisjoint(BOUND_LABELS)


def _shortage(key: str, pods: list[Pod], allowed: int, spent: int) -> list[Blocker]:
    remaining = max(allowed - spent, 0)
    pods_here = f"{len(pods)} of its pods are on this node" if len(pods) > 1 else "one of its pods is on this node"
    evictions = f"{allowed} {'eviction' if allowed == 1 else 'evictions'}"
    if not spent:
        detail = f"PodDisruptionBudget {key} allows {evictions} now, {pods_here}"
    elif remaining:
        detail = f"the plan has used {spent} of the {evictions} that PodDisruptionBudget {key} allows now, {pods_here}"
    else:
        detail = f"the plan has used the {evictions} that PodDisruptionBudget {key} allows now"
    return [Blocker(Reason.BUDGET, detail, pod.key) for pod in pods[remaining:]]


def _too_many_budgets(pod: Pod) -> Blocker:
    detail = f"namespace {pod.namespace} has too many PodDisruptionBudgets to judge which of them select it"
    return Blocker(Reason.MANY_BUDGETS, detail, pod.key)


def _several_budgets(pod: Pod, keys: tuple[str, ...]) -> Blocker:
    named = shortened(keys, _NAMED)
    detail = f"PodDisruptionBudgets {named} select it; the eviction API rejects pods with more than one"
    return Blocker(Reason.MANY_BUDGETS, detail, pod.key)
