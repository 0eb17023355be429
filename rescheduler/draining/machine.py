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

from rescheduler.draining.intent import Step
from rescheduler.draining.messages import (
    Action,
    AskProvider,
    Cause,
    DeleteNode,
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
    OrderRemoval,
    PodGone,
    ProviderAnswered,
    Release,
    Released,
    ReleaseFailed,
    RemovalFailed,
    RemovalPending,
    Removed,
    Seen,
    Stop,
)
from rescheduler.draining.state import NEVER, Drain, Failure, Limits, Phase, Victim, Why, victims, without
from rescheduler.planning.outcome import Plan, Rejected

Result: TypeAlias = tuple[Drain, tuple[Action, ...]]

#: Seconds until a refused eviction is asked for again: doubling, where the server names no time.
FIRST_RETRY: Final = 1.0
LONGEST_RETRY: Final = 10.0

#: Seconds between two looks at a machine that was ordered away, and between two tries to get our taint off.
REMOVAL_INTERVAL: Final = 10.0
RELEASE_INTERVAL: Final = 2.0

_PODS_NAMED: Final = 5


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
    return _order(drain)


def roll_back(node: str, limits: Limits, now: float) -> Result:
    """Take our marks off a node of which nobody knows any more what was meant."""
    return _release(Drain(node, limits, Phase.RELEASING, marked=True), now)


def step(drain: Drain, event: Event, now: float) -> Result:
    """What *event* at the moment *now* makes of *drain*, and what is to be done. Late answers change nothing."""
    handler = _HANDLERS.get((drain.phase, type(event))) or _EVERYWHERE.get(type(event))
    return (drain, ()) if handler is None or drain.done else handler(drain, event, now)


# Before the first eviction


def _provider_answered(drain: Drain, event: ProviderAnswered, now: float) -> Result:
    if event.refusal:
        return _give_up(drain, Failure(Why.PROVIDER, event.refusal), now)
    return replace(drain, phase=Phase.MARKING, group=event.group, marked=True), (Mark(Step.DRAINING, drain.intended),)


def _marked(drain: Drain, _: Marked, __: float) -> Result:
    return replace(drain, phase=Phase.LOOKING), (LookAgain(),)


def _mark_failed(drain: Drain, event: MarkFailed, now: float) -> Result:
    """Whether the PATCH got through may be unknown, so it is taken back even so."""
    if event.node_gone:
        return _node_gone(drain, event.why)
    return _give_up(drain, Failure(Why.API_ERROR, event.why), now)


def _looked(drain: Drain, event: Looked, now: float) -> Result:
    """The plan as it is with the taint on; later looks see pods that came all the same, and move them too."""
    if isinstance(event.verdict, Rejected):
        return _give_up(drain, Failure(Why.PLAN_CHANGED, _told(event.verdict)), now)
    plan = event.verdict
    found = victims(plan, drain.limits, now)
    if not found:
        return _emptied(drain, now)
    deadline = now + drain.limits.eviction if drain.deadline == NEVER else drain.deadline
    if now >= deadline:
        why = f"{len(found)} pods came to the node while it was drained"
        return _give_up(drain, Failure(Why.EVICTION_TIMEOUT, why, tuple(one.pod for one in found.values())), now)
    drain = replace(
        drain,
        phase=Phase.EVICTING,
        victims=found,
        deadline=deadline,
        placements=drain.placements + _new(plan, drain),
    )
    return drain, tuple(Evict(one.pod, one.grace) for one in found.values() if not one.accepted)


def _look_failed(drain: Drain, event: LookFailed, now: float) -> Result:
    if event.node_gone:
        return _node_gone(drain, event.why)
    return _give_up(drain, Failure(Why.API_ERROR, event.why), now)


def _new(plan: Plan, drain: Drain) -> tuple[Any, ...]:
    known = {one.pod.uid for one in drain.placements}
    return tuple(one for one in plan.placements if one.pod.uid not in known)


def _told(rejected: Rejected) -> str:
    blocker = rejected.blockers[0]
    more = f" (and {len(rejected.blockers) - 1} more)" if len(rejected.blockers) > 1 else ""
    about = f"pod {blocker.pod}: " if blocker.pod else ""
    return f"the plan no longer holds: {blocker.reason}: {about}{blocker.detail}{more}"


# Evictions


def _eviction_accepted(drain: Drain, event: EvictionAccepted, now: float) -> Result:
    if (victim := drain.victims.get(event.uid)) is None or victim.accepted:
        return drain, ()
    accepted = replace(victim, leaves_by=now + victim.patience + drain.limits.headroom, said="")
    return replace(_with(drain, accepted), evicted=(*drain.evicted, victim.pod)), ()


def _eviction_refused(drain: Drain, event: EvictionRefused, now: float) -> Result:
    return _again_later(drain, event.uid, event.why, event.retry_after, now), ()


