"""Housekeeping: one round, and rounds until we are told to stop.

A round: is everything read, and fresh? → leftovers of earlier drains are taken care of → nothing while an earlier
drain owes replacement pods, while a delay or a pause runs, or while pods wait for a place on spot → plan → drain the
first node that can be emptied. A failed drain cools its node down; the drain delay starts after every drain that
evicted a pod or handed a machine over.
"""

import enum
import logging
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Final, Protocol

from predicates.objects import Node
from rescheduler.candidates import Candidates
from rescheduler.clock import Clock
from rescheduler.drainer import Drainer, ProviderSilent
from rescheduler.draining.state import Drain, Why
from rescheduler.errors import Forbidden, ReschedulerError
from rescheduler.landings import Landings
from rescheduler.new_nodes import NewNodes
from rescheduler.observe.events import (
    ErrorKind,
    Held,
    KeptByGuards,
    LeadershipChanged,
    NodeRef,
    Observed,
    Planned,
    Report,
    RoundEnded,
    Trouble,
    Waiting,
    WatchAges,
)
from rescheduler.offers import Offers
from rescheduler.planning.candidates import control_plane_label
from rescheduler.planning.landing import compare, expect
from rescheduler.planning.node_info import NodeInfo
from rescheduler.planning.outcome import Plan, Planning
from rescheduler.planning.spot_losses import SpotWatch
from rescheduler.recollection import Recollection
from rescheduler.records import DrainRecords
from rescheduler.settings import Timing
from rescheduler.soft_taint import SoftTaint
from rescheduler.view import View

#: After a failed drain its evicted pods need a moment to be created and placed, before the next plan.
SETTLE: Final = timedelta(seconds=2)

#: While nothing may be drained, nodes are judged this often, for metrics and the status page.
SURVEY: Final = timedelta(minutes=1)

#: The comparison with k8s-spot-rescheduler, once after the start, takes no longer than about this.
COMPARISON: Final = timedelta(seconds=1)

#: While there is nothing to do but to wait for the cluster, the Lease or replacement pods, rounds are this frequent.
IDLE: Final = timedelta(seconds=2)

#: Nodes whose pods' controllers are read in one round, until one can go. Vetoed ones leave the turn to the next ones.
CANDIDATES: Final = 20

#: Failures after which nobody has to try again: another replica acts, or the node is gone.
_OVERTAKEN: Final = frozenset({Why.LEADERSHIP_LOST, Why.NODE_GONE})

#: Pods that a line names; the others are counted.
_NAMED: Final = 3

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
    minimum: int = 0  #: on-demand nodes that keep their pods: machines that others end must not count


@dataclass(frozen=True, slots=True)
class Actors:
    """Who changes the cluster. A dry run has none of their work done."""

    drainer: Drainer
    soft_taint: SoftTaint
    new_nodes: NewNodes
    records: DrainRecords


@dataclass(frozen=True, slots=True)
class Knowledge:
    """What is known beside the watched state."""

    recollection: Recollection
    candidates: Candidates
    landings: Landings
    spot_watch: SpotWatch
    missing_rights: Callable[[], str] = str  #: in words; "": none is missing


