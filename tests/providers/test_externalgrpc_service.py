"""The service's wire behavior: statuses, deadlines, health, reflection."""

import threading
from typing import Any

import grpc
import pytest
from google.protobuf.descriptor_pool import DescriptorPool
from grpc_health.v1 import health_pb2
from grpc_reflection.v1alpha.proto_reflection_descriptor_database import ProtoReflectionDescriptorDatabase
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from rescheduler import errors
from rescheduler.clock import SystemClock
from rescheduler.errors import AuthError, BackendUnavailable, ConfigError, DeadlineExceeded, RateLimited
from rescheduler.grpc_service.server import THREADS
from rescheduler.providers.base import (
    AboveMaximum,
    Accepted,
    AlreadyGone,
    BelowMinimum,
    DeleteOutcome,
    Failed,
    NodeRef,
    NotSupported,
    Refusal,
    Refused,
    UnknownGroup,
)
from rescheduler.providers.externalgrpc import wire
from rescheduler.providers.externalgrpc.channel import SERVICE
from rescheduler.providers.none import NoProvider
from tests.providers.externalgrpcs import offered
from tests.providers.shelf import Caller, Shelf


def node(name: str = "n", provider_id: str = "shelf://1") -> wire.ExternalGrpcNode:
    return wire.ExternalGrpcNode(name=name, providerID=provider_id, labels={"a": "b"}, annotations={"c": "d"})


def test_group_sizes_are_limited_to_32_bits(call: Caller) -> None:
    (group,) = call("NodeGroups", wire.NodeGroupsRequest()).nodeGroups
    assert (group.id, group.minSize, group.maxSize, group.debug) == ("g", 1, 2**31 - 1, "for tests")


def test_all_fields_of_a_node_reach_the_backend(call: Caller, shelf: Shelf) -> None:
    response = call("NodeGroupForNode", wire.NodeGroupForNodeRequest(node=node()))
    assert response.nodeGroup.id == "g"
    assert shelf.asked == [(NodeRef("n", "shelf://1", {"a": "b"}, {"c": "d"}),)]


def test_a_foreign_node_has_an_empty_group(call: Caller) -> None:
    response = call("NodeGroupForNode", wire.NodeGroupForNodeRequest(node=node(provider_id="aws://1")))
    assert (response.HasField("nodeGroup"), response.nodeGroup.id) == (True, "")


def test_instances_carry_states_and_errors(call: Caller) -> None:
    instances = call("NodeGroupNodes", wire.NodeGroupNodesRequest(id="g")).instances
    assert [
        (
            instance.id,
            instance.status.instanceState,
            instance.status.errorInfo.errorCode,
            instance.status.errorInfo.instanceErrorClass,
        )
        for instance in instances
    ] == [
        ("shelf://1", 1, "", 0),
        ("shelf://2", 2, "quota", 1),
        ("shelf://3", 3, "error", 99),
        ("shelf://4", 0, "", 0),
    ]


def test_gpu_types_are_keys_of_the_response(call: Caller) -> None:
    types = call("GetAvailableGPUTypes", wire.GetAvailableGPUTypesRequest()).gpuTypes
    assert (call("GPULabel", wire.GPULabelRequest()).label, set(types)) == ("gpu", {"a100", "t4"})


def test_cleanup_by_one_caller_does_not_close_the_backend(call: Caller, shelf: Shelf) -> None:
    call("Cleanup", wire.CleanupRequest())
    assert call("NodeGroupTargetSize", wire.NodeGroupTargetSizeRequest(id="g")).targetSize == 2
    assert "closed" not in shelf.asked


STATUSES: dict[str, tuple[Exception, str]] = {
    "unknown group": (UnknownGroup("no group 'x'"), "NOT_FOUND"),
    "below the minimum": (BelowMinimum("too few"), "FAILED_PRECONDITION"),
    "above the maximum": (AboveMaximum("too many"), "FAILED_PRECONDITION"),
    "not supported": (NotSupported("no such verb"), "UNIMPLEMENTED"),
    "unavailable": (BackendUnavailable("down"), "UNAVAILABLE"),
    "too late": (DeadlineExceeded("slow"), "DEADLINE_EXCEEDED"),
    "rate limit": (RateLimited("patience", retry_after=3), "RESOURCE_EXHAUSTED"),
    "credentials": (AuthError("401"), "UNAUTHENTICATED"),
    "configuration": (ConfigError("a key"), "FAILED_PRECONDITION"),
    "a usage error": (errors.UsageError("wrong"), "INVALID_ARGUMENT"),
    "broken answer": (errors.InputError("no JSON"), "INTERNAL"),
}


@pytest.mark.parametrize("fact", STATUSES)
def test_errors_map_to_statuses(fact: str, call: Caller, shelf: Shelf) -> None:
    shelf.error, status = STATUSES[fact]
    failure = call.failure("NodeGroupTargetSize", wire.NodeGroupTargetSizeRequest(id="x"))
    assert failure == (status, str(shelf.error))


