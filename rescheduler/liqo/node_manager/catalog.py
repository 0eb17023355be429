"""Clusters that share resources, and the node manager's client of discovery, which lists them."""

import logging
from collections.abc import Sequence
from dataclasses import dataclass, field
from decimal import Decimal
from pathlib import Path
from typing import Protocol

import msgspec

from rescheduler.clock import Clock
from rescheduler.errors import UsageError
from rescheduler.liqo.client import error_text
from rescheduler.liqo.discovery import messages
from rescheduler.liqo.discovery.messages import QuantityTexts
from rescheduler.liqo.node_manager.groups import ExactAmounts, amounts
from rescheduler.net.config_files import Endpoint
from rescheduler.net.http import JsonClient


class DiscoveredCluster(msgspec.Struct, rename="camel", frozen=True, kw_only=True):
    """An entry of discovery's list, Liqo's or ours. Unknown keys are ignored."""

    name: str
    kubeconfig: str = ""
    resources: QuantityTexts = {}
    labels: dict[str, str] = {}
    has_nat: bool = False
    price: float | None = None
    free: QuantityTexts | None = None

    def __repr__(self) -> str:
        return f"Entry({self.name})"


@dataclass(frozen=True, slots=True)
class RemoteCluster:
    """A cluster: `shared` contains the resources that it shares with us, `free` those that are free now, if known."""

    name: str  #: Liqo's cluster ID
    shared: ExactAmounts
    free: ExactAmounts | None = None
    labels: dict[str, str] = field(default_factory=dict)
    price: Decimal | None = None  #: per hour
    has_nat: bool = False  #: the cluster is not reachable from outside, so the gateway server must be on our side
    kubeconfig: str = field(default="", repr=False)


def remote_cluster(entry: DiscoveredCluster) -> RemoteCluster:
    """Convert an entry. Raises UsageError that names the key and the expected value."""
    name = messages.cluster_id(entry.name)
    price = None if entry.price is None else Decimal(str(messages.price(entry.price)))
    shared = amounts(messages.quantities(entry.resources, f"cluster {name}: resources"))
    free = None if entry.free is None else amounts(messages.quantities(entry.free, f"cluster {name}: free"))
    return RemoteCluster(name, shared, free, entry.labels, price, entry.has_nat, entry.kubeconfig)


# The node manager's client of discovery.

_SECONDS = 20.0  #: seconds to read the list, including retries

log = logging.getLogger(__name__)


class Catalog(Protocol):
    """A list of the clusters that share resources."""

    def clusters(self) -> Sequence[RemoteCluster]:
        """Return the current list. Raises Retryable, or Unauthorized if access is denied."""
        ...


class DiscoveryClient:
    """A client of ``GET /list`` of a discovery server, Liqo's or ours."""

    def __init__(self, endpoint: Endpoint, clock: Clock) -> None:
        """Create a client. Raises ConfigError for files that cannot be used."""
        self._client = JsonClient("discovery", endpoint, Path(), clock, error_text)
        self._clock = clock
        self._complaints: frozenset[str] = frozenset()

    def clusters(self) -> Sequence[RemoteCluster]:
        """Return the list without invalid entries, which are logged once each."""
        listed, _ = self._client.get("/list", list[DiscoveredCluster], deadline=self._clock.monotonic() + _SECONDS)
        clusters, complaints = [], set()
        for entry in listed:
            try:
                clusters.append(remote_cluster(entry))
            except UsageError as error:
                complaints.add(str(error))
        for complaint in sorted(complaints - self._complaints):
            log.warning("discovery: ignored: %s", complaint)
        self._complaints = frozenset(complaints)
        return clusters

    def close(self) -> None:
        self._client.close()
