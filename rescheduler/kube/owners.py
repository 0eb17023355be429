"""Reads about owners of pods: owners that are not built in, and why pods could not be created. Separate from the
reads of built-in controllers, because the resources of other owners must be discovered first.
"""

import threading
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any, Final, TypeVar
from urllib.parse import quote

import msgspec

from predicates.objects import ObjectMeta, OwnerReference, Wire
from predicates.texts import is_name, is_version, quoted
from rescheduler.clock import Clock
from rescheduler.errors import Forbidden, InputError, NotFound
from rescheduler.kube.client import Client
from rescheduler.kube.lister import Resource, read_structs
from rescheduler.kube.responses import decoded
from rescheduler.kube.workloads import WorkloadMeta, controller_of
from rescheduler.planning.controllers import Controller
from rescheduler.planning.forms import instant

# Read owners of pods that are not built in: custom resources by discovery, and pods that own other pods.
#
# What an owner wants is read from its ``scale`` subresource, or from one of the usual fields. Whether it has finished
# is read from its phase, its conditions and its completion time, as workflow engines, CI runners and operators write
# them.

_T = TypeVar("_T", bound=msgspec.Struct)

#: How long the resources of a group and version are cached.
CACHED: Final = timedelta(minutes=10)


#: Phases, in lower case, after which an owner creates no more pods.
_FINISHED_PHASES: Final = frozenset(
    {"succeeded", "failed", "completed", "complete", "error", "finished", "cancelled", "canceled", "skipped"}
)

#: Conditions that mean the same if their status is True.
_FINISHED_CONDITIONS: Final = frozenset({"Complete", "Completed", "Succeeded", "Failed", "Finished"})

#: Times that an owner sets when it has finished.
_FINISHED_TIMES: Final = ("completionTime", "finishedAt")


class ServedResource(Wire, frozen=True):
    """A resource, or a subresource such as ``clonesets/scale``."""

    name: str = ""
    kind: str = ""
    namespaced: bool = True


class ServedResources(Wire, frozen=True):
    resources: tuple[ServedResource, ...] | None = None


class GroupVersion(Wire, frozen=True):
    version: str = ""


class ServedGroup(Wire, frozen=True):
    preferred_version: GroupVersion = GroupVersion()


class ScaleSpec(Wire, frozen=True):
    replicas: int = 0


class Scale(Wire, frozen=True):
    spec: ScaleSpec = ScaleSpec()


class CustomObject(Wire, frozen=True):
    """A custom resource. The form of its spec and its status is not known."""

    metadata: WorkloadMeta
    spec: Any = None
    status: Any = None


@dataclass(frozen=True, slots=True)
class CustomOwner:
    """An owner that exists, perhaps another one than asked for, with the same name."""

    uid: str
    deleting: bool
    above: OwnerReference | None  #: its own controller
    wanted: int | None = None  #: None if it does not tell
    suspended: bool = False
    finished: bool = False


@dataclass(frozen=True, slots=True)
class _Served:
    """Where the objects of a kind are served."""

    path: str  #: of the group and version
    resource: ServedResource
    has_scale: bool


class CustomOwners:
    """A reader of owners that are not built in. Thread-safe."""

    def __init__(self, client: Client, clock: Clock) -> None:
        self._client = client
        self._clock = clock
        self._lock = threading.Lock()
        self._cache: dict[str, tuple[float, tuple[ServedResource, ...]]] = {}  # by path: until when, resources

    def read(self, owner: Controller) -> CustomOwner | None:
        """Read *owner*, or another object with its name. Return None if there is none, or if its kind is not served.

        Raises Forbidden, InputError (a name that no object can have, or a response that cannot be decoded), Retryable.
        """
        name = _checked(owner)
        if owner.api_version == "v1" and owner.kind == "Pod":
            return self._pod(owner, name)
        served = self._served(owner)
        if served is None:
            return None
        where = f"namespaces/{quote(owner.namespace, safe='')}/" if served.resource.namespaced else ""
        path = f"{served.path}/{where}{served.resource.name}/{name}"
        act = f"get {served.resource.name} {owner.namespace}/{name}"
        found = self._get(act, path, CustomObject)
        return None if found is None else self._owner(found, act, path, has_scale=served.has_scale)

    def _owner(self, found: CustomObject, act: str, path: str, *, has_scale: bool) -> CustomOwner:
        wanted = self._scale(act, path) if has_scale else None
        wanted = _wanted(found.spec) if wanted is None else wanted
        return CustomOwner(
            found.metadata.uid,
            found.metadata.deleting,
            controller_of(found.metadata.owner_references),
            wanted=0 if found.metadata.ends_with_its_pods else wanted,
            suspended=_field(found.spec, "suspend") is True,
            finished=_has_ended(found.status) or (wanted is None and _has_condition(found.status)),
        )

    def _pod(self, owner: Controller, name: str) -> CustomOwner | None:
        path = f"/api/v1/namespaces/{quote(owner.namespace, safe='')}/pods/{name}"
        found = self._get(f"get pod {owner.namespace}/{name}", path, CustomObject)
        if found is None:
            return None
        above, finished = controller_of(found.metadata.owner_references), _has_ended(found.status)
        return CustomOwner(found.metadata.uid, found.metadata.deleting, above, finished=finished)

    def _scale(self, act: str, path: str) -> int | None:
        """Return the desired number in the scale subresource; None without the permission to read it."""
        try:
            scale = self._get(f"{act} (scale)", f"{path}/scale", Scale)
        except Forbidden:
            return None
        return None if scale is None else scale.spec.replicas

    def _served(self, owner: Controller) -> _Served | None:
        """Return where the kind of *owner* is served: in its version, or else in the preferred one of its group."""
        group, _, version = owner.api_version.rpartition("/")
        root = f"/apis/{group}" if group else "/api"
        if (found := self._in_version(f"{root}/{version}", owner.kind.removesuffix(f".{group}"))) is not None:
            return found
        known = self._get(f"get group {group}", root, ServedGroup) if group else None
        preferred = known.preferred_version.version if known is not None else ""
        if not is_version(preferred) or preferred == version:
            return None
        return self._in_version(f"{root}/{preferred}", owner.kind.removesuffix(f".{group}"))

    def _in_version(self, path: str, kind: str) -> _Served | None:
        resources = self._resources(path)
        found = next((one for one in resources if one.kind == kind and "/" not in one.name), None)
        if found is None:
            return None
        return _Served(path, found, any(one.name == f"{found.name}/scale" for one in resources))

    def _resources(self, path: str) -> tuple[ServedResource, ...]:
        now = self._clock.monotonic()
        with self._lock:
            until, resources = self._cache.get(path, (0.0, ()))
        if resources and now < until:
            return resources
        listed = self._get(f"get resources of {path}", path, ServedResources)
        resources = (listed.resources or ()) if listed is not None else ()
        with self._lock:
            if resources:  # a definition that is missing may be created at any time
                self._cache[path] = now + CACHED.total_seconds(), resources
        return resources

    def _get(self, act: str, path: str, shape: type[_T]) -> _T | None:
        try:
            return decoded(act, self._client.request(act, "GET", path).body, shape)
        except NotFound:
            return None


