"""Debts: a drain owes the controllers of the pods that it evicts as many running pods as before.

A debt is the total number of a controller's pods, of any pod template. Individual replacements are not tracked: it is
not possible to tell which pod replaces which, and an autoscaler or a roll-out may act at the same time. Pods that the
drain evicted never count.

A debt that is paid is kept while its drain lives, because the pods may be lost again. A change of the controller
converts the debt, and ends it only when no pod is wanted any more (:func:`converted`):

=========================  ====================  ===================================================================
change                     kind of controller    what is owed
=========================  ====================  ===================================================================
scaled                     any                   at most the desired number of pods
new template, rolling out  Deployment,           Ready: what the roll-out leaves available, or all pods if it may
                           StatefulSet           leave none; bound: as before
new template, paused,      Deployment,           as before: the controller does not roll out by itself
OnDelete, or below the     StatefulSet
partition
new template               others                as before: the controller does not roll out
suspended, finished        Job                   nothing while it wants no pods
being deleted, orphans     any                   as before, at most the desired number
being deleted otherwise    any                   nothing: its pods are deleted as well
deleted, pods orphaned     Deployment            what its orphaned ReplicaSets want
deleted, pods adopted      Deployment            what the controller that adopted its ReplicaSets wants
deleted                    any                   nothing, unless it is created again. As before, while a controller
                                                 above it exists, which may create it again
created again              any                   what the new controller of the same name wants
cannot be read             others                as before
=========================  ====================  ===================================================================

The ledger contains what drains owe after their end, with the node that the pods left (:class:`OpenDebt`). Drains add to
it, and only evidence takes a debt out of it. If the node is still there when a debt is paid, the debt is settled: it
keeps the node when its pods do not run any more, or may not stay.
"""

from collections import defaultdict
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Final, TypeAlias

import msgspec

from predicates.objects import Node, Pod
from rescheduler.planning.controllers import Controller, ControllerState
from rescheduler.planning.forms import instant
from rescheduler.planning.waits import Moment

#: A pod counts as running for good after it has been Ready for this time without a restart, or for the
#: `minReadySeconds` of its controller if they are longer. A container that ends again and again is Ready in between.
STAYING: Final = timedelta(seconds=10)

#: The times of conditions have whole seconds, so a pod may have become Ready almost a second later than it says.
_ROUNDED_OFF: Final = timedelta(seconds=1)

#: Returns for how long a pod has been Ready without a restart; None if that is not known.
ReadyFor: TypeAlias = Callable[[Pod], timedelta | None]

#: Returns when this process saw a pod become Ready, in monotonic seconds; None if it has always been Ready here.
BecameReady: TypeAlias = Callable[[Pod], float | None]


class Debt(msgspec.Struct, frozen=True):
    """The numbers of pods that one controller must have again before its debt is paid."""

    controller: Controller
    ready: int  #: number of Ready pods that it must have again
    bound: int  #: number of pods bound to a node that it must have again, including the Ready ones
    template: str = ""  #: digest of its pod template when the node was marked
    succeeded: int = 0  #: number of its pods that had succeeded by then
    owner_uids: tuple[str, ...] = ()  #: UIDs that its pods named as their controller by then
    above: tuple[Controller, ...] = ()  #: the controllers above it by then: one of them may create it again


@dataclass(frozen=True, slots=True)
class Replicas:
    """The pods of one controller at one moment, not counting terminating, finished and evicted pods."""

    live: int = 0
    bound: int = 0
    ready: int = 0
    unschedulable: tuple[str, ...] = ()  #: pods (``namespace/name``) that the scheduler cannot place
    unready: tuple[str, ...] = ()  #: UIDs of pods that are not Ready
    returned: int = 0  #: replacement pods that were bound to the drained node: they count as created, not as bound
    unavailable: int = 0  #: Ready pods that have not been Ready for the `minReadySeconds` of their controller
    #: Ready pods that may not stay: they have not been Ready for STAYING, or their node is about to go.
    unsettled: int = 0
    at_risk: str = (
        ""  #: the first of them that has no other place if its node goes, and why its node may go; "" if none
    )


