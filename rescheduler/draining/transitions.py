"""The state machine of a drain: the table of its phases, and the function from events and times to actions."""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from itertools import chain
from typing import Any, Final, TypeAlias

from rescheduler.draining import evicting, exits, preparing, removing, requests, stepping, surging
from rescheduler.draining.actions import (
    NO_TIMES,
    AskProvider,
    AskSurge,
    DeleteNode,
    DeletePlaceholder,
    DrainTimes,
    FollowSurge,
    Intent,
    LookAgain,
    Mark,
    OrderRemoval,
    PlanAgain,
    ReadControllers,
    ReadSurge,
    Release,
    RevertSurge,
    StoreDebts,
    SurgeMark,
    Withdraw,
)
from rescheduler.draining.events import (
    ControllersRead,
    Done,
    DrainEvent,
    EvictionAccepted,
    EvictionFailed,
    EvictionRefused,
    EvictionRequested,
    EvictionSkipped,
    Looked,
    NodeGone,
    NodeSeen,
    NotDone,
    PlannedAgain,
    PodGone,
    ProviderAnswered,
    Removed,
    RequestSeen,
    RequestsUnserved,
    RequestWithheld,
    Stop,
    SurgeRead,
    SurgeReverted,
    SurgeSeen,
    kind_name,
    kind_of,
)
from rescheduler.draining.state import (
    NEVER,
    RENEW_INTERVAL,
    Drain,
    Failure,
    Limits,
    Phase,
    Result,
    Rollout,
    Why,
    targets,
)
from rescheduler.planning.controllers import Controller
from rescheduler.planning.debts import Debt
from rescheduler.planning.forms import utc
from rescheduler.planning.last_look import PreemptedPod
from rescheduler.planning.outcome import TO_SPOT, Plan, Purpose

# The table of a drain's phases: the events that each phase accepts, and the phases that may follow.
#
# An event that a phase does not list is impossible and raises an error. The table relies on how requests are performed:
#
# - Requests other than evictions are performed one after another, and their responses arrive in that order.
# - :class:`LookAgain` and a read of the debts are requested only while no :class:`PlanAgain` is in flight.
# - Evictions are performed in parallel. The watched state may show that a pod has left before the response to its
# eviction arrives.
#   The drain then continues, so the response may arrive in any later phase.
#
# ``python -m tests.draining.diagram`` draws the table in docs/drain.md.

Handler: TypeAlias = Callable[[Drain, Any, float], Result]


@dataclass(frozen=True, slots=True)
class TransitionRule:
    """What an event does in a phase."""

    handler: Handler | None = None  #: None: the event is ignored
    next: frozenset[Phase] = frozenset()  #: the phases that may follow; the drain may also stay in its phase


class TransitionError(Exception):
    """An event or a phase change that the table does not contain. This is a bug."""


class UnexpectedEvent(TransitionError):
    def __init__(self, phase: Phase, event: DrainEvent) -> None:
        super().__init__(f"the phase {phase.name} does not accept the event {kind_name(kind_of(event))}: {event}")


class UnexpectedPhase(TransitionError):
    def __init__(self, phase: Phase, event: DrainEvent, after: Phase) -> None:
        super().__init__(f"{kind_name(kind_of(event))} must not change the phase {phase.name} to {after.name}")


def _rule(handler: Handler, *next_phases: Phase) -> TransitionRule:
    return TransitionRule(handler, frozenset(next_phases))


def _ignored(*events: type) -> dict[type, TransitionRule]:
    return dict.fromkeys(events, TransitionRule())


#: Responses to requests that were in flight when the watched state showed that the pod or placeholder was gone.
_LATE_PLACEHOLDERS: Final = (Done[DeletePlaceholder], NotDone[DeletePlaceholder])
_LATE_EVICTIONS: Final = (
    *(EvictionAccepted, EvictionRefused, EvictionFailed, EvictionSkipped, PodGone),
    *(EvictionRequested, RequestsUnserved, RequestSeen),
    *_LATE_PLACEHOLDERS,
)

