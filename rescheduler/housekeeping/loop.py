"""The housekeeping loop: observe the cluster, find reasons to wait, plan, drain. Separate from the composition
root, so that tests can run rounds without threads.
"""

import contextlib
import enum
import logging
from collections import Counter
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import replace
from datetime import datetime, timedelta
from typing import Final

from predicates.objects import Pod
from predicates.texts import one_line
from rescheduler.clock import Clock
from rescheduler.draining.state import Drain, Why
from rescheduler.errors import Forbidden, ReschedulerError
from rescheduler.execution.cluster_view import ClusterView
from rescheduler.execution.drainer import ProviderSilent
from rescheduler.facts.round_facts import PodCounts
from rescheduler.housekeeping.drain_history import DrainHistory
from rescheduler.housekeeping.resting import Resting
from rescheduler.housekeeping.round_plans import Actors, Knowledge, LoopState, Mode, Offers, RoundPlans
from rescheduler.observe.events import (
    ErrorKind,
    Held,
    LeadershipChanged,
    Observed,
    PauseChanged,
    Report,
    RoundEnded,
    Trouble,
    Waiting,
    WatchAges,
)
from rescheduler.planning.forms import utc
from rescheduler.planning.node_info import LabelFindings
from rescheduler.planning.outcome import Landed, Plan, compare, expect
from rescheduler.planning.pauses import closed_until
from rescheduler.planning.placement.pending import LEFT_PENDING, is_left_pending
from rescheduler.planning.pools import PoolState

# Why no drain may start: the process cannot decide, drains are paused, or the cluster has to settle first.

#: Maximum number of pods in a message.
_NAMED: Final = 3

#: A namespace has to be without pending pods for this many times as long as its pods have delayed drains.
_QUIET: Final = 10


class PendingDelays:
    """How long the pending pods of each namespace may still delay drains, or take room: for *patience* at most.

    This holds also if the pods are deleted and created again. The time is regained while the namespace has no such
    pods.
    """

    def __init__(self, patience: timedelta) -> None:
        self._patience = patience
        self._left: dict[str, timedelta] = {}
        self._pending: frozenset[str] = frozenset()  #: namespaces with pending pods, when they were last looked at
        self._delaying: frozenset[str] = frozenset()  #: those of them whose pods delayed drains
        self._at: datetime | None = None

    def delaying(self, pods: Sequence[Pod], now: datetime) -> list[Pod]:
        """Return those of the pending *pods* that delay drains *now*."""
        elapsed = max(now - (self._at or now), timedelta())
        for namespace in self._delaying:
            self._left[namespace] -= elapsed
        for namespace in self._left.keys() - self._pending:
            self._left[namespace] = min(self._left[namespace] + elapsed / _QUIET, self._patience)
        self._at, self._pending = now, frozenset(pod.namespace for pod in pods)
        self._left = {
            namespace: left
            for namespace, left in self._left.items()
            if left < self._patience or namespace in self._pending
        }
        for namespace in self._pending:
            self._left.setdefault(namespace, self._patience)
        self._delaying = frozenset(name for name in self._pending if self._left[name] >= timedelta())
        return [pod for pod in pods if pod.namespace in self._delaying]


class LeftPending:
    """Which pending pods the scheduler leaves pending although they fit.

    Those of a namespace that has had such pods at each look for :data:`LEFT_PENDING`, too: they may be deleted and
    created again before they are old.
    """

    def __init__(self) -> None:
        self._since: dict[str, datetime] = {}  #: by namespace: since when it has had such pods at each look

    def left_pending(self, fitting: Sequence[Pod], now: datetime) -> list[Pod]:
        """Return those of the pods *fitting* somewhere that have been left pending by *now*."""
        self._since = {pod.namespace: self._since.get(pod.namespace, now) for pod in fitting}
        return [pod for pod in fitting if is_left_pending(pod, now) or now - self._since[pod.namespace] >= LEFT_PENDING]


