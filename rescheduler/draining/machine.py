"""The state machine of a drain: events and the time go in, actions come out. No I/O, no clock.

The order is that of DESIGN.md 3, and there is no other: ask the provider → intent and taint → look again →
evict → wait until every pod has left → look again → (intent → order the machine away → delete the Node) or
take the taint off. Every way out passes :class:`Release`, but three: the machine was ordered away, the node
is gone, or somebody else leads now and finds the intent.
"""

from collections.abc import Callable, Mapping
from dataclasses import replace
from datetime import datetime
from typing import Any, Final, TypeAlias

from rescheduler.draining import evicting, exits, removing
from rescheduler.draining.intent import Step
from rescheduler.draining.messages import (
    AskProvider,
    Event,
    Evict,
    EvictionAccepted,
    EvictionFailed,
    EvictionRefused,
    LookAgain,
    Looked,
    LookFailed,
    Mark,
    Marked,
    MarkFailed,
    NodeDeleted,
    NodeDeletionFailed,
    PodGone,
    ProviderAnswered,
    Released,
    ReleaseFailed,
    RemovalFailed,
    RemovalPending,
    Removed,
    Seen,
    Stop,
)
from rescheduler.draining.state import NEVER, Drain, Failure, Limits, Phase, Result, Why, victims
from rescheduler.planning.outcome import Plan, PodRef, Rejected

#: So often pods that came to the node all the same are evicted as well.
RETURNS: Final = 2


def start(plan: Plan, limits: Limits) -> Result:
    """Begin to drain the plan's node."""
    pods = tuple(one.pod.uid for one in plan.placements)
    return Drain(plan.node, limits, Phase.ASKING, intended=pods), (AskProvider(),)


def resume(node: str, limits: Limits, pods: tuple[str, ...]) -> Result:
    """Go on with a drain that somebody else began: the node carries our taint, *pods* (UIDs) may have left."""
    return Drain(node, limits, Phase.ASKING, intended=pods, marked=True), (AskProvider(),)


def resume_removal(node: str, limits: Limits, group: str, ordered_at: datetime) -> Result:
    """Go on with a removal that somebody else may have ordered."""
    drain = Drain(node, limits, Phase.ASKING, marked=True, group=group, ordered_at=ordered_at)
    return removing.order(drain)


def roll_back(node: str, limits: Limits, now: float) -> Result:
    """Take our marks off a node of which nobody knows any more what was meant."""
    return exits.release(Drain(node, limits, Phase.RELEASING, marked=True), now)


def step(drain: Drain, event: Event, now: float) -> Result:
    """What *event* at the moment *now* makes of *drain*, and what is to be done. Late answers change nothing."""
    transition = _TRANSITIONS.get((drain.phase, type(event))) or _EVERYWHERE.get(type(event))
    return (drain, ()) if transition is None or drain.done else transition(drain, event, now)


# Before the first eviction


def _provider_answered(drain: Drain, event: ProviderAnswered, now: float) -> Result:
    if event.refusal:
        why = Why.PROVIDER if event.group is None else Why.REFUSED
        return exits.give_up(drain, Failure(why, event.refusal), now)
    return replace(drain, phase=Phase.MARKING, group=event.group, marked=True), (Mark(Step.DRAINING, drain.intended),)


def _marked(drain: Drain, _: Marked, __: float) -> Result:
    return replace(drain, phase=Phase.LOOKING), (LookAgain(),)


def _mark_failed(drain: Drain, event: MarkFailed, now: float) -> Result:
    """Whether the PATCH got through may be unknown, so it is taken back even so."""
    if event.node_gone:
        return exits.node_gone(drain, event.why)
    return exits.give_up(drain, Failure(Why.API_ERROR, event.why), now)


