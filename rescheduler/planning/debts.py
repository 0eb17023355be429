"""Debts: a drain owes the controllers of the pods that it evicts as many running pods as before.

A debt is the total number of a controller's pods. Individual replacements are not tracked: it is not possible to tell
which pod replaces which, and an autoscaler or a roll-out may act at the same time. Pods that the drain evicted never
count.
"""

from collections import defaultdict
from collections.abc import Collection, Iterable
from dataclasses import dataclass, field

import msgspec

from predicates.objects import Pod
from rescheduler.planning.controllers import Controller, ControllerState


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


def incur_in_roll_out(state: ControllerState, least_available: int, before: Replicas) -> Debt:
    """Return the debt for pods that may have been evicted after a roll-out began.

    *before* are the pods right before those evictions. The roll-out itself may make some of them unavailable, and its
    new pods may never become Ready, so no more is owed than what it leaves available.
    """
    debt = incur(state, before)
    return msgspec.structs.replace(debt, ready=min(debt.ready, least_available), bound=min(debt.bound, least_available))


def raised(debt: Debt, least: Debt) -> Debt:
    """Return *debt*, raised where necessary to the numbers of pods in *least*."""
    return msgspec.structs.replace(debt, ready=max(debt.ready, least.ready), bound=max(debt.bound, least.bound))


def lapsed(debt: Debt, state: ControllerState) -> str:
    """Return why the debt lapses regardless of running pods, or "" if it still applies."""
    if not state.exists:
        return "the controller was deleted"
    if state.suspended:
        return "the controller is suspended"
    if debt.template and state.template and debt.template != state.template:
        return "the controller has a new pod template"
    return ""


def shortfall(debt: Debt, state: ControllerState, replicas: Replicas) -> Shortfall:
    """Return how many pods the controller still lacks.

    Scaling down lowers the debt. Pods that succeeded since the debt was incurred count as replaced.
    """
    wanted = debt.bound if state.wanted is None else state.wanted
    ended = max(0, state.succeeded - debt.succeeded)
    bound = min(debt.bound, wanted) - ended
    ready = min(debt.ready, wanted) - ended
    return Shortfall(created=bound - replicas.live, bound=bound - replicas.bound, ready=ready - replicas.ready)


def paid(missing: Shortfall, *, ready: bool = True) -> bool:
    """Return whether no pods are missing. If *ready* is false, bound pods are enough."""
    return missing.bound <= 0 and (missing.ready <= 0 or not ready)


@dataclass(slots=True)
class _Tally:
    live: int = 0
    bound: int = 0
    ready: int = 0
    returned: int = 0
    unschedulable: list[str] = field(default_factory=list)
    unready: list[str] = field(default_factory=list)

    def add(self, pod: Pod, *, returned: bool) -> None:
        # A pod that no kubelet has reported on has no Ready condition yet, which counts as Ready elsewhere.
        ready = bool(pod.node_name) and pod.ready and pod.phase != "Pending" and not returned
        self.live += 1
        self.bound += bool(pod.node_name) and not returned
        self.ready += ready
        self.returned += returned
        if not ready:
            self.unready.append(pod.uid)
        if not pod.node_name and pod.unschedulable_since is not None:
            self.unschedulable.append(pod.key)

    @property
    def replicas(self) -> Replicas:
        """Return the collected counts as an immutable value."""
        unschedulable, unready = tuple(sorted(self.unschedulable)), tuple(sorted(self.unready))
        return Replicas(self.live, self.bound, self.ready, unschedulable, unready, self.returned)


def count_replicas(
    pods: Iterable[Pod],
    states: Iterable[ControllerState],
    node: str = "",
    staying: Collection[str] = (),
    evicted: Collection[str] = (),
) -> dict[Controller, Replicas]:
    """Count the *pods* of each controller.

    On *node*, which is being drained, only pods in *staying* (UIDs) count as bound: a replacement pod that was bound to
    the drained node would have to move again. Pods in *evicted* (UIDs) never count, even before their deletion is
    observed.
    """
    controllers = {uid: state.controller for state in states for uid in state.owner_uids}
    tallies: defaultdict[Controller, _Tally] = defaultdict(_Tally)
    for pod in pods:
        controller = controllers.get(pod.owner.uid) if pod.owner is not None else None
        if controller is None or pod.deletion_timestamp is not None or pod.uid in evicted:
            continue
        returned = bool(node) and pod.node_name == node and pod.uid not in staying
        tallies[controller].add(pod, returned=returned)
    return {controller: tally.replicas for controller, tally in tallies.items()}
