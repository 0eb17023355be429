"""The watched cluster with a planner that is reused from round to round.

Not thread-safe. Results are valid until the next call.
"""

import math
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from typing import Final, Protocol, TypedDict, Unpack, cast

from msgspec import structs

from predicates.objects import Node, Object, Pod, ResourceQuota
from predicates.scheduler import DEFAULT_NAME
from predicates.snapshot import Snapshot, key_of
from rescheduler.clock import Clock
from rescheduler.errors import Forbidden, ReschedulerError
from rescheduler.facts.round_facts import FactsReader, Known, RoundFacts
from rescheduler.planning.admission import CLASSES
from rescheduler.planning.forms import instant, shortened
from rescheduler.planning.memory import Memory
from rescheduler.planning.money.move_costs import MoveWorth
from rescheduler.planning.money.prices import PriceList
from rescheduler.planning.outcome import TO_SPOT, Blocker, Plan, Planning, Purpose, Reason, Rejected, Verdict
from rescheduler.planning.planner import Planner
from rescheduler.planning.policy import Circumstances, Destination, LeaderFacts, Policy
from rescheduler.planning.replacements import ADMISSION, DERIVED_FROM
from rescheduler.planning.rules.pod_traits import ends_with_node
from rescheduler.planning.what_if.comparison import levers_of
from rescheduler.planning.what_if.overview import PLAN_COMMAND, Overview, overview

# Whether the watched state of the cluster can be used for decisions.

#: A watch without an event or a bookmark for this many seconds may have lost its connection.
STALE_SECONDS: Final = 150.0

#: Maximum number of errors and of kinds in a message.
_MAX_ERRORS: Final = 3
_MAX_KINDS: Final = 3


class State(Protocol):
    """The watched cluster."""

    @property
    def synced(self) -> bool: ...

    @property
    def missing(self) -> tuple[str, ...]: ...

    @property
    def errors(self) -> Mapping[str, ReschedulerError]: ...

    def ages(self) -> Mapping[str, float]: ...

    def snapshot(self) -> Snapshot: ...

    def take_departed(self) -> tuple[Node, ...]:
        """Return the last states of nodes that were deleted since the last call."""
        ...

    def became_ready(self, pod: Pod) -> float | None:
        """Return when *pod* was seen to become Ready; see :data:`~rescheduler.planning.debts.BecameReady`."""
        ...


def stale(ages: Mapping[str, float]) -> str:
    """Return a message about the watches that are too old for decisions, or "". *ages* are in seconds, by kind."""
    silent = sorted((-age, kind) for kind, age in ages.items() if age > STALE_SECONDS)
    texts = [f"{kind}: no event or bookmark for {-age:.0f} s" for age, kind in silent]
    return shortened(texts, _MAX_KINDS, before=", ")


def why_unusable(state: State) -> str:
    """Return why the watched state cannot be used for decisions, or "". Thread-safe."""
    errors = state.errors
    if not state.synced:
        return "; ".join((f"not read yet: {', '.join(state.missing)}", *_messages(errors.values())))
    if errors:
        return f"{', '.join(sorted(errors))} cannot be read at present: {'; '.join(_messages(errors.values()))}"
    return ""


def _messages(errors: Collection[ReschedulerError]) -> list[str]:
    """Return the first messages of *errors*. Missing permissions come first: they need to be granted."""
    by_weight = sorted(errors, key=lambda error: not isinstance(error, Forbidden))
    return list(dict.fromkeys(map(str, by_weight)))[:_MAX_ERRORS]


#: How long drains wait for a new pod that the scheduler has not processed yet.
SETTLING: Final = timedelta(minutes=1)

#: How long plans use templates and limits that are not watched, while nothing can be drained.
KNOWN: Final = timedelta(minutes=10)

#: The share of the planning time-out that is used for planning. The rest is a reserve: a step may take longer.
_PLANNED_SHARE: Final = 0.9

#: The blockers of a node whose machine is terminated, and with it the kubelet.
_WITHOUT_KUBELET: Final = frozenset({Reason.NODE_NOT_READY, Reason.POD_TERMINATING, Reason.POD_STUCK_TERMINATING})


