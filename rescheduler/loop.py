"""Housekeeping: one round, and rounds until we are told to stop.

A round: read everything? → leftovers of earlier drains taken care of → nothing while the drain delay runs →
nothing while pods wait for a place on spot → plan → drain the first node that can be emptied. A failed drain
cools its node down and gives the next candidate its turn at once; only a successful one starts the delay.
"""

import enum
import logging
from dataclasses import dataclass
from datetime import timedelta
from typing import Final, Protocol

from predicates.objects import Node
from rescheduler.clock import Clock
from rescheduler.drainer import Drainer
from rescheduler.draining.state import Drain, Why
from rescheduler.errors import ReschedulerError
from rescheduler.landing import Landings
from rescheduler.observe.events import (
    Compared,
    CoolingDown,
    ErrorKind,
    Held,
    LeadershipChanged,
    NodeRef,
    Observed,
    Planned,
    Report,
    RoundEnded,
    Trouble,
    Waiting,
)
from rescheduler.planning.outcome import Plan, Planning
from rescheduler.settings import Timing
from rescheduler.soft_taint import SoftTaint
from rescheduler.view import View

#: After a failed drain its evicted pods need a moment to be made and placed anew, before the next plan.
SETTLE: Final = timedelta(seconds=2)

#: While nothing may be drained, nodes are judged this often, for metrics and the status page.
SURVEY: Final = timedelta(minutes=1)

#: While there is nothing to do but to wait for the cluster or for the Lease, it is looked this often.
IDLE: Final = timedelta(seconds=2)

#: An empty node that the provider has left is offered to it again after so long; others have their turn meanwhile.
OFFERED_AGAIN: Final = timedelta(hours=1)

#: Pods that a line names; the others are counted.
_NAMED: Final = 3

#: Failures that say nothing about the node: it is not left alone for them.
_NOT_THE_NODES: Final = frozenset({Why.STOPPED, Why.LEADERSHIP_LOST, Why.NODE_GONE})

log = logging.getLogger(__name__)


class Standing(Protocol):
    """Whether we may act, and the wait between two rounds."""

    @property
    def leading(self) -> bool: ...

    @property
    def stopping(self) -> bool: ...

    def beat(self) -> None: ...

    def pause(self, seconds: float) -> None:
        """Wait *seconds*, or less when we are told to stop."""
        ...


class Outcome(enum.Enum):
    """What became of a round."""

    HELD = enum.auto()  #: nothing was to be drained at this time
    UNFIT = enum.auto()  #: the cluster could not be read, or we do not lead
    IDLE = enum.auto()  #: no node can be emptied
    DRAINED = enum.auto()
    FAILED = enum.auto()  #: the drain failed; other nodes have their turn
    BROKEN = enum.auto()  #: an error ended the round


@dataclass(frozen=True, slots=True)
class Mode:
    timing: Timing
    dry_run: bool = False


@dataclass(frozen=True, slots=True)
class Actors:
    """Who changes the cluster. A dry run has none of their work done."""

    drainer: Drainer
    soft_taint: SoftTaint