@dataclass(frozen=True, slots=True)
class Shortfall:
    """The numbers of pods that a controller still lacks. Zero or less means none."""

    created: int
    bound: int
    ready: int


def incur(state: ControllerState, replicas: Replicas) -> Debt:
    """Return the debt of a drain that begins now. For a pod that is not Ready now, a bound replacement is enough."""
    wanted = replicas.live if state.wanted is None else state.wanted
    return Debt(
        controller=state.controller,
        ready=min(wanted, replicas.ready),
        bound=min(wanted, replicas.bound),
        template=state.template,
        succeeded=state.succeeded,
        owner_uids=tuple(sorted(state.owner_uids)),
        above=state.above,
    )


def incur_at_eviction(state: ControllerState, replicas: Replicas) -> Debt:
    """Return the debt for pods that are evicted now.

    The controller may have been scaled up since *state* was read, so all its pods count. If its desired number is
    smaller, less is owed (:func:`shortfall`).
    """
    return msgspec.structs.replace(incur(state, replicas), ready=replicas.ready, bound=replicas.bound)


def raised(debt: Debt, least: Debt) -> Debt:
    """Return *debt*, raised where necessary to the numbers of pods in *least*."""
    return msgspec.structs.replace(debt, ready=max(debt.ready, least.ready), bound=max(debt.bound, least.bound))


def converted(debt: Debt, state: ControllerState, *, full: bool = False) -> Debt:
    """Return what is owed after the changes of the controller that *state* shows.

    The table at the top of this module lists them. A change never ends a debt: if it is reverted, the same number of
    pods is owed again. With *full*, what a roll-out may make unavailable is owed as well.
    """
    wanted = debt.bound if state.wanted is None else state.wanted
    if state.suspended or state.finished or (state.wanted is None and not state.exists and not state.returning):
        wanted = 0
    # A roll-out that may make all pods unavailable guarantees nothing, so all pods that are wanted are owed.
    available = wanted if full or state.least_available is None else (state.least_available or wanted)
    return msgspec.structs.replace(debt, ready=min(debt.ready, wanted, available), bound=min(debt.bound, wanted))


def shortfall(
    debt: Debt, state: ControllerState, replicas: Replicas, *, full: bool = False, staying: bool = False
) -> Shortfall:
    """Return how many pods the controller still lacks.

    Pods that succeeded since the debt was incurred count as replaced. With *full*, what a roll-out may make unavailable
    is missing as well. With *staying*, pods that may not stay are missing: no machine ends because of them.
    """
    owed = converted(debt, state, full=full)
    ended = max(0, state.succeeded - debt.succeeded)
    bound, ready = owed.bound - ended, owed.ready - ended
    lacking = max(replicas.unavailable, replicas.unsettled) if staying else replicas.unavailable
    return Shortfall(
        created=bound - replicas.live, bound=bound - replicas.bound, ready=ready - (replicas.ready - lacking)
    )


def paid(missing: Shortfall, *, ready: bool = True) -> bool:
    """Return whether no pods are missing. If *ready* is false, bound pods are enough."""
    return missing.bound <= 0 and (missing.ready <= 0 or not ready)


# The ledger: what drains owe after their end.


class OpenDebt(msgspec.Struct, frozen=True):
    """A debt of an earlier drain."""

    node: str  #: the drained node, which the pods left
    since: Moment
    debt: Debt
    lacking: bool = False  #: it is settled, and its pods do not run any more, or may not stay


def begun(ledger: tuple[OpenDebt, ...], now: datetime) -> tuple[OpenDebt, ...]:
    """Return the *ledger* without times after *now*."""
    return tuple(owed if owed.since <= now else msgspec.structs.replace(owed, since=now) for owed in ledger)


