"""The end of a run and violated invariants, judged by the API server, its audit log and the pool."""

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal

from tests.cluster.observer import is_marked
from tests.faults.scene import WEB, Scene, unusable

End = Literal["finished", "rolled back", "neither"]


@dataclass(frozen=True, slots=True)
class Ended:
    """*end* of a drain; *why* it neither finished nor rolled back; number of Ready pods *lacking* per Deployment."""

    end: End
    why: tuple[str, ...] = ()
    lacking: Mapping[str, int] = field(default_factory=dict)


def ended(scene: Scene) -> Ended:
    """Return the present state."""
    nodes, machines, lacking = scene.nodes(), scene.machines(), scene.lacking()
    why = [f"{node} is marked" for node, item in nodes.items() if is_marked(item)]
    why += [f"{count} pods of {app} are not Ready" for app, count in lacking.items()]
    why += [f"Deployment {app} is rolling out" for app in scene.rolling_out()]
    desired = int(scene.pool.size()["desiredSize"])
    if desired != len(machines):
        why.append(f"the pool has {len(machines)} machines, its desired size is {desired}")
    if machines != [node for node in nodes if node == scene.node]:
        why.append(f"machines {machines}, Nodes {sorted(nodes)}")
    if scene.node in nodes and (closed := unusable(nodes[scene.node])):
        why.append(f"{scene.node} takes no pods: {', '.join(closed)}")
    if why:
        return Ended("neither", tuple(why), lacking)
    return Ended("rolled back" if scene.node in nodes else "finished")


def violations(scene: Scene) -> list[str]:
    """Return the violated invariants of a run, one line per case."""
    ours = [event for event in scene.audit.events() if event.user.username == scene.site.user and event.accepted]
    written = [event for event in ours if not event.dry_run]
    wrong = [f"deleted the pod {event.name}" for event in written if (event.verb, event.kind) == ("delete", "pods")]
    wrong += [
        f"changed the Node {event.name}" for event in written if event.kind == "nodes" and event.name != scene.node
    ]
    evicted = Counter(str(_uid(event.request_object)) for event in written if event.kind == "pods/eviction")
    wrong += [f"evicted the pod {uid} {times} times" for uid, times in evicted.items() if times > 1]
    wrong += [f"ordered the machine away with {pod} on its node" for pod in scene.ordered_with_pods]
    if scene.ordered_relabeled:
        wrong.append("ordered the machine away of a node that was labeled as a spot node")
    return wrong + _marked_together(scene)


def too_many_missing(scene: Scene, seen: Ended) -> list[str]:
    """Report more missing pods than the budget allows."""
    missing = seen.lacking.get(WEB, 0)
    allowed = scene.may_be_missing
    return [f"{missing} pods of {WEB} missing at once, its budget allows {allowed}"] if missing > allowed else []


def _uid(eviction: dict[str, dict[str, dict[str, str]]] | None) -> str | None:
    options = (eviction or {}).get("deleteOptions") or {}
    return (options.get("preconditions") or {}).get("uid")


def _marked_together(scene: Scene) -> list[str]:
    marked: set[str] = set()
    wrong = []
    for event in scene.audit.writes("nodes"):
        if not event.name.startswith(f"{scene.name}-"):
            continue
        if event.verb != "delete" and is_marked(event.response_object or {}):
            marked.add(event.name)
            if len(marked) > 1:
                wrong.append(f"marked at once: {', '.join(sorted(marked))}")
        else:
            marked.discard(event.name)
    return wrong
