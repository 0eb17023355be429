"""``rescheduler liqo discovery`` as a process: it serves, survives a kill, stops cleanly, and reports errors."""

import contextlib
import os
import re
import signal
import socket
import ssl
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import httpx2
import pytest

from tests.kube.conftest import eventually
from tests.kube.conftest import kubeconfig as server_config
from tests.kube.edge import Reply, serving
from tests.liqo_services.builders import ended
from tests.liqo_services.test_discovery_secrets import SECRETS, page, secret

DISCOVERY = (sys.executable, "-m", "rescheduler", "liqo", "discovery")
ENVIRONMENT = {name: value for name, value in os.environ.items() if not name.startswith(("RESCHEDULER_", "KUBE"))}
FILES = ("--tls-cert=server.crt", "--tls-key=server.key", "--tls-client-ca=ca.pem")
FLAGS = ("--listen=127.0.0.1:0", "--database=discovery.db", *FILES, "--health-address=127.0.0.1:0", "-v=2")


@contextlib.contextmanager
def running(folder: Path, *flags: str) -> Iterator[tuple[subprocess.Popen[str], httpx2.Client]]:
    with subprocess.Popen(
        (*DISCOVERY, *FLAGS, *flags), cwd=folder, env=ENVIRONMENT, stderr=subprocess.PIPE, text=True
    ) as process:
        try:
            assert process.stderr is not None
            served = r"serving the list of clusters on (127\.0\.0\.1:[0-9]+), mutual TLS$"
            url = next(match[1] for line in process.stderr if (match := re.search(served, line)))
            context = ssl.create_default_context(cafile=folder / "ca.pem")
            context.load_cert_chain(folder / "client.pem")
            with httpx2.Client(base_url=f"https://{url}", verify=context, timeout=60) as client:
                yield process, client
        finally:
            process.kill()


def listed(client: httpx2.Client) -> list[str]:
    return [cluster["name"] for cluster in client.get("/list").json()]


def test_secrets_and_updates_are_listed_and_survive_a_kill(pems: Path) -> None:
    with serving() as edge:
        server_config(pems, edge.url)
        edge.on("GET", SECRETS.path, page(secret("milan")))
        with running(pems, "--kubeconfig=kubeconfig") as (process, client):
            assert client.post("/update", json={"clusters": [{"name": "turin", "ttl": "24h"}]}).is_success
            eventually(lambda: listed(client) == ["milan", "turin"], 120)
            process.kill()
        with running(pems, "--kubeconfig=kubeconfig") as (process, client):
            assert listed(client) == ["milan", "turin"]
            process.send_signal(signal.SIGTERM)
            _, log = process.communicate(timeout=120)
        with running(pems, "--namespace=") as (_, client):
            assert listed(client) == ["turin"]
        assert process.returncode == 0
        assert "SIGTERM: stopping after the calls in progress" in log
        assert "sesame" not in log


def test_without_secrets_no_cluster_is_needed(pems: Path) -> None:
    with running(pems, "--namespace=", "--reader=client", "--updater=client") as (_, client):
        assert client.post("/update", json={"clusters": [{"name": "turin"}]}).is_success
        assert listed(client) == ["turin"]


WRONG = {
    "no certificates": (
        ("--namespace=",),
        2,
        (
            "rescheduler: --tls-cert, --tls-key and --tls-client-ca: expected all three, for mutual TLS, "
            "or --insecure-plaintext"
        ),
    ),
    "client names with plain text": (
        ("--insecure-plaintext", "--listen=localhost:0", "--reader=x"),
        2,
        "rescheduler: --reader and --updater: expected with mutual TLS; with plain text, clients have no names",
    ),
    "an impossible database path": (
        (*FILES, "--database=no/where.db"),
        2,
        "rescheduler: --database no/where.db: cannot be written: No such file or directory",
    ),
    "no cluster": (
        (*FILES, "--database=:memory:", "--kubeconfig=none"),
        2,
        "rescheduler: kubeconfig none: no such file",
    ),
    "a namespace": (
        (*FILES, "--database=:memory:", "--kubeconfig=kubeconfig", "--namespace=My/Space"),
        2,
        "rescheduler: --namespace 'My/Space': expected the name of a namespace",
    ),
    "a selector": (
        (*FILES, "--database=:memory:", "--kubeconfig=kubeconfig", "--secret-selector=autoscaling==true=no"),
        2,
        (
            "rescheduler: --secret-selector 'autoscaling==true=no': expected a label selector as for kubectl, "
            "such as autoscaling=true or country in (it, fr)"
        ),
    ),
    "rights": (
        (*FILES, "--database=:memory:", "--kubeconfig=kubeconfig"),
        1,
        'rescheduler: list secrets: secrets is forbidden: User "x" cannot list resource (403)',
    ),
    "a duration": (
        ("--expire-after=5",),
        2,
        (
            "rescheduler liqo discovery: Invalid value for '--expire-after' (env var: 'RESCHEDULER_EXPIRE_AFTER'): "
            "'5': expected a duration such as 10s, 2m30s, 1h or 500ms"
        ),
    ),
}


@pytest.mark.parametrize("fact", WRONG)
def test_errors_are_one_line(
    fact: str, pems: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    flags, status, line = WRONG[fact]
    with serving() as edge:
        server_config(pems, edge.url)
        message = 'secrets is forbidden: User "x" cannot list resource'
        edge.on("GET", SECRETS.path, Reply({"kind": "Status", "message": message, "reason": "Forbidden"}, 403))
        assert ended(pems, monkeypatch, capfd, "discovery", *flags) == (status, line + "\n")


def test_an_address_in_use_is_reported_with_its_flag(pems: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as occupied:
        address = f"127.0.0.1:{occupied.getsockname()[1]}"
        for flag in ("--listen", "--health-address"):
            done = subprocess.run(
                (*DISCOVERY, *FLAGS, "--namespace=", f"{flag}={address}"),
                cwd=pems,
                env=ENVIRONMENT,
                capture_output=True,
                text=True,
                timeout=120,
                check=False,
            )
            line = f"rescheduler: {flag} {address}: cannot listen there: Address already in use\n"
            assert (done.returncode, done.stderr) == (1, line)
