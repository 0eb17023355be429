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
"""

from collections import defaultdict
from collections.abc import Callable, Collection, Iterable
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from typing import Final

import msgspec

from predicates.objects import Node, Pod
from rescheduler.planning.controllers import Controller, ControllerState
from rescheduler.planning.forms import instant

#: The times of conditions have whole seconds, so a pod may have become Ready almost a second later than it says.
_ROUNDED_OFF: Final = timedelta(seconds=1)


class Debt(msgspec.Struct, frozen=True):
    """The numbers of pods that one controller must have again before its debt is paid."""

    controller: Controller
    ready: int  #: number of Ready pods that it must have again
    bound: int  #: number of pods bound to a node that it must have again, including the Ready ones
    template: str = ""  #: digest of its pod template when the node was marked
    succeeded: int = 0  #: number of its pods that had succeeded by then
    owner_uids: tuple[str, ...] = ()  #: UIDs that its pods named as their controller by then


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


def converted(debt: Debt, state: ControllerState) -> Debt:
    """Return what is owed after the changes of the controller that *state* shows.

    The table at the top of this module lists them. A change never ends a debt: if it is reverted, the same number of
    pods is owed again.
    """
    wanted = debt.bound if state.wanted is None else state.wanted
    if state.suspended or state.finished or (state.wanted is None and not state.exists and not state.returning):
        wanted = 0
    # A roll-out that may make all pods unavailable guarantees nothing, so all pods that are wanted are owed.
    available = wanted if state.least_available is None else (state.least_available or wanted)
    return msgspec.structs.replace(debt, ready=min(debt.ready, wanted, available), bound=min(debt.bound, wanted))


def shortfall(debt: Debt, state: ControllerState, replicas: Replicas, *, full: bool = False) -> Shortfall:
    """Return how many pods the controller still lacks.

    Pods that succeeded since the debt was incurred count as replaced. With *full*, what a roll-out may make unavailable
    is missing as well.
    """
    owed = converted(debt, replace(state, least_available=None) if full else state)
    ended = max(0, state.succeeded - debt.succeeded)
    bound, ready = owed.bound - ended, owed.ready - ended
    available = replicas.ready - replicas.unavailable
    return Shortfall(created=bound - replicas.live, bound=bound - replicas.bound, ready=ready - available)


def paid(missing: Shortfall, *, ready: bool = True) -> bool:
    """Return whether no pods are missing. If *ready* is false, bound pods are enough."""
    return missing.bound <= 0 and (missing.ready <= 0 or not ready)


@dataclass(slots=True)
class _Tally:
    live: int = 0
    bound: int = 0
    ready: int = 0
    returned: int = 0
    unavailable: int = 0
    unschedulable: list[str] = field(default_factory=list)
    unready: list[str] = field(default_factory=list)

    def add(self, pod: Pod, ready_by: datetime | None, *, returned: bool, runs: bool) -> None:
        """Count *pod*. It is available if it has been Ready since *ready_by*; None means that Ready is enough.

        *runs* is whether its node is Ready.
        """
        # A pod that no kubelet has reported on has no Ready condition yet, which counts as Ready elsewhere.
        ready = bool(pod.node_name) and pod.ready and pod.phase != "Pending" and runs and not returned
        self.live += 1
        self.bound += bool(pod.node_name) and not returned
        self.ready += ready
        self.returned += returned
        since = instant(pod.ready_since)
        self.unavailable += ready and ready_by is not None and since is not None and since > ready_by
        if not ready:
            self.unready.append(pod.uid)
        if not pod.node_name and pod.unschedulable_since is not None:
            self.unschedulable.append(pod.key)

    @property
    def replicas(self) -> Replicas:
        """Return the collected counts as an immutable value."""
        unschedulable, unready = tuple(sorted(self.unschedulable)), tuple(sorted(self.unready))
        return Replicas(self.live, self.bound, self.ready, unschedulable, unready, self.returned, self.unavailable)


def is_ready(node: Node) -> bool:
    """Return whether *node* is Ready. The condition is absent in some handwritten snapshot files."""
    return node.condition("Ready") in ("True", "")


def count_replicas(
    pods: Iterable[Pod],
    states: Iterable[ControllerState],
    node: str = "",
    staying: Collection[str] = (),
    evicted: Collection[str] = (),
    now: datetime | None = None,
    node_of: Callable[[str], Node | None] | None = None,
) -> dict[Controller, Replicas]:
    """Count the *pods* of each controller. Pods of an orphaned ReplicaSet count for it and for its former Deployment.

    Pods of other namespaces do not count: anybody can write a reference to another team's controller.

    On *node*, which is being drained, only pods in *staying* (UIDs) count as bound: a replacement pod that was bound to
    the drained node would have to move again. Pods in *evicted* (UIDs) never count, even before their deletion is
    observed. *now* is the time at which pods must have been Ready for their `minReadySeconds`; without
    it, Ready is enough.

    *node_of* returns the Node with a name. Pods whose Node is gone do not count, although they look as if they ran
    until the pod garbage collector deletes them, and pods on a Node that is not Ready are not Ready. Without it, all
    Nodes are assumed to be Ready.
    """
    controllers: defaultdict[tuple[str, str], list[Controller]] = defaultdict(list)
    ready_by: dict[Controller, datetime] = {}
    for state in states:
        if state.min_ready_seconds and now is not None:
            ready_by[state.controller] = now - timedelta(seconds=state.min_ready_seconds) - _ROUNDED_OFF
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
        for controller in counted_for:
            tallies[controller].add(pod, ready_by.get(controller), returned=returned, runs=runs)
    return {controller: tally.replicas for controller, tally in tallies.items()}
