"""Establish missing peerings and end unused ones, one at a time, in the background."""

import datetime as dt
import logging
import threading
from collections.abc import Callable, Collection
from concurrent.futures import ThreadPoolExecutor
from typing import Final

from rescheduler.errors import ReschedulerError, Retryable
from rescheduler.liqo_services.node_manager.clusters import RemoteCluster
from rescheduler.liqo_services.node_manager.liqoctl import Liqoctl
from rescheduler.liqo_services.node_manager.machines import NO_PEERING
from rescheduler.liqo_services.node_manager.service import NodeManagerService, Ports
from rescheduler.liqo_services.node_manager.upkeep import Upkeep

#: How long it may take until Liqo's resources show the result of liqoctl.
_SETTLING: Final = dt.timedelta(minutes=2)

log = logging.getLogger(__name__)


class Peering:
    """Calls liqoctl in a separate thread. Work in progress is tracked by cluster, so nothing is started twice."""

    def __init__(
        self,
        ports: Ports,
        liqoctl: Liqoctl,
        upkeep: Upkeep,
        service: NodeManagerService,
        unpeer_after: dt.timedelta | None = None,
    ) -> None:
        """Create the worker. Our peerings are ended once they have had no slices for *unpeer_after*."""
        self._ports, self._liqoctl, self._upkeep, self._service = ports, liqoctl, upkeep, service
        self._unpeer_after = unpeer_after
        self._lock = threading.Lock()
        self._busy: set[str] = set()
        self._made: dict[str, dt.datetime] = {}
        self._unused: dict[str, dt.datetime] = {}
        self._closed = False
        self._thread = ThreadPoolExecutor(1, "liqoctl")

    def establish(self, clusters: Collection[str]) -> None:
        """Start peering with each of *clusters*, unless that is already in progress."""
        now = self._ports.clock.now()
        for name in clusters:
            if now >= self._made.get(name, now - _SETTLING) + _SETTLING:
                self._begin(name, self._establish)

    def release(self, used: Collection[str]) -> None:
        """End our peerings with clusters that have been absent from *used* for long enough."""
        if self._unpeer_after is None:
            return
        now = self._ports.clock.now()
        idle = set(self._ports.store.peerings()) - set(used)
        self._unused = {name: self._unused.get(name, now) for name in idle}
        for name, since in self._unused.items():
            if now >= since + self._unpeer_after:
                self._begin(name, self._release)

    def idle(self) -> bool:
        with self._lock:
            return not self._busy

    def close(self) -> None:
        """Stop the work in progress, which is repeated after the next start."""
        self._closed = True
        self._liqoctl.close()
        self._thread.shutdown(cancel_futures=True)

    def _begin(self, name: str, act: Callable[[RemoteCluster], None]) -> None:
        with self._lock:
            if name in self._busy:
                return
            self._busy.add(name)
        self._thread.submit(self._run, name, act)

    def _run(self, name: str, act: Callable[[RemoteCluster], None]) -> None:
        try:
            listed = {cluster.name: cluster for cluster in self._ports.catalog.clusters()}
            if name in listed:
                act(listed[name])
            else:
                log.warning("cluster %s: discovery no longer lists it", name)
        except ReschedulerError as error:
            log.warning("%s", error)
        except Exception:
            log.exception("cluster %s", name)
        finally:
            with self._lock:
                self._busy.discard(name)
            self._service.woken.set()

    def _establish(self, cluster: RemoteCluster) -> None:
        log.info("cluster %s: peering", cluster.name)
        # Record the peering first: from here on, this node manager is responsible for ending it.
        self._ports.store.peered(cluster.name)
        try:
            self._liqoctl.peer(cluster)
        except Retryable as error:
            if not self._closed:
                log.warning("%s", error)
                self._upkeep.failed(cluster.name, NO_PEERING, str(error))
            return
        self._made[cluster.name] = self._ports.clock.now()
        log.info("cluster %s: peered", cluster.name)

    def _release(self, cluster: RemoteCluster) -> None:
        with self._service.without_requests_to(cluster.name):
            log.info("cluster %s: no slices are left, ending the peering", cluster.name)
            self._liqoctl.unpeer(cluster)
            self._ports.store.unpeered(cluster.name)
            self._made.pop(cluster.name, None)
        log.info("cluster %s: the peering has ended", cluster.name)
        self._unused.pop(cluster.name, None)
