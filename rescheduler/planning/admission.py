"""What the API server makes of new pods: the amounts that LimitRanges and VerticalPodAutoscalers set, the classes of
priorities and runtimes, the label keys of affinity terms, and what admission rejects.

Sources: ``plugin/pkg/admission/limitranger/admission.go``, ``SetDefaults_LimitRangeItem`` of
``pkg/apis/core/v1/defaults.go``, and of the VerticalPodAutoscaler ``pkg/utils/vpa/capping.go``,
``limit_and_request_scaling.go`` and ``pkg/admission-controller/resource/vpa/matcher.go``; of the classes
``plugin/pkg/admission/priority`` and ``plugin/pkg/admission/runtimeclass``.
"""

from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping
from functools import reduce
from types import MappingProxyType
from typing import Final, NamedTuple

from msgspec.structs import replace

from predicates.objects import (
    Affinity,
    Container,
    LimitRange,
    LimitRangeItem,
    PersistentVolumeClaim,
    PodAffinity,
    PodAffinityTerm,
    PodSpec,
    PriorityClass,
    QuantityText,
    Requirement,
    ResourceRequirements,
    RuntimeClass,
    VerticalPodAutoscaler,
    VPABoost,
    VPAContainerPolicy,
)
from predicates.quantity import ZERO, Quantity, parse
from predicates.requests import total_limits, total_requests
from predicates.snapshot import Snapshot
from predicates.texts import shown
from predicates.work import NamespaceWork

Amounts = Mapping[str, QuantityText]

_CONTAINER: Final = "Container"
_POD: Final = "Pod"
_CLAIM: Final = "PersistentVolumeClaim"


#: So many limits are compared with each container, without being counted as work of the namespace.
_FEW: Final = 8

#: The units of work to compare a container with one limit.
_JUDGED: Final = 8


class _Usage(NamedTuple):
    """What a container, or a pod, requests at least and at most."""

    what: str
    requests: Mapping[str, Quantity]
    limits: Mapping[str, Quantity]


class Bounds(NamedTuple):
    """The LimitRanges of a namespace as a VerticalPodAutoscaler reads them."""

    least: Amounts = MappingProxyType({})
    most: Amounts = MappingProxyType({})


