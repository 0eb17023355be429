"""An external gRPC service as a cloud provider. The service identifies nodes by their provider ID. Separate,
because it needs the extra ``grpc``, and is imported after a check of it.
"""

import datetime as dt
from collections.abc import Mapping, Sequence
from decimal import Decimal
from pathlib import Path

from rescheduler import errors
from rescheduler.clock import Clock
from rescheduler.providers.base import (
    CloudProvider,
    DeleteOutcome,
    GroupOptions,
    Instance,
    MayEnd,
    NodeGroup,
    NodeRef,
    NodeTemplate,
    NotSupported,
    Refused,
    any_may_end,
)
from rescheduler.providers.externalgrpc import codec, wire
from rescheduler.providers.externalgrpc.channel import Channel, ExternalGrpcFile, read_file
from rescheduler.providers.externalgrpc.codec import Verbs
from rescheduler.providers.externalgrpc.removal import GrpcRemoval


def load(config: Path, clock: Clock) -> CloudProvider:
    """Load the provider from the `--cloud-config` file, without making a call."""
    return ExternalGrpcProvider(read_file(config), config.parent, clock)


class ExternalGrpcProvider(CloudProvider):
    name = "externalgrpc"

    def __init__(self, file: ExternalGrpcFile, folder: Path, clock: Clock) -> None:
        """Create the provider. Relative paths in *file* are based on *folder*. Raises ConfigError."""
        self._clock = clock
        self._channel = Channel(file, folder, clock)
        self._verbs = Verbs(self._channel)
        self._removal = GrpcRemoval(self._channel, self._verbs, clock, file.poll_interval)

    def refresh(self, *, deadline: float) -> None:
        self._verbs.refresh(deadline=deadline)

    def groups(self, *, deadline: float) -> Sequence[NodeGroup]:
        return self._verbs.groups(deadline=deadline)

    def group_for(self, node: NodeRef, *, deadline: float) -> NodeGroup | None:
        if node.on_control_plane or not node.provider_id:
            return None
        return self._verbs.group_for(node, deadline=deadline)

    def target_size(self, group: str, *, deadline: float) -> int:
        return self._verbs.target_size(group, deadline=deadline)

    def instances(self, group: str, *, deadline: float) -> Sequence[Instance]:
        return self._verbs.instances(group, deadline=deadline)

    def delete_nodes(
        self, group: str, nodes: Sequence[NodeRef], *, deadline: float, may_end: MayEnd = any_may_end
    ) -> Mapping[str, DeleteOutcome]:
        return self._removal.delete(group, nodes, deadline=deadline, may_end=may_end)

    def refusals(self, group: str, nodes: Sequence[NodeRef], *, deadline: float) -> Mapping[str, Refused]:
        return self._removal.refusals(group, nodes, deadline=deadline)

    def increase_size(self, group: str, delta: int, *, deadline: float) -> None:
        self._verbs.increase_size(group, _positive(delta), deadline=deadline)

    def decrease_target_size(self, group: str, delta: int, *, deadline: float) -> None:
        self._verbs.decrease_target_size(group, -_positive(-delta), deadline=deadline)

    def template(self, group: str, *, deadline: float) -> NodeTemplate:
        request = wire.NodeGroupTemplateNodeInfoRequest(id=group)
        response = self._verbs.of_group("NodeGroupTemplateNodeInfo", request, deadline)
        raw = response.nodeBytes or response.nodeInfo
        if not raw:
            raise NotSupported(f"externalgrpc {self._channel.address}: no template of group {group}")
        return codec.template(raw)

    def options(self, group: str, *, deadline: float) -> GroupOptions | None:
        """Return the options. No defaults are sent, so options that the service omits are zero."""
        request = wire.NodeGroupAutoscalingOptionsRequest(id=group)
        try:
            response = self._verbs.of_group("NodeGroupGetOptions", request, deadline)
        except NotSupported:
            return None
        if not response.HasField("nodeGroupAutoscalingOptions"):
            return None
        try:
            return codec.options(response.nodeGroupAutoscalingOptions)
        except ValueError as error:
            raise errors.Permanent(
                f"externalgrpc {self._channel.address}: options of group {group}: {error}"
            ) from error

    def has_instance(self, node: NodeRef, *, deadline: float) -> bool | None:
        """Return True if the service lists the machine, otherwise `None`: the protocol cannot express absence."""
        group = self.group_for(node, deadline=deadline)
        listed = self.instances(group.id, deadline=deadline) if group else ()
        return True if node.provider_id in {instance.id for instance in listed} else None

    def node_price(self, node: NodeRef, start: dt.datetime, end: dt.datetime, *, deadline: float) -> float:
        request = wire.PricingNodePriceRequest(node=codec.node_message(node))
        return self._price("PricingNodePrice", request, start, end, deadline)

    def pod_price(
        self, requests: Mapping[str, Decimal], start: dt.datetime, end: dt.datetime, *, deadline: float
    ) -> float:
        pod = codec.pod_bytes(requests)
        return self._price("PricingPodPrice", wire.PricingPodPriceRequest(pod=pod, pod_bytes=pod), start, end, deadline)

    def gpu_label(self) -> str:
        return str(self._channel.read("GPULabel", wire.GPULabelRequest(), deadline=self._default_deadline()).label)

    def gpu_types(self) -> frozenset[str]:
        request = wire.GetAvailableGPUTypesRequest()
        return frozenset(
            self._channel.read("GetAvailableGPUTypes", request, deadline=self._default_deadline()).gpuTypes
        )

    def close(self) -> None:
        """Close the channel. Cleanup is not called: the service may have other callers."""
        self._channel.close()

    def _price(
        self,
        rpc: str,
        request: wire.PricingNodePriceRequest | wire.PricingPodPriceRequest,
        start: dt.datetime,
        end: dt.datetime,
        deadline: float,
    ) -> float:
        codec.set_moment(request, "startTimestamp", "startTime", start)
        codec.set_moment(request, "endTimestamp", "endTime", end)
        return float(self._channel.read(rpc, request, deadline=deadline).price)

    def _default_deadline(self) -> float:
        """Return the deadline for verbs without a deadline argument. It exceeds the time limit of a call."""
        return self._clock.monotonic() + 60


def _positive(delta: int) -> int:
    if delta <= 0:
        raise errors.UsageError(f"externalgrpc: a change of size by {delta} has the wrong sign")
    return delta
