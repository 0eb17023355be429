"""The daemon without one of its safeguards: ``python -m tests.invariants.broken NAME run …``.

Only for the tests of the observer, which has to notice each of these.
"""

import sys
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any, Final

from rescheduler import cli, landings, view
from rescheduler.access import Answer
from rescheduler.backends.cloudpool.client import CloudPoolClient
from rescheduler.course import Course
from rescheduler.draining import evicting, removing
from rescheduler.draining.messages import LookAgain, PlanAgain, PlannedAgain
from rescheduler.draining.state import Drain, Result
from rescheduler.kube import eviction
from rescheduler.kube.cluster import Cluster
from rescheduler.kube.elector import Elector
from rescheduler.kube.eviction import Evicted
from rescheduler.kube.node_edit import NodeEdit
from rescheduler.planning import drainability, movements
from rescheduler.planning.minimum import Minimum


def without_waves() -> None:
    """All pods are evicted at once."""
    _patch(evicting, "next_step", lambda drain: drain.waiting)


def without_landing() -> None:
    """Nothing is owed: a drain is done when its pods are gone."""
    _patch(evicting, "follow", lambda drain, _: replace(drain, debts={}, timers={}))


def without_debts() -> None:
    """What earlier drains owe keeps no drain from beginning."""
    _patch(landings.Landings, "settle", lambda _: None)


def without_targets() -> None:
    """Nobody looks whether the nodes of the plan still take pods."""
    _patch(view.View, "lost", lambda *_: "")
    start = Course._start

    def started(course: Course, action: object) -> None:
        if isinstance(action, PlanAgain) and course._plan is not None:  # type: ignore[attr-defined]
            course._answers.put(Answer(PlannedAgain(course._plan)))  # type: ignore[attr-defined]
        else:
            start(course, action)  # type: ignore[arg-type]

    planned = Course._planned

    def kept(course: Course, reading: Any) -> Any:
        event = planned(course, reading)
        if event is not None and hasattr(event, "verdict"):
            course._plan = event.verdict  # type: ignore[attr-defined]
        return event

    Course._plan = None  # type: ignore[attr-defined]
    _patch(Course, "_start", started)
    _patch(Course, "_planned", kept)


def without_minimum() -> None:
    """--min-on-demand-nodes is ignored."""
    _patch(Minimum, "blocker", lambda *_, **__: None)


def without_leadership() -> None:
    """Every replica takes itself for the leader."""
    _patch(Elector, "leading", property(lambda _: True))
    _patch(Elector, "seconds_left", lambda _: 10.0)


def without_release() -> None:
    """The taint stays on at the end of a drain."""
    edit = Cluster.edit_node

    def kept(cluster: Cluster, name: str, uid: str, wanted: NodeEdit) -> None:
        edit(cluster, name, uid, replace(wanted, untaint=()))

    _patch(Cluster, "edit_node", kept)


def without_opt_outs() -> None:
    """`safe-to-evict: "false"` is ignored."""
    kept = tuple(rule for rule in drainability.RULES if rule is not drainability._not_safe_to_evict)
    _patch(drainability, "RULES", kept)


def without_move_limit() -> None:
    """Pods are moved as often as there is a reason to."""
    _patch(movements, "_too_often", lambda *_: "")


def without_decrement() -> None:
    """Machines are ordered away, and the pool replaces them."""
    terminate = CloudPoolClient.terminate

    def kept(client: CloudPoolClient, machine: str, *, decrement: bool, deadline: float) -> None:
        terminate(client, machine, decrement=False, deadline=deadline)

    _patch(CloudPoolClient, "terminate", kept)


def without_taint() -> None:
    """Nodes carry the annotation only: the scheduler puts pods on them."""
    edit = Cluster.edit_node

    def untainted(cluster: Cluster, name: str, uid: str, wanted: NodeEdit) -> None:
        edit(cluster, name, uid, replace(wanted, taint=()))

    _patch(Cluster, "edit_node", untainted)
    _patch(view.View, "is_ours", lambda *_: True)


def without_dry_runs() -> None:
    """What is asked as a dry run is done."""
    body = eviction.body

    def real(*arguments: Any, dry_run: bool) -> dict[str, Any]:
        return body(*arguments, dry_run=False)

    _patch(eviction, "body", real)
    _patch(eviction, "query", lambda **_: {})


def without_evictions() -> None:
    """Pods are deleted: no budget is asked."""

    def delete(
        cluster: Cluster,
        namespace: str,
        name: str,
        uid: str,
        grace_seconds: int | None = None,
        *,
        dry_run: bool = False,
    ) -> Evicted:
        if not dry_run:
            path = f"/api/v1/namespaces/{namespace}/pods/{name}"
            cluster._client.request(f"delete pod {name}", "DELETE", path, body={"preconditions": {"uid": uid}})
        return Evicted()

    _patch(Cluster, "evict", delete)


def without_last_look() -> None:
    """The machine is ordered as soon as the moved pods run, whatever came to the node meanwhile."""
    landed = evicting._landed

    def ordered(drain: Drain, now: float) -> Result:
        drain, actions = landed(drain, now)
        return (
            removing.emptied(drain, now) if any(isinstance(each, LookAgain) for each in actions) else (drain, actions)
        )

    _patch(evicting, "_landed", ordered)


SAFEGUARDS: Final[Mapping[str, Callable[[], None]]] = {
    "waves": without_waves,
    "landing": without_landing,
    "debts": without_debts,
    "targets": without_targets,
    "minimum": without_minimum,
    "leadership": without_leadership,
    "release": without_release,
    "opt-outs": without_opt_outs,
    "move limit": without_move_limit,
    "decrement": without_decrement,
    "taint": without_taint,
    "dry runs": without_dry_runs,
    "evictions": without_evictions,
    "last look": without_last_look,
}


def _patch(owner: Any, name: str, value: object) -> None:
    assert hasattr(owner, name), f"{owner} has no {name}: the safeguard has moved"
    setattr(owner, name, value)


if __name__ == "__main__":
    SAFEGUARDS[sys.argv.pop(1)]()
    cli.main()
