"""Which pods a drain evicts next.

One pod; then one in each namespace; then one of each controller; then the rest of each controller in steps of
1, 2, 4, … The first three waves wait until every replacement pod is bound: a quota or a webhook that refuses
replacement pods costs one pod in a namespace. A controller's later steps wait until its pods are Ready again: an
image that never becomes Ready on spot nodes costs one pod of its controller. Pods of a StatefulSet are evicted one
at a time, each while all others of the StatefulSet are Ready. Pods without a controller are lost for good, so they
are evicted last.
"""

from collections.abc import Callable, Hashable, Iterable

from rescheduler.draining.state import Drain, Victim
from rescheduler.planning.controllers import Controller
from rescheduler.planning.debts import Replicas, paid


def next_step(drain: Drain) -> tuple[Victim, ...]:
    """The pods to evict now; empty where the drain has to wait."""
    controlled = [victim for victim in drain.waiting if victim.controller is not None]
    if not controlled:
        return drain.waiting if _everything_runs(drain) else ()
    if unbegun := _unbegun(drain, controlled):
        return _wave(drain, unbegun) if _all_bound(drain) else ()
    steps = (_later(drain, controller, controlled) for controller in sorted(drain.begun))
    return tuple(victim for step in steps for victim in step)


def _unbegun(drain: Drain, controlled: Iterable[Victim]) -> list[Victim]:
    """One pod of each controller that has lost none yet, and can lose one now."""
    unbegun = (victim for victim in controlled if victim.controller not in drain.begun and _may_go(drain, victim))
    return _first_of_each(unbegun, lambda victim: victim.controller)


def _wave(drain: Drain, unbegun: list[Victim]) -> tuple[Victim, ...]:
    if not drain.begun:
        return tuple(unbegun[:1])
    namespaces = {controller.namespace for controller in drain.begun}
    elsewhere = [victim for victim in unbegun if victim.pod.namespace not in namespaces]
    return tuple(_first_of_each(elsewhere, lambda victim: victim.pod.namespace)) or tuple(unbegun)


def _later(drain: Drain, controller: Controller, controlled: Iterable[Victim]) -> tuple[Victim, ...]:
    """The next step of one controller of which pods were evicted before."""
    if _asking(drain, controller):
        return ()
    pods = [victim for victim in controlled if victim.controller == controller and _may_go(drain, victim)]
    return tuple(pods[: 1 if _is_ordered(drain, controller) else drain.step_size.get(controller, 1)])


def _all_bound(drain: Drain) -> bool:
    """Whether every pod that this or an earlier process has evicted has a bound replacement."""
    asking = any(not victim.accepted for victim in drain.victims.values())
    return not asking and all(drain.shortfall(controller).bound <= 0 for controller in drain.debts)


def _everything_runs(drain: Drain) -> bool:
    return not drain.victims and all(paid(drain.shortfall(controller)) for controller in drain.debts)


def _asking(drain: Drain, controller: Controller) -> bool:
    return any(not victim.accepted and victim.controller == controller for victim in drain.victims.values())


def _may_go(drain: Drain, victim: Victim) -> bool:
    """Whether nothing that its controller is owed is missing; of a StatefulSet, also whether all others are Ready."""
    controller = victim.controller
    if controller is None or not paid(drain.shortfall(controller)):
        return False
    return not _is_ordered(drain, controller) or _others_ready(drain, controller, victim)


def _others_ready(drain: Drain, controller: Controller, victim: Victim) -> bool:
    replicas, wanted = drain.replicas.get(controller, Replicas()), drain.states[controller].wanted
    unready = set(replicas.unready) - {victim.pod.uid}
    return replicas.live >= (wanted or 0) and not unready and not _leaving(drain, controller)


def _leaving(drain: Drain, controller: Controller) -> bool:
    return any(victim.controller == controller for victim in drain.victims.values())


def _is_ordered(drain: Drain, controller: Controller) -> bool:
    return controller in drain.states and drain.states[controller].ordered


def _first_of_each(victims: Iterable[Victim], key: Callable[[Victim], Hashable]) -> list[Victim]:
    firsts: dict[Hashable, Victim] = {}
    for victim in victims:
        firsts.setdefault(key(victim), victim)
    return list(firsts.values())