class Holds:
    """Determines whether a drain may start. Used by the loop's thread only."""

    def __init__(
        self, view: ClusterView, history: DrainHistory, run_state: LoopState, mode: Mode, clock: Clock, report: Report
    ) -> None:
        self._view = view
        self._history = history
        self._run_state = run_state
        self._patience = mode.timing.pending_patience
        self._waits_for_pending = mode.timing.wait_for_pending_pods
        self._delays = PendingDelays(self._patience)
        self._left = LeftPending()
        self._windows = mode.windows
        self._clock = clock
        self._report = report
        self._paused = ""  # why a user paused drains, as it was last reported

    def not_ready(self, missing_rights: str, *, leading: bool) -> Held | None:
        """Return why no decision can be made at present, or None. *missing_rights* is a message or ""."""
        if missing_rights:
            return Held(Waiting.NOT_SYNCED, missing_rights)
        if not leading:
            rival = self._run_state.rival
            detail = f"another replica leads: {rival}" if rival else "this replica does not hold the Lease yet"
            paused = self._run_state.paused  # for the status page: the leader reports the pause
            return Held(Waiting.NOT_LEADING, f"{detail}; {paused}" if paused else detail, rival)
        if why := self._view.why_unusable():
            return Held(Waiting.NOT_SYNCED, why)
        if why := self._view.stale():
            return Held(Waiting.STALE_WATCH, why)
        return None

    def paused(self) -> Held | None:
        """Report any change of a user's pause. Return the active pause as the reason to wait, or None."""
        paused = self._run_state.paused
        if paused != self._paused:
            self._paused = paused
            self._report(PauseChanged(self._run_state.lease, paused))
        return Held(Waiting.PAUSED, paused) if paused else None

    def held(self, settled_at: datetime | None) -> Held | None:
        """Return why no drain may start at present, or None.

        *settled_at* is the end of the wait after a burst of lost spot nodes.
        """
        if (held := self._history.held()) is not None:
            return held
        if closed := closed_until(self._windows, self._clock.now()):
            return Held(Waiting.OUTSIDE_DRAIN_WINDOW, closed)
        if settled_at is not None:
            return Held(
                Waiting.SPOT_SETTLING,
                f"many spot nodes were lost at once; drains wait until {utc(settled_at)}",
            )
        if self._waits_for_pending:
            return self._pending()
        left = self._left.left_pending(self._view.fitting_pending(), self._clock.now())
        taking = {pod.namespace for pod in self._delays.delaying(left, self._clock.now())}
        ignored = {pod.namespace for pod in left} - taking
        self._view.know(left_pending=ignored)
        return None

    def _pending(self) -> Held | None:
        if pods := self._delays.delaying(self._view.waiting(self._patience), self._clock.now()):
            named = ", ".join(pod.key for pod in pods[:_NAMED]) + (", …" if len(pods) > _NAMED else "")
            return Held(Waiting.PENDING_PODS, f"{len(pods)} pending pods may fit on spot nodes: {named}")
        return None


# Observe the cluster at the start of a round: record and report its nodes and the loss of spot nodes.


class ClusterObservation:
    """Observes the cluster and reports it. Used by the loop's thread only."""

    def __init__(self, view: ClusterView, knowledge: Knowledge, offers: Offers, clock: Clock, report: Report) -> None:
        self._view = view
        self._history = knowledge.history
        self._candidates = knowledge.candidates
        self._spot_watch = knowledge.spot_watch
        self._offers = offers
        self._clock = clock
        self._report = report
        self._unreported: Counter[str] = Counter()  #: lost nodes by pool, from notices of the provider

    def update(self) -> datetime | None:
        """Record and report the nodes. Return the end of the wait after a burst of lost spot nodes, or None."""
        now, nodes = self._clock.now(), self._view.facts.nodes
        uids = {name: node.metadata.uid for name, node in nodes.items()}
        self._offers.keep(frozenset(uids.values()))
        self._history.keep_nodes(uids)
        self._view.know(checked=self._candidates.vetoes())
        departed = self._view.take_departed()
        settled_at = self._spot_watch.update(self._view.facts.spot_nodes, now, departed, uids.values())
        lost, pools = self._count_losses()
        cooling = {node: cooldown.until for node, cooldown in self._history.cooling().items()}
        labels = self._view.facts.label_findings
        observed = _observed(now, self._view.facts.pod_counts, frozenset(nodes), cooling, labels)
        lost, self._unreported = lost + self._unreported, Counter()
        self._report(replace(observed, pools=tuple(pools), lost=dict(sorted(lost.items()))))
        return settled_at

    def notified(self, names: Collection[str]) -> None:
        """Record that the provider will reclaim the machines of the spot nodes *names*: their pools lose them."""
        self._spot_watch.notified(node for node in self._view.facts.spot_nodes if node.name in names)
        lost, _ = self._count_losses()
        self._unreported += lost

    def _count_losses(self) -> tuple[Counter[str], Sequence[PoolState]]:
        """Record the losses of the pools. Pools whose nodes lack a label stay trusted: they may share nothing."""
        lost = self._spot_watch.take_losses()
        trusted = {pool for pool in lost if not self._view.facts.is_labeled(pool)}
        return lost, self._history.observe_pools(self._view.facts.pool_sizes, lost, trusted)

    def forget(self) -> None:
        """Forget the spot nodes, because another replica is the leader."""
        self._spot_watch.forget()


