"""The watched cluster: a Snapshot that is updated each time it is requested."""

import logging
import threading
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Final

from predicates.objects import Node, Object, Pod, PodClass, Unreadable
from predicates.scheduler import Scheduler
from predicates.snapshot import Snapshot, key_of
from predicates.wire import Interner
from rescheduler.clock import Clock
from rescheduler.errors import Forbidden, NotFound, ReschedulerError
from rescheduler.kube.client import Client
from rescheduler.kube.codec import JsonCodec, WatchedChange
from rescheduler.kube.lister import PAGE_SIZE, RESOURCES, Lister, Listing, Resource, list_patiently
from rescheduler.kube.reflector import WATCH_SECONDS, Reflector

# The queue of changes from the reflectors' threads to the loop's thread.

#: Minimum interval between two log lines about kinds that cannot be read.
COMPLAINT_SECONDS: Final = 15.0

#: The largest number of deleted nodes whose last states are kept until they are asked for.
_DEPARTED: Final = 1000

#: The largest number of preempted and refused pods that are kept until the changes are taken.
_NOTED: Final = 1000

log = logging.getLogger(__name__)


@dataclass(slots=True)
class Pending:
    """The pending changes of one kind, at most one per object."""

    replaced: bool = False  #: objects not in *latest* are gone
    latest: dict[str, Object | None] = field(default_factory=dict)  #: None: gone
    changed: set[str] = field(default_factory=set)  #: keys of *latest* that changed after the list


@dataclass(frozen=True, slots=True)
class Taken:
    """The pending changes and the undecodable objects at one moment."""

    pending: Mapping[str, Pending]
    unreadable: tuple[Unreadable, ...]
    #: Pods that the scheduler began to preempt, or a kubelet refused, since the last call, also gone ones.
    noted: tuple[Pod, ...] = ()
    versions: Mapping[str, str] = field(default_factory=dict)  #: the resource version of the last change, by kind


class Inbox:
    """Collects changes; :meth:`take` returns and clears them. Thread-safe."""

    def __init__(self, required: frozenset[str], clock: Clock) -> None:
        """Create the inbox. *required* kinds must be listed, or known as not served, before decisions are made."""
        self._clock = clock
        self._lock = threading.Lock()
        self._pending: dict[str, Pending] = {}
        self._missing = set(required)
        self._errors: dict[str, ReschedulerError] = {}
        self._unreadable: dict[str, dict[str, Unreadable]] = {}
        self._departed: deque[Node] = deque(maxlen=_DEPARTED)
        self._noted: deque[Pod] = deque(maxlen=_NOTED)
        self._versions: dict[str, str] = {}
        self._complained: float | None = None
        self.complete = threading.Event()  #: every required kind was listed

    @property
    def missing(self) -> tuple[str, ...]:
        """The required kinds that were not listed yet."""
        with self._lock:
            return tuple(sorted(self._missing))

    @property
    def errors(self) -> Mapping[str, ReschedulerError]:
        """The current read errors, by kind."""
        with self._lock:
            return dict(self._errors)

    @property
    def unreadable(self) -> Mapping[tuple[str, str], Unreadable]:
        """The objects that cannot be decoded, by kind and key."""
        with self._lock:
            return self._undecoded()

    def _undecoded(self) -> Mapping[tuple[str, str], Unreadable]:
        return {(item.kind, key): item for by_key in self._unreadable.values() for key, item in by_key.items()}

    def listed(self, kind: str, listing: Listing) -> None:
        for unreadable in listing.unreadable.values():
            _left_out(unreadable)
        with self._lock:
            self._unreadable[kind] = dict(listing.unreadable)
            self._pending[kind] = Pending(replaced=True, latest={key_of(item): item for item in listing.objects})
            self._versions[kind] = listing.resource_version
            self._missing.discard(kind)
            if not self._missing:
                self.complete.set()

    def changed(self, kind: str, change: WatchedChange) -> None:
        with self._lock:
            known = self._unreadable.setdefault(kind, {})
            new = change.key not in known
            if change.unreadable is not None:
                known[change.key] = change.unreadable
            else:
                known.pop(change.key, None)
            pending = self._pending.setdefault(kind, Pending())
            pending.latest[change.key] = change.object
            pending.changed.add(change.key)
            self._versions[kind] = change.resource_version
            if isinstance(change.last, Node):
                self._departed.append(change.last)
            if isinstance(change.object, Pod) and change.object.noted:
                self._noted.append(change.object)
        if new and change.unreadable is not None:
            _left_out(change.unreadable)

    def failing(self, kind: str, error: ReschedulerError | None) -> None:
        """Record the read error of a kind.

        One log line covers all kinds, which usually fail for the same reason. Each missing permission gets its own
        line, so that all of them are reported at once.
        """
        with self._lock:
            if error is None:
                if self._errors.pop(kind, None) is not None and not self._errors:
                    log.info("the cluster can be read again")
                return
            of_one_kind = isinstance(error, Forbidden) and str(self._errors.get(kind)) != str(error)
            self._errors[kind] = error
            now = self._clock.monotonic()
            if not of_one_kind and self._complained is not None and now - self._complained < COMPLAINT_SECONDS:
                return
            self._complained = now
            kinds = kind if of_one_kind else ", ".join(sorted(self._errors))
        log.warning("cannot read %s, retrying: %s", kinds, error)

    def take_departed(self) -> tuple[Node, ...]:
        """Return the last states of the nodes that were deleted since the last call."""
        with self._lock:
            departed = tuple(self._departed)
            self._departed.clear()
            return departed

    @property
    def idle(self) -> bool:
        """Whether there are no changes to take. An update that arrives meanwhile is taken by the next call."""
        return not self._pending and not self._noted

    def take(self) -> Taken:
        """Return the changes since the last call by kind, and the objects that cannot be decoded at that moment."""
        with self._lock:
            pending, self._pending = self._pending, {}
            noted = tuple(self._noted)
            self._noted.clear()
            return Taken(pending, tuple(self._undecoded().values()), noted, dict(self._versions))


