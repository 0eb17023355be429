"""What all phases of a drain share: its marks, requests that are sent again, and the transitions that end it."""

from dataclasses import fields, replace
from datetime import timedelta
from typing import Any, Final

from rescheduler.draining.actions import (
    Action,
    AskSurge,
    DrainTimes,
    FollowSurge,
    LookAgain,
    Mark,
    OrderRemoval,
    Release,
    Renew,
    RevertSurge,
    Step,
    StoreDebts,
    Withdraw,
)
from rescheduler.draining.events import (
    Cause,
    Done,
    EvictionAccepted,
    EvictionFailed,
    EvictionRefused,
    EvictionRequested,
    EvictionSkipped,
    NodeGone,
    NodeSeen,
    NotDone,
    Outcome,
    PodGone,
    Preemption,
    ProviderAnswered,
    RequestsUnserved,
    RequestWithheld,
    Stop,
)
from rescheduler.draining.following import due_at
from rescheduler.draining.state import (
    NEVER,
    RENEW_INTERVAL,
    Drain,
    Failure,
    Phase,
    Request,
    Result,
    Victim,
    Why,
    with_victim,
    without,
)
from rescheduler.durations import Backoff
from rescheduler.planning.debts import paid
from rescheduler.planning.forms import and_more, shortened
from rescheduler.planning.last_look import Ground
from rescheduler.planning.outcome import Blocker

# Requests in flight, and when failed requests, including evictions, are sent again.

#: Back-off between eviction requests, unless the server sends Retry-After, and between deletions of placeholders.
BACKOFF: Final = Backoff(timedelta(seconds=1), timedelta(seconds=10))

#: For all other requests of a drain: seconds between attempts, and from the first failure to the last attempt. If the
#: API server fails for longer, the Lease is lost anyway.
REQUEST_INTERVAL: Final = 2.0
REQUEST_SECONDS: Final = 10.0


def requesting(drain: Drain, phase: Phase) -> Drain:
    """Return *drain* in *phase*, with its request in flight and not yet failed."""
    return replace(drain, phase=phase, failing_until=None, retry_at=None)


def try_later(drain: Drain, now: float) -> Drain | None:
    """Return *drain* with a retry of the phase's request scheduled, or None if it has failed for too long."""
    until = now + REQUEST_SECONDS if drain.failing_until is None else drain.failing_until
    return None if now >= until else replace(drain, failing_until=until, retry_at=now + REQUEST_INTERVAL)


def failed(drain: Drain, event: NotDone[Any], now: float) -> Result:
    """Send the phase's request again later, or give up after the time limit or a permanent error.

    Whoever gives up also removes the mark, because the PATCH may have been applied.
    """
    if event.outcome is Outcome.GONE:
        return node_gone(drain, event.why)
    if event.retryable and (later := try_later(drain, now)) is not None:
        return later, ()
    if event.outcome is Outcome.REFUSED:  # the roll-out, too, belongs to another process now
        return give_up(replace(drain, rollout=None), Failure(Why.MARK_LOST, event.why), now)
    why = Why.SURGE_FAILED if event.action in (AskSurge, FollowSurge) else Why.API_ERROR
    return give_up(drain, Failure(why, event.why), now)


def if_due(drain: Drain, now: float, *request: Action) -> Result:
    """Send the phase's *request* again when it is due."""
    return (replace(drain, retry_at=None), request) if drain.is_due(now) else (drain, ())


def again_later(drain: Drain, uid: str, why: str, retry_after: float | None, now: float) -> Drain:
    """Schedule the next eviction request for pod *uid*, after *retry_after* seconds or with exponential back-off."""
    victim = drain.victims.get(uid)
    if victim is None or victim.accepted:
        return drain
    wait = BACKOFF.seconds_after(victim.refusals + 1) if retry_after is None else retry_after
    victim = replace(victim, ask_at=now + wait, refusals=victim.refusals + 1, last_rejection=why, request=None)
    return with_victim(drain, victim)


def accept(drain: Drain, victim: Victim, leaves_by: float, now: float) -> Drain:
    """Record that the pod is being deleted because of this drain. It must be gone at *leaves_by*."""
    accepted = replace(victim, leaves_by=leaves_by, ask_at=None, last_rejection="", request=None)
    drain = replace(with_victim(drain, accepted), last_eviction_at=now)
    return replace(drain, evicted=(*drain.evicted, victim.pod))


