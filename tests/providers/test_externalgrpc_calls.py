"""Audit log and metrics of ``provider serve``, from the process's output and a scrape."""

import json
import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import grpc
import httpx2
import pytest
from grpc import StatusCode
from prometheus_client import CollectorRegistry
from prometheus_client.parser import text_string_to_metric_families
from tenacity import Retrying, retry_if_exception_type, stop_after_delay, wait_fixed

from devcluster.cloudpool.server import CloudpoolServer
from rescheduler.clock import SystemClock
from rescheduler.grpc_service.server import AnsweredCall, CallReport, caller, log_line
from rescheduler.observe.events import NOTICE
from rescheduler.providers.base import Accepted, AlreadyGone, Deleted, Failed, Refusal, Refused
from rescheduler.providers.externalgrpc import codec, wire
from rescheduler.providers.externalgrpc.channel import SERVICE
from tests.providers import pki
from tests.providers.cloudpools import GROUP, node_of, settings
from tests.providers.served import SERVER_FILES, Service

NODES = [wire.ExternalGrpcNode(name="a", providerID="x://1"), wire.ExternalGrpcNode(name="x://2", providerID="x://2")]
DELETION = wire.NodeGroupDeleteNodesRequest(id="g", nodes=NODES)
BELOW = Refused(Refusal.BELOW_MINIMUM, "group g must keep 1, 0 would be left")

LINES: dict[str, tuple[AnsweredCall, str]] = {
    "an increase": (
        AnsweredCall("NodeGroupIncreaseSize", wire.NodeGroupIncreaseSizeRequest(id="g", delta=2), "me", StatusCode.OK),
        "NodeGroupIncreaseSize by me, group g, by +2: OK",
    ),
    "a refused decrease": (
        AnsweredCall(
            "NodeGroupDecreaseTargetSize",
            wire.NodeGroupDecreaseTargetSizeRequest(id="g", delta=-2),
            "me",
            StatusCode.FAILED_PRECONDITION,
            "3 run",
        ),
        "NodeGroupDecreaseTargetSize by me, group g, by -2: FAILED_PRECONDITION: 3 run",
    ),
    "nodes are deleted": (
        AnsweredCall(
            "NodeGroupDeleteNodes",
            DELETION,
            "me",
            StatusCode.OK,
            outcomes={"a": Deleted("gone"), "x://2": Accepted("booked")},
        ),
        "NodeGroupDeleteNodes by me, group g, nodes a (x://1), x://2: OK; a: deleted: gone; x://2: accepted: booked",
    ),
    "a node stays": (
        AnsweredCall(
            "NodeGroupDeleteNodes",
            DELETION,
            "me",
            StatusCode.FAILED_PRECONDITION,
            "1 stays",
            outcomes={"a": AlreadyGone(), "x://2": BELOW},
        ),
        (
            "NodeGroupDeleteNodes by me, group g, nodes a (x://1), x://2: FAILED_PRECONDITION; "
            f"a: already gone; x://2: refused: below-minimum: {BELOW.detail}"
        ),
    ),
    "the system fails": (
        AnsweredCall(
            "NodeGroupDeleteNodes",
            wire.NodeGroupDeleteNodesRequest(id="g", nodes=NODES[:1]),
            "me",
            StatusCode.UNAVAILABLE,
            "no answer",
            outcomes={"a": Failed("no answer", retryable=True)},
        ),
        "NodeGroupDeleteNodes by me, group g, nodes a (x://1): UNAVAILABLE; a: failed: no answer",
    ),
    "no nodes": (
        AnsweredCall("NodeGroupDeleteNodes", wire.NodeGroupDeleteNodesRequest(id="g"), "me", StatusCode.OK),
        "NodeGroupDeleteNodes by me, group g, nodes none: OK",
    ),
    "an invalid request": (
        AnsweredCall("NodeGroupDeleteNodes", None, "me", StatusCode.INVALID_ARGUMENT, "the request is not a …"),
        "NodeGroupDeleteNodes by me, request unreadable: INVALID_ARGUMENT: the request is not a …",
    ),
}


