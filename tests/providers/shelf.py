"""A provider with preset responses for tests of the service, and clients that send raw bytes."""

# ruff: noqa: ARG002 -- the protocol defines the signatures

import datetime as dt
from collections.abc import Mapping, Sequence
from decimal import Decimal
from typing import Any

import grpc
import pytest
from google.protobuf.message_factory import GetMessageClass

from rescheduler.providers.base import (
    CloudProvider,
    Deleted,
    DeleteOutcome,
    GroupOptions,
    Instance,
    InstanceError,
    InstanceState,
    MayEnd,
    NodeGroup,
    NodeRef,
    NodeTaint,
    NodeTemplate,
    any_may_end,
)
from rescheduler.providers.externalgrpc import wire
from rescheduler.providers.externalgrpc.channel import SERVICE

TEMPLATE = NodeTemplate(
    {"zone": "a"}, (NodeTaint("spot", "yes", "NoSchedule"),), {"cpu": "4", "memory": "16Gi"}, {"cpu": "3900m"}
)


class Shelf(CloudProvider):
    """A provider of one group "g" that returns preset responses and records its calls."""

    name = "shelf"

    def __init__(self) -> None:
        self.error: Exception | None = None
        self.outcomes: dict[str, DeleteOutcome] = {}
        self.asked: list[Any] = []
        self.deadlines: list[float] = []
        self.given: GroupOptions | None = None
        self.owned = False  #: whether nodes without a provider ID belong to the group
        self.listed: dict[str, str] = {}  #: name of a node → id of its instance

    def _ask(self, deadline: float, *arguments: Any) -> None:
        self.deadlines.append(deadline)
        self.asked.append(arguments)
        if self.error is not None:
            raise self.error

    def refresh(self, *, deadline: float) -> None:
        self._ask(deadline)

    def groups(self, *, deadline: float) -> Sequence[NodeGroup]:
        self._ask(deadline)
        return [NodeGroup("g", 1, 2**40, "for tests")]

    def group_for(self, node: NodeRef, *, deadline: float) -> NodeGroup | None:
        self._ask(deadline, node)
        ours = node.provider_id.startswith("shelf://") or (self.owned and not node.provider_id)
        return NodeGroup("g", 1, 3) if ours else None

    def target_size(self, group: str, *, deadline: float) -> int:
        self._ask(deadline, group)
        return 2

    def instances(self, group: str, *, deadline: float) -> Sequence[Instance]:
        self._ask(deadline, group)
        return [
            Instance("shelf://1", InstanceState.RUNNING),
            Instance("shelf://2", InstanceState.CREATING, InstanceError("quota", "no more", out_of_resources=True)),
            Instance("shelf://3", InstanceState.DELETING, InstanceError("", "odd")),
            Instance("shelf://4", InstanceState.UNKNOWN),
        ]

    def delete_nodes(
        self, group: str, nodes: Sequence[NodeRef], *, deadline: float, may_end: MayEnd = any_may_end
    ) -> Mapping[str, DeleteOutcome]:
        self._ask(deadline, group, *nodes)
        return {node.name: self.outcomes.get(node.name, Deleted()) for node in nodes}

    def instance_for(self, node: NodeRef, *, deadline: float) -> str | None:
        return self.listed.get(node.name)

    def increase_size(self, group: str, delta: int, *, deadline: float) -> None:
        self._ask(deadline, group, delta)

    def decrease_target_size(self, group: str, delta: int, *, deadline: float) -> None:
        self._ask(deadline, group, delta)

    def template(self, group: str, *, deadline: float) -> NodeTemplate:
        return TEMPLATE

    def options(self, group: str, *, deadline: float) -> GroupOptions | None:
        return self.given

    def node_price(self, node: NodeRef, start: dt.datetime, end: dt.datetime, *, deadline: float) -> float:
        self._ask(deadline, node.name, start, end)
        return 1.5

    def pod_price(
        self, requests: Mapping[str, Decimal], start: dt.datetime, end: dt.datetime, *, deadline: float
    ) -> float:
        self._ask(deadline, dict(requests), start, end)
        return 0.25

    def gpu_label(self) -> str:
        return "gpu"

    def gpu_types(self) -> frozenset[str]:
        return frozenset({"a100", "t4"})

    def close(self) -> None:
        self.asked.append("closed")


class Caller:
    """Calls with raw bytes, independent of our client."""

    def __init__(self, address: str) -> None:
        self.channel = grpc.insecure_channel(address)

    def raw(self, rpc: str, request: bytes, timeout: float | None = 120, service: str = SERVICE) -> bytes:
        response: bytes = self.channel.unary_unary(f"/{service}/{rpc}")(request, timeout=timeout)
        return response

    def __call__(self, rpc: str, request: Any, timeout: float | None = 120) -> Any:
        kind = GetMessageClass(wire.POOL.FindServiceByName(SERVICE).methods_by_name[rpc].output_type)
        return kind.FromString(self.raw(rpc, request.SerializeToString(), timeout))

    def failure(self, rpc: str, request: Any, timeout: float | None = 120) -> tuple[str, str]:
        with pytest.raises(grpc.RpcError) as caught:
            self(rpc, request, timeout)
        return caught.value.code().name, caught.value.details()

    def failure_in_time(self, rpc: str, request: Any, timeout: float, text: str) -> tuple[str, str]:
        """Return the failure that the service reports, containing *text*, just before the caller's *timeout*.

        Try up to five times, because a busy machine may delay the response beyond the timeout.
        """
        for _ in range(5):
            code, message = self.failure(rpc, request, timeout)
            if text in message:
                break
        return code, message
