"""The plans of a round: the plan to execute, and the plans of all nodes for metrics and the status page."""

from collections.abc import Mapping
from dataclasses import replace
from datetime import timedelta
from typing import Final

from predicates.objects import Node
from rescheduler.clock import Clock
from rescheduler.execution.cluster_view import ClusterView
from rescheduler.housekeeping.empty_node_backoff import Offers
from rescheduler.housekeeping.loop_inputs import Actors, Knowledge, LoopState
from rescheduler.observe.events import InvolvedNode, Planned, Report, Surveyed
from rescheduler.planning.outcome import Plan, Planning, Verdict
from rescheduler.planning.room.progress import OrderState
from rescheduler.planning.rules.candidates import control_plane_label

#: While no drain may start, nodes are planned this often for metrics and the status page.
SURVEY: Final = timedelta(minutes=1)

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
    ) -> None:
        self._view = view
        self._drainer = actors.drainer
        self._room = actors.room
        self._candidates = knowledge.candidates
        self._history = knowledge.history
        self._offers = offers
        self.verdicts: tuple[Verdict, ...] = ()  #: of the last :meth:`first`
        self._run_state = run_state
        self._clock = clock
        self._report = report
        self._passed: tuple[Plan, float] | None = None  # the last plan that passed the checks, and when
        self._judged_at: float | None = None  # when all nodes were last planned
        self._last: tuple[int, Planned] | None = None  # the last report, and the revision of the nodes at that time

    def forget(self) -> None:
        """Make the next survey plan all nodes, because the leader has changed."""
        self._judged_at = None

    def survey(self) -> None:
        """Plan all nodes every SURVEY for the metrics and the status page."""
        if self._survey_due():
            self._view.start_planning()
            self._report_plan(self._planned(complete=True))

    def watch(self) -> None:
        """Plan all nodes every SURVEY for the status page of a replica that is not the leader. Nothing is written."""
        if self._survey_due() and not self._view.why_unusable() and not self._view.stale():
            self._view.vetoes = {}
            self._judged_at = self._clock.monotonic()
            self._history.peek()
            self._view.start_planning()
            try:
                self._report(Surveyed(self._planned(complete=True)))
            finally:
                self._history.forget()

    def next(self, *, complete: bool) -> Plan | None:
        """Return the plan to execute, or None. A node with an open order of spot room takes precedence."""
        order = self._room.order
        if order is not None and order.state is OrderState.READY:
            verdict = self._view.plan_alone(order.node)
            if isinstance(verdict, Plan) and not self._candidates.judge(verdict):
                return verdict
            self._view.vetoes = self._candidates.vetoes()
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
            self._view.vetoes = self._candidates.vetoes()
            plan, planned = None, self._planned(complete=complete)
        self.verdicts = planned.planning.verdicts
        self._history.save()
        self._report_plan(planned)
        return plan

    def _fails_checks(self, plan: Plan, *, repeat: bool) -> bool:
        """Return whether the checks reject *plan*.

        Without *repeat*, a plan that passed the checks less than SURVEY ago is not checked again.
        """
        now, passed = self._clock.monotonic(), self._passed
        if not repeat and passed is not None and passed[0] is plan and now - passed[1] < SURVEY.total_seconds():
            return False
        blockers = self._candidates.judge(plan)
        self._passed = None if blockers else (plan, now)
        return bool(blockers)

    def _survey_due(self) -> bool:
        now = self._clock.monotonic()
        return self._judged_at is None or now - self._judged_at >= SURVEY.total_seconds()

    def _is_worth_draining(self, plan: Plan) -> bool:
        """Return whether *plan* may be executed. While an order of spot room is open, only empty nodes are drained."""
        return (bool(plan.placements) and self._room.order is None) or self._is_offered(self._view.node(plan.node))

    def _is_offered(self, node: Node | None) -> bool:
        """Return whether the empty *node* is offered to the provider now."""
        if node is None or control_plane_label(node) or not self._drainer.takes_machines:
            return False
        return self._offers.due(node.metadata.uid)

    def _planned(self, *, complete: bool) -> Planned:
        started, before = self._clock.monotonic(), self._view.nodes()

        def is_offered(name: str) -> bool:
            return self._is_offered(before.get(name))

        planning = self._view.plan_each() if complete else self._view.first_plan(take_empty=is_offered)
        planning = self._room.explained(planning)
        seconds, revision = self._clock.monotonic() - started, self._view.revision
        if self._last is not None and self._last[0] == revision and self._last[1].planning is planning:
            return replace(self._last[1], at=self._clock.now(), seconds=seconds)
        planned = self._with_nodes(planning, before, seconds)
        self._last = revision, planned
        return planned

    def _with_nodes(self, planning: Planning, before: Mapping[str, Node], seconds: float) -> Planned:
        """Return the report of *planning*. Nodes may have been added or deleted since *before*."""
        nodes = {**before, **self._view.nodes()}
        involved = {verdict.node: InvolvedNode.of(nodes[verdict.node]) for verdict in planning.verdicts}
        facts = self._view.facts_of(involved)
        return Planned(self._clock.now(), planning, involved, seconds, _all_judged(planning), facts)

    def _report_plan(self, planned: Planned) -> None:
        if planned.complete:
            self._judged_at = self._clock.monotonic()
        self._report(planned)


def _all_judged(planning: Planning) -> bool:
    return len(planning.verdicts) == planning.on_demand_nodes
