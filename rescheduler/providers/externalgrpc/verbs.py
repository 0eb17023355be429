"""The protocol's verbs, with our values as arguments and results."""

from collections.abc import Sequence
from typing import Any

import grpc

from rescheduler.providers.base import Instance, NodeGroup, NodeRef, UnknownGroup
from rescheduler.providers.externalgrpc import codec, wire
from rescheduler.providers.externalgrpc.channel import Channel


class Verbs:
    """Calls that read, and calls that change a size. Thread-safe."""

    def __init__(self, channel: Channel) -> None:
        self._channel = channel

    def refresh(self, *, deadline: float) -> None:
        self._channel.read("Refresh", wire.RefreshRequest(), deadline=deadline)

    def groups(self, *, deadline: float) -> Sequence[NodeGroup]:
        response = self._channel.read("NodeGroups", wire.NodeGroupsRequest(), deadline=deadline)
        return [codec.group(group) for group in response.nodeGroups]

    def group(self, group: str, *, deadline: float) -> NodeGroup:
        """Return the group. Raises UnknownGroup."""
        groups = {known.id: known for known in self.groups(deadline=deadline)}
        if group not in groups:
            known = ", ".join(groups) or "none"
            raise UnknownGroup(f"externalgrpc {self._channel.address}: no group {group!r}; the groups are {known}")
        return groups[group]

    def group_for(self, node: NodeRef, *, deadline: float) -> NodeGroup | None:
        request = wire.NodeGroupForNodeRequest(node=codec.node_message(node))
        response = self._channel.read("NodeGroupForNode", request, deadline=deadline)
        return codec.group(response.nodeGroup) if response.nodeGroup.id else None

    def target_size(self, group: str, *, deadline: float) -> int:
        return int(self.of_group("NodeGroupTargetSize", wire.NodeGroupTargetSizeRequest(id=group), deadline).targetSize)

    def instances(self, group: str, *, deadline: float) -> Sequence[Instance]:
        response = self.of_group("NodeGroupNodes", wire.NodeGroupNodesRequest(id=group), deadline)
        return [codec.instance(instance) for instance in response.instances]

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