#: EvictionRequests are withdrawn while the marks are removed or the machine is ordered away, which may be withheld.
_WITHDRAWALS: Final = {Done[Withdraw]: _rule(exits.withdrawn), NotDone[Withdraw]: _rule(exits.withdraw_failed)}

#: Responses to reads that were in flight when a drain failed.
_LATE_READS: Final = (
    Looked,
    NotDone[LookAgain],
    ControllersRead,
    NotDone[ReadControllers],
    PlannedAgain,
    NotDone[PlanAgain],
)

#: Responses to the request to store debts, when the drain was stopped or failed in the meantime, or at its end: the
#: memory itself holds all drains until it is stored.
_LATE_DEBTS: Final = (Done[StoreDebts], NotDone[StoreDebts])

#: Responses to requests about a roll-out that were in flight when the drain failed.
_LATE_ROLLOUTS: Final = (Done[AskSurge], NotDone[AskSurge], SurgeSeen, NotDone[FollowSurge])
_LATE_SURGES: Final = (SurgeRead, NotDone[ReadSurge], *_LATE_ROLLOUTS)

ASKING, MARKING, LOOKING, COUNTING = Phase.ASKING, Phase.MARKING, Phase.LOOKING, Phase.COUNTING
NOTING, TRYING, EVICTING, ORDERING = Phase.NOTING, Phase.TRYING, Phase.EVICTING, Phase.ORDERING
SURGE_READING, SURGE_NOTING = Phase.SURGE_READING, Phase.SURGE_NOTING
SURGING, SURGE_REVERTING = Phase.SURGING, Phase.SURGE_REVERTING
REMOVING, DELETING, RELEASING, DONE = Phase.REMOVING, Phase.DELETING, Phase.RELEASING, Phase.DONE


def _marked(drain: Drain, event: Done[Mark], now: float) -> Result:
    """Plan the node again, now that it has the taint; first follow the roll-out of an earlier process."""
    looking = exits.marked(drain, event, now)
    return looking if drain.rollout is None else surging.resume(looking[0], now)