def owing(
    ledger: tuple[OpenDebt, ...], node: str, debts: Iterable[Debt], now: datetime, since: datetime | None = None
) -> tuple[OpenDebt, ...]:
    """Return the *ledger* with the *debts* of a drain of *node*, open since *since* (by default *now*).

    What an earlier drain of the node owes to the same controller stays owed: the larger numbers count.
    """
    added = {debt.controller: debt for debt in debts}

    def merged(owed: OpenDebt) -> OpenDebt:
        debt = added.pop(owed.debt.controller, None) if owed.node == node else None
        if debt is None:
            return owed
        return OpenDebt(node, max(since or owed.since, owed.since), raised(debt, owed.debt))

    known = tuple(map(merged, ledger))
    return (*known, *(OpenDebt(node, since or now, debt) for debt in added.values()))


def without_paid(ledger: tuple[OpenDebt, ...], node: str, paid_debts: Iterable[Debt]) -> tuple[OpenDebt, ...]:
    """Return the *ledger* without what a drain of *node* owed and has *paid*; more than it owed stays."""
    paid_by = {debt.controller: debt for debt in paid_debts}

    def covered(owed: OpenDebt) -> bool:
        debt = paid_by.get(owed.debt.controller) if owed.node == node else None
        return debt is not None and debt == raised(debt, owed.debt)

    return tuple(owed for owed in ledger if not covered(owed))


def settled_debts(paid_debts: Iterable[OpenDebt], states: Mapping[Controller, ControllerState]) -> tuple[OpenDebt, ...]:
    """Return what remains of *paid_debts* while the nodes that the pods left are there.

    The pods may be lost again before such a machine ends. If fewer of them are wanted by now, fewer are owed.
    """
    kept = []
    for owed in paid_debts:
        state = states[owed.debt.controller]
        debt = converted(owed.debt, state, full=True)
        if debt.bound > 0:
            debt = msgspec.structs.replace(debt, owner_uids=tuple(sorted(state.owner_uids)) or debt.owner_uids)
            kept.append(msgspec.structs.replace(owed, debt=debt))
    return tuple(kept)


@dataclass(slots=True)
class _Tally:
    live: int = 0
    bound: int = 0
    ready: int = 0
    returned: int = 0
    unavailable: int = 0
    unsettled: int = 0
    at_risk: str = ""
    unschedulable: list[str] = field(default_factory=list)
    unready: list[str] = field(default_factory=list)

    def add(self, pod: Pod, time: "_RequiredTime", *, returned: bool, runs: bool, at_risk: str) -> None:
        """Count *pod*. *runs* is whether its node is Ready. *at_risk* is why it has no place for long, or ""."""
        # A pod that no kubelet has reported on has no Ready condition yet, which counts as Ready elsewhere.
        ready = bool(pod.node_name) and pod.ready and pod.phase != "Pending" and runs and not returned
        self.live += 1
        self.bound += bool(pod.node_name) and not returned
        self.ready += ready
        self.returned += returned
        self.unavailable += ready and not time.available(pod)
        self.unsettled += ready and (bool(at_risk) or not time.stays(pod))
        self.at_risk = self.at_risk or (at_risk if ready else "")
        if not ready:
            self.unready.append(pod.uid)
        if not pod.node_name and pod.unschedulable_since is not None:
            self.unschedulable.append(pod.key)

    @property
    def replicas(self) -> Replicas:
        """Return the collected counts as an immutable value."""
        return Replicas(
            live=self.live,
            bound=self.bound,
            ready=self.ready,
            unschedulable=tuple(sorted(self.unschedulable)),
            unready=tuple(sorted(self.unready)),
            returned=self.returned,
            unavailable=self.unavailable,
            unsettled=self.unsettled,
            at_risk=self.at_risk,
        )


@dataclass(frozen=True, slots=True)
class _RequiredTime:
    """For how long the pods of a controller must have been Ready. Where it is not known, Ready is enough."""

    ready_for: ReadyFor
    min_ready: timedelta

    def available(self, pod: Pod) -> bool:
        return not self.min_ready or self._is_over(pod, self.min_ready)

    def stays(self, pod: Pod) -> bool:
        return self._is_over(pod, max(self.min_ready, STAYING))

    def _is_over(self, pod: Pod, duration: timedelta) -> bool:
        known = self.ready_for(pod)
        return known is None or known >= duration


