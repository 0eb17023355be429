"""The plans of a round, and the inputs of the housekeeping loop."""

from collections.abc import Callable, Container, Mapping
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from typing import Final, Protocol

from predicates.objects import Node
from rescheduler.clock import Clock
from rescheduler.durations import Backoff, Pauses
from rescheduler.execution.cluster_view import ClusterView
from rescheduler.execution.context import RunState
from rescheduler.execution.drainer import Drainer
from rescheduler.execution.landings import Landings
from rescheduler.housekeeping.bookkeeping import NoBookkeeping
from rescheduler.housekeeping.candidates import Candidates
from rescheduler.housekeeping.drain_history import DrainHistory, DrainRecords
from rescheduler.housekeeping.node_writes import NewNodes, SoftTaint
from rescheduler.housekeeping.placeholder_room import NoRoomOrders
from rescheduler.observe.events import InvolvedLease, InvolvedNode, Overviewed, Planned, Report, Surveyed
from rescheduler.planning.money.prices import NodeFacts, PriceList
from rescheduler.planning.money.worth import Worth, worth_by_node
from rescheduler.planning.outcome import Blocker, Plan, Planning, Verdict
from rescheduler.planning.pauses import DrainWindow
from rescheduler.planning.room.placeholders import OrderState
from rescheduler.planning.rules.candidates import control_plane_label
from rescheduler.planning.rules.interruptions import SpotWatch
from rescheduler.settings import Timing

# The inputs of the housekeeping loop: its settings, the parts that it uses, and the state of the process.


class LoopState(RunState, Protocol):
    """Whether this process may act, and the wait between two rounds."""

    @property
    def lease(self) -> InvolvedLease: ...

    @property
    def rival(self) -> str:
        """The leader, if it is known to be another replica; otherwise ""."""
        ...

    def pause(self, seconds: float) -> None:
        """Wait for *seconds*, or until the process is told to stop, or begins or stops to lead."""
        ...


@dataclass(frozen=True, slots=True)
class Mode:
    """The settings of the loop."""

    timing: Timing
    dry_run: bool = False
    minimum: int = 0  #: on-demand nodes to keep; nodes whose machines are terminating do not count
    windows: tuple[DrainWindow, ...] = ()  #: when drains may start; empty: always
    pace: float = 1.0  #: by which the longest rest is multiplied
    surveys: bool = True  #: while no drain may start, nodes are planned for metrics and the status page


@dataclass(frozen=True, slots=True)
class Actors:
    """The parts that change the cluster. A dry run does not use them."""

    drainer: Drainer
    soft_taint: SoftTaint
    new_nodes: NewNodes
    records: DrainRecords
    room: NoRoomOrders = field(default_factory=NoRoomOrders)


@dataclass(frozen=True, slots=True)
class Knowledge:
    """The inputs of decisions in addition to the watched state."""

    history: DrainHistory
    candidates: Candidates
    landings: Landings
    spot_watch: SpotWatch
    missing_rights: Callable[[], str] = str  #: returns a message; "" if none is missing
    savings: NoBookkeeping = field(default_factory=NoBookkeeping)
    refresh_prices: Callable[[], None] = lambda: None  #: for the drain order
    prices: Callable[[], PriceList] = PriceList  #: for what the plans are worth
    page_is_read: Callable[[], bool] = lambda: False  #: returns whether somebody looks at the status page


# Back-off for empty nodes whose machines the provider did not remove.

#: Wait until the next offer. It starts short because a provider lists a new machine within minutes, and it doubles
#: because a machine that no provider owns would cost requests forever. Other nodes are offered in the meantime.
PAUSES: Final = Backoff(timedelta(minutes=1), timedelta(hours=1))


class Offers:
    """Schedules when empty nodes are offered to the provider again. Used by the loop's thread only."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._pauses = Pauses(PAUSES)

    def keep(self, uids: Container[str]) -> None:
        """Drop all nodes except *uids*."""
        self._pauses.keep(uids)

    def due(self, uid: str) -> bool:
        """Return whether the node may be offered now."""
        return not self._pauses.active(uid, self._clock.monotonic())

    def next_end(self) -> float:
        """Return when the next node is due, in monotonic seconds; infinity if none waits."""
        return self._pauses.next_end(self._clock.monotonic())

    def declined(self, uid: str) -> None:
        """Record that the provider did not remove the node's machine."""
        self._pauses.failed(uid, self._clock.monotonic())


# The plans of a round: the plan to execute, and the plans of all nodes for metrics and the status page.

#: While no drain may start, nodes are planned this often for metrics and the status page.
SURVEY: Final = timedelta(minutes=1)

#: Time limit for the levers of the status page, in seconds.
LEVER_SECONDS: Final = 2.0

#: Maximum number of candidates whose controllers are read in one round. A veto makes room for the next ones.
CANDIDATES: Final = 20