class LimitRanges:
    """The LimitRanges of *snapshot* by namespace. Valid while they do not change."""

    def __init__(self, snapshot: Snapshot) -> None:
        self._items: defaultdict[str, list[tuple[str, LimitRangeItem]]] = defaultdict(list)
        self._defaults: dict[str, ResourceRequirements] = {}
        self._bounds: dict[str, Bounds] = {}
        self._work = NamespaceWork(len(snapshot.nodes))
        #: Namespaces that have too many to judge: their other pods are rejected until the next round.
        self.given_up: set[str] = set()
        for key, limits in sorted(snapshot.of("LimitRange").items()):
            if isinstance(limits, LimitRange):
                self._items[key.partition("/")[0]] += [(key, item) for item in limits.spec.limits]

    def start_round(self) -> None:
        """Limit the work of each namespace anew."""
        self._work.renew()
        self.given_up.clear()

    def concern(self, namespace: str) -> bool:
        """Return whether there are any in *namespace*."""
        return namespace in self._items

    def defaults(self, namespace: str) -> ResourceRequirements:
        """Return the requests and limits that are set for containers without them."""
        if (defaults := self._defaults.get(namespace)) is None:
            defaults = self._defaults[namespace] = self._merged_defaults(namespace)
        return defaults

    def _merged_defaults(self, namespace: str) -> ResourceRequirements:
        requests: dict[str, QuantityText] = {}
        limits: dict[str, QuantityText] = {}
        for item in self._of_containers(namespace):
            default = {**item.max, **item.default}
            limits |= default
            requests |= {**item.min, **default, **item.default_request}
        return ResourceRequirements(requests=requests, limits=limits)

    def bounds(self, namespace: str) -> Bounds:
        """Return the highest minimum and the lowest maximum of containers. Raises QuantityError."""
        if (bounds := self._bounds.get(namespace)) is None:
            items = list(self._of_containers(namespace))
            bounds = self._bounds[namespace] = Bounds(
                reduce(lambda a, b: _merged(a, b, lambda x, y: y < x), (item.min for item in items), {}),
                reduce(lambda a, b: _merged(a, b, lambda x, y: x < y), (item.max for item in items), {}),
            )
        return bounds

    def rejection(self, namespace: str, spec: PodSpec) -> str:
        """Return why a new pod with *spec* would be rejected, or "". Raises QuantityError."""
        items = self._items.get(namespace, ())
        if not items:
            return ""
        if not self._may_judge(namespace, len(spec.containers) + len(spec.init_containers)):
            return f"namespace {namespace} has too many LimitRanges to judge"
        defaults = self.defaults(namespace)
        spec = replace(
            spec,
            containers=tuple(_defaulted(each, defaults) for each in spec.containers),
            init_containers=tuple(_defaulted(each, defaults) for each in spec.init_containers),
            overhead={},
        )
        containers = [_usage(each) for each in (*spec.containers, *spec.init_containers)]
        pod = _Usage("the pod", total_requests(spec), total_limits(spec))
        for key, item in items:
            for usage in containers if item.type == _CONTAINER else [pod] if item.type == _POD else ():
                if why := next(_violations(item, usage), ""):
                    return shown(f"LimitRange {key}: {why}")
        return ""

    def claim_rejection(self, namespace: str, claim: PersistentVolumeClaim) -> str:
        """Return why a new claim like *claim* would be rejected, or "". Raises QuantityError."""
        requests = _parsed(claim.spec.resources.requests)
        usage = _Usage(f"the claim {claim.metadata.name}", requests, requests)  # claims have no limits
        for key, item in self._items.get(namespace, ()):
            if item.type == _CLAIM and (why := next(_violations(item, usage), "")):
                return shown(f"LimitRange {key}: {why}")
        return ""

    def _may_judge(self, namespace: str, containers: int) -> bool:
        """Return whether this many *containers* can be judged; more than a few limits count as work of *namespace*."""
        units = _JUDGED * containers * max(0, len(self._items[namespace]) - _FEW)
        if namespace not in self.given_up and self._work.take(namespace, units):
            return True
        self.given_up.add(namespace)
        return False

    def _of_containers(self, namespace: str) -> Iterator[LimitRangeItem]:
        return (item for _, item in self._items.get(namespace, ()) if item.type == _CONTAINER)


def _merged(left: Amounts, right: Amounts, keeps: Callable[[Quantity, Quantity], bool]) -> Amounts:
    """Return the amounts of both; of a resource that both have, *left* where *keeps* is true of the two."""
    kept = {name: amount for name, amount in left.items() if name in right and keeps(parse(amount), parse(right[name]))}
    return {**left, **right, **kept}


def _defaulted(container: Container, defaults: ResourceRequirements) -> Container:
    own = container.resources
    requests = {**defaults.requests, **own.limits, **own.requests}
    return replace(container, resources=replace(own, requests=requests, limits={**defaults.limits, **own.limits}))


def _usage(container: Container) -> _Usage:
    resources = container.resources
    return _Usage(f"container {container.name}", _parsed(resources.requests), _parsed(resources.limits))


def _parsed(amounts: Amounts) -> dict[str, Quantity]:
    return {name: parse(amount) for name, amount in amounts.items()}


def _violations(item: LimitRangeItem, usage: _Usage) -> Iterator[str]:
    requests, limits = usage.requests, usage.limits
    for name, least in item.min.items():
        if requests.get(name, ZERO) < parse(least):
            yield f"the minimum of {name} is {least}, but {usage.what} requests less"
        elif name in limits and limits[name] < parse(least):
            yield f"the minimum of {name} is {least}, but {usage.what} has a lower limit"
    for name, most in item.max.items():
        if name not in limits:
            yield f"the maximum of {name} is {most}, but {usage.what} has no limit"
        elif limits[name].larger(requests.get(name, ZERO)) > parse(most):
            yield f"the maximum of {name} is {most}, but {usage.what} asks for more"
    for name, ratio in item.max_limit_request_ratio.items():
        if name not in limits or not requests.get(name, ZERO) > ZERO:
            yield f"the limit of {name} may be {ratio} times the request, but {usage.what} has no limit or no request"
        elif limits[name].millis * 1000 > requests[name].millis * parse(ratio).millis:
            yield f"the limit of {name} may be {ratio} times the request, but that of {usage.what} is higher"