_RUNNING: Final[Mapping[Phase, Mapping[type, TransitionRule]]] = {
    ASKING: {
        ProviderAnswered: _rule(exits.provider_answered, MARKING, SURGE_REVERTING, RELEASING, DONE),
        Stop: _rule(exits.stop, SURGE_REVERTING, RELEASING, DONE),
        # Only the provider's response counts: the first mark fails if the node is gone.
        **_ignored(NodeSeen, NodeGone),
    },
    MARKING: {
        Done[Mark]: _rule(_marked, LOOKING, SURGING),
        RequestWithheld: _rule(exits.mark_withheld, SURGE_REVERTING, REMOVING, RELEASING, DONE),
        NotDone[Mark]: _rule(exits.failed, SURGE_REVERTING, REMOVING, RELEASING, DONE),
        NodeSeen: _rule(exits.mark_tick),
        NodeGone: _rule(exits.unmarked_node_gone, DONE),
        Stop: _rule(exits.stop, SURGE_REVERTING, RELEASING, DONE),
        **_WITHDRAWALS,
    },
    LOOKING: {
        Looked: _rule(preparing.looked, COUNTING, EVICTING, ORDERING, REMOVING, RELEASING, DONE),
        NotDone[LookAgain]: _rule(exits.failed, REMOVING, RELEASING, DONE),
        NodeSeen: _rule(preparing.look_tick),
        Stop: _rule(exits.stop, RELEASING, DONE),
        # The read in flight fails if the node is gone, and is used only once the watch shows our mark. The mark that
        # failed is a late response to a renewal.
        **_ignored(NodeGone, NotDone[Mark]),
        # A read of the controllers may be in flight when the last debt is paid.
        **_ignored(ControllersRead, NotDone[ReadControllers]),
        **_ignored(*_LATE_EVICTIONS),
        **_WITHDRAWALS,
    },
    COUNTING: {
        ControllersRead: _rule(preparing.counted, NOTING, REMOVING, RELEASING, DONE),
        NotDone[ReadControllers]: _rule(exits.failed, REMOVING, RELEASING, DONE),
        NotDone[Mark]: _rule(exits.renewal_failed, REMOVING, RELEASING, DONE),
        NodeSeen: _rule(preparing.count_tick, REMOVING, RELEASING, DONE),
        NodeGone: _rule(exits.unmarked_node_gone, DONE),
        Stop: _rule(exits.stop, RELEASING, DONE),
        **_ignored(*_LATE_EVICTIONS),
        **_WITHDRAWALS,
    },
    NOTING: {
        Done[Mark]: _rule(preparing.noted),
        Done[StoreDebts]: _rule(preparing.stored, TRYING, EVICTING),
        NotDone[StoreDebts]: _rule(exits.failed, REMOVING, RELEASING, DONE),
        NotDone[Mark]: _rule(exits.failed, REMOVING, RELEASING, DONE),
        NodeSeen: _rule(exits.mark_tick),
        NodeGone: _rule(exits.unmarked_node_gone, DONE),
        Stop: _rule(exits.stop, RELEASING, DONE),
        **_ignored(*_LATE_EVICTIONS),
        **_WITHDRAWALS,
    },
    TRYING: {
        EvictionAccepted: _rule(preparing.try_accepted, EVICTING),
        EvictionRefused: _rule(preparing.try_refused, RELEASING),
        EvictionFailed: _rule(preparing.try_failed, EVICTING, RELEASING),
        PodGone: _rule(preparing.try_accepted, EVICTING),
        NotDone[Mark]: _rule(exits.renewal_failed, RELEASING, DONE),
        NodeSeen: _rule(preparing.try_tick, RELEASING),
        NodeGone: _rule(exits.unmarked_node_gone, DONE),
        Stop: _rule(exits.stop, RELEASING, DONE),
        # Dry runs are never skipped, so this is a late response.
        **_ignored(EvictionSkipped, *_LATE_PLACEHOLDERS),
        **_WITHDRAWALS,
    },
    EVICTING: {
        EvictionAccepted: _rule(evicting.eviction_accepted),
        EvictionRefused: _rule(evicting.eviction_refused),
        EvictionFailed: _rule(evicting.eviction_failed, REMOVING, RELEASING, DONE),
        PodGone: _rule(evicting.pod_gone),
        EvictionRequested: _rule(requests.requested),
        RequestsUnserved: _rule(requests.unserved, REMOVING, RELEASING, DONE),
        RequestSeen: _rule(requests.request_seen, REMOVING, RELEASING, DONE),
        Done[DeletePlaceholder]: _rule(stepping.deleted),
        NotDone[DeletePlaceholder]: _rule(stepping.not_deleted, REMOVING, RELEASING, DONE),
        ControllersRead: _rule(evicting.controllers_read, REMOVING, RELEASING, DONE),
        NotDone[ReadControllers]: _rule(evicting.controllers_unread, REMOVING, RELEASING, DONE),
        PlannedAgain: _rule(stepping.planned_again, SURGE_READING, REMOVING, RELEASING, DONE),
        NotDone[PlanAgain]: _rule(stepping.plan_failed, REMOVING, RELEASING, DONE),
        NotDone[Mark]: _rule(exits.renewal_failed, REMOVING, RELEASING, DONE),
        NodeSeen: _rule(evicting.seen, LOOKING, REMOVING, RELEASING, DONE),
        NodeGone: _rule(exits.unmarked_node_gone, DONE),
        EvictionSkipped: _rule(evicting.eviction_skipped),
        Stop: _rule(exits.stop, RELEASING, DONE),
        **_WITHDRAWALS,
    },
    SURGE_READING: {
        SurgeRead: _rule(surging.surge_read, SURGE_NOTING, REMOVING, RELEASING, DONE),
        NotDone[ReadSurge]: _rule(exits.failed, REMOVING, RELEASING, DONE),
        NotDone[Mark]: _rule(exits.renewal_failed, REMOVING, RELEASING, DONE),
        NodeSeen: _rule(surging.read_tick, REMOVING, RELEASING, DONE),
        NodeGone: _rule(exits.unmarked_node_gone, DONE),
        Stop: _rule(exits.stop, RELEASING, DONE),
        ControllersRead: _rule(evicting.controllers_read, REMOVING, RELEASING, DONE),
        NotDone[ReadControllers]: _rule(evicting.controllers_unread, REMOVING, RELEASING, DONE),
        **_ignored(*_LATE_EVICTIONS),
        **_WITHDRAWALS,
    },
    SURGE_NOTING: {
        Done[Mark]: _rule(surging.noted, SURGING),
        NotDone[Mark]: _rule(exits.failed, SURGE_REVERTING, REMOVING, RELEASING, DONE),
        NodeSeen: _rule(exits.mark_tick),
        NodeGone: _rule(exits.unmarked_node_gone, DONE),
        Stop: _rule(exits.stop, SURGE_REVERTING, RELEASING, DONE),
        ControllersRead: _rule(evicting.controllers_read, SURGE_REVERTING),
        NotDone[ReadControllers]: _rule(evicting.controllers_unread, SURGE_REVERTING),
        **_ignored(*_LATE_EVICTIONS),
        **_WITHDRAWALS,
    },
    SURGING: {
        Done[AskSurge]: _rule(surging.asked),
        NotDone[AskSurge]: _rule(exits.failed, SURGE_REVERTING),
        NotDone[FollowSurge]: _rule(exits.failed, SURGE_REVERTING),
        SurgeSeen: _rule(surging.seen, LOOKING, SURGE_REVERTING, REMOVING, RELEASING, DONE),
        NotDone[Mark]: _rule(surging.renewal_failed, REMOVING, RELEASING, DONE),
        NodeSeen: _rule(surging.tick, EVICTING, LOOKING, SURGE_REVERTING),
        # The roll-out goes on without the node.
        NodeGone: _rule(surging.gone, EVICTING, LOOKING, SURGE_REVERTING, DONE),
        Stop: _rule(exits.stop, SURGE_REVERTING, DONE),
        ControllersRead: _rule(evicting.controllers_read, SURGE_REVERTING),
        NotDone[ReadControllers]: _rule(evicting.controllers_unread, SURGE_REVERTING),
        **_ignored(*_LATE_EVICTIONS),
        **_WITHDRAWALS,
    },
    SURGE_REVERTING: {
        SurgeReverted: _rule(surging.reverted, REMOVING, RELEASING, DONE),
        NotDone[RevertSurge]: _rule(surging.not_reverted, REMOVING, RELEASING, DONE),
        NodeSeen: _rule(surging.revert_tick),
        NodeGone: _rule(surging.revert_tick),
        Stop: _rule(exits.stop_release, DONE),
        **_ignored(NotDone[Mark], Done[Mark], ProviderAnswered, *_LATE_ROLLOUTS, *_LATE_READS),
        **_ignored(*_LATE_EVICTIONS),
        **_WITHDRAWALS,
    },
    ORDERING: {
        Done[Mark]: _rule(removing.order_marked, REMOVING),
        NotDone[Mark]: _rule(exits.failed, REMOVING, RELEASING, DONE),
        NodeSeen: _rule(removing.order_tick),
        NodeGone: _rule(exits.unmarked_node_gone, DONE),
        Stop: _rule(exits.stop, RELEASING, DONE),
        **_ignored(*_LATE_EVICTIONS, *_LATE_DEBTS),
        **_WITHDRAWALS,
    },
    REMOVING: {
        Removed: _rule(removing.removed, DELETING),
        NotDone[OrderRemoval]: _rule(removing.not_removed, RELEASING, DONE),
        RequestWithheld: _rule(removing.withheld, MARKING, RELEASING, DONE),
        NotDone[Mark]: _rule(removing.renewal_failed, DONE),
        NodeSeen: _rule(removing.removal_tick, DONE),
        NodeGone: _rule(removing.node_gone, DONE),
        Stop: _rule(removing.stop, DONE),
        # Evictions are in flight only if the drain failed.
        EvictionAccepted: _rule(exits.accepted_late),
        EvictionRefused: _rule(exits.answered_late),
        EvictionFailed: _rule(exits.answered_late),
        EvictionSkipped: _rule(exits.answered_late),
        PodGone: _rule(exits.answered_late),
        RequestsUnserved: _rule(exits.answered_late),
        EvictionRequested: _rule(exits.requested_late),
        **_ignored(RequestSeen, *_LATE_PLACEHOLDERS, *_LATE_READS, *_LATE_DEBTS),
        **_WITHDRAWALS,
    },
    DELETING: {
        Done[DeleteNode]: _rule(removing.node_deleted, DONE),
        NotDone[DeleteNode]: _rule(removing.node_deletion_failed),
        NotDone[Mark]: _rule(removing.deletion_renewal_failed, DONE),
        NodeSeen: _rule(removing.deletion_tick, DONE),
        NodeGone: _rule(removing.gone_while_deleted, DONE),
        Stop: _rule(removing.stop, DONE),
        **_ignored(*_LATE_EVICTIONS, *_LATE_READS),
        **_WITHDRAWALS,
    },
    RELEASING: {
        Done[Release]: _rule(exits.released, DONE),
        NotDone[Release]: _rule(exits.release_failed, DONE),
        EvictionAccepted: _rule(exits.accepted_late, DONE),
        EvictionRefused: _rule(exits.answered_late, DONE),
        EvictionFailed: _rule(exits.answered_late, DONE),
        EvictionSkipped: _rule(exits.answered_late, DONE),
        PodGone: _rule(exits.answered_late, DONE),
        RequestsUnserved: _rule(exits.answered_late, DONE),
        EvictionRequested: _rule(exits.requested_late),
        NotDone[Mark]: _rule(exits.mark_failed_late, DONE),
        NodeSeen: _rule(exits.release_tick, DONE),
        NodeGone: _rule(exits.gone_while_released, DONE),
        Stop: _rule(exits.stop_release, DONE),
        # Any request may have been in flight when the drain failed or was stopped.
        **_ignored(ProviderAnswered, Done[Mark], RequestWithheld, *_LATE_DEBTS, *_LATE_READS, *_LATE_SURGES),
        **_ignored(RequestSeen, *_LATE_PLACEHOLDERS),
        **_WITHDRAWALS,
    },
}

