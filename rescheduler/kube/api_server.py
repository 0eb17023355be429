"""What the API server is and permits: its version, and the permissions that we miss."""

import logging
from collections.abc import Callable, Collection, Iterable
from dataclasses import dataclass
from typing import Any, Final

import msgspec

from predicates.scheduler import Scheduler
from rescheduler import decoding
from rescheduler.clock import Clock
from rescheduler.errors import Forbidden, NotFound, ReschedulerError
from rescheduler.kube.client import Client
from rescheduler.kube.lister import RESOURCES
from rescheduler.settings import Scheduling

# Find the missing permissions with SelfSubjectAccessReviews after a request was forbidden.
#
# Every authenticated user may create a SelfSubjectAccessReview. If it is forbidden nevertheless, the errors of the
# requests are the only information.

PATH: Final = "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews"

#: Seconds between two reviews.
REVIEW_SECONDS: Final = 15.0

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class AccessRight:
    """A verb on a resource, optionally limited to a *namespace* and to the object *name*."""

    verb: str
    resource: str  #: ``nodes``, ``pods/eviction``
    group: str = ""
    namespace: str = ""
    name: str = ""

    def __str__(self) -> str:
        resource, slash, subresource = self.resource.partition("/")
        of_group = f"{resource}.{self.group}" if self.group else resource
        where = f" in namespace {self.namespace}" if self.namespace else ""
        named = f" {self.name}" if self.name else ""
        return f"{self.verb} {of_group}{slash}{subresource}{named}{where}"

    @property
    def attributes(self) -> dict[str, str]:
        """The ``resourceAttributes`` of a review."""
        resource, _, subresource = self.resource.partition("/")
        attributes = {
            "verb": self.verb,
            "group": self.group,
            "resource": resource,
            "subresource": subresource,
            "namespace": self.namespace,
            "name": self.name,
        }
        return {key: value for key, value in attributes.items() if value}


#: The rights to watch the cluster. Optional kinds are left out: if they are not served, no permission is needed.
_READING: Final = tuple(
    AccessRight(verb, resource.plural, resource.path.split("/")[2] if resource.path.startswith("/apis/") else "")
    for resource in RESOURCES
    if not resource.optional
    for verb in ("list", "watch")
)

#: The rights to read a candidate's controllers, and the quotas of their namespaces.
_CONTROLLERS: Final = (
    AccessRight("get", "replicasets", "apps"),
    AccessRight("get", "deployments", "apps"),
    AccessRight("get", "statefulsets", "apps"),
    AccessRight("get", "replicationcontrollers"),
    AccessRight("get", "jobs", "batch"),
    AccessRight("list", "controllerrevisions", "apps"),
    AccessRight("list", "priorityclasses", "scheduling.k8s.io"),
    AccessRight("list", "runtimeclasses", "node.k8s.io"),
    AccessRight("list", "limitranges"),
    AccessRight("list", "resourcequotas"),
    AccessRight("list", "verticalpodautoscalers", "autoscaling.k8s.io"),
)

#: The rights to drain a node.
_DRAINING: Final = (
    AccessRight("get", "nodes"),
    AccessRight("patch", "nodes"),
    AccessRight("get", "pods"),
    AccessRight("create", "pods/eviction"),
    AccessRight("create", "events"),
    AccessRight("patch", "events"),
    AccessRight("list", "events"),
)


#: The right to read whether kubelets renew the Leases of their Nodes.
_NODE_LEASES: Final = tuple(
    AccessRight(verb, "leases", "coordination.k8s.io", "kube-node-lease") for verb in ("get", "list")
)


def rights_of_a_dry_run() -> tuple[AccessRight, ...]:
    """Return the permissions that a dry run needs. A dry run also reads the memory if that is permitted."""
    return _READING + _CONTROLLERS


def rights_of_the_daemon(
    namespace: str, memory: str, lease: str = "", *, removes_nodes: bool, savings: str = ""
) -> tuple[AccessRight, ...]:
    """Return the permissions of the daemon. The manifests create the Lease and the ConfigMaps.

    *memory* and *savings* are the names of ConfigMaps; without the right to *savings*, only the ledger is missing.
    *lease* is the name of the Lease, "" without leader election. *removes_nodes*: a provider removes machines.
    """
    stored = [("configmaps", "", name) for name in (memory, savings) if name]
    stored_objects = [*stored, *([("leases", "coordination.k8s.io", lease)] if lease else [])]
    own = [
        AccessRight(verb, resource, group, namespace, name)
        for resource, group, name in stored_objects
        for verb in ("get", "patch")
    ]
    removal = (AccessRight("delete", "nodes"), *_NODE_LEASES) if removes_nodes else ()
    return (*_READING, *_CONTROLLERS, *_DRAINING, *own, *removal)


