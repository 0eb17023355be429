"""The room that pending pods take, and CapacityBuffers keep: plans place them before the pods that they move."""

import contextlib
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Final

import numpy as np
from msgspec.structs import replace

from predicates.filters import Filters
from predicates.local_results import Targets
from predicates.nodes import CPU, MEMORY
from predicates.objects import (
    CapacityBuffer,
    ObjectMeta,
    Pod,
    PodClass,
    PodObject,
    PodTemplate,
    PodTemplateObject,
    ReplicaSet,
    StatefulSet,
)
from predicates.plugins.pods import ties_of
from predicates.pod_classes import pod_amounts, pod_class
from predicates.quantity import QuantityError
from predicates.scheduler import DEFAULT_NAME
from predicates.snapshot import Snapshot, Trial
from predicates.texts import LONGEST_NAME, shown
from predicates.work import NamespaceWork
from rescheduler.planning.controllers import controller_of
from rescheduler.planning.forms import instant
from rescheduler.planning.outcome import NO_ROOM_TAKEN, Blocker, Reason, TakenRoom
from rescheduler.planning.policy import Policy
from rescheduler.planning.rules.pod_traits import is_expendable

#: The scheduler binds a pod that fits in milliseconds. One that is older, and fits by the rules, has been left pending.
LEFT_PENDING: Final = timedelta(minutes=1)

#: The units of work for a pending pod, for each attempt to place it, and for each of the other pods that it depends on.
_POD: Final = 5
_ATTEMPT: Final = 20
_TIE: Final = 12

#: The units of work for a class, and for each value in its spec that is compared with nodes.
_CLASS: Final = 140
_VALUE: Final = 2


@dataclass(frozen=True, slots=True)
class QueuedClass:
    """The class of a pending pod, and the node on which preemption makes room for it, or ""."""

    cls: PodClass
    nominated: str = ""
    buffer: str = ""  #: the CapacityBuffer that keeps room for such a pod, as ``namespace/name``; "" for a pod


def queue(snapshot: Snapshot, policy: Policy, ignored: Collection[str]) -> list[Pod]:
    """Return the pending pods that may take room, in the order of the scheduler's queue.

    Higher priorities come first, among them nominated pods, then older ones. Left out are pods that no known scheduler
    schedules, those with scheduling gates or devices, expendable ones, those of the namespaces *ignored*, unless room
    is being made for them, and those of a namespace that are too many to judge.
    """
    pods = snapshot.pods_on.get("")
    if not pods:
        return []
    schedulers = {DEFAULT_NAME, *policy.scheduler_names, *policy.profiles}
    work = NamespaceWork(len(snapshot.nodes))
    accepted: dict[PodClass, bool] = {}
    queued = []
    too_many: set[str] = set()
    for pod in pods.values():
        if pod.namespace in too_many or pod.deletion_timestamp is not None:
            continue
        if (accepts := accepted.get(pod.cls)) is None:
            if not work.take(pod.namespace, _class_units(pod.cls)):
                too_many.add(pod.namespace)
                continue
            accepts = accepted[pod.cls] = _may_be_scheduled(pod.cls, policy, schedulers)
        if accepts and not _is_ignored(pod, ignored) and work.take(pod.namespace, _POD):
            queued.append(pod)
    return sorted(queued, key=_position)


def _class_units(cls: PodClass) -> int:
    """Return the units of work to judge each node by itself for pods of the class."""
    spec = cls.spec
    values = len(spec.tolerations) + len(spec.node_selector) + 4 * (len(cls.claims) + len(cls.ports))
    affinity = spec.affinity.node_affinity if spec.affinity is not None else None
    for term in affinity.required.node_selector_terms if affinity is not None and affinity.required is not None else ():
        values += sum(1 + len(each.values) for each in (*term.match_expressions, *term.match_fields))
    return _CLASS + _VALUE * values


def _may_be_scheduled(cls: PodClass, policy: Policy, schedulers: Collection[str]) -> bool:
    expendable = is_expendable(cls, policy.expendable_pods_priority_cutoff)
    return not expendable and _is_schedulable(cls, policy, schedulers)


