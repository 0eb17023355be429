"""Select the pods that a drain evicts next.

First one pod, until its replacement pod is Ready; then one pod in each other namespace, until the replacement pods are
bound; then one pod of each other controller, in steps of 1, 2, 4, … controllers, until the replacement pods are Ready;
then the remaining pods of each controller in steps of 1, 2, 4, …, until its replacement pods are Ready. A quota or a
webhook that rejects replacement pods then costs only one pod per namespace. An image that never becomes Ready on spot
nodes costs only one pod of its controller, and few pods if many controllers have such an image.

Pods of a StatefulSet are evicted one at a time, while all its other pods are Ready. Pods without a controller are not
recreated, so they are evicted last. No pod is evicted while pods that had replaced evicted ones are lost.
"""

from collections.abc import Callable, Hashable, Iterable

from rescheduler.draining.state import Drain
from rescheduler.draining.victims import Victim
from rescheduler.planning.controllers import Controller
from rescheduler.planning.debts import Replicas, paid


def next_step(drain: Drain) -> tuple[Victim, ...]:
    """Return the pods to evict now; empty if the drain has to wait."""
    if drain.lost_again:
        return ()
    controlled = [victim for victim in drain.waiting if victim.controller is not None]
    if not controlled:
        return drain.waiting if _everything_runs(drain) else ()
    if unbegun := _first_victims(drain, controlled):
        return _wave(drain, unbegun) if _all_bound(drain) else ()
    if _first_eviction_pending(drain):
        return ()
    steps = (_next_of_controller(drain, controller, controlled) for controller in sorted(_proven(drain)))
    return tuple(victim for step in steps for victim in step)


def still_allowed(drain: Drain, step: Iterable[Victim]) -> list[Victim]:
    """Return the pods of *step* that may be evicted after the pods of their controllers were counted again."""
    if drain.lost_again:
        return []
    return [victim for victim in step if victim.controller is None or _may_evict(drain, victim)]


def _first_victims(drain: Drain, controlled: Iterable[Victim]) -> list[Victim]:
    """Return one pod of each controller from which no pod has been evicted yet, if one may be evicted now."""
    proven = _proven(drain)
    unbegun = (victim for victim in controlled if victim.controller not in proven and _may_evict(drain, victim))
    return _first_of_each(unbegun, lambda victim: victim.controller)


def _proven(drain: Drain) -> frozenset[Controller]:
    """Return the controllers with an eviction that was accepted or is in flight.

    A pod that another client deleted before its eviction proves nothing about replacement pods in its namespace.
    """
    return drain.begun - drain.unproven


def _wave(drain: Drain, unbegun: list[Victim]) -> tuple[Victim, ...]:
    proven = _proven(drain)
    if not proven:
        return tuple(unbegun[:1])
    namespaces = {controller.namespace for controller in proven}
    elsewhere = [victim for victim in unbegun if victim.pod.namespace not in namespaces]
    if elsewhere:
        firsts = _first_of_each(elsewhere, lambda victim: victim.pod.namespace)
        return tuple(firsts) if _all_run(drain) else ()
    if not drain.owners_in_step:
        alone = len(proven) == 1  # no other namespace: the first pod has not been waited for yet
        return tuple(unbegun[:1]) if not alone or _all_run(drain) else ()
    return tuple(unbegun[: 2 * drain.owners_in_step]) if _all_run(drain) else ()


def owners_in(drain: Drain, step: Iterable[Victim]) -> int:
    """Return how many controllers lose their first pod in *step*, after each namespace has lost one.

    For any other step, return the number of the last such step.
    """
    proven = _proven(drain)
    namespaces = {controller.namespace for controller in proven}
    controllers = {victim.controller for victim in step if victim.controller is not None}
    first_pods = bool(controllers) and controllers.isdisjoint(proven)
    if first_pods and namespaces.issuperset(controller.namespace for controller in controllers):
        return len(controllers)
    return drain.owners_in_step


def _next_of_controller(drain: Drain, controller: Controller, controlled: Iterable[Victim]) -> tuple[Victim, ...]:
    """Return the next step of a controller some of whose pods were already evicted."""
    if _has_pending_eviction(drain, controller):
        return ()
    pods = [victim for victim in controlled if victim.controller == controller and _may_evict(drain, victim)]
    return tuple(pods[: 1 if _is_ordered(drain, controller) else drain.step_size.get(controller, 1)])


def _all_bound(drain: Drain) -> bool:
    """Return whether every pod evicted by this or an earlier process has a bound replacement."""
    asking = any(not victim.accepted for victim in drain.victims.values())
    return not asking and all(drain.shortfall(controller).bound <= 0 for controller in drain.debts)


def _all_run(drain: Drain) -> bool:
    """Return whether no controller from which pods were evicted lacks any pod."""
    return all(paid(drain.shortfall(controller)) for controller in drain.debts if drain.has_taken_from(controller))


def _first_eviction_pending(drain: Drain) -> bool:
    """Return whether the first eviction of a controller, which is part of a wave, has not been accepted yet."""
    evicted_from = {drain.controllers.get(pod.uid) for pod in drain.evicted}
    requested = (victim for victim in drain.victims.values() if not victim.accepted and victim.controller is not None)
    return any(victim.controller not in evicted_from for victim in requested)


def _everything_runs(drain: Drain) -> bool:
    return not drain.victims and all(paid(drain.shortfall(controller)) for controller in drain.debts)


def _has_pending_eviction(drain: Drain, controller: Controller) -> bool:
    return any(not victim.accepted and victim.controller == controller for victim in drain.victims.values())


def _may_evict(drain: Drain, victim: Victim) -> bool:
    """Return whether the pod's controller lacks no owed pods and, for a StatefulSet, all its other pods are Ready."""
    controller = victim.controller
    if controller is None or not paid(drain.shortfall(controller, full=True)):
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
