"""ResourceQuotas, counted as admission counts them, in the steps of a drain. Separate from the round, because it
only counts, as `budgets` does.

A controller creates the replacement of an evicted pod while that pod is still terminating, and admission counts both
(``pkg/quota/v1/evaluator/core/pods.go``). A StatefulSet, and a Job with ``podReplacementPolicy: Failed``, creates it
when the evicted pod is gone. A step begins when the replacement pods of the previous one run; the pods that they
replace are gone by then.
"""

import contextlib
from collections import Counter, defaultdict
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from functools import cached_property
from typing import Final, TypeAlias

from predicates.objects import (
    Affinity,
    Container,
    Job,
    PersistentVolumeClaim,
    Pod,
    PodClass,
    PodSpec,
    QuotaScopeTerm,
    ResourceQuota,
)
from predicates.quantity import Quantity, QuantityError, parse
from predicates.requests import is_extended, total_limits, total_requests
from predicates.snapshot import Snapshot
from predicates.storage import claim_key, find_claim
from predicates.work import NamespaceWork
from rescheduler.planning.outcome import Blocker, Reason
from rescheduler.planning.placement.in_steps import steps_of
from rescheduler.planning.surges import NodeSurge

#: Amounts by the names of quotas, such as ``requests.cpu``.
Usage: TypeAlias = Mapping[str, Fraction]

#: What a quota selects pods by.
_Scopes: TypeAlias = tuple[QuotaScopeTerm, ...]

_COMPUTE: Final = ("cpu", "memory", "ephemeral-storage")
_HUGE_PAGES: Final = "hugepages-"
_OF_CLASS: Final = ".storageclass.storage.k8s.io/"

#: The other resources of pods and claims without a prefix.
_NUMBERS: Final = (*_COMPUTE, "pods", "count/pods", "persistentvolumeclaims", "count/persistentvolumeclaims")

#: The resources that every container must specify if a quota limits them (``validationSet``).
_REQUIRED: Final = ("cpu", "memory", "requests.cpu", "requests.memory", "limits.cpu", "limits.memory")

_MEBI: Final = 2**20


@dataclass(slots=True)
class _Account:
    """A quota while a drain is played through."""

    key: str  #: ``namespace/name``
    quota: ResourceQuota
    hard: Usage
    used: dict[str, Fraction]

    def change(self, usage: Usage, sign: int) -> None:
        for name, amount in usage.items():
            if name in self.used:
                self.used[name] += sign * amount

    def refusal(self, usage: Usage) -> str:
        """Return why admission refuses a pod with this *usage*, or ""."""
        for name in sorted(self.hard.keys() & usage.keys()):
            if self.used[name] + usage[name] > self.hard[name]:
                amounts = (_text(name, amount) for amount in (usage[name], self.used[name], self.hard[name]))
                return "{} needs {} more, and {} of {} is used".format(name, *amounts)
        return ""


#: So many quotas of a namespace are judged for each of its pods, without being counted as its work.
_FEW: Final = 4

#: The units of work to judge a pod by one quota, and to count a class of pods for the quotas of the same scopes.
_JUDGED: Final = 20
_COUNTED: Final = 80