def _is_schedulable(cls: PodClass, policy: Policy, schedulers: Collection[str]) -> bool:
    name = cls.spec.scheduler_name or DEFAULT_NAME
    return not (
        name not in schedulers
        or cls.spec.scheduling_gates
        or cls.spec.resource_claims
        or any(plugin.concerns(cls, name) for plugin in policy.unknown_plugins)
    )


def _is_ignored(pod: Pod, ignored: Collection[str]) -> bool:
    return pod.namespace in ignored and not pod.nominated_node_name


def _position(pod: Pod) -> tuple[int, bool, str, str]:
    return -_priority(pod.cls), not pod.nominated_node_name, pod.creation_timestamp or "", pod.key


def _priority(cls: PodClass) -> int:
    return cls.spec.priority or 0


def classes_of(pods: Iterable[Pod]) -> tuple[QueuedClass, ...]:
    """Return what decides where *pods* go. It is unchanged while each pod is replaced by an equal one."""
    return tuple(QueuedClass(pod.cls, pod.nominated_node_name) for pod in pods)


@dataclass(frozen=True, slots=True)
class PendingRoom:
    """Where the pending pods go, as classes and rows, in the order of the scheduler's queue."""

    placements: tuple[tuple[PodClass, int], ...] = ()
    taken: TakenRoom = NO_ROOM_TAKEN  #: of the spot nodes
    pods_on: Mapping[int, int] = field(default_factory=dict)  #: numbers of the pods, by row
    buffers_on: Mapping[int, str] = field(default_factory=dict)  #: by row: one of the CapacityBuffers with room there
    waiting: frozenset[PodClass] = frozenset()  #: classes of pods that have no place now

    @contextmanager
    def trial(self, snapshot: Snapshot) -> Iterator[Trial]:
        """Start a trial of *snapshot* in which the pods have taken their room. No other trial may be open."""
        with snapshot.trial() as trial:
            if self.placements:
                for cls, row in self.placements:
                    trial.place(cls, row)
                trial.keep()
            yield trial

    @contextmanager
    def trial_if_needed(self, snapshot: Snapshot) -> Iterator[Callable[[], None]]:
        """Yield a function that starts such a trial on its first call: a round that reuses all plans needs none."""
        begun = not self.placements
        with ExitStack() as stack:

            def begin() -> None:
                nonlocal begun
                if not begun:
                    begun = True
                    stack.enter_context(self.trial(snapshot))

            yield begin

    def blockers(self, row: int, targets: str) -> Iterator[Blocker]:
        """Yield blockers of draining the node in *row* if pending pods go there, or a CapacityBuffer has room there.

        They fit none of the *targets*, which are named like that, and no node that is drained later.
        """
        if count := self.pods_on.get(row, 0):
            pods = "a pending pod goes" if count == 1 else f"{count} pending pods go"
            yield Blocker(Reason.PENDING_POD, f"{pods} there: no {targets} accepts {'it' if count == 1 else 'them'}")
        if buffer := self.buffers_on.get(row):
            text = f"CapacityBuffer {buffer} keeps room free there, and no {targets} has room for it"
            yield Blocker(Reason.CAPACITY_BUFFER, f"{text}: an autoscaler would add a node")

    @property
    def classes(self) -> frozenset[PodClass]:
        """Return the classes of the pods."""
        return frozenset(cls for cls, _ in self.placements)


def pending_room(
    queued: Sequence[QueuedClass], snapshot: Snapshot, filters: Filters, spot: Targets, others: Sequence[int]
) -> PendingRoom:
    """Return where the *queued* pods go: to the first of the *spot* nodes that accepts them, else of the *others*.

    Spot nodes come first, so that no plan relies on the room that the scheduler may give to these pods. A nominated pod
    goes to its node even if it does not fit yet: the scheduler keeps this room from pods of the same or a lower
    priority, while others are terminated for it.
    """
    if not queued:
        return PendingRoom()
    filters.refresh({pod.cls for pod in queued})
    with snapshot.trial() as trial:
        placed = _Queue(snapshot, filters, trial, (spot, Targets(others))).run(queued)
    return PendingRoom(
        placements=tuple((pod.cls, row) for pod, row in placed),
        taken=_taken(placed, snapshot, spot),
        pods_on=Counter(row for pod, row in placed if not pod.buffer),
        buffers_on={row: pod.buffer for pod, row in placed if pod.buffer},
        waiting=frozenset(pod.cls for pod in Counter(queued) - Counter(pod for pod, _ in placed) if not pod.buffer),
    )