def _eviction_failed(drain: Drain, event: EvictionFailed, now: float) -> Result:
    if (victim := drain.victims.get(event.uid)) is None:
        return drain, ()
    if not event.retryable:
        return _give_up(drain, Failure(Why.EVICTION_FAILED, event.why, (victim.pod,)), now)
    return _again_later(drain, event.uid, event.why, event.retry_after, now), ()


def _pod_gone(drain: Drain, event: PodGone, _: float) -> Result:
    return _waiting(without(drain, frozenset([event.uid])))


def _seen(drain: Drain, event: Seen, now: float) -> Result:
    gone = drain.victims.keys() - event.present
    if gone:
        drain = _hurried(without(drain, frozenset(gone)), now)
    if (failure := _overdue(drain, now)) is not None:
        return _give_up(drain, failure, now)
    due = [victim for victim in drain.victims.values() if victim.ask_at <= now]
    for victim in due:
        drain = _with(drain, replace(victim, ask_at=NEVER))
    drain, actions = _waiting(drain)
    return drain, actions + tuple(Evict(victim.pod, victim.grace) for victim in due)


def _waiting(drain: Drain) -> Result:
    if drain.victims:
        return drain, ()
    return replace(drain, phase=Phase.LOOKING), (LookAgain(),)


def _again_later(drain: Drain, uid: str, why: str, retry_after: float | None, now: float) -> Drain:
    if (victim := drain.victims.get(uid)) is None or victim.accepted:
        return drain
    grown = min(FIRST_RETRY * 2.0 ** min(victim.refusals, 10), LONGEST_RETRY)
    wait = grown if retry_after is None else retry_after
    return _with(drain, replace(victim, ask_at=now + wait, refusals=victim.refusals + 1, said=why))


def _hurried(drain: Drain, now: float) -> Drain:
    """A pod has left, so a budget may allow the next one: those refused need not wait out their back-off."""
    for victim in drain.victims.values():
        if victim.refusals:
            soon = min(victim.ask_at, now + FIRST_RETRY)
            drain = _with(drain, replace(victim, ask_at=soon, refusals=1))
    return drain


def _overdue(drain: Drain, now: float) -> Failure | None:
    stuck = [one for one in drain.victims.values() if one.leaves_by is not None and one.leaves_by <= now]
    if stuck:
        why = f"{_pods(stuck)} did not end within the grace period and {drain.limits.headroom:g} s"
        return Failure(Why.TERMINATION_TIMEOUT, why, tuple(one.pod for one in stuck))
    refused = [one for one in drain.victims.values() if not one.accepted]
    if refused and now >= drain.deadline:
        said = next((f": {one.said}" for one in refused if one.said), "")
        why = f"{_pods(refused)} could not be evicted within {drain.limits.eviction:g} s{said}"
        return Failure(Why.EVICTION_TIMEOUT, why, tuple(one.pod for one in refused))
    return None


def _pods(found: list[Victim]) -> str:
    names = ", ".join(str(one.pod) for one in found[:_PODS_NAMED])
    more = f" and {len(found) - _PODS_NAMED} more" if len(found) > _PODS_NAMED else ""
    return f"pod{'s' if len(found) > 1 else ''} {names}{more}"


def _with(drain: Drain, victim: Victim) -> Drain:
    return replace(drain, victims={**drain.victims, victim.pod.uid: victim})


# The emptied node


def _emptied(drain: Drain, now: float) -> Result:
    if drain.group is None:
        return _release(drain, now)
    return _order(drain)


def _order(drain: Drain) -> Result:
    assert drain.group is not None
    mark = Mark(Step.REMOVING, group=drain.group, since=drain.ordered_at)
    return replace(drain, phase=Phase.ORDERING, deadline=NEVER), (mark,)


def _order_marked(drain: Drain, _: Marked, now: float) -> Result:
    drain = replace(drain, phase=Phase.REMOVING, ordered=True, deadline=now + drain.limits.removal)
    return drain, _removal(drain)


def _removal(drain: Drain) -> tuple[Action, ...]:
    assert drain.group is not None
    return (OrderRemoval(drain.group, drain.ordered_at),)


def _order_mark_failed(drain: Drain, event: MarkFailed, now: float) -> Result:
    if event.node_gone:
        return _node_gone(drain, event.why)
    if drain.ordered_at is not None:  # an earlier order may be at work: the node is not ours to free
        return replace(drain, phase=Phase.DONE), ()
    return _give_up(drain, Failure(Why.API_ERROR, event.why), now)


def _removed(drain: Drain, _: Removed, __: float) -> Result:
    return replace(drain, phase=Phase.DELETING, retry_at=NEVER), (DeleteNode(),)


def _removal_pending(drain: Drain, _: RemovalPending, now: float) -> Result:
    return replace(drain, retry_at=now + REMOVAL_INTERVAL), ()


