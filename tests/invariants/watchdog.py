"""A watchdog that checks the invariants of drains from `start` to `stop`, independent of the daemon.

It uses the API server's watches, the audit log and the pool, but neither the daemon's decision code nor its log or
metrics. It evaluates the whole history at once, so that delayed watch events cause no false alarms.
"""

from typing import Any, Self

from devcluster.cloudpool.server import CloudpoolServer
from devcluster.plane import ControlPlane
from rescheduler.clock import SystemClock
from tests.invariants.auditing import DaemonWrites
from tests.invariants.history import History, Recorded
from tests.invariants.judging import Judgement, judge
from tests.invariants.pool import recorded
from tests.invariants.rules import Rules, Violation
from tests.invariants.summary import summary
from tests.invariants.table import INVARIANTS
from tests.invariants.watching import Watches

#: Time for the watches to deliver the last writes before they stop.
SETTLE_SECONDS = 1.0


class Watchdog:
    """A watchdog of an installation; *pool* is the reference cloudpool of its on-demand nodes."""

    def __init__(self, plane: ControlPlane, rules: Rules, pool: CloudpoolServer | None = None) -> None:
        self.rules = rules
        self._clock = SystemClock()
        self._writes = DaemonWrites(plane.layout.audit_log, rules)
        self._watches, self._pool = Watches(plane, rules.nodes), recorded(pool)
        self._since = self._clock.now()
        self._last: History | None = None
        self._ended: Judgement | None = None

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    def start(self) -> None:
        """Start and wait until the cluster has been read."""
        self._since = self._clock.now()
        self._watches.start()
        if self._pool is not None:
            self._pool.start()

    def stop(self) -> None:
        """Stop watching and evaluate the history; do nothing if already stopped."""
        if self._ended is not None:
            return
        self._watches.settle(SETTLE_SECONDS)
        if self._pool is not None:
            self._pool.stop()
        self._watches.stop()
        self._last = self.history()
        self._ended = self._judged()

    def history(self) -> History:
        """Return the history so far, at most until `stop`."""
        if self._last is not None:
            return self._last
        pool = self._pool
        return History(
            since=self._since,
            until=self._clock.now(),
            revisions=tuple(self._watches.revisions()),
            writes=self._writes.writes(),
            terminations=tuple(pool.terminations.values()) if pool else (),
            sizes=tuple(pool.sizes) if pool else (),
            kept_nodes=pool.kept_nodes() if pool else (),
        )

    def recorded(self) -> Recorded:
        """Return the history with the rules, for storing it."""
        return Recorded(self.rules, self.history())

    @property
    def violations(self) -> list[Violation]:
        """All violations so far, at most until `stop`."""
        return (self._ended or self._judged()).violations

    def report(self) -> dict[str, Any]:
        """Return the `summary` of the history."""
        return summary(self._ended or self._judged())

    def _judged(self) -> Judgement:
        return judge(self.history(), self.rules, [invariant() for invariant in INVARIANTS.values()])
