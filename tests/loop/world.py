"""A small cluster in memory, behind the face of :mod:`rescheduler.kube`, and time that passes when it is waited for.

What is evicted comes up again on a spot node, as a controller and the scheduler would have it.
"""

# ruff: noqa: ARG002 -- signatures are those of what is stood in for

import contextlib
import datetime as dt
import threading
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import Executor, Future
from dataclasses import dataclass, replace
from datetime import timedelta
from typing import Any

import msgspec
from freezegun import freeze_time
from freezegun.api import FrozenDateTimeFactory

from predicates.objects import Node, Pod, Taint
from predicates.snapshot import Snapshot
from rescheduler.acts import Access
from rescheduler.backends.base import CloudProvider, DeleteOutcome, NodeGroup, NodeRef, Refused
from rescheduler.backends.none import NoProvider
from rescheduler.clock import SystemClock
from rescheduler.drainer import Drainer
from rescheduler.draining.intent import ANNOTATION
from rescheduler.draining.state import Limits
from rescheduler.errors import NotFound, ReschedulerError
from rescheduler.kube.cluster import PodOnNode
from rescheduler.kube.eviction import Evicted, Gone, Outcome
from rescheduler.kube.node_edit import NodeEdit
from rescheduler.loop import Actors, Loop, Mode
from rescheduler.observe.events import Event
from rescheduler.planning.policy import Policy
from rescheduler.settings import Timing
from rescheduler.soft_taint import SoftTaint
from rescheduler.threads import Threads
from rescheduler.view import View
from tests.planning.builders import Manifest, snapshot

START = dt.datetime(2026, 1, 1, 12, tzinfo=dt.UTC)
LIMITS = Limits(eviction=120, grace=60, headroom=30, release=20)


class World:
    """The cluster, both as it is watched and as the API server has it; and who leads, and whether we were stopped."""

    def __init__(self, frozen: FrozenDateTimeFactory, objects: Sequence[Manifest]) -> None:
        self.frozen = frozen
        self.cluster = snapshot(objects)
        for name, row in self.cluster.nodes.row.items():
            node = self.cluster.nodes.nodes[row]
            assert node is not None
            named = msgspec.structs.replace(node.metadata, uid=f"uid-{name}")
            self.cluster.upsert("Node", msgspec.structs.replace(node, metadata=named))
        self.clock = WorldClock(self)
        self.begun = self.clock.monotonic()
        self.told: list[tuple[float, Event]] = []
        self.writes: list[tuple[str, str]] = []
        self.answers: defaultdict[str, list[Outcome]] = defaultdict(list)  # to evictions; the last one is repeated
        self.endless: set[str] = set()  # pods that are deleted and stay
        self.edit_errors: list[ReschedulerError | None] = []
        self.unseen: dict[str, float] = {}  # pods of which the watch tells only later
        self.appointments: list[tuple[float, Callable[[], object]]] = []
        self.on_taint: Callable[[], object] = lambda: None
        # Of State and of Standing
        self.synced = True
        self.missing: tuple[str, ...] = ()
        self.errors: dict[str, ReschedulerError] = {}
        self.leading = True
        self.stopping = False

    # Time

    @property
    def now(self) -> float:
        return self.clock.monotonic() - self.begun

    def pass_time(self, seconds: float) -> None:
        """What is due in between happens at its time."""
        end = self.now + seconds
        while due := [one for one in self.appointments if one[0] <= end]:
            soonest = min(due, key=lambda one: one[0])
            self.appointments.remove(soonest)
            self.frozen.tick(timedelta(seconds=max(0.0, soonest[0] - self.now)))
            soonest[1]()
        self.frozen.tick(timedelta(seconds=max(0.0, end - self.now)))

    def at(self, seconds: float, act: Callable[[], object]) -> None:
        self.appointments.append((seconds, act))

    def stop_at(self, seconds: float) -> None:
        self.at(seconds, lambda: setattr(self, "stopping", True))

    def pause(self, seconds: float) -> None:
        self.pass_time(seconds)

    def beat(self) -> None:
        pass

    # The watched state

    def snapshot(self) -> Snapshot:
        return self.cluster

    # What is written

    def edit_node(self, name: str, uid: str, edit: NodeEdit) -> None:
        if self.edit_errors and (error := self.edit_errors.pop(0)) is not None:
            raise error
        node = self.node(name, uid)
        gone = set(edit.untaint) | {one.key for one in edit.taint}
        taints = (*(one for one in node.spec.taints if one.key not in gone), *edit.taint)
        annotations = {**node.metadata.annotations, **edit.annotate}
        left = {key: text for key, text in annotations.items() if text is not None}
        changed = msgspec.structs.replace(
            node,
            metadata=msgspec.structs.replace(node.metadata, annotations=left),
            spec=msgspec.structs.replace(node.spec, taints=taints),
        )
        self.cluster.upsert("Node", changed)
        self.writes.append(("taint" if edit.taint else "untaint", name))
        if edit.taint:
            self.on_taint()

    def delete_node(self, name: str, uid: str) -> None:
        self.node(name, uid)
        self.cluster.delete("Node", name)
        self.writes.append(("delete", name))

    def pods_on(self, node: str) -> tuple[PodOnNode, ...]:
        found = [PodOnNode(one.namespace, one.name, one.uid, False, False) for one in self._on(node)]
        late = [PodOnNode("default", uid, uid, False, False) for uid, at in self.unseen.items() if self.now < at]
        return (*found, *late)

    def evict(self, namespace: str, name: str, uid: str, grace_seconds: int | None = None) -> Outcome:
        key = f"{namespace}/{name}"
        self.writes.append(("evict", name))
        scripted = self.answers[key]
        answer = (scripted.pop(0) if len(scripted) > 1 else scripted[0]) if scripted else Evicted()
        if isinstance(answer, Evicted | Gone) and key not in self.endless:
            self._moves(self.cluster.pods[key])
        return answer

    def _moves(self, pod: Pod) -> None:
        spot = next(node.name for node in self.cluster.nodes if node.name.startswith("spot"))
        self.cluster.delete("Pod", pod.key)
        again = msgspec.structs.replace(pod, name=f"{pod.name}-again", uid=f"{pod.uid}-again", node_name=spot)
        self.cluster.upsert("Pod", again)

    # What tests ask and do

    def _on(self, node: str) -> list[Pod]:
        return list(self.cluster.pods_on[node].values())

    def node(self, name: str, uid: str | None = None) -> Node:
        row = self.cluster.nodes.row.get(name)
        node = self.cluster.nodes.nodes[row] if row is not None else None
        if node is None or uid not in (None, node.metadata.uid):
            raise NotFound(f"node {name} is not there")
        return node

    def mark(self, name: str, annotation: str, *taints: Taint) -> None:
        """Leave marks on a node as a daemon before us would have."""
        self.edit_node(name, f"uid-{name}", NodeEdit(taint=taints, annotate={ANNOTATION: annotation}))
        self.writes.clear()

    def add(self, *objects: Manifest) -> None:
        for kind, ones in (("Node", "nodes"), ("Pod", "pods")):
            made = snapshot([one for one in objects if one["kind"] == kind])
            found: Any = list(made.nodes) if ones == "nodes" else list(made.pods.values())
            for one in found:
                self.cluster.upsert(kind, one)

    @property
    def marked(self) -> list[str]:
        return [node.name for node in self.cluster.nodes if node.spec.taints or node.metadata.annotations]

    def report(self, event: Event) -> None:
        self.told.append((self.now, event))

    def of(self, kind: type[Any]) -> list[Any]:
        return [event for _, event in self.told if isinstance(event, kind)]

    def times(self, kind: type[Any], node: str = "") -> list[float]:
        return [at for at, event in self.told if isinstance(event, kind) and node in ("", event.node.name)]

    def loop(
        self,
        timing: Timing | None = None,
        *,
        provider: CloudProvider | None = None,
        dry_run: bool = False,
        holder: str = "me",
        soft_taint: bool = False,
    ) -> Loop:
        view = View(self, Policy(budgets_in_steps=True), self.clock, holder, ["CSIDriver"])
        access = Access(self, provider or NoProvider(), self.clock, holder)
        threads = Threads(Inline(), Inline())
        drainer = Drainer(access, view, self, threads, LIMITS, self.report)
        soft = SoftTaint(self, self.report, view.is_on_demand, wanted=soft_taint)
        return Loop(view, Actors(drainer, soft), self, Mode(timing or Timing(), dry_run), self.clock, self.report)


