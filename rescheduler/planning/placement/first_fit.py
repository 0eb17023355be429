"""Place pods by first-fit, and explain why a pod does not fit."""

from collections.abc import Sequence
from dataclasses import replace

from predicates.objects import Pod, PodClass
from predicates.snapshot import Trial
from rescheduler.planning.placement.packing import Packing
from rescheduler.planning.placement.spot_room import Placed, Room, Stuck, all_stuck, shortage


def place_or_explain(
    room: Room, trial: Trial, pods: Sequence[Pod], never_fitting: dict[PodClass, str]
) -> Placed | Stuck:
    """Place all of *pods* by first-fit, the largest first, or return the pods that do not fit.

    On success the placements remain in *trial*; otherwise *trial* is unchanged. *never_fitting* caches the reasons why
    no target accepts a class regardless of *pods*. It is valid while only the nodes of *pods* change in *trial*.
    """
    reasons = {pod.cls: _why_never(room, pod.cls, never_fitting) for pod in pods}
    by_size = sorted(pods, key=lambda pod: (-room.sizes.of(pod.cls), pod.key))
    packing = Packing(room, trial)
    mark = trial.savepoint()
    unplaced = packing.first_fit(pod for pod in by_size if reasons[pod.cls] is None)
    stuck = tuple(Stuck(pod, why) for pod in by_size if (why := reasons[pod.cls]) is not None)
    if unplaced:
        stuck += all_stuck(room, unplaced)
    if not stuck:
        return packing.placed
    packing.clear(mark)
    return replace(stuck[0], others=stuck[1:])


def _why_never(room: Room, pod: PodClass, never_fitting: dict[PodClass, str]) -> str | None:
    """Return why no target accepts the class of *pod* even if nothing else is placed, or None if one may accept it."""
    if (why := never_fitting.get(pod)) is None and room.filters.never_fits(pod, room.targets):
        why = shortage(room, pod)
        if not room.filters.depends_on_cluster(pod):
            never_fitting[pod] = why
    return why
