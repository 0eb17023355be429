"""The client of both node managers: detection, requests, and interpretation of responses."""

import datetime as dt
from collections.abc import Iterator
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest

from devcluster.standin.faults import Fault
from devcluster.standin.server import StandinServer
from rescheduler import errors
from rescheduler.clock import SystemClock
from rescheduler.errors import AuthError, BackendUnavailable, ConfigError
from rescheduler.liqo.client import LiqoFile, read_file
from rescheduler.liqo.node_manager.app import node_manager
from rescheduler.liqo.provider import LiqoProvider
from rescheduler.liqo.serving import HttpsListener, serving
from rescheduler.net.http_errors import InvalidResponse
from rescheduler.providers import load
from rescheduler.providers.base import (
    Instance,
    InstanceError,
    InstanceState,
    NodeGroup,
    NodeRef,
    NodeTaint,
    NodeTemplate,
    NotSupported,
    UnknownGroup,
)
from rescheduler.settings import ListenAddress
from tests.liqo_services.builders import Bench, cluster, group
from tests.providers import first_node_managers, pki
from tests.providers.clocks import StepClock
from tests.providers.first_node_managers import FirstNodeManager
from tests.providers.liqos import RestartableNodeManager, providing

START = dt.datetime(2026, 1, 1, tzinfo=dt.UTC)
WEEK = START + dt.timedelta(weeks=1)
DEADLINE = 600.0
VIRTUAL = {
    "liqo.io/type": "virtual-node",
    "kubernetes.io/role": "agent",
    "kubernetes.io/os": "linux",
    "kubernetes.io/arch": "amd64",
    "node.kubernetes.io/exclude-from-external-load-balancers": "true",
}
TAINT = NodeTaint("virtual-node.liqo.io/not-allowed", "true", "NoExecute")


class ServerAndClient:
    """A server, and our client."""

    def __init__(self, server: StandinServer[Any], provider: LiqoProvider) -> None:
        self.server, self.provider = server, provider

    def asked(self) -> list[str]:
        """Return the requests since the last call."""
        requests = [f"{request.method} {request.target}" for request in self.server.faulty_app.requests]
        self.server.faulty_app.requests.clear()
        return requests


@pytest.fixture
def first() -> Iterator[ServerAndClient]:
    clock = StepClock()
    with first_node_managers.serving(machines=2, minimum=1) as server, providing(server.url, clock) as provider:
        yield ServerAndClient(server, provider)


@pytest.fixture
def bench() -> Bench:
    return Bench(
        cluster("rome", 20),
        groups=(group("STANDARD", min_size=1, cost=2.0, labels={"tier": "spot"}), group("GPU", max_size=1)),
    )


@pytest.fixture
def current(bench: Bench) -> Iterator[ServerAndClient]:
    bench.liqo.add("rome-1", "STANDARD", "rome")
    manager = RestartableNodeManager(bench)
    with StandinServer(manager, manager).running() as server, providing(server.url, bench.clock) as provider:
        yield ServerAndClient(server, provider)


def deadline(two: ServerAndClient) -> float:
    return two.provider._fleet.clock.monotonic() + DEADLINE


def test_requests_to_the_first_node_manager_use_its_routes(first: ServerAndClient) -> None:
    groups = first.provider.groups(deadline=DEADLINE)
    assert groups == [NodeGroup("STANDARD", 1, 10), NodeGroup("GPU", 0, 1)]
    assert first.provider.target_size("STANDARD", deadline=DEADLINE) == 2
    assert first.provider.instances("STANDARD", deadline=DEADLINE) == [
        Instance("liqo://cluster-0", InstanceState.RUNNING),
        Instance("liqo://cluster-1", InstanceState.RUNNING),
    ]
    assert first.asked() == [
        "GET /version",
        "GET /nodegroup",
        "GET /nodegroup/nodes?id=STANDARD",
        "GET /nodegroup/nodes?id=GPU",
    ]
    first.provider.increase_size("STANDARD", 3, deadline=DEADLINE)
    assert first.asked()[-1] == "GET /nodegroup/scaleup?id=STANDARD&count=3"
    assert first.provider.target_size("STANDARD", deadline=DEADLINE) == 5
    node = first_node_managers.node_of("cluster-1")
    first.provider.delete_nodes("STANDARD", [node], deadline=DEADLINE)
    ordered = "GET /nodegroup/scaledown?id=liqo%3A%2F%2Fcluster-1&nodegroupid=STANDARD"
    assert [request for request in first.asked() if "scaledown" in request] == [ordered]


