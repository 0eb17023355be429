"""What a pod requests: init containers, sidecars, pod-level resources, overhead, in-place resize.

Source: ``k8s.io/component-helpers/resource/helpers.go`` (``PodRequests``), KEP-753 (sidecars), KEP-1287
(in-place resize), KEP-2837 (pod-level resources). Amounts are summed exactly, in billionths, and rounded up
once at the end, as ``framework.Resource`` does: cpu to thousandths, everything else to units.
"""

from collections.abc import Iterable, Mapping
from typing import Final

from predicates.objects import (
    Amounts,
    Container,
    PodObject,
    PodSpec,
    PodStatus,
    QuantityText,
    ResourceRequirements,
)
from predicates.quantity import ceil_millis, ceil_units, nanos

Nanos = dict[str, int]

#: What a container without a request counts for in scoring (``scheduler/util/pod_resources.go``).
DEFAULT_NONZERO: Final = {"cpu": 100 * 10**6, "memory": 200 * 1024 * 1024 * 10**9}


def requests(spec: PodSpec) -> Amounts:
    """What a pod asks of a node before it has one."""
    return _rounded(_total(spec, {}, None))


def load(pod: PodObject) -> Amounts:
    """What a pod takes on its node: around a resize the larger of spec and status (``UseStatusResources``)."""
    actual = _Actual(pod.status)
    return _rounded(_total(pod.spec, {}, actual))


def nonzero(spec: PodSpec) -> tuple[int, int]:
    """Requested cpu and memory with the scoring defaults where a container names none."""
    total = dict(_rounded(_total(spec, DEFAULT_NONZERO, None)))
    return total.get("cpu", 0), total.get("memory", 0)


def allocatable(amounts: Mapping[str, QuantityText]) -> dict[str, int]:
    """A node's allocatable: cpu in thousandths, everything else in units."""
    return {name: _round(name, nanos(text)) for name, text in amounts.items()}


class _Actual:
    """What the kubelet says it gave: ``status.containerStatuses`` and the pod-level counterpart."""

    def __init__(self, status: PodStatus) -> None:
        statuses = (*status.container_statuses, *status.init_container_statuses)
        self._of = {one.name: one for one in statuses if one.resources is not None}
        self._pod = status
        pending = next((c for c in status.conditions if c.type == "PodResizePending"), None)
        self._infeasible = pending is not None and pending.reason == "Infeasible"

    def of_container(self, container: Container, wanted: Nanos) -> Nanos:
        if (status := self._of.get(container.name)) is None or status.resources is None:
            return wanted
        return self._effective(wanted, status.resources, status.allocated_resources)

    def of_pod(self, wanted: Nanos) -> Nanos:
        if self._pod.resources is None:
            return wanted
        return self._effective(wanted, self._pod.resources, self._pod.allocated_resources)

    def _effective(self, wanted: Nanos, actuated: ResourceRequirements, allocated: Mapping[str, QuantityText]) -> Nanos:
        given = _larger(_parsed(actuated.requests), _parsed(allocated))
        return given if self._infeasible else _larger(wanted, given)


def _total(spec: PodSpec, defaults: Nanos, actual: _Actual | None) -> Nanos:
    total = _containers(spec, defaults, actual)
    if spec.resources is not None and any(map(_pod_level, spec.resources.requests)):
        wanted = _parsed(spec.resources.requests)
        given = actual.of_pod(wanted) if actual else wanted
        total |= {name: given.get(name, 0) for name in wanted if _pod_level(name)}
    return _sum((total, _parsed(spec.overhead)))


def _containers(spec: PodSpec, defaults: Nanos, actual: _Actual | None) -> Nanos:
    """The sum of what runs together, or the largest moment of the start-up, whichever is more."""
    total = _sum(_of_container(one, defaults, actual) for one in spec.containers)
    sidecars: Nanos = {}
    largest: Nanos = {}
    for one in spec.init_containers:
        sidecar = one.restart_policy == "Always"
        wanted = _of_container(one, defaults, actual if sidecar else None)
        moment = _sum((wanted, sidecars))
        if sidecar:
            sidecars = moment
            total = _sum((total, wanted))
        largest = _larger(largest, moment)
    return _larger(total, largest)


def _of_container(container: Container, defaults: Nanos, actual: _Actual | None) -> Nanos:
    wanted = _parsed(container.resources.requests)
    if actual is not None:
        wanted = actual.of_container(container, wanted)
    return defaults | wanted if defaults else wanted


def _pod_level(resource: str) -> bool:
    return resource in ("cpu", "memory") or resource.startswith("hugepages-")


def _parsed(amounts: Mapping[str, QuantityText]) -> Nanos:
    return {name: nanos(text) for name, text in amounts.items()}


def _sum(parts: Iterable[Nanos]) -> Nanos:
    total: Nanos = {}
    for part in parts:
        for name, amount in part.items():
            total[name] = total.get(name, 0) + amount
    return total


def _larger(one: Nanos, other: Nanos) -> Nanos:
    return one | {name: max(amount, one.get(name, amount)) for name, amount in other.items()}


def _round(resource: str, amount: int) -> int:
    return ceil_millis(amount) if resource == "cpu" else ceil_units(amount)


def _rounded(amounts: Nanos) -> Amounts:
    rounded = ((name, _round(name, amount)) for name, amount in sorted(amounts.items()))
    return tuple((name, amount) for name, amount in rounded if amount)