# What the admission of a VerticalPodAutoscaler sets. It runs after LimitRanges have set their defaults.

_CONTROLLED: Final = ("cpu", "memory")

#: The value of ``controlledValues`` that leaves limits as they are; otherwise they keep their ratio to the requests.
_REQUESTS_ONLY: Final = "RequestsOnly"

#: The mode of an autoscaler, or of its policy for a container, that leaves requests as they are.
_OFF: Final = "Off"


def stronger(vpa: VerticalPodAutoscaler) -> tuple[str, str]:
    """Return a key: of several autoscalers of a workload, the one with the smallest counts."""
    return vpa.metadata.creation_timestamp or "", vpa.metadata.name


def recommended(
    vpa: VerticalPodAutoscaler, container: str, given: ResourceRequirements, bounds: Bounds
) -> ResourceRequirements:
    """Return the resources that *vpa* sets for a new *container* with the resources *given*. Raises QuantityError."""
    by_name = {each.container_name: each for each in _policies(vpa)}
    policy = by_name.get(container, by_name.get("*"))
    if policy is not None and policy.mode == _OFF:
        return given
    target = _target(vpa, container) if changes_requests(vpa) else {}
    changed = _with_target(target, policy, given, bounds)
    boost = policy.startup_boost if policy is not None and policy.startup_boost is not None else vpa.spec.startup_boost
    return changed if boost is None or boost.cpu is None else _boosted(boost.cpu, policy, given, changed)


def changes_requests(vpa: VerticalPodAutoscaler) -> bool:
    """Return whether *vpa* sets the requests of new pods to its recommendation."""
    return vpa.spec.update_policy is None or vpa.spec.update_policy.update_mode != _OFF


def changes_new_pods(vpa: VerticalPodAutoscaler) -> bool:
    """Return whether *vpa* changes new pods: also one that is off may raise their CPU until they have started."""
    boosts = (vpa.spec.startup_boost, *(each.startup_boost for each in _policies(vpa)))
    return changes_requests(vpa) or any(boost is not None for boost in boosts)


def _policies(vpa: VerticalPodAutoscaler) -> tuple[VPAContainerPolicy, ...]:
    return vpa.spec.resource_policy.container_policies if vpa.spec.resource_policy is not None else ()


def _target(vpa: VerticalPodAutoscaler, container: str) -> Amounts:
    recommendation = vpa.status.recommendation
    targets = recommendation.container_recommendations if recommendation is not None else ()
    return next((each.target for each in targets if each.container_name == container), {})


def _with_target(
    target: Amounts, policy: VPAContainerPolicy | None, given: ResourceRequirements, bounds: Bounds
) -> ResourceRequirements:
    """Return the resources *given* with the recommended requests *target*."""
    controlled = (policy.controlled_resources if policy is not None else None) or _CONTROLLED
    requests, limits = {**given.requests}, {**given.limits}
    for name in (name for name in _CONTROLLED if name in controlled and name in target):
        amount = target[name]
        amount = _at_least(amount, bounds.least.get(name), _boundary(name, given, bounds.least))
        amount = _at_most(amount, _boundary(name, given, bounds.most))
        if policy is not None:
            amount = _at_most(_at_least(amount, policy.min_allowed.get(name)), policy.max_allowed.get(name))
        if _keeps_limits(policy):
            amount = _at_most(amount, given.limits.get(name))
        elif parse(amount) > ZERO and parse(given.limits.get(name, 0)) > ZERO:
            limits[name] = _proportional(name, given, amount)
        requests[name] = amount
    return ResourceRequirements(requests=requests, limits=limits)


def _keeps_limits(policy: VPAContainerPolicy | None) -> bool:
    return policy is not None and policy.controlled_values == _REQUESTS_ONLY


