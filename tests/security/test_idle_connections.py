"""Clients without credentials hold 5,000 connections to a process that may open 1,024 files.

The probes of all ports are still answered, and the memory of the process grows little and comes back. The clients open
each connection again that is closed. They have two addresses, or more than the process has connections.
"""

import contextlib
import logging
import resource
import ssl
import statistics
import subprocess
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager
from pathlib import Path
from time import perf_counter, process_time
from typing import Final, Protocol

import grpc
import httpx2
import pytest
from grpc_health.v1 import health_pb2, health_pb2_grpc

from tests.cluster.waiting import eventually
from tests.fuzz import providers, targets
from tests.fuzz.process import ROOT, Watched
from tests.observe.test_connection import COSTLY
from tests.providers import pki

DESCRIPTORS: Final = 1024
CONNECTIONS: Final = 5000
#: Numbers of further addresses of the clients: none, so they are that of the probes and another one; or more than the
#: process has connections.
FEW: Final = 0
MANY: Final = 2000
PROBES: Final = 20
SPUN_SECONDS: Final = 0.2
BUSY: Final = 100  #: connections that send a request as soon as they are open
KINDS: Final = 2  #: of lines about connections, each of which is logged once a minute
MEGABYTES: Final = 200.0
LEFT_MEGABYTES: Final = 50.0  #: what may stay after the attack: memory that the allocator keeps
#: Connections that are measured: fewer than the limit at 1,024 descriptors.
MEASURED: Final = 240
#: The same for a server whose connections are relayed, which takes three descriptors for each.
RELAYED: Final = 76
KILOBYTES: Final = 32.0
#: A relayed connection is in two libraries, and so few of them show the granularity of the allocator: 7 to 44 KB.
RELAYED_KILOBYTES: Final = 64.0


class FloodedProcess(Protocol):
    process: Watched
    port: int


def provider(folder: Path) -> AbstractContextManager[FloodedProcess]:
    pki.make(folder)
    files = {"cert": "server.crt", "key-cert": "server.key", "ca-cert": "ca.pem"}
    tls = (f"--{flag}={folder / name}" for flag, name in files.items())
    return providers.cloudpool(folder, *tls, "--listen-address=127.0.0.1:0")


TARGETS: Final[dict[str, Callable[[Path], AbstractContextManager[FloodedProcess]]]] = {
    "run": targets.pages,
    "proxy": lambda folder: targets.proxy(folder, tls=True),
    "discovery": lambda folder: targets.liqo(folder, "discovery", tls=True),
    "node-manager": lambda folder: targets.liqo(folder, "node-manager", tls=True),
    "provider": provider,
}


def client_hello() -> bytes:
    """Return the first record of a TLS handshake."""
    context, incoming, outgoing = ssl.create_default_context(), ssl.MemoryBIO(), ssl.MemoryBIO()
    with contextlib.suppress(ssl.SSLWantReadError):
        context.wrap_bio(incoming, outgoing, server_hostname="proxy.example.com").do_handshake()
    return outgoing.read()


log = logging.getLogger(__name__)

LONGEST: Final = "the longest record but a byte"
#: What the client sends before it is silent.
SENT: Final = {
    "nothing": b"",
    "a byte": client_hello()[:1],
    "half a record": client_hello()[:100],
    "a record": client_hello(),
    LONGEST: b"\x16\x03\x01\x40\x00\x01\x00\x3f\xfc" + b"x" * ((1 << 14) - 5),
}
BEFORE: Final = [name for name in SENT if name != "a record"]  #: before the handshake begins


HELD: Final = (("nothing", FEW), ("nothing", MANY), ("half a record", FEW), ("a record", FEW), ("a record", MANY))
#: Each target, what is sent, and the number of addresses. Discovery and node manager have one server
#: (`rescheduler/liqo/serving.py`), and the pages of `run` have no TLS, so a record is a request that does not end.
FLOODS: Final = [
    (name, *held)
    for name in TARGETS
    for held in HELD
    if name not in ("node-manager", "run") or held in (("nothing", MANY), ("a record", MANY))
]


