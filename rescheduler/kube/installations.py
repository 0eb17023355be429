"""Find the installations of a cluster by their Leases, and the ConfigMaps of an installation by its names."""

import datetime as dt
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Final

import msgspec

from rescheduler import decoding
from rescheduler.errors import Forbidden, InputError, NotFound, ReschedulerError, Retryable
from rescheduler.kube.client import Client
from rescheduler.kube.lease import LeaseObject, LeaseStore
from rescheduler.kube.memory import ANNOTATION, Absent, MemoryStore, UnreadableMemory
from rescheduler.settings import LEASE, MEMORY_NAME, POOL_LEASE, NamedInstallation

#: Where an installation is expected first: by our manifests, and by those of k8s-spot-rescheduler.
NAMESPACES: Final = ("spot-rescheduler", "kube-system")

_ALL: Final = "/apis/coordination.k8s.io/v1/leases"
#: The kubelets' Leases, one for each node, are left out.
_FILTER: Final = {"fieldSelector": "metadata.namespace!=kube-node-lease"}

_PROGRAM: Final = "spot-rescheduler"
_APP: Final = "app.kubernetes.io/name"
_RELEASE: Final = "app.kubernetes.io/instance"
#: A label of the manifests: of the Lease that is held while a machine is ordered away, whatever its name.
_COMPONENT: Final = "app.kubernetes.io/component"
_POOL: Final = "pool"
_LONGEST: Final = 63

#: A holder renews its Lease every two seconds. After this time it is gone, whatever the clocks of both machines show.
_GONE: Final = dt.timedelta(minutes=5)


#: Values of a flag that turn it off, as the flag package of Go reads them.
_OFF: Final = ("0", "f", "F", "false", "FALSE", "False")
_DRY_RUN: Final = "--dry-run"
_DRY_RUN_ENV: Final = "RESCHEDULER_DRY_RUN"


class _Named(msgspec.Struct, frozen=True):
    name: str = ""


class _Variable(msgspec.Struct, frozen=True):
    name: str = ""
    value: str = ""


class _Container(msgspec.Struct):
    args: list[str] = []
    command: list[str] = []
    env: list[_Variable] = []

    @property
    def is_dry_run(self) -> bool:
        """Whether the last ``--dry-run`` of the arguments turns it on, otherwise whether the environment does."""
        words = [word for word in (*self.command, *self.args) if word.partition("=")[0] in (_DRY_RUN, _DRY_RUN[1:])]
        words += [f"=={each.value}" for each in self.env if each.name == _DRY_RUN_ENV and not words]
        return bool(words) and words[-1].rpartition("=")[2] not in _OFF


class _PodSpec(msgspec.Struct, frozen=True):
    containers: list[_Container] = []


class _PodStatus(msgspec.Struct, frozen=True):
    phase: str = ""


class _DaemonPod(msgspec.Struct):
    metadata: _Named = _Named()
    spec: _PodSpec = _PodSpec()
    status: _PodStatus = _PodStatus()


class _DaemonPods(msgspec.Struct):
    items: list[_DaemonPod]


def dry_runs(client: Client, namespace: str) -> list[str]:
    """Return the names of the running pods of daemons in *namespace* that are dry runs.

    A dry run holds no Lease and stores nothing, so its pod is the only trace of it. If the pods cannot be listed, for
    example without permission, none is known.
    """
    path = f"/api/v1/namespaces/{namespace}/pods"
    try:
        body = client.request(
            "list pods of the daemon", "GET", path, query={"labelSelector": f"{_APP}={_PROGRAM}"}
        ).body
        pods = decoding.decode(body, _DaemonPods).items
    except (ReschedulerError, msgspec.MsgspecError, UnicodeDecodeError):
        return []
    running = (pod for pod in pods if pod.status.phase == "Running")
    return sorted(pod.metadata.name for pod in running if any(each.is_dry_run for each in pod.spec.containers))


class _Leases(msgspec.Struct):
    items: list[LeaseObject]