def accept_requested(drain: Drain, event: NodeSeen, now: float) -> Drain:
    """Record the pods with an EvictionRequest that are being deleted, or gone."""
    for uid, victim in drain.victims.items():
        if victim.request is None or victim.accepted or uid in event.present - event.terminating:
            continue
        leaves_by = max(now + victim.patience + drain.limits.headroom, victim.ask_until)
        drain = accept(drain, victim, leaves_by, now)
    return drain


def sooner(drain: Drain, now: float) -> Drain:
    """Shorten the back-off of rejected evictions, because a pod has left and a budget may now allow the next one."""
    soon = now + BACKOFF.seconds_after(1)
    for victim in drain.victims.values():
        if victim.refusals and victim.ask_at is not None:
            drain = with_victim(drain, replace(victim, ask_at=min(victim.ask_at, soon), refusals=1))
    return drain


def requesting_again(drain: Drain, now: float) -> tuple[Drain, tuple[Victim, ...]]:
    """Return *drain* with a request in flight for each pod whose eviction is due, and these pods."""
    due = tuple(victim for victim in drain.victims.values() if victim.is_due(now))
    for victim in due:
        drain = with_victim(drain, replace(victim, ask_at=None))
    return drain, due


# Transitions that end a drain: its taint is removed, or nothing is left to do.

#: A failure message names at most this many pods.
_PODS_NAMED: Final = 5

#: Seconds between attempts to remove our taint.
RELEASE_INTERVAL: Final = 2.0


def give_up(drain: Drain, failure: Failure, now: float) -> Result:
    """End a drain that failed.

    If an earlier process may have requested machine termination, the provider is asked first whether the machine ends.
    If it may still end, the node keeps its mark, and a later round asks again: pods would return to a machine that
    ends. A roll-out in progress is undone first.
    """
    if drain.rollout is not None:
        return revert(replace(drain, failure=failure), now)
    if drain.ordered_at is None:
        return reopen(drain, failure, now)
    drain, withdrawals = withdraw(drain) if drain.requested else (drain, ())
    assert drain.group is not None
    asking = replace(requesting(_with_owed(_with_requested(drain)), Phase.REMOVING), doubt=failure)
    asking = replace(asking, deadline=now + drain.limits.removal)
    return asking, (*withdrawals, OrderRemoval(drain.group, drain.ordered_at, again=True, doubt=failure.detail))


def revert(drain: Drain, now: float) -> Result:
    """Undo the roll-out in progress. The drain ends after that."""
    assert drain.rollout is not None
    deadline = now + drain.limits.release
    return replace(requesting(drain, Phase.SURGE_REVERTING), deadline=deadline), (RevertSurge(drain.rollout.mark),)


def disturbed(drain: Drain, event: NodeSeen, now: float) -> Result | None:
    """Give up if a kubelet has refused a replacement pod, or one has preempted other pods; otherwise return None."""
    if event.preemption is not None:
        return _preempted(drain, event.preemption, now)
    if (refused := event.refused) is None:
        return None
    refusal = refused.refusal
    why = (
        f"replacement pod {refused.pod} of {refusal.owner}: the kubelet of {refusal.node} refused it: {refusal.reason}"
    )
    return give_up(drain, Failure(Why.KUBELET_REFUSED, why, refusal=refusal), now)


def _preempted(drain: Drain, preemption: Preemption, now: float) -> Result:
    """Give up: the drained node may be the only place for the preempted pods, which are owed like evicted ones."""
    debts = {debt.controller for debt in preemption.debts}
    drain = owing_preempted(drain, preemption)
    pods = shortened(preemption.pods, _PODS_NAMED)
    why = f"replacement pods preempted pods on other nodes, which have a lower priority: {pods}"
    return give_up(drain, Failure(Why.PREEMPTED, why, owners=tuple(sorted(drain.begun - debts))), now)


def owing_preempted(drain: Drain, preemption: Preemption | None) -> Drain:
    """Return *drain* with the debts to the controllers of preempted pods."""
    if preemption is None:
        return drain
    debts = {debt.controller: debt for debt in preemption.debts}
    owed = {**debts, **drain.debts}  # a controller whose pods were evicted is owed these already
    return replace(drain, debts=owed, begun=drain.begun | debts.keys(), paid=drain.paid - debts.keys())