def test_a_change_at_the_first_node_manager_is_never_repeated(first: ServerAndClient) -> None:
    first.server.faulty_app.inject(Fault(method="GET", path="/nodegroup/scaleup", kind="reset", acted=True))
    with pytest.raises(BackendUnavailable, match="GET /nodegroup/scaleup: no answer"):
        first.provider.increase_size("STANDARD", 1, deadline=DEADLINE)
    assert first.provider.target_size("STANDARD", deadline=DEADLINE) == 3


def test_responses_of_the_first_node_manager_other_than_true_are_failures(first: ServerAndClient) -> None:
    first.server.faulty_app.inject(Fault(method="GET", path="/nodegroup/scaleup", status=200, body="false"))
    with pytest.raises(InvalidResponse, match="GET /nodegroup/scaleup: expected true"):
        first.provider.increase_size("STANDARD", 1, deadline=DEADLINE)
    first.server.faulty_app.inject(Fault(method="GET", path="/nodegroup/scaleup", status=500, body="no cluster\nleft"))
    with pytest.raises(BackendUnavailable, match="500 Internal Server Error: no cluster left"):
        first.provider.increase_size("STANDARD", 1, deadline=DEADLINE)


def test_a_template_of_the_first_node_manager_is_completed_with_liqos_labels(first: ServerAndClient) -> None:
    amounts = {"cpu": "2", "memory": "2Gi", "pods": "110", "nvidia.com/gpu": "0", "ephemeral-storage": "20Gi"}
    labels = VIRTUAL | {"country": "italy", "provider": "liqo"}
    assert first.provider.template("STANDARD", deadline=DEADLINE) == NodeTemplate(labels, (TAINT,), amounts, amounts)
    with pytest.raises(UnknownGroup):
        first.provider.template("nowhere", deadline=DEADLINE)


def test_prices_of_the_first_node_manager_are_per_hour(first: ServerAndClient) -> None:
    template = NodeRef("template-node-for-STANDARD-1")
    assert first.provider.node_price(template, START, WEEK, deadline=DEADLINE) == 2.5 * 24 * 7
    with pytest.raises(BackendUnavailable, match="index out of range"):
        first.provider.node_price(first_node_managers.node_of("cluster-0"), START, WEEK, deadline=DEADLINE)
    with pytest.raises(NotSupported):
        first.provider.pod_price({"cpu": Decimal(1)}, START, WEEK, deadline=DEADLINE)


def test_gpus_of_the_first_node_manager_are_read(first: ServerAndClient) -> None:
    assert first.provider.gpu_label() == "nvidia.com/gpu"
    assert first.provider.gpu_types() == {"nvidia.com/gpu", "second type"}


def test_states_and_errors_of_the_first_node_manager_are_read(first: ServerAndClient) -> None:
    states = '{"InstanceState":2,"InstanceErrorInfo":"denied"}', '{"InstanceState":9}'
    body = f'[{{"id":"a","--":{states[0]}}},{{"id":"b"}},{{"id":"c","--":{states[1]}}}]'
    first.server.faulty_app.inject(Fault(method="GET", path="/nodegroup/nodes", status=200, body=body))
    assert first.provider.instances("STANDARD", deadline=DEADLINE) == [
        Instance("liqo://a", InstanceState.CREATING, InstanceError("node-manager", "denied")),
        Instance("liqo://b", InstanceState.RUNNING),
        Instance("liqo://c", InstanceState.UNKNOWN),
    ]


def test_requests_to_our_node_manager_use_its_routes(current: ServerAndClient, bench: Bench) -> None:
    assert current.provider.groups(deadline=deadline(current)) == [
        NodeGroup("STANDARD", 1, 10, "Liqo group STANDARD: clusters with hasGPU=false; 2 per node and hour"),
        NodeGroup("GPU", 0, 1, "Liqo group GPU: clusters with hasGPU=false; 1 per node and hour"),
    ]
    assert current.asked() == ["GET /version", "GET /v1/fleet"]
    current.provider.increase_size("STANDARD", 1, deadline=deadline(current))
    assert [request for request in current.asked() if "fleet" not in request] == ["POST /v1/groups/STANDARD/machines"]
    assert current.provider.target_size("STANDARD", deadline=deadline(current)) == 2
    states = {
        instance.id: instance.state for instance in current.provider.instances("STANDARD", deadline=deadline(current))
    }
    assert states.pop("liqo://rome-1") is InstanceState.RUNNING
    assert list(states.values()) == [InstanceState.CREATING]
    current.provider.decrease_target_size("STANDARD", -1, deadline=deadline(current))
    assert [request.partition("/machines/")[0] for request in current.asked() if "fleet" not in request] == [
        "DELETE /v1/groups/STANDARD"
    ]
    assert current.provider.target_size("STANDARD", deadline=deadline(current)) == 1
    assert bench.liqo.remaining() == ["rome-1"]


