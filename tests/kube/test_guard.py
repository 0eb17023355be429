"""Guarded writes: the guard is called before each write and limits its duration."""

import contextlib
import socket
import ssl
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from predicates.objects import Taint
from rescheduler.clock import SystemClock
from rescheduler.errors import Forbidden, NotLeading, Permanent, ReschedulerError, Retryable
from rescheduler.kube.client import Client
from rescheduler.kube.cluster import KubeCluster, NodeEdit
from rescheduler.kube.connection import Kubeconfig
from rescheduler.kube.recorder import Recorder, Subject
from rescheduler.kube.responses import Guard, ReadOnly
from tests.kube.conftest import HastyClock, kubeconfig
from tests.kube.edge import ReceivedRequest, Reply, ScriptedApiServer, Step, status
from tests.kube.test_connection import TurningClock

WRITES = ("POST", "PATCH", "PUT", "DELETE")
POLICY = "spot-rescheduler-fencing.kube-system.spot-rescheduler"
DENIED = (
    f"nodes \"n1\" is forbidden: ValidatingAdmissionPolicy '{POLICY}' with binding '{POLICY}' denied request: "
    "spot-rescheduler fencing: pod a does not hold the Lease kube-system/k8s-spot-rescheduler"
)
NO_LEASE = (
    f"nodes \"n1\" is forbidden: ValidatingAdmissionPolicy '{POLICY}' with binding '{POLICY}' denied request: "
    "failed to configure binding: no params found for policy binding with `Deny` parameterNotFoundAction"
)


class Permission:
    """A guard that permits one write for each of *seconds*, and reports *lags* times that the fence may lag.

    *edge* counts the received requests; without it the number is zero.
    """

    def __init__(self, *seconds: float, edge: ScriptedApiServer | None = None, lags: int = 0) -> None:
        self._seconds = seconds
        self._edge = edge
        self._lags = lags

    def seconds_left(self) -> float:
        sent = (
            len([request for request in self._edge.requests if request.method != "GET"])
            if self._edge is not None
            else 0
        )
        if sent >= len(self._seconds):
            raise NotLeading("the lease ns/l is held by another")
        return self._seconds[sent]

    @property
    def fence_may_lag(self) -> bool:
        self._lags -= 1
        return self._lags >= 0


@pytest.mark.parametrize("method", WRITES)
def test_a_write_is_sent_with_the_time_that_it_has(edge: ScriptedApiServer, client: Client, method: str) -> None:
    edge.on(method, "/x", Reply())
    client.guarded(Permission(11.9)).request("write x", method, "/x", query={"a": "b"}, body={})
    assert [request.query for request in edge.requests] == [{"a": "b", "timeout": "11s"}]


def test_a_shorter_timeout_of_the_write_is_kept(edge: ScriptedApiServer, client: Client) -> None:
    edge.on("PATCH", "/x", Reply())
    client.guarded(Permission(11.9)).request("write x", "PATCH", "/x", body={}, read_seconds=5.5)
    assert [request.query for request in edge.requests] == [{"timeout": "5s"}]


REFUSING: dict[str, tuple[Callable[[], Guard], str]] = {
    "another replica leads": (Permission, "write x: not sent: the lease ns/l is held by another"),
    "too little time is left": (lambda: Permission(0.99), "write x: not sent: our leadership may end within 1 s"),
    "a dry run": (ReadOnly, "write x: not sent: a dry run writes nothing"),
}


@pytest.mark.parametrize(("guard", "text"), REFUSING.values(), ids=REFUSING)
@pytest.mark.parametrize("method", WRITES)
def test_a_write_that_is_not_permitted_is_not_sent(
    edge: ScriptedApiServer, client: Client, method: str, guard: Callable[[], Guard], text: str
) -> None:
    with pytest.raises(NotLeading) as caught:
        client.guarded(guard()).request("write x", method, "/x", body={})
    assert str(caught.value) == text
    assert edge.requests == []


def test_reads_need_no_permission(edge: ScriptedApiServer, client: Client) -> None:
    edge.on("GET", "/x", Reply())
    edge.on_watch("/x", Reply())
    reader = client.guarded(Permission())
    reader.request("get x", "GET", "/x")
    reader.stream("watch x", "/x", query={"watch": "true"}, idle_seconds=30).close()
    assert [request.query for request in edge.requests] == [{}, {"watch": "true"}]


def test_the_original_client_is_not_guarded(edge: ScriptedApiServer, client: Client) -> None:
    edge.on("POST", "/x", Reply())
    client.guarded(Permission())
    client.request("write x", "POST", "/x", body={})
    assert [request.query for request in edge.requests] == [{}]


