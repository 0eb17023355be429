"""Discovery, as the node manager asks it."""

import logging
from collections.abc import Sequence
from pathlib import Path
from typing import Protocol

from rescheduler.backends.config import Endpoint
from rescheduler.backends.http import JsonClient
from rescheduler.backends.liqo.client import words
from rescheduler.clock import Clock
from rescheduler.errors import UsageError
from rescheduler.liqo.nodemanager.clusters import Entry, RemoteCluster, remote_cluster

_SECONDS = 20.0  #: for the list, repetitions included

log = logging.getLogger(__name__)


class Catalog(Protocol):
    """Which clusters share resources."""

    def clusters(self) -> Sequence[RemoteCluster]:
        """As they are known now. Raises Retryable, and Unauthorized where we are not let in."""
        ...


class Discovery:
    """``GET /list`` of a discovery server, the seed's or ours."""

    def __init__(self, endpoint: Endpoint, clock: Clock) -> None:
        """Raises ConfigError for files that cannot be used."""
        self._client = JsonClient("discovery", endpoint, Path(), clock, words)
        self._clock = clock
        self._complaints: frozenset[str] = frozenset()

    def clusters(self) -> Sequence[RemoteCluster]:
        """Entries that make no sense are left out, with one warning each."""
        listed, _ = self._client.get("/list", list[Entry], deadline=self._clock.monotonic() + _SECONDS)
        found, complaints = [], set()
        for one in listed:
            try:
                found.append(remote_cluster(one))
            except UsageError as error:
                complaints.add(str(error))
        for complaint in sorted(complaints - self._complaints):
            log.warning("discovery: left out: %s", complaint)
        self._complaints = frozenset(complaints)
        return found

    def close(self) -> None:
        self._client.close()