#: The rules of each phase by event. A drain may end while requests are in flight, for example when this replica is no
#: longer the leader.
TABLE: Final = {**_RUNNING, DONE: _ignored(*chain.from_iterable(_RUNNING.values()))}

#: The functions that start or continue a drain, each with the first phase.
STARTS: Final[Mapping[str, Phase]] = {
    "start": ASKING,
    "resume": ASKING,
    "resume_removal": MARKING,
    "await_end": REMOVING,
    "roll_back": RELEASING,
    "undo": SURGE_REVERTING,
}

#: Phases that may last long, so the mark is renewed. In all others it is about to be written or removed anyway.
RENEWED: Final = frozenset({TRYING, EVICTING, SURGING, REMOVING, DELETING})

#: Phases in which evictions are sent. In all others, evictions that are not sent yet are skipped.
EVICTIONS_SENT: Final = frozenset({TRYING, EVICTING})


def rule_for(phase: Phase, event: DrainEvent) -> TransitionRule:
    """Return the rule for *event* in *phase*. Raises UnexpectedEvent if there is none."""
    rule = TABLE[phase].get(kind_of(event))
    if rule is None:
        raise UnexpectedEvent(phase, event)
    return rule


def check_change(phase: Phase, event: DrainEvent, after: Phase) -> None:
    """Raise UnexpectedPhase if the table does not allow *event* to change *phase* to *after*."""
    if after is not phase and after not in TABLE[phase][kind_of(event)].next:
        raise UnexpectedPhase(phase, event, after)