def _boosted(
    boost: VPABoost, policy: VPAContainerPolicy | None, given: ResourceRequirements, changed: ResourceRequirements
) -> ResourceRequirements:
    """Return the resources *changed* by a recommendation with more CPU until the start (``applyCPUStartupBoost``).

    The resources *given* are those before the recommendation, in whose ratio the limit grows.
    """
    base = parse(changed.requests.get("cpu", 0)).millis
    more = (
        base * max(1, boost.factor or 1) if boost.type in ("", "Factor") else base + parse(boost.quantity or 0).millis
    )
    amount: QuantityText = f"{more}m"
    limits = {**changed.limits}
    limit = parse(given.limits.get("cpu", 0)).millis
    if limit and _keeps_limits(policy):
        amount = f"{max(1, limit - 1)}m" if more > limit else amount
    elif limit:
        limits["cpu"] = _proportional("cpu", given, amount)
    return ResourceRequirements(requests={**changed.requests, "cpu": amount}, limits=limits)


def _boundary(name: str, given: ResourceRequirements, bound: Amounts) -> QuantityText | None:
    """Return the request whose limit, in the same ratio as *given*, is the *bound* (``GetBoundaryRequest``)."""
    limit, request = given.limits.get(name, 0), given.requests.get(name, 0)
    if name not in bound or not parse(limit) > ZERO:
        return None
    return _scaled(name, request, bound[name], limit) if parse(request) > ZERO else bound[name]


def _proportional(name: str, given: ResourceRequirements, request: QuantityText) -> QuantityText:
    """Return the limit for a new *request*, in the same ratio as *given* (``getProportionalResourceLimit``)."""
    limit, before = given.limits[name], given.requests.get(name, 0)
    if not parse(before) > ZERO or parse(before).millis == parse(limit).millis:
        return request
    return _scaled(name, limit, request, before)


