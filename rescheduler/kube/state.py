"""The cluster as the loop sees it: one Snapshot, brought up to date each time it is asked for."""

from collections.abc import Callable, Mapping, Sequence
from typing import Final

from predicates.objects import PodClass
from predicates.snapshot import Snapshot
from predicates.unreadable import Unreadable
from predicates.wire import Interner
from rescheduler.clock import Clock
from rescheduler.errors import Forbidden, NotFound, ReschedulerError
from rescheduler.kube.client import Client
from rescheduler.kube.codec import Change
from rescheduler.kube.codecs import codecs
from rescheduler.kube.inbox import Inbox
from rescheduler.kube.lister import PAGE_SIZE, Lister, Listing
from rescheduler.kube.reflector import Reflector
from rescheduler.kube.resources import RESOURCES, Resource
from rescheduler.settings import JSON

#: Classes of pods that may pile up before those without a pod are dropped; at least twice as many as are in use.
_CLASSES: Final = 256


class ClusterState:
    """Reflectors on one side, the loop on the other. :meth:`snapshot` is for one thread, the rest for any."""

    def __init__(
        self,
        client: Client,
        clock: Clock,
        content_type: str = JSON,
        *,
        resources: Sequence[Resource] = RESOURCES,
        page_size: int = PAGE_SIZE,
    ) -> None:
        self._clock = clock
        self._resources = resources
        self._snapshot = Snapshot()
        self._inbox = Inbox(frozenset(one.kind for one in resources), clock)
        self._classes = _Classes()
        self._reflectors = [
            Reflector(
                one,
                client,
                codecs(one.kind, content_type, self._classes.interner),
                self,
                clock,
                page_size=page_size,
            )
            for one in resources
        ]

    def start(self) -> None:
        """Start to read the cluster, one thread a kind."""
        for one in self._reflectors:
            one.start()

    def stop(self, seconds: float = 5.0) -> None:
        """Stop reading; waits at most *seconds* for the threads, which hold nothing that needs an end."""
        for one in self._reflectors:
            one.stop()
        deadline = self._clock.monotonic() + seconds
        for one in self._reflectors:
            one.join(max(0.0, deadline - self._clock.monotonic()))

    @property
    def synced(self) -> bool:
        """Whether every kind was read once, or is not served."""
        return self._inbox.complete.is_set()

    @property
    def missing(self) -> tuple[str, ...]:
        """Kinds that were not read yet."""
        return self._inbox.missing

    def ages(self) -> Mapping[str, float]:
        """By kind, seconds since an event, a bookmark or a list last came in.

        Kinds that are not served, or were not read yet, are left out.
        """
        ages = ((one.kind, reflector.age) for one, reflector in zip(self._resources, self._reflectors, strict=True))
        return {kind: age for kind, age in ages if age is not None}

    @property
    def errors(self) -> Mapping[str, ReschedulerError]:
        """Why kinds cannot be read at present. What was read before stays in the snapshot, and ages."""
        return self._inbox.errors

    @property
    def unreadable(self) -> Mapping[tuple[str, str], Unreadable]:
        """Objects, by kind and key, that cannot be decoded at this moment; a snapshot has those of its own moment."""
        return self._inbox.unreadable

    def snapshot(self) -> Snapshot:
        """The cluster at this moment: the same object each time, valid until the next call.

        Costs what changed since the last call.
        """
        taken = self._inbox.take()
        for kind in (one.kind for one in self._resources):
            if (pending := taken.pending.get(kind)) is None:
                continue
            if pending.replaced:
                self._snapshot.replace(kind, (one for one in pending.latest.values() if one is not None))
                continue
            for key, one in pending.latest.items():
                if one is None:
                    self._snapshot.delete(kind, key)
                else:
                    self._snapshot.upsert(kind, one)
        self._snapshot.unreadable = taken.unreadable
        self._classes.watch(self._snapshot)
        return self._snapshot

    # What the reflectors call

    def listed(self, kind: str, listing: Listing) -> None:
        self._inbox.listed(kind, listing)

    def changed(self, kind: str, change: Change) -> None:
        if kind == "Pod":
            self._classes.tidy()
        self._inbox.changed(kind, change)

    def failing(self, kind: str, error: ReschedulerError | None) -> None:
        self._inbox.failing(kind, error)


class _Classes:
    """The interner of pod classes, kept from growing with every Job that ever ran.

    The loop's thread knows which classes are in use; only the pods' reflector may touch the interner. A class
    that is dropped although a pod of it is on its way is made a second time, which costs a little sharing.
    """

    def __init__(self) -> None:
        self.interner = Interner()
        self._crowded = _CLASSES
        self._used: set[PodClass] | None = None

    def watch(self, snapshot: Snapshot) -> None:
        """Called by the loop's thread."""
        if len(self.interner) > self._crowded and self._used is None:
            used = snapshot.compact()
            self._crowded = max(_CLASSES, 2 * len(used))
            self._used = used

    def tidy(self) -> None:
        """Called by the thread of the pods' reflector."""
        if (used := self._used) is not None:
            self.interner.forget(used)
            self._used = None


def read_cluster(
    client: Client,
    clock: Clock,
    content_type: str = JSON,
    *,
    resources: Sequence[Resource] = RESOURCES,
    progress: Callable[[str, int], None] | None = None,
    warn: Callable[[str], None] | None = None,
) -> Snapshot:
    """Read the cluster once, for commands that answer and end.

    *progress* is told a kind's plural and the number read so far. Optional kinds that are not served are left out;
    those that are not permitted, too, and *warn* is told in one line what that assumes. Raises what a request raises
    (Forbidden for any other kind, and for all of them without *warn*).
    """
    snapshot, interner = Snapshot(), Interner()
    for one in resources:
        lister = Lister(one, client, codecs(one.kind, content_type, interner), clock)
        seen = (lambda count, plural=one.plural: progress(plural, count)) if progress else None
        try:
            listing = lister.list(seen)
        except NotFound:
            if not one.optional:
                raise
            continue
        except Forbidden as error:
            if not one.optional or warn is None:
                raise
            warn(f"{error}; planning assumes that there are no {one.plural}")
            continue
        snapshot.replace(one.kind, listing.objects)
        snapshot.unreadable += tuple(listing.unreadable.values())
    return snapshot