class RoundPlans:
    """Plans nodes and reports the plans. Used by the loop's thread only."""

    def __init__(
        self,
        view: ClusterView,
        actors: Actors,
        knowledge: Knowledge,
        offers: Offers,
        run_state: LoopState,
        clock: Clock,
        report: Report,
        mode: Mode,
    ) -> None:
        self._view = view
        self._dry_run = mode.dry_run
        self._surveys = mode.surveys
        self._drainer = actors.drainer
        self._room = actors.room
        self._candidates = knowledge.candidates
        self._history = knowledge.history
        self._prices = knowledge.prices
        self._page_is_read = knowledge.page_is_read
        self._offers = offers
        self.verdicts: tuple[Verdict, ...] = ()  #: of the last :meth:`first`
        self._run_state = run_state
        self._clock = clock
        self._report = report
        self._passed: tuple[Plan, float] | None = None  # the last plan that passed the checks, and when
        self._judged_at: float | None = None  # when all nodes were last planned
        self._forecast = False  # whether this was with forecasts
        #: The last report, and the revision of the nodes and the prices at that time.
        self._last: tuple[int, PriceList, Planned] | None = None
        self._kept: Mapping[str, tuple[Blocker, ...]] = {}  #: nodes that the controllers of their pods keep
        #: The planning of all nodes for which that was last checked, and when.
        self._owners_checked: tuple[Planning | None, float] = None, 0.0
        #: What the last overview was made from, and when.
        self._overviewed: tuple[Planning, PriceList, float] | None = None

    def forget(self) -> None:
        """Make the next survey plan all nodes, because the leader has changed or a drain has ended."""
        self._judged_at = self._overviewed = None

    def survey(self) -> None:
        """Plan all nodes every SURVEY for the metrics and the status page."""
        if self._surveys and self._survey_due():
            self._view.start_planning()
            self._report_plan(self._planned(complete=True))

    def watch(self) -> None:
        """Plan all nodes every SURVEY for the status page of a replica that is not the leader. Nothing is written."""
        if self._survey_due() and not self._view.why_unusable() and not self._view.stale():
            self._view.know(checked={})
            self._history.peek()
            try:
                self._survey_for_page()
            finally:
                self._history.forget()

    def next(self, *, complete: bool) -> Plan | None:
        """Return the plan to execute, or None. A node with an open order of spot room takes precedence."""
        order = self._room.order
        if order is not None and order.state is OrderState.READY:
            verdict = self._view.plan_alone(order.node)
            if isinstance(verdict, Plan) and not self._candidates.judge(verdict):
                return verdict
            self._view.know(checked=self._candidates.vetoes())
        return self.first(complete=complete)

    def first(self, *, complete: bool) -> Plan | None:
        """Return the first plan that also passes the checks of its provider and controllers, or None.

        If *complete*, all nodes are planned. That is a dry run: its plan is not executed, so the checks are not
        repeated in each round.
        """
        plan: Plan | None = None
        self._view.start_planning()
        planned = self._planned(complete=complete)
        for _ in range(CANDIDATES):
            plan = next((plan for plan in planned.planning.plans if self._is_worth_draining(plan)), None)
            if plan is None or not self._fails_checks(plan, repeat=not complete):
                break
            self._run_state.beat()
            self._view.know(checked=self._candidates.vetoes())
            plan, planned = None, self._planned(complete=complete)
        self.verdicts = planned.planning.verdicts
        if plan is None:
            self._view.forget_learned()
        self._history.save()
        self._report_plan(planned)
        if plan is not None and not planned.complete and self._page_is_read() and self._survey_due():
            self._survey_for_page()  # the drain may take long, and the page lists every node
        return None if plan is None else plan.next

    def none_until(self, longest: timedelta) -> datetime:
        """Return until when there is no plan if nothing else changes, at most *longest* from now.

        For the end of a round without a plan.
        """
        monotonic, until = self._clock.monotonic(), self._view.planner.first_until(self._view.circumstances)
        seconds = min(self._candidates.next_end(), self._offers.next_end()) - monotonic
        return min(until, self._clock.now() + timedelta(seconds=min(seconds, longest.total_seconds())))

    def _fails_checks(self, plan: Plan, *, repeat: bool) -> bool:
        """Return whether the checks reject *plan*, or it was made without the pod templates that they have read.

        Without *repeat*, a plan that passed the checks less than SURVEY ago is not checked again.
        """
        now, passed = self._clock.monotonic(), self._passed
        if not repeat and passed is not None and passed[0] is plan and now - passed[1] < SURVEY.total_seconds():
            return False
        steps = (plan, *plan.first)
        # Before room is made for it, the node cannot be planned alone: its plan is made again together with the others.
        learned = [self._candidates.learn_templates(each) for each in (steps if plan.first else ())]
        fails = any(learned) or any(self._candidates.judge(each) for each in steps)
        self._passed = None if fails else (plan, now)
        return fails

    def _survey_for_page(self) -> None:
        """Plan all nodes for the status page only."""
        self._judged_at = self._clock.monotonic()
        self._view.start_planning()
        planned = self._planned(complete=True)
        self._report(Surveyed(planned))
        self._report_overview(planned)

    def _survey_due(self) -> bool:
        now = self._clock.monotonic()
        if self._judged_at is None or (self._page_is_read() and not self._forecast):
            return True
        return now - self._judged_at >= SURVEY.total_seconds()

    def _is_worth_draining(self, plan: Plan) -> bool:
        """Return whether *plan* may be executed. While an order of spot room is open, only empty nodes are drained."""
        return (bool(plan.placements) and self._room.order is None) or self._is_offered(
            self._view.facts.node(plan.node)
        )

    def _is_offered(self, node: Node | None) -> bool:
        """Return whether the empty *node* is offered to the provider now."""
        if node is None or control_plane_label(node) or not self._drainer.takes_machines:
            return False
        return self._offers.due(node.metadata.uid)

    def _planned(self, *, complete: bool) -> Planned:
        started, before = self._clock.monotonic(), self._view.facts.nodes

        def is_offered(name: str) -> bool:
            return self._is_offered(before.get(name))

        planning = self._plan_each() if complete else self._view.first_plan(take_empty=is_offered)
        if complete:
            self._history.planned(self._view.leader)
        planning = self._room.explained(planning)
        seconds, revision = self._clock.monotonic() - started, self._view.snapshot.revision
        prices = self._prices_today()
        if self._last is not None and self._last[:2] == (revision, prices) and self._last[2].planning is planning:
            return replace(self._last[2], at=self._clock.now(), seconds=seconds)
        planned = self._with_nodes(planning, before, prices, seconds)
        self._last = revision, prices, planned
        return planned

    def _prices_today(self) -> PriceList:
        """Return the prices without commitments that have ended."""
        return self._prices().on(self._clock.now().date())

    def _plan_each(self) -> Planning:
        """Plan all nodes, without those that the controllers of their pods keep. Only people look at the forecasts."""
        forecasts = self._forecast = self._dry_run or self._page_is_read()
        vetoes, now = self._view.facts.known.checked, self._clock.monotonic()
        self._view.know(checked={**self._kept, **vetoes})
        planning = self._view.plan_each(forecasts=forecasts)
        known, checked_at = self._owners_checked
        if planning is known and now - checked_at < SURVEY.total_seconds():
            return planning
        nodes = [*self._kept, *(plan.node for plan in planning.plans)]
        kept = self._candidates.of_owners(nodes, len(self._kept) + CANDIDATES)
        if kept != self._kept:
            self._kept = kept
            self._view.know(checked={**kept, **vetoes})
            planning = self._view.plan_each(forecasts=forecasts)
        self._owners_checked = planning, now
        return planning

    def _with_nodes(self, planning: Planning, before: Mapping[str, Node], prices: PriceList, seconds: float) -> Planned:
        """Return the report of *planning*. Nodes may have been added or deleted since *before*."""
        nodes = {**before, **self._view.facts.nodes}
        involved = {verdict.node: InvolvedNode.of(nodes[verdict.node]) for verdict in planning.verdicts}
        facts, now = self._view.facts.priced_on_demand(involved), self._clock.now()
        complete = len(planning.verdicts) == planning.on_demand_nodes
        worths = self._worths(planning, facts, prices, now) if complete and not prices.empty else {}
        return Planned(now, planning, involved, seconds, complete, facts, worths, prices.currency)

    def _worths(
        self, planning: Planning, facts: Mapping[str, NodeFacts], prices: PriceList, now: datetime
    ) -> Mapping[str, Worth]:
        targets = {placement.node for plan in planning.plans for placement in plan.moves}
        known = {name: node for name in targets if (node := self._view.facts.priced(name)) is not None}
        return worth_by_node(planning, {**facts, **known}, self._view.snapshot.pods.get, prices, now.date())

    def _report_plan(self, planned: Planned) -> None:
        if planned.complete:
            self._judged_at = self._clock.monotonic()
        self._report(planned)
        self._report_overview(planned)

    def _report_overview(self, planned: Planned) -> None:
        """Plan all drains in sequence for a status page that is read, if anything changed, at most every SURVEY."""
        now, prices, last = self._clock.monotonic(), self._prices_today(), self._overviewed
        if not planned.complete or not self._page_is_read():
            return
        if last is not None and ((planned.planning, prices) == last[:2] or now - last[2] < SURVEY.total_seconds()):
            return
        self._run_state.beat()
        found = self._view.overview(prices, lambda: self._clock.monotonic() >= now + LEVER_SECONDS)
        self._overviewed = planned.planning, prices, now
        self._report(Overviewed(self._clock.now(), found))