class Quotas:
    """The quotas of *snapshot*, and what pods take from them. Valid until the snapshot changes.

    Pods of the nodes *on_demand* may have to move.
    """

    def __init__(self, snapshot: Snapshot, on_demand: Collection[str]) -> None:
        self._snapshot = snapshot
        self._on_demand = frozenset(on_demand)
        self._usages: dict[PodClass, Usage] = {}
        self._totals: dict[tuple[str, _Scopes], Usage] = {}  #: by namespace: what the pods in these scopes take

    @cached_property
    def _by_namespace(self) -> Mapping[str, Sequence[ResourceQuota]]:
        quotas = self._snapshot.of("ResourceQuota").values()
        return _by_namespace(each for each in quotas if isinstance(each, ResourceQuota))

    @cached_property
    def _pods(self) -> Mapping[str, Counter[PodClass]]:
        """The numbers of pods by namespace and class."""
        numbers = defaultdict[str, Counter[PodClass]](Counter)
        for pod in self._snapshot.pods.values():
            numbers[pod.namespace][pod.cls] += 1
        return numbers

    @cached_property
    def _movable(self) -> Counter[str]:
        """The numbers of pods on on-demand nodes by namespace."""
        return Counter(pod.namespace for pod in self._snapshot.pods.values() if pod.node_name in self._on_demand)

    def blockers(
        self,
        pods: Sequence[Pod],
        incoming: Sequence[Pod],
        quotas: Iterable[ResourceQuota] | None = None,
        surges: Sequence[NodeSurge] = (),
    ) -> Iterator[Blocker]:
        """Yield a blocker for the first replacement pod in each namespace that a quota would refuse.

        *pods* of one node would be evicted, and *incoming* are their replacements, in the same order. *quotas* are
        those that apply; None means those of the snapshot. The pods of *surges* stay until their replacements run.
        """
        by_namespace = self._by_namespace if quotas is None else _by_namespace(quotas)
        if by_namespace.keys().isdisjoint({pod.namespace for pod in pods}):
            return
        created = {pod.key: new for pod, new in zip(pods, incoming, strict=True)}
        surging = {pod.key for surge in surges for pod in surge.pods}
        steps = steps_of([pod for pod in pods if pod.key not in surging])
        for namespace in sorted({pod.namespace for pod in pods} & by_namespace.keys()):
            moved = [step for each in steps if (step := tuple(pod for pod in each if pod.namespace == namespace))]
            added = [surge for surge in surges if surge.pods[0].namespace == namespace]
            if moved or added:
                first = moved[0][0] if moved else added[0].pods[0]
                if (accounts := self._accounts(by_namespace[namespace])) is None:
                    detail = f"namespace {namespace} has too many ResourceQuotas to judge"
                    yield Blocker(Reason.QUOTA_EXCEEDED, detail, first.key)
                    continue
                yield from self._added(added, created, accounts)
                yield from self._played_through(moved, created, accounts)

    def _added(
        self, surges: Iterable[NodeSurge], created: Mapping[str, Pod], accounts: Collection[_Account]
    ) -> Iterator[Blocker]:
        """Yield a blocker for the first of *surges* whose additional pods would be refused. They end one by one."""
        for surge in surges:
            before = [dict(account.used) for account in accounts]
            new = created[surge.pods[0].key]
            refusals = [why for _ in range(surge.extra) if (why := self._refusal(new, accounts))]
            for account, used in zip(accounts, before, strict=True):
                account.used = used
            if refusals:
                detail = f"{refusals[0]} (a rolling update keeps the old pod until the new one runs)"
                yield Blocker(Reason.QUOTA_EXCEEDED, detail, surge.pods[0].key)
                return

    def _played_through(
        self, steps: Iterable[Sequence[Pod]], created: Mapping[str, Pod], accounts: Collection[_Account]
    ) -> Iterator[Blocker]:
        for step in steps:
            for pod in step:
                if self._ends_first(pod):
                    self._release(pod, accounts)
            for pod in step:
                if pod.owner is not None and (why := self._refusal(created[pod.key], accounts)):
                    yield Blocker(Reason.QUOTA_EXCEEDED, why, pod.key)
                    return
            for pod in step:
                if not self._ends_first(pod):
                    self._release(pod, accounts)

    def _ends_first(self, pod: Pod) -> bool:
        """Return whether *pod* is gone before its replacement is created, if there is one."""
        owner = pod.owner
        if owner is None or owner.kind == "StatefulSet":
            return True
        job = self._snapshot.of("Job").get(f"{pod.namespace}/{owner.name}") if owner.kind == "Job" else None
        return isinstance(job, Job) and job.replaces_only_finished

    def _release(self, pod: Pod, accounts: Iterable[_Account]) -> None:
        for account in accounts:
            if applies(account.quota, pod.cls.spec):
                account.change(self._usage(pod.cls), -1)
            account.change(self._claims(pod, account.quota), -1)

    def _refusal(self, pod: Pod, accounts: Iterable[_Account]) -> str:
        """Take what *pod* needs from the accounts that apply to it, and return the first refusal, or ""."""
        for account in accounts:
            usage: dict[str, Fraction] = {}
            if applies(account.quota, pod.cls.spec):
                if missing := _unspecified(pod.cls.spec, account.hard):
                    return f"ResourceQuota {account.key} would refuse its replacement pod: it must specify {missing}"
                usage = dict(self._usage(pod.cls))
            usage |= self._claims(pod, account.quota)
            if why := account.refusal(usage):
                return f"ResourceQuota {account.key} has no room for its replacement pod: {why}"
            account.change(usage, 1)
        return ""

    def _usage(self, cls: PodClass) -> Usage:
        if (usage := self._usages.get(cls)) is None:
            usage = self._usages[cls] = pod_usage(cls.spec)
        return usage

    def _claims(self, pod: Pod, quota: ResourceQuota) -> Usage:
        """Return what the claims of generic ephemeral volumes take: they end, and are created, with their pod."""
        ephemeral = [claim.name for claim in pod.cls.claims if claim.ephemeral]
        if not ephemeral or quota.spec.scopes or quota.spec.scope_selector is not None:
            return {}
        usage: dict[str, Fraction] = {}
        for name in ephemeral:
            for resource, amount in _claim_usage(find_claim(self._snapshot, pod.namespace, name)).items():
                usage[resource] = usage.get(resource, Fraction(0)) + amount
        return usage

    def _accounts(self, quotas: Sequence[ResourceQuota]) -> list[_Account] | None:
        """Return the accounts of the *quotas* of a namespace; None if they are too many to judge.

        What their controller has not counted yet is counted here.
        """
        namespace, beyond = quotas[0].metadata.namespace, max(0, len(quotas) - _FEW)
        if not self._may_judge(namespace, beyond):
            return None
        accounts = [_account(quota) for quota in quotas]
        uncounted = [each for each in accounts if each.used.keys() != each.hard.keys()]
        if not self._may_judge(namespace, beyond, {_scopes(each.quota) for each in uncounted}):
            return None
        for each in uncounted:
            total = self._total(namespace, each.quota)
            each.used = {name: total.get(name, Fraction(0)) for name in each.hard} | each.used
        return accounts

    def _may_judge(self, namespace: str, beyond: int, uncounted: Collection[_Scopes] = ()) -> bool:
        """Return whether *namespace* may have this many quotas *beyond* a few, and uncounted ones of these scopes.

        What a plan of all nodes takes decides: no answer depends on how many questions there were before.
        """
        if not (beyond or uncounted):
            return True
        movable, nodes = self._movable[namespace], len(self._snapshot.nodes)
        questions = min(movable, len(self._on_demand))
        units = _JUDGED * beyond * (movable + questions) + _COUNTED * len(uncounted) * len(self._pods[namespace])
        return NamespaceWork(nodes).take(namespace, units)

    def _total(self, namespace: str, quota: ResourceQuota) -> Usage:
        """Return what those pods of *namespace* take that the scopes of *quota* select."""
        key = namespace, _scopes(quota)
        if (total := self._totals.get(key)) is None:
            amounts = defaultdict[str, Fraction](Fraction)
            for cls, number in self._pods[namespace].items():
                if applies(quota, cls.spec):
                    for name, amount in self._usage(cls).items():
                        amounts[name] += number * amount
            total = self._totals[key] = amounts
        return total


