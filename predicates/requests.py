"""Resource requests of pods: init containers, sidecars, pod-level resources, overhead and in-place resize.

Source: ``k8s.io/component-helpers/resource/helpers.go`` (``PodRequests``), KEP-753 (sidecars), KEP-1287
(in-place resize), KEP-2837 (pod-level resources). Amounts are summed exactly and rounded up once at the end, as
``framework.Resource`` does: cpu to thousandths, everything else to units.
"""

from collections.abc import Callable, Iterable, Mapping
from functools import lru_cache
from typing import Final, TypeAlias

import msgspec

from predicates.objects import (
    Amounts,
    Container,
    Load,
    PodClass,
    PodObject,
    PodSpec,
    PodStatus,
    QuantityText,
    ResourceRequirements,
)
from predicates.quantity import Quantity, QuantityError, parse
from predicates.selectors import key_errors
from predicates.texts import shown
from predicates.versions import SchedulerVersion, VersionRule

Quantities: TypeAlias = dict[str, Quantity]

#: The requests that scoring assumes for containers without requests (``scheduler/util/pod_resources.go``).
DEFAULT_NONZERO: Final = {"cpu": Quantity(100, -3), "memory": Quantity(200 * 1024 * 1024, 0)}

#: The pod condition whose reason states why a resize is pending (Deferred or Infeasible).
RESIZE_PENDING: Final = "PodResizePending"

_NATIVE: Final = ("cpu", "memory", "ephemeral-storage")


def new_load(spec: PodSpec) -> Load:
    """Return the load of a pod that is to be scheduled: its requests."""
    return _load(spec, lambda defaults: _total(spec, defaults, None))


def total_requests(spec: PodSpec) -> Quantities:
    """Return the requests of a pod, exactly."""
    return _total(spec, {}, None)


def total_limits(spec: PodSpec) -> Quantities:
    """Return the limits of a pod, exactly (``PodLimits``)."""
    total = _containers(spec, lambda container, _: parsed(container.resources.limits))
    if spec.resources is not None:
        total |= {name: amount for name, amount in parsed(spec.resources.limits).items() if _pod_level(name)}
    overhead = {name: amount for name, amount in parsed(spec.overhead).items() if name in total}
    return _sum((total, overhead))


def loads(pod: PodObject) -> tuple[Load, Load, Load]:
    """Return the load of a bound pod during a resize (``UseStatusResources``) by each rule; see :func:`load_rule`."""
    spec, status = pod.spec, _StatusResources(pod.status)
    return (
        _load(spec, lambda defaults: _by_sums(spec, defaults, status)),
        _load(spec, lambda defaults: _total(spec, defaults, status)),
        _load(spec, lambda defaults: _total(spec, defaults, status, pod_level=False)),
    )


def load_rule(version: SchedulerVersion) -> int:
    """Return the index of the rule of :func:`loads` that *version* applies."""
    if version.has(VersionRule.RESIZE_BY_SUMS):
        return 0
    return 1 if version.has(VersionRule.POD_LEVEL_RESIZE) else 2


def _load(spec: PodSpec, total: Callable[[Quantities], Quantities]) -> Load:
    """Return the load of a pod whose containers' amounts *total* sums up, after adding defaults where one is missing.

    If the pod has pod-level requests, a default applies only to a resource that neither the pod nor any container has.
    Source: ``CalculateResource`` of ``framework/types.go``.
    """
    amounts = total({})
    present = amounts if _pod_level_requests(spec) else {}
    with_defaults = total({name: amount for name, amount in DEFAULT_NONZERO.items() if name not in present})
    cpu, memory = (_amount(with_defaults, name) - _amount(amounts, name) for name in DEFAULT_NONZERO)
    return Load(_rounded(amounts), (cpu, memory))


def _amount(amounts: Quantities, name: str) -> int:
    return _round(name, amounts[name]) if name in amounts else 0


