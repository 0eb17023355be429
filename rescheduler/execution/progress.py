"""The progress of a drain, pod by pod."""

from collections import defaultdict
from collections.abc import Mapping

from rescheduler.draining.state import Drain
from rescheduler.observe.events import DrainProgressed, InvolvedNode, PodProgress
from rescheduler.planning.controllers import Controller
from rescheduler.planning.outcome import PodRef


def progress(drain: Drain, node: InvolvedNode) -> DrainProgressed:
    """Return the progress of *drain* for each pod. The replicas must have been counted after the last eviction.

    Which pod replaces which is not known. The replacement pods of a controller are assigned to its evicted pods in the
    order of the evictions. If nothing is owed, they count as Ready.
    """
    replaced = _replaced(drain)
    pods = tuple((placement.pod, _of_pod(drain, placement.pod, replaced)) for placement in drain.placements)
    return DrainProgressed(node, drain.phase.name.lower(), pods)


def _of_pod(drain: Drain, pod: PodRef, replaced: Mapping[str, PodProgress]) -> PodProgress:
    if pod.uid in replaced:
        return replaced[pod.uid]
    if any(victim.pod.uid == pod.uid for victim in drain.waiting):
        return PodProgress.WAITING
    if (victim := drain.victims.get(pod.uid)) is not None:
        return PodProgress.EVICTED if victim.accepted else PodProgress.EVICTING
    return PodProgress.GONE


def _replaced(drain: Drain) -> dict[str, PodProgress]:
    """Return the progress of the evicted pods, by UID."""
    by_controller: defaultdict[Controller | None, list[PodRef]] = defaultdict(list)
    for pod in drain.evicted:
        by_controller[drain.controllers.get(pod.uid)].append(pod)
    return {
        pod.uid: _of_evicted(drain, controller, len(pods) - index)
        for controller, pods in by_controller.items()
        for index, pod in enumerate(pods)
    }


def _of_evicted(drain: Drain, controller: Controller | None, position: int) -> PodProgress:
    """Return the progress of an evicted pod. *position* counts from the controller's last evicted pod, which is 1."""
    if controller is None:
        return PodProgress.EVICTED
    missing = drain.shortfall(controller)
    if max(missing.created, missing.bound) >= position:
        return PodProgress.EVICTED
    return PodProgress.BOUND if missing.ready >= position else PodProgress.READY