class _Queue:
    """The scheduler's queue, worked off in *trial*."""

    def __init__(self, snapshot: Snapshot, filters: Filters, trial: Trial, targets: Sequence[Targets]) -> None:
        self._snapshot = snapshot
        self._filters = filters
        self._trial = trial
        self._targets = targets
        self._work = NamespaceWork(len(snapshot.nodes))
        self._full: set[PodClass] = set()  #: classes that fit nowhere, whatever else is placed, or are not judged

    def run(self, queued: Sequence[QueuedClass]) -> list[tuple[QueuedClass, int]]:
        """Place the pods. Pods that do not fit are tried again after the others: they may depend on one of them.

        Those of a namespace that are too many to judge are left out.
        """
        placed: list[tuple[QueuedClass, int]] = []
        waiting: Sequence[QueuedClass] = queued
        while waiting:
            left = []
            for pod in waiting:
                if (row := self._row(pod)) is not None:
                    self._trial.place(pod.cls, row)
                    placed.append((pod, row))
                elif pod.cls not in self._full:
                    left.append(pod)
            if len(left) == len(waiting):
                break
            waiting = left
        return placed

    def _row(self, pod: QueuedClass) -> int | None:
        if (nominated := self._snapshot.nodes.row.get(pod.nominated)) is not None:
            return nominated
        if pod.cls in self._full:
            return None
        if not self._work.take(pod.cls.namespace, self._units(pod.cls)):
            self._full.add(pod.cls)
            return None
        for targets in self._targets:
            if len(targets.rows) and (row := self._filters.first(pod.cls, targets)) is not None:
                return row
        if not self._filters.depends_on_cluster(pod.cls):
            self._full.add(pod.cls)
        return None

    def _units(self, cls: PodClass) -> int:
        """Return the units of work of an attempt to place a pod of the class."""
        ties = ties_of(cls, self._snapshot) if self._filters.depends_on_cluster(cls) else None
        return _ATTEMPT + _TIE * (ties.number if ties is not None else 0)


def _taken(placed: Iterable[tuple[QueuedClass, int]], snapshot: Snapshot, spot: Targets) -> TakenRoom:
    on_spot = [pod for pod, row in placed if row in spot.rows_set]
    if not on_spot:
        return NO_ROOM_TAKEN
    total = np.sum([snapshot.vector(pod.cls.requests) for pod in on_spot], axis=0)
    buffered = sum(bool(pod.buffer) for pod in on_spot)
    return TakenRoom(len(on_spot) - buffered, int(total[CPU]), int(total[MEMORY]), buffered)


# CapacityBuffers, whose room Cluster Autoscaler and Karpenter keep free: they simulate pods of its template.

#: The strategy of buffers whose room is on nodes that run. Other strategies keep nodes that are stopped.
ACTIVE_CAPACITY: Final = "buffer.x-k8s.io/active-capacity"

#: The units of work to read the template of a buffer.
_BUFFER: Final = 1_000

#: Each pod of a buffer is placed, however many there are.
_BUFFERED: Final = 100

#: Every pod takes the room of a buffer: it is what the buffer is for.
_LOWEST_PRIORITY: Final = -(2**31)


