"""Which rights this program lacks, asked of the API server before the first of them is needed.

A SelfSubjectAccessReview is open to everybody who is authenticated. Where it is not, nothing is known beforehand, and
a missing right shows when the request is refused.
"""

import logging
from collections.abc import Collection, Iterable
from dataclasses import dataclass
from typing import Any, Final

import msgspec

from rescheduler import shapes
from rescheduler.clock import Clock
from rescheduler.errors import ReschedulerError
from rescheduler.kube.client import Client
from rescheduler.kube.resources import RESOURCES

PATH: Final = "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews"

#: Seconds between two reviews while a right is missing.
REVIEW_SECONDS: Final = 15.0

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Right:
    """One verb on one resource; with *namespace*, there only; with *name*, on that object only."""

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


#: To read what decides. Optional kinds are left out: where they are not served, no right is needed.
_READING: Final = tuple(
    Right(verb, one.plural, one.path.split("/")[2] if one.path.startswith("/apis/") else "")
    for one in RESOURCES
    if not one.optional
    for verb in ("list", "watch")
)

#: To read a candidate's controllers.
_CONTROLLERS: Final = (
    Right("get", "replicasets", "apps"),
    Right("get", "deployments", "apps"),
    Right("get", "statefulsets", "apps"),
    Right("get", "replicationcontrollers"),
    Right("get", "jobs", "batch"),
)

#: To drain.
_DRAINING: Final = (
    Right("get", "nodes"),
    Right("patch", "nodes"),
    Right("get", "pods"),
    Right("create", "pods/eviction"),
    Right("create", "events"),
    Right("patch", "events"),
    Right("list", "events"),
)


def rights_of_a_dry_run() -> tuple[Right, ...]:
    """What a dry run needs, beside reading the memory, which it can do without."""
    return _READING + _CONTROLLERS


def rights_of_the_daemon(namespace: str, memory: str, lease: str = "", *, removes_nodes: bool) -> tuple[Right, ...]:
    """What the daemon needs; *lease*: where it takes part in an election; *removes_nodes*: for a cloud provider."""
    kept = [("configmaps", "", memory), *([("leases", "coordination.k8s.io", lease)] if lease else [])]
    own = [
        Right(verb, resource, group, namespace, "" if verb == "create" else name)
        for resource, group, name in kept
        for verb in ("create", "get", "patch")
    ]
    removal = (Right("delete", "nodes"),) if removes_nodes else ()
    return (*_READING, *_CONTROLLERS, *_DRAINING, *own, *removal)


def told(missing: Collection[Right]) -> str:
    """*missing* in words; "" for none."""
    return f"missing rights: {'; '.join(map(str, missing))}" if missing else ""


class _Status(msgspec.Struct):
    allowed: bool = False


class _Review(msgspec.Struct):
    status: _Status


class RightsReview:
    """Asks for *rights* once, and again each minute while some are missing. :attr:`missing` is for any thread."""

    def __init__(self, client: Client, clock: Clock, rights: Iterable[Right]) -> None:
        self.missing: tuple[Right, ...] = ()  #: as of the last review
        self._client = client
        self._clock = clock
        self._rights = tuple(rights)
        self._ask_at = clock.monotonic()

    def why(self) -> str:
        """Which rights are missing, in words; "" where none is. May ask the API server.

        Those to the memory are left out: where it cannot be read or stored, that is a reason of its own.
        """
        if self._clock.monotonic() >= self._ask_at:
            self._review()
        return told([right for right in self.missing if right.resource != "configmaps"])

    def _review(self) -> None:
        try:
            missing = tuple(right for right in self._rights if not self._is_allowed(right))
        except ReschedulerError as error:
            log.debug("rights cannot be reviewed: %s", error)
            self._ask_at = self._clock.monotonic() + REVIEW_SECONDS
            return
        for right in missing:
            if right not in self.missing:
                log.warning("missing right: %s", right)
        self.missing = missing
        self._ask_at = self._clock.monotonic() + (REVIEW_SECONDS if missing else float("inf"))

    def _is_allowed(self, right: Right) -> bool:
        body: dict[str, Any] = {
            "apiVersion": "authorization.k8s.io/v1",
            "kind": "SelfSubjectAccessReview",
            "spec": {"resourceAttributes": right.attributes},
        }
        answer = self._client.request("create selfsubjectaccessreviews", "POST", PATH, body=body)
        try:
            return shapes.decode(answer.body, _Review).status.allowed
        except (msgspec.MsgspecError, UnicodeDecodeError):
            return True  # not known; the request itself will tell
