"""What a pod requests: init containers, sidecars, pod-level resources, overhead, in-place resize.

Source: ``k8s.io/component-helpers/resource/helpers.go`` (``PodRequests``), KEP-753 (sidecars), KEP-1287
(in-place resize), KEP-2837 (pod-level resources). Amounts are summed exactly and rounded up once at the end, as
``framework.Resource`` does: cpu to thousandths, everything else to units.
"""

from collections.abc import Iterable, Mapping
from functools import lru_cache
from typing import Final, TypeAlias

from predicates.label_syntax import key_errors
from predicates.objects import (
    Amounts,
    Container,
    PodObject,
    PodSpec,
    PodStatus,
    QuantityText,
    ResourceRequirements,
)
from predicates.quantity import Quantity, QuantityError, parse

Quantities: TypeAlias = dict[str, Quantity]

#: What a container without a request counts for in scoring (``scheduler/util/pod_resources.go``).
DEFAULT_NONZERO: Final = {"cpu": Quantity(100, -3), "memory": Quantity(200 * 1024 * 1024, 0)}

#: The condition whose reason says whether a resize will be carried out.
RESIZE_PENDING: Final = "PodResizePending"

_NATIVE: Final = ("cpu", "memory", "ephemeral-storage")


def requests(spec: PodSpec) -> Amounts:
    """What a pod asks of a node before it has one."""
    return _rounded(_total(spec, {}, None))


def load(pod: PodObject) -> Amounts:
    """What a pod takes on its node: around a resize the larger of spec and status (``UseStatusResources``)."""
    return _rounded(_total(pod.spec, {}, _Actual(pod.status)))


def nonzero(spec: PodSpec) -> tuple[int, int]:
    """Requested cpu (thousandths) and memory, with the scoring defaults where a container names none.

    A pod with requests of its own gets a default only for what neither it nor any container names.
    """
    given = _total(spec, {}, None) if _pod_level_requests(spec) else {}
    total = _total(spec, {name: amount for name, amount in DEFAULT_NONZERO.items() if name not in given}, None)
    cpu, memory = total.get("cpu"), total.get("memory")
    return cpu.millis if cpu else 0, memory.units if memory else 0


def allocatable(amounts: Mapping[str, QuantityText]) -> dict[str, int]:
    """A node's allocatable: cpu in thousandths, everything else in units. Names that nobody counts are left out."""
    named = parsed(amounts).items()
    return {name: _round(name, amount) for name, amount in named if name == "pods" or counted(name)}


def parsed(amounts: Mapping[str, QuantityText | None]) -> Quantities:
    """The quantities of what is given. Raises :class:`QuantityError` naming the one that is broken."""
    found = {}
    for name, text in amounts.items():
        try:
            if text is not None:
                found[name] = parse(text)
        except QuantityError as error:
            raise QuantityError(f"{name}: {error}") from error
    return found


@lru_cache(maxsize=4096)
def counted(resource: str) -> bool:
    """Whether the scheduler counts what is called *resource* (``schedutil.IsScalarResourceName`` and the native)."""
    if resource in _NATIVE or resource.startswith(("hugepages-", "attachable-volumes-")):
        return True
    return "kubernetes.io/" in resource or is_extended(resource)


@lru_cache(maxsize=4096)
def is_extended(resource: str) -> bool:
    """Whether it is a resource of somebody's own, as ``nvidia.com/gpu`` (``IsExtendedResourceName``)."""
    if "/" not in resource or "kubernetes.io/" in resource or resource.startswith("requests."):
        return False
    return not key_errors(f"requests.{resource}")


class _Actual:
    """What the kubelet says it gave: ``status.containerStatuses`` and the pod-level counterpart."""

    def __init__(self, status: PodStatus) -> None:
        statuses = (*status.container_statuses, *status.init_container_statuses)
        self._of = {one.name: one for one in statuses}
        self._pod = status
        pending = next((c for c in status.conditions if c.type == RESIZE_PENDING), None)
        self._infeasible = pending is not None and pending.reason == "Infeasible"

    def of_container(self, container: Container, wanted: Quantities) -> Quantities:
        if (status := self._of.get(container.name)) is None or status.resources is None:
            return wanted
        return self._effective(wanted, status.resources, status.allocated_resources)

    def of_pod(self, wanted: Quantities) -> Quantities:
        if self._pod.resources is None:
            return wanted
        return self._effective(wanted, self._pod.resources, self._pod.allocated_resources)

    def _effective(
        self, wanted: Quantities, actuated: ResourceRequirements, allocated: Mapping[str, QuantityText]
    ) -> Quantities:
        given = parsed(actuated.requests)
        return _larger(given if self._infeasible else _larger(wanted, given), parsed(allocated))


def _total(spec: PodSpec, defaults: Quantities, actual: _Actual | None) -> Quantities:
    total = _containers(spec, defaults, actual)
    if spec.resources is not None and _pod_level_requests(spec):
        wanted = parsed(spec.resources.requests)
        given = actual.of_pod(wanted) if actual else wanted
        total |= {name: given.get(name, Quantity(0, 0)) for name in wanted if _pod_level(name)}
    return _sum((total, parsed(spec.overhead)))


def _containers(spec: PodSpec, defaults: Quantities, actual: _Actual | None) -> Quantities:
    """The sum of what runs together, or the largest moment of the start-up, whichever is more."""
    total = _sum(_of_container(one, defaults, actual) for one in spec.containers)
    sidecars: Quantities = {}
    largest: Quantities = {}
    for one in spec.init_containers:
        sidecar = one.restart_policy == "Always"
        wanted = _of_container(one, defaults, actual if sidecar else None)
        moment = _sum((wanted, sidecars))
        if sidecar:
            sidecars = moment
            total = _sum((total, wanted))
        largest = _larger(largest, moment)
    return _larger(total, largest)


def _of_container(container: Container, defaults: Quantities, actual: _Actual | None) -> Quantities:
    wanted = parsed(container.resources.requests)
    if actual is not None:
        wanted = actual.of_container(container, wanted)
    return defaults | wanted if defaults else wanted


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


def _larger(one: Quantities, other: Quantities) -> Quantities:
    return one | {name: one[name].larger(amount) if name in one else amount for name, amount in other.items()}


def _round(resource: str, amount: Quantity) -> int:
    return amount.millis if resource == "cpu" else amount.units


def _rounded(amounts: Quantities) -> Amounts:
    rounded = ((name, _round(name, amount)) for name, amount in sorted(amounts.items()) if counted(name))
    return tuple((name, amount) for name, amount in rounded if amount)