def buffered(snapshot: Snapshot, policy: Policy) -> tuple[QueuedClass, ...]:
    """Return the pods for which CapacityBuffers keep room, to be placed after all pending pods.

    Only buffers count that their controller has accepted (condition ``ReadyForProvisioning``) and whose pod template is
    known.
    """
    schedulers = {DEFAULT_NAME, *policy.scheduler_names, *policy.profiles}
    work = NamespaceWork(len(snapshot.nodes))
    pods: list[QueuedClass] = []
    for key, buffer in sorted(snapshot.of("CapacityBuffer").items()):
        assert isinstance(buffer, CapacityBuffer)
        namespace = buffer.metadata.namespace
        if not keeps_room(buffer) or not work.take(namespace, _BUFFER):
            continue
        cls = _buffer_class(buffer, snapshot)
        if cls is not None and _is_schedulable(cls, policy, schedulers):
            number = work.take_many(namespace, _BUFFERED, buffer.status.replicas)
            pods += [QueuedClass(cls, buffer=shown(key, 2 * LONGEST_NAME))] * number
    return tuple(pods)


def keeps_room(buffer: CapacityBuffer) -> bool:
    """Return whether an autoscaler keeps room of running nodes for *buffer*."""
    strategy = buffer.status.provisioning_strategy or buffer.spec.provisioning_strategy or ACTIVE_CAPACITY
    ready = any(each.type == "ReadyForProvisioning" and each.status == "True" for each in buffer.status.conditions)
    return strategy == ACTIVE_CAPACITY and ready and buffer.status.replicas > 0


def _buffer_class(buffer: CapacityBuffer, snapshot: Snapshot) -> PodClass | None:
    """Return the class of the pods for which *buffer* keeps room; None if its template is not known or not valid."""
    template = buffer.template or _template_of(buffer, snapshot)
    if template is None or not template.spec.containers:
        return None
    meta = ObjectMeta(namespace=buffer.metadata.namespace, labels=template.metadata.labels)
    spec = replace(template.spec, node_name="", priority=_LOWEST_PRIORITY)
    created = PodObject(metadata=meta, spec=spec)
    with contextlib.suppress(QuantityError):
        return pod_class(created, pod_amounts(created))
    return None


def _template_of(buffer: CapacityBuffer, snapshot: Snapshot) -> PodTemplate | None:
    """Return the template that *buffer* refers to, from the other objects of a file."""
    namespace = buffer.metadata.namespace
    if (ref := buffer.status.pod_template_ref or buffer.spec.pod_template_ref) is not None:
        found = snapshot.of("PodTemplate").get(f"{namespace}/{ref.name}")
        return found.template if isinstance(found, PodTemplateObject) else None
    if (scaled := buffer.spec.scalable_ref) is None:
        return None
    if scaled.kind == "Deployment":
        sets = _replica_sets(scaled.name, namespace, snapshot)
        newest = max(sets, key=lambda each: each.metadata.creation_timestamp or "", default=None)
        return newest.spec.template if newest is not None else None
    key = f"{namespace}/{scaled.name}"
    found = snapshot.of(scaled.kind).get(key) if scaled.kind in ("ReplicaSet", "StatefulSet") else None
    return found.spec.template if isinstance(found, ReplicaSet | StatefulSet) else None


def _replica_sets(deployment: str, namespace: str, snapshot: Snapshot) -> Iterator[ReplicaSet]:
    """Yield the ReplicaSets of a Deployment."""
    for each in snapshot.of("ReplicaSet").values():
        if isinstance(each, ReplicaSet) and each.metadata.namespace == namespace:
            owners = (owner for owner in each.metadata.owner_references if owner.controller)
            if any((owner.kind, owner.name) == ("Deployment", deployment) for owner in owners):
                yield each


def without_due(queued: Iterable[Pod], due: Iterable[Pod]) -> list[Pod]:
    """Return the *queued* pods without the replacement pods of *due*, whose places are planned as those of *due*."""
    owed = Counter((pod.namespace, controller_of(pod)) for pod in due)
    left = []
    for pod in queued:
        controller = pod.namespace, controller_of(pod)
        if owed[controller] > 0:
            owed[controller] -= 1
        else:
            left.append(pod)
    return left


def is_left_pending(pod: Pod, now: datetime) -> bool:
    """Return whether a pod that fits by the scheduler's rules should have been bound by *now*.

    Something that is not known here keeps it pending. It could take room in every plan, for ever.
    """
    created = instant(pod.creation_timestamp)
    return not pod.nominated_node_name and created is not None and now - created >= LEFT_PENDING