def _left_out(unreadable: Unreadable) -> None:
    log.error("skipping an object that cannot be decoded: %s", unreadable.why)


#: Minimum number of pod classes before unused ones are dropped; the limit is at least twice the number in use.
_CLASSES: Final = 64


class ClusterState:
    """The reflectors and the snapshot. Only one thread may call :meth:`snapshot`; all other methods are thread-safe."""

    def __init__(
        self,
        client: Client,
        clock: Clock,
        *,
        resources: Sequence[Resource] = RESOURCES,
        page_size: int = PAGE_SIZE,
        scheduler: Callable[[], Scheduler] = Scheduler,
        watch_seconds: float = WATCH_SECONDS,
    ) -> None:
        self._clock = clock
        self._resources = resources
        self._scheduler = scheduler
        self._snapshot = Snapshot()
        self._rules = self._snapshot.scheduler
        self._inbox = Inbox(frozenset(resource.kind for resource in resources), clock)
        self._classes = _Classes()
        self._ready = _ReadyTimes(self._snapshot.pods, clock)
        self._reflectors = [
            Reflector(
                resource,
                client,
                JsonCodec(resource.kind, self._classes.interner),
                self,
                clock,
                page_size=page_size,
                watch_seconds=watch_seconds,
            )
            for resource in resources
        ]

    def start(self) -> None:
        """Start watching the cluster, with one thread per kind."""
        for reflector in self._reflectors:
            reflector.start()

    def stop(self, seconds: float = 5.0) -> None:
        """Stop the threads, and wait for them for at most *seconds*."""
        for reflector in self._reflectors:
            reflector.stop()
        deadline = self._clock.monotonic() + seconds
        for reflector in self._reflectors:
            reflector.join(max(0.0, deadline - self._clock.monotonic()))

    @property
    def synced(self) -> bool:
        """Whether every kind was listed once, or is not served."""
        return self._inbox.complete.is_set()

    @property
    def missing(self) -> tuple[str, ...]:
        """The kinds that were not listed yet."""
        return self._inbox.missing

    def ages(self) -> Mapping[str, float]:
        """Return the seconds since the last event, bookmark or list of each kind.

        Kinds that are not served or were not listed yet are left out.
        """
        ages = (
            (resource.kind, reflector.age)
            for resource, reflector in zip(self._resources, self._reflectors, strict=True)
        )
        return {kind: age for kind, age in ages if age is not None}

    @property
    def errors(self) -> Mapping[str, ReschedulerError]:
        """The current read errors, by kind. The snapshot keeps the last known objects of these kinds."""
        return self._inbox.errors

    @property
    def unreadable(self) -> Mapping[tuple[str, str], Unreadable]:
        """The objects that cannot be decoded at present, by kind and key. A snapshot has its own list."""
        return self._inbox.unreadable

    def snapshot(self) -> Snapshot:
        """Update and return the snapshot. It is the same object each time and valid until the next call.

        The cost depends on the number of changes since the last call.
        """
        scheduler = self._scheduler()
        if scheduler is not self._rules:
            self._rules = scheduler
            if scheduler != self._snapshot.scheduler:
                self._snapshot.use(scheduler)
        if self._inbox.idle:
            return self._snapshot
        taken = self._inbox.take()
        self._ready.note(taken.pending.get("Pod"))
        for kind in (resource.kind for resource in self._resources):
            if (pending := taken.pending.get(kind)) is None:
                continue
            if pending.replaced:
                self._snapshot.replace(kind, (item for item in pending.latest.values() if item is not None))
                continue
            for key, item in pending.latest.items():
                if item is None:
                    self._snapshot.delete(kind, key)
                else:
                    self._snapshot.upsert(kind, item)
        for pod in taken.noted:
            self._snapshot.note(pod)
        self._snapshot.unreadable, self._snapshot.watched_to = taken.unreadable, taken.versions
        self._classes.watch(self._snapshot)
        return self._snapshot

    def take_departed(self) -> tuple[Node, ...]:
        """Return the last states of the nodes that a watch reported as deleted since the last call."""
        return self._inbox.take_departed()

    def became_ready(self, pod: Pod) -> float | None:
        """Return when *pod* was seen to become Ready, in monotonic seconds; None if it was Ready in the first list.

        The watch may not have reported the present state of *pod* yet: then it is seen now.
        """
        return self._ready.of(pod)

    # Called by the reflectors

    def listed(self, kind: str, listing: Listing) -> None:
        self._inbox.listed(kind, listing)

    def changed(self, kind: str, change: WatchedChange) -> None:
        if kind == "Pod":
            self._classes.tidy()
        self._inbox.changed(kind, change)

    def failing(self, kind: str, error: ReschedulerError | None) -> None:
        self._inbox.failing(kind, error)