@contextlib.contextmanager
def few_descriptors(target: AbstractContextManager[FloodedProcess]) -> Iterator[FloodedProcess]:
    """Start a target that may open 1,024 files."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    with contextlib.ExitStack() as parts:
        resource.setrlimit(resource.RLIMIT_NOFILE, (DESCRIPTORS, hard))
        try:
            started = parts.enter_context(target)
        finally:
            resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
        yield started


@contextlib.contextmanager
def flood(port: int, count: int, sent: bytes = b"", addresses: Sequence[str] = ()) -> Iterator[None]:
    arguments = [sys.executable, "-m", "tests.security.flood", str(port), str(count), sent.hex(), *addresses]
    with subprocess.Popen(arguments, cwd=ROOT, stdout=subprocess.PIPE) as attacker:
        try:
            assert attacker.stdout is not None
            assert attacker.stdout.readline() == b"flooding\n"
            yield
        finally:
            attacker.kill()


def clients(count: int) -> list[str]:
    """Return so many addresses of this machine, without the one that probes come from."""
    return [f"127.1.{number // 250}.{number % 250 + 1}" for number in range(count)]


def probe(port: int) -> float:
    """Return the seconds until the response."""
    began = perf_counter()
    response = httpx2.get(f"http://127.0.0.1:{port}/healthz", timeout=60, trust_env=False)
    assert (response.status_code, response.text) == (200, "ok\n")
    return perf_counter() - began


def share_of_processor() -> float:
    """Return which part of a processor a busy process gets at present; 1 on a machine with nothing else to do."""
    began, used = perf_counter(), process_time()
    while process_time() - used < SPUN_SECONDS:
        pass
    return (process_time() - used) / (perf_counter() - began)


@pytest.mark.parametrize(("name", "sent", "addresses"), FLOODS)
def test_probes_are_answered_while_clients_hold_connections(
    name: str, sent: str, addresses: int, tmp_path: Path
) -> None:
    with few_descriptors(TARGETS[name](tmp_path)) as target:
        process = target.process
        health = min(process.ports - {target.port}, default=target.port)
        probe(health)
        megabytes, descriptors = process.megabytes, process.descriptors
        began = perf_counter()
        with flood(target.port, CONNECTIONS, SENT[sent], clients(addresses)):
            seconds = [probe(health) for _ in range(PROBES)]
            share = share_of_processor()
            during = process.megabytes
            assert process.descriptors < DESCRIPTORS / 2
            lines = [line for line in process.lines if "connection" in line]
            minutes = (perf_counter() - began) / 60
        log.info("%s, %s, %d: %.3f s, %.0f MB", name, sent, addresses, statistics.median(seconds), during - megabytes)
        assert statistics.median(seconds) * share < 1
        assert during < megabytes + MEGABYTES
        eventually(lambda: process.descriptors <= descriptors + 8)
        assert process.megabytes < megabytes + LEFT_MEGABYTES
        assert len(lines) <= KINDS * (minutes + 1) + 1, "the log is flooded"
        assert process.problems() == []
        assert process.stop() == 0


@pytest.mark.parametrize(
    ("name", "sent"), [("run", "fields"), ("run", "chunks"), ("run", "trailers"), ("proxy", "fields")]
)
def test_probes_are_answered_while_clients_send_costly_requests(name: str, sent: str, tmp_path: Path) -> None:
    """Again and again, on the port of the probes."""
    with TARGETS[name](tmp_path) as target:
        process = target.process
        health = min(process.ports - {target.port}, default=target.port)
        probe(health)
        with flood(health, BUSY, COSTLY[sent][:60_000]):
            seconds = [probe(health) for _ in range(PROBES)]
            share = share_of_processor()
        assert statistics.median(seconds) * share < 1
        assert process.problems() == []
        assert process.stop() == 0


@pytest.mark.parametrize(
    ("name", "sent"),
    [(name, sent) for name in TARGETS for sent in BEFORE if name != "run"],
)
def test_a_connection_costs_little_before_its_handshake(name: str, sent: str, tmp_path: Path) -> None:
    with few_descriptors(TARGETS[name](tmp_path)) as target:
        process = target.process
        measured, limit = (RELAYED, RELAYED_KILOBYTES) if name == "provider" else (MEASURED, KILOBYTES)
        with flood(target.port, 4, SENT[sent]):
            before, descriptors = process.megabytes, process.descriptors
            with flood(target.port, measured, SENT[sent]):
                eventually(lambda: process.descriptors > descriptors + measured // 2)
                kilobytes = 1024 * (process.megabytes - before) / measured
        log.info("%s, %s: %.1f KB a connection", name, sent, kilobytes)
        assert kilobytes < limit


@pytest.mark.parametrize(("sent", "addresses"), [("nothing", 200), ("a record", 1), ("a record", 2)])
def test_calls_are_served_while_other_addresses_hold_connections(sent: str, addresses: int, tmp_path: Path) -> None:
    """One client could otherwise hold all connections of gRPC."""
    with few_descriptors(provider(tmp_path)) as target:
        files = ((tmp_path / name).read_bytes() for name in ("ca.pem", "client.key", "client.crt"))
        where, options = f"127.0.0.1:{target.port}", [("grpc.use_local_subchannel_pool", 1)]
        credentials = grpc.ssl_channel_credentials(*files)
        before = target.process.descriptors
        with flood(target.port, MEASURED * 2, SENT[sent], clients(addresses)):
            for _ in range(3):  # each with a connection of its own
                with grpc.secure_channel(where, credentials, options) as channel:
                    check = health_pb2_grpc.HealthStub(channel).Check
                    assert check(health_pb2.HealthCheckRequest(), wait_for_ready=True, timeout=60).status == 1
            assert target.process.descriptors < DESCRIPTORS / 2
        eventually(lambda: target.process.descriptors <= before + 8)
        assert target.process.problems() == []