class WorldClock(SystemClock):
    """The frozen clock; to wait is to let time pass."""

    def __init__(self, world: World) -> None:
        self._world = world

    def wait(self, seconds: float, until: threading.Event) -> bool:
        if not until.is_set():
            self._world.pass_time(seconds)
        return until.is_set()


class Inline(Executor):
    """Does what it is given at once, on the caller's thread."""

    def submit(self, fn: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Future[Any]:
        done: Future[Any] = Future()
        done.set_result(fn(*args, **kwargs))
        return done


@contextlib.contextmanager
def world(*objects: Manifest) -> Iterator[World]:
    # Modules are searched for clocks to freeze, which would have the client import all its models.
    with freeze_time(START, ignore=["kubernetes"]) as frozen:
        assert isinstance(frozen, FrozenDateTimeFactory)
        yield World(frozen, objects)


@dataclass
class Pool(NoProvider):
    """A provider that owns every node, and answers as it is told; the last answer is repeated."""

    answers: list[DeleteOutcome | ReschedulerError]
    refusal: Refused | None = None
    orders: list[NodeRef] = ()  # type: ignore[assignment]

    name = "pool"

    def __post_init__(self) -> None:
        self.orders = []

    def group_for(self, node: NodeRef, *, deadline: float) -> NodeGroup | None:
        return NodeGroup("workers", 0, 10)

    def refusals(self, group: str, nodes: Sequence[NodeRef], *, deadline: float) -> Mapping[str, Refused]:
        return {node.name: self.refusal for node in nodes} if self.refusal else {}

    def delete_nodes(self, group: str, nodes: Sequence[NodeRef], *, deadline: float) -> Mapping[str, DeleteOutcome]:
        self.orders += [replace(node, labels={}) for node in nodes]
        answer = self.answers.pop(0) if len(self.answers) > 1 else self.answers[0]
        if isinstance(answer, ReschedulerError):
            raise answer
        return {node.name: answer for node in nodes}