@pytest.mark.parametrize(("call", "line"), LINES.values(), ids=LINES)
def test_an_order_is_logged_in_one_line(call: AnsweredCall, line: str) -> None:
    assert log_line(call) == line


def test_callers_cannot_fill_the_log() -> None:
    many = [wire.ExternalGrpcNode(name="n" * 10_000) for _ in range(10_000)]
    request = wire.NodeGroupDeleteNodesRequest(id="g" * 10_000, nodes=many)
    line = log_line(AnsweredCall("NodeGroupDeleteNodes", request, "me", StatusCode.OK))
    assert len(line) < 60_000
    assert line.endswith(" and 9900 more: OK")


#: gRPC's peer and the certificate → caller
CALLERS: dict[str, tuple[str, dict[str, list[bytes]], str]] = {
    "plain text": ("unix-abstract:socket/10.0.0.1:5000", {}, "10.0.0.1:5000"),
    "IPv6": ("unix-abstract:socket/%5Bfd00::1%5D:5000", {}, "[fd00::1]:5000"),
    "a certificate": (
        "unix-abstract:socket/10.0.0.1:5000",
        {"x509_common_name": [b"autoscaler"]},
        "autoscaler (10.0.0.1:5000)",
    ),
    "not by the relay": ("unix:", {}, "unix:"),
}


@pytest.mark.parametrize(("peer", "certificate", "expected"), CALLERS.values(), ids=CALLERS)
def test_a_caller_is_identified_by_certificate_and_address(
    peer: str, certificate: Mapping[str, list[bytes]], expected: str
) -> None:
    assert caller(peer, dict(certificate)) == expected