# The state machine of a drain: events and times in, actions out. No I/O, no clock.
#
# The order is fixed (docs/drain.md): ask the provider → write taint and annotation → read the cluster consistently and
# plan again → count and record the future debts → try all evictions in a dry run → evict in steps and track the
# replacement pods → all owed pods run → plan again → request machine termination and delete the Node, or remove the
# taint. Every exit performs :class:`Release`, with three exceptions: machine termination was requested, or may have
# been by an earlier process; the node is gone; or the annotation now belongs to another process, which continues or
# rolls back.
#
# Another tool may start to remove the node during a drain. Then no more pods are evicted. If all pods were already
# evicted, the drain is handed over: it did not fail, and pods that are still owed are tracked after it.
#
# :mod:`~rescheduler.draining.transitions` contains the table of phases, events and next phases.

#: How long a drain may prepare its first eviction, in seconds: each of its requests is retried for a few seconds only.
PREPARATION: Final = 60.0


def start(plan: Plan, limits: Limits) -> Result:
    """Start draining the node of *plan*. One that stays, and only makes room, is not asked for at the provider."""
    pods = tuple(placement.pod.uid for placement in plan.placements)
    drain = Drain(plan.node, limits, Phase.ASKING, intended=pods, targets=targets(plan), purpose=plan.purpose)
    if plan.empties:
        return drain, (AskProvider(),)
    drain = replace(drain, phase=Phase.MARKING, marked=True)
    return drain, (exits.mark(drain),)


