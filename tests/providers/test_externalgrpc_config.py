"""The --cloud-config file for externalgrpc, and one-line error messages."""

from pathlib import Path

import pytest

import rescheduler.providers
from rescheduler.clock import SystemClock
from rescheduler.errors import ConfigError
from rescheduler.net.config_files import Duration
from rescheduler.providers.externalgrpc.channel import ExternalGrpcFile, read_file

VALID: dict[str, tuple[str, ExternalGrpcFile]] = {
    "plain text": ('address: "provider:8086"', ExternalGrpcFile(address="provider:8086")),
    "key and CA without a certificate are ignored": (
        "address: '[::1]:8086'\nkey: /nowhere\ncacert: ''",
        ExternalGrpcFile(address="[::1]:8086", key="/nowhere"),
    ),
    "all of Cluster Autoscaler's keys": (
        "address: a:1\nkey: /k\ncert: /c\ncacert: /ca\ngrpc_timeout: 4m",
        ExternalGrpcFile(address="a:1", key="/k", cert="/c", cacert="/ca", grpc_timeout=Duration(240)),
    ),
}

INVALID: dict[str, tuple[str, str]] = {
    "empty": ("", "Object missing required field `address`"),
    "no address": ("cert: ''", "Object missing required field `address`"),
    "no port": ("address: provider", "address: expected host:port, such as provider:8086 or [::1]:8086"),
    "no host": ("address: ':8086'", "address: expected host:port, such as provider:8086 or [::1]:8086"),
    "a URL": ("address: http://a:1", "address: expected host:port, such as provider:8086 or [::1]:8086"),
    "an IPv6 address without brackets": (
        "address: ::1:8086",
        "address: expected host:port, such as provider:8086 or [::1]:8086",
    ),
    "no key": ("address: a:1\ncert: c\ncacert: ca", "key: expected the file of cert's private key"),
    "no authority": (
        "address: a:1\ncert: c\nkey: k",
        "cacert: expected the file of the CA of the service's certificate",
    ),
    "a timeout without a unit": (
        "address: a:1\ngrpc_timeout: 5",
        'expected a duration such as "90s" or "1m35s", got 5 - at `$.grpc_timeout`',
    ),
    "zero duration": ("address: a:1\ngrpc_timeout: 0s", "grpc_timeout: expected more than 0s"),
    "an unknown key": ("address: a:1\ncaCert: x", "Object contains unknown field `caCert`"),
}


@pytest.mark.parametrize("fact", VALID)
def test_valid_files_are_read(fact: str, tmp_path: Path) -> None:
    text, expected = VALID[fact]
    (tmp_path / "file").write_text(text)
    assert read_file(tmp_path / "file") == expected


@pytest.mark.parametrize("fact", INVALID)
def test_invalid_files_are_reported_in_one_line(fact: str, tmp_path: Path) -> None:
    text, message = INVALID[fact]
    path = tmp_path / "file"
    path.write_text(text)
    with pytest.raises(ConfigError) as caught:
        rescheduler.providers.load("externalgrpc", path, SystemClock())
    assert str(caught.value) == f"cloud configuration {path}: {message}"


def test_a_missing_file_is_a_usage_error() -> None:
    with pytest.raises(ConfigError, match=r"^--cloud-provider externalgrpc: --cloud-config FILE is missing$"):
        rescheduler.providers.load("externalgrpc", None, SystemClock())
