"""The proxy's work on a cluster that is being watched: updates of the pool, and sweeps between them."""

import contextlib
import hashlib
import logging
import threading
from collections.abc import Callable, Iterator
from dataclasses import replace
from datetime import timedelta
from functools import partial
from pathlib import Path
from typing import Final

from rescheduler import refs
from rescheduler.access import Access
from rescheduler.backends.base import CloudProvider
from rescheduler.backends.cloudpool.deletion import Answer, Ending
from rescheduler.backends.cloudpool.pool import Pool
from rescheduler.backends.cloudpool.provider import CloudpoolProvider
from rescheduler.backends.none import NoProvider
from rescheduler.clock import Clock, SteadyClock, SystemClock
from rescheduler.drainer import Drainer, Ordered
from rescheduler.draining.intent import Intent, Step
from rescheduler.draining.state import Drain, Limits
from rescheduler.kube.client import Client
from rescheduler.kube.cluster import Cluster
from rescheduler.kube.controllers import ControllerReader
from rescheduler.kube.state import ClusterState
from rescheduler.observe.events import ErrorKind, Report, Trouble, WatchAges
from rescheduler.observe.health import Health
from rescheduler.ownership import Ownership
from rescheduler.planning.candidates import PROXIES
from rescheduler.planning.outcome import Plan
from rescheduler.proxy.config import ProxyFile
from rescheduler.proxy.nodes import ClusterNodes, ProxyView
from rescheduler.proxy.owing import FailedDrains
from rescheduler.proxy.removal import Way, Ways
from rescheduler.proxy.updates import PoolUpdates
from rescheduler.threads import Threads

#: Clients wait for their machines to end: so long an order is followed before its outcome is left open.
REMOVAL_SECONDS: Final = 600.0

log = logging.getLogger(__name__)


class Standing:
    """There is one proxy for a pool: it always leads, until it is told to stop."""

    leading = True

    def __init__(self, health: Health) -> None:
        self.stop = threading.Event()
        self.listening = False  #: the pool's clients are served
        self._health = health

    @property
    def stopping(self) -> bool:
        return self.stop.is_set()

    def beat(self) -> None:
        self._health.beat()


class Alone:
    """Updates and sweeps exclude each other: both read the one snapshot, and mark nodes.

    Before each update it is swept, so that none finds what another process has left half done.
    """

    def __init__(self, updates: PoolUpdates, lock: threading.Lock, sweep: Callable[[], None]) -> None:
        self._updates, self._lock, self._sweep = updates, lock, sweep

    def set_size(self, desired: int) -> str:
        with self._swept():
            return self._updates.set_size(desired)

    def terminate(self, machine: str, *, decrement: bool) -> str:
        with self._swept():
            return self._updates.terminate(machine, decrement=decrement)

    def dispose(self, machine: str) -> str:
        with self._swept():
            return self._updates.dispose(machine)

    def detach(self, machine: str, *, decrement: bool) -> str:
        with self._swept():
            return self._updates.detach(machine, decrement=decrement)

    def comes_back(self, machine: str) -> bool:
        return self._updates.comes_back(machine)

    def take_back(self, machine: str, *, evictable: bool) -> str:
        with self._swept():
            return self._updates.take_back(machine, evictable=evictable)

    @contextlib.contextmanager
    def _swept(self) -> Iterator[None]:
        with self._lock:
            self._sweep()
            yield