def resume(
    node: str,
    limits: Limits,
    pods: tuple[str, ...],
    debts: tuple[Debt, ...] = (),
    since: datetime | None = None,
    times: DrainTimes = NO_TIMES,
    tainted_at: float = NEVER,
    surge: SurgeMark | None = None,
    preempted: tuple[PreemptedPod, ...] = (),
    purpose: Purpose = TO_SPOT,
) -> Result:
    """Continue a drain that another process started at *since*. Its *times* go on.

    The node has had our taint since *tainted_at*, and *pods* (UIDs) may have left. *surge* may be in progress.
    *preempted* are the pods that were preempted until now, by any pod.
    """
    drain = _of_another_process(node, limits, Phase.ASKING, debts, resumed=True, intended=pods, since=since)
    due_at = NEVER if times.due_at is None else times.due_at
    drain = replace(drain, last_eviction_at=times.evicted_at, due_at=due_at, tainted_at=tainted_at, preempted=preempted)
    drain = replace(drain, purpose=purpose)
    return replace(drain, rollout=None if surge is None else Rollout(surge)), (AskProvider(),)


def resume_removal(
    node: str,
    limits: Limits,
    group: str,
    ordered_at: datetime,
    debts: tuple[Debt, ...] = (),
    *,
    absent: bool = False,
    tainted_at: float = NEVER,
    preempted: tuple[PreemptedPod, ...] = (),
    purpose: Purpose = TO_SPOT,
) -> Result:
    """Continue a removal that an earlier process or round may have requested.

    The node is planned again first, so that all rules apply to pods that were scheduled to it since. *debts* are the
    debts that earlier attempts recorded on the node. *absent*: the machine was unknown to the provider at the last
    request. The node has had our taint since *tainted_at*. *preempted* are the pods that were preempted until now, by
    any pod: a moved pod may have been lost since, and its next replacement may have preempted others.
    """
    drain = _of_another_process(node, limits, Phase.MARKING, debts, resumed=True, since=ordered_at, preempted=preempted)
    drain = replace(drain, group=group, ordered_at=ordered_at, absent=absent, tainted_at=tainted_at, purpose=purpose)
    return drain, (exits.mark(drain),)


