"""The housekeeping loop.

A round: check that the watched state is complete and fresh → resume or roll back drains that were left behind → stop
here while an earlier drain owes replacement pods, a delay or a pause is active, or pods are pending that spot nodes may
take → plan → drain the first node whose pods all fit elsewhere. A node whose drain failed cools down. The drain delay
starts after every drain that evicted a pod or requested the termination of a machine.
"""

import enum
import logging
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Final, Protocol

from predicates.objects import Node
from rescheduler.clock import Clock
from rescheduler.draining.state import Drain, Why
from rescheduler.errors import Forbidden, ReschedulerError
from rescheduler.execution.cluster_view import ClusterView
from rescheduler.execution.drainer import Drainer, ProviderSilent
from rescheduler.execution.landings import Landings
from rescheduler.housekeeping.bookkeeping import NoBookkeeping
from rescheduler.housekeeping.candidates import Candidates
from rescheduler.housekeeping.drain_history import DrainHistory
from rescheduler.housekeeping.drain_records import DrainRecords
from rescheduler.housekeeping.new_nodes import NewNodes
from rescheduler.housekeeping.offers import Offers
from rescheduler.housekeeping.soft_taint import SoftTaint
from rescheduler.observe.events import (
    ErrorKind,
    Held,
    InvolvedLease,
    InvolvedNode,
    KeptByGuards,
    LeadershipChanged,
    Observed,
    PauseChanged,
    Planned,
    Report,
    RoundEnded,
    Surveyed,
    Trouble,
    Waiting,
    WatchAges,
)
from rescheduler.planning.candidates import control_plane_label
from rescheduler.planning.drain_windows import DrainWindow, closed_until
from rescheduler.planning.landing import compare, expect
from rescheduler.planning.node_info import LabelFindings, NodeInfo
from rescheduler.planning.outcome import Plan, Planning
from rescheduler.planning.spot_losses import SpotWatch
from rescheduler.settings import Timing

#: Wait after a failed drain, so that replacement pods are created and scheduled before the next plan.
SETTLE: Final = timedelta(seconds=2)

#: While no drain may start, nodes are planned this often for metrics and the status page.
SURVEY: Final = timedelta(minutes=1)

#: Time limit for the comparison with k8s-spot-rescheduler, which runs once after the start.
COMPARISON: Final = timedelta(seconds=1)

#: Interval between rounds while the loop waits for the caches or the Lease.
IDLE: Final = timedelta(seconds=2)

#: Maximum number of candidates whose controllers are read in one round. A veto makes room for the next ones.
CANDIDATES: Final = 20

#: Failures that need no retry: another replica acts, the node is gone, or drains are paused.
_OVERTAKEN: Final = frozenset({Why.LEADERSHIP_LOST, Why.NODE_GONE, Why.PAUSED})

#: Maximum number of pods in a message.
_NAMED: Final = 3

log = logging.getLogger(__name__)


class LoopState(Protocol):
    """Whether this process may act, and the wait between two rounds."""

    @property
    def leading(self) -> bool: ...

    @property
    def stopping(self) -> bool: ...

    @property
    def paused(self) -> str:
        """Why a person paused drains, or ""."""
        ...

    @property
    def lease(self) -> InvolvedLease: ...

    @property
    def rival(self) -> str:
        """The replica that leads, if it is another one and known; otherwise ""."""
        ...

    def beat(self) -> None: ...

    def pause(self, seconds: float) -> None:
        """Wait for *seconds*, or until the process is asked to stop."""
        ...


class RoundOutcome(enum.Enum):
    """The outcome of a round."""

    HELD = enum.auto()  #: no drain may start at present
    UNFIT = enum.auto()  #: the cluster could not be read, or this replica does not lead
    IDLE = enum.auto()  #: no node can be drained
    DRAINED = enum.auto()
    FAILED = enum.auto()  #: the drain failed; other nodes may be drained
    BROKEN = enum.auto()  #: an error ended the round


@dataclass(frozen=True, slots=True)
class Mode:
    timing: Timing
    dry_run: bool = False
    minimum: int = 0  #: on-demand nodes to keep; nodes whose machines are terminating do not count
    windows: tuple[DrainWindow, ...] = ()  #: when drains may start; empty: always


@dataclass(frozen=True, slots=True)
class Actors:
    """The parts that change the cluster. A dry run does not use them."""

    drainer: Drainer
    soft_taint: SoftTaint
    new_nodes: NewNodes
    records: DrainRecords


