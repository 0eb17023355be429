"""Invariant 10: the missing pods of one namespace hold no node without its pods for longer than the landing timeout.

Whether a node could be drained is not visible from outside. But where a drain begins, and nothing has changed for a
long time that could have made it possible, then the drain was possible before. If all that time no other drain took
place, and only another namespace lacked pods, for longer than the landing timeout, then these pods have held the node.
Waits of the node itself, and of owners whose pods were moved before, are no violations.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from datetime import datetime

from tests.invariants.history import Revision, seconds
from tests.invariants.judging import JudgedMoment
from tests.invariants.leases import LeaseTimes
from tests.invariants.moments import HistoryMoment, Wrote
from tests.invariants.objects import SeenBudget, SeenNode, SeenPod
from tests.invariants.replay import SeenDrain
from tests.invariants.rules import Violation


@dataclass(slots=True)
class Hold:
    """A time in which only one namespace lacked pods, for longer than the landing timeout."""

    namespace: str
    since: datetime
    until: datetime


@dataclass(slots=True)
class HoldsNobody:
    _hold: Hold | None = None  #: the current one, or the last one if pods of no namespace are missing any more
    _short: frozenset[str] = frozenset()  #: the namespaces that lack pods
    _changed: datetime | None = None  #: the last change that may let a node be drained
    _drained: datetime | None = None  #: the end of the last drain
    _drains: int = 0
    _leases: LeaseTimes | None = None

    def check(self, moment: HistoryMoment, scene: JudgedMoment) -> Iterator[Violation]:
        self._update(moment.at, scene)
        begun = scene.now.all_drains[self._drains :]
        self._drains = len(scene.now.all_drains)
        for drain in begun:
            yield from self._held(drain, moment.at, scene)
        if scene.now.drains:
            self._drained = moment.at
        if isinstance(moment, Wrote) and self._may_help(moment.revision, scene):
            self._changed = moment.at

    def end(self, _: JudgedMoment) -> Iterator[Violation]:
        return iter(())

    def _held(self, drain: SeenDrain, at: datetime, scene: JudgedMoment) -> Iterator[Violation]:
        hold, slack = self._hold, seconds(scene.rules.slack)
        counted = hold.until + seconds(scene.rules.staying) if hold is not None else at  # when the debts were paid
        if hold is None or at > counted + slack or self._waited_itself(drain, hold, scene):
            return
        self._leases = self._leases or LeaseTimes.of(scene.history.writes)
        steady = self._leases.steady_since(at)
        delayed = self._drained and self._drained + seconds(scene.rules.drain_delay)
        since = max(filter(None, (hold.since, self._changed, steady, delayed)))
        if steady is not None and hold.until > since + slack:
            held = (hold.until - since).total_seconds()
            what = f"node {drain.node} was not drained for {held:.0f} s although nothing kept it but missing pods of"
            yield Violation(10, at, f"{what} namespace {hold.namespace}, later than their landing timeout")

    def _waited_itself(self, drain: SeenDrain, hold: Hold, scene: JudgedMoment) -> bool:
        """Return whether the node has a wait of its own, or pods of the namespace or of owners that were moved."""
        moved = {owner for _, owner in scene.ready.moved}
        pods = [pod for pod in scene.now.pods_on(drain.node) if pod.keeps_node]
        return any(earlier.node == drain.node for earlier in scene.now.all_drains if earlier is not drain) or any(
            pod.metadata.namespace == hold.namespace or scene.owner(pod) in moved for pod in pods
        )

    def _may_help(self, revision: Revision, scene: JudgedMoment) -> bool:
        """Return whether a write may let a node be drained that could not be drained before."""
        item, namespace = revision.object, self._hold.namespace if self._hold is not None else ""
        if isinstance(item, SeenPod):
            on_spot = scene.now.is_spot(item.spec.node_name)
            leaves = revision.gone or item.deleting or item.ended
            return leaves if on_spot else bool(item.spec.node_name) and item.metadata.namespace != namespace
        if isinstance(item, SeenNode):
            return True
        return isinstance(item, SeenBudget) and item.metadata.namespace != namespace

    def _update(self, at: datetime, scene: JudgedMoment) -> None:
        late = _late(scene)
        if late and late.keys() != self._short:
            self._hold, self._changed = None, at
        if len(late) == 1:
            [(namespace, since)] = late.items()
            self._hold = Hold(namespace, since, at)
        elif self._hold is not None and self._short:
            self._hold.until = at  # its pods run now
        self._short = frozenset(late)


def _late(scene: JudgedMoment) -> dict[str, datetime]:
    """Return the namespaces that lack pods, and when the landing timeout of the last eviction has passed."""
    late: dict[str, datetime] = {}
    for owner, shortage in scene.ready.shortages.items():
        if shortage.missing:
            passed = (shortage.drain.acted or shortage.since) + seconds(scene.rules.landing_timeout)
            late[owner[1]] = max(passed, late.get(owner[1], passed))
    return late
