"""Tests of ``rescheduler provider serve`` as a process: serving, clean shutdown, and errors in one line."""

import re
import signal
import subprocess
import sys
from pathlib import Path

import grpc
import pytest

from rescheduler.providers.externalgrpc import wire
from rescheduler.providers.externalgrpc.channel import SERVICE
from tests.providers import pki

SERVE = (sys.executable, "-m", "rescheduler", "provider", "serve")


def test_the_service_uses_mutual_tls_and_exits_with_0_on_sigterm(tmp_path: Path) -> None:
    pki.make(tmp_path)
    files = ("--cert", "server.crt", "--key-cert", "server.key", "--ca-cert", "ca.pem")
    command = (*SERVE, "--cloud-provider=none", "--address=127.0.0.1:0", *files)
    with subprocess.Popen(command, cwd=tmp_path, stderr=subprocess.PIPE, text=True) as process:
        assert process.stderr is not None
        try:
            line = process.stderr.readline()
            address = re.search(r"serving the cloud provider none on (127\.0\.0\.1:[0-9]+), mutual TLS$", line)
            assert address, line
            pems = [(tmp_path / name).read_bytes() for name in ("ca.pem", "client.key", "client.crt")]
            with grpc.secure_channel(address[1], grpc.ssl_channel_credentials(*pems)) as channel:
                response = channel.unary_unary(f"/{SERVICE}/NodeGroups")(b"", timeout=120)
        finally:
            process.send_signal(signal.SIGTERM)
        process.communicate(timeout=120)
    assert (wire.NodeGroupsResponse.FromString(response), process.returncode) == (wire.NodeGroupsResponse(), 0)


WRONG = {
    "two of three files": (
        ("--cert", "c", "--key-cert", "k"),
        2,
        "rescheduler: --cert, --key-cert and --ca-cert: expected all three, for mutual TLS",
    ),
    "a missing file": (
        ("--cert", "c", "--key-cert", "k", "--ca-cert", "a"),
        2,
        "rescheduler: --key-cert k: cannot be read: No such file or directory",
    ),
    "an invalid address": (
        ("--address", "8086"),
        2,
        (
            "rescheduler provider serve: Invalid value for '--address' (env var: 'RESCHEDULER_ADDRESS'): "
            "address '8086': expected host:port, such as localhost:9235 or 0.0.0.0:9235"
        ),
    ),
    "an address of another machine": (
        ("--address", "192.0.2.1:8086", "--insecure-plaintext"),
        1,
        "rescheduler: --address 192.0.2.1:8086: cannot listen there: Cannot assign requested address",
    ),
    "unsupported node groups": (
        ("--nodes", "1:2:pool", "--insecure-plaintext"),
        2,
        "rescheduler: --nodes=1:2:pool: the cloud provider 'none' does not use this flag",
    ),
    "group auto-discovery": (
        ("--cloud-provider=cherryservers", "--node-group-auto-discovery=asg:tag=a", "--node-group-auto-discovery=b"),
        2,
        (
            "rescheduler: --node-group-auto-discovery=asg:tag=a: "
            "the cloud provider 'cherryservers' gets its groups from --nodes; remove this flag"
        ),
    ),
    "a provider that adds no machines": (
        ("--cloud-provider=karpenter", "--insecure-plaintext"),
        2,
        (
            "rescheduler: --cloud-provider=karpenter: expected another provider; "
            "Cluster Autoscaler cannot scale the nodes of Karpenter"
        ),
    ),
    "a provider that Cluster Autoscaler has, too": (
        ("--cloud-provider=clusterapi", "--insecure-plaintext"),
        2,
        (
            "rescheduler: --cloud-provider=clusterapi: expected another provider; "
            "Cluster Autoscaler has its own provider clusterapi"
        ),
    ),
    "no configuration": (
        ("--cloud-provider", "externalgrpc", "--insecure-plaintext"),
        2,
        "rescheduler: --cloud-provider externalgrpc: --cloud-config FILE is missing",
    ),
}


@pytest.mark.parametrize("fact", WRONG)
def test_errors_are_one_line(fact: str, tmp_path: Path) -> None:
    arguments, status, line = WRONG[fact]
    done = subprocess.run((*SERVE, *arguments), cwd=tmp_path, capture_output=True, text=True, timeout=120, check=False)
    assert (done.returncode, done.stdout, done.stderr) == (status, "", line + "\n")