def test_internal_errors_reveal_only_their_type(call: Caller, shelf: Shelf) -> None:
    shelf.error = KeyError("a secret")
    assert call.failure("Refresh", wire.RefreshRequest()) == ("INTERNAL", "internal error: KeyError")


WRONG: dict[str, tuple[str, Any, str]] = {
    "no node": ("NodeGroupForNode", wire.NodeGroupForNodeRequest(), "node: missing"),
    "a price without a node": ("PricingNodePrice", wire.PricingNodePriceRequest(), "node: missing"),
    "a price without a time": (
        "PricingNodePrice",
        wire.PricingNodePriceRequest(node=node()),
        "start and end: expected both",
    ),
    "an increase by zero": (
        "NodeGroupIncreaseSize",
        wire.NodeGroupIncreaseSizeRequest(id="g", delta=0),
        "delta: expected more than 0, got 0",
    ),
    "a decrease with the wrong sign": (
        "NodeGroupDecreaseTargetSize",
        wire.NodeGroupDecreaseTargetSizeRequest(id="g", delta=1),
        "delta: expected less than 0, got 1",
    ),
    "a name for two machines": (
        "NodeGroupDeleteNodes",
        wire.NodeGroupDeleteNodesRequest(id="g", nodes=[node(), node(), node(provider_id="shelf://2")]),
        "nodes: n occurs twice, with different provider IDs",
    ),
    "nodes without names": (
        "NodeGroupDeleteNodes",
        wire.NodeGroupDeleteNodesRequest(id="g", nodes=[wire.ExternalGrpcNode()]),
        "nodes: expected a provider ID or a name",
    ),
}


@pytest.mark.parametrize("fact", WRONG)
def test_invalid_requests_do_not_reach_the_backend(fact: str, call: Caller, shelf: Shelf) -> None:
    rpc, request, message = WRONG[fact]
    assert call.failure(rpc, request) == ("INVALID_ARGUMENT", message)
    assert shelf.asked == []


DELETIONS: dict[str, tuple[dict[str, DeleteOutcome], tuple[str, str]]] = {
    "below the minimum": (
        {"b": Refused(Refusal.BELOW_MINIMUM, "1 must stay")},
        ("FAILED_PRECONDITION", "1 of 2 nodes are not deleted: node b: 1 must stay"),
    ),
    "of another group": (
        {"a": Refused(Refusal.NOT_IN_GROUP, "not here"), "b": Failed("down", retryable=True)},
        ("INVALID_ARGUMENT", "2 of 2 nodes are not deleted: node a: not here; node b: down"),
    ),
    "a control plane node": (
        {"a": Refused(Refusal.CONTROL_PLANE, "a master")},
        ("FAILED_PRECONDITION", "1 of 2 nodes are not deleted: node a: a master"),
    ),
    "failed for now": (
        {"a": Failed("down", retryable=True)},
        ("UNAVAILABLE", "1 of 2 nodes are not deleted: node a: down"),
    ),
}


@pytest.mark.parametrize("fact", DELETIONS)
def test_a_partial_deletion_names_the_remaining_nodes(fact: str, call: Caller, shelf: Shelf) -> None:
    shelf.outcomes, expected = DELETIONS[fact]
    request = wire.NodeGroupDeleteNodesRequest(id="g", nodes=[node("a"), node("b")])
    assert call.failure("NodeGroupDeleteNodes", request) == expected


def test_a_completed_or_pending_deletion_is_ok_so_that_taints_are_kept(call: Caller, shelf: Shelf) -> None:
    shelf.outcomes = {"a": AlreadyGone(), "b": Accepted("its end was not seen")}
    request = wire.NodeGroupDeleteNodesRequest(id="g", nodes=[node("a"), node("b"), node("c")])
    assert call("NodeGroupDeleteNodes", request) == wire.NodeGroupDeleteNodesResponse()


def test_options_of_an_unknown_group_are_not_found(call: Caller) -> None:
    """Releases up to 1.28 get this status, too; they use the defaults if a response has no options."""
    old = wire.NodeGroupAutoscalingOptions(scaleDownUnneededTime=wire.LegacyDuration(duration=1))
    for defaults in (None, old):
        request = wire.NodeGroupAutoscalingOptionsRequest(id="x", defaults=defaults)
        assert call.failure("NodeGroupGetOptions", request) == ("NOT_FOUND", "shelf: no group 'x'")


def test_the_error_for_a_thousand_nodes_fits_the_headers(call: Caller, shelf: Shelf) -> None:
    names = [f"node-{number}" for number in range(1000)]
    shelf.outcomes = {name: Failed("the system is down", retryable=True) for name in names}
    request = wire.NodeGroupDeleteNodesRequest(id="g", nodes=[node(name) for name in names])
    code, message = call.failure("NodeGroupDeleteNodes", request)
    assert (code, message[:47]) == ("UNAVAILABLE", "1000 of 1000 nodes are not deleted: node node-0")


