"""The verbs of the service, which convert a request message and a deadline to a response message or an error."""

import logging
import threading
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace
from decimal import Decimal
from typing import Final, TypeVar

from google.protobuf.message import DecodeError, Message

from predicates.objects import Container, PodSpec, QuantityText, ResourceRequirements
from predicates.requests import new_load
from rescheduler import errors
from rescheduler.clock import Clock
from rescheduler.providers.base import (
    Accepted,
    AlreadyGone,
    CloudProvider,
    Deleted,
    DeleteOutcome,
    Failed,
    NodeRef,
    NotSupported,
    Refusal,
    Refused,
    UnknownGroup,
    any_may_end,
    error_of,
)
from rescheduler.providers.externalgrpc import channel, codec, core, wire

# Nodes that Cluster Autoscaler cannot match to their instance because their provider ID differs from its ID.
#
# It considers an instance registered if the ``spec.providerID`` of a Node equals its ID, and deletes one that is not
# registered after ``--max-node-provision-time`` (clusterstate.go), regardless of the pods that run on it. A kubelet may
# spell the ID differently from the cloud, or have none. Cluster Autoscaler requests the group of every Node in each of
# its rounds, and this module records the machines' Nodes from these calls.

#: Seconds for which a Node is stored: longer than a round, and shorter than the wait for a machine to register.
MEMORY: Final = 600.0


@dataclass(frozen=True, slots=True)
class _JoinedNode:
    node: NodeRef
    at: float


