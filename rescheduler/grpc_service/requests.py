"""Functions that read parts of requests. They raise UsageError for invalid requests."""

from decimal import Decimal

from google.protobuf.message import DecodeError, Message

from predicates import requests
from predicates.objects import PodObject
from rescheduler import errors
from rescheduler.kube import schema
from rescheduler.kube.proto_structs import reader
from rescheduler.providers.externalgrpc import codec, wire

_read_pod = reader(PodObject, schema.Pod)


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
        amounts = requests.requests(_read_pod(schema.Pod.FromString(pod)).spec)
    except (DecodeError, ValueError, OverflowError, TypeError) as error:  # TypeError: a required part is missing
        raise errors.UsageError(f"pod: expected a core/v1 Pod in protobuf: {error}") from error
    return {name: Decimal(amount) / 1000 if name == "cpu" else Decimal(amount) for name, amount in amounts}


def until_1_28(defaults: wire.NodeGroupAutoscalingOptions) -> bool:
    """Return whether the defaults come from a release up to 1.28, which sends no provision time."""
    provision = defaults.HasField("MaxNodeProvisionTime") or defaults.HasField("MaxNodeProvisionDuration")
    return defaults.HasField("scaleDownUnneededTime") and not provision
