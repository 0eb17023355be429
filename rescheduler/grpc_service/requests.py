"""Functions that read parts of requests. They raise UsageError for invalid requests."""

from collections.abc import Iterable, Mapping
from decimal import Decimal

from google.protobuf.message import DecodeError, Message

from predicates import requests
from predicates.objects import Container, PodSpec, QuantityText, ResourceRequirements
from rescheduler import errors
from rescheduler.providers.externalgrpc import codec, core, wire


def require_field(message: Message, name: str) -> None:
    """Raise UsageError unless *message* has the field *name*."""
    if not message.HasField(name):
        raise errors.UsageError(f"{name}: missing")


def times(request: wire.PricingNodePriceRequest | wire.PricingPodPriceRequest) -> tuple[codec.Moment, codec.Moment]:
    """Return the start and the end of the period for which a price is requested."""
    try:
        start = codec.moment(request, "startTimestamp", "startTime")
        end = codec.moment(request, "endTimestamp", "endTime")
    except ValueError as error:
        raise errors.UsageError(str(error)) from error
    if start is None or end is None:
        raise errors.UsageError("start and end: expected both")
    return start, end


def pod_requests(pod: bytes) -> dict[str, Decimal]:
    """Return a pod's requests in cores, bytes and units."""
    if not pod:
        raise errors.UsageError("pod: missing")
    try:
        decoded = core.Pod.FromString(pod)
        require_field(decoded, "metadata")
        amounts = requests.requests(_pod_spec(decoded.spec))
    except (DecodeError, ValueError, OverflowError, errors.UsageError) as error:
        raise errors.UsageError(f"pod: expected a core/v1 Pod in protobuf: {error}") from error
    return {name: Decimal(amount) / 1000 if name == "cpu" else Decimal(amount) for name, amount in amounts}


def _pod_spec(spec: core.PodSpec) -> PodSpec:
    """Return the fields of *spec* that the requests of the pod follow from."""
    return PodSpec(
        containers=_containers(spec.containers),
        init_containers=_containers(spec.initContainers),
        overhead=_amounts(spec.overhead),
        resources=ResourceRequirements(_amounts(spec.resources.requests)) if spec.HasField("resources") else None,
    )


def _containers(containers: Iterable[core.Container]) -> tuple[Container, ...]:
    return tuple(
        Container(
            name=container.name,
            resources=ResourceRequirements(_amounts(container.resources.requests)),
            restart_policy=container.restartPolicy or None,
        )
        for container in containers
    )


def _amounts(quantities: Mapping[str, core.Quantity]) -> dict[str, QuantityText]:
    return {name: quantity.string for name, quantity in quantities.items()}


def until_1_28(defaults: wire.NodeGroupAutoscalingOptions) -> bool:
    """Return whether the defaults come from a release up to 1.28, which sends no provision time."""
    provision = defaults.HasField("MaxNodeProvisionTime") or defaults.HasField("MaxNodeProvisionDuration")
    return defaults.HasField("scaleDownUnneededTime") and not provision