class Loop:
    """Rounds. For one thread."""

    def __init__(
        self,
        view: View,
        actors: Actors,
        knowledge: Knowledge,
        standing: Standing,
        mode: Mode,
        clock: Clock,
        report: Report,
    ) -> None:
        self._view = view
        self._drainer = actors.drainer
        self._soft_taint = actors.soft_taint
        self._new_nodes = actors.new_nodes
        self._records = actors.records
        self._recollection = knowledge.recollection
        self._candidates = knowledge.candidates
        self._landings = knowledge.landings
        self._spot_watch = knowledge.spot_watch
        self._missing_rights = knowledge.missing_rights
        self._standing = standing
        self._timing = mode.timing
        self._dry_run = mode.dry_run
        self._minimum = mode.minimum
        self._clock = clock
        self._report = report
        self._led: bool | None = None
        self._compared = False  # with k8s-spot-rescheduler
        self._judged_at: float | None = None  # when all nodes were last judged
        self._settled_at: datetime | None = None  # when spot is trusted again after a burst of lost nodes
        self._offers = Offers(clock)

    def run(self) -> None:
        """Rounds until we are told to stop."""
        while not self._standing.stopping:
            outcome = self.round()
            self._standing.pause(self._pause(outcome).total_seconds())

    def once(self, patience: timedelta) -> Outcome:
        """One round, once the cluster can be read, and further ones as long as drains fail without an eviction.

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
        except Forbidden as error:  # a missing right is never taken for "there is none"
            self._report(Held(Waiting.NOT_SYNCED, str(error)))
            outcome = Outcome.UNFIT
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
        if (held := self._unfit()) is not None:
            self._report(held)
            return Outcome.UNFIT
        self._recollection.refresh()
        try:
            return self._lead()
        finally:
            self._recollection.save()

    def _lead(self) -> Outcome:
        """A round of the leader, with the memory as it is stored."""
        self._observe()
        if not self._dry_run:
            self._soft_taint.keep(self._view.nodes().values())
            if self._new_nodes.keep(self._view.nodes().values()) or self._sweep():
                return Outcome.HELD
        held = self._landings.settle() or self._held()
        if held is not None:
            self._survey()
            self._report(held)
            return Outcome.HELD
        return self._act()

    def _unfit(self) -> Held | None:
        """Why nothing can be decided now."""
        self._report(WatchAges(self._view.ages()))
        missing, leading = self._missing_rights(), self._standing.leading
        if leading is not self._led:
            self._led = leading
            self._report(LeadershipChanged(leading))
        if not leading:
            self._recollection.forget()
        if missing:
            return Held(Waiting.NOT_SYNCED, missing)
        if not leading:
            return Held(Waiting.NOT_LEADING, "another replica leads")
        if why := self._view.unfit():
            return Held(Waiting.NOT_SYNCED, why)
        if why := self._view.stale():
            return Held(Waiting.STALE_WATCH, why)
        return None

    def _observe(self) -> None:
        now, nodes = self._clock.now(), self._view.nodes()
        uids = {name: node.metadata.uid for name, node in nodes.items()}
        self._offers.keep(frozenset(uids.values()))
        self._recollection.keep_nodes(uids)
        self._view.vetoes = self._candidates.vetoes()
        infos = self._view.node_infos()
        self._settled_at = self._spot_watch.look([info.node for info in infos.spot.values()], now)
        cooling = {node: cooldown.until for node, cooldown in self._recollection.cooling().items()}
        self._report(_observed(now, self._view.by_label(infos), frozenset(nodes), cooling))
        if not self._compared:
            self._compared = True
            kept = self._view.kept_by_guards(COMPARISON)
            if kept.nodes:
                counts = {str(reason): count for reason, count in kept.nodes.items()}
                self._report(KeptByGuards(counts, kept.complete))

    def _sweep(self) -> bool:
        """Take care of the marks of earlier drains; whether that took the round."""
        began = self._clock.now()
        return self._drainer.sweep(lambda drain: self._ended(drain, began))

    def _held(self) -> Held | None:
        """Why nothing is drained at this time."""
        if (held := self._recollection.held()) is not None:
            return held
        if self._settled_at is not None:
            return Held(
                Waiting.SPOT_SETTLING,
                f"many spot nodes were lost at once; drains wait until {self._settled_at:%Y-%m-%dT%H:%M:%SZ}",
            )
        if pods := self._view.waiting(self._timing.pending_patience):
            named = ", ".join(pod.key for pod in pods[:_NAMED]) + (", …" if len(pods) > _NAMED else "")
            return Held(Waiting.PENDING_PODS, f"{len(pods)} pods wait for a place that spot nodes may give: {named}")
        return None

    def _survey(self) -> None:
        """Judge all nodes now and then, for the metrics and the status page."""
        now = self._clock.monotonic()
        if self._judged_at is None or now - self._judged_at >= SURVEY.total_seconds():
            self._tell(self._planned(complete=True))

    def _act(self) -> Outcome:
        """Drain the first node that can be emptied; a dry run only looks for it.

        The provider is asked before: one that is silent now says nothing about the node, and no plan counts on a
        node that the cloud is about to take away.
        """
        self._view.ending = frozenset()
        try:
            if self._minimum and not self._dry_run:
                on_demand = self._view.node_infos().on_demand.values()
                self._view.removed = self._drainer.ending(info.node for info in on_demand)
            plan = self._first_plan()
            if plan is None or self._dry_run:
                return Outcome.IDLE
            ending = self._drainer.notices([info.node for info in self._view.node_infos().spot.values()])
        except ProviderSilent as error:
            self._report(Held(Waiting.PROVIDER_SILENT, f"the provider cannot be asked now: {error}"))
            return Outcome.BROKEN
        if not ending.keys().isdisjoint(placement.node for placement in plan.placements):
            ends = ", ".join(f"{name} at {end:%Y-%m-%dT%H:%M:%SZ}" for name, end in sorted(ending.items()))
            log.warning("replanned without spot nodes that are about to be reclaimed: %s", ends)
            self._view.ending = frozenset(ending)
            plan = self._first_plan()
        return Outcome.IDLE if plan is None else self._drain(plan)

    def _first_plan(self) -> Plan | None:
        """The first plan that the controllers of its pods allow, too. Pods that leave anyway are no reason to drain."""
        plan: Plan | None = None
        judged = self._planned(complete=self._dry_run)
        for _ in range(CANDIDATES):
            plan = next((plan for plan in judged.planning.plans if self._is_wanted(plan)), None)
            if plan is None or not self._candidates.judge(plan):
                break
            self._standing.beat()
            self._view.vetoes = self._candidates.vetoes()
            plan, judged = None, self._planned(complete=self._dry_run)
        self._recollection.save()
        self._tell(judged)
        return plan

    def _is_wanted(self, plan: Plan) -> bool:
        return bool(plan.placements) or self._is_offered(plan.node)

    def _is_offered(self, name: str) -> bool:
        """Whether the provider may want *name* without its pods."""
        node = self._view.node(name)
        if node is None or control_plane_label(node) or not self._drainer.takes_machines:
            return False
        return self._offers.due(node.metadata.uid)

    def _planned(self, *, complete: bool) -> Planned:
        started, before = self._clock.monotonic(), self._view.nodes()
        planning = self._view.plan_each() if complete else self._view.first_plan(take_empty=self._is_offered)
        seconds = self._clock.monotonic() - started
        # Nodes come and go while we plan.
        nodes = {name: _ref(node) for name, node in (before | self._view.nodes()).items()}
        judged = {verdict.node: nodes[verdict.node] for verdict in planning.verdicts}
        return Planned(self._clock.now(), planning, judged, seconds, _all_judged(planning))

    def _tell(self, judged: Planned) -> None:
        if judged.complete:
            self._judged_at = self._clock.monotonic()
        self._report(judged)

    def _drain(self, plan: Plan) -> Outcome:
        expected, began = expect(plan, self._view.pods().values()), self._clock.now()
        drain = self._drainer.drain(plan)
        if drain is None:
            return Outcome.HELD  # the node went while it was planned
        if drain.failure is None and drain.evicted and not drain.removed_by:
            self._records.landed(compare(expected, self._view.pods().values(), self._view.is_spot))
        self._ended(drain, began)
        if drain.failure is None:
            if drain.group is None and (node := self._view.node(drain.node)):
                self._offers.declined(node.metadata.uid)
            return Outcome.DRAINED
        return Outcome.HELD if drain.failure.why in _OVERTAKEN else Outcome.FAILED

    def _ended(self, drain: Drain, began: datetime) -> None:
        self._landings.evicted(drain.evicted)
        self._records.ended(drain, began)

    def _pause(self, outcome: Outcome) -> timedelta:
        interval = self._timing.housekeeping_interval
        if outcome is Outcome.FAILED:
            return min(interval, SETTLE)
        return min(interval, IDLE) if outcome is Outcome.UNFIT else interval


def _observed(
    now: datetime,
    by_label: Mapping[str, Mapping[str, NodeInfo]],
    all_nodes: frozenset[str],
    cooling: Mapping[str, datetime],
) -> Observed:
    pods = {
        label: {name: info.own_pods for name, info in infos.items() if info.ready} for label, infos in by_label.items()
    }
    unmatched = tuple(label for label, infos in by_label.items() if not infos)
    return Observed(now, pods, all_nodes, cooling, unmatched)


def _all_judged(planning: Planning) -> bool:
    return len(planning.verdicts) == planning.on_demand_nodes


def _ref(node: Node) -> NodeRef:
    return NodeRef(node.metadata.name, node.metadata.uid)