def _scaled(name: str, amount: QuantityText, to: QuantityText, base: QuantityText) -> QuantityText:
    """Return ``amount * to / base``: cpu in thousandths, everything else in units."""
    if name == "cpu":
        return f"{parse(amount).millis * parse(to).millis // parse(base).millis}m"
    return str(parse(amount).units * parse(to).units // max(1, parse(base).units))


def _at_least(amount: QuantityText, *bounds: QuantityText | None) -> QuantityText:
    for bound in bounds:
        if bound is not None and parse(amount) < parse(bound):
            amount = bound
    return amount


def _at_most(amount: QuantityText, bound: QuantityText | None) -> QuantityText:
    return bound if bound is not None and ZERO < parse(bound) < parse(amount) else amount


# The classes of priorities and runtimes.

#: The kinds of the cluster that change the pods that are created.
CLASSES: Final = ("PriorityClass", "RuntimeClass")

#: The PriorityClasses of all clusters (``pkg/apis/scheduling/types.go``).
_SYSTEM_PRIORITIES: Final = {"system-cluster-critical": 2_000_000_000, "system-node-critical": 2_000_001_000}


def priorities_of_others(snapshot: Snapshot) -> Mapping[str, int]:
    """Return the highest priority of the pods of each PriorityClass, by its name, if PriorityClasses are not known."""
    found: dict[str, int] = {}
    if not snapshot.of("PriorityClass"):
        for name, priority in snapshot.priorities():
            if priority is not None:
                found[name] = max(priority, found.get(name, priority))
    return found


class PodClasses:
    """The PriorityClasses and RuntimeClasses of *snapshot*. Valid while they and :func:`priorities_of_others` stay."""

    def __init__(self, snapshot: Snapshot, priorities: Mapping[str, int]) -> None:
        self._snapshot = snapshot
        self._of_others = priorities
        self.known = any(snapshot.of(kind) for kind in CLASSES)  #: False if they were not read
        classes = [each for each in snapshot.of("PriorityClass").values() if isinstance(each, PriorityClass)]
        self._priorities = {each.metadata.name: each.value for each in classes}
        defaults = sorted((each.value, each.metadata.name) for each in classes if each.global_default)
        self._default = next((name for _, name in defaults), "")

    def missing(self, template: PodSpec) -> str:
        """Return which class of the *template* does not exist, for which admission rejects new pods, or ""."""
        if not self.known or not (template.priority_class_name or template.runtime_class_name):
            return ""
        named = ("PriorityClass", template.priority_class_name), ("RuntimeClass", template.runtime_class_name)
        for kind, name in named:
            if name and (known := self._snapshot.of(kind)) and name not in known:
                return f"{kind} {shown(name)}, which the pod template names, does not exist"
        return ""

    def applied(
        self, spec: PodSpec, running: PodSpec, template: PodSpec | None = None, *, revised: bool = False
    ) -> PodSpec:
        """Return *spec* of a new pod with what admission adds for its classes.

        *template* is that of its controller, None if it is not known, and *revised* whether it has changed since the
        *running* pod was created.
        """
        return self._with_runtime(self._prioritized(spec, running, template, revised=revised))

    def _prioritized(self, spec: PodSpec, running: PodSpec, template: PodSpec | None, *, revised: bool) -> PodSpec:
        """Return *spec* with the priority that admission gives to the new pod.

        If the classes are not known, it is that of other pods of the same class.
        """
        name = (running if template is None else template).priority_class_name
        if self._priorities:
            name = name or self._default
            value = self._priorities.get(name) if name else 0
            if value is None:
                return spec
            return spec if running.priority is None and not value else _with_priority(spec, name, value)
        if template is None or not revised:
            return spec
        return replace(spec, priority=self._priority_of_others(template, running))

    def _priority_of_others(self, template: PodSpec, running: PodSpec) -> int | None:
        name = template.priority_class_name
        if template.priority is not None or name == running.priority_class_name:
            return running.priority if template.priority is None else template.priority
        return self._of_others.get(name, _SYSTEM_PRIORITIES.get(name, running.priority))

    def _with_runtime(self, spec: PodSpec) -> PodSpec:
        """Return *spec* with what admission adds for its RuntimeClass. What its older version added is kept."""
        runtime = self._snapshot.of("RuntimeClass").get(spec.runtime_class_name) if spec.runtime_class_name else None
        if not isinstance(runtime, RuntimeClass):
            return spec
        scheduling = runtime.scheduling
        return replace(
            spec,
            overhead=runtime.overhead.pod_fixed,
            node_selector={**spec.node_selector, **scheduling.node_selector},
            tolerations=tuple(dict.fromkeys((*spec.tolerations, *scheduling.tolerations))),
        )


def _with_priority(spec: PodSpec, name: str, value: int) -> PodSpec:
    same = spec.priority == value and spec.priority_class_name == name
    return spec if same else replace(spec, priority=value, priority_class_name=name)


# The label keys of affinity terms.


def with_label_keys(affinity: Affinity, labels: Mapping[str, str]) -> Affinity:
    """Return the *affinity* of a new pod with *labels*, as the API server writes it.

    It adds ``matchLabelKeys`` and ``mismatchLabelKeys`` to the selectors of the terms, with the values of the pod
    (``applyMatchLabelKeysAndMismatchLabelKeys`` in ``pkg/registry/core/pod/strategy.go``).
    """
    return replace(
        affinity,
        pod_affinity=_of_pods(affinity.pod_affinity, labels),
        pod_anti_affinity=_of_pods(affinity.pod_anti_affinity, labels),
    )


def _of_pods(affinity: PodAffinity | None, labels: Mapping[str, str]) -> PodAffinity | None:
    if affinity is None:
        return None
    return PodAffinity(
        tuple(_with_keys(term, labels) for term in affinity.required),
        tuple(
            replace(each, pod_affinity_term=_with_keys(each.pod_affinity_term, labels)) for each in affinity.preferred
        ),
    )


def _with_keys(term: PodAffinityTerm, labels: Mapping[str, str]) -> PodAffinityTerm:
    if term.label_selector is None or not (term.match_label_keys or term.mismatch_label_keys):
        return term
    keys = [("In", key) for key in term.match_label_keys] + [("NotIn", key) for key in term.mismatch_label_keys]
    added = tuple(Requirement(key, operator, (labels[key],)) for operator, key in keys if key in labels)
    selector = term.label_selector
    expressions = (*selector.match_expressions, *added)
    return replace(term, label_selector=replace(selector, match_expressions=expressions))