def test_templates_of_our_node_manager_are_read(current: ServerAndClient) -> None:
    template = current.provider.template("STANDARD", deadline=deadline(current))
    assert (template.taints, template.capacity) == ((TAINT,), template.allocatable)
    assert template.labels == VIRTUAL | {"tier": "spot", "spot-rescheduler/node-group": "STANDARD"}
    assert template.capacity.keys() >= {"cpu", "memory", "pods"}


def test_prices_of_our_node_manager_are_per_window(current: ServerAndClient) -> None:
    for node in (
        first_node_managers.node_of("rome-1"),
        NodeRef("liqo://rome-1", "liqo://rome-1"),
        NodeRef("template-node-for-STANDARD-7"),
    ):
        assert current.provider.node_price(node, START, WEEK, deadline=deadline(current)) == 2.0 * 24 * 7
    share = current.provider.pod_price({"cpu": Decimal(1)}, START, WEEK, deadline=deadline(current))
    assert 0 < share <= 24 * 7
    with pytest.raises(errors.NotFound):
        current.provider.node_price(NodeRef("worker"), START, WEEK, deadline=deadline(current))


def test_gpus_of_our_node_manager_are_read(current: ServerAndClient) -> None:
    assert current.provider.gpu_label() == "nvidia.com/gpu"
    assert current.provider.gpu_types() == {"nvidia.com/gpu"}


def test_nodes_are_matched_by_provider_id_or_else_by_name(current: ServerAndClient, bench: Bench) -> None:
    bench.liqo.strangers["theirs"] = "liqo://theirs"
    bench.liqo.add("rome-2", "STANDARD", "rome")
    bench.liqo.pieces["rome-2"].marked = ("liqo-made://rome-2", {})
    virtual = {"liqo.io/type": "virtual-node"}
    nodes = {
        "by its provider ID": NodeRef("some-name", "liqo://rome-1"),
        "by its name, before it has one": NodeRef("rome-1", labels=virtual),
        "by a provider ID of Liqo's own": NodeRef("rome-2", "liqo-made://rome-2"),
        "a provider ID of another node": NodeRef("theirs", "liqo://theirs", virtual),
        "another cloud's with that name": NodeRef("rome-1", "aws:///i-1"),
        "another label": NodeRef("rome-1", "liqo://rome-1", {"liqo.io/type": "something"}),
        "unknown": NodeRef("paris-1", "liqo://paris-1", virtual),
    }
    groups = {fact: current.provider.group_for(node, deadline=deadline(current)) for fact, node in nodes.items()}
    assert [fact for fact, group in groups.items() if group is not None] == list(nodes)[:3]
    exist = {fact: current.provider.has_instance(node, deadline=deadline(current)) for fact, node in nodes.items()}
    assert list(exist.values()) == [True, True, True, True, None, True, False]


def test_replacement_of_the_first_node_manager_by_ours_is_detected(first: ServerAndClient, bench: Bench) -> None:
    first.provider.groups(deadline=DEADLINE)
    first.server.faulty_app._app = node_manager(bench.service)
    first.provider._fleet.forget()
    first.asked()
    assert [group.id for group in first.provider.groups(deadline=DEADLINE)] == ["STANDARD", "GPU"]
    assert first.asked() == ["GET /version", "GET /v1/fleet"]


def test_replacement_of_our_node_manager_by_the_first_is_detected(current: ServerAndClient) -> None:
    current.provider.groups(deadline=deadline(current))
    old = FirstNodeManager({"STANDARD": (0, 3)})
    current.server.faulty_app._app = first_node_managers.application(old)
    current.server.faulty_app.inject(Fault(method="GET", path="/v1/fleet", status=404, body=""))
    current.provider._fleet.forget()
    with pytest.raises(errors.NotFound):
        current.provider.groups(deadline=deadline(current))
    assert current.provider.groups(deadline=deadline(current)) == [NodeGroup("STANDARD", 0, 3)]