def _account(quota: ResourceQuota) -> _Account:
    """Return the account of *quota* for the resources of pods, as far as its controller has counted."""
    limits = _amounts(quota.spec.hard or quota.status.hard)
    hard = {name: amount for name, amount in limits.items() if _is_of_pods(name)}
    used = {name: amount for name, amount in _amounts(quota.status.used).items() if name in hard}
    return _Account(claim_key(quota.metadata.namespace, quota.metadata.name), quota, hard, used)


def _by_namespace(quotas: Iterable[ResourceQuota]) -> Mapping[str, Sequence[ResourceQuota]]:
    by_namespace = defaultdict[str, list[ResourceQuota]](list)
    for quota in quotas:
        by_namespace[quota.metadata.namespace].append(quota)
    return by_namespace


def _is_of_pods(resource: str) -> bool:
    """Return whether a pod, or the claim of an ephemeral volume, can take *resource* of a quota: others never change.

    Kubernetes counts an extended resource only with the prefix ``requests.``, and only kinds of objects that exist.
    """
    kind, _, name = resource.partition(".")
    if kind == "requests":
        return name in (*_COMPUTE, "storage") or name.startswith(_HUGE_PAGES) or is_extended(name)
    if kind == "limits":
        return name in _COMPUTE
    return resource in _NUMBERS or resource.startswith(_HUGE_PAGES) or _OF_CLASS in resource


def pod_usage(spec: PodSpec) -> Usage:
    """Return what a pod takes from quotas (``podComputeUsageHelper``)."""
    usage = {"pods": Fraction(1), "count/pods": Fraction(1)}
    for name, quantity in total_requests(spec).items():
        amount = _amount(quantity)
        if name in _COMPUTE or name.startswith(_HUGE_PAGES):
            usage[name] = usage[f"requests.{name}"] = amount
        elif is_extended(name):
            usage[f"requests.{name}"] = amount
    with contextlib.suppress(QuantityError):  # the API server rejects such a pod, but a file may contain it
        for name, quantity in total_limits(spec).items():
            if name in _COMPUTE:
                usage[f"limits.{name}"] = _amount(quantity)
    return usage