class Service:
    """The parts that do the work, on a state of the cluster that is being watched."""

    def __init__(
        self,
        file: ProxyFile,
        state: ClusterState,
        client: Client,
        standing: Standing,
        threads: Threads,
        report: Report,
        own_node: str,
    ) -> None:
        self.pool = Pool(file.pool(), Path(), SteadyClock(SystemClock()), file.url_password)
        self._standing, self._threads, self._report = standing, threads, report
        self._clock: Clock = self.pool.clock
        self._cluster = Cluster(client)
        self._controllers = Ownership(ControllerReader(client, self._clock))
        # The same after a restart, and another one for another pool.
        self.holder = f"{PROXIES}{hashlib.sha256(file.backend_url.encode()).hexdigest()[:8]}"
        limits = _limits(file)
        # Victims wait marked while those before them are drained; none is begun when the update's time is out.
        self._promise = timedelta(seconds=file.server.update_timeout + limits.longest)
        views = {
            one: ProxyView(state, self._clock, self.holder, partial(self._is_ours, one), own_node) for one in Ending
        }
        self._view = views[Ending.SHRINK]
        providers = {one: CloudpoolProvider([self.pool], one, prompt=True) for one in Ending}
        self._failed = FailedDrains(self._view, self._controllers, self._clock, report, ready=limits.landing > 0)
        self._drainers = {one: self._drainer(providers[one], views[one], limits) for one in Ending}
        endings = {one: self._way(self._drainers[one], providers[one]) for one in Ending}
        keeping = NoProvider()
        ways = Ways(
            shrink=endings[Ending.SHRINK],
            replace=endings[Ending.REPLACE],
            dispose=endings[Ending.DISPOSE],
            keep=self._way(self._drainer(keeping, self._view, limits), keeping),
        )
        access = self._access(keeping)
        self._nodes = ClusterNodes(self._view, state, access, report, standing.stop, self._failed.owed)
        self._lock = threading.Lock()
        updates = PoolUpdates(self.pool, self._nodes, ways, file.server.update_timeout, standing.stop)
        self.updates = Alone(updates, self._lock, partial(self._tidy, hurried=True))

    def sweep(self) -> bool:
        """Finish removals that were ordered, and take back drains that nobody does any more; whether that was done.

        An update under way has done it.
        """
        self._report(WatchAges(self._view.ages()))
        if self._view.unfit():
            return False
        if self._lock.acquire(blocking=False):
            try:
                self._tidy()
            finally:
                self._lock.release()
        return True

    def _tidy(self, *, hurried: bool = False) -> None:
        """Raises nothing: what goes wrong is reported, and the next sweep tries again. *hurried*: a client waits."""
        if self._view.unfit():
            return
        try:
            for drainer in self._drainers.values():
                drainer.sweep(self._failed.note, hurried=hurried)
        except Exception as error:
            log.exception("a sweep ended in an error of this program")
            self._report(Trouble(ErrorKind.ROUND, f"{type(error).__name__}: {error}"))
        self._nodes.agree()

    def _way(self, drainer: Drainer, provider: CloudProvider) -> Way:
        def drain(plan: Plan) -> Drain | Ordered | None:
            ended = drainer.order(plan)
            if ended is not None:
                self._failed.note(ended.drain if isinstance(ended, Ordered) else ended)
            return ended

        def finish(ordered: Ordered) -> Drain:
            ended = drainer.finish(ordered)
            if ended.handed_over and ended.released and self._is_taken(ordered):
                ended = replace(ended, confirmed=True)
            self._failed.note(ended)
            return ended

        return Way(drain, finish, provider)

    def _is_taken(self, ordered: Ordered) -> bool:
        """Whether the pool took the order for the machine of a drain, whose Node is gone now.

        Whoever deletes Nodes of machines that are gone was faster than the pool's next look.
        """
        machine = self.pool.ledger.machine_of(refs.ref(ordered.node))
        order = self.pool.ledger.order(machine) if machine is not None else None
        return order is not None and order.answer is Answer.DONE

    def _drainer(self, provider: CloudProvider, view: ProxyView, limits: Limits) -> Drainer:
        return Drainer(self._access(provider), view, self._standing, self._threads, limits, self._report)

    def _access(self, provider: CloudProvider) -> Access:
        return Access(self._cluster, provider, self._clock, self.holder, self._controllers, promise=self._promise)

    def _is_ours(self, ending: Ending, written: Intent) -> bool:
        """What we have begun with that *ending*; with the first one goes all that names none.

        That, and what a proxy left that was dead or before another pool.
        """
        if written.holder != self.holder:
            lapsed = written.holder.startswith(PROXIES) and written.lapsed(self._clock.now())
            return lapsed and ending is Ending.SHRINK
        named = (one for one in Ending if one and written.step is Step.REMOVING and written.group.endswith(one))
        return ending is next(named, Ending.SHRINK)


def _limits(file: ProxyFile) -> Limits:
    return Limits(
        eviction=float(file.drain.eviction_timeout),
        grace=float(file.drain.max_graceful_termination),
        headroom=float(file.drain.termination_headroom),
        landing=float(file.drain.landing_timeout),
        removal=REMOVAL_SECONDS,
    )