def holder(lease: LeaseObject, now: dt.datetime) -> str:
    """Return the holder of *lease*, or "" if there is none or if it ended without releasing the Lease."""
    try:
        renewed = dt.datetime.fromisoformat(lease.spec.renew_time or "")
    except ValueError:
        return lease.spec.holder_identity or ""
    gone = renewed.tzinfo is not None and now - renewed > _GONE
    return "" if gone else lease.spec.holder_identity or ""


@dataclass(frozen=True, slots=True)
class InstallationFinder:
    """Finds the installation that a user means. *command* returns the command that acts on a given one."""

    client: Client
    now: dt.datetime
    command: Callable[[str, str], str]  #: of a namespace and the name of a Lease

    def find(
        self, named: NamedInstallation, accepts: Callable[[LeaseObject], bool] = lambda _: False, advice: str = ""
    ) -> LeaseObject:
        """Return the Lease of the installation that *named* describes, which a daemon holds.

        The Lease in the named namespace is used, without a name that in :data:`NAMESPACES`; otherwise the only one that
        the cluster has. If none is held, *accepts* decides which Lease may be used without a holder; *advice* says how
        to make it accept one.

        Raises NotFound if there is none and InputError if there is more than one, with the commands for the others, and
        the errors of requests.
        """
        expected = list(self._expected(named))
        if held := self._held(expected):
            return self._only(held)
        listed, unlisted = self._listed()
        known = _unique([*expected, *listed])
        meant = [lease for lease in known if _is_meant(lease, named)]
        if chosen := self._held(meant) or [lease for lease in meant if accepts(lease)]:
            return self._only(chosen)
        hint = f"; {advice}" if meant and advice else ""
        raise NotFound(f"{self._nothing(expected, named)}; {unlisted or self._places(known)}{hint}")

    def elsewhere(self) -> str:
        """Return where daemons hold a Lease, or why that is not known."""
        listed, unlisted = self._listed()
        return unlisted or self._places(listed)

    def _expected(self, named: NamedInstallation) -> Iterator[LeaseObject]:
        for namespace in [named.namespace] if named.namespace else NAMESPACES:
            try:
                lease = LeaseStore(self.client, namespace, named.lease_name or LEASE).read()
            except Forbidden:
                if named.namespace:
                    raise
                continue
            if lease is not None:
                lease.metadata.namespace, lease.metadata.name = namespace, named.lease_name or LEASE
                yield lease

    def _held(self, leases: Iterable[LeaseObject]) -> list[LeaseObject]:
        return [lease for lease in leases if holder(lease, self.now)]

    def _only(self, leases: Sequence[LeaseObject]) -> LeaseObject:
        if len(leases) > 1:
            raise InputError(f"the cluster has {len(leases)} installations, name one of them: {self._commands(leases)}")
        return leases[0]

    def _listed(self) -> tuple[list[LeaseObject], str]:
        """Return the Leases of all installations, or why they are not known."""
        try:
            body = self.client.request("list leases in all namespaces", "GET", _ALL, query=_FILTER).body
        except NotFound:
            return [], ""
        except Forbidden as error:
            return [], f"other namespaces were not searched: {error}"
        try:
            leases = decoding.decode(body, _Leases).items
        except (msgspec.MsgspecError, UnicodeDecodeError) as error:
            raise Retryable(f"the response is not a list of Leases: {error}") from error
        return [lease for lease in leases if _is_ours(lease)], ""

    def _nothing(self, expected: Sequence[LeaseObject], named: NamedInstallation) -> str:
        name = named.lease_name or LEASE
        if not named.namespace:
            return f"no daemon holds Lease {name} in namespace {' or '.join(NAMESPACES)}"
        if not expected:
            return f"Lease {named.namespace}/{name} does not exist"
        spec = expected[0].spec
        gone = f": {spec.holder_identity} renewed it last at {spec.renew_time}" if spec.holder_identity else ""
        return f"no daemon holds Lease {named.namespace}/{name}{gone}"

    def _places(self, known: Sequence[LeaseObject]) -> str:
        if held := self._held(known):
            return f"daemons that hold a Lease: {self._commands(held)}"
        without = ", ".join(f"{lease.metadata.namespace}/{lease.metadata.name}" for lease in known)
        return "no daemon holds one in any namespace" + (f"; Leases without a holder: {without}" if without else "")

    def _commands(self, leases: Iterable[LeaseObject]) -> str:
        return "; ".join(self.command(lease.metadata.namespace, lease.metadata.name) for lease in leases)