@dataclass(frozen=True, slots=True, kw_only=True)
class ViewSources:
    """Where a view learns what is not in the watched state."""

    memory: Callable[[], Memory] = Memory  #: what is remembered of earlier drains
    #: Add to the snapshot what is not watched: groups of pods, and Deployments that may roll out.
    unwatched: tuple[Callable[[Snapshot], None], ...] = ()
    #: Returns the groups of on-demand nodes, and how many more nodes they may get; see :class:`LeaderFacts`.
    growth: Callable[[RoundFacts], Mapping[str, tuple[str, int]]] = lambda _: {}
    plan_command: str = PLAN_COMMAND  #: the command line that plans as this process does


class LeaderNames(TypedDict, total=False):
    """Nodes and namespaces, as fields of :class:`LeaderFacts`."""

    ending: Collection[str]
    ended: Collection[str]
    left_pending: Collection[str]


class ClusterView:
    """The facts of the watched cluster, and the plans that are made of them."""

    def __init__(
        self, state: State, policy: Policy, clock: Clock, known: Known, sources: ViewSources = ViewSources()
    ) -> None:
        """Create a view of *state*. *known* is what this process knows besides it, without what is remembered."""
        self._state = state
        self._policy = policy
        self._clock = clock
        self._known = known
        self._sources = sources
        self._reader = FactsReader(policy)
        self._facts: RoundFacts | None = None  #: None after each change of what they are made of
        self._current: Snapshot | None = None
        #: The time of the watched state, as far as it is known here, and the same in monotonic seconds.
        self._as_of, self.watched_at = clock.now(), clock.monotonic()
        self._cached_planner: Planner | None = None
        self._planning_end = math.inf
        self._learned_at = math.inf  #: when the last templates were learned; infinite if there are none
        self._spent = 0.0  #: seconds of the next planning time-out that were used before the planning

    # What is known

    @property
    def facts(self) -> RoundFacts:
        """What is known in this round: the same value until the view advances, or learns something."""
        memory = self._sources.memory()
        if self._facts is None or (self._facts.known.memory is not memory and self._facts.known.memory != memory):
            self._facts = self._reader.facts(self.snapshot, replace(self._known, memory=memory), self._as_of)
        return self._facts

    @property
    def leader(self) -> LeaderFacts:
        """What this process knows that is not in the cluster."""
        return self._known.leader

    def know(
        self,
        *,
        checked: Mapping[str, tuple[Blocker, ...]] | None = None,
        prices: PriceList | None = None,
        **names: Unpack[LeaderNames],
    ) -> None:
        """Plan with what a round has found out from now on. What is not given stays.

        *names* are those of nodes and namespaces, by their field in :class:`LeaderFacts`.
        """
        known, given = self._known, cast("Mapping[str, Collection[str]]", names)
        self._use(
            replace(
                known,
                checked=known.checked if checked is None else checked,
                prices=known.prices if prices is None else prices,
                leader=structs.replace(known.leader, **{field: tuple(sorted(each)) for field, each in given.items()}),
            )
        )

    def _use(self, known: Known) -> None:
        self._known, self._facts = known, None

    # The watched state

    def why_unusable(self) -> str:
        """Return why the watched state cannot be used for decisions, or ""; see :func:`why_unusable`."""
        return why_unusable(self._state)

    def ages(self) -> Mapping[str, float]:
        """Return the seconds since the last event, bookmark or list of each kind."""
        return self._state.ages()

    def stale(self) -> str:
        """Return a message about the watches that are too old for decisions, or ""."""
        return stale(self.ages())

    def advance(self) -> Snapshot:
        """Apply the watched changes. Between two calls, nothing that is asked here changes."""
        self._current, self._facts = self._state.snapshot(), None
        self._as_of, self.watched_at = self._clock.now(), self._clock.monotonic()
        return self._current

    def catch_up(self) -> None:
        """Apply the watched changes, for a round. The time this takes counts towards the next planning time-out."""
        start = self._clock.monotonic()
        snapshot = self.advance()
        for refresh in self._sources.unwatched:
            refresh(snapshot)
        self._spent = self._clock.monotonic() - start
        self._facts = None

    @property
    def snapshot(self) -> Snapshot:
        """The state of the cluster at the last call of :meth:`advance`."""
        return self.advance() if self._current is None else self._current

    def became_ready(self, pod: Pod) -> float | None:
        """Return when *pod* was seen to become Ready; see :class:`State`. Thread-safe."""
        return self._state.became_ready(pod)

    def take_departed(self) -> tuple[Node, ...]:
        """Return the last states of nodes that were deleted since the last call, as far as they are known."""
        return self._state.take_departed()

    def learn(self, objects: Collection[tuple[str, Object]], namespaces: Collection[str]) -> bool:
        """Add what replacement pods are created from, each with its kind. Return whether any is new or has changed.

        *objects* are controllers with pod templates, older revisions of them, all LimitRanges and
        VerticalPodAutoscalers of *namespaces*, and all classes of priorities and runtimes.
        They are not watched: later plans use them until they are read again, or :meth:`forget_learned`.
        """
        snapshot = self.snapshot
        before = dict(snapshot.versions)
        present = {(kind, key_of(each)) for kind, each in objects}
        for kind in ADMISSION:
            for key in [key for key in snapshot.of(kind) if key.partition("/")[0] in namespaces]:
                if (kind, key) not in present:
                    snapshot.delete(kind, key)
        for kind in CLASSES:
            for key in [key for key in snapshot.of(kind) if (kind, key) not in present]:
                snapshot.delete(kind, key)
        for kind, each in objects:
            snapshot.upsert(kind, each)
        self._learned_at, self._facts = self._clock.monotonic(), None
        return dict(snapshot.versions) != before

    def forget_learned(self) -> None:
        """Forget what was learned if nothing was for KNOWN: a node that it keeps is a candidate again, and is read."""
        if self._clock.monotonic() < self._learned_at + KNOWN.total_seconds():
            return
        self._learned_at, self._facts, snapshot = math.inf, None, self.snapshot
        for kind in DERIVED_FROM:
            for key in list(snapshot.of(kind)):
                snapshot.delete(kind, key)

    # Plans

    @property
    def planner(self) -> Planner:
        snapshot = self.snapshot
        if self._cached_planner is None:
            self._cached_planner = Planner(snapshot, self._policy)
        return self._cached_planner

    @property
    def circumstances(self) -> Circumstances:
        """The circumstances of plans with the current facts."""
        known = self.facts.circumstances
        if self._policy.destination is Destination.SPOT or not self.snapshot.pods_on.get(""):
            return known
        # The pods that the scheduler leaves pending where they fit take no room.
        left = self.planner.left_pending(known)
        return replace(known, left_pending=frozenset(pod.namespace for pod in left))

    def _while_draining(self, node: str) -> Circumstances:
        """Return the circumstances for *node*, which is being drained: its own cooldown and vetoes do not count."""
        known = self.circumstances
        has_pods = not all(ends_with_node(pod, self._policy) for pod in self.facts.pods_of(node))
        empty = node in known.ordered and not has_pods
        return replace(
            known,
            cooling={name: until for name, until in known.cooling.items() if name != node},
            vetoes={name: blockers for name, blockers in known.vetoes.items() if name != node},
            ordered=known.ordered - {node},
            emptied=frozenset({node} if empty else ()),
        )

    def must_move(self, node: str) -> Sequence[Pod]:
        """Return the pods of *node*, if it exists, that must move before it is empty, by name."""
        return self.planner.must_move(node, self.circumstances) if self.facts.node(node) is not None else ()

    def start_planning(self) -> None:
        """Start the planning time-out, which covers all planning until the next call."""
        growth = self._sources.growth(self.facts)
        self._use(replace(self._known, leader=structs.replace(self.leader, growth=growth)))
        self._planning_end = self._clock.monotonic() + _PLANNED_SHARE * self._policy.planning_timeout - self._spent
        self._spent = 0.0

    def first_plan(self, *, take_empty: Callable[[str], bool]) -> Planning:
        """Return verdicts up to the first node that can be drained. *take_empty* decides about nodes without pods."""
        circumstances = self.circumstances
        return self.planner.first_plan(circumstances, take_empty=take_empty, seconds_left=self._seconds_left)

    def plan_each(self, *, forecasts: bool = True) -> Planning:
        """Return a verdict for each on-demand node, as if it were drained alone."""
        return self.planner.plan_each(self.circumstances, seconds_left=self._seconds_left, forecasts=forecasts)

    def _seconds_left(self) -> float:
        return self._planning_end - self._clock.monotonic()

    def plan_node(self, node: str, evicted: Collection[str] = (), purpose: Purpose = TO_SPOT) -> Verdict:
        """Return a verdict for a node that is being drained. *evicted* are UIDs of its evicted pods."""
        circumstances = self._while_draining(node)
        verdict = self.planner.look_again(node, circumstances, evicted, purpose)
        if isinstance(verdict, Rejected) and self._machine_is_gone(verdict):
            return verdict if self.planner.must_move(node, circumstances) else Plan(node, ())
        return verdict

    def _machine_is_gone(self, rejected: Rejected) -> bool:
        """Return whether the node is blocked only because its machine was removed and its kubelet stopped."""
        reasons = {blocker.reason for blocker in rejected.blockers}
        ordered = rejected.node in self.circumstances.ordered
        return ordered and Reason.NODE_NOT_READY in reasons and reasons <= _WITHOUT_KUBELET

    def plan_alone(self, node: str, purpose: Purpose = TO_SPOT) -> Verdict:
        """Return a verdict for *node* by itself, with the checks of :meth:`first_plan`."""
        return self.planner.look_again(node, self.circumstances, purpose=purpose)

    def follow(
        self,
        node: str,
        due: Sequence[Pod],
        evicted: Collection[str] = (),
        step: Collection[str] = (),
        purpose: Purpose = TO_SPOT,
    ) -> Verdict:
        """Return whether the remaining pods of a node that is being drained still fit, those of the next *step* first.

        The replacement pods of *due*, which are evicted pods, are placed as well.
        """
        return self.planner.follow(node, self._while_draining(node), due, evicted, step, purpose)

    def refused_by(self, quotas: Iterable[ResourceQuota], pods: Sequence[Pod]) -> tuple[Blocker, ...]:
        """Return why *quotas* would refuse replacements of *pods*, which are all the pods that a drain evicts."""
        return self.planner.refused_by(quotas, pods, self.circumstances)

    def overview(self, prices: PriceList, time_is_up: Callable[[], bool]) -> Overview:
        """Plan all drains in sequence. Return the totals, with the levers that were tried until *time_is_up*."""
        planner, circumstances, snapshot = self.planner, self.circumstances, self.snapshot
        planning = planner.plan_all(circumstances)
        levers = levers_of(planning, planner, snapshot, self._policy, circumstances, prices, time_is_up)
        return overview(
            planning,
            snapshot,
            prices,
            levers.levers,
            levers_complete=levers.complete,
            now=circumstances.now,
            policy=self._policy,
            command=self._sources.plan_command,
        )

    def worth(self, node: str) -> MoveWorth:
        """Return what *node* is worth for the moves of its pods."""
        return self.planner.worths([node], self.circumstances)[node]

    def fitting_pending(self) -> list[Pod]:
        """Return the pending pods that fit by the scheduler's rules, by name; see :meth:`Planner.fitting_pending`."""
        if not self.snapshot.pods_on.get(""):
            return []
        return self.planner.fitting_pending(self.circumstances)

    def waiting(self, patience: timedelta) -> list[Pod]:
        """Return pods, pending for at most *patience*, that may need the room that a drain would use.

        Pods of schedulers whose rules are not known are left out: nothing may ever schedule them.
        """
        if not patience:
            return []
        stuck = self.planner.waiting(self.circumstances, patience)
        now, known = self._clock.now(), {pod.key for pod in stuck}
        oldest = now - min(patience, SETTLING)
        settling = (pod for pod in self.snapshot.pods_on[""].values() if _is_settling(pod, oldest))
        waiting = stuck + sorted((pod for pod in settling if pod.key not in known), key=lambda pod: pod.key)
        names = self._policy.scheduler_names
        return [pod for pod in waiting if not names or (pod.cls.spec.scheduler_name or DEFAULT_NAME) in names]


def _is_settling(pod: Pod, oldest: datetime) -> bool:
    """Return whether *pod* was created after *oldest* and the scheduler has not processed it yet."""
    waits = pod.unschedulable_since is None and pod.deletion_timestamp is None
    return waits and not pod.cls.spec.scheduling_gates and (instant(pod.creation_timestamp) or oldest) > oldest