def test_only_orders_are_logged_at_level_0(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(NOTICE, "rescheduler")
    report = CallReport(CollectorRegistry())
    for method in ("Refresh", "NodeGroupIncreaseSize"):
        report(AnsweredCall(method, wire.RefreshRequest(), "me", StatusCode.OK))
    assert [record.getMessage() for record in caplog.records] == ["NodeGroupIncreaseSize by me: OK"]


class Process:
    """``provider serve`` with mutual TLS for a cloudpool of three machines and a minimum of two."""

    def __init__(self, folder: Path, server: CloudpoolServer, service: Service) -> None:
        self.server, self.service = server, service
        pems = [(folder / name).read_bytes() for name in ("ca.pem", "client.key", "client.crt")]
        self._channel = grpc.secure_channel(service.address, grpc.ssl_channel_credentials(*pems))

    def call(self, rpc: str, request: Any) -> str:
        """Make a call and return its status."""
        try:
            self._channel.unary_unary(f"/{SERVICE}/{rpc}")(request.SerializeToString(), timeout=60)
        except grpc.RpcError as error:
            return str(error.code().name)
        return "OK"

    def close(self) -> None:
        self._channel.close()

    def orders(self, number: int) -> list[str]:
        """Return the lines of the audit log without time and port, once there are *number* of them."""
        retry, stop = retry_if_exception_type(AssertionError), stop_after_delay(60)
        for attempt in Retrying(retry=retry, stop=stop, wait=wait_fixed(0.05), reraise=True):
            with attempt:
                orders = self._orders()
                assert len(orders) >= number
        return orders

    def _orders(self) -> list[str]:
        lines = [line.partition(" INFO ")[2] for line in self.service.lines]
        return [re.sub(r"127\.0\.0\.1:\d+", "ADDRESS", line) for line in lines if line.startswith("NodeGroup")]

    def counted(self) -> dict[tuple[str, str], float]:
        """Return the number of calls by method and code, as scraped."""
        [address] = [match[1] for line in self.service.lines if (match := re.search(r"metrics on (\S+)", line))]
        families = text_string_to_metric_families(httpx2.get(address, trust_env=False).text)
        return {
            (sample.labels["method"], sample.labels["code"]): sample.value
            for family in families
            for sample in family.samples
            if sample.name == "spot_rescheduler_provider_calls_total"
        }


@pytest.fixture
def process(tmp_path: Path) -> Iterator[Process]:
    pki.make(tmp_path)
    with CloudpoolServer(settings(refresh_interval=0.1), tmp_path, SystemClock()).running() as server:
        pool = {
            "id": GROUP,
            "backend": {"url": server.url, "timeout": "60s"},
            "minSize": 2,
            "maxSize": 4,
            "refreshInterval": "0s",
            "cacheAge": "0s",
            "pollInterval": "200ms",
        }
        (tmp_path / "pool.json").write_text(json.dumps({"pools": [pool]}))
        flags = ("--cloud-provider=cloudpool", "--cloud-config=pool.json", "--listen-address=127.0.0.1:0")
        with Service(tmp_path, *flags, *SERVER_FILES) as service:
            served = Process(tmp_path, server, service)
            try:
                yield served
            finally:
                served.close()


def test_every_order_is_logged_and_every_call_is_counted(process: Process) -> None:
    first, second, _ = (node_of(machine) for machine in process.server.pool.machines())
    decrease = wire.NodeGroupDecreaseTargetSizeRequest(id=GROUP, delta=-1)
    statuses = [
        process.call("NodeGroups", wire.NodeGroupsRequest()),
        process.call("NodeGroupDecreaseTargetSize", decrease),
        process.call("NodeGroupIncreaseSize", wire.NodeGroupIncreaseSizeRequest(id=GROUP, delta=9)),
        process.call("NodeGroupIncreaseSize", wire.NodeGroupIncreaseSizeRequest(id="nowhere", delta=1)),
        *(
            process.call(
                "NodeGroupDeleteNodes",
                wire.NodeGroupDeleteNodesRequest(id=GROUP, nodes=[codec.node_message(node)]),
            )
            for node in (first, second)
        ),
    ]
    assert statuses == ["OK", "FAILED_PRECONDITION", "FAILED_PRECONDITION", "NOT_FOUND", "OK", "FAILED_PRECONDITION"]
    suffix = f"by client (ADDRESS), group {GROUP}"
    refused = f"below-minimum: group {GROUP} must keep 2, 1 would be left"
    unknown = f"NOT_FOUND: cloudpool: no group 'nowhere'; the groups are {GROUP}"
    short = "2 is less than the 3 machines that are running or required; 0 of 1 were canceled"
    running = f"FAILED_PRECONDITION: cloudpool {GROUP}: {short}"
    nodes = [f"nodes {node.name} ({node.provider_id})" for node in (first, second)]
    assert process.orders(5) == [
        f"NodeGroupDecreaseTargetSize {suffix}, by -1: {running}",
        f"NodeGroupIncreaseSize {suffix}, by +9: FAILED_PRECONDITION: cloudpool {GROUP}: 12 is above 4",
        f"NodeGroupIncreaseSize by client (ADDRESS), group nowhere, by +1: {unknown}",
        f"NodeGroupDeleteNodes {suffix}, {nodes[0]}: OK; {first.name}: deleted: TERMINATED",
        f"NodeGroupDeleteNodes {suffix}, {nodes[1]}: FAILED_PRECONDITION; {second.name}: refused: {refused}",
    ]
    assert process.counted() == {
        ("NodeGroups", "OK"): 1,
        ("NodeGroupDecreaseTargetSize", "FAILED_PRECONDITION"): 1,
        ("NodeGroupIncreaseSize", "FAILED_PRECONDITION"): 1,
        ("NodeGroupIncreaseSize", "NOT_FOUND"): 1,
        ("NodeGroupDeleteNodes", "OK"): 1,
        ("NodeGroupDeleteNodes", "FAILED_PRECONDITION"): 1,
    }
