"""The protocol's verbs with our values as arguments and results, and the conversion of both generations of fields."""

import datetime as dt
from collections.abc import Mapping, Sequence
from decimal import Decimal
from typing import Any, Final, TypeAlias

import grpc
from google.protobuf.message import DecodeError

from rescheduler import errors
from rescheduler.providers.base import (
    STATE_NUMBERS,
    STATES_BY_NUMBER,
    GroupOptions,
    Instance,
    InstanceError,
    InstanceState,
    NodeGroup,
    NodeRef,
    NodeTaint,
    NodeTemplate,
    UnknownGroup,
)
from rescheduler.providers.externalgrpc import core, wire
from rescheduler.providers.externalgrpc.channel import Channel

# Conversion between our values and the protocol's messages, with both generations of fields.
#
# Responses have the old and the new fields; in requests the new field takes precedence. Numbers beyond the protocol's
# 32 bits are clamped.

WireTime: TypeAlias = dt.datetime

_INT32: Final = 2**31 - 1
_NANOS: Final = 10**9
_SECOND: Final = dt.timedelta(seconds=1)
_MICROSECOND: Final = dt.timedelta(microseconds=1)
_EPOCH: Final = dt.datetime(1970, 1, 1, tzinfo=dt.UTC)

#: ``InstanceErrorClass`` of cluster-autoscaler/cloudprovider/cloud_provider.go.
_OUT_OF_RESOURCES: Final = 1
_OTHER: Final = 99


def int32(number: int) -> int:
    return max(-_INT32, min(_INT32, number))


def group_message(group: NodeGroup) -> wire.NodeGroup:
    return wire.NodeGroup(id=group.id, minSize=int32(group.min_size), maxSize=int32(group.max_size), debug=group.debug)


def group_of(message: wire.NodeGroup) -> NodeGroup:
    return NodeGroup(message.id, message.minSize, message.maxSize, message.debug)


def node_message(node: NodeRef) -> wire.ExternalGrpcNode:
    return wire.ExternalGrpcNode(
        providerID=node.provider_id, name=node.name, labels=node.labels, annotations=node.annotations
    )


def node(message: wire.ExternalGrpcNode, ordered_at: dt.datetime | None = None) -> NodeRef:
    """Convert a node; a node without a name gets its provider ID as its name, like placeholders."""
    return NodeRef(
        message.name or message.providerID,
        message.providerID,
        dict(message.labels),
        dict(message.annotations),
        ordered_at=ordered_at,
    )


def instance_message(instance: Instance) -> wire.Instance:
    status = wire.InstanceStatus(errorInfo=wire.InstanceErrorInfo())
    status.instanceState = STATE_NUMBERS[instance.state]  # type: ignore[assignment]  # an enum is its number
    if instance.error is not None:
        status.errorInfo.errorCode = instance.error.code or "error"  # an empty code would mean no error
        status.errorInfo.errorMessage = instance.error.message
        status.errorInfo.instanceErrorClass = _OUT_OF_RESOURCES if instance.error.out_of_resources else _OTHER
    return wire.Instance(id=instance.id, status=status)


def instance_of(message: wire.Instance) -> Instance:
    """Convert an instance as upstream does: unknown states become UNKNOWN, and an error needs a code and a state."""
    state = STATES_BY_NUMBER.get(message.status.instanceState, InstanceState.UNKNOWN)
    info, error = message.status.errorInfo, None
    if info.errorCode and state is not InstanceState.UNKNOWN:
        error = InstanceError(info.errorCode, info.errorMessage, info.instanceErrorClass == _OUT_OF_RESOURCES)
    return Instance(message.id, state, error)


def template_bytes(group_id: str, template: NodeTemplate) -> bytes:
    """Encode a ready core/v1 Node in protobuf, without the API's envelope. Cluster Autoscaler expects a Ready node."""
    node = core.Node(metadata=core.ObjectMeta(name=f"template-{group_id}", labels=template.labels))
    for taint in template.taints:
        node.spec.taints.add(key=taint.key, value=taint.value, effect=taint.effect)
    for amounts, target in ((template.capacity, node.status.capacity), (template.allocatable, node.status.allocatable)):
        for name, amount in amounts.items():
            target[name].string = amount
    node.status.conditions.add(type="Ready", status="True")
    return node.SerializeToString(deterministic=True)


