"""The ``--cloud-config`` file: Cluster Autoscaler's keys for its externalgrpc provider, in YAML.

Source: ``cluster-autoscaler/cloudprovider/externalgrpc/externalgrpc_cloud_provider.go`` (``cloudConfig``). Without
`cert` the connection is not encrypted, and `key` and `cacert` are ignored. Relative paths are resolved against the
folder of the file.
"""

from pathlib import Path

import msgspec

from rescheduler.errors import ConfigError, UsageError
from rescheduler.net.config_files import Duration, Section, read
from rescheduler.settings import ListenAddress


class ExternalGrpcFile(Section, frozen=True, kw_only=True):
    address: str  #: host:port; the host is the name in the service's certificate
    cert: str = ""
    key: str = ""
    cacert: str = ""
    grpc_timeout: Duration = msgspec.field(default=Duration(5), name="grpc_timeout")  #: of one call
    #: Between two polls while a machine is being deleted.
    poll_interval: Duration = msgspec.field(default=Duration(2), name="poll_interval")


def read_file(path: Path | None) -> ExternalGrpcFile:
    """Return the validated file. Raises ConfigError that names the file and the key."""
    if path is None:
        raise ConfigError("--cloud-provider externalgrpc: --cloud-config FILE is missing")
    file = read(path, ExternalGrpcFile)
    rules = {
        "address": (_is_address(file.address), "host:port, such as provider:8086 or [::1]:8086"),
        "key": (not file.cert or bool(file.key), "the file of cert's private key"),
        "cacert": (not file.cert or bool(file.cacert), "the file of the CA of the service's certificate"),
        "grpc_timeout": (file.grpc_timeout > 0, "more than 0s"),
        "poll_interval": (file.poll_interval > 0, "more than 0s"),
    }
    for key, (holds, expected) in rules.items():
        if not holds:
            raise ConfigError(f"cloud configuration {path}: {key}: expected {expected}")
    return file


def _is_address(text: str) -> bool:
    try:
        address = ListenAddress.parse(text)
    except UsageError:
        return False
    return bool(address.host) and address.port > 0 and not set(address.host) & set("/ @")