def scored(pod: PodClass, version: SchedulerVersion) -> tuple[int, int]:
    """Return what NodeResourcesFit scores for a pod of the class: cpu (thousandths) and memory (bytes), with defaults.

    Until 1.37, it ignores pod-level resources: the gates that its scorer reads are never set (``NewFit`` of
    ``noderesources/fit.go``). A default applies to each container (``calculatePodResourceRequest`` of
    ``noderesources/resource_allocation.go``).
    """
    spec = pod.spec
    if spec.resources is None:
        return _with_defaults(pod.requests, pod.defaults)
    if not version.has(VersionRule.POD_LEVEL_SCORES):
        spec = msgspec.structs.replace(spec, resources=None)
    total = _total(spec, DEFAULT_NONZERO, None)
    return _amount(total, "cpu"), _amount(total, "memory")


@lru_cache(maxsize=4096)
def _with_defaults(amounts: Amounts, defaults: tuple[int, int]) -> tuple[int, int]:
    """Return cpu and memory. Cached by amounts: a key that is a class would keep the class in memory."""
    requested = dict(amounts)
    return requested.get("cpu", 0) + defaults[0], requested.get("memory", 0) + defaults[1]


def allocatable(amounts: Mapping[str, QuantityText]) -> dict[str, int]:
    """Return a node's allocatable resources: cpu in thousandths, others in units. Resources not counted are omitted."""
    named = parsed(amounts).items()
    return {name: _round(name, amount) for name, amount in named if name == "pods" or counted(name)}


def parsed(amounts: Mapping[str, QuantityText | None]) -> Quantities:
    """Parse *amounts*; entries that are None are left out. Raises :class:`QuantityError`, naming the resource."""
    quantities = {}
    for name, text in amounts.items():
        try:
            if text is not None:
                quantities[name] = parse(text)
        except QuantityError as error:
            raise QuantityError(f"{shown(name)}: {error}") from error
    return quantities


@lru_cache(maxsize=4096)
def counted(resource: str) -> bool:
    """Return whether the scheduler counts *resource*: native, or ``schedutil.IsScalarResourceName``."""
    if resource in _NATIVE or resource.startswith(("hugepages-", "attachable-volumes-")):
        return True
    return "kubernetes.io/" in resource or is_extended(resource)


@lru_cache(maxsize=4096)
def is_extended(resource: str) -> bool:
    """Return whether *resource* is an extended resource, such as ``nvidia.com/gpu`` (``IsExtendedResourceName``)."""
    if "/" not in resource or "kubernetes.io/" in resource or resource.startswith("requests."):
        return False
    return not key_errors(f"requests.{resource}")


class _StatusResources:
    """The resources that the kubelet reports in the pod status, per container and at pod level."""

    def __init__(self, status: PodStatus) -> None:
        statuses = (*status.container_statuses, *status.init_container_statuses)
        self._of = {status.name: status for status in statuses}
        self._pod = status
        pending = next((c for c in status.conditions if c.type == RESIZE_PENDING), None)
        self.infeasible = pending is not None and pending.reason == "Infeasible"

    def of_container(self, container: Container, requested: Quantities) -> Quantities:
        if (status := self._of.get(container.name)) is None or status.resources is None:
            return requested
        return self._effective(requested, status.resources, status.allocated_resources)

    def allocated(self, container: Container) -> Quantities:
        """Return what the kubelet has allocated to *container* (``containerAllocatedRequests``)."""
        if (status := self._of.get(container.name)) is not None and status.allocated_resources:
            return parsed(status.allocated_resources)
        return {} if self.infeasible else parsed(container.resources.requests)

    def actuated(self, container: Container) -> Quantities:
        """Return what *container* really has (``containerActuatedRequests``)."""
        status = self._of.get(container.name)
        if status is not None and status.resources is not None and status.resources.requests:
            return parsed(status.resources.requests)
        return self.allocated(container)

    @property
    def pod_level(self) -> tuple[Quantities, Quantities] | None:
        """What the pod as a whole has been allocated and really has, or None if the kubelet does not report both."""
        if not self._pod.allocated_resources or self._pod.resources is None or not self._pod.resources.requests:
            return None
        return parsed(self._pod.allocated_resources), parsed(self._pod.resources.requests)

    def of_pod(self, requested: Quantities) -> Quantities:
        if self._pod.resources is None:
            return requested
        return self._effective(requested, self._pod.resources, self._pod.allocated_resources)

    def _effective(
        self, requested: Quantities, actuated: ResourceRequirements, allocated: Mapping[str, QuantityText]
    ) -> Quantities:
        current = parsed(actuated.requests)
        return _max(current if self.infeasible else _max(requested, current), parsed(allocated))


