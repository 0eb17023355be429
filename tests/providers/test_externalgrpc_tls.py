"""Mutual TLS between both ends, and certificate rotation while both run."""

import shutil
from collections.abc import Iterator
from pathlib import Path

import grpc
import pytest

from rescheduler import errors
from rescheduler.clock import SystemClock
from rescheduler.errors import BackendUnavailable
from rescheduler.net.files import Certificates, PemFile
from rescheduler.providers.base import NodeGroup
from rescheduler.providers.externalgrpc import wire
from tests.providers import pki
from tests.providers.externalgrpcs import connected, offered
from tests.providers.served import SERVER_FILES, Service
from tests.providers.shelf import Caller, Shelf

CLOCK = SystemClock()
OURS = [NodeGroup("g", 1, 2**31 - 1, "for tests")]


@pytest.fixture
def address(pems: Path) -> Iterator[str]:
    flags = {"key": "server.key", "cert": "server.crt", "ca": "ca.pem"}
    certificates = Certificates(**{name: PemFile(f"--{name}", pems / file) for name, file in flags.items()})
    with offered(Shelf(), CLOCK, certificates) as where:
        yield where


def groups(address: str, folder: Path, **keys: str) -> object:
    with connected(address, CLOCK, folder, **keys) as provider:
        return provider.groups(deadline=CLOCK.monotonic() + 30)


def test_clients_with_a_certificate_of_the_ca_are_served(address: str, pems: Path) -> None:
    assert groups(address, pems, cert="client.crt", key="client.key", cacert="ca.pem") == OURS


@pytest.mark.parametrize(
    "keys",
    [
        {},
        {"cert": "stranger.pem", "key": "stranger.key", "cacert": "ca.pem"},
        {"cert": "client.crt", "key": "client.key", "cacert": "stranger.pem"},
    ],
    ids=["plain text", "a certificate of another authority", "a client that trusts another authority"],
)
def test_other_clients_are_rejected(keys: dict[str, str], address: str, pems: Path) -> None:
    with pytest.raises(BackendUnavailable, match=f"^externalgrpc {address} NodeGroups: UNAVAILABLE: "):
        groups(address, pems, **keys)


def test_a_client_without_a_certificate_is_rejected(address: str, pems: Path) -> None:
    credentials = grpc.ssl_channel_credentials((pems / "ca.pem").read_bytes())
    with grpc.secure_channel(address, credentials) as channel:
        call = Caller(address)
        call.channel.close()
        call.channel = channel
        assert call.failure("NodeGroups", wire.NodeGroupsRequest())[0] == "UNAVAILABLE"


def test_failed_handshakes_are_not_logged(pems: Path) -> None:
    """The gRPC core would write a line for each failed handshake."""
    with Service(pems, "--cloud-provider=none", *SERVER_FILES) as service:
        with pytest.raises(BackendUnavailable):
            groups(service.address, pems, cert="stranger.pem", key="stranger.key", cacert="ca.pem")
        address = service.address
    ours = [f"serving the cloud provider none on {address}", "SIGTERM: stopping after the calls in progress"]
    assert len(service.lines) == len(ours), service.lines
    assert all(text in line for text, line in zip(ours, service.lines, strict=True)), service.lines


def test_a_new_ca_at_both_ends_is_used_without_a_restart(address: str, pems: Path, tmp_path: Path) -> None:
    """The running client uses its new certificate for the next call, the service for the next handshake."""
    (tmp_path / "new").mkdir()
    pki.make(tmp_path / "new")
    before = {"cert": "client.crt", "key": "client.key", "cacert": "ca.pem"}
    old = shutil.copytree(pems, tmp_path / "old")
    with connected(address, CLOCK, pems, **before) as provider:
        assert provider.groups(deadline=CLOCK.monotonic() + 30) == OURS
        for file in ("server.crt", "server.key", "client.crt", "client.key", "ca.pem"):
            shutil.copy(tmp_path / "new" / file, pems / file)
        assert provider.groups(deadline=CLOCK.monotonic() + 30) == OURS
    assert groups(address, pems, **before) == OURS
    with pytest.raises(BackendUnavailable):
        groups(address, Path(old), **before)


def test_a_certificate_that_does_not_match_its_key_is_ignored(
    address: str, pems: Path, caplog: pytest.LogCaptureFixture
) -> None:
    shutil.copy(pems / "client.crt", pems / "server.crt")
    keys = {"cert": "client.crt", "key": "client.key", "cacert": "ca.pem"}
    assert groups(address, pems, **keys) == OURS
    assert groups(address, pems, **keys) == OURS
    messages = [record.message for record in caplog.records if "certificates are invalid" in record.message]
    assert len(messages) == 1
    assert "PRIVATE KEY" not in messages[0]


INVALID_FILES: dict[str, tuple[dict[str, str], str]] = {
    "a missing file": ({"cert": "nowhere.crt"}, "cert {folder}/nowhere.crt: cannot be read: "),
    "a key of another certificate": ({"key": "server.key"}, "cert {folder}/client.crt, key {folder}/server.key: "),
    "a key with a password": ({"key": "encrypted.key"}, "key {folder}/encrypted.key: "),
    "an invalid CA": ({"cacert": "names"}, "cacert {folder}/names: no usable PEM certificate: "),
}


@pytest.mark.parametrize("fact", INVALID_FILES)
def test_errors_name_invalid_files(fact: str, pems: Path) -> None:
    changes, begin = INVALID_FILES[fact]
    keys = {"cert": "client.crt", "key": "client.key", "cacert": "ca.pem"} | changes
    with pytest.raises(errors.UsageError) as caught, connected("127.0.0.1:1", CLOCK, pems, **keys):
        pass
    assert str(caught.value).startswith(begin.format(folder=pems))