@dataclass(frozen=True, slots=True)
class Knowledge:
    """The inputs of decisions besides the watched state."""

    history: DrainHistory
    candidates: Candidates
    landings: Landings
    spot_watch: SpotWatch
    missing_rights: Callable[[], str] = str  #: returns a message; "" if none is missing
    savings: NoBookkeeping = field(default_factory=NoBookkeeping)


class Loop:
    """The housekeeping loop. For one thread."""

    def __init__(
        self,
        view: ClusterView,
        actors: Actors,
        knowledge: Knowledge,
        run_state: LoopState,
        mode: Mode,
        clock: Clock,
        report: Report,
    ) -> None:
        self._view = view
        self._drainer = actors.drainer
        self._soft_taint = actors.soft_taint
        self._new_nodes = actors.new_nodes
        self._records = actors.records
        self._history = knowledge.history
        self._candidates = knowledge.candidates
        self._landings = knowledge.landings
        self._spot_watch = knowledge.spot_watch
        self._missing_rights = knowledge.missing_rights
        self._savings = knowledge.savings
        self._run_state = run_state
        self._timing = mode.timing
        self._dry_run = mode.dry_run
        self._minimum = mode.minimum
        self._windows = mode.windows
        self._clock = clock
        self._report = report
        self._led: bool | None = None
        self._paused = ""  # why a person paused drains, as it was last reported
        self._compared = False  # with k8s-spot-rescheduler
        self._judged_at: float | None = None  # when all nodes were last planned
        self._settled_at: datetime | None = None  # end of the wait after a burst of lost spot nodes
        self._offers = Offers(clock)

    def run(self) -> None:
        """Run rounds until the process is asked to stop."""
        while not self._run_state.stopping:
            outcome = self.round()
            self._run_state.pause(self._pause(outcome).total_seconds())

    def once(self, patience: timedelta) -> RoundOutcome:
        """Run one round once the cluster can be read. Repeat it while drains fail.

        Return UNFIT if the cluster could not be read within *patience*.
        """
        deadline = self._clock.monotonic() + patience.total_seconds()
        failed = False
        while True:
            outcome = self.round()
            failed = failed or outcome is RoundOutcome.FAILED
            must_wait = outcome is RoundOutcome.UNFIT and self._clock.monotonic() < deadline
            if self._run_state.stopping or not (must_wait or outcome is RoundOutcome.FAILED):
                return RoundOutcome.FAILED if failed and outcome is not RoundOutcome.DRAINED else outcome
            self._run_state.pause(self._pause(outcome).total_seconds())

    def round(self) -> RoundOutcome:
        """Run one round. Errors are reported and not raised; the next round retries."""
        self._run_state.beat()
        started = self._clock.monotonic()
        try:
            outcome = self._round()
        except Forbidden as error:  # a missing permission must not be mistaken for "there are no such objects"
            self._report(Held(Waiting.NOT_SYNCED, str(error)))
            outcome = RoundOutcome.UNFIT
        except ReschedulerError as error:
            self._report(Trouble(ErrorKind.READ, str(error)))
            self._report(Held(Waiting.ROUND_FAILED, f"the round failed: {error}"))
            outcome = RoundOutcome.BROKEN
        except Exception as error:
            log.exception("the round failed with an internal error")
            self._report(Trouble(ErrorKind.ROUND, f"{type(error).__name__}: {error}"))
            self._report(Held(Waiting.ROUND_FAILED, f"the round failed: {type(error).__name__}: {error}"))
            outcome = RoundOutcome.BROKEN
        good = outcome not in (RoundOutcome.BROKEN, RoundOutcome.UNFIT)
        self._report(RoundEnded(self._clock.now(), self._clock.monotonic() - started, good))
        return outcome

    def _round(self) -> RoundOutcome:
        if (held := self._why_not_ready()) is not None:
            self._report(held)
            if held.waiting is Waiting.NOT_LEADING:
                self._watch()
            return RoundOutcome.UNFIT
        self._history.refresh()
        try:
            return self._lead()
        finally:
            self._history.save()
            self._savings.save()

    def _lead(self) -> RoundOutcome:
        """Run the round of the leader, after the memory was read."""
        self._observe()
        paused = self._look_at_pause()
        self._savings.look()
        if not self._dry_run:
            self._soft_taint.keep(self._view.nodes().values())
            if self._new_nodes.keep(self._view.nodes().values()) or self._sweep():
                detail = "an earlier drain was resumed or rolled back, or a new node was cordoned or uncordoned"
                self._report(Held(Waiting.CLEANING_UP, f"{detail}; the next round plans again"))
                return RoundOutcome.HELD
        owed = self._landings.settle()  # also while drains are paused
        held = paused or owed or self._held()
        if held is not None:
            self._survey()
            self._report(held)
            return RoundOutcome.HELD
        return self._act()

    def _why_not_ready(self) -> Held | None:
        """Return why no decision can be made at present, or None."""
        self._report(WatchAges(self._view.ages()))
        missing, leading = self._missing_rights(), self._run_state.leading
        if leading is not self._led:
            self._led = leading
            self._judged_at = None
            self._report(LeadershipChanged(leading))
        if not leading:
            self._history.forget()
            self._savings.forget()
        if missing:
            return Held(Waiting.NOT_SYNCED, missing)
        if not leading:
            rival = self._run_state.rival
            detail = f"another replica leads: {rival}" if rival else "another replica leads"
            paused = self._run_state.paused  # for the status page: the leader reports the pause
            return Held(Waiting.NOT_LEADING, f"{detail}; {paused}" if paused else detail, rival)
        if why := self._view.unfit():
            return Held(Waiting.NOT_SYNCED, why)
        if why := self._view.stale():
            return Held(Waiting.STALE_WATCH, why)
        return None

    def _look_at_pause(self) -> Held | None:
        """Report a change of the pause by a person. Return the pause as the reason why no drain may start, or None."""
        paused = self._run_state.paused
        if paused != self._paused:
            self._paused = paused
            self._report(PauseChanged(self._run_state.lease, paused))
        return Held(Waiting.PAUSED, paused) if paused else None

    def _observe(self) -> None:
        now, nodes = self._clock.now(), self._view.nodes()
        uids = {name: node.metadata.uid for name, node in nodes.items()}
        self._offers.keep(frozenset(uids.values()))
        self._history.keep_nodes(uids)
        self._view.vetoes = self._candidates.vetoes()
        infos = self._view.node_infos()
        self._settled_at = self._spot_watch.look([info.node for info in infos.spot.values()], now)
        cooling = {node: cooldown.until for node, cooldown in self._history.cooling().items()}
        labels = self._view.label_findings(infos)
        self._report(_observed(now, self._view.by_label(infos), frozenset(nodes), cooling, labels))
        if not self._compared:
            self._compared = True
            kept = self._view.kept_by_guards(COMPARISON)
            if kept.nodes:
                counts = {str(reason): count for reason, count in kept.nodes.items()}
                self._report(KeptByGuards(counts, kept.complete))

    def _sweep(self) -> bool:
        """Resume or roll back drains that were left behind. Return whether there were any."""
        began = self._clock.now()
        return self._drainer.sweep(lambda drain: self._record_end(drain, began))

    def _held(self) -> Held | None:
        """Return why no drain may start at present, or None."""
        if (held := self._history.held()) is not None:
            return held
        if closed := closed_until(self._windows, self._clock.now()):
            return Held(Waiting.OUTSIDE_DRAIN_WINDOW, closed)
        if self._settled_at is not None:
            return Held(
                Waiting.SPOT_SETTLING,
                f"many spot nodes were lost at once; drains wait until {self._settled_at:%Y-%m-%dT%H:%M:%SZ}",
            )
        if pods := self._view.waiting(self._timing.pending_patience):
            named = ", ".join(pod.key for pod in pods[:_NAMED]) + (", …" if len(pods) > _NAMED else "")
            return Held(Waiting.PENDING_PODS, f"{len(pods)} pods are pending that may fit on spot nodes: {named}")
        return None

    def _survey(self) -> None:
        """Plan all nodes every SURVEY for the metrics and the status page."""
        if self._survey_due():
            self._report_plan(self._planned(complete=True))

    def _watch(self) -> None:
        """Plan all nodes every SURVEY for the status page of a replica that does not lead. Nothing is written."""
        if self._survey_due() and not self._view.unfit() and not self._view.stale():
            self._view.vetoes = {}
            self._judged_at = self._clock.monotonic()
            self._history.peek()
            try:
                self._report(Surveyed(self._planned(complete=True)))
            finally:
                self._history.forget()

    def _survey_due(self) -> bool:
        now = self._clock.monotonic()
        return self._judged_at is None or now - self._judged_at >= SURVEY.total_seconds()

    def _act(self) -> RoundOutcome:
        """Drain the first node whose pods all fit elsewhere. A dry run only plans.

        The provider is asked before. If it does not respond, the round ends, and no plan uses a node that the cloud is
        about to reclaim.
        """
        self._view.ending = frozenset()
        try:
            if self._minimum and not self._dry_run:
                on_demand = self._view.node_infos().on_demand.values()
                self._view.removed = self._drainer.ending(info.node for info in on_demand)
            plan = self._first_plan()
            if plan is None or self._dry_run:
                return RoundOutcome.IDLE
            ending = self._drainer.notices([info.node for info in self._view.node_infos().spot.values()])
        except ProviderSilent as error:
            self._report(Held(Waiting.PROVIDER_SILENT, f"the provider does not respond: {error}"))
            return RoundOutcome.BROKEN
        if not ending.keys().isdisjoint(placement.node for placement in plan.placements):
            ends = ", ".join(f"{name} at {end:%Y-%m-%dT%H:%M:%SZ}" for name, end in sorted(ending.items()))
            log.warning("replanned without spot nodes that are about to be reclaimed: %s", ends)
            self._view.ending = frozenset(ending)
            plan = self._first_plan()
        return RoundOutcome.IDLE if plan is None else self._drain(plan)

    def _first_plan(self) -> Plan | None:
        """Return the first plan that also passes the checks of its provider and controllers, or None."""
        plan: Plan | None = None
        judged = self._planned(complete=self._dry_run)
        for _ in range(CANDIDATES):
            plan = next((plan for plan in judged.planning.plans if self._is_worth_draining(plan)), None)
            if plan is None or not self._candidates.judge(plan):
                break
            self._run_state.beat()
            self._view.vetoes = self._candidates.vetoes()
            plan, judged = None, self._planned(complete=self._dry_run)
        self._history.save()
        self._report_plan(judged)
        return plan

    def _is_worth_draining(self, plan: Plan) -> bool:
        return bool(plan.placements) or self._is_offered(plan.node)

    def _is_offered(self, name: str) -> bool:
        """Return whether the empty node *name* is offered to the provider now."""
        node = self._view.node(name)
        if node is None or control_plane_label(node) or not self._drainer.takes_machines:
            return False
        return self._offers.due(node.metadata.uid)

    def _planned(self, *, complete: bool) -> Planned:
        started, before = self._clock.monotonic(), self._view.nodes()
        planning = self._view.plan_each() if complete else self._view.first_plan(take_empty=self._is_offered)
        seconds = self._clock.monotonic() - started
        # Nodes may be added or deleted while planning.
        nodes = {name: _ref(node) for name, node in (before | self._view.nodes()).items()}
        judged = {verdict.node: nodes[verdict.node] for verdict in planning.verdicts}
        facts = self._view.facts_of(judged)
        return Planned(self._clock.now(), planning, judged, seconds, _all_judged(planning), facts)

    def _report_plan(self, judged: Planned) -> None:
        if judged.complete:
            self._judged_at = self._clock.monotonic()
        self._report(judged)

    def _drain(self, plan: Plan) -> RoundOutcome:
        expected, began = expect(plan, self._view.pods().values()), self._clock.now()
        self._savings.begins(plan)
        drain = self._drainer.drain(plan)
        if drain is None:
            return RoundOutcome.HELD  # the node was deleted while it was planned
        if drain.failure is None and drain.evicted and not drain.removed_by:
            self._records.record_landing(compare(expected, self._view.pods().values(), self._view.is_spot))
        self._record_end(drain, began)
        if drain.failure is None:
            if drain.group is None and (node := self._view.node(drain.node)):
                self._offers.declined(node.metadata.uid)
            return RoundOutcome.DRAINED
        return RoundOutcome.HELD if drain.failure.why in _OVERTAKEN else RoundOutcome.FAILED

    def _record_end(self, drain: Drain, began: datetime) -> None:
        self._landings.evicted(drain.evicted)
        self._records.record_end(drain, began)
        self._savings.ends(drain)

    def _pause(self, outcome: RoundOutcome) -> timedelta:
        interval = self._timing.housekeeping_interval
        if outcome is RoundOutcome.FAILED:
            return min(interval, SETTLE)
        return min(interval, IDLE) if outcome is RoundOutcome.UNFIT else interval


def _observed(
    now: datetime,
    by_label: Mapping[str, Mapping[str, NodeInfo]],
    all_nodes: frozenset[str],
    cooling: Mapping[str, datetime],
    labels: LabelFindings,
) -> Observed:
    pods = {
        label: {name: info.own_pods for name, info in infos.items() if info.ready} for label, infos in by_label.items()
    }
    return Observed(now, pods, all_nodes, cooling, labels.unmatched, labels.suggestion, labels.overlapping)


def _all_judged(planning: Planning) -> bool:
    return len(planning.verdicts) == planning.on_demand_nodes


def _ref(node: Node) -> InvolvedNode:
    return InvolvedNode(node.metadata.name, node.metadata.uid)