def reopen(drain: Drain, failure: Failure, now: float) -> Result:
    """Remove the marks, so that the node accepts pods again."""
    drain = replace(_with_owed(_with_requested(drain)), failure=failure)
    if not drain.marked:
        return replace(drain, phase=Phase.DONE, released=True), ()
    return release(drain, now)


def _with_requested(drain: Drain) -> Drain:
    """Return *drain* without the pods whose eviction was not requested: earlier requests were dry runs."""
    return drain if drain.phase in (Phase.EVICTING, Phase.REMOVING) else replace(drain, victims={})


def _with_owed(drain: Drain) -> Drain:
    """Return *drain* with what it leaves behind as its unpaid debts.

    Debts without a loss are not owed. Debts that are paid by pods which may not stay are: later rounds count them.
    """
    ready = drain.limits.landing > 0
    owed = {
        controller
        for controller in drain.debts
        if drain.has_taken_from(controller)
        and (controller not in drain.paid or not paid(drain.shortfall(controller, staying=True), ready=ready))
    }
    return replace(drain, paid=frozenset(drain.debts.keys() - owed))


def hand_over(drain: Drain, removed_by: str, now: float) -> Result:
    """Release a node whose pods were all evicted, because another tool is removing it."""
    return release(replace(_with_owed(drain), removed_by=removed_by), now)


def plan_changed(drain: Drain, blockers: tuple[Blocker, ...], now: float) -> Result:
    """Give up because the remaining pods may no longer be moved."""
    rest = and_more(len(blockers) - 1, ")", " (")
    why = f"the plan is no longer valid: {blockers[0]}{rest}"
    return give_up(drain, Failure(Why.PLAN_CHANGED, why), now)


def release(drain: Drain, now: float) -> Result:
    """Start removing the marks, which tell the next process what is owed and which EvictionRequests there are.

    So debts are stored, and EvictionRequests withdrawn, before. If that fails, the marks are removed all the same.
    """
    deadline = now + drain.limits.release
    drain = replace(drain, phase=Phase.RELEASING, deadline=deadline, retry_at=None)
    drain, withdrawals = withdraw(drain) if drain.requested else (drain, ())
    return drain, (StoreDebts(end=True), *withdrawals, Release())


def withdraw(drain: Drain) -> Result:
    """Withdraw all EvictionRequests."""
    return replace(drain, requested=True, withdrawals=drain.withdrawals + 1, withdraw_at=None), (Withdraw(),)


def withdrawn(drain: Drain, _: Done[Withdraw], __: float) -> Result:
    """Record that no EvictionRequest is left, unless one was created since the request to withdraw them.

    In the phase RELEASING, the next observation shows which of the pods stay.
    """
    withdrawals = max(0, drain.withdrawals - 1)
    return replace(drain, requested=withdrawals > 0, withdrawals=withdrawals), ()


def withdraw_failed(drain: Drain, _: NotDone[Withdraw], now: float) -> Result:
    """Retry until the deadline. After that, the next sweep withdraws them."""
    return replace(drain, withdrawals=max(0, drain.withdrawals - 1), withdraw_at=now + RELEASE_INTERVAL), ()


def requested_late(drain: Drain, event: EvictionRequested, now: float) -> Result:
    """Withdraw an EvictionRequest that was being created when the drain failed."""
    if (victim := drain.victims.get(event.uid)) is not None and not victim.accepted:
        drain = with_victim(drain, replace(victim, request=Request(now, None)))
    return withdraw(drain)


def released(drain: Drain, _: Done[Release], __: float) -> Result:
    """Record that the marks are removed."""
    return _end_if_settled(replace(drain, released=True))


def _end_if_settled(drain: Drain) -> Result:
    """End the drain once the marks are removed and no eviction that could still succeed is in flight."""
    settled = drain.released and not drain.unanswered and not drain.requested
    return (replace(drain, phase=Phase.DONE) if settled else drain), ()