@pytest.mark.parametrize(("permitted", "sent"), [(1, ["old"]), (2, ["old", "new"])])
def test_a_write_sent_again_with_fresh_credentials_needs_permission_again(
    tmp_path: Path, edge: ScriptedApiServer, permitted: int, sent: list[str]
) -> None:
    clock = TurningClock()
    client = Client(Kubeconfig(str(kubeconfig(tmp_path, edge.url, "{token: old}"))), clock)
    edge.on("POST", "/x", status(401))
    kubeconfig(tmp_path, edge.url, "{token: new}")
    clock.time = 11.0
    with pytest.raises(ReschedulerError) as caught:
        client.guarded(Permission(*[9.0] * permitted, edge=edge)).request("write x", "POST", "/x", body={})
    assert isinstance(caught.value, NotLeading) is (permitted == 1)
    assert [request.headers["authorization"] for request in edge.requests] == [f"Bearer {token}" for token in sent]


def node(_: ReceivedRequest) -> Reply:
    return Reply({"metadata": {"name": "n1", "uid": "u1", "resourceVersion": "1"}, "spec": {}})


def test_an_edit_whose_permission_ended_after_its_read_is_not_sent(edge: ScriptedApiServer, client: Client) -> None:
    edge.on("GET", "/api/v1/nodes/n1", node)
    with pytest.raises(NotLeading):
        KubeCluster(client.guarded(Permission())).edit_node("n1", "u1", NodeEdit(taint=(Taint(key="k", effect="e"),)))
    assert [request.method for request in edge.requests] == ["GET"]


def test_an_edit_after_a_conflict_needs_permission_again(edge: ScriptedApiServer, client: Client) -> None:
    edge.on("GET", "/api/v1/nodes/n1", node)
    edge.on("PATCH", "/api/v1/nodes/n1", status(409))
    with pytest.raises(NotLeading):
        KubeCluster(client.guarded(Permission(9.0, 9.0, edge=edge))).edit_node(
            "n1", "u1", NodeEdit(annotate={"a": "b"})
        )
    assert [request.method for request in edge.requests] == ["GET", "PATCH", "GET", "PATCH", "GET"]


def test_an_eviction_that_is_not_permitted_has_not_failed(edge: ScriptedApiServer, client: Client) -> None:
    with pytest.raises(NotLeading):
        KubeCluster(client.guarded(Permission())).evict("ns", "p", "u")
    assert edge.requests == []


def test_events_without_permission_are_dropped_with_one_log_line(
    edge: ScriptedApiServer, client: Client, clock: HastyClock, caplog: pytest.LogCaptureFixture
) -> None:
    recorder = Recorder(client.guarded(Permission()), clock)
    recorder.start()
    for reason in ("One", "Two", "Three"):
        recorder.record(Subject("Node", "n1", "u1"), reason, "text")
    recorder.close(60.0)
    assert edge.requests == []
    assert [record.getMessage() for record in caplog.records] == [
        "events cannot be written: create event: not sent: the lease ns/l is held by another"
    ]


DENIALS: dict[str, Step] = {"another pod leads": status(403, DENIED), "no Lease": status(422, NO_LEASE)}


@pytest.mark.parametrize("denial", DENIALS.values(), ids=DENIALS)
def test_a_new_leader_s_write_is_sent_again_until_the_fencing_policy_has_seen_its_lease(
    edge: ScriptedApiServer, client: Client, clock: HastyClock, denial: Step
) -> None:
    edge.on("POST", "/x", denial, denial, Reply(code=201))
    guard = Permission(9.0, 8.0, 7.0, edge=edge, lags=3)
    assert client.guarded(guard).request("write x", "POST", "/x", body={}).code == 201
    assert [request.query["timeout"] for request in edge.requests] == ["9s", "8s", "7s"]
    assert clock.waits == [0.25, 0.25]


@pytest.mark.parametrize("denial", DENIALS.values(), ids=DENIALS)
def test_a_denial_by_the_fencing_policy_means_that_we_do_not_lead(
    edge: ScriptedApiServer, client: Client, denial: Step
) -> None:
    edge.on("POST", "/api/v1/namespaces/ns/pods/p/eviction", denial)
    with pytest.raises(NotLeading, match='evict pod ns/p: nodes "n1" is forbidden: ValidatingAdmissionPolicy'):
        KubeCluster(client.guarded(Permission(9.0, 9.0, edge=edge, lags=1))).evict("ns", "p", "u")
    assert len(edge.requests) == 2