def ready_for(now: datetime, monotonic: float = 0.0, became_ready: BecameReady = lambda _: None) -> ReadyFor:
    """Return for how long pods have been Ready, at least, at one moment on the wall clock and on the monotonic one.

    What this process saw is measured by its monotonic clock. Only for pods that were Ready before, the time of the
    condition is compared with the wall clock: those of kubelets and of this process may differ, and may jump.
    """

    def known(pod: Pod) -> timedelta | None:
        if (seen := became_ready(pod)) is not None:
            return timedelta(seconds=monotonic - seen)
        since = instant(pod.ready_since)
        return None if since is None else now - since - _ROUNDED_OFF

    return known


def counts_for(pods: Iterable[Pod], min_ready_seconds: int, ready_for: ReadyFor) -> timedelta | None:
    """Return after what time :func:`count_replicas` counts *pods* of one controller otherwise, or None for never."""
    min_ready = timedelta(seconds=min_ready_seconds)
    known = [time for pod in pods if (time := ready_for(pod)) is not None]
    ends = (duration - time for time in known for duration in (min_ready, max(min_ready, STAYING)))
    return min((end for end in ends if end > timedelta()), default=None)


def is_ready(node: Node) -> bool:
    """Return whether *node* is Ready. The condition is absent in some handwritten snapshot files."""
    return node.condition("Ready") in ("True", "")


def count_replicas(
    pods: Iterable[Pod],
    states: Iterable[ControllerState],
    node: str = "",
    staying: Collection[str] = (),
    evicted: Collection[str] = (),
    ready_for: ReadyFor = lambda _: None,
    node_of: Callable[[str], Node | None] | None = None,
    at_risk: Callable[[Pod, Node], str] = lambda _, __: "",
) -> dict[Controller, Replicas]:
    """Count the *pods* of each controller. Pods of an orphaned ReplicaSet count for it and for its former Deployment.

    Pods of other namespaces do not count: anybody can write a reference to another team's controller.

    On *node*, which is being drained, only pods in *staying* (UIDs) count as bound: a replacement pod that was bound to
    the drained node would have to move again. Pods in *evicted* (UIDs) never count, even before their deletion is
    observed. Pods must have been Ready for their `minReadySeconds`, and for STAYING to stay; without *ready_for*, Ready
    is enough.

    *node_of* returns the Node with a name. Pods whose Node is gone do not count, although they look as if they ran
    until the pod garbage collector deletes them, and pods on a Node that is not Ready are not Ready. Without it, all
    Nodes are assumed to be Ready. *at_risk* returns why a pod may soon have no place, or "".
    """
    controllers: defaultdict[tuple[str, str], list[Controller]] = defaultdict(list)
    times: dict[Controller, _RequiredTime] = {}
    for state in states:
        times[state.controller] = _RequiredTime(ready_for, timedelta(seconds=state.min_ready_seconds or 0))
        for owner in state.owners:
            controllers[owner].append(state.controller)
    tallies: defaultdict[Controller, _Tally] = defaultdict(_Tally)
    for pod in pods:
        counted_for = controllers.get((pod.namespace, pod.owner.uid)) if pod.owner is not None else None
        if not counted_for or pod.deletion_timestamp is not None or pod.uid in evicted:
            continue
        known = node_of(pod.node_name) if node_of is not None and pod.node_name else None
        if node_of is not None and pod.node_name and known is None:
            continue
        returned = bool(node) and pod.node_name == node and pod.uid not in staying
        runs = known is None or is_ready(known)
        why = at_risk(pod, known) if runs and known is not None else ""
        for controller in counted_for:
            tallies[controller].add(pod, times[controller], returned=returned, runs=runs, at_risk=why)
    return {controller: tally.replicas for controller, tally in tallies.items()}