def test_long_names_in_any_script_fit_the_headers(call: Caller, shelf: Shelf) -> None:
    shelf.error = UnknownGroup("日" * 5000)
    failure = call.failure("NodeGroupTargetSize", wire.NodeGroupTargetSizeRequest(id="x"))
    assert failure == ("NOT_FOUND", "日" * (1500 // len("%E6%97%A5")) + " …")


def test_none_has_no_prices_and_no_groups() -> None:
    priced = wire.PricingNodePriceRequest(node=node())
    for field in ("startTimestamp", "endTimestamp"):
        getattr(priced, field).seconds = 1
    with offered(NoProvider(), SystemClock()) as address:
        call = Caller(address)
        assert call("NodeGroups", wire.NodeGroupsRequest()) == wire.NodeGroupsResponse()
        assert [
            call.failure("PricingNodePrice", priced)[0],
            call.failure("NodeGroupTemplateNodeInfo", wire.NodeGroupTemplateNodeInfoRequest(id="g"))[0],
            call.failure("NodeGroupGetOptions", wire.NodeGroupAutoscalingOptionsRequest(id="g"))[0],
        ] == ["UNIMPLEMENTED", "NOT_FOUND", "NOT_FOUND"]
        call.channel.close()


def test_the_backend_gets_less_time_than_the_caller_has(call: Caller, shelf: Shelf) -> None:
    clock = SystemClock()
    began = clock.monotonic()
    call("Refresh", wire.RefreshRequest(), timeout=40)
    call("Refresh", wire.RefreshRequest(), timeout=None)
    ended = clock.monotonic()
    bounded, unbounded = shelf.deadlines
    assert began < bounded < ended + 40
    assert began + 300 <= unbounded <= ended + 300


class StuckProvider(NoProvider):
    """Waits until the deadline for an event that never happens."""

    def refresh(self, *, deadline: float) -> None:
        SystemClock().wait(deadline - SystemClock().monotonic(), threading.Event())
        raise DeadlineExceeded("the system is silent")


def test_a_stuck_backend_fails_with_its_message_before_the_callers_deadline() -> None:
    with offered(StuckProvider(), SystemClock()) as address:
        call = Caller(address)
        message = "the system is silent"
        assert call.failure_in_time("Refresh", wire.RefreshRequest(), 4, message) == ("DEADLINE_EXCEEDED", message)
        call.channel.close()


def test_health_and_reflection_are_served(call: Caller) -> None:
    for name in ("", SERVICE):
        request = health_pb2.HealthCheckRequest(service=name).SerializeToString()
        response = call.raw("Check", request, service="grpc.health.v1.Health")
        assert health_pb2.HealthCheckResponse.FromString(response).status == health_pb2.HealthCheckResponse.SERVING
    database = ProtoReflectionDescriptorDatabase(call.channel)
    pool = DescriptorPool(database)
    assert set(database.get_services()) == {
        SERVICE,
        "grpc.health.v1.Health",
        "grpc.reflection.v1alpha.ServerReflection",
    }
    assert len(pool.FindServiceByName(SERVICE).methods) == 15


class HoldingProvider(NoProvider):
    """Blocks every call until the test releases it."""

    def __init__(self) -> None:
        self.reached, self.released = threading.Semaphore(0), threading.Event()

    def refresh(self, *, deadline: float) -> None:
        self.reached.release()
        SystemClock().wait(deadline - SystemClock().monotonic(), self.released)


def test_health_is_served_while_every_call_waits_for_the_system() -> None:
    provider = HoldingProvider()
    with offered(provider, SystemClock()) as address:
        call = Caller(address)
        refresh = call.channel.unary_unary(f"/{SERVICE}/Refresh")
        waiting = [refresh.future(b"", timeout=120) for _ in range(THREADS + 1)]
        for _ in range(THREADS):
            assert provider.reached.acquire(timeout=60)
        response = call.raw("Check", b"", service="grpc.health.v1.Health", timeout=60)
        assert health_pb2.HealthCheckResponse.FromString(response).status == health_pb2.HealthCheckResponse.SERVING
        assert not any(future.done() for future in waiting)
        provider.released.set()
        assert {future.result() for future in waiting} == {b""}
        call.channel.close()


@settings(max_examples=200, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(rpc=st.sampled_from(sorted(wire.POOL.FindServiceByName(SERVICE).methods_by_name)), body=st.binary(max_size=80))
def test_arbitrary_bytes_break_no_method(rpc: str, body: bytes, call: Caller) -> None:
    try:
        code = call.raw(rpc, body) and "OK"
    except grpc.RpcError as error:
        code = error.code().name
    assert code in {"OK", b"", "INVALID_ARGUMENT", "NOT_FOUND", "UNIMPLEMENTED"}


def test_a_pod_without_metadata_is_an_invalid_request(call: Caller) -> None:
    request = wire.PricingPodPriceRequest(pod_bytes=b"\x12\x00")
    request.startTimestamp.seconds = request.endTimestamp.seconds = 1
    code, message = call.failure("PricingPodPrice", request)
    assert (code, message.partition(":")[0]) == ("INVALID_ARGUMENT", "pod")