def _claim_usage(claim: PersistentVolumeClaim | None) -> Usage:
    usage = {"persistentvolumeclaims": Fraction(1), "count/persistentvolumeclaims": Fraction(1)}
    if claim is None:
        return usage
    storage = _amounts(claim.spec.resources.requests).get("storage", Fraction(0))
    usage["requests.storage"] = storage
    if claim.spec.storage_class_name:
        prefix = f"{claim.spec.storage_class_name}{_OF_CLASS}"
        usage[f"{prefix}requests.storage"] = storage
        usage[f"{prefix}persistentvolumeclaims"] = Fraction(1)
    return usage


def applies(quota: ResourceQuota, spec: PodSpec) -> bool:
    """Return whether the scopes of *quota* select a pod with this *spec* (``podMatchesScopeFunc``)."""
    return all(_in_scope(term, spec) for term in _scopes(quota))


def _scopes(quota: ResourceQuota) -> _Scopes:
    selector = quota.spec.scope_selector
    terms = selector.match_expressions if selector is not None else ()
    return (*(QuotaScopeTerm(scope, "Exists") for scope in quota.spec.scopes), *terms)


def _in_scope(term: QuotaScopeTerm, spec: PodSpec) -> bool:
    match term.scope_name:
        case "Terminating":
            return spec.active_deadline_seconds is not None
        case "NotTerminating":
            return spec.active_deadline_seconds is None
        case "BestEffort":
            return _is_best_effort(spec)
        case "NotBestEffort":
            return not _is_best_effort(spec)
        case "CrossNamespacePodAffinity":
            return _crosses_namespaces(spec.affinity)
        case "PriorityClass":
            return _has_priority_class(term, spec.priority_class_name)
    return False


def _has_priority_class(term: QuotaScopeTerm, name: str) -> bool:
    match term.operator:
        case "In":
            return name in term.values
        case "NotIn":
            return name not in term.values
        case "DoesNotExist":
            return not name
    return bool(name)


def _is_best_effort(spec: PodSpec) -> bool:
    of_pod = (spec.resources,) if spec.resources is not None else ()
    resources = [each.resources for each in (*spec.containers, *spec.init_containers)]
    named = ({**each.limits, **each.requests} for each in (*resources, *of_pod))
    return not any(_amounts(each).get(name) for each in named for name in ("cpu", "memory"))


def _crosses_namespaces(affinity: Affinity | None) -> bool:
    kinds = (affinity.pod_affinity, affinity.pod_anti_affinity) if affinity is not None else ()
    return any(
        term.namespaces or term.namespace_selector is not None
        for kind in kinds
        if kind is not None
        for term in (*kind.required, *(each.pod_affinity_term for each in kind.preferred))
    )


def _unspecified(spec: PodSpec, hard: Collection[str]) -> str:
    """Return the resources that *hard* limits and that a container does not specify, or ""."""
    required = {name for name in _REQUIRED if name in hard}
    if spec.resources is not None:
        required -= _specified(spec.resources.requests, spec.resources.limits)
    missing = {
        name for container in (*spec.containers, *spec.init_containers) for name in required - _of_container(container)
    }
    return ", ".join(sorted(missing))


def _of_container(container: Container) -> set[str]:
    return _specified(container.resources.requests, container.resources.limits)


def _specified(requests: Collection[str], limits: Collection[str]) -> set[str]:
    requested = {*requests, *limits}  # the API defaults requests to limits
    return {*requested, *(f"requests.{name}" for name in requested), *(f"limits.{name}" for name in limits)}


def _amounts(texts: Mapping[str, object]) -> dict[str, Fraction]:
    """Return the readable amounts of *texts*."""
    amounts = {}
    for name, text in texts.items():
        try:
            amounts[name] = _amount(parse(text))
        except QuantityError:
            continue
    return amounts


def _amount(quantity: Quantity) -> Fraction:
    return quantity.mantissa * Fraction(10) ** quantity.power


def _text(resource: str, amount: Fraction) -> str:
    if amount.denominator != 1:
        return f"{float(amount * 1000):g}m"
    whole = int(amount)
    if resource.endswith(("memory", "storage")) and whole and whole % _MEBI == 0:
        return f"{whole // _MEBI}Mi"
    return str(whole)