class Loop:
    """Rounds. For one thread."""

    def __init__(
        self, view: View, actors: Actors, standing: Standing, mode: Mode, clock: Clock, report: Report
    ) -> None:
        self._view = view
        self._drainer = actors.drainer
        self._soft_taint = actors.soft_taint
        self._standing = standing
        self._timing = mode.timing
        self._dry_run = mode.dry_run
        self._clock = clock
        self._report = report
        self._drained_at: float | None = None
        self._led: bool | None = None
        self._judged_at: float | None = None  # when all nodes were last judged
        self._unwanted: dict[str, float] = {}  # UIDs of nodes that the provider has left → until when
        self._landings = Landings()

    def run(self) -> None:
        """Rounds until we are told to stop."""
        while not self._standing.stopping:
            outcome = self.round()
            self._standing.pause(self._pause(outcome).total_seconds())

    def once(self, patience: timedelta) -> Outcome:
        """One round, once the cluster can be read, and further ones as long as drains fail.

        UNFIT: it could not be read within *patience*.
        """
        deadline = self._clock.monotonic() + patience.total_seconds()
        failed = False
        while True:
            outcome = self.round()
            failed = failed or outcome is Outcome.FAILED
            waits = outcome is Outcome.UNFIT and self._clock.monotonic() < deadline
            if self._standing.stopping or not (waits or outcome is Outcome.FAILED):
                return Outcome.FAILED if failed and outcome is not Outcome.DRAINED else outcome
            self._standing.pause(self._pause(outcome).total_seconds())

    def round(self) -> Outcome:
        """One round. Raises nothing: what goes wrong is reported, and the next round tries again."""
        self._standing.beat()
        started = self._clock.monotonic()
        try:
            outcome = self._round()
        except ReschedulerError as error:
            self._report(Trouble(ErrorKind.READ, str(error)))
            outcome = Outcome.BROKEN
        except Exception as error:
            log.exception("a round ended in an error of this program")
            self._report(Trouble(ErrorKind.ROUND, f"{type(error).__name__}: {error}"))
            outcome = Outcome.BROKEN
        good = outcome not in (Outcome.BROKEN, Outcome.UNFIT)
        self._report(RoundEnded(self._clock.now(), self._clock.monotonic() - started, good))
        return outcome

    def _round(self) -> Outcome:
        leading = self._standing.leading
        if leading is not self._led:
            self._led = leading
            self._report(LeadershipChanged(leading))
        if not leading:
            self._report(Held(Waiting.NOT_LEADING, "another replica leads"))
            return Outcome.UNFIT
        if why := self._view.unfit():
            self._report(Held(Waiting.NOT_SYNCED, why))
            return Outcome.UNFIT
        self._observe()
        self._compare()
        if not self._dry_run:
            self._soft_taint.keep(self._view.nodes().values())
            for drain in self._drainer.sweep():
                self._learn(drain)
        if (held := self._held()) is not None:
            self._survey()
            self._report(held)
            return Outcome.HELD
        return self._act()

    def _observe(self) -> None:
        now, nodes = self._clock.now(), frozenset(self._view.nodes())
        here = {node.metadata.uid for node in self._view.nodes().values()}
        self._unwanted = {uid: until for uid, until in self._unwanted.items() if uid in here}
        self._view.cooldowns.keep(nodes)
        self._report(Observed(now, self._view.counts(), nodes, self._view.cooldowns.active(now)))

    def _held(self) -> Held | None:
        """Why nothing is drained at this time."""
        if self._drained_at is not None:
            left = self._drained_at + self._timing.node_drain_delay.total_seconds() - self._clock.monotonic()
            if left > 0:
                return Held(Waiting.DRAIN_DELAY, f"the drain delay runs for {left:.0f} s more")
        if (until := self._landings.paused_until(self._clock.now())) is not None:
            advice = "--manage-soft-taint would keep them away"
            detail = f"moved pods came back to on-demand nodes; drains wait until {until:%Y-%m-%dT%H:%M:%SZ}; {advice}"
            return Held(Waiting.RETURNED_PODS, detail)
        if pods := self._view.waiting(self._timing.pending_patience):
            named = ", ".join(pod.key for pod in pods[:_NAMED]) + (", …" if len(pods) > _NAMED else "")
            return Held(Waiting.PENDING_PODS, f"{len(pods)} pods wait for a place that spot nodes may give: {named}")
        return None

    def _survey(self) -> None:
        """Judge all nodes for those who look on, now and then."""
        now = self._clock.monotonic()
        if self._judged_at is None or now - self._judged_at >= SURVEY.total_seconds():
            self._judge(complete=True)

    def _act(self) -> Outcome:
        """Drain the first node that can be emptied; a dry run only looks for it.

        The provider is asked before: one that is silent now says nothing about the node, and no plan counts on a
        node that the cloud is about to take away.
        """
        self._view.ending = frozenset()
        plan = self._first_plan()
        if plan is None or self._dry_run:
            return Outcome.IDLE
        try:
            ending = self._drainer.notices(self._view.spot_nodes())
        except ReschedulerError as error:
            self._report(Held(Waiting.PROVIDER_SILENT, f"the provider cannot be asked now: {error}"))
            return Outcome.BROKEN
        if not ending.keys().isdisjoint(one.node for one in plan.placements):
            ends = ", ".join(f"{name} at {end:%Y-%m-%dT%H:%M:%SZ}" for name, end in sorted(ending.items()))
            log.warning("planned anew without spot nodes that the provider says will end: %s", ends)
            self._view.ending = frozenset(ending)
            plan = self._first_plan()
        return Outcome.IDLE if plan is None else self._drain(plan)

    def _first_plan(self) -> Plan | None:
        """Pods that leave by themselves are no reason for a drain."""
        planning = self._judge(complete=self._dry_run)
        return next((plan for plan in planning.plans if plan.placements or self._is_offered(plan.node)), None)

    def _is_offered(self, name: str) -> bool:
        """Whether the provider may want *name* without its pods."""
        node = self._view.node(name)
        until = self._unwanted.get(node.metadata.uid, 0.0) if node else 0.0
        return self._drainer.takes_machines and self._clock.monotonic() >= until

    def _judge(self, *, complete: bool) -> Planning:
        started, before = self._clock.monotonic(), self._view.nodes()
        planning = self._view.plan_each() if complete else self._view.first_plan(take_empty=self._is_offered)
        ended = self._clock.monotonic()
        all_judged = len(planning.verdicts) == planning.on_demand_nodes
        if all_judged:
            self._judged_at = ended
        # Nodes come and go while we plan.
        nodes = {name: _ref(node) for name, node in (before | self._view.nodes()).items()}
        judged = {verdict.node: nodes[verdict.node] for verdict in planning.verdicts}
        self._report(Planned(self._clock.now(), planning, judged, ended - started, all_judged))
        return planning

    def _drain(self, plan: Plan) -> Outcome:
        left = self._landings.expect(plan, self._view.pods(), self._clock.now())
        drain = self._drainer.drain(plan)
        if drain is None:
            return Outcome.HELD  # the node went while it was planned
        self._learn(drain)
        if drain.failure is None:
            left(self._clock.now())
            return Outcome.DRAINED
        return Outcome.HELD if drain.failure.why in _NOT_THE_NODES else Outcome.FAILED

    def _compare(self) -> None:
        """Tell how the pods of earlier drains have landed."""
        for landed in self._landings.look(self._view.pods().values(), self._view.is_spot, self._clock.now()):
            self._report(
                Compared(landed.node, {str(one): pods for one, pods in landed.outcomes.items()}, landed.returned)
            )

    def _learn(self, drain: Drain) -> None:
        """Start the delay after a drain that did something, cool the node down after one that failed."""
        if drain.failure is None:
            self._view.cooldowns.succeeded(drain.node)
            if drain.group is None and (left := self._view.node(drain.node)):
                self._unwanted[left.metadata.uid] = self._clock.monotonic() + OFFERED_AGAIN.total_seconds()
            if drain.evicted or drain.group is not None:
                self._drained_at = self._clock.monotonic()
            return
        node = self._view.node(drain.node)
        if drain.failure.why in _NOT_THE_NODES or node is None:
            return
        until, failures = self._view.cooldowns.failed(drain.node, self._clock.now())
        self._report(CoolingDown(_ref(node), until, failures))

    def _pause(self, outcome: Outcome) -> timedelta:
        interval = self._timing.housekeeping_interval
        if outcome is Outcome.FAILED:
            return min(interval, SETTLE)
        return min(interval, IDLE) if outcome is Outcome.UNFIT else interval


def _ref(node: Node) -> NodeRef:
    return NodeRef(node.metadata.name, node.metadata.uid)
