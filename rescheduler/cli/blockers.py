"""Blockers of nodes and pods on a page, grouped by reason and then by controller."""

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import TypeAlias

from predicates.snapshot import Snapshot
from rescheduler.cli.console import Line
from rescheduler.planning.controller_names import controller_of
from rescheduler.planning.outcome import Blocker
from rescheduler.planning.units import count

#: Returns the controller of the pod ``namespace/name``, such as ``Deployment data/api``.
ControllerLookup: TypeAlias = Callable[[str], str]


def controllers_in(snapshot: Snapshot) -> ControllerLookup:
    """Return the lookup for the pods of *snapshot*. For an unknown pod, the lookup returns the pod itself."""

    def controller(pod: str) -> str:
        known = snapshot.pods.get(pod)
        return str(controller_of(known)) if known is not None else f"Pod {pod}"

    return controller


def by_controller(pods: Iterable[str], controller: ControllerLookup) -> dict[str, list[str]]:
    """Group *pods* (``namespace/name``) by controller, in the order of their first pod."""
    groups: dict[str, list[str]] = {}
    for pod in pods:
        groups.setdefault(controller(pod), []).append(pod)
    return groups


def blocker_lines(
    blockers: Sequence[Blocker], controller: ControllerLookup, level: int, *, wide: bool = False
) -> Iterator[Line]:
    """Yield the reasons in the order of their first blocker, each followed by the pods to which it applies."""
    groups: dict[tuple[str, str], list[str]] = {}
    for blocker in blockers:
        pods = groups.setdefault((blocker.reason, blocker.detail), [])
        if blocker.pod is not None:
            pods.append(blocker.pod)
    for (reason, detail), pods in groups.items():
        yield Line(f"{reason}: {detail}", level)
        for name, members in by_controller(pods, controller).items():
            yield Line(f"{name}{_members(name, members, wide=wide)}", level + 1)


def _members(controller: str, pods: list[str], *, wide: bool) -> str:
    """Return the text after the name of a controller: its only pod, or the number of its pods."""
    if controller.startswith("Pod "):
        return ""
    names = ", ".join(pod.partition("/")[2] for pod in pods)
    if len(pods) == 1:
        return f": pod {names}"
    return f": {count(len(pods), 'pod')}" + (f" ({names})" if wide else "")
