"""The client with foreign services: they return one status per call and no details about nodes."""

import contextlib
import datetime as dt
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from typing import Any

import grpc
import pytest
from google.protobuf.message_factory import GetMessageClass
from grpc import StatusCode

from rescheduler.providers.base import (
    Accepted,
    AlreadyGone,
    Deleted,
    DeleteOutcome,
    Failed,
    InstanceState,
    NodeRef,
    NotSupported,
    Refusal,
    Refused,
    UnknownGroup,
)
from rescheduler.providers.externalgrpc import wire
from rescheduler.providers.externalgrpc.channel import SERVICE
from tests.providers.clocks import StepClock
from tests.providers.externalgrpcs import connected


@dataclass
class Foreign:
    """A service of one group "g", as simple as upstream's example server."""

    instances: dict[str, int] = field(default_factory=lambda: {"x://1": 1, "x://2": 1})
    minimum: int = 0
    target: int = 2
    deletions: int = 0
    failures: list[StatusCode] = field(default_factory=list)  #: statuses of the next deletions
    acts: bool = True  #: whether a deletion has an effect, regardless of the response
    hidden: bool = False  #: whether instances are not listed, or listed under other ids
    garbled: bool = False  #: whether the response to a deletion is invalid

    def answer(self, rpc: str, request: Any, context: Any) -> Any:
        if getattr(request, "id", "g") != "g":
            context.abort(StatusCode.UNKNOWN, "unknown node group")
        match rpc:
            case "Refresh":
                return wire.RefreshResponse()
            case "NodeGroups":
                group = wire.NodeGroup(id="g", minSize=self.minimum, maxSize=5)
                return wire.NodeGroupsResponse(nodeGroups=[group])
            case "NodeGroupForNode":
                known = request.node.providerID in self.instances
                return wire.NodeGroupForNodeResponse(nodeGroup=wire.NodeGroup(id="g" if known else ""))
            case "NodeGroupTargetSize":
                return wire.NodeGroupTargetSizeResponse(targetSize=self.target)
            case "NodeGroupNodes":
                listed: Any = [
                    {"id": name, "status": {"instanceState": state}}
                    for name, state in self.instances.items()
                    if not self.hidden
                ]
                return wire.NodeGroupNodesResponse(instances=listed)
            case "NodeGroupDeleteNodes":
                self._delete(request, context)
                return wire.NodeGroupDeleteNodesResponse()
        return context.abort(StatusCode.UNIMPLEMENTED, "not here")

    def _delete(self, request: Any, context: Any) -> None:
        self.deletions += 1
        code = self.failures.pop(0) if self.failures else None
        if self.acts and code in {None, StatusCode.UNAVAILABLE}:
            for node in request.nodes:
                del self.instances[node.providerID]
                self.target -= 1
        if code is not None:
            context.abort(code, "no luck")


def _deleted(answer: Any) -> bool:
    return isinstance(answer, wire.NodeGroupDeleteNodesResponse)


@contextlib.contextmanager
def serving(service: Foreign) -> Iterator[str]:
    threads = ThreadPoolExecutor(8)
    server = grpc.server(threads)
    methods = wire.POOL.FindServiceByName(SERVICE).methods_by_name
    handlers = {
        name: grpc.unary_unary_rpc_method_handler(
            lambda request, context, name=name: service.answer(name, request, context),
            GetMessageClass(method.input_type).FromString,
            lambda answer: b"\xff" if service.garbled and _deleted(answer) else answer.SerializeToString(),
        )
        for name, method in methods.items()
    }
    server.add_generic_rpc_handlers((grpc.method_handlers_generic_handler(SERVICE, handlers),))
    port = server.add_insecure_port("127.0.0.1:0")
    server.start()
    try:
        yield f"127.0.0.1:{port}"
    finally:
        server.stop(None).wait()
        threads.shutdown()


NODE = NodeRef("node-1", "x://1")
CLOCK_START = StepClock().now()