def _total(
    spec: PodSpec, defaults: Quantities, actual: _StatusResources | None, *, pod_level: bool = True
) -> Quantities:
    """Return the requests of a pod. Unless *pod_level* is set, pod-level resources in the status have no effect."""

    def requests_of(container: Container, runs: bool) -> Quantities:  # noqa: FBT001
        return _of_container(container, defaults, actual if runs else None)

    total = _containers(spec, requests_of)
    if spec.resources is not None and _pod_level_requests(spec):
        requested = parsed(spec.resources.requests)
        effective = actual.of_pod(requested) if actual and pod_level else requested
        total |= {name: effective.get(name, Quantity(0, 0)) for name in requested if _pod_level(name)}
    return _sum((total, parsed(spec.overhead)))


def _by_sums(spec: PodSpec, defaults: Quantities, status: _StatusResources) -> Quantities:
    """Return the maximum of what the pod desires, was allocated and really has (``AggregateContainerRequests``)."""
    desired = _containers(spec, lambda container, _: defaults | parsed(container.resources.requests))
    allocated, actuated = status.pod_level or (
        _containers(spec, lambda container, _: defaults | status.allocated(container)),
        _containers(spec, lambda container, _: defaults | status.actuated(container)),
    )
    total = _max(actuated, allocated)
    if not status.infeasible:
        total = _max(total, desired)
    if spec.resources is not None and _pod_level_requests(spec):
        effective = status.of_pod(parsed(spec.resources.requests))
        total |= {name: amount for name, amount in effective.items() if _pod_level(name)}
    return _sum((total, parsed(spec.overhead)))


def _containers(spec: PodSpec, requests_of: Callable[[Container, bool], Quantities]) -> Quantities:
    """Return the larger of the sum of long-running containers and the peak while init containers run.

    ``Max( Max( each InitContainer + the sidecars started before it ), Sum( Containers ) + Sum( sidecars ) )``

    *requests_of* takes a container and whether it keeps running: init containers that are not sidecars do not.
    """
    total = _sum(requests_of(container, True) for container in spec.containers)
    sidecars: Quantities = {}
    peak: Quantities = {}
    for container in spec.init_containers:
        is_sidecar = container.restart_policy == "Always"
        requested = requests_of(container, is_sidecar)
        running = _sum((requested, sidecars))
        if is_sidecar:
            sidecars = running
            total = _sum((total, requested))
        peak = _max(peak, running)
    return _max(total, peak)


def _of_container(container: Container, defaults: Quantities, actual: _StatusResources | None) -> Quantities:
    requested = parsed(container.resources.requests)
    if actual is not None:
        requested = actual.of_container(container, requested)
    return defaults | requested if defaults else requested


def _pod_level_requests(spec: PodSpec) -> bool:
    return spec.resources is not None and any(map(_pod_level, spec.resources.requests))


def _pod_level(resource: str) -> bool:
    return resource in ("cpu", "memory") or resource.startswith("hugepages-")


def _sum(parts: Iterable[Quantities]) -> Quantities:
    total: Quantities = {}
    for part in parts:
        for name, amount in part.items():
            before = total.get(name)
            total[name] = amount if before is None else before.plus(amount)
    return total


def _max(left: Quantities, right: Quantities) -> Quantities:
    return left | {name: left[name].larger(amount) if name in left else amount for name, amount in right.items()}


def _round(resource: str, amount: Quantity) -> int:
    return amount.millis if resource == "cpu" else amount.units


def _rounded(amounts: Quantities) -> Amounts:
    rounded = ((name, _round(name, amount)) for name, amount in sorted(amounts.items()) if counted(name))
    return tuple((name, amount) for name, amount in rounded if amount)