def _removal_failed(drain: Drain, event: RemovalFailed, now: float) -> Result:
    return _give_up(drain, Failure(Why.PROVIDER, event.why), now)


def _node_deletion_failed(drain: Drain, _: NodeDeletionFailed, now: float) -> Result:
    return replace(drain, retry_at=now + REMOVAL_INTERVAL), ()


def _removal_tick(drain: Drain, _: Seen, now: float) -> Result:
    """Ask again; past the deadline the order is left at work, with the intent on the node for a later look."""
    if drain.retry_at == NEVER:  # an answer is on its way
        return drain, ()
    if now >= drain.deadline:
        return replace(drain, phase=Phase.DONE), ()
    if now < drain.retry_at:
        return drain, ()
    again = _removal(drain) if drain.phase is Phase.REMOVING else (DeleteNode(),)
    return replace(drain, retry_at=NEVER), again


def _node_deleted(drain: Drain, _: NodeDeleted, __: float) -> Result:
    return replace(drain, phase=Phase.DONE, released=True), ()


# Ways out


def _give_up(drain: Drain, failure: Failure, now: float) -> Result:
    drain = replace(drain, failure=failure)
    if not drain.marked:
        return replace(drain, phase=Phase.DONE, released=True), ()
    return _release(drain, now)


def _release(drain: Drain, now: float) -> Result:
    deadline = now + drain.limits.release
    return replace(drain, phase=Phase.RELEASING, deadline=deadline, retry_at=NEVER), (Release(),)


def _released(drain: Drain, _: Released, __: float) -> Result:
    return replace(drain, phase=Phase.DONE, released=True), ()


def _release_failed(drain: Drain, event: ReleaseFailed, now: float) -> Result:
    """Past the deadline the marks stay: they are swept in a later round, or by whoever leads next."""
    if now + RELEASE_INTERVAL < drain.deadline:
        return replace(drain, retry_at=now + RELEASE_INTERVAL), ()
    failure = drain.failure or Failure(Why.API_ERROR, event.why)
    return replace(drain, phase=Phase.DONE, failure=failure), ()


def _release_tick(drain: Drain, _: Seen, now: float) -> Result:
    if now < drain.retry_at:
        return drain, ()
    return replace(drain, retry_at=NEVER), (Release(),)


def _node_gone(drain: Drain, why: str) -> Result:
    failure = Failure(Why.NODE_GONE, why)
    return replace(drain, phase=Phase.DONE, failure=failure, released=True), ()


def _stop(drain: Drain, event: Stop, now: float) -> Result:
    if event.cause is Cause.LEADERSHIP_LOST:
        lost = Failure(Why.LEADERSHIP_LOST, "another replica leads now: it goes on from here, or rolls back")
        return replace(drain, phase=Phase.DONE, failure=lost), ()
    if drain.phase is Phase.RELEASING:
        return drain, ()
    if drain.ordered or drain.ordered_at is not None:
        return replace(drain, phase=Phase.DONE), ()
    left = tuple(one.pod for one in drain.victims.values())
    return _give_up(drain, Failure(Why.STOPPED, "told to stop in the middle of the drain", left), now)


Handler: TypeAlias = Callable[[Drain, Any, float], Result]

#: All transitions. An event that has no line for its phase is a late answer and changes nothing.
_HANDLERS: Final[Mapping[tuple[Phase, type], Handler]] = {
    (Phase.ASKING, ProviderAnswered): _provider_answered,
    (Phase.MARKING, Marked): _marked,
    (Phase.MARKING, MarkFailed): _mark_failed,
    (Phase.LOOKING, Looked): _looked,
    (Phase.LOOKING, LookFailed): _look_failed,
    (Phase.EVICTING, EvictionAccepted): _eviction_accepted,
    (Phase.EVICTING, EvictionRefused): _eviction_refused,
    (Phase.EVICTING, EvictionFailed): _eviction_failed,
    (Phase.EVICTING, PodGone): _pod_gone,
    (Phase.EVICTING, Seen): _seen,
    (Phase.ORDERING, Marked): _order_marked,
    (Phase.ORDERING, MarkFailed): _order_mark_failed,
    (Phase.REMOVING, Removed): _removed,
    (Phase.REMOVING, RemovalPending): _removal_pending,
    (Phase.REMOVING, RemovalFailed): _removal_failed,
    (Phase.REMOVING, Seen): _removal_tick,
    (Phase.DELETING, NodeDeleted): _node_deleted,
    (Phase.DELETING, NodeDeletionFailed): _node_deletion_failed,
    (Phase.DELETING, Seen): _removal_tick,
    (Phase.RELEASING, Released): _released,
    (Phase.RELEASING, ReleaseFailed): _release_failed,
    (Phase.RELEASING, Seen): _release_tick,
}
_EVERYWHERE: Final[Mapping[type, Handler]] = {Stop: _stop}
