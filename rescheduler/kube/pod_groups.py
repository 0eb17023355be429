"""Read the objects of groups of pods, such as PodGroups, where pods name one.

The API servers of most clusters do not serve them, and those that do serve them in different versions. So they are
neither watched nor listed unless a pod belongs to a group.
"""

import logging
from collections.abc import Callable, Collection, Iterator, Mapping
from typing import Final, cast

from msgspec.structs import replace

from predicates.objects import LeaderWorkerSet, PodGroup, Wire
from predicates.snapshot import Snapshot, key_of
from predicates.wire import Interner
from rescheduler.clock import Clock
from rescheduler.errors import NotFound, ReschedulerError
from rescheduler.kube.client import Client
from rescheduler.kube.codec import JsonCodec
from rescheduler.kube.lister import Resource, read_all
from rescheduler.kube.responses import decoded
from rescheduler.planning.rules.gangs import (
    COSCHEDULING,
    KUBERNETES,
    LEADER_WORKER_SETS,
    OLD_COSCHEDULING,
    VOLCANO,
    api_groups,
)

#: Seconds until the groups are read again.
REREAD_SECONDS: Final = 60.0

#: The kind and the resource in each API group.
KINDS: Final[Mapping[str, tuple[str, str]]] = {
    KUBERNETES: ("PodGroup", "podgroups"),
    COSCHEDULING: ("PodGroup", "podgroups"),
    OLD_COSCHEDULING: ("PodGroup", "podgroups"),
    VOLCANO: ("PodGroup", "podgroups"),
    LEADER_WORKER_SETS: ("LeaderWorkerSet", "leaderworkersets"),
}

log = logging.getLogger(__name__)


class _Version(Wire, frozen=True):
    group_version: str = ""


class _Group(Wire, frozen=True):
    versions: tuple[_Version, ...] = ()


def served(client: Client, group: str) -> Iterator[Resource]:
    """Yield the resource of *group* in each version of this API group, the preferred order of the API server first.

    A version may not have the resource. Raises the errors of requests, except NotFound.
    """
    kind, plural = KINDS[group]
    act = f"get group {group}"
    try:
        versions = decoded(act, client.request(act, "GET", f"/apis/{group}").body, _Group).versions
    except NotFound:
        return
    for version in versions:
        if version.group_version.startswith(f"{group}/v"):
            yield Resource(kind, f"/apis/{version.group_version}/{plural}", optional=True)


def read_group(client: Client, group: str) -> list[PodGroup | LeaderWorkerSet]:
    """Return all objects of the API group *group*; none if it is not served. Raises the errors of requests."""
    for resource in served(client, group):
        try:
            listed = read_all(client, resource, JsonCodec(resource.kind, Interner()), lambda _: False)
        except NotFound:
            continue
        objects = cast("list[PodGroup | LeaderWorkerSet]", listed)
        # The API server leaves out the version of the items of its own lists.
        return [replace(obj, api_version=resource.api_version) if isinstance(obj, PodGroup) else obj for obj in objects]
    return []


class PodGroups:
    """The objects of the groups that pods belong to. Not thread-safe."""

    def __init__(self, client: Client, clock: Clock, warn: Callable[[str], None] = log.warning) -> None:
        """Create a reader. *warn* receives a message if groups cannot be read: their minimum is not known then."""
        self._client = client
        self._clock = clock
        self._warn = warn
        self._next = 0.0
        self._read: dict[str, list[PodGroup | LeaderWorkerSet]] = {}  #: the last known objects, by API group
        self._failed: set[str] = set()

    def refresh(self, snapshot: Snapshot) -> None:
        """Update the groups in *snapshot*, at most once a minute. If a read fails, the last known objects stay."""
        if (now := self._clock.monotonic()) < self._next:
            return
        self._next = now + REREAD_SECONDS
        self._read_all(api_groups(snapshot))
        for kind in ("PodGroup", "LeaderWorkerSet"):
            objects = [obj for group, read in self._read.items() for obj in read if KINDS[group][0] == kind]
            if objects or snapshot.of(kind):
                snapshot.replace_by_key(kind, {key_of(obj): obj for obj in objects})

    def _read_all(self, groups: Collection[str]) -> None:
        self._read = {group: read for group, read in self._read.items() if group in groups}
        for group in sorted(groups):
            try:
                self._read[group] = read_group(self._client, group)
                self._failed.discard(group)
            except ReschedulerError as error:
                if group not in self._failed:
                    self._failed.add(group)
                    self._warn(f"{error}; planning assumes that a group of pods needs all of them")