def _checked(owner: Controller) -> str:
    """Return the name of *owner*. Raises InputError if its name, group or version cannot be those of an object.

    Tenants write references to owners: what is not a name must never become part of a request.
    """
    group, _, version = owner.api_version.rpartition("/")
    for name in (owner.name, group) if group else (owner.name,):
        if not is_name(name):
            raise InputError(f"owner of pods in {owner.namespace}: name {quoted(name)}: expected a DNS subdomain")
    if not is_version(version):
        raise InputError(f"owner of pods in {owner.namespace}: apiVersion {quoted(version)}: expected one such as v1")
    return owner.name


def _wanted(spec: Any) -> int | None:
    """Return the desired number of pods in one of the usual fields, or None."""
    for name in ("replicas", "instances"):
        value = _field(spec, name)
        if type(value) is int and 0 <= value < 2**31:
            return value
    pods = _field(spec, "pods")  # the pods themselves, as in a StrimziPodSet
    return len(pods) if isinstance(pods, list) else None


def _has_ended(status: Any) -> bool:
    """Return whether the phase or the time of completion shows that the owner has finished."""
    ended = any(_field(status, name) for name in _FINISHED_TIMES)
    return ended or any(phase.lower() in _FINISHED_PHASES for phase in _phases(status))


def _has_condition(status: Any) -> bool:
    """Return whether a condition shows that the owner has finished.

    Only for owners that do not tell how many pods they want: a roll-out is complete as well.
    """
    conditions = _field(status, "conditions")
    return isinstance(conditions, list) and any(
        _field(one, "type") in _FINISHED_CONDITIONS and _field(one, "status") == "True" for one in conditions
    )


def _phases(status: Any) -> Iterator[str]:
    """Yield the phase: also Spark's ``applicationState.state`` and Volcano's ``state.phase``."""
    candidates = (
        _field(status, "phase"),
        _field(_field(status, "applicationState"), "state"),
        _field(_field(status, "state"), "phase"),
    )
    yield from (phase for phase in candidates if isinstance(phase, str))


def _field(value: Any, name: str) -> Any:
    return value.get(name) if isinstance(value, dict) else None


# Read Events about pods that a controller could not create. Only for messages, because Events may be missing.

#: Older Events are ignored.
EVENT_AGE: Final = timedelta(minutes=5)


class EventSeries(Wire, frozen=True):
    last_observed_time: str | None = None


class KubernetesEvent(Wire, frozen=True):
    metadata: ObjectMeta
    message: str | None = None
    event_time: str | None = None
    last_timestamp: str | None = None
    series: EventSeries | None = None

    @property
    def at(self) -> datetime | None:
        """The time of the last occurrence."""
        observed = self.series.last_observed_time if self.series else None
        return instant(observed or self.last_timestamp or self.event_time)


def latest_message(client: Client, clock: Clock, namespace: str, uids: Iterable[str]) -> str:
    """Return the message of the newest ``FailedCreate`` event about the objects *uids*, or "".

    Raises the errors of requests, and Forbidden if Events may not be listed.
    """
    since = clock.now() - EVENT_AGE
    latest, message = since, ""
    for uid in uids:
        fields = f"involvedObject.uid={uid},reason=FailedCreate"
        events = Resource("Event", f"/api/v1/namespaces/{quote(namespace, safe='')}/events", fields=fields)
        for event in read_structs(client, events, KubernetesEvent):
            if (at := event.at) is not None and at >= latest and event.message:
                latest, message = at, event.message
    return message