def _observed(
    now: datetime,
    pods: PodCounts,
    all_nodes: frozenset[str],
    cooling: Mapping[str, datetime],
    labels: LabelFindings,
) -> Observed:
    return Observed(now, pods, all_nodes, cooling, labels.unmatched, labels.suggestion, labels.overlapping)


# The housekeeping loop.
#
# A round: check that the watched state is complete and fresh → resume or roll back drains that were left behind → stop
# here while an earlier drain owes replacement pods, a delay or a pause is active, or pending pods may fit on spot nodes
# → plan → drain the first node whose pods all fit elsewhere. A node whose drain failed cools down. The drain delay
# starts after every drain that evicted a pod or requested the termination of a machine.

#: Wait after a failed drain, so that replacement pods are created and scheduled before the next plan.
SETTLE: Final = timedelta(seconds=2)

#: Interval between rounds while the loop waits for the caches.
IDLE: Final = timedelta(seconds=2)

#: The longest interval between rounds of a replica that does not lead: its pages and checks stay up to date. The
#: elector ends the wait when the replica begins to lead.
FOLLOWING: Final = timedelta(seconds=10)

#: Failures that need no retry: another replica acts, the node is gone, or drains are paused.
_OVERTAKEN: Final = frozenset({Why.LEADERSHIP_LOST, Why.NODE_GONE, Why.PAUSED})

log = logging.getLogger(__name__)


class RoundOutcome(enum.Enum):
    """The outcome of a round."""

    HELD = enum.auto()  #: no drain may start at present
    UNFIT = enum.auto()  #: the cluster could not be read, or this replica is not the leader
    IDLE = enum.auto()  #: no node can be drained
    DRAINED = enum.auto()
    FAILED = enum.auto()  #: the drain failed; other nodes may be drained
    BROKEN = enum.auto()  #: an error ended the round