def delete(service: Foreign, *nodes: NodeRef, within: float = 60, times: int = 1) -> list[DeleteOutcome]:
    """Return the outcomes of the last of *times* calls."""
    clock = StepClock()
    with serving(service) as address, connected(address, clock) as provider:
        for _ in range(times):
            outcomes = provider.delete_nodes("g", nodes or (NODE,), deadline=clock.monotonic() + within)
    return list(outcomes.values())


CASES: dict[str, tuple[Callable[[], Foreign], tuple[type[DeleteOutcome], ...], int]] = {
    "done at once": (Foreign, (Deleted,), 1),
    "OK, and the machine stays: accepted, ordered once": (lambda: Foreign(acts=False), (Accepted,), 1),
    "an error: retried once the machine was seen running": (
        lambda: Foreign(failures=[StatusCode.UNKNOWN, StatusCode.INTERNAL]),
        (Deleted,),
        3,
    ),
    "unavailable after the deletion: seen gone, no retry": (
        lambda: Foreign(failures=[StatusCode.UNAVAILABLE]),
        (Deleted,),
        1,
    ),
    "unavailable, and the machine stays: unknown, no retry": (
        lambda: Foreign(failures=[StatusCode.UNAVAILABLE], acts=False),
        (Accepted,),
        1,
    ),
    "no such verb": (lambda: Foreign(failures=[StatusCode.UNIMPLEMENTED]), (Failed,), 1),
    "already terminating": (lambda: Foreign(instances={"x://1": 3}), (AlreadyGone,), 0),
}


@pytest.mark.parametrize("fact", CASES)
def test_a_deletion_at_a_foreign_service_has_these_outcomes(fact: str) -> None:
    make, kinds, deletions = CASES[fact]
    service = make()
    outcomes = delete(service)
    assert (tuple(type(outcome) for outcome in outcomes), service.deletions) == (kinds, deletions)


def test_calls_to_a_failing_service_stop_after_some_attempts() -> None:
    service = Foreign(failures=[StatusCode.UNKNOWN] * 1000)
    (outcome,) = delete(service, within=3600)
    assert isinstance(outcome, Failed)
    assert (outcome.retryable, "UNKNOWN: no luck" in outcome.error, service.deletions) == (True, True, 12)


@pytest.mark.parametrize(
    ("code", "reason"),
    [(StatusCode.FAILED_PRECONDITION, Refusal.PROTECTED), (StatusCode.INVALID_ARGUMENT, Refusal.NOT_IN_GROUP)],
)
def test_a_refusal_is_final(code: StatusCode, reason: Refusal) -> None:
    service = Foreign(failures=[code] * 3)
    (outcome,) = delete(service)
    assert isinstance(outcome, Refused)
    assert (outcome.reason, service.deletions) == (reason, 1)
    assert outcome.detail.endswith(f"NodeGroupDeleteNodes: {code.name}: no luck")


@pytest.mark.parametrize("times", [1, 2])
def test_an_unlisted_machine_is_not_assumed_gone(times: int) -> None:
    service = Foreign(failures=[StatusCode.FAILED_PRECONDITION] * times, hidden=True)
    (outcome,) = delete(service, times=times)
    assert isinstance(outcome, Refused)
    assert (outcome.reason, service.deletions) == (Refusal.PROTECTED, times)


def test_an_accepted_order_is_repeated_after_five_minutes_as_by_cluster_autoscaler() -> None:
    service = Foreign(acts=False)
    delete(service, within=299, times=1)
    assert service.deletions == 1
    service = Foreign(acts=False)
    delete(service, within=200, times=2)
    assert service.deletions == 2


@pytest.mark.parametrize("minimum", [0, 1])
def test_no_second_order_is_sent_while_that_of_an_earlier_process_may_take_effect(minimum: int) -> None:
    """It may have lowered the target size."""
    service = Foreign(acts=False, minimum=minimum, target=1)
    half_a_minute, six = CLOCK_START - dt.timedelta(seconds=30), CLOCK_START - dt.timedelta(minutes=6)
    (outcome,) = delete(service, replace(NODE, ordered_at=half_a_minute))
    assert (type(outcome), service.deletions) == (Accepted, 0)
    (outcome,) = delete(service, replace(NODE, ordered_at=six))
    assert (type(outcome), service.deletions) == ((Refused, 0) if minimum else (Accepted, 1))