def release_failed(drain: Drain, event: NotDone[Release], now: float) -> Result:
    """Retry until the deadline. After that, the marks stay until a later round or the next leader removes them."""
    lost = event.outcome is Outcome.REFUSED
    final = lost and not drain.unanswered
    if not final and now + RELEASE_INTERVAL < drain.deadline:
        return replace(drain, retry_at=now + RELEASE_INTERVAL), ()
    failure = drain.failure or Failure(Why.MARK_LOST if lost else Why.API_ERROR, event.why)
    return replace(drain, phase=Phase.DONE, failure=failure), ()


def release_tick(drain: Drain, event: NodeSeen, now: float) -> Result:
    """Retry the release, or end the drain at the deadline."""
    drain = accept_requested(drain, event, now)
    if not drain.requested:  # the pods that have not begun to leave stay
        drain = without(drain, frozenset(uid for uid, victim in drain.victims.items() if victim.request is not None))
    if drain.withdraw_at is not None and drain.withdraw_at <= now < drain.deadline:
        return withdraw(drain)
    if drain.released:
        return (replace(drain, phase=Phase.DONE), ()) if now >= drain.deadline else _end_if_settled(drain)
    return if_due(drain, now, Release())


def mark_failed_late(drain: Drain, event: NotDone[Mark], _: float) -> Result:
    """End the drain if the node is gone, because there are no marks to remove."""
    return _end_if_settled(replace(drain, released=True)) if event.outcome is Outcome.GONE else (drain, ())


def gone_while_released(drain: Drain, _: NodeGone, now: float) -> Result:
    """End the drain once no eviction is in flight, or at the deadline. There are no marks to remove."""
    drain = replace(drain, released=True)
    return _end_if_settled(drain) if now < drain.deadline else (replace(drain, phase=Phase.DONE), ())


def accepted_late(drain: Drain, event: EvictionAccepted, now: float) -> Result:
    """Record the acceptance of an eviction that was in flight when the drain failed."""
    victim = drain.victims.get(event.uid)
    if victim is None or victim.accepted:
        return drain, ()
    return _end_if_settled(accept(drain, victim, now, now))


def answered_late(
    drain: Drain, event: EvictionRefused | EvictionFailed | EvictionSkipped | PodGone | RequestsUnserved, _: float
) -> Result:
    """Drop a pod whose eviction was in flight when the drain failed and was not accepted."""
    return _end_if_settled(without(drain, frozenset({event.uid})))


def mark_lost(drain: Drain, now: float) -> Result:
    """Give up because the mark belongs to another process."""
    why = "another client removed or replaced our taint or annotation"
    return give_up(drain, Failure(Why.MARK_LOST, why), now)


def node_gone(drain: Drain, why: str) -> Result:
    """End the drain. If all pods were already evicted, the deletion of the Node completed the drain."""
    if drain.evicted_all:
        drain = replace(_with_owed(drain), removed_by=why)
    else:
        drain = replace(drain, failure=Failure(Why.NODE_GONE, why))
    return replace(drain, phase=Phase.DONE, released=True), ()


def stop(drain: Drain, event: Stop, now: float) -> Result:
    """Roll back. This drain has not requested machine termination."""
    if is_leadership_lost(event):
        return leadership_lost(drain)
    if drain.ordered_at is not None:
        return replace(drain, phase=Phase.DONE), ()
    asking = tuple(victim.pod for victim in drain.victims.values() if not victim.accepted)
    pods = (*asking, *(victim.pod for victim in drain.waiting))
    why = Why.PAUSED if event.cause is Cause.PAUSED else Why.STOPPED
    return give_up(drain, Failure(why, event.detail or "stop requested during the drain", pods), now)


def stop_release(drain: Drain, event: Stop, _: float) -> Result:
    """Complete the release, unless another replica is the leader."""
    return leadership_lost(drain) if is_leadership_lost(event) else (drain, ())


def is_leadership_lost(event: Stop) -> bool:
    """Return whether the drain must end without any further write."""
    return event.cause is Cause.LEADERSHIP_LOST


def leadership_lost(drain: Drain) -> Result:
    """End the drain at once. The node keeps its marks."""
    lost = Failure(Why.LEADERSHIP_LOST, "another replica is the leader now: it continues or rolls back this drain")
    return replace(drain, phase=Phase.DONE, failure=lost), ()