class Loop:
    """The housekeeping loop. Not thread-safe."""

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
        self._actors = actors
        self._knowledge = knowledge
        self._mode = mode
        self._run_state = run_state
        self._clock = clock
        self._report = report
        self._led: bool | None = None
        self._looked_for_overdue = False  # since this replica leads
        self._notices_read = False  # in this round
        self._reopened: list[Drain] = []  # drains that ended before the memory was read
        self._offers = Offers(clock)
        self._observation = ClusterObservation(view, knowledge, self._offers, clock, report)
        self._holds = Holds(view, knowledge.history, run_state, mode, clock, report)
        self._plans = RoundPlans(view, actors, knowledge, self._offers, run_state, clock, report, mode)
        self._resting = Resting(view, self._plans, knowledge, run_state, mode, clock)

    def run(self, after_first: Callable[[], object] = lambda: None) -> None:
        """Run rounds until the process is told to stop. *after_first* is called once the cluster has been read."""
        first = True
        while not self._run_state.stopping:
            outcome = self.round()
            if first and outcome is not RoundOutcome.UNFIT:
                first = False
                after_first()
            self._wait(outcome)

    def _wait(self, outcome: RoundOutcome) -> None:
        """Wait until the next round: for an interval, or for several while nothing changes and no wait ends."""
        self._run_state.pause(self._pause(outcome).total_seconds())
        while not self._run_state.stopping and self._rests():
            self._run_state.beat()
            self._run_state.pause(self._mode.timing.housekeeping_interval.total_seconds())

    def _rests(self) -> bool:
        """Return whether the next round is left out. Not after an error: the round has it again, and reports it."""
        try:
            return self._resting.lasts() and self._not_ready() is None
        except Exception:
            log.debug("no round is left out", exc_info=True)
            return False

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
            pause = self._pause(outcome).total_seconds()
            self._run_state.pause(min(pause, deadline - self._clock.monotonic()) if must_wait else pause)

    def round(self) -> RoundOutcome:
        """Run one round. Errors are reported and not raised; the next round retries."""
        self._run_state.beat()
        self._resting.wake()
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
            text = f"{type(error).__name__}: {one_line(str(error))}"
            self._report(Trouble(ErrorKind.ROUND, text))
            self._report(Held(Waiting.ROUND_FAILED, f"the round failed: {text}"))
            outcome = RoundOutcome.BROKEN
        good = outcome not in (RoundOutcome.BROKEN, RoundOutcome.UNFIT)
        self._report(RoundEnded(self._clock.now(), self._clock.monotonic() - started, good))
        return outcome

    def _round(self) -> RoundOutcome:
        self._reopen_overdue()
        if (held := self._why_not_ready()) is not None:
            self._report(held)
            if held.waiting is Waiting.NOT_LEADING:
                if not self._view.why_unusable():
                    self._view.advance()
                self._plans.watch()
            return RoundOutcome.UNFIT
        self._view.catch_up()
        self._knowledge.history.refresh()
        reopened, self._reopened = self._reopened, []
        for drain in reopened:
            self._record_end(drain, self._clock.now())
        try:
            return self._lead()
        finally:
            self._knowledge.history.save()
            self._knowledge.savings.save()

    def _lead(self) -> RoundOutcome:
        """Run the part of a round that only the leader runs, after the memory was read."""
        settled_at = self._observation.update()
        paused = self._holds.paused()
        self._knowledge.savings.observe()
        self._notices_read = False
        if not self._mode.dry_run:
            self._read_notices_for_moved_pods()
            self._actors.soft_taint.keep(self._view.facts.nodes)
            if self._actors.new_nodes.keep(self._view.facts.nodes) or self._sweep():
                detail = "an earlier drain was resumed or rolled back, or a new node was cordoned or uncordoned"
                self._report(Held(Waiting.CLEANING_UP, f"{detail}; the next round plans again"))
                return RoundOutcome.HELD
            self._actors.room.keep(paused=paused is not None)
        owed = self._knowledge.landings.settle()  # also while drains are paused
        held = paused or owed or self._holds.held(settled_at)
        if held is not None:
            self._plans.survey()
            self._report(held)
            self._resting.begin(held, settled_at)
            return RoundOutcome.HELD
        outcome = self._act()
        if outcome is RoundOutcome.IDLE:
            self._resting.begin(None, settled_at)
        return outcome

    def _reopen_overdue(self) -> None:
        """Reopen the nodes of overdue drains once this replica leads, before the cluster has been read.

        An error is not a reason to end the round; the next one repeats the request.
        """
        if not self._run_state.leading or self._mode.dry_run:
            self._looked_for_overdue = False
        elif not self._looked_for_overdue:
            try:
                self._reopened += self._actors.drainer.reopen_overdue()
            except ReschedulerError as error:
                log.info("could not look for interrupted drains: %s", error)
            else:
                self._looked_for_overdue = True

    def _why_not_ready(self) -> Held | None:
        """Return why no decision can be made at present, or None."""
        self._report(WatchAges(self._view.ages()))
        leading = self._run_state.leading
        if leading is not self._led:
            self._led = leading
            self._plans.forget()
            self._report(LeadershipChanged(leading))
        if not leading:
            self._knowledge.history.forget()
            self._knowledge.savings.forget()
            self._observation.forget()
        return self._not_ready()

    def _not_ready(self) -> Held | None:
        return self._holds.not_ready(self._knowledge.missing_rights(), leading=self._run_state.leading)

    def _sweep(self) -> bool:
        """Resume or roll back drains that were left behind. Return whether there were any."""
        began = self._clock.now()
        return self._actors.drainer.sweep(lambda drain: self._record_end(drain, began))

    def _act(self) -> RoundOutcome:
        """Drain the first node whose pods all fit elsewhere. A dry run only plans.

        First, the nodes that are about to be reclaimed are requested from the provider; no plan uses them. If it does
        not respond, the round ends.
        """
        if not self._notices_read:
            self._view.know(ending=())
        try:
            if self._mode.minimum and not self._mode.dry_run:
                on_demand = self._view.facts.node_infos.on_demand.values()
                self._view.know(ended=self._actors.drainer.ending(info.node for info in on_demand))
            self._knowledge.refresh_prices()
            plan = self._plans.next(complete=self._mode.dry_run)
            if plan is None or self._mode.dry_run:
                return RoundOutcome.IDLE if self._mode.dry_run else self._make_room()
            ending = self._read_notices()  # also for the plans of the drain itself
        except ProviderSilent as error:
            self._report(Held(Waiting.PROVIDER_SILENT, f"the provider does not respond: {error}"))
            return RoundOutcome.BROKEN
        if not ending.keys().isdisjoint(placement.node for placement in plan.placements) or self._distrusted(plan):
            ends = ", ".join(f"{name} at {end:%Y-%m-%dT%H:%M:%SZ}" for name, end in sorted(ending.items()))
            log.warning("replanned without spot nodes that are about to be reclaimed: %s", ends)
            plan = self._plans.next(complete=self._mode.dry_run)
        return RoundOutcome.IDLE if plan is None else self._drain(plan)

    def _read_notices(self) -> Mapping[str, datetime]:
        """Return which spot nodes the provider will reclaim, and when. Raises ProviderSilent."""
        ending = self._actors.drainer.notices([info.node for info in self._view.facts.node_infos.spot.values()])
        if ending:
            self._observation.notified(ending)
        self._view.know(ending=ending)
        return ending

    def _read_notices_for_moved_pods(self) -> None:
        """Read the notices before the sweep and before debts are settled: moved pods do not stay on such nodes.

        A silent provider delays neither: nodes are reopened without it, and each order asks again.
        """
        history = self._knowledge.history
        if self._view.facts.marked or history.debts or history.settled:
            with contextlib.suppress(ProviderSilent):
                self._read_notices()
                self._notices_read = True

    def _distrusted(self, plan: Plan) -> bool:
        """Return whether *plan* moves pods to a pool that was trusted when it was made, and is not any more."""
        settling = self._knowledge.history.settling()
        return bool(settling) and any(self._view.facts.pool(each.node) in settling for each in plan.placements)

    def _make_room(self) -> RoundOutcome:
        """Order spot room for a node, because none can be drained."""
        if (held := self._actors.room.make(self._plans.verdicts)) is None:
            return RoundOutcome.IDLE
        self._report(held)
        return RoundOutcome.HELD

    def _drain(self, plan: Plan) -> RoundOutcome:
        expected, began = expect(plan, self._view.snapshot.pods.values()), self._clock.now()
        if plan.empties:
            self._knowledge.savings.begins(plan)

        def landed() -> Landed:
            return compare(expected, self._view.snapshot.pods.values(), self._view.facts.is_spot)

        drain = self._actors.drainer.drain(plan, lambda: landed().returned)
        if drain is None:
            return RoundOutcome.HELD  # the node was deleted while it was planned
        if drain.failure is None and drain.evicted and not drain.removed_by:
            self._actors.records.record_landing(landed())
        self._record_end(drain, began)
        if drain.failure is None:
            if plan.empties and drain.group is None and (node := self._view.facts.node(drain.node)):
                self._offers.declined(node.metadata.uid)
            return RoundOutcome.DRAINED
        return RoundOutcome.HELD if drain.failure.why in _OVERTAKEN else RoundOutcome.FAILED

    def _record_end(self, drain: Drain, began: datetime) -> None:
        self._plans.forget()
        self._actors.room.drained(drain)
        self._knowledge.landings.evicted(drain.evicted)
        self._actors.records.record_end(drain, began)
        self._knowledge.savings.ends(drain)

    def _pause(self, outcome: RoundOutcome) -> timedelta:
        interval = self._mode.timing.housekeeping_interval
        if outcome is RoundOutcome.FAILED:
            return min(interval, SETTLE)
        if outcome is RoundOutcome.UNFIT:
            return min(interval, FOLLOWING if self._led is False else IDLE)
        return interval