def test_an_invalid_response_is_an_error(current: ServerAndClient) -> None:
    current.server.faulty_app.inject(Fault(method="GET", path="/version", status=200, body="<html>"))
    with pytest.raises(InvalidResponse, match="liqo: GET /version: the response does not match the API"):
        current.provider.groups(deadline=deadline(current))


def test_our_node_manager_requires_a_client_certificate(tmp_path: Path, bench: Bench) -> None:
    pki.make(tmp_path)
    faulty_app = HttpsListener(
        ListenAddress("127.0.0.1", 0), tmp_path / "server.crt", tmp_path / "server.key", tmp_path / "ca.pem"
    )
    clock = SystemClock()
    with serving(node_manager(bench.service), faulty_app, "node-manager") as address:

        def groups(cert: str) -> int:
            file = tmp_path / f"{cert}.yaml"
            tls = f"caFile: ca.pem, clientCertFile: {cert}.pem, clientKeyFile: {cert}.key"
            file.write_text(f"nodeManager: {{url: 'https://{address}', {tls}, attempts: 1}}")
            provider = load("liqo", file, clock)
            try:
                return len(provider.groups(deadline=clock.monotonic() + 60))
            finally:
                provider.close()

        assert groups("client") == 2
        with pytest.raises(BackendUnavailable):
            groups("stranger")


def test_the_token_is_sent_and_kept_out_of_errors(tmp_path: Path, current: ServerAndClient) -> None:
    (tmp_path / "token").write_text("sesame\n")
    file = tmp_path / "liqo.yaml"
    file.write_text(f"nodeManager: {{url: '{current.server.url}', tokenFile: token}}")
    current.server.faulty_app.inject(Fault(method="GET", path="/version", status=401, body='{"error": "not sesame"}'))
    clock = SystemClock()
    provider = load("liqo", file, clock)
    try:
        with pytest.raises(AuthError, match=r"liqo: GET /version: 401 Unauthorized: not \*\*\*$"):
            provider.groups(deadline=clock.monotonic() + 60)
    finally:
        provider.close()
    assert current.server.faulty_app.requests[-1].all("authorization") == ["Bearer sesame"]


def test_missing_keys_of_the_file_have_defaults(tmp_path: Path) -> None:
    file = tmp_path / "liqo.json"
    file.write_text('{"nodeManager": {"url": "https://node-manager:9009", "timeout": "4m"}, "settleTime": "2m"}')
    settings = read_file(file)
    assert isinstance(settings, LiqoFile)
    assert [
        float(duration) for duration in (settings.refresh_interval, settings.poll_interval, settings.settle_time)
    ] == [5, 2, 120]
    assert [float(settings.node_manager.timeout), settings.node_manager.attempts] == [240, 4]


WRONG = {
    "no file": (None, "--cloud-provider liqo: --cloud-config FILE is missing"),
    "no node manager": ("{}", "Object missing required field `nodeManager`"),
    "an unknown key": (
        "nodeManager: {url: https://x}\nnode: 1",
        "Object contains unknown field `node`",
    ),
    "plain text": (
        "nodeManager: {url: http://node-manager:9009}",
        "nodeManager.url: expected https, or http to a loopback address",
    ),
    "no URL": (
        "nodeManager: {url: node-manager}",
        "nodeManager.url: expected http(s)://host[:port][/path], without user, query or fragment",
    ),
    "a poll interval of zero": (
        "nodeManager: {url: https://x}\npollInterval: 0s",
        "pollInterval: expected more than 0s",
    ),
    "a time": (
        "nodeManager: {url: https://x}\nsettleTime: 5",
        'expected a duration such as "90s" or "1m35s", got 5 - at `$.settleTime`',
    ),
    "a certificate": (
        "nodeManager: {url: https://x, clientCertFile: no.pem}",
        ("nodeManager.clientCertFile {folder}/no.pem: cannot be read: No such file or directory"),
    ),
}


@pytest.mark.parametrize("fact", WRONG)
def test_errors_are_one_line(fact: str, tmp_path: Path) -> None:
    text, message = WRONG[fact]
    file = tmp_path / "liqo.yaml"
    file.write_text(text or "")
    with pytest.raises(ConfigError) as caught:
        load("liqo", file if text else None, SystemClock())
    where = "" if message.startswith("--") else f"cloud configuration {file}: "
    assert str(caught.value) == where + message.replace("{folder}", str(tmp_path))