def overdue(written: Intent, limits: Limits, now: datetime) -> str:
    """Return why the drain that *written* describes should have ended by *now*, or ""."""
    if written.due is not None and written.due <= now:
        return f"the pods that it had evicted had to run by {utc(written.due)}"
    if written.evicted is None:
        began, seconds = written.since, limits.eviction + PREPARATION
        what = "started"
    else:
        began, seconds = written.evicted, limits.eviction + limits.grace + limits.headroom + limits.landing
        what = "evicted its last pod"
    if now < began + timedelta(seconds=seconds):
        return ""
    return f"it {what} at {utc(began)}, more than {seconds:g} s ago"


def reopen_overdue(node: str, limits: Limits, debts: tuple[Debt, ...], why: str) -> Drain:
    """Return the end of an interrupted drain that is overdue: its marks must be removed."""
    failure = Failure(Why.OVERDUE, f"an interrupted drain was not finished in time: {why}")
    drain = Drain(node, limits, Phase.RELEASING, marked=True, resumed=True, debts=_by_controller(debts))
    return replace(drain, failure=failure)


def await_end(drain: Drain, limits: Limits, now: float) -> Result:
    """Continue the handed-over *drain* with *limits*: check whether the terminated machine is gone.

    The request follows the first look at the watched state: pods may have been preempted since the drain was handed
    over, and the first request may not have been sent.
    """
    begun = replace(drain, limits=limits, phase=Phase.REMOVING, retry_at=now, deadline=now + limits.removal)
    return replace(begun, renew_at=now + RENEW_INTERVAL), ()


def roll_back(node: str, limits: Limits, debts: tuple[Debt, ...], now: float) -> Result:
    """Remove our marks from a node whose intent is unknown. *debts* are the debts recorded on the node."""
    return exits.release(_of_another_process(node, limits, Phase.RELEASING, debts, rolled_back=True), now)


def undo(node: str, limits: Limits, debts: tuple[Debt, ...], surge: SurgeMark, now: float) -> Result:
    """Undo the roll-out *surge*, which may be in progress, and remove our marks."""
    drain = _of_another_process(node, limits, Phase.RELEASING, debts, rolled_back=True, rollout=Rollout(surge))
    return exits.revert(drain, now)


def _of_another_process(node: str, limits: Limits, phase: Phase, debts: tuple[Debt, ...], **fields: Any) -> Drain:
    """Return a drain that another process began, and for which it may have asked with EvictionRequests."""
    return Drain(node, limits, phase, marked=True, requested=limits.requests, debts=_by_controller(debts), **fields)


def step(drain: Drain, event: DrainEvent, now: float) -> Result:
    """Return the drain after *event* at time *now*, and the actions to perform.

    Raises UnexpectedEvent if the table does not list the event for the current phase, and UnexpectedPhase if it does
    not list the phase that follows.
    """
    rule = rule_for(drain.phase, event)
    if rule.handler is None:
        return drain, ()
    after, actions = rule.handler(drain, event, now)
    check_change(drain.phase, event, after.phase)
    if now < after.renew_at or after.phase not in RENEWED:
        return after, actions
    return replace(after, renew_at=now + RENEW_INTERVAL), (*actions, exits.renew(after))


def is_stopped_by_pause(drain: Drain) -> bool:
    """Return whether a pause by a user stops the drain.

    A removal that was requested before the pause continues, unless pods were scheduled to the node since then and are
    evicted.
    """
    evicts = drain.phase in EVICTIONS_SENT and bool(drain.waiting or drain.victims)
    return drain.ordered_at is None or evicts


def _by_controller(debts: Iterable[Debt]) -> dict[Controller, Debt]:
    return {debt.controller: debt for debt in debts}