def _looked(drain: Drain, event: Looked, now: float) -> Result:
    """The plan as it is with the taint on; later looks see pods that came all the same, and move them too."""
    if isinstance(event.verdict, Rejected):
        return exits.give_up(drain, Failure(Why.PLAN_CHANGED, _told(event.verdict)), now)
    plan = event.verdict
    found = victims(plan, drain.limits, now)
    if not found:
        return removing.emptied(drain, now)
    came = drain.deadline != NEVER
    deadline = drain.deadline if came else now + drain.limits.eviction
    if (failure := _in_vain(drain, tuple(one.pod for one in found.values()), late=now >= deadline)) is not None:
        return exits.give_up(drain, failure, now)
    drain = replace(
        drain,
        phase=Phase.EVICTING,
        victims=found,
        returns=drain.returns + came,
        deadline=deadline,
        placements=drain.placements + _new(plan, drain),
    )
    return drain, tuple(Evict(one.pod, one.grace) for one in found.values() if not one.accepted)


def _in_vain(drain: Drain, found: tuple[PodRef, ...], *, late: bool) -> Failure | None:
    """Why *found* are not evicted any more: who tolerates our taint may be put back as often as we evict it."""
    if late:
        return Failure(Why.EVICTION_TIMEOUT, f"{len(found)} pods came to the node while it was drained", found)
    if drain.returns == RETURNS:
        why = f"pods came to the node {RETURNS + 1} times while it was drained: they tolerate its taint"
        return Failure(Why.PODS_RETURN, why, found)
    return None


def _look_failed(drain: Drain, event: LookFailed, now: float) -> Result:
    if event.node_gone:
        return exits.node_gone(drain, event.why)
    return exits.give_up(drain, Failure(Why.API_ERROR, event.why), now)


def _new(plan: Plan, drain: Drain) -> tuple[Any, ...]:
    known = {one.pod.uid for one in drain.placements}
    return tuple(one for one in plan.placements if one.pod.uid not in known)


def _told(rejected: Rejected) -> str:
    blocker = rejected.blockers[0]
    more = f" (and {len(rejected.blockers) - 1} more)" if len(rejected.blockers) > 1 else ""
    about = f"pod {blocker.pod}: " if blocker.pod else ""
    return f"the plan no longer holds: {blocker.reason}: {about}{blocker.detail}{more}"


Transition: TypeAlias = Callable[[Drain, Any, float], Result]

#: All transitions. An event that has no line for its phase is a late answer and changes nothing.
_TRANSITIONS: Final[Mapping[tuple[Phase, type], Transition]] = {
    (Phase.ASKING, ProviderAnswered): _provider_answered,
    (Phase.MARKING, Marked): _marked,
    (Phase.MARKING, MarkFailed): _mark_failed,
    (Phase.LOOKING, Looked): _looked,
    (Phase.LOOKING, LookFailed): _look_failed,
    (Phase.EVICTING, EvictionAccepted): evicting.eviction_accepted,
    (Phase.EVICTING, EvictionRefused): evicting.eviction_refused,
    (Phase.EVICTING, EvictionFailed): evicting.eviction_failed,
    (Phase.EVICTING, PodGone): evicting.pod_gone,
    (Phase.EVICTING, Seen): evicting.seen,
    (Phase.ORDERING, Marked): removing.order_marked,
    (Phase.ORDERING, MarkFailed): removing.order_mark_failed,
    (Phase.REMOVING, Removed): removing.removed,
    (Phase.REMOVING, RemovalPending): removing.removal_pending,
    (Phase.REMOVING, RemovalFailed): removing.removal_failed,
    (Phase.REMOVING, Seen): removing.removal_tick,
    (Phase.DELETING, NodeDeleted): removing.node_deleted,
    (Phase.DELETING, NodeDeletionFailed): removing.node_deletion_failed,
    (Phase.DELETING, Seen): removing.removal_tick,
    (Phase.RELEASING, Released): exits.released,
    (Phase.RELEASING, ReleaseFailed): exits.release_failed,
    (Phase.RELEASING, Seen): exits.release_tick,
}
_EVERYWHERE: Final[Mapping[type, Transition]] = {Stop: exits.stop}