def test_a_write_denied_to_a_new_leader_is_not_sent_again_once_it_does_not_lead(
    edge: ScriptedApiServer, client: Client
) -> None:
    edge.on("POST", "/x", status(403, DENIED))
    with pytest.raises(NotLeading, match="held by another"):
        client.guarded(Permission(9.0, edge=edge, lags=99)).request("write x", "POST", "/x", body={})
    assert len(edge.requests) == 1


OTHERS: dict[str, tuple[Step, type[ReschedulerError]]] = {
    "a missing permission": (status(403, 'User "x" cannot patch resource "nodes" in API group ""'), Forbidden),
    "another policy": (status(403, DENIED.replace("spot-rescheduler-fencing", "fence")), Forbidden),
    "another policy, about us": (status(422, "ValidatingAdmissionPolicy 'no-spot-rescheduler' denied"), Permanent),
}


@pytest.mark.parametrize(("answer", "kind"), OTHERS.values(), ids=OTHERS)
def test_other_denials_are_unchanged(
    edge: ScriptedApiServer, client: Client, answer: Step, kind: type[ReschedulerError]
) -> None:
    edge.on("POST", "/x", answer)
    with pytest.raises(kind):
        client.guarded(Permission(9.0, lags=9)).request("write x", "POST", "/x", body={})
    assert len(edge.requests) == 1


#: Stages at which a server stalls.
STALLS = ("the handshake", "the answer", "the middle of the answer", "the body")


@contextlib.contextmanager
def stalling(at: str, certificates: Path) -> Iterator[str]:
    """Run an HTTPS server that stalls before *at*, and yield its URL."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(certificates / "server.pem")
    with contextlib.ExitStack() as opened:
        listening = opened.enter_context(socket.create_server(("127.0.0.1", 0)))

        def serve() -> None:
            connection = opened.enter_context(listening.accept()[0])
            if at == "the handshake":
                return
            secure = opened.enter_context(context.wrap_socket(connection, server_side=True))
            secure.recv(1 << 16)
            if at == "the middle of the answer":
                secure.sendall(b"HTTP/1.1 200 OK\r\ncontent-length: 10\r\n")
            if at == "the body":
                secure.sendall(b"HTTP/1.1 200 OK\r\ncontent-length: 10\r\n\r\n{")

        server = threading.Thread(target=serve)
        server.start()
        yield f"https://127.0.0.1:{listening.getsockname()[1]}"
        server.join()


@pytest.mark.parametrize("at", STALLS)
def test_a_write_to_a_server_that_stalls_ends_within_its_time(certificates: Path, tmp_path: Path, at: str) -> None:
    """Without the limit, the client would wait for a minute."""
    with stalling(at, certificates) as url:
        config = secure_kubeconfig(tmp_path, url, certificates)
        client = Client(Kubeconfig(config), SystemClock(), read_seconds=60.0).guarded(Permission(1.5))
        started = time.monotonic()  # noqa: TID251 - what is tested is a time
        with pytest.raises(Retryable, match=r"in time|timed out"):
            client.request("write x", "POST", "/x", body={})
        assert time.monotonic() - started < 30  # noqa: TID251


class Deposed:
    """A guard that leads until the connection is open."""

    fence_may_lag = False

    def __init__(self, handshake: threading.Event) -> None:
        self._handshake = handshake

    def seconds_left(self) -> float:
        if self._handshake.is_set():
            raise NotLeading("the lease ns/l is held by another")
        return 10.0


def test_a_write_whose_permission_ended_during_the_connect_is_not_sent(certificates: Path, tmp_path: Path) -> None:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(certificates / "server.pem")
    deposed = threading.Event()
    received: list[bytes] = []
    with socket.create_server(("127.0.0.1", 0)) as listening:

        def serve() -> None:
            connection = listening.accept()[0]
            deposed.set()
            with connection, context.wrap_socket(connection, server_side=True) as secure:
                received.append(secure.recv(1 << 16))

        server = threading.Thread(target=serve)
        server.start()
        config = secure_kubeconfig(tmp_path, f"https://127.0.0.1:{listening.getsockname()[1]}", certificates)
        with pytest.raises(NotLeading):
            Client(Kubeconfig(config), SystemClock()).guarded(Deposed(deposed)).request(
                "write x", "POST", "/x", body={}
            )
        server.join()
    assert received == [b""]


def secure_kubeconfig(folder: Path, url: str, certificates: Path) -> str:
    path = kubeconfig(folder, url)
    trusted = f'server: "{url}", certificate-authority: {certificates / "ca.pem"}'
    path.write_text(path.read_text().replace(f'server: "{url}"', trusted))
    return str(path)
