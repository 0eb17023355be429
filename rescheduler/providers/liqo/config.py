"""The ``--cloud-config`` file: the address of the node manager, and intervals."""

from pathlib import Path
from urllib.parse import urlsplit

from rescheduler.errors import ConfigError
from rescheduler.net.config_files import Duration, Endpoint, Section, check_endpoint, read
from rescheduler.settings import ListenAddress


class LiqoFile(Section, frozen=True, kw_only=True):
    """The keys of the file. Paths are relative to the file."""

    node_manager: Endpoint
    refresh_interval: Duration = Duration(5)  #: how long a view is cached
    poll_interval: Duration = Duration(2)  #: between two polls while nodes are being deleted
    settle_time: Duration = Duration(60)  #: how long an order may take to show an effect


def read_file(path: Path | None) -> LiqoFile:
    """Return the validated file. Raises ConfigError that names the file and the key."""
    if path is None:
        raise ConfigError("--cloud-provider liqo: --cloud-config FILE is missing")
    file = read(path, LiqoFile)
    check_endpoint(file.node_manager, f"cloud configuration {path}", "nodeManager")
    rules = {
        "refreshInterval": (file.refresh_interval >= 0, "0s or more"),
        "pollInterval": (file.poll_interval > 0, "more than 0s"),
        "settleTime": (file.settle_time > 0, "more than 0s"),
        "nodeManager.url": (private(file.node_manager.url), "https, or http to a loopback address"),
    }
    for key, (holds, expected) in rules.items():
        if not holds:
            raise ConfigError(f"cloud configuration {path}: {key}: expected {expected}")
    return file


def private(url: str) -> bool:
    """Return whether traffic to *url*, which includes kubeconfigs of clusters, is encrypted or stays on this host."""
    parts = urlsplit(url)
    return parts.scheme == "https" or ListenAddress(parts.hostname or "", 0).loopback