def template(raw: bytes) -> NodeTemplate:
    """Decode a core/v1 Node. Raises Permanent for invalid bytes."""
    try:
        node = core.Node.FromString(raw)
    except DecodeError as error:
        raise errors.Permanent(f"the template is not a core/v1 Node in protobuf: {error}") from error
    capacity = {name: amount.string for name, amount in node.status.capacity.items()}
    allocatable = {name: amount.string for name, amount in node.status.allocatable.items()}
    return NodeTemplate(
        dict(node.metadata.labels),
        tuple(NodeTaint(taint.key, taint.value, taint.effect) for taint in node.spec.taints),
        capacity,
        allocatable or capacity,
    )


def pod_bytes(requests: Mapping[str, Decimal]) -> bytes:
    """Encode a core/v1 Pod in protobuf with a container that requests *requests* (cores, bytes, units)."""
    pod = core.Pod(metadata=core.ObjectMeta(name="pod", namespace="default"))
    wanted = pod.spec.containers.add(name="pod").resources.requests
    for name, amount in requests.items():
        wanted[name].string = f"{amount:f}"
    return pod.SerializeToString(deterministic=True)


def moment(message: Any, new: str, old: str) -> dt.datetime | None:
    """Return a request's time from the field *new* or *old*; `None` if neither is set. Raises ValueError."""
    for name in (new, old):
        if message.HasField(name):
            value = getattr(message, name)
            try:
                return _EPOCH + _duration_of(value)
            except OverflowError as error:
                raise ValueError(f"{name}: {value.seconds} s is out of range") from error
    return None


def set_moment(message: Any, new: str, old: str, value: dt.datetime) -> None:
    """Set both fields: the old one in whole seconds, as Kubernetes does."""
    seconds, nanos = _split(value - _EPOCH)
    getattr(message, new).seconds = getattr(message, old).seconds = seconds
    getattr(message, new).nanos = nanos


#: Field of GroupOptions → the new field, and the old field if there is one.
_DURATIONS: Final = {
    "unneeded_time": ("scaleDownUnneededDuration", "scaleDownUnneededTime"),
    "unready_time": ("scaleDownUnreadyDuration", "scaleDownUnreadyTime"),
    "max_provision_time": ("MaxNodeProvisionDuration", "MaxNodeProvisionTime"),
    "max_startup_time": ("maxNodeStartupDuration", ""),
}
_PLAIN: Final = {
    "utilization_threshold": "scaleDownUtilizationThreshold",
    "gpu_utilization_threshold": "scaleDownGpuUtilizationThreshold",
    "zero_or_max_scaling": "zeroOrMaxNodeScaling",
    "ignore_daemonsets_utilization": "ignoreDaemonSetsUtilization",
    "non_atomic_scale_up": "allowNonAtomicScaleUpToMax",
}


def options_message(
    options: GroupOptions, defaults: wire.NodeGroupAutoscalingOptions
) -> wire.NodeGroupAutoscalingOptions:
    """Merge *options* into the caller's *defaults*: the caller replaces all options, and reads missing ones as 0."""
    message = wire.NodeGroupAutoscalingOptions()
    message.CopyFrom(defaults)
    for field, wire_field in _PLAIN.items():
        if (value := getattr(options, field)) is not None:
            setattr(message, wire_field, value)
    for field, (new, old) in _DURATIONS.items():
        value = getattr(options, field)
        duration = _duration(defaults, new, old) if value is None else value
        if duration is not None:
            seconds, nanos = _split(duration)
            getattr(message, new).seconds, getattr(message, new).nanos = seconds, nanos
            if old:
                getattr(message, old).duration = seconds * _NANOS + nanos
    return message