class _ReadyTimes:
    """When the watch showed that pods became Ready, or that a container of a Ready pod was restarted.

    *pods* are those of the snapshot: each call of :meth:`note` precedes their change. :meth:`of` is thread-safe.
    """

    def __init__(self, pods: Mapping[str, Pod], clock: Clock) -> None:
        self._pods = pods
        self._clock = clock
        self._times: dict[str, float] = {}  # by key; without pods that were Ready in the first list
        self._listed = False

    def note(self, pending: Pending | None) -> None:
        """Note the *pending* changes of pods."""
        if pending is None:
            return
        if pending.replaced:
            self._times = {key: time for key, time in self._times.items() if key in pending.latest}
        now = self._clock.monotonic()
        for key in pending.latest if self._listed else pending.changed:
            pod = pending.latest[key]
            if not isinstance(pod, Pod) or not pod.ready:
                self._times.pop(key, None)
            elif not self._is_known(pod):
                self._times[key] = now
        self._listed |= pending.replaced

    def of(self, pod: Pod) -> float | None:
        if not pod.ready:
            return None
        return self._times.get(pod.key) if self._is_known(pod) else self._clock.monotonic()

    def _is_known(self, pod: Pod) -> bool:
        known = self._pods.get(pod.key)
        return known is not None and _readiness(known) == _readiness(pod)


def _readiness(pod: Pod) -> tuple[str, bool, str | None]:
    return pod.uid, pod.ready, pod.ready_since


class _Classes:
    """The interner of pod classes. Unused classes are dropped, so that it does not grow with every Job.

    The loop's thread can determine which classes are in use, but only the pods' reflector may change the interner. If a
    class is dropped while a pod of that class is being added, the class is created again, and two equal classes exist
    for a while.
    """

    def __init__(self) -> None:
        self.interner = Interner()
        self._crowded = _CLASSES
        self._used: set[PodClass] | None = None

    def watch(self, snapshot: Snapshot) -> None:
        """Find the classes in use if there are too many. Called by the loop's thread."""
        if len(self.interner) > self._crowded and self._used is None:
            used = snapshot.compact()
            self._crowded = max(_CLASSES, 2 * len(used))
            self._used = used

    def tidy(self) -> None:
        """Drop the unused classes that :meth:`watch` has found. Called by the thread of the pods' reflector."""
        if (used := self._used) is not None:
            self.interner.forget(used)
            self._used = None


def read_cluster(
    client: Client,
    clock: Clock,
    *,
    resources: Sequence[Resource] = RESOURCES,
    progress: Callable[[str, int], None] | None = None,
    warn: Callable[[str], None] | None = None,
    into: Snapshot | None = None,
    scheduler: Scheduler | None = None,
) -> Snapshot:
    """Read the cluster once, for commands that do not watch it. With *into*, add to that snapshot.

    *progress* receives a resource name and the number of objects so far. Optional kinds that are not served are left
    out. Optional kinds that are forbidden are left out if *warn* is given, which receives a message. Raises the errors
    of requests, including Forbidden for all other kinds.
    """
    snapshot, interner = into or Snapshot(scheduler), Interner()
    for resource in resources:
        lister = Lister(resource, client, JsonCodec(resource.kind, interner), clock)
        report_count = (lambda count, plural=resource.plural: progress(plural, count)) if progress else None
        listing = read_optional(resource, partial(list_patiently, lister, clock, report_count), warn)
        if listing is None:
            continue
        snapshot.replace(resource.kind, listing.objects)
        snapshot.unreadable += tuple(listing.unreadable.values())
    return snapshot


def read_optional(
    resource: Resource, listing: Callable[[], Listing], warn: Callable[[str], None] | None
) -> Listing | None:
    """Return the *listing* of *resource*, or None if it is optional and cannot be read; see :func:`read_cluster`."""
    try:
        return listing()
    except NotFound:
        if not resource.optional:
            raise
    except Forbidden as error:
        if not resource.optional or warn is None:
            raise
        warn(f"{error}; planning assumes that there are no {resource.plural}")
    return None