def describe_missing(missing: Collection[AccessRight]) -> str:
    """Return a message with the *missing* permissions; "" if there are none."""
    return f"missing permissions: {'; '.join(map(str, missing))}" if missing else ""


class _ReviewStatus(msgspec.Struct):
    allowed: bool = False


class _Review(msgspec.Struct):
    status: _ReviewStatus


class RightsReview:
    """Reviews *rights* while a request is forbidden or a right is missing. :attr:`missing` is thread-safe."""

    def __init__(
        self, client: Client, clock: Clock, rights: Iterable[AccessRight], refused: Callable[[], bool] = lambda: True
    ) -> None:
        """Create the review. *refused* returns whether a request is forbidden at present."""
        self.missing: tuple[AccessRight, ...] = ()  #: as of the last review
        self._client = client
        self._clock = clock
        self._rights = tuple(rights)
        self._refused = refused
        self._ask_at = clock.monotonic()

    def why(self) -> str:
        """Return a message with the missing permissions, or "". May send requests.

        Rights to ConfigMaps are left out: a memory that cannot be read or stored is reported with its own reason, and
        the daemon works without the ledger of savings.
        """
        if self._clock.monotonic() >= self._ask_at and (self.missing or self._refused()):
            self._review()
        return describe_missing([right for right in self.missing if right.resource != "configmaps"])

    def _review(self) -> None:
        self._ask_at = self._clock.monotonic() + REVIEW_SECONDS
        try:
            missing = tuple(right for right in self._rights if not is_allowed(self._client, right))
        except ReschedulerError as error:
            log.debug("rights cannot be reviewed: %s", error)
            return
        for right in missing:
            if right not in self.missing:
                log.warning("missing permission: %s", right)
        self.missing = missing


def is_allowed(client: Client, right: AccessRight) -> bool:
    """Return whether the API server grants *right* to this client. Raises the errors of requests."""
    body: dict[str, Any] = {
        "apiVersion": "authorization.k8s.io/v1",
        "kind": "SelfSubjectAccessReview",
        "spec": {"resourceAttributes": right.attributes},
    }
    response = client.request("create selfsubjectaccessreviews", "POST", PATH, body=body)
    try:
        return decoding.decode(response.body, _Review).status.allowed
    except (msgspec.MsgspecError, UnicodeDecodeError):
        return True  # unknown; the request itself will fail


# The version of the API server, which tells the version of the cluster's scheduler.

#: Seconds until the version is read again: a control plane can be upgraded while the daemon runs.
_REREAD_SECONDS: Final = 300.0
#: The same while no version is known: until then, the newest release is assumed, which may not be that of the cluster.
_RETRY_SECONDS: Final = 30.0
_READ_SECONDS: Final = 5.0


class _Version(msgspec.Struct, rename="camel"):
    git_version: str = ""


def server_version(client: Client) -> str:
    """Return the version of the API server, such as ``v1.36.3``, or "" if it may not be read or has another form.

    Raises the errors of requests.
    """
    try:
        answer = client.request("get version", "GET", "/version", read_seconds=_READ_SECONDS)
    except (Forbidden, NotFound):
        return ""
    try:
        return decoding.decode(answer.body, _Version).git_version
    except msgspec.MsgspecError:
        return ""


class SchedulerWatch:
    """The rules of the cluster's scheduler, which can change while the program runs. Not thread-safe."""

    def __init__(self, client: Client, clock: Clock, scheduling: Scheduling) -> None:
        self._client = client
        self._clock = clock
        self._scheduling = scheduling
        self._server = ""
        self._rules = scheduling.scheduler("")
        self._next = 0.0
        self._noted: set[str] = set()
        for note in scheduling.notes:
            self._note(note)

    def current(self) -> Scheduler:
        """Return the rules by the version of the API server, which is read every few minutes.

        If it cannot be read, the last known version applies.
        """
        if self._clock.monotonic() >= self._next:
            try:
                self._server = server_version(self._client) or self._server
            except ReschedulerError as error:
                self._note(f"the version of the API server cannot be read: {error}")
            self._next = self._clock.monotonic() + (_REREAD_SECONDS if self._server else _RETRY_SECONDS)
            self._rules = self._scheduling.scheduler(self._server)
            if (assumption := self._scheduling.assumption(self._server)) is not None:
                self._note(assumption)
        return self._rules

    def _note(self, text: str) -> None:
        """Log *text* unless it was logged before."""
        if text not in self._noted:
            self._noted.add(text)
            log.warning("%s", text)