def options(message: wire.NodeGroupAutoscalingOptions) -> GroupOptions:
    fields: dict[str, Any] = {field: _plain(message, wire_field) for field, wire_field in _PLAIN.items()}
    fields |= {field: _duration(message, *names) for field, names in _DURATIONS.items()}
    return GroupOptions(**fields)


def _plain(message: Any, name: str) -> Any:
    """Return the value of a field; `None` if the field tracks presence and is not set."""
    known = message.DESCRIPTOR.fields_by_name[name].has_presence
    return None if known and not message.HasField(name) else getattr(message, name)


def _duration(message: Any, new: str, old: str) -> dt.timedelta | None:
    try:
        if message.HasField(new):
            return _duration_of(getattr(message, new))
        if old and message.HasField(old):
            return _MICROSECOND * int(getattr(message, old).duration // 1000)
    except OverflowError as error:
        raise ValueError(f"{new}: out of range") from error
    return None


def _duration_of(value: Any) -> dt.timedelta:
    """Convert a message with seconds and nanos."""
    return _SECOND * int(value.seconds) + _MICROSECOND * int(value.nanos // 1000)


def _split(duration: dt.timedelta) -> tuple[int, int]:
    """Split *duration* into seconds and nanoseconds with the same sign, as google.protobuf.Duration requires."""
    micros = duration // _MICROSECOND
    sign = -1 if micros < 0 else 1
    seconds, rest = divmod(abs(micros), 10**6)
    return sign * seconds, sign * rest * 1000


# The protocol's verbs, with our values as arguments and results.


class Verbs:
    """Calls that read, and calls that change a size. Thread-safe."""

    def __init__(self, channel: Channel) -> None:
        self._channel = channel

    def refresh(self, *, deadline: float) -> None:
        self._channel.read("Refresh", wire.RefreshRequest(), deadline=deadline)

    def groups(self, *, deadline: float) -> Sequence[NodeGroup]:
        response = self._channel.read("NodeGroups", wire.NodeGroupsRequest(), deadline=deadline)
        return [group_of(group) for group in response.nodeGroups]

    def group(self, group: str, *, deadline: float) -> NodeGroup:
        """Return the group. Raises UnknownGroup."""
        groups = {known.id: known for known in self.groups(deadline=deadline)}
        if group not in groups:
            known = ", ".join(groups) or "none"
            raise UnknownGroup(f"externalgrpc {self._channel.address}: no group {group!r}; the groups are {known}")
        return groups[group]

    def group_for(self, node: NodeRef, *, deadline: float) -> NodeGroup | None:
        request = wire.NodeGroupForNodeRequest(node=node_message(node))
        response = self._channel.read("NodeGroupForNode", request, deadline=deadline)
        return group_of(response.nodeGroup) if response.nodeGroup.id else None

    def target_size(self, group: str, *, deadline: float) -> int:
        return int(self.of_group("NodeGroupTargetSize", wire.NodeGroupTargetSizeRequest(id=group), deadline).targetSize)

    def instances(self, group: str, *, deadline: float) -> Sequence[Instance]:
        response = self.of_group("NodeGroupNodes", wire.NodeGroupNodesRequest(id=group), deadline)
        return [instance_of(instance) for instance in response.instances]

    def increase_size(self, group: str, delta: int, *, deadline: float) -> None:
        request = wire.NodeGroupIncreaseSizeRequest(id=group, delta=delta)
        self._channel.write("NodeGroupIncreaseSize", request, deadline=deadline, raising=True)

    def decrease_target_size(self, group: str, delta: int, *, deadline: float) -> None:
        request = wire.NodeGroupDecreaseTargetSizeRequest(id=group, delta=delta)
        self._channel.write("NodeGroupDecreaseTargetSize", request, deadline=deadline)

    def of_group(self, rpc: str, request: Any, deadline: float) -> Any:
        """Call a verb that reads the group ``request.id``.

        Also raises UnknownGroup if the service returns UNKNOWN and does not list the group, as upstream's example
        server does.
        """
        response = self._channel.ask(rpc, request, deadline=deadline)
        if response.code is grpc.StatusCode.UNKNOWN:
            self.group(request.id, deadline=deadline)
        return self._channel.message_of(rpc, response)