def _unique(leases: Iterable[LeaseObject]) -> list[LeaseObject]:
    return list({(lease.metadata.namespace, lease.metadata.name): lease for lease in leases}.values())


def _is_ours(lease: LeaseObject) -> bool:
    """Return whether *lease* is that of an installation: by its name, the chart's label, or the daemon's annotation.

    An installation that removes machines has another Lease, by which it elects no leader.
    """
    labels, of_a_daemon = lease.metadata.labels or {}, ANNOTATION in lease.annotations
    if labels.get(_COMPONENT) == _POOL or (POOL_LEASE in lease.metadata.name and not of_a_daemon):
        return False
    return _PROGRAM in lease.metadata.name or labels.get(_APP) == _PROGRAM or of_a_daemon


def _is_meant(lease: LeaseObject, named: NamedInstallation) -> bool:
    meta = lease.metadata
    return named.namespace in (None, meta.namespace) and named.lease_name in (None, meta.name)


def config_map_names(lease: LeaseObject, default: str) -> list[str]:
    """Return the names that the ConfigMap *default* of the installation with *lease* may have, the likeliest first.

    The chart names it after the release (``fullname`` in its _names.tpl), as it does the labels of the Lease. With a
    prefix or suffix for all names, the Lease has it as well. The daemon notes the name of the memory.
    """
    part = default.removeprefix(_PROGRAM)
    names = []
    if noted := lease.annotations.get(ANNOTATION, ""):
        names.append(noted if default == MEMORY_NAME else noted.replace("-memory", part))
    labels = lease.metadata.labels or {}
    if (release := labels.get(_RELEASE, "")) and (app := labels.get(_APP, "")):
        full = release if app in release else f"{release}-{app}"
        names.append(f"{full[:_LONGEST].removesuffix('-')}{part}")
    if LEASE in lease.metadata.name:
        names.append(lease.metadata.name.replace(LEASE, default))
    return list(dict.fromkeys([*names, default]))


def find_config_map(
    finder: InstallationFinder, named: NamedInstallation, name: str | None, default: str, key: str
) -> MemoryStore:
    """Return the ConfigMap *name*, or that of the installation for which the default name is *default*.

    A daemon need not run. Raises the errors of :meth:`InstallationFinder.find` if there is no such ConfigMap.
    """
    client = finder.client
    if named.namespace and name:
        return MemoryStore(client, named.namespace, name, key=key)
    try:
        lease = finder.find(named, lambda _: True)
    except (NotFound, Forbidden) as error:
        return _without_lease(client, named, name or default, key, error)
    return config_map_of(client, lease, name, default, key)


def config_map_of(client: Client, lease: LeaseObject, name: str | None, default: str, key: str) -> MemoryStore:
    """Return the ConfigMap *name* of the installation with *lease*, without a name the first one that exists."""
    names = [name] if name else config_map_names(lease, default)
    stores = [MemoryStore(client, lease.metadata.namespace, known, key=key) for known in names]
    return next(filter(_exists, stores), stores[0])


def _without_lease(
    client: Client, named: NamedInstallation, name: str, key: str, error: ReschedulerError
) -> MemoryStore:
    """Return the ConfigMap *name* of a daemon that does not elect a leader. Raises *error* if it does not exist."""
    for namespace in [named.namespace] if named.namespace else NAMESPACES:
        store = MemoryStore(client, namespace, name, key=key)
        if _exists(store):
            return store
    raise error


def _exists(store: MemoryStore) -> bool:
    match store.read():
        case Absent(version):
            return bool(version)
        case UnreadableMemory(forbidden=forbidden):
            return not forbidden
        case _:
            return True