# The marks that a drain writes to its node, and the transitions that follow their success or failure.
#
# The mark of a removal that an earlier process may have requested keeps its step, group and time, even while pods that
# were scheduled to the node since are moved: the next process must be able to detect that the machine may be
# terminating.

#: The times of a drain are stored this many seconds after they changed: if they are earlier, and if they are later.
STORE_EARLIER: Final = 2.0
STORE_LATER: Final = 10.0


def mark(drain: Drain) -> Mark:
    """Return the mark for the drain's current state."""
    if drain.ordered or drain.ordered_at is not None:
        return removing(drain)
    surge = None if drain.rollout is None else drain.rollout.mark
    debts, kind = tuple(drain.debts.values()), drain.purpose.kind
    return Mark(Step.DRAINING, drain.intended, "", drain.since, debts, times(drain), surge, kind)


def removing(drain: Drain) -> Mark:
    """Return the mark that must be on the node before machine termination is requested."""
    assert drain.group is not None
    debts, kind = tuple(drain.debts.values()), drain.purpose.kind
    return Mark(Step.REMOVING, group=drain.group, since=drain.ordered_at, debts=debts, kind=kind)


def renew(drain: Drain) -> Renew:
    """Return the action that renews the current mark."""
    written = mark(drain)
    return Renew(**{each.name: getattr(written, each.name) for each in fields(written)})


def times(drain: Drain) -> DrainTimes:
    """Return the times to store with the mark of *drain*."""
    due = min(due_at(drain), drain.due_at)
    return DrainTimes(drain.last_eviction_at, None if due == NEVER else due)


def store_within(stored: DrainTimes, drain: Drain) -> float | None:
    """Return within how many seconds the times of *drain* must be stored, which differ from *stored*; None if not."""
    current = times(drain)
    if drain.phase is not Phase.EVICTING or current == stored:
        return None
    before, due = (NEVER if each.due_at is None else each.due_at for each in (stored, current))
    return STORE_EARLIER if due < before else STORE_LATER


def provider_answered(drain: Drain, event: ProviderAnswered, now: float) -> Result:
    """Write the first mark, or give up if the provider would not remove the machine."""
    if event.refusal:
        why = Why.PROVIDER if event.group is None else Why.REFUSED
        return give_up(drain, Failure(why, event.refusal), now)
    drain = replace(drain, phase=Phase.MARKING, group=event.group, marked=True)
    return drain, (mark(drain),)


#: Why a drain fails if the fresh read right before its mark or its order objects, by the ground of the objection.
WITHHELD: Final = {
    Ground.MARK: Why.MARK_LOST,
    Ground.TAINT: Why.MARK_LOST,
    Ground.NOT_ON_DEMAND: Why.NOT_ON_DEMAND,
    Ground.KEPT: Why.PLAN_CHANGED,
    Ground.PODS: Why.LATE_PODS,
    Ground.MINIMUM: Why.BELOW_MINIMUM,
    Ground.OWED: Why.REPLACEMENT_LOST,
    Ground.DOUBT: Why.PROVIDER,
}


def mark_withheld(drain: Drain, event: RequestWithheld, now: float) -> Result:
    """Give up: the node is not as it was planned. An attempt before may have marked it."""
    return give_up(drain, Failure(WITHHELD[event.ground], event.why), now)


def marked(drain: Drain, _: Done[Mark], now: float) -> Result:
    """Plan the node again, now that it has the taint."""
    tainted_at = min(drain.tainted_at, now)
    drain = replace(requesting(drain, Phase.LOOKING), tainted_at=tainted_at, renew_at=now + RENEW_INTERVAL)
    return drain, (LookAgain(drain.targets),)


def mark_tick(drain: Drain, _: NodeSeen, now: float) -> Result:
    """Write the mark again when a retry is due."""
    return if_due(drain, now, mark(drain))


def renewal_failed(drain: Drain, event: NotDone[Mark], now: float) -> Result:
    """Keep draining after a failed renewal, which is retried, unless the mark belongs to another process."""
    if event.outcome is Outcome.GONE:
        return node_gone(drain, event.why)
    return mark_lost(drain, now) if event.outcome is Outcome.REFUSED else (drain, ())


def unmarked_node_gone(drain: Drain, event: NodeGone, _: float) -> Result:
    """End the drain, because there is nothing left to mark or to release."""
    return node_gone(drain, event.why)
