"""An observer that checks the invariants of a drain from outside, from `start` to `stop`.

It reads the API server's watches, the audit log and the pool; never the product's code for a decision, its log or its
metrics. Whatever happens between `start` and `stop` is judged as a whole, so that late news are no false alarms.
"""

from typing import Any, Self

from deploy.local.cloudpool.server import Server
from deploy.local.plane import ControlPlane
from rescheduler.clock import SystemClock
from tests.invariants.auditing import DaemonWrites
from tests.invariants.history import History, Recorded
from tests.invariants.judging import Judgement, judge
from tests.invariants.pool import recorded
from tests.invariants.rules import Rules, Violation
from tests.invariants.summary import summary
from tests.invariants.table import INVARIANTS
from tests.invariants.watching import Watches

#: The watches have shown what was written before they stop.
SETTLE_SECONDS = 1.0


class Watchdog:
    """Of one installation on one control plane; *pool*: the reference cloudpool behind its on-demand nodes."""

    def __init__(self, plane: ControlPlane, rules: Rules, pool: Server | None = None) -> None:
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
        """Return once the cluster was read."""
        self._since = self._clock.now()
        self._watches.start()
        if self._pool is not None:
            self._pool.start()

    def stop(self) -> None:
        """Stop watching; what was seen until then is judged. Calling it again does nothing."""
        if self._ended is not None:
            return
        self._watches.settle(SETTLE_SECONDS)
        if self._pool is not None:
            self._pool.stop()
        self._watches.stop()
        self._last = self.history()
        self._ended = self._judged()

    def history(self) -> History:
        """What was seen so far, and until `stop`."""
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
        """The same with the rules, to be stored."""
        return Recorded(self.rules, self.history())

    @property
    def violations(self) -> list[Violation]:
        """All violations so far; from `stop` on, all there were."""
        return (self._ended or self._judged()).violations

    def report(self) -> dict[str, Any]:
        """Figures: see `summary`."""
        return summary(self._ended or self._judged())

    def _judged(self) -> Judgement:
        return judge(self.history(), self.rules, [invariant() for invariant in INVARIANTS.values()])