def test_the_client_enforces_the_minimum() -> None:
    service = Foreign(minimum=1)
    first, second = delete(service, NODE, NodeRef("node-2", "x://2"))
    assert (first, second) == (Deleted(), Refused(Refusal.BELOW_MINIMUM, "group g must keep 1, 0 would be left"))
    assert service.deletions == 1


def test_an_order_with_unknown_result_counts_for_the_minimum_until_the_machine_is_gone() -> None:
    clock, two = StepClock(), NodeRef("node-2", "x://2")
    service = Foreign(minimum=1, failures=[StatusCode.UNAVAILABLE], acts=False)
    with serving(service) as address, connected(address, clock) as provider:
        (first,) = provider.delete_nodes("g", [NODE], deadline=clock.monotonic() + 10).values()
        assert isinstance(first, Accepted)
        refused = Refused(Refusal.BELOW_MINIMUM, "group g must keep 1, 0 would be left")
        assert provider.refusals("g", [two], deadline=clock.monotonic() + 10) == {two.name: refused}
        assert provider.delete_nodes("g", [two], deadline=clock.monotonic() + 10) == {two.name: refused}
        service.instances["x://1"], service.target, service.minimum, service.acts = 3, 1, 0, True
        provider.delete_nodes("g", [NODE], deadline=clock.monotonic() + 10)
        assert provider.refusals("g", [two], deadline=clock.monotonic() + 10) == {}
        assert provider.delete_nodes("g", [two], deadline=clock.monotonic() + 10) == {two.name: Deleted()}


def test_after_an_invalid_response_the_result_of_the_order_is_unknown(caplog: pytest.LogCaptureFixture) -> None:
    service = Foreign(acts=False, garbled=True)
    (outcome,) = delete(service, within=30)
    assert isinstance(outcome, Accepted)
    assert service.deletions == 1
    assert not caplog.records


def test_a_machine_that_terminated_after_the_intent_is_not_ordered() -> None:
    service = Foreign(instances={"x://2": 1})
    gone = NodeRef("node-1", "x://1", ordered_at=CLOCK_START - dt.timedelta(minutes=1))
    assert (delete(service, gone), service.deletions) == ([AlreadyGone("no longer listed")], 0)


def test_a_node_without_a_provider_id_is_not_deleted() -> None:
    service = Foreign()
    (outcome,) = delete(service, NodeRef("node-1"))
    assert isinstance(outcome, Refused)
    assert (outcome.reason, service.deletions) == (Refusal.NOT_IN_GROUP, 0)


def test_an_unknown_group_is_recognized_by_its_error() -> None:
    clock = StepClock()
    with serving(Foreign()) as address, connected(address, clock) as provider:
        with pytest.raises(UnknownGroup, match=r"no group 'nowhere'; the groups are g$"):
            provider.target_size("nowhere", deadline=60)
        with pytest.raises(NotSupported, match=r"NodeGroupTemplateNodeInfo: UNIMPLEMENTED: not here$"):
            provider.template("g", deadline=60)
        assert provider.options("g", deadline=60) is None
        assert [instance.state for instance in provider.instances("g", deadline=60)] == [InstanceState.RUNNING] * 2
        assert (provider.has_instance(NODE, deadline=60), provider.has_instance(NodeRef("n"), deadline=60)) == (
            True,
            None,
        )


def test_with_an_unreachable_service_nothing_was_ordered() -> None:
    clock = StepClock()
    with connected("127.0.0.1:1", clock) as provider:
        (outcome,) = provider.delete_nodes("g", [NODE], deadline=clock.monotonic() + 5).values()
    assert isinstance(outcome, Failed)
    assert (outcome.retryable, "UNAVAILABLE" in outcome.error) == (True, True)


def test_the_proxy_of_the_environment_is_not_used_for_localhost(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("http_proxy", "http://127.0.0.1:1")
    monkeypatch.delenv("no_proxy", raising=False)
    with serving(Foreign()) as address, connected(address, StepClock()) as provider:
        assert provider.target_size("g", deadline=60) == 2
