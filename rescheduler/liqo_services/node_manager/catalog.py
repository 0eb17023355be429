"""The node manager's client of discovery."""

import logging
from collections.abc import Sequence
from pathlib import Path
from typing import Protocol

from rescheduler.clock import Clock
from rescheduler.errors import UsageError
from rescheduler.liqo_services.node_manager.clusters import DiscoveredCluster, RemoteCluster, remote_cluster
from rescheduler.net.config_files import Endpoint
from rescheduler.net.http import JsonClient
from rescheduler.providers.liqo.client import error_text

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
