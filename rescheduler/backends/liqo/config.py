"""The file of ``--cloud-config``: where the node manager answers, and how patient we are with it."""

from pathlib import Path
from urllib.parse import urlsplit

from rescheduler.backends.base import ConfigError
from rescheduler.backends.config import Duration, Endpoint, Section, check_endpoint, read
from rescheduler.settings import Address


class LiqoFile(Section, frozen=True, kw_only=True):
    """Paths count from the file."""

    node_manager: Endpoint
    refresh_interval: Duration = Duration(5)  #: for how long one look serves
    poll_interval: Duration = Duration(2)  #: between two looks while nodes are ending
    settle_time: Duration = Duration(60)  #: how long an order may be at work without being seen


def read_file(path: Path | None) -> LiqoFile:
    """The file, checked; ConfigError names the file and the key."""
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
    """Whether nobody can read along, who would see what may be deleted, and the kubeconfigs of clusters."""
    parts = urlsplit(url)
    return parts.scheme == "https" or Address(parts.hostname or "", 0).loopback
