"""LimitRanges: the requests that they set for new pods, and the pods that they reject.

Sources: ``plugin/pkg/admission/limitranger/admission.go``, ``SetDefaults_LimitRangeItem`` of
``pkg/apis/core/v1/defaults.go``.
"""

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from itertools import chain
from typing import Final, NamedTuple

from predicates.objects import Container, LimitRange, LimitRangeItem, PodSpec, QuantityText
from predicates.quantity import ZERO, Quantity, parse
from predicates.snapshot import Snapshot
from predicates.texts import shown

Amounts = Mapping[str, QuantityText]

_CONTAINER: Final = "Container"
_POD: Final = "Pod"


class _Usage(NamedTuple):
    """What a container, or a pod, requests at least and at most."""

    what: str
    requests: Mapping[str, Quantity]
    limits: Mapping[str, Quantity]


class LimitRanges:
    """The LimitRanges of *snapshot* by namespace. Valid while they do not change."""

    def __init__(self, snapshot: Snapshot) -> None:
        self._items: defaultdict[str, list[tuple[str, LimitRangeItem]]] = defaultdict(list)
        for key, limits in sorted(snapshot.of("LimitRange").items()):
            if isinstance(limits, LimitRange):
                self._items[key.partition("/")[0]] += [(key, item) for item in limits.spec.limits]

    def default_requests(self, namespace: str) -> dict[str, QuantityText]:
        """Return the requests that are set for containers without requests and limits."""
        defaults: dict[str, QuantityText] = {}
        for _, item in self._items.get(namespace, ()):
            if item.type == _CONTAINER:
                defaults |= {**item.min, **_default_limits(item), **item.default_request}
        return defaults

    def rejection(self, namespace: str, spec: PodSpec) -> str:
        """Return why a new pod with *spec* would be rejected, or "". Raises QuantityError."""
        items = self._items.get(namespace, ())
        if not items:
            return ""
        default_limits: dict[str, QuantityText] = {}
        for _, item in items:
            if item.type == _CONTAINER:
                default_limits |= _default_limits(item)
        containers = [_usage(each, default_limits) for each in (*spec.containers, *spec.init_containers)]
        running = [_usage(each, default_limits) for each in _running(spec)]
        pod = _Usage("the pod", _sum([each.requests for each in running]), _sum([each.limits for each in running]))
        for key, item in items:
            for usage in containers if item.type == _CONTAINER else [pod] if item.type == _POD else ():
                if why := next(_violations(item, usage), ""):
                    return shown(f"LimitRange {key}: {why}")
        return ""


def _default_limits(item: LimitRangeItem) -> Amounts:
    return {**item.max, **item.default}


def _usage(container: Container, defaults: Amounts) -> _Usage:
    limits = {**defaults, **container.resources.limits}
    requests = {**container.resources.limits, **container.resources.requests}
    return _Usage(f"container {container.name}", _parsed(requests), _parsed(limits))


def _running(spec: PodSpec) -> Iterator[Container]:
    """Yield the containers that run at the same time."""
    yield from spec.containers
    yield from (container for container in spec.init_containers if container.restart_policy == "Always")


def _parsed(amounts: Amounts) -> dict[str, Quantity]:
    return {name: parse(amount) for name, amount in amounts.items()}


def _sum(amounts: Sequence[Mapping[str, Quantity]]) -> Mapping[str, Quantity]:
    total: dict[str, Quantity] = {}
    for name, amount in chain.from_iterable(each.items() for each in amounts):
        total[name] = total.get(name, ZERO).plus(amount)
    return total


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