class Joined:
    """The Nodes of machines, by the provider's ID of the machine. Thread-safe."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._lock = threading.Lock()
        self._seen: dict[str, _JoinedNode] = {}

    def record(self, instance: str, node: NodeRef) -> None:
        """Record that *node* exists and that its machine is listed as *instance*."""
        now = self._clock.monotonic()
        with self._lock:
            if node.provider_id == instance:
                self._seen.pop(instance, None)
            else:
                self._seen[instance] = _JoinedNode(node, now)
            for old in [key for key, seen in self._seen.items() if now - seen.at > MEMORY]:
                del self._seen[old]

    def node(self, instance: str) -> NodeRef | None:
        """Return the Node of the machine listed as *instance*, if a recent one has another provider ID."""
        with self._lock:
            seen = self._seen.get(instance)
        return seen.node if seen and self._clock.monotonic() - seen.at <= MEMORY else None


# Functions that read parts of requests. They raise UsageError for invalid requests.


def require_field(message: Message, name: str) -> None:
    """Raise UsageError unless *message* has the field *name*."""
    if not message.HasField(name):
        raise errors.UsageError(f"{name}: missing")


def times(request: wire.PricingNodePriceRequest | wire.PricingPodPriceRequest) -> tuple[codec.WireTime, codec.WireTime]:
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
        amounts = new_load(_pod_spec(decoded.spec)).amounts
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


# Responses take into account how Cluster Autoscaler reacts (cluster-autoscaler/cloudprovider/externalgrpc):
#
# * UNIMPLEMENTED means "not supported" for prices, templates and options, but releases up to 1.28 treat it as a failure
#   of options. Those are recognized by the defaults that they send (no provision time) and get a response without
#   options, which they treat as the defaults.
# * After a failed DeleteNodes, Cluster Autoscaler removes its deletion taint. An order that may still take effect
# therefore gets the status OK: no pod may be scheduled to a machine that is about to be deleted. Cluster Autoscaler
#   learns the result from NodeGroupNodes.
# * Cleanup is ignored: other callers, and the same one after a restart, still need the backend.

log = logging.getLogger(__name__)

T = TypeVar("T", bound=Message)


@dataclass(slots=True)
class Call:
    """The context of a call, and the data that its verb adds to the response."""

    deadline: float  #: monotonic seconds of the provider's clock
    metadata: Iterable[tuple[str, str | bytes]] = ()
    trailers: list[tuple[str, str | bytes]] = field(default_factory=list)
    outcomes: Mapping[str, DeleteOutcome] = field(default_factory=dict)  #: by node name, for a deletion


class OneRequest:
    """Allows one request for each node: a caller that looks at the cluster before each one repeats the call."""

    _USED: Final = "the request failed"

    def __init__(self) -> None:
        self._sent: set[str] = set()

    def __call__(self, node: NodeRef) -> None:
        """Raise Withheld for all but the first request for *node*."""
        if node.name in self._sent:
            raise errors.Withheld(self._USED)
        self._sent.add(node.name)

    def outcome(self, outcome: DeleteOutcome) -> DeleteOutcome:
        """Return *outcome*, as a failure if the request would have been repeated."""
        if outcome == Refused(Refusal.WITHHELD, self._USED):
            return Failed(f"{self._USED}; the machine keeps running", retryable=True)
        return outcome


class ProviderService:
    """One method per RPC. Errors are ReschedulerErrors; UsageError means that the request is invalid."""

    def __init__(self, provider: CloudProvider, clock: Clock) -> None:
        self._provider = provider
        self._joined = Joined(clock)

    def verbs(self) -> Mapping[str, Callable[[Message, Call], Message]]:
        """Return the methods by the name of their RPC."""
        return {
            "NodeGroups": _verb(wire.NodeGroupsRequest, self.node_groups),
            "NodeGroupForNode": _verb(wire.NodeGroupForNodeRequest, self.node_group_for_node),
            "PricingNodePrice": _verb(wire.PricingNodePriceRequest, self.node_price),
            "PricingPodPrice": _verb(wire.PricingPodPriceRequest, self.pod_price),
            "GPULabel": _verb(wire.GPULabelRequest, self.gpu_label),
            "GetAvailableGPUTypes": _verb(wire.GetAvailableGPUTypesRequest, self.gpu_types),
            "Cleanup": _verb(wire.CleanupRequest, self.cleanup),
            "Refresh": _verb(wire.RefreshRequest, self.refresh),
            "NodeGroupTargetSize": _verb(wire.NodeGroupTargetSizeRequest, self.target_size),
            "NodeGroupIncreaseSize": _verb(wire.NodeGroupIncreaseSizeRequest, self.increase_size),
            "NodeGroupDeleteNodes": _verb(wire.NodeGroupDeleteNodesRequest, self.delete_nodes),
            "NodeGroupDecreaseTargetSize": _verb(wire.NodeGroupDecreaseTargetSizeRequest, self.decrease_target_size),
            "NodeGroupNodes": _verb(wire.NodeGroupNodesRequest, self.nodes),
            "NodeGroupTemplateNodeInfo": _verb(wire.NodeGroupTemplateNodeInfoRequest, self.template),
            "NodeGroupGetOptions": _verb(wire.NodeGroupAutoscalingOptionsRequest, self.options),
        }

    def node_groups(self, _: wire.NodeGroupsRequest, call: Call) -> wire.NodeGroupsResponse:
        groups = self._provider.groups(deadline=call.deadline)
        return wire.NodeGroupsResponse(nodeGroups=[codec.group_message(group) for group in groups])

    def node_group_for_node(self, request: wire.NodeGroupForNodeRequest, call: Call) -> wire.NodeGroupForNodeResponse:
        """Return the node's group; an empty one for foreign nodes and for placeholders of machines that have joined."""
        require_field(request, "node")
        node = codec.node(request.node)
        group = self._provider.group_for(node, deadline=call.deadline)
        if group is not None and self._joined_node(node, call.deadline):
            group = None
        return wire.NodeGroupForNodeResponse(nodeGroup=codec.group_message(group) if group else wire.NodeGroup())

    def node_price(self, request: wire.PricingNodePriceRequest, call: Call) -> wire.PricingNodePriceResponse:
        require_field(request, "node")
        start, end = times(request)
        node = codec.node(request.node)
        return wire.PricingNodePriceResponse(price=self._provider.node_price(node, start, end, deadline=call.deadline))

    def pod_price(self, request: wire.PricingPodPriceRequest, call: Call) -> wire.PricingPodPriceResponse:
        start, end = times(request)
        amounts = pod_requests(request.pod_bytes or request.pod)
        return wire.PricingPodPriceResponse(price=self._provider.pod_price(amounts, start, end, deadline=call.deadline))

    def gpu_label(self, _: wire.GPULabelRequest, __: Call) -> wire.GPULabelResponse:
        return wire.GPULabelResponse(label=self._provider.gpu_label())

    def gpu_types(self, _: wire.GetAvailableGPUTypesRequest, __: Call) -> wire.GetAvailableGPUTypesResponse:
        """Return the GPU types as keys; the values have no meaning."""
        response = wire.GetAvailableGPUTypesResponse()
        for name in self._provider.gpu_types():
            response.gpuTypes[name].SetInParent()
        return response

    def cleanup(self, _: wire.CleanupRequest, __: Call) -> wire.CleanupResponse:
        return wire.CleanupResponse()

    def refresh(self, _: wire.RefreshRequest, call: Call) -> wire.RefreshResponse:
        self._provider.refresh(deadline=call.deadline)
        return wire.RefreshResponse()

    def target_size(self, request: wire.NodeGroupTargetSizeRequest, call: Call) -> wire.NodeGroupTargetSizeResponse:
        size = self._provider.target_size(request.id, deadline=call.deadline)
        return wire.NodeGroupTargetSizeResponse(targetSize=codec.int32(size))

    def increase_size(
        self, request: wire.NodeGroupIncreaseSizeRequest, call: Call
    ) -> wire.NodeGroupIncreaseSizeResponse:
        if request.delta <= 0:
            raise errors.UsageError(f"delta: expected more than 0, got {request.delta}")
        self._provider.increase_size(request.id, request.delta, deadline=call.deadline)
        return wire.NodeGroupIncreaseSizeResponse()

    def decrease_target_size(
        self, request: wire.NodeGroupDecreaseTargetSizeRequest, call: Call
    ) -> wire.NodeGroupDecreaseTargetSizeResponse:
        if request.delta >= 0:
            raise errors.UsageError(f"delta: expected less than 0, got {request.delta}")
        self._provider.decrease_target_size(request.id, request.delta, deadline=call.deadline)
        return wire.NodeGroupDecreaseTargetSizeResponse()

    def delete_nodes(self, request: wire.NodeGroupDeleteNodesRequest, call: Call) -> wire.NodeGroupDeleteNodesResponse:
        """Delete nodes. The error has the class of the first failure and names all nodes that were not deleted."""
        try:
            ordered_at = channel.ordered_at(call.metadata)
        except ValueError as error:
            raise errors.UsageError(str(error)) from error
        nodes: dict[str, NodeRef] = {}
        for message in request.nodes:
            node = codec.node(message, ordered_at)
            if not node.name:
                raise errors.UsageError("nodes: expected a provider ID or a name")
            if nodes.setdefault(node.name, node).provider_id != node.provider_id:
                raise errors.UsageError(f"nodes: {node.name} occurs twice, with different provider IDs")
        single = channel.is_single(call.metadata)
        call.outcomes = results = self._delete(request.id, nodes, call.deadline, single=single)
        call.trailers += channel.trailer(results)
        for name, outcome in results.items():
            if isinstance(outcome, Deleted | AlreadyGone) and outcome.unshrunk:
                log.warning("group %s did not shrink with node %s: %s", request.id, name, outcome.unshrunk)
        if problem := _problem(results):
            raise problem
        return wire.NodeGroupDeleteNodesResponse()

    def nodes(self, request: wire.NodeGroupNodesRequest, call: Call) -> wire.NodeGroupNodesResponse:
        """Return the group's instances, each with the provider ID of its Node if known."""
        instances = self._provider.instances(request.id, deadline=call.deadline)
        known = [(instance, self._joined.node(instance.id)) for instance in instances]
        named = [
            replace(instance, id=node.provider_id) if node and node.provider_id else instance
            for instance, node in known
        ]
        return wire.NodeGroupNodesResponse(instances=[codec.instance_message(instance) for instance in named])

    def template(
        self, request: wire.NodeGroupTemplateNodeInfoRequest, call: Call
    ) -> wire.NodeGroupTemplateNodeInfoResponse:
        raw = codec.template_bytes(request.id, self._provider.template(request.id, deadline=call.deadline))
        return wire.NodeGroupTemplateNodeInfoResponse(nodeInfo=raw, nodeBytes=raw)

    def options(
        self, request: wire.NodeGroupAutoscalingOptionsRequest, call: Call
    ) -> wire.NodeGroupAutoscalingOptionsResponse:
        options = self._provider.options(request.id, deadline=call.deadline)
        if options is not None:
            try:
                merged = codec.options_message(options, request.defaults)
            except ValueError as error:
                raise errors.UsageError(f"defaults: {error}") from error
            return wire.NodeGroupAutoscalingOptionsResponse(nodeGroupAutoscalingOptions=merged)
        if request.id not in {group.id for group in self._provider.groups(deadline=call.deadline)}:
            raise UnknownGroup(f"{self._provider.name}: no group {request.id!r}")
        if until_1_28(request.defaults):
            return wire.NodeGroupAutoscalingOptionsResponse()
        raise NotSupported(f"{self._provider.name} has no options of group {request.id!r}")

    def _delete(
        self, group: str, nodes: Mapping[str, NodeRef], deadline: float, *, single: bool
    ) -> Mapping[str, DeleteOutcome]:
        """Delete the nodes, but refuse placeholders whose machine has joined the cluster under another provider ID.

        With *single*, the system gets one request for each node at most: the caller repeats the call.
        """
        kept = {
            name: Refused(Refusal.PROTECTED, f"the machine has joined as node {there.name}")
            for name, node in nodes.items()
            if node.placeholder and (there := self._joined_node(node, deadline))
        }
        others = [node for name, node in nodes.items() if name not in kept]
        once = OneRequest()
        may_end = once if single else any_may_end
        results: Mapping[str, DeleteOutcome] = {}
        if others or not nodes:
            results = self._provider.delete_nodes(group, others, deadline=deadline, may_end=may_end)
        return {name: kept.get(name) or once.outcome(results[name]) for name in nodes}

    def _joined_node(self, node: NodeRef, deadline: float) -> NodeRef | None:
        """Return the Node with which a placeholder's machine has joined. For a real Node, record its machine."""
        instance = self._provider.instance_for(node, deadline=deadline)
        if instance is None:
            return None
        if node.placeholder:
            return self._joined.node(instance)
        self._joined.record(instance, node)
        return None


def _verb(kind: type[T], method: Callable[[T, Call], Message]) -> Callable[[Message, Call], Message]:
    """Adapt *method* to accept any message, because generic handlers have no types."""

    def verb(message: Message, call: Call) -> Message:
        assert isinstance(message, kind)
        return method(message, call)

    return verb


def _problem(results: Mapping[str, DeleteOutcome]) -> errors.ReschedulerError | None:
    problems = [
        problem
        for name, outcome in results.items()
        if not isinstance(outcome, Accepted) and (problem := error_of(name, outcome))
    ]
    if not problems:
        return None
    text = "; ".join(str(problem) for problem in problems)
    return type(problems[0])(f"{len(problems)} of {len(results)} nodes are not deleted: {text}")
